"""Tables that stay in their file."""

import itertools
import math
import pickle

import h5py
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import sciml
from sciml.data.hdf5_file import OpenFiles, locate
from sciml.data.hdf5_grid import Column, GridTable
from sciml.data.lazy import Pieces, box_shape
from sciml.errors import DataError


@pytest.fixture
def plain(tmp_path):
    """200,000 rows of three columns, in chunks of 5,000, and the same as arrays."""
    generator = np.random.default_rng(0)
    values = {"t": np.linspace(0, 1, 200_000), "x": generator.random(200_000), "u": generator.normal(size=200_000)}
    path = tmp_path / "plain.h5"
    with h5py.File(path, "w") as file:
        for name, column in values.items():
            file.create_dataset(name, data=column, chunks=(5000,), fletcher32=True, compression="gzip")
    return path, values


def lazy(path, **options):
    return sciml.LazyTable.of(path, {"t": "t", "x": "x", "u": "u"}, **options)


def gridded(path):
    """A field on a grid of times and positions, and on a second one, as a lazy table."""
    with h5py.File(path, "w") as file:
        for number in (0, 1):
            file[f"{number}/t"], file[f"{number}/x"] = np.arange(7.0), np.linspace(0, 1, 11)
            file.create_dataset(f"{number}/u", data=np.arange(77.0).reshape(7, 11) + 100 * number, chunks=(3, 4))
    with OpenFiles() as handles:
        grids = []
        for number in (0, 1):
            t, x, u = (locate(handles, path, f"{number}/{name}") for name in "txu")
            columns = (Column("t", t, ("t",)), Column("x", x, ("x",)), Column("u", u, ("t", "x")))
            grids.append(GridTable((("t", 7), ("x", 11)), columns))
    return sciml.LazyTable(grids, source="gridded.h5")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3), st.integers(1, 40))
def test_pieces_hold_every_row_once_and_whole_chunks(axes, rows):
    shape, chunk = zip(*axes, strict=True)
    tiling = box_shape(shape, chunk, rows)
    pieces = Pieces([(shape, tiling)] * 2)
    found = np.concatenate([pieces.rows(piece) for piece in range(pieces.count)])
    assert sorted(found.tolist()) == list(range(2 * math.prod(shape)))
    for tile, size, length in zip(tiling, chunk, shape, strict=True):
        assert tile == length or tile % size == 0
    numbers = np.arange(pieces.size)
    for piece in range(pieces.count):
        mine = numbers[pieces.pieces_of(numbers) == piece]
        assert np.array_equal(pieces.rows(piece)[pieces.within(piece, mine)], mine)


def test_rows_are_those_of_the_file(plain):
    path, values = plain
    table = lazy(path)
    assert (table.columns, len(table)) == (("t", "x", "u"), 200_000)
    rows = np.random.default_rng(1).integers(0, 200_000, 500)
    found = table.read(rows)
    for name in table.columns:
        assert np.array_equal(found[name], values[name][rows])
        assert np.array_equal(table.read(slice(4990, 70_010, 7))[name], values[name][4990:70_010:7])
    assert table.read([3], columns=["u"]).columns == ("u",)


def test_rows_of_grids_follow_one_another(tmp_path):
    table = gridded(tmp_path / "g.h5")
    everything = table.read()
    assert len(table) == len(everything) == 154
    assert np.array_equal(everything["u"], np.concatenate([np.arange(77.0), np.arange(77.0) + 100]))
    assert np.array_equal(everything["t"], np.tile(np.repeat(np.arange(7.0), 11), 2))
    assert np.array_equal(everything["x"], np.tile(np.linspace(0, 1, 11), 14))
    with sciml.Stream(table, 10) as batches:
        came = np.concatenate([np.stack([batch[name].numpy() for name in "txu"], 1) for batch in batches])
    expected = np.stack([everything[name] for name in "txu"], 1)
    assert np.array_equal(came[np.lexsort(came.T)], expected[np.lexsort(expected.T)])


def test_fault_44_reads_are_whole_chunks_and_each_is_read_once(plain, monkeypatch):
    """Rows are read by whole chunks, each of them once."""
    path, _ = plain
    table, read = lazy(path), []
    original = h5py.Dataset.__getitem__

    def noted(self, chosen, *rest):
        if self.ndim == 1:
            read.append((self.name, *chosen[0].indices(len(self))[:2]))
        return original(self, chosen, *rest)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", noted)
    with sciml.Stream(table, 1000) as batches:
        assert sum(len(batch["u"]) for batch in batches) == 200_000
    assert all(start % 5000 == 0 and stop % 5000 == 0 for _, start, stop in read)
    for name in table.columns:
        spans = sorted((start, stop) for dataset, start, stop in read if dataset == f"/{name}")
        assert spans[0][0] == 0
        assert spans[-1][1] == 200_000
        assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
        assert max(stop - start for start, stop in spans) <= 65536


def test_fault_44_a_whole_column_is_refused_with_what_to_do(plain):
    """A whole column of a lazy table is refused with what to do instead."""
    with pytest.raises(DataError, match=r"stays in the file; read some rows, .* random sample, .* leave out lazy="):
        lazy(plain[0])["u"]
    with pytest.raises(DataError, match="no column 'v'"):
        lazy(plain[0])["v"]


def test_samples_are_rows_of_the_file_without_repetition(plain, monkeypatch):
    path, values = plain
    table = lazy(path)
    for most in (256, 2):
        monkeypatch.setattr("sciml.data.lazy._SAMPLED_PIECES", most)
        rows = table.sample_rows(3000, seed=1)
        assert len(np.unique(rows)) == 3000
        assert (np.diff(rows) > 0).all()
        assert np.array_equal(table.sample(3000, seed=1)["u"], values["u"][rows])
        assert not np.array_equal(rows, table.sample_rows(3000, seed=2))
    assert len(table.sample(10**9)) == 200_000


def test_statistics_are_those_of_the_columns(plain):
    path, values = plain
    with h5py.File(path, "r+") as file:
        file["u"][77], file["u"][78] = np.nan, np.inf
    found = lazy(path).statistics()
    kept = np.delete(values["u"], [77, 78])
    assert found.loc["u", ["count", "missing"]].tolist() == [199_998, 2]
    expected = [kept.mean(), kept.std(), kept.min(), kept.max()]
    assert found.loc["u", ["mean", "std", "min", "max"]].tolist() == pytest.approx(expected, rel=1e-12)


def test_a_value_that_is_not_finite_is_told_with_its_row(plain):
    path, _ = plain
    with h5py.File(path, "r+") as file:
        file["u"][77_777] = np.nan
    with pytest.raises(DataError, match=r"'u' has 1 value\(s\) that are not finite .* row 77777 .*missing='mask'"):
        lazy(path).read([77_770])
    assert len(lazy(path, missing="mask").read([77_777])) == 1
    for workers in (0, 1):
        loading = sciml.LoaderOptions(workers=workers, context="fork")
        with sciml.Stream(lazy(path, loading=loading), 1000) as batches, pytest.raises(DataError, match="row 77777"):
            list(batches)
    with h5py.File(path, "r+") as file:
        file["u"][77_777] = np.inf
    with pytest.raises(DataError, match=r"row 77777 \(inf\); remove these rows$"):
        lazy(path, missing="mask").read([77_777])


def test_a_table_is_pickled_without_its_file_and_a_changed_file_is_noticed(plain):
    path, values = plain
    table = lazy(path)
    table.read([0])
    copied = pickle.loads(pickle.dumps(table))
    assert copied._opened is None
    assert copied.read([5])["u"][0] == values["u"][5]
    copied.close()
    table.close()
    with h5py.File(path, "w") as file:
        for name in "txu":
            file[name] = np.arange(10.0)
    with pytest.raises(DataError, match="has changed since the table was made; read the file again"):
        table.read([0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": -1}, "workers must be a whole number of at least 0; given: -1"),
        ({"buffer": 0}, "buffer must be"),
        ({"at_once": True}, "at_once must be"),
        ({"context": "thread"}, "context must be one of"),
    ],
)
def test_settings_of_loading_are_checked(options, message):
    with pytest.raises(DataError, match=message):
        sciml.LoaderOptions(**options)


def test_what_cannot_be_read_is_refused(plain, tmp_path):
    path, _ = plain
    with pytest.raises(DataError, match=r"asked for: -1 to 3"):
        lazy(path).read([-1, 3])
    with pytest.raises(DataError, match="whole numbers of shape"):
        lazy(path).read([0.5])
    with pytest.raises(DataError, match="missing must be"):
        lazy(path, missing="skip")
    with pytest.raises(DataError, match="batch must be"):
        sciml.Stream(lazy(path), 0)
    with pytest.raises(DataError, match="no column 'v'"):
        sciml.Stream(lazy(path), 10, columns=["v"])
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["t"], file["u"] = np.arange(3.0), np.arange(4.0)
    with pytest.raises(DataError, match="all of one length"):
        sciml.LazyTable.of(tmp_path / "d.h5", {"t": "t", "u": "u"})
    with pytest.raises(DataError, match="at least one column"):
        sciml.LazyTable.of(path, {})


def test_chunks_too_large_for_memory_are_refused(plain, monkeypatch):
    monkeypatch.setattr("sciml.data.lazy._LARGEST_PIECE", 1000)
    with pytest.raises(DataError, match="h5repack"):
        lazy(plain[0])


def test_read_hdf5_leaves_rows_in_the_file_on_request(tmp_path):
    path = tmp_path / "rod.h5"
    with h5py.File(path, "w") as file:
        file["t"], file["x"] = np.arange(30.0), np.linspace(0, 100, 20)
        file.create_dataset("T", data=np.random.default_rng(0).random((30, 20)), chunks=(4, 7))
        file["x"].attrs["units"] = "cm"
    options = {"axes": {"T": ("t", "x")}, "units": {"x": "m"}}
    whole, table = sciml.read_hdf5(path, **options), sciml.read_hdf5(path, lazy=True, **options)
    assert isinstance(table, sciml.LazyTable)
    assert (table.columns, len(table), table.units) == (whole.columns, len(whole), whole.units)
    read = table.read()
    assert all(np.array_equal(read[name], whole[name]) for name in whole.columns)
    assert read.units == whole.units
    assert sciml.read_hdf5(path, lazy=sciml.LoaderOptions(workers=3), **options).loading.workers == 3
    with pytest.raises(DataError, match="lazy must be True, False or"):
        sciml.read_hdf5(path, lazy="yes", **options)
    with pytest.raises(DataError, match="leave out rows="):
        sciml.read_hdf5(path, lazy=True, rows=(0, 5), **options)
    assert pickle.loads(pickle.dumps(table)).units == whole.units


@pytest.mark.parametrize("options", [{"count": 0}, {"count": -1}, {"count": 1.5}, {"count": 10, "seed": -1}])
def test_samples_that_cannot_be_drawn(plain, options):
    with pytest.raises(DataError, match=r"(count|seed) must be a whole number of at least"):
        lazy(plain[0]).sample(**options)


@pytest.mark.parametrize(
    ("columns", "links", "words"),
    [
        (["t"], None, "columns maps names"),
        ({"t": 1}, None, "columns needs the path of a dataset"),
        ({"t": "t"}, 5, "for links that of a folder"),
    ],
)
def test_lazy_tables_of_what_is_none(plain, columns, links, words):
    with pytest.raises(DataError, match=words):
        sciml.LazyTable.of(plain[0], columns, links=links)
    with pytest.raises(DataError, match="columns must be a list of names; given: 5"):
        lazy(plain[0]).read([0], columns=5)
    assert lazy(plain[0]).read([0], columns="t").columns == ("t",)
