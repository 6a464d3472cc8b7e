"""The training loop: what it leaves alone, how it stops, what it returns."""

import json
import signal
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import problem_class
from torch import nn

import sciml
from problems import Decay, Explosion, Poisson
from sciml import d
from sciml.data import archive
from sciml.errors import FileError, ProblemError
from sciml.solvers.discrete_problem import device_of

QUICK = sciml.LBFGS(600)


@pytest.fixture(scope="module")
def solution():
    return sciml.fit(Decay(), sciml.MLP(8), solver=QUICK)


def test_it_solves(solution):
    assert solution.success
    assert solution.error()["u"] < 1e-4
    assert abs(float(solution(t=0.5)["u"]) - np.exp(-1)) < 1e-4


def test_the_same_seed_gives_the_same_bits_and_another_does_not(solution):
    again = sciml.fit(Decay(), sciml.MLP(8), solver=QUICK)
    for name, value in solution.trial.state_dict().items():
        assert torch.equal(value, again.trial.state_dict()[name])
    assert np.array_equal(solution.history.drop(columns="seconds"), again.history.drop(columns="seconds")) or (
        solution.history.drop(columns="seconds").equals(again.history.drop(columns="seconds"))
    )
    other = sciml.fit(Decay(), sciml.MLP(8), solver=QUICK, seed=1)
    assert not torch.equal(other.model.layers[0].weight, solution.model.layers[0].weight)


def test_nothing_of_the_callers_is_touched():
    model = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global generator is what is looked at
    state, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    threads, dtype, grad = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    solution = sciml.fit(Decay(), model, solver=[sciml.Adam(20), sciml.LBFGS(5)])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numbers)  # noqa: NPY002
    assert (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()) == (threads, dtype, grad)
    assert type(solution.model) is type(model)
    assert solution.model is not model


def test_lazy_layers_are_filled_in():
    lazy = nn.Sequential(nn.LazyLinear(6), nn.Tanh(), nn.LazyLinear(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sciml.fit(Decay(), lazy, solver=sciml.Adam(5)).model[0].in_features == 1


def test_early_stopping_ends_a_phase_and_the_best_state_is_kept():
    looks = []
    solution = sciml.fit(
        Decay(),
        sciml.MLP(8),
        solver=sciml.Adam(2000, lr=0.3, look=10),
        early_stopping=sciml.EarlyStopping(patience=3),
        callbacks=[looks.append],
    )
    assert solution.status == "plateau"
    assert solution.nit < 2000
    best = min(look.held_out for look in looks)
    assert solution.history["held_out"].min() == best == looks[-1].best
    # The state returned is the one that had the best held-out loss, not the last.
    residuals = Decay().residuals(lambda t: solution(t=t)["u"], t=np.linspace(0, 1, 200))["decay"]
    assert np.square(residuals).mean() < 10 * best * 4


@pytest.mark.parametrize(
    "solver",
    [
        torch.optim.RMSprop,
        sciml.FirstOrder(torch.optim.SGD, steps=30, lr=1e-2, momentum=0.9, clip=1.0),
        sciml.FirstOrder(torch.optim.LBFGS, steps=5, line_search_fn="strong_wolfe"),
        sciml.FirstOrder(
            torch.optim.AdamW,
            steps=30,
            lr=1e-2,
            scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau,
            scheduler_options={"patience": 2},
        ),
        sciml.FirstOrder(
            lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
            steps=30,
            scheduler=torch.optim.lr_scheduler.OneCycleLR,
            scheduler_options={"max_lr": 1e-2, "total_steps": 30},
        ),
        [sciml.Adam(30), sciml.LBFGS(20)],
    ],
)
def test_any_torch_optimizer_and_scheduler(solver):
    solution = sciml.fit(Decay(), sciml.MLP(6), solver=solver)
    assert solution.history["loss"].iloc[-1] <= solution.history["loss"].iloc[0] * (1 + 1e-9)
    assert np.isfinite(solution.residuals["rms"]).all()


def test_clipping_bounds_the_gradient():
    from sciml.solvers import Objective

    norms = []
    original = Objective.set_gradient

    def spy(self, vector):
        norms.append(float(vector.norm()))
        original(self, vector)

    patch = pytest.MonkeyPatch()
    patch.setattr(Objective, "set_gradient", spy)
    try:
        sciml.fit(Decay(), sciml.MLP(6), solver=sciml.Adam(20, clip=1e-3))
    finally:
        patch.undo()
    assert max(norms) <= 1e-3 * (1 + 1e-12)


def test_every_term_is_in_the_history(solution):
    assert list(solution.history.columns) == ["phase", "step", "seconds", "loss", "held_out", "decay", "initial"]
    assert solution.nit == solution.history["step"].iloc[-1]


def test_a_callback_can_stop():
    solution = sciml.fit(Decay(), sciml.MLP(6), solver=sciml.Adam(500, look=5), callbacks=[lambda look: look.step >= 10])
    assert (solution.status, solution.nit) == ("stopped", 10)


def test_fault_09_ctrl_c_returns_the_best_solution_so_far():
    def interrupt(look):
        if look.step >= 100:
            signal.raise_signal(signal.SIGINT)

    # A test run in the background may have been started with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        solution = sciml.fit(Decay(), sciml.MLP(6), solver=sciml.Adam(10_000), callbacks=[interrupt])
    finally:
        signal.signal(signal.SIGINT, before)
    assert solution.status == "interrupted"
    assert not solution.success
    assert solution.nit == 100
    assert solution.error()["u"] < 1


def test_fault_54_a_loss_that_is_not_finite_never_reaches_the_parameters():
    class Explodes(Decay):
        """Its residual overflows once the field has grown a little."""

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) - torch.exp(1000 * u)

    solution = sciml.fit(Explodes(), sciml.MLP(6), solver=sciml.FirstOrder(torch.optim.SGD, steps=50, lr=100.0, look=1))
    assert solution.status == "diverged"
    assert not solution.success
    assert "not finite" in solution.message
    assert all(bool(torch.isfinite(value).all()) for value in solution.trial.state_dict().values())


def test_a_wrong_solution_is_not_called_a_success():
    """Logistic growth over many e-foldings is a known trap: the network falls to the unstable zero solution."""

    growth = problem_class("logistic_growth")
    problem = growth(start=0.05, domain=sciml.Interval(t=(0, 10)))
    solution = sciml.fit(problem, solver=sciml.Adam(500))
    assert solution.error()["u"] > 0.5
    assert not solution.success
    assert "certificate fails" in solution.message


def test_points_and_weights_by_name():
    solution = sciml.fit(Decay(), sciml.MLP(6), solver=sciml.Adam(3), points={"decay": 33}, weights={"initial": 7.0})
    assert solution.points == {"decay": 33, "initial": 1}
    first = solution.history.iloc[0]
    assert first["loss"] == pytest.approx(first["decay"] + 7 * first["initial"])


def test_adaptive_points_move_to_where_the_residual_is():

    from sciml.solvers import Objective, ResidualSystem
    from sciml.strategies.prepare import prepare

    problem = problem_class("burgers")()
    setup = prepare(problem, sciml.MLP(6), None, 500, None, torch.float64, "cpu", 0)

    class Bump(nn.Module):
        """A residual near x = 1/2 only."""

        def forward(self, points):
            x, t = points.unbind(1)
            return (torch.exp(-400 * (x - 0.5) ** 2) * (1 + 0 * t))[:, None]

    rows = ResidualSystem(problem, Bump(), {})
    generator = np.random.default_rng(0)
    objective = Objective(rows, setup.train, setup.scales, setup.weights, [])
    moved = sciml.Adaptive(floor=0.1).renewed(objective, generator)
    assert [block.size for block in moved] == [block.size for block in setup.train]
    x = moved[0].sample.points[0][:, 0]
    assert ((x - 0.5).abs() < 0.2).double().mean() > 0.6
    assert moved[1] is setup.train[1]


@pytest.mark.parametrize("kind", [Decay, Poisson, problem_class("burgers")])
def test_float32_keeps_to_the_same_ways(kind, tmp_path):
    whole, half = sciml.fit(kind()), sciml.fit(kind(), dtype="float32")
    assert half.success
    assert half.dtype == torch.float32
    assert half.choices[-1] == "found in float64"
    assert half.choices[0] == whole.choices[0]
    points = {name: np.linspace(low, high, 7) for name, (low, high) in half.bounds.items()}
    assert np.allclose(half(points)["u"], whole(points)["u"], rtol=1e-5, atol=1e-6)
    # Rounding is an error of what is handed out.
    assert 1e-8 < half.estimated_error["u"] < 1e-5
    assert sciml.load(half.save(tmp_path / "half.pt")).dtype == torch.float32


def test_float32_that_would_spoil_a_solution_is_not_handed_out():
    """Singular functions and polynomials on the L cancel each other: rounded, they are off by their size."""
    solution = sciml.fit(problem_class("poisson_l_shape")(), dtype="float32")
    assert solution.dtype == torch.float64
    assert solution.choices[-1].startswith("kept in float64: float32 would change a field by")
    assert solution.error()["u"] < 1e-6


def test_float32_on_request():
    solution = sciml.fit(Decay(), sciml.MLP(8), solver=sciml.Adam(20), dtype=torch.float32)
    assert solution.dtype == torch.float32
    assert solution(t=0.5)["u"].dtype == np.float64


@pytest.mark.gpu
def test_on_a_gpu(gpu):
    solution = sciml.fit(Decay(), sciml.MLP(8), solver=QUICK, device=gpu)
    assert solution.device.type == gpu
    assert solution.error()["u"] < 1e-4


class TestSolution:
    def test_calls_broadcast(self, solution):
        assert solution(t=[0.0, 0.5])["u"].shape == (2,)
        assert solution(t=np.zeros((2, 3)))["u"].shape == (2, 3)
        assert solution(t=0.0)["u"].shape == ()

    def test_tensors_in_tensors_out_and_differentiable(self, solution):
        t = torch.linspace(0, 1, 5, dtype=torch.float64, requires_grad=True)
        u = solution(t=t)["u"]
        (slope,) = torch.autograd.grad(u.sum(), t)
        assert torch.allclose(slope, -2 * torch.exp(-2 * t), atol=2e-3)

    def test_wrong_coordinates(self, solution):
        with pytest.raises(ProblemError, match="expected the coordinates 't'; given: 'x'"):
            solution(x=0.0)
        with pytest.raises(ProblemError, match="do not broadcast"):
            sciml.Solution.__call__(solution_of_two(), x=[1, 2], t=[1, 2, 3])

    def test_extrapolation_is_said(self, solution):
        with pytest.warns(sciml.ExtrapolationWarning, match="1 of 2 points"):
            solution(t=[0.5, 1.5])

    def test_error_against_functions_and_solutions(self, solution):
        assert solution.error(lambda t: np.exp(-2 * t)) == pytest.approx(solution.error())
        assert solution.error(solution) == {"u": 0.0}

    def test_save_and_load(self, solution, tmp_path):
        path = solution.save(tmp_path / "deep" / "solution.pt")
        loaded = sciml.load(path, problem=Decay())
        t = np.linspace(0, 1, 50)
        assert np.array_equal(loaded(t=t)["u"], solution(t=t)["u"])
        assert loaded.history.equals(solution.history)
        assert loaded.residuals.equals(solution.residuals)
        assert loaded.error() == solution.error()
        assert (loaded.message, loaded.nit, loaded.seed) == (solution.message, solution.nit, solution.seed)
        assert sorted(file.name for file in path.parent.iterdir()) == ["solution.pt"]

    def test_a_model_of_ones_own_needs_an_object_to_load_into(self, tmp_path):
        def model():
            return nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1))

        solution = sciml.fit(Decay(), model(), solver=sciml.Adam(5))
        path = solution.save(tmp_path / "own.pt")
        with pytest.raises(FileError, match=r"Sequential: pass an object"):
            sciml.load(path)
        with pytest.raises(FileError, match="does not fit the model given"):
            sciml.load(path, model=nn.Linear(1, 1))
        assert np.array_equal(sciml.load(path, model=model())(t=0.3)["u"], solution(t=0.3)["u"])

    def test_fault_04_and_05_damaged_and_foreign_files(self, solution, tmp_path):
        path = solution.save(tmp_path / "solution.pt")
        content = path.read_bytes()
        for wrong in (b"", content[: len(content) // 2], b"not a file of ours"):
            (tmp_path / "wrong.pt").write_bytes(wrong)
            with pytest.raises(FileError, match=r"wrong\.pt"):
                sciml.load(tmp_path / "wrong.pt")
        torch.save({"model": nn.Linear(1, 1)}, tmp_path / "pickle.pt")
        with pytest.raises(FileError, match="refused"):
            sciml.load(tmp_path / "pickle.pt")
        with pytest.raises(FileError, match="there is no file"):
            sciml.load(tmp_path / "nowhere.pt")

    def test_a_solution_of_another_problem_is_refused(self, solution, tmp_path):
        path = solution.save(tmp_path / "solution.pt")
        other = type("Other", (sciml.Problem,), {"domain": sciml.Interval(s=(0, 1)), "fields": ["w"]})()
        with pytest.raises(FileError, match="not of Other"):
            sciml.load(path, problem=other)

    def test_a_solution_of_other_equations_or_constants_is_refused(self, solution, tmp_path):
        """It was loaded as a success that did not solve the problem at hand."""
        path = solution.save(tmp_path / "solution.pt")

        class Faster(Decay):
            @sciml.equation
            def decay(self, u, t):
                return d(u, t) + 2 * u**2

        with pytest.raises(FileError, match="another problem: 'decay' of Faster or Decay is stated by one of them alone"):
            sciml.load(path, problem=Faster())
        begins = sciml.Interval(t=(-1, 1))
        with pytest.raises(FileError, match=r"another problem: the domain of Decay is \w+\(t=\(-1, 1\)\), not"):
            sciml.load(path, problem=Decay(domain=begins))
        assert sciml.load(path).success

    def test_names_and_order_are_not_what_a_problem_states(self, tmp_path):
        square = sciml.Box(x=(0, 1), y=(0, 1))
        sides = [sciml.Dirichlet(u=0.0, on=square.faces("x")), sciml.Neumann(u=1.0, on=square.faces("y"))]

        class Plate(sciml.Problem):
            domain = square
            fields = ["u"]
            conditions = sides

            @sciml.equation
            def poisson(self, u, x, y):
                return d(u, x, x) + d(u, y, y) + torch.sin(3 * x)

        class Renamed(Plate):
            conditions = sides[::-1]
            poisson = None

            @sciml.equation
            def balance(self, u, x, y):
                return torch.sin(3 * x) + d(u, y, y) + d(u, x, x)

        class Held(Plate):
            conditions = [*sides, sciml.Mean(u=0.0)]

        path = sciml.fit(Plate()).save(tmp_path / "plate.pt")
        assert sciml.load(path, problem=Renamed()).problem.equations[-1] == "balance"
        with pytest.raises(FileError, match="'mean' of Held or Plate is stated by one of them alone"):
            sciml.load(path, problem=Held())

    def test_a_march_that_ended_early_is_loaded_with_its_problem(self, tmp_path):
        solution = sciml.fit(Explosion(), strategy="TimeMarching")
        assert solution.bounds["t"][1] < 2
        again = sciml.load(solution.save(tmp_path / "explosion.pt"), problem=Explosion())
        assert again.bounds == solution.bounds

    def test_constants_that_were_found_are_those_of_the_problem(self, tmp_path):
        class Cooling(sciml.Problem):
            domain = sciml.Interval(t=(0, 1))
            fields = ["u"]
            k = sciml.Unknown(1.0)
            conditions = [sciml.Initial(u=1.0)]

            @sciml.equation
            def decay(self, u, t):
                return d(u, t) + self.k * u

        t = np.linspace(0, 1, 11)
        solution = sciml.fit(Cooling(), data={"t": t, "u": np.exp(-2 * t)})
        path = solution.save(tmp_path / "cooling.pt")
        # Where the search began makes no difference, and a value does that is another one than was found.
        assert sciml.load(path, problem=Cooling(k=sciml.Unknown(3.0))).constants == solution.constants
        # What a class does not have is not compared, nor what a file of an earlier version does not name.
        with pytest.raises(FileError, match=r"'decay' of Decay or Cooling is stated by one of them alone\. Pass"):
            sciml.load(path, problem=Decay(rate=3.0))
        record = archive.load_tensors(path)
        del record["statement"]["constants"]
        older = tmp_path / "older.pt"
        archive.write_file(older, archive.packed(record))
        with pytest.raises(FileError, match=r"'decay' of Cooling or Cooling is stated by one of them alone\. Pass"):
            sciml.load(older, problem=Cooling(k=1.0))
        said = r"'decay' of Cooling or Cooling is stated by one of them alone \(k: [\d.]+ then, 1\.0 now\)"
        with pytest.raises(FileError, match=said):
            sciml.load(path, problem=Cooling(k=1.0))

    def test_pictures_and_text(self, solution):
        assert solution.plot().axes
        assert "success" in repr(solution)
        assert "<table" in solution._repr_html_()

    def test_out_writes_the_contract(self, tmp_path):
        sciml.fit(
            Decay(rate=sciml.Unknown(1.0)),
            sciml.MLP(6),
            data={"t": [0.1, 0.5, 0.9, 1.0], "u": [0.8, 0.4, 0.2, 0.1]},
            solver=sciml.Adam(5),
            out=tmp_path / "run",
        )
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert list(summary) == [
            "problem",
            "fields",
            "model",
            "parameters",
            "solver",
            "engine",
            "dtype",
            "device",
            "seed",
            "points",
            "seconds",
            "nit",
            "success",
            "status",
            "message",
            "relative_l2",
            "estimated_error",
            "residuals",
            "unknowns",
            "data",
            "versions",
        ]
        assert summary["data"] is None
        assert set(summary["residuals"]) == {"decay", "initial", "data.u"}
        assert set(summary["unknowns"]["rate"]) == {"value", "standard_error", "low", "high"}
        assert sciml.load(tmp_path / "run" / "solution.pt").name == "Decay"


def solution_of_two():
    class Plane(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=1.0)]

        @sciml.equation
        def flat(self, u, x, t):
            return d(u, t)

    return sciml.fit(Plane(), sciml.MLP(4), solver=sciml.Adam(1), points=16)


def test_a_map_of_two_coordinates_is_drawn():
    assert len(solution_of_two().plot().axes) == 2


@pytest.mark.slow
def test_periodic_conditions_train():
    class Ring(sciml.Problem):
        """u_x = cos x on a ring, with its mean pinned at one point."""

        domain = sciml.Interval(x=(0, 2 * np.pi))
        fields = ["u"]
        conditions = [sciml.Periodic("x"), sciml.Dirichlet(u=0.0, on=domain.face(x=0))]

        @sciml.equation
        def slope(self, u, x):
            return d(u, x, x) + torch.sin(x)

        def reference(self, x):
            return torch.sin(x)

    solution = sciml.fit(Ring(), sciml.MLP(16, 16), solver=[sciml.Adam(300), sciml.LBFGS(2500)])
    assert set(solution.residuals.index) == {"slope", "periodic.u", "periodic.u_x", "dirichlet"}
    assert solution.error()["u"] < 1e-3


def test_data_frames_are_data():
    frame = pd.DataFrame({"t": [0.0, 0.5], "u": [1.0, 0.4]})
    assert sciml.fit(Decay(), sciml.MLP(4), data=frame, solver=sciml.Adam(2)).data.columns == ("t", "u")


def test_a_large_table_holds_rows_out():
    t = np.linspace(0, 1, 500)
    solution = sciml.fit(Decay(), sciml.MLP(4), data={"t": t, "u": np.exp(-2 * t)}, solver=sciml.Adam(2))
    assert solution.points["data.u"] == 450
    assert any("50 of 500 measured rows held out" in choice for choice in solution.choices)


def test_fault_22_masked_values_are_skipped():
    masked = sciml.Table({"t": [0.0, 0.5, 1.0], "u": [1.0, np.nan, 0.1]}, missing="mask")
    solution = sciml.fit(Decay(), sciml.MLP(4), data=masked, solver=sciml.Adam(2))
    assert solution.residuals.loc["data.u", "points"] == 2
    assert np.isfinite(solution.history["loss"]).all()


def test_the_best_state_survives_a_worse_phase():
    """A second solver that only does harm must not replace what the first one found."""
    solvers = [QUICK, sciml.FirstOrder(torch.optim.SGD, steps=60, lr=0.5, look=20)]
    solution = sciml.fit(Decay(), sciml.MLP(8), solver=solvers)
    assert solution.error()["u"] < 1e-4


@pytest.mark.slow
def test_unknowns_that_have_not_arrived_are_no_success():
    t = np.linspace(0, 1, 30)
    data = {"t": t, "u": np.exp(-2 * t) + 0.01 * np.random.default_rng(0).normal(size=30)}
    early = sciml.fit(Decay(rate=sciml.Unknown(0.5)), sciml.MLP(8), data=data, solver=sciml.Adam(150), tolerance=10.0)
    assert not early.success
    assert "have not arrived" in early.message
    late = sciml.fit(Decay(rate=sciml.Unknown(0.5)), sciml.MLP(8), data=data, solver=[sciml.Adam(200), sciml.LBFGS(800)])
    assert late.success, late.message
    assert late.unknowns.loc["rate", "low"] < 2.0 < late.unknowns.loc["rate", "high"]
    # The reference is judged at the estimated constant, not at the first guess.
    assert late.error()["u"] < 0.01


def test_data_that_contradict_the_equations_are_no_success():
    t = np.linspace(0, 1, 20)
    growing = {"t": t, "u": np.exp(2 * t)}
    problem = Decay(rate=sciml.Unknown(1.0, lower=0))
    solution = sciml.fit(problem, sciml.MLP(8), data=growing, solver=[sciml.Adam(200), sciml.LBFGS(400)])
    assert not solution.success
    assert "explains nothing of 'data.u'" in solution.message


@pytest.mark.slow
def test_float32_has_intervals_too():
    t = np.linspace(0, 1, 20)
    data = {"t": t, "u": np.exp(-2 * t) + 0.01 * np.random.default_rng(0).normal(size=20)}
    problem = Decay(rate=sciml.Unknown(1.0, lower=0))
    solution = sciml.fit(problem, sciml.MLP(8), data=data, solver=sciml.Adam(1500), dtype=torch.float32)
    assert 0 < solution.unknowns.loc["rate", "standard_error"] < 1


def test_a_model_that_computes_otherwise_is_not_loaded(tmp_path):
    def model(activation):
        return nn.Sequential(nn.Linear(1, 6), activation, nn.Linear(6, 1))

    path = sciml.fit(Decay(), model(nn.Tanh()), solver=sciml.Adam(30)).save(tmp_path / "own.pt")
    with pytest.raises(FileError, match="same parameters but gives other values"):
        sciml.load(path, model=model(nn.Sigmoid()))


def test_a_subclass_of_mlp_is_a_model_of_ones_own(tmp_path):
    class Doubled(sciml.MLP):
        def forward(self, points):
            return 2 * super().forward(points)

    solution = sciml.fit(Decay(), Doubled(6), solver=sciml.Adam(5))
    path = solution.save(tmp_path / "own.pt")
    with pytest.raises(FileError, match="pass an object"):
        sciml.load(path)
    again = sciml.load(path, model=Doubled(6, inputs=1, outputs=1))
    assert np.array_equal(again(t=0.3)["u"], solution(t=0.3)["u"])


def test_where_to_write_is_checked_before_the_fit_and_never_loses_it(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot make the directory"):
        sciml.fit(Decay(), sciml.MLP(4), solver=sciml.Adam(1), out=tmp_path / "file" / "run")

    def fail(*_):
        raise FileError("no space left")

    monkeypatch.setattr("sciml.runs.report.write", fail)
    with pytest.warns(UserWarning, match="was not written: no space left"):
        assert sciml.fit(Decay(), sciml.MLP(4), solver=sciml.Adam(1), out=tmp_path / "run").nit == 1


def test_a_sparsely_measured_field_in_a_large_table():
    class Two(Decay):
        fields = ["u", "v"]
        reference = None

        @sciml.equation
        def other(self, v, t):
            return d(v, t) + v

    t = np.linspace(0, 1, 300)
    v = np.where(np.arange(300) % 60 == 7, np.exp(-t), np.nan)
    data = sciml.Table({"t": t, "u": np.exp(-2 * t), "v": v}, missing="mask")
    solution = sciml.fit(Two(), sciml.MLP(6), data=data, solver=sciml.Adam(5))
    assert solution.points["data.v"] == 5
    assert np.isfinite(solution.history["held_out"]).all()


def test_columns_are_not_passed_over_in_silence():
    data = {"t": [0.0, 0.5], "u": [1.0, 0.4], "w": [0.0, 0.0]}
    solution = sciml.fit(Decay(), sciml.MLP(4), data=data, solver=sciml.Adam(1))
    assert "columns not used: 'w'" in solution.choices

    class Pair(Decay):
        fields = ["u", "v"]
        reference = None

    with pytest.raises(ProblemError, match="'V' is not a field of Pair; did you mean 'v'"):
        sciml.fit(Pair(), data={"t": [0.0, 0.5], "u": [1.0, 0.4], "V": [0.0, 0.0]})


def test_a_reference_of_another_shape_is_refused(solution):
    assert solution.error(lambda t: 1.0)["u"] == pytest.approx(solution.error(lambda t: np.ones_like(t))["u"])
    with pytest.raises(ProblemError, match="has shape"):
        solution.error(lambda t: np.exp(-2 * t)[:, None])


@pytest.mark.parametrize("value", [None, np.nan, "abc", 1j, [[0.1], [0.1, 0.2]]])
def test_coordinates_that_are_no_numbers_are_refused(solution, value):
    with pytest.raises(ProblemError, match="coordinate 't'"):
        solution(t=value)


def test_a_gpu_is_for_work_that_is_worth_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    taken = []
    monkeypatch.setattr(torch, "empty", lambda *_, device: taken.append(device) or torch.zeros(0))
    assert device_of("auto", 1e6).type == "cpu"
    assert device_of("auto", 1e8).type == "cuda"
    # One that is there is not woken before it is used; one that is named may be missing.
    assert not taken
    device_of("cuda", 1e6)
    assert [each.type for each in taken] == ["cuda"]
