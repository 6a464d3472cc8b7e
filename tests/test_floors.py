"""Imports go down only; files stay short and folders flat."""

import ast

import pytest
from conftest import ROOT

PACKAGE = ROOT / "sciml"
FLOORS = [
    [
        "errors",
        "typing",
    ],
    [
        "domains",
        "table",
        "derivative",
        "operators",
        "columns",
        "jets",
        "archive",
        "payload",
        "lock",
        "manifest",
        "verification",
        "generations",
        "run_directory",
        "calls",
        "noise",
        "provenance",
        "units",
        "export",
        "journal",
        "lines",
        "signals",
        "findings",
        "coarse",
    ],
    [
        "unknowns",
        "targets",
        "misfit",
        "placement",
        "conditions",
        "normal",
        "pinned",
        "composites",
        "definition",
        "problem",
        "datasets",
        "stored",
        "models",
        "grids",
        "batches",
        "embedding_files",
        "watching",
        "promotion",
    ],
    [
        "sampling",
        "rows",
        "portions",
        "measurements",
        "experiments",
        "prescribed",
        "slopes",
        "counting",
        "gallery",
        "smoothness",
    ],
    [
        "jacobian",
        "persample",
        "products",
        "resolution",
        "scaling",
        "linearity",
        "objective",
        "snapshots",
        "diagnosis",
        "uncertainty",
        "evidence",
        "spread",
        "certificate",
        "exact",
        "slabs",
        "tiles",
        "made_up",
        "breaks",
        "residual_checks",
        "kinks",
        "layer_trace",
    ],
    [
        "solvers",
        "guided",
        "weighting",
        "callbacks",
        "look_log",
        "upgrades",
        "model_checks",
        "pointwise",
        "plots",
        "panels",
        "embedding",
        "saving",
        "exporting",
        "meaning",
    ],
    [
        "setup",
        "solution",
        "loading",
        "report",
        "doubts",
        "stagnation",
        "feeding",
        "encoder",
        "slicing",
        "fingerprint",
        "flow",
        "conditioning",
        "checkup",
    ],
    [
        "polish",
        "training",
        "passes",
        "profiles",
        "windows",
        "degrees",
        "corners",
        "marching",
        "element_windows",
        "automatic",
        "trajectories",
        "unknown_fields",
        "network",
        "choice",
        "transfer",
        "recovery",
        "settings",
        "concluding",
        "checkpoint",
        "preflight",
    ],
    [
        "fitting",
        "baselines",
        "doctor",
    ],
    [
        "comparison",
        "runs",
        "ensemble",
        "distilling",
        "transformer",
    ],
    [
        "cli",
    ],
]
FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """The modules of sciml that a file imports at run time."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sciml":
            if node.module == "sciml":
                yield from (alias.name for alias in node.names)
            else:
                yield node.module.removeprefix("sciml.")
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("sciml.") for alias in node.names if alias.name.startswith("sciml."))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    here = FLOOR_OF[room(path)]
    for module in imports(path):
        there = module.split(".")[0]
        assert there == room(path) or FLOOR_OF[there] <= here, f"{path.name} (floor {here}) imports {module}"


def test_imports_have_no_cycle():
    graph = {}
    for path in FILES:
        name = str(path.relative_to(PACKAGE).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        graph[name] = {module for module in imports(path) if module != name}

    sound = set()

    def visit(name, trail):
        assert name not in trail, f"import cycle: {' -> '.join([*trail, name])}"
        if name in sound:
            return
        for module in graph.get(name, ()):
            visit(module, [*trail, name])
        sound.add(name)

    for name in graph:
        visit(name, [])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short_and_folders_flat(path):
    assert len(path.read_text().splitlines()) <= 400
    assert len(path.relative_to(PACKAGE).parts) <= 2


def test_gallery_is_imported_by_nobody():
    for path in FILES:
        assert "problems" not in {module.split(".")[0] for module in imports(path)}
