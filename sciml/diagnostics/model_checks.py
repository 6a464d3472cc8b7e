"""Checks of a model: shapes, precision, points treated apart, and derivatives that reach parameters and are smooth enough.

Most are made on a copy with randomly perturbed weights, because a model may legitimately start with a last layer of zeros, and
then every derivative is zero without anything being wrong. What is zero for perturbed weights is zero for all.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sciml._text import listed
from sciml.diagnostics.findings import Finding
from sciml.diagnostics.layer_trace import culprit, kind_of, own_model, passages
from sciml.diagnostics.smoothness import Kink, kinks
from sciml.errors import ModelError
from sciml.geometry import Interior, draw
from sciml.jets import AutogradJets
from sciml.jets.calculus import describe
from sciml.problem import Problem
from sciml.problem.linearize import Jet

_PROBES = 11
_STRONG = 5.0
_SAME, _COMB, _ROUGH = 1e-9, 1e-9, 1e-10
_RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)
_SMOOTH = "use a smooth activation such as tanh, sin, silu or gelu"


def check_model(trial: nn.Module, problem: Problem) -> None:
    """Refuse a model that does not map D coordinates to F fields, or whose outputs no solver could change."""
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
        types = ("dtype", "same device", "Double", "Float ", "Float,", "float != double")
        if any(word in str(error) for word in types):
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
        raise ModelError(": ".join(_detached(trial, points, "the model's output")))


def check_function(trial: nn.Module, problem: Problem, asked: Mapping[Jet, str]) -> Iterator[Finding]:
    """Everything that is wrong with a model that has passed ``check_model``; ``asked`` names a residual for each derivative."""
    points = draw(Interior(), problem.domain, _PROBES, np.random.default_rng(0)).points[0][:_PROBES]
    like = next(trial.buffers())
    imprecise = list(_precision(trial, points.to(like)))
    yield from imprecise
    try:
        perturbed = _perturbed(trial, 0)
        with torch.no_grad():
            perturbed(points)
    except (RuntimeError, TypeError):
        # It runs in the precision of the fit alone.
        perturbed = _perturbed(trial, 0, like.dtype)
        points = points.to(like.dtype)
    mixing = _mixing(perturbed, points)
    if mixing is not None:
        yield mixing
        if mixing.severity != "warning":
            # Derivatives of a model that mixes points are not those at a point: nothing more can be said.
            return
        trial, perturbed = copy.deepcopy(trial).eval(), perturbed.eval()
    if not imprecise and points.dtype == like.dtype == torch.float64:
        yield from _steps(perturbed, points)
    try:
        yield from _derivatives(problem, trial, perturbed, points, asked)
    except (RuntimeError, NotImplementedError) as error:
        highest = max(asked, key=lambda jet: len(jet[1]), default=(problem.fields[0], ()))
        yield Finding(
            "smoothness",
            kind_of(trial),
            f"the model cannot be differentiated as often as residual {asked.get(highest, '')!r} needs it for "
            f"{describe(*highest)}: {error}",
            "leave out the operation that it names; attention has such derivatives with "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)",
            "fatal",
        )


def _perturbed(trial: nn.Module, seed: int, dtype: torch.dtype = torch.float64, strength: float = 1.0) -> nn.Module:
    found = copy.deepcopy(trial).to(device="cpu", dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in found.parameters():
            noise = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            parameter.mul_(strength).add_(noise.to(parameter), alpha=0.1)
    return found


def _precision(trial: nn.Module, points: Tensor) -> Iterator[Finding]:
    """A model that computes in another floating-point type than it was cast to."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        met = passages(copy.deepcopy(trial), points)
    last = next((each for each in reversed(met) if not each.path), None)
    if last is None or not last.out or last.out[0].dtype == points.dtype:
        return
    wrong = last.out[0].dtype
    where = culprit(lambda tensor: tensor.is_floating_point() and tensor.dtype == wrong, met) or kind_of(trial)
    yield Finding(
        "precision",
        where,
        f"the model computes in {wrong} although it was cast to {points.dtype} (first in {where}), so its derivatives have the "
        "digits of the lower precision alone",
        f"take the cast out of its forward, or fit with dtype={wrong}",
    )


def _steps(trial: nn.Module, points: Tensor) -> Iterator[Finding]:
    """A model that passes through a lower floating-point precision: its values go up in steps."""
    step = (points.amax(dim=0) - points.amin(dim=0)) * _COMB
    with torch.no_grad():
        comb = torch.stack([trial(points + number * step) for number in range(4)])
        rough = float((comb[2:] - 2 * comb[1:-1] + comb[:-2]).abs().max())
        if rough <= _ROUGH * float(comb.abs().max()):
            return
        runs = [passages(trial, points + number * step) for number in range(3)]

    def bad(one: Tensor, two: Tensor, three: Tensor) -> bool:
        if not one.is_floating_point():
            return False
        size = one.abs().max() if one.numel() else torch.ones(())
        return bool((three - 2 * two + one).abs().max() > _ROUGH / 10 * size)

    where = culprit(bad, *runs) or kind_of(trial)
    yield Finding(
        "precision",
        where,
        f"the model's values go up in steps of some {rough:.0e}, as though computed in a lower floating-point precision, in "
        f"{where}",
        "take .float(), .half(), autocast or rounding out of its forward",
    )


def _mixing(trial: nn.Module, points: Tensor) -> Finding | None:
    """Values at one point that depend on which other points there are, or on random numbers."""
    changing = _changing(trial, points)
    if changing is not None:
        # What it does to points is asked of a copy that has stopped to change.
        return _mixing(copy.deepcopy(trial).eval(), points) or changing
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        values, again = trial(points), trial(points)
        limit = (_SAME if points.dtype == torch.float64 else 1e-4) * (float(values.abs().max()) + 1e-300)
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
                kind_of(trial),
                f"the model mixes points: it takes {len(points)} points and fails on {len(order)} of them ({error})",
                "it must take any number of points, each by itself",
            )
        if max(change, fewer) <= limit:
            return None
        runs = [passages(trial, each) for each in (points, moved, points[order])]

    def bad(one: Tensor, two: Tensor, three: Tensor) -> bool:
        # The axis that counts the points has their length.
        axis = next((k for k, size in enumerate(one.shape) if size == len(points)), None)
        if axis is None or one.shape != two.shape or three.shape[axis] != len(order):
            return False
        one, two, three = (each.movedim(axis, 0).double() for each in (one, two, three))
        most = 1e-10 * float(one.abs().max()) + 1e-300
        return float((one - two)[1:].abs().max()) > most or float((one[order] - three).abs().max()) > most

    where = culprit(bad, *runs)
    much = (
        f"moving one of {len(points)} points changed the values at the others by up to {change:.1e}"
        if change > limit
        else f"without half of {len(points)} points the values at the others changed by up to {fewer:.1e}"
    )
    return Finding(
        "mixing",
        where or kind_of(trial),
        f"the model mixes points{'' if where is None else f' in {where}'}: {much}, so derivatives at a point would be wrong",
        "use LayerNorm or no normalisation, no attention or sums over points, and no dropout",
    )


def _changing(trial: nn.Module, points: Tensor) -> Finding | None:
    """A layer that changes its own buffers at every call and treats points by themselves once it has stopped."""
    own = own_model(trial)
    # Layers that gather statistics of points, and random ones, are reported as such.
    reported = (*_RANDOM, nn.modules.batchnorm._BatchNorm)
    if not own.training or any(isinstance(each, reported) for each in own.modules()):
        return None
    moving = copy.deepcopy(trial)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        before = {name: each.clone() for name, each in own_model(moving).named_buffers()}
        values, again = moving(points), moving(points)
        after = own_model(moving).named_buffers()
        changed = [name for name, each in after if not torch.equal(each, before.get(name, each))]
        still = copy.deepcopy(moving).eval()
        steady = torch.equal(still(points), still(points))
    if not changed or not steady or torch.equal(values, again):
        return None
    # What torch puts between a layer and its weight is the layer's own.
    paths = [name.rpartition(".")[0].partition(".parametrizations")[0] for name in changed]
    places = ", ".join(dict.fromkeys(_label(own, path.removeprefix("parametrizations")) for path in paths))
    return Finding(
        "mixing",
        places,
        f"the model changes itself at every call, in the buffers of {places}, so the same points have other values "
        "at the second call",
        "methods that compare losses at several places, as sciml.LBFGS does, are better off without it",
        "warning",
    )


def _label(model: nn.Module, path: str) -> str:
    return f"{path} ({type(model.get_submodule(path)).__name__})" if path else type(model).__name__


def _random(trial: nn.Module, points: Tensor, limit: float) -> Finding:
    def bad(one: Tensor, two: Tensor) -> bool:
        return one.shape == two.shape and bool(one.numel()) and float((one - two).abs().max()) > limit

    own = own_model(trial)
    known = [_label(own, path) for path, layer in own.named_modules() if path and isinstance(layer, _RANDOM)]
    where = ", ".join(known) or culprit(bad, passages(trial, points), passages(trial, points)) or kind_of(trial)
    return Finding(
        "mixing",
        where,
        f"the model is random: the same points have other values at the second call, because of dropout or noise in {where}",
        "take it out; an ensemble, sciml.ensemble, says how uncertain a solution is",
    )


def _derivatives(
    problem: Problem, trial: nn.Module, perturbed: nn.Module, points: Tensor, asked: Mapping[Jet, str]
) -> Iterator[Finding]:
    """Outputs that depend on nothing, derivatives that vanish, and derivatives that jump."""
    jets = AutogradJets(perturbed, points, problem.coordinates, problem.fields)
    # Rectifiers at rest and kinks away from zero are met by larger weights.
    other = _perturbed(trial, 1, points.dtype, _STRONG)
    varied, moving = _reached(problem, (perturbed, other), points)
    yield from _unreached(problem, perturbed, points, varied, moving)
    reached = [field for field in problem.fields if field in varied | moving]
    hidden = [
        name for name in problem.coordinates if reached and not any(bool(jets.jet(field, (name,)).any()) for field in reached)
    ]
    if hidden:
        yield Finding(
            "model",
            ", ".join(hidden),
            f"the model's output does not depend on the coordinate{'s' if len(hidden) > 1 else ''} {listed(hidden)} (detached, "
            "unused, or only through steps such as sign and round)",
            f"use all columns of the points, {listed(problem.coordinates)} in this order, and functions with a derivative",
        )
    lively = [jet for jet in asked if jet[0] in reached and not set(hidden) & set(jet[1])]
    zero = [jet for jet in lively if len(jet[1]) > 1 and not bool(jets.jet(*jet).any())]
    bent, bender = list[Kink](), perturbed
    if points.dtype == torch.float64 and not hidden:
        bent = kinks(perturbed, problem, lively)
        if not bent:
            bent, bender = kinks(other, problem, lively), other
    if zero:
        kink = next((kink for kink in bent if kink.jet in zero), None)
        first, *others = [describe(*jet) for jet in zero]
        layers = _kinked_layers(bender, kink) if kink is not None else []
        why = f" because of {', '.join(layers)}" if layers else " because nothing in it bends" if kink is None else ""
        also = f", and so {'is' if len(others) == 1 else 'are'} {', '.join(others)}" if others else ""
        what = f"the derivative {first} of the model is exactly zero everywhere{why}{also}, {_needs(zero, asked)}"
        yield Finding("smoothness", ", ".join(layers) or first, what, _SMOOTH)
    elif bent:
        kink = max(bent, key=lambda each: each.fraction)
        layers, below = _kinked_layers(bender, kink), describe(*kink.below)
        what = (
            f"{below} of the model jumps along {kink.coordinate} (by {kink.fraction:.1g} of its size)"
            f"{f' because of {layers[0]}' if layers else ''}; {describe(*kink.jet)} as it is computed knows nothing of the "
            f"jump, {_needs([kink.jet], asked)}"
        )
        yield Finding("smoothness", ", ".join(layers) or below, what, _SMOOTH)


def _needs(jets: Sequence[Jet], asked: Mapping[Jet, str]) -> str:
    names = list(dict.fromkeys(asked[jet] for jet in jets))
    residuals = f"residual {names[0]!r} needs" if len(names) == 1 else f"residuals {listed(names)} need"
    return f"but {residuals} {'it' if len(jets) == 1 else 'them'}"


def _reached(problem: Problem, trials: Sequence[nn.Module], points: Tensor) -> tuple[set[str], set[str]]:
    """The fields that depend on a trainable parameter, and those that depend on the points, for some of the weights."""
    varied, moving = set[str](), set[str]()
    for trial in trials:
        jets = AutogradJets(trial, points, problem.coordinates, problem.fields)
        parameters = [parameter for parameter in trial.parameters() if parameter.requires_grad]
        for field in problem.fields:
            values = jets.jet(field, ())
            # Of a sum changes may cancel, as after a softmax.
            if values.requires_grad and any(_moves(each, parameters) for each in (values, values.square())):
                varied.add(field)
            if values.requires_grad and any(bool(jets.jet(field, (name,)).any()) for name in problem.coordinates):
                moving.add(field)
    return varied, moving


def _moves(values: Tensor, parameters: Sequence[Tensor]) -> bool:
    slopes = torch.autograd.grad(values.sum(), list(parameters), retain_graph=True, allow_unused=True)
    return any(slope is not None and bool(slope.any()) for slope in slopes)


def _unreached(problem: Problem, trial: nn.Module, points: Tensor, varied: set[str], moving: set[str]) -> Iterator[Finding]:
    several = len(problem.fields) > 1
    for field in problem.fields:
        what = f"the field {field!r} of the model's output" if several else "the model's output"
        if field not in varied and field in moving:
            yield Finding(
                "detached",
                field,
                f"no trainable parameter of the model reaches {what}: it stays as it is",
                "leave it so only if it is known beforehand",
                "warning" if several else "error",
            )
        elif field not in varied:
            yield Finding("detached", field, *_detached(trial, points, what))


def _detached(trial: nn.Module, points: Tensor, what: str) -> tuple[str, str]:
    """That an output is detached, and where, if a layer does it; and what to look for."""
    met = passages(trial, points.detach().clone().requires_grad_())
    where = culprit(lambda tensor: tensor.is_floating_point() and not tensor.requires_grad, met)
    place = "" if where is None else f", first in {where}"
    reason = "it is detached (look for .detach(), .data, .numpy() or torch.no_grad())"
    return f"{what} does not depend on its parameters or inputs{place}", reason


def _kinked_layers(trial: nn.Module, kink: Kink) -> list[str]:
    """The layers that jump with a derivative: every one of the same kind as the first."""
    column = int((kink.ends[0] != kink.ends[1]).nonzero()[0])
    order = len(kink.below[1])
    points = kink.ends.clone().requires_grad_()
    met = passages(trial, points)
    generator = torch.Generator().manual_seed(0)

    def jumps(values: Tensor) -> bool:
        values = values.detach()
        return float((values[1] - values[0]).abs()) > 1e-5 * float(values.abs().max()) > 0

    def bad(values: Tensor) -> bool:
        if not values.is_floating_point() or values.ndim < 1 or len(values) != 2 or not values.requires_grad:
            return False
        flat = values.reshape(2, -1)
        value = flat @ torch.randn(flat.shape[1], dtype=flat.dtype, generator=generator)
        for number in range(order):
            (slope,) = torch.autograd.grad(value.sum(), points, create_graph=True, allow_unused=True)
            if slope is None or not slope.requires_grad:
                return slope is not None and jumps(slope[:, column]) and number == order - 1
            value = slope[:, column]
        return jumps(value)

    first = culprit(bad, met)
    kind = next((each.kind for each in met if each.leaf and each.label == first), None)
    if kind is None:
        return [] if first is None else [first]
    return list(dict.fromkeys(each.label for each in met if each.leaf and each.kind == kind))
