"""Warm starts: fits that begin from another solution, and parts of a model that stay as they are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from sciml._text import listed, located
from sciml.errors import ModelError, ProblemError, SolverError
from sciml.geometry import default_count
from sciml.models import (
    BUILT_IN,
    Constrained,
    CornerSingular,
    DeepFeatures,
    PeriodicInputs,
    RandomFeatures,
    Scaled,
    Spectral,
    Tiles,
    Windowed,
    model_of,
    scaled_of,
)
from sciml.models.base import part
from sciml.problem import Problem
from sciml.problem.conditions import prescribed_values
from sciml.problem.functions import argument_names
from sciml.slabs.tile_space import TileSpace, nearest, nodes
from sciml.solution import Solution
from sciml.solvers import LBFGS, DiscreteProblem, GaussNewton, LeastSquares, Solver

LINEAR = (RandomFeatures, Spectral, DeepFeatures, CornerSingular)

_ROWS_A_WEIGHT = 3


# Tiles along each coordinate, and their degree, for a first guess, by the number of coordinates.
_GUESSED = {1: (24, 12), 2: (12, 8), 3: (5, 6)}
# The part of the degrees that a smooth function hardly needs, and what it needs of them, as a share of its size; how often
# tiles are halved for it, and how many become too many.
_LAST, _HARDLY, _HALVINGS, _MANY = 0.75, 1e-4, 10, 400


@dataclass(frozen=True)
class WarmStart:
    """A solution that a fit begins from, or a first guess of its fields: ``said`` tells what it is."""

    solution: Solution | None
    scaled: Scaled
    exact: bool
    said: str = ""

    @classmethod
    def of(cls, start: Any, problem: Problem, model: nn.Module | None, *, exact: bool | None = None) -> WarmStart | None:
        """What the argument ``start`` of ``fit`` means."""
        if start is None:
            return None
        if isinstance(start, Mapping):
            if model is not None:
                raise SolverError("start: a first guess of the fields is for polynomials on tiles; leave the model out")
            return cls.guessed(start, problem)
        if not isinstance(start, Solution):
            raise SolverError(
                "start must be a solution or the path of a saved one, or a first guess of fields as {'u': lambda x: 1 - x}; "
                f"given: {start!r}"
            )
        solution, exact = start, isinstance(start.trial, Constrained) if exact is None else exact
        check_names(solution, problem)
        scaled = scaled_of(solution.trial)
        if scaled is None:
            if model is None and problem.time is None and not isinstance(solution.trial, Windowed):
                low, high = (torch.tensor([solution.bounds[name][end] for name in problem.coordinates]) for end in (0, 1))
                # A grid knows nothing beyond its ends.
                values = lambda points: solution.trial(points.clamp(low.to(points), high.to(points)))  # noqa: E731
                return cls._on_tiles(problem, values, solution, f"a grid of a solution of {solution.name}")
            kind = f"{len(solution.trial.windows)} windows of time" if isinstance(solution.trial, Windowed) else "a grid"
            raise ModelError(
                f"start: this solution of {solution.name} is made of {kind}, and a fit begins from one model: fit one network "
                "first, sciml.fit(problem, sciml.MLP(20, 20))"
            )
        found = cls(solution, scaled, exact)
        found._check_periods(problem)
        if model is not None:
            found._check_shape(model)
        return found

    @classmethod
    def guessed(cls, start: Mapping[str, Any], problem: Problem) -> WarmStart:
        """A first guess of fields, numbers or functions of coordinates, as polynomials on tiles; other fields are zero."""
        if unknown := [name for name in start if name not in problem.fields]:
            raise ProblemError(f"start names {listed(unknown)}; the fields are {listed(problem.fields)}")

        def values(points: Tensor) -> Tensor:
            at = dict(zip(problem.coordinates, points.unbind(1), strict=True))
            found = torch.zeros(len(points), len(problem.fields), dtype=torch.float64)
            for name, target in start.items():
                if beyond := [each for each in (argument_names(target) if callable(target) else ()) if each not in at]:
                    raise ProblemError(f"start, for {name!r}, takes {listed(beyond)}; the coordinates are {listed(at)}")
                given = prescribed_values(f"start, for {name!r}", target, problem.bind_initial(), at).detach()
                found[:, problem.fields.index(name)] = given
            return found

        return cls._on_tiles(problem, values, None, "a first guess")

    @classmethod
    def hills(cls, problem: Problem, offset: Tensor, scale: Tensor) -> WarmStart:
        r"""Initial guess: hills over the box of the domain, :math:`u = o + s \prod_i (1 - \xi_i^2)`, as large as fields are."""
        low, high = (torch.tensor(each, dtype=torch.float64) for each in (problem.domain.lower, problem.domain.upper))

        def values(points: Tensor) -> Tensor:
            places = (2 * points - low - high) / (high - low)
            return offset + scale * (1 - places.square()).prod(1, keepdim=True)

        return cls._on_tiles(problem, values, None, "hills as large as fields are, for equations have no slopes at constants")

    @classmethod
    def _on_tiles(cls, problem: Problem, values: Callable[[Tensor], Tensor], solution: Solution | None, said: str) -> WarmStart:
        """Polynomials on tiles nearest to what has the values ``(n, fields)`` at points ``(n, coordinates)``."""
        domain, count = problem.domain, len(problem.coordinates)
        if count not in _GUESSED:
            raise SolverError(f"start: {said} has 1 to {len(_GUESSED)} coordinates; the problem has {count}")
        most, degree = _GUESSED[count]
        widths = list(domain.half_widths.values())
        counts = [max(1, round(most * width / max(widths))) for width in widths]
        space = TileSpace.laid(problem.bind_initial(), problem.coordinates, counts, degree, len(problem.fields))
        if space is None:
            raise SolverError(f"start: no point of a guess lies inside {domain!r}")

        def at(places: Tensor) -> Tensor:
            points = scaled.center + places.flatten(0, 1) * scaled.half_width
            with torch.no_grad():
                found = values(points)
            # Beyond a domain that cuts a tile a formula may have no value.
            inside = torch.from_numpy(np.asarray(domain.contains(points.numpy())))
            lost = ~found.isfinite().all(1)
            if bool((lost & inside).any()):
                where = located(problem.coordinates, points[lost & inside][0].tolist())
                raise ProblemError(f"start: {said} is not finite at {where}")
            return found.nan_to_num(0.0, 0.0, 0.0).view(*places.shape[:2], -1)

        first: Scaled | None = None
        for _ in range(_HALVINGS):
            model, (places, table) = space.model, nodes(space.model)
            scaled = Scaled(model, domain.lower, domain.upper, [0.0] * model.outputs, [1.0] * model.outputs).double()
            model.coefficients.copy_(nearest(table, at(places)).mT)
            # Layers inside an interval cost few tiles, and on others Newton's method would leave them.
            marked, first = _not_resolved(model), first or scaled
            if count > 1 or not marked.any():
                break
            if len(marked) > _MANY:
                # What is rough everywhere has no layers.
                scaled = first
                break
            space = space.finer(marked)
        return cls(solution, scaled, exact=False, said=said)

    def tiles(self, problem: Problem) -> Tiles | None:
        """Adapted tiles: its own, smaller where it has layers inside an interval; None of equal ones, or another interval."""
        model, bounds = model_of(self.scaled), torch.tensor(list(problem.domain.bounds.values()), dtype=torch.float64)
        places = (self.scaled.center, bounds.mean(1)), (self.scaled.half_width, bounds.diff(dim=1)[:, 0] / 2)
        here = len(bounds) == 1 and all(torch.equal(own.to(each), each) for own, each in places)
        return copy.deepcopy(model).cpu() if here and isinstance(model, Tiles) and not model.alike else None

    @property
    def on_tiles(self) -> bool:
        """Whether it consists of polynomials on tiles, which have a strategy of their own."""
        return isinstance(model_of(self.scaled), Tiles)

    @property
    def model(self) -> nn.Module:
        """A copy of the model, its parameters free as they are in a new one."""
        old: Any = model_of(self.scaled)
        if type(old) not in BUILT_IN:
            return copy.deepcopy(old).requires_grad_(True)
        found: nn.Module = type(old).from_config(**old.config)
        found.to(self.scaled.center.dtype).load_state_dict(old.state_dict())
        return found

    def solvers(self, problem: Problem) -> list[Solver]:
        """What finds the way from here: no first-order method, whose first steps would lead away."""
        if isinstance(model_of(self.scaled), LINEAR):
            return [LeastSquares(200)] if problem.unknowns else [GaussNewton(20)]
        return [LBFGS(3000)]

    def points(self, problem: Problem) -> int | None:
        """The number of points inside that the model needs, or None for the default."""
        model = model_of(self.scaled)
        if model is None or not isinstance(model, LINEAR):
            return None
        weights = sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)
        wanted = _ROWS_A_WEIGHT * weights // max(1, len(problem.equations))
        return wanted if wanted > default_count(problem.domain) else None

    def begun(self, setup: DiscreteProblem) -> DiscreteProblem:
        """The set-up with this model, in the scaling it was trained in, and the unknowns that it shares."""
        scaled = scaled_of(setup.trial)
        assert scaled is not None
        assert self.solution is not None
        around = [each.model.columns if isinstance(each.model, PeriodicInputs) else () for each in (scaled, self.scaled)]
        if isinstance(setup.trial, Constrained) != self.exact or around[0] != around[1]:
            held = "holds conditions exactly" if self.exact or around[1] else "does not hold conditions exactly"
            raise ProblemError(
                f"start: the solution of {self.solution.name} {held} and this fit does the opposite, so the same model would "
                f"be another function: give exact={bool(self.exact or around[1])}, as it had"
            )
        # Its own scaling, not one of this problem: the function is the same wherever it was known before.
        scaled.load_state_dict(self.scaled.state_dict())
        return setup.with_trial(setup.trial, choices=(*setup.choices, self.hand_on(setup)))

    def hand_on(self, setup: DiscreteProblem) -> str:
        """Give a set-up the unknowns that it shares with the solution; what is begun from, as a sentence."""
        kept, new = [], []
        estimates: Mapping[str, float] = {} if self.solution is None else dict(self.solution.unknowns["estimate"])
        with torch.no_grad():
            for name, raw in setup.raw.items():
                known = name in estimates
                try:
                    value = float(estimates[name]) if known else float("nan")
                    raw.copy_(setup.problem.unknowns[name].raw(value))
                    kept.append(f"{name} = {value:.4g}")
                except ProblemError:
                    new.append(f"{name} ({'its estimate is beyond the bounds' if known else 'new'})")
        whose = "" if self.solution is None else f"{type(model_of(self.scaled)).__name__} of a solution of {self.solution.name}"
        note = f"start: {self.said or whose}"
        note += f", with {', '.join(kept)}" if kept else ""
        return note + (f"; from their initial values: {', '.join(new)}" if new else "")

    def _check_periods(self, problem: Problem) -> None:
        """A function that is periodic by construction has the period of the side it was made for."""
        inner = self.scaled.model
        assert self.solution is not None
        columns = inner.columns if isinstance(inner, PeriodicInputs) else getattr(inner, "periodic", ())
        for column in columns:
            name = problem.coordinates[column]
            ours, theirs = problem.domain.bounds[name], self.solution.bounds[name]
            if ours[1] - ours[0] != theirs[1] - theirs[0]:
                raise ProblemError(
                    f"start: the solution is periodic in {name!r} with the period {theirs[1] - theirs[0]:g}; the side of this "
                    f"domain is {ours[1] - ours[0]:g}: begin without start"
                )

    def _check_shape(self, model: nn.Module) -> None:
        own: Any = model_of(self.scaled)
        theirs = {name: tuple(value.shape) for name, value in own.state_dict().items()}
        given = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        # One that is not built yet takes its numbers of inputs and outputs from the problem.
        ends = dict.fromkeys(("inputs", "outputs"))
        new, old = (cast(Any, each).config | ends if type(each) in BUILT_IN else None for each in (model, own))
        if not given and new is not None and type(model) is type(own) and new == old:
            return
        if given != theirs:
            raise ModelError(
                f"start: the model given ({type(model).__name__}) has not the shape of the solution's ({type(own).__name__}): "
                f"{given or model} against {theirs}; leave model out to take the solution's"
            )


def _not_resolved(model: Tiles) -> Tensor:
    """Decay of coefficients: tiles ``(T,)`` on which some field needs the highest degrees."""
    high = (model.products / torch.tensor(model.degrees)).square().sum(1) > _LAST**2
    sizes = model.coefficients.abs()
    return (sizes[:, :, high].amax(2) > _HARDLY * sizes.amax((0, 2))).any(1)


def check_names(solution: Solution, problem: Problem, what: str = "start") -> None:
    """Refuse a solution of other coordinates or fields, given as the argument ``what``."""
    more = [name for name in solution.coordinates if name not in problem.coordinates]
    if solution.coordinates != problem.coordinates or tuple(solution.fields) != tuple(problem.fields):
        hint = ""
        if solution.problem is not None and more and set(more) <= set(solution.problem.promoted):
            hint = f"; take it at a value first, solution.at({more[0]}=...)"
        raise ProblemError(
            f"{what}: the solution of {solution.name} has the coordinates {listed(solution.coordinates)} and fields "
            f"{listed(solution.fields)}; {type(problem).__name__} has {listed(problem.coordinates)} and "
            f"{listed(problem.fields)}, and they must be the same in the same order{hint}"
        )


def frozen(setup: DiscreteProblem, patterns: str | Sequence[str]) -> DiscreteProblem:
    """The set-up with parts of the model that no solver varies."""
    names = [patterns] if isinstance(patterns, str) else list(patterns)
    if not names:
        return setup
    if not all(isinstance(name, str) for name in names):
        raise ModelError(f"freeze must hold names of the model's parts, as in ('layers.0',); given: {patterns!r}")
    model = model_of(setup.trial)
    assert model is not None
    for name in names:
        for parameter in part(model, name, "freeze"):
            parameter.requires_grad_(False)
    if not setup.parameters:
        raise ModelError(
            f"freeze={tuple(names)!r} leaves nothing to vary: the whole model is frozen and the problem has no unknown"
        )
    own = list(model.parameters())
    still = sum(each.numel() for each in own if not each.requires_grad)
    note = f"frozen: {listed(names)}, {still} of {sum(each.numel() for each in own)} parameters"
    return setup.with_trial(setup.trial, choices=(*setup.choices, note))


def check_stages(begin: WarmStart | None, freeze: object, windows: object, polish: bool) -> None:
    """Refuse what would take another model than the one that is begun from or frozen in part."""
    if windows is not None and (begin is not None or freeze):
        raise SolverError(
            f"{'start' if begin is not None else 'freeze'}= means one model, and windows= has one in each window: leave one out"
        )
    if freeze and polish:
        raise SolverError(
            "freeze= keeps parts of the model, and Polish replaces its last layer: leave one out, or freeze in a fit "
            "of its own and polish in a second one with start=..."
        )
