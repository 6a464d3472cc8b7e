"""`sciml runs`: a table of what lies in a folder of runs, whatever it is."""

import json
import os
import pathlib
import warnings

import pytest
from rich.console import Console

import sciml
from problems import Decay
from sciml import cli
from sciml.errors import ArchiveWarning, FileError
from sciml.runs import RunDirectory
from sciml.runs.checkpoint import read_record
from sciml.runs.index import STATES, lines_of

BEGAN = "2030-01-01T10:00:00+00:00"
ENDED = {"status": "converged", "success": True, "at": "2030-01-02T10:00:00+00:00"}


def look(step, **more):
    return json.dumps({"phase": "Adam", "step": step, "seconds": step / 100, "held_out": 1 / step, **more}) + "\n"


def record(ended=None, **more):
    return json.dumps({"format": 1, "problem": "Decay", "began": BEGAN, "resumed": 0, "ended": ended, **more})


@pytest.fixture
def make(tmp_path):
    """Make a folder with files, by name and content, and return the folder of runs."""

    def make(name, when=None, **files):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        for file, content in files.items():
            path = folder / file.replace("__", ".")
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            if when is not None:
                os.utime(path, (when, when))
        return tmp_path / "runs"

    return make


def test_every_state_has_its_row(make):
    looks = look(50) + look(100)
    make("a", run__json=record(), history__jsonl=looks, checkpoint__pt=b"x" * 1000)
    make("b", run__json=record(), history__jsonl=looks)
    make(
        "c",
        run__json=record(ENDED),
        history__jsonl=looks,
        summary__json='{"nit": 120, "seconds": 3.5}',
        solution__pt=b"x",
    )
    make("d", run__json=record({**ENDED, "success": False}), solution__pt=b"x")
    make(
        "e",
        run__json=record({**ENDED, "status": "interrupted", "success": False}),
        solution__pt=b"x",
        checkpoint__pt=b"",
    )
    make("f", run__json=record()[:40], checkpoint__pt=b"x")
    make("g", notes__txt="mine")
    make("h", summary__json='{"problem": "Heat", "success": true, "nit": 7, "seconds": 2.5}', solution__pt=b"x")
    (make("i") / "file.txt").write_text("no folder, no row")
    table = sciml.runs.table(make(".hidden"))
    assert set(table.index) == set("abcdefghi")
    assert table["state"].to_dict() == {
        "a": "unfinished", "b": "unfinished", "c": "success", "d": "not a success", "e": "interrupted", "f": "damaged",
        "g": "not a run", "h": "success", "i": "not a run",
    }  # fmt: skip
    assert set(table["state"]) < set(STATES)
    assert table.loc["a", ["problem", "steps", "held_out", "seconds"]].tolist() == ["Decay", 100.0, 0.01, 1.0]
    assert table.loc["a", "bytes"] == 1000 + len(record()) + len(looks)
    assert table.loc["b", "note"] == "no checkpoint: it would begin anew"
    assert table.loc["c", ["steps", "seconds"]].tolist() == [120.0, 3.5]
    assert table.loc["f", "note"] == "run.json is damaged"
    assert table.loc["h", ["problem", "steps"]].tolist() == ["Heat", 7.0]
    assert str(table.loc["c", "when"]) == "2030-01-02 10:00:00+00:00"


def test_the_newest_is_first_by_when_it_ended_or_last_wrote(make):
    make("old", when=1e9, run__json=record())
    make("ended", when=1e9, run__json=record(ENDED))
    table = sciml.runs.table(make("new", when=1.5e9, run__json=record()))
    assert list(table.index) == ["ended", "new", "old"]


def test_a_running_one_is_known_by_its_lock_alone(make):
    runs = make("x", run__json=record(), checkpoint__pt=b"x")
    with RunDirectory(runs / "x"):
        row = sciml.runs.table(runs).loc["x"]
        assert (row["state"], row["pid"]) == ("running", os.getpid())
        assert sciml.runs.table(runs / "x").loc["x", "state"] == "running"
        assert lines_of(sciml.runs.table(runs))[0][2] == f"running ({os.getpid()})"
    row = sciml.runs.table(runs).loc["x"]
    assert row["state"] == "unfinished"
    assert lines_of(sciml.runs.table(runs))[0][2] == "unfinished"


@pytest.mark.parametrize("end", ["", '{"step": 150, "held', "\n", "\0\0\0\0", '{"step": 150}'])
def test_a_last_line_that_was_cut_off_is_no_fault(make, end):
    row = sciml.runs.table(make("x", run__json=record(), history__jsonl=look(50) + look(100) + end, checkpoint__pt=b"")).loc[
        "x"
    ]
    assert (row["state"], row["steps"], row["note"]) == ("unfinished", 100.0, "")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\xfe\x00", b"[" * 200_000, b"null", b"3", b'{"ended": 3}', b'{"ended": {"success": "yes"}}',
        b'{"problem": {}, "ended": {"at": 1e999, "success": true}}', b"1" * 10_000, b'{"ended": {}}',
        b'{"problem": "\\ud800", "ended": 7}',
        b'{"ended": {"at": "yesterday", "success": null}}', b'{"problem": "' + b"x" * 5_000_000 + b'"}',
    ],
)  # fmt: skip
def test_damaged_files_are_rows_that_say_so(make, content):
    runs = make("x", run__json=content, history__jsonl=content, summary__json=content, checkpoint__pt=content)
    row = sciml.runs.table(runs).loc["x"]
    assert row["state"] in ("damaged", "success")
    assert row["state"] == "success" or "damaged" in row["note"]
    assert lines_of(sciml.runs.table(runs))


def test_names_of_every_kind(make, tmp_path, monkeypatch):
    names = ["a b", "über/ξ", "x" * 255, "new\nline", "\x1b[31mred", "[bold]", "-rf", "'; drop", "…"]
    for name in names:
        make(name, run__json=record(problem="[red]\x1b[2J"))
    os.mkdir(os.fsencode(tmp_path / "runs") + b"/\xff\xfe")
    monkeypatch.chdir(tmp_path)
    table = sciml.runs.table()
    assert {each.split("/")[0] for each in names} <= set(table.index)
    shown = "".join(cell for line in lines_of(table) for cell in line)
    assert shown.isprintable()
    shown.encode()


def test_pipes_links_in_a_circle_and_folders_in_the_place_of_files(make, tmp_path):
    runs = make("x")
    os.mkfifo(runs / "x" / "run.json")
    os.mkfifo(runs / "x" / ".lock")
    (runs / "loop").symlink_to(runs / "loop")
    (runs / "gone").symlink_to(tmp_path / "gone")
    (runs / "y" / "summary.json").mkdir(parents=True)
    (runs / "y" / ".previous").write_text("a file")
    table = sciml.runs.table(runs)
    assert table.loc["x", "state"] == "not a run"
    assert table.loc["y", "state"] == "not a run"
    assert set(table.index) <= {"x", "y", "loop"}


def test_no_such_folder(tmp_path):
    with pytest.raises(FileError, match=r"cannot list the runs in .*nowhere: No such file.*out="):
        sciml.runs.table(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="Not a directory"):
        sciml.runs.table(tmp_path / "file")
    for given in (3, "", "a\0b", None):
        with pytest.raises(FileError, match="needs the path of a directory"):
            sciml.runs.table(given)
    assert len(sciml.runs.table(tmp_path)) == 0


def test_a_thousand_runs_are_listed_without_opening_a_checkpoint(make, monkeypatch):
    for number in range(1000):
        runs = make(f"{number:04}", run__json=record(), history__jsonl=look(1 + number), checkpoint__pt=b"x")
    opened = []

    def noted(read):
        return lambda self, *given, **more: opened.append(self) or read(self, *given, **more)

    monkeypatch.setattr(
        os, "open", lambda path, *rest, _open=os.open, **more: opened.append(path) or _open(path, *rest, **more)
    )
    for name in ("read_bytes", "read_text", "open"):
        monkeypatch.setattr(pathlib.Path, name, noted(getattr(pathlib.Path, name)))
    table = sciml.runs.table(runs)
    assert len(table) == 1000
    assert table["steps"].sum() == 500_500
    # The history, the record, no lock: two small files a run.
    assert {str(each).rsplit(".", maxsplit=1)[-1] for each in opened} == {"json", "jsonl"}
    assert len(opened) <= 3000


def test_the_command_prints_the_table(make, monkeypatch, capsys):
    runs = make("decay [1]", run__json=record(), history__jsonl=look(50), checkpoint__pt=b"x" * 3000)
    monkeypatch.setattr(cli, "_console", Console(width=160))
    cli.runs(runs)
    shown = capsys.readouterr().out
    for words in ("decay [1]", "Decay", "unfinished", "2.00e-02", "KiB", "sciml resume"):
        assert words in shown


def fitted(out, *callbacks):
    quick = {"solver": sciml.Adam(60), "checkpoint": sciml.CheckpointEvery(steps=20), "progress": False}
    return sciml.fit(Decay(), sciml.MLP(4), out=out, callbacks=list(callbacks), **quick)


def test_a_relative_path_is_meant_where_the_fit_began(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    fitted("runs/x", lambda look: os.chdir(tmp_path / "elsewhere"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
    row = sciml.runs.table(tmp_path / "runs").loc["x"]
    assert row["state"] in ("success", "not a success")
    assert (row["steps"], row["problem"]) == (60.0, "Decay")


def test_a_run_inside_of_itself_is_refused_and_the_outer_one_goes_on(tmp_path):
    refused = []

    def again(look):
        with pytest.raises(FileError, match=r"is being written by process \d+ .*wait until it ends") as caught:
            fitted(tmp_path / "x")
        assert sciml.runs.table(tmp_path).loc["x", "state"] == "running"
        refused.append(caught)

    fitted(tmp_path / "x", again)
    assert refused
    assert sciml.runs.table(tmp_path).loc["x", "state"] in ("success", "not a success")


@pytest.mark.parametrize("name", ["a b", "ü ξ 'q' [b]\n", "x" * 255, "\udcff", "-rf"])
def test_directories_of_runs_may_have_any_name(tmp_path, name):
    fitted(tmp_path / name)
    assert len(lines_of(sciml.runs.table(tmp_path))) == 1
    assert sciml.load(tmp_path / name / "solution.pt").nit == 60


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("file", "cannot make the directory .*File exists"),
        ("file/x", "cannot make the directory .*Not a directory"),
        ("x" * 256, "cannot make the directory .*name too long"),
        ("/".join(["x" * 200] * 25), "cannot make the directory .*name too long"),
        ("gone", "cannot make the directory"),
        ("", "must be a path"),
        ("a\0b", "must be a path"),
        ("/proc/x", "cannot make the directory /proc/x"),
    ],
)
def test_directories_that_cannot_be_are_refused_before_the_first_step(tmp_path, monkeypatch, out, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    looks = []
    with pytest.raises(FileError, match=words):
        fitted(out, looks.append)
    assert not looks
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("content", ["[]", '{"began": 1, "ended": 3}', '{"began": 1, "ended": {}}', "X", ""])
def test_fault_3_a_damaged_record_of_a_run_gives_way_to_the_one_before(tmp_path, content):
    """A damaged `run.json` is noticed and the one before it taken; without one it is refused."""
    fitted(tmp_path / "x")
    (tmp_path / "x" / "run.json").write_text(content)
    with pytest.warns(ArchiveWarning, match=r"run.json is damaged.*the one saved before it was taken"):
        assert read_record(tmp_path / "x")["problem"] == "Decay"
    for name in ("manifest.json", ".previous/run.json"):
        (tmp_path / "x" / name).unlink()
    with pytest.raises(FileError, match=r"run.json.* is damaged"), warnings.catch_warnings(action="ignore"):
        read_record(tmp_path / "x")
