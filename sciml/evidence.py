r"""How well measurements speak for a model: log-likelihood, Akaike's and Schwarz' criteria.

With L the likelihood of n measurements, k the numbers that were fitted to them (the trace of the hat matrix, and every standard
deviation that was found):

.. math::  \mathrm{AIC} = 2k - 2\log L, \qquad \mathrm{BIC} = k \log n - 2\log L .

References: H. Akaike, A new look at the statistical model identification, IEEE Transactions on Automatic Control 19 (1974);
G. Schwarz, Estimating the dimension of a model, Annals of Statistics 6 (1978).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from sciml.measurements import Measurements, data_blocks, resolve_data
from sciml.misfit import DATA, Misfit
from sciml.problem import Problem
from sciml.rows import Block, Rows
from sciml.uncertainty import Inference


def deviations(
    rows: Rows, blocks: Sequence[Block], measurements: Measurements, columns: Sequence[str]
) -> dict[str, Tensor]:
    """Deviations of the model from measured values by column, as the column's own noise sees them, in units of the column."""
    found = {}
    for block in blocks:
        terms = {term.evaluate.name: term for term in block.terms if isinstance(term.evaluate, Misfit)}
        for column in set(terms) & set(columns):
            misfit = terms[column].evaluate
            assert isinstance(misfit, Misfit)
            plain = replace(misfit, noise=measurements.noise_or_normal(column), sigma=None)
            scene, _ = rows.scene(block)
            found[column] = plain.deviation(scene).detach().double().cpu()
    return {column: found[column] for column in columns}


def statistics(
    rows: Rows, blocks: Sequence[Block], scales: Mapping[str, float], inference: Inference
) -> dict[str, float]:
    """What is known of a fit to measurements; empty where there are none, or where nothing was inferred.

    Args:
        rows: the residuals at the solution.
        blocks: where they are taken, measurements among them.
        scales: what each is divided by.
        inference: what the linearised problem says.
    """
    if not inference.measurements or not math.isfinite(inference.variance):
        return {}
    count, likelihood, square, found, sizes = 0, 0.0, 0.0, 0, {}
    for block in blocks:
        for term in block.terms:
            misfit = term.evaluate
            if not isinstance(misfit, Misfit) or not term.name.startswith(DATA):
                continue
            with torch.no_grad():
                scene, _ = rows.scene(block)
            deviation = misfit.deviation(scene).detach()
            values = len(deviation)
            sigma = 1.0
            if misfit.sigma is None:
                sigma = math.sqrt(float(deviation.square().mean())) or 1e-300
                found += 1
            density = misfit.log_density(scene, sigma).detach()
            sizes[f"sigma.{misfit.name}"] = sigma if misfit.sigma is None else misfit.typical_sigma
            count, likelihood = count + values, likelihood + float(density.sum())
            square += float((deviation / sigma).square().sum())
    parameters = inference.fitted + found
    return {
        "measurements": float(count),
        "parameters": parameters,
        "chi2": square,
        "log_likelihood": likelihood,
        "AIC": 2 * parameters - 2 * likelihood,
        "BIC": parameters * math.log(count) - 2 * likelihood,
        **sizes,
    }


def scored(problem: Problem, trial: nn.Module, data: Any, **how: Any) -> pd.DataFrame:
    """Misfits of measurements by column at a trial function, the problem's constants bound; see ``Solution.score``."""
    measurements = resolve_data(problem, data, **how)
    assert measurements is not None
    like = next(trial.buffers())
    blocks = [block.to(like.device, like.dtype) for block in data_blocks(problem, measurements)]
    found = deviations(Rows(problem, trial, {}), blocks, measurements, list(measurements.observables(problem)))
    rows = {}
    for column, values in found.items():
        size = float(values.square().mean().sqrt())
        table = torch.as_tensor(measurements.table[column].copy())
        spread = measurements.noise_or_normal(column).spread(table[~table.isnan()])
        rows[column] = {"rms": size, "relative": size / spread if spread > 0 else math.inf, "values": len(values)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["rms", "relative", "values"])
