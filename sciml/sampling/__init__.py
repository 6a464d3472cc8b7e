"""Points at which residuals are asked to vanish."""

from sciml.sampling.clustered import Layout, clustered
from sciml.sampling.points import Sample, default_count, default_face_count, draw

__all__ = ["Layout", "Sample", "clustered", "default_count", "default_face_count", "draw"]
