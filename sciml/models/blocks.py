r"""Building blocks of networks: residual, gated, product and periodic layers, through which jets pass by Taylor mode.

Jets pass a branch that is used more than once with the same inputs only once, as in a modified multilayer perceptron, where
every ``GatedBlock`` mixes the same two branches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from sciml._text import listed, whole
from sciml.errors import ModelError
from sciml.jets.activations import cosine, sine
from sciml.jets.propagation import Propagation, Streams
from sciml.models.base import Block


class _Branches(Block):
    """Modules that all get the block's own inputs."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        for branch in branches:
            if not isinstance(branch, nn.Module):
                raise ModelError(f"{type(self).__name__} is made of torch.nn.Module objects; given: {branch!r}")
        self.branches = nn.ModuleList(branches)

    def parts(self) -> Sequence[nn.Module]:
        """The branches."""
        return list(self.branches)

    def _all(self, streams: Streams, propagation: Propagation) -> list[Streams]:
        return [propagation.through(branch, streams) for branch in self.branches]


class ResidualBlock(_Branches):
    r"""A module and a way around it, :math:`x \mapsto x + f(x)`.

    Args:
        inner: f, from ``(n, w)`` to ``(n, w)``.

    Raises:
        ModelError: ``inner`` is not a module.

    Example:
        >>> import torch, sciml
        >>> from torch import nn
        >>> block = sciml.ResidualBlock(nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
        >>> block(torch.zeros(5, 8)).shape
        torch.Size([5, 8])

    Reference: K. He, X. Zhang, S. Ren and J. Sun, Deep residual learning for image recognition, CVPR 2016.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(n, w)`` to ``(n, w)``."""
        return inputs + self.branches[0](inputs)

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The sum of the streams."""
        (inner,) = self._all(streams, propagation)
        return propagation.sum(streams, inner)


class GatedBlock(_Branches):
    r"""Two branches mixed by a third, :math:`x \mapsto g(x) \odot a(x) + (1 - g(x)) \odot b(x)`.

    Args:
        gate: g, from ``(n, v)`` to ``(n, w)``.
        first: a, likewise.
        second: b, likewise.

    Raises:
        ModelError: one of them is not a module.

    Example:
        The modified multilayer perceptron of the first reference has two branches that every layer mixes anew.

        >>> import torch, sciml
        >>> from torch import nn
        >>> first, second, hidden = (nn.Sequential(nn.Linear(2, 8), nn.Tanh()) for _ in range(3))
        >>> for _ in range(2):
        ...     hidden = sciml.GatedBlock(nn.Sequential(hidden, nn.Linear(8, 8), nn.Tanh()), first, second)
        >>> nn.Sequential(hidden, nn.Linear(8, 1))(torch.zeros(5, 2)).shape
        torch.Size([5, 1])

    Reference: S. Wang, Y. Teng and P. Perdikaris, Understanding and mitigating gradient flow pathologies in
    physics-informed neural networks, SIAM Journal on Scientific Computing 43 (2021); S. Wang, B. Li, Y. Chen and
    P. Perdikaris, PirateNets, Journal of Machine Learning Research 25 (2024).
    """

    def __init__(self, gate: nn.Module, first: nn.Module, second: nn.Module) -> None:
        super().__init__(gate, first, second)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(n, v)`` to ``(n, w)``."""
        gate, first, second = (branch(inputs) for branch in self.branches)
        return second + gate * (first - second)

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The same combination of streams, with products by the rule of Leibniz."""
        gate, first, second = self._all(streams, propagation)
        return propagation.sum(second, propagation.product(gate, propagation.sum(first, second, -1.0)))


class Product(_Branches):
    r"""The elementwise product of two branches, :math:`x \mapsto a(x) \odot b(x)`.

    Args:
        first: a, from ``(n, v)`` to ``(n, w)``.
        second: b, likewise.

    Raises:
        ModelError: one of them is not a module.

    Example:
        >>> import torch, sciml
        >>> from torch import nn
        >>> sciml.Product(nn.Linear(2, 8), nn.Linear(2, 8))(torch.zeros(5, 2)).shape
        torch.Size([5, 8])

    Reference: R. Fathony, A. K. Sahu, D. Willmott and J. Z. Kolter, Multiplicative filter networks, ICLR 2021.
    """

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__(first, second)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(n, v)`` to ``(n, w)``."""
        first, second = (branch(inputs) for branch in self.branches)
        return first * second

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The rule of Leibniz."""
        first, second = self._all(streams, propagation)
        return propagation.product(first, second)


class Concatenation(_Branches):
    r"""Branches side by side, :math:`x \mapsto (a(x), b(x), \dots)`.

    Args:
        branches: modules from ``(n, v)`` to ``(n, w_i)``, at least one.

    Raises:
        ModelError: no branch, or one that is not a module.

    Example:
        >>> import torch, sciml
        >>> from torch import nn
        >>> sciml.Concatenation(nn.Linear(2, 8), sciml.FourierFeatures.random(2, 3))(torch.zeros(5, 2)).shape
        torch.Size([5, 14])

    Reference: G. Huang, Z. Liu, L. van der Maaten and K. Q. Weinberger, Densely connected convolutional networks, CVPR 2017.
    """

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__(*branches)
        if not branches:
            raise ModelError("Concatenation needs at least one branch, as in Concatenation(first, second); given: none")

    def forward(self, inputs: Tensor) -> Tensor:
        """``(n, v)`` to ``(n, w)``, w being the sum of the branches' widths."""
        return torch.cat([branch(inputs) for branch in self.branches], dim=1)

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The streams side by side."""
        return propagation.concatenation(self._all(streams, propagation))


class _Waves(Block):
    """Cosines, then sines, of linear phases, then some of the inputs unchanged."""

    frequencies: Tensor

    def __init__(self, frequencies: Tensor, plain: Sequence[int]) -> None:
        super().__init__()
        # In double precision: a rounded period would be another one.
        self.register_buffer("frequencies", frequencies.to(torch.float64, copy=True))
        self._plain = list(plain)
        self.width = 2 * len(frequencies) + len(self._plain)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(n, v)`` to ``(n, w)``."""
        phases = inputs @ self.frequencies.to(inputs).T
        return torch.cat([phases.cos(), phases.sin(), inputs[:, self._plain]], dim=1)

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """Both waves of the same phases, and the streams of the other inputs."""
        values = streams.values
        phases = Streams(streams.indices, values @ self.frequencies.to(values).T)
        plain = [Streams(streams.indices, values[:, :, self._plain])] if self._plain else []
        return propagation.concatenation([*(propagation.activation(each, phases) for each in (cosine, sine)), *plain])

    def extra_repr(self) -> str:
        waves, inputs = self.frequencies.shape
        return f"waves={waves}, inputs={inputs}, plain={self._plain}"


class FourierFeatures(_Waves):
    r"""Waves of given frequencies, :math:`x \mapsto (\cos Bx, \sin Bx)`, with B fixed.

    Args:
        frequencies: B, shape ``(m, v)``, in radians for a unit of the inputs. At the head of a model that ``fit`` trains
            these are the coordinates scaled to [-1, 1].

    Raises:
        ModelError: B is not a matrix of finite real numbers.

    Example:
        >>> import math, torch, sciml
        >>> waves = sciml.FourierFeatures(torch.tensor([[math.pi, 0.0], [0.0, math.pi]]))
        >>> waves(torch.zeros(5, 2)).shape
        torch.Size([5, 4])

    Reference: M. Tancik et al., Fourier features let networks learn high frequency functions in low dimensional domains,
    NeurIPS 2020.
    """

    def __init__(self, frequencies: Tensor) -> None:
        matrix = torch.as_tensor(frequencies)
        if matrix.ndim != 2 or not matrix.numel() or matrix.is_complex() or not bool(matrix.isfinite().all()):
            raise ModelError(
                "frequencies must be a matrix (m, v) of finite real numbers, a row for each wave and a column for each "
                f"input; given: {frequencies!r}"
            )
        super().__init__(matrix.detach(), ())

    @classmethod
    def random(cls, inputs: int, features: int, scale: float = 1.0, seed: int = 0) -> FourierFeatures:
        r"""Waves with :math:`B_{ij} \sim N(0, R^2)`.

        Args:
            inputs: the number v of inputs.
            features: the number m of frequencies; the block has 2m outputs.
            scale: R, in radians for a unit of the inputs.
            seed: seed of a generator of its own.

        Raises:
            ModelError: a number that is not positive.
        """
        if inputs < 1 or features < 1 or not 0 < scale < math.inf:
            raise ModelError(f"inputs, features and scale must be positive; given: {inputs!r}, {features!r}, {scale!r}")
        generator = torch.Generator().manual_seed(seed)
        return cls(scale * torch.randn(features, inputs, generator=generator, dtype=torch.float64))


class PeriodicEmbedding(_Waves):
    r"""Coordinates such that every function of them is periodic, :math:`x \mapsto (\cos kqx, \sin kqx)`, :math:`q = 2\pi/L`.

    Harmonics run over :math:`k = 1, \dots, K`. Coordinates without a period pass unchanged, behind the waves.

    Args:
        coordinates: the names of the columns of the points.
        periods: the period L of each periodic coordinate, in the unit of the block's inputs. At the head of a model
            that ``fit`` trains coordinates are scaled to [-1, 1], so that the whole side of a box has the period 2.
        harmonics: K.

    Attributes:
        width: the number w of outputs.

    Raises:
        ModelError: a name that is no coordinate, no period or one that is not positive, or no harmonic.

    Example:
        >>> import torch, sciml
        >>> from torch import nn
        >>> around = sciml.PeriodicEmbedding(("x", "t"), {"x": 2.0}, harmonics=3)
        >>> model = nn.Sequential(around, nn.Linear(around.width, 20), nn.Tanh(), nn.Linear(20, 1)).double()
        >>> left, right = torch.tensor([[-1.0, 0.3], [1.0, 0.3]], dtype=torch.float64)
        >>> torch.allclose(model(left[None]), model(right[None]), rtol=1e-12)
        True

    Reference: S. Dong and N. Ni, A method for representing periodic functions and enforcing exactly periodic boundary
    conditions with deep neural networks, Journal of Computational Physics 435 (2021).
    """

    def __init__(self, coordinates: Sequence[str], periods: Mapping[str, float], harmonics: int = 1) -> None:
        names = tuple(coordinates)
        strange = [name for name in periods if name not in names]
        if strange or not periods or not all(0 < period < math.inf for period in periods.values()):
            raise ModelError(
                f"periods must give a positive number for one or more of the coordinates {listed(names)}; "
                f"given: {dict(periods)!r}"
            )
        whole("harmonics", harmonics, 1, ModelError)
        rows = torch.zeros(len(periods), harmonics, len(names), dtype=torch.float64)
        multiples = torch.arange(1, harmonics + 1, dtype=torch.float64)
        for place, (name, period) in enumerate(periods.items()):
            rows[place, :, names.index(name)] = 2 * math.pi / period * multiples
        super().__init__(rows.flatten(0, 1), [column for column, name in enumerate(names) if name not in periods])


class PeriodicInputs(Block):
    r"""A model that sees :math:`\cos k\pi x, \sin k\pi x` for k = 1 ... K in place of some coordinates x in [-1, 1].

    Whatever the model is, the whole is periodic in these coordinates with period 2, and so are all its derivatives.

    Args:
        model: maps ``(n, D + (2 K - 1) p)`` to ``(n, F)``, with p periodic coordinates of D.
        columns: the columns of the periodic coordinates.
        harmonics: the number K.

    Raises:
        ModelError: ``harmonics`` is not a positive whole number.

    Example:
        >>> import torch
        >>> from sciml.models.mlp import MLP
        >>> model = PeriodicInputs(MLP(8, inputs=3, outputs=1), columns=[0])
        >>> left, right = model(torch.tensor([[-1.0, 0.3], [1.0, 0.3]]))
        >>> bool(torch.allclose(left, right))
        True

    See ``PeriodicEmbedding`` for the method and its source.
    """

    arguments = ("columns", "harmonics")

    def __init__(self, model: nn.Module, columns: Sequence[int], harmonics: int = 1) -> None:
        super().__init__()
        self.model, self.columns = model, tuple(columns)
        self.harmonics = whole("harmonics", harmonics, 1, ModelError)

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` at scaled points ``(n, D)``."""
        return self.model(self._embedding(points.shape[1])(points))

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The model's streams behind those of the waves."""
        return propagation.through(self.model, self._embedding(streams.before.shape[2]).jets(streams, propagation))

    def _embedding(self, inputs: int) -> PeriodicEmbedding:
        names = tuple(map(str, range(inputs)))
        return PeriodicEmbedding(names, {names[column]: 2.0 for column in self.columns}, self.harmonics)
