"""Threads of NumPy's and SciPy's BLAS: one for small matrices between computations of PyTorch.

PyTorch has threads of its own. After each call the threads of OpenBLAS stay awake for some milliseconds, and those of PyTorch
wait for a processor meanwhile: with 16 threads each, cut tiles in time took 45 s in the place of 13 s with one of each.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import threadpoolctl  # type: ignore[import-untyped]


@lru_cache(maxsize=1)
def _blas() -> Any:
    # SciPy's and NumPy's own, which are loaded by now.
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


def one_blas_thread() -> AbstractContextManager[Any]:
    """A block with one thread of BLAS, which gets its threads back at the end; of blocks that overlap the first decides."""
    limit: AbstractContextManager[Any] = _blas().limit(limits=1)
    return limit
