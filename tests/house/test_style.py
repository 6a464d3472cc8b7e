"""What a reader may rely on in every public name and file."""

import ast
import inspect
import re
import subprocess
import sys

import pytest
import torch
from conftest import ROOT

import sciml
from sciml import errors
from sciml.errors import SciMLError


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


@pytest.mark.parametrize("folder", ["sciml", "tests", "problems", "docs"])
def test_every_file_says_what_it_is_for(folder):
    """In the first line of its docstring, in more than a word."""
    for path in (ROOT / folder).rglob("*.py"):
        first, *_ = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")
        assert len(first.split()) >= 3, path
        assert not re.search(r"\b(TODO|FIXME|XXX)\b", first), path


def settings():
    """The public records of settings: solvers, weightings, samplers and strategies, each with its required arguments."""
    required = {"FirstOrder": {"optimizer": torch.optim.SGD, "lr": 0.25}, "Windows": {"count": 3}}
    for space in (sciml.solvers, sciml.strategies):
        for name in space.__all__:
            thing = getattr(space, name)
            if inspect.isclass(thing) and not inspect.isabstract(thing) and name not in AT_WORK:
                yield pytest.param(thing, required.get(name, {}), id=name)


# What these packages make themselves, or what happened.
AT_WORK = {
    "Attempt", "Callback", "Candidate", "DiscreteProblem", "Linearization", "Objective", "ProgressLine", "Report",
    "ResidualSystem", "Run", "Step", "Strategy", "Tracker", "Weightings", "Workspace",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "required"), [*settings()])
def test_settings_are_printed_as_the_call_that_makes_them(kind, required):
    names = {name: getattr(space, name) for space in (sciml.solvers, sciml.strategies) for name in space.__all__}
    made = kind(**required)
    assert repr(made).startswith(f"{kind.__name__}("), repr(made)
    assert " at 0x" not in repr(made)
    assert repr(eval(repr(made), {**names, "torch": torch, "inf": float("inf")})) == repr(made)
    for name, parameter in inspect.signature(kind).parameters.items():
        if type(parameter.default) is int and parameter.kind is not parameter.VAR_POSITIONAL:
            try:
                other = kind(**{**required, name: parameter.default + 1})
            except SciMLError:
                continue
            assert repr(other) != repr(made), f"{kind.__name__} does not show {name}"


def test_models_print_their_class_and_sizes():
    """More about each: tests/contracts/test_trial_function_protocol.py."""
    for name in ("Chebyshev", "Fourier", "FiniteDifferences"):
        shown = repr(getattr(sciml.models, name)(0.0, 2.5, 17))
        assert shown.startswith(f"{name}("), shown
        assert "2.5" in shown
        assert "17" in shown


def test_no_machine_path_in_the_repository():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    words = ["/" + word + "/" for word in ("work", "farm", "root", "home", "Users", "mnt", "tmp/h_", ".venv/lib")]
    for name in tracked:
        path = ROOT / name
        if path.is_file() and name != "LICENSE":
            found = [word for word in words if word.encode() in path.read_bytes()]
            assert not found, f"{name}: {found}"
