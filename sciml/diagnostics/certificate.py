"""The certificate of a solution: its residuals on points that nothing was fitted to, and the reasons against its success."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import scipy
import torch

from sciml._text import listed, located
from sciml.diagnostics.estimated_error import natural_sizes, root_mean_squares, significant
from sciml.diagnostics.smoothness import hidden_step, jump_differentiated, jumps_differentiated
from sciml.diagnostics.well_posedness import lacking
from sciml.geometry import Place, PointSet
from sciml.models import GridFunction, Tiles, Windowed
from sciml.problem.collocation import Collocation
from sciml.problem.observations import Observation, is_measured
from sciml.problem.thresholds import at_same_jets
from sciml.solvers import DiscreteProblem, ResidualSystem
from sciml.solvers.batching import predicted
from sciml.solvers.nonfinite import described
from sciml.solvers.scaling import not_inflated
from sciml.uncertainty import Estimate, Inference
from sciml.uncertainty.covariance import from_equations, from_rows
from sciml.uncertainty.lack_of_fit import LackOfFit, lack_of_fit

_MOST_DRIFT = 0.5
_MOST_OVERFIT = 30.0
_NEGLIGIBLE = 1e-3
_AT_A_BOUND = 8.0
# What of its natural size a field is at most that is zero.
_ZERO = 1e-6
_CHANCE = 1e-4
# What residuals are of their natural sizes at most where data are narrow: that is two thousandths of a place.
_MISSED = 1e-2
# Points of each place on which a fit is judged that was interrupted, or whose time was over before it was solved.
_FEW = 200

# How soon after the start, of all time, a field has leapt that equations determine; how far, and what others may move.
_AT_ONCE, _LEAPS, _SMOOTHLY = (1e-3, 1e-4, 1e-5), 2e-3, 2e-4


def certificate(rows: ResidualSystem, blocks: Sequence[Collocation], scales: Mapping[str, float]) -> pd.DataFrame:
    """The size of every residual at the points of some blocks."""
    found = {}
    for name, values in rows.numbers(blocks).items():
        sizes = values.double().abs()
        rms = float(sizes.square().mean().sqrt())
        found[name] = {"rms": rms, "max": float(sizes.max()), "relative": rms / scales[name], "points": len(sizes)}
    return pd.DataFrame.from_dict(found, orient="index", columns=["rms", "max", "relative", "points"])


def uncertified(residuals: pd.DataFrame, tolerance: float | pd.Series, remedy: str = "") -> list[str]:
    """That the certificate fails, where by how much, and what to try; nothing where it holds."""
    limits = pd.Series(tolerance, index=residuals.index)
    own = residuals["relative"][[not is_measured(str(name)) for name in residuals.index]]
    misses = own[~(own <= limits[own.index])]
    if not len(misses):
        return []
    if misses.isna().any():
        return [f"the certificate fails: on fresh points {misses.index[misses.isna()][0]!r} is not a number"]
    worst = str(misses.idxmax())
    return [
        f"the certificate fails: on fresh points {worst!r} is {misses.max():.1e} of its natural size, more than "
        f"{limits[worst]:g}{remedy and f': {remedy}'}"
    ]


@dataclass(frozen=True)
class Certificate:
    """Residuals on fresh points of a set-up as a fit left it, and what measurements say of unknown constants.

    ``tolerance`` is that of relative residuals; where there are unknowns and nothing was inferred, ``obstacle`` says why.
    ``patterns`` are those of the misfits of measurements. A ``hurried`` one is judged on few points, and nothing is looked for
    between points: who presses Ctrl-C does not want to wait, nor does who set a budget that is spent.
    """

    setup: DiscreteProblem
    residuals: pd.DataFrame
    inference: Inference
    tolerance: float
    obstacle: str = ""
    patterns: Sequence[LackOfFit] = ()
    hurried: bool = False

    @classmethod
    def issue(cls, setup: DiscreteProblem, tolerance: float, *, hurried: bool = False) -> Certificate:
        """The certificate of a trained set-up."""
        setup = replace(setup, fresh=tuple(block.thinned(_FEW) for block in setup.fresh)) if hurried else setup
        setup = _sized_about(setup)
        residuals = certificate(setup.rows, setup.fresh, setup.natural)
        values = {name: float(value.detach()) for name, value in setup.rows.values().items()}
        blank = Inference({name: Estimate(value, math.nan, math.nan, math.nan) for name, value in values.items()})
        measured, problem = list(_observations(setup)), setup.problem
        fields = bool(problem.equations) and len(problem.equations) < len(problem.fields)
        inference, obstacle = blank, ""
        if values and not measured and all(map(math.isfinite, values.values())):
            inference = setup.inference or _by_equations(setup)
        elif not all(map(math.isfinite, values.values())):
            obstacle = "an unknown is not finite"
        elif values or (measured and fields):
            known = setup.measurements is not None and setup.measurements.known(problem)
            try:
                inference = setup.inference or from_rows(setup.objective(), known=known)
            except KeyboardInterrupt:
                obstacle = "interrupted before the intervals were computed"
        patterns = lack_of_fit(setup.rows, setup.train) if measured else ()
        return cls(setup, residuals, inference, tolerance, obstacle, patterns, hurried)

    @property
    def fails(self) -> bool:
        """True if a residual is too large."""
        return bool(uncertified(self.residuals, self.tolerance))

    @property
    def reasons(self) -> list[str]:
        """Every reason not to believe the solution, the gravest first; none for a success."""
        setup = self.setup
        return [
            *uncertified(self.residuals, self.tolerance, _remedy(setup)),
            *([] if self.hurried else missed_features(setup.rows, setup.fresh, setup.natural, setup.narrow)),
            # Where conditions are missing, what is found is one of many solutions.
            *(lacking(setup.problem) if setup.measurements is None else []),
            *_unexplained(self),
            *filter(None, [self.obstacle]),
            *_beyond_noise(self),
            *(each.said for each in self.systematic if each.systematic > self.tolerance),
            *_undetermined(self),
            *_drifting(self),
            *_at_bounds(self),
            *([] if self.hurried else [*_overfit(self), *_jumping(self), *_leaping(self)]),
        ]

    @property
    def remarks(self) -> list[str]:
        """What is to be known of a success, too: patterns in misfits that are smaller than a residual may be."""
        return [each.said for each in self.systematic if each.systematic <= self.tolerance]

    @property
    def systematic(self) -> list[LackOfFit]:
        """The patterns in misfits that neither chance nor rounding explains."""
        return [each for each in self.patterns if each.significant and each.systematic > _NEGLIGIBLE]

    def not_finite(self) -> str:
        """What is not finite on fresh points, in a sentence; an empty one where all is."""
        lost = [str(name) for name, value in self.residuals["relative"].items() if not math.isfinite(value)]
        if not lost:
            return ""
        fresh = self.setup.objective(self.setup.fresh)
        return f"on fresh points {described(fresh, f'the residual {lost[0]!r} is not finite')}"


def _sized_about(setup: DiscreteProblem) -> DiscreteProblem:
    """The set-up with sizes of residuals that are natural about its trial function."""
    inside = [block.sample.points[0] for block in setup.fresh if block.terms[0].name in setup.problem.equations]
    points = torch.cat(inside or [block.sample.points[0] for block in setup.fresh])
    found = root_mean_squares(setup.problem, points, predicted(setup.trial, points)).tolist()
    # A field that is nearly everywhere next to nothing is as large as it may be.
    sizes = list(map(max, significant(found, setup.trial), natural_sizes(setup.trial, len(found))))
    before = {**setup.scales, **setup.natural}
    natural = not_inflated(before, setup.rows, setup.fresh, sizes)
    smaller = {name: size for name, size in natural.items() if size < before[name]}
    return replace(setup, natural=natural, scales=setup.scales | smaller)


def _by_equations(setup: DiscreteProblem) -> Inference:
    """Constants that equations and conditions determine, at held-out points."""
    found = from_equations(setup.objective(setup.held))
    if any(math.isinf(each.standard_error) for each in found.estimates.values()):
        # Polynomials of high degree, large near an end alone, are missed by points that were drawn evenly: they seem to imitate
        # a constant where the points of training see it.
        found = from_equations(setup.objective(setup.held), setup.objective())
    return found


def _remedy(setup: DiscreteProblem) -> str:
    """What to try where residuals are too large: windows and tiles choose their points and degrees themselves."""
    if isinstance(setup.trial, Windowed) or isinstance(getattr(setup.trial, "model", None), Tiles):
        return "give more by seconds= or memory=, or name more tiles or windows"
    return "try more steps, more points or a larger model"


def missed_features(
    rows: ResidualSystem, blocks: Sequence[Collocation], scales: Mapping[str, float], narrow: Mapping[Place, PointSet]
) -> Iterator[str]:
    """Undersampled data: what residuals are where their data are narrow, which a mean over all of a place hides."""
    for block in blocks if narrow else ():
        sample, missed = narrow.get(block.terms[0].place), list[str]()
        if sample is None or any(is_measured(term.name) for term in block.terms):
            continue
        like = block.sample.points[0]
        there = sample.to(like.device, like.dtype)
        values = rows.numbers([replace(block, sample=there, weights=None)])
        for term in block.terms:
            # A source that is far larger there than elsewhere is resolved as a share of itself.
            seen = at_same_jets(rows.problem, term)
            own, usual = (
                seen(each.points[0].cpu().double(), None if each.normals is None else each.normals.cpu().double())
                for each in (sample, block.sample)
            )
            scale = max(float((own - usual.median()).abs().max()), scales[term.name])
            missed += [term.name] if not float(values[term.name].double().square().mean().sqrt()) <= _MISSED * scale else []
        if missed:
            at = located(rows.problem.coordinates, sample.points[0][0].tolist())
            yield f"what {listed(missed)} holds is narrow near {at}, and points and polynomials have to be as fine there"


def _observations(setup: DiscreteProblem) -> Iterator[tuple[str, Observation, Collocation]]:
    for block in setup.train:
        for term in block.terms:
            if isinstance(term.evaluate, Observation):
                yield term.name, term.evaluate, block


def _unexplained(issued: Certificate) -> Iterator[str]:
    for name, _, _ in _observations(issued.setup):
        size = float(issued.residuals["relative"][name])
        if not size < 1.0:
            yield f"the solution explains nothing of {name!r}: its misfit is {size:.1g} of the spread of the column"


def _beyond_noise(issued: Certificate) -> Iterator[str]:
    """Given standard deviations, or equations, that data contradict: they lie farther away than chance allows."""
    setup, inference = issued.setup, issued.inference
    if setup.measurements is None or not inference.measurements or not setup.measurements.known(setup.problem):
        return
    total, mean, variance = 0.0, 0.0, 0.0
    for _, observation, block in _observations(setup):
        evaluation, _ = setup.rows.evaluation(block)
        model = observation.model(evaluation).detach()
        known = observation.squares(model)
        if known is not None:
            total, mean = total + float(known[0].sum()), mean + len(model)
            variance += float(known[1].sum())
    freedom = mean * inference.freedom / max(inference.measurements, 1)
    if freedom < 1:
        return
    # Chi-squared of the same mean and variance (F. E. Satterthwaite, Biometrics Bulletin 2, 1946).
    spread = variance / (2 * mean)
    if scipy.stats.chi2.sf(total / spread, 2 * mean * freedom / variance) <= _CHANCE:
        yield (
            f"the data lie {math.sqrt(total / freedom):.3g} of their standard deviations from the solution in the root mean "
            f"square, which chance does not explain (chi-squared {total:.4g} at {freedom:.4g} degrees of freedom): "
            "the equations do not describe them, or the standard deviations given are too small"
        )


def _undetermined(issued: Certificate) -> Iterator[str]:
    found = {} if issued.obstacle else issued.inference.estimates
    measured = issued.setup.measurements is not None
    data = "the data do" if measured else "without measurements equations and conditions do"
    unseen = {name: each.singular for name, each in found.items() if math.isfinite(each.singular)}
    known = {name: each for name, each in found.items() if name not in unseen}
    unjudged = [name for name, each in found.items() if math.isnan(each.standard_error)]
    if unseen and not measured and _next_to_nothing(issued.setup):
        yield (
            f"{data} not determine {', '.join(unseen)}: all fields are zero, which any value solves; a Point or a Mean "
            "that is not zero keeps the fields from it, or a first guess of them: start={'u': lambda x: ...}"
        )
    elif unseen:
        values = ", ".join(f"{value:.0e}" for value in unseen.values())
        yield (
            f"{data} not determine {', '.join(unseen)} (no row sees them: singular value {values} of the largest): "
            "fix one, measure something else, or take it out of the equations"
        )
    yield from without_bounds(known, data, measured=measured)
    if unjudged:
        yield f"how far off {', '.join(unjudged)} may be is not known: nothing finer was solved, or residuals are not finite"


def without_bounds(estimates: Mapping[str, Estimate], data: str = "the data do", *, measured: bool = True) -> list[str]:
    """Identifiability: which constants have no standard error that is finite, as a sentence, if there are any."""
    lost = [name for name, each in estimates.items() if math.isinf(each.standard_error)]
    few = ", or are too few to tell their noise" if measured else ""
    return [f"{data} not determine {', '.join(lost)}{few}"] if lost else []


def _next_to_nothing(setup: DiscreteProblem) -> bool:
    """Trivial solution: whether all fields are zero but for rounding, as a share of their natural sizes."""
    points = torch.cat([each for block in setup.held for each in block.sample.points])
    with torch.no_grad():
        largest = setup.trial(points).abs().amax(0).tolist()
    return all(each <= _ZERO * size for each, (_, size) in zip(largest, setup.sizes.values(), strict=True))


def _drifting(issued: Certificate) -> Iterator[str]:
    if issued.inference.drift > _MOST_DRIFT:
        yield (
            f"the unknowns have not arrived: the linearised problem would move one by {issued.inference.drift:.1g} of its "
            "standard errors; use more steps"
        )


def _at_bounds(issued: Certificate) -> Iterator[str]:
    unknowns, raw = issued.setup.problem.unknowns, {} if issued.obstacle else issued.setup.raw
    bounded = [name for name in raw if unknowns[name].lower is not None or unknowns[name].upper is not None]
    stuck = [name for name in bounded if abs(float(raw[name].detach())) > _AT_A_BOUND]
    if stuck:
        lies = "either they lie there (without the bound they have intervals), or the data contradict the equations"
        what = lies if issued.setup.measurements is not None else "other values hold as well"
        yield f"{', '.join(stuck)} went to a bound: {what}, or the bound is wrong"


def _overfit(issued: Certificate) -> Iterator[str]:
    """Equations that hold at training points and not between them."""
    setup = issued.setup
    model = getattr(setup.trial, "model", None)
    halved = isinstance(model, Tiles) and not model.alike
    if halved or isinstance(model, GridFunction) or isinstance(setup.trial, Windowed):
        # Windows, tiles that were halved and grids of a classical solver have points of their own; these, of the whole, tell no
        # layer from a step.
        return
    between = "the equations hold at the points and not between them; use more points, or begin with sciml.Adam"
    if uncertified(issued.residuals, _NEGLIGIBLE):
        objective = setup.objective()
        trained, held_out = objective.value(), float(objective.total(objective.means(setup.held)))
        # What is not finite is reported as such.
        if held_out > _MOST_OVERFIT * trained and math.isfinite(held_out) and math.isfinite(trained):
            times = held_out / trained if trained > 0 else math.inf
            yield f"the loss on held-out points is {times:.0f} times that on training points: {between}"
            return
    step = hidden_step(setup.rows)
    if step is not None:
        yield f"{step} that no point has seen: {between}"


def _jumping(issued: Certificate) -> Iterator[str]:
    """Equations that differentiate what jumps at the solution, whose delta function no point sees."""
    rows = issued.setup.rows
    for name, place, share in jumps_differentiated(rows.problem, rows):
        yield f"{name!r} {jump_differentiated(place, share)}; state a field on each part and what holds on their interface"


def _leaping(issued: Certificate) -> Iterator[str]:
    """Consistent initial values: fields without a rate that leap from theirs at once, while those with one do not.

    Reference: U. M. Ascher and L. R. Petzold, Computer Methods for Ordinary Differential Equations and Differential-Algebraic
    Equations, SIAM 1998, section 9.1.
    """
    problem, trial = issued.setup.problem, issued.setup.trial
    if problem.time is None or len(problem.coordinates) > 1:
        return
    orders = torch.tensor([problem.order(name, problem.time) for name in problem.fields])
    given = {term.prescription.field for term in problem.terms() if term.prescription is not None}
    alone = [number for number, name in enumerate(problem.fields) if name in given and not orders[number]]
    if not alone or not bool(orders.any()):
        return
    begin, end = problem.domain.bounds[problem.time]
    like = next(iter([*trial.buffers(), *trial.parameters()]))
    shares = torch.cat([torch.zeros(1), torch.tensor(_AT_ONCE).outer(torch.arange(1, 4)).flatten(), torch.linspace(0, 1, 200)])
    with torch.no_grad():
        values = trial(begin + (end - begin) * shares.to(like)[:, None]).cpu().double()
    # From beside the start parabolas lead back to it, the closer the nearer they begin, unless a field leaps.
    one, two, three = values[1 : 1 + 3 * len(_AT_ONCE)].unflatten(0, (-1, 3)).unbind(1)
    gaps = (values[0] - (3 * one - 3 * two + three)).abs().amin(0) / values.abs().amax(0).clamp_min(1e-300)
    if float(gaps[orders > 0].max()) > _SMOOTHLY:
        return
    for number in alone:
        if gaps[number] > _LEAPS:
            name = problem.fields[number]
            yield (
                f"{name!r} leaps from its initial value at once, while fields with a rate do not: the equations contain no "
                "rate of it and determine it then, too; leave its initial value out, or give it the one that follows"
            )
