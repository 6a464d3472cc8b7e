"""What ``fit`` makes of solvers, samplers and other settings, before anything is computed.

From a trained set-up to a solution: its certificate, intervals, doubts and message.

``fit``: from a problem to its solution.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd
import torch
from torch import nn

from sciml.diagnostics.certificate import Certificate
from sciml.diagnostics.convergence import overfitted, stagnant
from sciml.diagnostics.preflight import checked
from sciml.diagnostics.well_posedness import warn_of_conditions
from sciml.errors import ProblemError, SolverError
from sciml.geometry import Interior
from sciml.models import PeriodicInputs, RandomFeatures, Scaled
from sciml.problem import Measurements, Problem
from sciml.runs import CheckpointEvery, RunDirectory
from sciml.runs.checkpoint import Checkpointer
from sciml.runs.fingerprint import fingerprint
from sciml.runs.load import load_weights
from sciml.solution import Solution, unknowns_frame
from sciml.solvers import (
    LBFGS,
    Adam,
    Adaptive,
    Balanced,
    Callback,
    Causal,
    DiscreteProblem,
    EarlyStopping,
    FirstOrder,
    HardConstraints,
    ProgressLine,
    Solver,
    Weightings,
    fixed,
)
from sciml.solvers.journal import Journal
from sciml.strategies import Polish, Windows
from sciml.strategies.minibatches import fed
from sciml.strategies.noise_scale import Attempt, in_passes
from sciml.strategies.prepare import prepare
from sciml.strategies.random_features import Found, most_points
from sciml.strategies.select import choose
from sciml.strategies.time_marching import Level, continued, joined, march, why_not_windows, window
from sciml.strategies.training import Outcome, Stage, Training, relative, stage_name
from sciml.strategies.transfer import WarmStart, check_stages, frozen
from sciml.uncertainty.error_bands import spread_of
from sciml.uncertainty.model_selection import statistics
from sciml.uncertainty.profile_likelihood import profiled


def check(problem: object, early_stopping: object, callbacks: object, tolerance: object, intervals: object) -> None:
    """Refuse what is of the wrong kind.

    Raises:
        SciMLError: with what was expected.
    """
    if not isinstance(problem, Problem):
        hint = f"; did you mean {problem.__name__}()?" if isinstance(problem, type) else ""
        raise ProblemError(f"fit needs a problem object; given: {problem!r}{hint}")
    if not isinstance(early_stopping, EarlyStopping | None):
        raise SolverError(f"early_stopping must be sciml.EarlyStopping(...) or None; given: {early_stopping!r}")
    if not isinstance(callbacks, list | tuple) or not all(callable(each) for each in callbacks):
        raise SolverError(f"callbacks must be a list of functions; given: {callbacks!r}")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < math.inf:
        raise SolverError(f"tolerance must be a positive number; given: {tolerance!r}")
    if intervals not in ("covariance", "profile"):
        raise SolverError(f"intervals must be 'covariance' or 'profile'; given: {intervals!r}")


def stages_of(given: Any) -> list[Stage]:
    """The solvers that the argument ``solver`` of ``fit`` means.

    Raises:
        SolverError: it is none of those that it may be.
    """
    if given is None:
        return [Adam(1000), LBFGS(3000)]
    several = list(given) if isinstance(given, list | tuple) else [given]
    found: list[Stage] = []
    for each in several:
        if isinstance(each, Solver | Polish):
            found.append(each)
        elif isinstance(each, type) and issubclass(each, torch.optim.Optimizer):
            found.append(FirstOrder(each))
        elif isinstance(each, torch.optim.Optimizer):
            found.append(FirstOrder(cast(Any, each)))
        else:
            raise SolverError(
                f"a solver is sciml.Adam(...), sciml.LBFGS(...), sciml.FirstOrder(torch.optim...., ...), a class of "
                f"torch.optim, or a list of these; given: {each!r}"
            )
    if not found:
        raise SolverError("solver is an empty list; give at least one solver, or None for the default")
    return found


def sampler_of(given: Adaptive | str | None, problem: Problem) -> Adaptive | None:
    """The strategy that the argument ``sampler`` of ``fit`` means.

    Raises:
        SolverError: it is none.
    """
    if isinstance(given, str) and given == "auto":
        return Adaptive() if len(problem.coordinates) > 1 else None
    if given is None or isinstance(given, Adaptive):
        return given
    raise SolverError(f"sampler must be sciml.Adaptive(...), None or 'auto'; given: {given!r}")


_MESSAGES = {
    "converged": "the last solver converged",
    "plateau": "the loss on held-out rows no longer falls",
    "budget": "all steps were used",
    "stopped": "a callback ended the fit",
    "interrupted": "interrupted; this is the best state up to then",
}


def concluded(
    problem: Problem, done: Attempt, notes: list[str], *, seed: int, tolerance: float, intervals: str, clock: float
) -> Solution:
    """The solution of a fit, judged on points that nothing was trained on.

    Args:
        problem: the mathematics.
        done: the trained set-up, and how it was arrived at.
        notes: choices to be told beside those of the set-up.
        seed: of the fit.
        tolerance: the relative residual above which the certificate fails.
        intervals: the kind of intervals of unknown constants.
        clock: when the fit began, as ``time.perf_counter`` tells it.
    """
    setup, outcome = done.setup, done.outcome
    setup.trial.eval()
    issued = Certificate.issue(setup, tolerance)
    inference = issued.inference
    if not outcome.ended and (lost := issued.not_finite()):
        outcome.status, outcome.message = "diverged", lost
    if intervals == "profile" and inference.measurements and not outcome.stopped:
        try:
            inference = profiled(setup, inference)
        except KeyboardInterrupt:
            outcome.status, outcome.message = "interrupted", "intervals are from the covariance"
    spread = spread_of(setup, inference)
    reasons = issued.reasons
    message = _MESSAGES.get(outcome.status, outcome.message)
    if outcome.message and outcome.status in _MESSAGES:
        message = f"{message} ({outcome.message})"
    explain = issued.fails and not outcome.ended
    remarks = overfitted(outcome.history) or (stagnant(setup, outcome.history) if explain else [])
    counts = ", ".join(f"{block.size} for {'/'.join(term.name for term in block.terms)}" for block in setup.train)
    return Solution(
        trial=setup.trial.requires_grad_(False),
        problem=problem,
        name=type(problem).__name__,
        fields=tuple(problem.fields),
        domain=problem.domain,
        unknowns=unknowns_frame(inference.estimates),
        history=pd.DataFrame(outcome.history),
        residuals=issued.residuals,
        success=outcome.status in ("converged", "plateau", "budget", "stopped") and not reasons,
        status=outcome.status,
        message="; ".join([message, *reasons, *remarks]),
        nit=outcome.steps,
        nfev=outcome.evaluations,
        seconds=time.perf_counter() - clock,
        solver=done.solver,
        engine=setup.rows.engine,
        seed=seed,
        points={term.name: block.size for block in setup.train for term in block.terms},
        choices=(
            *setup.choices,
            *setup.rows.portion.said(),
            *notes,
            *(f"{name}: {note}" for name, note in outcome.notes.items()),
            f"points: {counts}",
        ),
        data=setup.table,
        tolerance=float(tolerance),
        statistics=statistics(setup.rows, setup.train, inference, _found(setup)),
        spread=spread,
    )


def _found(setup: DiscreteProblem) -> frozenset[str]:
    """The columns whose noise has a size that was found from the data."""
    return frozenset() if setup.measurements is None else setup.measurements.found


def fit(
    problem: Problem,
    model: nn.Module | None = None,
    *,
    data: Any = None,
    observe: Mapping[str, Callable[..., Any]] | None = None,
    noise: Any = None,
    solver: Any = None,
    points: int | Mapping[str, int] | None = None,
    weights: Mapping[str, float] | Balanced | None = None,
    exact: bool | HardConstraints = False,
    causal: Causal | None = None,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "auto",
    seed: int = 0,
    sampler: Adaptive | str | None = "auto",
    early_stopping: EarlyStopping | None = EarlyStopping(),  # noqa: B008 - an immutable record
    callbacks: Sequence[Callback] = (),
    tolerance: float = 0.05,
    intervals: str = "covariance",
    windows: Windows | int | None = None,
    start: Solution | str | Path | None = None,
    freeze: str | Sequence[str] = (),
    preflight: str = "error",
    out: str | Path | RunDirectory | None = None,
    checkpoint: CheckpointEvery | None = CheckpointEvery(),  # noqa: B008 - an immutable record
    resume: bool = False,
    progress: bool = False,
) -> Solution:
    r"""Solve a problem, and estimate its unknown constants, with a neural network.

    It minimises :math:`\sum_i w_i \operatorname{mean}((r_i/s_i)^2)` over the network's parameters and the unknowns, with
    a term for every equation, condition and measured column. The sizes :math:`s_i` are estimated from the problem, so
    that every term is a number of order one. In every phase the state that is best on held-out points is kept. The
    model handed in is not changed, nor is any global state; the same call gives the same bits on one machine.

    Args:
        problem: the problem.
        model: any ``torch.nn.Module`` that maps ``(n, D)`` to ``(n, F)``, row by row; a copy is trained, in coordinates
            scaled to [-1, 1] and fields of order one. By default (and with ``solver``, ``points``, ``windows``, ``exact``,
            ``causal`` and ``Balanced`` left open, too) the problem decides: linear ones, stationary ones and constants of
            ordinary differential equations by ``RandomFeatures`` whose scale and number the residual on held-out points
            picks; nonlinear ones that start in time in windows, by features and by networks with a ``Polish``; whatever this
            does not solve well, by an ``MLP``, if that does better. ``choices`` of the solution says which and why.
        data: measurements as a ``Table``, DataFrame or dict of columns named like the coordinates and fields; by
            default the problem's own ``measurements()``. A column ``u_x`` measures that derivative. First-order solvers read a
            ``LazyTable`` batch by batch; a random sample of its rows serves everything else.
        observe: what columns measure that are not named after a field, ``{"in_bed": lambda I: I}``; see ``Measurements``.
        noise: how columns scatter: ``Normal``, ``Huber``, ``StudentT``, ``LogNormal``, ``Poisson``, a standard deviation, the
            name of a column of such, or a dict of these by column; see ``Measurements``. Where a size is not given, it is found
            from the misfit of a first fit.
        solver: a solver or several in turn, each from the best state of the one before: ``Adam``, ``LBFGS``,
            ``FirstOrder``, ``LeastSquares``, ``SSBroyden``, ``GaussNewton``, ``Polish``, or a class of ``torch.optim``. By
            default Adam, then L-BFGS.
        points: the number of points inside, or numbers by term (``{"interior": 4000, "dirichlet": 200}``).
        weights: :math:`w_i` by term or kind (``{"initial": 1000, "data.hare": 0.1}``). By default 1 for equations, 10
            for conditions, and for data 1 in the first phase, when they lead the way, and 0.01 after it, so that noisy
            data cannot bend the equations. ``Balanced(...)`` lets them follow from how strongly each term pulls.
        exact: True lets the trial function satisfy initial, Dirichlet and periodic conditions whatever the model does; they are
            not trained on then, and stay in the certificate. ``HardConstraints(...)`` holds some of them.
        causal: ``Causal(...)`` lets the equations count at a time only once they hold before it.
        dtype: ``torch.float64`` or ``torch.float32``.
        device: ``"auto"`` takes a GPU where there is one.
        seed: of weights and points.
        sampler: ``Adaptive(...)`` redraws the points inside where residuals are large; None keeps them; ``"auto"`` redraws
            for two and more coordinates.
        early_stopping: when a phase ends early; None never.
        callbacks: functions that see every ``Look``; a true return value ends the fit.
        tolerance: the certificate holds when every residual that is not a measurement has, on fresh points, a root mean
            square below this fraction of its natural size.
        intervals: of unknown constants: ``"covariance"``, from the least-squares covariance at the solution, or ``"profile"``,
            from profile likelihood: refits with a constant held, some ten for each, whose intervals need not be symmetric and
            are open where the data determine nothing.
        windows: solve in this many windows of time, each begun from the end of the one before; the solvers run in each.
        start: begin from another solution, or the file of one: from its model, in its scaling, and its unknowns. The
            problem may have other constants, data and bounds, but the same coordinates and fields. The default solver is then
            L-BFGS, or Gauss-Newton steps where the model is linear in its parameters.
        freeze: parts of the model that no solver varies, by their names in ``model.named_modules()``, with wildcards as in a
            shell: ``freeze=("layers.0", "layers.2")``.
        preflight: what becomes of mistakes that ``sciml.preflight`` finds before the first step: ``"error"`` raises, ``"warn"``
            goes on after a ``PreflightWarning`` where it can, ``"off"`` does not look.
        out: a directory for ``summary.json`` and ``solution.pt``, and, while the fit runs, ``checkpoint.pt`` and
            ``history.jsonl``.
        checkpoint: when checkpoints are written into ``out``; None never.
        resume: continue what ``out`` holds, to the same bits as if it had not been interrupted; a fit that was finished there
            is read from its file, and where there is none it begins.
        progress: show a live line.

    Returns:
        The solution. After Ctrl-C it is the best one so far, with ``status="interrupted"``; when a number stopped being
        finite it is the last good one, with ``status="diverged"``. With ``out``, in the main thread, Ctrl-C and SIGTERM let
        the step end and write a checkpoint (if ``checkpoint`` is not None); after SIGTERM the process exits with status 143.

    Raises:
        ProblemError: the problem cannot be solved as it is stated (names, shapes, empty regions, unused unknowns), or a
            strategy does not apply to it (conditions that contradict each other held exactly, causal weights without time).
        ModelError: the model cannot serve (width, ReLU under a second derivative, detached output, mixed points), ``start`` has
            no single model, or ``freeze`` names no part of it.
        DataError: the data are not numbers, or lie outside the domain.
        SolverError: an unusable solver, device or dtype.
        FileError: ``out`` cannot be written, another process writes there, or what is to be resumed is another fit.

    Warns:
        ConditionWarning: conditions contradict each other where they meet, or there seem to be too few or too many of them.
        ArchiveWarning: a checkpoint or the solution could not be written, one was damaged, or a fit that was not finished is
            begun anew.

    Example:
        >>> import sciml
        >>> from sciml import d
        >>> class Decay(sciml.Problem):
        ...     domain = sciml.Interval(t=(0, 1))
        ...     fields = ["u"]
        ...     conditions = [sciml.Initial(u=1.0)]
        ...     @sciml.equation
        ...     def decay(self, u, t):
        ...         return d(u, t) + 2.0 * u
        >>> solution = sciml.fit(Decay(), sciml.MLP(8), solver=sciml.LBFGS(200))
        >>> abs(float(solution(t=1.0)["u"]) - 0.1353) < 1e-3
        True

    Reference: M. Raissi, P. Perdikaris and G. E. Karniadakis, Physics-informed neural networks, Journal of
    Computational Physics 378 (2019).
    """
    clock = time.perf_counter()
    check(problem, early_stopping, callbacks, tolerance, intervals)
    exactly = None
    if isinstance(start, str | Path):
        start, exactly = load_weights(start, model)
    begin = WarmStart.of(start, problem, model, exact=exactly)
    solvers = stages_of(begin.solvers(problem) if begin is not None and solver is None else solver)
    keeper = Checkpointer(out, checkpoint, resume)
    adaptive = sampler_of(sampler, problem)
    windows = windows if isinstance(windows, Windows | None) else Windows(windows)
    check_stages(begin, freeze, windows, any(isinstance(each, Polish) for each in solvers))
    weightings, weights = Weightings.of(weights, causal, problem), fixed(weights)
    line = ProgressLine() if progress else None
    watchers = keeper.watching([*callbacks, *([line] if line is not None else [])])
    told = list[str]()
    data, feed = fed(problem, data, seed)
    unchosen = model is None and solver is None and points is None and windows is None
    if begin is not None:
        model, points = begin.model, begin.points(problem) if points is None else points

    def attempt(measurements: Measurements | None) -> Attempt:
        found, setup, outcome = None, None, Outcome()
        if unchosen and begin is None and not freeze and not weightings.rules and exact is False:
            found = _chosen(
                problem, measurements, weights, dtype, device, seed, tolerance, watchers, clock, told, keeper.journal
            )
        stages = solvers
        if found is None or not found.taken:
            setup = prepare(problem, model, measurements, points, weights, dtype, device, seed, exact)
            setup = replace(setup, journal=keeper.journal)
            setup = frozen(setup if begin is None else begin.begun(setup), freeze)
            warn_of_conditions(problem, setup.table is not None, told, depth=3)
            training = Training(early_stopping, adaptive, watchers, clock, weightings, feed)
            stages = [*solvers, Polish()] if found is not None and setup.table is None else solvers
            setup = _trained(setup, stages, windows, training, seed)
            outcome = training.outcome
        return _better(found, setup, outcome, stages)

    with keeper, line or contextlib.nullcontext():
        measurements = checked(problem, model, data, observe, noise, exact, dtype, device, preflight, depth=1)
        settings = {
            "solver": solvers,
            "points": points,
            "weights": weights,
            "rules": weightings.rules,
            "exact": exact,
            "dtype": dtype,
            "seed": seed,
            "sampler": adaptive,
            "early_stopping": early_stopping,
            "tolerance": tolerance,
            "intervals": intervals,
            "windows": windows,
            "freeze": freeze,
            "start": None if begin is None else begin.scaled.state_dict(),
        }
        told_apart = partial(fingerprint, problem, model, measurements, settings, device)
        finished, model = keeper.begin(problem, model, told_apart)
        if finished is not None:
            return finished
        clock -= keeper.seconds
        done, notes = in_passes(attempt, problem, measurements)
        if feed is not None:
            used = done.solver.split(", ")
            notes.append(feed.notes(done.setup, [each for each in solvers if stage_name(each) in used]))
        solution = concluded(problem, done, notes, seed=seed, tolerance=tolerance, intervals=intervals, clock=clock)
        keeper.end(solution)
    return solution


def _better(found: Found | None, setup: DiscreteProblem | None, outcome: Outcome, stages: Sequence[Stage]) -> Attempt:
    """What the search found, or the network that was to do better; the search may still have done better."""
    if found is None or not (setup is None or found.relative < relative(setup)):
        assert setup is not None
        return Attempt(setup, outcome, ", ".join(stage_name(each) for each in stages))
    status = outcome.status if outcome.stopped else found.ended
    steps, evaluations = found.solves + outcome.steps, found.solves + outcome.evaluations
    whole = Outcome(status, "", steps, evaluations, [*found.history, *outcome.history])
    return Attempt(replace(found.setup, choices=(*found.setup.choices, found.reason)), whole, found.solver)


def _chosen(
    problem: Problem,
    measurements: Measurements | None,
    weights: Mapping[str, float] | None,
    dtype: torch.dtype,
    device: Any,
    seed: int,
    tolerance: float,
    watchers: Sequence[Callback],
    start: float,
    told: list[str],
    journal: Journal,
) -> Found | None:
    """What can be found without a model, solver or points of the caller's; None where a network is the better answer."""
    dimension = len(problem.coordinates)
    if dtype != torch.float64 or not problem.equations:
        return None
    setup = prepare(problem, RandomFeatures(), measurements, most_points(dimension), weights, dtype, device, seed)
    warn_of_conditions(problem, setup.table is not None, told, depth=4)
    return choose(replace(setup, journal=journal), seed, tolerance, watchers, start)


def _trained(
    setup: DiscreteProblem, stages: Sequence[Stage], windows: Windows | None, training: Training, seed: int
) -> DiscreteProblem:
    """The set-up after all stages, in one piece or in windows."""
    if windows is None:
        return training.run(setup, stages, seed)
    problem = setup.problem
    obstacle = why_not_windows(problem, setup.table is not None)
    if obstacle is None and (not isinstance(setup.trial, Scaled) or isinstance(setup.trial.model, PeriodicInputs)):
        obstacle = "exact= holds conditions of the whole of time; leave one of the two"
    if obstacle is not None:
        raise SolverError(f"windows= cannot be used for {type(problem).__name__}: {obstacle}")
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
        if not training.outcome.ended:
            piece = training.run(piece, stages[polishing:], seed, label)
        return piece, relative(piece)

    share = 1.0 / windows.count
    ended = lambda: training.outcome.ended  # noqa: E731
    return joined(
        setup, march(setup, [Level(attempt, share, share, share)], wish=math.inf, hopeless=math.inf, ended=ended)
    )
