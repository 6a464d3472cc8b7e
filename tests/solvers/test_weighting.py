"""Weights that follow from the state, and every strategy with every solver."""

import math

import numpy as np
import pytest
import torch
from conftest import problem_class

import sciml
from sciml import d
from sciml.errors import ProblemError, SolverError
from sciml.solvers import Objective, ResidualSystem
from sciml.solvers.weighting import gradient_norms, tangent_traces
from sciml.strategies.prepare import prepare


class Waves(sciml.Problem):
    """Poisson's equation whose source suggests a field of size 40 where it is 1: the walls outweigh it by far."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def poisson(self, u, x):
        return d(u, x, x) + (4 * torch.pi) ** 2 * torch.sin(4 * torch.pi * x)

    def reference(self, x):
        return torch.sin(4 * torch.pi * x)


class Ring(sciml.Problem):
    """A linear problem with an initial value and a periodic coordinate, for the matrix."""

    domain = sciml.Box(x=(0, 2), t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: torch.sin(torch.pi * x)), sciml.Periodic("x")]

    @sciml.equation
    def transport(self, u, x, t):
        return d(u, t) + d(u, x) - 0.1 * d(u, x, x)


def ready(problem, model=None, points=60):
    setup = prepare(problem, model or sciml.MLP(8), None, points, None, torch.float64, "cpu", 0)
    return setup, Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)


def weighted(objective):
    """An objective whose points inside have weights drawn at random."""
    generator = torch.Generator().manual_seed(3)
    objective.blocks = tuple(
        type(block)(block.sample, block.terms, torch.rand(block.size, generator=generator, dtype=torch.float64))
        for block in objective.blocks
    )
    return objective


# Weights of points


@pytest.mark.parametrize("taylor", [True, False])
def test_loss_gradient_and_jacobian_honour_the_weights_of_points(taylor):
    setup, objective = ready(problem_class("burgers")())
    objective.rows = ResidualSystem(setup.problem, setup.trial, setup.raw, taylor=taylor)
    weighted(objective)
    by_hand = 0.0
    for block in objective.blocks:
        for name, values in objective.rows.residuals([block]).items():
            squares = (values / objective.scales[name]) ** 2
            by_hand = by_hand + objective.weights[name] * (block.weights * squares).sum() / block.size
    loss, gradient, _ = objective.evaluate()
    rows, slopes = objective.linearised()
    assert float(loss) == pytest.approx(float(by_hand.detach()), rel=1e-13)
    assert objective.value() == pytest.approx(float(loss), rel=1e-13)
    assert float(rows @ rows) == pytest.approx(float(loss), rel=1e-12)
    assert torch.allclose(2 * slopes.T @ rows, gradient, rtol=1e-9, atol=1e-11 * float(gradient.abs().max()))
    plain = setup.rows.residuals(setup.held)
    for name, value in objective.terms(setup.held).items():
        assert torch.allclose(value, (plain[name] / setup.scales[name]).square().mean(), rtol=1e-12, atol=0)


def test_a_point_without_weight_does_not_count():
    _, objective = ready(problem_class("heat_rod")())
    block = objective.blocks[0]
    keep = torch.arange(block.size) % 2 == 0
    objective.blocks = (type(block)(block.sample, block.terms, 2.0 * keep.double()),)
    half = type(block.sample)((block.sample.points[0][keep],))
    expected = objective.terms([type(block)(half, block.terms)])["conduction"]
    assert torch.allclose(objective.terms()["conduction"], expected, rtol=1e-13, atol=0)


def test_new_points_do_not_inherit_the_weights_of_old_ones():
    _, objective = ready(problem_class("heat_rod")())
    weighted(objective)
    blocks = sciml.Adaptive().renewed(objective, np.random.default_rng(0))
    assert blocks[0].weights is None
    assert blocks[1].weights is not None


# Balanced


def test_pulls_are_those_computed_row_by_row():
    _, objective = ready(problem_class("heat_rod")(), points=40)
    weighted(objective)
    norms, traces = gradient_norms(objective), tangent_traces(objective)
    for block in objective.blocks:
        for name, values in objective.rows.residuals([block]).items():
            scaled = (values / objective.scales[name]) * block.weights.sqrt()
            rows = torch.stack(
                [
                    torch.cat(
                        [
                            part.reshape(-1)
                            for part in torch.autograd.grad(
                                row, objective.parameters, retain_graph=True, allow_unused=True, materialize_grads=True
                            )
                        ]
                    )
                    for row in scaled
                ]
            )
            assert traces[name] == pytest.approx(float(rows.square().sum() / len(rows)), rel=1e-10)
            assert norms[name] == pytest.approx(float((2 * scaled.detach() @ rows / len(rows)).norm()), rel=1e-10)


@pytest.mark.parametrize("method", ["gradient", "ntk"])
def test_balancing_equalises_what_it_measures(method):
    _, objective = ready(Waves(), sciml.MLP(16))
    measure = gradient_norms if method == "gradient" else tangent_traces
    before = [objective.weights[name] * pull for name, pull in measure(objective).items()]
    change = sciml.Balanced(method).renew(objective, first=True)
    after = [objective.weights[name] * pull for name, pull in measure(objective).items()]
    assert max(before) > 3 * min(before)
    assert max(after) < 1.05 * min(after)
    assert change > 0.1


def test_smoothing_keeps_its_share_of_the_old_weights():
    _, objective = ready(Waves(), sciml.MLP(16))
    old = dict(objective.weights)
    sciml.Balanced(smoothing=0.75).renew(objective)
    smooth = dict(objective.weights)
    objective.weights = dict(old)
    sciml.Balanced().renew(objective, first=True)
    for name, target in objective.weights.items():
        assert smooth[name] == pytest.approx(0.75 * old[name] + 0.25 * target, rel=1e-12)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_balancing_solves_what_fixed_weights_do_not(seed):
    options = {"solver": sciml.Adam(400, lr=2e-2), "points": 48, "seed": seed}
    fixed = sciml.fit(Waves(), sciml.MLP(24), **options)
    for method in ("gradient", "ntk"):
        balanced = sciml.fit(Waves(), sciml.MLP(24), weights=sciml.Balanced(method, every=20), **options)
        assert balanced.error()["u"] < 0.2 * fixed.error()["u"]
        weights = balanced.history["weight.poisson"]
        assert weights.nunique() > 5
        assert (weights > 10 * balanced.history["weight.dirichlet"]).all()


# Causal


def test_causal_weights_are_those_of_the_formula():
    problem = problem_class("heat_rod")()
    setup, objective = ready(problem, points=90)
    sciml.Causal(chunks=5, strength=0.7).renew(objective)
    inside, start, walls = objective.blocks
    residual = (setup.rows.residuals([inside])["conduction"] / setup.scales["conduction"]).detach().numpy()
    first = float((setup.rows.residuals([start])["initial"] / setup.scales["initial"]).detach().square().mean())
    time = inside.sample.points[0][:, 1].numpy()
    for point in range(len(time)):
        chunk = min(int(5 * time[point]), 4)
        before = [np.mean(residual[(time >= k / 5) & (time < (k + 1) / 5)] ** 2) for k in range(chunk)]
        assert float(inside.weights[point]) == pytest.approx(math.exp(-0.7 * (first + sum(before))), rel=1e-10)
    assert start.weights is None
    assert walls.weights is None


def test_causal_weights_with_all_points_in_the_last_chunk():
    """Chunks without points lose nothing, and are no division by zero."""
    _, objective = ready(problem_class("heat_rod")())
    block = objective.blocks[0]
    late = block.sample.points[0].clone()
    late[:, 1] = 1.0
    objective.blocks = (type(block)(type(block.sample)((late,)), block.terms), *objective.blocks[2:])
    sciml.Causal().renew(objective)
    assert bool((objective.blocks[0].weights == 1.0).all())


def test_causal_weights_keep_what_they_are_where_residuals_are_not_finite():
    _, objective = ready(problem_class("heat_rod")())
    with torch.no_grad():
        objective.parameters[0][0, 0] = math.nan
    sciml.Causal().renew(objective)
    assert objective.blocks[0].weights is None


def test_causal_weights_need_time():
    with pytest.raises(ProblemError, match="causal weights need a time coordinate, but Waves has 'x'"):
        sciml.fit(Waves(), sciml.MLP(4), causal=sciml.Causal())


@pytest.mark.parametrize("seed", [0, 1])
def test_causal_weights_solve_the_beginning_first(seed):
    """Without them the end, where the trivial solution is near, comes first."""
    problem = problem_class("harmonic_oscillator")()
    times = np.linspace(0, 4 * math.pi, 400)
    ratios = []
    for causal in (None, sciml.Causal()):
        solution = sciml.fit(
            problem, sciml.MLP(24), exact=True, causal=causal, solver=sciml.LBFGS(40, look=5), points=96, seed=seed
        )
        left = np.abs(problem.residuals(lambda t, of=solution: of(t=t), t=times)["newton"])
        ratios.append(left[:100].max() / left[300:].max())
    without, within = ratios
    assert within < 0.05
    assert without > 1


# Every strategy with every solver

STRATEGIES = {
    "exact": {"exact": True},
    "periodic": {"exact": sciml.HardConstraints(values=False)},
    "gradient": {"weights": sciml.Balanced("gradient", every=5)},
    "ntk": {"weights": sciml.Balanced("ntk", every=5)},
    "causal": {"causal": sciml.Causal(chunks=8, strength=0.3, every=2)},
    "adaptive": {"sampler": sciml.Adaptive(every=5)},
    "all": {
        "exact": True,
        "weights": sciml.Balanced(every=5),
        "causal": sciml.Causal(chunks=8, strength=0.3, every=2),
        "sampler": sciml.Adaptive(every=5),
    },
}
SOLVERS = {
    "Adam": (sciml.MLP(8), sciml.Adam(100, lr=2e-2, look=10)),
    "LBFGS": (sciml.MLP(8), sciml.LBFGS(20, look=5)),
    "LeastSquares": (sciml.MLP(8), sciml.LeastSquares(20, look=2)),
    "AdamW": (sciml.MLP(8), sciml.FirstOrder(torch.optim.AdamW, 100, lr=2e-2, look=10)),
    "LinearLeastSquares": (sciml.RandomFeatures(150, 1.5), sciml.LinearLeastSquares()),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_strategy_works_with_every_solver(strategy, solver):
    model, how = SOLVERS[solver]
    options = {"sampler": None, **STRATEGIES[strategy]}
    points = 200  # with 80 Levenberg-Marquardt finds a peak between them
    solution = sciml.fit(Ring(), model, solver=how, points=points, **options)
    setup = prepare(Ring(), model, None, points, None, torch.float64, "cpu", 0, options.get("exact", False))
    # The certificate counts every point alike, whatever the strategy did: the same points, the plain residuals.
    assert solution.status in ("budget", "converged")
    if solver == "LinearLeastSquares" and "exact" not in options:
        # As in the fit: kept jets of features round differently from jets by layers where large weights cancel.
        solution.model.layers[-1].requires_grad_()
    rows = ResidualSystem(Ring(), solution.trial, {})
    sizes = {}
    for name, values in rows.residuals(setup.fresh).items():
        sizes[name] = float(values.detach().square().mean().sqrt())
        assert solution.residuals.loc[name, "rms"] == pytest.approx(sizes[name], rel=1e-9, abs=1e-15)
    before = Objective(setup.rows, setup.fresh, setup.scales, setup.weights, setup.parameters).value()
    after = sum(setup.weights[name] * (sizes[name] / setup.scales[name]) ** 2 for name in sizes)
    assert after < 0.6 * before
    assert np.isfinite(solution.history.drop(columns="phase").dropna(axis=1, how="all").to_numpy(dtype=float)).all()
    if solver == "LinearLeastSquares":
        assert after < 1e-4 * before


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: sciml.Balanced("norm"), "method must be one of 'gradient', 'ntk'"),
        (lambda: sciml.Balanced(every=0), "every must be"),
        (lambda: sciml.Balanced(smoothing=1.0), "smoothing must be"),
        (lambda: sciml.Causal(chunks=0), "chunks and every must be"),
        (lambda: sciml.Causal(strength=-1.0), "strength must be positive"),
        (lambda: sciml.fit(Ring(), causal=True), r"causal must be sciml.Causal\(...\) or None; given: True"),
    ],
)
def test_wrong_settings_are_refused(wrong, error):
    with pytest.raises(SolverError, match=error):
        wrong()


def test_a_solver_that_has_converged_goes_on_when_the_weights_change():
    """A linear solve is finished in one step for any weights; the causal ones must be renewed before it counts."""
    solution = sciml.fit(
        Ring(),
        sciml.RandomFeatures(60, 1.5),
        solver=sciml.LinearLeastSquares(8),
        causal=sciml.Causal(strength=20.0, every=100),
        points=200,
        sampler=None,
    )
    causal = solution.history["causal"]
    assert causal.iloc[0] < 0.1
    assert causal.iloc[-1] > 0.9
