"""Polynomials on tiles: what they reproduce, how fast they converge, their sparse normal equations, their files."""

import math

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.errors import ModelError
from sciml.geometry import PointSet
from sciml.models import PiecewisePolynomial, Scaled
from sciml.models.bases import PiecewiseBasis
from sciml.models.tensor_product import TensorProductBasis
from sciml.problem.collocation import Collocation
from sciml.problem.measurements import data_blocks
from sciml.solvers.condensation import WeightLayout
from sciml.strategies.all_at_once import energies, refined
from sciml.strategies.inverse_solver import bordered_solve, gauss_newton, spread
from sciml.strategies.inverse_system import (
    ElementRows,
    TilingSystem,
    blocks_on,
)

CUTS = ([-1.0, -0.2, 0.5, 1.0], [-1.0, 0.1, 1.0])


def tiling(outer=1, cuts=CUTS):
    return TensorProductBasis([PiecewiseBasis(cuts[0], 6, 2), PiecewiseBasis(cuts[1], 4, 1)], outer)


def points(count, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, (count, 2)))


def random_weights(of, fields=1, seed=0):
    return torch.randn(of.width, fields, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def values(of, weights, at, orders=(0, 0)):
    spot = of.spot(at, orders)
    return (spot.basis(orders)[:, :, None] * weights[spot.functions]).sum(1)


class Wave(sciml.Problem):
    """A reaction with an unknown rate, fields of two, joined at the ends of x."""

    domain = sciml.Box(x=(0, 2), t=(1, 4))
    fields = ["u", "v"]
    rate = sciml.Unknown(0.5, lower=0)
    conditions = [
        sciml.Periodic("x"),
        sciml.Initial(u=lambda x: torch.cos(torch.pi * x)),
        sciml.Dirichlet(v=0.0, on=domain.face(x=0)),
    ]

    @sciml.equation
    def first(self, u, v, x, t):
        return d(u, t) - self.rate * d(u, x, x) + u * v

    @sciml.equation
    def second(self, u, v, x, t):
        return d(v, t) - v * d(u, x)


def system_of(problem, of, measured=40):
    units = Scaled(torch.nn.Identity(), [0.0, 1.0], [2.0, 4.0], [0.3, 0.0], [2.0, 1.0])
    table = sciml.Table({"x": np.linspace(0, 2, measured), "t": np.linspace(1, 4, measured), "u": np.ones(measured)})
    blocks = [*blocks_on(of, problem, problem.terms()), *data_blocks(problem, table)]
    placed = []
    for block in blocks:
        root = torch.full((block.size,), measured**-0.5).double() if block.weights is None else block.weights.sqrt()
        factors = {term.name: root for term in block.terms}
        placed.append(ElementRows(problem, block, factors, of, units, (2, 1)))
    weights = {term.name: 1.0 + number for number, block in enumerate(blocks) for term in block.terms}
    return TilingSystem(of, placed, weights, 2)


@pytest.mark.parametrize("outer", [0, 1])
def test_numbers_run_along_a_band(outer):
    of = tiling(outer)
    functions, inside = of.local()
    assert sorted(set(functions.flatten().tolist())) == list(range(of.width))
    assert int((functions.amax(1) - functions.amin(1)).max()) < of.band
    # What lives on one tile alone is met in no other.
    alone, counts = torch.unique(functions[:, inside], return_counts=True)
    assert (counts == 1).all()
    assert not set(alone.tolist()) & set(functions[:, ~inside].flatten().tolist())


def test_functions_are_as_smooth_as_they_say():
    of, at = tiling(), points(50)
    weights = random_weights(of)
    for column, cut, orders in [(0, -0.2, (0, 0)), (0, 0.5, (1, 0)), (1, 0.1, (0, 0)), (1, 0.1, (1, 0))]:
        below, above = at.clone(), at.clone()
        below[:, column], above[:, column] = cut - 1e-12, cut + 1e-12
        torch.testing.assert_close(values(of, weights, below, orders), values(of, weights, above, orders), atol=1e-8, rtol=0)


def test_a_model_has_the_values_and_derivatives_of_the_weights():
    of, at = tiling(), points(60)
    weights = random_weights(of, 2)
    model = PiecewisePolynomial([mesh.breaks.tolist() for mesh in of.meshes], [6, 4], 2)
    model.coefficients.copy_(of.coefficients(weights))
    for orders in [(0, 0), (2, 0), (1, 1)]:
        torch.testing.assert_close(model.partial(at, orders), values(of, weights, at, orders), atol=1e-9, rtol=1e-9)
    assert torch.autograd.gradcheck(model, at[:5].clone().requires_grad_())
    assert torch.autograd.gradgradcheck(model, at[:3].clone().requires_grad_())
    again = PiecewisePolynomial.from_config(**model.config)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(at), model(at))
    assert model(at[:0]).shape == (0, 2)


def test_what_is_no_model_is_refused():
    with pytest.raises(ModelError, match="increasing breaks"):
        PiecewisePolynomial([[-1.0, 1.0, 0.5], [-1.0, 1.0]], [3, 3], 1)


def test_weights_go_to_a_finer_tiling_unchanged():
    of, at = tiling(0), points(40)
    weights = random_weights(of, 2)
    energy = np.ones((3, 2))
    finer = refined(of, energy, np.stack([energy, 0 * energy]))
    assert [mesh.count for mesh in finer.meshes] == [6, 2]
    torch.testing.assert_close(values(finer, finer.transferred(of, weights), at), values(of, weights, at))
    torch.testing.assert_close(of.flat(of.table(weights)), weights)


def test_a_residual_tells_along_which_coordinate_functions_are_missing():
    of = tiling()
    (block,) = blocks_on(of, Wave(), Wave().terms()[:1], 1)
    x, t = block.sample.points[0].unbind(1)
    # One oscillation in x in the last element alone, a slow one in t.
    wanted = torch.where(x > 1.5, torch.cos(60 * x), 0.0 * x) * (1 + 0.1 * t) * block.weights.sqrt()
    energy, degrees = energies(of, [wanted], 1)
    assert energy.sum() == pytest.approx(float(wanted @ wanted), rel=1e-12)
    finer = refined(of, energy, degrees)
    assert [mesh.count for mesh in finer.meshes] == [4, 2]
    assert finer.meshes[0].breaks[-2] == pytest.approx(0.75)


def test_a_mean_of_one_is_one_on_every_side():
    blocks = blocks_on(tiling(), Wave(), Wave().terms())
    assert len(blocks) == 4
    for block in blocks:
        assert float(block.weights.sum()) == pytest.approx(1.0)


def dense(system, weights, raw):
    """The same rows as a full matrix by reverse sweeps through everything."""
    names = list(raw)

    def all_rows(vector):
        own, numbers = vector[: weights.numel()].view_as(weights), vector[weights.numel() :]
        found = []
        for placed in system.placed:
            parts = placed.rows(own, dict(zip(names, numbers, strict=True)), slopes=False)
            for term, (values, _, _) in zip(placed.block.terms, parts, strict=True):
                found.append(math.sqrt(system.weights[term.name]) * values)
        return torch.cat(found)

    start = torch.cat([weights.flatten(), *(value.view(1) for value in raw.values())])
    step, columns = 1e-6, []
    for unit in torch.eye(len(start), dtype=torch.float64):
        columns.append((all_rows(start + step * unit) - all_rows(start - step * unit)) / (2 * step))
    return all_rows(start), torch.stack(columns, dim=1)


def test_normal_equations_are_those_of_the_rows():
    of = TensorProductBasis([PiecewiseBasis([-1.0, 0.2, 1.0], 4, 2), PiecewiseBasis([-1.0, 1.0], 2, 1)], 1)
    system, weights = system_of(Wave(), of), 0.1 * random_weights(of, 2)
    raw = {"rate": torch.tensor(0.3).double()}
    residual, slopes = dense(system, weights, raw)
    normal, loss = system.normal(weights, raw)
    assert loss == pytest.approx(float(residual @ residual), rel=1e-12)
    assert system.loss(weights, raw) == pytest.approx(loss, rel=1e-12)
    damping = 1e-3
    matrix = slopes.T @ slopes
    width = weights.numel()
    matrix[:width, :width] += damping * torch.diag(matrix.diagonal()[:width])
    move, shift, schur = bordered_solve(normal, normal.factorised(damping))
    torch.testing.assert_close(matrix @ torch.cat([move, shift]), -slopes.T @ residual, atol=1e-6, rtol=1e-6)
    left = matrix[width:, width:] - matrix[width:, :width] @ torch.linalg.solve(matrix[:width, :width], matrix[:width, width:])
    torch.testing.assert_close(schur, left, atol=1e-5, rtol=1e-4)


def test_damping_holds_back_weights_and_unknowns_alike():
    of = TensorProductBasis([PiecewiseBasis([-1.0, 0.2, 1.0], 4, 2), PiecewiseBasis([-1.0, 1.0], 2, 1)], 1)
    system, weights = system_of(Wave(), of), 0.1 * random_weights(of, 2)
    normal, loss = system.normal(weights, {"rate": torch.tensor(0.3).double()})
    free, held = (bordered_solve(normal, normal.factorised(damping), damping) for damping in (1e-12, 1e8))
    for one, other in zip(free[:2], held[:2], strict=True):
        assert float(other.norm()) < 1e-4 * float(one.norm())
    moved = weights + held[0].view_as(weights)
    assert system.loss(moved, {"rate": 0.3 + held[1][0]}) < loss


def test_degrees_of_freedom_are_those_of_the_hat_matrix():
    of = TensorProductBasis([PiecewiseBasis([-1.0, 0.2, 1.0], 4, 2), PiecewiseBasis([-1.0, 1.0], 2, 1)], 1)
    system, weights = system_of(Wave(), of), 0.1 * random_weights(of, 2)
    raw = {"rate": torch.tensor(0.3).double()}
    residual, slopes = dense(system, weights, raw)
    hat = slopes @ torch.linalg.solve(slopes.T @ slopes, slopes.T)
    measured = slice(len(residual) - 40, len(residual))
    found = spread(system, weights, raw)
    assert found.freedom == pytest.approx(40 - float(hat[measured, measured].trace()), abs=1e-3)
    misfit = residual[measured]
    assert found.variance == pytest.approx(float(misfit @ misfit) / found.freedom, rel=1e-3)


def test_a_pull_holds_an_unknown_where_nothing_else_does():
    of = TensorProductBasis([PiecewiseBasis([-1.0, 1.0], 4, 2), PiecewiseBasis([-1.0, 1.0], 2, 1)], 1)
    system, weights = system_of(Wave(), of), 0.1 * random_weights(of, 2)
    raw = {"rate": torch.tensor(1.0).double()}
    plain = system.loss(weights, raw)
    system.pull = {"rate": 2.0}
    normal, loss = system.normal(weights, raw)
    assert loss == pytest.approx(plain + 2.0, rel=1e-12)
    free, _ = system.normal(weights, raw, pulled=False)
    assert float(normal.corner[0, 0] - free.corner[0, 0]) == pytest.approx(2.0)


def wave(x, t):
    return torch.sin(3 * x) * torch.exp(-0.9 * t)


class Diffusion(sciml.Problem):
    domain = sciml.Box(x=(-1, 1), t=(-1, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: wave(x, -torch.ones_like(x))),
        sciml.Dirichlet(u=wave, on=domain.faces("x")),
    ]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - 0.1 * d(u, x, x)


@pytest.mark.parametrize("degree", [5, 6])
def test_halved_elements_converge_as_fast_as_their_degree_allows(degree):
    """Least squares for an equation and its conditions: the error falls like h^(degree + 1), or nearly so."""
    problem, errors = Diffusion(), []
    for count in (4, 8):
        of = TensorProductBasis(
            [PiecewiseBasis(np.linspace(-1, 1, count + 1), degree, 2), PiecewiseBasis(np.linspace(-1, 1, 3), 12, 1)], 1
        )
        units = Scaled(torch.nn.Identity(), [-1.0, -1.0], [1.0, 1.0], [0.0], [1.0])
        placed = [
            ElementRows(problem, block, {term.name: block.weights.sqrt() for term in block.terms}, of, units, (2, 1))
            for block in blocks_on(of, problem, problem.terms())
        ]
        system = TilingSystem(of, placed, {term.name: 1.0 for term in problem.terms()}, 1)
        weights, _, _ = gauss_newton(system, torch.zeros(of.width, 1).double(), {}, 3, 1e-12)
        fresh = points(500, 1)
        errors.append(float((values(of, weights, fresh)[:, 0] - wave(*fresh.unbind(1))).square().mean().sqrt()))
    assert math.log2(errors[0] / errors[1]) == pytest.approx(degree + 1, abs=1.2)


def test_effort_grows_with_the_band():
    narrow, wide = (WeightLayout(tiling(1, (np.linspace(-1, 1, count + 1), CUTS[1])), 1) for count in (4, 8))
    assert wide.effort > narrow.effort
    assert narrow.band <= narrow.width


def test_points_without_normals_serve_as_data():
    block = Collocation(PointSet((torch.tensor([[1.0, 2.0], [0.5, 3.0]]).double(),)), ())
    of = tiling()
    units = Scaled(torch.nn.Identity(), [0.0, 1.0], [2.0, 4.0], [0.0], [1.0])
    placed = ElementRows(Diffusion(), block, {}, of, units, (2, 1))
    assert placed.tiles.shape == (2, 1)
