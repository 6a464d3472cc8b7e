r"""Null space: changes of the fields that no equation and no condition sees, such as rigid motions of a body without supports.

Of polynomials p of low degree, rows linearised at the solution, :math:`R'(\tilde u)\,p`, are compared with p itself: where the
smallest singular value is rounding, one of them may be added to the solution, and what a solver returned is chance. Constants
that are left open by the form of the equations are found before anything is solved; see ``well_posedness``.

Reference: G. H. Golub and C. F. Van Loan, Matrix Computations, 4th edition, Johns Hopkins 2013, section 5.4 (rank deficiency).
"""

from __future__ import annotations

import numpy as np
import torch

from sciml._text import listed
from sciml.diagnostics.estimated_error import corrected_rows, root_mean_squares, significant
from sciml.geometry import Interior, draw
from sciml.models import Scaled, Spectral
from sciml.solvers import DiscreteProblem
from sciml.solvers.batching import predicted
from sciml.solvers.discrete_problem import blocks_of

# Polynomials that hold rotations and shears, of so many coordinates at most; points of rows for each, and of their values.
_DEGREE, _MOST_COORDINATES, _POINTS_EACH, _PROBES = 2, 3, 8, 2048
# Singular values that are rounding, as parts of the largest; the share of a field in a direction that is told.
_UNSEEN, _TOLD = 1e-12, 1e-3


def free_directions(setup: DiscreteProblem, seed: int = 0) -> dict[str, str]:
    """Numerical rank deficiency of a solved problem: the fields that equations and conditions leave open, and why.

    Problems with measurements, unknown constants or more than three coordinates are not looked at.
    """
    problem, count = setup.problem, len(setup.problem.coordinates)
    if setup.measurements is not None or setup.raw or count > _MOST_COORDINATES:
        return {}
    model = Spectral(_DEGREE)
    model.build(count, len(problem.fields), torch.Generator())
    points = draw(Interior(), problem.domain, _PROBES, np.random.default_rng([seed, 53])).points[0]
    unit = significant(root_mean_squares(problem, points, predicted(setup.trial, points)).tolist(), setup.trial)
    trial = Scaled(model, problem.domain.lower, problem.domain.upper, [0.0] * len(unit), unit)
    blocks = blocks_of(problem, problem.terms(), _POINTS_EACH * model.basis.width, np.random.default_rng([seed, 54]))
    values = model.basis((points - trial.center) / trial.half_width)
    slopes = corrected_rows(setup, problem, trial, blocks, dict(setup.scales), dict(setup.weights)).linearised()[1].cpu()
    # A field that does not live somewhere may be anything there.
    lives = [problem.lives_at(name, points) for name in problem.fields]
    if min(int(own.sum()) for own in lives) < model.basis.width:
        return {}
    triangle = torch.block_diag(*(torch.linalg.qr(values[own] / int(own.sum()) ** 0.5, mode="r").R for own in lives))
    if not bool(torch.isfinite(slopes).all()) or not bool((triangle.diagonal().abs() > _UNSEEN).all()):
        return {}
    seen = torch.linalg.solve_triangular(triangle, slopes, upper=True, left=False)
    _, sizes, right = torch.linalg.svd(torch.linalg.qr(seen, mode="r").R)
    unseen = right[int((sizes > _UNSEEN * sizes[0]).sum()) :]
    if not len(unseen):
        return {}
    shares = unseen.unflatten(1, (len(unit), -1)).norm(dim=2).amax(0)
    open_ones = [name for name, share in zip(problem.fields, shares, strict=True) if share > _TOLD]
    why = (
        f"{listed(open_ones)} can be moved along polynomials of degree {_DEGREE} or less that no equation or condition sees, "
        f"{len(unseen)} of them: add as many conditions, such as sciml.Point"
    )
    return dict.fromkeys(open_ones, why)
