"""The self-scaled Broyden method with a dense inverse Hessian."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sciml.data.memory import require
from sciml.solvers.base import Run, Solver, check_settings
from sciml.solvers.objective import Objective
from sciml.solvers.quasi_newton import QuasiNewtonRun


@dataclass(frozen=True, repr=False)
class SSBroyden(Solver):
    r"""Self-scaled Broyden: a whole inverse Hessian, rescaled at every step, for models of up to a few thousand parameters.

    With the move :math:`s`, the change of the gradient :math:`y`, :math:`\rho = 1/s^Ty` and
    :math:`v = \rho s - Hy/y^THy` the inverse Hessian becomes

    .. math::  \frac{1}{\tau}\Big(H - \frac{Hy\,y^TH}{y^THy} + \varphi\,(y^THy)\,vv^T\Big) + \rho\,ss^T,

    with Al-Baali's choice of :math:`\tau` and :math:`\varphi`; :math:`\tau = \varphi = 1` would be BFGS. A step costs some
    products of a matrix and a vector, and satisfies the strong Wolfe conditions. The matrix survives a redraw of the points
    as long as it is positive definite.

    Args:
        steps: the most steps.
        gradient_tolerance: it has converged when the largest component of the gradient is below this.
        memory: the most bytes that the matrix may take; half of what is free when None.
        look: steps between reports on held-out rows.

    Raises:
        SolverError: a setting is out of range; when a run begins, the matrix needs more memory than there is.

    Example:
        >>> import sciml
        >>> sciml.SSBroyden(500).steps
        500

    Reference: J. F. Urbán, P. Stefanou and J. A. Pons, Unveiling the optimization process of physics informed neural networks,
    Journal of Computational Physics 523 (2025), equations 13-23 (there SSBroyden2); M. Al-Baali, Global and superlinear
    convergence of a restricted class of self-scaling methods, Computational Optimization and Applications 9 (1998).
    """

    steps: int = 3000
    gradient_tolerance: float = 1e-12
    memory: float | None = None
    look: int = 50
    projects = True

    def __post_init__(self) -> None:
        check_settings(self, whole="steps look", positive="memory", not_negative="gradient_tolerance")

    def start(self, objective: Objective) -> Run:
        return _SSBroydenRun(self, objective)


class _SSBroydenRun(QuasiNewtonRun):
    def __init__(self, solver: SSBroyden, objective: Objective) -> None:
        super().__init__(objective, solver.gradient_tolerance)
        self._size = sum(parameter.numel() for parameter in objective.parameters)
        like = objective.parameters[0]
        # The matrix, and another while it is checked, factorised or saved.
        needed = 2 * self._size**2 * like.element_size()
        what = f"SSBroyden with {self._size} parameters (a dense matrix of {self._size} x {self._size})"
        require(needed, solver.memory, like, what, "use sciml.LBFGS, or a smaller model")

    def _direction(self, gradient: Tensor) -> Tensor:
        return -gradient if self._inverse is None else -(self._inverse @ gradient)

    def _learn(self, length: float, move: Tensor, change: Tensor, gradient: Tensor) -> None:
        if self._inverse is None:
            self._inverse = torch.eye(self._size, dtype=move.dtype, device=move.device)
        updated(self._inverse, length, move, change, gradient)

    def renewed(self) -> None:
        super().renewed()
        if self._inverse is None:
            return
        self._inverse = (self._inverse + self._inverse.T) / 2
        if int(torch.linalg.cholesky_ex(self._inverse).info):
            self._inverse = None


def updated(inverse: Tensor, length: float, move: Tensor, change: Tensor, gradient: Tensor) -> None:
    """Update an inverse Hessian ``(n, n)`` in place by the step of a length along -H times ``gradient``, a move."""
    across = inverse @ change
    curvature = float(change @ across)
    rho = 1.0 / float(move @ change)
    b = -length * rho * float(move @ gradient)
    h = rho * curvature
    # By Cauchy and Schwarz a is not negative; zero, where it is no longer told from rounding, is a double limit.
    a = max(b * h - 1.0, 1e-15)
    root = math.sqrt(a / (1.0 + a))
    least = min(1.0, h * (1.0 - root))
    theta = max((least - 1.0) / a, min(1.0 / least, (1.0 - b) / b))
    sigma = 1.0 + theta * a
    shrink = min(1.0, 1.0 / b)
    power = abs(sigma) ** (1.0 / (1.0 - len(move))) if len(move) > 1 else 1.0
    tau = min(shrink * power, sigma) if theta <= 0 else shrink * min(power, 1.0 / theta)
    phi = (1.0 - theta) / (1.0 + a * theta)
    # (H - across acrossᵀ/curvature + φ curvature rest restᵀ)/τ + ρ move moveᵀ, in one pass over the matrix.
    several = torch.stack([across, rho * move - across / curvature, move], dim=1)
    factors = several.new_tensor([-1.0 / (curvature * tau), phi * curvature / tau, rho])
    inverse.addmm_(several * factors, several.T, beta=1.0 / tau)
