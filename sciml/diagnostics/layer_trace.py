"""Which layer did it: what goes into every layer of a model and what comes out, in the order in which they are met."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from sciml.models import PeriodicInputs

_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


@dataclass(frozen=True)
class Passage:
    """One layer as it was met: its path in ``model.named_modules()``, its kind, and tensors in and out."""

    path: str
    kind: str
    into: tuple[Tensor, ...]
    out: tuple[Tensor, ...]
    leaf: bool

    @property
    def label(self) -> str:
        """As it is told: ``layers.1 (ReLU)``."""
        return f"{self.path} ({self.kind})" if self.path else self.kind


def own_model(trial: nn.Module) -> nn.Module:
    """The model as a person handed it in, without scales and cosines around it."""
    model = getattr(trial, "model", trial)
    return model.model if isinstance(model, PeriodicInputs) else model


def passages(trial: nn.Module, points: Tensor) -> list[Passage]:
    """Every layer of a trial function at some points, in the order in which they are done; gradients are kept.

    Args:
        trial: the trial function; layers are named as in its own model.
        points: shape ``(n, D)``.
    """
    found: list[Passage] = []
    model = own_model(trial)

    def watch(path: str, module: nn.Module) -> Callable[..., None]:
        leaf = next(module.children(), None) is None

        def record(_: nn.Module, into: object, out: object) -> None:
            found.append(Passage(path, type(module).__name__, tuple(_tensors(into)), tuple(_tensors(out)), leaf))

        return record

    hooks = []
    try:
        for path, module in model.named_modules():
            try:
                hooks.append(module.register_forward_hook(watch(path, module)))
            except RuntimeError:
                # Compiled modules take no hooks; what is around them does.
                continue
        trial(points)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def culprit(found: list[Passage], bad: Callable[[int, int, bool], bool]) -> str | None:
    """Where something first goes wrong: a layer, or what a model computes itself between two of them.

    Args:
        found: the layers as they were met.
        bad: whether tensor ``k`` of passage ``i`` is wrong, ``bad(i, k, out)``, of what comes out or, with False, goes in.

    Returns:
        A phrase such as ``layers.1 (ReLU)`` or ``the forward of Net, between a (Linear) and b (Linear)``, or None where nothing
        is wrong.
    """
    sound: Passage | None = None
    for number, passage in enumerate(found):
        into = _spoilt(passage, number, bad, out=False)
        out = _spoilt(passage, number, bad, out=True)
        if into and passage.leaf:
            around, inside = _owner(found, passage, bad)
            before = f"between {sound.label} and" if sound is not None else "before"
            return f"the forward of {around}, {before} {inside.label}"
        if out:
            return passage.label if passage.leaf else f"the forward of {passage.label}"
        if passage.leaf:
            sound = passage
    return None


def _spoilt(passage: Passage, number: int, bad: Callable[[int, int, bool], bool], *, out: bool) -> bool:
    return any(bad(number, place, out) for place in range(len(passage.out if out else passage.into)))


def _owner(found: list[Passage], passage: Passage, bad: Callable[[int, int, bool], bool]) -> tuple[str, Passage]:
    """The module whose forward spoils what a layer is given, and the part of it that is given it."""
    inside = passage
    while inside.path:
        parent = inside.path.rpartition(".")[0]
        number, around = next(((n, each) for n, each in enumerate(found) if each.path == parent), (-1, None))
        if around is None:
            return "the model", inside
        if not _spoilt(around, number, bad, out=False):
            break
        inside = around
    # A container such as Sequential computes nothing itself.
    own = [each for each in found if each.path == inside.path.rpartition(".")[0] or not each.path]
    own = [each for each in own if not each.leaf and each.kind not in _CONTAINERS] or own
    return (own[0].label if own else "the model"), inside


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
