r"""Unknown constants: nonlinear regression of laws and of solutions, by the output-error method.

Where equations have no derivatives, :math:`F(y, x; c) = 0`, they are solved for the fields at every measured point, and only
the constants are varied: by the implicit function theorem :math:`\partial y/\partial c = -F_y^{-1} F_c`. Partial differential
equations of any domain are solved anew at all values of their constants.

References: D. M. Bates and D. G. Watts, Nonlinear Regression Analysis and Its Applications, Wiley 1988; J. Nocedal and S. J.
Wright, Numerical Optimization, 2nd ed., Springer 2006, chapter 10.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import scipy
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from sciml.diagnostics.estimated_error import relative_scatter, scattered
from sciml.diagnostics.well_posedness import miscounted
from sciml.errors import SolverError
from sciml.geometry import Box, Interior
from sciml.jets import JetSpace, Supplier, jets_of
from sciml.models import GridFunction, Scaled, Tiles as TilePolynomials, side_by_side
from sciml.models.piecewise import Pieces
from sciml.problem import Problem, Unknown
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation
from sciml.problem.linearize import Jet, gradients, per_point
from sciml.problem.measurements import data_blocks, prior_blocks
from sciml.problem.observations import is_measured
from sciml.solvers import DiscreteProblem, LeastSquares, ResidualSystem
from sciml.solvers.discrete_problem import with_polynomials
from sciml.strategies.random_features import not_by_least_squares, output_weights
from sciml.strategies.search import Candidate, Strategy, Varied, Workspace, judged_apart, search
from sciml.strategies.tiles import Tiles, sensitivities
from sciml.strategies.training import Training
from sciml.typing import Array, MultiIndex
from sciml.uncertainty.covariance import Inference, from_information, from_rows
from sciml.uncertainty.error_bands import FieldCovariance
from sciml.uncertainty.lack_of_fit import lack_of_fit

# Steps on the constants of a law without derivatives; degrees by the number of coordinates; Newton's steps for the fields.
_REGRESSION, _LINEARISED = LeastSquares(600, loss_tolerance=1e-14), LeastSquares(40)
_LAW_DEGREES = {1: (30, 60, 120, 240), 2: (12, 24, 36), 3: (8, 12, 16)}
_NEWTON, _ARRIVED = 30, 1e-10
_CLOSE, _GOOD = 1e-9, 1e-3
# Solutions beside some constants are taken at raw numbers that differ by so much; by how much these move at most, tried in
# turn, and with the same slopes. By how much the loss falls, and the numbers move, at least for another step; steps.
_BESIDE, _MOST, _NEAR, _FALL, _SMALL, _ROUNDS = 1e-3, (3.0, 1.0, 0.3, 0.1, 0.03), 0.03, 1e-2, 1e-6, 20
# A fall of the loss that is foretold and not worth a solution.
_SLIGHT = 1e-6
# Numbers of the derivatives of all coefficients by constants that are held at most.
_MOST_NUMBERS = 50_000_000
# How exact solutions are before the constants are known, and at least at the end; and there as a share of how far they scatter.
_EXACT, _BENEATH = (1e-5, 1e-5), 0.05
# Where neighbouring misfits have more than this part of a column's scatter in common other constants are looked at: a power of
# two for one of them, and at most, their raw numbers so far from the first ones.
_UNEXPLAINED, _PLACES, _MOST_PLACES, _RANGE = 0.5, 4, 6, 2.0
# Coordinates from which on solutions are dear.
_DEAR = 3


class LawSystem(ResidualSystem):
    """Measurements of fields that follow from equations without derivatives: unknown constants are all that is varied."""

    def evaluation(
        self, block: Collocation, values: Mapping[str, Tensor] | None = None
    ) -> tuple[Evaluation, tuple[Supplier, ...]]:
        bound = self.problem.bind(**(self.values() if values is None else values))
        suppliers = tuple(_Values(self.problem.fields, self.solved(bound, points)) for points in block.sample.points)
        return Evaluation.of(bound, block.sample.points, suppliers, block.sample.normals), suppliers

    def solved(self, bound: Any, points: Tensor) -> Tensor:
        """The fields ``(n, F)`` at points, by Newton's method at each; the last step has the graph of the constants."""
        trial = cast(Scaled, self.trial)
        values = trial.offset.expand(len(points), -1)
        for _ in range(_NEWTON):
            residuals, slopes = self._linearised(bound, points, values)
            arrived = values - torch.linalg.solve(slopes, residuals)
            near = (arrived.detach() - values).abs() <= _ARRIVED * trial.scale
            values = arrived.detach()
            if bool(near.all()):
                break
        return arrived

    def _linearised(self, bound: Any, points: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The equations ``(n, F)`` at values of the fields, and their derivatives by these ``(n, F, F)``, without a graph."""
        with torch.enable_grad():
            leaves = [column.detach().requires_grad_() for column in values.unbind(1)]
            fields = _Values(self.problem.fields, torch.stack(leaves, dim=1))
            evaluation = Evaluation.of(bound, (points,), (fields,))
            found = [term.evaluate(evaluation) for term in self.problem.terms()]
            rows = [gradients(residual, leaves) for residual in found]
        zero = torch.zeros(len(points)).to(points)
        slopes = [torch.stack([zero if each is None else each for each in row], dim=1) for row in rows]
        return torch.stack(found, dim=1), torch.stack(slopes, dim=1)


@dataclass(frozen=True)
class _Values:
    """The supplier of the values of fields ``(n, F)``, which have no derivatives."""

    fields: Sequence[str]
    values: Tensor

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        assert not index
        return self.values[:, list(self.fields).index(field)]


class Tangent(nn.Module):
    """A solution as an affine function of constants, by its derivatives or by differences of solutions beside another.

    Args:
        here: the solution at the numbers ``raw``.
        others: a solution, and for each unknown the one where its raw number is larger by ``steps``; without steps, for each
            unknown the derivative by it.
    """

    def __init__(
        self,
        here: nn.Module,
        others: Sequence[nn.Module],
        raw: Mapping[str, Tensor],
        steps: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.here, self.others = here.requires_grad_(False), nn.ModuleList(others).requires_grad_(False)
        self.raw, self.steps = dict(raw), steps
        # Derivatives that were taken once are kept, as long as the points live.
        self._kept = WeakTensorKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        # What is kept belongs to the points of one copy, and may have a graph, which cannot be copied.
        return {**vars(self), "_kept": WeakTensorKeyDictionary()}

    def about(self, here: nn.Module, raw: Mapping[str, Tensor]) -> Tangent:
        """The same slopes about another solution."""
        found = copy.copy(self)
        found._modules = {**self._modules, "here": here.requires_grad_(False)}
        found.raw = dict(raw)
        return found

    def slopes(self, points: Tensor, names: Sequence[str], fields: Sequence[str], jet: Jet) -> Tensor:
        """The derivatives of a jet at points by all raw unknowns, ``(n, q)``."""
        if points not in self._kept:
            self._kept[points] = self._jets(points, names, fields), {}
        jets, found = self._kept[points]
        if jet not in found:
            found[jet] = self._slopes(jets, jet)
        return found[jet]

    def _jets(self, points: Tensor, names: Sequence[str], fields: Sequence[str]) -> Any:
        return [jets_of(each, points, names, fields) for each in self.others]

    def _slopes(self, jets: Any, jet: Jet) -> Tensor:
        moved = [each.jet(*jet).detach() for each in jets]
        if self.steps is not None:
            base, *beside = moved
            moved = [(each - base) / step for each, step in zip(beside, self.steps.values(), strict=True)]
        return torch.stack(moved, dim=1)

    def spread(self, inference: Inference) -> FieldCovariance | None:
        """How solutions scatter with the constants, where that can be said of the coefficients of one."""
        return None

    def foretold(self, moves: Mapping[str, Tensor]) -> Any:
        """The solution that the slopes foretell where raw numbers have moved; None where only solving tells."""
        return None


class TableTangent(Tangent):
    """Sensitivities: a solution that is linear in tables as an affine function of constants, by the derivatives of these.

    Args:
        here: the solution at the numbers ``raw``: polynomials on tiles, or windows of polynomials in pieces or on grids.
        together: its derivatives by all raw unknowns side by side; see ``side_by_side``.
        raw: the numbers.
    """

    here: Any
    together: Any

    def __init__(self, here: Any, together: Any, raw: Mapping[str, Tensor]) -> None:
        super().__init__(here, [], raw)
        self.together = together.requires_grad_(False)

    def _jets(self, points: Tensor, names: Sequence[str], fields: Sequence[str]) -> Any:
        by_unknown = [f"{number} {field}" for number in range(len(self.raw)) for field in fields]
        return jets_of(self.together, points, names, by_unknown)

    def _slopes(self, jets: Any, jet: Jet) -> Tensor:
        field, index = jet
        return torch.stack([jets.jet(f"{number} {field}", index) for number in range(len(self.raw))], dim=1)

    @property
    def _directions(self) -> dict[str, Tensor]:
        """The derivatives of tables by the names of these, by each unknown one after another, ``(q, ...)``; none of others."""
        here, there = (dict(each.named_buffers()) for each in (self.here, self.together))
        # Slopes serve another solution, too, whose windows or pieces may be others: its tables have no such derivatives.
        units = [name for name in here if name.endswith("edges") or "breaks" in name]
        if here.keys() != there.keys() or not all(torch.equal(here[name], there[name]) for name in units):
            return {}
        found = dict[str, Tensor]()
        for name, module in self.here.named_modules():
            if isinstance(module, Pieces | GridFunction):
                table = f"{name}.{module.table}"
                found[table] = there[table].unflatten(module.axis, (len(self.raw), -1)).movedim(module.axis, 0)
        return found if all(each.shape[1:] == here[name].shape for name, each in found.items()) else {}

    def spread(self, inference: Inference) -> FieldCovariance | None:
        found = self._directions
        if not inference.spread.size or not found or sum(each.numel() for each in found.values()) > _MOST_NUMBERS:
            return None
        slopes = torch.cat([each.flatten(1) for each in found.values()], dim=1)
        return FieldCovariance(tuple(found), slopes.T.cpu() @ torch.from_numpy(inference.spread), inference.quantile)

    def foretold(self, moves: Mapping[str, Tensor]) -> Any:
        directions = self._directions
        if not isinstance(getattr(self.here, "model", None), TilePolynomials) or not directions:
            return None
        found, (slopes,) = copy.deepcopy(self.here), directions.values()
        found.model.coefficients += torch.tensordot(torch.stack([moves[name] for name in self.raw]), slopes, dims=1)
        return found


class TangentSystem(ResidualSystem):
    """Measurements of fields that follow from constants by solving, linearised: the constants are all that is varied."""

    def evaluation(
        self, block: Collocation, values: Mapping[str, Tensor] | None = None
    ) -> tuple[Evaluation, tuple[Supplier, ...]]:
        now = self.values() if values is None else values
        suppliers = tuple(self.affine(points, now) for points in block.sample.points)
        return Evaluation.of(self.problem.bind(**now), block.sample.points, suppliers, block.sample.normals), suppliers

    def affine(self, points: Tensor, values: Mapping[str, Tensor]) -> Supplier:
        """The supplier of the fields' jets at values of the constants."""
        trial, names, fields = cast(Tangent, self.trial), self.problem.coordinates, self.problem.fields
        if points not in self._kept:
            at = dict(zip(names, points.unbind(1), strict=True))
            self._kept[points] = JetSpace(at, fields, jets_of(trial.here, points, names, fields))
        unknowns = self.problem.unknowns
        moved = torch.stack([unknowns[name].raw_of(values[name]) - at for name, at in trial.raw.items()], dim=-1)
        return _Affine(self._kept[points], partial(trial.slopes, points, names, fields), moved)


@dataclass(frozen=True)
class _Affine:
    r"""The supplier of jets :math:`u + \sum_j \rho_j\, \partial u/\partial\rho_j` where raw unknowns moved."""

    here: Supplier
    slopes: Callable[[Jet], Tensor]
    moved: Tensor

    def jet(self, field: str, index: MultiIndex) -> Tensor:
        return self.here.jet(field, index).detach() + (self.slopes((field, index)) * self.moved).sum(1)


@dataclass(frozen=True)
class NonlinearRegression(Strategy):
    r"""Nonlinear regression (the output-error method, by shooting): only unknown constants are varied, fields follow from them.

    Where equations have no derivatives they are solved for their fields at every measured point, by Newton's method, and
    polynomials carry them to all others. Where they have, and their conditions determine the fields, other strategies solve
    them at some values of the constants and beside these; measurements of

    .. math::  u(x; c) + \sum_j (\gamma_j - c_j)\, \frac{u(x; c + h_j e_j) - u(x; c)}{h_j}

    are fitted by Levenberg and Marquardt's method in :math:`\gamma`, and so on from there: Gauss and Newton's steps on the
    constants alone, on any domain.

    Args:
        ways: the strategies that solve the equations where constants have values; ``fit`` finds them.

    Example:
        >>> import sciml
        >>> class Plate(sciml.Problem):
        ...     domain = sciml.Disk((0, 0), 1)
        ...     fields = ["u"]
        ...     k = sciml.Unknown(1.0, lower=0)
        ...     conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]
        ...     @sciml.equation
        ...     def balance(self, u, x, y):
        ...         return self.k * sciml.laplacian(u, x, y) + 1
        >>> data = {"x": [0.0, 0.5], "y": [0.0, 0.0], "u": [1.0, 0.75]}
        >>> way = sciml.strategies.NonlinearRegression((sciml.strategies.Tiles(3, 6),))
        >>> bool(abs(sciml.fit(Plate(), data=data, strategy=way).unknowns.loc["k", "estimate"] - 0.25) < 1e-9)
        True

    References: D. M. Bates and D. G. Watts, Nonlinear Regression Analysis and Its Applications, Wiley 1988; J. Nocedal and
    S. J. Wright, Numerical Optimization, 2nd ed., Springer 2006, chapter 10.
    """

    ways: tuple[Strategy, ...] = ()

    def obstacle(self, work: Workspace) -> str | None:
        problem = work.problem
        if work.measurements is None or not problem.unknowns:
            return "it has no unknown constants, or no measurements of them"
        if self.ways:
            return not_by_solving(problem) or not_by_least_squares(work)
        terms = [term for block in work.discrete.train for term in block.terms]
        asked = [*problem.system.equations_ask, *(each for term in terms for each in problem.system.asked(term))]
        if problem.conditions or any(index for _, index in asked):
            return "it has derivatives or conditions, and no ways= say how it is solved where constants have values"
        if len(problem.equations) != len(problem.fields) or any(term.place != Interior() for term in problem.terms()):
            return "its equations are not as many as its fields everywhere"
        if not isinstance(problem.domain, Box) or work.dimension not in _LAW_DEGREES:
            return "its domain is no box of at most three coordinates"
        return not_by_least_squares(work)

    def candidates(self, work: Workspace, best: Candidate | None) -> Iterator[Candidate]:
        data, log = measured_alone(work), work.log
        if self.ways:
            yield from OutputError(work, data, self.ways, begun=None if best is None else best.discrete.raw).run()
            return
        assert data.measurements is not None
        known, setup = data.measurements.known(data.problem), work.discrete.with_unknowns()
        still = copy.deepcopy(data.trial).requires_grad_(False)
        law = replace(data, trial=still, rows=LawSystem(data.problem, still, data.raw))
        law = Training(log).run(law, [_REGRESSION], work.seed)
        inference = from_rows(law.objective(), known=known)
        for degree in _LAW_DEGREES[work.dimension]:
            found = with_polynomials(setup, degree, np.random.default_rng([work.seed, 7]), raw=law.raw)
            found = replace(found, inference=_carried(found, cast(LawSystem, law.rows), inference))
            sizes = found.objective(found.held).means()
            reached = math.sqrt(max(float(value) for name, value in sizes.items() if not is_measured(name)))
            reason = (
                "equations without derivatives: nonlinear regression on all measured rows by Levenberg-Marquardt, then "
                f"polynomials ({found.trial.model.extra_repr()}); the equations hold to {reached:.1e} of their natural size "
                "elsewhere"
            )
            enough = reached <= _CLOSE or log.ended
            now = Candidate(found, reached, "LeastSquares", reason, accepted=enough, sufficient=reached <= _GOOD)
            yield replace(now, status=log.status if log.ended else "converged", message=log.message)
            if enough:
                break


def measured_alone(work: Workspace) -> DiscreteProblem:
    """The set-up whose rows are measurements and priors of constants."""
    setup = work.discrete.with_unknowns()
    assert setup.measurements is not None
    # As few constants need no rows to judge by as a line does.
    blocks = [*data_blocks(setup.problem, setup.measurements), *prior_blocks(setup.problem)]
    data = tuple(block.to(setup.trial.offset.device, setup.trial.offset.dtype) for block in blocks)
    return replace(setup, train=data, held=data, leading=setup.weights)


def not_by_solving(problem: Problem) -> str | None:
    """Why the forward problem, with constants known, is not well-posed; None where it has as many conditions as it takes."""
    if problem.promoted:
        return "constants are among its coordinates"
    if miscounted(problem.bind_initial()):
        return "its conditions are too few or too many to solve it without measurements"
    return None


@dataclass(frozen=True)
class Reached:
    """A solution, the unknowns there, the slopes by these, and the loss on the measurements."""

    solution: Candidate
    raw: Mapping[str, Tensor]
    loss: float
    tangent: Tangent | None = None


class OutputError:
    """The output-error method: Gauss and Newton's steps on constants, whose slopes are those of solutions.

    Args:
        work: the problem that is solved, and its record.
        data: the set-up whose rows are the measurements alone.
        ways: the strategies that solve it where constants have values.
        stated: the problem as it was stated, where it is another one.
        begun: constants that another strategy found, from which steps begin as well, if they explain the measurements better.

    Attributes:
        dear: how exact solutions are, before the constants are known and at least at the end, in three coordinates.
    """

    dear = (1e-2, 1e-4)

    def __init__(
        self,
        work: Workspace,
        data: DiscreteProblem,
        ways: Sequence[Strategy],
        stated: Workspace | None = None,
        begun: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.work, self.data, self._ways, self.solves = work, data, ways, 0
        self._begun = None if begun is None else {name: value.detach().clone() for name, value in begun.items()}
        self.stated = work if stated is None else stated
        # How solutions are found since one was, and how long the last one took.
        self._way: Strategy | None = None
        self._took = 0.0
        # How exact solutions are before the constants are known, and at least at the end.
        self.roughly, self.exactly = _EXACT if work.dimension < _DEAR else self.dear
        given = work.options.weights
        # Weights name a term or a kind of them.
        weights = {name: each for name, each in given.items() if not is_measured(f"{name}.")} if given else None
        self._options = replace(work.options, weights=weights)

    def run(self) -> Iterator[Candidate]:
        """The solutions at better and better constants, at first no more exact than finding these takes."""
        log = self.work.log
        self.aim(self.roughly)
        first, begun = self.data.raw, self.work.begun or {}
        # Coefficients of series have none from a fit before.
        first = {name: begun[name].to(value) for name, value in first.items()} if begun.keys() == first.keys() else first
        here = self.reached({name: value.detach() for name, value in first.items()})
        if here is None:
            return
        # The first values are no estimates, and better than nothing where time ends.
        yield replace(self.candidate(here), solved=False)
        for reached in self.descents(here):
            here = reached
            now = self.candidate(here)
            yield now
        if here.tangent is None or log.stopped:
            return
        # What is far smaller than the scatter of the fields moves no constant; equations are to hold however large that is.
        self.aim(min(_BENEATH * min(self._scatter(now).values(), default=0.0), self.exactly))
        found = self.reached(here.raw)
        if found is None or log.stopped:
            return
        last = replace(found, tangent=self._tangent_again(found, here.tangent))
        # What a rough solution is off by, measurements that are many would see.
        if self.roughly > self.exactly or abs(found.loss - here.loss) > _FALL * found.loss:
            for reached in self.steps(last):
                last = reached
                yield self.candidate(last)
        if not log.stopped:
            yield replace(self.candidate(last), accepted=found.solution.accepted, sufficient=found.solution.sufficient)

    def _scatter(self, found: Candidate) -> Mapping[str, float]:
        """How the fields that follow from constants scatter."""
        if found.spread is None:
            return found.scatter
        return scattered(found.discrete.problem, found.discrete.trial, found.spread, self.work.seed)

    def descents(self, here: Reached) -> Iterator[Reached]:
        """Multistart: steps from the first constants, and from far ones where these explain measurements better."""
        for here in self.steps(here):  # noqa: B020 - the last one is used below
            yield here
        found = None if self._begun is None or self.work.log.over() else self.reached(self._begun)
        if found is not None and found.loss < here.loss:
            for here in self.steps(found):
                yield here
        if (other := self.elsewhere(here)) is not None:
            yield from self.steps(other)

    def elsewhere(self, here: Reached) -> Reached | None:
        """Global search: the best of constants far from the first ones; None where none is better, or nothing is missing.

        Waves and oscillations have a minimum for every period that they are off by.
        """
        # Coefficients of series are found from constants that were looked for.
        if self.stated is not self.work:
            return None
        seen = self._seen(here.solution, here.raw)
        patterns = (each for each in lack_of_fit(seen.rows, seen.train) if each.significant)
        if not any(each.systematic > _UNEXPLAINED for each in patterns):
            return None
        unknowns, best = self.data.problem.unknowns, here
        for shares in _spread(len(unknowns), self.work.seed):
            far = zip(unknowns.items(), shares, strict=True)
            raw = {name: each.raw_of(_far(each, share)).to(here.raw[name]) for (name, each), share in far}
            found = self.reached(raw)
            best = best if found is None or not found.loss < best.loss else found
            if self.work.log.over():
                break
        return None if best is here else best

    def steps(self, here: Reached) -> Iterator[Reached]:
        """Gauss and Newton's steps, as long as they lower the loss."""
        log, tangent, moved, slow, first = self.work.log, here.tangent, 0.0, False, 0
        for _ in range(_ROUNDS):
            # Slopes serve a little further on as well.
            tangent = self._tangent(here) if tangent is None or moved > _NEAR else tangent
            if tangent is None:
                return
            here = replace(here, tangent=tangent)
            yield here
            here, wanted = self.wanted(here, tangent)
            law = self.linear({name: value.detach() for name, value in wanted.items()}, tangent).objective()
            if log.stopped or here.loss - float(law.total(law.means())) <= _SLIGHT * here.loss:
                return
            moves = {name: wanted[name].detach() - value for name, value in here.raw.items()}
            for tried, taken in itertools.islice(enumerate(self.shortened(moves)), first, None):  # noqa: B007 - used below
                begin = tangent.foretold(taken)
                self._way = self._way if begin is None else Tiles(on=self.followed(begin).model)
                found = self.reached({name: value + taken[name] for name, value in here.raw.items()})
                if (found is not None and found.loss < here.loss) or log.stopped:
                    break
            if found is None or not found.loss < here.loss:
                return
            # Where steps had to be shortened, the next ones will be about as short.
            first = max(0, tried - 1)
            moved = max(abs(float(move)) for move in taken.values())
            whole = all(torch.equal(taken[name], move) for name, move in moves.items())
            slight = here.loss - found.loss <= _FALL * here.loss
            settled = (slight and (whole or slow)) or (whole and moved <= _SMALL)
            slow = slight
            tangent = tangent.about(self.whole(found.solution.discrete.trial, found.raw), found.raw)
            here = replace(found, tangent=tangent)
            if settled or log.stopped:
                yield here
                return

    def wanted(self, here: Reached, tangent: Tangent) -> tuple[Reached, Mapping[str, Tensor]]:
        """Where a step begins, and the raw numbers at which linearised measurements are met best."""
        return here, Training(self.work.log).run(self.linear(here.raw, tangent), [_LINEARISED], self.work.seed).raw

    def whole(self, trial: Any, raw: Mapping[str, Tensor]) -> Any:
        """The trial function that measurements see, of a solution at raw numbers."""
        return trial

    def slopes(self, together: Any) -> Any:
        """The derivatives by all raw unknowns of what measurements see, side by side, from those of a solution."""
        return together

    def followed(self, trial: Any) -> Any:
        """The solution in what measurements see."""
        return trial

    def all_slopes(self, model: TilePolynomials, found: Tensor) -> Tensor:
        """The derivatives of all that measurements see, ``(q, T, F, K)``, from those of a solution on the tiles of a model."""
        return found

    def shortened(self, moves: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """The steps that are tried in turn, as long as they do not lower the loss."""
        longest = max(abs(float(move)) for move in moves.values())
        for most in _MOST:
            yield {name: move * min(1.0, most / max(longest, 1e-300)) for name, move in moves.items()}

    def aim(self, enough: float) -> None:
        """Solve no more exactly than is ``enough``, by whatever way is best for that."""
        self._options, self._way, self._took = replace(self._options, enough=enough), None, 0.0

    def _seen(self, solution: Candidate, raw: Mapping[str, Tensor]) -> DiscreteProblem:
        """The measurements of a solution."""
        return self.data.with_unknowns(raw).with_trial(self.whole(solution.discrete.trial, raw))

    def loss(self, solution: Candidate, raw: Mapping[str, Tensor]) -> float:
        """What measurements lose by a solution."""
        objective = self._seen(solution, raw).objective()
        # Windows that end before the time does say nothing of later measurements.
        return float(objective.total(objective.means())) if solution.solved else math.inf

    def reached(self, raw: Mapping[str, Tensor]) -> Reached | None:
        """What there is at some values."""
        found = self._solved(raw)
        return None if found is None else Reached(found, raw, self.loss(found, raw))

    def _solved(self, raw: Mapping[str, Tensor]) -> Candidate | None:
        """The forward solution where constants have values, by the best way, and then on its tiles; or None."""
        if self.solves and self.work.log.over(ahead=self._took):
            if self.work.log.spent:
                self.work.log.notes["constants"] = "another solution would have taken longer than what was left of the time"
            return None
        best: Candidate | None = None
        began, known = self.work.log.seconds, self._way is not None
        self.solves += 1
        problem = self.work.problem.unmeasured()
        values = {name: float(each.value(raw[name])) for name, each in problem.unknowns.items()}
        varied = Varied(problem, {name: value.detach().cpu() for name, value in raw.items()})
        for way in self._ways if self._way is None else [self._way]:
            own = replace(self.work.on(None), problem=problem.bind(**values), options=self._options, varied=varied)
            try:
                found = search([way], own)
            except SolverError:
                continue
            if found is not None and found.status == "interrupted":
                raise KeyboardInterrupt
            if found is not None and (best is None or found.rank < best.rank):
                model, best = getattr(found.discrete.trial, "model", None), found
                self._way = Tiles(on=model) if isinstance(model, TilePolynomials) else way
            if (best is not None and best.accepted) or self.work.log.stopped:
                break
        # Whoever looks for a way takes longer than those who know one.
        self._took = self.work.log.seconds - began if known else 0.0
        return best

    def _tangent(self, here: Reached) -> Tangent | None:
        """The solution and those beside it; None where one is not found."""
        trial, beside = self.whole(here.solution.discrete.trial, here.raw), list[nn.Module]()
        if _on_tiles(here.solution):
            own, budget = replace(here.solution.discrete, problem=self.work.problem), self.work.log.budget
            tables = sensitivities(own, here.raw, self.work.seed, budget.accelerator)
            if tables is None:
                return None
            return TableTangent(trial, _beside(trial, self.all_slopes(trial.model, tables)), here.raw)
        if here.solution.slopes:
            return TableTangent(trial, self.slopes(side_by_side(here.solution.slopes)), here.raw)
        steps = {name: _BESIDE * max(1.0, abs(float(value))) for name, value in here.raw.items()}
        for name, step in steps.items():
            found = self.reached({**here.raw, name: here.raw[name] + step})
            if found is None or self.work.log.stopped:
                return None
            beside.append(self.whole(found.solution.discrete.trial, found.raw))
        return Tangent(trial, [trial, *beside], here.raw, steps)

    def _tangent_again(self, here: Reached, before: Tangent) -> Tangent:
        """The slopes on other tiles, which one factor gives, or in other windows; otherwise those that there are."""
        found = self._tangent(here) if _on_tiles(here.solution) or here.solution.slopes else None
        return before.about(self.whole(here.solution.discrete.trial, here.raw), here.raw) if found is None else found

    def linear(self, raw: Mapping[str, Tensor], tangent: Tangent, data: DiscreteProblem | None = None) -> DiscreteProblem:
        """The measurements as rows of affine functions of the constants."""
        data = (self.data if data is None else data).with_unknowns(raw)
        return replace(data, trial=tangent, rows=TangentSystem(data.problem, tangent, data.raw))

    def candidate(self, here: Reached) -> Candidate:
        """A solution of the whole problem, with what measurements say of its unknowns."""
        assert self.data.measurements is not None
        known, now = self.data.measurements.known(self.data.problem), here.solution
        trial = self.whole(now.discrete.trial, here.raw)
        if here.tangent is None:
            raw, none = torch.stack(list(here.raw.values())).cpu().numpy(), np.zeros(len(here.raw))
            rows = sum(block.size for block in self.data.train)
            found = from_information(
                self.data.problem.unknowns, raw, np.diag(none), 1.0, 0.0, none, none + 1, none, measurements=rows
            )
            said = [each for each in (now.doubt, "the constants are those that it began with: no step was taken") if each]
            now = replace(now, doubt="; ".join(said))
        else:
            law, found = self.linear(here.raw, here.tangent), self.inferred(here, here.tangent, known=known)
            now = replace(now, spread=here.tangent.spread(found))
            if found.spread.size and now.spread is None:
                scatter = relative_scatter(law.problem, partial(_scatter, law, found), trial, self.work.seed)
                now = replace(now, scatter=scatter)
        # Coefficients of series are nobody's constants.
        stated = {name: here.raw[name] for name in self.stated.problem.unknowns}
        found = replace(found, estimates={name: found.estimates[name] for name in stated}, spread=np.zeros((0, 0)))
        whole = self.stated.discrete.with_unknowns(stated).with_trial(trial, inference=found)
        if now.regular is not None:
            whole = judged_apart(whole, now.regular)
        now = replace(now, discrete=whole, reason=f"{self.how()}: {now.reason}", solver="LeastSquares")
        return replace(now, accepted=False, sufficient=False)

    def inferred(self, here: Reached, tangent: Tangent, *, known: bool) -> Inference:
        """What linearised measurements, the size of whose noise is ``known`` or not, say of all that is varied."""
        return from_rows(self.linear(here.raw, tangent).objective(), known=known)

    def how(self) -> str:
        """What was done, in words."""
        return f"constants by nonlinear regression, {self.solves} solutions at constants that have values"


def _spread(count: int, seed: int) -> Array:
    """Sobol points of the unit cube of so many constants, ``(n, count)``; evenly spaced ones of one."""
    if count == 1:
        return (np.arange(2**_PLACES)[:, None] + 0.5) / 2**_PLACES
    power = min(_PLACES + math.ceil(math.log2(count)), _MOST_PLACES)
    return cast(Array, scipy.stats.qmc.Sobol(count, rng=np.random.default_rng([seed, 12])).random_base2(power))


def _far(unknown: Unknown, share: float) -> Tensor:
    """A value within the bounds of a constant, or by raw numbers where it has not two."""
    if unknown.lower is not None and unknown.upper is not None:
        return torch.tensor(unknown.lower + share * (unknown.upper - unknown.lower), dtype=torch.float64)
    return unknown.value(unknown.raw_initial() + _RANGE * (2.0 * share - 1.0)).detach()


def _beside(here: Any, tables: Tensor) -> Scaled:
    """The derivatives of coefficients on the tiles of a solution, ``(q, T, F, K)``, as polynomials on these side by side."""
    model = here.model.like(len(tables) * here.model.outputs)
    model.coefficients.copy_(tables.permute(1, 0, 2, 3).flatten(1, 2))
    low, high, scale = here.center - here.half_width, here.center + here.half_width, here.scale.tolist() * len(tables)
    return Scaled(model, low.tolist(), high.tolist(), [0.0] * len(scale), scale).to(tables)


def _on_tiles(found: Candidate) -> bool:
    """Whether a solution is polynomials on tiles."""
    return isinstance(getattr(found.discrete.trial, "model", None), TilePolynomials)


def _scatter(law: DiscreteProblem, inference: Inference, points: Tensor) -> dict[str, Array]:
    """Standard errors of fields at points, by their slopes in the constants and the covariance of these."""
    leaves, values = per_point(law.problem, law.raw, len(points))
    jets = cast(TangentSystem, law.rows).affine(points, values)
    found = {}
    for field in law.problem.fields:
        slopes = gradients(jets.jet(field, ()), list(leaves.values()))
        moved = torch.stack([each for each in slopes if each is not None], dim=1)
        found[field] = (moved @ torch.from_numpy(inference.spread).to(moved)).norm(dim=1).cpu().numpy()
    return found


def _carried(found: DiscreteProblem, law: LawSystem, inference: Inference) -> Inference:
    """Give polynomials the values of a law; the inference whose spread moves their weights as it moves the fields."""
    points = torch.cat([points for block in found.train for points in block.sample.points])
    leaves, values = per_point(found.problem, law.raw, len(points))
    fields = law.solved(found.problem.bind(**values), points)
    slopes = [gradients(field, list(leaves.values())) for field in fields.unbind(1)]
    zero = torch.zeros_like(fields[:, 0])
    moved = torch.stack([torch.stack([zero if each is None else each for each in row], dim=1) for row in slopes], dim=1)
    moved = moved @ torch.from_numpy(inference.spread).to(moved)
    trial = found.trial
    with torch.no_grad():
        wanted = [((fields - trial.offset) / trial.scale)[..., None], moved / trial.scale[:, None]]
        weights = output_weights(trial, points, torch.cat(wanted, dim=2).flatten(1)).unflatten(1, (fields.shape[1], -1))
        trial.model.layers[-1].weight.copy_(weights[:, :, 0].T)
    spread = np.concatenate([weights[:, :, 1:].transpose(0, 1).flatten(0, 1).numpy(), inference.spread])
    return replace(inference, spread=spread)
