"""Memory limits: what reading a file or a dense method needs is estimated and compared with what is free."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sciml.errors import DataError, SolverError

if TYPE_CHECKING:
    # Processes that only look at files load no torch.
    import torch
    from torch import Tensor

_SHARE = 0.5
_UNITS = ("bytes", "KiB", "MiB", "GiB")


def free_bytes(device: torch.device | None = None) -> int | None:
    """The memory in bytes that is free on a device, by default the processor's; None where the system does not say."""
    if device is not None and device.type == "cuda":
        import torch

        # What PyTorch holds for later use is free as well.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + kept)
    try:
        # Linux calls memory free that holds nothing at all; what it could hand out, caches included, stands here.
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def bound(given: float | None, like: Tensor) -> float:
    """The bytes that a method may take: those given, or half of what is free where ``like`` is."""
    return _SHARE * (free_bytes(like.device) or 4 * 2**30) if given is None else given


def require(needed: int, given: float | None, like: Tensor, what: str, instead: str) -> None:
    """Refuse a method that needs more bytes than are given, or without a number than half of what is free."""
    most = bound(given, like)
    if needed > most:
        whose = "half of what is free" if given is None else "the bound memory="
        raise SolverError(f"{what} needs {readable(needed)}, more than {readable(most)} ({whose}): {instead}")


def check_memory(path: Path, needed: int, memory: int | None, remedy: str) -> None:
    """Refuse a file, before it is read, that takes more bytes than ``memory``, or without one than half of what is free."""
    if memory is not None and not (isinstance(memory, int) and memory > 0):
        raise DataError(f"memory must be a number of bytes; given: {memory!r}")
    free = free_bytes() if memory is None else None
    limit = memory if free is None else free // 2
    if limit is not None and needed > limit:
        raise DataError(
            f"{path} needs about {readable(needed)} of memory, and {readable(limit)} may be taken"
            + ("" if memory is not None else " (half of what is free)")
            + f"; {remedy}, or pass memory=<bytes>"
        )


def readable(number: float) -> str:
    """A number of bytes in units that can be read: ``1.5 MiB``."""
    for unit in _UNITS:
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"
