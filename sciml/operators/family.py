"""Parametric families of differential equations: problems whose inputs are functions or constants, drawn or given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed, nearest
from sciml.data import GridField
from sciml.errors import DataError, ProblemError
from sciml.geometry import Box
from sciml.operators.random_fields import drawn
from sciml.problem import Problem
from sciml.problem.boundary_conditions import Initial
from sciml.problem.functions import named
from sciml.solvers.discrete_problem import wave_columns
from sciml.typing import Array

Inputs = Mapping[str, Any]
Axes = dict[str, Array]

_NODES = {1: 128, 2: 33, 3: 17}


@dataclass(frozen=True)
class _Input:
    """What varies: where the problem takes it, the coordinates that it depends on, and how it is drawn."""

    name: str
    kind: str
    coordinates: tuple[str, ...]
    sampler: Any


class Family:
    r"""A parametric family of problems, the domain of a solution operator: an input function or constant to a solution.

    A sample of the family is a problem like any other: ``family.problem(initial={"u": f}, nu=0.1)``.

    Args:
        problem: the problem; what varies takes the place of what it has.
        initial: for fields with an ``Initial`` condition, how the initial values are drawn.
        inputs: by name, how constants and functions of the problem are drawn: a pair ``(low, high)``, evenly, for a constant;
            a ``GaussianField``, or a callable of a NumPy generator that returns a function of torch tensors, for a function
            that the equations call, as in ``self.a(x, y)``. The problem's class declares it: ``a = None``, or a function.
        over: the coordinates that a function of ``inputs`` is called with, by its name; by default those of space.

    Raises:
        ProblemError: nothing varies, a name that the problem does not have, a range that is none, or a domain that is no box.

    Example:
        >>> import torch, sciml
        >>> from sciml import d, operators
        >>> class Heat(sciml.Problem):
        ...     domain = sciml.Box(x=(0, 1), t=(0, 0.1))
        ...     fields = ["u"]
        ...     kappa = 1.0
        ...     conditions = [sciml.Initial(u=0.0), sciml.Periodic("x")]
        ...     @sciml.equation
        ...     def heat(self, u, x, t):
        ...         return d(u, t) - self.kappa * d(u, x, x)
        >>> family = operators.Family(Heat(), initial={"u": operators.GaussianField(periodic=True)}, kappa=(0.5, 2.0))
        >>> family.names
        ('initial.u', 'kappa')
        >>> family.problem(initial={"u": lambda x: torch.sin(2 * torch.pi * x)}, kappa=1.5)
        Heat(kappa=1.5)

    Reference: N. Kovachki et al., Neural operator: learning maps between function spaces, Journal of Machine Learning Research
    24 (2023).
    """

    def __init__(
        self,
        problem: Problem,
        *,
        initial: Mapping[str, Any] | None = None,
        over: Mapping[str, Sequence[str]] | None = None,
        **inputs: Any,
    ) -> None:
        if not isinstance(problem, Problem):
            raise ProblemError(f"Family needs a problem; given: {problem!r}")
        if not isinstance(problem.domain, Box):
            raise ProblemError(f"Family needs a problem on a box: fields are stored on grids; its domain is {problem.domain!r}")
        space = tuple(name for name in problem.coordinates if name != problem.time)
        starts = [condition for condition in problem.conditions if isinstance(condition, Initial)]
        given = {name for condition in starts for name in condition.targets}
        found = []
        for field, sampler in (initial or {}).items():
            if field not in given:
                raise ProblemError(
                    f"initial: {type(problem).__name__} has no initial values of {field!r}; it has {listed(given)}"
                )
            found.append(_Input(f"initial.{field}", "initial", space, sampler))
        for name, sampler in inputs.items():
            constants = problem.constants
            if isinstance(sampler, tuple) and len(sampler) == 2 and all(isinstance(each, int | float) for each in sampler):
                if name not in constants:
                    raise ProblemError(f"{type(problem).__name__} has no constant {name!r}.{nearest(name, constants)}")
                if not sampler[0] < sampler[1]:
                    raise ProblemError(f"{name} needs a range (low, high) with low < high; given: {sampler!r}")
                found.append(_Input(name, "constant", (), sampler))
            elif not hasattr(type(problem), name):
                raise ProblemError(f"{type(problem).__name__} does not have {name!r}: declare it in the class, {name} = None")
            else:
                found.append(_Input(name, "function", tuple((over or {}).get(name, space)), sampler))
        if not found:
            raise ProblemError("a Family varies nothing: give initial={field: GaussianField(...)}, or ranges of constants")
        self.base, self.varied = problem, tuple(found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs, as in ``Pairs.inputs``."""
        return tuple(each.name for each in self.varied)

    @property
    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """The coordinates that each input depends on; none for a constant."""
        return {each.name: each.coordinates for each in self.varied}

    @property
    def periodic(self) -> tuple[str, ...]:
        """The coordinates along which all fields are periodic."""
        return tuple(self.base.coordinates[column] for column in wave_columns(self.base))

    def bounds(self, coordinates: Sequence[str]) -> dict[str, tuple[float, float]]:
        """The bounds of some coordinates."""
        return {name: self.base.domain.bounds[name] for name in coordinates}

    def axes(self, coordinates: Sequence[str], grid: Mapping[str, Any] | None = None) -> Axes:
        """The nodes of a grid: ``grid`` gives their number or themselves; the end of a period is left out."""
        found, around = {}, self.periodic
        for name in coordinates:
            nodes = (grid or {}).get(name, _NODES.get(len(coordinates), 9))
            found[name] = nodes_on(nodes, self.base.domain.bounds[name], periodic=name in around)
            if found[name].ndim != 1 or not np.isfinite(found[name]).all() or (np.diff(found[name]) <= 0).any():
                raise ProblemError(f"grid: the nodes of {name} must be a number or increase; given: {nodes!r}")
        return found

    def draw(self, generator: np.random.Generator) -> dict[str, Any]:
        """Inputs by name: numbers and functions."""
        found: dict[str, Any] = {}
        for each in self.varied:
            if each.kind == "constant":
                found[each.name] = float(generator.uniform(*each.sampler))
            else:
                found[each.name] = drawn(each.sampler, each.name, self.bounds(each.coordinates), generator)
        return found

    def problem(self, initial: Mapping[str, Any] | None = None, **inputs: Any) -> Problem:
        """The problem with these inputs: numbers, functions of torch tensors, or values on the nodes of ``axes``."""
        return self.posed(by_name(initial, inputs, self.names, "the inputs of this family"))

    def posed(self, inputs: Inputs) -> Problem:
        """The problem with inputs by name."""
        constants: dict[str, Any] = {}
        functions: dict[str, Any] = {}
        starts: dict[str, Any] = {}
        for each in self.varied:
            value = inputs[each.name]
            if each.kind == "constant":
                constants[each.name] = float(value)
                continue
            function = with_names(value if callable(value) else self.interpolated(each, value), each.coordinates)
            (starts if each.kind == "initial" else functions)[each.name.removeprefix("initial.")] = function
        return self.base.bind(**constants).supplied(functions, starts)

    @staticmethod
    def on_axes(name: str, value: Any, axes: Axes) -> Array:
        """The values of an input function at all combinations of nodes."""
        if not callable(value):
            values = np.asarray(value, dtype=float)
            shape = tuple(len(nodes) for nodes in axes.values())
            if values.shape != shape:
                raise DataError(f"{name} needs values of the shape {shape}, as its grid has; given: {values.shape}")
            return values
        if hasattr(value, "on_grid"):
            return value.on_grid(*axes.values())
        points = [torch.from_numpy(column.copy()) for column in mesh_points(axes).T]
        found = value(*points)
        values = found.detach().numpy() if isinstance(found, Tensor) else np.asarray(found, dtype=float)
        return np.broadcast_to(values, points[0].shape).reshape([len(nodes) for nodes in axes.values()])

    def interpolated(self, each: _Input, values: Any) -> Callable[..., Tensor]:
        """Values on nodes as a function; along a period they are repeated beyond its end."""
        values = np.asarray(values, dtype=float)
        axes = self.axes(each.coordinates, dict(zip(each.coordinates, values.shape, strict=True)))
        for column, name in enumerate(each.coordinates):
            if name in self.periodic:
                extra = min(8, len(axes[name]) - 1)
                period = float(np.ptp(self.base.domain.bounds[name]))
                nodes = axes[name]
                axes[name] = np.concatenate([nodes[-extra:] - period, nodes, nodes[: extra + 1] + period])
                take = [np.arange(len(nodes))[-extra:], np.arange(len(nodes)), np.arange(extra + 1)]
                values = np.take(values, np.concatenate(take), axis=column)
        return GridField(axes, values, order=5 if min(values.shape) > 5 else 1, name=each.name)


def nodes_on(given: Any, bounds: tuple[float, float], *, periodic: bool) -> Array:
    """The nodes along a coordinate by their number or themselves; the end of a period is left out."""
    if isinstance(given, int):
        low, high = bounds
        given = low + (high - low) * np.arange(given) / given if periodic else np.linspace(low, high, given)
    return np.asarray(given, dtype=float)


def by_name(initial: Mapping[str, Any] | None, inputs: Inputs, names: Sequence[str], what: str) -> dict[str, Any]:
    """Inputs as a user gives them, by their names; all of them, and nothing else."""
    found = {**{f"initial.{field}": value for field, value in (initial or {}).items()}, **inputs}
    if set(found) != set(names):
        raise ProblemError(f"{what} are {listed(names)}; given: {listed(found) or 'none'}")
    return {name: found[name] for name in names}


def mesh_points(axes: Axes) -> Array:
    """All combinations of the nodes of axes, ``(points, D)``, the last one running fastest."""
    return np.stack([column.ravel() for column in np.meshgrid(*axes.values(), indexing="ij")], axis=1)


def with_names(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """A function whose parameters are called like coordinates."""

    def called(*columns: Tensor, **given: Tensor) -> Tensor:
        return function(*columns, *(given[name] for name in names[len(columns) :]))

    called.__name__ = getattr(function, "__name__", "input")
    return named(called, names)
