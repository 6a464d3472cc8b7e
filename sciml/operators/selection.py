"""Choice among operators by their error on held-out pairs, beside the baselines: mean, nearest neighbour, linear."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from sciml._text import listed
from sciml.data import archive
from sciml.data.memory import free_bytes
from sciml.errors import DataError, FileError, ModelError, SolverError
from sciml.fitting import fitted_by
from sciml.operators.codes import PrincipalComponents, Scaling, parts_of
from sciml.operators.deeponet import DeepONet
from sciml.operators.fourier import FNO
from sciml.operators.learning import Frame, LearnedOperator
from sciml.operators.pairs import Pairs, relative_errors, split
from sciml.operators.regression import ClosedForm, Kernel, Linear
from sciml.operators.surrogate import Surrogate
from sciml.runs import CheckpointEvery
from sciml.runs.directory import CHECKPOINT
from sciml.solvers import EarlyStopping
from sciml.solvers.callbacks import ProgressLine
from sciml.solvers.journal import Journal
from sciml.strategies.search import Budget, Log
from sciml.typing import Array

_SURROGATE = "surrogate.pt"
_HELD, _MOST_HELD = 0.1, 500
_LEAST, _DIRECTIONS, _SILENT = 8, 50, 2.0
SECONDS = 120.0
# Of the memory that is free, what pairs may take: their copies in float64, codes and factors beside them.
_MEMORY = 0.15
# A network is tried where the closed forms leave an error that matters, and there are pairs for it.
_ENOUGH, _FOR_NETWORKS = 1e-3, 200
_COVERAGE = 1.959964


@dataclass(frozen=True)
class _Tried:
    """An operator that was fitted, and its errors on held-out pairs."""

    name: str
    model: Any
    errors: Array
    seconds: float
    coverage: float
    notes: str

    @property
    def mean(self) -> float:
        return float(self.errors.mean())


def fitted_pairs(
    pairs: Pairs,
    model: nn.Module | None = None,
    *,
    seed: int = 0,
    seconds: float | None = None,
    tolerance: float = 0.05,
    callbacks: Sequence[Any] = (),
    progress: bool | None = None,
    early_stopping: EarlyStopping | None = EarlyStopping(),  # noqa: B008 - an immutable record
    device: Any = "auto",
    solver: Any = None,
    out: str | Path | None = None,
    checkpoint: CheckpointEvery | None = CheckpointEvery(),  # noqa: B008 - an immutable record
    resume: bool = False,
) -> Surrogate:
    """The surrogate of pairs with the least error on those held out; what ``sciml.fit(pairs)`` returns.

    With ``out`` a network's training is checkpointed in that directory, ``resume=True`` goes on to the same bits, and the
    surrogate is saved there as ``surrogate.pt``.
    """
    begin = time.perf_counter()
    if len(pairs) < _LEAST:
        raise DataError(f"an operator needs {_LEAST} pairs or more; given: {len(pairs)}")
    if model is not None and not isinstance(model, ClosedForm | LearnedOperator):
        raise ModelError(
            "a fit of pairs takes a model of sciml.operators (Linear, Kernel, DeepONet, FNO, ...); given: "
            f"{type(model).__name__}"
        )
    budget = SECONDS if seconds is None else float(seconds)
    numbers = split(len(pairs), _HELD, seed, _MOST_HELD)
    most = int(_MEMORY * (free_bytes() or 2**33) / max(pairs.nbytes / len(pairs), 1))
    some = np.random.default_rng([seed, 61]).permutation(len(numbers[0]))[:most]
    train, held = pairs[numbers[0][np.sort(some)]], pairs[numbers[1]]
    log, shown = reporting(callbacks, progress, budget)
    place = ("cuda" if torch.cuda.is_available() else "cpu") if str(device) == "auto" else device
    tried = [*_baselines(train, held)]
    choices = [f"{len(train)} pairs to train on, {len(held)} held out"]
    if len(some) < len(numbers[0]):
        choices.append(f"memory holds {len(train)} of {len(numbers[0])} pairs: a random part is trained on")
    journal = _journal(out, checkpoint, resume, train, model, seed, solver)
    how = {"seed": seed, "log": log, "early": early_stopping, "solver": solver, "device": place, "journal": journal}

    def attempt(candidate: Any, left: float) -> None:
        own = copy.deepcopy(candidate)
        with shown:
            tried.append(_fitted(own, train, held, seconds=max(left, 1.0), **how))
        choices.append(
            f"{tried[-1].name}: held-out error {tried[-1].mean:.2e} in {tried[-1].seconds:.1f} s ({tried[-1].notes})"
        )

    if model is not None:
        attempt(model, budget - (time.perf_counter() - begin))
    else:
        attempt(Kernel(), budget)
        best = min(each.mean for each in tried)
        network = FNO(modes=12) if pairs.points is None and len(pairs.axes) <= 3 and _shared(pairs) else DeepONet()
        left = budget - (time.perf_counter() - begin)
        if best <= _ENOUGH:
            choices.append(f"{type(network).__name__}: not tried, an error of {best:.1e} leaves little to gain")
        elif len(train) < _FOR_NETWORKS:
            choices.append(f"{type(network).__name__}: not tried, {len(train)} pairs are few for a network")
        elif left < 0.2 * budget:
            choices.append(f"{type(network).__name__}: not tried, the budget of {budget:g} s is spent")
        else:
            attempt(network, left)
    chosen = (
        tried[-1] if model is not None else min((each for each in tried if each.model is not None), key=lambda each: each.mean)
    )
    table = pd.DataFrame(
        {each.name: [each.mean, np.median(each.errors), each.errors.max(), each.coverage, each.seconds] for each in tried},
        index=["mean", "median", "worst", "coverage", "seconds"],
    ).T
    scale, code, furthest = input_code(train.inputs)
    if code.count >= min(len(train) - 1, _DIRECTIONS):
        choices.append(
            f"the inputs vary in {code.count} directions or more, of which {len(train)} pairs do not show all: make more"
        )
    success = chosen.mean <= tolerance
    plain = min(each.mean for each in tried if each.name in ("training mean", "nearest neighbour", "Linear"))
    message = (
        f"mean relative L2 error {chosen.mean:.2e} on {len(held)} held-out pairs, "
        f"{'at most' if success else 'more than'} the tolerance {tolerance:g}; the best baseline has {plain:.2e}"
    )
    found = Surrogate(
        model=chosen.model,
        frame=Frame.of(pairs),
        code=code,
        scale=scale,
        furthest=furthest,
        calibration=float(np.sqrt(np.mean(chosen.errors**2))),
        family=pairs.family,
        errors=table,
        error=chosen.mean,
        success=bool(success),
        message=message,
        choices=(f"{chosen.name} was chosen", *choices),
        seconds=time.perf_counter() - begin,
        history=pd.DataFrame(log.history),
        ways=dict(pairs.ways),
    )
    if out is not None:
        found.save(Path(out) / _SURROGATE)
        (Path(out) / CHECKPOINT).unlink(missing_ok=True)
    return found


def _journal(
    out: str | Path | None,
    every: CheckpointEvery | None,
    resume: bool,
    train: Pairs,
    model: Any,
    seed: int,
    solver: Any,
) -> Journal:
    """A journal of the training in a directory, with what an earlier one holds where that is resumed."""
    if out is None or every is None:
        if resume and out is None:
            raise SolverError("resume=True continues what is in the directory out=; give it")
        return Journal()
    path, last = Path(out) / CHECKPOINT, [time.perf_counter()]
    config = None if model is None else [type(model).__name__, repr(model.config)]
    digest = hashlib.sha256(train.given().tobytes() + train.wanted().tobytes()).hexdigest()
    known = {"pairs": digest, "model": repr(config), "seed": seed, "solver": repr(solver)}

    def save(content: dict[str, Any]) -> None:
        archive.write_file(path, archive.packed({"fit": known, "journal": content}))
        last[0] = time.perf_counter()

    journal = Journal(save, lambda steps: every.due(steps, last[0]))
    if resume and path.exists():
        before = archive.load_tensors(path)
        differ = [name for name, value in known.items() if before.get("fit", {}).get(name) != value]
        if differ:
            raise FileError(f"{path} is of another fit ({listed(differ)} differ): begin anew in another directory")
        journal.load_state_dict(before["journal"])
    return journal


def reporting(
    callbacks: Sequence[Any], progress: bool | None, seconds: float
) -> tuple[Log, contextlib.AbstractContextManager[Any]]:
    """The log of a training, and the line that shows reports as they come, where that is wanted or there is a terminal."""
    shown = sys.stderr.isatty() if progress is None else progress
    lines = [ProgressLine(after=_SILENT if progress is None else 0.0)] if shown else []
    return Log([*callbacks, *lines], None, Budget(seconds)), lines[0] if lines else contextlib.nullcontext()


def _shared(pairs: Pairs) -> bool:
    """Whether every input depends on coordinates of the outputs only, as grids of channels need."""
    return all(set(axes) <= set(pairs.axes) for axes in pairs.input_axes.values())


def _fitted(model: Any, train: Pairs, held: Pairs, **how: Any) -> _Tried:
    begin = time.perf_counter()
    if isinstance(model, ClosedForm):
        model.learn(train)
    else:
        model.learn(train, held, **how)
    took = time.perf_counter() - begin
    values, spread = model.predict(held.inputs)
    wanted = held.wanted()
    errors = relative_errors(values, wanted)
    if not np.isfinite(errors).all():
        raise SolverError(f"{type(model).__name__} predicts values that are not finite")
    if spread is None:
        spread = math.sqrt(np.mean(errors**2)) * np.sqrt(np.mean(values**2, axis=1, keepdims=True))
    coverage = float(np.mean(np.abs(values - wanted) <= _COVERAGE * spread))
    return _Tried(type(model).__name__, model, errors, took, coverage, "; ".join(model.notes))


def _baselines(train: Pairs, held: Pairs) -> list[_Tried]:
    """What needs no thought: the mean of training, the nearest input, a linear map."""
    known, wanted = train.wanted(), held.wanted()
    begin = time.perf_counter()
    mean = relative_errors(np.broadcast_to(known.mean(axis=0), wanted.shape), wanted)
    found = [_Tried("training mean", None, mean, time.perf_counter() - begin, math.nan, "")]
    begin = time.perf_counter()
    scale = Scaling.of(parts_of(train.inputs))
    ours, theirs = scale.rows(parts_of(train.inputs)), scale.rows(parts_of(held.inputs))
    squares = np.sum(theirs**2, axis=1)[:, None] + np.sum(ours**2, axis=1) - 2 * theirs @ ours.T
    nearest = relative_errors(known[squares.argmin(axis=1)], wanted)
    found.append(_Tried("nearest neighbour", None, nearest, time.perf_counter() - begin, math.nan, ""))
    return [*found, _fitted(Linear(), train, held)]


def input_code(inputs: Mapping[str, Array]) -> tuple[Scaling, PrincipalComponents, float]:
    """The code in which the distance of an input from those of training is measured, and the largest distance of these."""
    scale = Scaling.of(parts_of(inputs))
    rows = scale.rows(parts_of(inputs))
    code = PrincipalComponents(rows, most=_DIRECTIONS, left=1e-4)
    return scale, code, float(code.distance(rows).max()) or 1.0


fitted_by(Pairs, fitted_pairs)
