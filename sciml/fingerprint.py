"""What a fit is made of, as plain values by which it is known again, and told apart from another."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sciml.datasets.lazy import LazyTable
from sciml.measurements import Measurements, data_blocks, resolve_data
from sciml.models import MLP, Scaled
from sciml.problem import Problem
from sciml.rows import Rows
from sciml.setup import blocks_of
from sciml.table import Table

_PROBES = 16
_DIGITS = 10
_MOST_TEXT = 200


def fingerprint(
    problem: Problem, model: nn.Module | None, data: object, settings: Mapping[str, Any], device: object
) -> dict[str, dict[str, Any]]:
    """A fit by its problem, model, data, settings and versions: texts and numbers, by name.

    What equations and conditions say is code. They are told by the size of their residuals for one fixed function at some
    points, so that another formula, constant or function that they call makes a difference, and another name or comment none.

    Args:
        problem: the mathematics.
        model: as it was handed to ``fit``.
        data: measurements as they are used.
        settings: everything else that the result depends on.
        device: ``"auto"`` or where to compute.

    Raises:
        SciMLError: the data are none.
    """
    measurements = None if isinstance(data, LazyTable) else resolve_data(problem, data)
    return {
        "problem": {
            "class": type(problem).__name__,
            "domain": plain(problem.domain.config),
            "coordinates": list(problem.coordinates),
            "fields": list(problem.fields),
            "unknowns": {name: plain(unknown) for name, unknown in problem.unknowns.items()},
            "residuals": _residuals(problem, measurements),
        },
        "data": _data(data if measurements is None else measurements),
        "model": _model(model),
        "settings": {name: plain(value) for name, value in settings.items()},
        "versions": {**versions(), "device": _device(device)},
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Where two fingerprints differ, a sentence each: the name, and both values."""
    return [
        f"{name}: {_short(old)} then, {_short(new)} now"
        for name, old, new in _pairs("", before, now)
        if old != new and not (old != old and new != new)
    ]


def versions() -> dict[str, str]:
    """The versions of what the numbers depend on, and the machine's kind."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "machine": platform.machine()}
    for name in ("sciml", "numpy", "scipy", "pandas"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def plain(value: Any) -> Any:
    """A setting as texts, numbers, lists and dicts; functions by their names, arrays by their digests."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype | torch.device | Path | range):
        return str(value)
    if isinstance(value, Tensor):
        return f"tensor {tuple(value.shape)} {_digest(value.detach().cpu().numpy())}"
    if isinstance(value, np.ndarray | np.generic):
        return f"array {np.shape(value)} {_digest(np.asarray(value))}"
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [plain(each) for each in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, functools.partial):
        return [plain(value.func), plain(value.args), plain(value.keywords)]
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    if isinstance(value, nn.Module):
        return _model(value)
    if dataclasses.is_dataclass(value):
        inner = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    else:
        inner = dict(getattr(value, "__dict__", {}))
    return {"kind": type(value).__name__, **{str(key): plain(each) for key, each in inner.items()}}


def _residuals(problem: Problem, measurements: Measurements | None) -> dict[str, str]:
    """The root mean square of every residual for one fixed function, at some points."""
    trial = MLP(6)
    trial.build(len(problem.coordinates), len(problem.fields), torch.Generator().manual_seed(0))
    ones = [1.0] * len(problem.fields)
    domain = problem.domain
    scaled = Scaled(trial, domain.lower, domain.upper, ones, ones).double()
    raw = {name: unknown.raw_initial() for name, unknown in problem.unknowns.items()}
    rows = Rows(problem, scaled, raw, taylor=False)
    blocks = blocks_of(problem, problem.terms(), _PROBES, np.random.default_rng(0))
    if measurements is not None:
        blocks += data_blocks(problem, measurements)
    found = {}
    for block in blocks:
        try:
            for name, values in rows.residuals([block]).items():
                found[name] = f"{float(values.detach().double().square().mean().sqrt()):.{_DIGITS}g}"
        except Exception as error:
            found[", ".join(term.name for term in block.terms)] = type(error).__name__
    return found


def _device(device: object) -> str:
    on_gpu = torch.cuda.is_available() if device == "auto" else str(device).startswith("cuda")
    return torch.cuda.get_device_name() if on_gpu and torch.cuda.is_available() else str(device).replace("auto", "cpu")


def _data(data: object) -> Any:
    if data is None:
        return None
    if isinstance(data, LazyTable):
        return {"source": Path(str(data.source)).name, "rows": len(data), "columns": list(data.columns)}
    table = data.table if isinstance(data, Measurements) else data
    if not isinstance(table, Table):
        return plain(data)
    columns = {name: _digest(np.asarray(table[name])) for name in table.columns}
    noise = plain(data.noise) if isinstance(data, Measurements) else None
    return {"rows": len(table), "columns": columns, "noise": noise}


def _model(model: nn.Module | None) -> Any:
    """A module's class, structure and shapes; its values may be drawn anew and are kept beside the fingerprint."""
    if model is None:
        return None
    shapes = {
        name: list(value.shape)
        for name, value in model.state_dict().items()
        if not isinstance(value, nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer)
    }
    # Where something lies in memory says nothing of it.
    structure = re.sub(r" at 0x[0-9a-f]+", "", repr(model))
    return {"class": type(model).__qualname__, "structure": structure, "shapes": shapes}


def _digest(values: Any) -> str:
    array = np.ascontiguousarray(values)
    content = str(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + content).hexdigest()[:16]


def _pairs(path: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in [*before, *(each for each in now if each not in before)]:
            yield from _pairs(f"{path}.{name}" if path else str(name), before.get(name), now.get(name))
    else:
        yield path, before, now


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ..."
