"""The certificate of a solution: its residuals on points that nothing was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from sciml.misfit import is_measured
from sciml.rows import Block, Rows


def certificate(rows: Rows, blocks: Sequence[Block], scales: Mapping[str, float]) -> pd.DataFrame:
    """The size of every residual at the points of some blocks.

    Returns:
        A DataFrame indexed by term: ``rms`` and ``max`` in the residual's unit, ``relative`` (rms by natural size), and
        the number of ``points``.
    """
    found = {}
    for name, values in rows.numbers(blocks).items():
        sizes = values.double().abs()
        rms = float(sizes.square().mean().sqrt())
        found[name] = {"rms": rms, "max": float(sizes.max()), "relative": rms / scales[name], "points": len(sizes)}
    return pd.DataFrame.from_dict(found, orient="index", columns=["rms", "max", "relative", "points"])


def failures(residuals: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """The terms, measurements excepted, whose relative residual is not below the tolerance."""
    own = residuals[[not is_measured(str(name)) for name in residuals.index]]
    return own[~(own["relative"] <= tolerance)]
