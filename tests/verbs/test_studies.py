"""Many fits of one problem, and where the time of one goes: sweep, tune, profile."""

import json
import sys

import numpy as np
import optuna
import pandas as pd
import pytest
import torch

import sciml
from sciml import d
from sciml.errors import FileError, MissingExtraError, SolverError
from sciml.studies.profile import _bound


class Decay(sciml.Problem):
    """u' = -k u."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    k = 1.0
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.k * u

    def reference(self, t):
        return {"u": torch.exp(-self.k * t)}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sweep_is_a_table_with_a_row_for_every_combination(workers):
    found = sciml.sweep(Decay(), over={"k": [1.0, 2.0], "seed": range(2)}, workers=workers)
    assert found[["k", "seed"]].to_numpy().tolist() == [[1, 0], [1, 1], [2, 0], [2, 1]]
    assert found["success"].all()
    assert (found["error.u"] < 1e-8).all()
    assert (found["failure"] == "").all()


def test_models_and_measures_are_varied_and_failures_are_rows():
    def peak(solution):
        return {"end": solution(t=1.0)["u"]}

    over = {"model": [sciml.MLP(4), torch.nn.Linear(3, 1)]}
    found = sciml.sweep(Decay(), over=over, measure=peak, solver=sciml.LBFGS(60))
    assert found["end"][0] == pytest.approx(np.exp(-1), rel=1e-2)
    assert found["failure"][1].startswith("ModelError: ")
    assert not found["success"][1]
    assert "MLP" in found["model"][0]


def test_a_function_makes_the_problem_and_a_frame_gives_the_combinations():
    design = pd.DataFrame({"rate": [0.5, 1.5], "seed": [3, 4]})
    found = sciml.sweep(lambda rate: Decay(k=rate), over=design, measure=lambda s: {"end": s(t=1.0)["u"]})
    assert found["end"].to_numpy(float) == pytest.approx(np.exp([-0.5, -1.5]), rel=1e-8)
    assert found["seed"].tolist() == [3, 4]


def test_a_sweep_goes_on_where_it_ended(tmp_path):
    done = []

    def counted(solution):
        done.append(solution.seed)
        if len(done) == 3:
            raise KeyboardInterrupt
        return {}

    how = {"over": {"seed": range(4)}, "out": tmp_path / "sweep"}
    with pytest.raises(KeyboardInterrupt):
        sciml.sweep(Decay(), **how, measure=counted)
    found = sciml.sweep(Decay(), **how, measure=counted)
    assert done == [0, 1, 2, 2, 3], "what was done is not done again"
    assert found["success"].all()
    again = sciml.sweep(Decay(), **how, measure=counted)
    assert len(done) == 5
    pd.testing.assert_frame_equal(again, found)
    assert len(pd.read_csv(tmp_path / "sweep" / "sweep.csv")) == 4
    solution = sciml.load(f"{found['directory'][2]}/solution.pt", Decay())
    assert solution.seed == 2
    with pytest.raises(FileError, match=r"holds another sweep \('over' differ\)"):
        sciml.sweep(Decay(), over={"seed": range(5)}, out=tmp_path / "sweep")


def test_what_cannot_be_varied_is_said_before_the_first_fit():
    with pytest.raises(SolverError, match="over names 'kk', which is neither a constant of Decay"):
        sciml.sweep(Decay(), over={"kk": [1.0]})
    with pytest.raises(SolverError, match="over must give values to vary"):
        sciml.sweep(Decay(), over={})
    with pytest.raises(SolverError, match="'out' belongs to the sweep as a whole"):
        sciml.sweep(Decay(), over={"out": ["a", "b"]})
    with pytest.raises(SolverError, match="'seed' is varied and given as well"):
        sciml.sweep(Decay(), over={"seed": [1]}, seed=2)
    with pytest.raises(SolverError, match="workers must be a whole number of at least 1"):
        sciml.sweep(Decay(), over={"seed": [1]}, workers=0)


def test_under_torchrun_many_fits_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SolverError, match="start this script without torchrun"):
        sciml.sweep(Decay(), over={"seed": range(2)})
    with pytest.raises(SolverError, match="start this script without torchrun"):
        sciml.ensemble(Decay(), resample=None, members=2)


def test_any_backend_of_joblib_serves():
    import joblib

    with joblib.parallel_config("threading", n_jobs=2):
        found = sciml.sweep(Decay(), over={"k": [1.0, 2.0]}, workers=None)
    assert found["success"].all()


def test_without_joblib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sciml\[parallel\]'"):
        sciml.sweep(Decay(), over={"k": [1.0, 2.0]}, workers=2)


def test_hyper_parameters_are_found_and_trials_go_on(tmp_path):
    space = {"width": (2, 12), "lr": (1e-5, 1e-1, "log"), "activation": ["tanh", "nonsense"]}
    how = {"steps": 60, "out": tmp_path / "study.db"}
    few = sciml.tune(Decay(), space, trials=3, **how)
    assert len(few.trials) == 3
    found = sciml.tune(Decay(), space, trials=10, **how)
    assert len(found.trials) == 10
    assert found.trials["score"].min() == found.value
    assert set(found.trials["state"]) <= {"complete", "pruned", "failed"}
    failed = found.trials[found.trials["activation"] == "nonsense"]
    assert failed["why"].str.contains("no activation 'nonsense'").all()
    assert found.best["activation"] == "tanh"
    assert "10 trials" in repr(found)
    again = sciml.fit(Decay(), **{"teacher": None, **found.options})
    assert again.history["held_out"].min() == pytest.approx(found.value, rel=1e-6)


def test_trials_that_fall_behind_are_ended():
    found = sciml.tune(Decay(), {"lr": [1e-2, 1e-7]}, trials=14, steps=400, width=8, depth=1)
    assert (found.trials["state"] == "pruned").any()
    pruned = found.trials[found.trials["state"] == "pruned"]
    assert (pruned["lr"] == 1e-7).all()
    assert pruned["why"].str.contains("behind the median").all()


def test_a_space_may_be_anything_of_fit():
    found = sciml.tune(
        Decay(),
        {"points": (10, 40), "rank": optuna.distributions.IntDistribution(2, 4)},
        build=lambda points, rank: {"points": points, "model": sciml.MLP(rank), "solver": sciml.LBFGS(40)},
        score=lambda solution: solution.error()["u"],
        trials=3,
    )
    assert found.value < 0.1


def test_a_wrong_space_is_said():
    with pytest.raises(SolverError, match=r"'lr' must be \(low, high\)"):
        sciml.tune(Decay(), {"lr": (1.0, 0.1)}, trials=1)
    with pytest.raises(SolverError, match="name one by out="):
        sciml.tune(Decay(), {"width": (2, 4)}, trials=2, workers=2)
    with pytest.raises(SolverError, match="no trial was completed; the first: SolverError: space names 'widht'"):
        sciml.tune(Decay(), {"widht": (2, 4)}, trials=1)


@pytest.mark.slow
def test_workers_share_the_trials(tmp_path):
    found = sciml.tune(Decay(), {"width": (2, 12)}, trials=6, steps=50, workers=2, out=tmp_path / "study.db")
    assert len(found.trials) == 6


def test_memory_is_foretold(monkeypatch):
    solvers = [sciml.Adam(10), sciml.LBFGS(10), sciml.SSBroyden(10), sciml.LeastSquares(10), sciml.GaussNewton(2)]
    found = sciml.memory(Decay(), sciml.MLP(50), solver=solvers, points=20_000)["bytes"]
    parameters, rows = 151, 20_001
    assert found["SSBroyden: inverse Hessian"] == 16 * parameters**2
    assert found["LBFGS: 50 pairs of vectors"] == 16 * 50 * parameters
    assert found["LeastSquares: Jacobian and factors"] == pytest.approx(32 * rows * parameters, rel=0.1)
    # At least the activations and their derivative, and no more than some times that.
    assert 1 < found["graph of a gradient"] / (8 * 20_000 * 50 * 2) < 10
    assert sciml.memory(Decay(), sciml.MLP(50), points=20_000)["fits"].all()


def test_a_profile_tells_phases_and_kernels(tmp_path):
    solvers = [sciml.solvers.Adam(60), sciml.solvers.LeastSquares(10)]
    found = sciml.profile(Decay(), sciml.MLP(8), solver=solvers, trace=tmp_path / "trace.json")
    assert list(found.phases.index) == ["before and between", "Adam", "LeastSquares", "judging"]
    assert found.phases["steps"].tolist() == [0, 60, 10, 0]
    assert found.phases["share"].sum() == pytest.approx(1.0, abs=0.02)
    assert (found.phases["memory"].dropna() > 1e7).all()
    assert {"aten::mm", "aten::tanh"} <= set(found.kernels.index)
    assert 0 < found.kernels["share"].sum() <= 1.01
    assert found.machine["gemm"] > 1e8
    assert "GFlop/s in products" in found.bound
    # Which verdict it is depends on who else is at work: see the next test.
    assert "LeastSquares" in repr(found)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert found.solution.status in ("budget", "plateau", "converged")


@pytest.mark.parametrize(
    ("calls", "products", "others", "outside", "verdict"),
    [
        (1000, 0.001, 0.008, 0.1, "bound by calls"),
        (10, 0.6, 0.2, 0.1, "bound by computing"),
        (10, 0.1, 0.6, 0.1, "bound by memory"),
        (10, 0.1, 0.1, 0.8, "80% of the time is spent outside of torch's kernels"),
    ],
)
def test_what_bounds_the_time(calls, products, others, outside, verdict):
    columns = {"calls": [calls, calls], "seconds": [products, others], "share": [products, others], "gflops": [1.0, np.nan]}
    kernels = pd.DataFrame(columns, index=["aten::mm", "aten::tanh"])
    machine = {"gemm": 1e10, "memory": 1e10, "device": "a machine"}
    assert _bound(kernels, outside, machine).startswith(verdict)
