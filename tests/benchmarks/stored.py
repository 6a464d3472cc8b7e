"""What the benchmarks take from elsewhere: problems of the gallery, and reference solutions that are kept as files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sciml import Problem, StoredReference
from sciml.gallery import load_problem

ROOT = Path(__file__).parents[2]


def problem_class(name: str) -> type[Problem]:
    """The problem class of the gallery in ``problems/<name>.py``."""
    return type(load_problem(str(ROOT / "problems" / f"{name}.py")))


def path_of(name: str) -> Path:
    """Where the reference of a problem is kept."""
    return ROOT / "data" / name / "reference.h5"


def save(
    name: str,
    axes: Mapping[str, np.ndarray],
    fields: Mapping[str, np.ndarray],
    parameters: Mapping[str, float],
    **attributes: Any,
) -> Path:
    """Write a reference."""
    path = path_of(name)
    path.parent.mkdir(exist_ok=True)
    StoredReference.write(path, axes, fields, parameters, **attributes)
    return path


def load(name: str) -> StoredReference:
    """Read a reference."""
    return StoredReference(path_of(name))


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The relative L2 difference."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))
