"""Saving and loading of solutions: a record of tensors and plain values, and the solution of such a record."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from sciml._text import listed
from sciml.data import Table, archive
from sciml.data.provenance import Provenance
from sciml.data.sandbox import FOREIGN
from sciml.errors import FileError, ProblemError, SciMLError
from sciml.geometry import Domain, clipped, domain_from_config
from sciml.models import BUILT_IN, Components, Constrained, DeepFeatures, GridFunction, PeriodicInputs, Scaled, Sliced, Windowed
from sciml.problem import Problem
from sciml.runs.fingerprint import contradicted, same, statement
from sciml.solution import Solution
from sciml.solvers.hard_constraints import Conditions
from sciml.uncertainty.error_bands import FieldCovariance

# What a record holds as it is, and of which kind it must be.
_PLAIN: dict[str, Any] = {
    **dict.fromkeys(("name", "status", "message", "solver", "engine"), str),
    **dict.fromkeys(("seconds", "tolerance"), int | float),
    **dict.fromkeys(("fields", "choices"), list),
    **dict.fromkeys(("points", "statistics", "estimated_error"), dict),
    **{"success": bool, "nit": int, "nfev": int, "seed": int | None},
}
_FRAMES = {"unknowns": False, "history": True, "residuals": False, "events": True, "profiles": True}
"""Tables of a solution, and whether their rows are numbered."""

_KNOWN: dict[str, Any] = {each.__name__: each for each in (*BUILT_IN, GridFunction)}
_WRAPPERS: dict[Any, Any] = {
    Scaled: lambda module: [],
    PeriodicInputs: lambda module: [list(module.columns), module.harmonics],
    Sliced: lambda module: [module.column, float(module.value)],
}


def to_record(solution: Solution) -> dict[str, Any]:
    """A solution as tensors and plain values."""
    # Another device rounds in other ways, which large weights that cancel each other show: it is read on the CPU.
    on_cpu = solution.device.type == "cpu"
    trial, data, spread = solution.trial if on_cpu else copy.deepcopy(solution.trial).cpu(), solution.data, solution.spread
    exact = isinstance(trial, Constrained)
    ends = torch.tensor(list(solution.bounds.values())).to(next(trial.buffers()))
    shares = torch.linspace(0.05, 0.95, 5, dtype=ends.dtype)[:, None]
    points = ends[:, 0] + (ends[:, 1] - ends[:, 0]) * shares
    with torch.no_grad():
        values = trial(points)
    kinds = {list: list, dict: dict}
    return {
        "model": _described(trial.model if exact else trial),
        "exact": exact,
        "trial": {
            # Modules may have a state of their own beside tensors.
            key: value.detach() if isinstance(value, Tensor) else value
            for key, value in trial.state_dict().items()
        },
        "probe": [points, values],
        "statement": None if solution.problem is None else statement(solution.problem, solution.constants),
        "dtype": str(solution.dtype).removeprefix("torch."),
        "bounds": {key: list(pair) for key, pair in solution.bounds.items()},
        "domain": solution.domain.config,
        "frames": {
            key: {"index": list(map(str, frame.index)), "columns": frame.to_dict("list")}
            for key, frame in ((key, getattr(solution, key)) for key in _FRAMES)
        },
        "data": None if data is None else {key: values.tolist() for key, values in data.as_mapping().items()},
        "origin": None if data is None else _origin(data),
        "spread": None if spread is None else [list(spread.names), spread.directions, spread.quantile],
        **{key: kinds.get(kind, lambda value: value)(getattr(solution, key)) for key, kind in _PLAIN.items()},
    }


def load(path: str | Path, problem: Problem | None = None, model: nn.Module | None = None) -> Solution:
    """Read a solution that ``Solution.save`` wrote.

    Args:
        path: the file.
        problem: the problem, if residuals, references or plots of references are wanted from the loaded solution; needed for
            a solution that satisfies conditions exactly, because what they prescribe is code.
        model: for a solution with a model of the user's own: an object of the same class; its copy receives the state.

    Returns:
        The solution, on the CPU, with the same values as when it was saved.

    Raises:
        FileError: the file is missing, damaged, holds anything but tensors and plain values, needs ``model`` or ``problem``, or
            belongs to another problem or model.
    """
    return _loaded(path, problem, model, archive.load_tensors(Path(path)))


def load_weights(path: str | Path, model: nn.Module | None = None) -> tuple[Solution, bool]:
    """A saved solution to begin from: its model without the conditions that it held exactly, and whether it held any."""
    content = archive.load_tensors(Path(path))
    return _loaded(path, None, model, content, conditions=False), bool(content["exact"])


def _loaded(
    path: str | Path, problem: Problem | None, model: nn.Module | None, record: dict[str, Any], *, conditions: bool = True
) -> Solution:
    try:
        if record["exact"] and not conditions:
            # The model alone, with no values to check it by.
            state = {key.removeprefix("model."): value for key, value in record["trial"].items()}
            record = {**record, "exact": False, "trial": state, "probe": None}
        return from_record(Path(path), record, problem, model)
    except SciMLError:
        raise
    except (*FOREIGN, MemoryError) as error:
        raise FileError(f"{path} is no complete saved solution: {type(error).__name__}: {str(error)[:300]}") from error


def from_record(path: Path, record: Mapping[str, Any], problem: Problem | None, model: nn.Module | None) -> Solution:
    """The solution of a record that was read at ``path``; a ``FileError`` where it does not fit the problem or model."""
    _check(path, record)
    bounds = {key: (float(pair[0]), float(pair[1])) for key, pair in record["bounds"].items()}
    domain = domain_from_config(record["domain"])
    if domain.bounds != bounds:
        raise FileError(f"{path} is not a saved solution: its domain has bounds {domain.bounds}, and it says {bounds}")
    names = tuple(record["fields"])
    if problem is not None and not isinstance(problem, Problem):
        raise ProblemError(f"load: problem must be a problem object; given: {problem!r}")
    if problem is not None and (problem.coordinates != tuple(bounds) or tuple(problem.fields) != names):
        raise FileError(
            f"{path} holds a solution of {record['name']} with coordinates {listed(bounds)} and fields {listed(names)}, "
            f"not of {type(problem).__name__} with {listed(problem.coordinates)} and {listed(problem.fields)}"
        )
    if problem is not None:
        _check_problem(path, record, problem, domain)
    frames: dict[str, Any] = {
        key: pd.DataFrame(stored["columns"], index=None if _FRAMES[key] else stored["index"])
        for key, stored in record["frames"].items()
    }
    spread = record["spread"]
    plain: dict[str, Any] = {key: tuple(record[key]) if kind is list else record[key] for key, kind in _PLAIN.items()}
    return Solution(
        trial=_trial(path, record, problem, model),
        problem=problem,
        domain=domain,
        data=_table(path, record),
        spread=None if spread is None else FieldCovariance(tuple(spread[0]), *spread[1:]),
        **frames,
        **plain,
    )


def _check_problem(path: Path, record: Mapping[str, Any], problem: Problem, domain: Domain) -> None:
    """Refuse a problem that states something else than the one that was solved, with the constants that were found."""
    # Files of earlier versions do not say what was solved.
    if record.get("statement") is None:
        return
    what = f"{path} holds the solution of another problem"
    instead = (
        "Pass the problem as it was fitted, with the same constants; load the solution without one; or begin another fit from "
        "it, by start="
    )
    # A march that ended early solved the problem up to there.
    time = problem.time
    own = problem.domain
    if time is not None:
        own = clipped(own, time, own.bounds[time][0], domain.bounds[time][1])
    if own.config != record["statement"]["domain"]:
        raise FileError(f"{what}: the domain of {type(problem).__name__} is {problem.domain!r}, not {domain!r}. {instead}")
    estimates = record["frames"]["unknowns"]
    constants = dict(zip(estimates["index"], estimates["columns"]["estimate"], strict=True))
    before, now = record["statement"], statement(problem.on(own), constants)
    others = contradicted(before, now)
    if others:
        # Files of earlier versions do not name constants, and another class may have others.
        pairs = ((name, old, now["constants"].get(name, old)) for name, old in before.get("constants", {}).items())
        changed = "; ".join(f"{name}: {old} then, {new} now" for name, old, new in pairs if not same(old, new))
        raise FileError(
            f"{what}: {listed(others)} of {type(problem).__name__} or {record['name']} "
            f"{'is' if len(others) == 1 else 'are'} stated by one of them alone{changed and f' ({changed})'}. {instead}"
        )


def _origin(data: Table) -> dict[str, Any]:
    """Units, groups and provenance of a table."""
    source = data.provenance
    return {
        "units": dict(data.units),
        "group": data.grouped_by,
        "labels": None if data.labels is None else list(map(str, data.labels)),
        "provenance": source and {each.name: _plain(getattr(source, each.name)) for each in fields(source)},
    }


def _plain(value: Any) -> Any:
    """A value as numbers, texts, lists and dicts; anything else as its ``repr``."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(each) for each in value)
    return value if value is None or type(value) in (bool, int, float, str) else repr(value)


def _table(path: Path, record: Mapping[str, Any]) -> Table | None:
    """The measurements of a saved solution."""
    if record["data"] is None:
        return None
    origin, columns = record["origin"], dict(record["data"])
    source, group = origin["provenance"], origin["group"]
    if group is not None:
        columns[group] = origin["labels"]
    if source is not None:
        source = Provenance(**{**source, "path": Path(source["path"])})
    return Table(columns, source=str(path), missing="mask", group=group, units=origin["units"], provenance=source)


def _described(module: Any) -> dict[str, Any]:
    """What a trial function is made of: the innermost module, and what was put ``around`` it, from inside."""
    if type(module) in _WRAPPERS:
        inner = _described(module.model)
        around = [type(module).__name__, *_WRAPPERS[type(module)](module)]
        return {**inner, "around": [*inner.get("around", []), around]}
    if isinstance(module, Windowed):
        windows = [_described(each) for each in module.windows]
        return {"kind": "Windowed", "column": module.column, "order": module.order, "windows": windows}
    if isinstance(module, Components):
        branches = [[len(getattr(each, "scale", ())), _described(each)] for each in module.branches]
        return {"kind": "Components", "order": list(module.order), "branches": branches}
    if type(module) in _KNOWN.values():
        return {"kind": type(module).__name__, **module.config}
    return {"kind": "module", "class": f"{type(module).__module__}.{type(module).__qualname__}"}


def _built(path: Path, kind: Mapping[str, Any], blank: Any, model: nn.Module | None) -> nn.Module:
    """The module that ``_described`` describes, to be filled with a saved state."""
    options = {key: value for key, value in kind.items() if key not in ("kind", "around")}
    if kind["kind"] == "Windowed":
        own = next(filter(None, map(_foreign, options["windows"])), None)
        if own is not None:
            raise FileError(
                f"{path} holds windows with models of class {own}: only windows of the library's own models can be "
                "read; solve again, or keep the solution in memory"
            )
        windows = [_built(path, each, blank, None) for each in options["windows"]]
        module: nn.Module = Windowed(list(range(len(windows) + 1)), windows, options["column"], options["order"])
    elif kind["kind"] == "Components":
        # They have some of the fields each.
        parts = [((*blank[:2], *(unit[:count] for unit in blank[2:])), each) for count, each in options["branches"]]
        module = Components([_built(path, each, own, None) for own, each in parts], options["order"])
    elif foreign := _foreign(kind):
        if model is None:
            raise FileError(f"{path} holds a model of class {foreign}: pass an object of it, sciml.load(path, model=...)")
        deep = kind["kind"] == "DeepFeatures"
        module = DeepFeatures(model, options["features"], options["scale"]) if deep else copy.deepcopy(model)
    else:
        module = _KNOWN[kind["kind"]].from_config(**options)
    wrappers = {each.__name__: each for each in _WRAPPERS}
    for name, *given in kind.get("around", []):
        module = wrappers[name](module, *(blank if name == "Scaled" else given))
    return module


def _foreign(kind: Mapping[str, Any]) -> str:
    """The class of a user's own module that a trial function is made of, if there is one."""
    return str(kind.get("network", kind).get("class", ""))


def _trial(path: Path, record: Mapping[str, Any], problem: Problem | None, model: nn.Module | None) -> nn.Module:
    """The trial function that was saved, checked by the values that it had; it may need the user's own model or problem."""
    dtype = {"float32": torch.float32, "float64": torch.float64}[record["dtype"]]
    inputs, outputs = len(record["bounds"]), len(record["fields"])
    blank = [0.0] * inputs, [1.0] * inputs, [0.0] * outputs, [1.0] * outputs
    trial = _built(path, record["model"], blank, model).to(dtype)
    if record["exact"]:
        if problem is None:
            raise FileError(
                f"{path} holds a trial function that satisfies the conditions of {record['name']} exactly, and what they "
                "prescribe is code: pass the problem, sciml.load(path, problem)"
            )
        conditions = Conditions(problem)
        trial = Constrained(trial, conditions.lift, conditions.distance)
    try:
        trial.load_state_dict(record["trial"])
        if record["probe"] is None:
            return trial.eval()
        points, values = record["probe"]
        with torch.no_grad():
            found = trial.eval()(points)
    except RuntimeError as error:
        raise FileError(f"{path} does not fit the model given: {error}") from error
    slack = 1e-3 if dtype == torch.float32 else 1e-9
    near = slack * float(values.abs().max())
    if found.shape != values.shape or not torch.allclose(found, values, rtol=slack, atol=near):
        what = "problem or model" if record["exact"] else "model"
        raise FileError(f"{path} does not fit the {what} given: it has the same parameters but gives other values")
    return trial


def _check(path: Path, record: Mapping[str, Any]) -> None:
    """Refuse values of other kinds than ``to_record`` writes, and models that say they are larger than what is stored."""
    for name, kinds in _PLAIN.items():
        if not isinstance(record[name], kinds) or (isinstance(record[name], bool) and kinds is not bool):
            raise FileError(f"{path} is not a saved solution: {name!r} is {str(record[name])[:50]!r}")
    numbers = (int, float, type(None))
    for name, stored in record["frames"].items():
        plain = (*numbers, str) if _FRAMES[name] else numbers
        for key, column in stored["columns"].items():
            if not isinstance(column, list) or not all(isinstance(value, plain) for value in column):
                raise FileError(f"{path} is not a saved solution: the column {key!r} of {name!r} holds other values")
    held = sum(value.numel() for value in record["trial"].values() if isinstance(value, Tensor))
    said = max(_integers(record["model"]), default=0)
    if said > max(held, 1000):
        raise FileError(f"{path} is not a saved solution: its model has {said} of something, and {held} are stored")


def _integers(value: Any) -> Iterator[int]:
    """The sizes of all whole numbers in nested lists and dicts."""
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _integers(each)
    elif isinstance(value, int):
        yield abs(value)
