"""Lazy tables in a fit: a sample where a whole table is needed, and batch after batch for first-order solvers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml._text import whole
from sciml.data import LazyTable, Stream, Table
from sciml.errors import DataError, SolverError
from sciml.geometry import Box, PointSet
from sciml.parallel import process_group
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.measurements import data_blocks
from sciml.problem.observations import DATA, Observation
from sciml.solvers import DiscreteProblem, FirstOrder
from sciml.typing import Array

_BATCH = 8192


@dataclass(frozen=True)
class DataStream:
    """A lazy table, and the random sample of its rows that stands for it where a whole table is needed."""

    table: LazyTable
    rows: Array
    sample: Table

    def batches(self, setup: DiscreteProblem, solver: FirstOrder) -> Batches:
        """Measurements for every step of a solver; rows that are held out never come."""
        batch = min(solver.batch or _BATCH, len(self.table))
        return Batches(self.table, setup, batch, solver.seed, self.rows[setup.held_rows])

    def notes(self, setup: DiscreteProblem, solvers: Sequence[Any]) -> str:
        """What of the table was used where, in a sentence; ``solvers`` are those that trained."""
        table, sample = self.table, len(self.sample)
        left = len(table) - int(setup.held_rows.sum())
        parts = []
        for solver in solvers:
            if isinstance(solver, FirstOrder):
                batch = min(solver.batch or _BATCH, len(table))
                steps = math.ceil(left / batch)
                parts.append(f"{solver.name} is fed {batch} rows a step, all that are not held out in {steps} steps")
        others = "other" if parts else "all"
        whole = "all rows" if sample == len(table) else f"a random sample of {sample} rows"
        parts.append(f"{whole} for natural sizes, {others} solvers, intervals and judging")
        return f"the table is lazy, {len(table)} rows in pieces of {table.pieces.largest}: {'; '.join(parts)}"


def fed(problem: object, data: object, seed: int) -> tuple[object, DataStream | None]:
    """The data that a fit begins with; and where they are a lazy table, what feeds it."""
    if data is None and isinstance(problem, Problem):
        own = getattr(problem, "measurements", None)
        data = None if own is None else own()
    if not isinstance(data, LazyTable):
        return data, None
    rows = data.sample_rows(data.loading.at_once, whole("seed", seed, 0, SolverError))
    sample = data.read(rows)
    return sample, DataStream(data, rows, sample)


class Batches:
    """Measured blocks on batches of a lazy table's rows, without end; ``close`` ends the processes that read."""

    def __init__(self, table: LazyTable, setup: DiscreteProblem, batch: int, seed: int, without: Array) -> None:
        problem, measurements = setup.problem, setup.measurements
        assert measurements is not None
        self._table, self._problem, self._measurements = table, problem, measurements
        self.taken = 0
        like = next(setup.trial.parameters())
        self._device, self._dtype = like.device, like.dtype
        unused = measurements.unused(problem)
        self.stream = Stream(
            table,
            batch,
            columns=[name for name in table.columns if name not in unused],
            epochs=None,
            seed=seed,
            without=without,
            bounds=problem.domain.bounds,
            needed=list(measurements.observables(problem)),
            share=(process_group.current().rank, process_group.current().size),
        )

    def __iter__(self) -> Batches:
        return self

    def skip(self, count: int) -> None:
        """Leave out so many batches, as if they had come."""
        for _ in range(count):
            next(self.stream)
        self.taken += count

    def __next__(self) -> tuple[Collocation, ...]:
        self.taken += 1
        columns = {name: values.numpy() for name, values in next(self.stream).items()}
        rows = Table(columns, source=self._table.source, missing=self._table.missing)
        self._check_inside(rows)
        seen = any(np.isfinite(rows[name]).any() for name in self._measurements.observables(self._problem))
        blocks = data_blocks(self._problem, self._measurements.on(rows)) if seen else []
        return tuple(self._placed(block) for block in self._parted(blocks))

    def _parted(self, blocks: Sequence[Collocation]) -> list[Collocation]:
        """Blocks as parts of those that all processes read together, where there are several."""
        if not process_group.several():
            return list(blocks)
        names = [f"{DATA}{name}" for name in self._measurements.observables(self._problem)]
        own = {term.name: block.size for block in blocks for term in block.terms}
        counts = process_group.total(torch.tensor([own.get(name, 0) for name in names])).tolist()
        whole = dict(zip(names, counts, strict=True))
        return [
            replace(block, terms=tuple(term for term in block.terms if whole[term.name] == count), whole=count)
            for block in blocks
            for count in sorted({whole[term.name] for term in block.terms})
        ]

    def close(self) -> None:
        """End the processes that read, and close the file."""
        self.stream.close()

    def _placed(self, block: Collocation) -> Collocation:
        """A block where the model is; through pinned memory, so that the training process need not wait for a GPU's copy."""
        if self._device.type != "cuda":
            return block.to(self._device, self._dtype)
        (points,) = block.sample.points
        terms = []
        for term in block.terms:
            assert isinstance(term.evaluate, Observation)
            sigma = None if term.evaluate.sigma is None else self._copied(term.evaluate.sigma)
            misfit = replace(term.evaluate, measured=self._copied(term.evaluate.measured), sigma=sigma)
            terms.append(replace(term, evaluate=misfit))
        return Collocation(PointSet((self._copied(points),)), tuple(terms), whole=block.whole)

    def _copied(self, values: Tensor) -> Tensor:
        return values.pin_memory().to(self._device, self._dtype, non_blocking=True)

    def _check_inside(self, rows: Table) -> None:
        domain = self._problem.domain
        # Bounds have been looked at where the rows were read.
        if isinstance(domain, Box):
            return
        at = np.stack([rows[name] for name in self._problem.coordinates], axis=1)
        beyond = np.flatnonzero(~domain.contains(at))
        if len(beyond):
            first = {name: rows[name][beyond[0]] for name in self._problem.coordinates}
            where = ", ".join(f"{name} = {value:g}" for name, value in first.items())
            raise DataError(
                f"{rows.source}: {len(beyond)} of the {len(rows)} rows of a batch lie outside the domain {domain!r}, one of "
                f"them at {where}: remove these rows"
            )
