"""Every snippet in README and docs runs, in order, file by file."""

import re

import pytest
from conftest import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
# Their snippets fit for more than some seconds.
LONG = {"README.md", "domains.md", "operators.md", "scaling.md", "tour.md", "transfer.md", "your-own-data.md"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else []) for page in PAGES],
)
def test_snippets_run(page, monkeypatch, tmp_path):
    for folder in ("data", "problems"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    names = {}
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(snippet, str(page), "exec"), names)


def test_links_and_pages():
    from conftest import load_module

    assert load_module(ROOT / "docs" / "check_links.py").broken(ROOT) == []


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda page: page.name)
def test_prose_is_wrapped_at_100_characters(page):
    """Tables, headings, pictures, code, equations and words that are longer are left alone."""
    assert page.read_text().startswith("# ")
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", page.read_text(), flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "#", "!", "<"))]
    assert [line for line in lines if len(line) > 100 and len(re.sub(r"\$[^$]+\$|`[^`]+`", "x", line).split()) > 2] == []
