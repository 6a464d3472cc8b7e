"""Tables of named float64 columns in memory, with groups, units and provenance."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sciml._text import among, listed, mapping, whole
from sciml.data.provenance import Provenance
from sciml.data.write import save_columns
from sciml.errors import DataError
from sciml.typing import Array


class Split(NamedTuple):
    """The parts of a table: most of it to train on, the others to judge by; None for a part that was not asked for.

    Example:
        >>> import sciml
        >>> parts = sciml.Table({"t": range(10), "u": range(10)}).split(validation=0.1, test=0.2)
        >>> len(parts.train), len(parts.validation), len(parts.test)
        (7, 1, 2)
    """

    train: Table
    validation: Table | None
    test: Table | None


class Table:
    """Named columns of float64 numbers, all of the same length, with a note on where they came from.

    Args:
        columns: a mapping (or a pandas DataFrame) of names to one-dimensional numeric columns; they are copied.
        source: where the numbers came from, for messages and reports.
        missing: ``"error"`` refuses values that are not finite; ``"mask"`` keeps NaN, and every use of the table skips
            those entries. Infinite values are refused either way.
        group: the name of a column of texts or whole numbers that says which experiment (or sample) a row belongs to. It
            is taken out of the columns of numbers.
        units: of some columns; they are kept and not interpreted.
        provenance: the file that the numbers came from.

    Raises:
        DataError: no rows, columns of different length, text, or values that are not finite.

    Example:
        >>> import sciml
        >>> table = sciml.Table({"t": [0.0, 1.0], "u": [2.0, 3.0]})
        >>> table.columns, len(table)
        (('t', 'u'), 2)
    """

    def __init__(
        self,
        columns: Mapping[str, Any] | pd.DataFrame,
        *,
        source: str = "memory",
        missing: str = "error",
        group: str | None = None,
        units: Mapping[str, str] | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        if missing not in ("error", "mask"):
            raise DataError(f"missing must be 'error' or 'mask'; given: {missing!r}")
        if not isinstance(columns, Mapping | pd.DataFrame):
            raise DataError(
                f"{source}: a table needs columns by name, {{'t': [0, 1], 'u': [2, 3]}}, or a pandas DataFrame; given: "
                f"{type(columns).__name__}"
            )
        if not isinstance(group, str | None):
            raise DataError(f"{source}: group must be the name of a column; given: {group!r}")
        units = mapping("units", units, "{'t': 's'}")
        if not all(isinstance(unit, str) for unit in units.values()):
            raise DataError(f"{source}: units must be texts; given: {units!r}")
        if isinstance(columns, pd.DataFrame) and not columns.columns.is_unique:
            twice = sorted({str(name) for name in columns.columns[columns.columns.duplicated()]})
            raise DataError(f"{source}: the column name {listed(twice)} occurs more than once; rename one of them")
        given = {str(name): values for name, values in columns.items()}
        if group is not None and group not in given:
            raise DataError(f"{source} has no column {group!r} to group by; columns: {among(group, given)}")
        self.source, self.provenance, self._group, self._units = source, provenance, group, units
        self._labels = None if group is None else _labels(group, given.pop(group), source)
        self._columns = {name: _column(name, values, source, missing) for name, values in given.items()}
        lengths = {name: len(values) for name, values in self._columns.items()}
        if not lengths or 0 in lengths.values():
            raise DataError(f"{source}: tables need at least one column and one row; given: {lengths or 'no columns'}")
        if self._labels is not None:
            lengths[str(group)] = len(self._labels)
        if len(set(lengths.values())) > 1:
            raise DataError(f"{source}: the columns have different lengths: {lengths}")
        for name in self._units:
            if name not in self._columns:
                raise DataError(f"{source}: units names {name!r}, which is no column; columns: {listed(self._columns)}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of numbers, in order."""
        return tuple(self._columns)

    @property
    def units(self) -> Mapping[str, str]:
        """The units of the columns whose unit is known."""
        return MappingProxyType(self._units)

    @property
    def grouped_by(self) -> str | None:
        """The name of the column that the rows are grouped by, if any."""
        return self._group

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups in the order of their first rows; none without groups."""
        return () if self._labels is None else tuple(dict.fromkeys(self._labels.tolist()))

    @property
    def labels(self) -> Array | None:
        """For each row the name of its group, shape ``(n,)``; None without groups."""
        return self._labels

    def group(self, name: str) -> Table:
        """The rows of one group.

        Args:
            name: of the group.

        Returns:
            A table with the same columns, units and provenance.

        Raises:
            DataError: there is no such group.

        Example:
            >>> import sciml
            >>> runs = sciml.Table({"t": [0, 1, 0], "u": [3, 4, 5], "run": ["a", "a", "b"]}, group="run")
            >>> runs.groups, runs.group("b")["u"].tolist()
            (('a', 'b'), [5.0])
        """
        if self._labels is None:
            raise DataError(f"{self.source} has no groups; pass group='<column>' when the table is read or made")
        if str(name) not in self.groups:
            raise DataError(f"{self.source} has no group {name!r}; groups: {among(name, self.groups)}")
        return self.take(self._labels == str(name))

    def take(self, rows: Any) -> Table:
        """Some rows, in the order asked for.

        Args:
            rows: a slice, numbers of rows, or one truth value for each row.

        Returns:
            A table with the same columns, units and provenance.

        Raises:
            DataError: no row, or rows that the table does not have.
        """
        every = np.arange(len(self))
        try:
            chosen = every[rows if isinstance(rows, slice) else np.atleast_1d(np.asarray(rows))]
        except IndexError as error:
            raise DataError(f"{self.source}: {error}; the table has {len(self)} rows") from error
        if not len(chosen):
            raise DataError(f"{self.source}: no row is left; a table needs at least one")
        columns = {name: values[chosen] for name, values in self._columns.items()}
        for values in columns.values():
            values.setflags(write=False)
        part = object.__new__(Table)
        labels = None if self._labels is None else self._labels[chosen]
        part.__dict__.update(self.__dict__ | {"_columns": columns, "_labels": labels})
        return part

    def split(self, *, validation: float = 0.1, test: float = 0.2, by: str = "rows", seed: int = 0) -> Split:
        r"""Three parts: one to train on, one to choose by, one to judge by at the end.

        Args:
            validation, test: their shares of the rows, of the range of a coordinate's values, or of the groups.
            by: ``"rows"`` takes rows at random. The name of a column, such as the time, takes its largest values for the
                test and those before for the validation, rows of equal value staying together. ``"group"`` takes whole
                groups at random.
            seed: of the random choice.

        Returns:
            A named tuple ``(train, validation, test)``; a part with share 0 is None.

        Raises:
            DataError: shares that are not in [0, 1) or add up to 1, a part that would be empty, no such column, no groups, a
                seed that is no whole number of at least 0.
        """
        shares = {"validation": validation, "test": test}
        if not all(isinstance(each, int | float) and 0 <= each < 1 for each in shares.values()) or validation + test >= 1:
            raise DataError(f"split needs shares of at least 0 that add up to less than 1; given: {shares}")
        seed = whole("seed", seed, 0)
        if by == "rows":
            keys, places = np.arange(len(self)), np.random.default_rng(seed).permutation(len(self))
        elif by == "group":
            if self._labels is None:
                raise DataError(f"{self.source} has no groups to split by; pass group='<column>' when it is made")
            names = self.groups
            keys = pd.Categorical(self._labels, categories=list(names)).codes
            places = np.random.default_rng(seed).permutation(len(names))
        else:
            column = self[by]
            if np.isnan(column).any():
                raise DataError(f"{self.source}: {by!r} has missing values and cannot be split by")
            values, keys = np.unique(column, return_inverse=True)
            places = np.arange(len(values))
        total = len(places)
        sizes = {name: max(round(share * total), 1) if share else 0 for name, share in shares.items()}
        if total - sum(sizes.values()) < 1:
            what = {"rows": "rows", "group": "groups"}.get(by, f"values of {by!r}")
            raise DataError(
                f"{self.source}: {total} {what} are too few for a part to train on beside validation={validation:g} and "
                f"test={test:g}; make them smaller, or 0, or split by something else"
            )
        # A row's place decides its part: first those to train on, then validation, then test.
        place = np.empty(total, dtype=np.int64)
        place[places] = np.arange(total)
        at, last = place[keys], total - sizes["test"]
        first = last - sizes["validation"]
        return Split(
            self.take(at < first),
            self.take((at >= first) & (at < last)) if sizes["validation"] else None,
            self.take(at >= last) if sizes["test"] else None,
        )

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> Array:
        """A column, shape ``(n,)``, read-only."""
        if not isinstance(name, str) or name not in self._columns:
            raise DataError(f"{self.source} has no column {name!r}; columns: {among(name, self.columns)}")
        return self._columns[name]

    def as_mapping(self) -> Mapping[str, Array]:
        """The columns by name."""
        return MappingProxyType(self._columns)

    def to_pandas(self) -> pd.DataFrame:
        """A copy as a pandas DataFrame; the column that rows are grouped by comes last."""
        columns: dict[str, Any] = {name: values.copy() for name, values in self._columns.items()}
        if self._labels is not None and self._group is not None:
            columns[self._group] = self._labels.astype(str).tolist()
        return pd.DataFrame(columns)

    def save(self, path: str | Path) -> None:
        """Write a file that appears whole or not at all; its suffix names the format.

        ``.h5`` (and ``.hdf5``) carries checksums of every chunk. ``.h5``, ``.parquet`` and ``.nc`` keep units, ``.h5``,
        ``.parquet`` and ``.csv`` the groups. Every format keeps every number as it is, to the last bit.

        Args:
            path: the file, which is replaced.

        Raises:
            DataError: another suffix, or something that the format has no place for.
            FileError: the file cannot be written; an older one of that name is unchanged.
            MissingExtraError: Parquet without pyarrow.

        Example:
            >>> import pathlib, tempfile, sciml
            >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.h5"
            >>> sciml.Table({"t": [0.0, 1.0], "u": [0.1, 0.2]}, units={"t": "s"}).save(file)
            >>> again = sciml.read(file)
            >>> again["u"].tolist(), dict(again.units)
            ([0.1, 0.2], {'t': 's'})
        """
        if not isinstance(path, str | Path):
            raise DataError(f"save needs the path of a file, such as 'run.h5'; given: {path!r}")
        save_columns(Path(path), self.to_pandas(), self._units)

    def __repr__(self) -> str:
        grouped = "" if self._labels is None else f"; {len(self.groups)} groups by {self._group}"
        return f"Table({len(self)} rows: {', '.join(self.columns)}{grouped}; {self.source})"


def _labels(name: str, given: Any, source: str) -> Array:
    """The names of groups as texts."""
    try:
        series = pd.Series(given) if isinstance(given, Sequence | np.ndarray) else pd.Series(list(given))
    except (TypeError, ValueError) as error:
        raise DataError(f"{source}: {name!r} does not hold the name of a group for each row: {error}") from error
    if series.dtype.kind == "O" and not all(map(pd.api.types.is_scalar, series)):
        raise DataError(f"{source}: {name!r} holds lists or other things, which name no groups; give a text per row")
    if series.isna().any():
        first = int(np.flatnonzero(series.isna())[0])
        raise DataError(f"{source}: row {first} has no value in {name!r}, which rows are grouped by; name its group")
    if series.dtype.kind == "f" and (series == series.round()).all():
        series = series.astype("int64")
    if series.dtype.kind == "f":
        raise DataError(f"{source}: {name!r} holds fractions such as {series.iloc[0]}, which do not name groups")
    labels = series.astype(str).str.strip().to_numpy(dtype=object)
    labels.setflags(write=False)
    return labels


def _column(name: str, given: Any, source: str, missing: str) -> Array:
    try:
        raw = np.asarray(given)
    except ValueError as error:
        raise DataError(f"{source}: column {name!r} is not a column of numbers: {error}") from error
    if raw.dtype.kind not in "iuf":
        raise DataError(f"{source}: column {name!r} holds {_not_numbers(raw)}")
    if raw.ndim != 1:
        raise DataError(f"{source}: column {name!r} has shape {raw.shape}; expected one dimension")
    values = unmasked(given)
    check_finite(source, name, values, missing)
    values.setflags(write=False)
    return values


def _not_numbers(raw: Array) -> str:
    """What a column holds in the place of numbers, and what to do about it."""
    if raw.dtype.kind in "Mm":
        seconds = "(t - t.min()).dt.total_seconds()" if raw.dtype.kind == "M" else "t.dt.total_seconds()"
        return f"{raw.dtype}, not numbers; convert it to a time since a start, as pandas' {seconds} does"
    odd = ((row, each) for row, each in enumerate(raw.ravel().tolist()) if not isinstance(each, numbers.Real))
    where = next((f", {each!r} in row {row} first" for row, each in odd), "")
    return f"{raw.dtype}, not numbers{where}; convert it, or leave the column out"


def unmasked(given: Any) -> Array:
    """A masked array or another one as a copy in double precision: what is under the mask, as netCDF4 has it, is NaN."""
    found: Array = np.ma.filled(np.ma.array(given, dtype=np.float64, copy=True), np.nan)
    return found


def check_finite(source: str, name: str, values: Array, missing: str, rows: Array | None = None) -> None:
    """Refuse infinite values of a column, and missing ones unless masked; ``rows`` are their numbers in a larger table."""
    bad = np.isinf(values) if missing == "mask" else ~np.isfinite(values)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        piece, row = ("", first) if rows is None else (" in the piece that was read", int(rows[first]))
        raise DataError(
            f"{source}: column {name!r} has {int(bad.sum())} value(s) that are not finite{piece}, the first in row {row} "
            f"({values[first]}); remove these rows"
            + (
                ""
                if np.isinf(values).any()
                else ", or skip those of measured values by missing='mask' of sciml.Table or sciml.read"
            )
        )
