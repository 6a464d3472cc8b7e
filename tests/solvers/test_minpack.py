"""The Levenberg-Marquardt core on plain residuals, held against MINPACK on its own test problems.

J. J. More, B. S. Garbow and K. E. Hillstrom, Testing unconstrained optimization software, ACM TOMS 7 (1981); the numbers in
parentheses are theirs.
"""

import math

import pytest
import torch
from scipy.optimize import least_squares

import sciml
from sciml.solvers.levenberg_marquardt import FACTORISATIONS, DenseModel, LevenbergMarquardt


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def stack(*parts):
    return torch.stack(parts)


TENTHS = 0.1 * torch.arange(1, 11, dtype=torch.float64)
BARD = vector(0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39)
KOWALIK_Y = vector(0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246)
KOWALIK_U = vector(4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625)
MEYER = vector(
    34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872
)  # fmt: skip
OSBORNE = vector(
    0.844, 0.908, 0.932, 0.936, 0.925, 0.908, 0.881, 0.850, 0.818, 0.784, 0.751, 0.718, 0.685, 0.658, 0.628, 0.603, 0.580,
    0.558, 0.538, 0.522, 0.506, 0.490, 0.478, 0.467, 0.457, 0.448, 0.438, 0.431, 0.424, 0.420, 0.414, 0.411, 0.406,
)  # fmt: skip


def bard(x):
    u = torch.arange(1, 16, dtype=torch.float64)
    v = 16 - u
    return BARD - (x[0] + u / (v * x[1] + torch.minimum(u, v) * x[2]))


def kowalik_osborne(x):
    return KOWALIK_Y - x[0] * (KOWALIK_U**2 + KOWALIK_U * x[1]) / (KOWALIK_U**2 + KOWALIK_U * x[2] + x[3])


def meyer(x):
    t = 45 + 5 * torch.arange(1, 17, dtype=torch.float64)
    return x[0] * torch.exp(x[1] / (t + x[2])) - MEYER


def brown_dennis(x):
    t = torch.arange(1, 21, dtype=torch.float64) / 5
    return (x[0] + t * x[1] - torch.exp(t)) ** 2 + (x[2] + x[3] * torch.sin(t) - torch.cos(t)) ** 2


def osborne(x):
    t = 10 * torch.arange(33, dtype=torch.float64)
    return OSBORNE - (x[0] + x[1] * torch.exp(-t * x[3]) + x[2] * torch.exp(-t * x[4]))


def helical_valley(x):
    # MINPACK's angle, continuous but for the half line behind the start.
    angle = torch.atan2(x[1], x[0]) / (2 * math.pi)
    return stack(10 * (x[2] - 10 * angle), 10 * (torch.hypot(x[0], x[1]) - 1), x[2])


def jennrich_sampson(x):
    i = torch.arange(1, 11, dtype=torch.float64)
    return 2 + 2 * i - torch.exp(i * x[0]) - torch.exp(i * x[1])


PROBLEMS = {
    "Rosenbrock (1)": (lambda x: stack(10 * (x[1] - x[0] ** 2), 1 - x[0]), [-1.2, 1.0]),
    "Freudenstein and Roth (2)": (
        lambda x: stack(-13 + x[0] + ((5 - x[1]) * x[1] - 2) * x[1], -29 + x[0] + ((x[1] + 1) * x[1] - 14) * x[1]),
        [0.5, -2.0],
    ),
    "Powell badly scaled (3)": (
        lambda x: stack(1e4 * x[0] * x[1] - 1, torch.exp(-x[0]) + torch.exp(-x[1]) - 1.0001),
        [0.0, 1.0],
    ),
    "Beale (5)": (
        lambda x: stack(*(y - x[0] * (1 - x[1] ** k) for k, y in enumerate((1.5, 2.25, 2.625), 1))),
        [1.0, 1.0],
    ),
    "Jennrich and Sampson (6)": (jennrich_sampson, [0.3, 0.4]),
    "Helical valley (7)": (helical_valley, [-1.0, 0.0, 0.0]),
    "Bard (8)": (bard, [1.0, 1.0, 1.0]),
    "Meyer (10)": (meyer, [0.02, 4000.0, 250.0]),
    "Box three-dimensional (12)": (
        lambda x: torch.exp(-TENTHS * x[0]) - torch.exp(-TENTHS * x[1]) - x[2] * (torch.exp(-TENTHS) - torch.exp(-10 * TENTHS)),
        [0.0, 10.0, 20.0],
    ),
    "Powell singular (13)": (
        lambda x: stack(x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2),
        [3.0, -1.0, 0.0, 1.0],
    ),
    "Wood (14)": (
        lambda x: stack(
            10 * (x[1] - x[0] ** 2),
            1 - x[0],
            90**0.5 * (x[3] - x[2] ** 2),
            1 - x[2],
            10**0.5 * (x[1] + x[3] - 2),
            (x[1] - x[3]) / 10**0.5,
        ),
        [-3.0, -1.0, -3.0, -1.0],
    ),
    "Kowalik and Osborne (15)": (kowalik_osborne, [0.25, 0.39, 0.415, 0.39]),
    "Brown and Dennis (16)": (brown_dennis, [25.0, 5.0, -5.0, -1.0]),
    "Osborne 1 (17)": (osborne, [0.5, 1.5, -1.0, 0.01, 0.02]),
}


def minimised(function, start, factorisation="auto", steps=500):
    """The point the core ends at, and how it ended."""
    core = LevenbergMarquardt(sciml.LeastSquares(loss_tolerance=1e-9, factorisation=factorisation))
    position = vector(*start)
    for _ in range(steps):
        slopes = torch.func.jacrev(function)(position)
        model = DenseModel(function(position), slopes, factorisation)
        found = core.improve(position, model, lambda x: float(function(x).square().sum()))
        position = found.position
        if found.done is not None:
            break
    return position, found.done


@pytest.mark.parametrize("factorisation", FACTORISATIONS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_it_ends_as_low_as_minpack(name, factorisation):
    function, start = PROBLEMS[name]
    position, _ = minimised(function, start, factorisation)
    theirs = least_squares(
        lambda x: function(vector(*x)).numpy(),
        start,
        jac=lambda x: torch.func.jacrev(function)(vector(*x)).numpy(),
        method="lm",
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
        max_nfev=5000,
    )
    ours = float(function(position).square().sum())
    assert ours <= 2 * theirs.cost * (1 + 1e-6) + 1e-18
