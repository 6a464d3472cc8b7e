"""The ways of ``fit`` on a GPU: each gives what the CPU gives."""

import numpy as np
import pytest
import torch
from conftest import problem_class

import sciml
from problems import Decay, Growth, Poisson
from sciml import d
from sciml.slabs import nested_dissection

pytestmark = pytest.mark.gpu

DISK = sciml.Disk((0.4, 0.4), 0.5)
SQUARE = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.6, 0.7), 0.2)


class HeatInADisk(sciml.Problem):
    domain = DISK * sciml.Interval(t=(0, 0.001))
    fields = ["u"]
    conditions = [
        sciml.Neumann(u=0.0, on=DISK.boundary),
        sciml.Initial(u=1.0),
    ]

    @sciml.equation
    def heat(self, u, x, y, t):
        return d(u, t) - d(u, x, x) - d(u, y, y) - x


class PlateWithAHole(sciml.Problem):
    domain = SQUARE
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda x, y: x * y, on=SQUARE.boundary)]

    @sciml.equation
    def laplace(self, u, x, y):
        return d(u, x, x) + d(u, y, y)


TILED = {"heat_in_a_disk": HeatInADisk, "plate_with_a_hole": PlateWithAHole}

WAYS = {
    "learned": {"model": sciml.MLP(8, 8)},
    "learned, float32": {"model": sciml.MLP(8, 8), "dtype": "float32"},
    "polynomials": {},
    "least squares": {"model": sciml.MLP(8), "solver": sciml.LeastSquares(30)},
    "mixed precision": {"model": sciml.MLP(8), "solver": sciml.LeastSquares(30, factorisation="mixed")},
    "matrix-free": {"model": sciml.MLP(8), "solver": sciml.LeastSquares(10, factorisation="cg")},
    "quasi-Newton": {"model": sciml.MLP(8), "solver": [sciml.Adam(50), sciml.SSBroyden(100)]},
    "polished": {"model": sciml.MLP(8), "solver": [sciml.LeastSquares(30), sciml.Polish(50)]},
    "stopped early": {
        "model": sciml.MLP(8),
        "solver": sciml.Adam(200),
        "early_stopping": sciml.EarlyStopping(patience=20),
    },
    "scheduled": {
        "model": sciml.MLP(8),
        "solver": sciml.FirstOrder(
            torch.optim.AdamW, 60, scheduler=lambda each: torch.optim.lr_scheduler.StepLR(each, 20), lr=1e-2
        ),
    },
    "watched": {"model": sciml.MLP(8), "solver": sciml.Adam(40), "callbacks": [lambda report: report.step >= 20]},
    "random features": {"strategy": "RandomFeatures"},
    "conditions held": {"model": sciml.MLP(8), "solver": sciml.LeastSquares(10), "exact": True},
    "module of one's own": {
        "model": torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.SiLU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1)),
        "solver": sciml.LeastSquares(20),
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_fit_on_a_gpu_is_that_on_the_cpu(way, gpu):
    on_gpu, on_cpu = (sciml.fit(Poisson(), **WAYS[way], device=device) for device in (gpu, "cpu"))
    assert on_gpu.device.type == gpu
    assert on_gpu.success == on_cpu.success
    # Whether the last step finds no lower point or one that is hardly lower is a matter of the last bits.
    assert on_gpu.status == on_cpu.status or {on_gpu.status, on_cpu.status} == {"converged", "plateau"}
    assert on_gpu.dtype == on_cpu.dtype
    assert on_gpu.estimated_error.keys() == on_cpu.estimated_error.keys()


def test_constants_are_found_on_a_gpu(gpu):
    solution = sciml.fit(problem_class("thurber")(), device=gpu)
    assert solution.success, solution.message
    assert solution.unknowns.loc["b1", "estimate"] == pytest.approx(1288.1396, rel=1e-6)


def test_windows_have_estimates_on_a_gpu(gpu):
    solution = sciml.fit(Decay(), sciml.MLP(8), device=gpu, points=100)
    assert solution.estimated_error


def test_what_is_found_on_the_cpu_is_handed_out_on_the_gpu(gpu, tmp_path):
    solution = sciml.fit(Poisson(), device=gpu)
    assert (solution.device.type, solution.choices[-1]) == (gpu, "found on cpu")
    x = np.linspace(0.1, 0.9, 5)
    known = solution(x=x, y=0.5, derivatives=["u_x"])
    # Tensors come back where they came from.
    found = solution(x=torch.from_numpy(x), y=torch.tensor(0.5, dtype=torch.float64), derivatives=["u_x"])
    read = sciml.load(solution.save(tmp_path / "poisson.pt"))(x=x, y=0.5, derivatives=["u_x"])
    for name in ("u", "u_x"):
        assert found[name].device.type == "cpu"
        assert np.allclose(found[name].numpy(), known[name], rtol=1e-12, atol=1e-12)
        assert np.allclose(read[name], known[name], rtol=1e-12, atol=1e-12)


def test_constants_with_intervals_and_bands_are_found_on_a_gpu(gpu):
    t = np.linspace(0, 2, 60)
    noisy = np.exp(1.5 * t) + 0.05 * np.random.default_rng(0).normal(size=60)
    solution = sciml.fit(Growth(), data={"t": t, "u": noisy}, device=gpu)
    assert solution.device.type == gpu
    low, high = solution.unknowns.loc["rate", ["low", "high"]]
    assert low < 1.5 < high
    assert (solution.standard_error(t=[0.5, 1.0])["u"] < 0.05).all()


@pytest.mark.parametrize("noise", [None, {"u": "scatter"}, sciml.StudentT()], ids=repr)
def test_a_network_learns_measurements_and_equations_on_a_gpu(gpu, noise):
    t = np.linspace(0, 2, 60)
    noisy = np.exp(1.5 * t) + 0.05 * np.random.default_rng(0).normal(size=60)
    given = {"data": {"t": t, "u": noisy, "scatter": 0.05 + 0 * t}, "solver": sciml.LeastSquares(15), "noise": noise}
    on_gpu, on_cpu = (sciml.fit(Growth(), sciml.MLP(8), device=device, **given) for device in (gpu, "cpu"))
    assert on_gpu.device.type == gpu
    assert on_gpu.unknowns.loc["rate", "estimate"] == pytest.approx(on_cpu.unknowns.loc["rate", "estimate"], rel=1e-2)
    assert on_gpu.statistics["log_likelihood"] == pytest.approx(on_cpu.statistics["log_likelihood"], rel=1e-2)


def test_a_network_learns_a_curve_alone_on_a_gpu(gpu):
    """Output weights are eliminated (variable projection), by the measured values themselves."""

    class Curve(sciml.Problem):
        domain = sciml.Interval(t=(0, 2))
        fields = ["u"]

    t = np.linspace(0, 2, 60)
    solution = sciml.fit(Curve(), sciml.MLP(8), data={"t": t, "u": np.sin(3 * t)}, solver=sciml.LBFGS(20), device=gpu)
    assert solution.device.type == gpu
    assert np.abs(solution(t=t)["u"] - np.sin(3 * t)).max() < 0.2


def test_a_teacher_and_a_start_may_lie_on_the_cpu(gpu):
    known = sciml.fit(Decay(), device="cpu")
    few = [lambda report: report.step >= 30]
    taught = sciml.fit(Decay(), sciml.MLP(4), teacher=known, device=gpu, callbacks=few)
    assert taught.device.type == gpu
    assert sciml.embed(taught, {"t": [0.1, 0.2]}).shape[0] == 2
    begun = sciml.fit(Decay(), start=taught, solver=sciml.LBFGS(5), device=gpu)
    assert begun.device.type == gpu


@pytest.mark.parametrize("name", ["heat_in_a_disk", "plate_with_a_hole"])
def test_large_factors_of_tiles_are_made_on_a_gpu(name, gpu, monkeypatch):
    """At rest and in windows of time; here every factor counts as dense."""
    problem, made, original = TILED[name], [], nested_dissection.kernels
    monkeypatch.setattr(nested_dissection, "kernels", lambda *of: (made.append(of[1].type), original(*of))[1])
    on_cpu = sciml.fit(problem(), device="cpu")
    assert set(made) == {"cpu"}
    made.clear()
    monkeypatch.setattr(nested_dissection, "_DENSE", 0)
    on_gpu = sciml.fit(problem(), device=gpu)
    assert set(made) == {gpu}
    assert on_gpu.success
    low, high = zip(*problem.domain.bounds.values(), strict=True)
    places = dict(zip(problem.domain.bounds, np.linspace(low, high, 9)[3:5].T, strict=True))
    assert np.allclose(on_gpu(**places)["u"], on_cpu(**places)["u"], rtol=0, atol=1e-7)
