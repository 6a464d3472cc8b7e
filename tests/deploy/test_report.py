"""Reports: what is in them, and how they look and print in a browser."""

import contextlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import sciml
from sciml import d, plots
from sciml.cli import main
from sciml.deploy import report_of_run
from sciml.deploy.mathml import Symbol, equations
from sciml.errors import FileError

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


# What is printed on of A4, in pixels: 180 by 267 mm at 96 for an inch.
A4 = {"width": 680, "height": 1009}
# What is wider than its page, or must stay in one piece and is higher than one.
CUT = """[...document.querySelectorAll("main *")].filter(each => {
  const box = each.getBoundingClientRect(), style = getComputedStyle(each);
  return box.right > 680.5 || (style.breakInside == "avoid" && box.height > 1009);
}).map(each => each.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def decay(tmp_path_factory):
    """A fit to measurements."""

    class Decay(sciml.Problem):
        """Something decays <fast> & for ever."""

        domain = sciml.Interval(t=(0, 1))
        fields = ["u"]
        units = {"t": "s"}
        conditions = [sciml.Initial(u=1.0)]
        rate = sciml.Unknown(1.0, lower=0)

        @sciml.equation
        def decay(self, u, t):
            return d(u, t) + self.rate * u**2 - torch_free(t)

    def torch_free(t):
        return 0.1 * t

    t = np.linspace(0, 1, 12)
    data = {"t": t, "u": 1 / (1 + 2 * t) + 0.01 * np.random.default_rng(0).normal(size=12)}
    return sciml.fit(Decay(), data=data)


def test_everything_is_in_one_file(decay, tmp_path):
    page = decay.report(tmp_path / "report.html", baseline=sciml.baseline(decay.problem, decay.data)).read_text()
    for words in ("<math", "rate", "95 %", "success", "autocorrelation", "Beside SciPy", "torch", "at t = 0"):
        assert words in page, words
    assert '<td class="text">s</td>' in page
    assert "decays &lt;fast&gt; &amp; for ever" in page
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", page), "nothing is fetched"
    assert len(page) < 5e6
    with pytest.raises(FileError, match="exists and is kept"):
        decay.report(tmp_path / "report.html")


def test_equations_are_written_as_mathematics(decay):
    written = dict(equations(decay.problem))
    assert written["decay"] == (
        '<math display="block"><mrow><mrow><mrow><mfrac><mrow><mo>∂</mo><mi>u</mi></mrow><mrow><mrow><mo>∂</mo><mi>t</mi>'
        "</mrow></mrow></mfrac><mo>+</mo><mrow><mi>rate</mi><mo>·</mo><msup><mi>u</mi><mn>2</mn></msup></mrow></mrow><mo>−</mo><mrow>"
        "<mn>0.1</mn><mo>·</mo><mi>t</mi></mrow></mrow><mo>=</mo><mn>0</mn></mrow></math>"
    )
    # What follows a minus is bracketed where it is a sum.
    prey = dict(equations(sciml.gallery.problem("lynx_hare")))["prey"]
    bracketed = "<mo>−</mo><mrow><mrow><mo>(</mo><mrow><mi>birth</mi><mo>−</mo>"
    assert bracketed in prey
    a, b, c = (Symbol(f"<mi>{name}</mi>") for name in "abc")
    assert (a - (b + c)).math == (
        "<mrow><mi>a</mi><mo>−</mo><mrow><mo>(</mo><mrow><mi>b</mi><mo>+</mo><mi>c</mi></mrow><mo>)</mo></mrow></mrow>"
    )
    burgers = dict(equations(sciml.gallery.problem("burgers")))
    assert "<msup><mo>∂</mo><mn>2</mn></msup>" in burgers["momentum"]
    assert "<mi>π</mi>" in burgers["Initial, u"]
    assert "x = -1, x = 1" in burgers["Dirichlet, u"]


def test_profiles_and_regions_of_unknowns(tmp_path):
    """Dots where a constant was held, the ends of its interval on the line; regions of pairs from the covariance."""
    rng = np.random.default_rng(1)
    t = np.linspace(0, 2, 15)
    data = {"t": t, "u": 3 * np.exp(0.7 * t) + 0.2 * rng.normal(size=15)}

    class Grown(sciml.Problem):
        domain = sciml.Interval(t=(0, 2))
        fields = ["u"]
        start, rate = sciml.Unknown(1.0), sciml.Unknown(0.5)
        conditions = [sciml.Initial(u=lambda self: self.start)]

        @sciml.equation
        def growth(self, u, t):
            return d(u, t) - self.rate * u

    found = sciml.fit(Grown(), data=data, intervals="profile")
    assert set(found.profiles["unknown"]) == {"start", "rate"}
    for name, (low, high) in found.unknowns[["low", "high"]].iterrows():
        known = found.profiles[found.profiles["unknown"] == name]
        limit = found.spread.quantile**2
        ends = np.interp([low, high], known["value"], known["fall"])
        assert np.allclose(ends, limit, rtol=0.05)
    figure = plots.inference(found)
    below, profile = figure.axes[2], figure.axes[0]
    assert below.get_title() == f"correlation {found.correlation.loc['start', 'rate']:.2f}"
    assert len(profile.lines) == 4, "the covariance's parabola, dots, the profile and the limit"
    loaded = sciml.load(found.save(tmp_path / "grown.sciml"), Grown())
    assert loaded.profiles.equals(found.profiles)
    assert "profiles of the likelihood" in loaded.report(tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_every_equation_of_the_gallery_is_written_somehow():
    mathematics = [shown for name in sciml.gallery.table().index for _, shown in equations(sciml.gallery.problem(name))]
    assert sum("<pre>" in shown for shown in mathematics) <= 0.05 * len(mathematics)
    # What Python cannot say as mathematics is shown as its source, and never lost.
    assert all(shown for shown in mathematics)


def test_a_run_that_is_still_going_says_so(decay, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    with sciml.runs.RunDirectory(run):
        (run / "run.json").write_text('{"problem": "Decay", "began": "2030-01-01", "ended": null}')
        page = report_of_run(run, tmp_path / "now.html").read_text()
    assert "This run is still going" in page
    (tmp_path / "decay.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    for arguments in (["fit", "decay.py", "--out", "done"], ["report", "done"]):
        monkeypatch.setattr(sys, "argv", ["sciml", *arguments])
        with contextlib.suppress(SystemExit):
            main()
    assert "report    done/report.html" in capsys.readouterr().out
    page = (tmp_path / "done" / "report.html").read_text()
    assert "<math" in page
    assert "converged" in page


SCRIPT = """
import sciml
from sciml import d, plots

class Decay(sciml.Problem):
    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + u
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_in_a_browser(tmp_path):
    """It loads at once, sliders move by the keyboard, nothing overflows, and without JavaScript every picture is there."""
    from playwright.sync_api import sync_playwright

    path = sciml.fit(sciml.gallery.problem("heat_rod")).report(tmp_path / "report.html")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        said = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        page.goto(path.as_uri())
        loaded = page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart")
        assert loaded < 2000
        slider = page.locator("input[type=range]").first
        before = page.locator(".frames img.on").first.get_attribute("data-at")
        slider.focus()
        page.keyboard.press("ArrowRight")
        assert page.locator(".frames img.on").first.get_attribute("data-at") != before
        assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
        for width in (1400, 400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert said == []
        bare = browser.new_page(java_script_enabled=False)
        bare.goto(path.as_uri())
        assert bare.locator(".frames img").nth(5).is_visible()
        page.pdf(path=tmp_path / "report.pdf", format="A4")
        for each in (page, bare):
            each.emulate_media(media="print")
            each.set_viewport_size(A4)
            assert each.evaluate(CUT) == [], "on A4 nothing is cut"
        browser.close()
    if shutil.which("pdftotext"):
        text = subprocess.run(["pdftotext", tmp_path / "report.pdf", "-"], capture_output=True, text=True, check=True).stdout
        assert "What vouches for it" in text
