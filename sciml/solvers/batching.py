"""Batches of points where memory does not hold all at once: the same sums in parts, and only then an error."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from sciml._text import first_line
from sciml.errors import SciMLError, SolverError

T = TypeVar("T")

_PREDICTED = 16384
# What allocators of CPUs and of accelerators' libraries say; torch has a class of its own only for its own one.
_SIGNS = re.compile("can(no|')t allocate memory|not enough memory|out of memory|bad_alloc|alloc_failed", re.IGNORECASE)


def exhausted(error: BaseException) -> bool:
    """Whether an error of any library says that memory was used up."""
    if isinstance(error, SciMLError) or not isinstance(error, RuntimeError | MemoryError):
        return False
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or _SIGNS.search(str(error)) is not None


class BatchSize:
    """How many points are taken at a time: all for None, and fewer once memory does not hold them."""

    size: int | None = None

    def attempt(self, work: Callable[[int | None], T], largest: int) -> T:
        """The result of work that can be begun anew, on ever fewer points at a time while memory runs out."""
        while True:
            try:
                return work(self.size)
            except (RuntimeError, MemoryError) as error:
                if not exhausted(error):
                    raise
                present = largest if self.size is None else min(self.size, largest)
                if present <= 1:
                    raise SolverError(_failed("even for one point at a time", error)) from error
            # Only here, where the error and all that its frames hold are gone, is there room to begin again.
            self.size = (present + 1) // 2

    def said(self) -> tuple[str, ...]:
        """A sentence for ``solution.choices`` where the size was reduced."""
        text = f"memory did not hold all points at once: at most {self.size} were taken at a time, with the same sums"
        return () if self.size is None else (text,)


def kept_bytes(work: Callable[[], object]) -> int:
    """The bytes that autograd keeps of some work for the way back."""
    kept: dict[int, int] = {}
    # Alive until all are counted: the same place must not be handed out twice.
    alive = []

    def keep(values: Tensor) -> Tensor:
        storage = values.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        alive.append(values)
        return values

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda values: values):
        result = work()
    del result
    return sum(kept.values())


@contextlib.contextmanager
def named(what: str) -> Iterator[None]:
    """Turn an error of memory into a SolverError that names the method, where smaller batches are of no help."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not exhausted(error):
            raise
        raise SolverError(_failed(f"for {what}", error)) from error


def predicted(trial: nn.Module, points: Tensor) -> Tensor:
    """The values ``(n, F)`` of a trial function at points ``(n, D)`` in their units, on the CPU in float64."""
    like = next(trial.buffers())

    def work(most: int | None) -> list[Tensor]:
        chunks = points.split(min(most or _PREDICTED, _PREDICTED))
        return [trial(chunk.to(like)).double().cpu() for chunk in chunks if len(chunk)]

    with torch.no_grad():
        found = BatchSize().attempt(work, min(len(points), _PREDICTED))
    return torch.cat(found) if found else torch.empty((0, 0), dtype=torch.float64)


def _failed(what: str, error: BaseException) -> str:
    first = first_line(error)
    return (
        f"memory does not suffice {what} ({first}): use a smaller model, a solver without dense matrices (sciml.LBFGS, "
        "sciml.Adam(batch=...)), or another device"
    )
