"""The exceptions and warnings of sciml: one small tree, every message says what was given, expected, and to do."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArchiveWarning",
    "BaselineError",
    "ConditionWarning",
    "DataError",
    "ExtrapolationWarning",
    "FileError",
    "MissingExtraError",
    "ModelError",
    "PreflightWarning",
    "ProblemError",
    "SciMLError",
    "SolverError",
    "TrackerWarning",
]


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


class ExtrapolationWarning(SciMLError, UserWarning):  # noqa: N818 - a warning
    """A solution was evaluated outside the domain on which it was found."""


class ConditionWarning(SciMLError, UserWarning):  # noqa: N818 - a warning
    """Conditions of a problem that seem too few, too many, or at odds with each other; ``fit`` goes on, for it may be meant."""
