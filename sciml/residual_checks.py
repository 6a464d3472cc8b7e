"""Mistakes in a problem that need no model to be seen: its residuals are evaluated on made-up jets of natural size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sciml.conditions import Scene, Term
from sciml.derivative import JetSpace
from sciml.domains import Place
from sciml.errors import SciMLError, listed
from sciml.findings import Finding, attempted, caught
from sciml.measurements import Measurements, data_blocks
from sciml.misfit import Belief, Misfit
from sciml.problem import Problem
from sciml.rows import Block
from sciml.sampling import Sample, draw
from sciml.scaling import Sizes, field_sizes
from sciml.typing import MultiIndex, Values

_PROBES = 24
_SAME = 1e-9
# Jets of natural size and far larger ones: what is zero for both does not only rest.
_ROUNDS = ((1.0, 0.0), (10.0, 0.7))

Jet = tuple[str, MultiIndex]


@dataclass
class Use:
    """What the residuals of a problem depend on: derivatives with the residuals that ask for them, fields, unknowns."""

    jets: dict[Jet, str] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)
    unknowns: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)


class _MadeUp:
    """Random jets of natural size, the same at every call, of some of the points if asked."""

    def __init__(self, problem: Problem, sizes: Sizes, size: float, count: int, seed: int) -> None:
        self._offset = dict(zip(problem.fields, sizes.offset, strict=True))
        self._scale = dict(zip(problem.fields, sizes.scale, strict=True))
        self._reach = {name: (upper - lower) / 2 for name, (lower, upper) in problem.domain.bounds.items()}
        self._generator = torch.Generator().manual_seed(seed)
        self._size, self._count = size, count
        self._table: dict[Jet, Tensor] = {}

    def jet(self, field: str, index: MultiIndex) -> Values:
        key = (field, index)
        if key not in self._table:
            natural = self._scale[field] / float(np.prod([self._reach[name] for name in index]))
            noise = torch.randn(self._count, dtype=torch.float64, generator=self._generator)
            self._table[key] = self._size * natural * noise + (0.0 if index else self._offset[field])
        return self._table[key]

    def part(self, chosen: Tensor) -> _Part:
        """The same jets at some of the points."""
        return _Part(self, chosen)


class _Part:
    def __init__(self, whole: _MadeUp, chosen: Tensor) -> None:
        self._whole, self._chosen = whole, chosen

    def jet(self, field: str, index: MultiIndex) -> Values:
        return self._whole.jet(field, index)[self._chosen]


def check_constants(problem: Problem) -> Iterator[Finding]:
    """Constants that are tensors of a kind that a fit would not do justice to."""
    for name, value in problem.constants.items():
        if not isinstance(value, Tensor):
            continue
        if value.requires_grad:
            yield Finding(
                "constant",
                name,
                f"the constant {name!r} is a tensor that asks for gradients, and no solver varies it",
                f"{name} = sciml.Unknown({float(value.detach().mean()):.4g}) is a constant that is estimated; else detach it",
            )
        if value.is_floating_point() and value.dtype != torch.float64:
            yield Finding(
                "constant",
                name,
                f"the constant {name!r} is a tensor of {value.dtype}, so only its first digits are right in float64",
                "give a number, or a tensor with dtype=torch.float64",
                "warning",
            )


def check_residuals(problem: Problem, measurements: Measurements | None) -> tuple[list[Finding], Use]:
    """Everything that is wrong with the residuals of a problem.

    Each is evaluated at a few points of its place, with random numbers for fields and their derivatives: whether it fails, has a
    wrong shape, is random, mixes points, or depends on no field; then whether every field and every unknown is met.

    Args:
        problem: the mathematics.
        measurements: that will be fitted beside it.

    Returns:
        The findings, and what the residuals depend on.
    """
    found: list[Finding] = []
    terms = _terms(problem, found)
    blocks = list(_placed(problem, terms, found))
    stated = not found
    if measurements is not None:
        blocks += [_few(block) for block in attempted(found, "data", data_blocks, problem, measurements) or []]
    if not blocks:
        return found, Use()
    sizes = attempted(found, "natural sizes", field_sizes, problem, blocks) if stated else None
    sizes = sizes or Sizes((0.0,) * len(problem.fields), (1.0,) * len(problem.fields))
    use, silent, whole = Use(), [], stated
    for block in blocks:
        for term in block.terms:
            if isinstance(term.evaluate, Belief):
                continue
            before = len(found)
            try:
                own = _check(problem, term, block, sizes, use)
                found += own
            except SciMLError as error:
                found.append(caught(error, term.name))
                whole = False
            if len(found) == before:
                continue
            silent.append(term.name)
    if whole:
        found += _unmet(problem, use, len(silent) > 0)
    return found, use


def _terms(problem: Problem, found: list[Finding]) -> Sequence[Term]:
    """Every residual; where one cannot even be listed, those that can be, and a finding for each that cannot."""
    try:
        return problem.terms()
    except SciMLError as error:
        whole = caught(error, type(problem).__name__)
    terms: list[Term] = []
    before = len(found)
    for name in type(problem)._equations:
        terms += attempted(found, name, problem.equation_terms, name) or ()
    for condition in problem.conditions:
        listing: Callable[..., tuple[Term, ...]] = condition.terms
        if any(str(each) == str(whole) for each in found[before:]):
            # A condition that looks at the equations repeats what was said of them.
            again: list[Finding] = []
            terms += attempted(again, condition.name, listing, problem) or ()
            found += [each for each in again if str(each) not in {str(one) for one in found}]
        else:
            terms += attempted(found, condition.name, listing, problem) or ()
    if len(found) == before:
        found.append(whole)
    return terms


def _placed(problem: Problem, terms: Sequence[Term], found: list[Finding]) -> Iterator[Block]:
    """The residuals at a few points of their places; those that fail there are told, and left out."""
    places: dict[Place, list[Term]] = {}
    for term in terms:
        places.setdefault(term.place, []).append(term)
    for place, there in places.items():
        names = ", ".join(term.name for term in there)
        sample = attempted(found, names, draw, place, problem.domain, _PROBES, np.random.default_rng(0))
        if sample is None:
            continue
        block = Block(sample, tuple(there))
        scene = _scene(problem, block, Sizes((0.0,) * len(problem.fields), (1.0,) * len(problem.fields)), 1.0)[0]
        sound = []
        for term in there:
            before = len(found)
            attempted(found, term.name, term.evaluate, scene)
            sound += [term] if len(found) == before else []
        if sound:
            yield Block(sample, tuple(sound))


def _few(block: Block) -> Block:
    return block.part(torch.arange(0, block.size, max(1, -(-block.size // _PROBES))))


def _scene(
    problem: Problem, block: Block, sizes: Sizes, size: float, shift: float = 0.0
) -> tuple[Scene, list[_MadeUp], dict[str, Tensor]]:
    leaves = {name: (unknown.raw_initial() + shift).requires_grad_() for name, unknown in problem.unknowns.items()}
    bound = problem.bind(**{name: unknown.value(leaves[name]) for name, unknown in problem.unknowns.items()})
    made = [_MadeUp(problem, sizes, size, block.size, seed) for seed, _ in enumerate(block.sample.points)]
    return Scene(bound, _spaces(problem, block.sample, made), block.sample.normals), made, leaves


def _spaces(problem: Problem, sample: Sample, suppliers: Sequence[_MadeUp | _Part]) -> tuple[JetSpace, ...]:
    return tuple(
        JetSpace(dict(zip(problem.coordinates, points.double().unbind(1), strict=True)), problem.fields, supplier)
        for points, supplier in zip(sample.points, suppliers, strict=True)
    )


def _check(problem: Problem, term: Term, block: Block, sizes: Sizes, use: Use) -> list[Finding]:
    """What is wrong with one residual."""
    depends, jets_met = False, False
    for size, shift in _ROUNDS:
        scene, made, leaves = _scene(problem, block, sizes, size, shift)
        values = term.evaluate(scene)
        if (size, shift) == _ROUNDS[0] and len(values) > 1:
            again = term.evaluate(Scene(scene.problem, _spaces(problem, block.sample, made), block.sample.normals))
            if not _alike(again, values):
                return [_random(term.name)]
            chosen = torch.arange(block.size - 1, -1, -2)
            sample = block.sample.part(chosen)
            spaces = _spaces(problem, sample, [each.part(chosen) for each in made])
            (few,) = Block(block.sample, (term,), None).part(chosen).terms
            if not _alike(few.evaluate(Scene(scene.problem, spaces, sample.normals)), values[chosen]):
                return [_mixing(term.name)]
        jets = [(key, jet) for space in scene.spaces for key, jet in space.jets.items()]
        inputs = [*(jet for _, jet in jets), *leaves.values()]
        slopes = (
            torch.autograd.grad(values.sum(), inputs, allow_unused=True)
            if values.requires_grad and inputs
            else [None] * len(inputs)
        )
        for (key, _), slope in zip(jets, slopes, strict=False):
            if slope is not None:
                jets_met = True
                use.jets.setdefault(key, term.name)
                use.fields.add(key[0])
                depends = depends or bool((slope != 0).any())
        for name, slope in zip(leaves, slopes[len(jets) :], strict=True):
            if slope is not None:
                use.mentioned.add(name)
                use.unknowns |= {name} if bool((slope != 0).any()) else set()
    if depends or (isinstance(term.evaluate, Misfit) and term.evaluate.function is None):
        return []
    why = "its derivative by every field is zero at every point" if jets_met else "nothing can make it vanish"
    return [
        Finding(
            "residual",
            term.name,
            f"the residual {term.name!r} does not depend on any field: {why}",
            f"use a field of {listed(problem.fields)} in {term.name!r}, without .detach(), .item() or torch.no_grad(), or remove "
            "it",
        )
    ]


def _alike(one: Tensor, two: Tensor) -> bool:
    """Whether values are the same but for rounding; what is not finite must be so in both."""
    one, two = one.detach(), two.detach()
    finite = torch.isfinite(one)
    if not torch.equal(finite, torch.isfinite(two)):
        return False
    largest = float(two[finite].abs().max()) if bool(finite.any()) else 0.0
    return bool(((one - two)[finite].abs() <= _SAME * largest).all())


def _random(name: str) -> Finding:
    return Finding(
        "residual",
        name,
        f"the residual {name!r} gives other values when it is evaluated again at the same points: it is random",
        f"draw random numbers of {name!r} once, when the problem is made",
    )


def _mixing(name: str) -> Finding:
    return Finding(
        "residual",
        name,
        f"the residual {name!r} mixes points (a mean, sum, sort or product over points?)",
        "its value at one point must depend on fields and coordinates at that point alone; for means over the domain there is "
        "sciml.Mean, for integrals sciml.Integral",
    )


def _unmet(problem: Problem, use: Use, doubtful: bool) -> Iterator[Finding]:
    """Unknowns and fields that nothing depends on."""
    lost = [name for name in problem.unknowns if name not in use.mentioned]
    still = [name for name in problem.unknowns if name in use.mentioned and name not in use.unknowns]
    if lost:
        yield Finding(
            "unknown",
            ", ".join(lost),
            f"the unknown {listed(lost)} appears in no equation or condition, so nothing can determine it",
            f"use self.{lost[0]} in a residual, or remove it",
        )
    if still:
        yield Finding(
            "unknown",
            ", ".join(still),
            f"the unknown {listed(still)} has no influence: the derivative of every residual by it is zero at every point, so "
            "no solver can move it",
            f"look for a product with zero, a difference that cancels, .detach(), torch.where, a comparison or rounding of "
            f"self.{still[0]}",
        )
    missing = [name for name in problem.fields if name not in use.fields]
    if missing and not doubtful:
        yield Finding(
            "field",
            ", ".join(missing),
            f"the field {listed(missing)} appears in no equation, condition or measurement, so nothing determines it",
            f"use {missing[0]} in a residual, or take it out of fields",
        )
