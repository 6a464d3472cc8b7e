"""Networks: the caller's model, trained by the solvers named; a small network by least squares in many coordinates."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from sciml.diagnostics.estimated_error import determined_up_to, estimated_error
from sciml.errors import SolverError
from sciml.geometry import Interior
from sciml.jets.linear import output_layer
from sciml.models import MLP, PeriodicInputs, Scaled
from sciml.solvers import DiscreteProblem, LeastSquares
from sciml.strategies.polish import Polish
from sciml.strategies.random_features import not_by_least_squares, part_of
from sciml.strategies.search import Candidate, Options, Strategy, Workspace, most_points
from sciml.strategies.time_marching import (
    Marched,
    WindowMethod,
    Windows,
    continued,
    joined,
    march,
    not_in_windows,
    window,
)
from sciml.strategies.training import Stage, Training, relative, stages_of, usual_stages
from sciml.strategies.transfer import WarmStart, frozen

_NETWORK = (16, 16, 16)
_STEPS = LeastSquares(300, look=20)
_POINTS_A_WEIGHT = 2
_GOOD = 1e-2


@dataclass(frozen=True)
class SmallNetwork(Strategy):
    """A network of some hundred weights by Levenberg-Marquardt, for many coordinates.

    The number of random features that a smooth function needs grows like a power of the number of coordinates, with the
    order that is wanted for exponent; a network turns its features to where the function varies.
    """

    last_resort, dense = True, True

    def obstacle(self, work: Workspace) -> str | None:
        return "it has unknown constants" if work.problem.unknowns else not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        problem, setup, dimension = work.problem, work.discrete, work.dimension
        model = MLP(*_NETWORK)
        model.build(dimension, len(problem.fields), torch.Generator().manual_seed(work.seed))
        weights = sum(parameter.numel() for parameter in model.parameters())
        fraction = _POINTS_A_WEIGHT * weights / max(1, len(problem.equations)) / most_points(dimension)
        train = tuple(part_of(block, fraction, dimension) for block in setup.train)
        found = Training(work.log).run(setup.with_model(model, train=train), [_STEPS], work.seed)
        reached = relative(found)
        reason = (
            f"{dimension} coordinates: random features do not resolve them; a network ({model.extra_repr()}) by "
            f"Levenberg-Marquardt does to {reached:.1e} of the residuals' natural size on held-out points"
        )
        status = work.log.status if work.log.stopped else "converged"
        good = reached <= _GOOD
        yield Candidate(found, reached, "LeastSquares", reason, accepted=good, sufficient=good, status=status)


@dataclass(frozen=True)
class Train(Strategy):
    """Training of one model, the caller's or a default network, by the solvers named, in one piece or in windows of time.

    Args:
        model: the caller's model; None takes a network whose size fits the number of coordinates.
        solvers: what takes the steps, one after another; by default Adam, then self-scaled Broyden, or L-BFGS for many weights.
        begin: the solution that it begins from.

    Raises:
        SolverError: a solver that is none, or a solution in the place of ``begin``, which is ``start`` of ``fit``.
    """

    model: nn.Module | None = None
    solvers: tuple[Stage, ...] = ()
    begin: WarmStart | None = None

    last_resort, dense = True, True

    def __post_init__(self) -> None:
        if self.solvers != ():
            object.__setattr__(self, "solvers", tuple(stages_of(self.solvers)))
        if not isinstance(self.begin, WarmStart | None):
            raise SolverError(f"hand a solution to begin from to fit, as start=; given: begin={self.begin!r}")

    def obstacle(self, work: Workspace) -> str | None:
        return not_in_windows(work.problem, work.measurements is not None) if work.options.windows else None

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        own, points = work.options, work.options.points
        if self.begin is not None and points is None:
            points = self.begin.points(work.problem)
        setup = work.prepared(self.model if self.begin is None else self.begin.model, points, own.exact)
        setup = frozen(setup if self.begin is None else self.begin.begun(setup), own.freeze)
        stages: Sequence[Any] = self.solvers or usual_stages(setup.objective().shape[1])
        # What the search chose may be improved by another trial function; what the caller chose stays what it is.
        if best is not None and setup.table is None and self.model is None and self.begin is None and not own.freeze:
            stages = [*stages, Polish()]
        training = Training(work.log, own.early_stopping, own.sampler, own.weightings, work.feed)
        solver, solved = ", ".join(each.name for each in stages), True
        if own.windows is None:
            setup = training.run(setup, stages, own.seed)
            reached = relative(setup)
        else:
            marched = self._marched(setup, stages, own.windows, training, own.seed)
            if marched.interrupted:
                work.log.status, work.log.message = "interrupted", ""
            setup, reached, solved = joined(setup, marched, points, own.seed), marched.worst, marched.complete
        blind = own.windows is not None or work.log.ended
        errors, doubt = ({}, "") if blind else _estimated(setup, reached, own, given=self.model is not None)
        now = Candidate(setup, reached, solver, solved=solved, doubt=doubt, errors=errors)
        yield replace(now, status=work.log.status, message=work.log.message)

    def _marched(
        self, setup: DiscreteProblem, stages: Sequence[Stage], windows: Windows, training: Training, seed: int
    ) -> Marched:
        """Windows of equal length, each after all stages."""
        problem = setup.problem
        if not isinstance(setup.trial, Scaled) or isinstance(setup.trial.model, PeriodicInputs):
            raise SolverError(
                f"windows= cannot be used for {type(problem).__name__}: exact= holds conditions of the whole of time; leave "
                "one of the two"
            )
        blank = copy.deepcopy(setup.trial.model)
        # What follows a polish is another model: a network is continued from the one that was polished.
        polishing = next((place for place, stage in enumerate(stages) if isinstance(stage, Polish)), len(stages))
        trained: list[DiscreteProblem] = []

        def attempt(begin: float, end: float, before: DiscreteProblem | None) -> tuple[DiscreteProblem, float]:
            inside = next((block.size for block in setup.train if block.terms[0].place == Interior()), None)
            piece = window(setup, copy.deepcopy(blank), begin, end, before, inside, seed)
            if trained and type(trained[-1].trial.model) is type(blank):
                continued(trained[-1].trial, piece.trial)
            label = f", from {problem.time} = {begin:.4g}"
            piece = training.run(piece, stages[:polishing], seed, label)
            trained.append(piece)
            if not training.log.ended:
                piece = training.run(piece, stages[polishing:], seed, label)
            return piece, relative(piece)

        fraction = 1.0 / windows.count
        methods = [WindowMethod(attempt, fraction, fraction, fraction)]
        return march(setup, methods, target=math.inf, hopeless=math.inf, ended=lambda at: training.log.ended)


def _estimated(setup: DiscreteProblem, reached: float, options: Options, *, given: bool) -> tuple[dict[str, float], str]:
    """The errors of a network that was trained on the equations, or why its small residuals are not to be believed.

    ``given`` is whether the model is the caller's: nothing else is tried then that could tell an error.
    """
    if setup.measurements is not None:
        return {}, ""
    errors, adrift = estimated_error(setup, options.seed)
    if adrift:
        return dict.fromkeys(adrift, 1.0), determined_up_to(adrift)
    # A sum of given functions is determined by its rows: least squares has one minimum. That solves nothing where equations
    # and conditions contradict each other, as residuals tell which are no smaller than errors may be.
    believed = errors or (given and output_layer(setup.trial) is not None and reached <= options.largest_error)
    return errors, "" if believed else "its error cannot be estimated, and residuals say little of it"
