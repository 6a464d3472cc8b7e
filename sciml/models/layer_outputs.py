"""Activations of a layer of a module at points, and their derivatives by the coordinates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sciml._text import among, listed
from sciml.errors import ModelError, ProblemError, SciMLError
from sciml.jets import AutogradJets
from sciml.jets.propagation import Propagation, layers_of, tried
from sciml.jets.taylor import HIGHEST, closed, seeds
from sciml.typing import MultiIndex


class LayerOutput:
    """The outputs of a layer of ``module`` inside ``run``, or its ``inputs``; for None the last linear layer's inputs."""

    def __init__(self, run: nn.Module, module: nn.Module, layer: str | nn.Module | None, inputs: bool = False) -> None:
        named = dict(module.named_modules())
        names = [key for key in named if key]
        self.run, self.name, self.inputs = run, layer if isinstance(layer, str) else None, inputs or layer is None
        if layer is None:
            linear = [part for part in named.values() if isinstance(part, nn.Linear)]
            if not linear:
                raise ModelError(f"the model has no linear layer; name a layer, one of {listed(names)}")
            self.layer: nn.Module = linear[-1]
        elif isinstance(layer, nn.Module):
            if not any(part is layer for part in named.values()):
                raise ModelError(
                    f"the layer given, a {type(layer).__name__}, is no part of the model; its layers are {listed(names)}. A "
                    "solution holds a trained copy: take the layer from solution.model"
                )
            self.layer = layer
        elif isinstance(layer, str):
            if layer not in names:
                raise ModelError(f"the model has no layer {layer!r}; its layers are {among(layer, names)}")
            self.layer = named[layer]
        else:
            raise ModelError(f"layer must be the name of a submodule, or a submodule; given: {layer!r}")
        self._sequence_first = _sequence_first(module, self.layer)

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Everything in evaluation mode, and as it was afterwards."""
        modes = {part: part.training for part in self.run.modules()}
        try:
            self.run.eval()
            yield
        finally:
            for part, mode in modes.items():
                part.training = mode

    def like(self, points: Tensor) -> Tensor:
        """Points on the device and in the type of the module; integers stay integers for embedding tables."""
        numbers = (*self.run.parameters(), *self.run.buffers())
        found = next((each for each in numbers if each.is_floating_point()), None)
        looked_up = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in self.run.modules())
        if looked_up and not points.is_floating_point():
            return points if found is None else points.to(found.device)
        if found is None:
            return points if points.is_floating_point() else points.double()
        return points.to(found)

    def values(self, points: Tensor) -> Tensor:
        """The embedding ``(n, k)`` of points ``(n, ...)``, with a graph where gradients are enabled."""
        caught = self._run(points)
        if not caught and not torch.is_grad_enabled():
            # Without gradients some layers of torch take a fused path that does not call their parts.
            with torch.enable_grad():
                asking = points.detach().requires_grad_() if points.is_floating_point() else points
                caught = self._run(asking)
        found = None
        if len(caught) == 1:
            found = _one_row_a_point(self.layer, caught[0], len(points), self._sequence_first)
        if found is None:
            which = f"layer {self.name!r}" if self.name else f"the layer {type(self.layer).__name__}"
            raise ModelError(
                f"{which} ran {len(caught)} times or gave something else than one row a point; choose another layer"
            )
        return found

    def _run(self, points: Tensor) -> list[Any]:
        caught: list[Any] = []

        def catch(_: nn.Module, given: tuple[Any, ...], output: Any = None) -> None:
            caught.append(given[0] if self.inputs else output)

        hooked = self.layer.register_forward_pre_hook if self.inputs else self.layer.register_forward_hook
        try:
            with hooked(catch):
                self.run(points)
        except (SciMLError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            # Any exception of a user's module is about these points or about itself.
            raise ProblemError(
                f"the module does not accept points of shape {tuple(points.shape)}: {type(error).__name__}: {error}"
            ) from error
        return caught

    def jets(self, points: Tensor, names: Sequence[str], plan: Sequence[MultiIndex]) -> list[Tensor]:
        """Values and derivatives of the embedding, each ``(n, k)``: by Taylor mode, or else nested autograd."""
        found = self._by_taylor(points, names, plan)
        if found is not None:
            return found
        with torch.enable_grad():
            first = self.values(points[:1])
            labels = [str(column) for column in range(first.shape[1])]
            nested = AutogradJets(self.values, points, names, labels)
            try:
                return [torch.stack([nested.jet(label, index).detach() for label in labels], dim=1) for index in ((), *plan)]
            except RuntimeError as error:
                raise ModelError(f"these layers cannot be differentiated so often: {error}") from error

    def _by_taylor(self, points: Tensor, names: Sequence[str], plan: Sequence[MultiIndex]) -> list[Tensor] | None:
        if layers_of(self.run) is None or max(map(len, plan), default=0) > HIGHEST:
            return None
        propagation = Propagation(closed(plan), tuple(names))
        with torch.no_grad():
            propagation.through(self.run, seeds(points, propagation.plan, names))
            met = propagation.met(self.layer)
            if len(met) != 1:
                return None
            streams = met[0][0] if self.inputs else met[0][1]
            return list(streams.aligned(((), *plan)).unbind(0))


def head_of(module: nn.Module) -> nn.Linear | None:
    """The linear layer whose outputs are those of a module that maps ``(n, D)`` to ``(n, F)``, or None: found by a trial."""
    points, own = tried(module)
    if own is None:
        return None
    ran: dict[nn.Linear, list[tuple[Tensor, Tensor]]] = {}

    def catch(layer: Any, given: tuple[Tensor, ...], output: Tensor) -> None:
        ran.setdefault(layer, []).append((given[0], output))

    with torch.no_grad(), contextlib.ExitStack() as hooks:
        for part in module.modules():
            if isinstance(part, nn.Linear):
                hooks.enter_context(part.register_forward_hook(catch))
        module(points)
    ends = (
        layer for layer, ((given, output), *more) in ran.items() if not more and given.ndim == 2 and torch.equal(output, own)
    )
    return next(ends, None)


def _one_row_a_point(layer: nn.Module, given: Any, count: int, sequence_first: bool) -> Tensor | None:
    """What a layer gave, flattened to ``(n, k)``; several outputs side by side. None where a row is not a point."""
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and isinstance(given, tuple):
        # States at the end have layers for rows, and are the last of the outputs; weights of attention are no outputs.
        given = given[0]
    if isinstance(given, Mapping):
        given = tuple(given.values())
    if isinstance(given, tuple | list):
        parts = [_one_row_a_point(layer, each, count, sequence_first) for each in given if each is not None]
        known = [part for part in parts if part is not None]
        return torch.cat(known, dim=1) if known and len(known) == len(parts) else None
    if not isinstance(given, Tensor) or not given.ndim:
        return None
    if given.ndim > 2 and sequence_first:
        given = given.transpose(0, 1)
    if len(given) != count:
        return None
    flat = given.reshape(count, -1) if count else given.flatten(1) if given.ndim > 1 else given[:, None]
    if flat.is_complex():
        return torch.view_as_real(flat).flatten(1).double()
    return flat.double()


def _sequence_first(module: nn.Module, layer: nn.Module) -> bool:
    """Whether a layer belongs to one of torch's that have time before the points; shapes alone cannot show it."""
    for part in module.modules():
        if isinstance(part, _SEQUENTIAL) and any(inner is layer for inner in part.modules()):
            inside = (each for each in part.modules() if isinstance(each, nn.RNNBase | nn.MultiheadAttention))
            return not next(inside).batch_first
    return False


_SEQUENTIAL = (
    *(nn.RNNBase, nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder),
    *(nn.TransformerEncoderLayer, nn.TransformerDecoderLayer),
)
