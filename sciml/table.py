"""Tables of named columns: what measurements are once their file has been read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from sciml.errors import DataError, listed, nearest
from sciml.typing import Array


class Table:
    """Named columns of float64 numbers, all of the same length, with a note on where they came from.

    Args:
        columns: a mapping (or a pandas DataFrame) of names to one-dimensional numeric columns; they are copied.
        source: where the numbers came from, for messages and reports.
        missing: ``"error"`` refuses values that are not finite; ``"mask"`` keeps NaN, and every use of the table skips
            those entries. Infinite values are refused either way.

    Raises:
        DataError: no rows, columns of different length, text, or values that are not finite.

    Example:
        >>> import sciml
        >>> table = sciml.Table({"t": [0.0, 1.0], "u": [2.0, 3.0]})
        >>> table.columns, len(table)
        (('t', 'u'), 2)
    """

    def __init__(
        self, columns: Mapping[str, Any] | pd.DataFrame, *, source: str = "memory", missing: str = "error"
    ) -> None:
        if missing not in ("error", "mask"):
            raise DataError(f"missing must be 'error' or 'mask'; given: {missing!r}")
        if isinstance(columns, pd.DataFrame) and not columns.columns.is_unique:
            twice = sorted({str(name) for name in columns.columns[columns.columns.duplicated()]})
            raise DataError(f"{source}: the column name {listed(twice)} occurs more than once; rename one of them")
        self.source = source
        self._columns = {str(name): _column(str(name), values, source, missing) for name, values in columns.items()}
        lengths = {name: len(values) for name, values in self._columns.items()}
        if not lengths or 0 in lengths.values():
            raise DataError(
                f"{source}: a table needs at least one column and one row; given: {lengths or 'no columns'}"
            )
        if len(set(lengths.values())) > 1:
            raise DataError(f"{source}: the columns have different lengths: {lengths}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> Array:
        """A column, shape ``(n,)``, read-only."""
        if name not in self._columns:
            raise DataError(
                f"{self.source} has no column {name!r}; columns: {listed(self.columns)}.{nearest(name, self.columns)}"
            )
        return self._columns[name]

    def as_mapping(self) -> Mapping[str, Array]:
        """The columns by name."""
        return MappingProxyType(self._columns)

    def to_pandas(self) -> pd.DataFrame:
        """A copy as a pandas DataFrame."""
        return pd.DataFrame({name: values.copy() for name, values in self._columns.items()})

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.columns)}; {self.source})"


def _column(name: str, given: Any, source: str, missing: str) -> Array:
    try:
        raw = np.asarray(given)
    except ValueError as error:
        raise DataError(f"{source}: column {name!r} is not a column of numbers: {error}") from error
    if raw.dtype.kind not in "iuf":
        raise DataError(f"{source}: column {name!r} holds {raw.dtype}, not numbers; convert it first")
    if raw.ndim != 1:
        raise DataError(f"{source}: column {name!r} has shape {raw.shape}; expected one dimension")
    values = raw.astype(np.float64)
    bad = np.isinf(values) if missing == "mask" else ~np.isfinite(values)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"{source}: column {name!r} has {int(bad.sum())} value(s) that are not finite, the first in row {first} "
            f"({values[first]}); remove these rows"
            + ("" if missing == "mask" or np.isinf(values).any() else ", or pass missing='mask' to skip them")
        )
    values.setflags(write=False)
    return values
