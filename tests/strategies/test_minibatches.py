"""Fits to tables that stay in their file."""

import multiprocessing

import h5py
import numpy as np
import pytest
import torch

import sciml
from problems import Harmonic
from sciml import d
from sciml.errors import DataError, ProblemError, SolverError
from sciml.problem import Measurements
from sciml.problem.measurements import data_blocks
from sciml.solvers import Objective
from sciml.strategies.minibatches import Batches, fed
from sciml.strategies.prepare import prepare

ROWS = 12_000


class Decay(sciml.Problem):
    """u' = -k u, and v = 2 u measured with it."""

    domain = sciml.Interval(t=(0, 2))
    fields = ["u", "v"]
    k = sciml.Unknown(0.5, lower=0)

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.k * u

    @sciml.equation
    def double(self, u, v):
        return v - 2 * u


def measured(path, rows=ROWS, missing=False):
    generator = np.random.default_rng(0)
    t = np.linspace(0, 2, rows)
    u = np.exp(-1.3 * t)
    values = {"t": t, "u": u + 0.01 * generator.normal(size=rows), "v": 2 * u + 0.02 * generator.normal(size=rows)}
    if missing:
        values["v"][generator.random(rows) < 0.3] = np.nan
        values["u"][:50] = np.nan
    with h5py.File(path, "w") as file:
        for name, column in values.items():
            file.create_dataset(name, data=column, chunks=(500,))
    return values


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr("sciml.data.lazy._PIECE_ROWS", 1000)
    measured(tmp_path / "decay.h5")
    return tmp_path / "decay.h5"


def table_of(path, missing="error", **loading):
    loading = sciml.LoaderOptions(**{"workers": 0, "buffer": 3000, **loading})
    return sciml.LazyTable.of(path, {"t": "t", "u": "u", "v": "v"}, missing=missing, loading=loading)


def prepared(data, problem=None):
    data, feed = fed(problem or Decay(), data, 0)
    setup = prepare(problem or Decay(), sciml.MLP(8, 8), Measurements(data), 50, None, torch.float64, "cpu", 0)
    return setup, feed


def gradient(setup, blocks):
    """Of the sum of the squares of all rows of some blocks, and how many rows there are of each term."""
    total, counts = 0.0, {}
    for block in blocks:
        weights = {term.name: float(block.size) for term in block.terms}
        objective = Objective(setup.rows, [block], setup.scales, weights, setup.parameters)
        total = total + objective.evaluate()[1]
        counts |= dict.fromkeys(weights, block.size)
    return total, counts


@pytest.mark.parametrize("missing", ["error", "mask"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_lazy_table_and_one_in_memory_give_the_same_gradient(tmp_path, monkeypatch, missing, workers):
    """Summed over an epoch: the same rows, whatever their order."""
    monkeypatch.setattr("sciml.data.lazy._PIECE_ROWS", 1000)
    values = measured(tmp_path / "decay.h5", missing=missing == "mask")
    lazy = table_of(tmp_path / "decay.h5", missing, workers=workers, context="fork", at_once=2000)
    setup, feed = prepared(lazy)
    whole = sciml.Table(values, missing=missing)
    expected, rows = gradient(setup, data_blocks(setup.problem, whole))
    held = feed.rows[setup.held_rows]
    assert len(held) == 200
    left_out, fewer = gradient(setup, data_blocks(setup.problem, lazy.read(held)))
    with_values = np.isfinite(np.delete(values["u"], held)) | np.isfinite(np.delete(values["v"], held))
    steps = -(-int(with_values.sum()) // 700)
    found, counts = torch.zeros_like(expected), {}
    batches = feed.batches(setup, sciml.Adam(1, batch=700))
    for _ in range(steps):
        more, each = gradient(setup, next(batches))
        found += more
        counts = {name: counts.get(name, 0) + each.get(name, 0) for name in {*counts, *each}}
    batches.close()
    assert counts == {name: rows[name] - fewer[name] for name in rows}
    assert (found + left_out - expected).norm() < 1e-12 * expected.norm()


def test_a_batch_of_all_rows_gives_the_gradient_of_the_table_in_memory(path):
    """Through the objective that a first-order solver minimises, to rounding in the order of rows."""
    lazy = table_of(path, at_once=100, buffer=ROWS)
    setup, feed = prepared(lazy)
    held = np.isin(np.arange(ROWS), feed.rows[setup.held_rows])
    memory = lazy.read(np.flatnonzero(~held))
    others = [block for block in setup.train if not block.terms[0].measured]
    objective = Objective(setup.rows, setup.train, setup.scales, setup.weights, setup.parameters)
    objective.feed = feed.batches(setup, sciml.Adam(1, batch=ROWS))
    loss, found, terms = objective.evaluate(objective.next_blocks())
    objective.feed.close()
    same, expected, likewise = objective.evaluate([*others, *data_blocks(setup.problem, memory)])
    assert float(loss) == pytest.approx(float(same), rel=1e-13)
    assert (found - expected).norm() < 1e-12 * expected.norm()
    assert list(terms) == list(likewise)


def test_the_same_rows_in_the_same_order_give_the_same_bits(path):
    """One piece, so that its order is known: the batch is the table in memory, bit for bit."""
    lazy = table_of(path, at_once=100)
    setup, feed = prepared(lazy)
    batches = feed.batches(setup, sciml.Adam(1, batch=800))
    (block,) = next(batches)
    batches.close()
    rows = np.searchsorted(lazy.read(columns=["t"])["t"], block.sample.points[0][:, 0].numpy())
    (same,) = data_blocks(setup.problem, lazy.read(rows))
    mine, memory = gradient(setup, [block]), gradient(setup, [same])
    assert torch.equal(mine[0], memory[0])
    assert mine[1] == memory[1]


def test_a_fit_streams_through_adam_and_says_what_was_used_where(path):
    lazy = table_of(path, at_once=400)
    solver = [sciml.Adam(100, batch=500), sciml.LeastSquares(60)]
    solution = sciml.fit(Decay(), sciml.MLP(8), data=lazy, solver=solver)
    assert solution.success
    assert solution.unknowns["estimate"]["k"] == pytest.approx(1.3, abs=0.05)
    (note,) = [each for each in solution.choices if "lazy" in each]
    assert note == (
        "the table is lazy, 12000 rows in pieces of 1000: Adam is fed 500 rows a step, all that are not held out in "
        "24 steps; a random sample of 400 rows for natural sizes, other solvers, intervals and judging"
    )
    assert "40 of 400 measured rows held out to judge by" in solution.choices


def test_the_same_fit_gives_the_same_bits_with_and_without_workers(path):
    found = []
    for workers in (0, 1):
        table = table_of(path, at_once=400, workers=workers, context="fork")
        found.append(sciml.fit(Decay(), sciml.MLP(8), data=table, solver=sciml.Adam(60, batch=500)))
    one, other = (torch.from_numpy(each(t=np.linspace(0, 2, 9))["u"]) for each in found)
    assert torch.equal(one, other)
    assert not multiprocessing.active_children()


def test_a_fit_without_a_solver_takes_a_sample_and_says_so(path):
    class Measured(Decay):
        def measurements(self):
            return table_of(path, at_once=300)

    solution = sciml.fit(Measured())
    assert solution.success
    assert solution.unknowns["estimate"]["k"] == pytest.approx(1.3, abs=0.05)
    (note,) = [each for each in solution.choices if "lazy" in each]
    assert note.endswith("a random sample of 300 rows for natural sizes, all solvers, intervals and judging")
    assert len(solution.data) == 300


def test_batches_hold_no_row_that_is_judged_by(path):
    setup, feed = prepared(table_of(path, at_once=1000))
    held = feed.sample["t"][setup.held_rows]
    batches = feed.batches(setup, sciml.Adam(1, batch=500))
    came = torch.cat([next(batches)[0].sample.points[0][:, 0] for _ in range(24)])
    batches.close()
    assert len(held) == 100
    assert len(torch.unique(came)) == ROWS - 100
    assert not np.isin(held, came.numpy()).any()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ZeroDivisionError])
def test_workers_end_when_a_fit_is_left(path, stop):
    def leave(look):
        assert len(multiprocessing.active_children()) == 2
        raise stop

    def fit():
        table = table_of(path, workers=2, context="fork")
        return sciml.fit(Decay(), sciml.MLP(8), data=table, solver=sciml.Adam(50, batch=100, look=10), callbacks=[leave])

    if stop is KeyboardInterrupt:
        assert fit().status == "interrupted"
    else:
        with pytest.raises(stop):
            fit()
    assert not multiprocessing.active_children()


def test_rows_that_cannot_be_right_are_told_when_they_come(path):
    with h5py.File(path, "r+") as file:
        file["u"][7000] = np.nan
    assert 7000 not in table_of(path, at_once=10).sample_rows(10)
    with pytest.raises(DataError, match="row 7000"):
        sciml.fit(Decay(), sciml.MLP(8), data=table_of(path, at_once=10), solver=sciml.Adam(200, batch=500))
    with h5py.File(path, "r+") as file:
        file["u"][7000], file["t"][7001] = 0.5, 2.5
    with pytest.raises(DataError, match=r"row 7001 with t = 2.5; the domain has t from 0 to 2:"):
        sciml.fit(Decay(), sciml.MLP(8), data=table_of(path, at_once=10), solver=sciml.Adam(200, batch=500))


def test_rows_off_a_domain_that_is_no_box_are_told(tmp_path):
    x = np.full(4000, 0.1)
    x[3000] = 0.9
    with h5py.File(tmp_path / "disk.h5", "w") as file:
        file["x"], file["y"], file["u"] = x, np.linspace(-0.8, 0.8, 4000), x
    table = sciml.LazyTable.of(tmp_path / "disk.h5", dict(zip("xyu", "xyu", strict=True)))
    setup, feed = prepared(table.read(slice(0, 100)), Harmonic())
    assert feed is None
    table.close()
    with h5py.File(tmp_path / "disk.h5", "r+") as file:
        file["y"][3000] = 0.9
    batches = Batches(table, setup, 4000, 0, np.empty(0, dtype=int))
    with pytest.raises(DataError, match=r"1 of the 4000 rows .* one of them at x = 0.9, y = 0.9: remove these rows"):
        next(batches)


def test_a_lazy_table_without_the_coordinates_is_refused(path):
    table = sciml.LazyTable.of(path, {"u": "u"})
    with pytest.raises(ProblemError, match="must have the coordinates"):
        sciml.fit(Decay(), data=table)


def test_noise_and_observed_functions_reach_every_batch(tmp_path):
    values = measured(tmp_path / "decay.h5")
    with h5py.File(tmp_path / "decay.h5", "r+") as file:
        file["total"], file["sigma"] = 3 * values["u"], np.full(ROWS, 0.03)
        file["sigma"][5:9] = 0.1
    names = ("t", "total", "sigma")
    table = sciml.LazyTable.of(tmp_path / "decay.h5", dict(zip(names, names, strict=True)))
    given = {"observe": {"total": lambda u, v: u + v}, "noise": {"total": "sigma"}}
    sample, feed = fed(Decay(), table, 0)
    setup = prepare(Decay(), sciml.MLP(8), Measurements(sample, **given), 50, None, torch.float64, "cpu", 0)
    batches = feed.batches(setup, sciml.Adam(1, batch=ROWS))
    (block,) = next(batches)
    batches.close()
    misfit = block.terms[0].evaluate
    assert (block.terms[0].name, block.size) == ("data.total", ROWS - int(setup.held_rows.sum()))
    assert sorted(misfit.sigma.unique().tolist()) == [0.03, 0.1]
    assert torch.equal(misfit.measured, torch.from_numpy(3 * values["u"])[torch.searchsorted(*_places(values, block))])
    solution = sciml.fit(Decay(), sciml.MLP(8), data=table, solver=sciml.Adam(20), **given)
    assert np.isfinite(solution.unknowns["estimate"]["k"])


def _places(values, block):
    return torch.from_numpy(values["t"]), block.sample.points[0][:, 0].contiguous()


def test_a_classical_solver_is_told_to_take_a_sample(path):
    with pytest.raises(DataError, match=r"given: LazyTable; take rows from it, table.sample\(20_000\)"):
        sciml.baseline(Decay(), table_of(path))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="memory is pinned for CUDA alone")
def test_batches_reach_the_gpu_with_all_that_was_measured(path):
    data, feed = fed(Decay(), table_of(path), 0)
    setup = prepare(Decay(), sciml.MLP(8), Measurements(data), 50, None, torch.float32, "cuda", 0)
    batches = feed.batches(setup, sciml.Adam(1, batch=500))
    (block,) = next(batches)
    batches.close()
    tensors = [block.sample.points[0], *(term.evaluate.measured for term in block.terms)]
    assert all((each.device.type, each.dtype) == ("cuda", torch.float32) for each in tensors)


@pytest.mark.parametrize("seed", [-1, "a", None])
def test_a_seed_that_is_none(path, seed):
    with pytest.raises(SolverError, match="seed must be a whole number of at least 0"):
        sciml.fit(Decay(), data=table_of(path), seed=seed, progress=False)
