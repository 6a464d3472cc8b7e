"""Networks with few numbers in their middle, trained to give back what they are given, or something else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from sciml.callbacks import EarlyStopping
from sciml.objective import Objective
from sciml.solvers import LBFGS
from sciml.typing import Array

_ENOUGH_TO_HOLD_OUT = 50
_LOOK = 10


class Standard(nn.Module):
    r"""Columns less their means, divided by sizes: :math:`x \\mapsto (x - m)/s`; ``back`` is the inverse.

    Args:
        mean: m, shape ``(p,)``.
        size: s, shape ``(p,)``, positive.
    """

    mean: Tensor
    size: Tensor

    def __init__(self, mean: Tensor, size: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("size", size)

    def forward(self, values: Tensor) -> Tensor:
        """``(n, p)`` to ``(n, p)``."""
        return (values - self.mean) / self.size

    def back(self, values: Tensor) -> Tensor:
        """The inverse."""
        return self.mean + self.size * values


class Curved(nn.Module):
    r"""A linear map and a network beside it, :math:`x \mapsto Lx + N(x)`, N zero at first.

    Args:
        linear: L, shape ``(outputs, inputs)``.
        hidden: the widths of N's hidden layers.
        generator: draws N's other weights.
    """

    def __init__(self, linear: Tensor, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        outputs, inputs = linear.shape
        self.linear = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=False, dtype=torch.float64)
        self.network = perceptron((inputs, *hidden, outputs), generator)
        last = self.network[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            self.linear.weight.copy_(linear)
            last.weight.zero_()
            last.bias.zero_()

    def forward(self, values: Tensor) -> Tensor:
        """``(n, inputs)`` to ``(n, outputs)``."""
        return self.linear(values) + self.network(values)


class Encoder(nn.Module):
    """From columns to components, an embedding, and from there to what the network is trained to give.

    Args:
        inside: standardises what is given.
        encode: from ``(n, p)`` to ``(n, k)``.
        decode: from ``(n, k)`` to ``(n, q)``.
        outside: standardises what is to be given.
    """

    def __init__(self, inside: Standard, encode: nn.Module, decode: nn.Module, outside: Standard) -> None:
        super().__init__()
        self.inside, self.encode, self.decode, self.outside = inside, encode, decode, outside

    def forward(self, values: Tensor) -> Tensor:
        """What it was trained for, ``(n, q)``, at ``(n, p)``."""
        return self.outside.back(self.decode(self.embed(values)))

    def embed(self, values: Tensor) -> Tensor:
        """The components ``(n, k)``."""
        found: Tensor = self.encode(self.inside(values))
        return found


class Embedder(nn.Module):
    """The first half of an ``Encoder``, as a module of its own: its outputs are the components."""

    def __init__(self, whole: Encoder) -> None:
        super().__init__()
        self.inside, self.encode = whole.inside, whole.encode

    def forward(self, values: Tensor) -> Tensor:
        """``(n, p)`` to ``(n, k)``."""
        found: Tensor = self.encode(self.inside(values))
        return found


def perceptron(widths: Sequence[int], generator: torch.Generator, *, last: bool = False) -> nn.Sequential:
    """Linear layers of these widths with tanh between them (and, if ``last``, behind them), in float64."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layer = nn.utils.skip_init(nn.Linear, before, after, dtype=torch.float64)
        nn.init.xavier_normal_(layer.weight, generator=generator)
        # Without biases the network is odd, and where what it lacks is even the gradient vanishes at the start.
        nn.init.uniform_(layer.bias, -1.0, 1.0, generator=generator)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*(layers if last else layers[:-1]))


def autoencoder(data: Array, components: int, hidden: Sequence[int], seed: int) -> Encoder:
    r"""An encoder that gives back what it is given; before training it is a principal component analysis.

    .. math::  z = Ps + E(s), \qquad \hat s = P^T z + D(z), \qquad s = (x - \bar x)/\sigma

    with P the first principal axes, one size σ for all columns, and networks E and D that are zero at first.

    Args:
        data: shape ``(n, p)``.
        components: the number k of components.
        hidden: the widths of the hidden layers of E; D has them in reverse.
        seed: of the networks' weights.
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.from_numpy(data)
    mean = values.mean(0)
    size = float((values - mean).square().mean().sqrt()) or 1.0
    standard = Standard(mean, torch.full_like(mean, size))
    axes = torch.linalg.svd(standard(values), full_matrices=False)[2]
    if len(axes) < components:
        axes = torch.cat([axes, axes.new_zeros(components - len(axes), axes.shape[1])])
    # The sign of an axis is anybody's choice: its largest entry is made positive.
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    axes = (axes * torch.where(largest < 0, -1.0, 1.0))[:components]
    return Encoder(
        standard, Curved(axes, hidden, generator), Curved(axes.T.contiguous(), hidden[::-1], generator), standard
    )


def predictor(data: Array, target: Array, components: int, hidden: Sequence[int], seed: int) -> Encoder:
    """An encoder that gives targets: a perceptron whose last hidden layer is the embedding.

    Args:
        data: shape ``(n, p)``.
        target: shape ``(n, q)``.
        components: the width k of the last hidden layer.
        hidden: the widths of the hidden layers before it.
        seed: of the weights.
    """
    generator = torch.Generator().manual_seed(seed)
    inside, outside = (_by_column(torch.from_numpy(each)) for each in (data, target))
    encode = perceptron((data.shape[1], *hidden, components), generator, last=True)
    return Encoder(inside, encode, perceptron((components, target.shape[1]), generator), outside)


def _by_column(values: Tensor) -> Standard:
    size = values.std(0, correction=0)
    # A column that hardly varies is rounding beside the others, and must not be blown up to their size.
    return Standard(values.mean(0), torch.where(size > 1e-12 * size.max(), size, torch.ones_like(size)))


class _Misfit(Objective):
    """Mean squares of what an encoder gives less what it should give, and a ridge on the weights of its networks."""

    def __init__(self, encoder: Encoder, data: Tensor, target: Tensor, ridge: float) -> None:
        self._encoder, self._ridge = encoder, ridge
        self._data, self._target = encoder.inside(data), encoder.outside(target)
        self.parameters = list(encoder.parameters())

    def misfit(self, data: Tensor, target: Tensor) -> Tensor:
        """The mean square, in units of the columns' sizes."""
        encoder = self._encoder
        return (encoder.decode(encoder.encode(data)) - target).square().mean()

    def evaluate(self, blocks: object = None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss, gradient and terms."""
        loss = self.misfit(self._data, self._target)
        if self._ridge > 0:
            weights = [
                layer.weight
                for half in (self._encoder.encode, self._encoder.decode)
                for part in (half.modules())
                if isinstance(part, nn.Sequential)
                for layer in part
                if isinstance(layer, nn.Linear)
            ]
            loss = loss + self._ridge / len(self._data) * torch.stack([each.square().sum() for each in weights]).sum()
        gradients = torch.autograd.grad(loss, self.parameters)
        return loss.detach(), torch.cat([each.reshape(-1) for each in gradients]), {}


def train(encoder: Encoder, data: Array, target: Array, steps: int, ridge: float, seed: int) -> int:
    """Train an encoder by L-BFGS; of what was seen at looks the state that is best on held-out rows is kept.

    Args:
        encoder: what is trained, in place.
        data: shape ``(n, p)``.
        target: shape ``(n, q)``.
        steps: the most steps.
        ridge: the weight of the squares of weights, divided by n.
        seed: of the choice of rows to hold out: a tenth, where there are 50 rows or more; otherwise all rows judge.

    Returns:
        The number of steps taken.
    """
    order = np.random.default_rng(seed).permutation(len(data))
    held = order[: len(data) // 10] if len(data) >= _ENOUGH_TO_HOLD_OUT else order
    own = order[len(data) // 10 :] if len(data) >= _ENOUGH_TO_HOLD_OUT else order
    inputs, wanted = torch.from_numpy(data), torch.from_numpy(target)
    objective = _Misfit(encoder, inputs[own], wanted[own], ridge)
    judge = encoder.inside(inputs[held]), encoder.outside(wanted[held])
    solver, early = LBFGS(max(steps, 1), history=20, look=_LOOK), EarlyStopping(patience=10)
    run = solver.start(cast(Objective, objective))
    best, judged = objective.vector(), [_judged(objective, judge)]
    count = 0
    while count < steps:
        done = run.step().done
        count += 1
        if count % _LOOK == 0 or done is not None or count == steps:
            found = _judged(objective, judge)
            if found < min(judged):
                best = objective.vector()
            judged.append(found)
            if done is not None or early.over(judged):
                break
    objective.assign(best)
    return count


def _judged(objective: _Misfit, judge: tuple[Tensor, Tensor]) -> float:
    with torch.no_grad():
        found = float(objective.misfit(*judge))
    return found if math.isfinite(found) else math.inf
