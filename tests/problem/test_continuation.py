"""Continuation in the length of the domain: nonlinear boundary-value problems with several solutions, or none near zero."""

import numpy as np
import pytest

import sciml
from sciml import d
from sciml.problem.continuation import shorter


class Wedge(sciml.Problem):
    """Boundary layer at a wedge (Falkner and Skan, 1931); of beta < 0 there are solutions with flow back as well."""

    domain = sciml.Interval(eta=(0, 12))
    fields = ["f"]
    beta = -0.15
    conditions = [
        sciml.Dirichlet(f=0.0, on=domain.face(eta=0)),
        sciml.Neumann(f=0.0, on=domain.face(eta=0)),
        sciml.Neumann(f=1.0, on=domain.face(eta=12)),
    ]

    @sciml.equation
    def momentum(self, f, eta):
        return d(f, eta, eta, eta) + f * d(f, eta, eta) + self.beta * (1 - d(f, eta) ** 2)


class Plate(Wedge):
    """Blasius' boundary layer on a long domain."""

    beta = 0.0


class RotatingDisk(sciml.Problem):
    """Von Karman's flow at a rotating disk, which draws 0.8845 towards it."""

    domain = sciml.Interval(z=(0, 15))
    fields = ["h", "f", "g"]
    conditions = [
        sciml.Dirichlet(h=0.0, f=0.0, g=1.0, on=domain.face(z=0)),
        sciml.Dirichlet(f=0.0, g=0.0, on=domain.face(z=15)),
    ]

    @sciml.equation
    def mass(self, h, f, z):
        return d(h, z) + 2 * f

    @sciml.equation
    def radial(self, h, f, g, z):
        return d(f, z, z) - f**2 + g**2 - h * d(f, z)

    @sciml.equation
    def around(self, h, f, g, z):
        return d(g, z, z) - 2 * f * g - h * d(g, z)


@pytest.mark.parametrize("solve", [sciml.fit, sciml.baseline])
@pytest.mark.parametrize(
    ("problem", "end", "field", "value"),
    [
        # Asymptotic values: of f less its slope times the length, tabulated by F. M. White, Viscous Fluid Flow, section 4.
        (Plate, 12.0, "f", 12 - 1.21678),
        (RotatingDisk, 15.0, "h", -0.88447),
    ],
)
def test_boundary_layers_on_long_domains(solve, problem, end, field, value):
    solution = solve(problem())
    assert solution.success, solution.message
    assert float(solution(**{problem.domain.coordinates[0]: end})[field]) == pytest.approx(value, abs=2e-4)


def test_of_several_solutions_it_is_the_one_that_follows_from_short_domains_and_that_is_said():
    solution, classical = sciml.fit(Wedge()), sciml.baseline(Wedge())
    assert solution.success
    assert classical.success
    eta = np.linspace(0, 12, 50)
    assert solution(eta=eta)["f"] == pytest.approx(classical(eta=eta)["f"], abs=1e-6)
    assert np.diff(solution(eta=eta)["f"]).min() > 0
    assert "another solution" in solution.message


def test_short_domains_lie_around_what_is_nearest_to_zero():
    def bounds(low, high):
        class Layer(sciml.Problem):
            domain = sciml.Interval(x=(low, high))
            fields = ["u"]
            conditions = [sciml.Dirichlet(u=1.0, on=domain.boundary)]

            @sciml.equation
            def balance(self, u, x):
                return d(u, x, x) - u**3

        return next(problem.domain.bounds["x"] for share, problem in shorter(Layer()) if share == 0.5)

    assert bounds(0, 4) == (0, 2)
    assert bounds(-4, 0) == (-2, 0)
    assert bounds(-2, 6) == (-1, 3)
    assert bounds(4, 8) == (4, 6)


def test_what_holds_inside_or_starts_in_time_is_not_shortened():
    class Held(Plate):
        conditions = [*Plate.conditions, sciml.Point(f=1.0, at={"eta": 3.0})]

    assert not list(shorter(Held()))
    assert not list(shorter(sciml.gallery.problem("heat_rod")))
