"""Base classes of models: modules with a repr of their arguments, and sequences of layers that are built for a problem."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from sciml._text import among
from sciml.errors import ModelError
from sciml.jets.propagation import Propagation, Streams


def part(model: nn.Module, pattern: str, what: str, others: tuple[str, ...] = ()) -> list[Tensor]:
    """The parameters of all parts of a model whose names match a shell pattern given to the argument ``what``."""
    parts = {name: list(module.parameters()) for name, module in model.named_modules() if name}
    parts |= {name: [parameter] for name, parameter in model.named_parameters()}
    matching = [name for name in parts if fnmatchcase(name, pattern)]
    if not matching:
        known = among(pattern, [*parts, *others])
        raise ModelError(f"{what}: no part of the {type(model).__name__} is called {pattern!r}; parts: {known}")
    return list({id(parameter): parameter for name in matching for parameter in parts[name]}.values())


def linear(inputs: int, outputs: int, *, zero: bool = False, bias: bool = True, like: Tensor | None = None) -> nn.Linear:
    """A linear layer, in float64 or ``like`` a tensor, zero or without initial values; draws no random numbers."""
    kind = {"dtype": torch.float64} if like is None else {"dtype": like.dtype, "device": like.device}
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias, **kind)
    if zero:
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)
    return layer


class Block(nn.Module):
    """A module that shows its ``arguments``, can be rebuilt from them, and hands the modules inside it to jets."""

    arguments: ClassVar[tuple[str, ...]] = ()

    def parts(self) -> Sequence[nn.Module]:
        """The modules inside."""
        return list(self.children())

    @property
    def config(self) -> dict[str, Any]:
        """The plain values that rebuild this architecture: the keywords of ``from_config``."""
        return {name: _plain(getattr(self, name)) for name in self.arguments}

    @classmethod
    def from_config(cls, *values: Any, **options: Any) -> Self:
        """The architecture that ``config`` describes."""
        return cls(*values, **options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self.arguments)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, Tensor) else value


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"[{', '.join(f'{each:g}' for each in value.flatten().tolist())}]"
    if isinstance(value, tuple) and value and all(isinstance(each, float) for each in value):
        return " x ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(getattr(value, "__name__", repr(value)))


class SequentialModel(Block):
    """A sequence of layers, empty until ``build``; ``arguments`` and ``widths`` are the ``config`` that rebuilds it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential()

    @abstractmethod
    def build(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        """Create the layers for D inputs and F outputs, in float64, with numbers from ``generator``."""

    def build_if_asked(self, inputs: int | None, outputs: int | None, seed: int = 0) -> None:
        """Create the layers, in torch's default type, if the constructor got inputs and outputs."""
        if inputs is not None and outputs is not None:
            self.build(inputs, outputs, torch.Generator().manual_seed(seed))
            self.to(torch.get_default_dtype())

    @property
    def widths(self) -> dict[str, int | None]:
        """The numbers of inputs and outputs, as the constructor takes them; None before the layers exist."""
        layers = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        return {
            "inputs": layers[0].in_features if layers else None,
            "outputs": layers[-1].out_features if layers else None,
        }

    @property
    def config(self) -> dict[str, Any]:
        return super().config | self.widths

    def narrowed(self, column: int) -> None:
        """Adapt the arguments after the first layer lost the column of a coordinate, which now has one value."""

    def forward(self, points: Tensor) -> Tensor:
        """Fields ``(n, F)`` at points ``(n, D)``; a ModelError where the layers do not exist yet."""
        if not len(self.layers):
            name = type(self).__name__
            raise ModelError(
                f"this {name} does not know its inputs and outputs yet: give it to sciml.fit, or make it with "
                f"{name}(..., inputs=2, outputs=1)"
            )
        return self.layers(points)

    def jets(self, streams: Streams, propagation: Propagation) -> Streams:
        """The fields' streams."""
        return propagation.through(self.layers, streams)
