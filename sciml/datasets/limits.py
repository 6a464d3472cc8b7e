"""How much may be read at once: sizes are estimated before memory is taken."""

from __future__ import annotations

import os
from pathlib import Path

from sciml.errors import DataError


def available() -> int | None:
    """The bytes of memory that are free for use; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def check_memory(path: Path, needed: int, memory: int | None, remedy: str) -> None:
    """Refuse what would not fit, before it is read.

    Args:
        path: of the file, for the message.
        needed: the bytes that reading it takes, as estimated.
        memory: the bytes that it may take; None stands for half of what is free.
        remedy: what to do instead.

    Raises:
        DataError: it needs more.
    """
    if memory is not None and not (isinstance(memory, int) and memory > 0):
        raise DataError(f"memory must be a number of bytes; given: {memory!r}")
    free = available()
    limit = memory if memory is not None else None if free is None else free // 2
    if limit is not None and needed > limit:
        raise DataError(
            f"{path} needs about {readable(needed)} of memory, and {readable(limit)} may be taken"
            + ("" if memory is not None else " (half of what is free)")
            + f"; {remedy}, or pass memory=<bytes>"
        )


def readable(number: float) -> str:
    """A number of bytes in units that can be read: ``1.5 MiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"
