"""The documentation site, built as `make docs` builds it and looked at in a browser."""

import functools
import http.server
import shutil
import subprocess
import sys
import threading

import pytest
from conftest import ROOT

pytest.importorskip("sphinx")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGES = ("index.html", "tutorials/first-pde.html", "gallery/burgers.html", "api/sciml.geometry.html", "method.html")
WITHOUT_FORMULAS = ("index.html",)

# The least contrast of text and what is behind it, over the visible words of the article.
CONTRAST = """() => {
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const parsed = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parsed(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  let least = 21;
  for (const node of document.querySelectorAll("article p, article li, article h1, article h2, article h3, article td")) {
    if (!node.innerText.trim() || node.getClientRects().length === 0) continue;
    const [a, b] = [light(parsed(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    least = Math.min(least, (a + 0.05) / (b + 0.05));
  }
  return least;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site; its tutorials are executed, and a warning would be an error."""
    folder = tmp_path_factory.mktemp("site")
    source = folder / "project" / "docs"
    for name in ("docs", "data", "problems"):
        shutil.copytree(ROOT / name, folder / "project" / name, ignore=shutil.ignore_patterns("api"))
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder / "project")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(source), str(folder / "html")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder / "html")
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_pages_are_whole_at_any_width_and_the_search_finds(site):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in PAGES:
            page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
            wrong = []
            page.on("pageerror", lambda error, wrong=wrong: wrong.append(str(error)))
            # What a reader without a network sees.
            page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(site) else route.abort())
            page.goto(f"{site}/{name}")
            assert wrong == [], name
            broken = "[...document.images].filter(image => image.complete && image.naturalWidth === 0).map(image => image.src)"
            assert page.evaluate(broken) == [], name
            text = page.locator("article").inner_text()
            assert not any(each in text for each in (r"\[", r"\(")), (name, "a formula that is not drawn")
            assert page.locator("math").count() > 0 or name in WITHOUT_FORMULAS, name
            assert page.get_by_role("link", name="How to choose").count() > 0, (name, "all pages are named")
            for width in (1400, 400):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (name, width)
            assert page.evaluate(CONTRAST) >= 4.5, name
            page.close()
        page = browser.new_page()
        page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(site) else route.abort())
        page.goto(f"{site}/search.html?q=burgers")
        page.wait_for_selector("ul.search li", timeout=10_000)
        assert page.locator("ul.search li").count() > 3
        browser.close()
