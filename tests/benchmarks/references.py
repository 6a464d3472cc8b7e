"""Makes the stored references: ``python -m tests.benchmarks.references [names...]``.

Each is computed at two resolutions. The finer one is kept, and how far the two differ (relative L2, the worst field) is
kept with it as ``converged_to``: an upper estimate of the error of the finer one. It is computed on axes twice as dense as
those kept, and how far the spline of what is kept differs from it there is ``interpolated_to``.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from . import spectral
from .stored import difference, load, save

Fields = dict[str, np.ndarray]
Axes = dict[str, np.ndarray]
CELLS = 256


@dataclass(frozen=True)
class Recipe:
    """How one reference is made: ``solve(axes, *resolution)`` returns the fields on the grid of the axes."""

    equation: str
    method: str
    axes: Callable[[], Axes]
    solve: Callable[..., Fields]
    coarse: tuple
    fine: tuple
    parameters: dict[str, float] = field(default_factory=dict)
    periodic: tuple[str, ...] = ()

    def make(self, name: str) -> None:
        """Solve twice, write the finer solution, how far the two differ, and how far the spline is off."""
        start, axes = time.perf_counter(), self.axes()
        twice = {key: _halved(axis) for key, axis in axes.items()}
        every = (slice(None, None, 2),) * len(axes)
        dense = self.solve(twice, *self.fine)
        coarse, fine = self.solve(axes, *self.coarse), {key: values[every] for key, values in dense.items()}
        attributes: dict[str, Any] = {
            "equation": self.equation,
            "method": self.method,
            "resolution": list(self.fine),
            "compared_with": list(self.coarse),
            "converged_to": max(difference(coarse[key], fine[key]) for key in fine),
            "interpolated_to": 0.0,
        }
        if self.periodic:
            attributes["periodic"] = list(self.periodic)
        save(name, axes, fine, self.parameters, **attributes)
        points = dict(zip(twice, np.meshgrid(*twice.values(), indexing="ij"), strict=True))
        between = load(name)(**points)
        attributes["interpolated_to"] = max(difference(between[key].numpy(), dense[key]) for key in dense)
        path = save(name, axes, fine, self.parameters, **attributes)
        print(
            f"{attributes['converged_to']:.1e}, between the points {attributes['interpolated_to']:.1e}, "
            f"{path.stat().st_size / 1e3:.0f} kB in {time.perf_counter() - start:.0f} s: {self.equation}",
            flush=True,
        )


def _halved(axis: np.ndarray) -> np.ndarray:
    """An axis with the middle of each of its intervals."""
    found = np.empty(2 * len(axis) - 1)
    found[::2], found[1::2] = axis, (axis[1:] + axis[:-1]) / 2
    return found


def _axes(low: float, high: float, end: float, times: int = 101, cells: int = CELLS) -> Callable[[], Axes]:
    return lambda: {"x": np.linspace(low, high, cells + 1), "t": np.linspace(0, end, times)}


def _ring(axes: Axes, modes: int) -> tuple[np.ndarray, float]:
    """Equally spaced points without the last, which is the first again, and the length of the interval."""
    low, high = axes["x"][[0, -1]]
    return low + (high - low) * np.arange(modes) / modes, high - low


def _sampled(values: np.ndarray, axes: Axes) -> np.ndarray:
    """Values ``(t, x)`` on a ring as ``(x, t)`` on the axes' points, the end included."""
    every = values.shape[1] // (len(axes["x"]) - 1)
    return np.concatenate([values[:, ::every], values[:, :1]], axis=1).T.copy()


def _each(steps: int, axes: Axes) -> int:
    """The number of steps from one time to the next."""
    return steps // (len(axes["t"]) - 1)


def _kdv(axes: Axes, modes: int, steps: int) -> Fields:
    x, length = _ring(axes, modes)
    start = np.cos(np.pi * x)
    values = spectral.periodic_conservation(lambda k: 1j * 0.022**2 * k**3, 1.0, start, length, axes["t"], _each(steps, axes))
    return {"u": _sampled(values, axes)}


def _kuramoto_sivashinsky(axes: Axes, modes: int, steps: int) -> Fields:
    x, length = _ring(axes, modes)
    speed, growth, damping = 100 / 16, 100 / 16**2, 100 / 16**4
    values = spectral.periodic_conservation(
        lambda k: growth * k**2 - damping * k**4,
        speed,
        np.cos(x) * (1 + np.sin(x)),
        length,
        axes["t"],
        _each(steps, axes),
    )
    return {"u": _sampled(values, axes)}


def _gray_scott(axes: Axes, modes: int, steps: int) -> Fields:
    x, length = _ring(axes, modes)
    bump = np.exp(-(x**2) / 4)
    start, spread = (1 - bump / 2, bump / 4), (1.0, 0.01)
    u, v = spectral.gray_scott(start, spread, 0.02, 0.0862, length, axes["t"], _each(steps, axes))
    return {"u": _sampled(u, axes), "v": _sampled(v, axes)}


def _schroedinger(axes: Axes, modes: int, steps: int) -> Fields:
    x, length = _ring(axes, modes)
    values = spectral.schroedinger(2 / np.cosh(x) + 0j, length, axes["t"], _each(steps, axes))
    return {"u": _sampled(values.real, axes), "v": _sampled(values.imag, axes)}


def _allen_cahn(diffusion: float, wall: str) -> Callable[..., Fields]:
    return lambda axes, elements, degree: {"u": spectral.allen_cahn(diffusion, wall, elements, degree, axes["x"], axes["t"])}


def _cavity(axes: Axes, degree: int) -> Fields:
    flow, u, v = spectral.cavity(100.0, lambda x: 4 * x * (1 - x), degree, axes["x"])
    return {"s": flow, "u": u, "v": v}


def _oscillation(_: float, y: np.ndarray) -> list[float]:
    return [y[1], 100 * (1 - y[0] ** 2) * y[1] - y[0]]


def _oscillation_slope(_: float, y: np.ndarray) -> list[list[float]]:
    return [[0, 1], [-200 * y[0] * y[1] - 1, 100 * (1 - y[0] ** 2)]]


def _van_der_pol_times() -> Axes:
    """The steps of an integrator, which are short where the solution jumps, in three parts each."""
    path = solve_ivp(_oscillation, (0, 163), [2.0, 0.0], "Radau", jac=_oscillation_slope, rtol=1e-7, atol=1e-9)
    return {"t": np.interp(np.arange(3 * len(path.t) - 2) / 3, np.arange(len(path.t)), path.t)}


def _van_der_pol(axes: Axes, tolerance: float) -> Fields:
    return {"u": spectral.stepwise(_oscillation, [2.0, 0.0], axes["t"], tolerance, _oscillation_slope)[0]}


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


def _lorenz(rho: float) -> Callable[..., Fields]:
    def rate(_: float, y: np.ndarray) -> list[float]:
        return [10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]

    def solve(axes: Axes, tolerance: float) -> Fields:
        return dict(zip("xyz", spectral.stepwise(rate, [-8.0, 7.0, 27.0], axes["t"], tolerance), strict=True))

    return solve


_ETD = "Fourier in x, two thirds of the modes in products, ETDRK4 in t; resolution: modes, steps"
_RADAU = "Radau from time to time with the exact Jacobian; resolution: relative tolerance"

RECIPES = {
    "korteweg_de_vries": Recipe(
        "u_t + u u_x + 0.022^2 u_xxx = 0, x in [-1, 1] periodic, u(x, 0) = cos(pi x), t in [0, 1]",
        _ETD,
        _axes(-1, 1, 1, 201, 512),
        _kdv,
        (512, 20000),
        (1024, 40000),
        {"dispersion": 0.022**2},
        ("x",),
    ),
    "kuramoto_sivashinsky": Recipe(
        "u_t + a u u_x + b u_xx + c u_xxxx = 0, a = 100/16, b = 100/16^2, c = 100/16^4, x in [0, 2 pi] periodic, "
        "u(x, 0) = cos x (1 + sin x), t in [0, 1]",
        _ETD,
        _axes(0, 2 * np.pi, 1, 201, 512),
        _kuramoto_sivashinsky,
        (512, 20000),
        (1024, 40000),
        {"alpha": 100 / 16, "beta": 100 / 16**2, "gamma": 100 / 16**4},
        ("x",),
    ),
    "gray_scott": Recipe(
        "u_t = u_xx + 0.02 (1 - u) - u v^2, v_t = 0.01 v_xx - 0.0862 v + u v^2, x in [-10, 10] periodic, "
        "u(x, 0) = 1 - exp(-x^2 / 4) / 2, v(x, 0) = exp(-x^2 / 4) / 4, t in [0, 60]",
        _ETD,
        _axes(-10, 10, 60, 201),
        _gray_scott,
        (512, 6000),
        (1024, 12000),
        {"spread_u": 1.0, "spread_v": 0.01, "feed": 0.02, "loss": 0.0862},
        ("x",),
    ),
    "schroedinger": Recipe(
        "i h_t + h_xx / 2 + |h|^2 h = 0, h = u + i v, x in [-5, 5] periodic, h(x, 0) = 2 sech x, t in [0, pi/2]",
        "Fourier in x, splitting of fourth order in t; resolution: modes, steps. The periodic "
        "extension of the initial value has a kink at the ends, which never smooths out: convergence is algebraic",
        _axes(-5, 5, np.pi / 2),
        _schroedinger,
        (16384, 6000),
        (32768, 12000),
    ),
    "allen_cahn": Recipe(
        "u_t = 1e-4 u_xx + 5 u - 5 u^3, x in [-1, 1] periodic, u(x, 0) = x^2 cos(pi x), t in [0, 1]",
        "spectral elements on [0, 1] (u is even), smaller towards 1, u_x = 0 at both ends, DOP853 in t; resolution: "
        "elements, degree",
        _axes(-1, 1, 1),
        _allen_cahn(1e-4, "periodic"),
        (64, 10),
        (80, 12),
        {"diffusivity": 1e-4},
    ),
    "allen_cahn_fixed": Recipe(
        "u_t = 1e-3 u_xx + 5 u - 5 u^3, x in [-1, 1], u(+-1, t) = -1, u(x, 0) = x^2 cos(pi x), t in [0, 1]",
        "spectral elements on [0, 1] (u is even), smaller towards 1, u_x = 0 at 0, DOP853 in t; resolution: elements, degree",
        _axes(-1, 1, 1),
        _allen_cahn(1e-3, "fixed"),
        (24, 10),
        (32, 12),
        {"diffusivity": 1e-3},
    ),
    "lid_driven_cavity": Recipe(
        "steady Navier-Stokes in [0, 1]^2, Re = 100, u = 4 x (1 - x) on y = 1 and zero on the other walls",
        "Chebyshev collocation of the stream function, Newton; resolution: degree. Corners are weak singularities",
        lambda: {"x": np.linspace(0, 1, 101), "y": np.linspace(0, 1, 101)},
        _cavity,
        (56,),
        (72,),
        {"reynolds": 100.0},
    ),
    "van_der_pol": Recipe(
        "u_tt - 100 (1 - u^2) u_t + u = 0, u(0) = 2, u_t(0) = 0, t in [0, 163]",
        _RADAU,
        _van_der_pol_times,
        _van_der_pol,
        (1e-10,),
        (1e-12,),
        {"mu": 100.0},
    ),
    "robertson": Recipe(
        "a_t = -0.04 a + 1e4 b c, b_t = 0.04 a - 1e4 b c - 3e7 b^2, c_t = 3e7 b^2, from (1, 0, 0), t in [0, 1e4]",
        _RADAU,
        lambda: {"t": np.concatenate([[0.0], np.geomspace(1e-6, 1e4, 400)])},
        _robertson,
        (1e-10,),
        (1e-12,),
    ),
    "lorenz": Recipe(
        "x_t = 10 (y - x), y_t = x (28 - z) - y, z_t = x y - 8/3 z, from (-8, 7, 27), t in [0, 3]",
        "Radau from time to time; resolution: relative tolerance",
        lambda: {"t": np.linspace(0, 3, 601)},
        _lorenz(28.0),
        (1e-11,),
        (1e-13,),
        {"sigma": 10.0, "rho": 28.0, "beta": 8 / 3},
    ),
    "lorenz_inverse": Recipe(
        "x_t = 10 (y - x), y_t = x (15 - z) - y, z_t = x y - 8/3 z, from (-8, 7, 27), t in [0, 3]",
        "Radau from time to time; resolution: relative tolerance",
        lambda: {"t": np.linspace(0, 3, 601)},
        _lorenz(15.0),
        (1e-11,),
        (1e-13,),
        {"sigma": 10.0, "rho": 15.0, "beta": 8 / 3},
    ),
}


if __name__ == "__main__":
    for name in sys.argv[1:] or RECIPES:
        print(f"{name}: ", end="", flush=True)
        RECIPES[name].make(name)
