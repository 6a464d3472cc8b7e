"""Computational graphs of trial functions: the same operations at every point, whatever the points and their number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WANTED: ContextVar[bool] = ContextVar("sciml_one_graph", default=False)


@contextmanager
def as_one_graph() -> Iterator[None]:
    """Within it pieces are looked up inside the graph instead of sorting points into them, at the cost of some time."""
    token = _WANTED.set(True)
    try:
        yield
    finally:
        _WANTED.reset(token)


def one_graph() -> bool:
    """Whether a trial function is being written down as one graph of operations."""
    return _WANTED.get()
