"""One thread for every test: small networks run many times slower on two busy ones."""

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent

torch.set_num_threads(1)
# In copies (os.fork) of a worker that had done other work first, PyTorch refused to differentiate; with a backward pass before
# everything else it did not. Why was not found.
torch.ones(1, requires_grad=True).sum().backward()

pytest_plugins = ["slow_tests"]

# Run by `make bench`; test_benchmarks.py tries what it consists of. PyTorch takes the device that the other registers for that
# of all computations: no module to look for doctests in.
collect_ignore = ["benchmarks", "second_device.py"]


def problem_class(name):
    """The only problem class of ``problems/<name>.py``."""
    from sciml.gallery import load_problem

    return type(load_problem(str(ROOT / "problems" / f"{name}.py")))


@pytest.fixture
def write(tmp_path):
    """Write a text (or bytes) to a file of the test's own and return its path."""

    def write(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def place():
    """A directory in memory, where there is one."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    yield directory
    shutil.rmtree(directory)


# A GPU, or what stands for one: see second_device.py.
GPU = next((name for name in ("cuda", "second") if hasattr(torch, name) and getattr(torch, name).is_available()), None)


@pytest.fixture
def gpu():
    """The name of a device beside the CPU."""
    return GPU


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu") and GPU is None:
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


def load_module(path):
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
