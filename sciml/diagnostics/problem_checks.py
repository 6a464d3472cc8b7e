"""Checks of a problem without a model: its residuals on random jets, its constants, and their floating-point types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sciml._text import listed
from sciml.diagnostics.findings import Finding, Findings
from sciml.diagnostics.layer_trace import tensors_of
from sciml.diagnostics.smoothness import jump_differentiated, jumps_differentiated
from sciml.geometry import Place, draw
from sciml.jets import RandomJets
from sciml.jets.calculus import is_exact
from sciml.jets.random import USUAL, WILD, JetKind, near_kinds
from sciml.problem import Measurements, Problem
from sciml.problem.collocation import Collocation
from sciml.problem.conditions import Evaluation, Term
from sciml.problem.linearize import Jet, linearize
from sciml.problem.measurements import data_blocks
from sciml.problem.observations import Observation, Prior
from sciml.solvers.scaling import field_sizes

_PROBES = 24
_SAME = 1e-9
# Functions that are flat far away.
_FLAT = frozenset(
    ("Exp", "Exp2", "Sigmoid", "LogSigmoid", "Tanh", "Erf", "Erfc", "Softplus", "Relu", "Clamp", "ClampMin", "ClampMax")
)

Fields = Mapping[str, tuple[float, float]]


class PrecisionMonitor(TorchFunctionMode):
    """Precision monitor: while it is active, the first tensor below float64 that meets one of float64 is kept in ``met``.

    Torch computes ``torch.tensor(0.1) * x`` in float64 if x is, with a 0.1 of which eight digits are right. Numbers that are
    the same in both types, such as 2.0 and 0.5, are no mistake.

    Example:
        >>> import torch
        >>> x = torch.ones(3, dtype=torch.float64)
        >>> with PrecisionMonitor() as monitor:
        ...     y = x * torch.tensor(0.5) + torch.tensor(0.1)
        >>> monitor.met
        [tensor(0.1000)]
    """

    def __init__(self) -> None:
        super().__init__()
        self.met: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The function as it is, after a look at its arguments."""
        kwargs = dict(kwargs or {})
        if not self.met:
            given = [each for each in tensors_of((*args, *kwargs.values())) if each.is_floating_point()]
            if any(each.dtype == torch.float64 for each in given):
                self.met += [each.detach() for each in given if each.dtype != torch.float64 and not is_exact(each)][:1]
        return func(*args, **kwargs)


def check_constants(problem: Problem, *, precise: bool = True) -> Iterator[Finding]:
    """Constants that are tensors with gradients, or of a lower precision than the fit (``precise``: float64)."""
    for name, value in problem.constants.items():
        if isinstance(value, Tensor) and value.requires_grad:
            what = f"the constant {name!r} is a tensor that asks for gradients, and no solver varies it"
            mean = float(value.detach().mean())
            remedy = f"{name} = sciml.Unknown({mean:.4g}) is a constant that is estimated; else detach it"
            yield Finding("constant", name, what, remedy)
        lower = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
        if precise and lower and not is_exact(value):
            what = f"the constant {name!r} is a tensor of {value.dtype}, so only its first digits are right in float64"
            remedy = "give a number, or a tensor with dtype=torch.float64"
            yield Finding("constant", name, what, remedy, "warning")


@dataclass
class Use:
    """Jets that residuals ask for, with the name of one that does, and unknowns that they change with.

    ``mentioned`` are unknowns in residuals, also where their derivative vanishes, ``flat`` those of them whose derivative
    vanishes in a function that is flat far away.
    """

    jets: dict[Jet, str] = field(default_factory=dict)
    unknowns: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    flat: set[str] = field(default_factory=set)


def check_residuals(problem: Problem, measurements: Measurements | None, *, precise: bool = True) -> tuple[list[Finding], Use]:
    """Everything that is wrong with residuals at a few points of their places on random jets, and what they depend on."""
    found = Findings()
    blocks = list(_placed(problem, _terms(problem, found), found))
    stated = not found
    if measurements is not None:
        blocks += [block.thinned(_PROBES) for block in found.attempt("data", data_blocks, problem, measurements) or []]
    if not blocks:
        return _once(found), Use()
    sizes = found.attempt("natural sizes", field_sizes, problem, blocks) if stated else None
    fields = sizes or {}
    use, faulty, whole = Use(), False, stated
    for block in blocks:
        for term in block.terms:
            if not isinstance(term.evaluate, Prior):
                before = len(found)
                whole &= found.check(term.name, _check, problem, term, block, fields, use, precise)
                faulty |= len(found) > before
    if whole:
        found += _unmet(problem, use, faulty)
        found.check("jumps", _jumps, problem)
    return _once(found), use


def _terms(problem: Problem, found: Findings) -> Sequence[Term]:
    """Every residual; where one cannot even be listed, those that can be, and a finding for each that cannot."""
    whole, apart, terms = Findings(), Findings(), list[Term]()
    every = whole.attempt(type(problem).__name__, problem.terms)
    if every is not None:
        return every
    for name in type(problem)._equations:
        terms += apart.attempt(name, problem.equation_terms, name) or ()
    for condition in problem.conditions:
        listing: Callable[..., tuple[Term, ...]] = condition.terms
        terms += apart.attempt(condition.name, listing, problem) or ()
    found += apart or whole
    return terms


def _once(found: Sequence[Finding]) -> list[Finding]:
    """Without what is said again, as by a condition that evaluates the equations, with another number of points."""
    kept: dict[str, Finding] = {}
    for each in found:
        text = re.sub(r"\d+", "#", str(each)) if each.severity == "fatal" else f"{each.where} {each}"
        if text not in kept or each.where in str(each):
            kept[text] = each
    return list(kept.values())


def _placed(problem: Problem, terms: Sequence[Term], found: Findings) -> Iterator[Collocation]:
    """The residuals at a few points of their places; those that fail there are reported, and left out."""
    places: dict[Place, list[Term]] = {}
    for term in terms:
        places.setdefault(term.place, []).append(term)
    for place, there in places.items():
        names = ", ".join(term.name for term in there)
        sample = found.attempt(names, draw, place, problem.domain, _PROBES, np.random.default_rng(0))
        if sample is not None:
            evaluation = _evaluation(problem, Collocation(sample, ()), {}, USUAL[0])[0]
            sound = tuple(term for term in there if found.attempt(term.name, term.evaluate, evaluation) is not None)
            if sound:
                yield Collocation(sample, sound)


def _evaluation(
    problem: Problem, block: Collocation, fields: Fields, kind: JetKind
) -> tuple[Evaluation, list[RandomJets], dict[str, tuple[Tensor, Tensor]]]:
    """A problem on random jets, these jets, and raw number and value of each unknown."""
    leaves = {}
    for name, unknown in problem.unknowns.items():
        raw = (unknown.raw_initial() + kind.shift).requires_grad_()
        leaves[name] = raw, unknown.value(raw)
    bound = problem.bind(**{name: value for name, (_, value) in leaves.items()})
    jets = [
        RandomJets(block.size, fields, problem.domain.half_widths, kind, seed=seed)
        for seed, _ in enumerate(block.sample.points)
    ]
    return Evaluation.of(bound, block.sample.points, jets, block.sample.normals), jets, leaves


def _levels_off(values: Tensor, leaf: Tensor) -> bool:
    """True if values depend on a tensor through functions that are flat far away, as the exponential is."""
    waiting, seen = [(values.grad_fn, False)], set[tuple[object, bool]]()
    while waiting:
        node, flat = waiting.pop()
        if node is None or (node, flat) in seen:
            continue
        seen.add((node, flat))
        if flat and node == leaf.grad_fn:
            return True
        flat = flat or node.name().removesuffix("0").removesuffix("Backward") in _FLAT
        waiting += [(each, flat) for each, _ in node.next_functions]
    return False


def _fault(name: str, what: str, remedy: str, severity: str = "error") -> Finding:
    return Finding("residual", name, f"the residual {name!r} {what}", remedy, severity)


def _check(problem: Problem, term: Term, block: Collocation, fields: Fields, use: Use, precise: bool) -> Iterator[Finding]:
    """What is wrong with one residual; what it depends on is added to ``use``."""
    name, finite = term.name, torch.zeros(block.size, dtype=torch.bool)
    on_fields, on_jets, mentioned = False, False, set[str]()

    def on(kind: JetKind) -> tuple[Tensor, Evaluation, list[RandomJets]]:
        """The values of the residual on one kind of jets, its evaluation and the jets."""
        nonlocal on_fields, on_jets
        evaluation, made, leaves = _evaluation(problem, block, fields, kind)
        linear = linearize(term, evaluation, {unknown: raw for unknown, (raw, _) in leaves.items()})
        finite.logical_or_(torch.isfinite(linear.values.detach()))
        for key, slope in (each for by_jet in linear.by_jet for each in by_jet.items()):
            on_jets = True
            use.jets.setdefault(key, name)
            on_fields |= bool((slope != 0).any())
        for unknown, slope in linear.by_unknown.items():
            mentioned.add(unknown)
            if bool((slope != 0).any()):
                use.unknowns.add(unknown)
            elif unknown not in use.unknowns and _levels_off(linear.values, leaves[unknown][1]):
                use.flat.add(unknown)
        use.mentioned |= mentioned
        return linear.values, evaluation, made

    for kind in USUAL:
        with PrecisionMonitor() as monitor:
            values, evaluation, jets = on(kind)
        if kind == USUAL[0] and len(values) > 1:
            yield from _pointwise(term, block, evaluation, jets, values)
    for unknown in sorted(mentioned - use.unknowns):
        given = problem.unknowns[unknown]
        for kind in near_kinds((given.initial, given.lower, given.upper)):
            if unknown not in use.unknowns:
                on(kind)
    for kind in WILD:
        # A root or a logarithm of fields has a value for some of them, and a term that is cut off lives for some.
        if bool(finite.all()) and (on_fields or not on_jets):
            break
        on(kind)
    if monitor.met and precise:
        value = monitor.met[0]
        example = f" such as {float(value.reshape(-1)[0]):.9g}" if value.numel() else ""
        yield _fault(
            name,
            f"computes with a tensor of {value.dtype}{example}, of which only the first digits are right",
            "give a plain number, or dtype=x.dtype; torch.tensor(0.1) and torch.where(..., 1.0, 0.1) make such tensors",
            "warning",
        )
    if not bool(finite.all()):
        at = block.sample.points[0][int((~finite).nonzero()[0])].tolist()
        place = ", ".join(f"{key}={value:.4g}" for key, value in zip(problem.coordinates, at, strict=True))
        yield _fault(
            name,
            f"is not finite at {int((~finite).sum())} of {block.size} points, whatever the fields are, the first at {place}",
            "look for a division by zero, or a root or logarithm of a negative number, in its coefficients and targets",
        )
    elif not (on_fields or (isinstance(term.evaluate, Observation) and term.evaluate.function is None)):
        why = "its derivative by every field is zero at every point" if on_jets else "nothing can make it vanish"
        yield _fault(
            name,
            f"does not depend on any field; {why}",
            f"use a field of {listed(problem.fields)} in {name!r}, without .detach() or torch.no_grad(), or remove it",
        )


def _pointwise(
    term: Term, block: Collocation, evaluation: Evaluation, jets: Sequence[RandomJets], values: Tensor
) -> Iterator[Finding]:
    """A residual that gives other values at a second evaluation, or at some of the points alone."""
    name = term.name
    if not _alike(term.evaluate(Evaluation.of(evaluation.problem, block.sample.points, jets, block.sample.normals)), values):
        yield _fault(
            name,
            "gives other values when it is evaluated again at the same points: it is random",
            f"draw random numbers of {name!r} once, when the problem is made",
        )
        return
    # Sobol points are so even that every second of them has the same mean as all.
    order = torch.randperm(block.size, generator=torch.Generator().manual_seed(0))
    chosen = order[: max(1, 2 * block.size // 3)]
    few = Collocation(block.sample, (term,)).part(chosen)
    alone = Evaluation.of(evaluation.problem, few.sample.points, [each.part(chosen) for each in jets], few.sample.normals)
    if not _alike(few.terms[0].evaluate(alone), values[chosen]):
        yield _fault(
            name,
            "mixes points (a mean, sum, sort or product over points?)",
            "its value at one point must depend on fields and coordinates at that point alone; for means over the domain "
            "there is sciml.Mean, for integrals sciml.Integral",
        )


def _alike(one: Tensor, two: Tensor) -> bool:
    """True if values are the same but for rounding; what is not finite must be so in both."""
    finite = two.detach()[torch.isfinite(two)].abs()
    largest = float(finite.max()) if len(finite) else 0.0
    return torch.allclose(one, two, rtol=0, atol=_SAME * largest, equal_nan=True)


def _jumps(problem: Problem) -> Iterator[Finding]:
    """Equations that differentiate what jumps, whose derivative holds a delta function that no point sees."""
    for name, place, share in jumps_differentiated(problem):
        yield _fault(
            name,
            jump_differentiated(place, share),
            "state the materials by sciml.composite, or a field on each part and what holds on their interface; smooth the "
            "jump; or, where the jump multiplies zero, preflight='warn'",
        )


def _unmet(problem: Problem, use: Use, faulty: bool) -> Iterator[Finding]:
    """Unknowns and fields that nothing depends on; of fields nothing is said beside a residual with a mistake."""

    def finding(kind: str, names: Sequence[str], verbs: tuple[str, str], what: str, remedy: str, *severity: str) -> Finding:
        several, verb = ("s", verbs[1]) if len(names) > 1 else ("", verbs[0])
        return Finding(kind, ", ".join(names), f"the {kind}{several} {listed(names)} {verb} {what}", remedy, *severity)

    appear, have = ("appears", "appear"), ("has", "have")
    still = [name for name in problem.unknowns if name in use.mentioned and name not in use.unknowns]
    zero = "no influence: the derivative of every residual by it is zero at all points"
    if lost := [name for name in problem.unknowns if name not in use.mentioned]:
        what = "in no equation or condition, so nothing can determine it"
        yield finding("unknown", lost, appear, what, f"use self.{lost[0]} in a residual, or remove it")
    if cut := [name for name in still if name not in use.flat]:
        remedy = "look for a product with zero, a difference that cancels, .detach(), torch.where, a comparison or rounding of"
        yield finding("unknown", cut, have, f"{zero}, so no solver can move it", f"{remedy} self.{cut[0]}")
    if flat := [name for name in still if name in use.flat]:
        what = f"{zero} that were tried, since an exponential, step or threshold is flat there"
        remedy = f"begin nearer to where self.{flat[0]} is felt, or make the threshold smoother"
        yield finding("unknown", flat, have, what, remedy, "warning")
    fields = {name for name, _ in use.jets}
    missing = [name for name in problem.fields if name not in fields]
    if missing and not faulty:
        what = "in no equation, condition or measurement, so nothing determines it"
        yield finding("field", missing, appear, what, f"use {missing[0]} in a residual, or take it out of fields")
