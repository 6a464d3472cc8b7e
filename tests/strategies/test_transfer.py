"""Fits that begin from another solution, parts of a model that stay as they are, learning rates by name."""

import math

import numpy as np
import pytest
import torch
from candidates import candidate, workspace

import sciml
from sciml import d
from sciml.errors import ModelError, ProblemError, SolverError
from sciml.solvers import Objective
from sciml.solvers.journal import Journal
from sciml.strategies.prepare import prepare
from sciml.strategies.search import Candidate, Log, Options, Workspace
from sciml.strategies.tiles import _better, _coarse_start, _off_singular
from sciml.strategies.training import held_out
from sciml.strategies.transfer import WarmStart, frozen


class Relaxation(sciml.Problem):
    domain = sciml.Interval(t=(0, 2))
    fields = ["u"]
    rate = 1.0
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def relaxation(self, u, t):
        return d(u, t) + self.rate * u**2


TIMES = np.linspace(0, 2, 21)
DATA = {"t": TIMES, "u": 1 / (1 + 1.3 * TIMES)}
FITTED = sciml.LeastSquares(60)
FEW = {"points": 40, "sampler": None}


@pytest.fixture(scope="module")
def before():
    return sciml.fit(Relaxation(rate=sciml.Unknown(0.7, lower=0)), sciml.MLP(8, 8), data=DATA, solver=FITTED, **FEW)


def plain(*, rate=1.0, model=None, **options):
    return sciml.fit(Relaxation(rate=rate), model or sciml.MLP(8, 8), solver=FITTED, **FEW, **options)


def test_nothing_changed_begins_where_the_other_ended():
    first = plain()
    again = sciml.fit(Relaxation(), start=first, solver=sciml.LBFGS(1, look=1), **FEW)
    assert again.history["loss"].iloc[0] <= first.history["loss"].iloc[-1]
    assert again.history["held_out"].min() <= first.history["held_out"].min()
    begin = WarmStart.of(first, Relaxation(), None)
    setup = begin.begun(prepare(Relaxation(), begin.model, None, 40, None, torch.float64, "cpu", 0))
    assert held_out(setup) == pytest.approx(first.history["held_out"].min(), rel=1e-9)
    assert any("start: MLP of a solution of Relaxation" in each for each in again.choices)


def test_the_function_is_the_same_in_a_larger_domain_with_other_data(before):
    longer = Relaxation(rate=sciml.Unknown(2.0, lower=0.5, upper=4.0), domain=sciml.Interval(t=(0, 3)))
    begin = WarmStart.of(before, longer, None)
    setup = begin.begun(prepare(longer, begin.model, {"t": [1.0, 3.0], "u": [50.0, 3.0]}, 40, None, torch.float64, "cpu", 0))
    with torch.no_grad():
        values = setup.trial(torch.from_numpy(TIMES)[:, None])[:, 0].numpy()
    assert np.array_equal(values, before(t=TIMES)["u"])
    assert float(setup.rows.values()["rate"].detach()) == pytest.approx(before.unknowns["estimate"]["rate"], rel=1e-14)
    assert not np.isclose(float(setup.raw["rate"].detach()), float(longer.unknowns["rate"].raw_initial()))


def test_unknowns_beyond_new_bounds_or_unheard_of_begin_at_their_own(before):
    narrow = Relaxation(rate=sciml.Unknown(3.0, lower=2.5))
    solution = sciml.fit(narrow, start=before, data=DATA, solver=sciml.LBFGS(1), **FEW)
    assert any("rate (its estimate is beyond the bounds)" in each for each in solution.choices)
    fresh = sciml.fit(Relaxation(rate=sciml.Unknown(1.0)), start=plain(), data=DATA, solver=sciml.LBFGS(1), **FEW)
    assert any("rate (new)" in each for each in fresh.choices)


def test_a_path_will_do_and_so_will_a_module_of_ones_own(tmp_path, before):
    path = before.save(tmp_path / "before.pt")
    problem = Relaxation(rate=sciml.Unknown(0.7, lower=0))
    one, other = (sciml.fit(problem, start=start, data=DATA, solver=sciml.LBFGS(2), **FEW) for start in (before, path))
    assert np.array_equal(one(t=TIMES)["u"], other(t=TIMES)["u"])
    own = torch.nn.Sequential(torch.nn.Linear(1, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).double()
    trained = plain(model=own)
    again = sciml.fit(Relaxation(), own, start=trained.save(tmp_path / "own.pt"), solver=sciml.LBFGS(5), **FEW)
    assert again.history["loss"].iloc[0] <= trained.history["loss"].iloc[-1]
    with pytest.raises(ModelError, match="has not the shape"):
        sciml.fit(Relaxation(), sciml.MLP(5), start=before)
    assert sciml.fit(Relaxation(), sciml.MLP(8, 8), start=before, solver=sciml.LBFGS(1), **FEW).choices


def test_exact_conditions_may_change_and_are_still_held(tmp_path):
    first = plain(exact=True)

    class Higher(Relaxation):
        conditions = [sciml.Initial(u=1.2)]

    path = first.save(tmp_path / "exact.pt")
    for start in (first, path):
        second = sciml.fit(Higher(), start=start, exact=True, solver=sciml.LBFGS(40), **FEW)
        assert float(second(t=0.0)["u"]) == pytest.approx(1.2, rel=1e-14)
        assert second.success
    with pytest.raises(ProblemError, match="exact=True"):
        sciml.fit(Higher(), start=first)
    with pytest.raises(ProblemError, match="exact=False"):
        sciml.fit(Higher(), start=plain(), exact=True)


def test_solvers_follow_from_the_model():
    assert sciml.fit(Relaxation(), start=plain(), callbacks=[lambda look: True], **FEW).solver == "LBFGS"
    features = plain(model=sciml.RandomFeatures(30, 2.0))
    near = sciml.fit(Relaxation(rate=1.1), start=features)
    assert near.solver == "GaussNewton"
    assert near.success
    assert type(near.model) is sciml.RandomFeatures
    assert torch.equal(near.model.layers[0].weight, features.model.layers[0].weight)


def test_products_of_polynomials_take_two_steps_to_another_constant():
    rod = sciml.gallery.problem("heat_rod")
    near = sciml.fit(type(rod)(kappa=0.42), start=sciml.fit(rod))
    assert near.nit <= 2
    assert near.error()["u"] < 1e-11


class Bratu(sciml.Problem):
    r"""Two solutions, :math:`u = \ln(8 b / (\lambda (1 + b r^2)^2))` with :math:`8 b = \lambda (1 + b)^2`."""

    domain = sciml.Disk((0, 0), 1.0)
    fields = ["u"]
    strength = 1.0
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def reaction(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + self.strength * torch.exp(u)

    def reference(self, x, y):
        """The larger of the two."""
        half = 4.0 - self.strength
        b = (half + math.sqrt(half**2 - self.strength**2)) / self.strength
        return torch.log(8 * b / (self.strength * (1 + b * (x * x + y * y)) ** 2))


class Prescribed(Bratu):
    """The larger of the two solutions, by its source."""

    @sciml.equation
    def reaction(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + self.strength * torch.exp(self.reference(x, y))


@pytest.fixture(scope="module")
def on_tiles():
    return sciml.fit(Prescribed(), strategy=sciml.strategies.Tiles(6, 8))


@pytest.mark.slow
def test_a_branch_of_solutions_is_followed_on_tiles(on_tiles, tmp_path):
    near = sciml.fit(Bratu(strength=1.2), start=on_tiles.save(tmp_path / "tiles.pt"))
    assert near.success
    assert "start: Tiles of a solution of Prescribed" in near.choices
    assert near.error()["u"] < 1e-7
    # The next one begins from other tiles than it will have, some of which are halved.
    again = sciml.fit(Bratu(strength=1.0), start=near, strategy=sciml.strategies.Tiles(7, 8))
    assert again.error()["u"] < 1e-4
    # From nowhere it is the smaller one that is found.
    assert sciml.fit(Bratu(strength=1.2)).error()["u"] > 0.1


def test_a_constant_beside_tiles_begins_from_its_estimate(on_tiles):
    class Hot(Bratu):
        strength = sciml.Unknown(1.7)
        conditions = [*Bratu.conditions, sciml.Point(u=3.8421887, at={"x": 0.0, "y": 0.0})]

    first = sciml.fit(Hot(strength=sciml.Unknown(0.9)), start=on_tiles, strategy=sciml.strategies.Tiles(6, 8))
    assert abs(first.unknowns["estimate"]["strength"] - 1.0) < 1e-4
    again = sciml.fit(Hot(), start=first, strategy=sciml.strategies.Tiles(6, 8))
    assert "start: Tiles of a solution of Hot, with strength = 1" in again.choices
    assert abs(again.unknowns["estimate"]["strength"] - 1.0) < 1e-4


@pytest.mark.parametrize(
    "strategy", ["auto", "Tiles", sciml.strategies.Tiles, ["Tiles", "ClassicalGrids"], [sciml.strategies.Tiles(6, 8)]]
)
def test_every_way_to_name_tiles_begins_from_them(on_tiles, strategy):
    near = sciml.fit(Bratu(strength=1.2), start=on_tiles, strategy=strategy, callbacks=[lambda look: True])
    assert "start: Tiles of a solution of Prescribed" in near.choices


def test_what_does_not_begin_from_tiles(on_tiles):
    with pytest.raises(SolverError, match="'Tiles' alone begins from a solution on tiles; given: strategy='Spectral'"):
        sciml.fit(Bratu(), start=on_tiles, strategy="Spectral")
    with pytest.raises(SolverError, match="leave out model, solver"):
        sciml.fit(Bratu(), start=on_tiles, solver=sciml.LBFGS(3))
    with pytest.raises(SolverError, match="it has measurements; begin from the constants"):
        sciml.fit(Bratu(strength=sciml.Unknown(1.0)), start=on_tiles, data={"x": [0.1], "y": [0.2], "u": [1.0]})
    with pytest.raises(SolverError, match="hand a solution to begin from to fit"):
        sciml.strategies.Tiles(begin=on_tiles)


def test_the_larger_of_two_solutions_is_found_from_a_first_guess():
    guess = {"u": lambda x, y: 5 * (1 - x**2 - y**2)}
    found = sciml.fit(Bratu(), start=guess, strategy=sciml.strategies.Tiles(5, 8))
    assert found.error()["u"] < 1e-4
    assert "start: a first guess" in found.choices


def test_a_guess_may_have_no_value_beyond_the_domain():
    begin = WarmStart.of({"u": lambda x, y: torch.sqrt(1 - x**2 - y**2)}, Bratu(), None)
    inside = torch.tensor([[0.0, 0.0], [0.3, -0.4]], dtype=torch.float64)
    np.testing.assert_allclose(begin.scaled(inside)[:, 0].numpy(), [1.0, math.sqrt(0.75)], atol=1e-4)


class Phases(sciml.Problem):
    """Allen and Cahn's equation at rest: a thin layer between two phases."""

    domain = sciml.Disk((0.45, 0.4), 0.6)
    fields = ["u"]
    width = 0.06
    conditions = [sciml.Dirichlet(u=lambda self, x, y: self.exact(x, y), on=domain.boundary)]

    def exact(self, x, y):
        return torch.tanh((0.8 * x + 0.6 * y - 0.6) / (self.width * math.sqrt(2)))

    @sciml.equation
    def phases(self, u, x, y):
        return self.width**2 * sciml.laplacian(u, x, y) + u - u**3

    def reference(self, x, y):
        return self.exact(x, y)


class Layer(Phases):
    """The same on an interval."""

    domain = sciml.Interval(x=(-0.2, 0.3))
    conditions = [sciml.Dirichlet(u=lambda self, x: self.exact(x), on=domain.boundary)]

    def exact(self, x):
        return torch.tanh(x / (self.width * math.sqrt(2)))

    @sciml.equation
    def phases(self, u, x):
        return self.width**2 * d(u, x, x) + u - u**3

    def reference(self, x):
        return self.exact(x)


def test_polynomials_on_tiles_begin_from_a_grid():
    problem = Layer()
    begin = WarmStart.of(sciml.baseline(problem, n=129), problem, None)
    places = torch.linspace(-0.2, 0.3, 50, dtype=torch.float64)[:, None]
    assert torch.allclose(begin.scaled(places)[:, 0], problem.exact(places[:, 0]), atol=1e-3)
    found = sciml.fit(problem, start=sciml.baseline(problem, n=129))
    assert found.success
    assert found.error()["u"] < 1e-7
    assert "start: a grid of a solution of Layer" in found.choices


def test_a_first_guess_is_proposed_where_nonlinear_equations_at_rest_are_not_solved():
    class Ignited(Layer):
        """Gelfand's equation beyond its fold: there is no solution."""

        @sciml.equation
        def phases(self, u, x):
            return d(u, x, x) + 80 * torch.exp(u)

    coarse = sciml.strategies.Tiles(2, 4)
    lost = sciml.fit(Ignited(), strategy=coarse)
    assert not lost.success
    assert "begin from a first guess, start={'u': lambda x: ...}" in lost.message
    assert "a first guess" not in sciml.fit(Ignited(), start={"u": 1.0}, strategy=coarse).message


@pytest.mark.slow
def test_what_is_not_solved_from_nothing_begins_from_coarse_grids():
    # Nothing is a solution of the equation, from which Newton's method goes astray.
    found = sciml.fit(Phases(), seconds=120)
    assert found.success
    assert found.error()["u"] < 1e-6
    assert any(each.startswith("start: what is found by collocation") for each in found.choices)


def test_a_start_from_coarse_grids_is_remembered(monkeypatch):
    known, asked = [], []

    def grids(work, count):
        asked.append(count)
        return sciml.baseline(Layer(), n=65), "", True

    monkeypatch.setattr("sciml.strategies.tiles.on_coarse_grids", grids)
    monkeypatch.setattr("sciml.solvers.journal._WORTH", 0.0)
    begun = []
    for content in ({}, None):
        journal = Journal(known.append, lambda steps: True)
        if content is None:
            journal.load_state_dict(known[-1])
        begun.append(_coarse_start(Workspace(Layer(), None, Options(), Log(), journal), 65)[0])
    assert len(asked) == 1
    assert begun[0].said == begun[1].said
    assert begun[0].said.startswith("what is found by collocation")
    assert torch.equal(begun[0].scaled.model.coefficients, begun[1].scaled.model.coefficients)


class Burning(sciml.Problem):
    """A nonlinear problem of which nothing is near the solution."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda x, y: x * y, on=domain.boundary)]

    @sciml.equation
    def burning(self, u, x, y):
        return sciml.laplacian(u, x, y) + torch.exp(u) * torch.cos(4 * x)


def test_what_is_near_is_refined_from_nothing_until_it_is_accepted(monkeypatch):
    monkeypatch.setattr("sciml.strategies.tiles.on_coarse_grids", lambda work, count: pytest.fail("no grid is needed"))
    work = workspace(Burning())
    last = candidate(sciml.strategies.Tiles(), work)
    assert work.log.steps > 3
    assert last.accepted


@pytest.mark.parametrize(("residuals", "kept"), [((2e-8, 1e-7), 0), ((1e-8, 1e-8), 1)])
def test_of_two_runs_the_better_one_is_kept_and_of_one_the_latest(residuals, kept):
    other, now = (Candidate(None, each, "", "", doubt=str(number)) for number, each in enumerate(residuals))
    assert _better(now, other).doubt == str(kept)
    assert _better(now, None) is now


def test_without_a_start_from_coarse_grids_it_goes_on_from_nothing(monkeypatch):
    monkeypatch.setattr("sciml.strategies.tiles.on_coarse_grids", lambda work, count: (None, "nothing was found", count < 1000))
    monkeypatch.setattr("sciml.strategies.tiles._PLAIN", 0)

    class Mild(Layer):
        """Of which nothing is nearly the solution."""

        @sciml.equation
        def phases(self, u, x):
            return d(u, x, x) - u**3

    found = sciml.fit(Mild(), strategy="Tiles")
    assert found.success
    assert "Tiles: no start from grids of 257 nodes, nothing was found" in found.choices


class Cycle(sciml.Problem):
    """Van der Pol's limit cycle, its period unknown; nothing is a solution as well."""

    domain = sciml.Interval(s=(0, 1))
    fields = ["x", "y"]
    period = sciml.Unknown(6.5, lower=1)
    conditions = [sciml.Periodic("s"), sciml.Point(y=0.0, at={"s": 0.0})]

    @sciml.equation
    def position(self, x, y, s):
        return d(x, s) - self.period * y

    @sciml.equation
    def velocity(self, x, y, s):
        return d(y, s) - self.period * (2 * (1 - x * x) * y - x)


def test_a_limit_cycle_is_found_from_a_first_guess():
    start = {"x": lambda s: 2 * torch.cos(2 * torch.pi * s), "y": lambda s: -2 * torch.sin(2 * torch.pi * s)}
    cycle = sciml.fit(Cycle(), start=start)
    assert cycle.success
    # The time between two maxima after many cycles, by DOP853 with a relative tolerance of 1e-13.
    assert cycle.unknowns.loc["period", "estimate"] == pytest.approx(7.62987448, abs=1e-7)


@pytest.mark.parametrize(
    ("start", "options", "error", "words"),
    [
        ({"v": 1.0}, {}, ProblemError, "start names 'v'; the fields are 'u'"),
        ({"u": lambda x, y: torch.log(x)}, {}, ProblemError, "a first guess is not finite at x="),
        ({"u": lambda x, z: x}, {}, ProblemError, "start, for .u., takes .z.; the coordinates are 'x', 'y'"),
        ({"u": 1.0}, {"model": sciml.MLP(8)}, SolverError, "a first guess of the fields is for polynomials on tiles"),
        ({"u": 1.0}, {"strategy": "Spectral"}, SolverError, "'Tiles' alone begins from a solution on tiles"),
        (1.0, {}, SolverError, "or a first guess of fields as"),
    ],
)
def test_what_cannot_be_a_first_guess(start, options, error, words):
    with pytest.raises(error, match=words):
        sciml.fit(Bratu(), start=start, **options)


def test_a_start_in_another_precision(before):
    single = sciml.fit(
        Relaxation(rate=1.3), start=before, dtype=torch.float32, callbacks=[lambda look: True], points=40, sampler=None
    )
    assert single.dtype == torch.float32
    assert np.allclose(single(t=TIMES)["u"], before(t=TIMES)["u"], rtol=1e-2)


def test_what_cannot_be_a_start(before):
    class Other(Relaxation):
        domain = sciml.Interval(x=(0, 1))
        conditions = [sciml.Dirichlet(u=1.0, on=domain.face(x=0))]

        @sciml.equation
        def relaxation(self, u, x):
            return d(u, x) + self.rate * u

    with pytest.raises(ProblemError, match="coordinates 't' and fields 'u'"):
        sciml.fit(Other(), start=before)
    with pytest.raises(SolverError, match="a solution or the path"):
        sciml.fit(Relaxation(), start=3)
    for start, kind in ((sciml.fit(Relaxation()), "windows of time"), (sciml.baseline(Relaxation()), "a grid")):
        with pytest.raises(ModelError, match=kind):
            sciml.fit(Relaxation(), start=start)
    with pytest.raises(SolverError, match="one model"):
        sciml.fit(Relaxation(), start=before, windows=2)


SOLVERS = {
    "Adam": sciml.Adam(5),
    "AdamW": sciml.FirstOrder(torch.optim.AdamW, steps=5, lr=1e-2, weight_decay=0.1),
    "LBFGS": sciml.LBFGS(5),
    "SSBroyden": sciml.SSBroyden(5),
    "LeastSquares": sciml.LeastSquares(5),
    "GaussNewton": sciml.GaussNewton(3),
    "LinearLeastSquares": sciml.LinearLeastSquares(2),
}
OWN = torch.nn.Sequential(
    torch.nn.Linear(1, 6),
    torch.nn.LayerNorm(6),
    torch.nn.Tanh(),
    torch.nn.Linear(6, 6),
    torch.nn.Tanh(),
    torch.nn.Linear(6, 1),
).double()


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize(
    ("model", "freeze"),
    [
        (sciml.MLP(6, 6), ("layers.0", "layers.1")),
        (sciml.MLP(6, 6), ("layers.[02]",)),
        (sciml.MLP(6, 6), ("*.weight",)),
        (OWN, ("0", "3.bias")),
    ],
    ids=["first", "all but last", "weights", "module of one's own"],
)
def test_frozen_parameters_are_bitwise_what_they_were(name, model, freeze):
    problem = Relaxation(rate=sciml.Unknown(0.7, lower=0))
    setup = frozen(prepare(problem, model, DATA, 40, None, torch.float64, "cpu", 0), freeze)
    parameters = dict(setup.trial.model.named_parameters())
    free = {key for key, value in parameters.items() if value.requires_grad}
    begun = {key: value.detach().clone() for key, value in parameters.items()}
    # Undamped steps need a beginning near the end.
    for solver in (sciml.LeastSquares(8), SOLVERS[name]):
        run = solver.start(objective_of(setup))
        for _ in range(solver.steps):
            run.step()
    assert {key for key, value in parameters.items() if not torch.equal(value, begun[key])} == free
    assert 0 < len(free) < len(parameters)


def objective_of(setup):
    return Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)


def test_a_whole_fit_leaves_frozen_parts_alone(before):
    solvers = [sciml.Adam(60, look=10), sciml.LBFGS(20)]
    freeze = ("layers.0", "layers.1")
    solution = sciml.fit(Relaxation(rate=1.6), start=before, freeze=freeze, solver=solvers, **FEW)
    assert torch.equal(solution.model.layers[0].weight, before.model.layers[0].weight)
    assert not torch.equal(solution.model.layers[2].weight, before.model.layers[2].weight)
    assert "frozen: 'layers.0', 'layers.1', 16 of 97 parameters" in solution.choices


@pytest.mark.parametrize(
    ("model", "freeze"),
    [
        (sciml.MLP(6, 6), ("layers.2",)),
        (sciml.MLP(6), ("layers.0.weight", "layers.2")),
        (sciml.MLP(6), ("layers.0",)),
        (OWN, ("0",)),
        (sciml.MLP(6), ("*",)),
    ],
)
def test_columns_of_the_jacobian_are_those_of_free_parameters(model, freeze):
    problem = Relaxation(rate=sciml.Unknown(0.7, lower=0))
    setup = frozen(prepare(problem, model, DATA, 40, None, torch.float64, "cpu", 0), freeze)
    objective = objective_of(setup)
    rows, slopes = objective.linearised()
    assert slopes.shape == objective.shape
    _, gradient, _ = objective.evaluate()
    assert torch.allclose(2 * slopes.T @ rows, gradient, rtol=1e-9, atol=1e-12)


def test_unknowns_alone_are_estimated_by_a_frozen_model(before):
    problem = Relaxation(rate=sciml.Unknown(0.7, lower=0))
    solution = sciml.fit(problem, start=before, freeze="*", data=DATA, solver=sciml.LeastSquares(20), **FEW)
    assert solution.unknowns["estimate"]["rate"] == pytest.approx(1.3, rel=1e-2)
    assert np.array_equal(solution(t=TIMES)["u"], before(t=TIMES)["u"])


def test_what_cannot_be_frozen():
    with pytest.raises(ModelError, match=r"'layer.0'; parts: .*Did you mean 'layers.0'"):
        plain(freeze=("layer.0",))
    with pytest.raises(ModelError, match="leaves nothing to vary"):
        plain(freeze="*")
    with pytest.raises(ModelError, match="must hold names"):
        plain(freeze=[1])
    with pytest.raises(SolverError, match="Polish"):
        sciml.fit(Relaxation(), sciml.MLP(6), freeze="layers.0", solver=[sciml.LBFGS(2), sciml.Polish()])
    with pytest.raises(SolverError, match="windows="):
        sciml.fit(Relaxation(), sciml.MLP(6), freeze="layers.0", windows=2)


def stepped(rates, solver=None, count=1, model=None):
    """How far each parameter of a model, and the unknown, moved."""
    problem = Relaxation(rate=sciml.Unknown(0.7, lower=0))
    setup = prepare(problem, model or sciml.MLP(6, 6), DATA, 40, None, torch.float64, "cpu", 0)
    named = {**dict(setup.trial.model.named_parameters()), **setup.raw}
    before = {name: value.detach().clone() for name, value in named.items()}
    run = (solver or (lambda rates: sciml.Adam(10, lr=1e-3, rates=rates)))(rates).start(objective_of(setup))
    for _ in range(count):
        run.step()
    return {name: float((value.detach() - before[name]).abs().max()) for name, value in named.items()}, run


def test_every_group_has_its_own_rate():
    """A first step of Adam moves every parameter by its learning rate."""
    moved, _ = stepped({"layers.0": 1e-5, "layers.[24].bias": 2e-4, "layers.2": 4e-4, "unknowns": 1e-2})
    wanted = {"layers.0.weight": 1e-5, "layers.0.bias": 1e-5, "layers.2.weight": 4e-4, "layers.2.bias": 2e-4}
    wanted |= {"layers.4.weight": 1e-3, "layers.4.bias": 2e-4, "rate": 1e-2}
    assert moved == pytest.approx(wanted, rel=1e-3)
    moved, _ = stepped({"rate": 0.1, "unknowns": 1e-2})
    assert moved["rate"] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize(
    "solver",
    [
        lambda rates: sciml.Adam(10, lr=1e-3, rates=rates),
        lambda rates: sciml.FirstOrder(
            torch.optim.SGD, 10, lr=1e-3, rates=rates,
            scheduler=torch.optim.lr_scheduler.OneCycleLR, scheduler_options={"max_lr": 1e-2, "total_steps": 10},
        ),
        lambda rates: sciml.FirstOrder(
            torch.optim.AdamW, 10, lr=1e-3, rates=rates,
            scheduler=torch.optim.lr_scheduler.StepLR, scheduler_options={"step_size": 2},
        ),
    ],
    ids=["cosine", "one cycle", "steps"],
)  # fmt: skip
def test_a_scheduler_keeps_the_proportions(solver):
    for count in (0, 1, 7):
        _, run = stepped({"layers.0": 1e-4, "*": 1e-3, "unknowns": 1e-2}, solver, count)
        rates = [group["lr"] for group in run.state_dict()["optimizer"]["param_groups"]]
        _, alone = stepped({}, solver, count)
        assert rates[0] == alone.state_dict()["optimizer"]["param_groups"][0]["lr"]
        assert np.array(rates) / rates[0] == pytest.approx([1, 0.1, 1, 10])


def test_rates_that_name_nothing_or_are_none():
    with pytest.raises(ModelError, match=r"rates: no part of the MLP is called 'layer\.0'"):
        plain_adam(rates={"layer.0": 1e-3})
    with pytest.raises(ModelError, match="'unknowns'; parts"):
        plain_adam(rates={"unknowns": 1e-3})
    with pytest.raises(SolverError, match="freeze"):
        sciml.Adam(10, rates={"layers.0": 0.0})


def plain_adam(**options):
    return sciml.fit(Relaxation(), sciml.MLP(6), solver=sciml.Adam(2, **options), **FEW)


def test_rates_reach_a_whole_fit_beside_frozen_parts():
    solution = plain_adam(rates={"layers.2": 1e-6, "layers.0": 1e-3})
    assert solution.solver == "Adam"
    freeze = {"freeze": "layers.0", "solver": sciml.Adam(20, rates={"layers.*": 1e-3})}
    rested = sciml.fit(Relaxation(), sciml.MLP(6), **freeze, **FEW)
    new = prepare(Relaxation(), sciml.MLP(6), None, 40, None, torch.float64, "cpu", 0).trial.model
    assert torch.equal(rested.model.layers[0].weight, new.layers[0].weight)


class Shock(sciml.Problem):
    """An internal layer between two outer solutions (Lagerstrom and Cole): x - 1 to the left of 1/4, x + 1/2 to the right."""

    width = 1e-3
    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=-1.0, on=domain.face(x=0)), sciml.Dirichlet(u=1.5, on=domain.face(x=1))]

    @sciml.equation
    def law(self, u, x):
        return self.width * d(u, x, x) + u * d(u, x) - u

    @classmethod
    def composite(cls, x):
        """Leading order of matched asymptotic expansions."""
        return x - 0.25 + 0.75 * torch.tanh(0.375 * (x - 0.25) / cls.width)


@pytest.mark.parametrize("width", [1e-2, 1e-3, 1e-4])
def test_a_first_guess_has_tiles_that_resolve_it(width):
    class Thin(Shock):
        pass

    Thin.width = width
    start = WarmStart.guessed({"u": Thin.composite}, Thin())
    x = torch.linspace(0, 1, 4001, dtype=torch.float64)[:, None]
    assert float((start.scaled(x) - Thin.composite(x)).abs().max()) < 1e-3
    assert (start.tiles(Thin()) is None) == (width == 1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("start", [{"u": Shock.composite}, None], ids=["guess", "nothing"])
def test_an_internal_layer_is_found_from_a_guess_and_from_fine_grids(start):
    found = sciml.fit(Shock(), start=start, seconds=120)
    assert found.success
    x = np.linspace(0, 1, 4001)
    # The next term of the expansion is of the order of the width, times its logarithm.
    assert np.abs(found(x=x)["u"] - Shock.composite(torch.from_numpy(x)).numpy()).max() < 5e-3
    assert found.estimated_error["u"] < 1e-4
    assert float(found(x=0.25)["u"]) == pytest.approx(0.0, abs=2e-3)


class Membrane(sciml.Problem):
    """The p-Laplacian for p = 4 on a disk: Newton's method cannot begin at a constant, where no derivative has a slope."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def membrane(self, u, x, y):
        stiffness = d(u, x) ** 2 + d(u, y) ** 2
        return d(stiffness * d(u, x), x) + d(stiffness * d(u, y), y) + 1

    def reference(self, x, y):
        return 0.75 * 0.5 ** (1 / 3) * (1 - torch.hypot(x, y) ** (4 / 3))


@pytest.mark.slow
def test_equations_without_slopes_at_constants_begin_from_hills():
    found = sciml.fit(Membrane(), seconds=90)
    assert found.success
    assert found.error()["u"] < 10 * found.estimated_error["u"] < 1e-3
    assert any("hills as large as fields are" in each for each in found.choices)


def test_hills_are_as_large_as_fields_are():
    problem = Membrane()
    start = WarmStart.hills(problem, torch.tensor([0.5]).double(), torch.tensor([2.0]).double())
    points = torch.tensor([[0.0, 0.0], [0.5, -0.5]], dtype=torch.float64)
    assert torch.allclose(start.scaled(points)[:, 0], torch.tensor([2.5, 0.5 + 2 * 0.75**2], dtype=torch.float64))


def test_a_guess_that_is_rough_everywhere_keeps_its_tiles():
    rough = WarmStart.guessed({"u": lambda x: torch.sin(1e5 * x)}, Shock())
    assert len(rough.scaled.model.live) == 24
    assert rough.tiles(Shock()) is None


def test_hills_are_no_start_where_hollows_lead_to_another_solution():
    class MongeAmpere(Membrane):
        """Its solutions are convex or concave, and a fit that begins from a hill finds the one that nobody asked for."""

        conditions = [sciml.Dirichlet(u=lambda x, y: torch.exp((x * x + y * y) / 2), on=Membrane.domain.boundary)]

        @sciml.equation
        def membrane(self, u, x, y):
            return d(u, x, x) * d(u, y, y) - d(u, x, y) ** 2 - (1 + x * x + y * y) * torch.exp(x * x + y * y)

    assert _off_singular(workspace(MongeAmpere())) is None
    assert _off_singular(workspace(Burning())) is None
    assert _off_singular(workspace(Membrane())).said.startswith("hills as large as fields are")
