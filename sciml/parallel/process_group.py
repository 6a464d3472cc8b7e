"""Process group of a distributed fit: which share of the rows is ours, and sums over all processes.

Under ``torchrun`` every process runs the same program on the same problem. What takes time, residuals and their derivatives,
each computes for its share of the points; sums over all points are added up by ``torch.distributed``, so that every process
goes on with the same numbers, and decides the same. Outside of ``joined`` there is one process, and nothing is sent anywhere.

Reference: S. Li et al., PyTorch Distributed: experiences on accelerating data parallel training, Proceedings of the VLDB
Endowment 13 (2020).
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from sciml._text import first_line
from sciml.errors import SciMLError, SolverError

T = TypeVar("T")

# A process waits so long for the others in a sum, and so long for what the first does alone.
_PATIENCE, _LONG = timedelta(minutes=10), timedelta(days=30)
# Fewer points than this a process are not worth sending around.
_LEAST = 8


@dataclass(frozen=True)
class Group:
    """Processes that work on one fit: the number of this one and how many there are."""

    rank: int = 0
    size: int = 1

    def slice_of(self, count: int) -> slice:
        """Our share of so many things in order."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def divides(self, count: int) -> bool:
        """Whether so many points are worth being divided."""
        return self.size > 1 and count >= _LEAST * self.size


_ALONE = Group()
_current: ContextVar[Group | None] = ContextVar("process group", default=None)


def current() -> Group:
    """The group of the fit that is going on; of one process where it is not distributed."""
    return _current.get() or _ALONE


def several() -> bool:
    """Whether other processes work on this fit."""
    return current().size > 1


def first() -> bool:
    """Whether this is the process that writes and shows."""
    return current().rank == 0


def offered() -> bool:
    """Whether the process was started as one of several, and neither belongs to the group of a fit nor works ``alone``."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ and _current.get() is None


def local_device() -> int:
    """The number of the GPU that belongs to this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if several() else 0


def local_size() -> int:
    """How many processes of this fit share the memory of this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if several() else 1


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Be one of the processes that ``torchrun`` started, for one fit."""
    if not dist.is_initialized():
        _begin()
    token = _current.set(Group(dist.get_rank(), dist.get_world_size()))
    try:
        yield
    except SciMLError:
        raise
    except RuntimeError as error:
        raise _explained(error) from error
    finally:
        _current.reset(token)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Work that the other processes do not take part in."""
    token = _current.set(_ALONE)
    try:
        yield
    finally:
        _current.reset(token)


def total(values: Tensor) -> Tensor:
    """The sum over all processes, to the same bits on each."""
    if not several():
        return values
    found = values.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(found)
    return found


def stacked(values: Tensor) -> Tensor:
    """The rows ``(n, ...)`` of all processes, one after another, where each may hold another number of them."""
    if not several():
        return values
    counts = total(torch.nn.functional.one_hot(torch.tensor(current().rank), current().size) * len(values)).tolist()
    return _gathered(values, counts)


def gathered(values: Tensor, count: int) -> Tensor:
    """All of ``count`` rows, of which each process holds its ``slice_of``."""
    size = current().size
    return _gathered(values, [count * (rank + 1) // size - count * rank // size for rank in range(size)])


def agreed(value: T) -> T:
    """The value that the first process has: a plain value, a tensor or anything that can be pickled."""
    if not several():
        return value
    found = [value if first() else None]
    dist.broadcast_object_list(found, src=0)
    return found[0]  # type: ignore[return-value]


def most(number: int) -> int:
    """The largest of a whole number over all processes."""
    if not several():
        return number
    found = torch.tensor(number)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return int(found)


def collected(value: T) -> list[T]:
    """The values of all processes in order, on each."""
    if not several():
        return [value]
    found: list[Any] = [None] * current().size
    dist.all_gather_object(found, value)
    return found


def by_first(work: Callable[[], T], handed: Callable[[T], Any], taken: Callable[[Any], T]) -> T:
    """What the first process does alone, while the others wait for it; errors of ours are raised on all.

    Args:
        work: done by the first process.
        handed: makes something that can be pickled of its result.
        taken: makes the result of that again, on the others.
    """
    waiting = dist.new_group(backend="gloo", timeout=_LONG)
    found: list[Any] = [None]
    result: Any = None
    failed: SciMLError | None = None
    if first():
        with alone():
            try:
                result = work()
                found = [("done", handed(result))]
            except SciMLError as error:
                failed, found = error, [("failed", f"{type(error).__name__} in the first process: {error}")]
    dist.broadcast_object_list(found, src=0, group=waiting)
    dist.destroy_process_group(waiting)
    if failed is not None:
        raise failed
    if first():
        return result
    kind, content = found[0]
    if kind == "failed":
        raise SolverError(content)
    with alone():
        return taken(content)


def check_same(vector: Tensor, what: str) -> None:
    """Refuse to go on where processes have come to hold other numbers."""
    if not several():
        return
    own = torch.stack([vector.detach().double().cpu().sum(), vector.detach().double().cpu().square().sum()])
    found = collected(own.tolist())
    other = next((rank for rank, each in enumerate(found) if each != found[0] and each == each), None)
    if other is not None:
        raise SolverError(
            f"process {other} holds other {what} than the first, though all computed the same: machines of different kinds, or "
            "a callback, a model or an equation that draws random numbers; use equal machines, or one process"
        )


def _begin() -> None:
    """Connect to the other processes, by what ``torchrun`` says in the environment."""
    if not (dist.is_available() and dist.is_gloo_available()):
        raise SolverError("this build of torch has no torch.distributed with Gloo: run one process, without torchrun")
    on_gpu = torch.cuda.is_available() and dist.is_nccl_available()
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        at = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
        taken = "address already in use" in str(error).lower()
        why = "its port is in use; name another, torchrun --master-port PORT" if taken else first_line(error)
        raise SolverError(f"the processes of this fit do not find each other at {at}: {why}") from error
    atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())


def _gathered(values: Tensor, counts: list[int]) -> Tensor:
    if not several():
        return values
    longest = max(counts)
    padded = values.new_zeros(longest, *values.shape[1:])
    padded[: len(values)] = values.detach()
    found = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(found, padded)
    return torch.cat([each[:count] for each, count in zip(found, counts, strict=True)])


def _explained(error: RuntimeError) -> RuntimeError:
    """The error of a lost connection as ours; any other as it is."""
    text = str(error)
    signs = "gloo", "nccl", "connection closed", "connection reset", "timed out", "socket", "broken pipe"
    if not any(sign in text.lower() for sign in signs):
        return error
    return SolverError(
        f"process {dist.get_rank() if dist.is_initialized() else '?'} lost another process of this fit, whose own message says "
        f"why ({text.splitlines()[0][:160]}); with out= and resume=True the fit goes on from its last checkpoint, on any "
        "number of processes"
    )
