"""What happens while training goes wrong: numbers that are not finite, memory that runs out, losses that run away."""

import copy
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT
from torch import nn

import sciml
from sciml import d
from sciml.diagnostics.convergence import overfitted
from sciml.errors import SolverError
from sciml.solvers import Objective, batching as portions
from sciml.solvers.nonfinite import described
from sciml.strategies.prepare import prepare

INTERVAL = sciml.Interval(t=(0, 1))
EVERY_SOLVER = [
    sciml.Adam(40),
    sciml.FirstOrder(torch.optim.SGD, steps=40, lr=1e-2),
    sciml.FirstOrder(torch.optim.LBFGS, steps=10),
    sciml.FirstOrder(torch.optim.LBFGS, steps=10, line_search_fn="strong_wolfe"),
    sciml.LBFGS(40),
    sciml.SSBroyden(40),
    sciml.LeastSquares(40),
    sciml.GaussNewton(),
    sciml.LinearLeastSquares(),
]


def made(residual, domain=INTERVAL, conditions=None, **members):
    """A problem with one equation."""
    own = {"domain": domain, "fields": ["u"], "balance": sciml.equation(residual)}
    return type("Made", (sciml.Problem,), {**own, "conditions": conditions or [sciml.Initial(u=1.0)], **members})()


def objective_of(problem, model, points=64):
    setup = prepare(problem, model, None, points, None, torch.float64, "cpu", 0)
    return Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)


def finite(solution):
    return all(bool(torch.isfinite(value).all()) for value in solution.trial.state_dict().values())


def late(after):
    """A decay whose residual breaks on part of the domain once it was evaluated so many times with all of its points."""
    calls = []

    def residual(self, u, t):
        calls.append(len(t) == 64)
        broken = (t > 0.75) & (sum(calls) > after)
        return d(u, t) + 2.0 * u + torch.where(broken, torch.full_like(t, math.nan), torch.zeros_like(t))

    return made(residual)


@pytest.mark.parametrize("solver", EVERY_SOLVER, ids=lambda each: f"{each.name}-{getattr(each, 'options', {}) or ''}")
def test_fault_54_every_solver_ends_with_finite_parameters_and_names_term_and_points(solver):
    solution = sciml.fit(late(after=12), sciml.MLP(6), points=64, solver=solver, sampler=None)
    assert solution.status == "diverged"
    assert not solution.success
    assert finite(solution)
    assert "the residual 'balance' is not finite at 16 of 64 points, first at t = 0." in solution.message
    assert "u_t = " in solution.message


def test_fault_54_the_best_state_is_restored_bit_for_bit():
    """Nothing is finite but in a narrow tube around what the first solver found, too narrow for the least of steps."""
    first = sciml.LBFGS(10)
    good = sciml.fit(made(lambda self, u, t: d(u, t) + 2.0 * u), sciml.MLP(6), points=64, solver=first, sampler=None)
    narrow = []

    def tube(self, u, t):
        inside = (u - good.trial(t.detach()[:, None])[:, 0]).abs() < 1e-12
        wall = torch.where(inside, torch.zeros_like(t), torch.full_like(t, math.inf))
        return d(u, t) + 2.0 * u + (wall if narrow else 0.0)

    solvers = [first, sciml.FirstOrder(torch.optim.SGD, steps=200, lr=1.0, look=1)]
    solution = sciml.fit(
        made(tube),
        sciml.MLP(6),
        points=64,
        solver=solvers,
        sampler=None,
        early_stopping=None,
        callbacks=[lambda look: narrow.append(look) and None],
    )
    assert solution.status == "diverged"
    assert "the learning rate was halved 20 time(s)" in solution.message
    assert "the residual 'balance' is not finite" in solution.message
    for name, value in solution.trial.state_dict().items():
        assert torch.equal(value, good.trial.state_dict()[name])
    assert list(dict.fromkeys(solution.history["phase"])) == ["LBFGS", "SGD"]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS])
def test_fault_54_a_smaller_step_is_tried_first(optimizer):
    """Far too large a rate leads to where an exponential overflows; halved a few times it does not, and the fit goes on."""

    def residual(self, u, t):
        return d(u, t) + 2.0 * u + 1e-3 * torch.expm1(20 * u * u)

    solver = sciml.FirstOrder(optimizer, steps=10 if optimizer is torch.optim.LBFGS else 60, lr=50.0, look=5)
    solution = sciml.fit(made(residual), sciml.MLP(6), points=64, solver=solver, sampler=None)
    assert solution.status != "diverged"
    assert finite(solution)
    (note,) = [choice for choice in solution.choices if "halved" in choice]
    assert note.startswith(f"{optimizer.__name__}: the learning rate was halved ")
    assert "residual 'balance'" in note
    assert solution.history["loss"].iloc[-1] < 1e3


def test_moments_stay_finite_and_a_resumed_run_goes_on_bitwise():
    def residual(self, u, t):
        return d(u, t) + 2.0 * u + 1e-3 * torch.expm1(20 * u * u)

    solver = sciml.FirstOrder(torch.optim.Adam, steps=60, lr=50.0)
    one, other = (objective_of(made(residual), sciml.MLP(6)) for _ in range(2))
    run = solver.start(one)
    for _ in range(5):
        assert run.step().done is None
    state = copy.deepcopy(run.state_dict())
    assert state["share"] < 1.0
    for moments in state["optimizer"]["state"].values():
        assert all(bool(torch.isfinite(value).all()) for value in moments.values())
    again = solver.start(other)
    other.assign(one.vector())
    again.load_state_dict(state)
    for _ in range(5):
        assert float(run.step().loss) == float(again.step().loss)
    assert torch.equal(one.vector(), other.vector())


def test_a_scheduler_keeps_its_course_while_steps_are_shortened():
    def residual(self, u, t):
        return d(u, t) + 2.0 * u + 1e-3 * torch.expm1(20 * u * u)

    schedule = {"scheduler": torch.optim.lr_scheduler.LambdaLR, "scheduler_options": {"lr_lambda": lambda k: 0.9**k}}
    run = sciml.FirstOrder(torch.optim.SGD, steps=9, lr=50.0, **schedule).start(objective_of(made(residual), sciml.MLP(6)))
    for _ in range(4):
        run.step()
    state = run.state_dict()
    assert state["share"] < 1.0
    assert state["optimizer"]["param_groups"][0]["lr"] == pytest.approx(50.0 * 0.9**4, rel=1e-12)


def at_half(residual):
    """The culprit of a problem whose field is 1/2 at t = 1/2, where a point lies, and linear."""

    class Line(nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

        def forward(self, points):
            return 0.5 * self.slope * (points + 1)

    objective = objective_of(made(residual), Line(), 4)
    block = objective.blocks[0]
    points = torch.tensor([[0.25], [0.5], [0.75], [1.0]], dtype=torch.float64)
    sample = type(block.sample)((points,))
    scaled = objective.rows.trial
    with torch.no_grad():
        scaled.scale.fill_(1.0)
        scaled.offset.zero_()
    objective.blocks = (type(block)(sample, block.terms), *objective.blocks[1:])
    return objective


@pytest.mark.parametrize(
    ("residual", "jet"),
    [
        (lambda self, u, t: d(u, t) + torch.sqrt(u - 0.5 + (t < 0.5) * 1.0), "u"),
        (lambda self, u, t: d(u, t) + torch.where(u > 0.5, torch.sqrt((u - 0.5).clamp(min=0)), u), "u"),
        (lambda self, u, t: u + torch.sqrt((d(u, t) - 1.0) * (t - 0.5).abs().sign() + 1.0 - (t == 0.5) * 1.0), "u_t"),
    ],
    ids=["sqrt", "where", "derivative"],
)
def test_fault_55_a_gradient_that_is_not_finite_names_term_point_and_derivative(residual, jet):
    objective = at_half(residual)
    loss, gradient, _ = objective.evaluate()
    assert math.isfinite(float(loss))
    assert not bool(torch.isfinite(gradient).all())
    found = described(objective, "")
    assert f"the residual 'balance' is finite, but its derivative by {jet} is not finite at" in found
    assert re.search(r"at \d of 4 points, first at t = 0\.2?5 ", found)
    assert "torch.where differentiates both" in found


def test_fault_55_an_activation_with_a_bad_derivative_is_named():
    class Rooted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

        def forward(self, points):
            return torch.sqrt((self.weight * points - 0.5).abs())

    objective = objective_of(made(lambda self, u, t: u - 1.0), Rooted(), 8)
    block = objective.blocks[0]
    points = torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
    # The model sees [-1, 1]: three quarters of the way lies the end of its root.
    points[5] = 0.75
    objective.blocks = (type(block)(type(block.sample)((points,)), block.terms),)
    found = described(objective, "")
    assert found.startswith(
        "the residual 'balance' is finite, but its gradient by the parameters is not finite at 1 of 1 points"
    )
    assert "first at t = 0.75" in found


@pytest.mark.parametrize("solver", [sciml.Adam(5), sciml.LBFGS(5), sciml.LeastSquares(5), sciml.GaussNewton()])
def test_fault_55_fit_says_so(solver):
    """The start of the field is exactly zero wherever the model is: the slope of the root there is not a number."""
    problem = made(lambda self, u, t: d(u, t) + torch.sqrt(u * u), conditions=[sciml.Initial(u=0.0)])
    zero = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    nn.init.zeros_(zero[-1].weight)
    nn.init.zeros_(zero[-1].bias)
    solution = sciml.fit(problem, zero, points=16, solver=solver)
    assert solution.status == "diverged"
    assert "the residual 'balance' is finite, but its derivative by u is not finite at 16 of 16 points" in solution.message


def test_unknowns_with_a_bad_derivative_are_named():
    problem = made(lambda self, u, t: d(u, t) + u * torch.sqrt(self.k - 0.25), k=sciml.Unknown(0.25))
    found = described(objective_of(problem, sciml.MLP(4), 8), "")
    assert "its derivative by k is not finite at 8 of 8 points" in found


def test_a_loss_that_grows_without_bound_is_divergence():
    """An optimizer of the user's own without a learning rate that could be halved, which climbs."""

    class Climber(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self, closure):
            loss = closure()
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter.add_(parameter.grad, alpha=3.0)
            return loss

    solver = sciml.FirstOrder(Climber, steps=300, look=5)
    solution = sciml.fit(made(lambda self, u, t: d(u, t) + 2 * u + u**3), sciml.MLP(6), points=64, solver=solver)
    assert solution.status == "diverged"
    assert "the loss grew to" in solution.message
    assert finite(solution)
    assert solution.nit < 300


def test_a_search_without_settings_says_what_is_not_finite():
    square = sciml.Box(x=(0, 1), y=(0, 1))
    hole = made(
        lambda self, u, x, y: d(u, x, x) + d(u, y, y) + torch.sqrt(x - 0.125),
        square,
        [sciml.Dirichlet(u=0.0, on=square.boundary)],
    )
    solution = sciml.fit(hole, preflight="off")
    assert (solution.status, solution.success) == ("diverged", False)
    assert "the residual 'balance' is not finite at 600 of 4800 points" in solution.message


class Held:
    """Memory for so many points at a time, as a supplier of jets meets it."""

    def __init__(self, monkeypatch, most, error):
        self.most, self.error, self.refused, self.largest = most, error, 0, 0
        from sciml.solvers import ResidualSystem

        original = ResidualSystem.supplier

        def supplier(rows, points, *rest):
            if len(points) > self.most:
                self.refused += 1
                raise self.error
            self.largest = max(self.largest, len(points))
            return original(rows, points, *rest)

        monkeypatch.setattr(ResidualSystem, "supplier", supplier)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"),
    MemoryError(),
]


class Heat(sciml.Problem):
    """With a mean, measurements' weights and conditions: blocks of every kind."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    k = sciml.Unknown(0.5, lower=0)
    conditions = [sciml.Initial(u=lambda x: torch.sin(3 * x)), sciml.Mean(u=0.3), sciml.Periodic("x", "u")]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)


def heat_objective():
    generator = np.random.default_rng(0)
    data = {"x": generator.random(70), "t": generator.random(70), "u": generator.random(70)}
    setup = prepare(Heat(), sciml.MLP(6, 6), data, 301, None, torch.float64, "cpu", 0)
    blocks = list(setup.train)
    weights = torch.from_numpy(generator.random(blocks[0].size))
    blocks[0] = type(blocks[0])(blocks[0].sample, blocks[0].terms, weights)
    return Objective(setup.rows, blocks, setup.scales, setup.weights, setup.parameters)


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
def test_fault_56_smaller_portions_have_the_same_sums(monkeypatch, error):
    objective = heat_objective()
    loss, gradient, terms = objective.evaluate()
    rows, slopes = objective.linearised()
    value, worst, pulls = objective.value(), objective.worst(), objective.pulls()
    memory = Held(monkeypatch, 40, error)
    small_loss, small_gradient, small_terms = objective.evaluate()
    assert float(small_loss) == pytest.approx(float(loss), rel=1e-14)
    assert torch.allclose(small_gradient, gradient, rtol=0, atol=1e-14 * float(gradient.abs().max()))
    assert small_terms.keys() == terms.keys()
    for name, each in terms.items():
        assert float(small_terms[name]) == pytest.approx(float(each), rel=1e-14)
    refused = memory.refused
    assert 0 < refused <= 8
    small_rows, small_slopes = objective.linearised()
    assert torch.allclose(small_rows, rows, rtol=0, atol=1e-14 * float(rows.abs().max()))
    assert torch.allclose(small_slopes, slopes, rtol=0, atol=1e-14 * float(slopes.abs().max()))
    assert objective.value() == pytest.approx(value, rel=1e-14)
    assert objective.worst() == pytest.approx(worst, rel=1e-14)
    for name, pull in objective.pulls().items():
        assert torch.allclose(pull, pulls[name], rtol=0, atol=1e-14 * float(pulls[name].abs().max()))
    # It is remembered: nothing was tried again that had failed.
    assert memory.refused == refused
    assert memory.largest > 20


@pytest.mark.parametrize("solver", [sciml.Adam(6), sciml.LBFGS(6), sciml.LeastSquares(3), sciml.GaussNewton(3)])
def test_fault_56_a_fit_goes_on_and_says_so(monkeypatch, solver):
    problem = made(lambda self, u, t: d(u, t) + 2.0 * u)
    options = {"points": 100, "solver": solver, "weights": sciml.Balanced(every=3)}
    whole = sciml.fit(problem, sciml.MLP(6), **options)
    Held(monkeypatch, 30, ERRORS[0])
    solution = sciml.fit(problem, sciml.MLP(6), **options)
    assert any("at most 25 were taken at a time, with the same sums" in choice for choice in solution.choices)
    assert solution.residuals.loc["balance", "rms"] == pytest.approx(whole.residuals.loc["balance", "rms"], rel=1e-6)
    assert solution(t=0.5)["u"] == pytest.approx(whole(t=0.5)["u"], rel=1e-8)


def test_fault_56_then_an_error_of_ours(monkeypatch):
    def starve(_):
        Held(monkeypatch, 0, ERRORS[1])

    with pytest.raises(SolverError, match=r"even for one point at a time .*DefaultCPUAllocator.*sciml\.Adam\(batch=\.\.\.\)"):
        sciml.fit(
            made(lambda self, u, t: d(u, t) + u),
            sciml.MLP(4),
            solver=sciml.Adam(3, look=1),
            points=9,
            callbacks=[starve],
        )


def test_fault_56_predictions_and_dense_matrices(monkeypatch):
    solution = sciml.fit(made(lambda self, u, t: d(u, t) + u), sciml.MLP(4), solver=sciml.Adam(3), points=9)
    t = np.linspace(0, 1, 40_000)
    expected = solution(t=t)["u"]
    forward, sizes = type(solution.trial).forward, []

    def limited(self, points):
        if len(points) > 5000:
            raise ERRORS[0]
        sizes.append(len(points))
        return forward(self, points)

    monkeypatch.setattr(type(solution.trial), "forward", limited)
    assert np.array_equal(solution(t=t)["u"], expected)
    assert max(sizes) == 4096
    with (
        pytest.raises(SolverError, match="memory does not suffice for a dense Jacobian of 3 rows by 4"),
        portions.named("a dense Jacobian of 3 rows by 4 parameters"),
    ):
        raise ERRORS[1]
    with pytest.raises(RuntimeError, match="shapes"), portions.named("a step"):
        raise RuntimeError("shapes differ")


def crowded():
    """An objective at 60,000 points, which asks for some hundreds of megabytes."""
    objective = heat_objective()
    block = objective.blocks[0]
    points = torch.rand(60_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    objective.blocks = (type(block)(type(block.sample)((points,)), block.terms),)
    return objective


@pytest.mark.slow
def test_fault_56_a_real_allocator():
    """A process that may not have the memory of one large evaluation ends with the loss of one that may."""
    script = (
        "import resource, torch\n"
        "from test_guards import crowded\n"
        "torch.set_num_threads(1)\n"
        "objective = crowded()\n"
        "objective.evaluate([objective.blocks[0].part(torch.arange(8))])\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 16 * 2**20,) * 2)\n"
        "loss, gradient, _ = objective.evaluate()\n"
        "print(objective.rows.portion.size, repr(float(loss)), repr(float(gradient.norm())))\n"
    )
    environment = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'tests' / 'solvers'}",
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",
    }
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    size, *numbers = run.stdout.split()
    assert 1 < int(size) < 60_000
    loss, gradient, _ = crowded().evaluate()
    assert float(numbers[0]) == pytest.approx(float(loss), rel=1e-13)
    assert float(numbers[1]) == pytest.approx(float(gradient.norm()), rel=1e-12)


def looks(losses, held, phase="Adam"):
    return [
        {"phase": phase, "step": 50 * (k + 1), "loss": loss, "held_out": other}
        for k, (loss, other) in enumerate(zip(losses, held, strict=True))
    ]


def test_overfitting_is_named_and_scatter_is_not():
    falling = [2.0**-k for k in range(14)]
    rising = [1.0, 0.5, 0.3, 0.2, 0.1, *[0.4 + 0.1 * k for k in range(9)]]
    (sentence,) = overfitted(looks(falling, rising))
    assert "after step 250" in sentence
    assert "sampler=sciml.Adaptive()" in sentence
    assert overfitted(looks(falling, falling)) == []
    assert overfitted(looks(falling, [*rising[:-1], 0.1])) == []
    assert overfitted(looks([1.0] * 14, rising)) == []
    assert overfitted([]) == []


class Polynomial(nn.Module):
    """Powers of the scaled time, all coefficients zero at first."""

    def __init__(self, degree):
        super().__init__()
        self.coefficients = nn.Parameter(torch.zeros(degree + 1, dtype=torch.float64))

    def forward(self, points):
        return points ** torch.arange(len(self.coefficients)) @ self.coefficients[:, None]


@pytest.mark.parametrize("seed", range(3))
def test_fit_reports_overfitting(seed):
    """Ten points and eleven coefficients: the interpolant of a fast oscillation lies far off between the points."""
    problem = made(lambda self, u, t: d(u, t) - 2 * t - torch.cos(200 * t))
    solver = sciml.LBFGS(400, look=1)
    solution = sciml.fit(problem, Polynomial(10), points=10, solver=solver, sampler=None, early_stopping=None, seed=seed)
    assert "while that on held-out points rose from" in solution.message
    assert not solution.success
    held = solution.history["held_out"]
    assert held.iloc[-5:].min() > 10 * held.min()


def test_too_small_a_rate_is_named():
    problem = made(lambda self, u, t: d(u, t) + 2.0 * u)
    solution = sciml.fit(problem, sciml.MLP(6), points=32, solver=sciml.Adam(60, lr=1e-9, look=5))
    assert not solution.success
    assert "the loss stood still at" in solution.message
    assert "use a larger learning rate" in solution.message


def test_a_loss_that_still_fell_is_named():
    problem = made(lambda self, u, t: d(u, t) + 2.0 * u)
    solution = sciml.fit(problem, sciml.MLP(6), points=32, solver=sciml.FirstOrder(torch.optim.Adam, 60, lr=5e-3, look=5))
    assert not solution.success
    assert "the loss was still falling" in solution.message


def test_terms_that_contradict_each_other_are_named():
    problem = made(
        lambda self, u, t: d(u, t), conditions=[sciml.Initial(u=1.0), sciml.Dirichlet(u=-1.0, on=INTERVAL.face(t=1))]
    )
    with pytest.warns(sciml.ConditionWarning, match="too many conditions"):
        solution = sciml.fit(problem, sciml.MLP(6), points=32, solver=sciml.LBFGS(300, look=10))
    assert not solution.success
    assert "pull against one another" in solution.message


class Rod(sciml.Problem):
    """A cooling rod, which notes where it is asked."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: torch.sin(math.pi * x)), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def heat(self, u, x, t):
        seen = type(self).seen
        if seen is not None and len(x) == 64:
            seen.append(x.detach().clone())
        return d(u, t) - d(u, x, x)

    seen = None


@pytest.mark.parametrize(("rate", "words"), [(0.86, "though they still fall"), (1.0, "and neither falls")])
@pytest.mark.parametrize("value", [0.0, 5.0])
def test_terms_that_pull_apart_are_judged_by_their_own_history(rate, words, value):
    """Only conditions that were found to contradict each other are said to."""
    from sciml.diagnostics.convergence import _opposed
    from sciml.strategies.prepare import prepare

    class Cooled(Rod):
        conditions = [
            sciml.Initial(u=lambda x: torch.sin(math.pi * x)),
            sciml.Dirichlet(u=value, on=Rod.domain.faces("x")),
        ]

    setup = prepare(Cooled(), sciml.MLP(4), None, 32, None, torch.float64, "cpu", 0)
    looks = [{"initial": rate**k, "dirichlet": rate**k} for k in range(8)]
    pull = torch.tensor([1.0, 0.0], dtype=torch.float64)
    (sentence,) = _opposed(setup, looks, {"initial": pull, "dirichlet": -pull}, 0 * pull)
    assert words in sentence
    assert ("they contradict each other" in sentence) == (value != 0.0)


def test_a_loss_that_falls_by_a_tenth_a_look_still_falls():
    from sciml.diagnostics.convergence import stagnant
    from sciml.strategies.prepare import prepare

    setup = prepare(Rod(), sciml.MLP(4), None, 32, None, torch.float64, "cpu", 0)
    looks = [{"phase": "Adam", "loss": 0.92**k} for k in range(5)]
    assert "the loss was still falling" in stagnant(setup, looks)[0]


def seen_by_fit(**options):
    """A solution, and every set of 64 points at which its equation was evaluated on the way."""
    Rod.seen = []
    try:
        solution = sciml.fit(Rod(), sciml.MLP(6), points=64, **options)
        return solution, Rod.seen
    finally:
        Rod.seen = None


def kept(seen):
    """How often each set of points was evaluated."""
    counts = {}
    for points in seen:
        key = tuple(points.tolist())
        counts[key] = counts.get(key, 0) + 1
    return counts


RESAMPLED = [
    {"solver": sciml.Adam(40, look=40), "sampler": sciml.Adaptive(every=10)},
    {"solver": sciml.LBFGS(40, look=40), "sampler": sciml.Adaptive(every=10)},
    {"solver": sciml.SSBroyden(40, look=40), "sampler": sciml.Adaptive(every=10)},
    {"solver": sciml.LeastSquares(40, look=40), "sampler": sciml.Adaptive(every=10)},
    {"solver": sciml.Adam(40, look=40), "sampler": sciml.Adaptive(every=10), "causal": sciml.Causal(every=5)},
    {"solver": sciml.Adam(40, look=40), "sampler": sciml.Adaptive(every=10), "weights": sciml.Balanced(every=5)},
]


@pytest.mark.parametrize("options", RESAMPLED, ids=lambda each: f"{each['solver'].name}{'-'.join(sorted(each)[2:])}")
def test_fault_57_fit_trains_on_other_points_after_each_redraw(options):
    solution, seen = seen_by_fit(early_stopping=None, **options)
    # Those that are trained on are evaluated again and again; a redraw comes after steps 10, 20, 30 and 40.
    trained = [points for points, count in kept(seen).items() if count >= 5]
    assert solution.nit == 40
    assert len(trained) >= 4
    for place, one in enumerate(trained):
        for other in trained[:place]:
            assert not set(one) & set(other), "a redrawn set shares points with another"


@pytest.mark.parametrize("solver", [sciml.Adam(40, look=40), sciml.LBFGS(40, look=40)])
def test_fault_57_points_stay_where_nobody_asks_for_others(solver):
    _, seen = seen_by_fit(early_stopping=None, solver=solver, sampler=None)
    trained = [points for points, count in kept(seen).items() if count >= 5]
    assert len(trained) == 1


def test_fault_57_by_default_points_move_in_two_coordinates():
    _, seen = seen_by_fit(early_stopping=None, solver=sciml.Adam(220, look=220))
    assert len([points for points, count in kept(seen).items() if count >= 15]) >= 2


def test_fault_57_batches_of_a_step_are_drawn_anew():
    class Small(Rod):
        batches = []

        @sciml.equation
        def heat(self, u, x, t):
            if len(x) == 13:
                self.batches.append(tuple(x.tolist()))
            return d(u, t) - d(u, x, x)

    sciml.fit(Small(), sciml.MLP(6), points=64, solver=sciml.Adam(10, batch=13), sampler=None)
    assert len(set(Small.batches)) == 10


@pytest.mark.parametrize("draw", ["renewed", "enriched"])
def test_fault_57_every_sampler_moves_points(draw):
    from sciml.solvers.adaptive_sampling import enriched

    setup = prepare(Rod(), sciml.MLP(6), None, 64, None, torch.float64, "cpu", 0)
    generator = np.random.default_rng(0)
    blocks, sets = setup.train, [set(map(tuple, setup.train[0].sample.points[0].tolist()))]
    for _ in range(4):
        if draw == "renewed":
            blocks = sciml.Adaptive().renewed(setup.objective(blocks), generator)
            points = set(map(tuple, blocks[0].sample.points[0].tolist()))
            assert len(points) == 64
            assert not any(points & before for before in sets)
        else:
            blocks = enriched(setup.objective(blocks), generator)
            points = set(map(tuple, blocks[0].sample.points[0].tolist()))
            assert sets[-1] < points
        inside = setup.problem.domain.contains(blocks[0].sample.points[0].numpy())
        assert inside.all()
        sets.append(points)
    layouts = [setup.draw(64, np.random.default_rng(seed))[0].sample.points[0] for seed in (1, 2)]
    assert not set(map(tuple, layouts[0].tolist())) & set(map(tuple, layouts[1].tolist()))


@pytest.mark.parametrize(
    "options",
    [
        {"windows": 2, "solver": sciml.LBFGS(10)},
        {"windows": 2, "solver": [sciml.Adam(5), sciml.Polish()]},
        {"solver": [sciml.LBFGS(5), sciml.Polish()]},
        {"causal": sciml.Causal(), "solver": sciml.Adam(5)},
        {"weights": sciml.Balanced("ntk"), "solver": sciml.Adam(5)},
        {"exact": True, "solver": sciml.LBFGS(5)},
    ],
    ids=["windows", "windows polished", "polish", "causal", "balanced", "exact"],
)
def test_fault_54_with_every_strategy(options):
    problem = made(lambda self, u, t: d(u, t) + 2.0 * u + torch.where(t > 0.25, torch.sqrt(0.0 * t - 1.0), 0.0 * t))
    solution = sciml.fit(problem, sciml.MLP(6), points=64, preflight="off", **options)
    assert (solution.status, solution.success) == ("diverged", False)
    assert "the residual 'balance' is not finite at" in solution.message
    assert finite(solution)


def test_fault_54_tiles_with_measurements():
    generator = np.random.default_rng(0)
    x, t = generator.random((2, 40))
    box = sciml.Box(x=(0, 1), t=(0, 1))

    def burgers(self, u, x, t):
        return d(u, t) + self.speed * u * d(u, x) - 0.1 * d(u, x, x) + torch.where(x > 0.5, torch.sqrt(0.0 * x - 1.0), 0.0 * x)

    problem = made(burgers, box, [sciml.Initial(u=lambda x: torch.sin(3 * x))], speed=sciml.Unknown(0.5))
    solution = sciml.fit(problem, data={"x": x, "t": t, "u": np.sin(3 * x)}, preflight="off")
    assert (solution.status, solution.success) == ("diverged", False)
    assert "the residual 'balance' is not finite at" in solution.message
