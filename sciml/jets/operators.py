"""Operators of vector analysis in Cartesian coordinates, made of ``d``."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from sciml.errors import ProblemError
from sciml.jets.calculus import d


def grad(expression: object, *coordinates: Tensor) -> tuple[Tensor, ...]:
    r"""The gradient :math:`(\partial_x e, \partial_y e, \dots)` of an expression, inside a residual.

    Args:
        expression: as for ``d``.
        coordinates: the coordinates to differentiate by, as the residual received them.

    Returns:
        A derivative of shape ``(n,)`` for each coordinate, in the expression's unit by the coordinate's.

    Raises:
        ProblemError: as for ``d``.

    Example:
        >>> import sciml
        >>> class Darcy(sciml.Problem):
        ...     domain = sciml.Box(x=(0, 1), y=(0, 1))
        ...     fields = ["p"]
        ...     @sciml.equation
        ...     def seepage(self, p, x, y):
        ...         px, py = sciml.grad(p, x, y)
        ...         return sciml.div(((1 + x) * px, (1 + x) * py), x, y)
        >>> Darcy().order("p", "y")
        2
    """
    if not coordinates:
        raise ProblemError("grad() needs the coordinates to differentiate by, as in grad(u, x, y)")
    return tuple(d(expression, coordinate) for coordinate in coordinates)


def div(vector: Sequence[Any], *coordinates: Tensor) -> Tensor:
    r"""The divergence :math:`\sum_i \partial v_i/\partial x_i` of a vector, inside a residual.

    Args:
        vector: as many expressions as there are coordinates.
        coordinates: the coordinates, in the order of the components.

    Returns:
        Shape ``(n,)``, in the components' unit by the coordinates'.

    Raises:
        ProblemError: another number of components than of coordinates; as for ``d``.

    Example:
        >>> import sciml
        >>> class Incompressible(sciml.Problem):
        ...     domain = sciml.Box(x=(0, 1), y=(0, 1))
        ...     fields = ["u", "v"]
        ...     vectors = {"velocity": ("u", "v")}
        ...     @sciml.equation
        ...     def continuity(self, velocity, x, y):
        ...         return sciml.div(velocity, x, y)
        >>> residual = Incompressible().residuals(lambda x, y: {"u": x * x, "v": -2 * x * y}, x=0.3, y=[0.1, 0.2])
        >>> residual["continuity"].tolist()
        [0.0, 0.0]
    """
    _check("div", vector, coordinates)
    return functools.reduce(operator.add, map(d, vector, coordinates))


def curl(vector: Sequence[Any], *coordinates: Tensor) -> Any:
    r"""The curl of a vector, inside a residual: in the plane :math:`\partial_x v - \partial_y u`, in space a vector.

    Args:
        vector: two or three expressions.
        coordinates: as many coordinates.

    Returns:
        In the plane a tensor of shape ``(n,)``, in space a tuple of three, in the components' unit by the coordinates'.

    Raises:
        ProblemError: neither two nor three components, or another number of coordinates; as for ``d``.

    Example:
        >>> import sciml
        >>> class Still(sciml.Problem):
        ...     domain = sciml.Box(x=(0, 1), y=(0, 1))
        ...     fields = ["u", "v"]
        ...     vectors = {"velocity": ("u", "v")}
        ...     @sciml.equation
        ...     def irrotational(self, velocity, x, y):
        ...         return sciml.curl(velocity, x, y)
        >>> Still().residuals(lambda x, y: {"u": -y, "v": x}, x=0.3, y=[0.1, 0.2])["irrotational"].tolist()
        [2.0, 2.0]
    """
    _check("curl", vector, coordinates)
    if len(vector) == 2:
        return d(vector[1], coordinates[0]) - d(vector[0], coordinates[1])
    if len(vector) != 3:
        raise ProblemError(f"curl() takes two or three components; given: {len(vector)}")
    (u, v, w), (x, y, z) = vector, coordinates
    return d(w, y) - d(v, z), d(u, z) - d(w, x), d(v, x) - d(u, y)


def laplacian(expression: object, *coordinates: Tensor) -> Tensor:
    r"""The Laplacian :math:`\sum_i \partial^2 e/\partial x_i^2` of an expression, inside a residual.

    Args:
        expression: as for ``d``.
        coordinates: the Cartesian coordinates to sum over.

    Returns:
        Shape ``(n,)``, in the expression's unit by the square of the coordinates'.

    Raises:
        ProblemError: as for ``d``.

    Example:
        >>> import sciml
        >>> class Membrane(sciml.Problem):
        ...     domain = sciml.Disk((0, 0), 1)
        ...     fields = ["u"]
        ...     @sciml.equation
        ...     def load(self, u, x, y):
        ...         return sciml.laplacian(u, x, y) + 4.0
        >>> Membrane().residuals(lambda x, y: 1 - x * x - y * y, x=0.3, y=[0.1, 0.2])["load"].tolist()
        [0.0, 0.0]
    """
    if not coordinates:
        raise ProblemError("laplacian() needs the coordinates to differentiate by, as in laplacian(u, x, y)")
    return functools.reduce(operator.add, (d(expression, each, each) for each in coordinates))


def _check(what: str, vector: object, coordinates: Sequence[Tensor]) -> None:
    if not isinstance(vector, tuple | list) or len(vector) != len(coordinates) or not coordinates:
        given = f"{len(vector)} components" if isinstance(vector, tuple | list) else type(vector).__name__
        raise ProblemError(
            f"{what}() takes a vector with a component for each coordinate, as in {what}((u, v), x, y); given: {given} and "
            f"{len(coordinates)} coordinate(s)"
        )
