"""What our own models share: layers in turn, made when the numbers of inputs and outputs are known.

Parts of a model by name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from sciml._text import listed, nearest
from sciml.errors import ModelError
from sciml.jets.propagation import Propagation, Streams


def parts_of(model: nn.Module) -> dict[str, list[Tensor]]:
    """The parameters in every module inside a model, and every parameter alone, by the names that torch gives them."""
    found = {name: list(module.parameters()) for name, module in model.named_modules() if name}
    return found | {name: [parameter] for name, parameter in model.named_parameters()}


def part(model: nn.Module, pattern: str, what: str, others: tuple[str, ...] = ()) -> list[Tensor]:
    """The parameters of all parts whose names match a pattern such as ``layers.*``.

    Args:
        model: the model.
        pattern: a name of ``model.named_modules()`` or ``model.named_parameters()``, with wildcards as in a shell.
        what: the argument that the pattern was given to, for the message.
        others: further names that the argument takes, for the message.

    Raises:
        ModelError: nothing has such a name.
    """
    parts = parts_of(model)
    matching = [name for name in parts if fnmatchcase(name, pattern)]
    if not matching:
        known = [*parts, *others]
        raise ModelError(
            f"{what}: no part of the {type(model).__name__} is called {pattern!r}; parts: {listed(known)}."
            f"{nearest(pattern, known)}"
        )
    return list({id(parameter): parameter for name in matching for parameter in parts[name]}.values())


class SequentialModel(nn.Module):
    """A model that is a sequence of layers, empty until ``build`` is told the numbers of coordinates and fields."""

    def __init__(self, inputs: int | None, outputs: int | None) -> None:
        super().__init__()
        self.layers = nn.Sequential()
        self._asked = (inputs, outputs)

    @abstractmethod
    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Create the layers for D inputs and F outputs, in float64, with numbers from ``generator``."""

    def build_if_asked(self, seed: int) -> None:
        """Create the layers, in torch's default type, if the constructor was told inputs and outputs."""
        inputs, outputs = self._asked
        if inputs is not None and outputs is not None:
            self.build(inputs, outputs, torch.Generator().manual_seed(seed))
            self.to(torch.get_default_dtype())

    @property
    def widths(self) -> dict[str, int | None]:
        """The numbers of inputs and outputs, as the constructor takes them; None before the layers exist."""
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        if not linear:
            return {"inputs": None, "outputs": None}
        return {"inputs": linear[0].in_features, "outputs": linear[-1].out_features}

    def narrowed(self, column: int) -> None:
        """Take note that the first layer lost the column of a coordinate, which now has one value."""
        return

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` at points ``(n, D)``.

        Raises:
            ModelError: the layers do not exist yet.
        """
        if not len(self.layers):
            name = type(self).__name__
            raise ModelError(
                f"this {name} does not know its inputs and outputs yet: give it to sciml.fit, or make it with "
                f"{name}(..., inputs=2, outputs=1)"
            )
        return self.layers(points)

    def parts(self) -> Sequence[nn.Module]:
        """The layers."""
        return [self.layers]

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The fields' streams."""
        return propagation.through(self.layers, streams)
