"""Worker processes for embarrassingly parallel work: many fits at once, by joblib, with one thread each."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from sciml._text import extra
from sciml.errors import SolverError
from sciml.parallel import process_group

T = TypeVar("T")

# How the names of modules begin that hold a problem read from a file.
FROM_FILE = "sciml_problem_"


def check_workers(workers: object) -> None:
    """Refuse what is no number of processes; None stands for what ``joblib.parallel_config`` says."""
    if process_group.offered():
        raise SolverError(
            "many fits have processes of their own: start this script without torchrun, and name their number by workers="
        )
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise SolverError(f"workers must be a whole number of at least 1, or None for joblib's own; given: {workers!r}")


def worked(work: Callable[[Any], T], items: Sequence[Any], workers: int | None) -> Iterator[T]:
    """What is made of every item, as it is done.

    Args:
        work: a function of an item; with several workers it and what it holds are pickled (functions and classes of a script or
            a notebook as well, by cloudpickle), and so is its result.
        items: what it is done for.
        workers: how many processes; 1 does all here; None leaves it to ``joblib.parallel_config``, as for Dask and Ray.

    Raises:
        MissingExtraError: several workers without joblib.
        SolverError: a worker process died.
    """
    if workers == 1 or (workers is not None and len(items) < 2):
        yield from map(work, items)
        return
    with extra("parallel", "several workers need joblib", ", or leave out workers="):
        import joblib
        from joblib.externals.loky.process_executor import BrokenProcessPool

    calls = [joblib.delayed(_by_itself)(work, item) for item in items]
    ways = contextlib.nullcontext() if workers is None else joblib.parallel_config("loky", inner_max_num_threads=1)
    with _by_value(), ways:
        try:
            yield from joblib.Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)(calls)
        except BrokenProcessPool as error:
            raise SolverError(
                f"a worker process died or could not be handed its work ({error}): use fewer workers if memory ran out; what "
                "they are handed must be picklable"
            ) from error


@contextlib.contextmanager
def _by_value() -> Iterator[None]:
    """Problems that were read from files have modules that other processes cannot import: these travel with them."""
    import cloudpickle  # type: ignore[import-untyped]

    with contextlib.ExitStack() as registered:
        for module in [module for name, module in list(sys.modules.items()) if name.startswith(FROM_FILE)]:
            cloudpickle.register_pickle_by_value(module)
            registered.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def _by_itself(work: Callable[[Any], T], item: Any) -> T:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with process_group.alone():
            return work(item)
    finally:
        # Of a process of ours nobody cares; a backend of threads is the caller's own process.
        torch.set_num_threads(threads)
