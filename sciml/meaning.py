"""What the coordinates of an embedding are, for every kind of trial function, in a sentence; and why some have none."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from sciml.errors import ModelError
from sciml.grids import GridFunction
from sciml.models import (
    MLP,
    Cornered,
    DeepFeatures,
    PeriodicInputs,
    RandomFeatures,
    Spectral,
    Transformed,
    Windowed,
    model_of,
    scaled_of,
)
from sciml.models.elements import Elements
from sciml.models.hermite import Hermite
from sciml.typing import MultiIndex

_REMEDY = (
    "distil it into one network, sciml.distil(solution, sciml.MLP(20, 20)), which says how far it is from this solution, and "
    "embed with that"
)


def model_to_embed_with(trial: nn.Module, engine: str) -> nn.Module:
    """The one model inside a trial function.

    Args:
        trial: the trial function of a solution.
        engine: what made it, for the message.

    Raises:
        ModelError: there is none, with the reason and a remedy.
    """
    model = model_of(trial)
    if isinstance(model, Windowed) and len(model.windows) == 1:
        trial = model.windows[0]
        model = model_of(trial)
    if isinstance(model, Windowed):
        inner = [model_of(each) for each in model.windows]
        if any(isinstance(each, Elements) for each in inner):
            raise ModelError(
                f"this solution is made of {len(inner)} windows of time on elements: piecewise polynomials, whose coefficients "
                f"belong to one piece each, so there are no coordinates that mean the same everywhere; {_REMEDY}"
            )
        kinds = " and ".join(sorted({type(each).__name__ for each in inner}))
        raise ModelError(
            f"this solution is made of {len(inner)} windows of time, each with a model of its own ({kinds}), so there is no "
            f"one layer to embed with; {_REMEDY}"
        )
    if isinstance(model, Elements):
        raise ModelError(
            "this solution is made of piecewise polynomials, whose coefficients belong to one piece each, so there are no "
            f"coordinates that mean the same everywhere; {_REMEDY}"
        )
    if model is None:
        held = {GridFunction: "values at the nodes of a grid", Hermite: "values at times, joined by polynomials"}
        what = held.get(type(trial), f"a {type(trial).__name__}")
        raise ModelError(
            f"this solution comes from {engine} and has no network: it holds {what}, so nothing was learned that could be "
            f"embedded with; {_REMEDY}"
        )
    return model


def meaning_of(run: nn.Module, module: nn.Module, layer: str | nn.Module | None, watched: nn.Module) -> str:
    """One sentence on what an embedding's coordinates are.

    Args:
        run: the trial function, or the module itself.
        module: what the layer is part of.
        layer: as it was asked for; None for the default.
        watched: the submodule that is watched.
    """
    kind = type(module).__name__
    if isinstance(run, Windowed):
        run = run.windows[0]
    if watched is module:
        said = f"the outputs of the {kind}"
    elif layer is not None:
        where = f"{layer!r} " if isinstance(layer, str) else ""
        said = f"the outputs of layer {where}({type(watched).__name__}) of the {kind}"
        if isinstance(watched, nn.RNNBase):
            said += ", step after step"
    else:
        said = _default(module)
    inner = scaled_of(run)
    if inner is not None:
        said += ", as functions of the coordinates scaled to [-1, 1]"
        said += ", periodic ones behind cosines and sines" if isinstance(inner.model, PeriodicInputs) else ""
    around = (
        "; the solution is g + φ N with N affine in the model's last layer, and g and φ, which hold conditions exactly, are no "
        "part of the embedding"
        if isinstance(run, Transformed)
        else ""
    )
    return said + around


def _default(module: nn.Module) -> str:
    """What the last linear layer is given."""
    if isinstance(module, DeepFeatures):
        return (
            f"the first {module.features}: random sines of the trained network's last hidden layer; the rest: that layer "
            "itself; the fields are affine in them"
        )
    if isinstance(module, MLP):
        return f"the learned outputs of the last of {len(module.hidden)} hidden layers; the fields are affine in them"
    if isinstance(module, RandomFeatures):
        return "the random features sin(ω·x + b) themselves, which are drawn and not learned; the fields are linear in them"
    if isinstance(module, Spectral):
        return (
            "the products of Chebyshev polynomials (of waves along periodic coordinates) that model.basis.products lists, "
            "which are fixed and not learned; the fields are linear in them"
        )
    if isinstance(module, Cornered):
        return (
            f"the first {module.smooth_width}: smooth functions (random features or products of polynomials); the rest: "
            "functions that are singular at the corners; all are fixed and not learned, and the fields are linear in them"
        )
    return f"what the last linear layer of the {type(module).__name__} is given"


def columns_of(width: int, plan: Sequence[MultiIndex]) -> list[str]:
    """Names of the columns: ``z0``, ``z1``, ... and for each derivative ``z0_x``, ``z1_x``, ..."""
    suffixes = ["", *("_" + "_".join(index) for index in plan)]
    return [f"z{number}{suffix}" for suffix in suffixes for number in range(width)]
