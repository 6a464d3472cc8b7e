r"""Least squares whose equations are nearly exact: steps of the stiff problem, judged by a softer one.

Where equations weigh :math:`10^4` times as much as measurements, their solutions form a narrow curved valley, and
steps that must lower that loss can only be as long as the valley is straight. A step to the bottom of the
*linearised* valley is a good one all the same: what it violates of the equations is quadratic in its length and is
gone after the next. So it is accepted when it lowers a loss in which equations weigh far less.

Reference: H. G. Bock, E. Kostina and J. P. Schloeder, On the role of natural level functions to achieve global convergence for
damped Newton methods, in System Modelling and Optimization, Kluwer 2000.
"""

from __future__ import annotations

import math

import torch

from sciml.objective import Objective

_TRIALS = 8
_LEAST, _FIRST = 1e-14, 1e-3
_SLOW, _IDLE = 1e-5, 2


def descend(stiff: Objective, soft: Objective, stiffness: float, steps: int) -> int:
    """Damped Gauss-Newton steps of the stiff objective for as long as they lower the soft one.

    Args:
        stiff: rows and Jacobian of the steps.
        soft: the same rows with other weights; it has the same parameters.
        stiffness: how many times less measurements weigh in the stiff one; damping is in proportion to them.
        steps: the most steps.

    Returns:
        The steps taken; the parameters are those of the last one.
    """
    value, damping, idle = soft.value(), _FIRST, 0
    for count in range(steps):
        position = stiff.vector()
        rows, slopes = stiff.linearised()
        norms = slopes.norm(dim=0)
        norms = torch.where(norms > 0, norms, torch.ones_like(norms))
        slopes = slopes / norms
        unit = torch.eye(len(norms), dtype=rows.dtype, device=rows.device)
        right = torch.cat([-rows, rows.new_zeros(len(norms))])[:, None]
        for _ in range(_TRIALS):
            whole = torch.cat([slopes, math.sqrt(damping * stiffness) * unit])
            # Not torch's default, gelsy, whose pivots begin as what memory held before: the same call gave other bits.
            move = torch.linalg.lstsq(whole, right, driver="gels").solution[:, 0] / norms
            stiff.assign(position + move)
            reached = soft.value()
            if reached < value:
                damping = max(damping / 10, _LEAST)
                break
            damping *= 10
        else:
            stiff.assign(position)
            return count
        idle = idle + 1 if value - reached < _SLOW * value else 0
        value = reached
        if idle >= _IDLE:
            return count + 1
    return steps
