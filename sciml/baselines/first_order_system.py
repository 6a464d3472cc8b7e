r"""A problem in one coordinate as a first-order system, derived from its own residuals.

Every residual must be affine in the highest derivatives :math:`h`: :math:`r = c(t, y) + M(t, y)\,h`, so that
:math:`h = -M^{-1}c`. The columns of :math:`M` are differences of residuals at unit vectors; one evaluation on a batch of
points gives :math:`c` and :math:`M` for a whole batch of states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed
from sciml.errors import BaselineError
from sciml.geometry import Face, OnFaces
from sciml.jets import JetSpace, orders_asked
from sciml.jets.calculus import check_residual, describe
from sciml.problem import Dirichlet, Initial, Neumann, Problem
from sciml.problem.conditions import Evaluation, target_values
from sciml.problem.functions import argument_names, evaluated
from sciml.typing import Array, MultiIndex, Target, Values

_LARGE = 1e4


class _StateJets:
    """Jets that are already known: the state and its highest derivatives."""

    def __init__(self, table: Mapping[tuple[str, int], Tensor]) -> None:
        self._table = table

    def jet(self, field: str, index: MultiIndex) -> Values:
        if (field, len(index)) not in self._table:
            raise BaselineError(f"a condition or column needs {describe(field, index)}, which is no part of the state")
        return self._table[(field, len(index))]


class FirstOrderSystem:
    """The state :math:`y` of a problem (each field and its derivatives below the highest), and its rate of change.

    Args:
        problem: a problem in one coordinate.

    Raises:
        BaselineError: more than one coordinate, a different number of equations and fields, a field without derivative,
            or residuals that are not affine in the highest derivatives.
    """

    def __init__(self, problem: Problem) -> None:
        name = type(problem).__name__
        if len(problem.coordinates) != 1:
            raise BaselineError(
                f"{name} has the coordinates {listed(problem.coordinates)}; this baseline integrates problems in "
                "one coordinate"
            )
        self.problem = problem
        (self.coordinate,) = problem.coordinates
        found = orders_asked(problem.asked(), self.coordinate)
        self.orders = {field: found.get(field, 0) for field in problem.fields}
        algebraic = [field for field, order in self.orders.items() if order == 0]
        if algebraic:
            raise BaselineError(
                f"{name} contains no derivative of {listed(algebraic)}; this baseline needs one of every field"
            )
        if len(problem.equations) != len(problem.fields):
            raise BaselineError(
                f"{name} has {len(problem.equations)} equation(s) for {len(problem.fields)} field(s); as many are needed"
            )
        self.state = tuple((field, order) for field in problem.fields for order in range(self.orders[field]))
        self._terms = [term for term in problem.terms() if term.name in problem.equations]
        self._check_affine()

    def rate(self, t: Array, y: Array, constants: Mapping[str, Tensor]) -> Array:
        """The derivative of the state.

        Args:
            t: the coordinate, shape ``(n,)``.
            y: the states, shape ``(len(self.state), n)``.
            constants: values of the unknowns, each of shape ``()`` or ``(n,)``.

        Returns:
            Shape ``(len(self.state), n)``.

        Raises:
            numpy.linalg.LinAlgError: the highest derivatives are not determined (a singular mass matrix).
        """
        count, size = len(self.orders), y.shape[1]
        # One batch: first with all highest derivatives zero, then with each of them one.
        unit = 1.0
        while True:
            highest = np.repeat(np.vstack([np.zeros(count), unit * np.eye(count)]), size, axis=0)
            residuals = self._residuals(np.tile(t, count + 1), np.tile(y, count + 1), highest.T, constants, count + 1)
            parts = residuals.reshape(count, count + 1, size)
            constant = parts[:, 0]
            # Beside large residuals a unit is lost in rounding: as large a step it is then, for they are affine.
            needed = np.abs(constant).max()
            if not _LARGE * unit < needed < np.inf:
                break
            unit = needed
        mass = (parts[:, 1:] - constant[:, None]).transpose(2, 0, 1) / unit
        top = -np.linalg.solve(mass, constant.T[:, :, None])[:, :, 0]
        rate = np.empty_like(y)
        row = 0
        for position, order in enumerate(self.orders.values()):
            rate[row : row + order - 1] = y[row + 1 : row + order]
            rate[row + order - 1] = top[:, position]
            row += order
        return rate

    def scene(self, t: Array, y: Array, constants: Mapping[str, Tensor]) -> Evaluation:
        """What a measurement is evaluated on: states and their rates of change, arguments as for ``rate``."""
        rates = self.rate(t, y, constants)
        table = {key: torch.from_numpy(y[row].copy()) for row, key in enumerate(self.state)}
        for field, order in self.orders.items():
            table[(field, order)] = torch.from_numpy(rates[self.state.index((field, order - 1))].copy())
        space = JetSpace({self.coordinate: torch.from_numpy(t.copy())}, self.problem.fields, _StateJets(table))
        return Evaluation(self.problem.bind(**constants), (space,))

    def _residuals(self, t: Array, y: Array, highest: Array, constants: Mapping[str, Tensor], copies: int) -> Array:
        table = {key: torch.from_numpy(y[row].copy()) for row, key in enumerate(self.state)}
        for row, (field, order) in enumerate(self.orders.items()):
            table[(field, order)] = torch.from_numpy(highest[row].copy())
        repeated = {name: value.repeat(copies) if value.ndim else value for name, value in constants.items()}
        space = JetSpace({self.coordinate: torch.from_numpy(t.copy())}, self.problem.fields, _StateJets(table))
        scene = Evaluation(self.problem.bind(**repeated), (space,))
        return np.stack([term.evaluate(scene).detach().numpy() for term in self._terms])

    def why_not_finite(self, t: Array, y: Array, constants: Mapping[str, Tensor]) -> str:
        """Which equation has no finite value at some states, where and with which state; arguments as for ``rate``."""
        residuals = self._residuals(t, y, np.zeros((len(self.orders), y.shape[1])), constants, 1)
        row, column = next(iter(np.argwhere(~np.isfinite(residuals))), (None, 0))
        told = ", ".join(
            f"{describe(field, (self.coordinate,) * order)} = {value:.4g}"
            for (field, order), value in zip(self.state, y[:, column], strict=True)
        )
        what = "the rate of change" if row is None else f"the equation {self._terms[row].name!r}"
        return (
            f"{what} is not finite at {self.coordinate} = {t[column]:.6g}, where {told}: a root, logarithm or quotient outside "
            "of where it has a value, or a state that left it"
        )

    def event(self, name: str, function: Callable[..., Tensor]) -> Callable[[float, Array], float]:
        """A function of fields and the coordinate by name as one of time and state.

        Args:
            name: what the event is called.
            function: receives tensors ``(1,)``; it may differentiate fields below their highest derivative.
        """
        names = argument_names(function)

        def value(t: float, y: Array) -> float:
            table = {key: torch.tensor([y[row]], dtype=torch.float64) for row, key in enumerate(self.state)}
            now = {self.coordinate: torch.tensor([t], dtype=torch.float64)}
            space = JetSpace(now, self.problem.fields, _StateJets(table))
            found = evaluated(f"event {name!r}", function, space.named(names))
            return float(check_residual(name, found, space).detach())

        return value

    def _check_affine(self) -> None:
        generator = np.random.default_rng(0)
        low, high = self.problem.domain.bounds[self.coordinate]
        size, count = 5, len(self.orders)
        t = generator.uniform(low, high, size)
        y = generator.uniform(0.5, 1.5, (len(self.state), size))
        constants = {
            name: torch.tensor(value.initial, dtype=torch.float64) for name, value in self.problem.unknowns.items()
        }
        first, second = generator.uniform(0.5, 1.5, (2, count, size))
        values = [self._residuals(t, y, h, constants, 1) for h in (first, second, (first + second) / 2)]
        gap = np.abs(values[2] - (values[0] + values[1]) / 2)
        # Where random states lie outside of what the equations are made for, they tell nothing.
        told = np.isfinite(gap)
        if not (gap <= 1e-9 * (1 + np.abs(values[0]) + np.abs(values[1])))[told].all():
            raise BaselineError(
                f"{type(self.problem).__name__}: an equation is not affine in its highest derivative, so it cannot be "
                "solved for it"
            )

    def prescribed(self) -> dict[tuple[str, int], Target]:
        """What the conditions prescribe of the state at the start.

        Raises:
            BaselineError: a condition that is not an initial one.
        """
        start = self.problem.domain.bounds[self.coordinate][0]
        found: dict[tuple[str, int], Target] = {}
        for condition in self.problem.conditions:
            places = [term.place for term in condition.terms(self.problem)]
            at_start = all(
                isinstance(place, OnFaces)
                and all(isinstance(face, Face) and face.value(self.problem.domain) == start for face in place.faces)
                for place in places
            )
            if isinstance(condition, Initial):
                targets = condition.orders(self.problem)
            elif type(condition) is Dirichlet and at_start:
                targets = {(field, 0): target for field, target in condition.targets.items()}
            elif type(condition) is Neumann and at_start:
                raise BaselineError("prescribe a derivative at the start with sciml.Initial(u_t=...), not with Neumann")
            else:
                raise BaselineError(
                    f"{type(self.problem).__name__}: the condition {condition.name!r} is not an initial value; this baseline "
                    "solves initial-value problems"
                )
            for key, target in targets.items():
                if key not in self.state:
                    field, order = key
                    raise BaselineError(
                        f"an initial value of {describe(field, (self.coordinate,) * order)} is no part of the state"
                    )
                found[key] = target
        return found

    def initial(
        self, prescribed: Mapping[tuple[str, int], Target], constants: Mapping[str, Tensor], size: int
    ) -> Array:
        """The prescribed part of a batch of initial states, shape ``(len(self.state), size)``; NaN where nothing is."""
        start = torch.full((size,), self.problem.domain.bounds[self.coordinate][0], dtype=torch.float64)
        scene = Evaluation(
            self.problem.bind(**constants), (JetSpace({self.coordinate: start}, self.problem.fields, _StateJets({})),)
        )
        state = np.full((len(self.state), size), np.nan)
        for row, key in enumerate(self.state):
            if key in prescribed:
                what = describe(key[0], (self.coordinate,) * key[1])
                state[row] = target_values(what, prescribed[key], scene).detach().numpy()
        return state
