"""DeepXDE: Adam, then L-BFGS, in float64, as its examples do but for their float32."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from . import judging

RATE = 1e-3


def _train(name: str, parts: Callable, widths: list[int], steps: int, seed: int, seconds: float | None) -> tuple:
    """How to solve, and the error: with the widths and steps of an example, or with the common network until time is up."""

    def solve() -> Any:
        os.environ.setdefault("DDE_BACKEND", "pytorch")
        import deepxde

        began = time.perf_counter()
        deepxde.config.set_default_float("float64")
        deepxde.config.set_random_seed(seed)
        data, rule = parts(deepxde)
        model = deepxde.Model(data, deepxde.nn.FNN(widths if seconds is None else list(judging.NETWORK), "tanh", rule))
        model.compile("adam", lr=RATE)
        if seconds is None:
            model.train(iterations=steps, display_every=steps)
            model.compile("L-BFGS")
            model.train(display_every=10**6)
            return model

        def until(end: float) -> list:
            return [deepxde.callbacks.Timer((end - (time.perf_counter() - began)) / 60)]

        # The examples give Adam about a third of their time.
        model.train(iterations=10**6, display_every=10**6, callbacks=until(seconds / 3))
        model.stop_training = False
        deepxde.optimizers.set_LBFGS_options(maxiter=10**6)
        deepxde.optimizers.config.LBFGS_options["iter_per_step"] = 50
        model.compile("L-BFGS")
        model.train(display_every=10**6, callbacks=until(seconds))
        return model

    return solve, lambda model: judging.error_of(name, model.predict)


def poisson(seed: int, seconds: float | None) -> tuple:
    """Points, network and steps of its example Poisson_Lshape, on our square and with our load."""

    def parts(deepxde: Any) -> tuple:
        square = deepxde.geometry.Rectangle([0, 0], [1, 1])
        walls = deepxde.icbc.DirichletBC(square, lambda x: 0, lambda _, on: on)

        def equation(x: Any, y: Any) -> Any:
            bend = deepxde.grad.hessian(y, x, i=0, j=0) + deepxde.grad.hessian(y, x, i=1, j=1)
            return -bend - 2 * np.pi**2 * torch.sin(np.pi * x[:, :1]) * torch.sin(np.pi * x[:, 1:])

        return deepxde.data.PDE(square, equation, walls, num_domain=1200, num_boundary=120), "Glorot uniform"

    return _train("poisson", parts, [2, 50, 50, 50, 50, 1], 50_000, seed, seconds)


def burgers(seed: int, seconds: float | None) -> tuple:
    """Its example Burgers, to t = 1."""

    def parts(deepxde: Any) -> tuple:
        line = deepxde.geometry.GeometryXTime(deepxde.geometry.Interval(-1, 1), deepxde.geometry.TimeDomain(0, 1))
        walls = deepxde.icbc.DirichletBC(line, lambda x: 0, lambda _, on: on)
        start = deepxde.icbc.IC(line, lambda x: -np.sin(np.pi * x[:, :1]), lambda _, on: on)

        def equation(x: Any, y: Any) -> Any:
            by_x, by_t = (deepxde.grad.jacobian(y, x, i=0, j=column) for column in (0, 1))
            return by_t + y * by_x - 0.01 / np.pi * deepxde.grad.hessian(y, x, i=0, j=0)

        numbers = {"num_domain": 2540, "num_boundary": 80, "num_initial": 160}
        return deepxde.data.TimePDE(line, equation, [walls, start], **numbers), "Glorot normal"

    return _train("burgers", parts, [2, 20, 20, 20, 1], 15_000, seed, seconds)
