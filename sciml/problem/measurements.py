"""Measurements: a table of observations, what its columns measure, and their noise."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sciml._text import among, nearest
from sciml.data import LazyTable, Table
from sciml.data.units import conversion
from sciml.errors import DataError, MissingExtraError, ProblemError
from sciml.geometry import Interior, PointSet
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Term
from sciml.problem.noise import LogNormal, Noise, Normal, noise_of
from sciml.problem.observations import DATA, PRIOR, Observation, Prior, check_observed, derivative_named
from sciml.problem.problem import Problem
from sciml.typing import Array, MultiIndex

_FAR = 1e-9
_SHOWN = 5


class Measurements:
    r"""A table of measurements, what its columns measure, and their noise.

    A column with the name of a field measures that field, one named ``u_x`` or ``u_xt`` a derivative of it, and any other
    name what ``observe`` says: a function of fields, coordinates and, as ``self``, the problem with its constants.

    Args:
        table: a ``Table``, DataFrame or dict of columns ``(n,)`` in the problem's units, its coordinates among them.
        observe: ``{column: function}``, as in ``{"in_bed": lambda I: I, "total": lambda u, v: u + v}``; a function may take
            derivatives, ``lambda self, u, x: -self.k * d(u, x)``.
        noise: how the columns scatter: one of ``Normal``, ``Huber``, ``StudentT``, ``LogNormal``, ``Poisson`` for all of them,
            or a dict of such by column; a number stands for ``Normal`` of that standard deviation, a text for the name of a
            column with one standard deviation a row. By default normal noise that is the same share of each column's
            scatter; a noise whose size is not given has it found from the data.
        outside: what becomes of rows that lie outside the domain of the problem: ``"error"``, or ``"drop"`` to leave them out
            and say in ``choices`` how many.

    Raises:
        DataError: values that the noise cannot have made, or standard deviations that are not positive.
        ProblemError: no table, no functions, or no noise.

    Example:
        >>> import sciml
        >>> boys = sciml.Measurements({"t": [1, 2], "in_bed": [3, 8]}, observe={"in_bed": lambda I: I}, noise=sciml.Poisson())
        >>> boys
        Measurements(2 rows: t, in_bed; memory)
    """

    def __init__(
        self,
        table: Any,
        *,
        observe: Mapping[str, Callable[..., Any]] | None = None,
        noise: Any = None,
        outside: str = "error",
    ) -> None:
        if outside not in ("error", "drop"):
            raise DataError(f"outside must be 'error' or 'drop'; given: {outside!r}")
        if isinstance(table, pd.DataFrame | Mapping):
            table = Table(table)
        if not isinstance(table, Table):
            given, remedy = type(table).__name__, ""
            if isinstance(table, LazyTable):
                remedy = "; take rows from it, table.sample(20_000), or hand it to fit itself"
            elif isinstance(table, str | Path):
                remedy = f"; read the file first: sciml.read({str(table)!r})"
            raise DataError(f"data must be a sciml.Table, a DataFrame or a dict of columns; given: {given}{remedy}")
        if not isinstance(observe, Mapping | None) or not all(map(callable, (observe or {}).values())):
            raise ProblemError(f"observe must be functions by column, {{'in_bed': lambda I: I}}; given: {observe!r}")
        self.table, self.outside = table, outside
        self.notes: tuple[str, ...] = ()
        self.observe = dict(observe or {})
        self.found: frozenset[str] = frozenset()
        self.alike: dict[str, str] = {}
        self.noise: dict[str, Noise] = {}
        self._common = None if noise is None or isinstance(noise, Mapping) else noise_of(noise)
        if isinstance(noise, Mapping):
            self.noise = {str(column): noise_of(each) for column, each in noise.items()}
        for what, names in (("observe", self.observe), ("noise", self.noise)):
            for column in names:
                if column not in table.columns:
                    raise ProblemError(
                        f"{what} names the column {column!r}, which {table.source} lacks; columns: "
                        f"{among(column, table.columns)}"
                    )

    @classmethod
    def of(cls, given: Any) -> Measurements:
        """Measurements from a table, or as they are."""
        return given if isinstance(given, Measurements) else cls(given)

    def noise_of(self, column: str) -> Noise | None:
        """The noise of a column; None where nothing was said."""
        return self.noise.get(column, self._common)

    def noise_or_normal(self, column: str) -> Noise:
        """The noise of a column, normal where nothing was said."""
        return self.noise_of(column) or Normal()

    def known(self, problem: Problem) -> bool:
        """True if the size of every column's noise was given, and not found from the data."""
        columns = self.observables(problem)
        return all(self.noise_or_normal(column).known and column not in self.found for column in columns)

    def with_sigma(self, sizes: Mapping[str, float]) -> Measurements:
        """The same with these sizes of the noise of some columns, which count as found from the data."""
        again = copy.copy(self)
        known = {column: self.noise_or_normal(column).with_sigma(sigma) for column, sigma in sizes.items()}
        again.noise, again.found = {**self.noise, **known}, frozenset(sizes)
        return again

    def with_more(self, observe: Mapping[str, Callable[..., Any]] | None, noise: Any) -> Measurements:
        """The same with more observed functions, and another noise if one is given."""
        if observe is None and noise is None:
            return self
        kept = self._common or self.noise or None
        both = {**self.observe, **(observe or {})}
        return Measurements(self.table, observe=both, noise=kept if noise is None else noise, outside=self.outside)

    def on(self, table: Table) -> Measurements:
        """The same on another table with these columns."""
        again = copy.copy(self)
        again.table = table
        return again

    def observables(self, problem: Problem) -> dict[str, tuple[str, MultiIndex] | Callable[..., Any]]:
        """The observable of each column: a field and its derivative, or a function of what the problem has."""
        found: dict[str, tuple[str, MultiIndex] | Callable[..., Any]] = {}
        for column in (*problem.fields, *(name for name in self.table.columns if name not in problem.fields)):
            if column not in self.table.columns or column in problem.coordinates:
                continue
            if column in self.observe:
                check_observed(column, self.observe[column], problem)
                found[column] = self.observe[column]
            elif column in problem.fields:
                found[column] = (column, ())
            elif column not in self.sizes:
                named = derivative_named(column, problem.fields, problem.coordinates)
                if named is not None:
                    found[column] = named
        return found

    @property
    def sizes(self) -> set[float | str | None]:
        """The columns that hold standard deviations, and other sizes of noise."""
        return {each.sigma for each in (*self.noise.values(), self._common) if each is not None}

    def unused(self, problem: Problem) -> list[str]:
        """The columns that measure nothing and are no coordinate and no standard deviation."""
        used = {*problem.coordinates, *self.observables(problem), *self.sizes}
        return [name for name in self.table.columns if name not in used]

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"Measurements({repr(self.table).removeprefix('Table(')}"


def measured_fields(blocks: Iterable[Collocation]) -> list[str]:
    """The fields that are measured themselves or by a derivative."""
    found = [term.evaluate for block in blocks for term in block.terms if isinstance(term.evaluate, Observation)]
    return [each.field for each in found if each.field is not None]


def unknown_fields(problem: Problem, measured: Sequence[str]) -> tuple[str, ...]:
    """The fields that equations leave free: as many as equations are missing, those first that nobody measured."""
    missing = len(problem.fields) - len(problem.equations)
    orders = {field: max(problem.order(field, each) for each in problem.coordinates) for field in problem.fields}
    ranked = sorted(problem.fields, key=lambda field: (field in measured, orders[field]))
    return tuple(ranked[: max(missing, 0)])


def data_blocks(problem: Problem, given: Measurements | Table) -> list[Collocation]:
    """The measurements of a table as residuals ``data.<column>``; columns with missing values have a block of their own."""
    measurements = Measurements.of(given)
    table = measurements.table
    missing = [name for name in problem.coordinates if name not in table.columns]
    observables = measurements.observables(problem)
    if missing or not observables:
        near = "".join(nearest(name, table.columns) for name in (missing or problem.fields)[:1])
        raise ProblemError(
            f"the data ({table!r}) must have the coordinates {problem.coordinates} and at least one of the fields "
            f"{problem.fields} as columns; use columns={{'{problem.coordinates[0]}': '<name in the file>', ...}} to map them, "
            "or observe={'<column>': lambda ...} to say what else a column measures." + near
        )
    points = torch.from_numpy(np.stack([table[name] for name in problem.coordinates], axis=1))
    whole, apart = [], []
    for column, observable in observables.items():
        values = table[column]
        seen = ~np.isnan(values)
        noise = measurements.noise_of(column)
        if seen.any():
            (noise or Normal()).check(f"{table.source}: column {column!r}", values[seen])
        measured = torch.from_numpy(values[seen].copy())
        field, index = (None, ()) if callable(observable) else observable
        observation = Observation(
            field,
            measured,
            index,
            observable if callable(observable) else None,
            # Rows are made of a provisional noise: one that is made for outliers needs a size to tell them by.
            noise if noise is not None and (noise.known or isinstance(noise, LogNormal)) else Normal(),
            _sigma(table, column, noise, seen),
            column,
            measurements.alike.get(column, column),
        )
        valued = field if observation.plain else None
        term = Term(f"{DATA}{column}", Interior(), observation, valued, measured=True)
        if seen.all():
            whole.append(term)
        elif seen.any():
            apart.append(Collocation(PointSet((points[torch.from_numpy(seen)],)), (term,)))
    if not whole and not apart:
        raise ProblemError(f"the data ({table!r}) have no value that is not missing in {list(observables)}")
    return [*([Collocation(PointSet((points,)), tuple(whole))] if whole else []), *apart]


def prior_blocks(problem: Problem) -> list[Collocation]:
    """The priors of constants as residuals, a row for each; they do not depend on the point."""
    priors = {name: Prior(name, unknown) for name, unknown in problem.unknowns.items() if unknown.prior is not None}
    terms = tuple(Term(f"{PRIOR}{name}", Interior(), prior, measured=True) for name, prior in priors.items())
    middle = torch.tensor([[sum(ends) / 2 for ends in problem.domain.bounds.values()]], dtype=torch.float64)
    return [Collocation(PointSet((middle,)), terms)] if terms else []


def _sigma(table: Table, column: str, noise: Noise | None, seen: Array) -> Tensor | None:
    if noise is None or noise.sigma is None:
        # Poisson noise has a size of its own, and so deviations in units of it.
        return None if noise is None or not noise.known else torch.ones((), dtype=torch.float64)
    if isinstance(noise.sigma, int | float):
        return torch.tensor(float(noise.sigma), dtype=torch.float64)
    sizes = table[noise.sigma][seen]
    bad = ~(np.isfinite(sizes) & (sizes > 0))
    if bad.any():
        row = int(np.flatnonzero(seen)[bad][0])
        raise DataError(
            f"{table.source}: {int(bad.sum())} standard deviation(s) in column {noise.sigma!r} are not positive numbers, the "
            f"first in row {row} ({table[noise.sigma][row]}): correct them, or leave out these values of {column!r}"
        )
    return torch.from_numpy(sizes.copy())


def _check_units(problem: Problem, table: Table) -> None:
    """Refuse columns in other units than the problem says; without pint these are compared by nobody."""
    for name, ours in problem.units.items():
        if theirs := table.units.get(name):
            with contextlib.suppress(MissingExtraError):
                if conversion(name, theirs, ours) != (1.0, 0.0):
                    raise DataError(
                        f"{table.source}: column {name!r} is in {theirs!r}, and {type(problem).__name__} states it in "
                        f"{ours!r}: read it by units={{{name!r}: ({theirs!r}, {ours!r})}}"
                    )


def resolve_data(
    problem: Problem, data: object, observe: Mapping[str, Callable[..., Any]] | None = None, noise: Any = None
) -> Measurements | None:
    """The measurements to fit: those given, or the problem's own; refused where points, columns or noise are wrong."""
    join = getattr(problem, "joined", None)
    if join is not None and (not isinstance(data, Measurements) or data.table.groups):
        data, observe, noise = join(data, observe, noise), None, None
    own = getattr(problem, "measurements", None)
    if data is None and own is not None:
        data = own()
    if data is None:
        if observe is not None or noise is not None:
            raise ProblemError(f"observe= and noise= say what data mean, and {type(problem).__name__} has none: pass data=")
        return None
    found = Measurements.of(data).with_more(observe, noise)
    data_blocks(problem, found)
    table = found.table
    _check_units(problem, table)
    for column in found.noise:
        if column not in found.observables(problem):
            raise ProblemError(
                f"noise names the column {column!r}, which measures nothing: only columns of fields, derivatives and observed "
                "functions scatter, and coordinates count as exact"
            )
    silent = [field for field in problem.fields if field not in table.columns]
    for name in found.unused(problem):
        close = [field for field in silent if field.lower() == name.strip().lower()]
        if close:
            raise ProblemError(
                f"{table.source}: the column {name!r} is not a field of {type(problem).__name__}; did you mean {close[0]!r}? "
                "Rename it, or map it with columns={...} when reading"
            )
    return _inside(problem, found)


def _inside(problem: Problem, given: Measurements) -> Measurements:
    """Measurements at points of the domain: others are refused or, if that is asked for, left out."""
    table, bounds = given.table, problem.domain.bounds
    points = np.stack([table[name] for name in bounds], axis=1)
    wild = ~np.isfinite(points).all(axis=1)
    if wild.any():
        rows = _counted(problem, table, wild, "have no point")
        raise DataError(f"{table.source}: {rows}: coordinates must be finite numbers; remove or correct these rows")
    outside = ~_in_bounds(problem, points).all(axis=1)
    what = "lie outside the domain"
    box = ", ".join(f"{name} from {lower:g} to {upper:g}" for name, (lower, upper) in bounds.items())
    where = f"; the domain has {box}: widen it, or remove these rows"
    if not outside.any():
        outside = ~problem.domain.contains(points)
        what, where = f"lie outside the domain {problem.domain!r}", ": remove these rows"
    if not outside.any():
        return given
    rows = _counted(problem, table, np.asarray(outside), what)
    if given.outside == "error":
        where += ", or leave them out by data=sciml.Measurements(..., outside='drop')"
    if given.outside == "error" or outside.all():
        raise DataError(f"{table.source}: {rows}{where}")
    kept = Table({name: table[name][~outside] for name in table.columns}, source=table.source, missing="mask")
    found = given.on(kept)
    found.notes = (*given.notes, f"left out, as outside='drop' asks: {rows}")
    # A domain that is no box may leave out more.
    return _inside(problem, found)


def _counted(problem: Problem, table: Table, wrong: Array, what: str) -> str:
    """The number of wrong rows, and the first few of them."""
    rows = np.flatnonzero(wrong)
    first = int(rows[0])
    point = np.array([table[name][first] for name in problem.coordinates])
    beyond = ~_in_bounds(problem, point)
    names = [name for name, out in zip(problem.coordinates, beyond, strict=True) if out]
    place = ", ".join(f"{name} = {table[name][first]:g}" for name in names or problem.coordinates)
    more = f", then {', '.join(str(row) for row in rows[1:_SHOWN])}" if len(rows) > 1 else ""
    more += ", ..." if len(rows) > _SHOWN else ""
    return f"{len(rows)} of {len(table)} rows {what}, the first in row {first} with {place}{more}"


def _in_bounds(problem: Problem, points: Array) -> Array:
    """True where a coordinate of points ``(..., D)`` lies between its bounds, to rounding."""
    lower, upper = np.array(problem.domain.lower), np.array(problem.domain.upper)
    slack = _FAR * (upper - lower)
    return (points >= lower - slack) & (points <= upper + slack)
