"""The exceptions of sciml: one small tree, every message says what was given, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any


class SciMLError(Exception):
    """Base of every error that sciml raises on purpose.

    ``findings`` holds what a look before the first step found, a tuple of ``sciml.Finding``; it is empty for any other error.
    """

    findings: tuple[Any, ...] = ()


class ProblemError(SciMLError, ValueError):
    """A problem is stated in a way that cannot be right (names, shapes, regions, conditions)."""


class DataError(SciMLError, ValueError):
    """A file or table does not hold what was asked of it; the message names row and column."""


class ModelError(SciMLError, ValueError):
    """A model cannot serve as trial function (width, smoothness, detached output, mixed points)."""


class SolverError(SciMLError, RuntimeError):
    """A solver was configured or fed in a way that it cannot work with."""


class BaselineError(SciMLError, RuntimeError):
    """No classical solver behind sciml accepts this problem; the message says which part it cannot do."""


class FileError(SciMLError, OSError):
    """A file of ours is missing, damaged, or belongs to something else."""


class PreflightWarning(SciMLError, UserWarning):  # noqa: N818 - a warning
    """What a look before the first step found, where it is told as a warning; ``findings`` as in ``SciMLError``."""


class ArchiveWarning(SciMLError, UserWarning):  # noqa: N818
    """A file of a run was damaged and the one before it was taken, or something could not be checked.

    It is an error of ours as well, so that whoever turns warnings into exceptions catches all of them by one class.
    """


class TrackerWarning(SciMLError, UserWarning):  # noqa: N818 - a warning
    """A tracker of experiments failed, and the fit goes on without it."""


class MissingExtraError(SciMLError, ImportError):
    """An optional dependency is not installed; the message holds the command that installs it."""


def listed(names: Iterable[object]) -> str:
    """Names as a readable list: ``'u', 'v'`` (or ``none`` when there are none)."""
    return ", ".join(repr(name) for name in names) or "none"


def nearest(name: str, names: Iterable[str]) -> str:
    """A `` Did you mean 'x'?`` when one of ``names`` is close to ``name``, otherwise an empty string."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def mapping(option: str, given: object, example: str) -> dict[str, Any]:
    """What was given for an option that maps names to something, as a dict; None is an empty one.

    Args:
        option: its name, for the message.
        given: what was given for it.
        example: of what was expected.

    Raises:
        DataError: something else than a mapping of texts.

    Example:
        >>> from sciml.errors import mapping
        >>> mapping("units", None, "{'x': 'm'}")
        {}
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise DataError(f"{option} maps names of columns to something, such as {example}; given: {given!r}")
    return dict(given)


def sequences(option: str, given: object, example: str) -> dict[str, tuple[str, ...]]:
    """What was given for an option that maps names to several names; a text alone is one name.

    Args:
        option: its name, for the message.
        given: what was given for it.
        example: of what was expected.

    Raises:
        DataError: something else than a mapping of texts to sequences of texts.

    Example:
        >>> from sciml.errors import sequences
        >>> sequences("axes", {"u": ["t", "x"], "v": "time"}, "{'u': ('t', 'x')}")
        {'u': ('t', 'x'), 'v': ('time',)}
    """
    found = {}
    for name, names in mapping(option, given, example).items():
        several = (names,) if isinstance(names, str) else names
        if not isinstance(several, Sequence) or not several or not all(isinstance(each, str) for each in several):
            raise DataError(f"{option}: {name!r} needs names, such as {example}; given: {names!r}")
        found[name] = tuple(several)
    return found


def whole(name: str, given: object, least: int, kind: type[SciMLError] = DataError) -> int:
    """A whole number that is large enough.

    Args:
        name: what it is, for the message.
        given: a number of Python or numpy.
        least: the smallest that is allowed.
        kind: of error.

    Raises:
        SciMLError: of that kind, for anything else.

    Example:
        >>> from sciml.errors import whole
        >>> whole("seed", 3, 0)
        3
    """
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise kind(f"{name} must be a whole number of at least {least}; given: {given!r}")
    return int(given)
