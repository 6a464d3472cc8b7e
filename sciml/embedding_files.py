"""Tables that are written batch by batch, into HDF5 or Parquet: whole files or none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from sciml.archive import HDF5
from sciml.errors import FileError, MissingExtraError
from sciml.run_directory import replaced

_ENDINGS = {".h5": "hdf5", ".hdf5": "hdf5", ".parquet": "parquet"}
_CHUNK = 2**14


def kind_of(path: str | Path) -> str:
    """``"hdf5"`` or ``"parquet"``, by the ending; the library for it is there.

    Raises:
        FileError: another ending.
        MissingExtraError: Parquet without ``pyarrow``.
    """
    if not isinstance(path, str | Path) or Path(path).suffix.lower() not in _ENDINGS:
        raise FileError(f"out must be a file that ends in .h5, .hdf5 or .parquet; given: {path!r}")
    kind = _ENDINGS[Path(path).suffix.lower()]
    if kind == "parquet":
        _arrow()
    return kind


def write(path: Path, frames: Iterable[pd.DataFrame], count: int) -> None:
    """Write frames with the same columns, one below the other, so that one of them is in memory at a time.

    In HDF5 every column is a dataset with a checksum (fletcher32) for each chunk, an index that is not a plain count one more,
    ``index``; what the frames say of themselves (``attrs``) are attributes of the file, beside ``columns``. Parquet files
    have all of it where ``pandas.read_parquet`` looks for it.

    Args:
        path: the file, which is replaced once everything is written.
        frames: one or more.
        count: the number of rows of all.

    Raises:
        FileError: the file cannot be written; an older one is still there.
        MissingExtraError: Parquet without ``pyarrow``.
    """
    writer = {"hdf5": _hdf5, "parquet": _parquet}[kind_of(path)]
    with replaced(path) as temporary, writer(temporary, count) as put:
        for frame in frames:
            put(frame)


@contextlib.contextmanager
def _hdf5(path: Path, count: int) -> Iterator[Callable[[pd.DataFrame], None]]:
    with h5py.File(path, "w", libver=HDF5) as file:
        done = 0

        def put(frame: pd.DataFrame) -> None:
            nonlocal done
            columns = {str(name): frame[name].to_numpy(np.float64) for name in frame.columns}
            if not isinstance(frame.index, pd.RangeIndex):
                columns["index"] = _storable(frame.index)
            for name, values in columns.items():
                text = values.dtype.kind == "O"
                if not done:
                    kind = h5py.string_dtype() if text else values.dtype
                    # Texts lie elsewhere in the file, where chunks and their checksums do not reach.
                    plain = {} if text or not count else {"chunks": (min(count, _CHUNK),), "fletcher32": True}
                    file.create_dataset(name, (count,), kind, **plain)
                file[name][done : done + len(values)] = values
            if not done:
                file.attrs.update({**frame.attrs, "columns": list(map(str, frame.columns))})
            done += len(frame)

        yield put


def _storable(index: pd.Index) -> np.ndarray:
    """An index as numbers, or else as texts."""
    values = index.to_numpy()
    return values if values.dtype.kind in "iuf" else np.array([str(each) for each in index], dtype=object)


@contextlib.contextmanager
def _parquet(path: Path, count: int) -> Iterator[Callable[[pd.DataFrame], None]]:
    arrow, parquet = _arrow()
    writer: Any = None

    def put(frame: pd.DataFrame) -> None:
        nonlocal writer
        keep = not isinstance(frame.index, pd.RangeIndex)
        table = arrow.Table.from_pandas(frame, preserve_index=keep, schema=None if writer is None else writer.schema)
        if writer is None:
            writer = parquet.ParquetWriter(path, table.schema, use_dictionary=False, write_page_checksum=True)
        writer.write_table(table)

    try:
        yield put
    finally:
        if writer is not None:
            writer.close()


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Parquet files are written by the library pyarrow, which is not installed: pip install 'sciml[files]'; or write "
            "HDF5, out='embedding.h5'"
        ) from None
    return pyarrow, parquet
