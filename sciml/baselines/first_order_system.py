r"""First-order system of ordinary differential equations, derived from the residuals of a problem in one coordinate.

Every residual must be affine in the highest derivatives :math:`h`: :math:`r = c(t, y) + M(t, y)\,h`, so that
:math:`h = -M^{-1}c`. The columns of :math:`M` are differences of residuals at unit vectors; one evaluation on a batch of
points gives :math:`c` and :math:`M` for a whole batch of states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed
from sciml.baselines.numpy_program import NumpyProgram, numpy_program
from sciml.errors import BaselineError
from sciml.jets.calculus import JetSpace, check_residual, describe
from sciml.problem import Dirichlet, Initial, Problem
from sciml.problem.conditions import Evaluation, target_values
from sciml.problem.functions import argument_names, evaluated
from sciml.problem.pulses import pulses
from sciml.typing import Array, MultiIndex, Target, Values

_LARGE = 1e4
# After so many evaluations a trace of the equations is worth its time; how far rates by it may be from those of the equations.
_TRACED, _APART = 50, 1e-9

# A field and an order of its derivative.
StateEntry: TypeAlias = tuple[str, int]


class _StateJets:
    """Jets that are already known: the state and its highest derivatives."""

    def __init__(self, table: Mapping[StateEntry, Tensor]) -> None:
        self._table = table

    def jet(self, field: str, index: MultiIndex) -> Values:
        if (field, len(index)) not in self._table:
            raise BaselineError(f"a condition or column needs {describe(field, index)}, which is no part of the state")
        return self._table[field, len(index)]


class FirstOrderSystem:
    """The state :math:`y` of a problem (each field and its derivatives below the highest), and its rate of change."""

    def __init__(self, problem: Problem) -> None:
        name, self.problem = type(problem).__name__, problem
        (self.coordinate,) = problem.coordinates
        self.orders = {field: problem.order(field, self.coordinate) for field in problem.fields}
        algebraic = [field for field, order in self.orders.items() if order == 0]
        if algebraic:
            raise BaselineError(f"{name} contains no derivative of {listed(algebraic)}; this baseline needs one of every field")
        if len(problem.equations) != len(problem.fields):
            raise BaselineError(
                f"{name} has {len(problem.equations)} equation(s) for {len(problem.fields)} field(s); as many are needed"
            )
        self.state = tuple((field, order) for field in problem.fields for order in range(self.orders[field]))
        self._terms = [term for term in problem.terms() if term.name in problem.equations]
        self.prescribed = initial_values(problem, self.state, self.coordinate)
        self._below, self._above = into_state(self.state, self.orders)
        self._units = np.eye(len(self.orders), len(self.orders) + 1, k=1)
        self._asked, self._programs = 0, dict[tuple[str, ...], NumpyProgram | None]()
        self._check_affine()
        self.stops = pulses(problem)[1]

    def rate(self, t: Array, y: Array, constants: Mapping[str, Tensor]) -> Array:
        """The rates ``(S, n)`` of states ``(S, n)`` at ``t`` ``(n,)``, with constants ``()`` or ``(n,)``."""
        count, size = len(self.orders), y.shape[1]
        # One batch: first with all highest derivatives zero, then with each of them one.
        unit, copies = 1.0, count + 1
        times, states = np.concatenate([t] * copies), np.concatenate([y] * copies, axis=1)
        repeated = {name: value.repeat(copies) if value.ndim else value for name, value in constants.items()}
        while True:
            residuals = self._residuals(times, states, unit * self._units.repeat(size, axis=1), repeated)
            parts = residuals.reshape(count, copies, size)
            constant = parts[:, 0]
            # Beside large residuals a unit is lost in rounding: as large a step it is then, for they are affine.
            needed = np.abs(constant).max()
            if not _LARGE * unit < needed < np.inf:
                break
            unit = needed
        mass = (parts[:, 1:] - constant[:, None]).transpose(2, 0, 1) / unit
        top = -np.linalg.solve(mass, constant.T[:, :, None])[:, :, 0]
        return self._below @ y + self._above @ top.T

    def confirmed(self, t: Array, y: Array, constants: Mapping[str, Tensor]) -> bool:
        """Whether rates by a program are those of the equations; where they are not, there is none any more."""
        programs = dict(self._programs)
        if programs.get(tuple(constants)) is None:
            return True
        found = self.rate(t, y, constants)
        self._programs[tuple(constants)] = None
        wanted = self.rate(t, y, constants)
        size = np.abs(wanted).max(axis=1, keepdims=True, initial=0.0, where=np.isfinite(wanted))
        if same := bool(np.isclose(found, wanted, rtol=_APART, atol=_APART * size, equal_nan=True).all()):
            self._programs = programs
        return same

    def evaluation(self, t: Array, y: Array, constants: Mapping[str, Tensor]) -> Evaluation:
        """What a measurement is evaluated on: states and their rates of change, arguments as for ``rate``."""
        rates = self.rate(t, y, constants)
        highest = [rates[self.state.index((field, order - 1))] for field, order in self.orders.items()]
        return self._at(_tensors([t, *y, *highest]), constants)

    def _residuals(self, t: Array, y: Array, highest: Array, constants: Mapping[str, Tensor]) -> Array:
        """The residuals ``(F, n)``, with highest derivatives ``(F, n)``, other arguments as for ``rate``."""
        names = tuple(constants)
        columns = [t, *y, *highest, *(value.detach().numpy() for value in constants.values())]

        def residuals(columns: Sequence[Tensor]) -> list[Tensor]:
            known = len(columns) - len(names)
            at = self._at(columns[:known], dict(zip(names, columns[known:], strict=True)))
            return [term.evaluate(at).detach() for term in self._terms]

        self._asked += 1
        if self._asked > _TRACED and names not in self._programs:
            self._programs[names] = numpy_program(residuals, columns)
        program = self._programs.get(names)
        return np.stack([each.numpy() for each in residuals(_tensors(columns))]) if program is None else program(columns)

    def _at(self, columns: Sequence[Tensor], constants: Mapping[str, Tensor]) -> Evaluation:
        """An evaluation at times, states and highest derivatives ``(n,)``, in this order, or at the first few of these."""
        jets = _StateJets(dict(zip([*self.state, *self.orders.items()], columns[1:], strict=False)))
        problem = self.problem.bind(**constants) if constants else self.problem
        return Evaluation(problem, (JetSpace({self.coordinate: columns[0]}, problem.fields, jets),))

    def why_not_finite(self, t: Array, y: Array, constants: Mapping[str, Tensor]) -> str:
        """Which equation has no finite value at some states, where and with which state; arguments as for ``rate``."""
        residuals = self._residuals(t, y, np.zeros((len(self.orders), y.shape[1])), constants)
        row, column = next(iter(np.argwhere(~np.isfinite(residuals))), (None, 0))
        state = ", ".join(
            f"{describe(field, (self.coordinate,) * order)} = {value:.4g}"
            for (field, order), value in zip(self.state, y[:, column], strict=True)
        )
        what = "the rate of change" if row is None else f"the equation {self._terms[row].name!r}"
        return (
            f"{what} is not finite at {self.coordinate} = {t[column]:.6g}, where {state}: a root, logarithm or quotient "
            "outside of where it has a value, or a state that left it"
        )

    def event(self, name: str, function: Callable[..., Tensor]) -> Callable[[float, Array], float]:
        """A function of fields and the coordinate by name as one of time and state."""
        names = argument_names(function)

        def value(t: float, y: Array) -> float:
            space = self._at(_tensors([np.array([t]), *y[:, None]]), {}).space
            found = evaluated(f"event {name!r}", function, space.named(names))
            return float(check_residual(name, found, space).detach())

        return value

    def _check_affine(self) -> None:
        generator = np.random.default_rng(0)
        low, high = self.problem.domain.bounds[self.coordinate]
        size, count = 5, len(self.orders)
        t = generator.uniform(low, high, size)
        y = generator.uniform(0.5, 1.5, (len(self.state), size))
        constants = {name: torch.tensor(value.initial, dtype=torch.float64) for name, value in self.problem.unknowns.items()}
        first, second = generator.uniform(0.5, 1.5, (2, count, size))
        check_affine(self.problem, lambda h: self._residuals(t, y, h, constants), first, second)

    def initial(self, constants: Mapping[str, Tensor], size: int) -> Array:
        """The prescribed part of a batch of initial states, shape ``(len(self.state), size)``; NaN where nothing is."""
        start = np.full(size, self.problem.domain.bounds[self.coordinate][0])
        at, state = self._at(_tensors([start]), constants), np.full((len(self.state), size), np.nan)
        for key, target in self.prescribed.items():
            what = describe(key[0], (self.coordinate,) * key[1])
            state[self.state.index(key)] = target_values(what, target, at).detach().numpy()
        return state


def _tensors(columns: Sequence[Array]) -> list[Tensor]:
    return [torch.from_numpy(each.copy()) for each in columns]


def into_state(levels: Sequence[StateEntry], top: Mapping[str, int]) -> tuple[Array, Array]:
    """The matrices that make the rate of change of a state from the state itself and from the highest derivatives."""
    below, above = (
        [[float(other == (name, order + 1)) for other in others] for name, order in levels]
        for others in (levels, tuple(top.items()))
    )
    return np.array(below), np.array(above)


def initial_values(problem: Problem, levels: Sequence[StateEntry], coordinate: str) -> dict[StateEntry, Target]:
    """What initial conditions, and Dirichlet conditions in one coordinate, prescribe of a state at the start."""
    found: dict[StateEntry, Target] = {}
    for condition in problem.conditions:
        if isinstance(condition, Initial) or (isinstance(condition, Dirichlet) and len(problem.coordinates) == 1):
            given = [term.prescription for term in condition.terms(problem)]
            found |= {(each.field, len(each.index)): each.target for each in given if each is not None}
    extra = [describe(field, (coordinate,) * order) for field, order in found if (field, order) not in levels]
    if extra:
        raise BaselineError(f"an initial value of {listed(extra)} is no part of the state")
    return found


def check_affine(
    problem: Problem,
    residuals: Callable[[Array], Array],
    one: Array,
    other: Array,
    what: str = "highest derivative",
    rounding: float = 1e-9,
) -> None:
    """Refuse residuals that are not affine in the highest derivatives: that at a mean is the mean of those of both."""
    values = [residuals(each) for each in (one, other, (one + other) / 2)]
    gap = np.abs(values[2] - (values[0] + values[1]) / 2)
    # Where random states lie outside of what the equations are made for, they tell nothing.
    finite = np.isfinite(gap)
    sizes = np.where(finite, np.abs(values[0]) + np.abs(values[1]), 0.0)
    if not (gap <= rounding * (1 + sizes.max(axis=-1, keepdims=True, initial=0.0)))[finite].all():
        raise BaselineError(f"{type(problem).__name__}: an equation is not affine in its {what}, so it cannot be solved for it")
