"""All benchmarks in the order of their rows, and the rows that are left out."""

from . import evolution, flow, kernels, linear, ordinary
from .case import Case

CASES: dict[str, Case] = {
    case.name: case
    for case in sorted(
        (*linear.CASES, *evolution.CASES, *flow.CASES, *ordinary.CASES, *kernels.CASES), key=lambda case: case.row
    )
}
LEFT_OUT = {6: "Poisson on the L, f = 1: domains are boxes so far, and the L is none"}
