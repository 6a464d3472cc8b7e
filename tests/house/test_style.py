"""What a reader may rely on in every public name and file."""

import inspect
import subprocess
import sys

import pytest
from conftest import ROOT

import sciml
from sciml import errors


@pytest.mark.parametrize("name", sciml.__all__)
def test_public_names_are_documented(name):
    thing = getattr(sciml, name)
    assert inspect.getdoc(thing), name
    if inspect.isclass(thing):
        for key, member in inspect.getmembers(thing):
            if not key.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{name}.{key}"


@pytest.mark.parametrize("name", [name for name in sciml.__all__ if inspect.isfunction(getattr(sciml, name))])
def test_public_verbs_say_what_they_raise_and_show_an_example(name):
    doc = inspect.getdoc(getattr(sciml, name))
    assert ">>>" in doc or name in {"load"}
    assert "Raises:" in doc or name in {"equation"}


def test_all_is_sorted():
    assert sciml.__all__ == sorted(sciml.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def test_one_tree_of_errors():
    classes = [thing for _, thing in inspect.getmembers(errors, inspect.isclass) if thing.__module__ == errors.__name__]
    assert all(issubclass(each, errors.SciMLError) for each in classes)


def test_import_does_no_work():
    """No default dtype, seed or thread count is touched, and no file is read or written."""
    code = (
        "import torch, random, numpy, os, tempfile\n"
        "import pandas, scipy.stats, scipy.integrate, matplotlib.figure, rich.live, typer  # some draw random numbers\n"
        "os.chdir(tempfile.mkdtemp())\n"
        "before = (torch.get_default_dtype(), torch.get_num_threads(), torch.random.get_rng_state().sum().item(),\n"
        "          random.getstate(), numpy.random.get_state()[1].sum(), sorted(os.listdir('.')))\n"
        "import sciml, sciml.cli\n"
        "after = (torch.get_default_dtype(), torch.get_num_threads(), torch.random.get_rng_state().sum().item(),\n"
        "         random.getstate(), numpy.random.get_state()[1].sum(), sorted(os.listdir('.')))\n"
        "assert before == after\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_no_machine_path_in_the_repository():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    words = ["/" + word + "/" for word in ("work", "farm", "root", "home")]
    for name in tracked:
        path = ROOT / name
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".lock", ".csv", ""} and name != "LICENSE":
            text = path.read_text(errors="ignore")
            assert not any(word in text for word in words), name
