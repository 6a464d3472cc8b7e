"""Gauss-Newton on condensed normal equations: weights of a tensor-product basis and unknowns together, and their covariance.

The weights are eliminated; what is left is the information about the unknowns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml.problem.observations import PRIOR
from sciml.solvers.condensation import NormalEquations
from sciml.solvers.gauss_newton import DampedGaussNewton, DampedStep
from sciml.solvers.journal import Journal
from sciml.strategies.inverse_system import RowsOnTiles, TilingSystem

# Without any damping the band would hardly be positive definite.
_TINY = 1e-13
# What a step violates of nearly exact equations falls with the square of its length.
_LENGTHS = (1.0, 0.5, 0.2, 0.05)
# The longest step of a raw unknown.
_FAR = 3.0
# Rows whose hat matrix is computed entry by entry, and the random vectors that stand for more of them.
_EXACT, _PROBES = 256, 64


def _step(normal: NormalEquations, damping: float) -> Tensor | None:
    """The step of weights and unknowns by the normal equations at one position; None where they cannot be factorised."""
    try:
        solve = normal.factorised(damping)
    except np.linalg.LinAlgError:
        return None
    move, shift, _ = bordered_solve(normal, solve, damping)
    return torch.cat([move, shift.clamp(-_FAR, _FAR)])


def bordered_solve(
    found: NormalEquations, solve: Callable[[Tensor], Tensor], damping: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The step of the weights and of the unknowns, and the matrix that is left for the unknowns alone."""
    inner = solve(found.border)
    count = found.border.shape[1] - 1
    corner = found.corner.clone()
    corner.diagonal()[:count] *= 1 + damping
    left = corner - found.border.T @ inner
    schur, right = left[:count, :count], left[:count, -1]
    schur = (schur + schur.T) / 2
    move = torch.zeros(count, dtype=torch.float64)
    if count:
        scale = found.corner.diagonal()[:count].clamp_min(1e-300).sqrt()
        unit = schur / scale / scale[:, None]
        move = -torch.linalg.lstsq(unit, (right / scale)[:, None], driver="gelsd").solution[:, 0] / scale
    return -(inner[:, -1] + inner[:, :count] @ move), move, schur


def gauss_newton(
    system: TilingSystem,
    weights: Tensor,
    raw: Mapping[str, Tensor],
    steps: int,
    tolerance: float,
    journal: Journal | None = None,
    over: Callable[[], bool] = lambda: False,
    *,
    linear: bool = False,
) -> tuple[Tensor, dict[str, Tensor], float]:
    """Lower the loss that steps are judged by through Gauss-Newton steps, damped where they would raise it, until time is over.

    Where rows are ``linear`` in the weights, only the unknowns are varied, and the loss itself judges: the weights are the best
    that there are with them (variable projection), so that a step need not lie in the narrow valley of nearly exact equations.

    Returns:
        The weights and raw unknowns where they ended, and the loss there.

    Reference: G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems whose
    variables separate, SIAM Journal on Numerical Analysis 10 (1973); L. Kaufman, A variable projection method for solving
    separable nonlinear least squares problems, BIT 15 (1975), for the step.
    """

    def parts(position: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        values = position[weights.numel() :]
        return position[: weights.numel()].view_as(weights), dict(zip(raw, values, strict=True))

    method = DampedGaussNewton(_TINY, 0.01, least=1e-6, rest=_TINY, tolerance=tolerance, lengths=_LENGTHS)

    def together() -> dict[str, Any]:
        position, *_ = method.minimise(
            lambda position: partial(_step, system.normal(*parts(position))[0]),
            lambda position: system.loss(*parts(position), by=system.judge),
            torch.cat([weights.flatten(), *(value.view(1) for value in raw.values())]),
            steps,
            over,
        )
        own, unknowns = parts(position)
        return {"weights": own, "raw": unknowns, "loss": system.loss(own, unknowns)}

    def project() -> dict[str, Any]:
        # The weights that the search goes on from; where it is and where it was tried last, with their weights and factors.
        held, tried = weights, list[tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]]()

        def merit(position: Tensor) -> float:
            values = dict(zip(raw, position, strict=True))
            normal, _ = system.normal(held, values)
            try:
                solve = normal.factorised(_TINY)
            except np.linalg.LinAlgError:
                return math.inf
            # Beside where it is, the last one: that is where it goes, if anywhere.
            tried[1:] = [(position, held - solve(normal.border[:, -1:].contiguous()).view_as(weights), solve)]
            return system.loss(tried[-1][1], values)

        def linearise(position: Tensor) -> DampedStep:
            nonlocal held
            tried[:] = [each for each in tried if torch.equal(each[0], position)][-1:]
            if not tried:
                return lambda damping: None
            _, held, solve = tried[0]
            # The matrix of the weights is the same for all of them.
            normal, _ = system.normal(held, dict(zip(raw, position, strict=True)))
            return lambda damping: bordered_solve(normal, solve, damping)[1].clamp(-_FAR, _FAR)

        begin = torch.tensor([float(value) for value in raw.values()], dtype=torch.float64)
        position, loss, _ = method.minimise(linearise, merit, begin, steps, over)
        own = next((each[1] for each in reversed(tried) if torch.equal(each[0], position)), weights)
        return {"weights": own, "raw": dict(zip(raw, position, strict=True)), "loss": loss}

    found = (journal or Journal()).recalled(f"tiles with {len(weights)} functions", project if linear else together)
    return found["weights"], found["raw"], found["loss"]


@dataclass(frozen=True)
class ParameterCovariance:
    """What the rows say about the unknowns.

    Attributes:
        information: the Schur complement :math:`S = C - B^T N^{-1} B` of the unknowns, ``(q, q)``.
        variance: of a row that is a measurement.
        freedom: how many measurements are left when what they determine is taken away.
        move: what a further step would add to the unknowns, ``(q,)``.
        size: of the columns of the unknowns, ``(q,)``.
        dragged: the sensitivities of the weights to the unknowns, :math:`-N^{-1}B`, ``(width, F, q)``.
        drawn: how weights scatter where the unknowns are known: columns that make the covariance :math:`N^{-1}`, about, by
            normal draws, in units of a row's deviation, ``(width, F, k)``.
    """

    information: Tensor
    variance: float
    freedom: float
    move: Tensor
    size: Tensor
    dragged: Tensor
    drawn: Tensor

    def errors(self) -> Tensor:
        """Standard errors of the raw unknowns."""
        if not len(self.information):
            return self.information.new_zeros(0)
        return (self.variance * torch.linalg.pinv(self.information, hermitian=True).diagonal()).clamp_min(0).sqrt()


def spread(system: TilingSystem, weights: Tensor, raw: Mapping[str, Tensor], draws: int = 0) -> ParameterCovariance:
    r"""The information about the unknowns at a solution, the noise of the measurements, and how weights scatter with it.

    The degrees of freedom are the number of measurements less the trace of the hat matrix over them,
    :math:`\operatorname{tr} J_d (J^TJ)^{-1} J_d^T`: exact for a few hundred of them, by random signs z and
    :math:`E\,z^T A z = \operatorname{tr} A` for more.

    Reference: M. F. Hutchinson, A stochastic estimator of the trace of the influence matrix, Communications in Statistics
    18 (1989); G. Wahba, Bayesian "confidence intervals" for the cross-validated smoothing spline, Journal of the Royal
    Statistical Society B 45 (1983).
    """
    normal, _ = system.normal(weights, raw, pulled=False)
    solve = normal.factorised(_TINY)
    _, move, schur = bordered_solve(normal, solve)
    count = len(raw)
    rows, misfit, fitted = 0, 0.0, 0.0
    inner = solve(normal.border[:, :count].contiguous())
    noise, drawn = torch.Generator().manual_seed(0), torch.zeros(system.layout.width, draws, dtype=torch.float64)
    for placed in system.placed:
        measured = any(term.measured for term in placed.terms)
        if not measured and not draws:
            continue
        for term, (values, slopes, by_raw) in zip(placed.terms, placed.rows(weights, raw, slopes=True), strict=True):
            weight = system.weights[term.name]
            if draws:
                # Noise of all rows by their slopes has the covariance N.
                probes = torch.randn(len(slopes), draws, generator=noise, dtype=torch.float64)
                _add(drawn, placed, math.sqrt(weight) * slopes, probes)
            if not measured or term.name.startswith(PRIOR):
                # What was known before informs, and is no measurement.
                continue
            rows += placed.size
            misfit += weight * (float(values @ values) + placed.rest)
            fitted += _trace(system, placed, math.sqrt(weight) * slopes, math.sqrt(weight) * by_raw, solve, inner, schur)
    freedom = max(rows - fitted, 0.0)
    variance = misfit / freedom if freedom > 0.5 else math.inf
    shape, scattered = weights.shape, solve(drawn) / math.sqrt(max(draws, 1))
    size = normal.corner.diagonal()[:count]
    return ParameterCovariance(schur, variance, freedom, move, size, -inner.view(*shape, count), scattered.view(*shape, draws))


def _add(found: Tensor, placed: RowsOnTiles, slopes: Tensor, probes: Tensor) -> None:
    """Add the products of rows' slopes by all weights with vectors over these rows, ``(width, k)``."""
    columns = placed.columns()
    for group in placed.groups:
        found.index_add_(0, columns[group[0]], slopes[group].T @ probes[group])


def _trace(
    system: TilingSystem,
    placed: RowsOnTiles,
    slopes: Tensor,
    by_raw: Tensor,
    solve: Callable[[Tensor], Tensor],
    inner: Tensor,
    schur: Tensor,
) -> float:
    """The trace of the hat matrix over the rows of one residual."""
    size = len(slopes)
    if size <= _EXACT:
        probes, scale = torch.eye(size, dtype=torch.float64), 1.0
    else:
        signs = torch.randint(0, 2, (size, _PROBES), generator=torch.Generator().manual_seed(0))
        probes, scale = 2.0 * signs.double() - 1.0, 1 / _PROBES
    found = torch.zeros(system.layout.width, probes.shape[1], dtype=torch.float64)
    _add(found, placed, slopes, probes)
    right = by_raw.T @ probes - inner.T @ found
    unknown = torch.linalg.pinv(schur, hermitian=True) @ right if len(schur) else right
    return scale * float((found * solve(found)).sum() + (right * unknown).sum())
