"""Points at which all answers of a problem are judged, with the values there, and the network that all train."""

from collections.abc import Callable

import numpy as np

NETWORK = (2, 20, 20, 20, 1)


def grid(bounds: tuple[tuple[float, float], ...], count: int) -> np.ndarray:
    """Points (count², 2) of an even grid."""
    axes = np.meshgrid(*(np.linspace(*pair, count) for pair in bounds), indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)


def relative(values: np.ndarray, truth: np.ndarray) -> float:
    """Relative error in the discrete L2 norm."""
    return float(np.linalg.norm(values.ravel() - truth.ravel()) / np.linalg.norm(truth))


def _burgers(points: np.ndarray) -> np.ndarray:
    from ..evolution import Burgers

    return Burgers().reference_values({"x": points[:, 0], "t": points[:, 1]})["u"]


def _poisson(points: np.ndarray) -> np.ndarray:
    return np.sin(np.pi * points).prod(1)


# Bounds of both coordinates (space first) and the solution.
PROBLEMS: dict[str, tuple[tuple[tuple[float, float], ...], Callable[[np.ndarray], np.ndarray]]] = {
    "burgers": (((-1, 1), (0, 1)), _burgers),
    "poisson": (((0, 1), (0, 1)), _poisson),
}


def error_of(name: str, values: Callable[[np.ndarray], np.ndarray]) -> float:
    """The relative error of a function that takes points (N, 2)."""
    bounds, exact = PROBLEMS[name]
    points = grid(bounds, 201)
    return relative(np.asarray(values(points)), exact(points))
