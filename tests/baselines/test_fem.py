"""Solutions on shapes without closed forms, against finite elements: the finer the mesh, the nearer it comes to the fit.

References are made with scikit-fem, of degree two: nodal values on a mesh, which converge as the third power of its size.

Reference: T. Gustafsson and G. D. McBain, scikit-fem: a Python package for finite element assembly, Journal of Open Source
Software 5 (2020).
"""

import itertools

import numpy as np
import pytest
import torch

import sciml

pytest.importorskip("skfem", reason="references by finite elements need scikit-fem: pip install 'sciml[fem]'")


from skfem import (
    Basis,
    BilinearForm,
    ElementTriP2,
    FacetBasis,
    LinearForm,
    MeshTri,
    MeshTri2,
    asm,
    condense,
    solve,
)
from skfem.helpers import dot, grad


@BilinearForm
def stiffness(u, v, _):
    return dot(grad(u), grad(v))


@BilinearForm
def mass(u, v, _):
    return u * v


def against(values):
    """The linear form of a function of the coordinates."""
    return LinearForm(lambda v, w: values(*w.x) * v)


def corner_mesh(uniform):
    """Three unit squares about the origin, without the upper right one, the finer the nearer to the re-entrant corner."""
    mesh = MeshTri.init_lshaped().refined(uniform)
    # Twice as fine within every third of the distance: the error is that of the rest, not of the corner.
    for step in range(3 * uniform):
        near = np.hypot(*mesh.p[:, mesh.t]).min(axis=0) < 0.5 * 0.35**step
        mesh = mesh.refined(np.flatnonzero(near))
    return mesh


def poisson_on_the_ell(source, refinements):
    """-Δu = f with u = 0 on the boundary of the L: nodes ``(n, 2)``, and the values there."""
    basis = Basis(corner_mesh(refinements), ElementTriP2())
    system = asm(stiffness, basis), asm(against(source), basis)
    return basis.doflocs.T, solve(*condense(*system, D=basis.get_dofs()))


def robin_on_the_disk(source, coefficient, given, refinements):
    """-Δu = f inside the unit circle and u_n + a u = g on it, on triangles with curved edges."""
    mesh = MeshTri2.init_circle(refinements)
    basis, rim = Basis(mesh, ElementTriP2()), FacetBasis(mesh, ElementTriP2())
    matrix = asm(stiffness, basis) + coefficient * asm(mass, rim)
    return basis.doflocs.T, solve(matrix, asm(against(source), basis) + asm(against(given), rim))


class Ell(sciml.Problem):
    """A membrane over an L under a load that is not the same everywhere."""

    domain = sciml.Polygon([(0, 0), (0, 1), (-1, 1), (-1, -1), (1, -1), (1, 0)])
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def load(self, u, x, y):
        return sciml.laplacian(u, x, y) + 1.0 + x


class Cooled(sciml.Problem):
    """A disk heated unevenly, cooled at its rim by surroundings that are not the same everywhere."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    conditions = [sciml.Robin(u=lambda x, y: x * y, coefficient=2.0, on=domain.boundary)]

    @sciml.equation
    def heat(self, u, x, y):
        return sciml.laplacian(u, x, y) + torch.exp(x) * (1 + y)


def gaps(solution, references):
    """The relative difference of a solution from each of some references at their nodes."""
    found = []
    for points, values in references:
        # Nodes on curved edges lie on the circle to the order of the elements.
        inside = solution.domain.contains(points)
        own = solution(**dict(zip(solution.coordinates, points[inside].T, strict=True)))["u"]
        found.append(float(np.linalg.norm(own - values[inside]) / np.linalg.norm(values[inside])))
    return found


@pytest.mark.slow
def test_a_membrane_over_an_ell():
    solution = sciml.fit(Ell())
    assert solution.success, solution.message
    found = gaps(solution, [poisson_on_the_ell(lambda x, y: 1 + x, level) for level in (2, 3, 4, 5)])
    assert all(finer < coarser / 6 for coarser, finer in itertools.pairwise(found)), found
    assert found[-1] < 2e-6


def test_a_disk_with_a_robin_condition():
    solution = sciml.fit(Cooled())
    assert solution.success, solution.message
    source, rim = lambda x, y: np.exp(x) * (1 + y), lambda x, y: x * y
    found = gaps(solution, [robin_on_the_disk(source, 2.0, rim, level) for level in (2, 3, 4, 5)])
    assert all(finer < coarser / 6 for coarser, finer in itertools.pairwise(found)), found
    assert found[-1] < 1e-6


def test_a_wrong_solution_is_told():
    class Other(Cooled):
        conditions = [sciml.Robin(u=lambda x, y: x * y, coefficient=2.001, on=Cooled.domain.boundary)]

    source, rim = lambda x, y: np.exp(x) * (1 + y), lambda x, y: x * y
    assert gaps(sciml.fit(Other()), [robin_on_the_disk(source, 2.0, rim, 4)])[0] > 1e-4
