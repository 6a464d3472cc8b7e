"""Bootstrap ensembles: a fit repeated with other seeds and resampled measurements, in parallel processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from sciml._text import whole
from sciml.data import LazyTable, Table
from sciml.errors import DataError, ProblemError, SciMLError, SolverError
from sciml.fitting import fit
from sciml.parallel.workers import check_workers, worked
from sciml.problem import Measurements, Poisson, Problem
from sciml.problem.measurements import data_blocks, resolve_data
from sciml.problem.observations import Observation
from sciml.runs.save import from_record, to_record
from sciml.solution import Solution
from sciml.solvers import ResidualSystem
from sciml.typing import Array

_WAYS = ("residuals", "rows", None)
_LEVEL = (2.5, 97.5)


@dataclass(frozen=True, repr=False, eq=False)
class Ensemble:
    """Solutions of one problem that differ by seed and by the draw of their measurements.

    Attributes:
        solutions: the members that were fitted.
        base: the fit to the measurements as they are.
        unknowns: DataFrame indexed by name: ``estimate`` of the base, ``standard_error`` and the 95 % interval ``low``,
            ``high`` from the members' scatter.
        failures: for each member that could not be fitted, or that is no success although the base is one, its number and why.
            They count in nothing.
    """

    solutions: tuple[Solution, ...]
    base: Solution
    unknowns: pd.DataFrame
    failures: dict[int, str]

    def __call__(self, **coordinates: Any) -> dict[str, Array]:
        """The mean of the members' fields at points; arguments as for ``Solution``."""
        return {name: values.mean(axis=0) for name, values in self._all(coordinates).items()}

    def standard_error(self, **coordinates: Any) -> dict[str, Array]:
        """The standard deviation of the members' fields at points."""
        return {name: values.std(axis=0, ddof=1) for name, values in self._all(coordinates).items()}

    def interval(self, **coordinates: Any) -> dict[str, tuple[Array, Array]]:
        """The 2.5th and 97.5th percentile of the members' fields at points."""
        found = {name: np.percentile(values, _LEVEL, axis=0) for name, values in self._all(coordinates).items()}
        return {name: (low, high) for name, (low, high) in found.items()}

    def _all(self, coordinates: dict[str, Any]) -> dict[str, Array]:
        found = [solution(**coordinates) for solution in self.solutions]
        return {name: np.stack([values[name] for values in found]) for name in self.base.fields}

    def __repr__(self) -> str:
        head = f"Ensemble of {len(self.solutions)} fits of {self.base.name}"
        if self.failures:
            head += f"; {len(self.failures)} failed, the first: {next(iter(self.failures.values()))}"
        return f"{head}\n\n{self.unknowns.to_string(float_format=lambda value: f'{value:.4g}')}"


def ensemble(
    problem: Problem,
    model: nn.Module | None = None,
    *,
    data: Any = None,
    members: int = 20,
    resample: str | None = "residuals",
    workers: int | None = 1,
    seed: int = 0,
    observe: Any = None,
    noise: Any = None,
    **how: Any,
) -> Ensemble:
    r"""Fit a problem many times, and see how far constants and fields scatter: a bootstrap.

    Args:
        problem: the problem.
        model: as for ``fit``.
        data: measurements, as for ``fit``.
        members: how many fits; intervals take some fifty or more.
        resample: ``"residuals"`` puts the misfits of the first fit, drawn with replacement and widened by its degrees of
            freedom, on its values at the measured points (counts are drawn from Poisson's law); ``"rows"`` draws rows of the
            table with replacement; None leaves the measurements as they are, and only seeds differ.
        workers: how many run at once, in processes with one thread each; more than one need joblib. None: as
            ``joblib.parallel_config`` says.
        seed: of the draws; the members' own seeds follow it.
        observe: as for ``fit``.
        noise: as for ``fit``.
        how: everything else that ``fit`` takes; ``out``, ``checkpoint``, ``resume`` and ``progress`` are the first fit's alone.

    Returns:
        An ``Ensemble``.

    Raises:
        SolverError: fewer than two members, no such way to resample, or all members failed.
        ProblemError: nothing to resample; and what ``fit`` raises for the first fit.
        DataError: a table that stays in its file.
        KeyboardInterrupt: Ctrl-C; members that run in processes are ended.
        MissingExtraError: several workers without joblib.

    Example:
        >>> import numpy as np, sciml
        >>> t = np.linspace(0, 6, 20)
        >>> data = {"t": t, "u": 1 / (1 + 9 * np.exp(-2 * t)) + 0.01 * np.random.default_rng(0).normal(size=20)}
        >>> growth = sciml.gallery.problem("logistic_growth", rate=sciml.Unknown(1.0))
        >>> many = sciml.ensemble(growth, data=data, members=4)
        >>> bool(abs(many.unknowns.loc["rate", "estimate"] - 2) < 0.1), len(many.solutions)
        (True, 4)

    Reference: B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap, Chapman and Hall 1993, chapter 9.
    """
    whole("members", members, 2, SolverError)
    check_workers(workers)
    if resample not in _WAYS:
        raise SolverError(f"resample must be 'residuals', 'rows' or None; given: {resample!r}")
    if isinstance(data, LazyTable):
        raise DataError(
            "ensemble draws from a table in memory, and this one stays in its file: take rows, data=table.sample(20_000)"
        )
    measurements = resolve_data(problem, data, observe, noise)
    if measurements is None and resample is not None:
        raise ProblemError(
            f"there is nothing to resample: {type(problem).__name__} has no measurements; pass data=, or resample=None to see "
            "how far seeds alone scatter"
        )
    base = fit(problem, model, data=measurements, seed=seed, **how)
    if base.status == "interrupted":
        raise KeyboardInterrupt
    draws = _draws(problem, base, measurements, resample, members, seed)
    options = {key: value for key, value in how.items() if key not in ("out", "checkpoint", "resume", "progress")}

    def member(number: int) -> tuple[int, Any]:
        """Its number and solution, or why it could not be fitted."""
        try:
            drawn = problem if resample is None else _believing(problem, base, np.random.default_rng([seed, number, 1]))
            found = fit(drawn, model, data=draws(number), seed=seed + number + 1, **options)
        except SciMLError as error:
            return number, str(error)
        if found.status == "interrupted":
            raise KeyboardInterrupt
        solution = replace(found, problem=problem)
        return number, solution if workers == 1 else to_record(solution)

    found, own = dict(sorted(worked(member, range(members), workers))), model if model is not None else base.model
    solutions, failures = [], {}
    for number, solution in found.items():
        if isinstance(solution, dict):
            solution = from_record(Path(f"member {number}"), solution, problem, own)
        if isinstance(solution, str):
            failures[number] = solution
        elif base.success and not solution.success:
            failures[number] = f"no success: {solution.message}"
        else:
            solutions.append(solution)
    if len(solutions) < 2:
        why = next(iter(failures.values()), "")
        raise SolverError(f"{len(failures)} of {members} fits failed or were no success; the first: {why}")
    return Ensemble(tuple(solutions), base, _scatter(base, solutions), dict(sorted(failures.items())))


def _believing(problem: Problem, base: Solution, generator: np.random.Generator) -> Problem:
    """The problem with priors as they would be had something else been measured before."""
    drawn = {}
    for name, unknown in problem.unknowns.items():
        if unknown.prior is not None:
            _, noise = unknown.prior
            estimate = base.unknowns.loc[[name], "estimate"].to_numpy()
            value = float(noise.measured(estimate, noise.sigma * generator.standard_normal(1))[0])
            drawn[name] = replace(unknown, prior=(value, noise))
    return problem.bind(**drawn) if drawn else problem


def _scatter(base: Solution, solutions: list[Solution]) -> pd.DataFrame:
    frame = base.unknowns.copy()
    for name in frame.index:
        values = np.array([solution.unknowns.loc[name, "estimate"] for solution in solutions])
        frame.loc[name, "standard_error"] = values.std(ddof=1)
        frame.loc[name, ["low", "high"]] = np.percentile(values, _LEVEL)
    return frame


def _draws(
    problem: Problem, base: Solution, measurements: Measurements | None, resample: str | None, members: int, seed: int
) -> Callable[[int], Measurements | None]:
    """For each member's number its measurements."""
    generators = [np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(members)]
    if measurements is None or resample is None:
        return lambda number: measurements
    table = measurements.table

    def on(columns: dict[str, Array]) -> Measurements:
        return measurements.on(Table(columns, source=table.source, missing="mask"))

    if resample == "rows":

        def rows(number: int) -> Measurements:
            chosen = np.sort(generators[number].integers(len(table), size=len(table)))
            return on({name: table[name][chosen] for name in table.columns})

        return rows
    at = ResidualSystem(problem.valued(base.constants), base.trial, {})
    fitted = float(base.statistics.get("parameters", len(base.unknowns)))
    whole = float(base.statistics.get("measurements", len(measurements)))
    wider = np.sqrt(whole / max(whole - fitted, 1.0))
    like = next(base.trial.buffers())
    columns: list[tuple[Observation, Array, Array]] = []
    for block in data_blocks(problem, measurements):
        evaluation, _ = at.evaluation(block.to(like.device, like.dtype))
        for term in block.terms:
            if isinstance(term.evaluate, Observation):
                model = term.evaluate.model(evaluation).detach()
                values, found = (each.cpu().double().numpy() for each in (model, term.evaluate.deviation(model)))
                columns.append((term.evaluate, values, found))

    def residuals(number: int) -> Measurements:
        found = {name: table[name] for name in table.columns}
        for misfit, model, deviation in columns:
            noise = measurements.noise_or_normal(misfit.name)
            seen = ~np.isnan(table[misfit.name])
            values = table[misfit.name].copy()
            if isinstance(noise, Poisson):
                values[seen] = generators[number].poisson(np.maximum(model, 0.0))
            else:
                drawn = wider * generators[number].choice(deviation - deviation.mean(), size=len(deviation))
                sigma = 1.0 if misfit.sigma is None else misfit.sigma.numpy()
                values[seen] = noise.measured(model, drawn * sigma)
            found[misfit.name] = values
        return on(found)

    return residuals
