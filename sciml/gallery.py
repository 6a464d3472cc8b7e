"""The gallery: example problems by name, and problem classes from any Python file."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from sciml._text import listed
from sciml.errors import ProblemError, SciMLError
from sciml.parallel.workers import FROM_FILE
from sciml.problem import Problem


def names() -> tuple[str, ...]:
    """The gallery's problems: the files in ``problems/``, in the checkout or inside the installed package.

    Returns:
        The names, sorted; none where the library was installed without its gallery.

    Example:
        >>> import sciml
        >>> "burgers" in sciml.gallery.names()
        True
    """
    return tuple(sorted(file.stem for file in (_root() / "problems").glob("*.py")))


def path(name: str) -> Path:
    """The Python file in which a problem of the gallery, one of ``names()``, is stated.

    Returns:
        Its path.

    Raises:
        ProblemError: there is no such problem; the message lists near names.

    Example:
        >>> import sciml
        >>> sciml.gallery.path("burgers").name
        'burgers.py'
    """
    if name not in names():
        raise ProblemError(f"the gallery has no problem {name!r}.{_near(name)}")
    return _root() / "problems" / f"{name}.py"


def problem(name: str, **constants: Any) -> Problem:
    """A problem of the gallery, one of ``names()``; keywords replace constants of its class, in their units.

    Returns:
        The problem, ready for ``sciml.fit`` and ``sciml.baseline``.

    Raises:
        ProblemError: there is no such problem, or it has no such constant; the message lists near names.

    Example:
        >>> import sciml
        >>> sciml.gallery.problem("burgers", nu=0.1)
        Burgers(nu=0.1)
    """
    return problem_class(str(path(name)))(**constants)


def table() -> pd.DataFrame:
    """The contents of the gallery.

    Returns:
        A row for each problem, indexed by its name: ``line`` (what it is), ``coordinates``, ``fields`` and ``unknowns``
        (tuples of names), and ``truth``, where its solution is known from: ``"exact"`` (a formula), ``"stored"`` (computed
        once and kept in ``data/``), ``"measured"`` (data without a solution), two of these, or ``"none"``.

    Raises:
        ProblemError: a file of the gallery cannot be run.

    Example:
        >>> import sciml
        >>> sciml.gallery.table().loc["lynx_hare", "truth"]
        'measured'
    """
    rows = {}
    for name in names():
        stated = problem(name)
        kept = any((_root() / "data" / name).glob("reference.*"))
        truth = [("stored" if kept else "exact")] if stated.has_reference else []
        truth += ["measured"] if hasattr(stated, "measurements") else []
        rows[name] = {
            "line": " ".join((inspect.getdoc(type(stated)) or "").partition("\n\n")[0].split()),
            "coordinates": stated.coordinates,
            "fields": tuple(stated.fields),
            "unknowns": tuple(stated.unknowns),
            "truth": ", ".join(truth) or "none",
        }
    return pd.DataFrame.from_dict(rows, orient="index", columns=["line", "coordinates", "fields", "unknowns", "truth"])


def load_problem(file: str) -> Problem:
    """The problem that ``FILE[:CLASS]`` or ``NAME[:CLASS]`` names, with its class's constants.

    Args:
        file: a Python file, or a name of the gallery where there is no such file; a class is named where a file has several
            and none is called like the file (``wave_string.py`` and ``WaveString``).

    Returns:
        The problem.

    Raises:
        ProblemError: no such file or name, the file cannot be run, or the class is missing or ambiguous.

    Example:
        >>> load_problem("burgers")
        Burgers()
    """
    return problem_class(file)()


def problem_class(file: str) -> type[Problem]:
    """The class that ``load_problem`` makes a problem of, with its arguments and errors.

    Returns:
        The class.

    Example:
        >>> problem_class("burgers:Burgers").__name__
        'Burgers'
    """
    name, wanted = split(file)
    module = _module(_file(name))
    found = {
        key: member
        for key, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Problem) and member is not Problem and member.__module__ == module.__name__
    }
    if wanted is None:
        title = Path(name).stem.replace("_", "").lower()
        alike = [member for key, member in found.items() if len(found) == 1 or key.lower() == title]
        if len(alike) == 1:
            return alike[0]
    if wanted not in found:
        asked = f"no problem class {wanted!r}" if wanted else f"{len(found)} problem classes"
        raise ProblemError(f"{name} holds {asked}; it has {listed(found)}: choose one with {name}:CLASS")
    return found[wanted]


def split(file: str) -> tuple[str, str | None]:
    """The file in the text ``FILE[:CLASS]``, and the class.

    Returns:
        The file, and the name of the class or None.

    Example:
        >>> split("waves.py:String")
        ('waves.py', 'String')
    """
    name, colon, wanted = file.rpartition(":")
    return (name, wanted) if colon and wanted.isidentifier() else (file, None)


def _root() -> Path:
    """The folder of ``problems`` and ``data``: inside the installed package, or the checkout around it."""
    installed = Path(__file__).parent / "_gallery"
    checkout = Path(__file__).parent.parent
    # An installed package stands among strangers, one of which may be called "problems".
    return installed if installed.is_dir() or not (checkout / "pyproject.toml").is_file() else checkout


def _file(name: str) -> Path:
    """The file that is meant by a path or, where there is none, by a name of the gallery."""
    file = Path(name)
    if file.is_file():
        return file
    if name in names():
        return path(name)
    raise ProblemError(
        f"there is no file {name}; name a Python file with a problem class, as in problems/burgers.py, or a problem of the "
        f"gallery, as in burgers.{_near(file.stem)}"
    )


def _near(name: str) -> str:
    close = " or ".join(map(repr, difflib.get_close_matches(name, names(), n=3, cutoff=0.5)))
    return f"{f' Did you mean {close}?' if close else ''} `sciml list` shows them all"


def _module(file: Path) -> ModuleType:
    # A name of our own: a file called wave.py must not stand in for the standard library's module of that name.
    name = f"{FROM_FILE}{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ProblemError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(file.parent.resolve())
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except SciMLError:
        raise
    except Exception as error:
        raise ProblemError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    return module
