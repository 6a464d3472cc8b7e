"""One writer at a time, two generations of every file, and no alarm that is false."""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
import writing
from writing import other

from sciml.data import archive
from sciml.errors import ArchiveWarning, FileError
from sciml.runs import RunDirectory, directory as run_directory
from sciml.runs.directory import MANIFEST

CALLS = ("open", "close", "fsync", "chmod", "replace", "link", "unlink", "mkdir", "stat", "listdir", "ftruncate")


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are copied and killed here")


class Crash(BaseException):
    """The process is no more."""


class Dying:
    """The calls of the system, the last of which is number ``last``: from then on none does anything."""

    def __init__(self, monkeypatch, last):
        self.monkeypatch, self.last, self.done = monkeypatch, last, 0

    def __enter__(self):
        for name in CALLS:
            self.monkeypatch.setattr(os, name, self.counted(getattr(os, name), name))
        self.monkeypatch.setattr(Path, "write_bytes", self.counted(Path.write_bytes, "write"))
        return self

    def counted(self, call, name):
        def counted(*arguments, **options):
            self.done += 1
            if self.done > self.last:
                raise Crash
            # The disk itself is not what is tried here.
            return None if name == "fsync" else call(*arguments, **options)

        return counted

    def __exit__(self, *_):
        self.monkeypatch.undo()


def crashed(monkeypatch, directory, content, last, name="a.pt"):
    """Write, and die after so many calls of the system; whether the write was finished before."""
    run = RunDirectory(directory).__enter__()
    try:
        with Dying(monkeypatch, last):
            run.write(name, content)
    except Crash:
        return False
    finally:
        # What the kernel does for a process that dies.
        run_directory._held.clear()
        archive._PROCESS = secrets.token_hex(4)
        run._lock.release()
    return True


def states(directory):
    frame = RunDirectory(directory).verify()
    return dict(zip(frame["file"], frame["state"], strict=True))


CONTENTS = [archive.packed({"step": step}) for step in range(6)]


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_fault_1_a_crash_between_any_two_calls_loses_nothing_and_alarms_nobody(monkeypatch, place, before):
    for last in range(200):
        directory = place / str(last)
        with RunDirectory(directory) as run:
            for step in range(before):
                run.write("a.pt", CONTENTS[step])
        done = crashed(monkeypatch, directory, CONTENTS[before], last)
        assert set(states(directory).values()) <= {"whole"}, (last, states(directory))
        if before or done:
            found = RunDirectory(directory).load("a.pt")["step"]
            assert found in ((before,) if done else (before - 1, before))
        with RunDirectory(directory) as run:
            assert not list(directory.rglob("*.tmp"))
            run.save("a.pt", {"step": 9})
            assert run.load("a.pt")["step"] == 9
        if done:
            break
        shutil.rmtree(directory)
    assert 10 < last < 199


def test_fault_1_crashes_one_after_another(monkeypatch, place):
    """Each run dies at another call of the same write; the two generations stay whole through all of it."""
    with RunDirectory(place) as run:
        for step in (0, 1):
            run.write("a.pt", CONTENTS[step])
    newest = 1
    for first in range(0, 60, 3):
        for second in range(1, 60, 11):
            for last, step in ((first, 2 + first % 2), (second, 4)):
                done = crashed(monkeypatch, place, CONTENTS[step], last)
                assert set(states(place).values()) == {"whole"}, (first, second, last)
                found = RunDirectory(place).load("a.pt")["step"]
                assert found in ((step,) if done else (newest, step))
                newest = found
                # The spare one is whole too: spoil the newest, and it is taken.
                content = (place / "a.pt").read_bytes()
                (place / "a.pt").unlink()
                (place / "a.pt").write_bytes(content[:-1])
                with pytest.warns(ArchiveWarning, match="the one saved before it was taken"):
                    RunDirectory(place).load("a.pt")
                (place / "a.pt").write_bytes(content)


def test_fault_1_killed_while_it_saves(tmp_path):
    """kill -9 at ten moments of a process that does nothing but save."""
    newest = 0
    for number in range(10):
        with other(writing.save_for_ever, tmp_path) as (process, told):
            said = told.recv()
            time.sleep(0.0037 * number)
            process.kill()
            process.join()
            with contextlib.suppress(EOFError):
                while True:
                    said = told.recv()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            content = RunDirectory(tmp_path).load("a.pt")
        assert content["step"] >= said > newest
        assert torch.equal(content["u"], torch.full((20000,), float(content["step"])))
        assert set(states(tmp_path).values()) == {"whole"}
        newest = content["step"]
    with RunDirectory(tmp_path):
        assert sorted(each.name for each in tmp_path.iterdir()) == [".lock", ".previous", "a.pt", MANIFEST]


def test_fault_1_orphans_of_the_dead_are_swept_and_files_of_the_living_are_not(tmp_path):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = int(dead.stdout)
    orphans = [
        f".a.pt.{dead}-01234567.abcdefgh.tmp",
        f".a.pt.{os.getpid()}-01234567.abcdefgh.tmp",
        ".a.pt.abcdefgh.tmp",
    ]
    living = [f".a.pt.{os.getppid()}-01234567.abcdefgh.tmp", ".mine.tmp", ".notes"]
    (tmp_path / ".previous").mkdir()
    for name in orphans + living:
        (tmp_path / name).touch()
        (tmp_path / ".previous" / name).touch()
    with archive.temporary(tmp_path / "b.pt") as own, RunDirectory(tmp_path):
        left = {each.name for each in tmp_path.iterdir()}
        assert left == {own.name, ".lock", ".previous", *living}
        assert {each.name for each in (tmp_path / ".previous").iterdir()} == set(living)


def test_fault_3_a_damaged_file_gives_way_to_the_one_before(tmp_path):
    with RunDirectory(tmp_path) as run:
        for step in range(3):
            run.save("a.pt", {"step": step})
        run.write("a.json", b"{}")
        (tmp_path / "a.pt").write_bytes(b"x" + (tmp_path / "a.pt").read_bytes()[1:])
        with pytest.warns(ArchiveWarning, match=r"a\.pt is damaged.*the one saved before it was taken"):
            assert run.load("a.pt")["step"] == 1
        frame = run.verify().set_index("file")
        assert frame.loc["a.pt", "state"] == "damaged"
        assert "copy .previous/a.pt" in frame.loc["a.pt", "advice"]
        assert frame.loc[".previous/a.pt", "state"] == "whole"
        # What is damaged does not become the previous one.
        run.save("a.pt", {"step": 3})
        (tmp_path / "a.pt").unlink()
        assert states(tmp_path)["a.pt"] == "missing"
        with pytest.warns(ArchiveWarning, match="there is no file"):
            assert run.load("a.pt")["step"] == 1
        (tmp_path / ".previous" / "a.pt").write_bytes(b"")
        with pytest.raises(
            FileError, match=r"no generation of a\.pt .* is whole: there is no file .*; .*previous.a\.pt is damaged"
        ):
            run.load("a.pt")
        (tmp_path / "a.json").write_bytes(b"[]")
        with pytest.raises(FileError, match=r"no generation of a\.json"):
            run.read("a.json")
        with pytest.raises(FileError, match=r"no file a\.pd .*files: 'a\.json', 'a\.pt'\. Did you mean 'a\.pt'"):
            run.load("a.pd")


def test_a_manifest_that_is_damaged_or_gone_is_made_again(tmp_path):
    with RunDirectory(tmp_path) as run:
        for step in range(2):
            run.save("a.pt", {"step": step})
            run.write("a.json", b"%d" % step)
    for spoiled in (b"", b"{}", b"[" * 100000, (tmp_path / MANIFEST).read_bytes().replace(b"sha256", b"sha255"), None):
        (tmp_path / MANIFEST).unlink()
        if spoiled is not None:
            (tmp_path / MANIFEST).write_bytes(spoiled)
        state = "missing" if spoiled is None else "damaged"
        assert states(tmp_path) == {
            MANIFEST: state,
            "a.json": "unlisted",
            "a.pt": "whole",
            ".previous/a.json": "unlisted",
            ".previous/a.pt": "whole",
        }
        if spoiled is not None:
            with pytest.warns(ArchiveWarning, match="is taken as it is"):
                assert run.load("a.pt")["step"] == 1
        with pytest.warns(ArchiveWarning, match=f"was {state} and was made again"), run:
            pass
        assert run.read("a.json") == b"1"
        assert set(states(tmp_path).values()) == {"whole"}
    (tmp_path / MANIFEST).unlink()
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:-1])
    with pytest.warns(ArchiveWarning, match="made again"), run:
        pass
    assert states(tmp_path)["a.pt"] == "damaged"
    with pytest.warns(ArchiveWarning, match="was taken"):
        assert run.load("a.pt")["step"] == 0


def test_a_file_that_was_there_before_is_taken_over(tmp_path):
    (tmp_path / "a.json").write_bytes(b"old")
    with RunDirectory(tmp_path) as run:
        assert run.read("a.json") == b"old"
        run.write("a.json", b"new")
        assert run.read("a.json") == b"new"
        assert (tmp_path / ".previous" / "a.json").read_bytes() == b"old"
        run.write("a.json", b"new")
        assert (tmp_path / ".previous" / "a.json").read_bytes() == b"old"
    assert set(states(tmp_path).values()) == {"whole"}


def test_without_hard_links_files_are_copied(tmp_path, monkeypatch):
    def none(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", none)
    with RunDirectory(tmp_path) as run:
        for step in range(3):
            run.save("a.pt", {"step": step})
    assert archive.load_tensors(tmp_path / ".previous" / "a.pt")["step"] == 1
    assert set(states(tmp_path).values()) == {"whole"}
    assert not list(tmp_path.rglob("*.tmp"))


def test_files_are_written_with_the_lock_only_and_under_plain_names(tmp_path):
    run = RunDirectory(tmp_path)
    with pytest.raises(FileError, match="without its lock: with RunDirectory"):
        run.write("a.json", b"")
    with run:
        for name in ("", ".", "..", "a/b", ".lock", MANIFEST, "a\0", "x" * 200, 3, "é.json"):
            with pytest.raises(FileError, match="plain name"):
                run.write(name, b"")
        with pytest.raises(FileError, match="do not enter it twice"), run:
            pass
    for wrong in ("", "a\0", None, 3):
        with pytest.raises(FileError, match="must be a path"):
            RunDirectory(wrong)
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot make the directory"), RunDirectory(tmp_path / "file" / "run"):
        pass
    with pytest.raises(FileError, match="no directory"):
        RunDirectory(tmp_path / "nowhere").verify()


def test_fault_13_a_second_writer_is_refused_and_the_lock_of_the_dead_is_free(tmp_path):
    assert RunDirectory.holder(tmp_path) is None
    with other(writing.hold, tmp_path) as (process, held):
        held.recv()
        told = RunDirectory.holder(tmp_path)
        assert told["pid"] == process.pid
        with pytest.raises(FileError, match=rf"process {process.pid} on {re.escape(told['host'])} since 2.*choose another"):
            RunDirectory(tmp_path).__enter__()
        # Whoever reads need not wait.
        assert not RunDirectory(tmp_path).exists("a.pt")
    assert str(process.pid) in (tmp_path / ".lock").read_text()
    assert RunDirectory.holder(tmp_path) is None
    with RunDirectory(tmp_path) as run:
        assert RunDirectory.holder(tmp_path)["pid"] == os.getpid()
        with pytest.raises(FileError, match=f"process {os.getpid()} "), RunDirectory(tmp_path):
            pass
        run.write("a.json", b"{}")
        for spoiled in (b"", b"[]", b"\xff", b'{"pid": '):
            (tmp_path / ".lock").write_bytes(spoiled)
            assert RunDirectory.holder(tmp_path)["pid"] == "unknown"
    assert RunDirectory.holder(tmp_path) is None


def test_fault_13_two_processes_race_for_one_directory(tmp_path):
    """Many tries of two at once: one of them has it, the other waits or is refused, and their writes do not mix."""
    with other(writing.count, tmp_path) as (_, one), other(writing.count, tmp_path) as (_, two):
        one.send("go")
        two.send("go")
        counts = [one.recv(), two.recv()]
    assert all(won for won, _ in counts)
    assert sum(won for won, _ in counts) == int(RunDirectory(tmp_path).read("count.txt"))
    assert sum(lost for _, lost in counts) > 0


def test_fault_13_a_copy_of_the_process_does_not_keep_the_lock(tmp_path):
    """Workers that load data are copies, and live a little longer than a process that was killed."""
    with other(writing.hold_with_a_copy, tmp_path) as (_, told):
        copy = told.recv()
        assert RunDirectory.holder(tmp_path) is not None
    try:
        os.kill(copy, 0)
        assert RunDirectory.holder(tmp_path) is None
        with RunDirectory(tmp_path):
            pass
    finally:
        os.kill(copy, 9)


def test_fault_13_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def none(*_, **__):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.warns(ArchiveWarning, match="has no locks"), RunDirectory(tmp_path) as run:
        run.write("a.json", b"{}")
    assert RunDirectory.holder(tmp_path) is None


def test_files_beside_a_run_are_listed_with_it(tmp_path):
    archive.write_file(tmp_path / "alone.csv", b"t\n0\n")
    assert [each.name for each in tmp_path.iterdir()] == ["alone.csv"]
    with RunDirectory(tmp_path) as run:
        run.write("a.json", b"{}")
        archive.write_file(tmp_path / "during.csv", b"t\n1\n")
    archive.write_file(tmp_path / "after.csv", b"t\n2\n")
    listed = {"a.json", "during.csv", "after.csv"}
    assert set(json.loads((tmp_path / MANIFEST).read_text())["files"]) == listed
    with other(writing.hold, tmp_path) as (_, told):
        told.recv()
        archive.write_file(tmp_path / "another.csv", b"t\n3\n")
        with pytest.raises(FileError, match="is being written"):
            archive.write_file(tmp_path / "after.csv", b"t\n3\n")
    assert set(json.loads((tmp_path / MANIFEST).read_text())["files"]) == listed


def test_a_run_stays_where_it_was_when_the_process_goes_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with RunDirectory("run") as run:
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert run.write("a.json", b"{}") == tmp_path / "run" / "a.json"
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("last", range(40))
def test_what_is_removed_does_not_come_back(monkeypatch, place, last):
    """A crash leaves the newest or nothing, and never the one before it alone."""
    run = RunDirectory(place).__enter__()
    for step in (0, 1):
        run.write("a.pt", CONTENTS[step])
    try:
        with Dying(monkeypatch, last):
            run.remove("a.pt")
    except Crash:
        pass
    finally:
        run_directory._held.clear()
        run._lock.release()
    assert set(states(place).values()) <= {"whole"}
    if RunDirectory(place).exists("a.pt"):
        assert RunDirectory(place).load("a.pt")["step"] == 1


def test_a_reader_beside_a_writer_sees_whole_files_only(tmp_path):
    done = threading.Event()

    def write():
        with RunDirectory(tmp_path) as run:
            for step in range(40):
                run.save("a.pt", {"step": step, "u": torch.full((500,), float(step))})
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = [0]
    while not done.is_set():
        if RunDirectory(tmp_path).exists("a.pt"):
            content = RunDirectory(tmp_path).load("a.pt")
            assert bool((content["u"] == content["step"]).all())
            seen.append(content["step"])
            assert set(states(tmp_path).values()) <= {"whole", "unlisted"}
    writer.join()
    assert seen == sorted(seen)
