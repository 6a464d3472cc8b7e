"""FastLSQ: random features by least squares; its user writes the rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .. import linear
from . import judging


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


def _fastlsq(seed: int, problem: Callable[[], Any], bounds: tuple, exact: Callable[[np.ndarray], np.ndarray]) -> tuple:
    def solve() -> Any:
        import fastlsq

        torch.manual_seed(seed)
        return fastlsq.solve_linear(problem(), verbose=False)["u_fn"]

    def error(u: Any) -> float:
        points = judging.grid(bounds, 201)
        return judging.relative(np.asarray(u(torch.from_numpy(points).to(torch.get_default_dtype()))), exact(points))

    return solve, error


def poisson(seed: int, seconds: float | None) -> tuple[Callable[[], Any], Callable[[Any], float]]:
    """Its defaults, the scale found automatically."""
    exact = linear.Poisson().reference_values
    return _fastlsq(seed, _SquareForFastLSQ, ((0, 1), (0, 1)), lambda at: exact({"x": at[:, 0], "y": at[:, 1]})["u"])


def wave(seed: int, seconds: float | None) -> tuple[Callable[[], Any], Callable[[Any], float]]:
    """Its defaults on its own Wave1D, which is ours."""

    def problem() -> Any:
        from fastlsq.problems.linear import Wave1D

        return Wave1D()

    exact = linear.Wave().reference_values
    return _fastlsq(seed, problem, ((0, 1), (0, 1)), lambda at: exact({"x": at[:, 0], "t": at[:, 1]})["u"])
