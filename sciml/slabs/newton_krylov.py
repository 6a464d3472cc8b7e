"""Newton-Krylov method for a slab of time: each step by GMRES on what an approximate inverse leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml.slabs.system import Evaluated, Site, Slab
from sciml.typing import Array

_STEPS = 10
_INNER = 1e-3
_MOST_INNER = 30
_STALLED = 0.5
# How closely, and by how many products at most, the equation for the error is solved.
_ROUGHLY, _FEW = 0.1, 8
_SETTLED, _ROUNDING = 1e-6, 1e-7


# From residuals ``(p, elements, q)`` to rates ``(p, F, width)`` that make them, approximately.
Inverse = Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class SlabRates:
    """The highest time derivatives at the stages, ``(p, F, width)``, whether they were found, and what it took.

    ``inverse`` is the approximate inverse that was used last and ``evaluated`` the residuals with their derivatives; a journal
    keeps everything else, the ``state``. Where steps stalled, ``left`` is what one would still move, as a share of the rates.
    """

    rates: Tensor
    converged: bool
    steps: int
    products: int
    left: float = math.inf
    inverse: Inverse | None = field(default=None, compare=False)
    evaluated: Sequence[Evaluated] = field(default=(), compare=False)

    @property
    def state(self) -> dict[str, Any]:
        """Tensors and plain values."""
        names = ("rates", "converged", "steps", "products", "left")
        return {name: getattr(self, name) for name in names}


class OutOfTimeError(Exception):
    """Time was over before a slab was solved."""


def solve(
    slab: Slab[Any],
    sites: Sequence[Site],
    inverted: Callable[[Sequence[Evaluated]], Inverse],
    tolerance: float,
    start: Tensor | None = None,
    over: Callable[[], bool] = lambda: False,
) -> SlabRates:
    """Make all residuals vanish at the stages, in the sense of an approximate inverse of their Jacobian.

    It begins with rates of zero, or those of ``start``, and ends when a step moves the fields by less than ``tolerance``.
    ``OutOfTimeError`` where time is ``over`` before.
    """
    rates = slab.zero() if start is None else start
    evaluated = slab.evaluate(sites, rates, slopes=True)
    if not _finite(evaluated):
        return SlabRates(slab.zero(), False, 0, 0)
    inverse, renewed = inverted(evaluated), True
    earlier, products, used = math.inf, 0, 0
    for step in range(1, _STEPS + 1):
        if used == _MOST_INNER and not renewed:
            # Fields without a time derivative begin at zero, where equations may be of another kind: begin again from here.
            inverse, renewed, earlier = inverted(evaluated), True, math.inf
        wanted = -inverse([each.values for each in evaluated])
        left = float(moves(slab, wanted).norm()) / math.sqrt(wanted.numel())
        if not math.isfinite(left):
            return SlabRates(slab.zero(), False, step, products)
        if left <= tolerance:
            found = rates + wanted
            # What the start leaves says nothing of what rates leave that were found in one step.
            evaluated = slab.evaluate(sites, found, slopes=True) if step == 1 else evaluated
            return SlabRates(found, True, step, products, inverse=inverse, evaluated=evaluated)
        # Newton's first step may go far astray, and the second one only half way back.
        if left > (_STALLED if step > 2 else 1.0) * earlier:
            # Rounding, or divergence. What rounding leaves is judged by the residual between the points.
            size = float(moves(slab, rates).norm()) / math.sqrt(rates.numel())
            settled = left <= max(_SETTLED, _ROUNDING * size)
            return SlabRates(rates, settled, step, products, left / max(size, 1e-300), inverse, evaluated)
        earlier = left

        linearised = partial(_linearised, slab, inverse, evaluated)
        move, used = gmres(linearised, wanted.flatten(), _INNER, _MOST_INNER, over)
        products += used
        renewed = False
        rates = rates + move.view_as(rates)
        evaluated = slab.evaluate(sites, rates, slopes=True)
        if not _finite(evaluated):
            return SlabRates(slab.zero(), False, step, products)
    return SlabRates(rates, False, _STEPS, products)


def driven(
    slab: Slab[Any],
    solved: SlabRates,
    sources: Sequence[Tensor],
    starts: tuple[Tensor, ...],
    tolerance: float = _ROUGHLY,
    most: int = _FEW,
    over: Callable[[], bool] = lambda: False,
) -> tuple[Slab[Any], Tensor]:
    r"""A posteriori error in a slab, or a sensitivity, by the linearised equations: a slab that it starts in, and its rates.

    Residuals r, the ``sources``, and what there is at the start drive it: :math:`R'(u)\,\delta = -r`, of errors to a tenth.
    """
    assert solved.inverse is not None
    error, evaluated = replace(slab, starts=starts), solved.evaluated
    right = [one + two for one, two in zip(error.product(evaluated, error.zero(), started=True), sources, strict=True)]
    wanted = -solved.inverse(right)
    if solved.products < solved.steps:
        # One product was enough for every step of Newton's method: the inverse is one.
        return error, wanted
    rates, _ = gmres(partial(_linearised, slab, solved.inverse, evaluated), wanted.flatten(), tolerance, most, over)
    return error, rates.view_as(wanted)


def _linearised(slab: Slab[Any], inverse: Inverse, evaluated: Sequence[Evaluated], direction: Tensor) -> Tensor:
    """The approximate inverse of the Jacobian times the Jacobian times a direction, both flat."""
    rates = direction.view(slab.stages.count, len(slab.orders), slab.mesh.width)
    return inverse(slab.product(evaluated, rates)).flatten()


def _finite(evaluated: Sequence[Evaluated]) -> bool:
    return all(
        bool(values.isfinite().all()) for each in evaluated for values in (each.values, *(part.slopes for part in each.parts))
    )


def moves(slab: Slab[Any], rates: Tensor) -> Tensor:
    """By how much rates move the fields within the slab."""
    scale = [slab.length**order for order in slab.orders]
    return rates * torch.tensor(scale, dtype=rates.dtype)[:, None]


def gmres(
    product: Callable[[Tensor], Tensor], wanted: Tensor, tolerance: float, most: int, over: Callable[[], bool] = lambda: False
) -> tuple[Tensor, int]:
    """The solution of a linear system by the method of generalised minimal residuals, and the number of products.

    It ends at the tolerance, or after ``most`` products; ``OutOfTimeError`` where time is ``over`` before.

    Reference: Y. Saad and M. H. Schultz, SIAM Journal on Scientific and Statistical Computing 7 (1986).
    """
    size = float(wanted.norm())
    if size == 0:
        return torch.zeros_like(wanted), 0
    basis = wanted.new_empty(most + 1, len(wanted))
    basis[0] = wanted / size
    upper = np.zeros((most + 1, most))
    coefficients: Array = np.zeros(0)
    right = np.zeros(most + 1)
    right[0] = size
    count = 0
    while count < most:
        following = product(basis[count])
        known = basis[: count + 1]
        for _ in range(2):
            parts = known @ following
            following = following - parts @ known
            upper[: count + 1, count] += parts.numpy()
        upper[count + 1, count] = float(following.norm())
        count += 1
        coefficients, *_ = np.linalg.lstsq(upper[: count + 1, :count], right[: count + 1], rcond=None)
        left = np.linalg.norm(upper[: count + 1, :count] @ coefficients - right[: count + 1])
        exhausted = upper[count, count - 1] <= 1e-14 * np.linalg.norm(upper[: count + 1, count - 1])
        if left <= tolerance * size or exhausted or not math.isfinite(left):
            break
        if over():
            raise OutOfTimeError
        basis[count] = following / upper[count, count - 1]
    return torch.from_numpy(coefficients) @ basis[:count], count
