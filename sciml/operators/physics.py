r"""Physics-informed operator learning: a DeepONet trained on the residuals of sampled inputs, with pairs or without.

For inputs :math:`a_i` of a family and points :math:`x_j` the residuals are those of the problem with input :math:`a_i`,

.. math::  \min_\theta \sum_{i,j} \lvert R(a_i, u_\theta(a_i))(x_j)\rvert^2 .

Every row is a pair of an input and a point, so that one evaluation serves all inputs.

Reference: S. Wang, H. Wang and P. Perdikaris, Learning the solution operator of parametric partial differential equations with
physics-informed DeepONets, Science Advances 7 (2021).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.fitting import fitted_by
from sciml.geometry import Interior, PointSet
from sciml.jets import TaylorJets
from sciml.models import Scaled
from sciml.operators.codes import parts_of
from sciml.operators.deeponet import DeepONet
from sciml.operators.family import Family, with_names
from sciml.operators.learning import LEAST_STEPS, LOOKS, MOST_STEPS, Frame, OperatorSetup
from sciml.operators.pairs import Pairs, relative_errors
from sciml.operators.random_fields import RandomFunction
from sciml.operators.sampling import sample
from sciml.operators.selection import SECONDS, input_code, reporting
from sciml.operators.surrogate import Surrogate
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.solvers import EarlyStopping, FirstOrder
from sciml.solvers.batching import BatchSize
from sciml.solvers.discrete_problem import CONDITION_WEIGHT, blocks_of
from sciml.solvers.journal import Journal
from sciml.solvers.residuals import ResidualSystem
from sciml.solvers.scaling import field_sizes, term_sizes
from sciml.strategies.training import Training
from sciml.typing import Array, MultiIndex

_INPUTS, _POINTS, _SETS, _JUDGED, _BATCH = 2000, 128, 16, 20, 32


def trained_on_residuals(
    family: Family,
    model: nn.Module | None = None,
    *,
    data: Pairs | None = None,
    points: int = _POINTS,
    seed: int = 0,
    seconds: float | None = None,
    tolerance: float = 0.05,
    callbacks: Sequence[Any] = (),
    progress: bool | None = None,
    early_stopping: EarlyStopping | None = EarlyStopping(),  # noqa: B008 - an immutable record
    solver: Any = None,
) -> Surrogate:
    """A surrogate of a family by its equations; with ``data=pairs`` by both. It is judged on samples that are solved."""
    model = DeepONet() if model is None else copy.deepcopy(model)
    if not isinstance(model, DeepONet):
        raise ModelError(
            f"training on residuals differentiates by the coordinates: take DeepONet; given {type(model).__name__}"
        )
    begin = time.perf_counter()
    budget = SECONDS if seconds is None else float(seconds)
    drawn = [family.draw(np.random.default_rng([seed, 70, number])) for number in range(_INPUTS)]
    setup = Setup(family, model, drawn, points, seed, data)
    log, shown = reporting(callbacks, progress, budget)
    stages = [setup.solver(budget, seed)] if solver is None else list(np.atleast_1d(solver))
    with shown:
        Training(log, early_stopping).run(setup, stages, seed)  # type: ignore[arg-type]
    model.eval()
    # Whether it is right shows beside solutions, not in its residuals.
    judges = sample(family, _JUDGED, grid=_few(family), how="baseline", seed=seed + 10_000)
    values = model.predict(judges.inputs, judges.axes)[0]
    errors = relative_errors(values, judges.wanted())
    scale, code, furthest = input_code(setup.inputs)
    table = pd.DataFrame(
        {"mean": [errors.mean()], "median": [np.median(errors)], "worst": [errors.max()], "coverage": [math.nan]},
        index=["DeepONet"],
    )
    table["seconds"] = time.perf_counter() - begin
    mean, used = float(errors.mean()), "residuals alone" if data is None else f"residuals and {len(data)} pairs"
    return Surrogate(
        model=model,
        frame=setup.frame,
        code=code,
        scale=scale,
        furthest=furthest,
        calibration=float(np.sqrt(np.mean(errors**2))),
        family=family,
        errors=table,
        error=mean,
        success=bool(mean <= tolerance),
        message=f"mean relative L2 error {mean:.2e} on {len(judges)} solved samples, trained on {used}",
        choices=(
            f"{_INPUTS} inputs, {points} of {_SETS * points} points inside at a step, {log.steps} steps of {stages[-1].name}",
        ),
        seconds=time.perf_counter() - begin,
        history=pd.DataFrame(log.history),
        ways=dict(judges.ways),
    )


def _few(family: Family) -> dict[str, int]:
    count = len(family.base.coordinates)
    return dict.fromkeys(family.base.coordinates, {1: 65, 2: 33}.get(count, 13))


class _Jets:
    """Jets of the operator for some inputs at points that all share, input after input: those of the trunk, combined."""

    def __init__(self, model: DeepONet, trunk: TaylorJets, coefficients: Tensor, fields: Sequence[str]) -> None:
        self._model, self._trunk, self._coefficients, self._fields = model, trunk, coefficients, list(fields)

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        column, model = self._fields.index(field), self._model
        terms = self._trunk.stream(index).unflatten(1, (-1, len(self._fields)))[:, :, column]
        found = (self._coefficients[:, :, column] @ terms.T).reshape(-1) * model.output_scale[column]
        if index:
            return found
        return found + model.bias[column] * model.output_scale[column] + model.output_center[column]


class _Rows(ResidualSystem):
    """Residuals of many inputs: the points of a block are numbers of inputs, a row the root mean square over places."""

    trial: DeepONet

    def __init__(self, family: Family, model: DeepONet, coded: Tensor, drawn: Sequence[Mapping[str, Any]]) -> None:
        self.problem, self.trial, self.raw, self.portion = _indirect(family, drawn[0]), model, {}, BatchSize()
        low, high = ([pair[k] for pair in family.base.domain.bounds.values()] for k in (0, 1))
        count = model.products * len(family.base.fields)
        self._trunk = Scaled(model.trunk, low, high, [0.0] * count, [1.0] * count).double()
        self._coded = coded
        self._plans = {}
        self._stacked = {each.name: (each, _Stacked.of([one[each.name] for one in drawn])) for each in family.varied}
        # For each place as many sets of points as there are, and the residuals there.
        self.places: dict[tuple[str, ...], list[Collocation]] = {}

    def block(self, pool: list[Collocation], numbers: Array) -> Collocation:
        """A block whose points are numbers of inputs, for the sets of points of a place."""
        terms = tuple(Term(term.name, term.place, partial(_root_mean_square, term)) for term in pool[0].terms)
        self._plan(pool[0])
        return self._block(pool, terms, numbers)

    def measured(self, data: Pairs, first: int) -> Collocation:
        """The outputs of pairs, whose inputs have the numbers from ``first``."""
        wanted, names = torch.from_numpy(data.wanted()), self.problem.fields
        terms = tuple(
            Term(f"data.{name}", Interior(), partial(_misfit, name, wanted[:, :, column].contiguous(), first))
            for column, name in enumerate(names)
        )
        self._plans[tuple(term.name for term in terms)] = ((),)
        pool = [Collocation(PointSet((torch.from_numpy(data.places),)), terms)]
        return self._block(pool, terms, first + np.arange(len(data)))

    def _block(self, pool: list[Collocation], terms: tuple[Term, ...], numbers: Array) -> Collocation:
        self.places[tuple(term.name for term in terms)] = pool
        return Collocation(PointSet((torch.as_tensor(numbers, dtype=torch.float64)[:, None],)), terms)

    def evaluation(self, block: Collocation, values: Any = None) -> Any:
        numbers = block.sample.points[0][:, 0].round().long()
        pool = self.places[tuple(term.name for term in block.terms)]
        # Other inputs, other points: the choice must be the same whenever the same rows are asked for.
        sample = pool[int(numbers.sum()) % len(pool)].sample
        coefficients, many = self.trial.coefficients(self._coded[numbers]), len(sample.points[0])
        plan, names, fields = self._plan(block), self.problem.coordinates, self.problem.fields
        columns = [str(column) for column in range(self.trial.products * len(fields))]
        trunks = [TaylorJets(self._trunk, each, names, columns, plan) for each in sample.points]
        suppliers = tuple(_Jets(self.trial, each, coefficients, fields) for each in trunks)
        points = tuple(each.repeat(len(numbers), 1) for each in sample.points)
        owners = numbers.repeat_interleave(many)
        constants: dict[str, Tensor] = {}
        functions: dict[str, Any] = {}
        for name, (each, stacked) in self._stacked.items():
            if each.kind == "constant":
                constants[name] = stacked.numbers[owners]
            else:
                functions[name] = with_names(stacked.at(owners), each.coordinates)
        bound = self.problem.bind(**constants).supplied(functions, {})
        normals = None if sample.normals is None else sample.normals.repeat(len(numbers), 1)
        return _Shared(Evaluation.of(bound, points, suppliers, normals), numbers), suppliers


@dataclass(frozen=True)
class _Shared:
    """What residuals of several inputs are evaluated on, input after input."""

    inner: Evaluation
    numbers: Tensor


def _root_mean_square(term: Term, shared: Any) -> Tensor:
    """The root mean square of a residual over the places, for each input."""
    values = term.evaluate(shared.inner).view(len(shared.numbers), -1)
    return values.square().mean(dim=1).clamp(min=1e-300).sqrt()


def _misfit(field: str, wanted: Tensor, first: int, shared: Any) -> Tensor:
    """The root mean square of a field less the outputs of pairs ``(samples, points)``, inputs from ``first`` on."""
    values = shared.inner.space.jet(field, ()).view(len(shared.numbers), -1)
    return (values - wanted[shared.numbers - first]).square().mean(dim=1).clamp(min=1e-300).sqrt()


def _indirect(family: Family, inputs: Mapping[str, Any]) -> Problem:
    """The problem of a family whose initial values are asked for under the name of their input."""
    varied = [each for each in family.varied if each.kind == "initial"]
    starts = {each.name.removeprefix("initial."): _asking(each.name, each.coordinates) for each in varied}
    functions = {each.name: with_names(inputs[each.name], each.coordinates) for each in varied}
    return family.posed(inputs).supplied(functions, starts)


def _asking(name: str, coordinates: Sequence[str]) -> Callable[..., Tensor]:
    """An initial value that the problem is asked for."""
    return with_names(lambda problem, *columns: vars(problem)[name](*columns), ("self", *coordinates))


@dataclass(frozen=True)
class _Stacked:
    """The same input of many samples: numbers, or functions that are evaluated together where they are of one kind."""

    numbers: Tensor
    functions: tuple[Any, ...] = ()

    @classmethod
    def of(cls, values: Sequence[Any]) -> _Stacked:
        if not callable(values[0]):
            return cls(torch.tensor(values, dtype=torch.float64))
        if all(isinstance(each, RandomFunction) for each in values):
            return cls(torch.from_numpy(np.stack([each.weights for each in values])), tuple(values[:1]))
        return cls(torch.empty(0), tuple(values))

    def at(self, rows: Tensor) -> Callable[..., Tensor]:
        """The function of each row."""
        if len(self.numbers):
            return lambda *columns: self.functions[0].many(self.numbers[rows], *columns)

        def each(*columns: Tensor) -> Tensor:
            found = columns[0].new_empty(columns[0].shape)
            for number in rows.unique().tolist():
                own = rows == number
                found = found.masked_scatter(own, self.functions[number](*(column[own] for column in columns)))
            return found

        return each


def _drawn_of(family: Family, data: Pairs) -> list[dict[str, Any]]:
    """The inputs of pairs, between the nodes by splines."""
    return [
        {
            each.name: float(data.inputs[each.name][row])
            if each.kind == "constant"
            else family.interpolated(each, np.asarray(data.inputs[each.name][row]))
            for each in family.varied
        }
        for row in range(len(data))
    ]


class Setup(OperatorSetup):
    """What the training loop needs, for residuals of many inputs."""

    def __init__(
        self, family: Family, model: DeepONet, drawn: list[dict[str, Any]], points: int, seed: int, data: Pairs | None
    ) -> None:
        problem = family.base
        axes = family.axes(problem.coordinates, _few(family))
        input_axes = {name: family.axes(along) for name, along in family.coordinates.items()}
        if data is not None:
            input_axes = {name: dict(own) for name, own in data.input_axes.items()}
        bounds = {name: tuple(map(float, problem.domain.bounds[name])) for name in problem.coordinates}
        self.frame = Frame(input_axes, tuple(problem.fields), axes, None, family.periodic, bounds)  # type: ignore[arg-type]
        self.inputs = {
            name: np.stack([np.asarray(family.on_axes(name, each[name], own), dtype=float) for each in drawn])
            for name, own in input_axes.items()
        }
        model.prepared(self.frame)
        model.scaling.learn(parts_of(self.inputs))
        model.drawn(seed)
        self.model, self.journal, self._points, self._seed = model, Journal(), points, seed
        known = [] if data is None else _drawn_of(family, data)
        self.rows = _Rows(family, model, self._coded(data), [*drawn, *known])
        first = family.posed(drawn[0])
        blocks = blocks_of(first, first.terms(), points, np.random.default_rng([seed, 71]))
        sizes = field_sizes(first, blocks)
        for number, (center, size) in enumerate(sizes.values()):
            model.output_center[number], model.output_scale[number] = center, size
        self.scales = term_sizes(first, blocks, sizes)
        equations = {each.name for each in problem.equation_residuals()}
        weights = {name: 1.0 if name in equations else CONDITION_WEIGHT for name in self.scales}
        if data is not None:
            names = [f"data.{name}" for name in problem.fields]
            self.scales |= dict(zip(names, (size for _, size in sizes.values()), strict=True))
            weights |= dict.fromkeys(names, CONDITION_WEIGHT)
        self.weights = self.leading = weights
        terms, own = self.rows.problem.terms(), np.arange(len(drawn))
        held, places = own[::10], np.random.default_rng([seed, 72])
        pools = [blocks_of(self.rows.problem, terms, points, places) for _ in range(_SETS)]
        by_place = [list(each) for each in zip(*pools, strict=True)]
        self.train = tuple(self.rows.block(pool, np.setdiff1d(own, held)) for pool in by_place)
        self.held = tuple(self.rows.block(pool, held) for pool in by_place)
        if data is not None:
            self.train = (*self.train, self.rows.measured(data, len(drawn)))

    def _coded(self, data: Pairs | None) -> Tensor:
        """What the branch takes, of inputs that were drawn and of those of pairs."""
        (found,) = self.model.features(self.frame, self.inputs)
        if data is None:
            return found
        (more,) = self.model.features(self.frame, {name: np.asarray(data.inputs[name][:]) for name in self.inputs})
        return torch.cat([found, more])

    def solver(self, seconds: float, seed: int) -> FirstOrder:
        """Adam on batches, for as many steps as the budget holds."""
        steps = int(min(max(seconds / (1.3 * self.pace(_BATCH)), LEAST_STEPS), MOST_STEPS))
        return FirstOrder(
            torch.optim.Adam,
            steps,
            lr=self.model.lr,
            scheduler=torch.optim.lr_scheduler.CosineAnnealingLR,
            scheduler_options={"T_max": steps, "eta_min": self.model.lr / 100},
            batch=_BATCH,
            seed=seed,
            look=max(steps // LOOKS, 1),
            clip=10.0,
        )


fitted_by(Family, trained_on_residuals)
