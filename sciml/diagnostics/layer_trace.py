"""Layer trace: the inputs and outputs of every layer of a model by forward hooks, and the first layer where a test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from torch import Tensor, nn

from sciml.models import PeriodicInputs

_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


@dataclass(frozen=True)
class Passage:
    """One call of a layer: its path in ``model.named_modules()``, its kind, and tensors in and out."""

    path: str
    kind: str
    into: tuple[Tensor, ...]
    out: tuple[Tensor, ...]
    leaf: bool

    @property
    def label(self) -> str:
        """As in messages: ``layers.1 (ReLU)``."""
        return f"{self.path} ({self.kind})" if self.path else self.kind


def own_model(trial: nn.Module) -> nn.Module:
    """The model as a person handed it in, without scales and cosines around it."""
    model = getattr(trial, "model", trial)
    return model.model if isinstance(model, PeriodicInputs) else model


def kind_of(trial: nn.Module) -> str:
    """The class of the model as a person handed it in."""
    return type(own_model(trial)).__name__


def passages(trial: nn.Module, points: Tensor) -> list[Passage]:
    """Every layer of a trial function at points ``(n, D)``, in the order of their calls; gradients are kept."""
    found: list[Passage] = []

    def watch(path: str, module: nn.Module) -> Callable[..., None]:
        leaf = next(module.children(), None) is None

        def record(_: nn.Module, into: object, out: object) -> None:
            found.append(Passage(path, type(module).__name__, tuple(tensors_of(into)), tuple(tensors_of(out)), leaf))

        return record

    with ExitStack() as hooks:
        for path, module in own_model(trial).named_modules():
            # Compiled modules take no hooks; what is around them does.
            with suppress(RuntimeError):
                hooks.enter_context(module.register_forward_hook(watch(path, module)))
        trial(points)
    return found


def culprit(bad: Callable[..., bool], *runs: Sequence[Passage]) -> str | None:
    """Where tensors are first bad in one or several runs: a layer, or what a model computes between two; None for nowhere."""
    found = runs[0]
    if any(len(run) != len(found) for run in runs):
        return None

    def spoilt(number: int, *, out: bool) -> bool:
        tensors = [run[number].out if out else run[number].into for run in runs]
        return any(bad(*same) for same in zip(*tensors, strict=False))

    def owner(passage: Passage) -> tuple[str, Passage]:
        """The module whose forward spoils what a layer is given, and the part of it that is given it."""
        inside = passage
        while inside.path:
            parent = inside.path.rpartition(".")[0]
            number = next((number for number, each in enumerate(found) if each.path == parent), None)
            if number is None:
                return "the model", inside
            if not spoilt(number, out=False):
                break
            inside = found[number]
        # A container such as Sequential computes nothing itself.
        own = [each for each in found if each.path == inside.path.rpartition(".")[0] or not each.path]
        own = [each for each in own if not each.leaf and each.kind not in _CONTAINERS] or own
        return (own[0].label if own else "the model"), inside

    sound: Passage | None = None
    for number, passage in enumerate(found):
        into, out = spoilt(number, out=False), spoilt(number, out=True)
        if into and passage.leaf:
            around, inside = owner(passage)
            before = f"between {sound.label} and" if sound is not None else "before"
            return f"the forward of {around}, {before} {inside.label}"
        if out:
            return passage.label if passage.leaf else f"the forward of {passage.label}"
        if passage.leaf:
            sound = passage
    return None


def tensors_of(value: object) -> Iterator[Tensor]:
    """The tensors in a value, and in the lists, tuples and dicts that it is made of."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(each)
