"""More measurements than functions: compressed tile by tile, which loses nothing, in memory that they do not fill."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import sciml
from sciml import d
from sciml.errors import DataError
from sciml.models import Scaled
from sciml.models.bases import PiecewiseBasis
from sciml.models.tensor_product import TensorProductBasis
from sciml.problem.measurements import data_blocks
from sciml.strategies import all_at_once, inverse_fields, prepare, search
from sciml.strategies.inverse_solver import spread
from sciml.strategies.inverse_system import CompressedRows, ElementRows, TilingSystem, compressible
from sciml.uncertainty import covariance

DIFFUSIVITY = 0.3


class Diffusion(sciml.Problem):
    domain = sciml.Box(x=(0, 2), t=(1, 4))
    fields = ["u", "v"]
    k = sciml.Unknown(1.0, lower=0)

    @sciml.equation
    def first(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)

    @sciml.equation
    def second(self, v, x, t):
        return d(v, t) - d(v, x)


class Rod(sciml.Problem):
    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    k = sciml.Unknown(1.0, lower=0)
    conditions = [sciml.Dirichlet(u=0.0)]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)


def tiling():
    return TensorProductBasis([PiecewiseBasis([-1.0, -0.2, 0.5, 1.0], 6, 2), PiecewiseBasis([-1.0, 0.1, 1.0], 4, 1)], 1)


def measured(rows, seed=0, sigma=0.05):
    generator = np.random.default_rng(seed)
    x, t = generator.random(rows), generator.random(rows)
    exact = np.sin(np.pi * x) * np.exp(-DIFFUSIVITY * np.pi**2 * t)
    return {"x": x, "t": t, "u": exact + sigma * generator.standard_normal(rows)}


def test_a_quadrature_sums_products_of_functions_over_scattered_points():
    of, generator = tiling(), torch.Generator().manual_seed(0)
    # None of the points lies in the last column of tiles.
    points = torch.rand(500, 2, dtype=torch.float64, generator=generator) * torch.tensor([1.4, 2.0]) - 1.0
    weights = torch.randn(500, 3, dtype=torch.float64, generator=generator)
    found = of.quadratures(points, weights)
    assert len(found) == 4
    spot = of.spot(points, (0, 0))
    for nodes, sums in found:
        there = of.spot(nodes, (0, 0))
        inside = spot.tile == there.tile[0]
        basis, own = spot.basis((0, 0))[inside], there.basis((0, 0))
        expected = torch.einsum("nk,ni,nj->kij", weights[inside], basis, basis)
        torch.testing.assert_close(torch.einsum("gk,gi,gj->kij", sums, own, own), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("noise", [None, {"u": "sigma"}, sciml.Normal(0.3)])
def test_compressed_rows_have_the_normal_equations_of_all(noise):
    of, problem, generator = tiling(), Diffusion(), np.random.default_rng(1)
    units = Scaled(torch.nn.Identity(), [0.0, 1.0], [2.0, 4.0], [0.3, 0.1], [2.0, 0.7])
    rows = 3000
    columns = {"x": generator.uniform(0, 2, rows), "t": generator.uniform(1, 4, rows), "v": generator.normal(size=rows)}
    table = sciml.Table(columns | {"u": generator.normal(size=rows)} | {"sigma": generator.uniform(0.2, 1.0, rows)})
    blocks = data_blocks(problem, sciml.Measurements(table, noise=noise))
    weights = {term.name: 1.0 + number for number, term in enumerate(term for block in blocks for term in block.terms)}
    factor = torch.full((rows,), rows**-0.5, dtype=torch.float64)
    each = [ElementRows(problem, block, dict.fromkeys(weights, factor), of, units, (0, 0)) for block in blocks]
    assert all(compressible(term) for block in blocks for term in block.terms)
    few = [
        CompressedRows(problem, term, block.sample.points[0], rows**-0.5, of, units) for block in blocks for term in block.terms
    ]
    assert [one.size for one in few] == [rows, rows]
    assert sum(len(one.columns()) for one in few) == 2 * 6 * 35
    at = torch.randn(of.width, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    raw = {"k": torch.tensor(0.5, dtype=torch.float64)}
    whole, short = (TilingSystem(of, placed, weights, 2) for placed in (each, few))
    (expected, loss), (found, other) = whole.normal(at, raw), short.normal(at, raw)
    assert other == pytest.approx(loss, rel=1e-11)
    assert short.loss(at, raw) == pytest.approx(whole.loss(at, raw), rel=1e-11)
    for name in ("grams", "border", "corner"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=1e-9, rtol=1e-9)
    noises = [spread(system, at, raw) for system in (whole, short)]
    # The trace of the hat matrix is that of random signs.
    assert noises[1].freedom == pytest.approx(noises[0].freedom, rel=0.02)


def test_a_fit_is_the_same_and_no_row_is_left_out(monkeypatch):
    table, sizes = measured(20_000), []

    class Counted(ElementRows):
        def __init__(self, problem, block, *rest):
            sizes.append(block.size if any(term.measured for term in block.terms) else 0)
            super().__init__(problem, block, *rest)

    monkeypatch.setattr(all_at_once, "ElementRows", Counted)
    short = sciml.fit(Rod(), data=table)
    assert max(sizes) == 0
    monkeypatch.setattr(all_at_once, "_FEW", math.inf)
    whole = sciml.fit(Rod(), data=table)
    assert 0 < max(sizes) <= all_at_once._PORTION
    for column, tolerance in (("estimate", 1e-7), ("standard_error", 1e-3)):
        assert short.unknowns[column]["k"] == pytest.approx(whole.unknowns[column]["k"], rel=tolerance)
    assert short.unknowns["low"]["k"] < DIFFUSIVITY < short.unknowns["high"]["k"]


def test_what_is_no_field_or_scatters_otherwise_is_not_compressed():
    table = measured(200)
    square = {"x": table["x"], "t": table["t"], "square": table["u"] ** 2}
    for given, options in ((table, {"noise": sciml.Huber(0.1)}), (square, {"observe": {"square": lambda u: u**2}})):
        (block,) = data_blocks(Rod(), sciml.Measurements(sciml.Table(given), **options))
        assert not any(compressible(term) for term in block.terms)


@pytest.mark.parametrize("noise", [None, {"u": 0.05}])
def test_covariances_take_many_rows_as_few(monkeypatch, noise):
    def fitted():
        model, solver = sciml.Spectral((6, 4)), sciml.LeastSquares(30)
        return sciml.fit(Rod(), model, data=measured(4_000), noise=noise, solver=solver, points=60, sampler=None)

    short = fitted()
    monkeypatch.setattr(covariance, "_MANY", math.inf)
    whole = fitted()
    assert float(whole.unknowns["standard_error"]["k"]) > 0
    np.testing.assert_allclose(short.unknowns, whole.unknowns, rtol=1e-7)
    assert short.message == whole.message


class Pendulum(sciml.Problem):
    domain = sciml.Interval(t=(0, 5))
    fields = ["u", "v"]
    a = sciml.Unknown(0.7, lower=0)
    b = sciml.Unknown(0.5)
    conditions = [sciml.Initial(u=1.0, v=0.3)]

    @sciml.equation
    def angle(self, u, v, t):
        return d(u, t) - self.a * v

    @sciml.equation
    def speed(self, u, v, t):
        return d(v, t) + 4 * torch.sin(u) + self.b * v


def swung(rows):
    generator = np.random.default_rng(rows)
    t = np.sort(generator.uniform(0, 5, rows))
    exact = solve_ivp(
        lambda t, y: [1.3 * y[1], -4 * np.sin(y[0]) - 0.2 * y[1]], (0, 5), [1, 0.3], t_eval=t, rtol=1e-10, atol=1e-10
    )
    return {"t": t, "u": exact.y[0] + 0.05 * generator.standard_normal(rows)}


@pytest.mark.slow
def test_intervals_narrow_with_the_root_of_the_number_of_measurements(monkeypatch):
    few, many = (sciml.fit(Pendulum(), data=swung(rows)) for rows in (3_000, 100_000))
    monkeypatch.setattr(all_at_once, "_DENSE", math.inf)
    dense = sciml.fit(Pendulum(), data=swung(100_000))
    assert [type(each.model).__name__ for each in (few, many, dense)] == ["Spline", "PiecewisePolynomial", "Spline"]
    for name, true in (("a", 1.3), ("b", 0.2)):
        for each in (many, dense):
            ratio = few.unknowns["standard_error"][name] / each.unknowns["standard_error"][name]
            assert ratio == pytest.approx(math.sqrt(100_000 / 3_000), rel=0.1)
            assert each.unknowns["low"][name] < true < each.unknowns["high"][name]


class Source(sciml.Problem):
    domain = sciml.Interval(x=(0, 1))
    fields = ["u", "q"]
    conditions = [sciml.Dirichlet(u=0.0)]

    @sciml.equation
    def poisson(self, u, q, x):
        return -d(u, x, x) - q


def test_a_sample_stands_for_rows_that_would_fill_memory(monkeypatch):
    monkeypatch.setattr(inverse_fields, "_MOST_ROWS", 1_000)
    x = np.linspace(0, 1, 5_000)
    generator = np.random.default_rng(0)
    sampled = sciml.fit(Source(), data={"x": x, "u": np.sin(np.pi * x) + 0.02 * generator.standard_normal(len(x))})
    assert any("a random sample of 1000 of 5000 rows" in each for each in sampled.choices)
    assert len(sampled.data) == 1_000
    assert sampled.success
    inside = np.linspace(0.1, 0.9, 9)
    np.testing.assert_allclose(sampled(x=inside)["q"], np.pi**2 * np.sin(np.pi * inside), atol=1.0)
    monkeypatch.setattr(all_at_once, "_MOST_ROWS", 500)
    robust, plain = (sciml.fit(Rod(), data=measured(2_000), noise=noise) for noise in (sciml.Huber(), None))
    assert [any("random sample" in each for each in one.choices) for one in (robust, plain)] == [True, False]
    assert robust.unknowns["low"]["k"] < DIFFUSIVITY < robust.unknowns["high"]["k"]


def test_equations_that_do_not_hold_leave_no_estimate_of_the_error():
    solution = sciml.fit(Rod(), sciml.MLP(8), data=measured(500), solver=sciml.Adam(5), strategy="Train")
    assert not solution.success
    assert solution.estimated_error == {}


def test_so_many_rows_are_held_out_at_most(monkeypatch):
    monkeypatch.setattr(prepare, "_MOST_HELD_OUT", 30)
    solution = sciml.fit(Rod(), data=measured(1_000))
    assert any("30 of 1000 measured rows held out" in each for each in solution.choices)


def test_a_path_is_told_how_to_be_read():
    with pytest.raises(DataError, match=r"given: str; read the file first: sciml.read\('rod.csv'\)"):
        sciml.fit(Rod(), data="rod.csv")


def test_a_strategy_that_is_left_out_says_nothing_of_a_sample(monkeypatch):
    monkeypatch.setattr(inverse_fields, "_MOST_ROWS", 100)
    solution = sciml.fit(Rod(), data=measured(1_000))
    assert not any("random sample" in each for each in solution.choices)
    problem = Source()
    work = search.Workspace(problem, sciml.Measurements({"x": np.linspace(0, 1, 200), "u": np.zeros(200)}))
    inverse_fields.InverseFields().obstacle(work)
    assert work.log.notes == {}
