r"""Closed-form operator regression: linear maps and Gaussian processes between the codes of functions.

Input and output functions become codes by principal components; a map between codes is found by least squares or by kernel
ridge regression,

.. math::  \hat y(x) = k(x, X)\,(K + \lambda I)^{-1} Y, \qquad
           s^2(x) = a^2\,(k(x, x) + \lambda - k(x, X)(K + \lambda I)^{-1}k(X, x)),

with length scale, nugget and metric chosen by the leave-one-out error, which has a closed form: the error of sample i is
:math:`[(K + \lambda I)^{-1}Y]_i/[(K + \lambda I)^{-1}]_{ii}`.

References: P. Batlle, M. Darcy, B. Hosseini and H. Owhadi, Kernel methods are competitive for operator learning, Journal of
Computational Physics 496 (2024); C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, MIT Press
2006, section 5.4.2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.errors import ModelError
from sciml.operators.codes import Operator, PrincipalComponents, Scaling, parts_of
from sciml.operators.family import Axes
from sciml.operators.pairs import Pairs
from sciml.typing import Array

_COMPONENTS = 500
_NUGGETS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1e-1)
_LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_SHARES = (0.0, 0.5, 1.0)
_RIDGES = 10.0 ** np.arange(-14.0, 3.0)
# More samples than this would take an hour and 30 GB for the factors.
_MOST = 20_000
_SEARCHED, _FEW = 500, 250
_AS_IT_IS, _VARIES = "values", 1.05
_TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    _AS_IT_IS: lambda part: part,
    "logarithm": np.log,
    "reciprocal": lambda part: 1 / part,
}
_FLOOR = 1e-13


class ClosedForm(Operator):
    """A map between codes of functions, found without iterations: what ``Linear`` and ``Kernel`` have in common."""

    kept: ClassVar[tuple[str, ...]] = ("shape", "sizes")
    field_scale: Tensor

    def __init__(self, components: int = _COMPONENTS) -> None:
        super().__init__()
        self.components = components

    def learn(self, pairs: Pairs) -> None:
        """Find the map from training pairs."""
        wanted = pairs.wanted()
        self.register_buffer("field_scale", torch.from_numpy(np.maximum(wanted.std(axis=(0, 1)), np.finfo(float).tiny)))
        flat = (wanted / self.field_scale.numpy()).reshape(len(pairs), -1)
        self.output_code = PrincipalComponents(flat, most=self.components)
        parts = parts_of(pairs.inputs)
        self.shape, self.sizes = list(wanted.shape[1:]), [part.shape[1] for part in parts]
        self._map(parts, self.output_code.encode(flat))

    def _coded(self, parts: Sequence[Array]) -> Array:
        """The codes of inputs, ``(samples, k)``; their statistics are taken at the first call."""
        if not hasattr(self, "scaling"):
            self.scaling = Scaling.of(parts)
            self.input_code = PrincipalComponents(self.scaling.rows(parts), most=self.components)
        return self.input_code.encode(self.scaling.rows(parts))

    def predict(self, inputs: Mapping[str, Array], axes: Axes | None = None) -> tuple[Array, Array | None]:
        """Outputs ``(samples, points, fields)`` and their standard errors, if the map knows any."""
        if axes is not None:
            raise ModelError(f"{type(self).__name__} answers on the grid of its training: take FNO or DeepONet for another one")
        mean, spread = self._values(parts_of(inputs))
        scale = self.field_scale.numpy()
        values = self.output_code.decode(mean).reshape(-1, *self.shape) * scale
        if spread is None:
            return values, None
        # Errors of codes are independent: their variances add up point by point.
        squares = (spread[1] ** 2) @ (self.output_code.directions.numpy() ** 2)
        return values, np.sqrt(spread[0][:, None] ** 2 * squares).reshape(-1, *self.shape) * scale

    def _map(self, parts: Sequence[Array], wanted: Array) -> None:
        raise NotImplementedError

    def _values(self, parts: Sequence[Array]) -> tuple[Array, tuple[Array, Array] | None]:
        """Codes of the outputs; a factor for each sample, and standard deviations for each code."""
        raise NotImplementedError


class Linear(ClosedForm):
    r"""A linear (affine) map between functions: ridge regression between principal components, the first baseline.

    .. math::  B = \arg\min \lVert Y - XB\rVert^2 + \lambda\lVert B\rVert^2

    with :math:`\lambda` by the leave-one-out error. For a linear operator (advection, heat, superposed loads) it is exact once
    there are as many samples as the inputs have degrees of freedom.

    Args:
        components: principal components at most, of inputs and outputs.

    Example:
        >>> import numpy as np, sciml
        >>> from sciml import operators
        >>> x, a = np.linspace(0, 1, 11), np.random.default_rng(0).normal(size=(40, 2))
        >>> f = a[:, :1] * np.sin(x) + a[:, 1:] * x
        >>> pairs = operators.Pairs({"f": f}, {"u": 2 * np.cumsum(f, axis=1)}, {"x": x}, {"f": {"x": x}})
        >>> sciml.fit(pairs, operators.Linear()).error < 1e-10
        True

    Reference: A. E. Hoerl and R. W. Kennard, Ridge regression, Technometrics 12 (1970).
    """

    weight: Tensor

    def _map(self, parts: Sequence[Array], wanted: Array) -> None:
        codes = self._coded(parts)
        left, sizes, right = np.linalg.svd(codes, full_matrices=False)
        turned = left.T @ wanted
        best = (math.inf, 0.0)
        for ridge in _RIDGES * sizes[0] ** 2:
            share = sizes**2 / (sizes**2 + ridge)
            leverage = np.minimum((left**2) @ share + 1 / len(codes), 1 - 1e-9)
            misses = (wanted - left @ (share[:, None] * turned)) / (1 - leverage)[:, None]
            best = min(best, (float(np.mean(misses**2)), float(ridge)))
        factors = sizes / (sizes**2 + best[1])
        self.register_buffer("weight", torch.from_numpy(right.T @ (factors[:, None] * turned)))
        misses = wanted - codes @ self.weight.numpy()
        self.register_buffer("spread", torch.from_numpy(np.sqrt(np.maximum(best[0], np.mean(misses**2, axis=0)))))
        self.notes = [f"linear map between {codes.shape[1]} and {wanted.shape[1]} components, ridge {best[1]:.1e}"]

    def _values(self, parts: Sequence[Array]) -> tuple[Array, tuple[Array, Array] | None]:
        return self._coded(parts) @ self.weight.numpy(), None


def _rbf(squares: Array) -> Array:
    return np.exp(-0.5 * squares)


def _matern(squares: Array) -> Array:
    distance = np.sqrt(5 * squares)
    return (1 + distance + distance**2 / 3) * np.exp(-distance)


def _rational(squares: Array) -> Array:
    return 1 / (1 + squares)


class Kernel(ClosedForm):
    r"""Gaussian process regression between functions (kernel ridge regression), in closed form, with standard errors.

    The kernel is :math:`k(x, x') = \kappa(\lVert x - x'\rVert_M/\ell)` of codes of the inputs. The metric M weighs them by a
    power of how strongly the best linear map answers to them, since directions that the operator damps should not count as
    distance. Where there are several inputs it may be linear in one of them, and positive inputs may enter by their logarithm
    or reciprocal. All of that, kind, power, length :math:`\ell` and nugget follow from the leave-one-out error where they are
    not given.

    Args:
        kind: ``"matern"`` (5/2), ``"rbf"``, ``"rational"`` (quadratic), or None for the best of them.
        length: the length scale, in median distances of the inputs.
        nugget: :math:`\lambda`, relative to the variance of the kernel.
        components: principal components at most, of inputs and outputs.

    Raises:
        ModelError: an unknown kind; more samples than a factorisation holds.

    Example:
        >>> import numpy as np, sciml
        >>> from sciml import operators
        >>> x, a = np.linspace(0, 1, 21), np.random.default_rng(0).uniform(1, 2, (60, 1))
        >>> pairs = operators.Pairs({"a": a[:, 0]}, {"u": np.exp(-a * x)}, {"x": x}, {"a": {}})
        >>> sciml.fit(pairs, operators.Kernel()).error < 1e-4
        True

    Reference: P. Batlle, M. Darcy, B. Hosseini and H. Owhadi, Kernel methods are competitive for operator learning, Journal of
    Computational Physics 496 (2024).
    """

    kept = (*ClosedForm.kept, "chosen", "own", "level", "transforms", "linear", "offset")
    KINDS: ClassVar[dict[str, Callable[[Array], Array]]] = {"matern": _matern, "rbf": _rbf, "rational": _rational}
    weight: Tensor
    known: Tensor
    rows: Tensor
    factor: Tensor
    metric: Tensor
    spread: Tensor

    def __init__(
        self,
        kind: str | None = None,
        *,
        length: float | None = None,
        nugget: float | None = None,
        components: int = _COMPONENTS,
    ) -> None:
        super().__init__(components)
        if kind is not None and kind not in self.KINDS:
            raise ModelError(f"Kernel: kind must be one of {', '.join(map(repr, self.KINDS))} or None; given: {kind!r}")
        self.kind, self.length, self.nugget = kind, length, nugget

    def _map(self, parts: Sequence[Array], wanted: Array) -> None:
        count = len(wanted)
        if count > _MOST:
            raise ModelError(f"Kernel factorises a matrix of all samples: at most {_MOST}; given {count}: take a network")
        mixed = np.random.default_rng(0).permutation(count)
        few, some = (np.sort(mixed[: min(count, most)]) for most in (_FEW, _SEARCHED))
        best = (math.inf, self._seen(parts, [_AS_IT_IS] * len(parts), -1))
        for names in itertools.product(*(_transforms(part) for part in parts)):
            # Many operators are linear in a load or a source: then the kernel is linear in that input, too.
            for linear in range(-1, len(parts) if len(parts) > 1 else 0):
                view = self._seen([part[few] for part in parts], list(names), linear)
                found = self._searched(view, wanted[few], ("matern",), _LENGTHS[1:6], _NUGGETS[1::2])[0]
                best = min(best, (found, self._seen(parts, list(names), linear)), key=lambda each: each[0])
        view = best[1]
        left, self.chosen, share, length, nugget, offset = self._searched(
            view.part(some),
            wanted[some],
            list(self.KINDS) if self.kind is None else [self.kind],
            _LENGTHS if self.length is None else (self.length,),
            _NUGGETS if self.nugget is None else (self.nugget,),
        )
        self.transforms, self.linear, self.offset, self.own = list(view.transforms), view.linear, offset, nugget
        self.scaling, self.input_code = view.scaling, view.code
        metric = _gains(view.codes, wanted) ** share / length
        known, own = view.codes * metric, view.rows
        matrix = self._kernel(known, own, known, own)
        matrix[np.diag_indices_from(matrix)] += nugget * np.mean(np.diag(matrix))
        self.level = nugget * float(np.mean(np.diag(matrix))) / (1 + nugget)
        factor = scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
        weight = scipy.linalg.cho_solve((factor, True), wanted, check_finite=False)
        inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1)
        misses = weight / np.diag(inverse)[:, None]
        # How large errors are beside what the kernel says: so that standard errors are right on samples left out.
        size = np.sqrt(np.mean(misses**2 * np.diag(inverse)[:, None], axis=0))
        buffers = {"weight": weight, "known": known, "rows": own, "factor": factor, "metric": metric, "spread": size}
        for name, values in buffers.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(values)))
        said = [f"{name} of input {number + 1}" for number, name in enumerate(view.transforms) if name != _AS_IT_IS]
        said += [f"linear in input {view.linear + 1}"] if view.linear >= 0 else []
        self.notes = [
            f"{self.chosen} kernel on {view.codes.shape[1]} components{''.join(f', {each}' for each in said)}, "
            f"length {length:.3g}, nugget {nugget:.0e}, weighed by the linear map to the power {share:g}; leave-one-out error "
            f"{math.sqrt(left):.2e}"
        ]

    def _seen(self, parts: Sequence[Array], transforms: list[str], linear: int) -> _View:
        """Inputs as a kernel sees them."""
        changed = [_TRANSFORMS[name](part) for name, part in zip(transforms, parts, strict=True)]
        others = [part for number, part in enumerate(changed) if number != linear]
        scaling = Scaling.of(changed)
        own = scaling.only([number for number in range(len(parts)) if number != linear])
        rows = own.rows(others)
        code = PrincipalComponents(rows, most=self.components)
        return _View(transforms, linear, scaling, code, code.encode(rows), _linear_rows(changed, scaling, linear))

    def _searched(
        self, view: _View, wanted: Array, kinds: Sequence[str], lengths: Sequence[float], nuggets: Sequence[float]
    ) -> tuple[float, str, float, float, float, float]:
        """Leave-one-out error, kind, power of the metric, length, nugget and offset of the best kernel."""
        best = (math.inf, kinds[0], 0.0, 1.0, nuggets[-1], 0.0)
        gains = _gains(view.codes, wanted)
        product = view.rows @ view.rows.T
        # Where the kernel is linear in an input, no linear map of the others alone says what matters.
        for share in _SHARES if view.linear < 0 else (0.0,):
            squares = _squares(view.codes * gains**share, view.codes * gains**share)
            unit = float(np.median(squares[np.triu_indices(len(squares), 1)])) or 1.0
            for kind, offset in itertools.product(kinds, (1.0,) if view.linear < 0 else (0.0, 1.0)):
                # From narrow to wide; once it gets worse the rest of the lengths is worse, too.
                last = math.inf
                for length in sorted(lengths):
                    matrix = self.KINDS[kind](squares / (unit * length**2)) * (offset + product)
                    found = min((_left_out(matrix, wanted, nugget), nugget) for nugget in nuggets)
                    best = min(best, (found[0], kind, share, length * math.sqrt(unit), found[1], offset))
                    if found[0] > 1.2 * last:
                        break
                    last = found[0]
        return best

    def _kernel(self, one: Array, one_rows: Array, two: Array, two_rows: Array) -> Array:
        return np.asarray(self.KINDS[self.chosen](_squares(one, two)) * (self.offset + one_rows @ two_rows.T))

    def _values(self, parts: Sequence[Array]) -> tuple[Array, tuple[Array, Array] | None]:
        changed = [_TRANSFORMS[name](part) for name, part in zip(self.transforms, parts, strict=True)]
        others = [number for number in range(len(parts)) if number != self.linear]
        codes = self.input_code.encode(self.scaling.only(others).rows([changed[number] for number in others]))
        codes, linear = codes * self.metric.numpy(), _linear_rows(changed, self.scaling, self.linear)
        rows = self._kernel(codes, linear, self.known.numpy(), self.rows.numpy())
        half = scipy.linalg.solve_triangular(self.factor.numpy(), rows.T, lower=True, check_finite=False)
        prior = self.offset + np.sum(linear**2, axis=1)
        left = np.sqrt(np.maximum(prior + self.level - np.sum(half**2, axis=0), self.level))
        return rows @ self.weight.numpy(), (left, self.spread.numpy())


@dataclass(frozen=True)
class _View:
    """Inputs as a kernel sees them: codes for the distance, and rows ``(samples, numbers)`` in which it is linear."""

    transforms: list[str]
    linear: int
    scaling: Scaling
    code: PrincipalComponents
    codes: Array
    rows: Array

    def part(self, some: Array) -> _View:
        """Some of the samples."""
        return replace(self, codes=self.codes[some], rows=self.rows[some])


def _linear_rows(parts: Sequence[Array], scaling: Scaling, linear: int) -> Array:
    """The input in which a kernel is linear, not centred, of order one; nothing where there is none."""
    if linear < 0:
        return np.zeros((len(parts[0]), 1))
    size = math.hypot(float(scaling.center[linear]), float(scaling.scale[linear]))
    return parts[linear] / (size * math.sqrt(parts[linear].shape[1]))


def _transforms(part: Array) -> list[str]:
    """What may be tried for an input: positive ones often act by their logarithm or reciprocal."""
    low, high = float(part.min()), float(part.max())
    return list(_TRANSFORMS) if low > 0 and high > _VARIES * low else [_AS_IT_IS]


def _gains(codes: Array, wanted: Array) -> Array:
    """How strongly the best linear map answers to each code, relative to the strongest."""
    sizes = np.sum(codes**2, axis=0)
    ridge = 1e-4 * sizes.max() + 1e-6 * sizes.sum()
    linear = scipy.linalg.solve(codes.T @ codes + ridge * np.eye(codes.shape[1]), codes.T @ wanted, assume_a="pos")
    found = np.sqrt(np.sum(linear**2, axis=1))
    return np.maximum(found / max(float(found.max()), np.finfo(float).tiny), 1e-3)


def _squares(one: Array, two: Array) -> Array:
    """Squared distances of all pairs."""
    found = np.sum(one**2, axis=1)[:, None] + np.sum(two**2, axis=1) - 2 * one @ two.T
    return np.maximum(found, 0.0)


def _left_out(matrix: Array, wanted: Array, nugget: float) -> float:
    """The mean squared leave-one-out error, relative to the outputs."""
    shifted = matrix.copy()
    shifted[np.diag_indices_from(shifted)] += nugget * float(np.mean(np.diag(shifted)))
    try:
        factor = scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return math.inf
    inverse, failed = scipy.linalg.lapack.dpotri(factor, lower=1)
    if failed:
        return math.inf
    weight = scipy.linalg.cho_solve((factor, True), wanted, check_finite=False)
    misses = np.sum((weight / np.diag(inverse)[:, None]) ** 2, axis=1)
    return float(np.mean(misses / np.maximum(np.sum(wanted**2, axis=1), _FLOOR)))
