"""Columns written to files, whole or batch by batch: each file appears complete or not at all."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from sciml._text import extra, listed
from sciml.data import archive
from sciml.data.archive import HDF5
from sciml.errors import DataError, FileError
from sciml.typing import Array

_ENDINGS = {".h5": "hdf5", ".hdf5": "hdf5", ".parquet": "parquet"}
# Rows of a chunk: of a table that is there as a whole, and of one that comes batch by batch.
_CHUNK, _CHUNK_OF_BATCHES = 65536, 2**14


def kind_of(path: str | Path) -> str:
    """``"hdf5"`` or ``"parquet"``, by the ending; a ``FileError`` for another one, or if the library for it is missing."""
    if not isinstance(path, str | Path) or Path(path).suffix.lower() not in _ENDINGS:
        raise FileError(f"out must be a file that ends in .h5, .hdf5 or .parquet; given: {path!r}")
    kind = _ENDINGS[Path(path).suffix.lower()]
    if kind == "parquet":
        arrow("; or write HDF5, out='embedding.h5'")
    return kind


def write(path: Path, frames: Iterable[pd.DataFrame], count: int) -> None:
    """Write frames (``count`` rows in all) below each other, one in memory at a time; indices and ``attrs`` are kept too."""
    kind = kind_of(path)
    with archive.recorded(path) as temporary, _Noted(temporary, "w+") as raw:
        try:
            with _hdf5(raw, {}, count, _CHUNK_OF_BATCHES) if kind == "hdf5" else _parquet(raw, {}) as put:
                for frame in frames:
                    put(frame)
        except Exception as error:
            raise raw.failed or error from None
        if raw.failed is not None:
            raise raw.failed


def save_columns(path: Path, frame: pd.DataFrame, units: Mapping[str, str]) -> None:
    """Write float64 columns and texts for groups in the format that the suffix names; CSV has no place for units."""
    suffix = path.suffix.lower()
    if suffix in _WHOLE:
        archive.write_file(path, _WHOLE[suffix](frame, units))
        return
    if suffix not in _ENDINGS:
        raise DataError(f"cannot tell the format of {path.name!r}; it may end in {listed((*_ENDINGS, *_WHOLE))}")
    buffer = io.BytesIO()
    kind = _ENDINGS[suffix]
    try:
        with _hdf5(buffer, units, len(frame), _CHUNK) if kind == "hdf5" else _parquet(buffer, units) as put:
            put(frame)
    except DataError:
        raise
    except (ValueError, TypeError) as error:
        raise DataError(f"{kind} cannot hold these columns: {error}") from error
    archive.write_file(path, buffer.getvalue())


class _Noted(io.FileIO):
    """A file that remembers what the system refused: HDF5 goes on after a full disk as if nothing had been."""

    failed: OSError | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            try:
                left = left[super().write(left) :]
            except OSError as error:
                self.failed = self.failed or error
                raise
        return size


@contextlib.contextmanager
def _hdf5(
    file: io.BytesIO | io.FileIO, units: Mapping[str, str], count: int, chunk: int
) -> Iterator[Callable[[pd.DataFrame], None]]:
    """What puts frames into an HDF5 file, one below the other, until there are ``count`` rows."""
    done = 0

    def create(name: str, values: Array) -> None:
        if "/" in name or name == ".":
            raise DataError(f"HDF5 cannot have a dataset called {name!r}; rename the column")
        kind, whole = values.dtype, len(values) == count
        if kind.kind == "O":
            # Texts of variable length lie outside the chunks that checksums protect; what is still to come may be longer.
            kind = h5py.string_dtype("utf-8", max(1, *map(len, values)) if whole else None)
        protected = count and (whole or values.dtype.kind != "O")
        plain = {"chunks": (min(count, chunk),), "fletcher32": True} if protected else {}
        dataset = content.create_dataset(name, (count,), kind, **plain)
        if name in units:
            # As above: of fixed length they lie where there are checksums.
            dataset.attrs["units"] = np.bytes_(units[name].encode())

    def put(frame: pd.DataFrame) -> None:
        nonlocal done
        columns = {str(name): _storable(values) for name, values in frame.items()}
        if not isinstance(frame.index, pd.RangeIndex):
            columns["index"] = _storable(frame.index)
        for name, values in columns.items():
            if not done:
                create(name, values)
            content[name][done : done + len(values)] = values.astype(content[name].dtype, copy=False)
        if not done and frame.attrs:
            content.attrs.update({**frame.attrs, "columns": list(map(str, frame.columns))})
        done += len(frame)

    with h5py.File(file, "w", libver=HDF5) as content:
        yield put


def _storable(values: pd.Series | pd.Index) -> Array:
    """Numbers as float64, those of an index as they are, anything else as UTF-8 texts."""
    if isinstance(values, pd.Index):
        found = values.to_numpy()
        if found.dtype.kind in "iuf":
            return found
    elif not _is_text(values):
        return values.to_numpy(dtype=np.float64)
    return np.array([str(each).encode() for each in values], dtype=object)


@contextlib.contextmanager
def _parquet(file: io.BytesIO | io.FileIO, units: Mapping[str, str]) -> Iterator[Callable[[pd.DataFrame], None]]:
    """What puts frames into a Parquet file, one below the other."""
    pyarrow, parquet = arrow()
    writer: Any = None

    def put(frame: pd.DataFrame) -> None:
        nonlocal writer
        keep = not isinstance(frame.index, pd.RangeIndex)
        table = pyarrow.Table.from_pandas(frame, preserve_index=keep, schema=None if writer is None else writer.schema)
        if writer is None:
            schema = table.schema
            for number, field in enumerate(schema):
                if field.name in units:
                    schema = schema.set(number, field.with_metadata({"units": units[field.name]}))
            texts = [field.name for field in schema if not pyarrow.types.is_floating(field.type)]
            writer = parquet.ParquetWriter(file, schema, use_dictionary=texts, write_page_checksum=True)
        writer.write_table(table.cast(writer.schema))

    try:
        yield put
    finally:
        if writer is not None:
            writer.close()


def arrow(instead: str = "") -> tuple[Any, Any]:
    """The library for Parquet, and its module."""
    with extra("files", "Parquet files need pyarrow", instead):
        import pyarrow
        from pyarrow import parquet
    return pyarrow, parquet


def _csv(frame: pd.DataFrame, units: Mapping[str, str]) -> bytes:
    for name, values in frame.items():
        title = str(name)
        if not title or title != title.strip() or not title.isprintable():
            raise DataError(f"CSV cannot have a column called {name!r}; rename it, or save as .h5 or .parquet")
        if _is_text(values):
            _check_labels(title, pd.Series(list(dict.fromkeys(values)), dtype=object))
    # A header that begins with the sign of comments would be taken for one; and without quotes files are read faster.
    commented = str(frame.columns[0]).startswith("#")
    # The shortest decimal number that reads back as the same float64.
    return frame.to_csv(
        index=False, lineterminator="\n", na_rep="nan", quoting=csv.QUOTE_NONNUMERIC if commented else csv.QUOTE_MINIMAL
    ).encode()


def _check_labels(name: str, labels: pd.Series) -> None:
    """Refuse names of groups that would not be read back as they are."""
    again = pd.read_csv(io.StringIO(labels.to_csv(index=False, quoting=csv.QUOTE_ALL)), dtype=str).iloc[:, 0]
    lost = labels[(again.isna() | labels.str.contains(r"[\r\n\0]")).to_numpy()]
    if len(lost):
        raise DataError(
            f"CSV cannot hold the label {lost.iloc[0]!r} of {name!r}: it would be read as a missing value or as several lines; "
            "rename it, or save as .h5 or .parquet"
        )


def _netcdf(frame: pd.DataFrame, units: Mapping[str, str]) -> bytes:
    from scipy.io import netcdf_file

    _no_texts(frame, "NetCDF 3")
    buffer = io.BytesIO()
    file = netcdf_file(buffer, "w", version=2)
    file.createDimension("row", len(frame))
    for name, values in frame.items():
        try:
            variable = file.createVariable(str(name), np.dtype("f8"), ("row",))
        except (ValueError, UnicodeError) as error:
            raise DataError(f"NetCDF cannot have a variable called {name!r}: {error}") from error
        variable[:] = values.to_numpy(dtype=np.float64)
        if str(name) in units:
            variable.units = units[str(name)]
    file.flush()
    return buffer.getvalue()


def _mat(frame: pd.DataFrame, units: Mapping[str, str]) -> bytes:
    from scipy.io import savemat

    _no_texts(frame, "a .mat file")
    for name in frame:
        if not (str(name).isascii() and str(name).isidentifier() and str(name)[0].isalpha() and len(str(name)) < 32):
            raise DataError(f"a variable of MATLAB cannot be called {name!r}; rename it, or choose another format")
    buffer = io.BytesIO()
    savemat(buffer, {str(name): values.to_numpy(dtype=np.float64) for name, values in frame.items()}, oned_as="column")
    return buffer.getvalue()


def _no_texts(frame: pd.DataFrame, what: str) -> None:
    for name, values in frame.items():
        if _is_text(values):
            raise DataError(f"{what} has no place for the texts of {name!r}; save as .h5, .csv or .parquet")


def _is_text(values: pd.Series) -> bool:
    return values.dtype.kind not in "iuf"


_WHOLE: dict[str, Callable[[pd.DataFrame, Mapping[str, str]], bytes]] = {".csv": _csv, ".nc": _netcdf, ".mat": _mat}
