"""Whether a model treats every point by itself, gives the same values twice, and computes in the precision it was cast to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from sciml.findings import Finding
from sciml.layer_trace import Passage, culprit, own_model, passages

_SAME = 1e-9
_COMB, _ROUGH = 1e-9, 1e-10
_RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)


def check_precision(trial: nn.Module, points: Tensor) -> Iterator[Finding]:
    """A model that computes in another floating-point type than it was cast to."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        met = passages(copy.deepcopy(trial), points)
    last = next((each for each in reversed(met) if not each.path), None)
    if last is None or not last.out or last.out[0].dtype == points.dtype:
        return
    wrong = last.out[0].dtype

    def bad(number: int, place: int, out: bool) -> bool:
        tensor = (met[number].out if out else met[number].into)[place]
        return tensor.is_floating_point() and tensor.dtype == wrong

    where = culprit(met, bad) or type(own_model(trial)).__name__
    yield Finding(
        "precision",
        where,
        f"the model computes in {wrong} although it was cast to {points.dtype} (first in {where}), so its derivatives have the "
        "digits of the coarser type alone",
        f"take the cast out of its forward, or fit with dtype={wrong}",
    )


def check_steps(trial: nn.Module, points: Tensor) -> Iterator[Finding]:
    """A model that passes through a coarser floating-point type: its values go up in steps."""
    reach = (points.amax(dim=0) - points.amin(dim=0)) * _COMB
    with torch.no_grad():
        comb = torch.stack([trial(points + number * reach) for number in range(4)])
        rough = float((comb[2:] - 2 * comb[1:-1] + comb[:-2]).abs().max())
        if rough <= _ROUGH * float(comb.abs().max()):
            return
        first, second = passages(trial, points), passages(trial, points + reach)
        third = passages(trial, points + 2 * reach)

    def bad(number: int, place: int, out: bool) -> bool:
        one, two, three = ((each[number].out if out else each[number].into)[place] for each in (first, second, third))
        size = one.abs().max() if one.is_floating_point() and one.numel() else torch.ones(())
        return one.is_floating_point() and bool((three - 2 * two + one).abs().max() > _ROUGH / 10 * size)

    where = culprit(first, bad) or type(own_model(trial)).__name__
    yield Finding(
        "precision",
        where,
        f"the model's values go up in steps of some {rough:.0e}, as though computed in a coarser floating-point type, in "
        f"{where}",
        "take .float(), .half(), autocast or rounding out of its forward",
    )


def check_points(trial: nn.Module, points: Tensor) -> Finding | None:
    """Whether values at one point depend on which other points there are, or on chance."""
    restless = _restless(trial, points)
    if restless is not None:
        # What it does to points is asked of a copy that has stopped to change.
        return check_points(copy.deepcopy(trial).eval(), points) or restless
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        values, again = trial(points), trial(points)
        size = _SAME if points.dtype == torch.float64 else 1e-4
        limit = size * (float(values.abs().max()) + 1e-300)
        if float((values - again).abs().max()) > limit:
            return _random(trial, points, limit)
        moved = points.clone()
        moved[0] = moved[1:].mean(dim=0)
        order = torch.arange(len(points) - 1, -1, -2)
        change = float((trial(moved) - values)[1:].abs().max())
        try:
            fewer = float((trial(points[order]) - values[order]).abs().max())
        except (RuntimeError, ValueError, IndexError) as error:
            return Finding(
                "mixing",
                type(own_model(trial)).__name__,
                f"the model mixes points: it takes {len(points)} points and fails on {len(order)} of them ({error})",
                "it must take any number of points, each by itself",
            )
        if max(change, fewer) <= limit:
            return None
        where = _mixer(trial, points, moved, order)
        kind = type(own_model(trial)).__name__
    much = (
        f"moving one of {len(points)} points changed the values at the others by up to {change:.1e}"
        if change > limit
        else f"without half of {len(points)} points the values at the others changed by up to {fewer:.1e}"
    )
    return Finding(
        "mixing",
        where or kind,
        f"the model mixes points{'' if where is None else f' in {where}'}: {much}, so derivatives at a point would be wrong",
        "use LayerNorm or no normalisation, no attention or sums over points, and no dropout",
    )


def _restless(trial: nn.Module, points: Tensor) -> Finding | None:
    """A layer that changes its own buffers at every call and treats points by themselves once it has stopped."""
    own = own_model(trial)
    # Layers that gather statistics of points, and random ones, are told as such.
    layers = list(own.modules())
    if not own.training or any(isinstance(each, (*_RANDOM, nn.modules.batchnorm._BatchNorm)) for each in layers):
        return None
    moving = copy.deepcopy(trial)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        before = {name: each.clone() for name, each in own_model(moving).named_buffers()}
        values, again = moving(points), moving(points)
        changed = [
            name for name, each in own_model(moving).named_buffers() if not torch.equal(each, before.get(name, each))
        ]
        still = copy.deepcopy(moving).eval()
        steady = torch.equal(still(points), still(points))
    if not changed or not steady or torch.equal(values, again):
        return None
    places = list(dict.fromkeys(_layer_of(own, name) for name in changed))
    return Finding(
        "mixing",
        ", ".join(places),
        f"the model changes itself at every call, in the buffers of {', '.join(places)}, so the same points have other values "
        "at the second call",
        "methods that compare losses at several places, as sciml.LBFGS does, are better off without it",
        "warning",
    )


def _layer_of(model: nn.Module, buffer: str) -> str:
    """The layer that a buffer belongs to; what torch puts between a layer and its weight is the layer's own."""
    path = buffer.rpartition(".")[0].partition(".parametrizations")[0].removeprefix("parametrizations")
    return f"{path} ({type(model.get_submodule(path)).__name__})" if path else type(model).__name__


def _random(trial: nn.Module, points: Tensor, limit: float) -> Finding:
    first, second = passages(trial, points), passages(trial, points)
    known = [
        f"{path} ({type(layer).__name__})"
        for path, layer in own_model(trial).named_modules()
        if isinstance(layer, _RANDOM)
    ]
    where = culprit(first, _differs(first, second, limit)) if len(first) == len(second) else None
    where = ", ".join(known) or where or type(own_model(trial)).__name__
    return Finding(
        "mixing",
        where,
        f"the model is random: the same points have other values at the second call, because of dropout or noise in {where}",
        "take it out; an ensemble, sciml.ensemble, says how uncertain a solution is",
    )


def _differs(first: Sequence[Passage], second: Sequence[Passage], limit: float) -> Callable[[int, int, bool], bool]:
    """Whether a tensor has other values in a second run."""

    def bad(number: int, place: int, out: bool) -> bool:
        pair = [(each[number].out if out else each[number].into) for each in (first, second)]
        if place >= min(map(len, pair)) or pair[0][place].shape != pair[1][place].shape:
            return False
        change = (pair[0][place] - pair[1][place]).abs()
        return bool(change.numel()) and float(change.max()) > limit

    return bad


def _mixer(trial: nn.Module, points: Tensor, moved: Tensor, order: Tensor) -> str | None:
    """The first layer in which one point's values follow another's."""
    still, shifted, few = (passages(trial, each) for each in (points, moved, points[order]))

    def bad(number: int, place: int, out: bool) -> bool:
        one, two, three = ((each[number].out if out else each[number].into)[place] for each in (still, shifted, few))
        # Which axis counts the points is told by its length.
        axis = next((k for k, size in enumerate(one.shape) if size == len(points)), None)
        if axis is None or one.shape != two.shape or three.shape[axis] != len(order):
            return False
        one, two, three = (each.movedim(axis, 0).double() for each in (one, two, three))
        limit = 1e-10 * float(one.abs().max()) + 1e-300
        return float((one - two)[1:].abs().max()) > limit or float((one[order] - three).abs().max()) > limit

    if not len(still) == len(shifted) == len(few):
        return None
    return culprit(still, bad)
