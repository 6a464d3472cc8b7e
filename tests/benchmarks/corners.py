"""Poisson's equation on the L: row 6."""

import numpy as np

from sciml.geometry import Interior, draw

from .case import Case, Target, relative
from .stored import problem_class

LShape = problem_class("poisson_l_shape")


def l_error(solution):
    """The relative error on points inside."""
    points = draw(Interior(), LShape.domain, 2**14, np.random.default_rng(0)).points[0].numpy()
    x, y = points.T
    return relative(solution(x=x, y=y), solution.truth({"x": x, "y": y}))


CASES = (
    Case(
        "poisson_on_the_l",
        6,
        "Poisson on the L, −Δu = 1, u = 0",
        (Target(1e-4, 20), Target(1e-6, 20)),
        "",
        LShape,
        l_error,
    ),
)
