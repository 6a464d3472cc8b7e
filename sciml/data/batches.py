"""Points in whatever form they come, batch by batch: nothing is read before its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sciml._text import listed
from sciml.data.table import Table
from sciml.errors import ProblemError
from sciml.geometry.coordinates import points_from


@dataclass(frozen=True)
class PointBatches:
    """Points to be read piece by piece.

    Attributes:
        count: the number n of points.
        names: the names of their columns; those of plain arrays are ``x0``, ``x1``, ...
        index: the index of the DataFrame they came in, or None.
        read: from a first and a last number (excluded) to these points, a tensor ``(m, ...)`` on the CPU.
    """

    count: int
    names: tuple[str, ...]
    index: pd.Index | None
    read: Callable[[int, int], Tensor]

    def __call__(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """The number of its first point and the points of batch after batch; one batch even if there is no point."""
        for start in range(0, max(self.count, 1), size):
            yield start, self.read(start, min(start + size, self.count))

    @classmethod
    def of(cls, points: Any, coordinates: Sequence[str] | None) -> PointBatches:
        """The points of a table, a dict of columns, or (without ``coordinates``) an array.

        Args:
            points: a ``Table``, a DataFrame, a mapping of columns, an array or tensor ``(n, ...)``, or anything with a shape
                that gives arrays when it is sliced: a memory map, a dataset of an open HDF5 file.
            coordinates: the columns to take, in order; None takes all columns of a table in its order.

        Raises:
            ProblemError: a column is missing, or the form is none of these.
        """
        index = points.index if isinstance(points, pd.DataFrame) else None
        columns = _columns(points)
        if columns is None:
            if coordinates is not None:
                raise ProblemError(
                    f"points must be a Table, a DataFrame or a dict with the solution's coordinates; given: "
                    f"{type(points).__name__}"
                )
            return _of_array(points)
        names = tuple(columns) if coordinates is None else tuple(coordinates)
        missing = [name for name in names if name not in columns]
        if missing:
            raise ProblemError(f"the points lack the coordinate {listed(missing)}; given: {listed(columns)}")
        if not names:
            raise ProblemError("the points have no column")
        chosen = {name: columns[name] for name in names}
        shapes = {tuple(getattr(values, "shape", ())) for values in chosen.values()}
        if len(shapes) == 1 and len(next(iter(shapes))) == 1:
            # Columns of one length are read where they lie; others have to be brought to one shape first.
            ((count,),) = shapes

            def read(start: int, stop: int) -> Tensor:
                return points_from({name: values[start:stop] for name, values in chosen.items()}, names)[0]

            return cls(count, names, index, read)
        whole, _ = points_from(chosen, names)
        return cls(len(whole), names, index, lambda start, stop: whole[start:stop])


def _of_array(points: Any) -> PointBatches:
    shaped = points if hasattr(points, "shape") and hasattr(points, "__getitem__") else None
    if shaped is None:
        try:
            shaped = np.asarray(points, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ProblemError(f"points for a module must be an array of numbers (n, D): {error}") from error
    if len(shaped.shape) < 2:
        raise ProblemError(f"points for a module must have shape (n, D) or (n, ...); given: {tuple(shaped.shape)}")
    names = tuple(f"x{column}" for column in range(shaped.shape[1])) if len(shaped.shape) == 2 else ()

    def read(start: int, stop: int) -> Tensor:
        part = shaped[start:stop]
        return part.detach() if isinstance(part, Tensor) else torch.from_numpy(np.array(part))

    return PointBatches(int(shaped.shape[0]), names, None, read)


def _columns(points: Any) -> Mapping[str, Any] | None:
    if isinstance(points, Table):
        return points.as_mapping()
    if isinstance(points, pd.DataFrame):
        return {str(name): points[name].to_numpy() for name in points.columns}
    return points if isinstance(points, Mapping) else None
