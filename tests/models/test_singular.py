"""Functions that are singular at corners: their derivatives, the equations they satisfy, and when they are used."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from benchmarks.corners import LShape, l_error
from benchmarks.flow import Cavity, cavity_error
from candidates import candidate, workspace

import sciml
from sciml import d
from sciml.errors import ModelError
from sciml.geometry import Interior, OnFaces
from sciml.jets import AutogradJets, TaylorJets
from sciml.jets.linear import output_layer
from sciml.jets.taylor import supports
from sciml.models import CornerExponents, CornerFunctions, CornerSingular, Scaled
from sciml.strategies import CornerSingular as Corners, Spectral as Polynomials, singular as corners
from sciml.strategies.prepare import prepare
from sciml.strategies.singular import (
    has_singular_corners,
    near_corners,
    plane_of,
    stalls_at_corners,
)

L_WEDGE = CornerExponents((0.3, -0.2), 2.0, 1.5 * math.pi, 1.3, degree=4, order=1, spread=2)
SQUARE_WEDGE = CornerExponents((1.0, 1.0), -2.0, math.pi / 2, 0.7, degree=6, order=2, spread=2)
SQUARE = sciml.Box(x=(0, 1), y=(0, 1))


def ready(problem, points=600):
    return prepare(problem, sciml.RandomFeatures(), None, points, None, torch.float64, "cpu", 0)


class Loaded(sciml.Problem):
    """A square membrane under a load of one; at the corners the conditions say u_xx + u_yy = 0."""

    domain = SQUARE
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 1.0


class Smooth(Loaded):
    """The same with a load that vanishes at the corners: u = sin πx sin πy."""

    domain = SQUARE
    conditions = Loaded.conditions

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 2 * math.pi**2 * torch.sin(math.pi * x) * torch.sin(math.pi * y)


def scaled(block):
    """Corner functions on [-1, 2] × [-1.9, 2.1], each of them a field."""
    trial = Scaled(block, [-1.0, -1.9], [2.0, 2.1], [0.0] * block.width, [1.0] * block.width)
    return trial, [str(column) for column in range(block.width)]


def both():
    few = dataclasses.replace(L_WEDGE, degree=2)
    return CornerFunctions([few, dataclasses.replace(SQUARE_WEDGE, degree=3)], center=(0.5, 0.1), half_width=(1.5, 2.0))


@pytest.mark.slow
def test_derivatives_are_those_of_nested_autograd():
    trial, fields = scaled(both())
    points = torch.rand(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plan = [("x",), ("x", "y"), ("y", "y"), ("x", "x", "y"), ("x", "x", "x", "x"), ("x", "x", "y", "y")]
    taylor = TaylorJets(trial, points, ("x", "y"), fields, plan)
    nested = AutogradJets(trial, points, ("x", "y"), fields)
    assert supports(trial, 4)
    for index in [(), *plan]:
        for field in fields:
            expected = nested.jet(field, index).detach()
            gap = (taylor.jet(field, index) - expected).abs() / (1 + expected.abs())
            assert float(gap.max()) < 1e-11, (index, field)


@pytest.mark.parametrize(("conjugates", "power"), [(0, 1), (1, 2)])
def test_they_solve_laplace_and_the_biharmonic_equation(conjugates, power):
    block = CornerFunctions([dataclasses.replace(L_WEDGE, order=power, spread=0)], (0.5, 0.1), (1.5, 2.0))
    trial, fields = scaled(block)
    # Away from the corner, where rounding is not multiplied by large derivatives.
    points = 0.5 + torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert max(m for _, m, _ in block.wedges[0].terms) == conjugates
    indices = {("x", "x"): 1, ("y", "y"): 1}
    if power == 2:
        indices = {("x",) * 4: 1, ("x", "x", "y", "y"): 2, ("y",) * 4: 1}
    jets = TaylorJets(trial, points, ("x", "y"), fields, list(indices))
    for field in fields:
        total = sum(times * jets.jet(field, index) for index, times in indices.items())
        assert float(total.abs().max()) < 1e-9


def test_exponents_are_those_of_both_kinds_of_conditions():
    wedge = CornerExponents((0.0, 0.0), 0.0, 1.5 * math.pi, 1.0, degree=2)
    assert {round(3 * a) for a, _, log in wedge.terms if not log} == {1, 2, 4, 5}
    assert {a for a, _, log in wedge.terms if log} == {1.0, 2.0}
    # At a right angle powers are polynomials; only logarithms are left.
    assert all(log for _, _, log in CornerExponents((0.0, 0.0), 0.0, math.pi / 2, 1.0).terms)
    assert all(a + m > 1 for a, m, _ in SQUARE_WEDGE.terms)


def test_values_are_finite_at_the_corner_and_their_cut_lies_outside():
    block = CornerFunctions([CornerExponents((0.0, 0.0), 0.75 * math.pi, 1.5 * math.pi, 1.0)], (0.0, 0.0), (1.0, 1.0))
    assert bool(torch.isfinite(block(torch.zeros(1, 2, dtype=torch.float64))).all())
    angle = torch.linspace(0, 1.5 * math.pi, 2001, dtype=torch.float64)
    values = block(0.5 * torch.stack([angle.cos(), angle.sin()], dim=1))
    assert float(values.diff(dim=0).abs().max()) < 0.02


def test_corners_without_functions_and_other_numbers_of_coordinates_are_refused():
    with pytest.raises(ModelError, match="singular functions"):
        CornerFunctions([CornerExponents((0.0, 0.0), 0.0, math.pi / 2, 1.0, degree=0.5)], (0, 0), (1, 1))
    with pytest.raises(ModelError, match="two coordinates"):
        CornerSingular(sciml.Spectral(3), [L_WEDGE], center=(0, 0), half_width=(1, 1), inputs=3, outputs=1)
    with pytest.raises(ModelError, match="MLP"):
        CornerSingular(sciml.MLP(3), [L_WEDGE], center=(0, 0), half_width=(1, 1))


def test_only_the_weights_are_varied_and_the_architecture_is_rebuilt_from_plain_values():
    for smooth in (sciml.RandomFeatures(30, 2.0), sciml.Spectral(5)):
        model = CornerSingular(smooth, [L_WEDGE], center=(0.5, 0.1), half_width=(1.5, 2.0), inputs=2, outputs=2).double()
        trial = Scaled(model, [-1.0, -1.9], [2.0, 2.1], [0.0, 0.0], [1.0, 1.0])
        assert output_layer(trial) is model.layers[-1]
        torch.nn.init.normal_(model.layers[-1].weight)
        again = CornerSingular.from_config(**model.config).double()
        again.load_state_dict(model.state_dict())
        points = torch.rand(5, 2, dtype=torch.float64)
        assert torch.equal(model(points), again(points))


def test_the_l_is_solved_without_settings(tmp_path):
    solution = sciml.fit(LShape())
    assert solution.success
    assert l_error(solution) < 1e-8
    assert any("re-entrant corners" in choice and "singular at 6 corner(s)" in choice for choice in solution.choices)
    again = sciml.load(solution.save(tmp_path / "l.pt"))
    assert np.array_equal(again(x=0.3, y=0.4)["u"], solution(x=0.3, y=0.4)["u"])
    # At the corner itself there are values.
    assert abs(float(solution(x=0.0, y=0.0)["u"])) < 1e-8


class Insulated(LShape):
    """The L insulated on one edge of the re-entrant corner: exponents are 1/3, 1, 5/3 ... there."""

    domain = LShape.domain
    conditions = [
        sciml.Neumann(u=0.0, on=domain.edge(0)),
        sciml.Dirichlet(u=lambda x, y: singular(x, y), on=domain.edge(1, 2, 3, 4), name="outer"),
        sciml.Dirichlet(u=0.0, on=domain.edge(5), name="inner"),
    ]

    @sciml.equation
    def balance(self, u, x, y):
        return d(u, x, x) + d(u, y, y) - 1.5 * x - 1.0

    def reference(self, x, y):
        return singular(x, y)


def singular(x, y):
    """r^{1/3} cos(θ/3) and a particular solution x³/4 + x²/2, even in y, which vanishes for x = 0."""
    angle = torch.atan2(y, x)
    angle = torch.where(angle < -1e-12, angle + 2 * math.pi, angle)
    return (x * x + y * y) ** (1 / 6) * torch.cos(angle / 3) + x**3 / 4 + x**2 / 2


def test_mixed_conditions_at_a_reentrant_corner():
    solution = sciml.fit(Insulated())
    generator = np.random.default_rng(0)
    x, y = generator.uniform(-1, 1, (2, 400))
    inside = (x < 0) | (y > 0)
    truth = singular(torch.tensor(x), torch.tensor(y)).numpy()
    gap = solution(x=x[inside], y=y[inside])["u"] - truth[inside]
    assert np.linalg.norm(gap) < 1e-7 * np.linalg.norm(truth[inside])


class Varied(LShape):
    """A conductivity that varies over the L: the singular functions are no longer harmonic."""

    domain = LShape.domain
    conditions = LShape.conditions

    @sciml.equation
    def balance(self, u, x, y):
        k = 1 + 0.5 * x + 0.3 * torch.sin(2 * y)
        return d(k * d(u, x), x) + d(k * d(u, y), y) + 1.0


def test_powers_of_the_conjugate_are_what_varying_coefficients_add():
    setup = ready(Varied(), 3000)
    search = corners._CornerSearch(workspace(setup.problem, discrete=setup), plane_of(setup.problem), None)
    analytic = search._attempt(sciml.RandomFeatures(400, 4.0), 4, 0)
    spread = search._attempt(sciml.RandomFeatures(400, 4.0), 4, 2)
    assert spread < 0.05 * analytic


@pytest.mark.slow
def test_a_slit():
    height = math.tan(0.025)
    outline = [(0, 0), (1, height), (1, 1), (-1, 1), (-1, -1), (1, -1), (1, -height)]

    class Slit(LShape):
        domain = sciml.Polygon(outline)
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    solution = sciml.fit(Slit())
    assert solution.residuals["relative"].max() < 1e-6


@pytest.mark.slow
def test_smooth_solutions_do_not_stall_at_corners_and_others_do():
    for problem, stalls in ((Loaded(), True), (Smooth(), False)):
        setup = ready(problem)
        found = candidate(Polynomials(), workspace(problem, discrete=setup))
        assert stalls_at_corners(found.discrete) is stalls
        assert not has_singular_corners(problem)
    better = candidate(Corners(), workspace(Loaded(), discrete=ready(Loaded()), tolerance=1e-2))
    assert better.residual < 1e-9


def test_they_are_not_taken_where_they_are_no_better():
    setup = ready(Smooth())
    work = workspace(Smooth(), discrete=setup, tolerance=1e-2)
    exact = candidate(Polynomials(), work)
    assert candidate(Corners(), work, exact) is None


def test_time_and_round_domains_have_no_corners():
    class Heat(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

        @sciml.equation
        def conduction(self, u, x, t):
            return d(u, t) - d(u, x, x)

    class Round(Loaded):
        domain = sciml.Disk((0, 0), 1)
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    for problem in (Heat(), Round()):
        assert plane_of(problem) is None
        assert not has_singular_corners(problem)
        assert "no corners" in Corners().obstacle(workspace(problem))


def test_points_near_corners_lie_where_they_should():
    setup = ready(LShape())
    plane = plane_of(setup.problem)
    blocks = near_corners(setup.train, plane, 50, np.random.default_rng(0), 1)
    for old, new in zip(setup.train, blocks, strict=True):
        points = new.sample.points[0]
        added = points[old.size :].numpy()
        assert torch.equal(points[: old.size], old.sample.points[0])
        distance = plane.domain.distance(added)
        if isinstance(new.terms[0].place, Interior):
            assert (distance < 0).all()
            assert len(added) > 0.95 * 6 * 50
            # Weights fall with the square of the distance from the nearest corner.
            near = torch.tensor(added).square().sum(1).sqrt() < 1e-3
            assert bool(near.any())
            expected = torch.tensor(added).square().sum(1)[near] / 0.25
            torch.testing.assert_close(new.weights[old.size :][near], expected)
        elif isinstance(new.terms[0].place, OnFaces):
            assert np.abs(distance).max() < 1e-12
            assert np.hypot(*added.T).min() < 1e-3


@pytest.mark.slow
def test_contradictory_conditions_of_a_nonlinear_equation_of_fourth_order(monkeypatch):
    """A lid next to walls at rest: velocities are continuous at the corners, vorticity is not."""
    monkeypatch.setattr(corners, "_DEGREES", {2: ((14, 4, 1), (20, 6, 2), (26, 6, 2))})
    found = candidate(Corners(), workspace(Cavity(), discrete=ready(Cavity()), tolerance=1e-2))
    # In the equation's own unit, whatever the natural size of a stream function is.
    assert found.residual * found.discrete.scales["vorticity"] < 1e-4

    def fields(x, y):
        return {"s": found.discrete.trial(torch.stack([x, y], -1).flatten(0, -2)).view_as(x)}

    assert cavity_error(fields) < 1e-4


def test_a_watcher_ends_the_search():
    work = workspace(LShape(), discrete=ready(LShape()), watchers=[lambda look: True])
    found = candidate(Corners(), work)
    assert found is not None
    assert (work.log.status, work.log.steps) == ("stopped", 1)


class Motz(sciml.Problem):
    """Motz's problem: in the middle of a straight edge a prescribed value ends, and an insulated part begins."""

    domain = sciml.Polygon([(-1, 0), (0, 0), (1, 0), (1, 1), (-1, 1)], edges={"cold": 0, "axis": 1, "hot": 2, "walls": [3, 4]})
    fields = ["u"]
    conditions = [
        sciml.Dirichlet(u=0.0, on=domain.piece("cold")),
        sciml.Dirichlet(u=500.0, on=domain.piece("hot")),
        sciml.Neumann(u=0.0, on=domain.piece("axis", "walls")),
    ]

    @sciml.equation
    def laplace(self, u, x, y):
        return sciml.laplacian(u, x, y)


def near_the_change(solution, radius):
    """How far off Motz's solution is; its coefficients are those of Z.-C. Li, R. Mathon and P. Sermer (1987)."""
    angle = np.linspace(0, np.pi, 40)[1:-1]
    known = 401.162453745, 87.6559201951, 17.2379150794, -8.0712152597, 1.44027271702
    exact = sum(each * radius ** (k + 0.5) * np.cos((k + 0.5) * angle) for k, each in enumerate(known))
    found = solution(x=radius * np.cos(angle), y=radius * np.sin(angle))["u"]
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def test_conditions_that_change_on_a_straight_edge_are_known_to_be_singular():
    assert has_singular_corners(Motz())
    solution = sciml.fit(Motz())
    assert solution.success, solution.message
    assert "conditions are mixed at corners" in solution.choices[0]
    assert near_the_change(solution, 1e-3) < 1e-6
    assert near_the_change(solution, 0.05) < 1e-6


def test_conditions_that_change_at_right_angles_are_not():
    class Mixed(Motz):
        conditions = [
            sciml.Dirichlet(u=0.0, on=Motz.domain.piece("cold", "axis")),
            sciml.Neumann(u=0.0, on=Motz.domain.piece("hot", "walls")),
        ]

    assert not has_singular_corners(Mixed())
