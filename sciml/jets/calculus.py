r"""``d``, the total derivative on jet space: derivatives of any expression, from any supplier of jets.

A residual is evaluated on *jets*: for every field a table ``{multi-index: values}`` and the coordinates, all of shape
``(n,)``. For an expression ``e`` that is pointwise in coordinates and jets, the chain rule gives

.. math::  D_x e = \partial e/\partial x + \sum_k (\partial e/\partial u_k)\, u_{k+x},

with the sum over the jets that ``e`` depends on. The partial derivatives are one reverse sweep over ``(n,)`` vectors;
the next jets come from a *supplier*, which may be a network, a grid or a formula. So one residual function serves all.

Reference: P. J. Olver, Applications of Lie Groups to Differential Equations, 2nd ed., Springer 1993, section 2.3.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed, nearest
from sciml.errors import ProblemError
from sciml.typing import MultiIndex, Values

# Numbers of a tensor that are looked at.
_SOME = 256

SPACE = "_sciml_jet_space"


class Supplier(Protocol):
    """A supplier of jets: provides partial derivatives of fields at points."""

    def jet(self, field: str, index: MultiIndex) -> Values:
        """The partial derivative ``index`` of ``field``, shape ``(n,)``; ``()`` is the field itself.

        ``index`` is sorted in the order of the problem's coordinates.
        """


class JetSpace:
    """The coordinates and jets at one set of points, as one evaluation of residuals sees them.

    Args:
        coordinates: each coordinate's values, shape ``(n,)``, in the problem's order.
        fields: the names of the fields.
        supplier: provides the jets when they are asked for.

    Attributes:
        jets: those asked for so far, by field and multi-index. Every one is a fresh alias, so that partial derivatives with
            respect to it stop there and do not run on into the trial function behind it.
        differentiated: a list, if who evaluates wants to have what ``d`` differentiates, with the coordinate.
    """

    def __init__(self, coordinates: Mapping[str, Tensor], fields: Sequence[str], supplier: Supplier) -> None:
        self.fields = tuple(fields)
        self.coordinates: dict[str, Tensor] = {}
        self._supplier = supplier
        self.jets: dict[tuple[str, MultiIndex], Tensor] = {}
        self.differentiated: list[tuple[str, Tensor]] | None = None
        self._pairs: dict[tuple[str, str, MultiIndex], Tensor] = {}
        for name, values in coordinates.items():
            alias = values.detach().view_as(values).requires_grad_()
            # A weak reference, because a strong one would close a cycle and keep every graph until the collector runs.
            setattr(alias, SPACE, (weakref.ref(self), name))
            self.coordinates[name] = alias
        self._order = {name: position for position, name in enumerate(self.coordinates)}
        self.size = len(next(iter(self.coordinates.values())))

    def jet(self, field: str, index: MultiIndex = ()) -> Tensor:
        """The partial derivative ``index`` of ``field`` at the points, shape ``(n,)``."""
        key = (field, tuple(sorted(index, key=self._order.__getitem__)))
        if key not in self.jets:
            values = self._supplier.jet(*key)
            alias = values.view_as(values)
            if not alias.requires_grad:
                alias = alias.detach().requires_grad_()
            self.jets[key] = alias
        return self.jets[key]

    def named(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Fields and coordinates by name, as a residual function receives them."""
        return {name: self.coordinates[name] if name in self.coordinates else self.jet(name) for name in names}

    def paired(self, real: str, imaginary: str, index: MultiIndex = ()) -> Tensor:
        """The partial derivative ``index`` of the complex field with these two parts, shape ``(n,)``."""
        key = (real, imaginary, tuple(sorted(index, key=self._order.__getitem__)))
        if key not in self._pairs:
            self._pairs[key] = torch.complex(self.jet(real, index), self.jet(imaginary, index))
        return self._pairs[key]

    def derivative(self, expression: object, names: MultiIndex) -> Tensor:
        """The total derivative of ``expression`` by the coordinates named, one after the other."""
        if isinstance(expression, Tensor) and expression.is_complex():
            for (real, imaginary, index), known in self._pairs.items():
                if known is expression:
                    return self.paired(real, imaginary, index + names)
            self._check_shape(expression)
            return torch.complex(self.derivative(expression.real, names), self.derivative(expression.imag, names))
        if not isinstance(expression, Tensor):
            return torch.zeros_like(next(iter(self.coordinates.values())).detach())
        for (field, index), known in self.jets.items():
            if known is expression:
                return self.jet(field, index + names)
        self._check_shape(expression)
        for name in names:
            expression = self._total(expression, name)
        return expression

    def _total(self, expression: Tensor, name: str) -> Tensor:
        if self.differentiated is not None:
            self.differentiated.append((name, expression.detach()))
        if not expression.requires_grad:
            return torch.zeros_like(expression)
        known = list(self.jets.items())
        inputs = [self.coordinates[name], *(values for _, values in known)]
        explicit, *partials = torch.autograd.grad(expression.sum(), inputs, create_graph=True, allow_unused=True)
        total = torch.zeros_like(expression) if explicit is None else explicit
        for ((field, index), _), partial in zip(known, partials, strict=True):
            if partial is not None:
                total = total + partial * self.jet(field, (*index, name))
        return total

    def _check_shape(self, expression: Tensor) -> None:
        if expression.shape not in ((self.size,), ()):
            raise ProblemError(
                f"d() was given an expression of shape {tuple(expression.shape)}, but fields and coordinates have shape "
                f"({self.size},): keep every operation pointwise, without [:, None], reshape or reductions"
            )


def d(expression: Any, *coordinates: Tensor) -> Any:
    """The total derivative of an expression by one or more coordinates, inside a residual.

    ``d(u, x)`` is u_x, ``d(u, x, x)`` u_xx, ``d(u, x, t)`` u_xt; expressions may be anything pointwise in fields,
    their derivatives and coordinates: ``d(k(x) * d(u, x), x)``, ``d(u * u / 2, x)``. That of a complex expression is made of
    those of its real and imaginary part, that of a tuple, as a vector is, of those of its components.

    Args:
        expression: a tensor of shape ``(n,)`` made of the residual's arguments, real or complex, a number, or a tuple of these.
        coordinates: one or more of the coordinates that the residual received, each as it was received.

    Returns:
        A tensor of shape ``(n,)``, or a tuple of them; its unit is that of the expression divided by those of the coordinates.

    Raises:
        ProblemError: no coordinate or something else was given, or the expression is not of shape ``(n,)``.

    Example:
        >>> import torch, sciml
        >>> from sciml import d
        >>> class Decay(sciml.Problem):
        ...     domain = sciml.Interval(t=(0, 1))
        ...     fields = ["u"]
        ...     @sciml.equation
        ...     def decay(self, u, t):
        ...         return d(torch.exp(t) * u, t)
        >>> residual = Decay().residuals(lambda t: {"u": torch.exp(-t)}, t=[0.0, 0.5, 1.0])["decay"]
        >>> bool(abs(residual).max() < 1e-15)
        True
    """
    if not coordinates:
        raise ProblemError("d() needs at least one coordinate to differentiate by, as in d(u, x) or d(u, x, x)")
    spaces, names = zip(*(_space_and_name(position, value) for position, value in enumerate(coordinates)), strict=True)
    if any(space is not spaces[0] for space in spaces):
        raise ProblemError("d() got coordinates of two different evaluations: use those of the same residual call")
    if isinstance(expression, tuple | list):
        return tuple(spaces[0].derivative(each, names) for each in expression)
    return spaces[0].derivative(expression, names)


def _space_and_name(position: int, value: object) -> tuple[JetSpace, str]:
    reference, name = getattr(value, SPACE, (None, ""))
    space = reference() if reference is not None else None
    if space is None:
        given = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ProblemError(
            f"argument {position + 2} of d() must be a coordinate exactly as the residual received it, not a name, a "
            f"field or a result of arithmetic; given: {given}"
        )
    return space, name


def is_exact(value: Tensor) -> bool:
    """True if numbers of a lower precision are what was meant by them, as 0.5 and 1e9 are and 0.1 is not."""
    some = np.unique(value.detach().float().cpu().flatten().numpy())[:_SOME]
    # The shortest text that stands for a number is what was meant by it.
    meant = np.array([float(str(each)) for each in some])
    return bool((~np.isfinite(meant) | (meant == some.astype(np.float64))).all())


def check_precision(what: str, value: Tensor, like: Tensor, *, given: bool = False) -> None:
    """Refuse values in a coarser floating-point type than the coordinates have, by a ProblemError with the usual cause.

    Where they are ``given``, and not computed with, numbers that are the same in both types are no mistake.
    """
    coarse = value.is_floating_point() and torch.finfo(value.dtype).eps > torch.finfo(like.dtype).eps
    if coarse and not (given and is_exact(value)):
        raise ProblemError(
            f"{what} came back in {value.dtype} although coordinates have {like.dtype}: somewhere a tensor was created in "
            "torch's default type (torch.tensor(0.1), torch.where(..., 1.0, 0.1)); make it from a coordinate, as in "
            "torch.ones_like(x), or give dtype=x.dtype"
        )


def check_residual(name: str, value: object, space: JetSpace) -> Tensor:
    """The value that a residual returned, if it is a tensor of shape ``(n,)`` in the precision of the coordinates."""
    size = space.size
    if not isinstance(value, Tensor):
        hint = " (a return statement is missing)" if value is None else ""
        raise ProblemError(f"residual {name!r} must return a tensor (n,); it returned {type(value).__name__}{hint}")
    if not value.is_floating_point():
        raise ProblemError(
            f"residual {name!r} returned {value.dtype}; expected real floating-point numbers (a complex equation is taken "
            'apart where it asks for a complex field by its name: complex_fields = {"h": ("u", "v")} in the class)'
        )
    if value.shape != (size,):
        usual = {
            2: "usually an (n,) was combined with an (n, 1)",
            0: "usually a mean, a sum or a constant was returned",
        }
        cause = usual.get(value.ndim, "residuals are pointwise")
        raise ProblemError(
            f"residual {name!r} returned shape {tuple(value.shape)} at {size} points, expected ({size},): {cause}; "
            "fields and coordinates arrive with shape (n,) and every operation should keep it"
        )
    check_precision(f"residual {name!r}", value, next(iter(space.coordinates.values())))
    return value


def describe(field: str, index: MultiIndex) -> str:
    """A derivative as people write it: ``u_xt``."""
    return field if not index else f"{field}_{''.join(index)}"


def check_names(
    what: str, names: Sequence[str], fields: Sequence[str], coordinates: Sequence[str], constants: Collection[str] = ()
) -> None:
    """Refuse names that are neither fields nor coordinates, by a ProblemError; constants are had by another way."""
    for name in names:
        if name in constants:
            raise ProblemError(f"{what} asks for {name!r}, a constant: take the argument self, and self.{name}")
        if name not in fields and name not in coordinates:
            raise ProblemError(
                f"{what} asks for {name!r}, which is neither a field nor a coordinate; fields: {listed(fields)}; "
                f"coordinates: {listed(coordinates)}.{nearest(name, (*fields, *coordinates))}"
            )
