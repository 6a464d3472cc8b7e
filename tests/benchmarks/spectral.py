"""Spectral solvers that make the references; small and plain, because they are the truth that others are held against."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import legendre
from scipy import fft, sparse
from scipy.integrate import solve_ivp

Array = np.ndarray


def etdrk4(linear: Array, nonlinear: Callable[[Array], Array], start: Array, times: Array, steps: int) -> Array:
    r"""The Fourier coefficients of :math:`\hat u' = L \hat u + N(\hat u)` at some times, shape ``(len(times), modes)``.

    Exponential time differencing of fourth order, with the coefficients as means over a circle around each :math:`hL`
    (A.-K. Kassam and L. N. Trefethen, SIAM Journal on Scientific Computing 26, 2005).

    Args:
        linear: the diagonal L, one number a mode.
        nonlinear: N, of coefficients.
        start: the coefficients at the first time.
        times: equally spaced.
        steps: the number of steps from one time to the next.
    """
    h = (times[1] - times[0]) / steps
    circle = np.exp(2j * np.pi * (np.arange(32) + 0.5) / 32)
    z = h * linear[:, None] + circle
    e = np.exp(z)
    half = h * ((np.exp(z / 2) - 1) / z).mean(1)
    first = h * ((-4 - z + e * (4 - 3 * z + z**2)) / z**3).mean(1)
    middle = h * 2 * ((2 + z + e * (z - 2)) / z**3).mean(1)
    last = h * ((-4 - 3 * z - z**2 + e * (4 - z)) / z**3).mean(1)
    whole_step, half_step = np.exp(h * linear), np.exp(h * linear / 2)
    found, v = [start], start
    for _ in times[1:]:
        for _ in range(steps):
            at_v = nonlinear(v)
            a = half_step * v + half * at_v
            at_a = nonlinear(a)
            b = half_step * v + half * at_a
            at_b = nonlinear(b)
            c = half_step * a + half * (2 * at_b - at_v)
            v = whole_step * v + first * at_v + middle * (at_a + at_b) + last * nonlinear(c)
        found.append(v)
    return np.stack(found)


def wavenumbers(modes: int, length: float) -> Array:
    """The wavenumbers of ``scipy.fft`` on an interval."""
    return 2 * np.pi / length * fft.fftfreq(modes, 1 / modes)


def periodic_conservation(
    symbol: Callable[[Array], Array], speed: float, start: Array, length: float, times: Array, steps: int
) -> Array:
    r"""The values of :math:`u_t + s\,(u^2/2)_x = \mathcal L u` on a periodic interval, shape ``(times, points)``.

    The products are free of aliasing (two thirds of the modes carry them). ``symbol`` is :math:`\mathcal L` as a function
    of the wavenumber.
    """
    k = wavenumbers(len(start), length)
    kept = np.abs(k) < np.abs(k).max() * 2 / 3
    flux = -0.5j * speed * k * kept
    spectrum = fft.fft(start)
    found = etdrk4(symbol(k), lambda v: flux * fft.fft(fft.ifft(v).real ** 2), spectrum, times, steps)
    return fft.ifft(found, axis=1).real


def gray_scott(
    start: tuple[Array, Array],
    spread: tuple[float, float],
    feed: float,
    loss: float,
    length: float,
    times: Array,
    steps: int,
) -> tuple[Array, Array]:
    r"""The values of :math:`u_t = d_u u_{xx} + f(1 - u) - u v^2` and :math:`v_t = d_v v_{xx} - l v + u v^2`.

    On a periodic interval; both of shape ``(times, points)``. Two thirds of the modes carry the products.
    """
    modes = len(start[0])
    k = wavenumbers(modes, length)
    kept = np.abs(k) < np.abs(k).max() * 2 / 3
    supply = np.zeros(modes)
    supply[0] = feed * modes

    def reaction(both: Array) -> Array:
        u, v = fft.ifft(both.reshape(2, modes), axis=1).real
        rate = fft.fft(u * v**2) * kept
        return np.concatenate([supply - rate, rate])

    symbol = np.concatenate([-spread[0] * k**2 - feed, -spread[1] * k**2 - loss])
    found = etdrk4(symbol, reaction, np.concatenate([fft.fft(each) for each in start]), times, steps)
    u, v = np.moveaxis(fft.ifft(found.reshape(len(times), 2, modes), axis=2).real, 1, 0)
    return u, v


def schroedinger(start: Array, length: float, times: Array, steps: int) -> Array:
    r"""The complex values of :math:`i h_t + h_{xx}/2 + |h|^2 h = 0` on a periodic interval, shape ``(times, points)``.

    Splitting of fourth order in six stages, each part exact: where the start has a kink, schemes that treat the stiff part
    only approximately lose two digits (S. Blanes and P. C. Moan, Journal of Computational and Applied Mathematics 142, 2002).
    """
    size = (times[1] - times[0]) / steps
    drift = np.array([0.0792036964311957, 0.353172906049774, -0.0420650803577195])
    kick = np.array([0.209515106613362, -0.143851773179818])
    drift = np.concatenate([drift, [1 - 2 * drift.sum()], drift[::-1]])
    kick = np.concatenate([kick, [0.5 - kick.sum()] * 2, kick[::-1]])
    rotation = np.exp(-0.5j * size * wavenumbers(len(start), length) ** 2 * drift[:, None])
    found, h = [start], start
    for _ in times[1:]:
        for _ in range(steps):
            h = fft.ifft(rotation[0] * fft.fft(h))
            for stage, share in enumerate(kick):
                h = h * np.exp(1j * size * share * (h.real**2 + h.imag**2))
                h = fft.ifft(rotation[stage + 1] * fft.fft(h))
        found.append(h)
    return np.stack(found)


def chebyshev(degree: int) -> tuple[Array, Array]:
    """Chebyshev points on [0, 1], increasing, and the matrix that differentiates (Trefethen 2000, chapter 6)."""
    angle = np.pi * np.arange(degree + 1) / degree
    x = (1 - np.cos(angle)) / 2
    weight = np.where(np.isin(np.arange(degree + 1), (0, degree)), 2.0, 1.0) * (-1.0) ** np.arange(degree + 1)
    # The differences of points by a product of sines: subtraction would lose digits where they are close.
    half = angle / 2
    gap = np.sin(half[:, None] + half) * np.sin(half[:, None] - half)
    matrix = np.outer(weight, 1 / weight) / (gap + np.eye(degree + 1))
    np.fill_diagonal(matrix, 0)
    np.fill_diagonal(matrix, -matrix.sum(1))
    return x, matrix


def interpolation(degree: int, at: Array) -> Array:
    """The matrix that takes values at Chebyshev points to values at others in [0, 1], by the barycentric formula."""
    x, _ = chebyshev(degree)
    weight = (-1.0) ** np.arange(degree + 1)
    weight[[0, -1]] /= 2
    gap = at[:, None] - x
    hit = gap == 0
    share = weight / np.where(hit, 1.0, gap)
    share = np.where(hit.any(1)[:, None], hit, share)
    return share / share.sum(1, keepdims=True)


class Elements:
    """Continuous piecewise polynomials on [0, 1] with nodes at Gauss-Lobatto-Legendre points of every element.

    The last of the elements of equal length is halved ``halvings`` times towards 1, for a layer there.
    """

    def __init__(self, elements: int, degree: int, halvings: int = 3) -> None:
        edges = np.linspace(0, 1, elements + 1)
        small = (1 - edges[-2]) * 0.5 ** np.arange(halvings + 1)
        self.edges = np.concatenate([edges[:-2], 1 - small, [1.0]])
        self.degree = degree
        highest = np.zeros(degree + 1)
        highest[-1] = 1
        inner = legendre.legroots(legendre.legder(highest))
        self.local = np.concatenate([[-1.0], inner, [1.0]])
        self._to_modes = np.linalg.inv(legendre.legvander(self.local, degree))
        weight = 2 / (degree * (degree + 1) * legendre.legval(self.local, highest) ** 2)
        slopes = np.stack([legendre.legval(self.local, legendre.legder(mode)) for mode in np.eye(degree + 1)], axis=1)
        derivative = slopes @ self._to_modes
        stiffness = derivative.T @ (weight[:, None] * derivative)
        lengths = np.diff(self.edges)
        size = len(lengths) * degree + 1
        self.nodes, self.mass = np.zeros(size), np.zeros(size)
        matrix = sparse.lil_array((size, size))
        for number, length in enumerate(lengths):
            own = slice(number * degree, (number + 1) * degree + 1)
            self.nodes[own] = self.edges[number] + length * (self.local + 1) / 2
            self.mass[own] += weight * length / 2
            matrix[own, own] += stiffness * 2 / length
        self.stiffness = sparse.csr_array(matrix)

    def at(self, points: Array) -> sparse.csr_array:
        """The matrix that takes nodal values to values at points of [0, 1]."""
        number = np.clip(np.searchsorted(self.edges, points, side="right") - 1, 0, len(self.edges) - 2)
        unit = 2 * (points - self.edges[number]) / np.diff(self.edges)[number] - 1
        share = legendre.legvander(unit, self.degree) @ self._to_modes
        rows = np.repeat(np.arange(len(points)), self.degree + 1)
        columns = (number[:, None] * self.degree + np.arange(self.degree + 1)).ravel()
        return sparse.csr_array((share.ravel(), (rows, columns)), shape=(len(points), len(self.nodes)))


def allen_cahn(diffusion: float, wall: str, elements: int, degree: int, at: Array, times: Array) -> Array:
    r"""The values of :math:`u_t = d\,u_{xx} + 5u - 5u^3`, even in x, from :math:`x^2\cos\pi x`, shape ``(at, times)``.

    Spectral elements on [0, 1] with u_x = 0 at 0, and at 1 either u_x = 0 (``wall="periodic"``: an even periodic function)
    or u = -1 (``"fixed"``); in time SciPy's DOP853 at its tightest tolerance.

    The periodic extension of the initial value has a kink at 1: a layer there grows like the square root of time. Elements
    small enough follow it; Fourier modes converge slowly.
    """
    mesh = Elements(elements, degree)
    laplacian = sparse.csr_array(-diffusion * mesh.stiffness / mesh.mass[:, None])
    start = mesh.nodes**2 * np.cos(np.pi * mesh.nodes)
    moves = np.ones(len(start))
    if wall == "fixed":
        moves[-1] = 0.0

    def rate(_: float, u: Array) -> Array:
        return moves * (laplacian @ u + 5 * u * (1 - u * u))

    fastest = 2 * diffusion * np.abs(mesh.stiffness.diagonal() / mesh.mass).max()
    path = solve_ivp(
        rate,
        (times[0], times[-1]),
        start,
        t_eval=times,
        method="DOP853",
        rtol=1e-11,
        atol=1e-13,
        max_step=5 / fastest,  # inside the region of stability, where no step is refused
    )
    return mesh.at(np.abs(at)) @ path.y


def cavity(reynolds: float, lid: Callable[[Array], Array], degree: int, at: Array) -> tuple[Array, Array, Array]:
    r"""Stream function, u and v of the flow in a square driven by a lid at y = 1, each of shape ``(at, at)``.

    Newton's method for :math:`\psi_y\,\Delta\psi_x - \psi_x\,\Delta\psi_y = \Delta^2\psi/\mathrm{Re}`, u = ψ_y, v = -ψ_x.
    In each direction a polynomial is described by its values at the Chebyshev points but the two outermost on each side,
    and by value and slope at both ends, so that the conditions of the walls hold exactly. Only in the two upper corners they
    contradict each other (ψ_xy is zero along the wall, the lid's slope along the lid); there the mean is taken.
    """
    x, first = chebyshev(degree)
    nodes = slice(2, degree - 1)
    # (1-x)²x² p(x) for the inner values, cubic Hermite functions and their like for the ends: columns are basis functions.
    described = np.vstack([np.eye(degree + 1)[nodes], np.eye(degree + 1)[[0, -1]], first[[0, -1]]])
    basis = np.linalg.inv(described)
    powers = [basis]
    for _ in range(4):
        powers.append(first @ powers[-1])
    B = [power[nodes] for power in powers]
    inner = degree - 3
    fixed = np.zeros((degree + 1, degree + 1))
    fixed[:inner, -1] = lid(x[nodes])
    slopes = (first @ lid(x))[[0, -1]]
    fixed[-2:, -1] = slopes / 2

    def field(values: Array, by_x: int, by_y: int) -> Array:
        return B[by_x] @ values @ B[by_y].T

    def operator(by_x: int, by_y: int) -> Array:
        return np.kron(B[by_x][:, :inner], B[by_y][:, :inner])

    def times(factor: Array, matrix: Array) -> Array:
        return factor.reshape(-1, 1) * matrix

    bilaplace = operator(4, 0) + 2 * operator(2, 2) + operator(0, 4)
    laplace_x, laplace_y = operator(3, 0) + operator(1, 2), operator(2, 1) + operator(0, 3)
    by_x, by_y = operator(1, 0), operator(0, 1)
    values = fixed.copy()
    for _ in range(30):
        u, v = field(values, 0, 1), -field(values, 1, 0)
        vortex_x = field(values, 3, 0) + field(values, 1, 2)
        vortex_y = field(values, 2, 1) + field(values, 0, 3)
        stokes = field(values, 4, 0) + 2 * field(values, 2, 2) + field(values, 0, 4)
        residual = u * vortex_x + v * vortex_y - stokes / reynolds
        slope = times(u, laplace_x) + times(v, laplace_y) - bilaplace / reynolds
        slope += times(vortex_x, by_y) - times(vortex_y, by_x)
        step = np.linalg.solve(slope, residual.ravel()).reshape(inner, inner)
        values[:inner, :inner] -= step
        if np.abs(step).max() < 1e-11:
            break
    else:
        raise ArithmeticError(f"Newton's method did not converge: the last step was {np.abs(step).max():.1e}")
    out = interpolation(degree, at)
    E = [out @ powers[0], out @ powers[1]]
    wall = np.isin(at, (0, 1))
    wall = wall[:, None] | wall
    u, v = E[0] @ values @ E[1].T, -E[1] @ values @ E[0].T
    # What is prescribed takes the place of what the mean in the corners made of it.
    u[wall] = np.where(at == 1, lid(at)[:, None], 0.0)[wall]
    return E[0] @ values @ E[0].T, u, np.where(wall, 0.0, v)


def stepwise(rate: Callable, start: Array, times: Array, tolerance: float, jacobian: Callable | None = None) -> Array:
    """A stiff system at some times, shape ``(states, times)``, by Radau from each time to the next.

    It stops at every time because Radau's interpolation between its steps is two orders coarser than the steps themselves.
    """
    found, first = [np.asarray(start, dtype=float)], None
    for low, high in itertools.pairwise(times):
        size = None if first is None else min(first, high - low)
        path = solve_ivp(
            rate, (low, high), found[-1], method="Radau", jac=jacobian, rtol=tolerance, atol=1e-18, first_step=size
        )
        if not path.success or not math.isfinite(path.y[:, -1].sum()):
            raise ArithmeticError(f"Radau failed between {low:g} and {high:g}: {path.message}")
        found.append(path.y[:, -1])
        first = float(np.diff(path.t).max())
    return np.stack(found, axis=1)
