"""``python -m tests.benchmarks.step_reference``: data/step_flow/finite_elements.csv by finite elements of another library.

Taylor and Hood's elements of degrees 3 and 2 on triangles that are halved towards the three singular corners, Newton's method.

Reference: C. Taylor and P. Hood, A numerical solution of the Navier-Stokes equations using the finite element technique,
Computers and Fluids 1 (1973).
"""

import numpy as np
import scipy
from skfem import Basis, BilinearForm, ElementTriP2, ElementTriP3, ElementVector, LinearForm, MeshTri
from skfem.helpers import ddot, div, dot, grad, mul

from .stored import ROOT

CORNERS = ((2, 1), (4, 0), (4, 2))
VISCOSITY = 1 / 50
# Triangles nearer to a corner than that are halved first, then those at 0.55 of the distance, and so on.
NEAR, NEARER = 0.4, 0.55
AWAY, EVERY = 0.05, 9


def points() -> np.ndarray:
    """Where the reference is kept, ``(2, n)``."""
    x, y = (
        each.ravel() for each in np.meshgrid(np.linspace(0.0131, 3.987, 121), np.linspace(0.0127, 1.9883, 61), indexing="ij")
    )
    kept = ~((x < 2) & (y > 1))
    x, y = x[kept], y[kept]
    far = np.hypot(x - 2, y - 1) > AWAY
    return np.stack([x[far], y[far]])[:, ::EVERY]


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
    coarse, fine = solve(6, 11, places), solve(8, 14, places)
    print("differ by", np.linalg.norm(fine - coarse, axis=1) / np.linalg.norm(fine, axis=1))
    table = np.vstack([places, fine]).T
    path = ROOT / "data" / "step_flow" / "finite_elements.csv"
    np.savetxt(path, table, delimiter=",", header="x,y,u,v,p", comments="", fmt=["%.10g"] * 2 + ["%.9e"] * 3)
