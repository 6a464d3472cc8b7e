"""Makes the stored references: ``python -m tests.benchmarks.references [names...]``.

Each is computed at two resolutions. The finer one is kept, and how far the two differ (relative L2, the worst field) is
kept with it as ``converged_to``: an upper estimate of the error of the finer one.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import spectral
from .stored import Stored, save

Fields = dict[str, np.ndarray]
Axes = dict[str, np.ndarray]
CELLS = 256


@dataclass(frozen=True)
class Recipe:
    """How one reference is made: ``solve(axes, *resolution)`` returns the fields on the grid of the axes."""

    equation: str
    method: str
    axes: Axes
    solve: Callable[..., Fields]
    coarse: tuple
    fine: tuple

    def make(self) -> Stored:
        """Solve twice, keep the finer solution and the difference."""
        start = time.perf_counter()
        coarse, fine = self.solve(self.axes, *self.coarse), self.solve(self.axes, *self.fine)
        attributes = {
            "equation": self.equation,
            "method": self.method,
            "resolution": list(self.fine),
            "compared_with": list(self.coarse),
            "converged_to": max(difference(coarse[name], fine[name]) for name in fine),
        }
        print(f"{attributes['converged_to']:.1e} in {time.perf_counter() - start:.0f} s: {self.equation}", flush=True)
        return Stored(self.axes, fine, attributes)


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The relative L2 difference."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def _axes(low: float, high: float, end: float, times: int = 101) -> Axes:
    return {"x": np.linspace(low, high, CELLS + 1), "t": np.linspace(0, end, times)}


def _ring(axes: Axes, modes: int) -> tuple[np.ndarray, float]:
    """Equally spaced points without the last, which is the first again, and the length of the interval."""
    low, high = axes["x"][[0, -1]]
    return low + (high - low) * np.arange(modes) / modes, high - low


def _sampled(values: np.ndarray) -> np.ndarray:
    """Values ``(t, x)`` on a ring as ``(x, t)`` on the axes' points, the end included."""
    every = values.shape[1] // CELLS
    return np.concatenate([values[:, ::every], values[:, :1]], axis=1).T.copy()


def _kdv(axes: Axes, modes: int, steps: int) -> Fields:
    x, length = _ring(axes, modes)
    start = np.cos(np.pi * x)
    values = spectral.periodic_conservation(lambda k: 1j * 0.022**2 * k**3, 1.0, start, length, axes["t"], steps)
    return {"u": _sampled(values)}


def _kuramoto_sivashinsky(axes: Axes, modes: int, steps: int) -> Fields:
    x, length = _ring(axes, modes)
    speed, growth, damping = 100 / 16, 100 / 16**2, 100 / 16**4
    values = spectral.periodic_conservation(
        lambda k: growth * k**2 - damping * k**4, speed, np.cos(x) * (1 + np.sin(x)), length, axes["t"], steps
    )
    return {"u": _sampled(values)}


def _schroedinger(axes: Axes, modes: int, steps: int) -> Fields:
    x, length = _ring(axes, modes)
    values = spectral.schroedinger(2 / np.cosh(x) + 0j, length, axes["t"], steps)
    return {"u": _sampled(values.real), "v": _sampled(values.imag)}


def _allen_cahn(diffusion: float, wall: str) -> Callable[..., Fields]:
    return lambda axes, elements, degree: {
        "u": spectral.allen_cahn(diffusion, wall, elements, degree, axes["x"], axes["t"])
    }


def _cavity(axes: Axes, degree: int) -> Fields:
    _, u, v = spectral.cavity(100.0, lambda x: 4 * x * (1 - x), degree, axes["x"])
    return {"u": u, "v": v}


def _van_der_pol(axes: Axes, tolerance: float) -> Fields:
    stiffness = 100.0

    def rate(_: float, y: np.ndarray) -> list[float]:
        return [y[1], stiffness * (1 - y[0] ** 2) * y[1] - y[0]]

    def slope(_: float, y: np.ndarray) -> list[list[float]]:
        return [[0, 1], [-2 * stiffness * y[0] * y[1] - 1, stiffness * (1 - y[0] ** 2)]]

    return {"u": spectral.stepwise(rate, [2.0, 0.0], axes["t"], tolerance, slope)[0]}


def _robertson(axes: Axes, tolerance: float) -> Fields:
    def rate(_: float, y: np.ndarray) -> list[float]:
        first, second, third = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
        return [second - first, first - second - third, third]

    def slope(_: float, y: np.ndarray) -> list[list[float]]:
        return [
            [-0.04, 1e4 * y[2], 1e4 * y[1]],
            [0.04, -1e4 * y[2] - 6e7 * y[1], -1e4 * y[1]],
            [0, 6e7 * y[1], 0],
        ]

    found = spectral.stepwise(rate, [1.0, 0.0, 0.0], axes["t"], tolerance, slope)
    return dict(zip(("a", "b", "c"), found, strict=True))


def _lorenz(axes: Axes, tolerance: float) -> Fields:
    def rate(_: float, y: np.ndarray) -> list[float]:
        return [10 * (y[1] - y[0]), y[0] * (15 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]

    return dict(zip("xyz", spectral.stepwise(rate, [-8.0, 7.0, 27.0], axes["t"], tolerance), strict=True))


_ETD = (
    "Fourier in x, two thirds of the modes in products, ETDRK4 in t; resolution: modes, steps from one time to the next"
)
_RADAU = "Radau from time to time with the exact Jacobian; resolution: relative tolerance"

RECIPES = {
    "korteweg_de_vries": Recipe(
        "u_t + u u_x + 0.022^2 u_xxx = 0, x in [-1, 1] periodic, u(x, 0) = cos(pi x), t in [0, 1]",
        _ETD,
        _axes(-1, 1, 1),
        _kdv,
        (512, 200),
        (768, 400),
    ),
    "kuramoto_sivashinsky": Recipe(
        "u_t + a u u_x + b u_xx + c u_xxxx = 0, a = 100/16, b = 100/16^2, c = 100/16^4, x in [0, 2 pi] periodic, "
        "u(x, 0) = cos x (1 + sin x), t in [0, 1]",
        _ETD,
        _axes(0, 2 * np.pi, 1),
        _kuramoto_sivashinsky,
        (512, 200),
        (768, 400),
    ),
    "schroedinger": Recipe(
        "i h_t + h_xx / 2 + |h|^2 h = 0, h = u + i v, x in [-5, 5] periodic, h(x, 0) = 2 sech x, t in [0, pi/2]",
        "Fourier in x, splitting of fourth order in t; resolution: modes, steps from one time to the next. The periodic "
        "extension of the initial value has a kink at the ends, which never smooths out: convergence is algebraic",
        _axes(-5, 5, np.pi / 2),
        _schroedinger,
        (16384, 60),
        (32768, 120),
    ),
    "allen_cahn_periodic": Recipe(
        "u_t = 1e-4 u_xx + 5 u - 5 u^3, x in [-1, 1] periodic, u(x, 0) = x^2 cos(pi x), t in [0, 1]",
        "spectral elements on [0, 1] (u is even), smaller towards 1, u_x = 0 at both ends, DOP853 in t; resolution: "
        "elements, degree",
        _axes(-1, 1, 1),
        _allen_cahn(1e-4, "periodic"),
        (64, 10),
        (80, 12),
    ),
    "allen_cahn_fixed": Recipe(
        "u_t = 1e-3 u_xx + 5 u - 5 u^3, x in [-1, 1], u(+-1, t) = -1, u(x, 0) = x^2 cos(pi x), t in [0, 1]",
        "spectral elements on [0, 1] (u is even), smaller towards 1, u_x = 0 at 0, DOP853 in t; resolution: elements, degree",
        _axes(-1, 1, 1),
        _allen_cahn(1e-3, "fixed"),
        (24, 10),
        (32, 12),
    ),
    "lid_driven_cavity": Recipe(
        "steady Navier-Stokes in [0, 1]^2, Re = 100, u = 4 x (1 - x) on y = 1 and zero on the other walls",
        "Chebyshev collocation of the stream function, Newton; resolution: degree. Corners are weak singularities",
        {"x": np.linspace(0, 1, 101), "y": np.linspace(0, 1, 101)},
        _cavity,
        (56,),
        (72,),
    ),
    "van_der_pol": Recipe(
        "u_tt - 100 (1 - u^2) u_t + u = 0, u(0) = 2, u_t(0) = 0, t in [0, 163]",
        _RADAU,
        {"t": np.linspace(0, 163, 4076)},
        _van_der_pol,
        (1e-10,),
        (1e-12,),
    ),
    "robertson": Recipe(
        "a_t = -0.04 a + 1e4 b c, b_t = 0.04 a - 1e4 b c - 3e7 b^2, c_t = 3e7 b^2, from (1, 0, 0), t in [0, 1e4]",
        _RADAU,
        {"t": np.concatenate([[0.0], np.geomspace(1e-6, 1e4, 400)])},
        _robertson,
        (1e-10,),
        (1e-12,),
    ),
    "lorenz": Recipe(
        "x_t = 10 (y - x), y_t = x (15 - z) - y, z_t = x y - 8/3 z, from (-8, 7, 27), t in [0, 3]",
        _RADAU,
        {"t": np.linspace(0, 3, 25)},
        _lorenz,
        (1e-11,),
        (1e-13,),
    ),
}


if __name__ == "__main__":
    for name in sys.argv[1:] or RECIPES:
        print(f"{name}: ", end="", flush=True)
        save(name, RECIPES[name].make())
