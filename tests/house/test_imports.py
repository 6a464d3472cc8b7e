"""The house: imports go one way, packages have room for one subject, and the contents can be seen from outside."""

import ast
import subprocess
import sys

import pytest
from conftest import ROOT

import sciml

PACKAGE = ROOT / "sciml"

# The one list: whatever stands further down may import what stands further up, and nothing else.
ORDER = [
    "errors",
    "_text",
    "typing",
    "parallel",
    "geometry",
    "jets",
    "data",
    "problem",
    "models",
    "solvers",
    "slabs",
    "uncertainty",
    "diagnostics",
    "solution",
    "baselines",
    "strategies",
    "plots",
    "embedding",
    "runs",
    "comparison",
    "fitting",
    "examination",
    "studies",
    "distillation",
    "transformer",
    "operators",
    "deploy",
    "gallery",
    "conditions",
    "noise",
    "__init__",
    "cli",
    "__main__",
]
# Convenience methods of ``Solution`` import what they call when they are called.
CONVENIENCE = {("solution", room) for room in ("deploy", "embedding", "plots", "runs")}
MOST_MODULES, MOST_FILES = 18, 26


def name_of(path):
    """A file's name as Python imports it, without ``sciml.``; that of a package for its ``__init__``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def room_of(name):
    return name.partition(".")[0]


def imports(path):
    """What a file imports from the library, ``TYPE_CHECKING`` or in a function or not, and whether in a function."""
    tree = ast.parse(path.read_text())
    late = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            head, _, rest = (node.module or "").partition(".")
            if head != "sciml":
                continue
            for each in node.names:
                inner = f"{rest}.{each.name}" if rest else each.name
                yield inner if inner in FILES else rest or "__init__", id(node) in late
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.partition(".")[0] == "sciml":
                    yield each.name.partition(".")[2] or "__init__", id(node) in late


@pytest.mark.parametrize("name", sorted(FILES))
def test_imports_go_one_way(name):
    room = room_of(name)
    for target, late in imports(FILES[name]):
        allowed = ORDER.index(room_of(target)) <= ORDER.index(room)
        if (room, room_of(target)) in CONVENIENCE:
            allowed = late
        assert allowed, f"{name} imports {target}, which stands above it"


def test_no_circle():
    """Also not inside a package; a package's own ``__init__`` is its table of contents and imports all of it."""
    graph = {
        name: {
            target for target, late in imports(path) if target != name and not (late and (name, room_of(target)) in CONVENIENCE)
        }
        for name, path in FILES.items()
        if path.name != "__init__.py"
    }
    done, under_way = set(), []

    def visit(name):
        assert name not in under_way, f"a circle: {' -> '.join([*under_way[under_way.index(name) :], name])}"
        if name in done or name not in graph:
            return
        under_way.append(name)
        for target in graph[name]:
            visit(target)
        done.add(under_way.pop())

    for name in graph:
        visit(name)


def test_a_module_does_not_import_its_own_table_of_contents():
    for name, path in FILES.items():
        if "." in name:
            assert room_of(name) not in {target for target, _ in imports(path)}, name


def test_rooms_are_named_and_not_crowded():
    assert {room_of(name) for name in FILES} == set(ORDER)
    assert len([name for name, path in FILES.items() if path.parent == PACKAGE]) <= MOST_MODULES
    for room in {room_of(name) for name in FILES if "." in name}:
        assert len(list((PACKAGE / room).rglob("*.py"))) <= MOST_FILES, room
    assert all(name.count(".") <= 1 for name in FILES), "depth two at most"


def test_importing_the_library_loads_nothing():
    """Names are loaded when they are asked for; a figure, a reader or a statistic brings its library when it is used."""
    script = """
import sys, sciml
print([name for name in ("torch", "numpy", "pandas", "scipy", "h5py") if name in sys.modules])
sciml.fit, sciml.baseline, sciml.Problem
print([name for name in ("matplotlib", "scipy.stats", "scipy.sparse", "sklearn", "joblib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]"]


def test_what_can_be_seen_from_outside():
    assert len(sciml.__all__) <= 32
    assert [*sorted(set(dir(sciml)))] == dir(sciml)
    for name in dir(sciml):
        assert getattr(sciml, name) is not None
    for space in set(dir(sciml)) - set(sciml.__all__):
        assert getattr(sciml, space).__doc__, space


@pytest.mark.parametrize(
    "name", ["Disk", "Polygon", "Robin", "Mean", "LeastSquares", "Adam", "Spectral", "Windows", "Normal", "laplacian"]
)
def test_names_of_namespaces_are_found_at_the_top_too(name):
    assert getattr(sciml, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Dsik'"):
        _ = sciml.Dsik
