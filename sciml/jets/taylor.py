"""Jets of layered models by Taylor-mode propagation: derivatives travel forward through the layers.

A *stream* is one partial derivative of a layer's output at all points, shape ``(n, width)``. A linear layer maps every stream
alike; an activation combines them by Faà di Bruno's formula (``faa_di_bruno.py``), a product by the rule of Leibniz.

Reference: A. Griewank and A. Walther, Evaluating Derivatives, 2nd ed., SIAM 2008, chapter 13; for partial differential
equations J. Bettencourt, M. Johnson and D. Duvenaud, Taylor-mode automatic differentiation for higher-order derivatives in
JAX, 2019.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from sciml.jets.propagation import Layer, Propagation, Streams, layers_of, splittings
from sciml.typing import MultiIndex, Points, Values

HIGHEST = 4


def closed(indices: Iterable[MultiIndex]) -> tuple[MultiIndex, ...]:
    """All sub-derivatives of some derivatives, lowest first: what must travel so that these arrive."""
    found = {()} | {part for index in indices for part, _ in splittings(index)}
    return tuple(sorted(found, key=lambda index: (len(index), index)))


class TaylorJets:
    """Partial derivatives of a layered model at points, all of them in one forward pass.

    Args:
        trial: maps ``(n, D)`` to ``(n, F)``, of modules known to ``layers_of``.
        points: shape ``(n, D)``.
        coordinates: the names of the columns of ``points``.
        fields: the names of the columns of the output.
        plan: the derivatives that will be asked for; a request outside it starts a second pass.

    Example:
        >>> import torch
        >>> from sciml.models import MLP, Scaled
        >>> trial = Scaled(MLP(8, inputs=1, outputs=1), [0.0], [2.0], [0.0], [1.0]).double()
        >>> jets = TaylorJets(trial, torch.rand(5, 1, dtype=torch.float64), ("x",), ("u",), [("x", "x")])
        >>> jets.jet("u", ("x", "x")).shape
        torch.Size([5])
    """

    name = "Taylor mode"

    def __init__(
        self,
        trial: nn.Module,
        points: Points,
        coordinates: Sequence[str],
        fields: Sequence[str],
        plan: Iterable[MultiIndex] = (),
    ) -> None:
        self._trial = trial
        self._points = points.detach()
        self._coordinates = tuple(coordinates)
        self._fields = {name: column for column, name in enumerate(fields)}
        self._plan = closed(plan)
        self._streams: dict[MultiIndex, Tensor] = {}
        self.layers: list[Layer] = []

    def jet(self, field: str, index: MultiIndex) -> Values:
        """The partial derivative ``index`` of ``field``, shape ``(n,)``."""
        return self.stream(index)[:, self._fields[field]]

    def stream(self, index: MultiIndex) -> Tensor:
        """The partial derivative ``index`` of all fields, shape ``(n, F)``."""
        if index not in self._streams:
            self._plan = closed([*self._plan, index])
            propagation = Propagation(self._plan, self._coordinates)
            found = propagation.through(self._trial, seeds(self._points, self._plan, self._coordinates))
            # Layers of an earlier pass stay listed: jets that were handed out then depend on its outputs.
            self.layers += propagation.layers
            self._streams = dict.fromkeys(self._plan, torch.zeros_like(found.values[0])) | found.parts()
        return self._streams[index]


def seeds(points: Points, plan: Sequence[MultiIndex], coordinates: Sequence[str]) -> Streams:
    """Points ``(n, D)`` and their first derivatives by the coordinates; all higher ones are zero and do not travel."""
    units = torch.eye(len(coordinates), dtype=points.dtype, device=points.device)
    first = [index for index in plan if len(index) == 1]
    rows = [units[list(coordinates).index(name)].expand_as(points) for (name,) in first]
    return Streams(((), *first), torch.stack([points, *rows]))


def supports(trial: nn.Module, highest: int) -> bool:
    """Whether a trial function's jets up to an order, and their derivatives by all parameters, can be had by Taylor mode."""
    layers = layers_of(trial) if highest <= HIGHEST else None
    if layers is None:
        return False
    still = [module for module in trial.modules() if getattr(module, "still", False)]
    owned = {id(parameter) for module in (*layers, *still) for parameter in module.parameters()}
    return all(id(parameter) in owned for parameter in trial.parameters())
