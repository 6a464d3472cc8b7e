"""Standard errors of unknown constants from the linearised least-squares problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from sciml.jacobian import jacobian
from sciml.rows import Block, Rows
from sciml.sampling import Sample
from sciml.typing import Array
from sciml.unknowns import Unknown

_MOST_POINTS = 256
_STIFFNESS = 1e3


@dataclass(frozen=True)
class Estimate:
    """An unknown's value, standard error and 95 % interval, in its unit; infinite where nothing determines it."""

    value: float
    standard_error: float
    low: float
    high: float


def estimates(
    unknowns: dict[str, Unknown], raw: Array, model_part: Array, raw_part: Array, misfit: Array, measured: Array
) -> dict[str, Estimate]:
    r"""Estimates with intervals from the Jacobian of all rows at the solution.

    With the model's parameters eliminated, what the measurements say about the raw unknowns is
    :math:`B^\perp = (I - UU^T)B` with :math:`U` a basis of the range of the model's Jacobian; the covariance is
    :math:`s^2 (B^{\perp T} B^\perp)^{-1}`, with :math:`s^2` the squared misfit over the degrees of freedom, which are the
    number of measurements less the trace of the hat matrix over them. Intervals are Student's, symmetric in the raw
    number, and so respect the bounds of an unknown.

    Args:
        unknowns: the unknowns by name.
        raw: their raw numbers, shape ``(q,)``.
        model_part: derivative of the rows by the model's parameters, shape ``(m, p)``.
        raw_part: derivative of the rows by the raw unknowns, shape ``(m, q)``.
        misfit: the rows, shape ``(m,)``.
        measured: which rows are measurements, shape ``(m,)``, boolean.

    Returns:
        An estimate for each unknown.

    Reference: G. A. F. Seber and C. J. Wild, Nonlinear Regression, Wiley 1989, chapters 2 and 5.
    """
    if model_part.shape[1]:
        left, singular, _ = np.linalg.svd(model_part, full_matrices=False)
        basis = left[:, singular > 1e-11 * singular[0]]
        rest = raw_part - basis @ (basis.T @ raw_part)
    else:
        basis, rest = np.zeros((len(misfit), 0)), raw_part
    left, singular, right = np.linalg.svd(rest, full_matrices=False)
    scale = np.linalg.norm(raw_part[measured]) if model_part.shape[1] == 0 else 1.0
    seen = singular > 1e-10 * max(singular[0], scale, 1e-300)
    fitted = float((basis[measured] ** 2).sum() + (left[measured][:, seen] ** 2).sum())
    freedom = max(float(measured.sum()) - fitted, 0.0)
    variance = float((misfit[measured] ** 2).sum()) / freedom if freedom > 0.5 else math.inf
    inverse = np.where(seen, 1.0 / np.where(seen, singular, 1.0), 0.0)
    covariance = variance * (right.T * inverse**2) @ right
    blind = (np.abs(right[~seen]) > 1e-6).any(axis=0) if (~seen).any() else np.zeros(len(raw), dtype=bool)
    quantile = float(stats.t.ppf(0.975, max(freedom, 1.0)))
    found = {}
    for position, (name, unknown) in enumerate(unknowns.items()):
        error = (
            math.inf if blind[position] or not math.isfinite(variance) else math.sqrt(covariance[position, position])
        )
        found[name] = _estimate(unknown, float(raw[position]), error, quantile)
    return found


def _estimate(unknown: Unknown, raw: float, error: float, quantile: float) -> Estimate:
    at = torch.tensor(raw, dtype=torch.float64, requires_grad=True)
    value = unknown.value(at)
    (slope,) = torch.autograd.grad(value, at)
    if not math.isfinite(error):
        low = -math.inf if unknown.lower is None else unknown.lower
        high = math.inf if unknown.upper is None else unknown.upper
        return Estimate(float(value.detach()), math.inf, low, high)
    ends = torch.tensor([raw - quantile * error, raw + quantile * error], dtype=torch.float64)
    low, high = sorted(unknown.value(ends).tolist())
    return Estimate(float(value.detach()), abs(float(slope)) * error, low, high)


def from_rows(
    rows: Rows, blocks: Sequence[Block], scales: dict[str, float], parameters: Sequence[Tensor]
) -> dict[str, Estimate]:
    """Estimates at a trained trial function, the equations and conditions counting as exact.

    Every residual that is not a measurement enters with a weight so large that the measurements can hardly bend it: then
    the tangent space of the model that satisfies the linearised problem is what the measurements choose from, and the
    result is that of shooting. At most some hundred points of each block are used.

    Raises:
        RuntimeError: as torch does, when the model's backward pass cannot be batched even row by row.
    """
    thin = [_thin(block) for block in blocks]
    factors, measured = {}, []
    for block in thin:
        for term in block.terms:
            factors[term.name] = (1.0 if term.measured else _STIFFNESS / math.sqrt(block.size)) / scales[term.name]
            measured.append(torch.full((block.size,), term.measured))
    values, slopes = jacobian(rows, thin, factors, parameters)
    split = slopes.shape[1] - len(rows.raw)
    slopes = slopes.double().cpu()
    return estimates(
        rows.problem.unknowns,
        torch.stack([value.detach() for value in rows.raw.values()]).double().cpu().numpy(),
        slopes[:, :split].numpy(),
        slopes[:, split:].numpy(),
        values.double().cpu().numpy(),
        torch.cat(measured).numpy(),
    )


def _thin(block: Block) -> Block:
    """Measurements as they are; other blocks with at most some hundred points."""
    if any(term.measured for term in block.terms):
        return block
    step = -(-block.size // _MOST_POINTS)
    sample = block.sample
    normals = None if sample.normals is None else sample.normals[::step]
    return Block(Sample(tuple(points[::step] for points in sample.points), normals), block.terms)
