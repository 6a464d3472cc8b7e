"""Mistakes found before the first step, on a few points, with a copy of the model whose weights are shaken.

The weights are shaken because a model may legitimately start with a last layer of zeros, and then every derivative is
zero without anything being wrong. What is zero for shaken weights is zero for all.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from sciml.conditions import Scene
from sciml.derivative import describe
from sciml.errors import ModelError, ProblemError, listed
from sciml.jets import AutogradJets
from sciml.problem import Problem
from sciml.rows import Block, Rows
from sciml.sampling import Sample

_PROBES = 8
_ROUGH = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.Hardtanh, nn.Hardsigmoid, nn.Threshold)


def check_width(trial: nn.Module, problem: Problem) -> None:
    """Refuse a model that does not map D coordinates to F fields.

    Raises:
        ModelError: with the shapes given and expected.
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
        with torch.no_grad():
            values = trial(points)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ModelError(f"the model does not accept points of shape (n, {inputs}): {error}; {expected}") from error
    if not isinstance(values, Tensor) or values.shape != (3, outputs):
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ModelError(f"the model returned {shape} for 3 points; expected (3, {outputs}): {expected}")


def preflight(problem: Problem, trial: nn.Module, raw: Mapping[str, Tensor], blocks: Sequence[Block]) -> None:
    """Look for mistakes that would let a fit run and mean nothing.

    Args:
        problem: the mathematics.
        trial: the trial function; a shaken float64 copy is used.
        raw: the raw unknowns.
        blocks: every block that will be trained on.

    Raises:
        ModelError: a layer mixes points, the output is detached or does not depend on a coordinate, or a derivative
            that an equation needs is zero for every input.
        ProblemError: a residual has the wrong shape, ignores the fields, or mixes points, an unknown appears in no
            residual.
    """
    shaken = _shaken(trial)
    leaves = {name: value.detach().double().cpu().requires_grad_() for name, value in raw.items()}
    rows = Rows(problem, shaken, leaves, taylor=False)
    probes = [_few(probed) for block in blocks if (probed := _beyond_fields(block)).terms]
    points = torch.cat([sample for block in blocks for sample in block.sample.points]).double().cpu()
    points = points[:: max(1, len(points) // (2 * _PROBES))]
    _check_model(shaken, points, problem)
    seen: set[str] = set()
    for block in probes:
        scene, _ = rows.scene(block)
        for term in block.terms:
            values = term.evaluate(scene)
            _check_term(term.name, values, scene)
            if leaves and values.requires_grad:
                used = torch.autograd.grad(values.sum(), list(leaves.values()), retain_graph=True, allow_unused=True)
                seen |= {name for name, gradient in zip(leaves, used, strict=True) if gradient is not None}
        _check_derivatives(shaken, scene)
    lost = [name for name in leaves if name not in seen]
    if lost:
        raise ProblemError(
            f"the unknown {listed(lost)} appears in no equation or condition, so nothing can determine it: use "
            f"self.{lost[0]} in a residual, or remove it"
        )


def _shaken(trial: nn.Module) -> nn.Module:
    shaken = copy.deepcopy(trial).double().cpu()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in shaken.parameters():
            noise = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            parameter.add_(noise, alpha=0.1)
    return shaken


def _beyond_fields(block: Block) -> Block:
    """A block without what cannot be wrong: measurements of fields, and what was known of constants."""
    told = [term for term in block.terms if not term.measured or getattr(term.evaluate, "function", None) is not None]
    return Block(block.sample, tuple(told), block.weights)


def _few(block: Block) -> Block:
    step = max(1, block.size // _PROBES)
    if any(term.measured for term in block.terms):
        return block.part(torch.arange(0, block.size, step)).to(torch.device("cpu"), torch.float64)
    sample = block.sample
    normals = None if sample.normals is None else sample.normals[::step].double().cpu()
    return Block(Sample(tuple(points[::step].double().cpu() for points in sample.points), normals), block.terms)


def _check_model(trial: nn.Module, points: Tensor, problem: Problem) -> None:
    jets = AutogradJets(trial, points, problem.coordinates, problem.fields)
    values = torch.stack([jets.jet(field, ()) for field in problem.fields], dim=1)
    if not values.requires_grad:
        raise ModelError(
            "the model's output does not depend on its parameters or inputs: it is detached (look for .detach(), "
            ".data, .numpy() or torch.no_grad() in its forward)"
        )
    parameters = [parameter for parameter in trial.parameters() if parameter.requires_grad]
    if not parameters or not any(
        gradient is not None
        for gradient in torch.autograd.grad(values.sum(), parameters, retain_graph=True, allow_unused=True)
    ):
        raise ModelError("no trainable parameter of the model reaches its output: nothing can be fitted")
    for name in problem.coordinates:
        if not any(bool(jets.jet(field, (name,)).any()) for field in problem.fields):
            raise ModelError(f"the model's output does not depend on the coordinate {name!r} (detached, or unused)")
    _check_separate(trial, points, values.detach())


def _check_separate(trial: nn.Module, points: Tensor, values: Tensor) -> None:
    """Moving one point must leave the values at all other points as they are."""
    if len(points) < 2:
        return
    moved = points.detach().clone()
    moved[0] = moved[1:].mean(dim=0)
    with torch.no_grad():
        change = (trial(moved) - values)[1:].abs().max()
    if float(change) > 1e-9 * (float(values.abs().max()) + 1e-300):
        culprits = [
            f"{name} ({type(layer).__name__})"
            for name, layer in trial.named_modules()
            if isinstance(layer, nn.modules.batchnorm._BatchNorm | nn.modules.instancenorm._InstanceNorm)
        ]
        where = f" in {', '.join(culprits)}" if culprits else ""
        raise ModelError(
            f"the model mixes points{where}: moving one of {len(points)} points changed the values at the others by up "
            f"to {float(change):.1e}, so derivatives at a point would be wrong; use LayerNorm or no normalisation, and "
            "no dropout"
        )


def _check_term(name: str, values: Tensor, scene: Scene) -> None:
    jets = [jet for space in scene.spaces for jet in space.jets.values()]
    if not values.requires_grad or not jets:
        raise ProblemError(f"the residual {name!r} does not depend on any field: nothing can make it vanish")
    used = torch.autograd.grad(values.sum(), jets, retain_graph=True, allow_unused=True)
    if all(gradient is None for gradient in used):
        raise ProblemError(f"the residual {name!r} does not depend on any field: nothing can make it vanish")
    if len(values) > 1 and bool(torch.isfinite(values).all()):
        # Row 0 of a pointwise residual depends on row 0 of every jet alone.
        for gradient in torch.autograd.grad(values[0], jets, retain_graph=True, allow_unused=True):
            if gradient is not None and bool(gradient[1:].any()):
                raise ProblemError(
                    f"the residual {name!r} mixes points (a mean, sum, sort or product over points?): its value at one "
                    "point must depend on fields at that point alone"
                )


def _check_derivatives(trial: nn.Module, scene: Scene) -> None:
    for space in scene.spaces:
        for (field, index), values in space.jets.items():
            if len(index) >= 2 and not bool(values.any()):
                rough = sorted({type(layer).__name__ for layer in trial.modules() if isinstance(layer, _ROUGH)})
                why = f" because of {', '.join(rough)}" if rough else ""
                raise ModelError(
                    f"the derivative {describe(field, index)} of the model is exactly zero everywhere{why}, but a residual "
                    "needs it: use a smooth activation such as tanh, sin, silu or gelu"
                )
