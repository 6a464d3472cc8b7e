"""Solutions as tensors and plain values, and trial functions made from them again."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sciml.data import Table
from sciml.data.provenance import Provenance
from sciml.errors import FileError
from sciml.models import (
    BUILT_IN,
    Constrained,
    GridFunction,
    PeriodicInputs,
    PiecewisePolynomial,
    Scaled,
    Sliced,
    Windowed,
    hermite,
    model_of,
    scaled_of,
)
from sciml.problem import Problem
from sciml.solvers.hard_constraints import Conditions

PLAIN = ("name", "success", "status", "message", "nit", "nfev", "seconds", "solver", "engine", "seed")


def state_of(solution: Any) -> dict[str, Any]:
    """A solution as tensors and plain values."""
    kind = _kind(solution.trial)
    scaled = scaled_of(solution.trial)
    periodic = scaled.model if scaled is not None and isinstance(scaled.model, PeriodicInputs) else None
    ends = torch.tensor(list(solution.bounds.values())).to(next(solution.trial.buffers()))
    shares = torch.linspace(0.05, 0.95, 5, dtype=ends.dtype, device=ends.device)[:, None]
    points = ends[:, 0] + (ends[:, 1] - ends[:, 0]) * shares
    with torch.no_grad():
        values = solution.trial(points)
    return {
        "model": kind,
        "exact": isinstance(solution.trial, Constrained),
        "periodic": None if periodic is None else [list(periodic.columns), periodic.harmonics],
        "trial": {
            # Modules may have a state of their own beside tensors.
            key: value.detach().cpu() if isinstance(value, Tensor) else value
            for key, value in solution.trial.state_dict().items()
        },
        "probe": [points.cpu(), values.cpu()],
        "dtype": str(solution.dtype).removeprefix("torch."),
        "bounds": {key: list(pair) for key, pair in solution.bounds.items()},
        "domain": solution.domain.config,
        "fields": list(solution.fields),
        "frames": {
            key: {"index": list(map(str, frame.index)), "columns": frame.to_dict("list")}
            for key, frame in (
                ("unknowns", solution.unknowns),
                ("history", solution.history),
                ("residuals", solution.residuals),
                ("events", solution.events),
            )
        },
        "data": None
        if solution.data is None
        else {key: values.tolist() for key, values in solution.data.as_mapping().items()},
        "origin": _origin(solution.data),
        "points": dict(solution.points),
        "statistics": dict(solution.statistics),
        "tolerance": solution.tolerance,
        "spread": None
        if solution.spread is None
        else [list(solution.spread.names), solution.spread.directions, solution.spread.quantile],
        "choices": list(solution.choices),
        **{key: getattr(solution, key) for key in PLAIN},
    }


def _origin(data: Table | None) -> dict[str, Any] | None:
    """What a table knows besides its numbers."""
    if data is None:
        return None
    told = data.provenance
    return {
        "units": dict(data.units),
        "group": data.grouped_by,
        "labels": None if data.labels is None else list(map(str, data.labels)),
        "provenance": None
        if told is None
        else {
            "path": str(told.path),
            "reader": told.reader,
            "rows": told.rows,
            "options": {name: _plain(value) for name, value in told.options.items()},
            "versions": dict(told.versions),
            "stamp": list(told.stamp),
        },
    }


def _plain(value: Any) -> Any:
    """A value as numbers, texts, lists and dicts; anything else as its ``repr``."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(each) for each in value)
    return repr(value)


def table_of(path: Path, content: Mapping[str, Any]) -> Table | None:
    """The measurements of a saved solution; files of version 0.1 hold their numbers alone.

    Raises:
        DataError: never for a file that ``state_of`` made.
    """
    if content["data"] is None:
        return None
    origin = content.get("origin") or {}
    columns, told, group = dict(content["data"]), origin.get("provenance"), origin.get("group")
    if group is not None:
        columns[group] = origin["labels"]
    if told is not None:
        told = Provenance(**{**told, "path": Path(told["path"]), "stamp": tuple(told["stamp"])})
    return Table(columns, source=str(path), missing="mask", group=group, units=origin.get("units"), provenance=told)


def without_conditions(content: Mapping[str, Any]) -> dict[str, Any]:
    """A saved solution without the conditions that it held exactly: its model alone, with no values to check it by."""
    if not content.get("exact"):
        return dict(content)
    state = {key.removeprefix("model."): value for key, value in content["trial"].items()}
    return {**content, "exact": False, "trial": state, "probe": None}


def _kind(trial: nn.Module) -> dict[str, Any]:
    """What a trial function is made of, as plain values."""
    if isinstance(trial, PiecewisePolynomial):
        return {"kind": "pieces", **trial.config}
    if isinstance(trial, GridFunction):
        return {"kind": "grid", **trial.config}
    if isinstance(trial, Windowed):
        windows = [_kind(each) for each in trial.windows]
        return {"kind": "windowed", "column": trial.column, "order": trial.order, "windows": windows}
    return _model_kind(model_of(trial))


def _model_kind(model: Any) -> dict[str, Any]:
    if type(model) in BUILT_IN:
        return {"kind": type(model).__name__, **model.config}
    if isinstance(model, Sliced):
        inner = _model_kind(model.model)
        return {**inner, "slices": [*inner.get("slices", []), [model.column, float(model.value)]]}
    return {"kind": "module", "class": f"{type(model).__module__}.{type(model).__qualname__}"}


def _built_in(kind: Mapping[str, Any]) -> nn.Module | None:
    """A model of ours from its description, None for any other."""
    known = {each.__name__: each for each in BUILT_IN}
    options = {key: value for key, value in kind.items() if key != "kind"}
    return known[kind["kind"]].from_config(**options) if kind["kind"] in known else None


def _windowed(path: Path, kind: Mapping[str, Any], fields: int, coordinates: int) -> Windowed:
    """Windows to be filled with a saved state."""
    trials = []
    for each in kind["windows"]:
        model = _built_in(each)
        if model is None:
            raise FileError(
                f"{path} holds windows with models of class {each['class']}: only windows of the library's own models can be "
                "read; solve again, or keep the solution in memory"
            )
        blank = [0.0] * coordinates, [1.0] * coordinates, [0.0] * fields, [1.0] * fields
        trials.append(Scaled(model, *blank))
    return Windowed(list(range(len(trials) + 1)), trials, kind["column"], kind["order"])


def trial_of(
    path: Path,
    content: dict[str, Any],
    bounds: Mapping[str, tuple[float, float]],
    problem: Problem | None,
    model: nn.Module | None,
) -> nn.Module:
    """The trial function that was saved.

    Raises:
        FileError: it needs the user's own model or problem, or does not fit those given.
    """
    kind = dict(content["model"])
    dtype = {"float32": torch.float32, "float64": torch.float64}[content["dtype"]]
    if kind["kind"] == "hermite":
        # A file of before 0.2, which held values and derivatives at knots.
        knots, *jets = content["trial"].values()
        return hermite(knots, jets)
    if kind["kind"] == "pieces":
        pieces = PiecewisePolynomial(kind["breaks"], kind["degrees"], kind["outputs"])
        return _filled(path, pieces, content, dtype)
    if kind["kind"] == "grid":
        return _filled(path, GridFunction.from_config(kind["axes"], kind["shape"]), content, dtype)
    if kind["kind"] == "windowed":
        trial: nn.Module = _windowed(path, kind, len(content["fields"]), len(bounds)).to(dtype)
        return _filled(path, trial, content, dtype)
    slices = kind.pop("slices", [])
    model = _built_in(kind) or model
    if model is None:
        raise FileError(
            f"{path} holds a model of class {kind['class']}: pass an object of it, sciml.load(path, model=...)"
        )
    inner: Any = copy.deepcopy(model)
    for column, value in slices:
        inner = Sliced(inner, column, value)
    if content.get("periodic") is not None:
        inner = PeriodicInputs(inner, *content["periodic"])
    lower, upper = zip(*bounds.values(), strict=True)
    zeros = [0.0] * len(content["fields"])
    trial = Scaled(inner, lower, upper, zeros, zeros).to(dtype)
    if content.get("exact"):
        if problem is None:
            raise FileError(
                f"{path} holds a trial function that satisfies the conditions of {content['name']} exactly, and what they "
                "prescribe is code: pass the problem, sciml.load(path, problem)"
            )
        conditions = Conditions(problem)
        trial = Constrained(trial, conditions.lift, conditions.distance)
    return _filled(path, trial, content, dtype)


def _filled(path: Path, trial: nn.Module, content: Mapping[str, Any], dtype: torch.dtype) -> nn.Module:
    """A trial function with a saved state, checked by the values that it had.

    Raises:
        FileError: the state does not fit, or the values are others.
    """
    try:
        trial.load_state_dict(content["trial"])
        if content["probe"] is None:
            return trial.eval()
        points, values = content["probe"]
        with torch.no_grad():
            found = trial.eval()(points)
    except RuntimeError as error:
        raise FileError(f"{path} does not fit the model given: {error}") from error
    slack = 1e-3 if dtype == torch.float32 else 1e-9
    if found.shape != values.shape or not torch.allclose(
        found, values, rtol=slack, atol=slack * float(values.abs().max())
    ):
        what = "problem or model" if content.get("exact") else "model"
        raise FileError(f"{path} does not fit the {what} given: it has the same parameters but gives other values")
    return trial
