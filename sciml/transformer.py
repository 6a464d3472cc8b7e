"""Autoencoders and supervised encoders as a scikit-learn transformer.

Imported at the first use of ``sciml.Embedding``, since scikit-learn is an extra.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import numbers
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from sciml._text import extra, whole
from sciml.embedding import embed
from sciml.errors import ModelError
from sciml.models import Scaled
from sciml.models.base import linear
from sciml.solution import Solution
from sciml.solvers import LBFGS, EarlyStopping, Objective
from sciml.typing import Array

_ENOUGH_TO_HOLD_OUT, _LOOK = 50, 10


class Curved(nn.Module):
    """A linear map ``axes`` of shape ``(outputs, inputs)`` plus a network that is zero at first."""

    def __init__(self, axes: Tensor, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        outputs, inputs = axes.shape
        self.linear = linear(inputs, outputs, bias=False)
        self.network = perceptron((inputs, *hidden, outputs), generator)
        with torch.no_grad():
            self.linear.weight.copy_(axes)
            for parameter in self.network[-1].parameters():
                parameter.zero_()

    def forward(self, values: Tensor) -> Tensor:
        """``(n, inputs)`` to ``(n, outputs)``."""
        return self.linear(values) + self.network(values)


def perceptron(widths: Sequence[int], generator: torch.Generator, *, last: bool = False) -> nn.Sequential:
    """Linear layers of these widths with tanh between them (and, if ``last``, behind them), in float64."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layer = linear(before, after)
        nn.init.xavier_normal_(layer.weight, generator=generator)
        # Without biases the network is odd, and where what it lacks is even the gradient vanishes at the start.
        nn.init.uniform_(layer.bias, -1.0, 1.0, generator=generator)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*(layers if last else layers[:-1]))


def _standardised(inside: Tensor, model: nn.Module, outside: Tensor | None = None) -> Scaled:
    """A model between standardised inputs and outputs; ``inside`` and ``outside`` are means and sizes, ``(2, p)``."""
    mean, size = inside
    ends = ([0.0], [1.0]) if outside is None else outside.tolist()
    found = Scaled(model, (-size).tolist(), size.tolist(), *ends)
    found.center.copy_(mean)
    return found


def autoencoder(data: Array, components: int, hidden: Sequence[int], seed: int) -> Scaled:
    r"""An autoencoder that is a principal component analysis before training.

    .. math::  z = Ps + E(s), \qquad \hat s = P^T z + D(z), \qquad s = (x - \bar x)/\sigma

    with P the first principal axes, one size σ for all columns of data ``(n, p)``, and networks E and D that are zero at
    first; ``hidden`` are the widths of the hidden layers of E, and in reverse of D.
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.from_numpy(data)
    mean = values.mean(0)
    size = float((values - mean).square().mean().sqrt()) or 1.0
    axes = torch.linalg.svd((values - mean) / size, full_matrices=False)[2]
    if len(axes) < components:
        axes = torch.cat([axes, axes.new_zeros(components - len(axes), axes.shape[1])])
    # The sign of an axis is arbitrary: its largest entry is made positive.
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    axes = (axes * torch.where(largest < 0, -1.0, 1.0))[:components]
    standard = torch.stack([mean, torch.full_like(mean, size)])
    halves = Curved(axes, hidden, generator), Curved(axes.T.contiguous(), hidden[::-1], generator)
    return _standardised(standard, nn.Sequential(*halves), standard)


def predictor(data: Array, target: Array, components: int, hidden: Sequence[int], seed: int) -> Scaled:
    """A perceptron from data ``(n, p)`` to targets ``(n, q)`` whose last hidden layer is the embedding."""
    generator = torch.Generator().manual_seed(seed)
    encode = perceptron((data.shape[1], *hidden, components), generator, last=True)
    decode = perceptron((components, target.shape[1]), generator)
    inside, outside = (_by_column(torch.from_numpy(each)) for each in (data, target))
    return _standardised(inside, nn.Sequential(encode, decode), outside)


def _by_column(values: Tensor) -> Tensor:
    size = values.std(0, correction=0)
    # A column that hardly varies is rounding beside the others, and must not be scaled up to their size.
    return torch.stack([values.mean(0), torch.where(size > 1e-12 * size.max(), size, torch.ones_like(size))])


class _Misfit(Objective):
    """The mean squared error of a network for standardised rows, and a ridge on the weights of its layers."""

    def __init__(self, network: nn.Module, data: Tensor, target: Tensor, ridge: float) -> None:
        self._network, self._data, self._target = network, data, target
        self._ridge = ridge / len(data)
        self.parameters = list(network.parameters())
        layered = [part for part in network.modules() if isinstance(part, nn.Sequential)]
        self._weights = [each.weight for part in layered for each in part if isinstance(each, nn.Linear)]

    def misfit(self, data: Tensor, target: Tensor) -> Tensor:
        """The mean square, in units of the columns' sizes."""
        return (self._network(data) - target).square().mean()

    def evaluate(self, blocks: object = None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss, gradient and terms."""
        loss = self.misfit(self._data, self._target)
        if self._ridge > 0:
            loss = loss + self._ridge * torch.stack([each.square().sum() for each in self._weights]).sum()
        gradients = torch.autograd.grad(loss, self.parameters)
        return loss.detach(), torch.cat([each.reshape(-1) for each in gradients]), {}


def train(network: Scaled, data: Array, target: Array, steps: int, ridge: float, seed: int) -> int:
    """Train a network in place by L-BFGS, judged by a tenth of 50 rows or more, else by all; the number of steps."""
    order = np.random.default_rng(seed).permutation(len(data))
    held = len(data) // 10 if len(data) >= _ENOUGH_TO_HOLD_OUT else 0
    given = (torch.from_numpy(data) - network.center) / network.half_width
    wanted = (torch.from_numpy(target) - network.offset) / network.scale
    own, judge = order[held:], order[: held or len(order)]
    objective = _Misfit(network.model, given[own], wanted[own], ridge)
    solver, early = LBFGS(max(steps, 1), history=20, look=_LOOK), EarlyStopping(patience=10)
    run = solver.start(cast(Objective, objective))

    def judged() -> float:
        with torch.no_grad():
            found = float(objective.misfit(given[judge], wanted[judge]))
        return found if math.isfinite(found) else math.inf

    best, seen, count = objective.vector(), [judged()], 0
    for count in range(1, steps + 1):
        done = run.step().done
        if count % _LOOK == 0 or done is not None or count == steps:
            found = judged()
            if found < min(seen):
                best = objective.vector()
            seen.append(found)
            if done is not None or early.over(seen):
                break
    objective.assign(best)
    return count


with extra("learn", "sciml.Embedding is a transformer of scikit-learn", "; sciml.embed does without"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data


class Embedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""A scikit-learn transformer from rows to an embedding of them, by a network that is given or trained.

    Given a solution or a module, the rows are points and the embedding is that of ``sciml.embed``; nothing is trained. Without
    one ``fit`` trains an encoder by L-BFGS:

    - ``target="X"``: an autoencoder, which never looks at y. It begins as a principal component analysis, to which networks
      add what is not linear, :math:`z = Ps + E(s)`, :math:`\hat s = P^T z + D(z)`; so with as many components it gives the
      rows it was trained on (where some are held out: these) back at least as well. All columns are scaled by one number:
      columns of different units should be scaled before.
    - ``target="y"``: a perceptron that predicts y, numbers of shape ``(n,)`` or ``(n, q)``; the embedding is its last hidden
      layer.

    Args:
        model: a solution or a ``torch.nn.Module`` to embed with, or None to train one.
        layer: the layer of ``model``, as in ``sciml.embed``.
        n_components: the number of components where one is trained.
        target: ``"X"`` or ``"y"``.
        hidden: the widths of hidden layers between the columns and the components.
        steps: the most steps of L-BFGS.
        ridge: the weight of the sum of squares of the networks' weights, divided by the number of rows, in a loss of order one.
        random_state: seed of weights and of rows that are held out (a tenth, of 50 rows or more); the same rows and seed give
            the same embedding. None is another seed every time, and a ``RandomState`` is drawn from.

    Attributes:
        n_features_in_: the number of columns.
        feature_names_in_: their names, if they had any.
        encoder_: what was trained, from columns to components, a module; or the model given.
        network_: the encoder with its decoder, a module; None where a model was given.
        error_: the root mean square of what was to be given less what is, by that of the columns about their means, over all
            rows; None where a model was given.
        n_iter_: the steps taken.

    Raises:
        ModelError: (when fitted) a setting that is none; more components than columns; ``target="y"`` without y.
        ProblemError: (when fitted) points that do not fit the model.

    Example:
        >>> import numpy as np, sciml
        >>> angle = np.linspace(0, 3, 40)
        >>> arc = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        >>> embedding = sciml.Embedding(n_components=1).fit(arc)
        >>> embedding.transform(arc).shape, bool(embedding.error_ < 0.02)
        ((40, 1), True)

    Reference: G. E. Hinton and R. R. Salakhutdinov, Reducing the dimensionality of data with neural networks, Science 313
    (2006).
    """

    def __init__(
        self,
        model: Solution | nn.Module | None = None,
        layer: str | None = None,
        *,
        n_components: int = 2,
        target: str = "X",
        hidden: Sequence[int] = (32,),
        steps: int = 200,
        ridge: float = 1e-3,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.model = model
        self.layer = layer
        self.n_components = n_components
        self.target = target
        self.hidden = hidden
        self.steps = steps
        self.ridge = ridge
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Embedding:
        """Train an encoder, or measure the width of the model's layer.

        Args:
            X: rows, shape ``(n, p)``; for a solution its coordinates, by name in a DataFrame, else in order.
            y: what is to be predicted with ``target="y"``; ignored otherwise.
        """
        rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=1 if self.model is not None else 2)
        if self.model is not None:
            if not isinstance(self.model, Solution | nn.Module):
                raise ModelError(f"model must be a solution, a torch.nn.Module or None; given: {self.model!r}")
            self.encoder_, self.network_, self.error_, self.n_iter_ = self.model, None, None, 0
            self._n_features_out = self._embedded(rows[:1]).shape[1]
            return self
        # Arrays of scikit-learn may be read-only, which torch does not support.
        rows = np.array(rows)
        self._check(rows.shape[1])
        seed = self._seed()
        if self.target == "X":
            wanted = rows
            network = autoencoder(rows, self.n_components, list(self.hidden), seed)
        else:
            wanted = self._targets(y, len(rows))
            network = predictor(rows, wanted, self.n_components, list(self.hidden), seed)
        self.n_iter_ = train(network, rows, wanted, self.steps, self.ridge, seed)
        self.network_ = network.requires_grad_(False)
        self.encoder_ = _standardised(torch.stack([network.center, network.half_width]), network.model.get_submodule("0"))
        with torch.no_grad():
            missed = network(torch.from_numpy(rows)).numpy() - wanted
        size = float(np.sqrt(np.mean((wanted - wanted.mean(0)) ** 2)))
        self.error_ = float(np.sqrt(np.mean(missed**2))) / (size or 1.0)
        self._n_features_out = self.n_components
        return self

    def _check(self, columns: int) -> None:
        """Refuse invalid settings with a ``ModelError``."""
        if not isinstance(self.target, str) or self.target not in ("X", "y"):
            raise ModelError(f"target must be 'X' or 'y'; given: {self.target!r}")
        if self.layer is not None:
            raise ModelError(f"layer={self.layer!r} names a layer of a model, and there is none: pass model=, too")
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence | np.ndarray):
            raise ModelError(f"hidden must be several whole numbers, as in hidden=(32,); given: {self.hidden!r}")
        whole("n_components", self.n_components, 1, ModelError)
        whole("steps", self.steps, 0, ModelError)
        for each in self.hidden:
            whole("the widths hidden", each, 1, ModelError)
        number = isinstance(self.ridge, numbers.Real) and not isinstance(self.ridge, bool)
        if not number or not 0 <= self.ridge < math.inf:
            raise ModelError(f"ridge must be a number that is not negative; given: {self.ridge!r}")
        if self.target == "X" and self.n_components > columns:
            raise ModelError(
                f"an autoencoder with n_components={self.n_components} has nothing to find in n_features={columns}: give at "
                "most as many components as there are columns"
            )

    def _seed(self) -> int:
        """A seed for torch: the number given, or one drawn as scikit-learn draws."""
        given = self.random_state
        if isinstance(given, np.random.RandomState | None):
            return int(check_random_state(given).randint(2**31 - 1))
        return whole("random_state", given, 0, ModelError)

    def _targets(self, y: Any, count: int) -> Array:
        if y is None:
            raise ModelError("target='y' requires y to be passed, but the target y is None")
        found: Array = np.array(check_array(y, dtype=np.float64, ensure_2d=False))
        found = found[:, None] if found.ndim == 1 else found
        if found.ndim != 2 or len(found) != count:
            raise ModelError(f"y must have shape ({count},) or ({count}, q); given: {np.shape(y)}")
        return found

    def transform(self, X: Any) -> Array:
        """The embedding, shape ``(n, k)``.

        Args:
            X: rows, shape ``(n, p)``.
        """
        check_is_fitted(self)
        return self._embedded(validate_data(self, X, dtype=np.float64, reset=False))

    def _embedded(self, rows: Array) -> Array:
        if isinstance(self.encoder_, nn.Module):
            layer = self.layer if self.network_ is None else self.encoder_
            return embed(self.encoder_, rows, layer).to_numpy()
        coordinates = self.encoder_.coordinates
        names = list(getattr(self, "feature_names_in_", coordinates))
        if len(names) != rows.shape[1]:
            raise ModelError(
                f"the solution has the coordinates {coordinates}; X must have these columns, or names; given: {rows.shape[1]} "
                "columns"
            )
        points = dict(zip(names, rows.T, strict=True))
        return embed(self.encoder_, points, self.layer).to_numpy()

    @available_if(lambda self: self.model is None and self.target == "X")
    def inverse_transform(self, Z: Any) -> Array:
        """The rows that an autoencoder makes of components, shape ``(n, p)``.

        Args:
            Z: components, shape ``(n, k)``.
        """
        check_is_fitted(self)
        values = torch.from_numpy(np.array(check_array(Z, dtype=np.float64)))
        if values.shape[1] != self.n_components:
            raise ModelError(f"components have {self.n_components} columns; given: {values.shape[1]}")
        with torch.no_grad():
            network = cast(Any, self.network_)
            found: Array = (network.offset + network.scale * network.model[1](values)).numpy()
        return found

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """``z0``, ``z1``, ..., as the columns of ``sciml.embed`` are called.

        Args:
            input_features: ignored, but for a check that scikit-learn asks for.
        """
        check_is_fitted(self)
        count = len(super().get_feature_names_out(input_features))
        return np.array([f"z{number}" for number in range(count)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Tags for scikit-learn: y is needed where it is the target."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.model is None and self.target == "y"
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle: of a solution all but the problem, whose class may be code of a notebook."""
        state = dict(super().__getstate__())
        for name in ("model", "encoder_"):
            if isinstance(state.get(name), Solution):
                state[name] = dataclasses.replace(state[name], problem=None)
        return state
