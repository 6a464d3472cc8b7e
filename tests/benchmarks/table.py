"""All benchmarks in the order of their rows, and the rows that are left out."""

from . import corners, evolution, flow, kernels, linear, ordinary, space
from .case import Case

CASES: dict[str, Case] = {
    case.name: case
    for case in sorted(
        (*linear.CASES, *corners.CASES, *evolution.CASES, *flow.CASES, *ordinary.CASES, *kernels.CASES, *space.CASES),
        key=lambda case: case.row,
    )
}
LEFT_OUT: dict[int, str] = {}
