"""What an HDF5 file holds, told without reading it."""

from __future__ import annotations

from collections.abc import Iterator

import h5py

_MOST_LISTED = 40


def walk(group: h5py.Group, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Everything in a group by path, with what it is in words: ``("probe/u", "float64 (3,)")``; links are not followed.

    Objects that are reached twice are told once.
    """
    seen = {h5py.h5o.get_info(group.id).addr}

    def inside(group: h5py.Group, prefix: str) -> Iterator[tuple[str, str]]:
        for key in group:
            link, name = group.get(key, getlink=True), f"{prefix}{key}"
            if isinstance(link, h5py.SoftLink):
                yield name, f"link to {link.path}"
            elif isinstance(link, h5py.ExternalLink):
                yield name, f"link to {link.path} in {link.filename}"
            else:
                thing = group[key]
                address = h5py.h5o.get_info(thing.id).addr
                if address in seen:
                    continue
                seen.add(address)
                if isinstance(thing, h5py.Group):
                    yield f"{name}/", "group"
                    yield from inside(thing, f"{name}/")
                elif isinstance(thing, h5py.Dataset):
                    yield name, "empty" if thing.shape is None else f"{thing.dtype} {thing.shape}"

    yield from inside(group, prefix)


def tree(group: h5py.Group) -> str:
    """The content of a group as lines of text, at most forty."""
    lines = [f"  {name}: {what}" for name, what in walk(group)]
    more = len(lines) - _MOST_LISTED
    return "\n".join(lines[:_MOST_LISTED] + ([f"  … and {more} more"] if more > 0 else [])) or "  nothing"
