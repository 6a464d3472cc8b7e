"""HDF5 files opened safely: what they hold, attributes decoded, links followed, datasets checked without being read."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sciml._text import listed, nearest
from sciml.data.memory import readable
from sciml.data.sandbox import FOREIGN, check_safe
from sciml.errors import DataError

_MOST_LISTED = 40
_MOST_LINKS = 16

# Compression by gzip reaches a factor of about 1000.
MOST_COMPRESSED = 1100

_SMALL = 2**20


def text(value: Any) -> str | None:
    """The text of an attribute; None if it is none. What is not UTF-8 is taken for Latin-1, as ``µ`` of old programs is."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if not isinstance(value, bytes):
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def label(what: str, row: int, value: Any) -> str:
    """The name of a row's group. A guess of its encoding could make another name of it, so only UTF-8 is taken."""
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        return str(value)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{what}, row {row}: {raw!r} is not UTF-8 text; write the names of groups in UTF-8") from error


def packing(attributes: Any) -> str | None:
    """What has to be done to a dataset's numbers by the conventions CF before they mean anything; None for nothing."""
    for name, neutral in (("scale_factor", 1.0), ("add_offset", 0.0), ("_FillValue", None), ("missing_value", None)):
        if name not in attributes:
            continue
        value = np.ravel(np.asarray(attributes[name]))
        nothing = value.dtype.kind in "iuf" and np.all(np.isnan(value) if neutral is None else value == neutral)
        if not nothing:
            return f"{name} = {value[0] if len(value) == 1 else value}"
    return None


def things(group: h5py.Group) -> Iterator[tuple[str, Any]]:
    """Every object in a group by its path: of h5py, a link that is not followed, or the error of one that cannot be opened."""
    check_safe(Path(group.file.filename))
    seen = {address(group)}

    def inside(group: h5py.Group, prefix: str) -> Iterator[tuple[str, Any]]:
        for key in group:
            name = f"{prefix}{key}"
            try:
                link = group.get(key, getlink=True)
                thing = group[key] if isinstance(link, h5py.HardLink) else link
                where = address(thing) if isinstance(thing, h5py.HLObject) else None
                if where is not None and where in seen:
                    continue
                seen.add(where)
                yield name, thing
                if isinstance(thing, h5py.Group):
                    yield from inside(thing, f"{name}/")
            except FOREIGN as error:
                yield name, error

    yield from inside(group, "")


def address(thing: h5py.HLObject) -> object:
    """What an object is known by; one whose header cannot be counted through is read all the same."""
    with contextlib.suppress(Exception):
        return h5py.h5o.get_info(thing.id).addr
    return thing.name


def walk(group: h5py.Group) -> Iterator[tuple[str, str]]:
    """Everything in a group by path, with what it is in words: ``("probe/u", "float64 (3,)")``."""
    for name, thing in things(group):
        if isinstance(thing, Exception):
            yield name, f"damaged ({thing})"
        elif isinstance(thing, h5py.SoftLink):
            yield name, f"link to {thing.path}"
        elif isinstance(thing, h5py.ExternalLink):
            yield name, f"link to {thing.path} in {thing.filename}"
        elif isinstance(thing, h5py.Group):
            yield f"{name}/", "group"
        elif isinstance(thing, h5py.Dataset):
            yield name, "empty" if thing.shape is None else f"{thing.dtype} {thing.shape}"


def tree(group: h5py.Group) -> str:
    """The content of a group as lines of text, at most forty."""
    lines = [f"  {name}: {what}" for name, what in walk(group)]
    more = len(lines) - _MOST_LISTED
    return "\n".join(lines[:_MOST_LISTED] + ([f"  … and {more} more"] if more > 0 else [])) or "  nothing"


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset of numbers in an HDF5 file, found and checked, not yet read."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    chunks: tuple[int, ...] | None = None
    units: str | None = None
    # For each axis the path of the dimension scale that the file attaches to it.
    scales: tuple[str | None, ...] = ()


class OpenFiles:
    """HDF5 files by path, each opened at its first use for reading only; a fork needs an object of its own.

    Only links to files below ``links`` are followed.
    """

    def __init__(self, links: str | Path | None = None) -> None:
        self.links = links
        self._open: dict[Path, h5py.File] = {}
        # To look a dataset up and prepare to read it takes as long as reading a chunk.
        self.datasets: dict[tuple[Path, str], h5py.Dataset | np.ndarray] = {}

    def __getitem__(self, path: Path) -> h5py.File:
        if path not in self._open:
            self._open[path] = _opened(path)
        return self._open[path]

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file; a later use opens it again."""
        for file in self._open.values():
            file.close()
        self._open.clear()
        self.datasets.clear()


def locate(handles: OpenFiles, path: Path, name: str, depth: int = 0) -> DatasetInfo:
    """Find a dataset by its path inside a file, and check it unread."""
    found, dataset = _followed(handles, path, name)
    reason = unusable(dataset)
    if reason is not None:
        raise DataError(f"{found}: {dataset.name!r} {reason}")
    _check_storage(handles, found, dataset, depth)
    packed = packing(dataset.attrs)
    if packed is not None:
        raise DataError(
            f"{found}: {dataset.name!r} is packed ({packed}), and its numbers are not what is stored; read the file with "
            "sciml.read_netcdf, which unpacks them, or store them as they are"
        )
    return DatasetInfo(
        found,
        dataset.name,
        dataset.shape,
        dataset.dtype,
        dataset.chunks,
        text(dataset.attrs["units"]) if "units" in dataset.attrs else None,
        tuple(str(dimension[0].name) if len(dimension) else None for dimension in dataset.dims),
    )


def find(handles: OpenFiles, path: Path, name: str) -> h5py.Dataset:
    """A dataset of any type by its path; links are followed as ``locate`` follows them."""
    found, dataset = _followed(handles, path, name)
    if dataset.shape is not None:
        _check_storage(handles, found, dataset, 0)
    return dataset


def check_own(handles: OpenFiles, path: Path, name: str) -> None:
    """Refuse a dataset whose numbers lie in another file; parts that were never written may be."""
    dataset = _followed(handles, path, name)[1]
    if dataset.is_virtual or dataset.external:
        raise DataError(f"{path}: {dataset.name!r} is stored in other files, which are not read; copy it into one file")


def read_part(handles: OpenFiles, located: DatasetInfo, selection: Any = ...) -> np.ndarray:
    """The numbers of a dataset, or those of a selection, as they are stored."""
    key = located.path, located.name
    try:
        if key not in handles.datasets:
            check_safe(located.path, (located.name,))
            file = handles[located.path]
            dataset = file[located.name]
            if dataset.external or dataset.is_virtual:
                # HDF5 looks for external storage in the working directory unless told otherwise; what was checked lies by the
                # file. A dataset that is still open keeps the folder that it was opened with.
                del dataset
                access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
                access.set_efile_prefix(b"${ORIGIN}")
                access.set_virtual_prefix(b"${ORIGIN}")
                dataset = h5py.Dataset(h5py.h5d.open(file.id, located.name.encode(), access))
            handles.datasets[key] = dataset
        return np.asarray(handles.datasets[key][selection])
    except FOREIGN as error:
        raise DataError(
            f"{located.path}: {located.name!r} cannot be read: {error}; the file is damaged (a checksum or a compressed chunk "
            "is wrong): get it again"
        ) from error


def _opened(path: Path) -> h5py.File:
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise DataError(f"{path} is a folder; give the path of an HDF5 file")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if not size:
        raise DataError(f"{path} is empty (0 bytes): it was never written, or its writer died; get it again")
    # What else is read is looked at where it is asked for: a file may hold much more.
    check_safe(path, ())
    try:
        return h5py.File(path, "r")
    except OSError as error:
        words = str(error)
        if isinstance(error, BlockingIOError) or "unable to lock" in words:
            raise DataError(
                f"{path} is in use: another program has it open for writing; wait until it has finished, or read a copy"
            ) from error
        if "open for write" in words or "consistency flags" in words:
            raise DataError(
                f"{path} is in use: it is open for writing, or its writer died with it open; wait, or repair it with "
                f"h5clear -s: {words}"
            ) from error
        if "signature" in words:
            raise DataError(f"{path} is not an HDF5 file ({size} bytes); sciml.read finds out what it is") from error
        raise DataError(
            f"{path} is damaged or incomplete ({size} bytes): {words}; its writer may have been killed, or a copy cut short: "
            "get it again"
        ) from error


def follow(handles: OpenFiles, path: Path, name: str) -> tuple[Path, Any, str | None]:
    """The file and the object that a path leads to, through links that may be followed; or its end."""
    start, asked = path, name
    parts, at, hops = _split(name), handles[path]["/"], 0
    while parts:
        key = parts.pop(0)
        if not isinstance(at, h5py.Group) or key not in at.keys():  # noqa: SIM118 (`in at` follows links)
            return path, at, key
        link = at.get(key, getlink=True)
        hops += not isinstance(link, h5py.HardLink)
        if hops > _MOST_LINKS:
            raise DataError(f"{start}: the links at {asked!r} lead in a circle; repair the file")
        if isinstance(link, h5py.SoftLink):
            parts = _split(link.path) + parts
            at = handles[path]["/"] if link.path.startswith("/") else at
        elif isinstance(link, h5py.ExternalLink):
            what = f"{start}: {asked!r} is an external link to {link.path!r}"
            path = _allowed(path, link.filename, handles.links, what)
            check_safe(path, ("/".join([link.path, *parts]),))
            parts, at = _split(link.path) + parts, handles[path]["/"]
        else:
            at = at[key]
    return path, at, None


def _followed(handles: OpenFiles, path: Path, name: str) -> tuple[Path, h5py.Dataset]:
    """The file and dataset that a path leads to, through links that may be followed."""
    check_safe(path, (name,))
    found, at, missing = follow(handles, path, name)
    if missing is not None:
        names = [each.rstrip("/") for each, _ in walk(handles[path])]
        # A name without its group is a likely slip, and unlike in spelling.
        inner = [each for each in names if each.split("/")[-1] == name.rsplit("/", maxsplit=1)[-1]]
        hint = f" Did you mean {inner[0]!r}?" if inner and inner[0] != name.strip("/") else nearest(name, names)
        raise DataError(f"{path} has no dataset {name!r}.{hint} It holds\n{tree(handles[path])}")
    if not isinstance(at, h5py.Dataset):
        there = [name for name, what in walk(at) if what != "group"] if isinstance(at, h5py.Group) else []
        raise DataError(
            f"{path}: {name!r} is a group, not a dataset; name one of those in it: "
            + (", ".join(repr(f"{name.rstrip('/')}/{each}") for each in there[:10]) or "it has none")
        )
    return found, at


def _split(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _allowed(path: Path, filename: str, links: str | Path | None, what: str) -> Path:
    """Another file that a file speaks of, if it may be read and is there."""
    other = path.parent / filename
    for variable in ("HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"):
        if os.environ.get(variable):
            raise DataError(f"{what} in another file, and the environment's {variable} sends HDF5 elsewhere for it; unset it")
    if links is None:
        raise DataError(
            f"{what} in another file, {filename!r}, which is not followed; if you trust it pass links={str(path.parent)!r}, "
            "the folder below which other files may be read"
        )
    if not Path(os.path.realpath(other)).is_relative_to(os.path.realpath(links)):
        raise DataError(f"{what} in {filename!r}, which is not below links={str(links)!r}; copy it there, or allow its folder")
    if not other.is_file():
        raise DataError(f"{what} in {filename!r}, and there is no such file; put it beside {path.name}")
    return other


def unusable(dataset: h5py.Dataset) -> str | None:
    """Why a dataset cannot be columns of numbers, with what to do; None if it can."""
    if dataset.shape is None:
        return "is an empty dataset (it has a type and no values); leave it out"
    if 0 in dataset.shape:
        return f"is empty: its shape is {dataset.shape}; leave it out"
    dtype = dataset.dtype
    if h5py.check_string_dtype(dtype) is not None:
        return f"holds texts ({dtype}), not numbers; pass group= if it names groups of rows"
    if h5py.check_vlen_dtype(dtype) is not None:
        return f"is ragged (rows of different length, {dtype}); store it as columns of numbers"
    if dtype.names:
        return f"is compound ({dtype}); store its members {listed(dtype.names)} as datasets"
    if dtype.kind == "b" or h5py.check_enum_dtype(dtype) is not None:
        return f"holds truth values or names ({dtype}), not numbers; store it as numbers if they count as such"
    if dtype.kind not in "iufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        return f"holds {dtype}, which are no numbers that float64 can take; convert it"
    return None


def _check_storage(handles: OpenFiles, path: Path, dataset: h5py.Dataset, depth: int) -> None:
    """That every number that is declared was written, into files that may be read."""
    what = f"{path}: {dataset.name!r}"
    if dataset.is_virtual:
        _check_virtual(handles, path, dataset, depth)
        return
    declared, held = math.prod(dataset.shape) * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if dataset.external:
        for filename, offset, size in dataset.external:
            other = _allowed(path, filename, handles.links, f"{what} is stored")
            # An unlimited size is written as the largest number of that type.
            if other.stat().st_size < offset + min(size, declared):
                raise DataError(f"{what} is stored in {filename!r}, which is too short; get it again")
        return
    # Compact datasets are in the header.
    if dataset.chunks is not None:
        expected = math.prod(-(-length // chunk) for length, chunk in zip(dataset.shape, dataset.chunks, strict=True))
        written = dataset.id.get_num_chunks()
        if written < expected:
            raise DataError(
                f"{what} declares shape {dataset.shape}, {readable(declared)}, and only {written} of its {expected} chunks "
                "were written: HDF5 would fill the rest in silently; get a complete file"
            )
    elif held < declared:
        raise DataError(
            f"{what} declares shape {dataset.shape}, {readable(declared)}, and was never written; get a complete file"
        )
    if declared > MOST_COMPRESSED * held + _SMALL:
        raise DataError(
            f"{what} declares shape {dataset.shape}, {readable(declared)}, in {readable(held)}: more than any compression of "
            "measured numbers; it is not read"
        )


def _check_virtual(handles: OpenFiles, path: Path, dataset: h5py.Dataset, depth: int) -> None:
    what = f"{path}: {dataset.name!r} is a virtual dataset"
    covered = 0
    for source in dataset.virtual_sources():
        filename = path.name if source.file_name == "." else source.file_name
        if "%" in filename + source.dset_name:
            raise DataError(f"{what} of a numbered series of files ({filename!r}), which cannot be checked; copy it into one")
        made = f"{what} made of {source.dset_name!r}"
        other = path if source.file_name == "." else _allowed(path, filename, handles.links, made)
        if depth > _MOST_LINKS:
            raise DataError(f"{what} made of itself; repair the file")
        part = locate(handles, other, source.dset_name, depth + 1)
        if not _still_fits(source.src_space, part.shape, source.vspace.get_select_npoints()):
            raise DataError(
                f"{what}, and its source {part.name!r} in {filename!r} has shape {part.shape} by now; make it again"
            )
        covered += source.vspace.get_select_npoints()
    if covered < math.prod(dataset.shape):
        raise DataError(f"{what}, and no source covers {math.prod(dataset.shape) - covered} of its values; make it again")


def _still_fits(taken: Any, shape: tuple[int, ...], points: int) -> bool:
    """True if a source still has all that a virtual dataset takes from it."""
    if taken.get_select_type() == h5py.h5s.SEL_ALL:
        return math.prod(shape) == points
    _, last = taken.get_select_bounds()
    return len(last) == len(shape) and all(end < length for end, length in zip(last, shape, strict=True))
