"""Parts with constants of their own, stated once."""

import math

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.errors import DataError, ProblemError

TIME = sciml.Interval(t=(0, 1))
ROD, CORE = sciml.Disk((0, 0), 2, piece="rim"), sciml.Disk((0, 0), 1)
SHELL = ROD - CORE


class Heat(sciml.Problem):
    """Heat with a source k e^(x) in a square of two layers; the flux through y = 1 is that of the solution e^x (y - 1) / k."""

    domain = sciml.Box(x=(0, 1), y=(0, 2))
    fields = ["u"]
    k = 1.0
    conditions = [sciml.Dirichlet(u=lambda self, x, y: self.reference(x, y), on=domain.boundary)]

    def flux(self, u, x, y):
        return -self.k * d(u, x), -self.k * d(u, y)

    @sciml.equation
    def balance(self, u, x, y):
        q_x, q_y = self.flux(u, x, y)
        return d(q_x, x) + d(q_y, y) + torch.exp(x) * (y - 1)

    def reference(self, x, y):
        return torch.exp(x) * (y - 1) / self.k


LAYERS = {"below": sciml.Box(x=(0, 1), y=(0, 1)), "above": sciml.Box(x=(0, 1), y=(1, 2))}


def test_two_layers_from_one_class():
    plate = sciml.composite({"below": Heat(k=1.0), "above": Heat(k=5.0)}, LAYERS)
    assert plate.fields == ("u_below", "u_above")
    assert plate.equations == ("balance_below", "balance_above")
    names = [term.name for term in plate.terms()]
    assert names[2:] == ["dirichlet_below", "dirichlet_above", "contact_below_above", "flux_below_above"]
    assert not sciml.preflight(plate)
    solution = sciml.fit(plate, seconds=60)
    assert solution.success, solution.message
    assert max(solution.error().values()) < 1e-8


def test_a_core_in_a_shell_in_time_by_the_class_of_one_material():
    class Warm(sciml.Problem):
        domain = ROD * TIME
        fields = ["u"]
        k = 1.0
        source = 0.0
        conditions = [
            sciml.Initial(u=lambda self, x, y: self.exact(x, y, 0 * x)),
            sciml.Dirichlet(u=lambda self, x, y, t: self.exact(x, y, t), on=domain.piece("rim")),
        ]

        def exact(self, x, y, t):
            square = x * x + y * y
            if self.source:
                return torch.exp(-t) * (math.log(4) + (1 - square) / 5 + 2 * x / 6)
            return torch.exp(-t) * (math.log(4) - torch.log(square) + x + (1 - 5) / (1 + 5) * x / square)

        def flux(self, u, x, y, t):
            return -self.k * d(u, x), -self.k * d(u, y)

        @sciml.equation
        def heat(self, u, x, y, t):
            q_x, q_y = self.flux(u, x, y, t)
            return d(u, t) + d(q_x, x) + d(q_y, y) + u - self.source * torch.exp(-t)

    rod = sciml.composite({"core": Warm(k=5.0, source=4.0), "shell": Warm()}, {"core": CORE * TIME, "shell": SHELL * TIME})
    assert [term.name for term in rod.terms() if "dirichlet" in term.name] == ["dirichlet_shell"]
    assert not sciml.preflight(rod)
    exact = {"u_core": rod.members["core"].exact, "u_shell": rod.members["shell"].exact}
    at = {"x": np.array([0.2, 0.5]), "y": np.array([0.1, -0.3]), "t": np.array([0.2, 0.9])}
    found = rod.residuals(lambda x, y, t: {name: each(x, y, t) for name, each in exact.items()}, **at)
    assert np.abs(found["heat_core"]).max() < 1e-10
    assert np.abs(found["heat_shell"]).max() < 1e-10


def test_unknown_conductivities_from_one_table():
    truth = sciml.fit(sciml.composite({"below": Heat(k=1.0), "above": Heat(k=5.0)}, LAYERS))
    generator = np.random.default_rng(0)
    x, y = generator.random(300), 2 * generator.random(300)
    at = truth(x=x, y=y)
    table = {"x": x, "y": y, "u": np.where(y < 1, at["u_below"], at["u_above"]) + 0.001 * generator.standard_normal(300)}

    class Sought(Heat):
        conditions = [sciml.Dirichlet(u=lambda x, y: torch.exp(x) * (y - 1), on=Heat.domain.piece("y=0"))]

    parts = {name: Sought(k=sciml.Unknown(2.0, lower=0.1)) for name in LAYERS}
    plate = sciml.composite(parts, LAYERS)
    assert list(plate.unknowns) == ["k_below", "k_above"]
    joined = plate.joined(sciml.Table(table))
    assert np.isfinite(joined.table["u_below"]).sum() == (y <= 1).sum()
    assert np.isfinite(joined.table["u_above"]).sum() == (y > 1).sum()
    with pytest.raises(DataError, match=r"1 of 300 measurements lie in none of the parts .*'y': 2.5"):
        plate.joined(sciml.Table({**table, "y": np.where(np.arange(300) == 7, 2.5, y)}))
    with pytest.raises(DataError, match=r"need the coordinate.* 'y'"):
        plate.joined(sciml.Table({"x": x, "u": y}))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sciml.composite({"below": Heat(), "above": Heat()}, {"below": LAYERS["below"]}), "a domain for each"),
        (lambda: sciml.composite({"below": Heat(), "above": Heat()}, LAYERS, flux="flow"), "has no method 'flow'"),
        (
            lambda: sciml.composite(
                {"a": Heat(), "b": Heat()}, {"a": sciml.Box(x=(0, 1), y=(0, 0.5)), "b": sciml.Box(x=(0, 1), y=(1, 2))}
            ),
            "meets no other one",
        ),
        (
            lambda: sciml.composite({"below": Heat(), "above": type("Other", (Heat,), {})()}, LAYERS),
            r"parts are objects of one class on the same domain, the whole, .* Heat\(k=sciml.Unknown\(1.0\)\)",
        ),
        (lambda: sciml.composite({"below": Heat()}, LAYERS), "composite needs at least two problems"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(ProblemError, match=words):
        make()
