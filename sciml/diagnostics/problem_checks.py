"""Mistakes in a problem that need no model to be seen: its residuals are evaluated on made-up jets of natural size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed
from sciml.diagnostics.findings import Finding, attempted, caught
from sciml.diagnostics.precision import PrecisionMonitor, exact_in
from sciml.errors import SciMLError
from sciml.geometry import Place, PointSet, draw
from sciml.jets import JetSpace, RandomJets
from sciml.jets.random import USUAL, JetKind, SomeJets, levels_off, near_kinds, wild_kinds
from sciml.problem import Measurements, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.measurements import data_blocks
from sciml.problem.observations import Observation, Prior
from sciml.problem.unknowns import Unknown
from sciml.solvers.scaling import Sizes, field_sizes
from sciml.typing import MultiIndex

_PROBES = 24

_SAME = 1e-9

Jet = tuple[str, MultiIndex]


@dataclass
class Use:
    """What the residuals of a problem depend on: derivatives with the residuals that ask for them, fields, unknowns."""

    jets: dict[Jet, str] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)
    unknowns: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    levelled: set[str] = field(default_factory=set)


def check_constants(problem: Problem, *, precise: bool = True) -> Iterator[Finding]:
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
        if precise and value.is_floating_point() and value.dtype != torch.float64 and not exact_in(value):
            yield Finding(
                "constant",
                name,
                f"the constant {name!r} is a tensor of {value.dtype}, so only its first digits are right in float64",
                "give a number, or a tensor with dtype=torch.float64",
                "warning",
            )


def check_residuals(
    problem: Problem, measurements: Measurements | None, *, precise: bool = True
) -> tuple[list[Finding], Use]:
    """Everything that is wrong with the residuals of a problem.

    Each is evaluated at a few points of its place, with random numbers for fields and derivatives: whether it fails, has a
    wrong shape, is random, mixes points, or depends on no field; then whether every field and every unknown is met.

    Args:
        problem: the mathematics.
        measurements: that will be fitted beside it.
        precise: whether the fit is in float64.

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
        return _once(found), Use()
    sizes = attempted(found, "natural sizes", field_sizes, problem, blocks) if stated else None
    sizes = sizes or Sizes((0.0,) * len(problem.fields), (1.0,) * len(problem.fields))
    use, silent, whole = Use(), [], stated
    for block in blocks:
        for term in block.terms:
            if isinstance(term.evaluate, Prior):
                continue
            before = len(found)
            try:
                found += _check(problem, term, block, sizes, use, precise)
            except SciMLError as error:
                found.append(caught(error, term.name))
                whole = False
            if len(found) == before:
                continue
            silent.append(term.name)
    if whole:
        found += _unmet(problem, use, len(silent) > 0)
    return _once(found), use


def _terms(problem: Problem, found: list[Finding]) -> Sequence[Term]:
    """Every residual; where one cannot even be listed, those that can be, and a finding for each that cannot."""
    try:
        return problem.terms()
    except SciMLError as error:
        whole = caught(error, type(problem).__name__)
    terms, told = list[Term](), list[Finding]()
    for name in type(problem)._equations:
        terms += attempted(told, name, problem.equation_terms, name) or ()
    for condition in problem.conditions:
        listing: Callable[..., tuple[Term, ...]] = condition.terms
        terms += attempted(told, condition.name, listing, problem) or ()
    found += told or [whole]
    return terms


def _once(found: Sequence[Finding]) -> list[Finding]:
    """Without what is said again, as by a condition that looks at the equations, with another number of points."""
    kept: dict[str, Finding] = {}
    for each in found:
        text = re.sub(r"\d+", "#", str(each)) if each.severity == "fatal" else f"{each.where} {each}"
        if text not in kept or each.where in str(each):
            kept[text] = each
    return list(kept.values())


def _placed(problem: Problem, terms: Sequence[Term], found: list[Finding]) -> Iterator[Collocation]:
    """The residuals at a few points of their places; those that fail there are told, and left out."""
    places: dict[Place, list[Term]] = {}
    for term in terms:
        places.setdefault(term.place, []).append(term)
    for place, there in places.items():
        names = ", ".join(term.name for term in there)
        sample = attempted(found, names, draw, place, problem.domain, _PROBES, np.random.default_rng(0))
        if sample is None:
            continue
        block = Collocation(sample, tuple(there))
        scene = _scene(problem, block, Sizes((0.0,) * len(problem.fields), (1.0,) * len(problem.fields)), USUAL[0])[0]
        sound = []
        for term in there:
            before = len(found)
            attempted(found, term.name, term.evaluate, scene)
            sound += [term] if len(found) == before else []
        if sound:
            yield Collocation(sample, tuple(sound))


def _few(block: Collocation) -> Collocation:
    return block.part(torch.arange(0, block.size, max(1, -(-block.size // _PROBES))))


def _near(unknown: Unknown) -> tuple[float | None, ...]:
    return unknown.initial, unknown.lower, unknown.upper


def _scene(
    problem: Problem, block: Collocation, sizes: Sizes, attempt: JetKind
) -> tuple[Evaluation, list[RandomJets], dict[str, tuple[Tensor, Tensor]]]:
    """The scene of an attempt, its jets, and raw number and value of each unknown."""
    raw = {name: (unknown.raw_initial() + attempt.shift).requires_grad_() for name, unknown in problem.unknowns.items()}
    leaves = {name: (raw[name], unknown.value(raw[name])) for name, unknown in problem.unknowns.items()}
    bound = problem.bind(**{name: value for name, (_, value) in leaves.items()})
    made = [
        RandomJets(sizes.named(problem), problem.domain.half_widths, attempt, block.size, seed)
        for seed, _ in enumerate(block.sample.points)
    ]
    return Evaluation(bound, _spaces(problem, block.sample, made), block.sample.normals), made, leaves


def _spaces(problem: Problem, sample: PointSet, suppliers: Sequence[RandomJets | SomeJets]) -> tuple[JetSpace, ...]:
    return tuple(
        JetSpace(dict(zip(problem.coordinates, points.double().unbind(1), strict=True)), problem.fields, supplier)
        for points, supplier in zip(sample.points, suppliers, strict=True)
    )


@dataclass
class _Met:
    """What the attempts at one residual have met so far."""

    finite: Tensor
    depends: bool = False
    jets: bool = False
    still: set[str] = field(default_factory=set)


def _tried(
    problem: Problem, term: Term, block: Collocation, sizes: Sizes, attempt: JetKind, use: Use, met: _Met
) -> tuple[Tensor, Evaluation, list[RandomJets]]:
    """The values of a residual for one kind of jets; what they depend on is added to ``use`` and ``met``."""
    scene, made, leaves = _scene(problem, block, sizes, attempt)
    values = term.evaluate(scene)
    met.finite |= torch.isfinite(values.detach())
    jets = [(key, jet) for space in scene.spaces for key, jet in space.jets.items()]
    inputs = [*(jet for _, jet in jets), *(raw for raw, _ in leaves.values())]
    slopes = (
        torch.autograd.grad(values.sum(), inputs, allow_unused=True, retain_graph=True)
        if values.requires_grad and inputs
        else [None] * len(inputs)
    )
    for (key, _), slope in zip(jets, slopes, strict=False):
        if slope is not None:
            met.jets = True
            use.jets.setdefault(key, term.name)
            use.fields.add(key[0])
            met.depends = met.depends or bool((slope != 0).any())
    for (name, (_, value)), slope in zip(leaves.items(), slopes[len(jets) :], strict=True):
        if slope is None:
            continue
        use.mentioned.add(name)
        if bool((slope != 0).any()):
            use.unknowns.add(name)
            met.still.discard(name)
        elif name not in use.unknowns:
            met.still.add(name)
            use.levelled |= {name} if levels_off(values, [value.grad_fn]) else set()
    return values, scene, made


def _check(problem: Problem, term: Term, block: Collocation, sizes: Sizes, use: Use, precise: bool) -> list[Finding]:
    """What is wrong with one residual."""
    met, found = _Met(torch.zeros(block.size, dtype=torch.bool)), list[Finding]()
    for attempt in USUAL:
        with PrecisionMonitor() as coarse:
            values, scene, made = _tried(problem, term, block, sizes, attempt, use, met)
        if attempt == USUAL[0] and len(values) > 1:
            found += _together(problem, term, block, scene, made, values)
    for name in tuple(met.still):
        for attempt in near_kinds(_near(problem.unknowns[name])):
            if name in met.still:
                _tried(problem, term, block, sizes, attempt, use, met)
    for attempt in wild_kinds():
        # A root or a logarithm of fields has a value for some of them, and a term that is cut off lives for some.
        if bool(met.finite.all()) and (met.depends or not met.jets):
            break
        _tried(problem, term, block, sizes, attempt, use, met)
    if coarse.met and precise:
        found.append(_coarse(term.name, coarse.met[0]))
    if not bool(met.finite.all()):
        return [*found, _not_finite(problem, term.name, block, ~met.finite)]
    if met.depends or (isinstance(term.evaluate, Observation) and term.evaluate.function is None):
        return found
    why = "its derivative by every field is zero at every point" if met.jets else "nothing can make it vanish"
    return [
        *found,
        Finding(
            "residual",
            term.name,
            f"the residual {term.name!r} does not depend on any field; {why}",
            f"use a field of {listed(problem.fields)} in {term.name!r}, without .detach() or torch.no_grad(), or remove "
            "it",
        ),
    ]


def _together(
    problem: Problem, term: Term, block: Collocation, scene: Evaluation, made: Sequence[RandomJets], values: Tensor
) -> list[Finding]:
    """Whether a residual gives the same values again, and the same at some of the points alone."""
    again = term.evaluate(Evaluation(scene.problem, _spaces(problem, block.sample, made), block.sample.normals))
    if not _alike(again, values):
        return [_random(term.name)]
    # Sobol points are so even that every second of them has the same mean as all.
    order = torch.randperm(block.size, generator=torch.Generator().manual_seed(0))
    chosen = order[: max(1, 2 * block.size // 3)]
    sample = block.sample.part(chosen)
    spaces = _spaces(problem, sample, [each.part(chosen) for each in made])
    (few,) = Collocation(block.sample, (term,), None).part(chosen).terms
    alike = _alike(few.evaluate(Evaluation(scene.problem, spaces, sample.normals)), values[chosen])
    return [] if alike else [_mixing(term.name)]


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


def _coarse(name: str, value: Tensor) -> Finding:
    example = f" such as {float(value.reshape(-1)[0]):.9g}" if value.numel() else ""
    return Finding(
        "residual",
        name,
        f"the residual {name!r} computes with a tensor of {value.dtype}{example}, of which only the first digits are right",
        "give a plain number, or dtype=x.dtype; torch.tensor(0.1) and torch.where(..., 1.0, 0.1) make such tensors",
        "warning",
    )


def _not_finite(problem: Problem, name: str, block: Collocation, bad: Tensor) -> Finding:
    at = block.sample.points[0][int(bad.nonzero()[0])].tolist()
    place = ", ".join(f"{key}={value:.4g}" for key, value in zip(problem.coordinates, at, strict=True))
    return Finding(
        "residual",
        name,
        f"the residual {name!r} is not finite at {int(bad.sum())} of {len(bad)} points, whatever the fields are, the first at "
        f"{place}",
        "look for a division by zero, or a root or logarithm of a negative number, in its coefficients and targets",
    )


def _unmet(problem: Problem, use: Use, doubtful: bool) -> Iterator[Finding]:
    """Unknowns and fields that nothing depends on."""
    lost = [name for name in problem.unknowns if name not in use.mentioned]
    still = [name for name in problem.unknowns if name in use.mentioned and name not in use.unknowns]
    missing = [name for name in problem.fields if name not in use.fields]
    if lost:
        several, verb = ("s", "appear") if len(lost) > 1 else ("", "appears")
        yield Finding(
            "unknown",
            ", ".join(lost),
            f"the unknown{several} {listed(lost)} {verb} in no equation or condition, so nothing can determine it",
            f"use self.{lost[0]} in a residual, or remove it",
        )
    flat = [name for name in still if name in use.levelled]
    for names, level in (([name for name in still if name not in flat], "error"), (flat, "warning")):
        if not names:
            continue
        several, verb = ("s", "have") if len(names) > 1 else ("", "has")
        what = f"the unknown{several} {listed(names)} {verb} no influence: the derivative of every residual by it is zero at"
        if level == "warning":
            yield Finding(
                "unknown",
                ", ".join(names),
                f"{what} all points that were tried, since an exponential, step or threshold is flat there",
                f"begin nearer to where self.{names[0]} is felt, or make the threshold smoother",
                level,
            )
            continue
        yield Finding(
            "unknown",
            ", ".join(names),
            f"{what} all points, so no solver can move it",
            "look for a product with zero, a difference that cancels, .detach(), torch.where, a comparison or rounding of "
            f"self.{names[0]}",
        )
    if missing and not doubtful:
        several, verb = ("s", "appear") if len(missing) > 1 else ("", "appears")
        yield Finding(
            "field",
            ", ".join(missing),
            f"the field{several} {listed(missing)} {verb} in no equation, condition or measurement, so nothing determines it",
            f"use {missing[0]} in a residual, or take it out of fields",
        )
