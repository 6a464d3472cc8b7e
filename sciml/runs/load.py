"""Loading of saved solutions."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from sciml.data import archive
from sciml.data.sandbox import FOREIGN
from sciml.errors import FileError, SciMLError
from sciml.problem import Problem
from sciml.runs.save import from_record, without_conditions
from sciml.solution import Solution


def load(path: str | Path, problem: Problem | None = None, model: nn.Module | None = None) -> Solution:
    """Read a solution that ``Solution.save`` wrote.

    Args:
        path: the file.
        problem: the problem, if residuals, references or plots of references are wanted from the loaded solution; needed for
            a solution that satisfies conditions exactly, because what they prescribe is code.
        model: for a solution with a model of the user's own: an object of the same class; its copy receives the state.

    Returns:
        The solution, on the CPU, with the same values as when it was saved.

    Raises:
        FileError: the file is missing, damaged, holds anything but tensors and plain values, needs ``model`` or ``problem``, or
            belongs to another problem or model.
    """
    return _loaded(path, problem, model, conditions=True)[0]


def load_weights(path: str | Path, model: nn.Module | None = None) -> tuple[Solution, bool]:
    """A saved solution to begin from: its model without the conditions that it held exactly, and whether it held any."""
    return _loaded(path, None, model, conditions=False)


def _loaded(path: str | Path, problem: Problem | None, model: nn.Module | None, *, conditions: bool) -> tuple[Solution, bool]:
    content = archive.load_tensors(Path(path))
    try:
        record = content if conditions else without_conditions(content)
        return from_record(Path(path), record, problem, model), bool(content["exact"])
    except SciMLError:
        raise
    except (*FOREIGN, MemoryError) as error:
        raise FileError(f"{path} is no complete saved solution: {type(error).__name__}: {str(error)[:300]}") from error
