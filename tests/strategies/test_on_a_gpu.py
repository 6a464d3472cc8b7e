"""The ways of ``fit`` on a GPU: each gives what the CPU gives."""

import pytest
import torch
from conftest import problem_class

import sciml
from problems import Decay, Poisson

pytestmark = pytest.mark.gpu

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
    "module of one's own": {
        "model": torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.SiLU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1)),
        "solver": sciml.LeastSquares(20),
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_fit_on_a_gpu_is_that_on_the_cpu(way):
    on_gpu, on_cpu = (sciml.fit(Poisson(), **WAYS[way], device=device) for device in ("cuda", "cpu"))
    assert on_gpu.device.type == "cuda"
    assert on_gpu.success == on_cpu.success
    assert on_gpu.status == on_cpu.status
    assert on_gpu.dtype == on_cpu.dtype
    assert on_gpu.estimated_error.keys() == on_cpu.estimated_error.keys()


def test_constants_are_found_on_a_gpu():
    solution = sciml.fit(problem_class("thurber")(), device="cuda")
    assert solution.success, solution.message
    assert solution.unknowns.loc["b1", "estimate"] == pytest.approx(1288.1396, rel=1e-6)


def test_windows_have_estimates_on_a_gpu():
    solution = sciml.fit(Decay(), sciml.MLP(8), device="cuda", points=100)
    assert solution.estimated_error
