"""Damaged files, full disks, and files that want to do harm: the newest good one is found, and the rest is named."""

import hashlib
import io
import json
import math
import os
import pickle
import random
import re
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from matplotlib.figure import Figure
from torch import nn
from writing import WRITERS, on_a_small_disk, other, small_solution

import sciml
from sciml.data import archive, archive as payload
from sciml.errors import ArchiveWarning, FileError
from sciml.runs import RunDirectory, report
from sciml.runs.directory import MANIFEST

FLIPS = 500


@pytest.fixture(scope="module")
def solution():
    return small_solution()


def flipped(content, generator):
    """The content with one byte changed."""
    at = generator.randrange(len(content))
    return content[:at] + bytes([content[at] ^ generator.randrange(1, 256)]) + content[at + 1 :]


def torch_file(content, **options):
    buffer = io.BytesIO()
    torch.save(content, buffer, **options)
    return buffer.getvalue()


def repacked(data, change, compression=zipfile.ZIP_STORED):
    """An archive with changed parts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", compression) as new:
        for part in old.infolist():
            new.writestr(part.filename, change(part.filename, old.read(part)))
    return buffer.getvalue()


def sealed(inner, version=2):
    """A file with a header that is right for whatever follows."""
    return f"sciml {version} {hashlib.sha256(inner).hexdigest()}\n".encode() + inner


@pytest.fixture
def refused(tmp_path):
    def refused(data, words):
        path = tmp_path / "refused.pt"
        path.write_bytes(data)
        for reader in (archive.load_tensors, sciml.load):
            with pytest.raises(FileError, match=words) as caught:
                reader(path)
            assert str(path) in str(caught.value)

    return refused


# Disks that are full


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory):
    """What became of every try on a disk of 1 MB, in a process that has one."""
    if not hasattr(os, "fork"):
        pytest.skip("no disk can be mounted here")
    with other(on_a_small_disk, tmp_path_factory.mktemp("disk")) as (_, told):
        trouble = told.recv()
        if trouble:
            pytest.skip(trouble)
        return [told.recv() for _ in range(3)]


@pytest.mark.parametrize("copies", [False, True])
def test_fault_2_a_full_disk_keeps_the_old_file_and_says_so(small_disk, copies):
    """However little is missing: for the file, for the manifest, or for the copy of the one before."""
    (tries,) = small_disk[copies]
    assert len({bool(error) for _, error, *_ in tries}) == 2
    for room, error, step, states, left in tries:
        assert states == {"whole"}, room
        assert left == []
        assert step == (0 if error else 1)
        if error:
            assert re.search(r"cannot write .*No space left on device.*what was there before is unchanged", error)
    failed_at = {re.match(r"cannot write (\S+):", error)[1].split("run/")[-1] for _, error, *_ in tries if error}
    names = {"/".join(Path(name).parts[-2:]).split("/copies/")[-1] for name in failed_at}
    assert any(name.endswith("a.pt") for name in names)
    assert any(name.endswith(MANIFEST) for name in names)
    assert any(".previous" in name for name in names) == copies


def test_fault_2_every_writer_leaves_the_old_file_on_a_full_disk(small_disk):
    assert len(small_disk[2]) == len(WRITERS)
    for name, error, same, left in small_disk[2]:
        assert re.search(r"cannot write .*unchanged", error), name
        assert same, name
        assert left == [], name


# Bytes that changed


@pytest.fixture
def run(place, solution):
    """The directory of a run with every kind of artefact, each in two generations."""
    figure = Figure(figsize=(1, 1), dpi=40)
    with RunDirectory(place / "run") as run:
        for step in range(2):
            figure.text(0.1 * step, 0.5, "u")
            report.write(solution, run)
            run.save("solution.pt", {**archive.load_tensors(run.path / "solution.pt"), "seed": step})
            run.write("summary.json", (run.path / "summary.json").read_bytes().replace(b'"seed": 0', b'"seed": %d' % step))
            run.save("checkpoint.pt", {"step": step, "u": torch.full((100,), float(step))})
            run.write("fit.png", report.png(figure))
            for name in ("table.csv", "table.h5", "table.parquet"):
                sciml.Table({"t": [0.0, 1.0], "u": [0.5, step]}).save(run.path / name)
            sciml.StoredReference.write(run.path / "reference.h5", {"t": [0.0, 1.0]}, {"u": [0.0, float(step)]})
    return run


NAMES = (
    *("checkpoint.pt", "fit.png", "reference.h5", "solution.pt", "summary.json"),
    *("table.csv", "table.h5", "table.parquet"),
)


def test_fault_3_every_flipped_byte_of_a_run_is_found(run):
    """500 places of each artefact and of its previous generation."""
    files = [*(run.path / name for name in NAMES), *(run.path / ".previous" / name for name in NAMES)]
    content = {file: file.read_bytes() for file in files}
    assert set(run.verify()["state"]) == {"whole"}
    assert len(run.verify()) == len(files) + 1
    generator = random.Random(0)
    for _ in range(FLIPS):
        for file in files:
            file.write_bytes(flipped(content[file], generator))
        assert list(run.verify()["state"]) == ["whole"] + ["damaged"] * len(files)
    for file in files:
        file.write_bytes(content[file])
    assert set(run.verify()["state"]) == {"whole"}


def test_fault_3_every_flipped_byte_of_the_manifest_is_found(run):
    path = run.path / MANIFEST
    content, generator = path.read_bytes(), random.Random(1)
    for _ in range(FLIPS):
        path.write_bytes(flipped(content, generator))
        assert run.verify().iloc[0].tolist()[:3] == [MANIFEST, "newest", "damaged"]


def test_fault_3_whatever_is_flipped_the_generation_before_is_loaded(run):
    generator = random.Random(2)
    for name in ("checkpoint.pt", "summary.json"):
        content = (run.path / name).read_bytes()
        for _ in range(100):
            (run.path / name).write_bytes(flipped(content, generator))
            with pytest.warns(ArchiveWarning, match="the one saved before it was taken"):
                assert (json.loads(run.read(name))["seed"] if name == "summary.json" else run.load(name)["step"]) == 0
        (run.path / name).write_bytes(content)
    assert json.loads(run.read("summary.json"))["seed"] == 1
    assert run.load("checkpoint.pt")["step"] == 1


def test_fault_3_every_flipped_byte_of_a_lone_solution_is_found(solution, tmp_path):
    path = solution.save(tmp_path / "solution.pt")
    content, generator = path.read_bytes(), random.Random(3)
    for _ in range(FLIPS):
        path.write_bytes(flipped(content, generator))
        with pytest.raises(FileError, match=r"solution\.pt"):
            sciml.load(path)


def test_fault_3_and_41_flipped_bytes_of_lone_tables_are_found_or_harmless(tmp_path):
    """HDF5 alone keeps checksums of numbers and structure; what has none, such as gaps, is not read."""
    table = sciml.Table({"t": np.linspace(0, 1, 20), "u": np.random.default_rng(0).random(20)}, units={"t": "s"})
    path, generator = tmp_path / "table.h5", random.Random(4)
    table.save(path)
    content, found = path.read_bytes(), 0
    for number in range(FLIPS):
        spoiled = tmp_path / f"{number}.h5"
        spoiled.write_bytes(flipped(content, generator))
        try:
            again = sciml.read(spoiled)
        # Some of the exceptions are still HDF5's own here.
        except Exception:
            found += 1
            continue
        assert set(again.columns) == set(table.columns)
        assert all(again[name].tobytes() == table[name].tobytes() for name in table.columns)
        assert dict(again.units) == {"t": "s"}
    assert found > 400


# Files that are cut off, empty, or from another version


def test_fault_4_cut_off_and_empty_files(refused, solution, tmp_path):
    path = solution.save(tmp_path / "solution.pt")
    content = path.read_bytes()
    refused(b"", "it is empty")
    refused(b"\0" * len(content), "not a file of sciml's")
    for length in (1, 40, 72, 73, 74, 500, len(content) - 1):
        refused(content[:length], "damaged")
    refused(content + b"\0", "does not agree with its checksum")
    refused(sealed(torch_file({"u": torch.ones(3)})[:-40]), "damaged: BadZipFile")


def test_fault_4_the_last_good_file_is_named(run):
    path = run.path / "solution.pt"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FileError, match=r"the one saved before it is whole: load .*\.previous.solution\.pt"):
        sciml.load(path)
    assert sciml.load(run.path / ".previous" / "solution.pt").seed == 0
    path.unlink()
    with pytest.raises(FileError, match=r"there is no file .*; the one saved before it is whole"):
        sciml.load(path)
    (run.path / ".previous" / "solution.pt").write_bytes(b"")
    with pytest.raises(FileError) as caught:
        sciml.load(path)
    assert "whole" not in str(caught.value)


def test_fault_3_a_part_that_is_marked_as_a_directory_is_refused(refused):
    """torch gives what its memory held for it."""
    inner = torch_file({"sciml_format": 2, "u": torch.ones(3)})
    with zipfile.ZipFile(io.BytesIO(inner)) as parts:
        start = parts.start_dir
    entry = inner.index(b"PK\1\2", inner.index(b"archive/data/0", start) - 46)
    refused(sealed(inner[: entry + 38] + b"\x10" + inner[entry + 39 :]), "marked as a directory")


def test_files_of_later_versions_are_named(refused):
    inner = torch_file({"sciml_format": 3})
    refused(sealed(inner, 3), "has format 3, this sciml knows 2: update sciml")
    refused(sealed(inner, 12), "has format 12, this sciml knows 2: update sciml")
    refused(sealed(inner), "its format is 3")
    refused(sealed(torch_file({"weights": torch.ones(1)})), "its format is None")
    refused(sealed(torch_file([torch.ones(1)])), "holds no names")
    refused(torch_file({"sciml_format": 2}), "not a file of sciml's")


# Files that want to do harm


class Harm:
    def __reduce__(self):
        return os.system, ("exit 1",)


def pickled(change):
    """A file with a right checksum around a pickle that was tampered with."""
    data = torch_file({"sciml_format": 2, "u": torch.arange(4.0, dtype=torch.float64)})
    return sealed(repacked(data, lambda name, part: change(part) if name.endswith("data.pkl") else part))


def test_fault_5_what_would_run_is_refused_and_not_tried_again(refused, monkeypatch):
    tried = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *given, **options: tried.append(options) or load(*given, **options))
    refused(sealed(torch_file({"sciml_format": 2, "harm": Harm()})), r"refused: it asks for '(posix|nt)\.system'")
    refused(sealed(torch_file({"sciml_format": 2, "model": nn.Linear(1, 1)})), r"refused: it asks for 'torch\.nn\.modules")
    refused(sealed(torch_file({"harm": Harm()}, pickle_protocol=4)), "refused: it asks for 'STACK_GLOBAL'")
    refused(pickle.dumps({"sciml_format": 1, "harm": Harm()}), "not a file of sciml's")
    refused(torch_file({"harm": Harm()}, _use_new_zipfile_serialization=False), "not a file of sciml's")
    # Allowed by torch, but able to take any amount of memory.
    for code in (b"cbuiltins\nbytearray\n", b"ctorch\nTensor\n", b"ctorch\nUntypedStorage\n"):
        refused(
            pickled(lambda part, code=code: b"\x80\x02" + code + b"\x8a\x06\xff\xff\xff\xff\xff\x00\x85R."),
            "refused: it asks for",
        )
    assert tried == []
    archive.unpacked(archive.packed({"u": torch.ones(1)}), Path("a.pt"))
    assert tried[0]["weights_only"] is True


def test_fault_6_compressed_and_overlapping_parts_are_refused_before_anything_is_loaded(refused, monkeypatch):
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("loaded"))
    data = torch_file({"sciml_format": 2, "u": torch.zeros(2**22)})
    bomb = repacked(data, lambda _, part: part, zipfile.ZIP_DEFLATED)
    assert len(bomb) < len(data) / 100
    refused(sealed(bomb), "has compressed parts.*was refused")
    refused(bomb, "not a file of sciml's")
    # Many entries that say they are the same bytes.
    small = torch_file({"sciml_format": 2, "u": torch.zeros(1000)})
    with zipfile.ZipFile(io.BytesIO(small)) as parts:
        largest = max(parts.infolist(), key=lambda part: part.file_size)
        end = small.rindex(b"PK\5\6")
        start, count = parts.start_dir, len(parts.infolist())
    entry = small.index(b"PK\1\2", start)
    while largest.filename.encode() not in small[entry : small.find(b"PK\1\2", entry + 4)]:
        entry = small.index(b"PK\1\2", entry + 4)
    stop = small.find(b"PK\1\2", entry + 4)
    again = b"".join(small[entry:stop].replace(b"/data/0", b"/data/%d" % number) for number in range(1, 9))
    directory = small[start : small.find(b"PK\6\6", start) if b"PK\6\6" in small[start:end] else end] + again
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count + 8, count + 8, len(directory), start, 0)
    refused(sealed(small[:start] + directory + tail), r"says that it holds \d+ bytes, but is \d+ bytes long")


def test_fault_6_values_that_are_endless_together_are_refused(refused):
    inner = []
    for _ in range(60):
        inner = [inner, inner]
    refused(sealed(torch_file({"sciml_format": 2, "u": inner})), "shared by one another")
    deep = []
    for _ in range(300):
        deep = [deep]
    refused(sealed(torch_file({"sciml_format": 2, "u": deep})), "nested more than 100 deep")
    round_ = []
    round_.append(round_)
    refused(sealed(torch_file({"sciml_format": 2, "u": round_})), "or in itself")
    refused(sealed(torch_file({"sciml_format": 2, "u": torch.ones(1).expand(2**20, 2**12)})), "repeats few elements")
    for large in (b"M\xe8\x03\x85", b"J\xff\xff\xff\x7f\x85"):
        refused(pickled(lambda part, large=large: part.replace(b"QK\x00K\x04\x85", b"QK\x00" + large)), "damaged")


def test_fault_7_an_old_torch_reads_nothing(monkeypatch, tmp_path):
    archive.write_atomic(tmp_path / "a.pt", archive.packed({"u": torch.ones(1)}))
    for version in ("2.9.1", "1.13.0+cu117", "2.5.0a0+git"):
        monkeypatch.setattr(torch, "__version__", version)
        with pytest.raises(FileError, match=rf"not read by torch {re.escape(version)}.*pip install 'torch>=2\.10'"):
            archive.load_tensors(tmp_path / "a.pt")
    for version in ("2.10.0", "2.13.0+cpu", "3.0.0", "unknown"):
        monkeypatch.setattr(torch, "__version__", version)
        archive.load_tensors(tmp_path / "a.pt")
    wanted = (ROOT / "pyproject.toml").read_text()
    assert '"torch>=2.10"' in wanted


@pytest.mark.parametrize(
    "error",
    [
        *(
            RuntimeError,
            EOFError,
            pickle.UnpicklingError,
            KeyError,
            ValueError,
            TypeError,
            AttributeError,
            OverflowError,
        ),
        *(
            MemoryError,
            RecursionError,
            zipfile.BadZipFile,
            IndexError,
            AssertionError,
            NotImplementedError,
            UnicodeError,
        ),
        *(OSError, SystemError),
    ],
)
def test_no_foreign_exception_comes_out_of_a_file(error, refused, monkeypatch):
    def fail(*_, **__):
        raise error("deep inside\nand further")

    monkeypatch.setattr(torch, "load", fail)
    refused(archive.packed({"u": 1}), "deep inside")
    monkeypatch.undo()
    monkeypatch.setattr(zipfile, "ZipFile", fail)
    refused(archive.packed({"u": 1}), "deep inside")


def test_files_that_cannot_be_opened(tmp_path):
    for path in (tmp_path, tmp_path / "a\0b", tmp_path / ("x" * 300), tmp_path / "a.pt" / "b.pt"):
        (tmp_path / "a.pt").touch()
        with pytest.raises(FileError, match=r"cannot be read|there is no file"):
            archive.load_tensors(path)


def test_only_what_can_be_read_again_is_saved(tmp_path):
    content = {
        "values": [None, True, 1, 2**80, 0.5, math.inf, 1j, "u", b"b"],
        "tensors": [torch.ones(2, dtype=kind) for kind in payload._DTYPES],
        "kinds": [torch.float32, torch.device("cpu"), torch.Size([1, 2])],
        "nested": {"a": ({1, 2}, [()]), 3: nn.Linear(1, 1).state_dict()},
        "parameter": nn.Parameter(torch.ones(1)),
        "generator": torch.Generator().get_state(),
        "repeated": torch.ones(1).expand(5),
    }
    archive.write_atomic(tmp_path / "a.pt", archive.packed(content))
    again = archive.load_tensors(tmp_path / "a.pt")
    assert again["values"] == content["values"]
    assert all(torch.equal(one, two) for one, two in zip(again["tensors"], content["tensors"], strict=True))
    assert again["kinds"] == content["kinds"]
    for wrong, words in (
        (np.float64(1.0), r"content\['a'\] is a numpy\.float64"),
        ([0.0, {"b": np.ones(2)}], r"content\['a'\]\[1\]\['b'\] is a numpy\.ndarray"),
        (Harm(), "is a .*Harm"),
        ({(1, 2): 3}, "a key of content"),
        (torch.ones(2).to_sparse(), "another kind"),
        (torch.ones(2, device="meta"), "another kind"),
    ):
        with pytest.raises(FileError, match=f"cannot save: .*{words}"):
            archive.write_atomic(tmp_path / "b.pt", archive.packed({"a": wrong}))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.pt"]


# Summaries


def test_summaries_hold_what_the_summary_of_a_solution_says(solution, tmp_path):
    with RunDirectory(tmp_path / "run") as run:
        report.write(solution, run)
    assert json.loads(run.read("summary.json")) == report.summary(solution)


def test_a_run_in_hand_is_written_into(solution, tmp_path):
    with RunDirectory(tmp_path) as run:
        report.write(solution, run)
        # A user's own word for where to put it is the same place.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            solution.save(tmp_path / "mine.pt")
    assert sorted(run.verify()["file"]) == [MANIFEST, "mine.pt", "solution.pt", "summary.json"]
    assert set(run.verify()["state"]) == {"whole"}
    assert sciml.load(tmp_path / "solution.pt").seed == solution.seed
