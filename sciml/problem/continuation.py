"""Continuation in the length of the domain: a boundary-value problem on short domains, where little of it is nonlinear."""

from __future__ import annotations

from collections.abc import Iterator

from sciml.geometry import Average, Interior, OnFaces
from sciml.problem.problem import Problem

# Shares of the length on which a solution is looked for, one after another.
_SHARES = (1 / 16, 1 / 8, 1 / 4, 0.35, 0.5, 0.7, 0.85)


def shorter(problem: Problem) -> Iterator[tuple[float, Problem]]:
    """Homotopy: shares of the length of an interval, and the problem on it; none where it is something else.

    On a short interval highest derivatives outweigh everything else, and there is one solution: where there are several on the
    whole, continuation leads to that which follows from it, as that of a boundary layer on a long one. Intervals grow from the
    end, or the place, that is nearest to zero.

    Reference: E. L. Allgower and K. Georg, Introduction to Numerical Continuation Methods, SIAM 2003, chapter 1.
    """
    places = {type(term.place) for term in problem.terms()}
    if (
        len(problem.coordinates) != 1
        or problem.time is not None
        or problem.unknowns
        or not places <= {Interior, OnFaces, Average}
    ):
        return
    ((name, (low, high)),) = problem.domain.bounds.items()
    at = min(max(0.0, low), high)
    for share in _SHARES:
        yield share, problem.on(problem.domain.between(name, at + share * (low - at), at + share * (high - at)))
