r"""Model selection: the log-likelihood of measurements, Akaike's and Schwarz' criteria.

With L the likelihood of n measurements, k the numbers that were fitted to them (the trace of the hat matrix, and every standard
deviation that was found):

.. math::  \mathrm{AIC} = 2k - 2\log L, \qquad \mathrm{BIC} = k \log n - 2\log L .

References: H. Akaike, A new look at the statistical model identification, IEEE Transactions on Automatic Control 19 (1974);
G. Schwarz, Estimating the dimension of a model, Annals of Statistics 6 (1978).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml.errors import ProblemError
from sciml.problem import Measurements, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.measurements import data_blocks, resolve_data
from sciml.problem.observations import DATA, Observation
from sciml.solvers import ResidualSystem
from sciml.uncertainty.covariance import Inference


def observations(blocks: Sequence[Collocation]) -> Iterator[tuple[Observation, Collocation]]:
    """Every misfit of measurements, priors excepted, and the points where it is taken."""
    for block in blocks:
        for term in block.terms:
            if isinstance(term.evaluate, Observation) and term.name.startswith(DATA):
                yield term.evaluate, block


def deviations(
    rows: ResidualSystem, blocks: Sequence[Collocation], measurements: Measurements, columns: Sequence[str]
) -> dict[str, Tensor]:
    """Deviations of the model from measured values by column, as the column's own noise sees them, in units of the column."""
    found = {}
    for misfit, block in observations(blocks):
        if misfit.name in columns:
            plain = replace(misfit, noise=measurements.noise_or_normal(misfit.name), sigma=None)
            found[misfit.name] = plain.deviation(misfit.model(rows.evaluation(block)[0])).detach().double().cpu()
    return {column: found[column] for column in columns}


def statistics(
    rows: ResidualSystem, blocks: Sequence[Collocation], inference: Inference, found: Collection[str] = ()
) -> dict[str, float]:
    """Statistics of a fit to measurements; empty where there are none, or where nothing was inferred."""
    if not inference.measurements or not math.isfinite(inference.variance):
        return {}
    count, likelihood, square, sizes, fitted = 0, 0.0, 0.0, {}, 0
    for misfit, block in observations(blocks):
        with torch.no_grad():
            evaluation, _ = rows.evaluation(block)
        model = misfit.model(evaluation).detach()
        deviation, sigma = misfit.deviation(model), 1.0
        if misfit.sigma is None:
            sigma = math.sqrt(float(deviation.square().mean())) or 1e-300
        fitted += misfit.sigma is None or misfit.name in found
        sizes[f"sigma.{misfit.name}"] = sigma if misfit.sigma is None else misfit.typical_sigma
        count += len(deviation)
        likelihood += float(misfit.log_density(model, sigma).sum())
        square += float((deviation / sigma).square().sum())
    parameters = inference.fitted + fitted
    return {
        "measurements": float(count),
        "parameters": parameters,
        "chi2": square,
        "log_likelihood": likelihood,
        "AIC": 2 * parameters - 2 * likelihood,
        "BIC": parameters * math.log(count) - 2 * likelihood,
        "drift": inference.drift,
        **sizes,
        **_correlations(inference),
    }


def _correlations(inference: Inference) -> dict[str, float]:
    """The correlation of every two unknowns, by their names."""
    names = list(inference.estimates)
    directions = inference.spread[len(inference.spread) - len(names) :]
    lengths = np.linalg.norm(directions, axis=1)
    # Strategies that eliminate the fields themselves keep no directions.
    if len(names) < 2 or len(lengths) < len(names) or not (lengths > 0).all():
        return {}
    found = (directions / lengths[:, None]) @ (directions / lengths[:, None]).T
    # Of what nothing determines no correlation is known.
    known = [place for place, name in enumerate(names) if math.isfinite(inference.estimates[name].standard_error)]
    pairs = itertools.combinations(known, 2)
    return {f"correlation.{names[i]}.{names[j]}": float(found[i, j]) for i, j in pairs}


def scored(problem: Problem, trial: nn.Module, data: Any, **how: Any) -> pd.DataFrame:
    """Misfits of measurements by column at a trial function, the problem's constants bound; see ``Solution.score``."""
    measurements = resolve_data(problem, data, **how)
    if measurements is None:
        raise ProblemError(
            "score needs measurements that the solution has not seen (a Table, a DataFrame or a dict); given: None"
        )
    like = next(trial.buffers())
    blocks = [block.to(like.device, like.dtype) for block in data_blocks(problem, measurements)]
    found = deviations(ResidualSystem(problem, trial, {}), blocks, measurements, list(measurements.observables(problem)))
    rows = {}
    for column, values in found.items():
        size = float(values.square().mean().sqrt())
        table = torch.as_tensor(measurements.table[column].copy())
        spread = measurements.noise_or_normal(column).spread(table[~table.isnan()])
        rows[column] = {"rms": size, "relative": size / spread if spread > 0 else math.inf, "values": len(values)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["rms", "relative", "values"])


def criteria(*solutions: Any, held_out: Any = None, **how: Any) -> pd.DataFrame:
    r"""Model selection: models of the same measurements by information criteria, the best first.

    Args:
        solutions: two or more of ``fit``, of the same or of different problems, fitted to the same measurements.
        held_out: measurements that none of them was fitted to; their misfits are then compared, too.
        how: ``observe`` and ``noise`` of these, as for ``fit``.

    Returns:
        A DataFrame by solution (its problem's name, with a number where that occurs twice), in the order of AIC:
        ``measurements``, ``parameters``, ``log_likelihood``, ``AIC``, ``BIC``; ``weight``, Akaike's, its probability
        among these, :math:`e^{-\Delta/2}` with the differences of AIC, normalised; and ``held_out``, the root mean square of
        the misfits relative to each column's standard deviation.

    Raises:
        ProblemError: fewer than two, ones without statistics, or with other numbers of measurements.

    Example:
        >>> import numpy as np, sciml
        >>> t = np.linspace(0, 6, 20)
        >>> data = {"t": t, "u": 4 / (1 + 39 * np.exp(-t)) + 0.02 * np.random.default_rng(0).normal(size=20)}
        >>> rate, limit = sciml.Unknown(0.8), sciml.Unknown(5.0, lower=0)
        >>> free = sciml.fit(sciml.gallery.problem("logistic_growth", rate=rate, capacity=1e9), data=data)
        >>> limited = sciml.fit(sciml.gallery.problem("logistic_growth", rate=rate, capacity=limit), data=data)
        >>> bool(sciml.criteria(free, limited).loc["LogisticGrowth_2", "weight"] > 0.99)
        True

    Reference: K. P. Burnham and D. R. Anderson, Model Selection and Multimodel Inference, 2nd ed., Springer 2002.
    """
    if len(solutions) < 2:
        raise ProblemError(f"criteria needs at least two solutions; given: {len(solutions)}")
    found: dict[str, dict[str, float]] = {}
    for each in solutions:
        if not isinstance(getattr(each, "statistics", None), Mapping):
            raise ProblemError(f"criteria compares solutions of sciml.fit; given: {type(each).__name__}")
        if not each.statistics:
            raise ProblemError(f"{each.name} has no statistics: they come from sciml.fit with data and unknown constants")
        count = sum(other.name == each.name for other in solutions[: len(found)])
        found[f"{each.name}_{count + 1}" if count else each.name] = each.statistics
    counts = {name: each["measurements"] for name, each in found.items()}
    if len(set(counts.values())) > 1:
        raise ProblemError(f"criteria compares fits to the same measurements; their numbers differ: {counts}")
    kept = ("measurements", "parameters", "log_likelihood", "AIC", "BIC")
    table = pd.DataFrame({name: {key: each[key] for key in kept} for name, each in found.items()}).T
    weight = (-(table["AIC"] - table["AIC"].min()) / 2).map(math.exp)
    table["weight"] = weight / weight.sum()
    if held_out is not None:
        scores = [each.score(held_out, **how)["relative"] for each in solutions]
        table["held_out"] = [float((score**2).mean() ** 0.5) for score in scores]
    return table.sort_values("AIC")
