"""What watches a fit while it runs."""

from sciml.callbacks.progress import ProgressLine
from sciml.callbacks.stopping import EarlyStopping
from sciml.callbacks.tracker import Tracker
from sciml.callbacks.watch import Callback, Look

__all__ = ["Callback", "EarlyStopping", "Look", "ProgressLine", "Tracker"]
