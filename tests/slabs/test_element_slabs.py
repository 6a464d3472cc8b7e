"""Slabs of time: stages, meshes, the approximate inverse and Newton's method on them."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.errors import ProblemError
from sciml.models.bases import PiecewiseBasis, chebyshev_places, gauss
from sciml.models.radau import RadauIIA, start_polynomial, start_values
from sciml.slabs.elements import ElementPreconditioner
from sciml.slabs.newton_krylov import OutOfTimeError, driven, gmres, solve
from sciml.slabs.system import Site, Slab, at_time, initial_values

PI = math.pi
F64 = torch.float64


class Advection(sciml.Problem):
    domain = sciml.Box(x=(-1, 1), t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: torch.sin(PI * x)), sciml.Periodic("x")]

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t) + d(u, x)


class Quantum(sciml.Problem):
    domain = sciml.Box(x=(-1, 1), t=(0, 1))
    fields = ["u", "v"]
    conditions = [sciml.Initial(u=lambda x: torch.cos(PI * x), v=0.0), sciml.Periodic("x")]

    @sciml.equation
    def real(self, u, v, x, t):
        return -d(v, t) + d(u, x, x) / 2

    @sciml.equation
    def imaginary(self, u, v, x, t):
        return d(u, t) + d(v, x, x) / 2


class Burgers(sciml.Problem):
    domain = sciml.Box(x=(-1, 1), t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: -torch.sin(PI * x)), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t) + u * d(u, x) - 0.1 * d(u, x, x)


def sites_of(problem, mesh, places, highest):
    """Where the equations and the conditions at the ends of a problem are taken."""
    terms = [term for term in problem.terms() if not term.name.startswith("initial")]
    inside = [Site(term, (mesh.inside(places, highest),), 1.0) for term in terms if term.name in problem.equations]
    pair = mesh.end(upper=False, highest=highest), mesh.end(upper=True, highest=highest)
    ends = []
    for term in terms:
        if term.name in problem.equations:
            continue
        if term.name.startswith("periodic"):
            ends.append(Site(term, pair, 1.0))
        else:
            outward = torch.tensor([[1.0, 0.0]], dtype=F64)
            ends += [Site(term, (trace,), 1.0, side * outward) for trace, side in zip(pair, (-1, 1), strict=True)]
    return inside, ends


def slab_of(problem, *, count=3, degree=10, smooth=2, length=0.05, stages=4, starts=None):
    """A slab with its sites and the weights of its quadrature."""
    mesh = PiecewiseBasis(np.linspace(-1, 1, count + 1), degree, smooth)
    fields = len(problem.fields)
    if starts is None:
        x = mesh.inside(chebyshev_places(degree + 1), 0).x
        start = [term for term in problem.terms() if term.name.startswith("initial")]
        wanted = initial_values(problem, start, at_time(problem, 0.0, [x.flatten()]))
        starts = tuple(mesh.interpolated(wanted[name, 0].view_as(x))[None] for name in problem.fields)
    slab = Slab(problem, mesh, RadauIIA(stages), 0.0, length, (1,) * fields, starts, (1.0,) * fields)
    places, quadrature = gauss(math.ceil(1.5 * (degree + 1)))
    return slab, *sites_of(problem, mesh, places, 2), quadrature


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 12])
def test_stages_integrate_polynomials(count):
    stages = RadauIIA(count)
    at = torch.tensor([0.1, 0.7, 1.0], dtype=F64)
    for power in range(count):
        values = stages.nodes**power
        assert torch.allclose(stages.integrated(at, 0) @ values, at**power, atol=1e-11)
        assert torch.allclose(stages.integrated(at, 1) @ values, at ** (power + 1) / (power + 1), atol=1e-12)
        twice = at ** (power + 2) / ((power + 1) * (power + 2))
        assert torch.allclose(stages.integrated(at, 2) @ values, twice, atol=1e-12)
    assert float(stages.nodes[-1]) == 1.0


@pytest.mark.parametrize("count", [1, 3, 8])
def test_eigenvectors_take_the_matrix_of_the_stages_apart(count):
    stages = RadauIIA(count)
    whole = stages.integrated(stages.nodes, 1)
    rebuilt = (stages.vectors @ torch.diag(stages.eigenvalues) @ stages.inverse).real
    assert torch.allclose(rebuilt, whole, atol=1e-12)


def test_the_last_stage_has_the_order_of_radau():
    """u' = -u with p stages: the error of one step falls with its power 2p."""
    stages = RadauIIA(2)
    errors = []
    for h in (0.05, 0.025, 0.0125):
        matrix = torch.eye(2, dtype=F64) + h * stages.integrated(stages.nodes, 1)
        rates = torch.linalg.solve(matrix, -torch.ones(2, dtype=F64))
        end = 1 + h * float(stages.integrated(torch.ones(1, dtype=F64), 1) @ rates)
        errors.append(abs(end - math.exp(-h)))
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert np.all(np.abs(orders - 4) < 0.1), orders


@pytest.mark.parametrize("count", [8, 12])
def test_oscillations_of_any_frequency_do_not_grow(count):
    """u'' = -w² u, from slow to far beyond what the stages resolve."""
    stages = RadauIIA(count)
    once, twice = stages.power(1), stages.power(2)
    for frequency in 10.0 ** np.arange(-2, 6):
        columns = []
        for u, v in ((1.0, 0.0), (0.0, 1.0)):
            start = u + stages.nodes * v
            rates = torch.linalg.solve(torch.eye(count, dtype=F64) + frequency**2 * twice, -(frequency**2) * start)
            columns.append([float(start[-1] + (twice @ rates)[-1]), float(v + (once @ rates)[-1])])
        growth = np.abs(np.linalg.eigvals(np.array(columns).T)).max()
        assert growth < 1 + 1e-8, frequency


def test_the_start_is_a_polynomial_of_its_derivatives():
    at = torch.tensor([0.3, 1.0], dtype=F64)
    for power in range(4):
        chebyshev = np.polynomial.chebyshev.chebval(2 * at.numpy() - 1, start_polynomial(power))
        assert np.allclose(chebyshev, start_values(at, power).numpy())


@pytest.mark.parametrize("smooth", [1, 2, 3, 4])
def test_a_mesh_reproduces_polynomials_and_joins_smoothly(smooth):
    mesh = PiecewiseBasis([-1.0, -0.3, 0.0, 1.0], degree=12, smooth=smooth)
    x = mesh.inside(chebyshev_places(13), 0).x
    weights = mesh.interpolated(x**5 - 2 * x**3 + 1)
    assert mesh.width == weights.shape[-1] == 3 * (13 - 2 * smooth) + 4 * smooth
    trace = mesh.inside(torch.linspace(-1, 1, 7, dtype=F64), 2)
    assert torch.allclose(trace.jet(mesh.local(weights), ()), trace.x**5 - 2 * trace.x**3 + 1, atol=1e-12)
    assert torch.allclose(trace.jet(mesh.local(weights), ("x", "x")), 20 * trace.x**3 - 12 * trace.x, atol=1e-8)
    anything = torch.randn(mesh.width, dtype=F64, generator=torch.Generator().manual_seed(0))
    ends = mesh.inside(torch.tensor([-1.0, 1.0], dtype=F64), smooth)
    for order in range(smooth):
        jet = ends.jet(mesh.local(anything), ("x",) * order)
        assert torch.allclose(jet[:-1, 1], jet[1:, 0], rtol=1e-8, atol=1e-8 * float(jet.abs().max()))


def test_splitting_is_exact_and_joining_undoes_it():
    mesh = PiecewiseBasis([-1.0, 0.0, 1.0], degree=10, smooth=2)
    weights = torch.randn(2, mesh.width, dtype=F64, generator=torch.Generator().manual_seed(0))
    finer = mesh.split(np.array([True, False]))
    assert finer.count == 3
    there = finer.transferred(mesh, weights)
    back = finer.merged(np.array([True, True, True]))
    assert np.allclose(back.breaks, mesh.breaks)
    assert torch.allclose(mesh.transferred(finer, there), weights, atol=1e-10)
    assert finer.merged(np.array([True, False, True])) is finer
    # The elements in the middle are neighbours of equal width, but were never one.
    assert PiecewiseBasis([0.0, 0.25, 0.5, 0.75, 1.0], 10, 2).merged(np.array([False, True, True, False])).count == 4


def test_a_jump_of_derivatives_is_interpolated_by_their_mean():
    mesh = PiecewiseBasis([-1.0, 0.0, 1.0], degree=8, smooth=2)
    x = mesh.inside(chebyshev_places(9), 0).x
    weights = mesh.interpolated(x.abs())
    ends = mesh.inside(torch.tensor([-1.0, 1.0], dtype=F64), 1)
    assert abs(float(ends.jet(mesh.local(weights), ())[0, 1])) < 1e-12
    slopes = ends.jet(mesh.local(weights), ("x",))
    assert torch.allclose(slopes, torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=F64), atol=1e-10)


def test_a_jump_stays_where_it_is_when_fitted():
    mesh = PiecewiseBasis(np.linspace(-1, 1, 9), degree=8, smooth=2)
    places, quadrature = gauss(14)
    x = mesh.inside(places, 0).x
    step = torch.where(x < -0.3, torch.ones_like(x), torch.zeros_like(x))
    weights = mesh.fitted(step[None], places, quadrature)[0]
    misfit = (mesh.inside(places, 0).jet(mesh.local(weights), ()) - step).abs().amax(1)
    assert float(misfit[2]) > 0.1  # the element with the jump
    assert float(misfit[5:].max()) < 1e-2


def test_gmres_solves_a_dense_system():
    generator = torch.Generator().manual_seed(1)
    matrix = torch.eye(20, dtype=F64) + 0.1 * torch.randn(20, 20, dtype=F64, generator=generator)
    wanted = torch.randn(20, dtype=F64, generator=generator)
    found, used = gmres(lambda v: matrix @ v, wanted, 1e-12, 20)
    assert torch.allclose(matrix @ found, wanted, atol=1e-10)
    assert used <= 20
    nothing, none = gmres(lambda v: matrix @ v, torch.zeros(20, dtype=F64), 1e-12, 20)
    assert none == 0
    assert not nothing.any()
    products = []
    with pytest.raises(OutOfTimeError):
        gmres(lambda v: products.append(v) or matrix @ v, wanted, 1e-12, 20, lambda: True)
    assert len(products) == 1


def test_a_slab_that_takes_too_long_is_given_up():
    slab, inside, ends, quadrature = slab_of(Burgers())
    inverted, clock = partial(ElementPreconditioner, quadrature, slab), iter([False, True])
    with pytest.raises(OutOfTimeError):
        solve(slab, [*inside, *ends], inverted, 1e-10, over=lambda: next(clock))
    solved = solve(slab, [*inside, *ends], inverted, 1e-10)
    assert solved.converged
    sources = [each.values for each in solved.evaluated]
    with pytest.raises(OutOfTimeError):
        driven(slab, replace(solved, products=solved.steps), sources, slab.starts, 1e-12, 9, lambda: True)


@pytest.mark.parametrize("problem", [Advection, Quantum, Burgers])
def test_products_are_differences_of_residuals(problem):
    slab, inside, ends, _ = slab_of(problem())
    generator = torch.Generator().manual_seed(0)
    rates, move = (torch.randn(slab.zero().shape, dtype=F64, generator=generator) for _ in range(2))
    sites = [*inside, *ends]
    evaluated = slab.evaluate(sites, rates, slopes=True)
    products = slab.product(evaluated, move)
    step = 1e-6
    ahead, behind = (slab.evaluate(sites, rates + sign * step * move, slopes=False) for sign in (1, -1))
    for product, plus, minus in zip(products, ahead, behind, strict=True):
        assert torch.allclose(product, (plus.values - minus.values) / (2 * step), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("problem", [Advection, Quantum])
def test_the_inverse_is_exact_where_nothing_changes_in_time(problem):
    slab, inside, ends, quadrature = slab_of(problem())
    evaluated = slab.evaluate([*inside, *ends], slab.zero(), slopes=True)
    inverse = ElementPreconditioner(quadrature, slab, evaluated)
    rates = torch.randn(slab.zero().shape, dtype=F64, generator=torch.Generator().manual_seed(0))
    rows = slab.product(evaluated, rates)
    assert torch.allclose(inverse(rows), rates, atol=1e-7)


@pytest.mark.parametrize("problem", [Advection, Quantum])
@pytest.mark.parametrize("stages", [8, 12])
@pytest.mark.parametrize("length", [1e-4, 1e-2, 0.1])
def test_waves_do_not_grow(problem, stages, length):
    """No combination of basis functions grows from one slab to the next by more than rounding."""
    problem = problem()
    slab, inside, ends, quadrature = slab_of(problem, count=2, degree=12, length=length, stages=stages)
    width, fields = slab.mesh.width, len(problem.fields)
    evaluated = slab.evaluate([*inside, *ends], slab.zero(), slopes=True)
    inverse = ElementPreconditioner(quadrature, slab, evaluated)
    growth = []
    for column in range(fields * width):
        starts = [torch.zeros(1, width, dtype=F64) for _ in range(fields)]
        starts[column // width][0, column % width] = 1.0
        unit = Slab(problem, slab.mesh, slab.stages, 0.0, length, slab.orders, tuple(starts), slab.units)
        rows = [each.values for each in unit.evaluate([*inside, *ends], slab.zero(), slopes=False)]
        rates = -inverse(rows)
        growth.append(torch.cat([unit.end(rates, field)[0] for field in range(fields)]))
    eigenvalues = np.linalg.eigvals(torch.stack(growth, dim=1).numpy())
    assert np.abs(eigenvalues).max() < 1 + 1e-6


def test_newton_solves_a_nonlinear_slab_to_rounding():
    slab, inside, ends, quadrature = slab_of(Burgers(), degree=12, length=0.1, stages=6)
    solved = solve(slab, [*inside, *ends], partial(ElementPreconditioner, quadrature, slab), 1e-14)
    assert solved.converged
    assert solved.steps <= 7
    rows = slab.evaluate(ends, solved.rates)
    assert max(float(each.values.abs().max()) for each in rows) < 1e-12


def test_newton_says_so_when_it_diverges():
    class Explosive(Burgers):
        @sciml.equation
        def motion(self, u, x, t):
            return d(u, t) - torch.exp(60 * u) - 0.1 * d(u, x, x)

    slab, inside, ends, quadrature = slab_of(Explosive(), length=5.0)
    assert not solve(slab, [*inside, *ends], partial(ElementPreconditioner, quadrature, slab), 1e-14).converged


def test_a_residual_that_is_not_a_number_is_no_crash():
    class Rooted(Burgers):
        @sciml.equation
        def motion(self, u, x, t):
            return d(u, t) + torch.sqrt(u) - 0.1 * d(u, x, x)

    slab, inside, ends, quadrature = slab_of(Rooted())
    solved = solve(slab, [*inside, *ends], partial(ElementPreconditioner, quadrature, slab), 1e-14)
    assert not solved.converged
    assert bool(solved.rates.isfinite().all())


def test_a_derivative_that_was_not_recorded_is_named():
    mesh = PiecewiseBasis([-1.0, 1.0], degree=6, smooth=1)
    trace = mesh.inside(torch.zeros(1, dtype=F64), 1)
    with pytest.raises(ProblemError, match="order 2 in space"):
        trace.jet(mesh.local(torch.zeros(mesh.width, dtype=F64)), ("x", "x"))
