"""Classical solvers (SciPy) behind the same problem class."""

from sciml.baselines.baseline import baseline

__all__ = ["baseline"]
