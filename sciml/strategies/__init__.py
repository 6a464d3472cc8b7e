"""Ways from a compiled problem to a solved model, and which of them are tried."""

from sciml.strategies.polish import Polish
from sciml.strategies.time_marching import Windows

__all__ = ["Polish", "Windows"]
