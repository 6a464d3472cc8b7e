"""Unknown functions on any domain: series whose coefficients are varied, fields that are solved for, against closed forms."""

import numpy as np
import pytest
import torch
from candidates import workspace

import sciml
from sciml import d
from sciml.problem.compatibility import left_by_start
from sciml.strategies.inverse_constants import not_by_solving
from sciml.strategies.search import judged_apart

DISK = sciml.Disk((0, 0), 1)


def bumpy(x, y):
    """The conductivity that is to be found."""
    return 1 + 0.4 * torch.sin(2 * x + y)


class Conducting(sciml.Problem):
    r"""A disk with :math:`u = c + 1 - r^2` and :math:`a = 1 + 0.4\sin(2x + y)`, of which a and c are unknown."""

    domain = DISK
    fields = ["u", "a"]
    c = sciml.Unknown(0.5)
    conditions = [sciml.Dirichlet(u=lambda self, x: self.c + 0 * x, on=DISK.boundary)]

    @sciml.equation
    def balance(self, u, a, x, y):
        return d(a * d(u, x), x) + d(a * d(u, y), y) + 4 * bumpy(x, y) + 0.8 * (2 * x + y) * torch.cos(2 * x + y)

    def reference(self, x, y):
        return {"u": self.c + 1 - x**2 - y**2, "a": bumpy(x, y)}


class Heated(sciml.Problem):
    r"""A disk whose source f = 4 + 4x + 2.4y is unknown: u = (1 - r^2)(1 + x/2 + 3y/10)."""

    domain = DISK
    fields = ["u", "f"]
    conditions = [sciml.Dirichlet(u=0.0, on=DISK.boundary)]

    @sciml.equation
    def balance(self, u, f, x, y):
        return sciml.laplacian(u, x, y) + f


def places(count, seed=0):
    found = np.random.default_rng(seed).uniform(-1, 1, (4 * count, 2))
    x, y = found[(found**2).sum(1) < 1][:count].T
    return {"x": x, "y": y}


def heated(x, y):
    return (1 - x**2 - y**2) * (1 + x / 2 + 0.3 * y)


def conducting(noise=0.01, count=400, seed=0):
    at = places(count, seed)
    u = 2.0 - at["x"] ** 2 - at["y"] ** 2
    return {**at, "u": u + noise * u.std() * np.random.default_rng([seed, 1]).normal(size=count)}


@pytest.fixture(scope="module")
def found():
    return sciml.fit(Conducting(), data=conducting())


def test_a_conductivity_and_a_constant_on_a_disk(found):
    assert found.success
    assert "unknown function a: Chebyshev series" in " ".join(found.choices)
    at = places(2000, seed=5)
    truth = bumpy(torch.from_numpy(at["x"]), torch.from_numpy(at["y"])).numpy()
    wrong = np.linalg.norm(found(**at)["a"] - truth) / np.linalg.norm(truth)
    assert wrong < 0.02
    assert wrong / 4 < found.estimated_error["a"] < 4 * wrong
    assert list(found.unknowns.index) == ["c"]
    estimate, error = found.unknowns.loc["c", ["estimate", "standard_error"]]
    assert abs(estimate - 1) < 4 * error < 0.05


@pytest.mark.slow
def test_bands_hold_the_truth_as_often_as_they_say():
    held = []
    for seed in range(6):
        solution, at = sciml.fit(Conducting(), data=conducting(seed=seed)), places(500, seed=50)
        truth = {"a": bumpy(torch.from_numpy(at["x"]), torch.from_numpy(at["y"])).numpy(), "u": 2 - at["x"] ** 2 - at["y"] ** 2}
        held += [np.mean((low < truth[name]) & (truth[name] < high)) for name, (low, high) in solution.interval(**at).items()]
    assert 0.85 < np.mean(held) < 0.999


@pytest.mark.slow
def test_saved_bands_are_read_again(found, tmp_path):
    found.save(tmp_path / "disk")
    again, at = sciml.load(tmp_path / "disk", Conducting()), places(20)
    for name, ends in found.interval(**at).items():
        assert np.allclose(again.interval(**at)[name], ends, rtol=0, atol=1e-12)


def test_exact_values_give_a_source_to_many_digits():
    at = places(200)
    solution = sciml.fit(Heated(), data={**at, "u": heated(**at)})
    assert solution.success
    at = places(500, seed=3)
    assert np.abs(solution(**at)["f"] - (4 + 4 * at["x"] + 2.4 * at["y"])).max() < 1e-5


def test_noise_models_and_another_unit_of_the_field():
    """Outliers, by Huber's loss; and a source a thousand times larger: the prior is relative to the size that is found."""
    at, draw = places(400), np.random.default_rng(3)
    u = 1000 * heated(**at)
    u += 0.01 * u.std() * draw.normal(size=len(u))
    u[::40] += 3 * u.std()
    solution = sciml.fit(Heated(), data={**at, "u": u}, noise=sciml.Huber(0.01 * float(u.std())))
    assert solution.success
    at = places(500, seed=3)
    truth = 1000 * (4 + 4 * at["x"] + 2.4 * at["y"])
    assert np.linalg.norm(solution(**at)["f"] - truth) < 0.05 * np.linalg.norm(truth)


def test_who_ends_it_keeps_what_was_found():
    looks = []

    def enough(look):
        looks.append(look)
        return look.phase.startswith("prior") and len(looks) > 6

    solution = sciml.fit(Conducting(), data=conducting(), callbacks=[enough])
    assert solution.status == "stopped"
    assert np.isfinite(solution(x=0.1, y=0.2)["a"])


class Through(sciml.Problem):
    """Heat that flows through a disk: nothing tells how well it conducts."""

    domain = DISK
    fields = ["u", "a"]
    conditions = [sciml.Dirichlet(u=lambda x: x, on=DISK.boundary)]

    @sciml.equation
    def flux(self, u, a, x, y):
        return d(a * d(u, x), x) + d(a * d(u, y), y)


def test_a_scale_that_nothing_tells_is_no_success():
    at = places(100)
    solution = sciml.fit(
        Through(), data={**at, "u": at["x"] + 0.01 * np.random.default_rng(0).normal(size=100)}, strategy="InverseFields"
    )
    assert not solution.success
    assert solution.estimated_error["a"] == 1.0


class Prescribed(Heated):
    conditions = [sciml.Dirichlet(u=0.0, f=1.0, on=DISK.boundary)]


class Open(Heated):
    conditions = []


class Four(sciml.Problem):
    domain = DISK * sciml.Box(z=(0, 1), w=(0, 1))
    fields = ["u", "f"]

    @sciml.equation
    def balance(self, u, f, x):
        return d(u, x) - f


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Prescribed, "prescribe the unknown fields"),
        (Open, "conditions are too few"),
        (Four, r"it has 4 coordinate\(s\)"),
    ],
)
def test_what_cannot_be_solved_with_the_field_known_is_said(kind, said):
    data = {**places(20), "z": np.full(20, 0.5), "w": np.full(20, 0.5), "u": heated(**places(20))}
    data = {name: data[name] for name in (*kind.domain.coordinates, "u")}
    with pytest.raises(sciml.errors.SolverError, match=said):
        sciml.fit(kind(), data=data, strategy="InverseFields", preflight="off")


def test_who_ends_it_before_any_step_gets_what_it_began_with():
    seen = []

    def end(report):
        seen.append(report)
        if len(seen) > 1:
            raise KeyboardInterrupt

    solution = sciml.fit(Conducting(), data=conducting(), callbacks=[end])
    assert solution.status == "interrupted"
    assert not solution.success
    assert "no step was taken" in solution.message
    assert abs(solution(x=0.1, y=0.2)["a"] - solution(x=-0.5, y=0.6)["a"]) < 1e-9


def test_derivatives_that_memory_does_not_hold_are_foretold():
    with pytest.raises(sciml.errors.SolverError, match=r"91 derivatives of 360 measurements would take 0\.0 GB"):
        sciml.fit(Conducting(), data=conducting(), strategy="InverseFields", memory=1e5)


class Warming(sciml.Problem):
    r"""A box in time with :math:`u = t\,x(1 - x)\,y(1 - y)` and the unknown factor :math:`f = 2 + x + y/2` of its source."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
    fields = {"u": ("x", "y", "t"), "f": ("x", "y")}
    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def heat(self, u, f, x, y, t):
        source = x * (1 - x) * y * (1 - y) + 2 * t * (x * (1 - x) + y * (1 - y))
        return d(u, t) - sciml.laplacian(u, x, y) - f * source / (2 + x + y / 2)


@pytest.mark.slow
def test_a_field_of_two_coordinates_from_a_box_in_time():
    draw = np.random.default_rng(0)
    x, y, t = draw.uniform(size=(3, 600))
    u = t * x * (1 - x) * y * (1 - y)
    data = {"x": x, "y": y, "t": t, "u": u + 0.01 * u.std() * draw.normal(size=600)}
    solution = sciml.fit(Warming(), data=data)
    assert solution.success
    x, y, t = draw.uniform(size=(3, 400))
    truth = 2 + x + y / 2
    assert np.linalg.norm(solution(x=x, y=y, t=t)["f"] - truth) < 0.03 * np.linalg.norm(truth)
    assert np.allclose(solution(x=x, y=y, t=t)["f"], solution(x=x, y=y, t=0 * t)["f"], rtol=1e-6)


class Furnace(sciml.Problem):
    """Inverse heat conduction: an unknown flux into a cold rod, which begins at once, from two thermocouples."""

    domain = sciml.Interval(x=(0, 1)) * sciml.Interval(t=(0, 2))
    fields = {"u": ("x", "t"), "q": ("t",)}
    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.face(x=1))]

    @sciml.condition(on=domain.face(x=0))
    def enters(self, u, q, x):
        return d(u, x) + q

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - 0.5 * d(u, x, x)


def flux(t):
    return 1 + np.sin(2 * t)


def warmed(x, t):
    """The temperature ``(n, m)`` at places and times, by its modes, whose amplitudes have closed forms."""
    k = (np.arange(4000)[:, None] + 0.5) * np.pi
    rate = 0.5 * k**2
    fading, swing = np.exp(-rate * t), rate * np.sin(2 * t) - 2 * np.cos(2 * t)
    amplitudes = (1 - fading) / rate + (swing + 2 * fading) / (rate**2 + 4)
    return np.cos(np.outer(x, k)) @ amplitudes


@pytest.mark.slow
def test_a_flux_that_begins_at_once_is_found_by_marching(tmp_path):
    times, places = np.linspace(0.02, 2, 60), np.array([0.3, 0.6])
    u = warmed(places, times) + 0.01 * np.random.default_rng(1).normal(size=(2, 60))
    data = {"x": np.repeat(places, 60), "t": np.tile(times, 2), "u": u.ravel()}
    solution = sciml.fit(Furnace(), data=data)
    assert solution.success, solution.message
    assert any("unknown function q" in each and "windows of time" in each for each in solution.choices)
    t = np.linspace(0.1, 1.9, 50)
    here = {"x": 0 * t, "t": t}
    assert np.linalg.norm(solution(**here)["q"] - flux(t)) < 0.05 * np.linalg.norm(flux(t))
    bands = solution.interval(**here)
    for name, truth in (("q", flux(t)), ("u", warmed(np.zeros(1), t)[0])):
        low, high = bands[name]
        assert np.mean((low < truth) & (truth < high)) > 0.85, name
    solution.save(tmp_path / "furnace.pt")
    again = sciml.load(tmp_path / "furnace.pt", Furnace())
    assert np.array_equal(again(**here)["q"], solution(**here)["q"])
    assert np.allclose(again.interval(**here)["q"], bands["q"], rtol=1e-12)


def test_starts_that_contradict_conditions_are_told_from_those_that_do_not():
    box = sciml.Interval(x=(0, 1)) * sciml.Interval(t=(0, 1))

    class Rod(sciml.Problem):
        domain = box
        fields = ["u"]
        start = sciml.Unknown(1.0)
        conditions = [
            sciml.Initial(u=lambda x: x**2),
            sciml.Robin(u=2.0, coefficient=0.5, on=box.face(x=1)),
            sciml.Neumann(u=0.0, on=box.face(x=0)),
        ]

        @sciml.condition(on=box.face(x=1))
        def rate(self, u, t):
            return d(u, t)

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - d(u, x, x)

    # Of rates the start says nothing.
    assert left_by_start(Rod()) == {"robin": pytest.approx(0.5), "neumann": pytest.approx(0.0)}


def test_contradictions_do_not_keep_constants_from_being_solved_for():
    box = sciml.Interval(x=(0, 1)) * sciml.Interval(t=(0, 1))

    class Quench(sciml.Problem):
        domain = box
        fields = ["u"]
        D = sciml.Unknown(1.0, lower=0)
        conditions = [sciml.Initial(u=1.0), sciml.Dirichlet(u=0.0, on=box.faces("x"))]

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - self.D * d(u, x, x)

    class Lacking(Quench):
        conditions = [sciml.Initial(u=1.0), sciml.Dirichlet(u=0.0, on=box.face(x=0))]

    assert not_by_solving(Quench()) is None
    assert "too few or too many" in not_by_solving(Lacking())


def test_measurements_are_judged_wherever_they_were_made():
    data = {"x": np.full(30, 0.3), "t": np.linspace(0.02, 2, 30), "u": np.linspace(0, 1, 30)}
    setup = workspace(Furnace(), measurements=sciml.Measurements(data)).discrete
    apart = judged_apart(setup, lambda points: points[:, 1] > 1)
    measured = [any(term.measured for term in block.terms) for block in setup.fresh]
    assert any(measured)
    for own, block, kept in zip(measured, setup.fresh, apart.fresh, strict=True):
        late = block.sample.points[0][:, 1] > 1
        assert kept.size == (block.size if own or not late.any() else int(late.sum()))
