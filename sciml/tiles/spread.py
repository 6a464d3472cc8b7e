"""How far the unknowns may be off: the covariance from the normal equations, the weights of the tiling eliminated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sciml.misfit import PRIOR
from sciml.tiles.condensed import Factor
from sciml.tiles.newton import bordered_solve
from sciml.tiles.system import Placed, System

_EXACT = 256
_PROBES = 64
_TINY = 1e-13


@dataclass(frozen=True)
class Spread:
    r"""What the rows say about the unknowns.

    Attributes:
        information: the Schur complement :math:`S = C - B^T N^{-1} B` of the unknowns, ``(q, q)``.
        variance: of a row that is a measurement.
        freedom: how many measurements are left when what they determine is taken away.
        move: what a further step would add to the unknowns, ``(q,)``.
        size: of the columns of the unknowns, ``(q,)``.
    """

    information: Tensor
    variance: float
    freedom: float
    move: Tensor
    size: Tensor

    def errors(self) -> Tensor:
        """Standard errors of the raw unknowns."""
        if not len(self.information):
            return self.information.new_zeros(0)
        return (self.variance * torch.linalg.pinv(self.information, hermitian=True).diagonal()).clamp_min(0).sqrt()


def spread(system: System, weights: Tensor, raw: Mapping[str, Tensor]) -> Spread:
    r"""The information about the unknowns at a solution, and the noise of the measurements.

    The degrees of freedom are the number of measurements less the trace of the hat matrix over them,
    :math:`\operatorname{tr} J_d (J^TJ)^{-1} J_d^T`: exact for a few hundred of them, by random signs z and
    :math:`E\,z^T A z = \operatorname{tr} A` for more.

    Reference: M. F. Hutchinson, A stochastic estimator of the trace of the influence matrix, Communications in Statistics
    18 (1989); G. Wahba, Bayesian "confidence intervals" for the cross-validated smoothing spline, Journal of the Royal
    Statistical Society B 45 (1983).
    """
    normal, _ = system.normal(weights, raw, pulled=False)
    factor = normal.factorised(_TINY)
    _, move, schur = bordered_solve(normal, factor)
    count = len(raw)
    measured = [placed for placed in system.placed if any(term.measured for term in placed.block.terms)]
    rows, misfit, fitted = 0, 0.0, 0.0
    inner = factor.solve(normal.border[:, :count].contiguous())
    for placed in measured:
        for number, term in enumerate(placed.block.terms):
            if term.name.startswith(PRIOR):
                # What was known before informs, and is no measurement.
                continue
            values, slopes, by_raw = placed.rows(weights, raw, slopes=True)[number]
            share = system.weights[term.name]
            rows += len(values)
            misfit += share * float(values @ values)
            fitted += _trace(system, placed, math.sqrt(share) * slopes, math.sqrt(share) * by_raw, factor, inner, schur)
    freedom = max(rows - fitted, 0.0)
    variance = misfit / freedom if freedom > 0.5 else math.inf
    return Spread(schur, variance, freedom, move, normal.corner.diagonal()[:count])


def _trace(
    system: System, placed: Placed, slopes: Tensor, by_raw: Tensor, factor: Factor, inner: Tensor, schur: Tensor
) -> float:
    """The trace of the hat matrix over the rows of one residual."""
    size = len(slopes)
    if size <= _EXACT:
        probes, share = torch.eye(size, dtype=torch.float64), 1.0
    else:
        signs = torch.randint(0, 2, (size, _PROBES), generator=torch.Generator().manual_seed(0))
        probes, share = 2.0 * signs.double() - 1.0, 1 / _PROBES
    columns = placed.columns()
    found = torch.zeros(system.layout.width, probes.shape[1], dtype=torch.float64)
    for start in range(0, size, _EXACT):
        part = slice(start, start + _EXACT)
        spread_out = slopes[part, :, None] * probes[part, None, :]
        found.index_add_(0, columns[part].flatten(), spread_out.flatten(0, 1))
    right = by_raw.T @ probes - inner.T @ found
    unknown = torch.linalg.pinv(schur, hermitian=True) @ right if len(schur) else right
    return share * float((found * factor.solve(found)).sum() + (right * unknown).sum())
