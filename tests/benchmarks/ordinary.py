"""Ordinary differential equations, one of them with unknown constants: rows 13 and 14."""

from .case import Case, Target, against, of_unknowns
from .stored import problem_class

Lorenz = problem_class("lorenz_inverse")
VanDerPol = problem_class("van_der_pol")
Robertson = problem_class("robertson")

CASES = (
    Case(
        "lorenz",
        13,
        "Lorenz inverse, 25 exact samples, unknowns start at 1",
        (Target(1e-6, 3),),
        "DeepXDE f64 5.3e-6, 105 s; jinns SSBroyden 8.5e-7, 76 s with a loss weight changed by hand, 9e-1 with its tutorial's",
        Lorenz,
        of_unknowns(sigma=10.0, rho=15.0, beta=8 / 3),
    ),
    Case(
        "van_der_pol",
        14,
        "Van der Pol, μ = 100, one period",
        (Target(1e-5, 30),),
        "",
        VanDerPol,
        against("van_der_pol"),
    ),
    Case(
        "robertson",
        14,
        "Robertson to 10⁴, at times spaced by their logarithm",
        (Target(1e-5, 30),),
        "",
        Robertson,
        against("robertson"),
    ),
)
