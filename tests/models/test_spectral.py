"""Products of polynomials and waves: their jets, their points, and the search for their degrees."""

import itertools
import math

import numpy as np
import pytest
import torch
from candidates import candidate, workspace

import sciml
from sciml import d, strategies
from sciml.errors import ModelError
from sciml.geometry import Face, Interior, OnFaces, Opposite, PointSet, clustered, draw
from sciml.jets import AutogradJets, TaylorJets
from sciml.models import Scaled, Spectral
from sciml.models.bases import chebyshev
from sciml.solvers.discrete_problem import layout_of, wave_columns
from sciml.solvers.gauss_newton import factorised
from sciml.strategies.prepare import prepare


def filled(model, seed=0):
    """A model with random weights."""
    with torch.no_grad():
        model.weight.normal_(generator=torch.Generator().manual_seed(seed))
    return model


def built(degree, inputs, outputs=1, **options):
    model = Spectral(degree, **options)
    model.build(inputs, outputs, torch.Generator())
    return model


@pytest.mark.parametrize(
    ("degree", "periodic"),
    [
        ((7,), []),
        ((5,), [0]),
        ((6, 4), []),
        ((3, 9), []),
        ((4, 5), [0]),
        ((5, 3), [1]),
        ((3, 4, 2), [1]),
        ((3, 2, 4), []),
    ],
)
def test_jets_are_those_of_nested_autograd(degree, periodic):
    names = ("x", "y", "t")[: len(degree)]
    model = filled(built(degree, len(degree), 2, periodic=periodic))
    box = [(-1.0, 2.0), (0.5, 1.5), (0.0, 4.0)][: len(degree)]
    trial = Scaled(model, [low for low, _ in box], [high for _, high in box], [0.3, 0.0], [2.0, 1.0])
    points = torch.tensor(np.random.default_rng(0).uniform(*zip(*box, strict=True), (20, len(degree))))
    plan = [index for order in range(5) for index in itertools.combinations_with_replacement(names, order)]
    ours = TaylorJets(trial, points, names, ("u", "v"), plan)
    nested = AutogradJets(trial, points.requires_grad_(), names, ("u", "v"))
    for field, index in itertools.product(("u", "v"), plan):
        wanted = nested.jet(field, index)
        assert (ours.jet(field, index) - wanted).abs().max() <= 1e-10 * (1 + wanted.abs().max()), index


def test_degrees_lie_in_the_ellipsoid_and_come_once():
    model = built((6, 3), 2, periodic=[1])
    basis, degrees = model.basis, model.degrees_of
    assert bool(((degrees[:, 0] / 6) ** 2 + (degrees[:, 1] / 3) ** 2 <= 1 + 1e-9).all())
    assert len(set(basis.products)) == basis.width
    assert {(6, 0), (0, 5), (0, 6)} <= set(basis.products)  # cos and sin of the third harmonic
    assert (6, 1) not in basis.products


def test_waves_are_periodic_with_all_derivatives():
    model = filled(built((4, 6), 2, periodic=[1]))
    ends = torch.tensor([[0.2, -1.0], [0.2, 1.0]], dtype=torch.float64)
    jets = TaylorJets(Scaled(model, [-1, -1], [1, 1], [0.0], [1.0]), ends, ("t", "x"), ("u",), [("x", "x", "x")])
    for order in range(4):
        low, high = jets.jet("u", ("x",) * order).detach()
        assert float(low) == pytest.approx(float(high), rel=1e-10)


def test_polynomials_of_the_degree_are_reproduced_and_higher_ones_are_not():
    x = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    features = built(5, 1).basis(x)
    for power, small in ((5, True), (6, False)):
        values = x**power
        left = features @ torch.linalg.lstsq(features, values).solution - values
        assert (float(left.abs().max()) < 1e-12) is small


def test_a_model_takes_over_what_both_have():
    small, large = filled(built((3, 2), 2)), built((5, 5), 2)
    large.start_from(small)
    points = torch.rand(30, 2, dtype=torch.float64)
    torch.testing.assert_close(large(points), small(points))


def test_tails_tell_what_is_not_resolved():
    model = built((12, 12), 2)
    with torch.no_grad():
        model.weight[0] = torch.tensor([math.exp(-i - j / 4) for i, j in model.basis.products])
    along_x, along_y = model.tails()
    assert along_x < 1e-3 < along_y


@pytest.mark.parametrize(
    "make", [lambda: Spectral(-1), lambda: Spectral(2.5), lambda: Spectral([]), lambda: Spectral((2, True))]
)
def test_degrees_must_be_whole(make):
    with pytest.raises(ModelError, match="whole"):
        make()


def test_degrees_must_fit_the_coordinates():
    with pytest.raises(ModelError, match="for 3 coordinates"):
        Spectral((2, 3), inputs=3, outputs=1)
    with pytest.raises(ModelError, match="count columns from 0"):
        Spectral(2, periodic=[2], inputs=2, outputs=1)


def test_clustered_points_have_chebyshevs_density_and_stay_on_faces():
    box = sciml.Box(x=(0, 4), t=(-1, 1))
    sample = clustered(draw(Interior(), box, 4096, np.random.default_rng(0)), box)
    shares = np.histogram(sample.points[0][:, 0].numpy(), [0, 1, 2, 3, 4])[0] / 4096
    np.testing.assert_allclose(shares, np.diff(np.arccos([1, 0.5, 0, -0.5, -1])) / np.pi, atol=0.01)
    face = clustered(draw(OnFaces((Face("x", "upper"),)), box, 64, np.random.default_rng(0)), box)
    assert bool((face.points[0][:, 0] == 4.0).all())
    evenly = PointSet((torch.tensor([[1.0, 0.3]], dtype=torch.float64),))
    assert clustered(evenly, box, around=[0]).points[0][0, 0] == 1.0


def test_every_place_gets_more_points_than_it_has_functions():
    problem = Ring()
    model = built((6, 8), 2, periodic=[0])
    layout = layout_of(model, problem)
    assert layout.inside >= model.basis.width
    assert layout.across["t"] >= 13  # waves up to the sixth


class Ring(sciml.Problem):
    """Diffusion around a ring."""

    domain = sciml.Box(x=(0, 2), t=(0, 0.5))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: torch.exp(torch.sin(math.pi * x))), sciml.Periodic("x")]

    @sciml.equation
    def diffusion(self, u, x, t):
        return d(u, t) - 0.1 * d(u, x, x)


class Growing(sciml.Problem):
    """A fast wave in t, a slow one in x."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(2 * x)),
        sciml.Dirichlet(u=lambda t: torch.sin(-40 * t), on=domain.face(x=0)),
    ]

    @sciml.equation
    def transport(self, u, x, t):
        return d(u, t) + 20 * d(u, x)

    def reference(self, x, t):
        return torch.sin(2 * (x - 20 * t))


def setup_of(problem):
    return prepare(problem, None, None, None, None, torch.float64, "cpu", 0)


def test_waves_only_where_all_fields_are_periodic():
    assert wave_columns(Ring()) == (0,)
    assert wave_columns(Growing()) == ()

    class Half(Ring):
        fields = ["u", "v"]
        conditions = [sciml.Initial(u=0.0, v=0.0), sciml.Periodic("x", "u")]

    assert wave_columns(Half()) == ()


def test_degrees_are_raised_where_they_are_missing():
    work = workspace(Growing())
    found = candidate(strategies.Spectral(), work)
    along_x, along_t = found.discrete.trial.model.degree
    assert along_t > 1.5 * along_x
    assert found.residual < 1e-9
    assert len(work.log.history) <= 8


def test_residuals_fall_exponentially_with_the_degree():
    problem, errors = Growing(), []
    for degree in (20, 28, 36, 44):
        found = sciml.fit(
            problem, Spectral((12, degree)), solver=sciml.LinearLeastSquares(), sampler=None, points=2000, tolerance=1.0
        )
        errors.append(found.error()["u"])
    rates = np.diff(np.log10(errors)) / 8
    assert bool((rates < -0.15).all())  # a digit for every seven degrees or fewer, once the wave is resolved


def test_a_step_is_not_called_resolved():
    """Polynomials converge slowly to what is not smooth, and the residual says so."""

    class Kinked(Growing):
        conditions = [
            sciml.Initial(u=lambda x: (x - 0.5).abs()),
            sciml.Dirichlet(u=lambda t: (-20 * t - 0.5).abs(), on=Growing.domain.face(x=0)),
        ]

    assert candidate(strategies.Spectral(), workspace(Kinked())).residual > 1e-5


def test_solutions_are_saved_and_loaded(tmp_path):
    solution = sciml.fit(Ring())
    assert isinstance(solution.model, Spectral)
    solution.save(tmp_path / "ring.sciml")
    again = sciml.load(tmp_path / "ring.sciml", Ring())
    x = np.linspace(0, 2, 7)
    np.testing.assert_array_equal(again(x=x, t=0.2)["u"], solution(x=x, t=0.2)["u"])


@pytest.mark.slow
def test_three_coordinates():
    class Plate(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.1))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x, y: torch.sin(math.pi * x) * torch.sin(math.pi * y)),
            sciml.Dirichlet(u=0.0, on=domain.boundary),
        ]

        @sciml.equation
        def conduction(self, u, x, y, t):
            return d(u, t) - d(u, x, x) - d(u, y, y)

        def reference(self, x, y, t):
            return torch.exp(-2 * math.pi**2 * t) * torch.sin(math.pi * x) * torch.sin(math.pi * y)

    solution = sciml.fit(Plate())
    assert solution.error()["u"] < 1e-8


def test_the_triangle_of_one_jacobian_gives_newtons_step_from_a_gradient():
    generator = torch.Generator().manual_seed(0)
    slopes = torch.randn(30, 8, dtype=torch.float64, generator=generator)
    rows = torch.randn(30, dtype=torch.float64, generator=generator)
    solve, chord, promised = factorised(rows, slopes)
    assert chord is not None
    step = solve(0.0)
    torch.testing.assert_close(chord(slopes.T @ rows), step)
    fall = rows @ rows - (rows + slopes @ step).square().sum()
    assert promised == pytest.approx(float(fall))


def test_a_stale_triangle_is_not_taken_for_convergence():
    """Where the Jacobian shrinks on the way an old one promises too little."""

    class Level(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=0.0)]

        @sciml.equation
        def height(self, u, t):
            return 0.3 + torch.nn.functional.softplus(u) + 0 * d(u, t)

    losses = []
    for tolerance in (0.0, 1e-12):
        solver = sciml.GaussNewton(30, rank_tolerance=tolerance)
        options = {"weights": {"initial": 1e-6}, "sampler": None, "points": 40, "tolerance": 10.0}
        losses.append(sciml.fit(Level(), Spectral(2), solver=solver, **options).history["loss"].iloc[-1])
    assert losses[0] < 1.05 * losses[1]


def test_a_condition_on_one_end_of_a_wave_gets_its_points():
    class Held(Ring):
        conditions = [*Ring.conditions, sciml.Dirichlet(u=lambda t: t, on=Ring.domain.face(x=0))]

    layout = layout_of(built((6, 8), 2, periodic=[0]), Held())
    draws = np.random.default_rng(0)
    face = layout.draw(OnFaces((Face("x", "lower"),)), Held.domain, draws)
    assert len(face.points[0]) >= 9
    assert len(layout.draw(Opposite("x"), Held.domain, draws).points[0]) == 2


def test_derivatives_of_high_degrees():
    """By sums of every other polynomial, as by a matrix: at the end they are powers of the degree."""
    ends = torch.tensor([-1.0, 0.3, 1.0], dtype=torch.float64)
    values, slopes, curvatures = chebyshev(ends, 300, 2)
    n = torch.arange(301, dtype=torch.float64)
    assert torch.allclose(values[1], (n * math.acos(0.3)).cos(), rtol=0, atol=1e-12)
    assert torch.allclose(slopes[2], n**2, rtol=1e-13)
    assert torch.allclose(slopes[0], n**2 * (-1) ** (n + 1), rtol=1e-13)
    assert torch.allclose(slopes[1], n * (n * math.acos(0.3)).sin() / math.sqrt(1 - 0.09), rtol=0, atol=1e-10)
    assert torch.allclose(curvatures[2], n**2 * (n**2 - 1) / 3, rtol=1e-13)
