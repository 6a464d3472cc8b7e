"""What `make gallery` writes: figures of every problem or the reason why there are none, and pages that agree with them."""

import json
import re

import matplotlib
import numpy as np
import pytest
from benchmarks import gallery, gallery_pages, gallery_worker
from benchmarks.markup import markdown
from benchmarks.published import PUBLISHED
from conftest import ROOT, load_module
from matplotlib.figure import Figure
from PIL import Image

import sciml

DOCS = ROOT / "docs"
NAMES = sciml.gallery.names()
KEPT = gallery.earlier()
# Each takes less than three seconds.
QUICK = ["boarding_school_flu", "harmonic_oscillator", "heat_rod", "poisson_disk_robin"]


def test_mathematics_becomes_blocks_and_dollars():
    text = r"""A rod.

.. math::
    u_t = \kappa\,u_{xx},
    \qquad a < b,

with :math:`\kappa =
0.4`, ``data/x.csv`` and a < b for 3 $.

.. math:: a &= 1 \\
    b &= 2

    c

See `a book <https://example.org/b>`_.
"""
    assert markdown(text) == "\n\n".join(
        [
            "A rod.",
            "$$\nu_t = \\kappa\\,u_{xx}, \\qquad a < b,\n$$",
            "with $\\kappa = 0.4$, `data/x.csv` and a &lt; b for 3 \\$.",
            "$$\n\\begin{aligned} a &= 1 \\\\ b &= 2 \\end{aligned}\n$$",
            "$$\nc\n$$",
            "See [a book](https://example.org/b).\n",
        ]
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_restructured_text_is_left_on_a_page(name):
    above = gallery_pages.texts({})[f"gallery/{name}.md"].partition("## The code")[0]
    assert ".. math" not in above
    assert ":math:" not in above
    assert "``" not in above
    assert above.count("$$") % 2 == 0
    assert above.replace("$$", "").replace(r"\$", "").count("$") % 2 == 0


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """The outcome of `make gallery` for some problems, in a folder that looks like a checkout."""
    root = tmp_path_factory.mktemp("checkout")
    (root / "problems").symlink_to(ROOT / "problems")
    gallery.run(QUICK, 200.0, root / "docs")
    return root / "docs"


@pytest.mark.slow
def test_rows_are_complete(docs):
    results = json.loads((docs / "gallery.json").read_text())
    assert list(results) == QUICK
    for name, result in results.items():
        fit = result["fit"]
        assert fit["success"], name
        assert fit["parameters"] > 0
        assert fit["seconds"] > 0
        assert fit["choices"]
        assert fit["picture"]
        assert result["environment"]["processor"]
    assert results["heat_rod"]["fit"]["error"]["u"] < 1e-9
    assert results["harmonic_oscillator"]["baseline"]["error"]["u"] < 1e-5
    found = results["boarding_school_flu"]
    assert found["fit"]["unknowns"]["infection"]["estimate"] == pytest.approx(1.788, rel=0.1)
    assert found["baseline"]["unknowns"]["infection"]["estimate"] == pytest.approx(1.788, rel=0.01)


@pytest.mark.slow
def test_pages_are_written_and_their_links_lead_somewhere(docs):
    assert {path.stem for path in (docs / "gallery").glob("*.md")} == set(NAMES)
    assert load_module(ROOT / "docs" / "check_links.py").broken(docs.parent) == []
    table = (docs / "gallery.md").read_text()
    for words in ("[heat_rod](gallery/heat_rod.md)", "Not run yet: ", "s.e. |", "- `heat_rod`: the problem is linear"):
        assert words in table
    page = (docs / "gallery" / "heat_rod.md").read_text()
    for words in (
        "(heat_rod.png)",
        "| error of u |",
        "class HeatRod(sciml.Problem):",
        r"\kappa\,u_{xx}",
        "| success | yes |",
    ):
        assert words in page
    assert "Not measured yet." in (docs / "gallery" / "burgers.md").read_text()
    flu = (docs / "gallery" / "boarding_school_flu.md").read_text()
    assert "| infection; published 1.788 ± 0.11 |" in flu


@pytest.mark.slow
def test_pictures_are_small(docs):
    pictures = sorted((docs / "gallery").glob("*.png"))
    assert [path.stem for path in pictures] == QUICK
    for path in pictures:
        small(path)


def small(path):
    assert path.stat().st_size <= 60_000
    with Image.open(path) as image:
        assert image.size[0] <= 900
        assert not image.info.get("Software")
        assert len(set(image.convert("RGB").resize((60, 24)).tobytes())) > 10


@pytest.mark.slow
def test_a_run_renews_its_rows_only_and_says_why_one_failed(docs, tmp_path):
    before = json.loads((docs / "gallery.json").read_text())
    copy = tmp_path / "docs"
    copy.mkdir()
    (copy / "gallery").mkdir()
    for path in [docs / "gallery.json", *(docs / "gallery").iterdir()]:
        (copy / path.relative_to(docs)).write_bytes(path.read_bytes())
    gallery.run(["heat_rod"], 0.1, copy)
    after = json.loads((copy / "gallery.json").read_text())
    assert after["heat_rod"]["fit"] == {"success": False, "reason": "not done after 0.1 s"}
    assert {**after, "heat_rod": None} == {**before, "heat_rod": None}
    assert "- `heat_rod`, fit: not done after 0.1 s." in (copy / "gallery.md").read_text()
    assert "heat_rod.png" not in (copy / "gallery" / "heat_rod.md").read_text()
    assert not (copy / "gallery" / "heat_rod.png").exists()


def test_what_ends_a_process_is_a_reason_without_paths():
    found = gallery.outcome({"failed": f"FileNotFoundError: {ROOT}/data/x.h5"})
    assert found == {"success": False, "reason": "the process ended: FileNotFoundError: ./data/x.h5"}


def test_refusals_are_told_in_their_own_words(monkeypatch):
    def refuse(problem):
        raise sciml.errors.BaselineError("no")

    monkeypatch.setattr(sciml, "baseline", refuse)
    assert gallery_worker.classical("heat_rod") == {"success": False, "reason": "BaselineError: no"}
    monkeypatch.setattr(sciml, "fit", refuse)
    assert gallery_worker.fitted("heat_rod") == {"success": False, "reason": "BaselineError: no"}


def test_equal_figures_give_equal_bytes():
    def drawn():
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots(1, 2)
        values = np.random.default_rng(0).normal(size=(200, 200))
        for each, colours in zip(axes, ("viridis", "RdBu_r"), strict=True):
            each.pcolormesh(values, cmap=colours)
        return gallery_worker.small_png(figure)

    before = dict(matplotlib.rcParams)
    assert drawn() == drawn()
    assert dict(matplotlib.rcParams) == before


def test_distances_from_published_values():
    close = {"estimate": 0.55 + 0.10, "standard_error": 0.08}
    assert gallery_pages.distance("lynx_hare", "birth", close) == (pytest.approx(1.0), " s.e.")
    assert gallery_pages.distance("lynx_hare", "nobody", close) is None
    assert gallery_pages.distance("lorenz_inverse", "sigma", {"estimate": 11.0, "standard_error": 3.0}) == (0.1, "")
    worst = {"birth": close, "death": {"estimate": None, "standard_error": None}}
    assert gallery_pages.errors("lynx_hare", {"unknowns": worst}) == "unknowns not finite"
    assert gallery_pages.errors("x", {"error": {"u": 1e-12, "v": None}}) == "u 1e-12, v –"
    assert gallery_pages.errors("x", {"unknowns": {"k": close}}) == "–"


@pytest.mark.parametrize("name", sorted(set(PUBLISHED) & set(NAMES)))
def test_published_values_are_of_unknowns_that_the_problem_has(name):
    assert set(PUBLISHED[name].values) <= set(sciml.gallery.problem(name).unknowns)


def test_every_problem_has_a_row_and_a_page():
    assert list(KEPT) == list(NAMES), "run: make gallery ARGS='NAME ...'"
    assert {path.stem for path in (DOCS / "gallery").glob("*.md")} == set(NAMES)


@pytest.mark.parametrize("name", KEPT)
def test_every_row_says_success_or_the_reason(name):
    for part in (KEPT[name]["fit"], KEPT[name]["baseline"]):
        assert part["success"] is True or part["reason"].strip()
        assert part["success"] is True or part["success"] is False
        assert not re.search(r"(^|[\s'\"(])/\w", part.get("reason", "")), "a path of some machine"


@pytest.mark.parametrize("name", [name for name in KEPT if KEPT[name]["fit"].get("picture")])
def test_pictures_of_the_gallery_are_small(name):
    small(DOCS / "gallery" / f"{name}.png")


def test_pages_are_what_is_made_of_the_figures_and_the_problems():
    for name, text in gallery_pages.texts(KEPT).items():
        assert (DOCS / name).read_text() == text, f"docs/{name} is not up to date; run: make gallery ARGS=--pages"
    known = {f"{name}.{kind}" for name in NAMES for kind in ("md", "png")}
    assert {path.name for path in (DOCS / "gallery").iterdir()} <= known


def test_no_problem_is_solved_better_by_the_baseline_in_the_same_time():
    results = json.loads((ROOT / "docs" / "gallery.json").read_text())
    assert gallery_pages.lost(results) == []
    worse = {**results, "burgers": {**results["burgers"], "fit": {**results["burgers"]["fit"], "success": False}}}
    assert gallery_pages.lost(worse) == ["burgers"]
