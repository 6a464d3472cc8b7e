"""Loading of surrogates: tensors and plain values, nothing that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from sciml.data import archive
from sciml.data.sandbox import FOREIGN
from sciml.errors import FileError, SciMLError
from sciml.operators.attention import Transformer
from sciml.operators.codes import PrincipalComponents, Scaling
from sciml.operators.convolution import UNet
from sciml.operators.deeponet import DeepONet, PODDeepONet
from sciml.operators.family import Family
from sciml.operators.fourier import FNO
from sciml.operators.learning import Frame, LearnedOperator
from sciml.operators.recurrent import Recurrent
from sciml.operators.regression import ClosedForm, Kernel, Linear
from sciml.operators.surrogate import PLAIN, Surrogate

KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Linear, Kernel, DeepONet, PODDeepONet, FNO, UNet, Transformer, Recurrent)
}


def load(path: str | Path, family: Family | None = None) -> Surrogate:
    """Read a surrogate that ``Surrogate.save`` wrote.

    Args:
        path: the file.
        family: the family of the pairs, for ``correct``; it is code and not in the file.

    Raises:
        FileError: the file is missing, damaged, or holds no surrogate, or the family has other inputs.

    Example:
        >>> import pathlib, tempfile, numpy as np, sciml
        >>> from sciml import operators
        >>> x, a = np.linspace(0, 1, 11), np.random.default_rng(0).uniform(1, 2, (40, 1))
        >>> pairs = operators.Pairs({"a": a[:, 0]}, {"u": a * x}, {"x": x}, {"a": {}})
        >>> path = sciml.fit(pairs, operators.Linear()).save(pathlib.Path(tempfile.mkdtemp()) / "map.pt")
        >>> float(operators.load(path)(a=1.5)(x=0.5)["u"].round(6))
        0.75
    """
    content = archive.load_tensors(Path(path))
    if content.get("kind") != "surrogate":
        raise FileError(f"{path} holds no surrogate; a solution is read by sciml.load")
    try:
        frame = Frame.from_config(content["frame"])
        if family is not None and set(family.names) != set(frame.inputs):
            raise FileError(f"{path} maps {', '.join(frame.inputs)}; this family varies {', '.join(family.names)}")
        scale = Scaling(content["scale"].pop("sizes"))
        scale.load_state_dict(content["scale"])
        errors = pd.DataFrame(content["errors"]["columns"], index=content["errors"]["index"])
        return Surrogate(
            model=_model(content, frame),
            frame=frame,
            code=_components(content["code"]),
            scale=scale,
            family=family,
            errors=errors,
            history=pd.DataFrame(content["history"]),
            choices=tuple(content["choices"]),
            ways=content["ways"],
            **{name: content[name] for name in PLAIN},
        )
    except SciMLError:
        raise
    except (*FOREIGN, RuntimeError) as error:
        raise FileError(f"{path} is no complete saved surrogate: {type(error).__name__}: {str(error)[:300]}") from error


def _components(state: dict[str, Any], prefix: str = "") -> PrincipalComponents:
    count, numbers = state[f"{prefix}directions"].shape
    found = PrincipalComponents(shape=(numbers, count))
    found.load_state_dict({name: state[f"{prefix}{name}"] for name in ("mean", "directions", "spread")})
    return found


def _model(content: dict[str, Any], frame: Frame) -> Any:
    state = content["state"]
    model = KINDS[content["model"]](**content["config"])
    for name, value in content["found"].items():
        setattr(model, name, value)
    if isinstance(model, ClosedForm):
        model.scaling = Scaling(model.sizes)
        model.input_code, model.output_code = (_components(state, f"{part}.") for part in ("input_code", "output_code"))
        for name, value in state.items():
            if "." not in name:
                model.register_buffer(name, value)
    elif isinstance(model, LearnedOperator):
        model.prepared(frame)
        model.build(frame, torch.Generator())
    model.load_state_dict(state)
    return model.eval()
