"""What an HDF5 file holds, told without reading it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py

from sciml.datasets.damage import FOREIGN, check_safe

_MOST_LISTED = 40
# What is told of objects that cannot be opened begins with this.
DAMAGED = "damaged"


def walk(group: h5py.Group, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Everything in a group by path, with what it is in words: ``("probe/u", "float64 (3,)")``; links are not followed.

    Objects that are reached twice are told once.

    Raises:
        DataError: to walk through the file would end or hang the process.
    """
    check_safe(Path(group.file.filename))
    seen = {h5py.h5o.get_info(group.id).addr}

    def inside(group: h5py.Group, prefix: str) -> Iterator[tuple[str, str]]:
        for key in group:
            name = f"{prefix}{key}"
            try:
                link = group.get(key, getlink=True)
                thing = group[key] if isinstance(link, h5py.HardLink) else None
                address = None if thing is None else h5py.h5o.get_info(thing.id).addr
                what = _told(thing)
            except FOREIGN as error:
                yield name, f"{DAMAGED} ({error})"
                continue
            if isinstance(link, h5py.SoftLink):
                yield name, f"link to {link.path}"
            elif isinstance(link, h5py.ExternalLink):
                yield name, f"link to {link.path} in {link.filename}"
            elif address not in seen:
                seen.add(address)
                if isinstance(thing, h5py.Group):
                    yield f"{name}/", "group"
                    yield from inside(thing, f"{name}/")
                elif what:
                    yield name, what

    yield from inside(group, prefix)


def _told(thing: object) -> str:
    """What a dataset holds, in words; nothing for anything else."""
    if not isinstance(thing, h5py.Dataset):
        return ""
    return "empty" if thing.shape is None else f"{thing.dtype} {thing.shape}"


def tree(group: h5py.Group) -> str:
    """The content of a group as lines of text, at most forty."""
    lines = [f"  {name}: {what}" for name, what in walk(group)]
    more = len(lines) - _MOST_LISTED
    return "\n".join(lines[:_MOST_LISTED] + ([f"  … and {more} more"] if more > 0 else [])) or "  nothing"
