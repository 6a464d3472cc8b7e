"""PINA: its problems as they come, Adam, then L-BFGS, in float64."""

import datetime
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from . import judging

POINTS, ON_SIDES, EPOCHS = 4000, 400, 15_000


def _train(name: str, make: Callable[[], Any], axes: tuple[str, str], sign: int, seed: int, seconds: float | None) -> tuple:
    def solve() -> Callable[[np.ndarray], np.ndarray]:
        from pina import LabelTensor, Trainer
        from pina.optim import TorchOptimizer
        from pina.solver import PhysicsInformedSingleModelSolver

        began, before = time.perf_counter(), torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(seed)
        problem = make()
        for domain in problem.domains:
            problem.discretise_domain(POINTS if domain == "D" else ON_SIDES, mode="random", domains=[domain])
        sizes = zip(judging.NETWORK[:-1], judging.NETWORK[1:], strict=True)
        model = nn.Sequential(*[part for pair in sizes for part in (nn.Linear(*pair), nn.Tanh())][:-1])
        # L-BFGS takes some iterations in an epoch, so that its time can be limited; Adam has a third of the time, as DeepXDE.
        rules = [
            TorchOptimizer(torch.optim.Adam, lr=1e-3),
            TorchOptimizer(torch.optim.LBFGS, max_iter=50, history_size=100, line_search_fn="strong_wolfe"),
        ]
        for rule, share in zip(rules, (1 / 3, 1), strict=True):
            solver = PhysicsInformedSingleModelSolver(problem=problem, model=model, optimizer=rule)
            left = None if seconds is None else max(share * seconds - (time.perf_counter() - began), 1.0)
            limit = None if left is None else datetime.timedelta(seconds=left)
            Trainer(
                solver=solver,
                max_epochs=-1 if limit else EPOCHS // (1 if share < 0.5 else 50),
                max_time=limit,
                accelerator="cpu",
                precision="64-true",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            ).train()
        torch.set_default_dtype(before)

        def values(points: np.ndarray) -> np.ndarray:
            found = solver.model(LabelTensor(torch.from_numpy(points), list(axes)).extract(problem.input_variables))
            return sign * found.detach().as_subclass(torch.Tensor).numpy()

        return values

    return solve, lambda values: judging.error_of(name, values)


def poisson(seed: int, seconds: float | None) -> tuple:
    """Its Poisson2DSquareProblem, whose load has the other sign, with 4,000 points drawn evenly and 400 on the boundary."""

    def make() -> Any:
        from pina.problem.zoo import Poisson2DSquareProblem

        return Poisson2DSquareProblem()

    return _train("poisson", make, ("x", "y"), -1, seed, seconds)


def burgers(seed: int, seconds: float | None) -> tuple:
    """Its BurgersProblem with 4,000 points drawn evenly, 400 at the start and on the boundary."""

    def make() -> Any:
        from pina.problem.zoo import BurgersProblem

        return BurgersProblem(nu=0.01 / np.pi)

    return _train("burgers", make, ("x", "t"), 1, seed, seconds)
