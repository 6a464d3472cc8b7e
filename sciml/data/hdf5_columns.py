"""What was asked of an HDF5 file, and the columns that one dataset becomes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sciml.data.hdf5_file import DatasetInfo, OpenFiles, locate
from sciml.data.hdf5_grid import Column
from sciml.errors import DataError


@dataclass(frozen=True)
class ColumnRequest:
    """What was asked for.

    Args:
        handles: the open files.
        path: of the file.
        wanted: name in the problem: name in the file; None for everything.
        axes, split: as in ``read_hdf5``.
        links: the folder below which other files may be read; None forbids them.

    Raises:
        DataError: when something that was asked for is not there.

    Example:
        >>> import pathlib
        >>> from sciml.data.hdf5_file import OpenFiles
        >>> request = ColumnRequest(OpenFiles(), pathlib.Path("run.h5"), None, {}, {"velocity": ("u", "v")}, None)
        >>> request.named(request.split, "V", "/velocity")
        ('u', 'v')
    """

    handles: OpenFiles
    path: Path
    wanted: dict[str, str] | None
    axes: dict[str, Sequence[str]]
    split: dict[str, Sequence[str]]
    links: Path | None

    def locate(self, name: str) -> DatasetInfo:
        """A dataset by its path in the file."""
        return locate(self.handles, self.path, name, links=self.links)

    def named(self, option: Mapping[str, Any], ours: str, theirs: str) -> Any:
        """What an option says of a column, by our name or the file's."""
        return option.get(ours, option.get(theirs, option.get(theirs.strip("/"))))


def names_wanted(columns: Mapping[str, str] | Sequence[str] | None) -> dict[str, str] | None:
    """Names in the problem with those in the file; None for everything.

    Raises:
        DataError: neither a mapping nor names.
    """
    if columns is None:
        return None
    if isinstance(columns, str):
        columns = [columns]
    texts = [*columns, *columns.values()] if isinstance(columns, Mapping) else columns
    if not isinstance(columns, Mapping | Sequence) or not columns or not all(isinstance(name, str) for name in texts):
        raise DataError(f"columns must be {{name in the problem: dataset in the file}} or names; given: {columns!r}")
    if isinstance(columns, Mapping):
        return dict(columns)
    return {name.strip("/").rsplit("/", maxsplit=1)[-1]: name for name in columns}


def split_columns(
    request: ColumnRequest,
    ours: str,
    theirs: str,
    dataset: DatasetInfo,
    axes: Sequence[str],
    components: Sequence[str],
    fixed: Mapping[str, int],
) -> list[Column]:
    """The columns that a dataset becomes: one, two for complex numbers, or one for each component.

    Args:
        request: what was asked for.
        ours, theirs: the names of the column and of the dataset.
        dataset: where it is.
        axes: for each axis the coordinate along it, ``"component"``, or something that is fixed.
        components: the names of the columns unless others are asked for.
        fixed: the index along axes that are fixed, such as ``"sample"``.

    Raises:
        DataError: complex numbers without two names, or another number of names than of components.
    """
    named = request.named(request.split, ours, theirs)
    what = f"{request.path}: {ours!r} ({dataset.name})"
    if dataset.dtype.kind == "c":
        if named is None or len(named) != 2 or "component" in axes:
            raise DataError(
                f"{what} is complex; pass split={{{ours!r}: ('u', 'v')}} to have its real and imaginary part as two columns"
            )
        placed = tuple(fixed.get(axis, axis) for axis in axes)
        return [Column(str(name), dataset, placed, part) for name, part in zip(named, ("real", "imag"), strict=True)]
    which = [number for number, axis in enumerate(axes) if axis == "component"]
    counted = list(itertools.product(*(range(dataset.shape[number]) for number in which)))
    if named is None:
        named = (
            components
            if len(components) == len(counted) and which
            else [f"{ours}_{number}" for number in range(len(counted))]
        )
        named = [ours] if len(counted) == 1 else named
    if len(named) != len(counted):
        raise DataError(
            f"{what} has {len(counted)} components (shape {dataset.shape}); split gives {len(named)}: {tuple(named)!r}"
        )
    columns = []
    for name, index in zip(named, counted, strict=True):
        taken = iter(index)
        placed = tuple(next(taken) if axis == "component" else fixed.get(axis, axis) for axis in axes)
        columns.append(Column(str(name), dataset, placed))
    return columns
