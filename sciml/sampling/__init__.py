"""Points at which residuals are asked to vanish."""

from sciml.sampling.points import Sample, default_count, default_face_count, draw

__all__ = ["Sample", "default_count", "default_face_count", "draw"]
