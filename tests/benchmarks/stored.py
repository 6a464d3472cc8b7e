"""Reference solutions that are kept as files, each with what it solves, how, and how far it is converged."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Stored:
    """Fields on a tensor grid: an axis for each coordinate, arrays of the grid's shape, and a description."""

    axes: Mapping[str, np.ndarray]
    fields: Mapping[str, np.ndarray]
    attributes: Mapping[str, Any]

    def grid(self) -> dict[str, np.ndarray]:
        """The coordinates of all points, each of the grid's shape."""
        return dict(zip(self.axes, np.meshgrid(*self.axes.values(), indexing="ij"), strict=True))


def path_of(name: str) -> Path:
    """Where the reference of a problem is kept."""
    return ROOT / "data" / name / "reference.npz"


def save(name: str, stored: Stored) -> Path:
    """Write a reference; arrays are named like coordinates and fields, the description is one JSON string."""
    description = {**stored.attributes, "coordinates": list(stored.axes), "fields": list(stored.fields)}
    path = path_of(name)
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, attributes=json.dumps(description), **stored.axes, **stored.fields)
    return path


def load(name: str) -> Stored:
    """Read a reference."""
    with np.load(path_of(name), allow_pickle=False) as file:
        attributes = json.loads(str(file["attributes"]))
        axes = {key: file[key] for key in attributes.pop("coordinates")}
        return Stored(axes, {key: file[key] for key in attributes.pop("fields")}, attributes)
