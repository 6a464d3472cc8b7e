"""Constants promoted to coordinates: solved once for a range, evaluated at values, a beginning for what comes after."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import sciml
import sciml.uncertainty
from sciml import d
from sciml.errors import BaselineError, ProblemError


class Decay(sciml.Problem):
    """u = start e^(-rate t)."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    rate, start = 2.0, 1.0
    conditions = [sciml.Initial(u=lambda self: self.start)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.rate * u

    def reference(self, t):
        return self.start * torch.exp(-self.rate * t)


class Rod(sciml.Problem):
    """Heat in a rod that loses it at its end: kinds of conditions with a constant in them."""

    domain = sciml.Box(x=(0, 1), t=(0, 0.5))
    fields = ["u"]
    k, flux = 0.3, 1.0
    conditions = [
        sciml.Initial(u=lambda self, x: self.flux * (x + torch.cos(torch.pi * x / 2))),
        sciml.Dirichlet(u=lambda self, t: self.flux * torch.exp(-self.k * (torch.pi / 2) ** 2 * t), on=domain.face(x=0)),
        sciml.Neumann(
            u=lambda self, t: self.flux * (1 - torch.pi / 2 * torch.exp(-self.k * (torch.pi / 2) ** 2 * t)),
            on=domain.face(x=1),
        ),
    ]

    @sciml.equation
    def conduction(self, u, x, t):
        return d(u, t) - d(self.k * d(u, x), x)

    def reference(self, x, t):
        return self.flux * (x + torch.exp(-self.k * (math.pi / 2) ** 2 * t) * torch.cos(torch.pi * x / 2))


class Ring(sciml.Problem):
    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    speed = 1.0
    conditions = [sciml.Initial(u=lambda x: torch.sin(2 * torch.pi * x)), sciml.Periodic("x")]

    @sciml.equation
    def transport(self, u, x, t):
        return d(u, t) + self.speed * d(u, x)

    def reference(self, x, t):
        return torch.sin(2 * torch.pi * (x - self.speed * t))


@pytest.fixture(scope="module")
def decays():
    return sciml.fit(Decay().promote(rate=(1, 3), start=(0.5, 2)))


@pytest.mark.parametrize(
    ("problem", "values"),
    [
        (Decay().promote(rate=(1, 3)), {"rate": 1.7}),
        (Rod().promote(k=(0.2, 0.5)), {"k": 0.37}),
        (Rod(k=0.25).promote(flux=(1, 2)), {"flux": 1.2}),
        (Ring().promote(speed=(0.5, 1.0)), {"speed": 0.81}),
    ],
    ids=["rate", "k", "flux", "speed"],
)
def test_a_fit_solves_for_all_values(problem, values):
    solution = sciml.fit(problem)
    assert solution.success
    assert solution.error(resolution=15)["u"] < 1e-8
    one = solution.at(**values)
    assert one.success
    assert one.error()["u"] < 1e-8
    assert type(one.model) is type(solution.model)
    assert one.coordinates == problem.coordinates[:-1]
    (value,) = values.values()
    at = {name: [np.mean(ends)] for name, ends in one.bounds.items()}
    assert one(**at)["u"] == pytest.approx(solution(**at, **values)["u"], rel=1e-12)
    assert repr(one.problem).endswith(f"{value})")


def test_nonlinear_problems_in_windows_of_time():
    class Logistic(Decay):
        reference = None

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) - self.rate * u * (1 - u)

    solution = sciml.fit(Logistic(start=0.5).promote(rate=(1, 3)))
    assert solution.solver == "windows"
    one = solution.at(rate=2.2)
    assert one.success
    exact = lambda t: 1 / (1 + np.exp(-2.2 * t))  # noqa: E731
    assert one.error(exact)["u"] < 1e-8


def test_several_constants_taken_one_by_one(decays):
    half = decays.at(start=0.7)
    assert repr(half.problem) == "Decay(start=0.7).promote(rate=(1.0, 3.0))"
    assert half.error(resolution=20)["u"] < 1e-10
    both, at_once = half.at(rate=2.5), decays.at(rate=2.5, start=0.7)
    times = np.linspace(0, 1, 9)
    assert both(t=times)["u"] == pytest.approx(at_once(t=times)["u"], rel=1e-12)
    assert both.problem.constants == {"rate": 2.5, "start": 0.7}


@pytest.mark.parametrize(
    "model",
    [
        sciml.MLP(8, 8),
        sciml.RandomFeatures(60, (2.0, 1.0)),
        sciml.Spectral(8),
        torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).double(),
    ],
    ids=["network", "features", "products", "module of one's own"],
)
@pytest.mark.parametrize("exact", [False, True])
def test_every_kind_of_model_is_taken_at_a_value_and_saved(tmp_path, model, exact):
    problem = Decay().promote(rate=(1, 3))
    solution = sciml.fit(problem, model, solver=sciml.LeastSquares(12), points=150, sampler=None, exact=exact)
    one, times = solution.at(rate=2.0), np.linspace(0, 1, 7)
    wanted = solution(t=times, rate=2.0)["u"]
    assert one(t=times)["u"] == pytest.approx(wanted, rel=1e-12)
    again = sciml.load(solution.save(tmp_path / "all.pt"), problem, model)
    assert again.at(rate=2.0)(t=times)["u"] == pytest.approx(wanted, rel=1e-12)
    loaded = sciml.load(one.save(tmp_path / "one.pt"), Decay(), model)
    assert loaded(t=times)["u"] == pytest.approx(wanted, rel=1e-12)
    assert loaded.embed({"t": times}).shape[0] == 7 if isinstance(model, sciml.MLP) else True


def test_periodic_inputs_are_kept():
    problem = Ring().promote(speed=(0.5, 1.0))
    solution = sciml.fit(problem, sciml.MLP(8), exact=True, solver=sciml.LeastSquares(5), points=200, sampler=None)
    one = solution.at(speed=0.6)
    assert one(x=0.0, t=0.4)["u"] == pytest.approx(one(x=1.0, t=0.4)["u"], abs=1e-12)
    assert one(x=0.2, t=0.4)["u"] == pytest.approx(solution(x=0.2, t=0.4, speed=0.6)["u"], rel=1e-12)


def test_beyond_the_range_the_certificate_tells(decays):
    assert decays.at(rate=3.1, start=1.0).success
    far = decays.at(rate=9.0, start=1.0)
    assert not far.success
    assert far.estimated_error == {}
    assert decays.at(rate=2.5).estimated_error == decays.estimated_error != {}
    assert "at rate = 9" in far.message
    assert "start=this solution" in far.message


def test_numbers_beside_tensors_keep_all_their_digits(decays):
    time = torch.tensor(0.3, dtype=torch.float64)
    beside, alone = (decays(t=each, rate=1.7, start=0.9)["u"] for each in (time, 0.3))
    assert float(beside.detach()) == pytest.approx(float(alone), rel=1e-14)


def test_sensitivities_are_those_of_finite_differences_and_the_truth(decays):
    rate = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(decays(t=0.7, rate=rate, start=1.0)["u"].sum(), rate)
    step = 1e-4
    ends = [decays(t=0.7, rate=2.0 + sign * step, start=1.0)["u"] for sign in (1, -1)]
    assert float(slope) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-7)
    assert float(slope) == pytest.approx(-0.7 * math.exp(-1.4), rel=1e-9)


def test_equations_may_contain_derivatives_by_the_constant():
    """The sensitivity as a field of its own: s = du/drate."""

    class Sensitive(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u", "s"]
        rate = 2.0
        conditions = [sciml.Initial(u=1.0)]

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) + self.rate * u

        @sciml.equation
        def sensitivity(self, u, s):
            return s - d(u, self.rate)

    solution = sciml.fit(Sensitive().promote(rate=(1, 2)))
    assert float(solution(t=0.7, rate=1.5)["s"]) == pytest.approx(-0.7 * math.exp(-1.05), rel=1e-8)


def test_measurements_with_a_column_of_the_constant():
    """What is common to experiments at several rates is estimated from all of them."""
    problem = Decay(start=sciml.Unknown(0.8, lower=0)).promote(rate=(1, 3))
    assert list(problem.unknowns) == ["start"]
    times, rates = (each.ravel() for each in np.meshgrid(np.linspace(0.1, 1, 8), [1.0, 1.9, 3.0]))
    data = {"t": times, "rate": rates, "u": 1.4 * np.exp(-rates * times)}
    model = sciml.Spectral(10)
    solution = sciml.fit(problem, model, data=data, solver=sciml.LeastSquares(40), points=300, sampler=None)
    assert solution.unknowns["estimate"]["start"] == pytest.approx(1.4, rel=1e-5)
    one = solution.at(rate=2.4)
    assert list(one.problem.unknowns) == ["start"]
    assert one(t=0.5)["u"] == pytest.approx(1.4 * math.exp(-1.2), rel=1e-5)
    with pytest.raises(ProblemError, match="rate"):
        sciml.fit(problem, data={"t": times, "u": times})


def test_an_estimate_at_its_bound_is_taken_as_it_is(decays):
    bounded = Decay(start=sciml.Unknown(1.5, lower=0.5, upper=2.0)).promote(rate=(1, 3))
    half = decays.at(start=2.0)
    frame = sciml.solution.unknowns_frame({"start": sciml.uncertainty.Estimate(2.0, 0.0, 2.0, 2.0)})
    solution = dataclasses.replace(half, problem=bounded, unknowns=frame)
    one = solution.at(rate=np.float32(2.0))
    assert one.success
    assert list(one.problem.unknowns) == ["start"]


def test_stored_references_belong_to_one_value():
    class Kept(Ring):
        reference = sciml.StoredReference("nowhere.h5")

    assert not Kept().promote(speed=(0.5, 1.0)).has_reference


def test_an_unknown_may_be_promoted_itself():
    problem = Decay(rate=sciml.Unknown(2.0)).promote(rate=(1, 3))
    assert problem.unknowns == {}
    assert sciml.fit(problem).at(rate=2.0).error()["u"] < 1e-8


def test_normals_parts_and_surfaces_know_nothing_of_the_constant():
    left, right = sciml.Interval(x=(0, 0.5)), sciml.Interval(x=(0.5, 1))

    class Layers(sciml.Problem):
        """k u' is continuous where two materials meet."""

        domain = sciml.Interval(x=(0, 1))
        fields = ["u", "v"]
        k = 2.0
        conditions = [
            sciml.Dirichlet(u=0.0, on=domain.face(x=0)),
        ]

        @sciml.equation(on=left)
        def inner(self, u, x):
            return d(u, x, x)

        @sciml.equation(on=right)
        def outer(self, v, x):
            return d(v, x, x)

        @sciml.condition(on=left.interface(right))
        def same(self, u, v):
            return u - v

        @sciml.condition(on=left.interface(right))
        def flow(self, u, v, x):
            return d(u, x) - self.k * d(v, x)

        @sciml.condition(on=domain.face(x=1))
        def end(self, v, x, normal):
            (outward,) = normal
            return outward * d(v, x) - 1.0

    solution = sciml.fit(Layers().promote(k=(1, 3)))
    one = solution.at(k=2.5)
    assert one.success
    assert float(one(x=0.25)["u"]) == pytest.approx(2.5 * 0.25, rel=1e-8)
    assert float(one(x=0.75)["v"]) == pytest.approx(2.5 * 0.5 + 0.25, rel=1e-8)


def test_the_whole_boundary_does_not_include_ends_of_the_range():
    class Plate(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1))
        fields = ["u"]
        f = 1.0
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

        @sciml.equation
        def poisson(self, u, x, y):
            s = torch.sin(torch.pi * x) * torch.sin(torch.pi * y)
            return d(u, x, x) + d(u, y, y) + self.f * 2 * torch.pi**2 * s

        def reference(self, x, y):
            return self.f * torch.sin(torch.pi * x) * torch.sin(torch.pi * y)

    problem = Plate().promote(f=(1, 2))
    (term,) = (term for term in problem.terms() if term.name == "dirichlet")
    assert {face.coordinate for face in term.place.faces} == {"x", "y"}
    model, solver = sciml.Spectral((14, 14, 2)), sciml.LinearLeastSquares()
    solution = sciml.fit(problem, model, solver=solver, sampler=None, points=900)
    assert solution.at(f=1.5).error()["u"] < 1e-6


def test_what_cannot_be_promoted_or_taken(decays):
    with pytest.raises(ProblemError, match=r"no constant 'rat' to promote; constants: .* Did you mean 'rate'"):
        Decay().promote(rat=(1, 2))
    with pytest.raises(ProblemError, match="name a constant"):
        Decay().promote()
    with pytest.raises(ProblemError, match="bounds of 'rate' must be finite and increasing"):
        Decay().promote(rate=(2, 1))
    with pytest.raises(ProblemError, match="has no single value"):
        _ = Decay().promote(rate=(1, 2)).rate

    class Pinned(Decay):
        conditions = [sciml.Initial(u=1.0), sciml.Mean(u=0.5)]

    with pytest.raises(ProblemError, match="'mean' holds at one point or for a mean"):
        Pinned().promote(rate=(1, 2))
    with pytest.raises(ProblemError, match=r"no promoted constant of Decay; promoted: 'rate', 'start'"):
        decays.at(rates=1.0)
    with pytest.raises(ProblemError, match="needs a value"):
        decays.at()
    with pytest.raises(ProblemError, match="finite number"):
        decays.at(rate=math.nan)
    with pytest.raises(ProblemError, match="promote"):
        decays.at(rate=1.0, start=1.0).at(rate=1.0)
    with pytest.raises(ProblemError, match="take it at a value first"):
        sciml.fit(Decay(), start=decays)
    with pytest.raises(BaselineError, match="one value of 'rate'"):
        sciml.baseline(Decay().promote(rate=(1, 2)))


class Unsure(Decay):
    """One of its constants is not known."""

    rate = sciml.Unknown(1.0, lower=0)


def test_several_experiments_have_no_constant_as_a_coordinate():
    both = sciml.experiments({"a": Unsure(), "b": Unsure(start=2.0)})
    with pytest.raises(ProblemError, match="promote it in a single problem and give measurements the column 'rate'"):
        both.promote(rate=(1, 2))


def test_at_a_value_a_solution_that_failed_is_no_success(decays, tmp_path):
    assert decays.at(rate=2.0).tolerance == decays.tolerance == 0.05
    failed = dataclasses.replace(decays, success=False, message="it diverged", statistics={"AIC": 1.0})
    one = failed.at(rate=2.0, start=1.0)
    assert not one.success
    assert one.message.endswith("that solution was no success itself: it diverged")
    assert one.statistics == {}
    # The certificate is that of the fit, before and after saving.
    strict = dataclasses.replace(decays, tolerance=1e-18)
    again = sciml.load(strict.save(tmp_path / "strict.pt"), strict.problem)
    for each in (strict, again):
        one = each.at(rate=2.0)
        assert not one.success
        assert "more than 1e-18" in one.message


class Pendulum(sciml.Problem):
    domain = sciml.Interval(t=(0, 3))
    fields = ["angle"]
    k = 1.0
    conditions = [sciml.Initial(angle=1.0, angle_t=0.0)]

    @sciml.equation
    def swing(self, angle, t):
        return d(angle, t, t) + self.k * torch.sin(angle)


@pytest.fixture(scope="module")
def pendulums():
    points = {"interior": 400, "initial": 30}
    solver = sciml.LeastSquares(120)
    return sciml.fit(Pendulum().promote(k=(1, 2)), sciml.MLP(12, 12), solver=solver, points=points, sampler=None)


def steps_until(loss, most, k, **options):
    """The steps of L-BFGS until the loss on held-out points is that small, or None."""
    solver = sciml.LBFGS(most, look=1)
    watch = [lambda look: look.held_out <= loss]
    solution = sciml.fit(Pendulum(k=k), solver=solver, callbacks=watch, early_stopping=None, points=60, sampler=None, **options)
    return solution.nit if solution.history["held_out"].min() <= loss else None


@pytest.mark.parametrize("k", [0.97, 1.0, 1.35, 2.0, 2.05])
def test_fine_tuning_takes_less_than_a_tenth_of_the_steps(pendulums, k):
    """Inside the range there is hardly anything to do; a little beyond it, some steps."""
    start = pendulums.at(k=k)
    taken = steps_until(1e-6, 60, k, start=start)
    assert taken is not None
    for seed in (0, 1):
        assert steps_until(1e-6, 10 * taken, k, model=sciml.MLP(12, 12), seed=seed) is None
