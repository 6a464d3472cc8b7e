"""The only training loop: stages in turn, judged at every look by rows that none of them trains on."""

from __future__ import annotations

import contextlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from sciml.errors import ArchiveWarning, FileError, SciMLError, SolverError
from sciml.parallel import process_group
from sciml.solvers import (
    LBFGS,
    Adam,
    Adaptive,
    DiscreteProblem,
    EarlyStopping,
    FirstOrder,
    GaussNewton,
    Report,
    Run,
    Solver,
    SSBroyden,
    Step,
    Weightings,
)
from sciml.solvers.adaptive_sampling import enriched
from sciml.solvers.batching import exhausted, named
from sciml.solvers.signals import Abandoned
from sciml.solvers.state import generator_of, generator_state, objective_state, placed, restore_objective
from sciml.solvers.variable_projection import projected
from sciml.strategies.minibatches import Batches, DataStream
from sciml.strategies.polish import Polish
from sciml.strategies.search import Log

_OVERFIT = 10.0
# The part of what is free that the graph of one gradient may take.
_GRADIENT = 0.4
# Parameters up to which a whole inverse Hessian is kept.
_DENSE = 5000
_MISFITS = LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, RuntimeError

Stage = Solver | Polish


class Training:
    """Runs stages on set-ups, one after another, and keeps the one record of them all."""

    def __init__(
        self,
        log: Log,
        early: EarlyStopping | None = None,
        sampler: Adaptive | None = None,
        weightings: Weightings | None = None,
        feed: DataStream | None = None,
    ) -> None:
        self.log = log
        self.weightings = weightings or Weightings()
        self._feed, self._early, self._sampler = feed, early, sampler
        self._most = 0

    def run(self, setup: DiscreteProblem, stages: Sequence[Stage], seed: int, label: str = "") -> DiscreteProblem:
        """Run all stages; the set-up they arrive at, its parameters the best ones found, however it ended."""
        self._most = self.log.steps + sum(stage.steps for stage in stages)
        for number, stage in enumerate(stages):
            if isinstance(stage, Polish):
                setup = self._polished(setup, stage, seed, label)
            else:
                # Measurements lead while everything is still to be found; then the equations count as (nearly) exact.
                weights = setup.leading if number == 0 and len(stages) > 1 else setup.weights
                _Phase(self, setup, stage, weights, seed, label).run()
            if self.log.ended:
                break
        return setup

    def _polished(self, setup: DiscreteProblem, polish: Polish, seed: int, label: str) -> DiscreteProblem:
        """The best of some polished set-ups and the one given, by the loss on held-out rows."""
        best, lowest, solver = setup, held_out(setup), GaussNewton(polish.steps)
        try:
            for scale in polish.scales:
                candidate = polish.begin(setup, scale, seed)
                for count in range(polish.rounds):
                    before = lowest
                    phase = _Phase(self, candidate, solver, candidate.weights, seed, label, polishing=True)
                    phase.run()
                    if phase.lowest < lowest:
                        best, lowest = candidate, phase.lowest
                    enough = phase.lowest <= _OVERFIT * phase.loss or (count > 1 and lowest > 0.5 * before)
                    if self.log.ended or enough or relative(best) <= polish.target:
                        break
                    # Where the steps arrived, which may be worse than where they began, shows where points are missing.
                    phase.go_to(last=True)
                    more = enriched(candidate.objective(), np.random.default_rng([seed + count, 4]))
                    phase.go_to(last=False)
                    candidate = replace(candidate, train=more)
                if self.log.ended or relative(best) <= polish.target:
                    break
        except KeyboardInterrupt:
            self.log.status, self.log.message = "interrupted", ""
            if best is not setup:
                phase.go_to(last=False)
        return best


def usual_stages(weights: int) -> list[Stage]:
    """First steps that find the way, then quasi-Newton steps, with a whole inverse Hessian for as many as that serves."""
    return [Adam(500), SSBroyden(1500)] if weights <= _DENSE else [Adam(1000), LBFGS(3000)]


def stages_of(given: Any) -> list[Stage]:
    """The stages that ``solver`` of ``fit`` means: a solver, a torch optimizer, a list of these."""
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


class _Phase:
    """One solver at work on one set-up."""

    def __init__(
        self,
        training: Training,
        setup: DiscreteProblem,
        solver: Solver,
        weights: dict[str, float],
        seed: int,
        label: str,
        *,
        polishing: bool = False,
    ) -> None:
        self._training, self._setup, self._solver = training, setup, solver
        self._name = f"{solver.name}{label}"
        objective = setup.objective(weights=weights)
        self._objective = projected(objective) if solver.projects else objective
        self._objective.limit(training.log.budget.bytes(_GRADIENT) / process_group.local_size())
        self._fixed = dict(weights)
        self._polishing = polishing
        self._sampler = None if polishing else training._sampler
        self._generator = np.random.default_rng([seed, 1])
        self._best = self._last = self._objective.vector()
        self._held: list[float] = []
        # Reports, and what else is in their lines of the history, a line of JSON each.
        self._seen: list[str] = []
        self._raised: BaseException | None = None
        self._batches: Batches | None = None
        self._random = torch.get_rng_state()
        self._before = training.log.steps, training.log.evaluations
        self.lowest = self.loss = math.inf

    def run(self) -> None:
        """Work until it is done; the parameters are the best ones afterwards, however it ended."""
        outcome, journal = self._training.log, self._setup.journal
        result, state = journal.phase(self._name)
        if result is not None:
            self._recall(placed(result, self._best))
            return
        feed = self._training._feed
        try:
            if feed is not None and isinstance(self._solver, FirstOrder):
                self._objective.feed = self._batches = feed.batches(self._setup, self._solver)
            with named(self._name):
                outcome.status, outcome.message = self._steps(None if state is None else placed(state, self._best))
        except KeyboardInterrupt:
            self._interrupted()
        finally:
            if self._batches is not None:
                self._batches.close()
            self._last = self._objective.vector()
            self._objective.assign(self._best)
        if outcome.status != "interrupted":
            journal.finish(self._result())
            if self._raised is not None:
                # What a callback broke must not take the fit with it.
                journal.save()
                if not isinstance(self._raised, KeyboardInterrupt):
                    raise self._raised
                self._interrupted()

    def _interrupted(self) -> None:
        """Somebody wants the end: what follows is not how the fit would have gone on."""
        self._training.log.status, self._training.log.message = "interrupted", ""
        self._setup.journal.close()

    def go_to(self, *, last: bool) -> None:
        """Set the parameters of the last step, or of the best one."""
        self._objective.assign(self._last if last else self._best)

    def _state(self, run: Run, count: int) -> dict[str, Any]:
        """All that the next step depends on."""
        return {
            **self._result(),
            "count": count,
            "objective": objective_state(self._objective, self._setup.train),
            "solver": run.state_dict(),
            "generator": generator_state(self._generator),
            "held": list(self._held),
            "taken": 0 if self._batches is None else self._batches.taken,
            "random": not torch.equal(self._random, torch.get_rng_state()),
        }

    def _result(self) -> dict[str, Any]:
        """What the fit needs to know of the phase once it is over."""
        outcome, (steps, evaluations) = self._training.log, self._before
        return {
            "best": self._best,
            "last": self._last,
            "lowest": self.lowest,
            "loss": self.loss,
            "seen": {"lines": "\n".join(self._seen)},
            "status": outcome.status,
            "message": outcome.message,
            "note": outcome.notes.get(self._name),
            "steps": outcome.steps - steps,
            "evaluations": outcome.evaluations - evaluations,
        }

    def _recall(self, result: Mapping[str, Any]) -> None:
        """Be as the phase was when it ended, or in the middle of it."""
        outcome = self._training.log
        with self._restoring():
            self.lowest, self.loss = float(result["lowest"]), float(result["loss"])
            self._objective.assign(result["last"])
            self._objective.assign(result["best"])
            self._best, self._last, self._seen = result["best"], result["last"], str.splitlines(result["seen"]["lines"])
            looks = [(Report(*values), more) for values, more in map(json.loads, self._seen)]
            outcome.status, outcome.message = str(result["status"]), str(result["message"])
            if result["note"] is not None:
                outcome.notes[self._name] = str(result["note"])
            outcome.steps = self._before[0] + result["steps"]
            outcome.evaluations = self._before[1] + result["evaluations"]
        for look, more in looks:
            self._training.log.report(look, more)

    def _continued(self, state: Mapping[str, Any]) -> tuple[Run, int]:
        """The solver at work where it was, and the number of steps it had taken."""
        self._recall(state)
        if state.get("random"):
            warnings.warn(
                f"{self._name} draws from torch's global generator, which is the caller's and was not kept: it goes on, not to "
                "the same bits",
                ArchiveWarning,
                stacklevel=2,
            )
        with self._restoring():
            restore_objective(self._objective, state["objective"], self._setup.train)
            self._generator = generator_of(state["generator"])
            self._held = list(state["held"])
            if self._batches is not None:
                self._batches.skip(state["taken"])
            run = self._solver.start(self._objective)
            run.load_state_dict(state["solver"])
            return run, int(state["count"])

    @contextlib.contextmanager
    def _restoring(self) -> Iterator[None]:
        """Say of what does not fit that it is the checkpoint's fault."""
        try:
            yield
        except _MISFITS as error:
            if isinstance(error, SciMLError) or exhausted(error):
                raise
            raise FileError(
                f"{self._name} does not go on from its checkpoint: {type(error).__name__}: {error}. Either the checkpoint is "
                "of another fit or version, or the solver fails by itself (begun anew in another directory it shows which)"
            ) from error

    def _steps(self, state: Mapping[str, Any] | None) -> tuple[str, str]:
        """How it ended, and a word more."""
        solver, outcome, early = self._solver, self._training.log, self._training._early
        weightings, journal = self._training.weightings, self._setup.journal
        if state is None:
            weightings.renew(self._objective, first=True)
            run, done = solver.start(self._objective), 0
            self.lowest = self._judged()
        else:
            run, done = self._continued(state)
        for count in range(done + 1, solver.steps + 1):
            # What does not fit of a state that was restored shows at the latest in the first step.
            with self._restoring() if state is not None and count == done + 1 else contextlib.nullcontext():
                step = run.step()
            outcome.steps += 1
            outcome.evaluations += step.evaluations
            if step.done == "diverged":
                return "diverged", f"at step {outcome.steps} {step.message}; this is the best state before it"
            if step.message and step.done is None:
                outcome.notes[self._name] = step.message
            if step.done is not None or count % solver.look == 0 or count == solver.steps:
                stop = self._look(step)
                # A minimum for old weights need not be one for new ones.
                goes_on = step.done == "converged" and weightings.renew(self._objective)
                if step.done is not None and not goes_on:
                    return step.done, step.message
                if goes_on:
                    run = solver.start(self._objective)
                if stop:
                    return "stopped", ""
                # Once the points are satisfied and what lies between them is not, other points are wanted, not other steps.
                done = self._polishing and self._held[-1] > _OVERFIT * self.loss
                if done or (early is not None and early.over(self._held)):
                    return "plateau", ""
            redrawn = False
            if self._sampler is not None and count % self._sampler.every == 0:
                redrawn = True
                self._objective.blocks = self._sampler.renewed(self._objective, self._generator)
            if redrawn or weightings.due(count, solver.steps):
                weightings.renew(self._objective)
                run.renewed()
            state_now = partial(self._state, run, count)
            if self._raised is not None:
                journal.save(state_now)
                raise self._raised
            journal.step(state_now)
        return "budget", ""

    def _judged(self) -> float:
        value = self._training.weightings.judge(self._objective, self._setup.held, self._fixed)
        return math.inf if math.isnan(value) else value

    def _look(self, step: Step) -> bool:
        judged = self._judged()
        process_group.check_same(self._objective.vector(), "parameters")
        self.loss = float(step.loss)
        if judged < self.lowest:
            self.lowest, self._best = judged, self._objective.vector()
        self._held.append(judged)
        unknowns = {name: float(value.detach()) for name, value in self._setup.rows.values().items()}
        look = Report(
            phase=self._name,
            step=self._training.log.steps,
            steps=self._training._most,
            seconds=self._training.log.seconds,
            loss=self.loss,
            held_out=judged,
            best=self.lowest,
            terms={name: float(value) for name, value in step.terms.items()},
            unknowns=unknowns,
        )
        more = {**unknowns, **self._training.weightings.record(self._objective)}
        self._seen.append(json.dumps([list(vars(look).values()), more], default=float))
        try:
            return self._training.log.report(look, more)
        except Abandoned:
            raise
        except BaseException as error:
            # Raised again as soon as the step is done and saved.
            self._raised = error
            return False


def held_out(setup: DiscreteProblem) -> float:
    """The loss on held-out rows; infinite where it is not a number, so that nothing counts as worse."""
    value = setup.objective(setup.held).value()
    return math.inf if math.isnan(value) else value


def relative(setup: DiscreteProblem) -> float:
    """The largest root mean square of a residual on held-out rows, as a share of its natural size."""
    return setup.objective(setup.held).worst()
