"""``python -m tests.benchmarks.step_reference``: data/step_flow/reference.h5 by finite elements of another library.

Taylor and Hood's elements of degrees 3 and 2 on triangles that are halved towards the three singular corners, Newton's method.

Reference: C. Taylor and P. Hood, A numerical solution of the Navier-Stokes equations using the finite element technique,
Computers and Fluids 1 (1973).
"""

import numpy as np
import scipy
from skfem import Basis, BilinearForm, ElementTriP2, ElementTriP3, ElementVector, LinearForm, MeshTri
from skfem.helpers import ddot, div, dot, grad, mul

from .stored import difference, save

CORNERS = ((2, 1), (4, 0), (4, 2))
VISCOSITY = 1 / 50
# Triangles nearer to a corner than that are halved first, then those at 0.55 of the distance, and so on.
NEAR, NEARER = 0.4, 0.55
COARSE, FINE = (6, 11), (8, 14)
AWAY = 0.05
AXES = {"x": np.linspace(0, 4, 129), "y": np.linspace(0, 2, 65)}


def kept() -> np.ndarray:
    """Which points of the grid are stored: those in the channel, away from its singular corners."""
    x, y = np.meshgrid(*AXES.values(), indexing="ij")
    return ~((x < 2) & (y > 1)) & (np.min([np.hypot(x - a, y - b) for a, b in CORNERS], axis=0) > AWAY)


def points() -> np.ndarray:
    """Where the reference is kept, ``(2, n)``."""
    return np.stack([each[kept()] for each in np.meshgrid(*AXES.values(), indexing="ij")])


def solve(edges: int, halvings: int, at: np.ndarray) -> np.ndarray:
    """u, v, p at places, from so many edges a unit of length, halved so often at the corners, ``(3, n)``."""
    mesh = MeshTri.init_tensor(np.linspace(0, 4, 4 * edges + 1), np.linspace(0, 2, 2 * edges + 1))
    x, y = mesh.p[:, mesh.t].mean(1)
    mesh = mesh.restrict(np.nonzero(~((x < 2) & (y > 1)))[0])
    for number in range(halvings):
        x, y = mesh.p[:, mesh.t].mean(1)
        distance = np.min([np.hypot(x - a, y - b) for a, b in CORNERS], axis=0)
        mesh = mesh.refined(np.nonzero(distance < NEAR * NEARER**number)[0])
    velocity = Basis(mesh, ElementVector(ElementTriP3()), intorder=8)
    pressure = velocity.with_element(ElementTriP2())

    @BilinearForm
    def viscous(u, v, _):
        return VISCOSITY * ddot(grad(u), grad(v))

    @BilinearForm
    def pressed(u, q, _):
        return -div(u) * q

    @BilinearForm
    def carried(u, v, w):
        return dot(mul(grad(u), w["now"]) + mul(grad(w["now"]), u), v)

    @LinearForm
    def inertia(v, w):
        return dot(mul(grad(w["now"]), w["now"]), v)

    stiff, mixed = viscous.assemble(velocity), pressed.assemble(velocity, pressure)
    walls = velocity.get_dofs(mesh.facets_satisfying(lambda p: ~np.isclose(p[0], 4), boundaries_only=True)).flatten()
    inlet = velocity.get_dofs(mesh.facets_satisfying(lambda p: np.isclose(p[0], 0), boundaries_only=True))
    along = inlet.all([name for name in velocity.elem.dofnames if name.endswith("^1")])
    flow, squeeze = np.zeros(velocity.N), np.zeros(pressure.N)
    flow[along] = 4 * velocity.doflocs[1, along] * (1 - velocity.doflocs[1, along])
    free = np.setdiff1d(np.arange(velocity.N + pressure.N), walls)
    for _ in range(12):
        now = velocity.interpolate(flow)
        matrix = scipy.sparse.bmat([[stiff + carried.assemble(velocity, now=now), mixed.T], [mixed, None]]).tocsr()
        rest = np.concatenate([stiff @ flow + mixed.T @ squeeze + inertia.assemble(velocity, now=now), mixed @ flow])
        change = np.zeros(len(rest))
        change[free] = scipy.sparse.linalg.spsolve(matrix[free][:, free].tocsc(), -rest[free], permc_spec="COLAMD")
        flow, squeeze = flow + change[: velocity.N], squeeze + change[velocity.N :]
        if np.abs(change).max() < 1e-11:
            break
    return np.vstack([(velocity.probes(at) @ flow).reshape(2, -1), pressure.probes(at) @ squeeze])


if __name__ == "__main__":
    places = points()
    coarse, fine = solve(*COARSE, places), solve(*FINE, places)
    converged = [difference(one, two) for one, two in zip(coarse, fine, strict=True)]
    fields = dict(zip("uvp", np.full((3, *kept().shape), np.nan), strict=True))
    for values, found in zip(fields.values(), fine, strict=True):
        values[kept()] = found
    print("differ by", dict(zip(fields, converged, strict=True)))
    save(
        "step_flow",
        AXES,
        fields,
        {"reynolds": 1 / VISCOSITY},
        equation="steady Navier-Stokes past a step, Re = 50",
        method="Taylor and Hood's elements of degrees 3 and 2 (scikit-fem); resolution: edges a unit, halvings at corners",
        resolution=list(FINE),
        compared_with=list(COARSE),
        converged_to=max(converged),
    )
