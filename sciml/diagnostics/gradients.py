"""How gradients flow: which terms pull how hard and against which others, and what arrives in each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from torch import Tensor, nn

from sciml.diagnostics.layer_trace import Passage, own_model, passages
from sciml.solvers import Objective

_FLAT, _DEAD = 1e-2, 1e-6


def term_gradients(objective: Objective) -> tuple[pd.DataFrame, pd.DataFrame, Tensor]:
    """The size and the gradient of every term of a loss.

    Args:
        objective: the loss, its parameters with gradients.

    Returns:
        A DataFrame indexed by term: ``scale`` (natural size, in the residual's unit), ``relative`` (root mean square by scale),
        ``weight``, ``share`` of the loss, and ``gradient``, the norm of the weighted term's gradient; the cosines between the
        gradients of all pairs of terms; and the gradient of the loss, shape ``(p,)``.
    """
    values = objective.terms()
    weighted = {name: objective.weights[name] * value for name, value in values.items()}
    total = sum(float(each.detach()) for each in weighted.values())
    gradients = {
        name: torch.cat(
            [
                each.reshape(-1)
                for each in torch.autograd.grad(
                    value, objective.parameters, retain_graph=True, allow_unused=True, materialize_grads=True
                )
            ]
        )
        for name, value in weighted.items()
    }
    rows = {
        name: {
            "scale": objective.scales[name],
            "relative": float(values[name].detach().clamp(min=0).sqrt()),
            "weight": objective.weights[name],
            "share": float(weighted[name].detach()) / total if total > 0 else 0.0,
            "gradient": float(gradients[name].norm()),
        }
        for name in values
    }
    columns = ["scale", "relative", "weight", "share", "gradient"]
    matrix = torch.stack(list(gradients.values()))
    unit = matrix / matrix.norm(dim=1, keepdim=True).clamp(min=1e-300)
    cosines = pd.DataFrame((unit @ unit.T).clamp(-1, 1).cpu().numpy(), index=list(values), columns=list(values))
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns), cosines, matrix.sum(dim=0)


def layer_states(trial: nn.Module, parameters: Sequence[Tensor], gradient: Tensor, points: Tensor) -> pd.DataFrame:
    """What arrives in each layer of a model, and what it makes of the points.

    Args:
        trial: the trial function.
        parameters: those that are varied.
        gradient: of the loss by them, one after the other, shape ``(p,)``.
        points: some of the domain, shape ``(n, D)``.

    Returns:
        A DataFrame indexed by layer, as in ``model.named_modules()``: ``kind``, ``parameters`` (their number), ``weights`` and
        ``gradient`` (norms), ``spread`` (the median over units of the standard deviation over points), ``dead`` and
        ``saturated`` (of activations: the share of units whose slope is zero at all points, and of slopes below a hundredth of
        the largest).
    """
    pieces = dict(
        zip(map(id, parameters), gradient.split([parameter.numel() for parameter in parameters]), strict=True)
    )
    found: dict[str, dict[str, object]] = {}
    met = passages(trial, points)
    modules = dict(own_model(trial).named_modules())
    before: Passage | None = None
    for passage in (each for each in met if each.leaf):
        between = _between(before, passage)
        if between is not None:
            found[between[0]] = between[1]
        own = list(modules[passage.path].parameters(recurse=False))
        row: dict[str, object] = {"kind": passage.kind, "parameters": sum(each.numel() for each in own)}
        if own:
            varied = [pieces[id(each)] for each in own if id(each) in pieces]
            row["weights"] = float(torch.cat([each.detach().reshape(-1) for each in own]).norm())
            row["gradient"] = float(torch.cat(varied).norm()) if varied else 0.0
        if passage.out:
            row |= _spread(passage.out[0])
        if not own and passage.into and passage.out:
            row |= _slopes(passage.into[0], passage.out[0])
        found[passage.path or type(own_model(trial)).__name__] = row
        before = passage
    columns = ["kind", "parameters", "weights", "gradient", "spread", "dead", "saturated"]
    return pd.DataFrame.from_dict(found, orient="index", columns=columns)


def _between(before: Passage | None, passage: Passage) -> tuple[str, dict[str, object]] | None:
    """An activation that is a function in a forward, between two layers."""
    if before is None or not before.out or not passage.into or before.out[0] is passage.into[0]:
        return None
    slopes = _slopes(before.out[0], passage.into[0])
    if not slopes:
        return None
    return f"{before.path} to {passage.path}", {
        "kind": "function",
        "parameters": 0,
        **_spread(passage.into[0]),
        **slopes,
    }


def _spread(values: Tensor) -> Mapping[str, float]:
    if not values.is_floating_point() or values.ndim < 2 or len(values) < 2:
        return {}
    return {"spread": float(values.detach().reshape(len(values), -1).std(dim=0).median())}


def _slopes(into: Tensor, out: Tensor) -> dict[str, float]:
    """How many units are dead and how many slopes flat, of what maps number by number; nothing of anything else."""
    if into.shape != out.shape or into.ndim != 2 or not out.requires_grad or not into.requires_grad:
        return {}
    (slope,) = torch.autograd.grad(out.sum(), into, retain_graph=True, allow_unused=True)
    if slope is None:
        return {}
    sizes = slope.detach().abs()
    largest = float(sizes.max())
    if not largest > 0:
        return {"dead": 1.0, "saturated": 1.0}
    return {
        "dead": float((sizes.amax(dim=0) <= _DEAD * largest).double().mean()),
        "saturated": float((sizes <= _FLAT * largest).double().mean()),
    }
