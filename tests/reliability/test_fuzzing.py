"""Damaged files: those that readers once went wrong on, some hundred more, and the helper that looks at them first."""

import json
import os
import subprocess
import sys

import pytest
import scipy.io
import torch
from conftest import ROOT

import sciml
from problems import Decay
from sciml.data import archive, sandbox as probe
from sciml.data.sandbox import refusals
from sciml.errors import DataError, FileError, SciMLError

DAMAGED = ROOT / "tests" / "fixtures" / "damaged"
CASES = 25


@pytest.mark.slow
def test_fault_30_a_hundred_damaged_files_of_every_kind_end_in_no_crash_hang_or_foreign_exception(tmp_path):
    """Damaged files of every format are read or refused by an error of ours, in bounded memory and time."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.fuzzing",
        "all",
        "--cases",
        str(CASES),
        "--json",
        "--keep",
        tmp_path / "kept",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    reports = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, "\n".join(each["text"] for each in reports)
    for report in reports:
        assert report["cases"] == CASES
        assert report["peak"] < 2**29


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("chunk_below_checksum.h5", "a chunk of '/t' has 1 bytes, fewer than its checksum"),
        ("attributes_not_listed.h5", "a chunk of '/u' has 0 bytes, fewer than its checksum"),
        ("ends_the_process.h5", "reading it ends the process that reads it"),
        ("name_in_no_encoding.h5", "cannot be opened: damaged .*utf-8"),
        ("checksum_of_storage.h5", "is damaged or not an HDF5 file: .*checksum"),
        ("ends_the_process.mat", "reading it ends the process that reads it"),
        ("negative_size.mat", "declares 1 x -2147483646 values of 't', more than it can hold"),
        ("zeros.mat", "is damaged or not a .mat file"),
        ("name_in_no_encoding.parquet", "is damaged or not a Parquet file: .*utf-8"),
    ],
)
def test_fault_30_files_that_readers_went_wrong_on(name, words):
    """Files that ended the process or raised a foreign exception are refused by name."""
    with pytest.raises(DataError, match=words) as caught:
        sciml.read(DAMAGED / name)
    assert name in str(caught.value)


def test_what_scipy_forgets_to_set():
    """A damaged cell array is not read with the numbers beside it, and is an error of ours where it is."""
    path = DAMAGED / "never_set.mat"
    assert sciml.read_mat(path, columns=["u"])["u"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match=r"is damaged or not a \.mat file"), refusals(path, "a .mat file"):
        scipy.io.loadmat(path)


def test_fault_30_a_file_that_is_never_read_to_its_end():
    """A file on which HDF5 goes round in a circle is given up after some seconds of work."""
    prober = probe.Prober(seconds=0.5)
    assert prober.probe(DAMAGED / "never_ends.h5") == "reading it does not come to an end"
    prober.close()


@pytest.mark.parametrize(
    ("content", "words", "options"),
    [
        ("t,u\n0,1\n", "cannot be ends of lines, quotes or NUL", {"sep": "\n"}),
        ("t,u\n0,1\n", "cannot be ends of lines, quotes or NUL", {"sep": '"'}),
        ("t\n0\n1\n", "no column beside 't', which rows are grouped by", {"group": "t"}),
        (
            "t,u\n0,1\n1," + '"' + "a" * 200_000 + '"\n',
            "line 3 .200004 characters. cannot be cut into values",
            {},
        ),
        ("t" * 200_000 + ",u\n0,1\n1", "line 1 .200002 characters. cannot be cut into values", {"sep": ";"}),
        ("# by hand\n\n t , u \n", "2 values for 1 columns", {"comment": ""}),
        ("t,u\n\x1c\n", "no rows", {}),
    ],
)
def test_fault_21_texts_that_ended_in_foreign_exceptions(write, content, words, options):
    """What pandas and the csv module stumble over is refused by an error of ours."""
    with pytest.raises(DataError, match=words):
        sciml.read_csv(write(content), **options)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "solution.pt"
    data = {"t": [0.0, 0.5, 1.0], "u": [1.0, 0.6, 0.36]}
    problem = Decay(rate=sciml.Unknown(1.0, lower=0))
    sciml.fit(problem, sciml.MLP(3), data=data, solver=sciml.Adam(2), progress=False).save(path)
    return archive.load_tensors(path)


def replaced(content, keys, value):
    """The same with one value, somewhere inside, replaced."""
    if not keys:
        return value
    found = list(content) if isinstance(content, list) else dict(content)
    found[keys[0]] = replaced(content[keys[0]], keys[1:], value)
    return found


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["frames", "history", "columns", "loss"], [1.0, 2.0]),
        (["frames", "unknowns", "columns", "estimate"], [[1.0]]),
        (["frames", "unknowns", "columns", "estimate"], torch.zeros(1)),
        (["frames", "residuals", "columns", "rms"], "x"),
        (["frames"], None),
        (["model", "hidden"], [10**6, 10**6]),
        (["model", "hidden"], [-1]),
        (["model", "hidden"], []),
        (["model", "activation"], "tan"),
        (["model", "kind"], 3),
        (["model", "around"], [["PeriodicInputs", [0], 10**9], ["Scaled"]]),
        (["probe"], []),
        (["probe"], [torch.zeros(2, 1)]),
        (["bounds", "t"], [1.0, 0.0]),
        (["bounds"], {}),
        (["domain"], {"kind": "Polygon"}),
        (["fields"], ["u", "v"]),
        (["fields"], []),
        (["trial"], {}),
        (["data", "u"], [1.0]),
        (["origin"], 3),
        (["seconds"], "long"),
        (["success"], 1),
        (["name"], None),
        (["message"], b"x"),
        (["choices"], None),
        (["spread"], [1, 2]),
    ],
)
def test_fault_4_a_saved_solution_with_values_of_other_kinds(saved, tmp_path, keys, value):
    """A saved solution whose values are of other kinds is refused, before memory is taken for the model it claims."""
    path = tmp_path / "solution.pt"
    archive.write_atomic(
        path, archive.packed(replaced({key: each for key, each in saved.items() if key != "sciml_format"}, keys, value))
    )
    with pytest.raises(SciMLError) as caught:
        sciml.load(path)
    assert isinstance(caught.value, FileError) or str(caught.value)


def test_what_the_file_system_says_is_told_as_such(tmp_path):
    with (
        pytest.raises(DataError, match=r"cannot read .*nowhere: No such file"),
        refusals(tmp_path / "nowhere", "a file"),
    ):
        (tmp_path / "nowhere").read_bytes()
    with pytest.raises(DataError, match="more memory than there is"), refusals(tmp_path, "a file"):
        raise MemoryError
    with pytest.raises(FileError, match="as it is"), refusals(tmp_path, "a file"):
        raise FileError("as it is")
