"""The process that looks at HDF5 and .mat files first, when something else goes wrong; how little it looks at."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

import h5py
import numpy as np
import pytest
import scipy.io
from conftest import ROOT

import sciml
from sciml.data import sandbox as probe, walker
from sciml.errors import ArchiveWarning, DataError

DAMAGED = ROOT / "tests" / "fixtures" / "damaged"
BAD = DAMAGED / "chunk_below_checksum.h5"


@pytest.fixture
def prober(monkeypatch):
    """One that the readers use as well."""
    prober = probe.Prober()
    monkeypatch.setattr(probe, "PROBER", prober)
    yield prober
    prober.close()


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.h5"
    with h5py.File(path, "w") as file:
        file["u"] = np.arange(5.0)
    return path


def test_a_file_is_looked_at_again_when_it_has_changed(prober, good):
    assert prober.probe(good) is None
    shutil.copy(DAMAGED / "chunk_below_checksum.h5", good)
    assert "fewer than its checksum" in prober.probe(good)
    assert "fewer than its checksum" in prober.probe(good)


def test_a_helper_that_has_died_is_started_again(prober, good, tmp_path):
    assert prober.probe(good) is None
    prober._helper.kill()
    prober._helper.wait()
    shutil.copy(good, tmp_path / "other.h5")
    assert prober.probe(tmp_path / "other.h5") is None
    # What damages the helper is no fault of the file after it.
    assert prober.probe(DAMAGED / "ends_the_process.h5") is not None
    shutil.copy(good, tmp_path / "third.h5")
    assert prober.probe(tmp_path / "third.h5") is None


def test_no_helper_no_harm(prober, good, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.warns(ArchiveWarning, match="nowhere.*is read as it is"):
        assert prober.probe(good) is None
    assert prober.probe(pathlib.Path("nowhere.h5")) is None


def test_modules_in_the_working_directory_are_not_imported(prober, good, tmp_path, monkeypatch):
    for name in ("json", "h5py", "runpy", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert prober.probe(good) is None
    assert prober._helper is not None


def test_threads_and_copies_of_the_process_have_their_turns(prober, good, tmp_path):
    paths = [tmp_path / f"ξ {number}\n.h5" for number in range(8)]
    found = []
    for path in paths:
        shutil.copy(good, path)
    threads = [threading.Thread(target=lambda path=path: found.append(prober.probe(path))) for path in paths]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [None] * 8
    helper = prober._helper
    child = os.fork()
    if not child:
        # A helper of its own; what the parent knows it knows as well.
        status = prober.probe(paths[0]) is not None or prober._helper is not helper
        os.utime(good, (1, 1))
        status = status or prober.probe(good) is not None or prober._helper is helper
        prober.close()
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert helper.poll() is None


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_question_does_not_shift_the_answers(prober, good, tmp_path, monkeypatch, interruption):
    assert prober.probe(good) is None
    other = shutil.copy(good, tmp_path / "other.h5")

    def interrupted(*_):
        raise interruption

    with monkeypatch.context() as patch:
        patch.setattr(probe, "_heard", interrupted)
        with pytest.raises(interruption):
            prober.probe(pathlib.Path(other))
    assert "fewer than its checksum" in prober.probe(BAD)
    assert prober.probe(pathlib.Path(other)) is None
    assert "fewer than its checksum" in prober.probe(BAD)


def test_an_application_is_not_started_again_and_again(prober, good, tmp_path, monkeypatch):
    """Where ``sys.executable`` is the application, its helper is the application, and must not start another."""
    other = shutil.copy(good, tmp_path / "other.h5")
    told, program = tmp_path / "told", tmp_path / "application-with-python"
    program.write_text(f"#!/bin/sh\nenv | grep ^{probe._INSIDE}= >> {told}\n")
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(program))
        with pytest.warns(ArchiveWarning, match="ends with status 0.*is read as it is"):
            assert prober.probe(good) is None
        assert prober.probe(pathlib.Path(other)) is None
    assert told.read_text() == f"{probe._INSIDE}=1\n"
    # In that second application:
    monkeypatch.setenv(probe._INSIDE, "1")
    inner = probe.Prober()
    assert inner.probe(good) is None
    assert inner._helper is None


@pytest.mark.parametrize(("frozen", "executable"), [(True, "/usr/bin/python3"), (False, "/usr/bin/application")])
def test_what_is_no_python_is_not_started(prober, good, tmp_path, monkeypatch, frozen, executable):
    other = shutil.copy(good, tmp_path / "other.h5")
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("it was started"))
    with pytest.warns(ArchiveWarning, match="frozen application" if frozen else "is no Python"):
        assert prober.probe(good) is None
    assert prober.probe(pathlib.Path(other)) is None


def test_no_executable_is_told_once(prober, good, tmp_path, monkeypatch):
    other = shutil.copy(good, tmp_path / "other.h5")
    for each in (None, ""):
        monkeypatch.setattr(sys, "executable", each)
        fresh = probe.Prober()
        with pytest.warns(ArchiveWarning, match="sys.executable is .*good.h5 is read as it is"):
            assert fresh.probe(good) is None
        assert fresh.probe(pathlib.Path(other)) is None


def test_paths_of_other_types_and_modules_that_print_do_no_harm(prober, good, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os\nprint('hello')\nos.write(1, b'no line')\nprint('at the end', end='')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setattr(sys, "path", [*sys.path, pathlib.Path("somewhere"), None])
    assert prober.probe(good) is None
    assert prober._helper is not None
    assert "fewer than its checksum" in prober.probe(BAD)


def test_a_helper_that_fails_is_no_damage(prober, good, monkeypatch):
    program = probe._PROGRAM.replace("walker.serve(", "del walker.walked\nwalker.serve(")
    monkeypatch.setattr(probe, "_PROGRAM", program)
    with pytest.warns(ArchiveWarning, match=r"failed \(NameError: .*good.h5 is read as it is"):
        assert prober.probe(good) is None
    assert prober.probe(good) is None


def ended_by(monkeypatch, number, times):
    """Have a signal sent to the helper before its answer."""
    answer, left = probe.Prober._answer, [number] * times

    def answered(self, question, patience):
        if question is not None and left:
            self._helper.send_signal(left.pop())
            self._helper.wait()
        return answer(self, question, patience)

    monkeypatch.setattr(probe.Prober, "_answer", answered)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU])
def test_a_signal_from_outside_is_no_damage(prober, good, monkeypatch, number):
    ended_by(monkeypatch, number, 1)
    assert prober.probe(good) is None
    os.utime(good, (1, 1))
    ended_by(monkeypatch, number, 2)
    with pytest.warns(ArchiveWarning, match=rf"was ended by signal {int(number)}: .*good.h5 is read as it is"):
        assert prober.probe(good) is None
    # The next one is looked at again.
    assert "fewer than its checksum" in prober.probe(BAD)


def test_signals_of_its_own_are_damage(prober, good, monkeypatch):
    ended_by(monkeypatch, signal.SIGSEGV, 2)
    assert prober.probe(good) == "reading it ends the process that reads it"
    ended_by(monkeypatch, signal.SIGPROF, 1)
    assert prober.probe(good) == "reading it does not come to an end"


def test_only_variables_that_are_asked_for_are_loaded(prober, tmp_path, monkeypatch):
    path, loaded, bytes_told = tmp_path / "run.mat", [], []
    record = np.empty((3, 1), dtype=object)
    record[:, 0] = [np.ones((1, 1))] * 3
    scipy.io.savemat(path, {"x": np.arange(4.0), "u": np.ones(4), "record": record, "big": np.zeros((3000, 3000))})
    load = scipy.io.loadmat
    monkeypatch.setattr(
        scipy.io, "loadmat", lambda *args, **options: loaded.append(options["variable_names"]) or load(*args, **options)
    )
    assert walker.walked(str(path), lambda more=0: bytes_told.append(more), ["x", "big"]) is None
    # What is large has a turn, and a limit, of its own.
    assert loaded == [["x"], ["big"]]
    assert bytes_told == [32, 72_000_000]
    loaded.clear()
    assert len(sciml.read_mat(path, columns=["x", "u"])) == 4
    assert loaded == [["x", "u"]]
    with pytest.raises(DataError, match="'record' is of class cell"):
        sciml.read_mat(path, columns=["record"])


def test_only_datasets_that_are_asked_for_are_walked_through(prober, tmp_path, monkeypatch):
    path, steps, asked = tmp_path / "runs.h5", [], []
    with h5py.File(path, "w") as file:
        for number in range(100):
            file[f"run{number}/x"] = [1.0]
        file["t"], file["u"] = [0.0, 1.0], [1.0, 2.0]
        file["soft"] = h5py.SoftLink("/run7/x")
    assert walker.walked(str(path), lambda more=0: steps.append(more)) is None
    assert len(steps) > 200
    steps.clear()
    assert walker.walked(str(path), lambda more=0: steps.append(more), ["t", "soft", "nowhere/at/all"]) is None
    assert len(steps) < 15
    look = prober.probe
    monkeypatch.setattr(prober, "probe", lambda path, names=None: asked.append(names) or look(path, names))
    assert len(sciml.read_hdf5(path, columns=["t", "u"])) == 2
    assert None not in asked
    with pytest.raises(DataError, match="no dataset 'nowhere'"):
        sciml.read_hdf5(path, columns=["nowhere"])
    assert None in asked


def test_what_is_not_asked_for_may_be_damaged(prober, tmp_path):
    path = tmp_path / "run.h5"
    shutil.copy(BAD, path)
    with h5py.File(path, "r") as file:
        names = [name for name in file if isinstance(file[name], h5py.Dataset) and name != "t"]
    assert names
    assert prober.probe(path, names[:1]) is None
    with pytest.raises(DataError, match="fewer than its checksum"):
        sciml.read_hdf5(path, columns=["t"])
    with pytest.raises(DataError, match="fewer than its checksum"):
        sciml.read_hdf5(path)


def test_chunks_are_looked_at_where_their_size_is_relied_on(tmp_path):
    path, steps = tmp_path / "chunks.h5", []
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.ones(20000), chunks=(1,))
    assert walker.walked(str(path), lambda more=0: steps.append(more), ["x"]) is None
    assert len(steps) < 100


def test_a_helper_that_says_nothing_is_given_up(prober, good, monkeypatch):
    assert prober.probe(good) is None
    os.utime(good, (1, 1))
    monkeypatch.setattr(probe, "_PATIENCE", 0.2)
    prober._helper.send_signal(signal.SIGSTOP)
    assert prober.probe(good) == "reading it does not come to an end"


def test_the_helper_loads_no_torch_and_starts_fast(prober, good, monkeypatch):
    program = probe._PROGRAM.replace("walker.serve(", "assert 'torch' not in sys.modules\nwalker.serve(")
    monkeypatch.setattr(probe, "_PROGRAM", program)
    assert prober.probe(good) is None
    assert prober._helper is not None
