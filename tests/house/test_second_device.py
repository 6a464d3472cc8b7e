"""The tests that are marked for a GPU, on a device made of host memory: see ``second_device.py``."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import GPU

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler here")
def test_what_is_marked_for_a_gpu_runs_on_a_second_device():
    marked = [str(path) for path in sorted(TESTS.rglob("test_*.py")) if "mark.gpu" in path.read_text(encoding="utf-8")]
    command = [sys.executable, "-m", "pytest", "-p", "second_device", "-m", "gpu", "-n", "0", *marked]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20, done.stdout


def test_looking_for_tests_registers_no_device():
    assert GPU == "second" or not hasattr(torch, "second")
