"""Oversubscription of processors: one thread of BLAS for small matrices between computations of PyTorch.

PyTorch has threads of its own. After each call the threads of OpenBLAS stay awake for some milliseconds, and those of PyTorch
wait for a processor meanwhile: with 16 threads each, cut tiles in time took 45 s in the place of 13 s with one of each.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import threadpoolctl  # type: ignore[import-untyped]

_HELD = threading.Lock()


@lru_cache(maxsize=1)
def _blas() -> Any:
    # SciPy's and NumPy's own, which are loaded by now.
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A block with one thread of BLAS, which gets its threads back at the end; one that begins within another changes nothing.

    Two that each gave back what they had found would leave one thread for good where the second found one.
    """
    first = _HELD.acquire(blocking=False)
    try:
        with _blas().limit(limits=1) if first else nullcontext():
            yield
    finally:
        if first:
            _HELD.release()
