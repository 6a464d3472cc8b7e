"""Valid files of every format that is read, small and with every feature that readers know, and how each is read."""

import functools
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import sciml
from sciml.runs import report
from sciml.runs.directory import RunDirectory
from sciml.runs.index import STATES, lines_of

from . import mutations
from .stored import problem_class


@dataclass(frozen=True)
class Reader:
    """A reader under test.

    Args:
        suffix: of the files.
        specimens: makes valid files, as bytes.
        special: mutations that know the format.
        read: reads the file at a path, with options by chance, and everything in it.
    """

    suffix: str
    specimens: Callable[[], list[bytes]]
    special: Sequence[mutations.Mutation]
    read: Callable[[Path, random.Random], object]


def _checked(table: sciml.Table | sciml.LazyTable, missing: str) -> None:
    """What a reader gives must be finite float64 columns of one length, whatever was in the file."""
    if isinstance(table, sciml.LazyTable):
        table.read(slice(0, min(len(table), 1000)))
        table.sample(5, seed=0) if hasattr(table, "sample") else None
        return
    lengths = set()
    for name in table.columns:
        values = table[name]
        lengths.add(len(values))
        assert values.dtype == np.float64, f"{name} is {values.dtype}"
        bad = np.isinf(values) if missing == "mask" else ~np.isfinite(values)
        assert not bad.any(), f"{name} has {bad.sum()} values that are not finite"
    assert len(lengths) == 1, f"columns of different lengths: {lengths}"


def _missing(chance: random.Random) -> str:
    return chance.choice(("error", "error", "mask"))


def csv_files() -> list[bytes]:
    """Plain columns, comments and blanks, quotes, semicolons, groups, dates, packed by gzip."""
    import gzip

    rows = "".join(f"{t / 7!r},{1 / (t + 1)!r},run {t // 4}\n" for t in range(12))
    plain = "t,u\n0,1.5\n1,2.5\n2,-3e-5\n"
    texts = (
        plain,
        "# by hand\n\n t , u \n 0 ,  1.5\n\n# in between\n1, 2.5  \n",
        "t,u,run\n" + rows,
        't,"u, in m",run\n0,"1.5","a ""b"""\n1,2.5,"c,d"\n',
        "t;u\n0;1,5\n1;2,5\n",
        "\ufeffYear,Hare,day,on\n1900,30.0,2020-01-01,True\n1901,47.2,2020-01-02T12:00,False\n",
        "t\tu\n0\t1\n1\t2\n",
        "a b c\n1 2 3\n4  5\n",
        "t,u\n0,1\n1,\n2,n/a\n3,9007199254740993\n4,1e999\n",
        "t,u\r\n" + "".join(f"{k},{k * k}\r\n" for k in range(300)),
    )
    return [text.encode() for text in texts] + [gzip.compress(plain.encode() * 1, mtime=0), plain.encode("utf-16")]


def read_csv(path: Path, chance: random.Random) -> None:
    """With the separator, decimal sign, encoding, group and casts that some of the files have."""
    missing = _missing(chance)
    options: dict[str, Any] = {"missing": missing}
    if chance.random() < 0.5:
        options |= chance.choice(
            (
                {"sep": ";", "decimal": ","}, {"sep": "\t"}, {"sep": " "}, {"encoding": "utf-16"}, {"encoding": "latin-1"},
                {"group": "run"}, {"casts": {"day": "days since 2020-01-01", "on": "bool"}}, {"columns": ["t", "u"]},
                {"columns": {"x": "u"}, "units": {"x": ("cm", "m")}}, {"comment": ""}, {"group": "t"}, {"sep": '"'},
                {"encoding": "utf-7"}, {"decimal": "٫"}, {"sep": "\n"}, {"comment": "//"},
            )
        )  # fmt: skip
    _checked((sciml.read if chance.random() < 0.3 else sciml.read_csv)(path, **options), missing)


def _hdf5(fill: Callable[[h5py.File], object], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", **options) as file:
        fill(file)
    return buffer.getvalue()


def _columns(file: h5py.File) -> None:
    for name in ("t", "u"):
        file.create_dataset(name, data=np.linspace(0, 1, 7), chunks=(4,), fletcher32=True)
    file["t"].attrs["units"] = "s"
    file["run"] = np.array([b"a", b"a", b"b", b"b", b"b", b"c", b"c"])


def _product(file: h5py.File) -> None:
    file["t"], file["x"] = np.linspace(0, 1, 3), np.linspace(0, 2, 4)
    data = np.arange(12.0).reshape(3, 4)
    file.create_dataset("u", data=data, chunks=(2, 2), compression="gzip", shuffle=True)
    for axis, name in enumerate(("t", "x")):
        file[name].make_scale(name)
        file["u"].dims[axis].attach_scale(file[name])
    file["u"].attrs["units"] = np.bytes_(b"\xb5m")
    file.create_dataset("h", data=data + 1j, dtype="c16")


def _strange(file: h5py.File) -> None:
    file["probe/u"] = np.arange(5, dtype=">i2")
    file["probe/v"] = np.arange(5, dtype="f2")
    file["soft"], file["far"] = h5py.SoftLink("/probe/u"), h5py.ExternalLink("other.h5", "/u")
    file["text"] = ["a", "b", "ccc", "d", "e"]
    file["pair"] = np.zeros(5, [("a", "f8"), ("b", "i4")])
    file.create_dataset("ragged", (2,), h5py.vlen_dtype(np.float64))
    file.create_dataset("kind", (5,), h5py.enum_dtype({"solid": 0, "fluid": 1}))
    file["scalar"], file["none"] = 3.0, h5py.Empty("f8")
    file.create_group("loop")["back"] = file["/"]
    layout = h5py.VirtualLayout((5,), "f8")
    layout[:] = h5py.VirtualSource(".", "probe/v", (5,))
    file.create_virtual_dataset("virtual", layout)
    for key in range(12):
        file["probe"].attrs[f"note {key}"] = np.arange(key)


def _bench(file: h5py.File) -> None:
    """As PDEBench lays its files out."""
    file["tensor"] = np.arange(24.0).reshape(2, 3, 4)
    file["t-coordinate"], file["x-coordinate"] = np.linspace(0, 1, 4), np.linspace(0, 1, 4)


def hdf5_files() -> list[bytes]:
    """Columns with checksums, products with scales, odd types and links, a published layout; both generations of the format."""
    fills = (_columns, _product, _strange, _bench)
    return [_hdf5(fill) for fill in fills] + [_hdf5(fill, libver="latest") for fill in fills]


def read_hdf5(path: Path, chance: random.Random) -> None:
    """All datasets or some, eagerly or lazily."""
    missing = _missing(chance)
    options: dict[str, Any] = {"missing": missing}
    if chance.random() < 0.6:
        options |= chance.choice(
            (
                {"lazy": True}, {"columns": ["u"], "lazy": True}, {"columns": ["t", "u"], "group": "run"}, {"columns": ["u"]},
                {"columns": ["u"], "axes": {"u": ("t", "x")}}, {"columns": ["probe/u", "probe/v"]}, {"columns": ["soft"]},
                {"columns": ["far"], "links": path.parent}, {"columns": ["virtual"]}, {"split": {"h": ("v", "w")}},
                {"columns": ["ragged"]}, {"columns": ["pair"]}, {"columns": ["text"]}, {"sample": 0}, {"sample": [0, 1]},
                {"columns": ["probe/u"], "group": "text"}, {"units": {"t": "ms"}}, {"rows": (0, 3)},
                {"columns": ["loop/back/t"]}, {"columns": ["h"], "split": {"h": ("v", "w")}, "axes": {"h": ("t", "x")}},
            )
        )  # fmt: skip
    table = (sciml.read if not options.get("lazy") and chance.random() < 0.2 else sciml.read_hdf5)(path, **options)
    _checked(table, missing)


class _Decay(sciml.Problem):
    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]
    rate = sciml.Unknown(1.0, lower=0)

    @sciml.equation
    def decay(self, u, t):
        return sciml.d(u, t) + self.rate * u


@functools.cache
def solutions() -> list[sciml.Solution]:
    """Networks, random features, windows, polynomials, splines and grids; with data, unknowns and exact conditions."""
    table = sciml.Table({"t": [0.0, 0.3, 0.5, 0.8, 1.0], "u": [1.0, 0.55, 0.36, 0.21, 0.13]}, units={"t": "s"})
    quick = {"solver": sciml.Adam(3), "progress": False}
    swing, rod = problem_class("harmonic_oscillator")(), problem_class("heat_rod")()
    logistic = problem_class("logistic_growth")()
    return [
        sciml.fit(_Decay(), sciml.MLP(4), data=table, **quick),
        sciml.fit(swing, sciml.MLP(4, 3), **quick, exact=True),
        sciml.fit(swing, progress=False),
        sciml.fit(logistic, progress=False),
        sciml.fit(rod, progress=False),
        sciml.baseline(logistic),
        sciml.baseline(rod),
    ]


def _written(write: Callable[[sciml.Solution, Path], object], name: str) -> list[bytes]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = []
        for each in solutions():
            write(each, Path(folder))
            found.append((Path(folder) / name).read_bytes())
            # A run of another kind is not the next generation of this one.
            shutil.rmtree(folder)
        return sorted(found, key=len)


def checkpoint_files() -> list[bytes]:
    """Saved solutions of every kind of trial function."""
    return _written(lambda solution, folder: solution.save(folder / "solution.pt"), "solution.pt")


def read_checkpoint(path: Path, chance: random.Random) -> None:
    """Load a solution, and use what was loaded."""
    problems = (None, None, None, problem_class("harmonic_oscillator")(), _Decay())
    loaded = sciml.load(path, problem=chance.choice(problems))
    str(loaded), repr(loaded)


def summary_files() -> list[bytes]:
    """What is written beside solutions."""

    def write(solution: sciml.Solution, folder: Path) -> None:
        with RunDirectory(folder) as run:
            report.write(solution, run)

    return _written(write, "summary.json")


def netcdf_files() -> list[bytes]:
    """Version 3 as sciml writes it, versions 3 and 4 as xarray does, with scales, packed numbers and times."""
    import xarray

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.nc"
        sciml.Table({"x": [0.0, 50.0], "T": [20.0, 30.0]}, units={"x": "cm"}).save(path)
        found = [path.read_bytes()]
        dataset = xarray.Dataset(
            {"u": (("t", "x"), np.arange(12.0).reshape(3, 4), {"units": "m"}), "n": ("t", np.arange(3, dtype="i4"))},
            coords={"t": ("t", [0.0, 1.0, 2.0], {"units": "days since 2000-01-01"}), "x": np.linspace(0, 1, 4)},
        )
        packed = {"u": {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -999}}
        for engine, encoding in (("scipy", {}), ("scipy", packed), ("h5netcdf", {}), ("h5netcdf", packed)):
            dataset.to_netcdf(path, engine=engine, encoding=encoding)
            found.append(path.read_bytes())
    return found


def read_netcdf(path: Path, chance: random.Random) -> None:
    """All variables or some."""
    missing = _missing(chance)
    options = chance.choice(({}, {}, {"columns": ["u"]}, {"columns": ["x", "T"]}, {"units": {"x": ("cm", "m")}}))
    _checked(sciml.read_netcdf(path, missing=missing, **options), missing)


def parquet_files() -> list[bytes]:
    """As sciml writes it; texts, dates, nulls and nested columns in several pages and compressions."""
    import pyarrow
    import pyarrow.parquet

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.parquet"
        sciml.Table({"t": [0.0, 1.0], "u": [0.1, 0.2]}, units={"t": "s"}).save(path)
        found = [path.read_bytes()]
    odd = pyarrow.table(
        {
            "t": np.linspace(0, 1, 50), "n": np.arange(50), "run": [f"run {k // 10}" for k in range(50)],
            "gap": pyarrow.array([None if k % 7 == 0 else k / 3 for k in range(50)]), "flag": [k % 2 == 0 for k in range(50)],
            "nested": [[k, k + 1] for k in range(50)], "day": pyarrow.array(list(range(50)), pyarrow.date32()),
            "half": pyarrow.array(np.arange(50, dtype="f2")), "small": pyarrow.array(np.arange(50, dtype="u1")),
        }
    )  # fmt: skip
    for compression, version in (("snappy", "1.0"), ("none", "2.6"), ("gzip", "2.6"), ("zstd", "2.6")):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(
            odd, buffer, compression=compression, row_group_size=20, data_page_size=64, data_page_version=version[:1] + ".0",
            use_dictionary=version == "1.0",
        )  # fmt: skip
        found.append(buffer.getvalue())
    return found


def read_parquet(path: Path, chance: random.Random) -> None:
    """All columns of numbers or some, groups and casts."""
    missing = _missing(chance)
    options: dict[str, Any] = chance.choice(
        ({}, {"columns": ["t", "gap"]}, {"columns": ["t", "n"], "group": "run"}, {"casts": {"flag": "bool"}},
         {"columns": ["half"]}, {"columns": ["t", "day"], "casts": {"day": "days since 1970-01-01"}},
         {"columns": ["nested"]}, {"units": {"t": "ms"}})
    )  # fmt: skip
    _checked(sciml.read_parquet(path, missing=missing, **options), missing)


def mat_files() -> list[bytes]:
    """Versions 4, 5 (packed or not) and 7.3, with cells, structures, texts, sparse and complex matrices."""
    import scipy.io
    import scipy.sparse

    numbers = {"t": [0.0, 1.0], "x": [0.0, 0.5, 1.0], "T": [[20.0, 30.0, 20.0], [20.0, 25.0, 20.0]]}
    cell = np.empty(2, dtype=object)
    cell[:] = ["a", np.eye(2)]
    odd = {
        "u": np.arange(5, dtype="i2"), "z": np.arange(4.0) + 1j, "s": scipy.sparse.eye(3).tocsc(), "name": "run 1", "c": cell,
        "struct": {"a": 1.0, "b": {"c": "deep"}}, "flag": np.array([True, False]), "none": np.zeros((0, 3)),
    }  # fmt: skip
    found = []
    for content, options in (
        (numbers, {}), (numbers, {"do_compression": True}), (numbers, {"format": "4"}), (odd, {}),
        (odd, {"do_compression": True}),
    ):  # fmt: skip
        buffer = io.BytesIO()
        scipy.io.savemat(buffer, content, **options)
        raw = buffer.getvalue()
        # The header's date would make another file each time.
        found.append(b"MATLAB 5.0 MAT-file".ljust(116) + raw[116:] if raw.startswith(b"MATLAB") else raw)

    def fill(file: h5py.File) -> None:
        for name, values in numbers.items():
            file[name] = np.array(values).T
            file[name].attrs["MATLAB_class"] = np.bytes_(b"double")
        file["z"] = np.zeros(3, [("real", "f8"), ("imag", "f8")])
        file["name"] = np.array([114, 117, 110], dtype="u2")
        file["name"].attrs["MATLAB_class"] = np.bytes_(b"char")

    return [*found, _hdf5(fill, userblock_size=512)]


def read_mat(path: Path, chance: random.Random) -> None:
    """All matrices or some."""
    missing = _missing(chance)
    options: dict[str, Any] = chance.choice(
        ({"axes": {"T": ("t", "x")}}, {"columns": ["t"]}, {"columns": ["u"]}, {},
         {"columns": ["z"], "split": {"z": ("a", "b")}},
         {"columns": ["s"]}, {"columns": ["c"]}, {"columns": ["struct"]})
    )  # fmt: skip
    _checked(sciml.read_mat(path, missing=missing, **options), missing)


def record_files() -> list[bytes]:
    """The small files of a run: its record, its history, its summary, who holds its lock."""
    record = {
        "format": 1,
        "problem": "Decay",
        "began": "2030-01-01T10:00:00+00:00",
        "resumed": 0,
        "fingerprint": {"a": 1},
    }
    ended = {"status": "converged", "success": True, "at": "2030-01-01T10:01:00+00:00"}
    look = {
        "phase": "Adam",
        "step": 50,
        "seconds": 0.5,
        "loss": 1.0,
        "held_out": 2.0,
        "terms": {"u": 1.0},
        "unknowns": {},
    }
    lock = {"pid": 7, "host": "here", "since": "2030-01-01T10:00:00+00:00"}
    texts = [json.dumps({**record, "ended": each}, indent=1) for each in (None, ended, {**ended, "status": "interrupted"})]
    lines = "".join(json.dumps({**look, "step": 50 * k}) + "\n" for k in range(4))
    return [text.encode() for text in (*texts, lines, json.dumps(lock))] + summary_files()[:1]


def read_record(path: Path, chance: random.Random) -> None:
    """The table of runs of a folder in which one or all of the small files are this one."""
    folder = path.parent / "runs" / "x"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = ("run.json", "history.jsonl", "summary.json", ".lock", "manifest.json", "checkpoint.pt", "solution.pt")
    for name in names if chance.random() < 0.3 else chance.sample(names, 2):
        shutil.copy(path, folder / name)
    table = sciml.runs.table(folder.parent)
    assert len(table) == 1, "one folder is one row"
    assert table["state"].iloc[0] in STATES
    lines_of(table)


_near = mutations.near
_HDF5 = (
    _near(b"OHDR", b"TREE", b"HEAP", b"SNOD", b"GCOL", b"FRHP", b"BTHD", b"OCHK", b"FSHD", b"\x89HDF\r\n\x1a\n"),
    _near(b"TREE", b"SNOD", b"HEAP", b"GCOL", reach=512),
)
_SAVED = tuple(map(mutations.inside, (mutations.members, mutations.tensors, mutations.tensors, mutations.overwritten)))
_FOOTER = (_near(b"PAR1"), _near(b"schema", b"parquet-cpp", reach=400))
READERS = {
    "csv": Reader(".csv", csv_files, (mutations.fields,) * 3, read_csv),
    "hdf5": Reader(".h5", hdf5_files, _HDF5, read_hdf5),
    "checkpoint": Reader(".pt", checkpoint_files, _SAVED, read_checkpoint),
    "runs": Reader(".json", record_files, (mutations.json_values,), read_record),
    "netcdf": Reader(".nc", netcdf_files, (*_HDF5, _near(b"CDF", reach=256)), read_netcdf),
    "parquet": Reader(".parquet", parquet_files, _FOOTER, read_parquet),
    "mat": Reader(".mat", mat_files, (_near(b"MATLAB 5.0 MAT-file", reach=600), *_HDF5), read_mat),
}
