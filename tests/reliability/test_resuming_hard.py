"""Resuming where it is hard: states that change under the hand, models and functions that look alike, odd moments."""

import os
import shutil
import signal
import time
import warnings

import numpy as np
import pytest
import torch
from children import Child
from test_resuming import KilledError, kill, same  # noqa: F401 - kill is a fixture
from test_runs_survive import DATA, LONG, OFTEN, fitted, slowly

import sciml
from problems import Growth
from sciml import cli, d
from sciml.errors import ArchiveWarning, FileError, ProblemError
from sciml.runs import RunDirectory
from sciml.runs.checkpoint import CHECKPOINT, read_record
from sciml.runs.fingerprint import differences, fingerprint, plain
from sciml.runs.history import Lines, read_lines


class Fragile(Growth):
    """Its equation fails after some evaluations."""

    left = 10**9

    @sciml.equation
    def growth(self, u, t):
        if len(t) == 256:
            type(self).left -= 1
            if type(self).left == 0:
                raise ZeroDivisionError
        return d(u, t) - self.rate * u


@pytest.mark.parametrize(
    "solver",
    [
        sciml.Adam(60, look=4),
        sciml.FirstOrder(torch.optim.NAdam, steps=60, look=4),
        sciml.LBFGS(60, look=4),
        sciml.SSBroyden(60, look=4),
        sciml.LeastSquares(40, look=4),
    ],
    ids=lambda solver: solver.name,
)
def test_fault_11_after_an_error_between_two_checkpoints(solver, tmp_path):
    """What is on disk belongs together: parameters of one step with the solver's state of that step."""
    Fragile.left = 10**9
    options = {"problem": Fragile(), "solver": solver}
    whole = fitted(**options)
    Fragile.left = 28
    with pytest.raises(ProblemError, match="ZeroDivisionError"):
        fitted(**options, out=tmp_path, checkpoint=sciml.CheckpointEvery(seconds=None, steps=5))
    Fragile.left = 10**9
    same(whole, fitted(**options, out=tmp_path, resume=True))


class Waves(torch.nn.Module):
    """A frequency that is no parameter."""

    def __init__(self, omega):
        super().__init__()
        self.omega = omega
        self.layer = torch.nn.Linear(1, 1).double()

    def forward(self, x):
        return torch.sin(self.omega * self.layer(x))


def test_fault_10_a_model_that_looks_alike_and_is_another(tmp_path, kill):  # noqa: F811
    """The same class, structure and shapes, and other values with the same parameters."""
    torch.manual_seed(0)
    first = Waves(1.0)
    kill(5)
    with pytest.raises(KilledError):
        fitted(model=first, out=tmp_path, checkpoint=OFTEN)
    kill(-1)
    with pytest.raises(FileError, match="other values with the same parameters"):
        fitted(model=Waves(3.0), out=tmp_path, resume=True)
    same(fitted(model=first), fitted(model=Waves(1.0), out=tmp_path, resume=True))


def scheduled(rate, fall):
    return sciml.FirstOrder(
        lambda parameters: torch.optim.Adam(parameters, lr=rate),
        steps=12,
        look=3,
        scheduler=torch.optim.lr_scheduler.LambdaLR,
        scheduler_options={"lr_lambda": lambda step: fall**step},
    )


def test_fault_10_functions_are_told_apart_by_what_they_do():
    """Their code and the values that they close over, not their names alone."""
    told = [plain(scheduled(*numbers)) for numbers in ((1e-3, 0.9), (1e-3, 0.9), (1e-1, 0.9), (1e-3, 0.5))]
    assert told[0] == told[1]
    assert told[0] != told[2]
    assert told[0] != told[3]
    assert plain(slice(1, 2)) != plain(slice(3, 4))
    assert plain(1 + 2j) != plain(1 + 3j)
    assert plain(np.int64(64)) == plain(64)
    cycle = []
    cycle.append(cycle)
    assert plain(cycle)


class Late(Growth):
    size = 5.0

    @sciml.equation
    def growth(self, u, t):
        return d(u, t) - self.rate * u - torch.where(t > 1.97, self.size, 0.0)


def test_fault_10_sources_in_a_small_part_of_the_domain():
    """Probes are dense enough to see what is there."""
    one, other = (fingerprint(problem, None, DATA, {}, "cpu") for problem in (Late(), Late(size=50.0)))
    assert any(each.startswith("problem.residuals.growth") for each in differences(one, other))
    assert differences(one, fingerprint(Late(), None, DATA, {}, "cpu")) == []
    assert differences({"a": [1, float("nan")]}, {"a": [1, float("nan")]}) == []


def test_resuming_without_further_checkpoints_goes_on_too(tmp_path, kill):  # noqa: F811
    """``checkpoint=None`` says that none is written, not that none is read."""
    kill(15)
    with pytest.raises(KilledError):
        fitted(out=tmp_path, checkpoint=OFTEN)
    kill(-1)
    told = []
    resumed = fitted(out=tmp_path, checkpoint=None, resume=True, callbacks=[lambda look: told.append(look.replayed)])
    assert told[:4] == [True] * 4
    assert not all(told)
    same(fitted(), resumed)


def test_results_of_phases_are_never_dropped(tmp_path, kill, monkeypatch):  # noqa: F811
    """However large they are: a phase that was computed again would push aside the state of the one that follows."""
    monkeypatch.setattr("sciml.solvers.journal._MOST_BYTES", 10)
    for number, resume in ((16, False), (1, True), (1, True)):
        kill(number)
        with pytest.raises(KilledError):
            fitted(out=tmp_path, checkpoint=OFTEN, resume=resume)
    kill(-1)
    with RunDirectory(tmp_path) as run:
        journal = run.load(CHECKPOINT)["journal"]
    assert journal["live"][:2] == [1, "LBFGS"]
    assert journal["live"][2]["count"] == 6
    same(fitted(), fitted(out=tmp_path, resume=True))


def test_fault_9_ctrl_c_during_profile_likelihood_keeps_the_fit(tmp_path, monkeypatch):
    """Intervals from the covariance in their place, and a run that can be resumed to the others."""
    options = {"model": sciml.RandomFeatures(12, 2.0), "solver": sciml.LeastSquares(20), "intervals": "profile"}
    monkeypatch.setattr("sciml.fitting.profiled", interrupted)
    for out in (None, tmp_path):
        found = fitted(**options, out=out)
        assert (found.status, found.success) == ("interrupted", False)
        assert "intervals are from the covariance" in found.message
        assert np.isfinite(found.unknowns["low"]).all()
    monkeypatch.undo()
    same(fitted(**options), fitted(**options, out=tmp_path, resume=True))


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_fault_14_whatever_a_callback_raises(error, tmp_path):
    """KeyboardInterrupt gives the solution so far, SystemExit leaves; both with a checkpoint of the step."""

    def leaves(look):
        if look.step == 6 and not look.replayed:
            raise error

    if error is KeyboardInterrupt:
        assert fitted(out=tmp_path, callbacks=[leaves]).status == "interrupted"
        assert read_record(tmp_path)["ended"]["status"] == "interrupted"
    else:
        with pytest.raises(SystemExit):
            fitted(out=tmp_path, callbacks=[leaves])
    with RunDirectory(tmp_path) as run:
        assert run.load(CHECKPOINT)["journal"]["live"][2]["count"] == 6
    same(fitted(), fitted(out=tmp_path, resume=True))


def test_fault_8_sigterm_in_a_fit_within_a_fit(tmp_path):
    """Both are saved, and the process exits with status 143."""

    def work(tell):
        def within(look):
            if look.step == 4 and not look.replayed:
                fitted(solver=LONG, out=tmp_path / "inner", callbacks=[slowly(tell)])

        fitted(solver=LONG, out=tmp_path / "outer", callbacks=[within])

    with Child(work) as child:
        assert child.line() == "look 2"
        child.send(signal.SIGTERM)
        rest, status = child.wait()
    assert status == 143, rest
    for name in ("inner", "outer"):
        same(fitted(solver=LONG), fitted(solver=LONG, out=tmp_path / name, resume=True))


def test_a_record_that_is_damaged_is_no_obstacle(tmp_path, kill):  # noqa: F811
    """The checkpoint knows by itself what it is of."""
    kill(5)
    with pytest.raises(KilledError):
        fitted(out=tmp_path, checkpoint=OFTEN)
    kill(-1)
    for place in (tmp_path / "run.json", tmp_path / ".previous" / "run.json"):
        place.write_bytes(b"{spoiled")
    with pytest.warns(ArchiveWarning, match="written anew"):
        same(fitted(), fitted(out=tmp_path, resume=True))


def test_a_finished_fit_whose_solution_is_gone_says_what_to_do(tmp_path):
    fitted(out=tmp_path)
    shutil.copy(tmp_path / "run.json", tmp_path / "kept.json")
    for place in (tmp_path / "solution.pt", tmp_path / ".previous" / "solution.pt"):
        place.unlink(missing_ok=True)
    with pytest.raises(FileError, match=r"was finished.*without resume=True to compute it again"):
        fitted(out=tmp_path, resume=True)


def test_histories_on_a_disk_that_fails(tmp_path, monkeypatch):
    """Short writes are completed, damaged lines written anew, and a failing flush ends the lines and not the fit."""
    lines, write = Lines(tmp_path / "a.jsonl"), os.write

    class Slow:
        def __init__(self, file):
            self.file = file

        def write(self, content):
            return self.file.write(content[:3])

        def close(self):
            self.file.close()

        def fileno(self):
            return self.file.fileno()

    lines._file = Slow(lines._file)
    for index in range(3):
        lines.write(index, {"step": index})
    lines.close()
    assert [line["step"] for line in read_lines(tmp_path / "a.jsonl")] == [0, 1, 2]
    content = bytearray((tmp_path / "a.jsonl").read_bytes())
    content[content.index(b"\n") + 3] ^= 0xFF
    (tmp_path / "a.jsonl").write_bytes(content)
    again = Lines(tmp_path / "a.jsonl", keep=3)
    for index in range(4):
        again.write(index, {"step": index})
    again.close()
    assert [line["step"] for line in read_lines(tmp_path / "a.jsonl")] == [0, 1, 2, 3]
    assert write is os.write

    (tmp_path / "run" / "history.jsonl").mkdir(parents=True)
    with pytest.warns(ArchiveWarning, match="ends here, the fit goes on"):
        same(fitted(), fitted(out=tmp_path / "run"))

    sync = os.fsync

    def full(handle):
        if os.readlink(f"/proc/self/fd/{handle}").endswith("history.jsonl"):
            raise OSError(28, "No space left on device")
        sync(handle)

    if os.path.isdir("/proc/self/fd"):
        monkeypatch.setattr("sciml.runs.history.os.fsync", full)
        with pytest.warns(ArchiveWarning, match="ends here.*No space left"):
            same(fitted(), fitted(out=tmp_path / "other", checkpoint=OFTEN))


class Careful(torch.nn.Module):
    """A model with a state of its own beside tensors."""

    def __init__(self):
        super().__init__()
        self.layer, self.note = torch.nn.Linear(1, 1).double(), "kept"

    def forward(self, x):
        return torch.tanh(self.layer(x))

    def get_extra_state(self):
        return {"note": self.note}

    def set_extra_state(self, state):
        self.note = state["note"]


def test_models_with_a_state_of_their_own(tmp_path, kill):  # noqa: F811
    model = Careful()
    kill(5)
    with pytest.raises(KilledError):
        fitted(model=model, out=tmp_path, checkpoint=OFTEN)
    kill(-1)
    same(fitted(model=model), fitted(model=Careful(), out=tmp_path, resume=True))


def noisy(*arguments, **options):
    """An optimizer that draws from torch's global generator."""

    class Noisy(torch.optim.SGD):
        def step(self, closure):
            loss = super().step(closure)
            for group in self.param_groups:
                for parameter in group["params"]:
                    with torch.no_grad():
                        parameter.add_(1e-6 * torch.randn_like(parameter))
            return loss

    return Noisy(*arguments, **options)


def test_randomness_that_is_the_callers_is_told(tmp_path, kill):  # noqa: F811
    """Its generator is not ours to keep or to set: the fit goes on, with a warning that the bits are others."""
    solver = sciml.FirstOrder(noisy, steps=12, lr=1e-3, look=3)
    kill(5)
    with pytest.raises(KilledError):
        fitted(solver=solver, out=tmp_path, checkpoint=OFTEN)
    kill(-1)
    with pytest.warns(ArchiveWarning, match="global generator.*not to the same bits"):
        assert fitted(solver=solver, out=tmp_path, resume=True).nit == 12


def test_members_of_an_ensemble_keep_no_directory(tmp_path):
    """``out`` and ``resume`` are the first fit's alone."""
    options = {"solver": sciml.LBFGS(60), "out": tmp_path, "checkpoint": OFTEN, "resume": True}
    with warnings.catch_warnings(action="ignore"):
        found = sciml.ensemble(Growth(), sciml.MLP(5), data=DATA, members=2, **options)
    assert len(found.solutions) == 2


FILE = """
import sciml
from sciml import cli, d


class Decay(sciml.Problem):
    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + u**2
"""


def test_the_command_line_is_resumed(tmp_path, capsys):
    """``sciml fit`` after SIGTERM, ``sciml resume``, and once more when it is finished."""
    (tmp_path / "decay.py").write_text(FILE)
    out = tmp_path / "runs" / "decay"
    arguments = [str(tmp_path / "decay.py"), "--seed", "3"]

    def work(tell):
        write = Lines.write

        def slow(self, *line):
            write(self, *line)
            time.sleep(0.1)

        Lines.write = slow
        tell("started")
        cli.app(["fit", *arguments, "--out", str(out), "--every", "0.3"], standalone_mode=False)

    with Child(work) as child:
        assert child.line() == "started"
        for _ in range(600):
            if (out / "history.jsonl").exists() and len(read_lines(out / "history.jsonl")) > 3:
                break
            time.sleep(0.05)
        child.send(signal.SIGTERM)
        rest, status = child.wait()
    assert status == 143, rest
    known = len(read_lines(out / "history.jsonl"))
    assert read_record(out)["command"]["seed"] == 3
    assert sciml.runs.table(out.parent).loc["decay", "state"] == "unfinished"
    codes = []
    for command in (["resume", str(out)], ["resume", str(out)], ["fit", *arguments, "--out", str(tmp_path / "whole")]):
        codes.append(cli.app(command, standalone_mode=False))
    assert codes == [0, 0, 0]
    resumed, whole = (sciml.load(place / "solution.pt") for place in (out, tmp_path / "whole"))
    same(whole, resumed)
    assert read_record(out)["resumed"] == 1
    assert 3 < known < len(resumed.history) == len(read_lines(out / "history.jsonl"))
    assert (out / "fit.png").stat().st_size > 1000
    with pytest.raises(FileError, match="holds no run"):
        cli.app(["resume", str(tmp_path)], standalone_mode=False)
    fitted(out=tmp_path / "python")
    with pytest.raises(FileError, match="called from Python"):
        cli.app(["resume", str(tmp_path / "python")], standalone_mode=False)
