"""Windows on elements: what they solve, to how many digits, and what they do where they cannot."""

import math

import numpy as np
import pytest
import torch
from candidates import candidate, workspace
from conftest import problem_class
from scipy.special import erfc

import sciml
from sciml import d
from sciml.errors import ConditionWarning, ModelError
from sciml.jets import AnalyticJets, AutogradJets, knows_derivatives
from sciml.models import PiecewisePolynomial, Scaled, Windowed
from sciml.models.bases import PiecewiseBasis
from sciml.solvers.journal import Journal
from sciml.strategies.search import Log, Options, Workspace
from sciml.strategies.slabs import ElementWindows, _SlabTried, not_on_elements
from sciml.strategies.window_solvers import TimeMarching

PI = math.pi


def models_of(solution):
    """The models of a solution's windows."""
    assert isinstance(solution.trial, Windowed)
    return [piece.model for piece in solution.trial.windows]


Burgers = problem_class("burgers")


@pytest.fixture(scope="module")
def shock():
    return sciml.fit(Burgers())


def test_a_shock_to_many_digits(shock):
    assert shock.success, shock.message
    assert shock.error()["u"] < shock.estimated_error["u"] < 1e-9
    assert shock.engine == "closed form"
    assert any("piecewise polynomials" in choice for choice in shock.choices)
    widths = [model.breaks[0].diff().min() for model in models_of(shock)]
    assert widths[len(widths) // 2] < widths[0] / 3  # refined where the shock is


def test_the_certificate_is_of_points_it_never_saw(shock):
    assert shock.residuals["relative"].max() < 1e-7


def test_a_solution_on_elements_is_saved_and_read(shock, tmp_path):
    shock.save(tmp_path / "burgers.pt")
    again = sciml.load(tmp_path / "burgers.pt", Burgers())
    x = np.linspace(-1, 1, 50)
    assert np.array_equal(again(x=x, t=0.7)["u"], shock(x=x, t=0.7)["u"])


def test_second_order_in_time():
    """The kink of the sine-Gordon equation, moving at half the speed of waves."""

    class SineGordon(sciml.Problem):
        domain = sciml.Box(x=(-8, 8), t=(0, 3))
        fields = ["u"]
        conditions = [
            sciml.Initial(
                u=lambda x: 4 * torch.atan(torch.exp(x / math.sqrt(0.75))),
                u_t=lambda x: -1 / math.sqrt(0.75) / torch.cosh(x / math.sqrt(0.75)),
            ),
            sciml.Dirichlet(u=lambda x, t: 4 * torch.atan(torch.exp((x - t / 2) / math.sqrt(0.75))), on=domain.faces("x")),
        ]

        @sciml.equation
        def motion(self, u, x, t):
            return d(u, t, t) - d(u, x, x) + torch.sin(u)

        def reference(self, x, t):
            return 4 * torch.atan(torch.exp((x - t / 2) / math.sqrt(0.75)))

    solution = sciml.fit(SineGordon())
    assert solution.success, solution.message
    assert isinstance(models_of(solution)[0], PiecewisePolynomial)
    assert solution.error()["u"] < solution.estimated_error["u"] < 1e-7


@pytest.mark.slow
def test_many_reflections_of_a_pulse():
    """A wave in a box that loses half its energy to friction: five times to and fro."""

    class Telegraph(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 5))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x: torch.exp(-100 * (x - 0.5) ** 2), u_t=0.0),
            sciml.Dirichlet(u=0.0, on=domain.faces("x")),
        ]

        @sciml.equation
        def motion(self, u, x, t):
            return d(u, t, t) + 0.2 * d(u, t) - d(u, x, x)

    solution = sciml.fit(Telegraph())
    assert solution.success, solution.message
    assert isinstance(models_of(solution)[0], PiecewisePolynomial)
    # Each mode is a damped oscillation, its amplitude the sine coefficient of the pulse.
    k = math.pi * np.arange(1, 60)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    y = (nodes + 1) / 2
    start = np.sin(np.outer(k, y)) @ (weights * np.exp(-100 * (y - 0.5) ** 2))
    rate, x, t = np.sqrt(k**2 - 0.01), np.linspace(0, 1, 101), 4.7
    decay = np.exp(-0.1 * t) * (np.cos(rate * t) + 0.1 / rate * np.sin(rate * t))
    truth = (start * decay) @ np.sin(np.outer(k, x))
    assert np.abs(solution(x=x, t=t)["u"] - truth).max() < 1e-6


@pytest.mark.slow
def test_a_start_that_jumps_inside():
    """Burgers' equation from a step, exact on the whole line by Cole and Hopf."""

    class Step(sciml.Problem):
        domain = sciml.Box(x=(-1, 1), t=(0, 0.8))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x: torch.where(x < -0.3, torch.ones_like(x), torch.zeros_like(x))),
            sciml.Dirichlet(u=1.0, on=domain.face(x=-1)),
            sciml.Dirichlet(u=0.0, on=domain.face(x=1)),
        ]

        @sciml.equation
        def motion(self, u, x, t):
            return d(u, t) + u * d(u, x) - 0.01 * d(u, x, x)

    solution = sciml.fit(Step())
    x, t, wide = np.linspace(-0.9, 0.9, 101), 0.8, 2 * math.sqrt(0.01 * 0.8)
    y = x + 0.3
    truth = 1 / (1 + np.exp((y - t / 2) / 0.02) * erfc(-y / wide) / erfc((y - t) / wide))
    assert np.abs(solution(x=x, t=0.8)["u"] - truth).max() < 1e-4
    assert solution.success, solution.message
    assert 1e-6 < solution.estimated_error["u"] < 1e-3


def test_mixed_derivatives():
    """The solitary wave of Benjamin, Bona and Mahony."""

    def wave(x, t):
        return 1.5 / torch.cosh(0.5 * math.sqrt(1 / 3) * (x - 1.5 * t)) ** 2

    class Bore(sciml.Problem):
        domain = sciml.Box(x=(-20, 20), t=(0, 4))
        fields = ["u"]
        conditions = [sciml.Initial(u=lambda x: wave(x, 0.0)), sciml.Dirichlet(u=wave, on=domain.faces("x"))]

        @sciml.equation
        def motion(self, u, x, t):
            return d(u, t) + d(u, x) + u * d(u, x) - d(u, x, x, t)

        def reference(self, x, t):
            return wave(x, t)

    solution = sciml.fit(Bore())
    assert solution.success, solution.message
    assert solution.error()["u"] < solution.estimated_error["u"] < 1e-9


def test_a_field_without_a_time_derivative():
    """Heat and its flux: one equation has no time in it. The time coordinate comes first."""

    class Mixed(sciml.Problem):
        domain = sciml.Box(t=(0, 0.2), x=(0, 1))
        fields = ["u", "q"]
        conditions = [sciml.Initial(u=lambda x: torch.sin(PI * x)), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

        @sciml.equation
        def flux(self, u, q, x, t):
            return q + d(u, x)

        @sciml.equation
        def balance(self, u, q, x, t):
            exact = torch.sin(PI * x) * torch.exp(-(PI**2) * t)
            return d(u, t) + d(q, x) + u**3 - exact**3

        def reference(self, x, t):
            decay = torch.exp(-(PI**2) * t)
            return {"u": torch.sin(PI * x) * decay, "q": -PI * torch.cos(PI * x) * decay}

    solution = sciml.fit(Mixed())
    assert isinstance(models_of(solution)[0], PiecewisePolynomial)
    assert max(solution.error().values()) < 1e-9


def test_a_nonlinear_flux_and_insulated_ends():
    class Insulated(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=lambda x: torch.cos(PI * x)), sciml.Neumann(u=0.0, on=domain.faces("x"))]

        @sciml.equation
        def balance(self, u, x, t):
            e, s = torch.cos(PI * x) * torch.exp(-t), torch.sin(PI * x) * torch.exp(-t)
            source = -e + PI**2 * (e * (1 + e**2) - 2 * e * s**2)
            return d(u, t) - d((1 + u**2) * d(u, x), x) - source

        def reference(self, x, t):
            return torch.cos(PI * x) * torch.exp(-t)

    solution = sciml.fit(Insulated())
    assert isinstance(models_of(solution)[0], PiecewisePolynomial)
    assert solution.error()["u"] < 1e-9


class Switched(sciml.Problem):
    """A cold rod whose ends are hot from the start: a jump where the start meets the ends."""

    domain = sciml.Box(x=(0, 1), t=(0, 0.1))
    fields = ["u"]
    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=1.0, on=domain.faces("x"))]

    @sciml.equation
    def conduction(self, u, x, t):
        return d(u, t) - d(u, x, x)

    def reference(self, x, t):
        k = torch.arange(1, 400, 2, dtype=torch.float64)
        modes = torch.sin(k * PI * x[:, None]) / k * torch.exp(-((k * PI) ** 2) * t[:, None])
        return 1 - 4 / PI * modes.sum(1)


@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
def test_a_jump_at_the_start_is_left_behind():
    solution = sciml.fit(Switched())
    assert any("piecewise polynomials" in choice for choice in solution.choices)
    x, t = (values.ravel() for values in np.meshgrid(np.linspace(0, 1, 101), np.linspace(0.001, 0.1, 100)))
    truth = Switched().reference(torch.from_numpy(x), torch.from_numpy(t)).numpy()
    assert np.abs(solution(x=x, t=t)["u"] - truth).max() < 1e-7


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
def test_a_jump_at_the_start_of_a_long_time():
    """The first windows are some ten-millionths of the whole time."""
    problem = Switched(domain=sciml.Box(x=(0, 1), t=(0, 1)))
    solution = sciml.fit(problem)
    assert solution.success, solution.message
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    for t in (0.001, 0.03, 0.9):
        truth = problem.reference(x, torch.full_like(x, t)).numpy()
        assert np.abs(solution(x=x.numpy(), t=t)["u"] - truth).max() < 1e-7


class Soliton(sciml.Problem):
    """Schroedinger's cubic equation on a ring, on which the ends of a soliton's tails differ by 2e-4."""

    domain = sciml.Box(x=(-10, 10), t=(0, 1))
    fields = ["u", "v"]
    conditions = [
        sciml.Initial(u=lambda x: torch.cos(x / 2) / torch.cosh(x), v=lambda x: torch.sin(x / 2) / torch.cosh(x)),
        sciml.Periodic("x"),
    ]

    @sciml.equation
    def real(self, u, v, x, t):
        return d(u, t) + d(v, x, x) / 2 + (u**2 + v**2) * v

    @sciml.equation
    def imaginary(self, u, v, x, t):
        return d(v, t) - d(u, x, x) / 2 - (u**2 + v**2) * u


def split_step(count, steps):
    """The soliton at the end by Strang's splitting on Fourier modes."""
    x, k, length = -10 + 20 * np.arange(count) / count, 2 * PI * np.fft.fftfreq(count, 20 / count), 1 / steps
    psi, half = np.exp(0.5j * x) / np.cosh(x), np.exp(-0.25j * k**2 * length)
    for _ in range(steps):
        psi = np.fft.ifft(half * np.fft.fft(psi))
        psi = np.fft.ifft(half * np.fft.fft(psi * np.exp(1j * np.abs(psi) ** 2 * length)))
    return x, psi


def test_a_rough_start_that_nothing_smooths_is_judged_by_its_error():
    # Derivatives of what is rough are never right, in windows of any length; the fields are.
    with pytest.warns(ConditionWarning, match="contradict each other"):
        solution = sciml.fit(Soliton())
    assert solution.success
    assert len(models_of(solution)) < 40
    assert any("windows by what they add to the error" in each for each in solution.choices)
    x, psi = split_step(4096, 4000)
    found = solution(x=x[::16], t=np.ones(256))
    error = np.linalg.norm(found["u"] + 1j * found["v"] - psi[::16]) / np.linalg.norm(psi[::16])
    assert error < min(1e-4, 10 * max(solution.estimated_error.values()))


def test_nothing_is_prescribed_at_the_ends():
    """No derivative in space: one ordinary differential equation for each x."""

    class Decay(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=lambda x: torch.sin(x) + 2)]

        @sciml.equation
        def decay(self, u, x, t):
            return d(u, t) + u**2

        def reference(self, x, t):
            return 1 / (t + 1 / (torch.sin(x) + 2))

    solution = sciml.fit(Decay())
    assert isinstance(models_of(solution)[0], PiecewisePolynomial)
    assert solution.error()["u"] < 1e-9


def test_several_conditions_orders_and_a_time_of_another_name():
    """Fields of order 2 and 1 in time; a ring for one, mixed conditions for the other; time is called tau and begins at 2."""

    class Mixture(sciml.Problem):
        time = "tau"
        domain = sciml.Box(tau=(2, 3), z=(0, 1))
        fields = ["u", "v"]
        conditions = [
            sciml.Initial(u=lambda z: torch.sin(z), u_tau=0.0, v=lambda z: torch.cos(2 * PI * z)),
            sciml.Dirichlet(u=0.0, on=domain.face(z=0)),
            sciml.Periodic("z", "v"),
        ]

        @sciml.equation
        def slow(self, u, v, z, tau):
            wave = torch.cos(2 * PI * z) * torch.exp(2 - tau)
            return d(v, tau) - 0.1 * d(v, z, z) + v**3 - (-wave + 0.4 * PI**2 * wave + wave**3)

        @sciml.equation
        def fast(self, u, v, z, tau):
            return d(u, tau, tau) - d(u, z, z)

        @sciml.condition(on=domain.face(z=1))
        def spring(self, u, v, z, tau):
            return d(u, z) + u - (torch.cos(z) + torch.sin(z)) * torch.cos(tau - 2)

        def reference(self, z, tau):
            return {
                "u": torch.sin(z) * torch.cos(tau - 2),
                "v": torch.cos(2 * PI * z) * torch.exp(2 - tau),
            }

    solution = sciml.fit(Mixture())
    assert isinstance(models_of(solution)[0], PiecewisePolynomial)
    assert max(solution.error().values()) < 1e-8


def fading(*columns):
    """A field that fades away, whatever the strength of what drives it."""
    *places, t = columns
    return torch.exp(-torch.sin(3 * t)) * math.prod(torch.sin(PI * each) for each in places)


class Unstable(sciml.Problem):
    """What is off grows by the exponential of the strength."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: torch.sin(PI * x)), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]
    strength = 0.0

    @sciml.equation
    def growth(self, u, x, t):
        source = (0.1 * PI**2 - 3 * torch.cos(3 * t) - self.strength) * fading(x, t)
        return d(u, t) - 0.1 * d(u, x, x) - self.strength * u - source

    def reference(self, x, t):
        return fading(x, t)


class UnstablePlane(sciml.Problem):
    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x, y: torch.sin(PI * x) * torch.sin(PI * y)),
        sciml.Dirichlet(u=0.0, on=domain.faces("x", "y")),
    ]
    strength = 0.0

    @sciml.equation
    def growth(self, u, x, y, t):
        source = (0.2 * PI**2 - 3 * torch.cos(3 * t) - self.strength) * fading(x, y, t)
        return d(u, t) - 0.1 * sciml.laplacian(u, x, y) - self.strength * u - source

    def reference(self, x, y, t):
        return fading(x, y, t)


@pytest.mark.parametrize("kind", [Unstable, UnstablePlane])
@pytest.mark.parametrize("size", [5.0, 15.0, 25.0, 35.0])
def test_the_estimated_error_grows_as_errors_do(kind, size):
    """Residuals and rounding are as small for every strength; errors are not."""

    class Problem(kind):
        strength = size

    solution = sciml.fit(Problem(), strategy=sciml.strategies.TimeMarching())
    true, estimate = solution.error()["u"], solution.estimated_error["u"]
    assert true < estimate < max(3000 * true, 1e-11)
    assert solution.success == (estimate < 1e-3)


def test_a_blow_up_is_no_success():
    """u_t = u_xx + u², from 20 sin πx: infinite before t = 0.1."""

    class Explosion(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x: 20 * torch.sin(PI * x)),
            sciml.Dirichlet(u=0.0, on=domain.faces("x")),
        ]

        @sciml.equation
        def balance(self, u, x, t):
            return d(u, t) - d(u, x, x) - u**2

    looks = []
    solution = sciml.fit(Explosion(), callbacks=[lambda look: looks.append(look) or len(looks) > 60])
    assert not solution.success


def test_a_watcher_ends_it_and_what_there_is_comes_back():
    looks = []

    def enough(look):
        looks.append(look)
        return len(looks) >= 3

    solution = sciml.fit(Burgers(), callbacks=[enough])
    assert solution.status == "stopped"
    assert len(looks) == 3
    assert looks[0].phase.startswith("Elements")
    assert np.isfinite(solution(x=[0.5], t=[0.0])["u"]).all()


@pytest.mark.filterwarnings("ignore::sciml.ConditionWarning")
def test_a_watcher_ends_a_linear_problem_on_elements_for_good():
    """Nothing else is begun after it."""
    phases = []

    def enough(look):
        phases.append(look.phase)
        return look.phase.startswith("Elements")

    solution = sciml.fit(Switched(), callbacks=[enough])
    assert solution.status == "stopped"
    assert [phase.startswith("Elements") for phase in phases].count(True) == 1
    assert phases[-1].startswith("Elements")


class Shock(sciml.Problem):
    """A front of Burgers' equation that moves across the domain."""

    domain = sciml.Box(x=(-1, 1), t=(0, 2))
    fields = ["u"]
    viscosity = 2e-3
    conditions = [
        sciml.Initial(u=lambda self, x: self.reference(x, 0 * x)),
        sciml.Dirichlet(u=lambda self, x, t: self.reference(x, t), on=domain.faces("x")),
    ]

    @sciml.equation
    def balance(self, u, x, t):
        return d(u, t) + u * d(u, x) - self.viscosity * d(u, x, x)

    def reference(self, x, t):
        return 0.5 - 0.5 * torch.tanh((x - 0.5 * t + 0.5) / (4 * self.viscosity))


@pytest.mark.slow
def test_elements_behind_a_front_that_moves_are_joined():
    solution = sciml.fit(Shock(), seconds=200)
    assert solution.success, solution.message
    assert solution.error()["u"] < 1e-9
    # Where they are not, there are 96, as many as there may be, before the front is at the end.
    assert max(len(each.model.breaks[0]) - 1 for each in solution.trial.windows) < 60


def test_what_tiny_elements_leave_counts_by_what_it_adds():
    mesh = PiecewiseBasis([0.0, 0.01, 1.0], degree=20, smooth=2)
    tried = _SlabTried(None, mesh, True, 0.0, 0.0, 0.0, np.array([1.0, 1.0]), 0.0)
    np.testing.assert_allclose(tried.shares, np.sqrt([0.02, 1.98]))


def test_a_slab_that_is_given_up_is_not_remembered(monkeypatch):
    """What is resumed with more time solves it."""
    asked, late, known = [], 60, []

    def long_overdue(log):
        asked.append(log.steps)
        return len(asked) > late

    monkeypatch.setattr(Log, "long_overdue", property(long_overdue))
    monkeypatch.setattr(Log, "overdue", property(lambda log: len(asked) > late))
    # What takes too little time to be kept is kept as well: whether a slab does depends on the processor.
    monkeypatch.setattr("sciml.solvers.journal._WORTH", 0.0)
    journal = Journal(known.append, lambda steps: True)
    found = candidate(TimeMarching(), Workspace(Burgers(), None, Options(), Log(), journal))
    assert not found.solved
    assert len(asked) == late + 1
    slabs = [content for _, name, _, content in known[-1]["entries"] if name.startswith("a slab")]
    assert len(slabs) > 1
    assert all(each["converged"] for each in slabs)


def test_why_elements_are_not_used():
    box = sciml.Box(x=(0, 1), t=(0, 1))

    def reason(**parts):
        members = {"domain": box, "fields": ["u"], "conditions": [sciml.Initial(u=0.0)], **parts}
        if "balance" not in members:
            members["balance"] = sciml.equation(lambda self, u, x, t: d(u, t) - d(u, x))
        return not_on_elements(type("Case", (sciml.Problem,), members)())

    assert reason() is None
    two = sciml.equation(lambda self, u, x, t: d(u, t))
    assert "one equation for each field" in reason(other=two)
    assert "initial values" in reason(balance=sciml.equation(lambda self, u, x, t: d(u, t, t) - d(u, x)))
    wide = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    assert "one coordinate" in reason(domain=wide, balance=sciml.equation(lambda self, u, x, y, t: d(u, t) - d(u, y)))
    fast = sciml.condition(on=box.face(x=0))(lambda self, u, x, t: d(u, t, t))
    assert "higher time derivatives" in reason(fast=fast)


class Separating(sciml.Problem):
    """Cahn and Hilliard's equation as two of second order: of the chemical potential there is no rate."""

    domain = sciml.Box(x=(0, 1), t=(0, 0.05))
    fields = ["c", "mu"]
    conditions = [
        sciml.Initial(c=lambda x: 0.1 * torch.cos(2 * math.pi * x)),
        sciml.Neumann(c=0.0, mu=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def balance(self, c, mu, x, t):
        return d(c, t) - d(mu, x, x)

    @sciml.equation
    def potential(self, c, mu, x, t):
        return mu - c**3 + c + 0.0025 * d(c, x, x)


def test_a_slope_of_a_field_without_a_rate_is_no_reason_against_elements():
    assert not_on_elements(Separating()) is None
    solution = sciml.fit(Separating(), seconds=60)
    assert solution.success, solution.message
    # A small cosine grows as the linear equation says, but for the cube.
    growth = math.exp((2 * math.pi) ** 2 * (1 - 0.0025 * (2 * math.pi) ** 2) * 0.01)
    assert float(solution(x=0.0, t=0.01)["c"]) == pytest.approx(0.1 * growth, rel=0.02)


def windowed(order):
    """Three windows of random pieces, which do not meet by themselves."""
    generator = torch.Generator().manual_seed(order)
    windows = []
    for begin in (0.0, 1.0, 2.0):
        model = PiecewisePolynomial([[-1.0, 0.3, 1.0], [-1.0, 1.0]], [6, 4], outputs=2)
        model.coefficients.normal_(generator=generator)
        windows.append(Scaled(model, [-2.0, begin], [2.0, begin + 1], [0.5, 0.2], [2.0, 3.0]))
    return Windowed([0.0, 1.0, 2.0, 3.0], windows, 1, order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("index", ["", "x", "t", "xx", "xt", "tt", "xxx", "ttt", "xxxx"])
def test_windows_know_their_derivatives(order, index):
    trial = windowed(order)
    assert knows_derivatives(trial)
    share = torch.rand(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    points = share * torch.tensor([4.0, 3.0]) - torch.tensor([2.0, 0.0])
    names = ("x", "t"), ("u", "v")
    nested = AutogradJets(trial, points, *names).jet("v", tuple(index)).detach()
    closed = AnalyticJets(trial, points, *names).jet("v", tuple(index))
    assert torch.allclose(closed, nested, rtol=1e-9, atol=1e-11 * float(nested.abs().max()))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("orders", [(0, 0), (2, 0), (1, 1), (0, 3)])
def test_few_points_look_up_their_pieces_in_one_table_of_all_windows(order, orders, monkeypatch):
    trial = windowed(order)
    # Windows may have other degrees and elements than those before.
    other = PiecewisePolynomial([[-1.0, -0.5, 0.1, 1.0], [-1.0, 1.0]], [9, 3], outputs=2)
    other.coefficients.normal_(generator=torch.Generator().manual_seed(3))
    trial.windows[1].model = other
    t = torch.tensor([-0.2, 0.0, 0.4, 1.0, 1.0 + 1e-9, 1.7, 2.0, 2.9, 3.0, 3.1], dtype=torch.float64)
    points = torch.cartesian_prod(torch.linspace(-2.1, 2.1, 15, dtype=torch.float64), t)
    together = trial.partial(points, orders)
    assert trial.partial(points[:0], orders).shape == (0, 2)
    monkeypatch.setattr(sciml.models.windowed, "_FEW", 0)
    one_by_one = trial.partial(points, orders)
    torch.testing.assert_close(together, one_by_one, rtol=1e-12, atol=1e-12 * float(one_by_one.abs().max()))


@pytest.mark.parametrize("order", [1, 2])
def test_windows_of_pieces_join_to_rounding(order):
    trial = windowed(order)
    x = torch.linspace(-2, 2, 31, dtype=torch.float64)
    for edge in (1.0, 2.0):
        for power in range(order):
            sides = [
                trial.partial(torch.stack([x, torch.full_like(x, edge + sign * 1e-13)], dim=1), (0, power)) for sign in (-1, 1)
            ]
            assert torch.allclose(*sides, atol=1e-9)


def test_pieces_refuse_what_makes_no_sense():
    for breaks, degree in (([0.0], 3), ([1.0, -1.0], 3), ([-1.0, 1.0], -1)):
        with pytest.raises(ModelError, match="increasing breaks"):
            PiecewisePolynomial([breaks, [-1.0, 1.0]], [degree, 2], outputs=1)
    with pytest.raises(ModelError, match="increasing breaks"):
        PiecewisePolynomial([[-1.0, 1.0], [-1.0, 1.0]], [3, 2, 1], outputs=1)
    empty = PiecewisePolynomial([[-1.0, 1.0], [-1.0, 1.0]], [2, 3], outputs=2)
    assert empty(torch.zeros(0, 2, dtype=torch.float64)).shape == (0, 2)


class Front(sciml.Problem):
    """Fisher's front of speed 5 / sqrt 6, ahead of which the smallest error grows (M. J. Ablowitz and A. Zeppetella, 1979)."""

    domain = sciml.Box(x=(-40, 63), t=(0, 16))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: (1 + torch.exp(x / math.sqrt(6))) ** -2),
        sciml.Neumann(u=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def balance(self, u, x, t):
        return d(u, t) - d(u, x, x) - u * (1 - u)

    def reference(self, x, t):
        return (1 + torch.exp((x - 5 * t / math.sqrt(6)) / math.sqrt(6))) ** -2


class LateFront(Front):
    """Errors grow by e^20, and below zero without bounds."""

    domain = sciml.Box(x=(-40, 75), t=(0, 20))
    conditions = [Front.conditions[0], sciml.Neumann(u=0.0, on=domain.faces("x"))]


@pytest.mark.parametrize(("problem", "error"), [(Front(), 1e-6), (LateFront(), 1e-5)])
def test_what_elements_miss_ahead_of_a_front_grows(problem, error):
    solution = sciml.fit(problem, strategy=sciml.strategies.TimeMarching())
    assert solution.success, solution.message
    (low, high), (_, end) = problem.domain.bounds["x"], problem.domain.bounds["t"]
    x = np.linspace(low, high, 1000)
    truth = problem.reference(torch.from_numpy(x), end).numpy()
    assert np.abs(solution(x=x, t=end)["u"] - truth).max() < error
    assert solution.error()["u"] < 10 * solution.estimated_error["u"]


def test_what_a_start_lacks_belongs_to_its_field_and_rate():
    """In whatever order initial values are stated."""

    class Pair(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u", "v"]
        conditions = [
            sciml.Initial(v=lambda x: torch.exp(-((x - 0.5) ** 2) / 2e-3), v_t=0.0, u=lambda x: torch.sin(PI * x)),
            sciml.Dirichlet(u=0.0, v=0.0, on=domain.faces("x")),
        ]

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - d(u, x, x)

        @sciml.equation
        def waves(self, v, x, t):
            return d(v, t, t) - d(v, x, x)

    windows = ElementWindows(workspace(Pair()).discrete, Log(), 1e-9, 1e-3)
    slab = windows._slab(windows._mesh, 0.0, 0.1, None)
    smooth, narrow = windows._lacking(slab)
    assert smooth.abs().max() < 1e-9
    assert narrow[0].abs().max() > 1e-5
    assert narrow[1].abs().max() < 1e-9


class Charging(sciml.Problem):
    """Ions between blocking electrodes: no flux of theirs is a condition on a field with a rate and a potential without one."""

    domain = sciml.Box(x=(0, 1), t=(0, 0.5))
    fields = ["p", "c", "a"]
    conditions = [
        sciml.Initial(c=1.0, a=1.0),
        sciml.Dirichlet(p=lambda t: 1 - torch.exp(-10 * t), on=domain.face(x=0)),
        sciml.Dirichlet(p=lambda t: torch.exp(-10 * t) - 1, on=domain.face(x=1)),
    ]

    @sciml.equation
    def poisson(self, p, c, a, x, t):
        return 0.02 * d(p, x, x) + c - a

    @sciml.equation
    def cations(self, p, c, x, t):
        return d(c, t) - d(d(c, x) + c * d(p, x), x)

    @sciml.equation
    def anions(self, p, a, x, t):
        return d(a, t) - d(d(a, x) - a * d(p, x), x)

    @sciml.condition(on=domain.faces("x"))
    def no_cations(self, p, c, x, t):
        return d(c, x) + c * d(p, x)

    @sciml.condition(on=domain.faces("x"))
    def no_anions(self, p, a, x, t):
        return d(a, x) - a * d(p, x)


def test_conditions_mix_fields_with_a_rate_and_without():
    solution = sciml.fit(Charging(), strategy=sciml.strategies.TimeMarching())
    assert solution.success, solution.message
    nodes, weights = np.polynomial.legendre.leggauss(60)
    x = (nodes + 1) / 2
    for t in (0.1, 0.5):
        found = solution(x=x, t=t)
        # No ion leaves, and the two kinds are each other's image.
        assert found["c"] @ weights / 2 == pytest.approx(1, abs=1e-6)
        assert np.allclose(found["c"], found["a"][::-1], rtol=0, atol=1e-6)
        assert found["c"][-1] > 1.2
