"""Fingerprint of a fit: problem, model, data, settings and versions as plain values, by which fits are compared."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sciml.data.provenance import installed
from sciml.models import MLP, Scaled
from sciml.problem import Measurements, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.measurements import data_blocks, resolve_data
from sciml.solvers import ResidualSystem
from sciml.solvers.discrete_problem import blocks_of

_PROBES = 1024
_DIGITS = 10
# By what share the sizes of residuals may differ.
_SAME = 1e-6
_MOST_TEXT = 200
_DEEPEST = 8
_ADDRESS = r" at 0x[0-9a-f]+"


def fingerprint(
    problem: Problem, model: nn.Module | None, data: object, settings: Mapping[str, Any], device: object
) -> dict[str, dict[str, Any]]:
    """A fit by its problem, model, data, settings and versions: texts and numbers, by name.

    Equations and conditions are code. They are described by the size of their residuals for one fixed function at some
    points, so that another formula, constant or function that they call makes a difference, and another name or comment none.
    """
    measurements = resolve_data(problem, data)
    return {
        "problem": {
            "class": type(problem).__name__,
            "domain": plain(problem.domain.config),
            "coordinates": list(problem.coordinates),
            "fields": list(problem.fields),
            "unknowns": {name: plain(unknown) for name, unknown in problem.unknowns.items()},
            "residuals": _residuals(problem, measurements),
        },
        "data": _data(problem, measurements),
        "model": _model(model),
        "settings": {name: plain(value) for name, value in settings.items()},
        "code": {
            name: _code(value)
            for kind in reversed(type(problem).__mro__[:-1])
            if not kind.__module__.startswith("sciml.")
            for name, value in vars(kind).items()
            if isinstance(getattr(value, "function", value), FunctionType)
        },
        "versions": {**versions(), "device": _device(device), "threads": torch.get_num_threads()},
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Where two fingerprints differ, a sentence each: the name, and both values."""
    return [
        f"{name}: {_short(old)} then, {_short(new)} now"
        for name, old, new in _pairs("", before, now)
        if old != new and not (old != old and new != new)
    ]


def statement(problem: Problem, constants: Mapping[str, float]) -> dict[str, Any]:
    """What a problem states with such constants: its domain, and the size of each residual for one fixed function."""
    found = {name: value for name, value in constants.items() if name in problem.unknowns}
    bound = problem.valued(found)
    # Points of its own for each: their order is no part of what is stated.
    blocks = [block for term in bound.terms() for block in blocks_of(bound, [term], _PROBES, np.random.default_rng(0))]
    return {
        "domain": problem.domain.config,
        "constants": plain({**problem.constants, **found}),
        "residuals": [*_sizes(bound, blocks)],
        "points": _points_of(),
    }


def contradicted(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Which residuals of the one statement or the other are in one of them alone, by name; none where nothing is known.

    In the last digits those of two machines may differ, and at other points all of them do.
    """
    if before["points"] != now["points"]:
        return []
    left, others = [tuple(each) for each in before["residuals"]], []
    for name, size in now["residuals"]:
        twin = next((each for each in left if same(each[1], size)), None)
        if twin is None:
            others.append(name)
        else:
            left.remove(twin)
    return list(dict.fromkeys([*others, *(name for name, _ in left)]))


def _points_of() -> list[str]:
    """What draws the points of statements."""
    return [installed(name) for name in ("numpy", "scipy")]


def same(one: Any, other: Any) -> bool:
    """Whether two numbers, which may be texts, are the same but for the last digits, or other values equal."""
    try:
        return math.isclose(float(one), float(other), rel_tol=_SAME)
    except (TypeError, ValueError):
        return one == other


def versions() -> dict[str, str]:
    """The versions of what the numbers depend on, and the machine's kind."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "machine": platform.machine()}
    return found | {name: installed(name) for name in ("sciml", "numpy", "scipy", "pandas")}


def plain(value: Any, depth: int = 0) -> Any:
    """A setting as texts, numbers, lists and dicts; functions by name and code, arrays by their digests."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth > _DEEPEST:
        return type(value).__name__
    inner = functools.partial(plain, depth=depth + 1)
    if isinstance(value, torch.dtype | torch.device | Path | range):
        return str(value)
    if isinstance(value, Tensor):
        return f"tensor {tuple(value.shape)} {_digest(value.detach().cpu().numpy())}"
    if isinstance(value, np.ndarray):
        return f"array {np.shape(value)} {_digest(value)}"
    if isinstance(value, Mapping):
        return {str(key): inner(each) for key, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [inner(each) for each in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, functools.partial):
        return [inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, FunctionType):
        return f"{value.__qualname__} {_code(value)}"
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    if isinstance(value, nn.Module):
        return _model(value)
    if dataclasses.is_dataclass(value):
        parts = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    else:
        parts = dict(getattr(value, "__dict__", {})) or {"value": re.sub(_ADDRESS, "", repr(value))}
    return {"kind": type(value).__name__, **{str(key): inner(each) for key, each in parts.items()}}


def _code(function: Any) -> str:
    """A digest of what a Python function does: its code, the values that it closes over, its defaults."""
    function = getattr(function, "function", function)
    closure = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    around = [plain(each, _DEEPEST - 2) for each in (*closure, *(function.__defaults__ or ()))]
    text = f"{_instructions(function.__code__)} {around} {plain(function.__kwdefaults__, _DEEPEST - 2)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _instructions(code: CodeType) -> str:
    constants = [_instructions(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _residuals(problem: Problem, measurements: Measurements | None) -> dict[str, str]:
    """The size of every residual."""
    blocks = blocks_of(problem, problem.terms(), _PROBES, np.random.default_rng(0))
    if measurements is not None:
        # All of the data have a digest; some of their rows show what is made of them.
        blocks += [block.part(torch.arange(min(block.size, _PROBES))) for block in data_blocks(problem, measurements)]
    return dict(_sizes(problem, blocks))


def _sizes(problem: Problem, blocks: Sequence[Collocation]) -> Iterator[tuple[str, str]]:
    """The root mean square of each residual of some blocks for one fixed function, by name."""
    trial = MLP(6)
    trial.build(len(problem.coordinates), len(problem.fields), torch.Generator().manual_seed(0))
    ones = [1.0] * len(problem.fields)
    domain = problem.domain
    scaled = Scaled(trial, domain.lower, domain.upper, ones, ones).double()
    raw = {name: unknown.raw_initial() for name, unknown in problem.unknowns.items()}
    rows = ResidualSystem(problem, scaled, raw, taylor=False)
    for block in blocks:
        try:
            for name, values in rows.residuals([block]).items():
                yield name, f"{float(values.detach().double().square().mean().sqrt()):.{_DIGITS}g}"
        except Exception as error:
            yield ", ".join(term.name for term in block.terms), type(error).__name__


def _device(device: object) -> str:
    on_gpu = torch.cuda.is_available() if device == "auto" else str(device).startswith("cuda")
    return torch.cuda.get_device_name() if on_gpu and torch.cuda.is_available() else str(device).replace("auto", "cpu")


def _data(problem: Problem, measurements: Measurements | None) -> Any:
    if measurements is None:
        return None
    table = measurements.table
    columns = {name: _digest(np.asarray(table[name])) for name in table.columns}
    noise = {name: plain(measurements.noise_of(name)) for name in measurements.observables(problem)}
    return {"rows": len(table), "columns": columns, "noise": noise}


def _model(model: nn.Module | None) -> Any:
    """A module's class, structure and shapes; its values may be drawn anew and are kept beside the fingerprint."""
    if model is None:
        return None
    shapes = {
        name: list(value.shape)
        for name, value in model.state_dict().items()
        if isinstance(value, Tensor)
        and not isinstance(value, nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer)
    }
    # Addresses in memory differ from run to run.
    structure = re.sub(_ADDRESS, "", repr(model))
    return {"class": type(model).__qualname__, "structure": structure, "shapes": shapes}


def _digest(values: Any) -> str:
    array = np.ascontiguousarray(values)
    content = str(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + content).hexdigest()[:16]


def _pairs(path: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in [*before, *(each for each in now if each not in before)]:
            yield from _pairs(f"{path}.{name}" if path else str(name), before.get(name), now.get(name))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for place, pair in enumerate(zip(before, now, strict=True)):
            yield from _pairs(f"{path}[{place}]", *pair)
    else:
        yield path, before, now


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ..."
