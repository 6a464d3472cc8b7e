"""Pairs of input and output functions on grids: the data of operator learning, in memory or in their file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sciml._text import listed
from sciml.data.archive import replaced
from sciml.errors import DataError
from sciml.operators.family import Axes, Family, mesh_points
from sciml.typing import Array

POINT = "point"
"""The name of what inputs on scattered points depend on: the number of the point."""
_SHOWN = 5


@dataclass(frozen=True)
class Pairs:
    """Samples of an operator: input functions and constants, and the fields that they lead to, on tensor-product grids.

    Attributes:
        inputs: by name, functions ``(samples, points...)`` and constants ``(samples,)``; arrays, or datasets of a file.
        outputs: by field, ``(samples, points...)``.
        axes: the nodes of the outputs, by coordinate, in the order of their dimensions.
        input_axes: the nodes of each input function; an empty dict for a constant.
        points: ``(points, D)`` where the outputs lie on scattered points and not on a grid; then ``axes`` is empty, and inputs
            that are not in ``input_axes`` and have as many values lie there, too.
        periodic: the coordinates along which the outputs are periodic.
        family: the problems that the pairs are from, if they are known.
        failures: by number, why a sample has no pair.
        ways: how the samples were solved, for ``correct``.

    Raises:
        DataError: shapes that do not belong together, or values that are not finite.

    Example:
        >>> import numpy as np
        >>> from sciml.operators import Pairs
        >>> x, a = np.linspace(0, 1, 11), np.random.default_rng(0).normal(size=(30, 1))
        >>> pairs = Pairs({"a": a * x}, {"u": a * x**2}, {"x": x}, {"a": {"x": x}})
        >>> len(pairs), pairs.outputs["u"].shape
        (30, (30, 11))
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    axes: Axes
    input_axes: Mapping[str, Axes]
    points: Array | None = None
    periodic: tuple[str, ...] = ()
    family: Family | None = None
    failures: Mapping[int, str] = field(default_factory=dict)
    ways: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {name: len(values) for name, values in (*self.inputs.items(), *self.outputs.items())}
        if not self.inputs or not self.outputs:
            raise DataError(f"pairs need inputs and outputs; given: {listed(self.inputs)} and {listed(self.outputs)}")
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise DataError(f"inputs and outputs must have as many samples as each other; given: {said}")
        if self.points is not None:
            # What has no grid and as many values as there are points lies on these.
            own = {
                name: {POINT: np.arange(len(self.points), dtype=float)}
                for name, values in self.inputs.items()
                if name not in self.input_axes and values.shape[1:] == (len(self.points),)
            }
            object.__setattr__(self, "input_axes", {**self.input_axes, **own})
        for name, values in self.inputs.items():
            self._check_shape(name, values.shape[1:], tuple(len(nodes) for nodes in self.input_axes.get(name, {}).values()))
        for name, values in self.outputs.items():
            self._check_shape(name, values.shape[1:], self.shape)

    @staticmethod
    def _check_shape(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        if tuple(found) != wanted:
            raise DataError(f"{name}: every sample must have the shape of the grid, {wanted}; it has {tuple(found)}")

    def __len__(self) -> int:
        return len(next(iter(self.outputs.values())))

    def __getitem__(self, rows: Any) -> Pairs:
        """Some of the samples, read into memory."""
        rows = np.atleast_1d(np.arange(len(self))[rows])
        inputs, outputs = (
            {name: _taken(name, values, rows) for name, values in part.items()} for part in (self.inputs, self.outputs)
        )
        return replace(self, inputs=inputs, outputs=outputs)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(self.outputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the outputs' grid; of scattered points their number."""
        return (len(self.points),) if self.points is not None else tuple(len(nodes) for nodes in self.axes.values())

    @property
    def places(self) -> Array:
        """The points of the outputs, ``(points, D)``."""
        return mesh_points(self.axes) if self.points is None else self.points

    @property
    def nbytes(self) -> int:
        """The bytes of all values as float64."""
        return 8 * sum(math.prod(values.shape) for values in (*self.inputs.values(), *self.outputs.values()))

    def given(self) -> Array:
        """The inputs as rows of numbers, ``(samples, numbers)``."""
        return np.concatenate([np.reshape(values, (len(self), -1)) for values in self.inputs.values()], axis=1)

    def wanted(self) -> Array:
        """The outputs as ``(samples, points, fields)``."""
        return np.stack([np.reshape(values, (len(self), -1)) for values in self.outputs.values()], axis=2)

    def save(self, path: str | Path) -> Path:
        """Write an HDF5 file that ``operators.read`` reads: groups ``inputs``, ``outputs``, ``axes`` and ``input_axes``."""
        path = Path(path)
        with replaced(path) as part, h5py.File(part, "w") as file:
            file.attrs["format"] = "sciml pairs"
            file.attrs["periodic"] = list(self.periodic)
            for group, values in (("inputs", self.inputs), ("outputs", self.outputs), ("axes", self.axes)):
                for name, each in values.items():
                    file[f"{group}/{name}"] = each[:]
            for name, axes in self.input_axes.items():
                file.require_group(f"input_axes/{name}").attrs["order"] = list(axes)
                for coordinate, nodes in axes.items():
                    file[f"input_axes/{name}/{coordinate}"] = nodes
            file["axes"].attrs["order"] = list(self.axes)
            file.attrs["fields"], file.attrs["names"] = list(self.outputs), list(self.inputs)
            if self.points is not None:
                file["points"] = self.points
        return path

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape)) + (" scattered points" if self.points is not None else "")
        along = f" ({', '.join(self.axes)})" if self.axes else ""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"{len(self)} pairs: {', '.join(self.inputs)} to {', '.join(self.outputs)} on {size}{along}{failed}"


def _taken(name: str, values: Any, rows: Array) -> Array:
    """Rows of an array or dataset as float64, which must be finite."""
    if isinstance(values, np.ndarray):
        found = np.asarray(values[rows], dtype=float)
    else:
        order = np.argsort(rows, kind="stable")  # datasets are read in the order of their rows
        found = np.empty((len(rows), *values.shape[1:]))
        found[order] = np.asarray(values[rows[order]], dtype=float)
    bad = np.flatnonzero(~np.isfinite(found.reshape(len(rows), -1)).all(1))
    if len(bad):
        shown = ", ".join(str(rows[each]) for each in bad[:_SHOWN]) + (", ..." if len(bad) > _SHOWN else "")
        raise DataError(f"{name}: {len(bad)} samples have values that are not finite: numbers {shown}; leave them out")
    return found


def split(count: int, share: float, seed: int, most: int) -> tuple[Array, Array]:
    """Numbers of samples to train on and to hold out, both in order."""
    mixed = np.random.default_rng([seed, 60]).permutation(count)
    held = min(most, max(1, round(share * count)))
    return np.sort(mixed[held:]), np.sort(mixed[:held])


def relative_errors(found: Array, wanted: Array) -> Array:
    """The relative L2 error of every sample, ``(samples,)``, of ``(samples, points, fields)``; each field by its own size."""
    gap = np.linalg.norm(found - wanted, axis=1)
    size = np.linalg.norm(wanted, axis=1)
    floor = 1e-12 * np.maximum(size.max(axis=1, keepdims=True), np.finfo(float).tiny)
    return np.asarray(np.sqrt(np.mean((gap / np.maximum(size, floor)) ** 2, axis=1)))
