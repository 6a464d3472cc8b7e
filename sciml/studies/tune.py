"""Hyper-parameter optimisation by Optuna: widths, depths, rates and whatever else decides how well a network is trained."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from sciml._text import extra, listed, whole
from sciml.errors import SciMLError, SolverError
from sciml.fitting import fit
from sciml.models import MLP
from sciml.parallel.workers import check_workers, worked
from sciml.problem import Problem
from sciml.solution import Solution
from sciml.solvers import Adam, Report

# What the default builder knows: the network's and the solver's.
_KNOWN = ("width", "depth", "activation", "lr", "steps")


@dataclass(frozen=True, repr=False, eq=False)
class Tuning:
    """The outcome of a search for hyper-parameters.

    Attributes:
        best: the values of the best trial, by name.
        value: its score, the smaller the better.
        trials: a DataFrame with a row for every trial: its values, ``score``, ``state`` (complete, pruned or failed), ``why``.
        options: the arguments of ``fit`` that ``best`` stands for: ``sciml.fit(problem, **tuning.options)``.
        study: Optuna's study, for its own plots and importances.
    """

    best: dict[str, Any]
    value: float
    trials: pd.DataFrame
    options: dict[str, Any]
    study: Any = field(default=None)

    def __repr__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.trials["state"].value_counts().items())
        values = ", ".join(f"{name}={value!r}" for name, value in self.best.items())
        return f"Tuning of {len(self.trials)} trials ({states}); best {self.value:.3g} with {values}"


def tune(
    problem: Problem,
    space: Mapping[str, Any],
    *,
    trials: int = 50,
    build: Callable[..., Mapping[str, Any]] | None = None,
    score: Callable[[Solution], float] | None = None,
    prune: bool = True,
    out: str | Path | None = None,
    workers: int = 1,
    seed: int = 0,
    **options: Any,
) -> Tuning:
    """Look for the hyper-parameters with which a model is trained best (hyper-parameter optimisation, by Optuna).

    Args:
        problem: the problem.
        space: for every name what it may be: ``(low, high)`` of whole numbers or of floats, ``(low, high, "log")``, a list of
            choices, or a distribution of Optuna.
        trials: how many fits in all, those of earlier calls with the same ``out`` included.
        build: a function of these names that returns arguments of ``fit``, such as ``lambda width: {"model":
            sciml.MLP(width)}``. By default ``width``, ``depth`` and ``activation`` are those of an ``MLP``, ``lr`` and
            ``steps`` those of ``Adam``; all other names are arguments of ``fit``.
        score: a function of a solution that is to become small; by default the smallest loss on held-out rows, by which trials
            that fall behind the median of the others are also ended early.
        prune: whether they are.
        out: an SQLite file that keeps every trial; the same call goes on after an interruption.
        workers: processes that share the trials, with one thread each; more than one need ``out`` and joblib.
        seed: of the search; fits have their own, 0 unless named in ``space`` or ``options``.
        options: keywords for ``fit``, the same for all.

    Raises:
        SolverError: a space that is none; several workers without ``out``; no trial was completed.
        MissingExtraError: Optuna is not installed.

    Example:
        >>> import sciml
        >>> growth = sciml.gallery.problem("logistic_growth")
        >>> found = sciml.tune(growth, {"width": (4, 16), "lr": (1e-3, 1e-1, "log")}, trials=3, steps=50)
        >>> sorted(found.best), len(found.trials)
        (['lr', 'width'], 3)

    Reference: T. Akiba, S. Sano, T. Yanase, T. Ohta and M. Koyama, Optuna: a next-generation hyperparameter optimization
    framework, KDD 2019.
    """
    optuna = _optuna()
    whole("trials", trials, 1, SolverError)
    check_workers(workers)
    if not isinstance(workers, int):
        raise SolverError("workers of tune must be a number of processes on this machine")
    if workers > 1 and out is None:
        raise SolverError("several workers share their trials through a file: name one by out='study.db'")
    fixed = {name: value for name, value in options.items() if name in _KNOWN and build is None}
    search = _Search(
        problem,
        {name: _distribution(optuna, name, wanted) for name, wanted in space.items()},
        build or _built,
        fixed,
        {name: value for name, value in options.items() if name not in fixed},
        score,
        prune,
        None if out is None else f"sqlite:///{Path(out).resolve()}",
        seed,
    )
    if not search.space:
        raise SolverError("space is empty: name what may vary, as in {'width': (8, 64), 'lr': (1e-4, 1e-1, 'log')}")
    study = search.study()
    left = max(0, trials - sum(trial.state.is_finished() for trial in study.trials))
    parts = [left // workers + (number < left % workers) for number in range(workers)]
    for _ in worked(search, [(number, part) for number, part in enumerate(parts) if part], workers):
        pass
    # In another process the trials went into the file; in this one they are in the study that the search keeps.
    study = search.study()
    table = pd.DataFrame(
        {
            **{name: trial.params.get(name) for name in search.space},
            "score": trial.value if trial.state.name == "COMPLETE" else math.nan,
            "state": trial.state.name.lower().replace("fail", "failed"),
            "why": trial.user_attrs.get("why", ""),
        }
        for trial in study.trials
    )
    if not (table["state"] == "complete").any():
        raise SolverError(f"no trial was completed; the first: {table['why'].iloc[0] or table['state'].iloc[0]}")
    best = study.best_trial
    return Tuning(dict(best.params), float(best.value), table, {**search.options, **search.arguments(best.params)}, study)


def _optuna() -> Any:
    with extra("tune", "tune needs Optuna"):
        import optuna
    return optuna


def _distribution(optuna: Any, name: str, wanted: Any) -> Any:
    """What Optuna draws from."""
    kinds = optuna.distributions
    if isinstance(wanted, kinds.BaseDistribution):
        return wanted
    if isinstance(wanted, list) and wanted:
        return kinds.CategoricalDistribution(wanted)
    ends = wanted[:2] if isinstance(wanted, tuple) and len(wanted) in (2, 3) and wanted[2:] in ((), ("log",)) else ()
    if len(ends) == 2 and all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends) and ends[0] < ends[1]:
        log = len(wanted) == 3
        if all(isinstance(end, int) for end in ends):
            return kinds.IntDistribution(*ends, log=log)
        return kinds.FloatDistribution(*map(float, ends), log=log)
    raise SolverError(
        f"space: {name!r} must be (low, high), (low, high, 'log') or a list of choices, low below high; given: {wanted!r}"
    )


def _built(**values: Any) -> dict[str, Any]:
    """Arguments of ``fit`` from names that say what they are."""
    found = {name: value for name, value in values.items() if name not in _KNOWN}
    if "width" in values or "depth" in values or "activation" in values:
        shape = [values.get("width", 20)] * values.get("depth", 3)
        found["model"] = MLP(*shape, activation=values.get("activation", "tanh"))
    if "lr" in values or "steps" in values:
        found["solver"] = Adam(values.get("steps", 1000), lr=values.get("lr", 5e-3))
    unknown = [name for name in found if name not in inspect.signature(fit).parameters]
    if unknown:
        raise SolverError(
            f"space names {listed(unknown)}, which is neither an argument of fit nor one of {listed(_KNOWN)}: say what it is "
            "by build="
        )
    return found


@dataclass
class _Search:
    """What is common to all trials; called with a number and a count it does so many, in whatever process."""

    problem: Problem
    space: dict[str, Any]
    build: Callable[..., Mapping[str, Any]]
    fixed: dict[str, Any]
    options: dict[str, Any]
    score: Callable[[Solution], float] | None
    prune: bool
    storage: str | None
    seed: int
    _own: Any = None

    def study(self, process: int = 0) -> Any:
        """The study, from its file or begun."""
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if self._own is None or self.storage is not None:
            sampler = optuna.samplers.TPESampler(seed=self.seed + 7919 * process)
            pruner = optuna.pruners.MedianPruner() if self.prune and self.score is None else optuna.pruners.NopPruner()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._own = optuna.create_study(
                    storage=self.storage,
                    sampler=sampler,
                    pruner=pruner,
                    study_name=f"sciml {type(self.problem).__name__}",
                    load_if_exists=True,
                )
        return self._own

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of ``fit`` for the values of a trial."""
        return dict(self.build(**self.fixed, **values))

    def __call__(self, part: tuple[int, int]) -> None:
        process, count = part
        study = self.study(process)
        for _ in range(count):
            trial = study.ask(self.space)
            try:
                state, value = self._tried(trial)
            except SciMLError as error:
                trial.set_user_attr("why", f"{type(error).__name__}: {error}")
                state, value = "FAIL", None
            optuna = _optuna()
            study.tell(trial, value, state=optuna.trial.TrialState[state])

    def _tried(self, trial: Any) -> tuple[str, float | None]:
        looks: list[float] = []

        def fallen_behind(report: Report) -> bool:
            looks.append(report.best)
            if math.isfinite(report.best):
                trial.report(report.best, len(looks))
            return self.prune and self.score is None and bool(trial.should_prune())

        how = {"progress": False, "teacher": None, **self.options, **self.arguments(trial.params)}
        watching = [*how.pop("callbacks", ()), fallen_behind]
        solution = fit(self.problem, **how, callbacks=watching)
        if solution.status == "interrupted":
            raise KeyboardInterrupt
        if solution.status == "stopped":
            trial.set_user_attr("why", f"behind the median of the others after {len(looks)} looks")
            return "PRUNED", None
        value = float(self.score(solution)) if self.score is not None else min(looks, default=math.inf)
        if not math.isfinite(value):
            trial.set_user_attr("why", solution.message)
            return "FAIL", None
        return "COMPLETE", value
