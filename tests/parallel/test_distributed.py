"""One fit in several processes: torchrun over Gloo, as a user starts it."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import sciml
from sciml.errors import SolverError

SCRIPT = Path(__file__).with_name("distributed_script.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def together(processes, what, folder, *options):
    """The script in so many processes; what it printed, and its exit status."""
    launcher = ["-m", "torch.distributed.run", *(options or ["--standalone"]), f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launcher if processes > 1 else []), str(SCRIPT), what, str(folder)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False)
    return done.stdout + done.stderr, done.returncode


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    generator, t = np.random.default_rng(0), np.linspace(0, 2, 12_000)
    v = np.where(generator.random(len(t)) < 0.3, np.nan, 2 * np.exp(-1.3 * t))
    with h5py.File(folder / "decay.h5", "w") as file:
        for name, column in {"t": t, "u": np.exp(-1.3 * t) + 0.01 * generator.normal(size=len(t)), "v": v}.items():
            file.create_dataset(name, data=column, chunks=(500,))
    for processes in (1, 2, 3):
        said, status = together(processes, "all_fits", folder)
        assert status == 0, said
    return {processes: np.load(folder / f"fits.{processes}.npz") for processes in (1, 2, 3)}


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize(
    "name",
    [
        "Adam",
        "mini-batches",
        "LBFGS",
        "SSBroyden",
        "LeastSquares",
        "LeastSquares by QR",
        "LeastSquares by SVD",
        "LeastSquares, few rows",
        "LeastSquares, mixed precision",
        "matrix-free products",
        "GaussNewton",
        "adaptive",
        "balanced",
        "averages",
        "ended by a callback",
        "stream",
        "whole",
    ],
)
def test_several_processes_find_what_one_finds(fits, name, processes):
    alone, shared = fits[1][name], fits[processes][name]
    assert np.isfinite(alone).all()
    assert np.abs(shared - alone).max() <= 1e-10 * np.abs(alone).max()


def test_a_fit_goes_on_in_another_number_of_processes(tmp_path):
    assert together(2, "interrupted", tmp_path)[1] != 0
    assert (tmp_path / "run" / "checkpoint.pt").exists()
    said, status = together(3, "resumed", tmp_path)
    assert status == 0, said
    other = tmp_path / "other"
    other.mkdir()
    assert together(1, "resumed", other)[1] == 0, "from the beginning"
    assert np.allclose(np.load(tmp_path / "resumed.npy"), np.load(other / "resumed.npy"), rtol=1e-10)
    assert not (tmp_path / "run" / "checkpoint.pt").exists()
    whole = np.load(other / "evaluations.0.npy")
    assert all(np.load(tmp_path / f"evaluations.{rank}.npy") < 0.8 * whole for rank in range(3)), "nothing is computed twice"


def test_a_process_that_dies_ends_the_fit_with_a_checkpoint(tmp_path):
    begin = time.monotonic()
    said, status = together(2, "killed", tmp_path)
    assert time.monotonic() - begin < 60
    assert status != 0
    assert "process 0 lost another process of this fit" in said or "SIGTERM" in said
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_the_first_process_tells_callbacks_the_end(tmp_path):
    said, status = together(2, "concluding", tmp_path)
    assert status == 0, said
    assert [each.name for each in tmp_path.glob("told.*")] == ["told.0.pt"]


def test_processes_with_other_settings_are_refused(tmp_path):
    said, status = together(2, "unequal", tmp_path)
    assert status != 0
    assert "process 1 has another fit than the first: settings.seed: 0 then, 1 now" in said


def test_processes_that_come_apart_are_stopped(tmp_path):
    said, status = together(2, "drawing", tmp_path)
    assert status != 0
    assert "process 1 holds other parameters than the first" in said


def test_each_process_may_go_its_own_way(tmp_path):
    said, status = together(2, "apart", tmp_path)
    assert status == 0, said
    first, second = (np.load(tmp_path / f"apart.{rank}.npy") for rank in range(2))
    assert np.abs(first - second).max() > 1e-6


def test_a_port_in_use_is_said(tmp_path, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1]), "RANK": "0", "WORLD_SIZE": "2"}
        command = [sys.executable, str(SCRIPT), "unequal", str(tmp_path)]
        done = subprocess.run(command, env={**ENVIRONMENT, **place}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3
    assert "its port is in use; name another, torchrun --master-port PORT" in done.stderr


def test_a_gpu_that_is_not_there_is_said():
    with pytest.raises(SolverError, match=r"device 'cuda:99' cannot be used .* GPU\(s\) here: use 'auto' or 'cpu'"):
        sciml.fit(sciml.gallery.problem("logistic_growth"), sciml.MLP(4), solver=sciml.LBFGS(1), device="cuda:99")


@pytest.mark.slow
def test_the_command_line_starts_processes(tmp_path):
    command = [sys.executable, "-m", "sciml.cli", "fit", "logistic_growth", "--model", "MLP(8)", "--solver", "LBFGS(60)"]
    command += ["--distributed", "2", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path)
    assert "2 processes, each with a share of the rows" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("residuals on fresh points") == 1
    assert (tmp_path / "run" / "summary.json").exists()
