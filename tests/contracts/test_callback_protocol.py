"""The contract of a callback: it is called with every report of a fit, whatever the strategy, and a true value ends the fit."""

import io

import pytest
from rich.console import Console

import sciml
from problems import Decay, Poisson
from sciml import strategies

FITS = {
    "training": lambda **more: sciml.fit(Decay(), sciml.MLP(6), solver=sciml.Adam(40, look=5), **more),
    "search": lambda **more: sciml.fit(Poisson(), strategy=strategies.Spectral(8), **more),
}


@pytest.mark.parametrize("kind", FITS)
def test_it_sees_every_report_of_the_history(kind):
    seen = []
    solution = FITS[kind](callbacks=[seen.append])
    assert [each.step for each in seen] == solution.history["step"].tolist()
    assert [each.phase for each in seen] == solution.history["phase"].tolist()
    for report in seen:
        assert isinstance(report, sciml.Report)
        assert report.step <= report.steps
        assert report.best <= report.held_out or report.best == pytest.approx(report.held_out)
        assert set(report.terms) <= set(solution.history.columns)
        assert not report.replayed


@pytest.mark.parametrize("kind", FITS)
def test_a_true_value_ends_the_fit_with_what_there_is(kind):
    solution = FITS[kind](callbacks=[lambda report: True])
    assert solution.status == "stopped"
    assert len(solution.history) == 1


@pytest.mark.parametrize("kind", FITS)
def test_the_callbacks_of_the_library_are_such(kind):
    out, logged = io.StringIO(), []
    line = sciml.solvers.ProgressLine(Console(file=out), every=0.0)
    tracker = sciml.Tracker(lambda numbers, step: logged.append((step, numbers)))
    solution = FITS[kind](callbacks=[line, tracker])
    assert [step for step, _ in logged] == solution.history["step"].tolist()
    assert out.getvalue().count("\n") == len(logged)
