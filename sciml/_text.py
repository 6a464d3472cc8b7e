"""Words of messages: lists of names, the name that was probably meant, checks of plain arguments, missing libraries."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

from sciml.errors import DataError, MissingExtraError, SciMLError


def listed(names: Iterable[object]) -> str:
    """Names as a readable list: ``'u', 'v'`` (or ``none`` when there are none)."""
    return ", ".join(repr(name) for name in names) or "none"


def located(names: Iterable[str], values: Iterable[float]) -> str:
    """A point by its coordinates, as in ``x=0.5, t=0``."""
    return ", ".join(f"{name}={value:.4g}" for name, value in zip(names, values, strict=True))


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def nearest(name: str, names: Iterable[str]) -> str:
    """A `` Did you mean 'x'?`` when one of ``names`` is close to ``name``, otherwise an empty string."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def among(name: object, names: Collection[str]) -> str:
    """The names to choose from, and the one that was probably meant by ``name``: ``'u', 'v'. Did you mean 'u'?``."""
    return f"{listed(names)}.{nearest(str(name), names)}"


def mapping(option: str, given: object, example: str) -> dict[str, Any]:
    """The argument of an option that maps names to something, as a dict; None is an empty one."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise DataError(f"{option} maps names of columns to something, such as {example}; given: {given!r}")
    return dict(given)


def sequences(option: str, given: object, example: str) -> dict[str, tuple[str, ...]]:
    """The argument of an option that maps names to several names, as tuples; a text alone is one name."""
    found = {}
    for name, names in mapping(option, given, example).items():
        several = (names,) if isinstance(names, str) else names
        if not isinstance(several, Sequence) or not several or not all(isinstance(each, str) for each in several):
            raise DataError(f"{option}: {name!r} needs names, such as {example}; given: {names!r}")
        found[name] = tuple(several)
    return found


def whole(name: str, given: object, least: int, kind: type[SciMLError] = DataError) -> int:
    """A whole number, of Python or numpy, that is at least ``least``; anything else is an error of this ``kind``."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise kind(f"{name} must be a whole number of at least {least}; given: {given!r}")
    return int(given)


@contextmanager
def extra(name: str, what: str, instead: str = "") -> Iterator[None]:
    """Where libraries of an extra are imported: that one is missing is an error that says what to install, or do instead."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{what}, which is not installed: pip install 'sciml[{name}]'{instead}") from error


def user_level() -> int:
    """The ``stacklevel`` for a warning that is to name the line of the user's: the first frame outside the library."""
    level, frame = 1, sys._getframe(1)
    # Cached properties and contexts of gradients are functions of other libraries between two of ours.
    between = (__package__, "functools", "torch")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in between:
        level, frame = level + 1, frame.f_back
    return level
