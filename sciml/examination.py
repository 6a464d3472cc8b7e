"""``doctor``: what keeps a fit from getting better, on demand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from sciml.diagnostics import Checkup, preflight
from sciml.diagnostics.checkup import conditioning, layer_states, term_gradients
from sciml.errors import FileError, ModelError, ProblemError
from sciml.models import MLP, model_of, scaled_of
from sciml.problem import Problem
from sciml.problem.collocation import Collocation
from sciml.problem.measurements import resolve_data
from sciml.runs import RunDirectory, load
from sciml.solution import Solution
from sciml.solvers import DiscreteProblem, HardConstraints
from sciml.strategies.prepare import prepare
from sciml.strategies.transfer import LINEAR

_MOST_ROWS, _MOST_NUMBERS, _LAYER_POINTS = 1500, 6_000_000, 256
_FINDINGS = ["kind", "where", "what", "remedy", "severity"]
_ARTEFACTS = ["file", "generation", "state", "advice"]


@torch.inference_mode(False)
@torch.enable_grad()
def doctor(
    what: Problem | Solution | str | Path,
    model: nn.Module | None = None,
    data: Any = None,
    *,
    problem: Problem | None = None,
    observe: Mapping[str, Callable[..., Any]] | None = None,
    noise: Any = None,
    points: int | Mapping[str, int] | None = None,
    weights: Mapping[str, float] | None = None,
    exact: bool | HardConstraints = False,
    seed: int = 0,
) -> Checkup:
    r"""Report how gradients flow and how well rows determine what is varied, before a fit or after it.

    The loss is that of ``fit``, on at most some 1500 of its rows: the gradient of each term, the angles between them, what
    arrives in each layer, and the singular values of the Jacobian :math:`\partial r/\partial\theta`. Nothing is trained.

    Args:
        what: a problem, a solution, or a file: a saved solution or the directory of a run.
        model: the model that is to be fitted to a problem; by default the network that ``fit`` falls back to. For a file with a
            model of your own, an object of its class.
        data: measurements, as for ``fit``; of a solution by default its own.
        problem: the problem of a file.
        observe: as for ``fit``.
        noise: as for ``fit``.
        points: as for ``fit``.
        weights: as for ``fit``.
        exact: as for ``fit``; a solution knows for itself.
        seed: of weights and points.

    Returns:
        Tables, and sentences on what they mean and what to do.

    Raises:
        ProblemError: this is no problem, solution or file; or a solution is without its problem.
        ModelError: the model cannot serve, or the solution has none that could be varied.
        DataError: the data cannot be used.
        FileError: the file cannot be read.

    Example:
        >>> import sciml
        >>> checkup = sciml.doctor(sciml.gallery.problem("harmonic_oscillator"), sciml.MLP(8, activation="relu"))
        >>> checkup.sentences[0][:55]
        'the derivative u_tt of the model is exactly zero everyw'
    """
    artefacts = pd.DataFrame(columns=_ARTEFACTS)
    if isinstance(what, str | Path):
        read, artefacts = _read(Path(what), problem, model)
        if read is None:
            return Checkup(str(what), pd.DataFrame(columns=_FINDINGS), artefacts)
        what = read
    trained = isinstance(what, Solution)
    stated = (problem or what.problem) if isinstance(what, Solution) else what
    if isinstance(what, Solution):
        if stated is None:
            raise ProblemError(f"the solution of {what.name} is without its problem: doctor(..., problem=...)")
        data, model = what.data if data is None else data, None
    if not isinstance(stated, Problem):
        raise ProblemError(f"doctor takes a problem, a solution or a file; given: {what!r}")
    found = preflight(stated, model, data, observe=observe, noise=noise, exact=exact, device="cpu")
    checkup = Checkup(type(stated).__name__, pd.DataFrame(found, columns=_FINDINGS), artefacts, trained=trained)
    if any(each.severity == "fatal" for each in found) and not trained:
        return checkup
    measured = resolve_data(stated, data, observe, noise)
    first, held = (MLP(2), False) if trained else (model, exact)
    setup = prepare(stated, first, measured, points, weights, torch.float64, "cpu", seed, held)
    if isinstance(what, Solution):
        setup = _of_solution(setup, what)
    return replace(checkup, **_tables(setup, setup.weights if trained else setup.leading))


def _read(path: Path, problem: Problem | None, model: nn.Module | None) -> tuple[Solution | None, pd.DataFrame]:
    """The solution in a file or directory, and the state of the files around it."""
    if not path.is_dir():
        return load(path, problem, model), pd.DataFrame(columns=_ARTEFACTS)
    artefacts = RunDirectory(path).verify()
    if not (path / "solution.pt").is_file():
        return None, artefacts
    try:
        solution = load(path / "solution.pt", problem, model)
    except FileError as error:
        row = ["solution.pt", "newest", "unreadable", str(error)]
        return None, pd.concat([artefacts, pd.DataFrame([row], columns=_ARTEFACTS)], ignore_index=True)
    return (solution if solution.problem is not None else None), artefacts


def _of_solution(setup: DiscreteProblem, solution: Solution) -> DiscreteProblem:
    """A set-up with the trial function and the unknowns of a solution."""
    if scaled_of(solution.trial) is None:
        raise ModelError(
            f"the solution of {solution.name}, found by {solution.solver or solution.engine}, is no single model whose "
            "gradients could be looked at: give one of a network, or the problem and a model"
        )
    trial = copy.deepcopy(solution.trial).to(device="cpu", dtype=torch.float64)
    model = model_of(trial)
    layers = getattr(model, "layers", None)
    linear = isinstance(model, LINEAR) and layers is not None
    for parameter in (layers[-1] if linear and layers is not None else trial).parameters():
        parameter.requires_grad_()
    raw = {}
    for name, unknown in setup.problem.unknowns.items():
        value = float(solution.unknowns["estimate"][name]) if name in solution.unknowns.index else unknown.initial
        try:
            raw[name] = unknown.raw(value).requires_grad_()
        except ProblemError:
            # At a bound there is no raw number.
            raw[name] = unknown.raw_initial().requires_grad_()
    return setup.with_trial(trial, raw=raw)


def _tables(setup: DiscreteProblem, weights: Mapping[str, float]) -> dict[str, Any]:
    """The tables of a set-up, from some of its rows."""
    width = max(1, sum(parameter.numel() for parameter in setup.parameters))
    count = sum(len(block.terms) for block in setup.train)
    most = max(8, min(_MOST_ROWS, _MOST_NUMBERS // width) // count)

    def few(block: Collocation) -> Collocation:
        if any(term.measured for term in block.terms) and block.size > most:
            return block.part(torch.arange(0, block.size, -(-block.size // most)))
        return block.thinned(most)

    blocks = [few(block) for block in setup.train]
    objective = setup.objective(blocks, weights)
    tables, gradient = term_gradients(objective)
    if not setup.parameters:
        return tables
    points = torch.cat([each for block in blocks for each in block.sample.points])[:_LAYER_POINTS]
    layers = layer_states(setup.trial, setup.parameters, gradient, points)
    return {**tables, "layers": layers, **conditioning(objective)}
