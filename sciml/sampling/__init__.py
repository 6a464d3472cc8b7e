"""Points at which residuals are asked to vanish."""

from sciml.sampling.points import Sample, default_counts, draw

__all__ = ["Sample", "default_counts", "draw"]
