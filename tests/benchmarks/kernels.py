"""Speed of the parts, as ratios on the machine at hand: rows 18 to 20."""

import statistics
import time
from collections.abc import Callable

import torch
from torch.func import functional_call, grad, jacrev, vmap

import sciml
from sciml.geometry import PointSet
from sciml.models import Scaled
from sciml.problem.collocation import Collocation
from sciml.solvers import Objective, ResidualSystem
from sciml.solvers.jacobian import jacobian

from .case import Case, Target
from .evolution import Burgers, KortewegDeVries, KuramotoSivashinsky
from .flow import Kovasznay
from .linear import Plate


def ratio(ours: Callable[[], object], other: Callable[[], object], repeats: int = 3) -> float:
    """The time of one function by that of another: medians of runs in turn, after one of each to warm up."""
    seconds: dict[Callable[[], object], list[float]] = {ours: [], other: []}
    for count in range(repeats + 1):
        for function, times in seconds.items():
            start = time.perf_counter()
            function()
            if count:
                times.append(time.perf_counter() - start)
    return statistics.median(seconds[ours]) / statistics.median(seconds[other])


def on_points(problem: sciml.Problem, widths: tuple[int, ...], count: int, seed: int) -> tuple[Scaled, Collocation]:
    """A network, and the equations of a problem at random points."""
    generator = torch.Generator().manual_seed(seed)
    model = sciml.MLP(*widths)
    model.build(len(problem.coordinates), len(problem.fields), generator)
    lower, upper = (torch.tensor(each, dtype=torch.float64) for each in (problem.domain.lower, problem.domain.upper))
    points = lower + (upper - lower) * torch.rand(count, len(lower), dtype=torch.float64, generator=generator)
    flat = [0.0] * len(problem.fields)
    trial = Scaled(model, problem.domain.lower, problem.domain.upper, flat, [1.0] * len(flat))
    terms = tuple(term for term in problem.terms() if term.name in problem.equations)
    return trial, Collocation(PointSet((points,)), terms)


def training_step(problem: type[sciml.Problem], count: int = 10_000) -> Callable[[int], float]:
    """Taylor mode against nested autograd: loss and gradient of 128×4 tanh."""

    def measure(seed: int) -> float:
        made = problem()
        trial, block = on_points(made, (128,) * 4, count, seed)
        ones = {term.name: 1.0 for term in block.terms}

        def step(taylor: bool) -> Callable[[], object]:
            rows = ResidualSystem(made, trial, {}, taylor=taylor)
            return Objective(rows, [block], ones, ones, list(trial.parameters())).evaluate

        return ratio(step(True), step(False))

    return measure


def row_jacobian(seed: int, count: int = 4096) -> float:
    """The Jacobian of all rows against ``vmap(jacrev)`` of one: Burgers, 20×3 tanh."""
    problem = Burgers()
    trial, block = on_points(problem, (20,) * 3, count, seed)
    rows = ResidualSystem(problem, trial, {})
    parameters = dict(trial.named_parameters())
    buffers = dict(trial.named_buffers())

    def residual(weights, point):
        def u(x, t):
            return functional_call(trial, (weights, buffers), (torch.stack([x, t])[None],))[0, 0]

        x, t = point
        u_x = grad(u, 0)
        return grad(u, 1)(x, t) + u(x, t) * u_x(x, t) - problem.nu * grad(u_x, 0)(x, t)

    points = block.sample.points[0]
    own = lambda: jacobian(rows, [block], {"momentum": 1.0}, list(parameters.values()))  # noqa: E731
    theirs = lambda: vmap(jacrev(residual), (None, 0))(parameters, points)  # noqa: E731
    wanted = torch.cat([part.reshape(count, -1) for part in theirs().values()], dim=1)
    if not torch.allclose(own()[1], wanted, rtol=1e-8, atol=1e-10):
        raise ArithmeticError("the two Jacobians differ: their times say nothing")
    return ratio(own, theirs)


def evaluation(seed: int, count: int = 1_000_000) -> float:
    """Points a second at which a solution, 20×3 tanh, is evaluated; the best of five, as others may use the machine."""
    solution = sciml.fit(Burgers(), sciml.MLP(20, 20, 20), solver=sciml.Adam(1), points=64, seed=seed)
    x, t = torch.rand(2, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).numpy()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        solution(x=x, t=t)
        seconds.append(time.perf_counter() - start)
    return count / min(seconds)


def _step(name: str, title: str, problem: type[sciml.Problem], target: float) -> Case:
    return Case(
        f"step_{name}",
        18,
        f"training step, 128×4 tanh, 10,000 points, {title}: time by that of nested autograd",
        (Target(target),),
        measure=training_step(problem),
        unit="time ratio",
    )


CASES = (
    _step("kdv", "KdV", KortewegDeVries, 0.75),
    _step("ks", "Kuramoto-Sivashinsky", KuramotoSivashinsky, 0.5),
    _step("navier_stokes", "Navier-Stokes 2D", Kovasznay, 0.6),
    _step("biharmonic", "biharmonic 2D", Plate, 0.35),
    Case(
        "row_jacobian",
        19,
        "Jacobian by point, 20×3 tanh, 4,096 points, Burgers: time by that of `vmap(jacrev)`",
        (Target(0.3),),
        measure=row_jacobian,
        unit="time ratio",
    ),
    Case(
        "evaluation",
        20,
        "evaluating a solution, 20×3 tanh, at 1e6 points: points a second",
        (Target(2e6),),
        measure=evaluation,
        unit="points/s",
        more_is_better=True,
    ),
)
