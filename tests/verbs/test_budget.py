"""What a fit may take: seconds, memory, and the patience of whoever presses Ctrl-C."""

import io
import math
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import sciml
from problems import Decay
from sciml import d, fitting
from sciml.diagnostics import certificate
from sciml.errors import SolverError
from sciml.solvers import ProgressLine
from sciml.strategies.search import Budget


class Front(sciml.Problem):
    """Many windows of time."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 5))
    fields = ["u"]
    conditions = [
        sciml.Periodic("x"),
        sciml.Periodic("y"),
        sciml.Initial(u=lambda x, y: torch.cos(2 * math.pi * x) * torch.sin(2 * math.pi * y)),
    ]

    @sciml.equation
    def balance(self, u, x, y, t):
        return d(u, t) - 0.01 * sciml.laplacian(u, x, y) - u + u**3


class Pierced(sciml.Problem):
    domain = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.2)
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda x, y: torch.exp(x) * torch.sin(y), on=domain.boundary)]

    @sciml.equation
    def laplace(self, u, x, y):
        return sciml.laplacian(u, x, y)


def test_when_the_seconds_are_spent_the_best_so_far_is_returned():
    solution = sciml.fit(Front(), seconds=1e-3)
    assert not solution.success
    assert solution.status == "stopped"
    assert "the budget of 0.001 s was spent" in solution.message
    assert any("it ended at t = " in each for each in solution.choices)
    assert "it ended at t = " in solution.message
    assert math.isfinite(float(solution(x=0.3, y=0.3, t=0.0)["u"]))


def test_what_ended_early_is_known_up_to_there():
    solution = sciml.fit(Front(), seconds=1e-3)
    reached = float(solution.trial.edges[-1])
    assert solution.bounds["t"] == (0.0, reached)
    assert reached < 5
    with pytest.warns(sciml.ExtrapolationWarning, match="1 of 1 points lie outside"):
        solution(x=0.3, y=0.3, t=4.0)


def test_what_was_good_enough_when_the_seconds_ran_out_is_a_success():
    assert sciml.fit(Decay(), seconds=1e-3).success


class Close(sciml.strategies.Tiles):
    """Tiles that are known to be close, and go on to look for more."""

    def candidates(self, work, best):
        for found in super().candidates(work, best):
            yield replace(found, accepted=False, sufficient=False, at_most={"u": 5e-4})


class Slow(sciml.strategies.Tiles):
    """Tiles whose last candidate is off by about ``error``, and which spend all of the time then."""

    error = 5e-4

    def candidates(self, work, best):
        for found in super().candidates(work, best):
            yield replace(found, accepted=False, sufficient=False, at_most={"u": self.error})
        work.log.budget = Budget(seconds=1e-9)
        work.log.solved("Tiles", 0.0, self.error, {}, best=self.error, most=1)
        assert work.log.stopped


def test_what_is_close_when_the_seconds_are_spent_is_a_success():
    close = sciml.fit(Pierced(), strategy=Slow(4, 8))
    assert close.success
    assert close.status == "budget"
    assert "the solution is good enough" in close.message
    assert close.estimated_error == {"u": 5e-4}


def test_what_is_not_close_when_the_seconds_are_spent_is_none(monkeypatch):
    monkeypatch.setattr(Slow, "error", 5e-3)
    far = sciml.fit(Pierced(), strategy=Slow(4, 8))
    assert not far.success
    assert "give more by seconds=" in far.message
    assert far.estimated_error == {"u": 5e-3}


def test_networks_are_not_trained_beside_what_is_known_to_be_close():
    found = sciml.fit(Pierced(), strategy=[Close(4, 8), sciml.strategies.Train()])
    assert found.success
    assert "Train: not tried, what was found is good enough" in found.choices


def test_memory_bounds_the_tiles():
    strategy = sciml.strategies.Tiles()
    small = sciml.fit(Pierced(), strategy=strategy, memory=1e7)
    assert any("would take" in each for each in small.choices)
    large = sciml.fit(Pierced(), strategy=strategy)
    assert len(small.model.live) < len(large.model.live)


@pytest.mark.parametrize(
    "given", [{"seconds": 0}, {"seconds": "1"}, {"memory": -1.0}, {"memory": True}, {"memory": 2}, {"memory": 1e4}]
)
def test_a_budget_is_a_positive_number_of_seconds_or_bytes(given):
    with pytest.raises(SolverError, match="number of bytes above 10,000" if "memory" in given else "must be a positive number"):
        sciml.fit(Decay(), **given)


def test_an_interruption_of_the_certificate_loses_nothing(monkeypatch):
    issue, counts = certificate.certificate, []

    def interrupted(rows, blocks, scales):
        counts.append(max(block.size for block in blocks))
        if len(counts) == 1:
            raise KeyboardInterrupt
        return issue(rows, blocks, scales)

    monkeypatch.setattr(certificate, "certificate", interrupted)
    solution = sciml.fit(Decay())
    assert solution.status == "interrupted"
    assert not solution.success
    assert counts[1] <= certificate._FEW < counts[0]


def test_progress_begins_after_a_while():
    text = io.StringIO()
    line = ProgressLine(Console(file=text), every=0.0, after=2.0)
    with line:
        for seconds in (0.5, 1.9, 2.5):
            line(sciml.Report("Tiles", 1, 2, seconds, 0.1, 0.3, 0.3, {}, {}))
    (shown,) = text.getvalue().strip().splitlines()
    assert "2 s" in shown
    assert "GB" in shown


@pytest.mark.parametrize(("terminal", "given", "shown"), [(False, None, False), (True, None, True), (True, False, False)])
def test_progress_is_shown_in_a_terminal_unless_told_otherwise(monkeypatch, terminal, given, shown):
    made = []

    class Line(ProgressLine):
        def __init__(self, **settings):
            made.append(settings)
            super().__init__(Console(file=io.StringIO()), **settings)

    monkeypatch.setattr(fitting, "ProgressLine", Line)
    monkeypatch.setattr(fitting.sys.stderr, "isatty", lambda: terminal, raising=False)
    sciml.fit(Decay(), progress=given)
    assert bool(made) == shown
