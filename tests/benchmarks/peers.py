"""Other libraries on problems of the table, with the settings of their own documentation; they need not be installed.

``python -m tests.benchmarks.peers DeepXDE poisson`` prints a record like the worker's.
"""

import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from . import harness
from .evolution import Burgers
from .linear import Poisson

PACKAGES = {"DeepXDE": "deepxde", "FastLSQ": "fastlsq"}


def _grid(bounds: tuple[tuple[float, float], ...], count: int) -> np.ndarray:
    axes = np.meshgrid(*(np.linspace(*pair, count) for pair in bounds), indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)


def _error(values: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(values.ravel() - truth.ravel()) / np.linalg.norm(truth))


def _deepxde(geometry: Callable, equation: Callable, numbers: dict[str, int], widths: list[int], steps: int) -> Any:
    """Adam, then L-BFGS, in float64: what the examples do, but for their float32."""
    os.environ.setdefault("DDE_BACKEND", "pytorch")
    import deepxde

    deepxde.config.set_default_float("float64")
    deepxde.config.set_random_seed(0)
    shape, conditions, kind = geometry(deepxde)
    data = kind(shape, lambda x, y: equation(deepxde, x, y), conditions, **numbers)
    rule = "Glorot normal" if "num_initial" in numbers else "Glorot uniform"
    model = deepxde.Model(data, deepxde.nn.FNN(widths, "tanh", rule))
    model.compile("adam", lr=1e-3)
    model.train(iterations=steps, display_every=steps)
    model.compile("L-BFGS")
    model.train(display_every=10**6)
    return model


def deepxde_poisson() -> tuple[Callable[[], Any], Callable[[Any], float]]:
    """Points, network and steps of its example Poisson_Lshape, on our square and with our load."""

    def geometry(deepxde: Any) -> tuple:
        square = deepxde.geometry.Rectangle([0, 0], [1, 1])
        walls = deepxde.icbc.DirichletBC(square, lambda x: 0, lambda _, on: on)
        return square, walls, deepxde.data.PDE

    def equation(deepxde: Any, x: Any, y: Any) -> Any:
        bend = deepxde.grad.hessian(y, x, i=0, j=0) + deepxde.grad.hessian(y, x, i=1, j=1)
        return -bend - 2 * np.pi**2 * torch.sin(np.pi * x[:, :1]) * torch.sin(np.pi * x[:, 1:])

    def error(model: Any) -> float:
        points = _grid(((0, 1), (0, 1)), 201)
        return _error(model.predict(points), np.sin(np.pi * points).prod(1))

    numbers = {"num_domain": 1200, "num_boundary": 120}
    return lambda: _deepxde(geometry, equation, numbers, [2, 50, 50, 50, 50, 1], 50_000), error


def deepxde_burgers() -> tuple[Callable[[], Any], Callable[[Any], float]]:
    """Its example Burgers, to t = 1."""

    def geometry(deepxde: Any) -> tuple:
        line = deepxde.geometry.GeometryXTime(deepxde.geometry.Interval(-1, 1), deepxde.geometry.TimeDomain(0, 1))
        walls = deepxde.icbc.DirichletBC(line, lambda x: 0, lambda _, on: on)
        start = deepxde.icbc.IC(line, lambda x: -np.sin(np.pi * x[:, :1]), lambda _, on: on)
        return line, [walls, start], deepxde.data.TimePDE

    def equation(deepxde: Any, x: Any, y: Any) -> Any:
        by_x, by_t = (deepxde.grad.jacobian(y, x, i=0, j=column) for column in (0, 1))
        return by_t + y * by_x - 0.01 / np.pi * deepxde.grad.hessian(y, x, i=0, j=0)

    def error(model: Any) -> float:
        points = _grid(((-1, 1), (0, 1)), 257)
        truth = Burgers().reference_values({"x": points[:, 0], "t": points[:, 1]})
        return _error(model.predict(points), truth["u"])

    numbers = {"num_domain": 2540, "num_boundary": 80, "num_initial": 160}
    return lambda: _deepxde(geometry, equation, numbers, [2, 20, 20, 20, 1], 15_000), error


class _SquareForFastLSQ:
    """Our Poisson problem in the form that FastLSQ asks for: its user writes the rows and the exact solution."""

    name, dim = "Poisson 2D", 2

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.pi * x).prod(1, keepdim=True)

    def exact_grad(self, x: torch.Tensor) -> torch.Tensor:
        return torch.pi * torch.cos(torch.pi * x) * torch.sin(torch.pi * x.flip(1))

    def get_train_data(self, n_pde: int = 5000, n_bc: int = 1000) -> tuple:
        inside, wall = (torch.rand(count, 2) for count in (n_pde, n_bc))
        wall[torch.arange(n_bc), torch.randint(2, (n_bc,))] = torch.randint(2, (n_bc,)).to(wall)
        return inside, [(wall, torch.zeros(n_bc, 1))], 2 * torch.pi**2 * self.exact(inside)

    def build(self, solver: Any, inside: torch.Tensor, walls: list, load: torch.Tensor) -> tuple:
        rows, right = [-solver.basis.laplacian(inside)], [load]
        for points, values in walls:  # weighted as its own problems are
            rows.append(100.0 * solver.basis.evaluate(points))
            right.append(100.0 * values)
        return torch.cat(rows), torch.cat(right)

    def get_test_points(self, n: int = 10_000) -> torch.Tensor:
        return torch.rand(n, 2)


def _fastlsq(problem: Callable[[], Any], bounds: tuple, exact: Callable[[np.ndarray], np.ndarray]) -> tuple:
    def solve() -> Any:
        import fastlsq

        torch.manual_seed(0)
        return fastlsq.solve_linear(problem(), verbose=False)["u_fn"]

    def error(u: Any) -> float:
        points = _grid(bounds, 201)
        return _error(np.asarray(u(torch.from_numpy(points).to(torch.get_default_dtype()))), exact(points))

    return solve, error


def fastlsq_poisson() -> tuple[Callable[[], Any], Callable[[Any], float]]:
    """Its defaults, the scale found automatically."""
    exact = Poisson().reference_values
    return _fastlsq(_SquareForFastLSQ, ((0, 1), (0, 1)), lambda at: exact({"x": at[:, 0], "y": at[:, 1]})["u"])


def fastlsq_wave() -> tuple[Callable[[], Any], Callable[[Any], float]]:
    """Its defaults on its own Wave1D, which is ours."""
    from .linear import Wave

    def problem() -> Any:
        from fastlsq.problems.linear import Wave1D

        return Wave1D()

    exact = Wave().reference_values
    return _fastlsq(problem, ((0, 1), (0, 1)), lambda at: exact({"x": at[:, 0], "t": at[:, 1]})["u"])


RUNS: dict[tuple[str, str], Callable[[], tuple[Callable[[], Any], Callable[[Any], float]]]] = {
    ("DeepXDE", "poisson"): deepxde_poisson,
    ("DeepXDE", "burgers"): deepxde_burgers,
    ("FastLSQ", "poisson"): fastlsq_poisson,
    ("FastLSQ", "wave"): fastlsq_wave,
}


def installed(peer: str) -> bool:
    """Whether a peer can be run here."""
    return importlib.util.find_spec(PACKAGES[peer]) is not None


def missing() -> list[str]:
    """A sentence for each peer that is not installed."""
    return [
        f"{peer} is not installed and was not run; pip install {package}"
        for peer, package in PACKAGES.items()
        if not installed(peer)
    ]


def all_of(name: str, limit: float) -> list[dict[str, Any]]:
    """The records of every installed peer that has a run for a benchmark."""
    found = []
    for (peer, problem), make in RUNS.items():
        if problem == name and installed(peer):
            settings = (make.__doc__ or "").strip().rstrip(".").lower()
            record = harness.in_process("peers", peer, name, limit=limit)
            found.append({"peer": peer, "settings": settings, **record})
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    solve, error = RUNS[sys.argv[1], sys.argv[2]]()
    began = time.perf_counter()
    answer = solve()
    took = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    print(json.dumps({"value": error(answer), "seconds": took, "peak_megabytes": memory}))
