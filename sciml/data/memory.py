"""How much may be read at once: sizes are estimated before memory is taken.

How much memory a dense method may take, and a refusal in words before it takes more.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from sciml.errors import DataError, SolverError

_SHARE = 0.5

_UNKNOWN = 4 * 2**30


def free_bytes(device: torch.device) -> int:
    """The memory that is free where tensors of a device live; 4 GiB where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        # Linux calls memory free that holds nothing at all; what it could hand out, caches included, stands here.
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def require(needed: int, bound: float | None, like: Tensor, what: str, instead: str) -> None:
    """Refuse a method whose matrices would not fit.

    Args:
        needed: the bytes it needs.
        bound: the bytes it may take, or None for half of what is free.
        like: a tensor on the device in question.
        what: the method and the sizes of its matrices, for the message.
        instead: what to do, for the message.

    Raises:
        SolverError: it needs more than it may take.
    """
    most = _SHARE * free_bytes(like.device) if bound is None else bound
    if needed > most:
        given = "half of what is free" if bound is None else "the bound memory="
        raise SolverError(f"{what} needs {_readable(needed)}, more than {_readable(most)} ({given}): {instead}")


def _readable(size: float) -> str:
    return f"{size / 2**30:.3g} GiB" if size >= 2**29 else f"{size / 2**20:.3g} MiB"


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
