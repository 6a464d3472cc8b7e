"""Parameter sweep: one fit for every combination of values, in parallel processes, each in a directory of its own."""

from __future__ import annotations

import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sciml._text import listed, nearest
from sciml.data.archive import write_atomic
from sciml.errors import FileError, SciMLError, SolverError
from sciml.fitting import fit
from sciml.parallel.workers import check_workers, worked
from sciml.problem import Problem
from sciml.runs.directory import RECORD, SOLUTION
from sciml.runs.fingerprint import plain
from sciml.solution import Solution

_DESIGN, _TABLE, _OUTCOME = "sweep.json", "sweep.csv", "outcome.json"
_OWN = ("out", "resume", "progress", "distributed")
_LONGEST = 80


def sweep(
    problem: Problem | Callable[..., Problem],
    model: Any = None,
    *,
    over: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]] | pd.DataFrame,
    measure: Callable[[Solution], Mapping[str, Any]] | None = None,
    workers: int | None = 1,
    out: str | Path | None = None,
    progress: Callable[[int, int], object] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Fit a problem for every combination of values (a parameter sweep), and put what came of it into one table.

    Args:
        problem: a problem, whose constants may be varied; or a function or class that makes one of those names of ``over`` that
            are no arguments of ``fit``.
        model: as for ``fit``; ``over`` may vary it, too.
        over: the values of every name, all combinations of which are fitted: constants of the problem and arguments of ``fit``,
            such as ``{"nu": [0.1, 0.01], "seed": range(10)}``. Or the combinations themselves, as a list of dicts or a
            DataFrame.
        measure: a function of a solution that gives further columns, such as ``lambda s: {"peak": s(x=0.5)["u"]}``.
        workers: how many fits at a time, each in a process with one thread; more than one need joblib. None: as
            ``joblib.parallel_config`` says, which may be a cluster of Dask or Ray.
        out: a directory in which every fit has one of its own, and the table ``sweep.csv``. The same call after an interruption
            goes on: what was fitted is read, what was under way is resumed from its checkpoint.
        progress: is told how many fits are done, of how many.
        options: keywords for ``fit``, the same for all.

    Returns:
        A DataFrame with a row for every combination, in order: the values; ``success``, ``status``, ``seconds``; ``residual``,
        the largest of the certificate; ``estimated.<field>`` and, where there is a reference, ``error.<field>``, relative L2;
        ``<unknown>`` and ``<unknown>.standard_error``; what ``measure`` gave; ``failure``, the reason of one that failed;
        ``directory``. ``sciml.load(row.directory + "/solution.pt", problem)`` reads a solution.

    Raises:
        SolverError: nothing to vary, an argument that cannot be varied, or a worker that died.
        FileError: ``out`` holds another sweep.
        MissingExtraError: several workers without joblib.

    Example:
        >>> import sciml
        >>> growth = sciml.gallery.problem("logistic_growth")
        >>> found = sciml.sweep(growth, over={"rate": [1.0, 2.0], "seed": range(2)})
        >>> found[["rate", "seed", "success"]].values.tolist()
        [[1.0, 0, True], [1.0, 1, True], [2.0, 0, True], [2.0, 1, True]]
    """
    check_workers(workers)
    rows = _combinations(over)
    work = _Fits(problem, model, measure, options, None if out is None else Path(out), len(str(len(rows) - 1)))
    names = list(dict.fromkeys(name for row in rows for name in row))
    work.check(names)
    if out is not None:
        _begin(Path(out), work, rows)
    found: dict[int, dict[str, Any]] = {}
    for number, outcome in worked(work, list(enumerate(rows)), workers):
        found[number] = outcome
        if progress is not None:
            progress(len(found), len(rows))
    columns = [{**{name: _cell(row.get(name)) for name in names}, **found[number]} for number, row in enumerate(rows)]
    # What only some rows have, such as errors, comes before the reasons of those that have nothing.
    table = pd.DataFrame(columns)
    table = table[[*(name for name in table.columns if name not in ("failure", "directory")), "failure", "directory"]]
    if out is not None:
        write_atomic(Path(out) / _TABLE, table.to_csv(index=False).encode())
    return table


def _combinations(over: Any) -> list[dict[str, Any]]:
    """Every combination as a dict."""
    if isinstance(over, pd.DataFrame):
        found = [{str(name): value for name, value in row.items()} for row in over.to_dict("records")]
    elif isinstance(over, Mapping):
        axes = {name: [values] if isinstance(values, str) else list(values) for name, values in over.items()}
        found = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())] if axes else []
    else:
        found = [dict(row) for row in over]
    found = [{name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()} for row in found]
    if not found or not all(found):
        raise SolverError(f"over must give values to vary, as in {{'nu': [0.1, 0.01], 'seed': range(3)}}; given: {over!r}")
    return found


@dataclass(frozen=True)
class _Fits:
    """What is common to all fits of a sweep; called with a number and values it does one."""

    problem: Any
    model: Any
    measure: Any
    options: dict[str, Any]
    out: Path | None
    digits: int

    def check(self, names: list[str]) -> None:
        """Refuse names that mean nothing, before the first fit."""
        known = [name for name in inspect.signature(fit).parameters if name not in ("problem", *_OWN)]
        wrong = next((name for name in (*names, *self.options) if name in _OWN), None)
        if wrong is not None:
            raise SolverError(f"{wrong!r} belongs to the sweep as a whole and cannot be given to its fits")
        twice = next((name for name in names if name in self.options), None)
        if twice is not None:
            raise SolverError(f"{twice!r} is varied and given as well: leave out one")
        if isinstance(self.problem, Problem):
            constants = list(self.problem.constants)
            other = next((name for name in names if name not in (*known, *constants)), None)
            if other is not None:
                raise SolverError(
                    f"over names {other!r}, which is neither a constant of {type(self.problem).__name__} "
                    f"({listed(constants) or 'it has none'}) nor an argument of fit"
                    f"{nearest(other, [*constants, *known])}; a function that makes the problem may take any name"
                )
        elif not callable(self.problem):
            raise SolverError(f"sweep needs a problem, or a function that makes one; given: {self.problem!r}")

    def made(self, values: Mapping[str, Any]) -> tuple[Problem, dict[str, Any]]:
        """The problem of a combination, and the arguments of its fit."""
        accepted = inspect.signature(fit).parameters
        if isinstance(self.problem, Problem):
            own = {name: value for name, value in values.items() if name in self.problem.constants}
            problem = self.problem.bind(**own)
        else:
            own = {name: value for name, value in values.items() if name not in accepted}
            problem = self.problem(**own)
        how = {"model": self.model, **self.options, **{name: value for name, value in values.items() if name not in own}}
        return problem, how

    def directory(self, number: int, values: Mapping[str, Any]) -> Path | None:
        """Where the fit of a combination is kept."""
        if self.out is None:
            return None
        told = ",".join(f"{name}={value}" for name, value in values.items())
        return self.out / f"{number:0{self.digits}d} {re.sub(r'[^0-9A-Za-z=.,+-]', '_', told)[:_LONGEST]}".replace(" ", "_")

    def __call__(self, item: tuple[int, Mapping[str, Any]]) -> tuple[int, dict[str, Any]]:
        number, values = item
        place = self.directory(number, values)
        kept = None if place is None else place / _OUTCOME
        if kept is not None and kept.exists():
            return number, json.loads(kept.read_text())
        outcome: dict[str, Any]
        try:
            problem, how = self.made(values)
            if place is not None:
                how |= {"out": place, "resume": (place / RECORD).exists()}
            solution = fit(problem, **how, progress=False)
            if solution.status == "interrupted":
                raise KeyboardInterrupt
            outcome = {**_told(solution), **dict(self.measure(solution) if self.measure is not None else {}), "failure": ""}
        except Exception as error:
            # Whatever one of them fails of, the others are worth having.
            whose = "" if isinstance(error, SciMLError) else " (no error of sciml's own)"
            outcome = {"success": False, "status": "failed", "failure": f"{type(error).__name__}: {error}{whose}"}
        outcome = {name: _cell(value) for name, value in outcome.items()} | {"directory": "" if place is None else str(place)}
        if kept is not None and (outcome["failure"] or (kept.parent / SOLUTION).exists()):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(kept, json.dumps(outcome, indent=1).encode())
        return number, outcome


def _told(solution: Solution) -> dict[str, Any]:
    """What a table says of a solution."""
    found: dict[str, Any] = {"success": solution.success, "status": solution.status, "seconds": solution.seconds}
    found["residual"] = float(solution.residuals["relative"].max())
    found |= {f"estimated.{name}": value for name, value in solution.estimated_error.items()}
    if solution.problem is not None and solution.problem.has_reference:
        found |= {f"error.{name}": float(value) for name, value in solution.error().items()}
    for name, row in solution.unknowns.iterrows():
        found |= {str(name): row["estimate"], f"{name}.standard_error": row["standard_error"]}
    return found


def _cell(value: Any) -> Any:
    """A value as a cell of a table: numbers and texts as they are."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, np.generic):
        value = value.item()
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _begin(out: Path, work: _Fits, rows: list[dict[str, Any]]) -> None:
    """Say in the directory whose sweep it is, and refuse another one's."""
    own = work.problem if isinstance(work.problem, type) else type(work.problem)
    design = json.loads(json.dumps({"problem": own.__name__, "over": plain(rows), "options": plain(work.options)}))
    file = out / _DESIGN
    if file.exists():
        before = json.loads(file.read_text())
        differ = [name for name in design if design[name] != before.get(name)]
        if differ:
            raise FileError(f"{out} holds another sweep ({listed(differ)} differ): choose another directory, or remove it")
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(file, json.dumps(design, indent=1).encode())
