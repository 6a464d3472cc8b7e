"""Checkpointing: what a fit leaves in its directory while it runs, so that it can be resumed whatever happens."""

from __future__ import annotations

import contextlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sciml.errors import ArchiveWarning, FileError, SciMLError, SolverError
from sciml.parallel import process_group
from sciml.problem import Problem
from sciml.runs import report
from sciml.runs.directory import CHECKPOINT, HISTORY, RECORD, SOLUTION, RunDirectory
from sciml.runs.fingerprint import differences
from sciml.runs.history import Lines, json_object
from sciml.runs.save import from_record, load, to_record
from sciml.solution import Solution
from sciml.solvers import Callback, Report
from sciml.solvers.journal import Content, Journal, Terminated
from sciml.solvers.signals import INTERRUPT, TERMINATE, Abandoned, Signals
from sciml.solvers.state import as_plain, model_as_it_was, model_state, model_values

ASIDE = "checkpoint.aside.pt"
FORMAT, _RECORD_FORMAT = 2, 1
_STATUS_OF_TERMINATION = 143


@dataclass(frozen=True)
class CheckpointEvery:
    """When a fit with a directory writes a checkpoint: whichever of the two comes first.

    Args:
        seconds: since the last one; None does not count them.
        steps: steps of solvers since the last one; None does not count them.

    Raises:
        SolverError: neither is given, or one is not positive.

    Example:
        >>> import sciml
        >>> sciml.CheckpointEvery(seconds=10)
        CheckpointEvery(seconds=10, steps=None)
    """

    seconds: float | None = 60.0
    steps: int | None = None

    def __post_init__(self) -> None:
        given = [each for each in (self.seconds, self.steps) if each is not None]
        whole = self.steps is None or type(self.steps) is int
        if not given or not whole or not all(type(each) in (int, float) and 0 < each < math.inf for each in given):
            raise SolverError(f"CheckpointEvery needs a positive number of seconds or whole steps; given: {self}")

    def due(self, steps: int, last: float) -> bool:
        """Whether a checkpoint is due, so many steps after the last one, which was at ``last`` of ``time.perf_counter()``."""
        late = self.seconds is not None and time.perf_counter() - last >= self.seconds
        return late or (self.steps is not None and steps >= self.steps)


class Checkpointer:
    """The directory of a fit: its lock, checkpoints, lines of history, and what it ends with; without one all does nothing."""

    def __init__(self, out: str | Path | RunDirectory | None, every: CheckpointEvery | None, resume: bool) -> None:
        if not isinstance(every, CheckpointEvery | None):
            raise SolverError(f"checkpoint must be sciml.CheckpointEvery(...) or None; given: {every!r}")
        if not isinstance(resume, bool):
            raise SolverError(f"resume must be True or False; given: {resume!r}")
        if resume and out is None:
            raise SolverError("resume=True continues what is in the directory out=; give it")
        if out is not None and not isinstance(out, str | Path | RunDirectory):
            raise FileError(f"out must be a directory; given: {out!r}")
        self._every, self._resume = every, resume
        # Of several processes the first one reads and writes.
        out = out if process_group.first() else None
        self._out = RunDirectory(out) if isinstance(out, str | Path) else None
        self.run = out if isinstance(out, RunDirectory) else self._out
        self.journal, self.seconds = Journal(), 0.0
        self._signals, self._stack = Signals(), contextlib.ExitStack()
        self._record: Content = {}
        self._known: Content = {}
        self._before: Content | None = None
        self._replayed = self._looks = 0
        self._lines: Lines | None = None
        self._last = time.perf_counter()
        self._failed = False

    def __enter__(self) -> Checkpointer:
        if self._out is not None:
            self._stack.enter_context(self._out)
        if self.run is not None or process_group.several():
            self._stack.enter_context(self._signals)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if isinstance(error, Exception):
                # Whatever went wrong: what was computed up to there is worth keeping.
                self.journal.save()
        finally:
            if self._lines is not None:
                self._lines.close()
            self._stack.close()
        if isinstance(error, Terminated) or (error is None and self._signals.request() == TERMINATE):
            raise SystemExit(_STATUS_OF_TERMINATION) from None
        if isinstance(error, Abandoned):
            raise KeyboardInterrupt from None

    def begin(
        self, problem: Problem, model: nn.Module | None, fingerprint: Callable[[], Mapping[str, Any]]
    ) -> tuple[Solution | None, nn.Module | None]:
        """Begin the record of the run; the solution if it was finished before, and the model as it was at the beginning."""
        if not process_group.several():
            return self._begun(problem, model, dict(fingerprint())) if self.run is not None else (None, model)
        known = dict(fingerprint())
        _check_alike(known)
        finished, before = None, None
        if self.run is not None:
            finished, model = self._begun(problem, model, known)
            before = self._before
        record, before, self.seconds = process_group.agreed(
            (None if finished is None else to_record(finished), before, self.seconds)
        )
        if record is not None:
            return finished or from_record(Path("the first process"), record, problem, model), model
        if self.run is None:
            if before is not None:
                model = model_as_it_was(model, before["model"])
                self._replayed = before["looks"]
            self.journal = Journal(request=self._requested)
            if before is not None:
                self.journal.load_state_dict(before["journal"])
        return None, model

    def _requested(self) -> str | None:
        """What was asked for, of any process of the fit."""
        asked = (None, INTERRUPT, TERMINATE)
        return asked[process_group.most(asked.index(self._signals.request()))]

    def _begun(self, problem: Problem, model: nn.Module | None, known: Content) -> tuple[Solution | None, nn.Module | None]:
        run, before = self.run, None
        assert run is not None
        try:
            record = read_record(run.path)
        except FileError as error:
            # The checkpoint holds a fingerprint too.
            record = None
            _warn(f"{error}; it is written anew")
        if self._resume and record is not None:
            _compare(run, record.get("fingerprint") or {}, known)
            ended = record.get("ended")
            if ended is not None and ended["status"] != "interrupted":
                try:
                    return load(run.path / SOLUTION, problem, model), model
                except FileError as error:
                    raise FileError(
                        f"the fit in {run.path} was finished, and its solution cannot be read: {error}. Call fit without "
                        "resume=True to compute it again"
                    ) from error
        if run.exists(CHECKPOINT):
            self._before = before = self._recalled(run, known)
        self._lines = Lines(run.path / HISTORY, keep=0 if before is None else before["looks"])
        again = {} if record is None or before is None else record
        self._record = {
            "format": _RECORD_FORMAT,
            "problem": type(problem).__name__,
            "began": again.get("began", _now()),
            "command": run.command,
            "resumed": int(again.get("resumed", 0)) + 1 if again else 0,
            "ended": None,
            "fingerprint": known,
        }
        for _ in range(2):
            # Two generations of it from the beginning.
            self._write_record(run)
        if before is not None:
            self.seconds, self._replayed = before["seconds"], before["looks"]
            model = model_as_it_was(model, before["model"])
        state = model_state(model)
        values = model_values(model, state, len(problem.coordinates))
        if before is not None and not _alike(before["values"], values):
            raise FileError(
                f"{run.path} holds another fit: the model gives other values with the same parameters (an attribute such as a "
                "frequency or a scale, or its forward, has changed). Call fit as before to continue it, or begin anew in "
                "another directory"
            )
        self._last = time.perf_counter()
        self._start = self._last - self.seconds
        self._known = {"fingerprint": known, "model": state, "values": values}
        self.journal = Journal(None if self._every is None else self._save, self._due, self._requested)
        if before is not None:
            self.journal.load_state_dict(before["journal"])
        return None, model

    def watching(self, callbacks: Sequence[Callback]) -> list[Callback]:
        """One function in place of several, which also writes every look as a line of the history."""

        def watch(look: Report) -> bool:
            self._looks += 1
            replayed = self._looks <= self._replayed
            if self._lines is not None:
                self._lines.write(self._looks - 1, {k: v for k, v in vars(look).items() if k != "replayed"})
            ends = [bool(each(replace(look, replayed=replayed))) for each in callbacks if process_group.first()]
            # Where it went on before it goes on now.
            return any(ends) and not replayed

        return [watch]

    def end(self, solution: Solution) -> None:
        """Write what was found; a fit that was interrupted keeps its checkpoint."""
        run = self.run
        if run is None:
            return
        if self._signals.request() == INTERRUPT and solution.status != "interrupted":
            _warn("Ctrl-C came when everything was computed: the solution is whole")
        # The fit is done: what it found must not be lost because a file could not be written.
        trouble = "the solution was not written"
        with process_group.alone():
            self._end(run, solution, trouble)

    def _end(self, run: RunDirectory, solution: Solution, trouble: str) -> None:
        try:
            report.write(solution, run)
            self._record["ended"] = {"status": solution.status, "success": solution.success, "at": _now()}
            self._write_record(run)
            trouble = "the solution is written, and its checkpoint stays"
            if solution.status != "interrupted":
                run.remove(CHECKPOINT)
        except SciMLError as error:
            _warn(f"{trouble}: {error}")

    def _due(self, steps: int) -> bool:
        return self._every is not None and self._every.due(steps, self._last)

    def _save(self, journal: Content) -> None:
        run = self.run
        assert run is not None
        content = {
            **self._known,
            "checkpoint": FORMAT,
            "journal": journal,
            "seconds": time.perf_counter() - self._start,
            # A fit that is killed while it replays must not lose the rest of what it replays.
            "looks": max(self._looks, self._replayed),
        }
        try:
            if self._lines is not None:
                self._lines.flush()
            run.save(CHECKPOINT, as_plain(content))
            self._failed = False
        except FileError as error:
            if not self._failed:
                _warn(f"a checkpoint was not written, the fit goes on: {error}")
            self._failed = True
        self._last = time.perf_counter()

    def _recalled(self, run: RunDirectory, fingerprint: Mapping[str, Any]) -> Content | None:
        """The content of a checkpoint, or None where the fit begins anew; then the checkpoint is set aside."""
        if not self._resume:
            run.write(ASIDE, run.read(CHECKPOINT))
            run.remove(CHECKPOINT)
            _warn(
                f"{run.path} holds a fit that was not finished; resume=True would have continued it. It begins anew, and the "
                f"checkpoint is kept as {ASIDE}"
            )
            return None
        content = run.load(CHECKPOINT)
        try:
            if content["checkpoint"] > FORMAT:
                raise FileError(
                    f"{run.path / CHECKPOINT} was written by a newer version of the library (format {content['checkpoint']}, "
                    f"this one reads up to {FORMAT}): update it, or begin anew in another directory"
                )
            _compare(run, content["fingerprint"], fingerprint)
            numbers = {"seconds": float(content["seconds"]), "looks": int(content["looks"])}
            return {**numbers, **{name: content[name] for name in ("journal", "model", "values")}}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"{run.path / CHECKPOINT} is no checkpoint of a fit: {error!r}") from error

    def _write_record(self, run: RunDirectory) -> None:
        run.write(RECORD, (json.dumps(self._record, indent=1) + "\n").encode())


def _check_alike(known: Content) -> None:
    """Refuse processes of one fit that were handed different things."""
    everybody = process_group.collected(known)
    for rank, other in enumerate(everybody):
        found = differences(everybody[0], other)
        if found:
            raise SolverError(
                f"process {rank} has another fit than the first: {'; '.join(found[:3])} (the first's as then): every process "
                "of a distributed fit needs the same versions, data, settings and seeds; fit(..., distributed=False) lets each "
                "go its own way"
            )


def _alike(before: Tensor | None, now: Tensor | None) -> bool:
    """Whether a model computes what it did, as far as that is known."""
    if before is None or now is None:
        return True
    return now.shape == before.shape and torch.allclose(now, before, rtol=1e-6, atol=1e-9, equal_nan=True)


def _compare(run: RunDirectory, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue another fit, by the fingerprints of the two; warn where only versions or code differ."""
    found = differences(before, now)
    essential = [each for each in found if not each.startswith(("versions.", "code."))]
    if essential:
        raise FileError(
            f"{run.path} holds another fit: {'; '.join(essential)}. Call fit as before to continue it, or begin anew in "
            "another directory (or in this one without resume=True)"
        )
    if found:
        _warn(
            f"{run.path}: {'; '.join(found)}: the result may differ from that without an interruption, in rounding, or in more "
            "where the library or the code of the problem is another"
        )


def _warn(message: str) -> None:
    warnings.warn(message, ArchiveWarning, stacklevel=5)


def read_record(directory: Path) -> Content | None:
    """The content of ``run.json`` in a directory; None where there is none, a ``FileError`` where it is damaged."""
    path = directory / RECORD
    try:
        if not path.exists():
            return None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    content = json_object(RunDirectory(directory).read(RECORD)) or {}
    ended = content.get("ended", {})
    if "began" not in content or not (ended is None or (isinstance(ended, dict) and "status" in ended)):
        raise FileError(f"{path} is damaged or not the record of a run, which says when it 'began' and how it 'ended'")
    return content


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
