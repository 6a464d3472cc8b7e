"""Mistakes in a model that would let a fit run and mean nothing, found on a copy whose weights are shaken.

The weights are shaken because a model may legitimately start with a last layer of zeros, and then every derivative is
zero without anything being wrong. What is zero for shaken weights is zero for all.

Whether a model treats every point by itself, gives the same values twice, and computes in the precision it was cast to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sciml._text import listed
from sciml.diagnostics.findings import Finding
from sciml.diagnostics.layer_trace import Passage, culprit, own_model, passages
from sciml.diagnostics.smoothness import Jet, Kink, kinks
from sciml.errors import ModelError
from sciml.geometry import Interior, draw
from sciml.jets import AutogradJets
from sciml.jets.calculus import describe
from sciml.problem import Problem

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


_PROBES = 11

_STRONG = 5.0

_SMOOTH = "use a smooth activation such as tanh, sin, silu or gelu"


def check_model(trial: nn.Module, problem: Problem) -> None:
    """Refuse a model that does not map D coordinates to F fields, or whose outputs no solver could change.

    Args:
        trial: the trial function, in the precision and on the device of the fit.
        problem: the mathematics.

    Raises:
        ModelError: with the shapes given and expected, or that the output is detached.
    """
    inputs, outputs = len(problem.coordinates), len(problem.fields)
    like = next(trial.buffers())
    center = (torch.tensor(problem.domain.lower) + torch.tensor(problem.domain.upper)) / 2
    points = center.to(like).expand(3, inputs)
    expected = (
        f"a model for {type(problem).__name__} takes {inputs} input(s), {listed(problem.coordinates)}, and gives "
        f"{outputs} output(s), {listed(problem.fields)}"
    )
    try:
        with torch.random.fork_rng(devices=[]):
            values = trial(points)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if _about_types(error):
            raise ModelError(
                f"the model does not run in {like.dtype} on {like.device}, to which fit casts a copy of it: {error}; a tensor "
                "that the model holds is neither a parameter nor a buffer, or it casts inside its forward: use "
                "self.register_buffer(...), x.new_tensor(...) or .to(x)"
            ) from error
        raise ModelError(f"the model does not accept points of shape (n, {inputs}): {error}; {expected}") from error
    if not isinstance(values, Tensor) or values.shape != (3, outputs):
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ModelError(f"the model returned {shape} for 3 points; expected (3, {outputs}): {expected}")
    if values.dtype.is_complex:
        raise ModelError(f"the model returned {values.dtype}; expected real numbers: {expected}")
    if not any(parameter.requires_grad for parameter in trial.parameters()):
        raise ModelError("no trainable parameter of the model reaches its output: nothing can be fitted")
    if not values.requires_grad:
        raise ModelError(_detached(trial, points, "the model's output", "its parameters or inputs"))


def _about_types(error: Exception) -> bool:
    words = str(error)
    return any(word in words for word in ("dtype", "same device", "Double", "Float ", "Float,", "float != double"))


def findings_of(problem: Problem, trial: nn.Module, asked: Mapping[Jet, str]) -> list[Finding]:
    """Everything that is wrong with a model that has passed ``check_model``.

    Args:
        problem: the mathematics.
        trial: the trial function in the precision of the fit; shaken float64 copies are used.
        asked: the derivatives that residuals depend on, with the name of such a residual.
    """
    points = draw(Interior(), problem.domain, _PROBES, np.random.default_rng(0)).points[0][:_PROBES]
    like = next(trial.buffers())
    found = list(check_precision(trial, points.to(like)))
    try:
        shaken = _shaken(trial, 0)
        with torch.no_grad():
            shaken(points)
    except (RuntimeError, TypeError):
        # It runs in the precision of the fit alone.
        shaken = _shaken(trial, 0, like.dtype)
        points = points.to(like.dtype)
    mixing = check_points(shaken, points)
    if mixing is not None and mixing.severity != "warning":
        # Derivatives of a model that mixes points are not those at a point: nothing more can be said.
        return [*found, mixing]
    if mixing is not None:
        found.append(mixing)
        trial, shaken = copy.deepcopy(trial).eval(), shaken.eval()
    if all(each is mixing for each in found) and points.dtype == like.dtype == torch.float64:
        found += check_steps(shaken, points)
    try:
        return found + _derived(problem, trial, shaken, points, asked)
    except (RuntimeError, NotImplementedError) as error:
        highest = max(asked, key=lambda jet: len(jet[1]), default=(problem.fields[0], ()))
        return [
            *found,
            Finding(
                "smoothness",
                type(own_model(trial)).__name__,
                f"the model cannot be differentiated as often as residual {asked.get(highest, '')!r} needs it for "
                f"{describe(*highest)}: {error}",
                "leave out the operation that it names; attention has such derivatives with "
                "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)",
                "fatal",
            ),
        ]


def _derived(
    problem: Problem, trial: nn.Module, shaken: nn.Module, points: Tensor, asked: Mapping[Jet, str]
) -> list[Finding]:
    """What derivatives of a model tell."""
    jets = AutogradJets(shaken, points, problem.coordinates, problem.fields)
    # Rectifiers at rest and kinks away from zero are met by larger weights.
    other = _shaken(trial, 1, points.dtype, _STRONG)
    reached, found = _reached(problem, (shaken, other), points)
    blind = list(_blind(problem, jets, reached))
    found += blind
    hidden = {name for each in blind for name in each.where.split(", ")}
    lively = [jet for jet in asked if jet[0] in reached and not hidden & set(jet[1])]
    zero = [jet for jet in lively if len(jet[1]) > 1 and not bool(jets.jet(*jet).any())]
    bent, bender = list[Kink](), shaken
    if points.dtype == torch.float64 and not hidden:
        bent = kinks(shaken, problem, lively)
        if not bent:
            bent, bender = kinks(other, problem, lively), other
    if zero:
        found += _without(bender, zero, asked, bent)
    elif bent:
        found += _kinked(bender, bent, asked)
    return found


def _shaken(trial: nn.Module, seed: int, dtype: torch.dtype = torch.float64, strength: float = 1.0) -> nn.Module:
    shaken = copy.deepcopy(trial).to(device="cpu", dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in shaken.parameters():
            noise = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            parameter.mul_(strength).add_(noise.to(parameter), alpha=0.1)
    return shaken


def _reached(problem: Problem, trials: Sequence[nn.Module], points: Tensor) -> tuple[list[str], list[Finding]]:
    """The fields that depend on a trainable parameter or on the points for some weights, and findings about the others."""
    varied, moving = set[str](), set[str]()
    for trial in trials:
        jets = AutogradJets(trial, points, problem.coordinates, problem.fields)
        parameters = [parameter for parameter in trial.parameters() if parameter.requires_grad]
        for field in problem.fields:
            values = jets.jet(field, ())
            if not values.requires_grad:
                continue
            if field not in varied and _moves(values, parameters):
                varied.add(field)
            if field not in moving and any(bool(jets.jet(field, (name,)).any()) for name in problem.coordinates):
                moving.add(field)
    found = []
    for field in problem.fields:
        several = len(problem.fields) > 1
        what = f"the field {field!r} of the model's output" if several else "the model's output"
        if field not in varied and field in moving:
            found.append(
                Finding(
                    "detached",
                    field,
                    f"no trainable parameter of the model reaches {what}: it stays as it is",
                    "leave it so only if it is known beforehand",
                    "warning" if several else "error",
                )
            )
        elif field not in varied:
            text = _detached(trials[0], points, what, "its parameters or inputs")
            found.append(Finding("detached", field, *text.rsplit(": ", 1)))
    return [field for field in problem.fields if field in varied | moving], found


def _moves(values: Tensor, parameters: Sequence[Tensor]) -> bool:
    slopes = torch.autograd.grad(values.sum(), list(parameters), retain_graph=True, allow_unused=True)
    if any(slope is not None and bool(slope.any()) for slope in slopes):
        return True
    # Of a sum changes may cancel, as after a softmax.
    slopes = torch.autograd.grad(values.square().sum(), list(parameters), retain_graph=True, allow_unused=True)
    return any(slope is not None and bool(slope.any()) for slope in slopes)


def _detached(trial: nn.Module, points: Tensor, what: str, on: str) -> str:
    """That an output is detached, and where, if a layer does it."""
    inputs = points.detach().clone().requires_grad_()
    met = passages(trial, inputs)

    def bad(number: int, place: int, out: bool) -> bool:
        tensor = (met[number].out if out else met[number].into)[place]
        return tensor.is_floating_point() and not tensor.requires_grad

    where = culprit(met, bad)
    place = "" if where is None else f", first in {where}"
    return f"{what} does not depend on {on}{place}: it is detached (look for .detach(), .data, .numpy() or torch.no_grad())"


def _blind(problem: Problem, jets: AutogradJets, reached: Sequence[str]) -> Iterator[Finding]:
    names = [
        name
        for name in problem.coordinates
        if reached and not any(bool(jets.jet(field, (name,)).any()) for field in reached)
    ]
    if names:
        yield Finding(
            "model",
            ", ".join(names),
            f"the model's output does not depend on the coordinate{'s' if len(names) > 1 else ''} {listed(names)} (detached, "
            "unused, or only through steps such as sign and round)",
            f"use all columns of the points, {listed(problem.coordinates)} in this order, and functions with a derivative",
        )


def _needs(jets: Sequence[Jet], asked: Mapping[Jet, str]) -> str:
    names = list(dict.fromkeys(asked[jet] for jet in jets))
    residuals = f"residual {names[0]!r} needs" if len(names) == 1 else f"residuals {listed(names)} need"
    return f"but {residuals} {'it' if len(jets) == 1 else 'them'}"


def _without(
    trial: nn.Module, zero: Sequence[Jet], asked: Mapping[Jet, str], bent: Sequence[Kink]
) -> Iterator[Finding]:
    """Derivatives that are zero everywhere, because of layers with a kink, or without any that bends."""
    first, *others = [describe(*jet) for jet in zero]
    kinked = next((kink for kink in bent if kink.jet in zero), None)
    layers = _bending(trial, kinked) if kinked is not None else []
    why = f" because of {', '.join(layers)}" if layers else " because nothing in it bends" if kinked is None else ""
    also = f", and so {'is' if len(others) == 1 else 'are'} {', '.join(others)}" if others else ""
    yield Finding(
        "smoothness",
        ", ".join(layers) or first,
        f"the derivative {first} of the model is exactly zero everywhere{why}{also}, {_needs(zero, asked)}",
        _SMOOTH,
    )


def _kinked(trial: nn.Module, bent: Sequence[Kink], asked: Mapping[Jet, str]) -> Iterator[Finding]:
    """Derivatives that differentiation gets wrong, because the one below jumps."""
    kink = max(bent, key=lambda each: each.share)
    layers = _bending(trial, kink)
    below = describe(*kink.below)
    yield Finding(
        "smoothness",
        ", ".join(layers) or below,
        f"{below} of the model jumps along {kink.coordinate} (by {kink.share:.1g} of its size)"
        f"{f' because of {layers[0]}' if layers else ''}; {describe(*kink.jet)} as it is computed knows nothing of the jump, "
        f"{_needs([kink.jet], asked)}",
        _SMOOTH,
    )


def _bending(trial: nn.Module, kink: Kink) -> list[str]:
    """The layers that jump with a derivative: every one of the same kind as the first."""
    column = int((kink.ends[0] != kink.ends[1]).nonzero()[0])
    order = len(kink.below[1])
    points = kink.ends.clone().requires_grad_()
    met = passages(trial, points)
    generator = torch.Generator().manual_seed(0)

    def bad(number: int, place: int, out: bool) -> bool:
        values = (met[number].out if out else met[number].into)[place]
        if not values.is_floating_point() or values.ndim < 1 or len(values) != 2 or not values.requires_grad:
            return False
        flat = values.reshape(2, -1)
        value = flat @ torch.randn(flat.shape[1], dtype=flat.dtype, generator=generator)
        for _ in range(order):
            (slope,) = torch.autograd.grad(value.sum(), points, create_graph=True, allow_unused=True)
            if slope is None or not slope.requires_grad:
                return slope is not None and _apart(slope[:, column]) and _ == order - 1
            value = slope[:, column]
        return _apart(value)

    first = culprit(met, bad)
    if first is None:
        return []
    kind = next((each.kind for each in met if each.leaf and each.label == first), None)
    alike = [each.label for each in met if each.leaf and each.kind == kind]
    return list(dict.fromkeys(alike)) if kind is not None else [first]


def _apart(values: Tensor) -> bool:
    values = values.detach()
    return float((values[1] - values[0]).abs()) > 1e-5 * float(values.abs().max()) > 0
