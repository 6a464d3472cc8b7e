"""Fit: from a problem and its measurements to a solution, by the strategies that serve it."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from sciml._text import listed
from sciml.baselines.predictability import doubt
from sciml.diagnostics.certificate import Certificate
from sciml.diagnostics.convergence import overfitted, stagnant
from sciml.diagnostics.differentiation_index import errors_of_rates
from sciml.diagnostics.estimated_error import (
    ErrorEstimate,
    determined_up_to,
    estimated_error,
    left_open,
    missed,
    relative_scatter,
    scattered,
)
from sciml.diagnostics.null_space import free_directions
from sciml.diagnostics.preflight import checked
from sciml.errors import ProblemError, SolverError
from sciml.parallel import process_group
from sciml.problem import Problem
from sciml.runs import CheckpointEvery, RunDirectory
from sciml.runs.checkpoint import Checkpointer
from sciml.runs.fingerprint import fingerprint
from sciml.runs.save import from_record, load_weights, to_record
from sciml.solution import Solution, profiles_frame, unknowns_frame
from sciml.solvers import (
    Adaptive,
    Balanced,
    Callback,
    Causal,
    DiscreteProblem,
    EarlyStopping,
    HardConstraints,
    ProgressLine,
    Weightings,
)
from sciml.solvers.batching import predicted
from sciml.solvers.discrete_problem import device_of
from sciml.strategies import Polish, Tiles, Windows
from sciml.strategies.minibatches import fed
from sciml.strategies.network import Train
from sciml.strategies.noise_scale import iterate
from sciml.strategies.search import ENDED, STOPPED, Budget, Candidate, Log, Options, Workspace
from sciml.strategies.select import solve
from sciml.strategies.tiles import MOST_COORDINATES
from sciml.strategies.training import stages_of, usual_stages
from sciml.strategies.transfer import WarmStart, check_names, check_stages
from sciml.uncertainty.error_bands import carried, spread_of
from sciml.uncertainty.model_selection import statistics
from sciml.uncertainty.profile_likelihood import profiled


def check(problem: object, early_stopping: object, callbacks: object, tolerance: object, intervals: object) -> None:
    """Refuse what is of the wrong kind."""
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


def sampler_of(given: Adaptive | str | None, problem: Problem) -> Adaptive | None:
    """The strategy that the argument ``sampler`` of ``fit`` means."""
    if isinstance(given, str) and given == "auto":
        return Adaptive() if len(problem.coordinates) > 1 else None
    if given is None or isinstance(given, Adaptive):
        return given
    raise SolverError(f"sampler must be sciml.Adaptive(...), None or 'auto'; given: {given!r}")


# The budget of time where the problem decides the way; and how long a fit is silent where nobody asked for progress.
_SECONDS, _SILENT = 600.0, 2.0
# A budget of memory as small as this was meant in other units.
_FEW_BYTES = 1e4
# The options by which a fit is known again when it is resumed.
_SETTINGS = "points", "weights", "exact", "dtype", "seed", "sampler", "early_stopping", "tolerance", "windows", "freeze"
# For how long an integration by SciPy may look for doubts, at least.
_LEAST_LOOK = 2.0
# What rounding to fewer digits may change of a field's size.
_ROUNDING = 1e-4

_MESSAGES = {
    "converged": "the last solver converged",
    "plateau": "the loss on held-out rows no longer falls",
    "budget": "all steps were used",
    "stopped": "a callback ended the fit",
    "interrupted": "interrupted; this is the best state up to then",
}


def warm_start(start: Any, problem: Problem, model: nn.Module | None) -> WarmStart | None:
    """What the argument ``start`` of ``fit`` means; see ``WarmStart.of``."""
    if isinstance(start, str | Path):
        start, exact = load_weights(start, model)
        return WarmStart.of(start, problem, model, exact=exact)
    return WarmStart.of(start, problem, model)


def teaching(teacher: Any, problem: Problem, *, alone: bool) -> nn.Module | str | None:
    """What the argument ``teacher`` of ``fit`` means: a trial function, ``"auto"``, or None where nothing is to teach."""
    if teacher is None or (isinstance(teacher, str) and teacher == "auto"):
        return "auto" if alone and teacher is not None else None
    if not isinstance(teacher, Solution):
        raise SolverError(f"teacher must be a solution, 'auto' or None; given: {teacher!r}")
    check_names(teacher, problem, "teacher")
    if not alone:
        raise SolverError(
            "teacher= has a model learn from a solution, by solvers of its own: give a model, and leave out solver, points, "
            "windows, exact, causal, start, strategy and freeze; train on the equations afterwards by start="
        )
    if problem.unknowns:
        raise SolverError("teacher= cannot say what the measurements tell of unknown constants: leave it out")
    return teacher.trial


def _rounded(solution: Solution, problem: Problem, kind: torch.dtype, seed: int) -> Solution:
    """The solution in a floating-point type of fewer digits, or as it was found where rounding would spoil it."""
    trial = copy.deepcopy(solution.trial).to(kind)
    few, found = (str(each).removeprefix("torch.") for each in (kind, solution.dtype))

    def changes(points: torch.Tensor) -> dict[str, np.ndarray]:
        gaps = predicted(trial, points) - predicted(solution.trial, points)
        return dict(zip(solution.fields, gaps.numpy().T, strict=True))

    rounding = relative_scatter(problem, changes, solution.trial, seed)
    if not all(each <= _ROUNDING for each in rounding.values()):
        said = f"kept in {found}: {few} would change a field by {max(rounding.values()):.1e} of its size"
        return replace(solution, choices=(*solution.choices, said))
    errors = {name: math.hypot(each, rounding[name]) for name, each in solution.estimated_error.items()}
    return replace(solution, trial=trial, estimated_error=errors, choices=(*solution.choices, f"found in {found}"))


def _moved(solution: Solution, device: torch.device) -> Solution:
    """The solution on the device that was asked for, if it was found on another."""
    if solution.device == device:
        return solution
    choices = (*solution.choices, f"found on {solution.device}")
    return replace(solution, trial=solution.trial.to(device), choices=choices)


def _begin_nearer(solution: Solution, setup: DiscreteProblem) -> Solution:
    """Initial guess: the solution, with what to try of a nonlinear problem at rest where it is none."""
    problem = setup.problem
    at_rest = problem.time is None and setup.measurements is None and len(problem.coordinates) <= MOST_COORDINATES
    over = solution.success or solution.status == "interrupted"
    if over or not at_rest or problem.system.linear(setup.train, setup.sizes):
        return solution
    guess = f"start={{{problem.fields[0]!r}: lambda {', '.join(problem.coordinates)}: ...}}"
    said = f"nonlinear equations may have several solutions, or none near zero: begin from a first guess, {guess}"
    return replace(solution, message=f"{solution.message}; {said}")


def concluded(best: Candidate, notes: Sequence[str], log: Log, options: Options, intervals: str) -> Solution:
    """The solution of a fit, judged on points that nothing was trained on."""
    setup, status, message = best.discrete, best.status, best.message
    setup.trial.eval()
    try:
        # Of what is no solution yet there is nothing to certify, and no time.
        hurried = status == "interrupted" or (log.spent and not best.solved)
        issued = Certificate.issue(setup, options.tolerance, hurried=hurried)
    except KeyboardInterrupt:
        status, message = "interrupted", "judged on few points"
        hurried = True
        issued = Certificate.issue(setup, options.tolerance, hurried=hurried)
    # What was learned is judged by what it was learned from, and by the distance from that.
    setup = replace(setup, scales=issued.setup.scales, natural=issued.setup.natural)
    judged = issued if best.teacher is None else Certificate.issue(best.teacher, options.tolerance, hurried=hurried)
    inference = judged.inference
    if not best.ended and (lost := issued.not_finite()):
        status, message = "diverged", lost
    profile = intervals == "profile" and inference.measurements and status not in STOPPED
    if profile and next(judged.setup.trial.parameters(), None) is None:
        log.notes["intervals"] = "from the covariance, for the fields follow from constants: a profile refits free weights"
    elif profile:
        try:
            inference = profiled(judged.setup, inference)
        except KeyboardInterrupt:
            status, message = "interrupted", "intervals are from the covariance"
    spread = spread_of(judged.setup, inference) if best.spread is None else best.spread
    if spread is not None and best.teacher is not None:
        spread = carried(spread, setup.problem, best.teacher.trial, setup.trial)
    known, spent = ErrorEstimate(dict(best.errors)), log.spent and status == "stopped"
    whole = best.solved and (spent or status not in ENDED)
    if not known.errors and whole and (best.at_most or not best.doubt):
        alone = setup.measurements is None and not spent
        # What refinements changed is doubted with them; corrections may still say how far off they are.
        at_most = {} if best.doubt else {name: min(1.0, each) for name, each in best.at_most.items()}
        known = estimated_error(setup, options.seed, best.residual, at_most) if alone else ErrorEstimate(at_most)
    errors = known.errors
    if whole and setup.measurements is None:
        # Where nothing else is known of them, fields are off by what is left of the equations at least.
        rates = {name: max(own, errors.get(name, best.residual)) for name, own in errors_of_rates(setup).items()}
        errors = {**errors, **{name: min(1.0, own) for name, own in rates.items()}}
    # The search may have found what the certificate finds.
    doubts = dict.fromkeys(filter(None, [best.doubt, *judged.reasons]))
    reasons = [*doubts, *missed(errors, options.largest_error)]
    # What the noise of measurements adds is an error of the answer, and none of the way it was found; where equations do not
    # hold it says nothing alone.
    noise = best.scatter if spread is None else scattered(setup.problem, setup.trial, spread, options.seed)
    if noise and (errors or not judged.fails):
        errors = {name: math.hypot(errors.get(name, 0.0), each) for name, each in noise.items()}
    for each in judged.systematic:
        # What neighbours have in common is an error of the answer where they were measured, if their noise is independent.
        if each.field in errors:
            errors[each.field] = min(1.0, math.hypot(errors[each.field], each.error))
    unknown = left_open(judged.setup, noise) | dict.fromkeys(known.adrift, determined_up_to(known.adrift))
    # Polynomials say more of what is missing.
    unknown |= free_directions(judged.setup, options.seed) if whole else {}
    reasons += dict.fromkeys(unknown.values())
    errors |= dict.fromkeys(unknown, 1.0)
    if whole and not (errors or reasons) and setup.measurements is None and best.residual > options.largest_error:
        reasons.append(
            f"its error cannot be estimated, and a residual of {best.residual:.1e} of its natural size says little of it"
        )
    # Within the budget it may be that nothing better was found, but what was found is good enough.
    short = spent and not (best.solved and errors)
    if whole and not short and not reasons and setup.measurements is None:
        with process_group.alone():
            look = _LEAST_LOOK if spent else max(_LEAST_LOOK, log.seconds)
            beside = doubt(setup.problem, setup.trial, best.residual, look, options.tolerance)
        beside = process_group.agreed(beside)
        reasons += [] if beside.why is None else [beside.why]
        # Where nothing else tells the error, it is about the distance from that path.
        if not errors:
            errors = {name: min(1.0, each) for name, each in beside.apart.items()}
            reasons += missed(errors, options.largest_error)
    said = _MESSAGES.get(status, message)
    if spent:
        good = not (short or reasons)
        status = "budget" if good else status
        enough = "the solution is good enough, and may be better with more" if good else "give more by seconds="
        said = f"the budget of {log.budget.seconds:g} s was spent{' before the solution was good enough' * short}; {enough}"
    elif message and status in _MESSAGES:
        said = f"{said} ({message})"
    explain = judged.fails and status not in ENDED
    # What was warned of before is the likeliest cause.
    causes = [each for each in log.warned if (reasons or short) and each not in reasons]
    remarks = [*judged.remarks, *(overfitted(log.history) or (stagnant(setup, log.history) if explain else []))]
    counts = ", ".join(f"{block.size} for {'/'.join(term.name for term in block.terms)}" for block in setup.train)
    problem = setup.problem
    sizes_found: frozenset[str] = frozenset() if setup.measurements is None else setup.measurements.found
    # Of millions of measurements these take a while, which is part of the time that is told.
    told = statistics(setup.rows, setup.train, inference, sizes_found)
    if told:
        told |= {f"autocorrelation.{each.column}": each.correlation for each in judged.patterns}
    return Solution(
        trial=setup.trial.requires_grad_(False),
        problem=problem,
        name=type(problem).__name__,
        fields=tuple(problem.fields),
        domain=problem.domain,
        unknowns=unknowns_frame(inference.estimates),
        history=pd.DataFrame(log.history),
        residuals=issued.residuals,
        success=status in ("converged", "plateau", "budget", "stopped") and not reasons and not short,
        status=status,
        message="; ".join([said, *causes, *reasons, *remarks]),
        nit=log.steps,
        nfev=log.evaluations,
        seconds=log.seconds,
        solver=best.solver,
        engine=setup.rows.engine,
        seed=options.seed,
        points={term.name: block.size for block in setup.train for term in block.terms},
        choices=(
            *setup.choices,
            *([best.reason] if best.reason else []),
            *setup.rows.portion.said(),
            *notes,
            *(f"{name}: {note}" for name, note in log.notes.items()),
            f"points: {counts}",
        ),
        data=setup.table,
        tolerance=float(options.tolerance),
        estimated_error=errors,
        statistics=told,
        spread=spread,
        profiles=profiles_frame(inference.profiles),
    )


# How things are fitted that are no problems, by their type; who defines them adds them here.
_WAYS: dict[type, Callable[..., Any]] = {}


def fitted_by(kind: type, way: Callable[..., Any]) -> None:
    """Let ``fit`` hand things of a type, its model and the options that were given to a way of their own."""
    _WAYS[kind] = way


# Residuals are differentiated wherever the caller does not need gradients.
@torch.inference_mode(False)
@torch.enable_grad()
def fit(
    problem: Problem,
    model: nn.Module | None = None,
    *,
    data: Any = None,
    observe: Mapping[str, Callable[..., Any]] | None = None,
    noise: Any = None,
    strategy: Any = "auto",
    solver: Any = None,
    points: int | Mapping[str, int] | None = None,
    weights: Mapping[str, float] | Balanced | None = None,
    exact: bool | HardConstraints = False,
    causal: Causal | None = None,
    dtype: torch.dtype | str = torch.float64,
    device: str | torch.device = "auto",
    seed: int = 0,
    sampler: Adaptive | str | None = "auto",
    early_stopping: EarlyStopping | None = EarlyStopping(),  # noqa: B008 - an immutable record
    callbacks: Sequence[Callback] = (),
    tolerance: float = 0.05,
    intervals: str = "covariance",
    windows: Windows | int | None = None,
    start: Solution | str | Path | Mapping[str, Any] | None = None,
    teacher: Solution | str | None = "auto",
    freeze: str | Sequence[str] = (),
    preflight: str = "error",
    out: str | Path | RunDirectory | None = None,
    checkpoint: CheckpointEvery | None = CheckpointEvery(),  # noqa: B008 - an immutable record
    resume: bool = False,
    progress: bool | None = None,
    seconds: float | None = None,
    memory: float | None = None,
    distributed: bool = True,
) -> Solution:
    r"""Solve a differential equation, and estimate its unknown constants, by least squares of all residuals.

    It minimises :math:`\sum_i w_i \operatorname{mean}((r_i/s_i)^2)` over the parameters of a trial function and the
    unknowns, with a term for every equation, condition and measured column. The sizes :math:`s_i` are estimated from the
    problem, so that every term is a number of order one. The trial function is the one that fits best, mostly polynomials or
    random features, or the model that is given, such as a network. In every phase the state that is best on held-out points
    is kept. The model handed in is not changed, nor is any global state; the same call gives the same bits on one machine,
    unless a limit of seconds ends a step of it early.

    Args:
        problem: the problem; or pairs or a family of ``sciml.operators``, of which the outcome is a ``Surrogate``.
        model: any ``torch.nn.Module`` that maps ``(n, D)`` to ``(n, F)``, row by row; a copy is trained, in coordinates
            scaled to [-1, 1] and fields of order one. By default (and with ``solver``, ``points``, ``windows``, ``exact``,
            ``causal`` and ``Balanced`` left open, too) the problem decides by its strategies: polynomials on boxes of at most
            three coordinates and on tiles that other domains cut, slabs of time on elements, grids or tiles, windows of time,
            singular functions at corners, random features, strategies of their own for unknown constants and functions;
            whatever these do not solve well, by what ``baseline`` does and by an ``MLP``, if these do better.
        data: measurements as a ``Table``, DataFrame or dict of columns named like the coordinates and fields; by
            default the problem's own ``measurements()``. A column ``u_x`` measures that derivative. First-order solvers read a
            ``LazyTable`` batch by batch; a random sample of its rows serves everything else.
        observe: what columns measure that are not named after a field, ``{"in_bed": lambda I: I}``; see ``Measurements``.
        noise: how columns scatter: ``Normal``, ``Huber``, ``StudentT``, ``LogNormal``, ``Poisson``, a standard deviation, the
            name of a column of such, or a dict of these by column; see ``Measurements``. Where a size is not given, it is found
            from the misfit of a first fit.
        strategy: the way to solve it: ``"auto"``, or one or several of ``sciml.strategies`` in turn, such as
            ``sciml.strategies.Spectral(20)``, as objects or by name. ``choices`` of the solution says what was tried, what was
            left out, and why.
        solver: a solver or several in turn, each from the best state of the one before: ``Adam``, ``LBFGS``,
            ``FirstOrder``, ``LeastSquares``, ``SSBroyden``, ``GaussNewton``, ``Polish``, or a class of ``torch.optim``. By
            default a model learns from a ``teacher``; where there is none, Adam, then self-scaled Broyden, or L-BFGS for more
            than 5,000 parameters.
        points: the number of points inside, or numbers by term (``{"interior": 4000, "dirichlet": 200}``).
        weights: :math:`w_i` by term or kind (``{"initial": 1000, "data.hare": 0.1}``). By default 1 for equations, 10
            for conditions, and for data 1 in the first phase, when they lead the way, and 0.01 after it, so that noisy
            data cannot bend the equations. ``Balanced(...)`` lets them follow from how strongly each term pulls.
        exact: True lets the trial function satisfy initial, Dirichlet and periodic conditions whatever the model does; they are
            not trained on then, and stay in the certificate. ``HardConstraints(...)`` holds some of them.
        causal: ``Causal(...)`` lets the equations count at a time only once they hold before it.
        dtype: ``torch.float64`` or ``torch.float32``, or their names. Where the problem decides the way, and where a model
            learns, a solution in float32 is found in float64 and handed out with a trial function in float32, and the rounding
            in its estimated error; it stays in float64 where rounding would change a field by more than 1e-4 of its size.
            Values at arrays come as arrays of float64 either way, those at tensors as tensors.
        device: where networks are trained and random features solved for; ``"auto"`` takes a GPU where there is one and the
            model is large enough to gain from it. Polynomials, tiles and windows are solved for on the CPU, and handed out on
            the device that was named.
        seed: of weights and points.
        sampler: ``Adaptive(...)`` redraws the points inside where residuals are large; None keeps them; ``"auto"`` redraws
            for two and more coordinates.
        early_stopping: when a phase ends early; None never.
        callbacks: functions that see every ``Report``; a true return value ends the fit. One with a method ``conclude`` is
            given the solution in the end, as ``sciml.Tracker("mlflow")`` is.
        tolerance: the certificate holds when every residual that is not a measurement has, on fresh points, a root mean
            square below this fraction of its natural size.
        intervals: of unknown constants: ``"covariance"``, from the least-squares covariance at the solution, or ``"profile"``,
            from profile likelihood: refits with a constant held, some ten for each, whose intervals need not be symmetric and
            are open where the data determine nothing.
        windows: solve in this many windows of time, each begun from the end of the one before; the solvers run in each.
        teacher: what a model learns from where nothing but it is named: ``"auto"``, the best solution that the strategies find
            in a third of the budget; another solution; or None, to train it on the equations. A model that learned has its
            distance from the teacher as ``estimated_error``; where nothing solves the problem it is trained on the equations.
        start: begin from another solution, or the file of one: from its model, in its scaling, and its unknowns. The
            problem may have other constants, data and bounds, but the same coordinates and fields. The default solver is then
            L-BFGS, or Gauss-Newton steps where the model is linear in its parameters; from a solution on tiles Newton's method
            begins, on tiles of its own. So it does from a first guess of fields, numbers or functions of coordinates by their
            names (those left out are zero): ``start={"u": lambda x: torch.sin(x)}``, and of problems at rest from a solution
            on a grid, such as that of ``baseline``.
        freeze: parts of the model that no solver varies, by their names in ``model.named_modules()``, with wildcards as in a
            shell: ``freeze=("layers.0", "layers.2")``.
        preflight: what becomes of mistakes that ``sciml.preflight`` finds before the first step: ``"error"`` raises, ``"warn"``
            goes on after a ``PreflightWarning`` where it can, ``"off"`` does not look.
        out: a directory for ``summary.json`` and ``solution.pt``, and, while the fit runs, ``checkpoint.pt`` and
            ``history.jsonl``.
        checkpoint: when checkpoints are written into ``out``; None never.
        resume: continue what ``out`` holds, to the same bits as if it had not been interrupted; a fit that was finished there
            is read from its file, and where there is none it begins.
        progress: show a live line; by default in a terminal, of fits that take longer than two seconds.
        seconds: the budget of time. When it is spent, the step under way ends, and the best so far is returned, which is a
            success only if its estimated error is small enough. By default ten minutes where the problem decides the way, no
            limit where a model, a solver or a strategy is given.
        memory: the budget of memory in bytes for the grids, tiles and factors of one method; by default a third or so of what
            is free.
        distributed: under ``torchrun``, let all processes work on this fit: those solvers that are named, or train a model
            with ``teacher=None``, divide the rows among them, everything else is done by the first process and handed round.
            False: every process goes its own way.

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
    defaults = {name: each.default for name, each in inspect.signature(fit).parameters.items()}
    arguments = {name: value for name, value in locals().items() if name in defaults}
    if (own_way := _WAYS.get(type(problem))) is not None:
        # Pairs and families of ``sciml.operators`` bring their own way, with those options that were given.
        changed = {name: value for name, value in arguments.items() if value is not defaults[name]}
        own = {name: value for name, value in changed.items() if name not in ("problem", "model")}
        taken = list(inspect.signature(own_way).parameters)[2:]
        if wrong := [name for name in own if name not in taken]:
            raise SolverError(f"a fit of operators does not take {listed(wrong)}; it takes {listed(sorted(taken))}")
        return own_way(problem, model, **own)
    if distributed and process_group.offered():
        with process_group.joined():
            return fit(**arguments)
    clock = time.perf_counter()
    check(problem, early_stopping, callbacks, tolerance, intervals)
    begin = warm_start(start, problem, model)
    model_from, way = begin, strategy
    automatic = isinstance(strategy, str) and strategy == "auto"
    if begin is not None and begin.on_tiles:
        # No solver varies polynomials on tiles: they have a strategy of their own.
        wanted = [Tiles] if automatic else list(strategy) if isinstance(strategy, list | tuple) else [strategy]
        ways = [Tiles() if each in (Tiles, Tiles.__name__) else each for each in wanted]
        if not any(isinstance(each, Tiles) for each in ways):
            raise SolverError(f"start: 'Tiles' alone begins from a solution on tiles; given: strategy={strategy!r}")
        model_from, way = None, [replace(each, begin=begin) if isinstance(each, Tiles) else each for each in ways]
    given = model_from.solvers(problem) if model_from is not None and solver is None else solver
    solvers = () if given is None else tuple(stages_of(given))
    kind: Any = {"float32": torch.float32, "float64": torch.float64}.get(str(dtype), dtype)
    options = Options(
        points=points,
        weights=None if isinstance(weights, Balanced) else weights,
        exact=exact,
        dtype=kind,
        device=device,
        seed=seed,
        sampler=sampler_of(sampler, problem),
        early_stopping=early_stopping,
        tolerance=tolerance,
        windows=windows if isinstance(windows, Windows | None) else Windows(windows),
        freeze=freeze,
        weightings=Weightings.of(weights, causal, problem),
    )
    check_stages(begin, freeze, options.windows, any(isinstance(each, Polish) for each in solvers))
    amount = f"number of bytes above {_FEW_BYTES:,.0f}, such as 2e9 for two gigabytes"
    for name, number, least, what in (("seconds", seconds, 0, "positive number"), ("memory", memory, _FEW_BYTES, amount)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float) or not number > least):
            raise SolverError(f"{name} must be a {what}; given: {number!r}")
    shown = process_group.first() and (sys.stderr.isatty() if progress is None else progress)
    line = ProgressLine(after=_SILENT if progress is None else 0.0) if shown else None
    data, feed = fed(problem, data, seed)
    model = model if model_from is None else model_from.model
    # Only where nothing but the problem was named is the way to be chosen.
    named = solver, points, windows, model_from, *options.weightings.rules
    unnamed = all(each is None for each in named) and not freeze and exact is False
    free = unnamed and model is None
    learned = teaching(teacher, problem, alone=unnamed and automatic and model is not None and feed is None)
    if process_group.several() and (free or not automatic or learned is not None):
        # Searches decide by clocks, and have no rows in common: one process does the work, all have what it found.
        return process_group.by_first(
            lambda: fit(**{**arguments, "distributed": False}),
            to_record,
            lambda content: from_record(Path("the first process"), content, problem, model),
        )

    record = Checkpointer(out, checkpoint, resume)
    with record, line or contextlib.nullcontext():
        measurements = checked(preflight, problem, data, observe, noise, model=model, exact=exact, dtype=kind, device=device)
        # Before anything of a run is kept.
        where = device_of(device)
        settings = {
            "solver": solvers,
            **{name: getattr(options, name) for name in _SETTINGS},
            "rules": options.weightings.rules,
            "intervals": intervals,
            "strategy": strategy,
            "start": None if begin is None else begin.scaled.state_dict(),
            "teacher": learned.state_dict() if isinstance(learned, nn.Module) else learned,
        }
        finished, model = record.begin(problem, model, partial(fingerprint, problem, model, measurements, settings, device))
        if finished is not None:
            return finished
        watchers = record.watching([*callbacks, *([] if line is None else [line])])
        limit = (_SECONDS if learned is not None or (free and automatic) else math.inf) if seconds is None else seconds
        log = Log(watchers, clock - record.seconds, Budget(limit, memory, where))
        if (free or learned is not None) and kind == torch.float32:
            # Least squares needs all digits on the way.
            options = replace(options, dtype=torch.float64)
        work = Workspace(problem, measurements, options, log, record.journal, feed)
        train = Train(model, solvers, model_from)
        best, notes = iterate(partial(solve, given=way, train=train, free=free, teacher=learned), work)
        if feed is not None:
            used = best.solver.split(", ")
            stages = solvers or usual_stages(best.discrete.objective().shape[1])
            notes = [*notes, feed.notes(best.discrete, [each for each in stages if each.name in used])]
        if process_group.several():
            notes = [*notes, f"{process_group.current().size} processes, each with a share of the rows"]
        solution = concluded(best, notes, log, options, intervals)
        # Whoever hands in a start or a model knows where it begins.
        solution = solution if begin is not None or model is not None else _begin_nearer(solution, best.discrete)
        solution = solution if solution.dtype == kind else _rounded(solution, problem, kind, seed)
        solution = solution if device == "auto" else _moved(solution, where)
        record.end(solution)
        # Of several processes the first one tells callbacks, here as in every report.
        told = callbacks if process_group.first() else ()
        with process_group.alone():
            for each in told:
                if callable(conclude := getattr(each, "conclude", None)):
                    conclude(solution)
    return solution
