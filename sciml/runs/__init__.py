"""What survives the process: directories, checkpoints, saved solutions, reports."""

from sciml.runs.checkpoint import CheckpointEvery
from sciml.runs.directory import RunDirectory
from sciml.runs.history import read_lines
from sciml.runs.index import table
from sciml.runs.save import load

__all__ = ["CheckpointEvery", "RunDirectory", "load", "read_lines", "table"]
