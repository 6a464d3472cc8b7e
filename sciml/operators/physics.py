r"""Physics-informed operator learning: a DeepONet trained on the residuals of sampled inputs, with pairs or without.

For inputs :math:`a_i` of a family and points :math:`x_j` the residuals are those of the problem with input :math:`a_i`,

.. math::  \min_\theta \sum_{i,j} \lvert R(a_i, u_\theta(a_i))(x_j)\rvert^2 .

Every row is a pair of an input and a point, so that one evaluation serves all inputs.

Reference: S. Wang, H. Wang and P. Perdikaris, Learning the solution operator of parametric partial differential equations with
physics-informed DeepONets, Science Advances 7 (2021).
"""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml.errors import ModelError
from sciml.fitting import fitted_by
from sciml.geometry import Interior, PointSet
from sciml.jets import AutogradJets
from sciml.operators.codes import parts_of
from sciml.operators.deeponet import DeepONet
from sciml.operators.family import Family, with_names
from sciml.operators.learning import Frame
from sciml.operators.pairs import Pairs, relative_errors
from sciml.operators.random_fields import RandomFunction
from sciml.operators.sampling import sample
from sciml.operators.selection import input_code, refuse
from sciml.operators.surrogate import Surrogate
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.observations import Observation
from sciml.solvers import EarlyStopping, FirstOrder, Objective
from sciml.solvers.batching import BatchSize
from sciml.solvers.discrete_problem import CONDITION_WEIGHT, blocks_of
from sciml.solvers.journal import Journal
from sciml.solvers.residuals import ResidualSystem
from sciml.solvers.scaling import field_sizes, term_sizes
from sciml.strategies.search import Budget, Log
from sciml.strategies.training import Training

_INPUTS, _POINTS, _JUDGED = 400, 100, 20
_SECONDS, _MOST_STEPS, _LEAST_STEPS, _LOOKS, _TIMED = 120.0, 20_000, 50, 40, 3
_ROWS = 2000


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
    early_stopping: EarlyStopping | None = EarlyStopping(),  # noqa: B008 - an immutable record
    solver: Any = None,
    **others: Any,
) -> Surrogate:
    """A surrogate of a family by its equations; with ``data=pairs`` by both. It is judged on samples that are solved."""
    refuse(others, "data", "points")
    model = DeepONet() if model is None else copy.deepcopy(model)
    if not isinstance(model, DeepONet):
        raise ModelError(
            f"training on residuals differentiates by the coordinates: take DeepONet; given {type(model).__name__}"
        )
    begin = time.perf_counter()
    budget = _SECONDS if seconds is None else float(seconds)
    drawn = [family.draw(np.random.default_rng([seed, 70, number])) for number in range(_INPUTS)]
    setup = _Setup(family, model, drawn, points, seed, data)
    log = Log(callbacks, None, Budget(budget))
    stages = [setup.solver(budget, seed)] if solver is None else list(np.atleast_1d(solver))
    Training(log, early_stopping).run(setup, stages, seed)  # type: ignore[arg-type]
    model.eval()
    # Whether it is right shows beside solutions, not in its residuals.
    judges = sample(family, _JUDGED, grid=_few(family), how="baseline", seed=seed + 10_000)
    values = model.predict(judges.inputs, judges.axes)[0]
    errors = relative_errors(values, judges.wanted())
    scale, code = input_code(setup.inputs)
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
        furthest=float(code.distance(scale.rows(parts_of(setup.inputs))).max()) or 1.0,
        calibration=float(np.sqrt(np.mean(errors**2))),
        family=family,
        errors=table,
        error=mean,
        success=bool(mean <= tolerance),
        message=f"mean relative L2 error {mean:.2e} on {len(judges)} solved samples, trained on {used}",
        choices=(f"{_INPUTS} inputs with {points} points each, new points at every step", *model.notes),
        seconds=time.perf_counter() - begin,
        history=pd.DataFrame(log.history),
        ways=dict(judges.ways),
    )


def _few(family: Family) -> dict[str, int]:
    count = len(family.base.coordinates)
    return dict.fromkeys(family.base.coordinates, {1: 65, 2: 33}.get(count, 13))


class _Trial(nn.Module):
    """The operator at rows that are pairs of an input and a point; ``coefficients`` belong to the rows."""

    def __init__(self, model: DeepONet, lower: Tensor, upper: Tensor) -> None:
        super().__init__()
        self.model = model
        self.lower, self.upper = lower, upper
        self.coefficients: Tensor | None = None

    def forward(self, points: Tensor) -> Tensor:
        scaled = 2 * (points - self.lower) / (self.upper - self.lower) - 1
        assert self.coefficients is not None
        found = (self.coefficients * self.model.terms(scaled)).sum(dim=1) + self.model.bias
        return found * self.model.output_scale + self.model.output_center


class _Rows(ResidualSystem):
    """Residuals of all inputs at once: the last column of a block's points is the number of the input."""

    trial: _Trial

    def __init__(self, family: Family, trial: _Trial, coded: Tensor, drawn: Sequence[Mapping[str, Any]]) -> None:
        self.problem, self.trial, self.raw, self.portion = _indirect(family), trial, {}, BatchSize()
        self.taylor, self._coded = False, coded
        self._stacked = {each.name: (each, _Stacked.of([one[each.name] for one in drawn])) for each in family.varied}

    @property
    def engine(self) -> str:
        return AutogradJets.name

    def values(self) -> dict[str, Tensor]:
        return {}

    def evaluation(self, block: Collocation, values: Any = None) -> Any:
        numbers = block.sample.points[0][:, -1].round().long()
        self.trial.coefficients = self.trial.model.coefficients(self._coded[numbers])
        points = tuple(each[:, :-1] for each in block.sample.points)
        suppliers = tuple(AutogradJets(self.trial, each, self.problem.coordinates, self.problem.fields) for each in points)
        constants: dict[str, Tensor] = {}
        functions: dict[str, Any] = {}
        for name, (each, stacked) in self._stacked.items():
            if each.kind == "constant":
                constants[name] = stacked.numbers[numbers]
            else:
                functions[name] = with_names(stacked.at(numbers), each.coordinates)
        bound = self.problem.bind(**constants).supplied(functions, {})
        return Evaluation.of(bound, points, suppliers, block.sample.normals), suppliers


def _indirect(family: Family) -> Problem:
    """The problem of a family whose initial values are asked for under the name of their input."""
    starts = {
        each.name.removeprefix("initial."): _asking(each.name, each.coordinates)
        for each in family.varied
        if each.kind == "initial"
    }
    return family.base.supplied({}, starts)


def _asking(name: str, coordinates: Sequence[str]) -> Callable[..., Tensor]:
    """An initial value that the problem is asked for."""

    def value(problem: Any, *columns: Tensor, **given: Tensor) -> Tensor:
        own = [*columns, *(given[each] for each in coordinates[len(columns) :])]
        return vars(problem)[name](*own)

    called = lambda **given: value(given.pop("self"), **given)  # noqa: E731
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = ("self", *coordinates)
    called.__signature__ = inspect.Signature([inspect.Parameter(each, kind) for each in names])  # type: ignore[attr-defined]
    return called


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


class _Setup:
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
            name: np.stack(
                [np.asarray(each[name] if not own else family.on_axes(name, each[name], own), dtype=float) for each in drawn]
            )
            for name, own in input_axes.items()
        }
        model.prepared(self.frame)
        model.scaling.learn(parts_of(self.inputs))
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
            model.build(self.frame, generator)
        self.model, self.journal, self._points, self._seed = model, Journal(), points, seed
        lower, upper = (torch.tensor([pair[k] for pair in bounds.values()], dtype=torch.float64) for k in (0, 1))
        self.trial = _Trial(model, lower, upper)
        known = [] if data is None else _drawn_of(family, data)
        self.rows = _Rows(family, self.trial, self._coded(data), [*drawn, *known])
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
        held = own[::10]
        self.train = (*self._blocks(terms, np.setdiff1d(own, held), seed + 1), *self._measured(data, len(drawn)))
        self.held = self._blocks(terms, held, seed + 2)

    def _coded(self, data: Pairs | None) -> Tensor:
        """What the branch takes, of inputs that were drawn and of those of pairs."""
        (found,) = self.model.features(self.frame, self.inputs)
        if data is None:
            return found
        (more,) = self.model.features(self.frame, {name: np.asarray(data.inputs[name][:]) for name in self.inputs})
        return torch.cat([found, more])

    def _measured(self, data: Pairs | None, first: int) -> list[Collocation]:
        """The outputs of pairs as measurements at their points."""
        if data is None:
            return []
        places, wanted = torch.from_numpy(data.places), torch.from_numpy(data.wanted())
        owners = torch.arange(first, first + len(data), dtype=torch.float64).repeat_interleave(len(places))[:, None]
        points = torch.cat([places.repeat(len(data), 1), owners], dim=1)
        terms = tuple(
            Term(f"data.{name}", Interior(), Observation(name, wanted[:, :, column].reshape(-1), ()))
            for column, name in enumerate(self.frame.fields)
        )
        return [Collocation(PointSet((points,)), terms)]

    def _blocks(self, terms: Any, numbers: Any, seed: int) -> tuple[Collocation, ...]:
        """Points of every place for each input, the input's number in a last column."""
        generator = np.random.default_rng([seed, 72])
        found = []
        for block in blocks_of(self.rows.problem, terms, self._points * len(numbers), generator):
            owner = torch.from_numpy(generator.choice(numbers, size=block.size)).double()[:, None]
            points = tuple(torch.cat([each, owner], dim=1) for each in block.sample.points)
            found.append(Collocation(replace(block.sample, points=points), block.terms))
        return tuple(found)

    def objective(self, blocks: Any = None, weights: Mapping[str, float] | None = None) -> Objective:
        """The mean squares of all residuals."""
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        given = self.train if blocks is None else blocks
        return Objective(self.rows, given, self.scales, dict(weights or self.weights), list(parameters))

    def solver(self, seconds: float, seed: int) -> FirstOrder:
        """Adam on batches, for as many steps as the budget holds."""
        objective = self.objective()
        part = [block.part(torch.arange(min(_ROWS, block.size))) for block in objective.blocks]
        objective.evaluate(part)
        begin = time.perf_counter()
        for _ in range(_TIMED):
            objective.evaluate(part)
        each = 1.3 * (time.perf_counter() - begin) / _TIMED
        steps = int(min(max(seconds / each, _LEAST_STEPS), _MOST_STEPS))
        return FirstOrder(
            torch.optim.Adam,
            steps,
            lr=self.model.lr,
            scheduler=torch.optim.lr_scheduler.CosineAnnealingLR,
            scheduler_options={"T_max": steps, "eta_min": self.model.lr / 100},
            batch=_ROWS,
            seed=seed,
            look=max(steps // _LOOKS, 1),
            clip=10.0,
        )


fitted_by(Family, trained_on_residuals)
