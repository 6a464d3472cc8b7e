"""Runs that are killed, interrupted, raced for or handed the wrong thing: nothing is lost, nothing is silent."""

import json
import os
import shutil
import signal
import time

import numpy as np
import pytest
import torch
from children import Child
from test_resuming import BRIEF_ROD, KilledError, kill, same  # noqa: F401 - kill is a fixture

import sciml
from problems import Growth, Heat
from sciml import d
from sciml.data import archive
from sciml.errors import ArchiveWarning, FileError, TrackerWarning
from sciml.runs import RunDirectory
from sciml.runs.checkpoint import read_record
from sciml.runs.history import read_lines

TIMES = np.linspace(0, 2, 15)
DATA = {"t": TIMES, "u": np.exp(0.8 * TIMES)}
OFTEN = sciml.CheckpointEvery(seconds=None, steps=1)


def fitted(**options):
    solver = options.pop("solver", [sciml.Adam(12, look=2), sciml.LBFGS(12, look=3)])
    return sciml.fit(
        options.pop("problem", Growth()),
        options.pop("model", sciml.MLP(5, 5)),
        data=options.pop("data", DATA),
        solver=solver,
        **options,
    )


def slowly(tell, seconds=0.02):
    """A callback that tells of every look and waits, so that a signal arrives in the middle."""

    def look_and_wait(look):
        if not look.replayed:
            tell(f"look {look.step}")
            time.sleep(seconds)

    return look_and_wait


LONG = [sciml.Adam(60, look=2), sciml.LBFGS(10, look=2)]


def test_fault_8_sigterm_finishes_the_step_saves_and_exits_143(tmp_path):
    """A real process: exit status 143, a checkpoint, the handler restored, and the resumed fit has the same bits."""

    def work(tell):
        def before(*_):
            return None

        signal.signal(signal.SIGTERM, before)
        try:
            fitted(solver=LONG, out=tmp_path, checkpoint=sciml.CheckpointEvery(seconds=1000), callbacks=[slowly(tell)])
        except SystemExit:
            assert signal.getsignal(signal.SIGTERM) is before
            raise

    with Child(work) as child:
        assert [child.line() for _ in range(4)] == ["look 2", "look 4", "look 6", "look 8"]
        child.send(signal.SIGTERM)
        rest, status = child.wait()
    assert status == 143, rest
    assert read_record(tmp_path)["ended"] is None
    known = read_lines(tmp_path / "history.jsonl")
    assert 4 <= len(known) < 30
    told = []
    resumed = fitted(solver=LONG, out=tmp_path, resume=True, callbacks=[slowly(told.append, 0)])
    # What the first one had done is not done again.
    assert told[0] == f"look {known[-1]['step'] + 2}"
    same(fitted(solver=LONG), resumed)


def test_fault_9_first_ctrl_c_returns_the_partial_solution_second_stops(tmp_path):
    """A real process: one SIGINT gives status "interrupted" and a checkpoint, two give KeyboardInterrupt at once."""

    def partial(tell):
        solution = fitted(solver=LONG, out=tmp_path / "one", callbacks=[slowly(tell)])
        tell(f"{solution.status} {solution.success} {solution.nit < 70}")

    with Child(partial) as child:
        assert child.line() == "look 2"
        child.send(signal.SIGINT)
        rest, status = child.wait()
    assert (rest[-1], status) == ("interrupted False True", 0)
    assert read_record(tmp_path / "one")["ended"]["status"] == "interrupted"
    assert sciml.load(tmp_path / "one" / "solution.pt").status == "interrupted"
    same(fitted(solver=LONG), fitted(solver=LONG, out=tmp_path / "one", resume=True))

    def stubborn(tell):
        def twice(look):
            # During a step that takes for ever the first one is only noted.
            os.kill(os.getpid(), signal.SIGINT)
            tell("noted")
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
            tell("too late")

        try:
            fitted(solver=LONG, out=tmp_path / "two", callbacks=[twice])
        except KeyboardInterrupt:
            tell("stopped")

    with Child(stubborn) as child:
        assert child.wait() == (["noted", "stopped"], 0)


def test_fault_9_without_a_directory_too():
    """A KeyboardInterrupt from anywhere in a fit without ``out`` gives the best solution so far."""

    def interrupt(look):
        if look.step >= 6:
            raise KeyboardInterrupt

    found = fitted(callbacks=[interrupt])
    assert (found.status, found.success) == ("interrupted", False)
    assert found.nit < 12


class Steeper(Growth):
    @sciml.equation
    def growth(self, u, t):
        return d(u, t) - 2 * self.rate * u


OTHERS = {
    "an equation": ({"problem": Steeper()}, "problem.residuals.growth"),
    "data": ({"data": {**DATA, "u": DATA["u"] * 1.001}}, "data.columns.u"),
    "fewer data": ({"data": {name: values[:-1] for name, values in DATA.items()}}, "data.rows: 15 then, 14 now"),
    "another model": ({"model": sciml.MLP(6, 5)}, "model.structure"),
    "dtype": ({"dtype": torch.float32}, "settings.dtype: torch.float64 then, torch.float32 now"),
    "seed": ({"seed": 1}, "settings.seed: 0 then, 1 now"),
    "solver": ({"solver": sciml.Adam(13, look=2)}, "settings.solver"),
}


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A directory with a fit that did not end."""
    path = tmp_path_factory.mktemp("unfinished") / "run"

    def dies(look):
        if look.step >= 6 and not look.replayed:
            raise KilledError

    with pytest.raises(KilledError):
        fitted(out=path, checkpoint=OFTEN, callbacks=[dies])
    return path


@pytest.mark.parametrize("name", OTHERS)
def test_fault_10_another_fit_is_not_resumed(name, unfinished):
    """The fingerprint's difference is named, and the checkpoint stays as it is."""
    options, difference = OTHERS[name]
    before = (unfinished / "checkpoint.pt").read_bytes()
    with pytest.raises(FileError, match="holds another fit") as caught:
        fitted(out=unfinished, resume=True, **options)
    assert difference in str(caught.value)
    if name == "an equation":
        assert "problem.class: Growth then, Steeper now" in str(caught.value)
    assert (unfinished / "checkpoint.pt").read_bytes() == before


def test_fault_10_versions_that_differ_are_told(unfinished, monkeypatch, tmp_path):
    """Another version of torch may round otherwise: a warning, and the fit is resumed."""
    copied = shutil.copytree(unfinished, tmp_path / "copy")
    monkeypatch.setattr("sciml.runs.fingerprint.torch.__version__", "2.99")
    with pytest.warns(ArchiveWarning, match=r"versions.torch: .* then, 2.99 now.*may differ.*in rounding"):
        same(fitted(), fitted(out=copied, resume=True))


def test_fault_12_sampler_and_generator_go_on_where_they_were(tmp_path, kill):  # noqa: F811
    """Points that are drawn anew, and batches, after the interruption are those of the fit without it."""

    drawn = []

    class Listening(sciml.Adaptive):
        def renewed(self, objective, generator):
            found = super().renewed(objective, generator)
            drawn.append(found[0].sample.points[0])
            return found

    def fit(**options):
        solver = sciml.Adam(12, batch=32, look=2)
        return sciml.fit(
            Heat(domain=BRIEF_ROD),
            sciml.MLP(4),
            solver=solver,
            points=64,
            sampler=Listening(every=3),
            checkpoint=OFTEN,
            **options,
        )

    whole = fit()
    expected = list(drawn)
    drawn.clear()
    kill(7)
    with pytest.raises(KilledError):
        fit(out=tmp_path)
    kill(-1)
    resumed = fit(out=tmp_path, resume=True)
    assert len(expected) == len(drawn) == 4
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(expected, drawn, strict=True))
    assert not torch.equal(drawn[0], drawn[1])
    same(whole, resumed)


def test_fault_13_a_second_writer_is_refused_and_a_dead_one_leaves_no_lock(tmp_path):
    """Two real processes race for one run directory: one fits, the other is told who does; after kill -9 the lock is free."""

    def work(tell):
        try:
            fitted(out=tmp_path, checkpoint=OFTEN, callbacks=[slowly(tell, 0.1)], resume=True)
            tell("fitted")
        except FileError as error:
            tell(f"refused {error}")

    with Child(work) as one, Child(work) as other:
        first = [one.line(), other.line()]
        assert sorted(line.split()[0] for line in first) == ["look", "refused"]
        loser, winner = (one, other) if first[0].startswith("refused") else (other, one)
        assert str(winner.pid) in first[loser is other]
        winner.send(signal.SIGKILL)
        assert winner.wait()[1] == -signal.SIGKILL
    with Child(work) as after:
        rest, status = after.wait()
    assert (rest[-1], status) == ("fitted", 0)


def test_fault_14_a_callback_that_raises_loses_nothing(tmp_path):
    """The step is finished and saved, the error is raised again, and the fit can be resumed to the same bits."""

    def breaks(look):
        if look.step >= 8 and not look.replayed:
            raise ZeroDivisionError("of the callback")

    for name, every in (("often", OFTEN), ("seldom", sciml.CheckpointEvery(seconds=3600))):
        with pytest.raises(ZeroDivisionError, match="of the callback"):
            fitted(out=tmp_path / name, checkpoint=every, callbacks=[breaks])
        # The look that it saw is in the history, and was the last one.
        assert [line["step"] for line in read_lines(tmp_path / name / "history.jsonl")] == [2, 4, 6, 8]
        resumed = fitted(out=tmp_path / name, resume=True)
        same(fitted(), resumed)
        assert len(read_lines(tmp_path / name / "history.jsonl")) == len(resumed.history)


def test_fault_15_a_tracker_that_is_down_is_warned_of_once(tmp_path):
    """JSONL goes on, and so does the fit."""
    calls = []

    def log(numbers, step):
        calls.append(step)
        raise ConnectionError("the database is down")

    with pytest.warns(TrackerWarning, match="goes on without it.*ConnectionError: the database is down") as caught:
        solution = fitted(out=tmp_path, callbacks=[sciml.Tracker(log)])
    assert len([each for each in caught if issubclass(each.category, TrackerWarning)]) == 1
    assert solution.status == "budget"
    lines = read_lines(tmp_path / "history.jsonl")
    assert [line["step"] for line in lines] == calls == solution.history["step"].tolist()
    assert lines[-1]["loss"] == solution.history["loss"].iloc[-1]


def test_an_unfinished_fit_that_is_begun_anew_is_set_aside(tmp_path, kill):  # noqa: F811
    """Without ``resume`` its checkpoint is kept under another name, and a warning says so."""
    kill(5)
    with pytest.raises(KilledError):
        fitted(out=tmp_path, checkpoint=OFTEN)
    kill(-1)
    old = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.warns(ArchiveWarning, match="resume=True would have continued it.*checkpoint.aside.pt"):
        same(fitted(), fitted(out=tmp_path))
    assert (tmp_path / "checkpoint.aside.pt").read_bytes() == old
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_finished_fit_is_read_from_its_file(tmp_path):
    """``resume=True`` may stand in a script that a cluster starts again and again."""
    first = fitted(out=tmp_path, resume=True)
    steps = []
    again = fitted(out=tmp_path, resume=True, callbacks=[lambda look: steps.append(look.step)])
    assert not steps
    assert (again.status, again.nit) == (first.status, first.nit)
    assert np.array_equal(again(t=[0.1, 1.9])["u"], first(t=[0.1, 1.9])["u"])


def test_a_model_with_random_weights_is_resumed_with_those_that_it_had(tmp_path, kill):  # noqa: F811
    """A script that draws its weights anew each time continues with the ones from before."""

    def network():
        return torch.nn.Sequential(torch.nn.Linear(1, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).double()

    torch.manual_seed(1)
    first, other = network(), network()
    whole = fitted(model=first)
    kill(9)
    with pytest.raises(KilledError):
        fitted(model=first, out=tmp_path, checkpoint=OFTEN)
    kill(-1)
    same(whole, fitted(model=other, out=tmp_path, resume=True))


def test_a_full_disk_does_not_end_a_fit(tmp_path, monkeypatch):
    """One warning that a checkpoint was not written; the next one is."""
    save, tried = RunDirectory.save, []

    def full(self, name, content):
        tried.append(name)
        if len(tried) in (3, 4):
            raise FileError("no space left on device")
        return save(self, name, content)

    monkeypatch.setattr(RunDirectory, "save", full)
    with pytest.warns(ArchiveWarning, match="the fit goes on: no space left") as caught:
        solution = fitted(out=tmp_path, checkpoint=OFTEN)
    assert len(caught) == 1
    assert len(tried) > 10
    same(solution, fitted())


def test_wrong_arguments_are_told(tmp_path):
    for options, what in (
        ({"resume": True}, "give it"),
        ({"out": tmp_path, "resume": "yes"}, "True or False"),
        ({"out": tmp_path, "checkpoint": 60}, "sciml.CheckpointEvery"),
        ({"out": 3}, "must be a directory"),
    ):
        with pytest.raises(sciml.errors.SciMLError, match=what):
            fitted(**options)
    for wrong in ({"seconds": 0}, {"seconds": None}, {"seconds": None, "steps": -1}, {"seconds": float("nan")}):
        with pytest.raises(sciml.errors.SolverError, match="positive number"):
            sciml.CheckpointEvery(**wrong)


def test_nothing_is_kept_open_and_no_seed_is_touched(tmp_path):
    """Generators of the caller's, and signal handlers, are as they were."""
    torch.manual_seed(5)
    before = torch.get_rng_state(), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    fitted(out=tmp_path)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["ended"]["status"] == "budget"
    assert record["resumed"] == 0


def test_damaged_checkpoints_fall_back_one_generation(tmp_path, kill):  # noqa: F811
    """The one before is taken, with a warning, and the result has the same bits."""
    kill(8)
    with pytest.raises(KilledError):
        fitted(out=tmp_path, checkpoint=OFTEN)
    kill(-1)
    content = bytearray((tmp_path / "checkpoint.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.warns(ArchiveWarning, match="the one saved before it was taken"):
        resumed = fitted(out=tmp_path, resume=True)
    same(fitted(), resumed)


def test_a_checkpoint_of_a_newer_version_is_refused(unfinished, tmp_path):
    """With what to do about it."""
    with RunDirectory(tmp_path) as run:
        run.save("checkpoint.pt", {**archive.load_tensors(unfinished / "checkpoint.pt"), "checkpoint": 99})
    with pytest.raises(FileError, match=r"newer version.*format 99.*update it"):
        fitted(out=tmp_path, resume=True)


def leaves(content, path=()):
    """The places of all values in tensors and plain values."""
    if isinstance(content, dict):
        return [place for key, value in content.items() for place in leaves(value, (*path, key))]
    if isinstance(content, list):
        return [place for key, value in enumerate(content) for place in leaves(value, (*path, key))]
    return [path]


def spoiled(content, path, value):
    """A copy with another value at one place."""
    if not path:
        return value
    copy = dict(content) if isinstance(content, dict) else list(content)
    copy[path[0]] = spoiled(content[path[0]], path[1:], value)
    return copy


@pytest.mark.slow
def test_checkpoints_with_wrong_values_and_right_checksums(unfinished, tmp_path):
    """Whatever stands in them: an error of ours, or a fit."""
    content = archive.load_tensors(unfinished / "checkpoint.pt")
    content.pop("sciml_format", None)
    places = [place for place in leaves(content["journal"]) if "fingerprint" not in place]
    chance = np.random.default_rng(0)
    refused = 0
    for number in range(24):
        place = places[chance.integers(len(places))]
        value = [None, "text", -7, float("nan"), [], {}, torch.ones(3), 2**70][number % 8]
        with RunDirectory(tmp_path / str(number)) as run:
            run.save("checkpoint.pt", {**content, "journal": spoiled(content["journal"], place, value)})
        try:
            fitted(out=tmp_path / str(number), resume=True)
        except sciml.errors.SciMLError:
            refused += 1
    assert refused > 6
