r"""Bayesian inversion by a surrogate: an unknown input function from measured outputs, then corrected by the equation.

With the prior :math:`f = \sum_k s_k\xi_k\varphi_k`, :math:`\xi \sim N(0, I)`, of the ``GaussianField`` and measurements
:math:`y_j = u(f)(x_j) + \sigma\epsilon_j` the most probable input is

.. math::  \hat\xi = \arg\min_\xi \sum_j \frac{(u(f_\xi)(x_j) - y_j)^2}{\sigma^2} + \lvert\xi\rvert^2

and its covariance, linearised there, :math:`(J^T J + I)^{-1}`. The surrogate is the forward model: one batch of predictions is
a Jacobian. Then steps follow whose misfit is that of the equation's own solution, with the surrogate's Jacobian.

Reference: A. M. Stuart, Inverse problems: a Bayesian perspective, Acta Numerica 19 (2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import torch

from sciml._text import listed, whole
from sciml.data import Table
from sciml.errors import DataError, ProblemError, SolverError
from sciml.fitting import fit
from sciml.operators.random_fields import GaussianField, RandomFunction
from sciml.operators.surrogate import Surrogate, between
from sciml.solution import Solution
from sciml.typing import Array

_STEP = 1e-3
_ROUNDS, _SETTLED = 30, 0.95


@dataclass(frozen=True, repr=False)
class Identified:
    """An input that was found from measured outputs.

    Attributes:
        inputs: the most probable input, by name: functions of torch tensors and numbers.
        solution: the solution of the equation with this input, or None without corrections.
        misfit: the root mean square of the misfits in standard deviations of the noise: about 1 where all is well.
        success: whether that is below 2.
    """

    inputs: Mapping[str, Any]
    solution: Solution | None
    misfit: float
    success: bool
    mode: Array
    covariance: Array
    _made: Callable[[Array], dict[str, Any]]

    def standard_error(self, name: str, **coordinates: Any) -> Array:
        """The standard error of an input: of a function at points, of a number without."""
        if not coordinates:
            own = [float(self._made(self.mode + each)[name]) - float(self.inputs[name]) for each in _roots(self.covariance)]
            return np.asarray(math.sqrt(sum(each**2 for each in own)))
        columns = np.broadcast_arrays(*(np.asarray(each, dtype=float) for each in coordinates.values()))
        points = [torch.from_numpy(column.ravel().copy()) for column in columns]
        center = self.inputs[name](*points)
        squares = sum((self._made(self.mode + each)[name](*points) - center) ** 2 for each in _roots(self.covariance))
        return np.asarray(torch.as_tensor(squares).sqrt().numpy()).reshape(columns[0].shape)

    def __repr__(self) -> str:
        """What was found, and how well it fits."""
        return f"Identified {', '.join(self.inputs)}: misfit {self.misfit:.2f} standard deviations of the noise"


def identify(
    surrogate: Surrogate,
    data: Any,
    *,
    noise: float,
    modes: int = 40,
    corrections: int = 6,
    **options: Any,
) -> Identified:
    """Find the input of an operator from measured outputs: the most probable one, with its standard error.

    Args:
        surrogate: the forward model; its family says how inputs scatter.
        data: a table, DataFrame or dict with columns for the coordinates and for measured fields.
        noise: the standard deviation of the measurements.
        modes: how many of the strongest terms of each random field are varied.
        corrections: at most so many steps take the misfit of the equation's own solution.
        options: keywords for the ``fit`` of these.

    Raises:
        ProblemError: no family, or an input that is drawn by a function and has no expansion.
        DataError: columns that are missing.
        SolverError: noise that is not positive.

    Example:
        >>> import numpy as np, torch, sciml
        >>> from sciml import operators
        >>> family = operators.Family(sciml.gallery.problem("logistic_growth"), rate=(1.0, 3.0))
        >>> surrogate = sciml.fit(operators.sample(family, 40, grid={"t": 33}, how="baseline"))
        >>> t = np.linspace(0.5, 5, 12)
        >>> truth = sciml.baseline(sciml.gallery.problem("logistic_growth", rate=1.8))
        >>> found = operators.identify(surrogate, {"t": t, "u": truth(t=t)["u"]}, noise=1e-3)
        >>> bool(abs(found.inputs["rate"] - 1.8) < 5e-3)
        True

    Reference: A. M. Stuart, Inverse problems: a Bayesian perspective, Acta Numerica 19 (2010).
    """
    family = surrogate.family
    if family is None:
        raise ProblemError("identify takes the prior of a family, and these pairs have none: make them by operators.sample")
    if not 0 < noise < math.inf:
        raise SolverError(f"noise must be a positive number, the standard deviation of the measurements; given: {noise!r}")
    whole("modes", modes, 1, SolverError)
    table = data if isinstance(data, Table) else Table(data, source="the data")
    names, fields = list(surrogate.frame.axes), [name for name in surrogate.frame.fields if name in table.columns]
    lacking = [name for name in names if name not in table.columns]
    if lacking or not fields:
        wanted = listed(lacking) if lacking else f"any of {listed(surrogate.frame.fields)}"
        raise DataError(f"identify: the data lack {wanted}; columns: {listed(table.columns)}")
    places = np.stack([np.asarray(table[name], dtype=float) for name in names], axis=1)
    measured = np.concatenate([np.asarray(table[name], dtype=float) for name in fields])
    made, count = _expansion(surrogate, modes)

    def predicted(samples: Array) -> Array:
        """Outputs at the measured places, ``(samples, rows)``."""
        drawn = [made(each) for each in samples]
        axes = surrogate.frame.inputs
        inputs = {name: np.stack([family.on_axes(name, each[name], own) for each in drawn]) for name, own in axes.items()}
        values = surrogate.predict(inputs)[:, :, [surrogate.frame.fields.index(name) for name in fields]]
        found = between(surrogate.frame, values.transpose(1, 2, 0), places)
        return np.asarray(found.reshape(len(places), len(fields), -1).transpose(2, 1, 0).reshape(len(samples), -1))

    def slopes(mode: Array) -> Array:
        """The Jacobian of the surrogate's outputs, by one batch of predictions."""
        values = predicted(np.concatenate([mode[None], mode + _STEP * np.eye(count)]))
        return np.asarray((values[1:] - values[0]).T / _STEP)

    def misfit(solution: Solution) -> Array:
        known = solution(**dict(zip(names, places.T, strict=True)))
        return np.concatenate([np.asarray(known[name]) for name in fields]) - measured

    # What the surrogate does not know is noise as well, as long as it is the forward model.
    blurred = math.hypot(noise, surrogate.calibration * float(np.sqrt(np.mean(measured**2))))
    found = scipy.optimize.least_squares(
        lambda mode: np.concatenate([(predicted(mode[None])[0] - measured) / blurred, mode]),
        np.zeros(count),
        jac=lambda mode: np.concatenate([slopes(mode) / blurred, np.eye(count)]),
        max_nfev=_ROUNDS,
    )
    mode, jacobian, solution = found.x, slopes(found.x), None
    misfits = predicted(mode[None])[0] - measured
    if corrections:
        mode, jacobian, misfits, solution = _stepped(
            lambda mode: fit(family.posed(made(mode)), **{"progress": False, **options}),
            misfit,
            mode,
            jacobian,
            noise,
            corrections,
        )
    size = float(np.sqrt(np.mean((misfits / noise) ** 2)))
    jacobian = np.concatenate([jacobian / noise, np.eye(count)])
    covariance = np.linalg.inv(jacobian.T @ jacobian)
    return Identified(made(mode), solution, size, size < 2.0, mode, covariance, made)


def _stepped(
    solved: Callable[[Array], Solution],
    misfit: Callable[[Solution], Array],
    mode: Array,
    jacobian: Array,
    noise: float,
    most: int,
) -> tuple[Array, Array, Array, Solution]:
    """Gauss-Newton steps on solutions of the equation; the surrogate's Jacobian learns from each by Broyden's update."""
    solution = solved(mode)
    misfits = misfit(solution)
    best = (float(np.sum((misfits / noise) ** 2) + np.sum(mode**2)), mode, misfits, solution)
    for _ in range(most):
        rows = np.concatenate([jacobian / noise, np.eye(len(mode))])
        step = -np.linalg.lstsq(rows, np.concatenate([misfits / noise, mode]), rcond=None)[0]
        mode = mode + step
        solution = solved(mode)
        after = misfit(solution)
        jacobian = jacobian + np.outer(after - misfits - jacobian @ step, step) / max(float(step @ step), 1e-300)
        misfits, before = after, best[0]
        size = float(np.sum((misfits / noise) ** 2) + np.sum(mode**2))
        if size < best[0]:
            best = (size, mode, misfits, solution)
        if size > _SETTLED * before:
            break
    return best[1], jacobian, best[2], best[3]


def _roots(covariance: Array) -> Array:
    """Directions whose outer products add up to a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(values.clip(min=0.0))).T


def _expansion(surrogate: Surrogate, modes: int) -> tuple[Callable[[Array], dict[str, Any]], int]:
    """Inputs as functions of numbers that are normal by themselves, and how many these are."""
    family: Any = surrogate.family
    parts: list[tuple[Any, int, Any]] = []
    for each in family.varied:
        if each.kind == "constant":
            parts.append((each, 1, None))
        elif isinstance(each.sampler, GaussianField):
            kinds, spread = each.sampler.expansion(family.bounds(each.coordinates))
            strongest = np.argsort(-spread, axis=None, kind="stable")[: min(modes, int((spread > 0).sum()))]
            parts.append((each, len(strongest), (kinds, spread, strongest)))
        else:
            raise ProblemError(f"identify needs the prior of {each.name!r} as a GaussianField; it is drawn by a function")

    def made(mode: Array) -> dict[str, Any]:
        found, start = {}, 0
        for each, count, about in parts:
            own = mode[start : start + count]
            start += count
            if about is None:
                low, high = each.sampler
                # The even distribution as a function of a normal number.
                found[each.name] = low + (high - low) * 0.5 * (1 + math.erf(float(own[0]) / math.sqrt(2)))
                continue
            kinds, spread, strongest = about
            weights = np.zeros(spread.size)
            weights[strongest] = own * spread.ravel()[strongest]
            sampler = each.sampler
            bounds = family.bounds(each.coordinates)
            found[each.name] = RandomFunction(bounds, kinds, weights.reshape(spread.shape), sampler.mean, sampler.transform)
        return found

    return made, sum(count for _, count, _ in parts)
