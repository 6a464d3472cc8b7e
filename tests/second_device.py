"""A device beside the CPU, made of host memory: tensors of both in one operation fail on it, as they do on a GPU.

``PYTHONPATH=tests python -m pytest -p second_device -m gpu -n 0`` runs there what is marked for a GPU. It must be loaded before
PyTorch differentiates anything, so it has a process of its own.
"""

import subprocess
import tempfile
import types
from pathlib import Path

import torch

NAME = "second"


def _built(directory):
    """The compiled operations, as a library in a directory."""
    library, include = Path(directory) / "second_device.so", Path(torch.__file__).parent / "include"
    source = Path(__file__).with_suffix(".cpp")
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC"]
    places = [f"-isystem{include}", f"-isystem{include / 'torch/csrc/api/include'}", f"-L{include.parent / 'lib'}"]
    links = ["-lc10", "-ltorch_cpu", "-ltorch"]
    subprocess.run(["c++", *flags, *places, str(source), "-o", str(library), *links], check=True)
    return library


def _registered():
    module = types.ModuleType(f"torch.{NAME}")
    module.is_available, module.is_initialized, module._is_in_bad_fork = lambda: True, lambda: True, lambda: False
    module.device_count, module.current_device, module._lazy_init = lambda: 1, lambda: 0, lambda: None
    module.manual_seed = module.manual_seed_all = lambda seed: None
    module.get_rng_state, module.set_rng_state = lambda device=0: torch.empty(0), lambda state, device=0: None
    module.get_amp_supported_dtype = lambda: [torch.float16]
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, module)
    with tempfile.TemporaryDirectory() as directory:
        torch.ops.load_library(str(_built(directory)))


_registered()
