"""The documentation site: ``make docs`` builds it into build/docs, executes the tutorials, and takes warnings as errors."""

import importlib
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

import sciml

project, author, copyright = "sciml", "The sciml authors", "the sciml authors, BSD-3-Clause"
release = version = sciml.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "pydata_sphinx_theme"
html_title = f"sciml {version}"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "use_edit_page_button": False,
    # All pages are named at the left, by section.
    "navbar_center": [],
}
html_sidebars = {"index": [], "**": ["globaltoc.html"]}
html_math_renderer = "mathml"
html_show_sourcelink = False
exclude_patterns = ["build", "**.ipynb_checkpoints"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
# Pages link to files of the repository that are no pages, such as tests; `make check` says whether those exist.
suppress_warnings = ["myst.xref_missing", "myst.header"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring, napoleon_numpy_docstring, napoleon_use_rtype = True, False, False
napoleon_use_ivar = True

_SPACES = (
    *("conditions", "data", "deploy", "errors", "gallery", "geometry", "models", "noise", "operators", "runs", "solvers"),
    *("strategies", "studies", "uncertainty"),
)


def _reference() -> None:
    """A page for each namespace, of what it lists, and one for what stands at the top alone."""
    folder = Path(__file__).parent / "api"
    folder.mkdir(exist_ok=True)
    spaces = [importlib.import_module(f"sciml.{each}") for each in _SPACES]
    pages = {space.__name__: f".. automodule:: {space.__name__}\n" for space in spaces}
    listed = {id(getattr(space, name)) for space in spaces for name in getattr(space, "__all__", ())}
    top = []
    for name in sciml.__all__:
        thing = getattr(sciml, name)
        if id(thing) in listed or not callable(thing):
            continue
        if isinstance(thing, type):
            # What scikit-learn adds refers to its own pages.
            foreign = ", ".join(each for each in dir(thing) if each.startswith("set_") and each.endswith("_request"))
            top.append(f".. autoclass:: sciml.{name}\n" + (f"   :exclude-members: {foreign}\n" if foreign else ""))
        else:
            top.append(f".. autofunction:: sciml.{name}\n")
    pages["sciml"] = "\n".join(top)
    for name, content in pages.items():
        path, page = folder / f"{name}.rst", f"{name}\n{'=' * len(name)}\n\n{content}"
        if not path.exists() or path.read_text() != page:
            path.write_text(page)


_reference()


def _inline(self: Any, node: nodes.Element) -> None:
    """A formula of a line, as MathML: browsers draw it without a script from elsewhere."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display(self: Any, node: nodes.Element) -> None:
    """A formula of its own; where it is wider than the page it is scrolled."""
    style = "overflow: auto hidden; margin: 1rem 0; padding: 0.2rem 0"
    self.body.append(f'<div style="{style}">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Add the renderer of mathematics."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
