r"""How well rows determine parameters and unknowns: singular values of the Jacobian, and the unknowns' own part of it.

With A the derivative of the scaled rows by the model's parameters and B that by the unknowns, the part of B that no change of
the model imitates is :math:`B^\perp = (I - UU^T)B`, U being a basis of the range of A. Where the norm of a column of it is
small beside that of B, or the columns are nearly dependent, unknowns are hardly determined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from sciml.solvers import Objective
from sciml.typing import Array

_KEPT = 1e-11

_DIGITS = 1e-8


@dataclass(frozen=True)
class Conditioning:
    """The Jacobian of the rows at the present parameters.

    Attributes:
        jacobian: one row: ``rows``, ``parameters``, ``rank`` (of double precision), ``largest`` and ``smallest`` singular
            value, ``condition``, and ``reachable``, the share of the loss that the best linear step would take away.
        spectrum: the singular values, indexed from 0.
        unknowns: indexed by name: ``value``, ``own`` (the share of its column that the model cannot imitate),
            ``expected`` (what that would be of random numbers; 0 where the model imitates everything), ``weakest`` (how
            much of it is in the direction that is determined worst), ``singular`` (the singular value of that direction by the
            largest of the unknowns' columns), ``correlated`` (the unknown it is most correlated with) and ``correlation``.
    """

    jacobian: pd.DataFrame
    spectrum: pd.DataFrame
    unknowns: pd.DataFrame


def conditioning(objective: Objective) -> Conditioning:
    """The singular values of a loss's Jacobian and what they say of the unknowns.

    Args:
        objective: the loss; its rows and parameters should be some thousands at most.
    """
    values, slopes = (each.detach().double().cpu() for each in objective.linearised())
    finite = torch.isfinite(values) & torch.isfinite(slopes).all(dim=1)
    values, slopes = values[finite], slopes[finite]
    left, singular, _ = torch.linalg.svd(slopes, full_matrices=False)
    largest = float(singular[0]) if len(singular) else 0.0
    kept = singular > _DIGITS * largest
    rank = int((singular > max(slopes.shape) * torch.finfo(torch.float64).eps * largest).sum())
    loss = float(values.square().sum())
    gone = float((left[:, kept].T @ values).square().sum())
    smallest = float(singular[-1]) if len(singular) else 0.0
    row = {
        "rows": len(values),
        "parameters": slopes.shape[1],
        "rank": rank,
        "largest": largest,
        "smallest": smallest,
        "condition": largest / smallest if smallest > 0 else float("inf"),
        "reachable": gone / loss if loss > 0 else 0.0,
    }
    unknowns = objective.rows.values()
    width = slopes.shape[1] - len(unknowns)
    table = _unknowns(
        list(unknowns),
        [float(each.detach()) for each in unknowns.values()],
        slopes[:, :width].numpy(),
        slopes[:, width:].numpy(),
    )
    return Conditioning(pd.DataFrame([row]), pd.DataFrame({"singular": singular.numpy()}), table)


def _unknowns(names: Sequence[str], values: Sequence[float], model: Array, own: Array) -> pd.DataFrame:
    columns = ["value", "own", "expected", "weakest", "singular", "correlated", "correlation"]
    if not names:
        return pd.DataFrame(columns=columns)
    rest, expected = own, 1.0
    if model.shape[1]:
        left, singular, _ = np.linalg.svd(model, full_matrices=False)
        basis = left[:, singular > _KEPT * singular[0]]
        rest = own - basis @ (basis.T @ own)
        expected = float(np.sqrt(max(0, len(own) - basis.shape[1] - own.shape[1]) / max(len(own), 1)))
    norms, seen = np.linalg.norm(own, axis=0), np.linalg.norm(rest, axis=0)
    _, singular, right = np.linalg.svd(rest, full_matrices=True)
    whole = np.concatenate([singular, np.zeros(len(names) - len(singular))])
    floor = max(float(norms.max()), 1e-300)
    covariance = (right.T * (1 / np.maximum(whole, 1e-12 * floor)) ** 2) @ right
    sizes = np.sqrt(np.diag(covariance))
    correlations = covariance / np.outer(sizes, sizes)
    rows = {}
    for place, name in enumerate(names):
        others = np.where(np.arange(len(names)) == place, 0.0, np.abs(correlations[place]))
        partner = int(others.argmax())
        rows[name] = {
            "value": values[place],
            "own": float(seen[place] / norms[place]) if norms[place] > 0 else 0.0,
            "expected": expected,
            "weakest": float(abs(right[-1, place])),
            "singular": float(whole[-1] / floor),
            "correlated": names[partner] if len(names) > 1 else "",
            "correlation": float(correlations[place, partner]) if len(names) > 1 else 0.0,
        }
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)
