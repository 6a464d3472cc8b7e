"""Hard cases of the look before the first step: what gets caught, where it is said to be, and what is left in peace."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import problem_class
from torch import nn
from torch.nn import functional

import sciml
from problems import Poisson
from sciml import d
from sciml.diagnostics import model_checks, problem_checks as residual_checks
from sciml.errors import DataError, ModelError, PreflightWarning, ProblemError, SciMLError, SolverError
from sciml.problem import compatibility as prescribed

NAMES = sorted(sciml.gallery.names())
SQUARE = sciml.Box(x=(0, 1), y=(0, 1))
STRIP = sciml.Box(x=(0, 1), t=(0, 1))


class Dispersion(sciml.Problem):
    domain = STRIP
    fields = ["u"]
    conditions = [sciml.Initial(u=0.0), sciml.Periodic("x")]

    @sciml.equation
    def dispersion(self, u, x, t):
        return d(u, t) + d(u, x, x, x)


class Transport(sciml.Problem):
    domain = STRIP
    fields = ["u"]
    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.face(x=0))]

    @sciml.equation
    def transport(self, u, x, t):
        return d(u, t) + d(u, x)


class Heat(sciml.Problem):
    domain = STRIP
    fields = ["u"]
    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - d(u, x, x)


class Two(sciml.Problem):
    domain = STRIP
    fields = ["u", "v"]
    conditions = [sciml.Initial(u=0.0, v=0.0), sciml.Dirichlet(u=0.0, v=0.0, on=domain.faces("x"))]

    @sciml.equation
    def first(self, u, v, x, t):
        return d(u, t) - d(u, x, x) + v

    @sciml.equation
    def second(self, u, v, x, t):
        return d(v, t) - d(v, x, x) + u


class Net(nn.Module):
    """A module of somebody else's: activations are functions, no layers."""

    def __init__(self, function, outputs=1, seed=0):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, outputs)
        self.function = function
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.4, generator=generator)

    def forward(self, points):
        return self.c(self.function(self.b(torch.tanh(self.a(points)))))


class Twice(Net):
    def forward(self, points):
        return self.c(self.function(self.b(self.function(self.a(points)))))


class Heads(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.u, self.v, self.head = Net(torch.tanh), Net(torch.tanh, seed=1), head

    def forward(self, points):
        return torch.cat([self.u(points), self.head(self.v(points))], dim=1)


class Wrapped(nn.Module):
    """``before`` and ``after`` a sound network."""

    def __init__(self, before=lambda points: points, after=lambda values: values):
        super().__init__()
        self.net, self.before, self.after = Net(torch.tanh), before, after

    def forward(self, points):
        return self.after(self.net(self.before(points)))


def stack(*layers):
    return nn.Sequential(nn.Linear(2, 16), *layers, nn.Linear(16, 1))


def found(problem, model=None, **options):
    return [each for each in sciml.preflight(problem, model, **options) if each.kind != "conditions"]


def only(problem, model=None, **options):
    (finding,) = found(problem, model, **options)
    return finding


BETWEEN = "the forward of Net, between b (Linear) and c (Linear)"


@pytest.mark.parametrize(
    ("problem", "model", "where"),
    [
        (Poisson, Net(functional.relu), BETWEEN),
        (Poisson, Twice(functional.relu), "the forward of Twice, between a (Linear) and b (Linear)"),
        (Poisson, Net(functional.leaky_relu), BETWEEN),
        (Poisson, Net(torch.abs), BETWEEN),
        (Poisson, Net(functional.softshrink), BETWEEN),
        (Poisson, Net(lambda h: torch.maximum(h, -0.3 * h)), BETWEEN),
        (Poisson, Net(functional.hardswish), BETWEEN),
        (Poisson, stack(nn.PReLU()), "1 (PReLU)"),
        (Poisson, stack(nn.Tanh(), nn.Linear(16, 16), nn.Hardtanh()), "3 (Hardtanh)"),
        (Poisson, stack(nn.ReLU6(), nn.Linear(16, 16), nn.ReLU6()), "1 (ReLU6), 3 (ReLU6)"),
        (
            Dispersion,
            Twice(lambda h: functional.relu(h) ** 2),
            "the forward of Twice, between",
        ),
        (Dispersion, Net(functional.elu), BETWEEN),
        (Dispersion, stack(nn.SELU()), "1 (SELU)"),
        (Transport, Net(functional.hardshrink), BETWEEN),
    ],
)
def test_fault_45_kinks_under_a_derivative(problem, model, where):
    finding = only(problem(), model)
    assert finding.kind == "smoothness"
    assert finding.where.startswith(where)
    assert problem._equations.keys() & set(str(finding).replace("'", " ").split())
    assert "smooth activation" in finding.remedy


def test_fault_45_one_field_of_two():
    assert "v_x" in str(only(Two(), Heads(functional.relu)))
    linear = Heads(lambda v: v)
    linear.v = nn.Linear(2, 1)
    assert "v_xx of the model is exactly zero everywhere" in str(only(Two(), linear))


class Material(nn.Module):
    """A slope that jumps at x = 0.3 because two materials meet there."""

    def __init__(self):
        super().__init__()
        self.net = Net(torch.tanh)

    def forward(self, points):
        return self.net(points) * (points[:, :1] + 0.4).abs()


class Layers(Heat):
    """Of two diffusivities; what is differentiated does not jump, which is a mistake of its own."""

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - torch.where(x > 0.3, 1.0, 4.0) * d(u, x, x)


class Halves(Heat):
    """Nothing but a condition on the surface between them says that they are two."""

    @sciml.condition(on=sciml.Box(x=(0, 0.3), t=(0, 1)).interface(sciml.Box(x=(0.3, 1), t=(0, 1))))
    def contact(self, u, x):
        return u - 1.0


class Still(nn.Module):
    """Fixed features with kinks, of which weights make a sum."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("slopes", torch.randn(2, 50, generator=generator))
        self.register_buffer("shifts", torch.randn(50, generator=generator))
        self.out = nn.Linear(50, 1)

    def forward(self, points):
        return self.out(functional.relu(points @ self.slopes + self.shifts))


class Grid(nn.Module):
    """Features on a grid along the first coordinate, linear between its nodes."""

    def __init__(self):
        super().__init__()
        self.features = nn.Parameter(0.3 * torch.randn(17, 8, generator=torch.Generator().manual_seed(0)))
        self.a, self.b = nn.Linear(9, 16), nn.Linear(16, 1)

    def forward(self, points):
        at = (points[:, 0].clamp(-1, 1) + 1) * 8
        node = at.floor().clamp(max=15).long()
        share = (at - node)[:, None]
        features = self.features[node] * (1 - share) + self.features[node + 1] * share
        return self.b(torch.tanh(self.a(torch.cat([features, points[:, 1:]], dim=1))))


class Both(Material):
    def __init__(self):
        super().__init__()
        self.grid = Grid()

    def forward(self, points):
        return super().forward(points) + self.grid(points)


@pytest.mark.parametrize(
    ("problem", "model"),
    [(Heat, Still()), (Heat, Grid()), (Heat, Material()), (Layers, Both())],
    ids=["features", "grid", "no material", "beside a material"],
)
def test_fault_45_kinks_that_weights_do_not_move(problem, model):
    finding = only(problem(), model)
    assert finding.kind == "smoothness"
    assert "u_x" in finding.what


class Saw(nn.Module):
    """Smooth in space, with kinks in time, by which the equation differentiates once."""

    def __init__(self):
        super().__init__()
        self.net, self.time, self.out = Net(torch.tanh), nn.Linear(1, 8), nn.Linear(8, 1)

    def forward(self, points):
        return self.net(points) + self.out(functional.relu(self.time(points[:, 1:])))


def zeroed():
    model = Net(torch.tanh)
    nn.init.zeros_(model.c.weight)
    nn.init.zeros_(model.c.bias)
    return model


@pytest.mark.parametrize(
    ("problem", "model"),
    [
        (Transport, Twice(functional.relu)),
        (Poisson, Net(functional.elu)),
        (Dispersion, Net(lambda h: functional.gelu(h, approximate="tanh"))),
        (Dispersion, Net(functional.mish)),
        (Dispersion, Twice(lambda h: functional.relu(h) ** 3)),
        (Dispersion, Net(lambda h: torch.tanh(200 * h))),
        (Dispersion, Net(lambda h: torch.sin(30 * h))),
        (Dispersion, Net(lambda h: torch.softmax(h, dim=1))),
        (Dispersion, stack(nn.LayerNorm(16), nn.Tanh())),
        (Dispersion, stack(nn.GroupNorm(4, 16), nn.Tanh())),
        (Dispersion, zeroed()),
        (Layers, Material()),
        (Halves, Material()),
        (Heat, Saw()),
        (Poisson, sciml.RandomFeatures()),
        (Two, sciml.MLP(8, 8)),
    ],
)
def test_fault_45_smooth_enough_is_left_in_peace(problem, model):
    assert found(problem(), model) == []
    assert found(problem(), model, dtype=torch.float32) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_problem_of_the_gallery_has_a_finding(name):
    problem = problem_class(name)()
    told = sciml.preflight(problem)
    assert sciml.preflight(problem, sciml.MLP(8, 8)) == told
    # The corners of the lid are singular, as is well known.
    assert [each.what[-31:] for each in told] == (
        ["y=1 they prescribe s_xy = 0 and 4, 4 apart"[-31:], "y=1 they prescribe s_xy = 0 and -4, 4 apart"[-31:]]
        if name == "lid_driven_cavity"
        else []
    )


def made(equation=None, **members):
    members = {"heat": sciml.equation(equation), **members} if equation is not None else members
    return type("Made", (Heat,), members)()


@pytest.mark.parametrize(
    "equation",
    [
        lambda self, u, x, t: (d(u, t) - d(u, x, x)).detach() * x,
        lambda self, u, x, t: 0 * u + 1.0,
        lambda self, u, x, t: torch.relu(u * 0 - 1.0),
    ],
)
def test_fault_46_a_residual_that_ignores_the_fields_in_other_ways(equation):
    assert "residual 'heat' does not depend on any field" in str(only(made(equation)))


@pytest.mark.parametrize(
    ("equation", "words"),
    [
        (lambda self, u, x, t: d(u, t) - d(u, x, x) + 0 * self.k, "has no influence"),
        (lambda self, u, x, t: d(u, t) - d(u, x, x) + (self.k - self.k) * u, "has no influence"),
        (lambda self, u, x, t: d(u, t) - torch.where(x > self.k, 1.0, 2.0) * d(u, x, x), "appears in no equation"),
        (lambda self, u, x, t: d(u, t) - torch.floor(self.k) * d(u, x, x), "has no influence"),
        (lambda self, u, x, t: d(u, t) - self.k.detach() * d(u, x, x), "appears in no equation"),
    ],
)
def test_fault_46_unknowns_that_cannot_be_moved(equation, words):
    finding = only(made(equation, k=sciml.Unknown(0.5)))
    assert finding.kind == "unknown"
    assert finding.where == "k"
    assert words in finding.what


MELTS = [sciml.Dirichlet(u=300.0, on=STRIP.faces("x")), sciml.Initial(u=300.0)]


def melting(self, u, x, t):
    return d(u, t) * (1 + torch.exp(-(((u - self.k) / self.width) ** 2))) - d(u, x, x)


@pytest.mark.parametrize("bounds", [{}, {"lower": 1000.0}, {"lower": 1000.0, "upper": 2500.0}])
def test_fault_46_a_threshold_far_from_the_natural_size(bounds):
    assert found(made(melting, k=sciml.Unknown(1700.0, **bounds), conditions=MELTS, width=1.0)) == []


def test_fault_46_what_underflows_is_a_warning_at_most():
    (finding,) = found(made(lambda self, u, x, t: d(u, t) - torch.exp(-1e5 / self.k) * d(u, x, x), k=sciml.Unknown(1.0)))
    assert finding.kind == "unknown"
    assert finding.severity == "warning"
    assert "an exponential, step or threshold is flat there" in finding.what


def test_fault_46_several_unknowns_and_a_field_that_nothing_speaks_of():
    assert "unknowns 'k', 'q' appear in no" in str(only(made(k=sciml.Unknown(1.0), q=sciml.Unknown(1.0))))
    assert "field 'v' appears in no equation" in str(only(made(fields=["u", "v"])))
    assert "prior" not in str(only(made(k=sciml.Unknown(1.0, prior=(1.0, 0.1)))))


def test_fault_46_without_a_model_too():
    with pytest.raises(ProblemError, match="unknown 'k' appears in no equation") as caught:
        sciml.fit(made(k=sciml.Unknown(1.0)))
    assert [each.where for each in caught.value.findings] == ["k"]
    with pytest.raises(ProblemError, match="unknown 'k' appears in no equation"):
        sciml.baseline(made(k=sciml.Unknown(1.0)))


def test_fault_46_what_vanishes_at_the_start_is_no_mistake():
    @sciml.condition(on=STRIP.faces("x"))
    def low(self, u):
        return torch.relu(-u)

    only_below = made(conditions=[sciml.Initial(u=0.0)], low=low)
    assert found(only_below) == []


def test_fault_47_one_field_is_detached():
    finding = only(Two(), Heads(torch.detach))
    assert finding.kind == "detached"
    assert finding.where == "v"
    assert "the field 'v' of the model's output" in finding.what


def test_fault_47_points_are_detached():
    assert only(Poisson(), Wrapped(before=torch.detach)).where == "x, y"
    assert only(Transport(), Twice(torch.sign)).where == "x, t"


def test_fault_47_nothing_is_trainable():
    frozen = Net(torch.tanh).requires_grad_(False)
    assert "no trainable parameter" in str(only(Poisson(), frozen))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.attend, self.out = (
            nn.Linear(2, 8),
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.Linear(8, 1),
        )

    def forward(self, points):
        tokens = self.into(points)[None]
        return self.out(self.attend(tokens, tokens, tokens, need_weights=False)[0][0])


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (Net(lambda h: torch.softmax(h, dim=0)), BETWEEN),
        (Net(lambda h: h.cumsum(0).tanh()), BETWEEN),
        (Net(lambda h: torch.sort(h, dim=0).values.tanh()), BETWEEN),
        (Net(lambda h: (h - h.mean(0)).tanh()), BETWEEN),
        (Net(lambda h: h.roll(1, 0).tanh()), BETWEEN),
        (stack(nn.BatchNorm1d(16), nn.Tanh()).eval(), "1 (BatchNorm1d)"),
        (Attention(), "the forward of attend (MultiheadAttention)"),
    ],
)
def test_fault_48_points_mixed_in_other_ways(model, where):
    finding = only(Poisson(), model)
    assert finding.kind == "mixing"
    assert finding.where == where


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (stack(nn.Tanh(), nn.Dropout(0.1)), "2 (Dropout)"),
        (Net(lambda h: functional.dropout(h.tanh(), 0.1)), BETWEEN),
        (
            Wrapped(before=lambda points: points + 0.01 * torch.randn_like(points)),
            "the forward of Wrapped, before net (Net)",
        ),
    ],
)
def test_fault_48_models_that_are_random(model, where):
    state = torch.random.get_rng_state()
    finding = only(Poisson(), model)
    assert finding.where == where
    assert "random" in finding.what
    assert torch.equal(state, torch.random.get_rng_state())


class Counter(nn.Module):
    """Counts its calls, and is a little random."""

    def __init__(self, noise):
        super().__init__()
        self.net, self.noise = Net(torch.tanh), noise
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, points):
        self.calls += 1
        values = self.net(points)
        return values + self.noise * torch.randn_like(values)


def normed(activation):
    return stack(nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)), activation)


def test_fault_48_a_layer_that_updates_itself_is_a_warning_at_most():
    finding = only(Poisson(), normed(nn.Tanh()))
    assert finding.severity == "warning"
    assert finding.where == "1 (ParametrizedLinear)"
    assert "changes itself at every call" in finding.what
    told = found(Poisson(), normed(nn.ReLU()))
    assert [(each.kind, each.severity) for each in told] == [("mixing", "warning"), ("smoothness", "error")]
    assert found(Poisson(), Counter(0.0)) == []
    assert "random" in only(Poisson(), Counter(0.1)).what


@pytest.mark.parametrize(
    ("equation", "words"),
    [
        (lambda self, u, x, t: d(u, t) - d(u, x, x) - x.mean(), "mixes points"),
        (lambda self, u, x, t: d(u, t) - torch.cumsum(u, 0), "mixes points"),
        (lambda self, u, x, t: d(u, t) - u.sort().values, "mixes points"),
        (lambda self, u, x, t: d(u, t) - torch.rand_like(u), "random"),
    ],
)
def test_fault_48_residuals_that_mix_points_or_are_random(equation, words):
    assert words in str(only(made(equation)))


@pytest.mark.parametrize(
    ("equation", "words"),
    [
        (lambda self, u, x, t: d(u, t)[:, None], r"shape \(24, 1\)"),
        (lambda self, u, x, t: d(u, t) - x[:, None], r"shape \(24, 24\)"),
        (lambda self, u, x, t: d(u, t).square().mean(), r"shape \(\)"),
        (lambda self, u, x, t: 1.0, "returned float"),
        (lambda self, u, x, t: None, "return statement"),
        (lambda self, u, x, t: (u, u), "returned tuple"),
        (lambda self, u, x, t: d(u, t) + 0j, "complex128"),
        (lambda self, u, x, t: (d(u, t) > 0).long(), "int64"),
        (lambda self, u, x, t: d(u, t).float(), "float32"),
    ],
)
def test_fault_49_what_a_residual_returns(equation, words):
    finding = only(made(equation))
    assert finding.severity == "fatal"
    assert finding.where == "heat"
    with pytest.raises(ProblemError, match=words):
        sciml.fit(made(equation), sciml.MLP(4), preflight="warn")
    periodic = made(equation, conditions=[sciml.Initial(u=0.0), sciml.Periodic("x")])
    assert only(periodic).where == "heat"


def test_fault_50_residuals_that_are_finite_nowhere():
    finding = only(made(lambda self, u, x, t: d(u, t) - torch.sqrt(x - 2) * d(u, x, x)))
    assert "'heat' is not finite at 24 of 24 points" in finding.what
    start = [sciml.Initial(u=lambda x: torch.log(x - 0.5)), sciml.Dirichlet(u=0.0, on=STRIP.faces("x"))]
    assert "'initial' is not finite at" in only(made(conditions=start)).what
    assert found(made(lambda self, u, x, t: d(u, t) - torch.log(u))) == []
    assert found(made(lambda self, u, x, t: d(u, t) - torch.exp(1000 * u))) == []


def one(equation, dimension="x", fields=("u",), **members):
    """An equation along one coordinate, with values at its start."""
    domain = sciml.Interval(**{dimension: (0, 1)})
    values = dict(zip(fields, (1.0, 0.2), strict=False))
    members = {"conditions": [sciml.Dirichlet(**values, on=domain.face(**{dimension: 0}))], **members}
    own = {"domain": domain, "fields": list(fields), "balance": sciml.equation(equation), **members}
    return type("One", (sciml.Problem,), own)()


@pytest.mark.parametrize(
    "problem",
    [
        lambda: one(lambda self, u, x: u**1.5 * torch.sqrt(-d(u, x)) - 0.3),
        lambda: one(lambda self, u, x: torch.log(-d(u, x)) - 4.6),
        lambda: one(lambda self, u, v, x: d(u, x) + torch.sqrt(u - v) + torch.log(-d(v, x)), fields=("u", "v")),
        lambda: one(lambda self, u, x: torch.sqrt(7.0 * (1 - (u / 2) ** (0.4 / 1.4))) - 0.5 * (1 + x)),
        lambda: one(lambda self, u, x: torch.acosh(1 + d(u, x)) + torch.asin(1e3 * d(u, x)) - x),
        lambda: one(lambda self, u, x: d(torch.log(-u) + torch.log(1 + u), x)),
    ],
    ids=["Manning", "flux", "two tanks", "nozzle", "inverse functions", "negative mixing"],
)
def test_fault_50_roots_and_logarithms_of_fields_are_left_in_peace(problem):
    assert found(problem()) == []


def test_fault_50_tanks_are_solved():
    tanks = one(
        lambda self, u, v, t: d(u, t) + 0.3 * torch.sqrt(u - v),
        "t",
        ("u", "v"),
        other=sciml.equation(lambda self, u, v, t: d(v, t) - 0.3 * torch.sqrt(u - v)),
        conditions=[sciml.Initial(u=1.0, v=0.2)],
    )
    # u - v falls by 0.6 times its root.
    gap = (0.8**0.5 - 0.3) ** 2
    assert float(sciml.baseline(tanks)(t=1.0)["u"]) == pytest.approx(0.6 + gap / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("equation", "number"),
    [
        (lambda self, u, x: d(u, x) + torch.sqrt(x - 0.5), "12 of 24"),
        (lambda self, u, x: d(u, x) / torch.clamp(x - 0.5, min=0), "12 of 24"),
        (lambda self, u, x: torch.sqrt(u) * torch.log(x - 2), "24 of 24"),
    ],
)
def test_fault_50_coefficients_without_a_value_are_still_told(equation, number):
    finding = only(one(equation))
    assert finding.severity == "error"
    assert f"not finite at {number} points, whatever the fields are" in finding.what


def test_fault_51_near_names_are_offered():
    with pytest.raises(ProblemError, match=r"asks for 'temperatur'.*Did you mean 'temperature'"):

        class Rod(sciml.Problem):
            domain = STRIP
            fields = ["temperature"]

            @sciml.equation
            def heat(self, temperatur, x, t):
                return d(temperatur, t)

    with pytest.raises(ProblemError, match=r"must have the coordinates.*Did you mean 'tim'"):
        sciml.fit(made(domain=sciml.Box(x=(0, 1), time=(0, 1)), time="time", heat=None), data={"x": [0.1], "tim": [0.1]})


class Cast(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.mix = Net(torch.tanh), torch.tensor([[1.0, 0.2], [0.1, 1.0]])

    def forward(self, points):
        return self.net(points @ self.mix)


def test_fault_52_precision_and_casts():
    assert only(Poisson(), Wrapped(after=torch.Tensor.float)).kind == "precision"
    assert found(Poisson(), Wrapped(after=torch.Tensor.float), dtype=torch.float32) == []
    through = Net(lambda h: h.float().double().tanh())
    assert only(Poisson(), through).where == BETWEEN
    finding = only(Poisson(), Cast())
    assert finding.severity == "fatal"
    assert "register_buffer" in finding.what
    assert found(Poisson(), Cast(), dtype=torch.float32) == []


def test_fault_52_a_float32_model_is_cast_in_one_place():
    model = Net(torch.tanh).float()
    solution = sciml.fit(Poisson(), model, solver=sciml.Adam(1), points=16)
    assert {each.dtype for each in solution.model.parameters()} == {torch.float64}
    assert {each.dtype for each in model.parameters()} == {torch.float32}


def test_fault_52_constants_of_another_type():
    def conduction(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)

    assert "first digits" in str(only(made(conduction, k=torch.tensor(0.1))))
    assert found(made(conduction, k=torch.tensor(0.1)), dtype=torch.float32) == []
    assert found(made(conduction, k=torch.tensor(2))) == []
    varied = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    assert "sciml.Unknown(0.1)" in str(only(made(conduction, k=varied)))
    hidden = only(made(lambda self, u, x, t: d(u, t) - torch.where(x > 0.5, 1.0, 0.1) * d(u, x, x)))
    assert hidden.severity == "warning"
    assert found(made(lambda self, u, x, t: d(u, t) - torch.where(x > 0.5, 1.0, 0.5) * d(u, x, x))) == []


def rows(**columns):
    return {"x": [0.2, 0.3, 0.4], "t": [0.1, 0.1, 0.1], "u": [0.0, 0.1, 0.2], **columns}


def test_fault_53_rows_outside_are_counted_or_dropped():
    wrong = rows(x=[7.0, 0.3, 9.0])
    finding = only(Heat(), data=wrong)
    assert finding.kind == "data"
    assert "2 of 3 rows lie outside the domain, the first in row 0 with x = 7, then 2;" in finding.what
    measured = sciml.Measurements(wrong, outside="drop")
    solution = sciml.fit(Heat(), sciml.MLP(4), data=measured, solver=sciml.Adam(1), points=16)
    assert len(solution.data) == 1
    assert any("left out" in each and "2 of 3 rows" in each for each in solution.choices)
    with pytest.raises(DataError, match="3 of 3 rows"):
        sciml.fit(Heat(), data=sciml.Measurements(rows(x=[7.0, 8.0, 9.0]), outside="drop"))
    with pytest.raises(DataError, match="'error' or 'drop'"):
        sciml.Measurements(wrong, outside="ignore")


def test_fault_53_rows_outside_a_disk():
    class Plate(sciml.Problem):
        domain = sciml.Disk((0, 0), 1)
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

        @sciml.equation
        def poisson(self, u, x, y):
            return d(u, x, x) + d(u, y, y)

    data = {"x": [0.0, 0.9, 2.0], "y": [0.0, 0.9, 0.0], "u": [1.0, 1.0, 1.0]}
    with pytest.raises(DataError, match="1 of 3 rows lie outside the domain, the first in row 2"):
        sciml.fit(Plate(), data=data)
    measured = sciml.Measurements(data, outside="drop")
    assert len(sciml.fit(Plate(), sciml.MLP(4), data=measured, solver=sciml.Adam(1), points=16).data) == 1


def test_fault_53_points_that_are_not_finite():
    table = sciml.Table(rows(x=[0.1, np.nan, 0.3]), missing="mask")
    with pytest.raises(DataError, match="1 of 3 rows have no point, the first in row 1 with x = nan: coordinates must"):
        sciml.fit(Heat(), data=table)


def test_whole_numbers_are_data():
    solution = sciml.fit(
        Heat(),
        sciml.MLP(4),
        data=pd.DataFrame({"x": [0, 1], "t": [0, 1], "u": [1, 2]}),
        solver=sciml.Adam(1),
        points=16,
    )
    assert solution.data["u"].dtype == np.float64


SINE = sciml.Initial(u=lambda x: torch.sin(torch.pi * x))
SQUARE_WALLS = {"x0": SQUARE.face(x=0), "y0": SQUARE.face(y=0)}


@pytest.mark.parametrize(
    ("base", "conditions", "words"),
    [
        (Heat, [SINE, sciml.Dirichlet(u=0.25, on=STRIP.faces("x"))], "t=0 they prescribe u = .*0.25 apart"),
        (
            Heat,
            [SINE, sciml.Dirichlet(u=lambda t: t + 0.5, on=STRIP.faces("x"))],
            "'initial' and 'dirichlet'.*0.5 apart",
        ),
        (
            Heat,
            [SINE, sciml.Neumann(u=0.0, on=STRIP.face(x=0))],
            "x=0, t=0 they prescribe u_x = 3.142 and 0, 3.142 apart",
        ),
        (Heat, [SINE, sciml.Neumann(u=torch.pi, on=STRIP.face(x=0))], "prescribe u_x = 3.142 and -3.142"),
        (
            Heat,
            [sciml.Initial(u=0.0, u_t=1.0), sciml.Dirichlet(u=0.0, on=STRIP.faces("x"))],
            "t=0 they prescribe u_t = 1 and 0, 1 apart",
        ),
        (
            Heat,
            [sciml.Initial(u=0.0, u_t=lambda x: 2 * x), sciml.Neumann(u=lambda t: t, on=STRIP.face(x=1))],
            "u_tx = 2 and 1, 1 apart|u_xt = 2 and 1, 1 apart",
        ),
        (Heat, [sciml.Initial(u=lambda x: x), sciml.Periodic("x")], "'periodic'.*u = 0 and 1, 1 apart"),
        (
            Poisson,
            [
                sciml.Dirichlet(u=0.0, on=SQUARE_WALLS["x0"]),
                sciml.Dirichlet(u=1.0, on=SQUARE_WALLS["y0"], name="floor"),
            ],
            "'dirichlet' and 'floor'.*x=0, y=0 .*1 apart",
        ),
        (
            Poisson,
            [sciml.Dirichlet(u=lambda y: 3 * y, on=SQUARE_WALLS["x0"]), sciml.Neumann(u=0.0, on=SQUARE_WALLS["y0"])],
            "x=0, y=0 they prescribe u_y = 3 and",
        ),
        (
            Poisson,
            [
                sciml.Neumann(u=lambda y: y, on=SQUARE_WALLS["x0"], name="left"),
                sciml.Neumann(u=lambda x: x, on=SQUARE.face(y=1), name="top"),
            ],
            "'left' and 'top'.*x=0, y=1 they prescribe u_xy = -1 and 1, 2 apart",
        ),
    ],
)
def test_fault_58_conditions_that_contradict_each_other(base, conditions, words):
    members = {"conditions": conditions}
    told = [str(each) for each in sciml.preflight(type("Made", (base,), members)()) if "contradict" in each.what]
    assert any(re.search(words, each) for each in told), told


def test_fault_58_conditions_that_agree():
    right = [
        sciml.Initial(u=lambda x: torch.sin(torch.pi * x)),
        sciml.Neumann(u=lambda t: -torch.pi * (1 + t), on=STRIP.faces("x")),
    ]
    assert not any("contradict" in each.what for each in sciml.preflight(made(conditions=right)))
    wrong = made(conditions=[SINE, sciml.Neumann(u=0.0, on=STRIP.faces("x"))])
    solution = sciml.fit(wrong, sciml.MLP(4), solver=sciml.Adam(1), points=16)
    assert any("they prescribe u_x = 3.142 and 0, 3.142 apart" in each for each in solution.choices)


def test_three_mistakes_are_told_together():
    wrong = made(lambda self, u, x, t: d(u, x, x) - u.mean(), k=sciml.Unknown(1.0))
    with pytest.raises(ProblemError) as caught:
        sciml.fit(wrong, sciml.MLP(4, activation="relu"))
    assert [each.kind for each in caught.value.findings] == ["residual", "unknown", "smoothness"]
    assert str(caught.value).startswith("3 findings in Made before the first step:\n  1. the residual 'heat' mixes points")
    shapes = made(
        lambda self, u, x, t: d(u, x, x)[:, None],
        conditions=[sciml.Initial(u=lambda x: x[:, None]), sciml.Dirichlet(u=lambda t: np.sin(t), on=STRIP.faces("x"))],
    )
    assert [each.where for each in found(shapes)] == ["heat", "initial", "dirichlet"]
    table = pd.DataFrame(caught.value.findings)
    assert list(table.columns) == ["kind", "where", "what", "remedy", "severity"]


def test_three_modes():
    model = sciml.MLP(4, activation="relu")
    options = {"solver": sciml.Adam(1), "points": 16}
    with pytest.raises(ModelError) as caught:
        sciml.fit(Poisson(), model, **options)
    with pytest.warns(PreflightWarning, match="exactly zero everywhere") as told:
        assert sciml.fit(Poisson(), model, preflight="warn", **options).nit == 1
    assert len(told) == 1
    assert told[0].message.findings == caught.value.findings
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sciml.fit(Poisson(), model, preflight="off", **options).nit == 1
    for wrong in ("ignore", None, True):
        with pytest.raises(SolverError, match="'error', 'warn' or 'off'"):
            sciml.fit(Poisson(), preflight=wrong)


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_what_breaks_a_fit_is_an_error_in_all_modes(mode):
    for problem, model in [
        (Poisson(), nn.Linear(3, 1)),
        (Poisson(), Wrapped(after=torch.detach)),
        (made(lambda self, u, x, t: d(u, t)[:, None]), sciml.MLP(4)),
    ]:
        with pytest.raises(SciMLError):
            sciml.fit(problem, model, preflight=mode, solver=sciml.Adam(1), points=16)
    with pytest.raises(DataError):
        sciml.fit(Heat(), data=rows(x=[0.1, 0.2, 7.0]), preflight=mode)


def test_the_model_and_generators_stay_as_they_were():
    model = stack(nn.BatchNorm1d(16), nn.Tanh())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    found(Poisson(), model)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert torch.equal(state, torch.random.get_rng_state())


def test_it_costs_few_evaluations(monkeypatch):
    """Evaluations of the model at points, and of residuals; the seconds are those of as many."""
    rows_seen, calls = [], []
    forward = Net.forward

    def counted(self, points):
        rows_seen.append(len(points))
        return forward(self, points)

    monkeypatch.setattr(Net, "forward", counted)
    check = residual_checks._check
    monkeypatch.setattr(residual_checks, "_check", lambda *given: calls.append(1) or check(*given))
    assert found(Two(), Net(torch.tanh, outputs=2)) == []
    # A thousand steps of Adam on 1024 points are a million rows.
    assert sum(rows_seen) < 5000
    assert len(calls) == len(Two().terms())
    assert model_checks._PROBES < 20


def test_many_coordinates_cost_no_more_than_few_a_coordinate(monkeypatch):
    """Not as many as there are pairs of the faces of a box."""
    names = [f"x{number}" for number in range(20)]
    domain = sciml.Box(**dict.fromkeys(names, (0, 1)))
    source = f"lambda self, u, {', '.join(names)}: {' + '.join(f'd(u, {name}, {name})' for name in names)} + 1.0"
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]
    problem = made(eval(source, {"d": d}), domain=domain, conditions=conditions)
    comparisons, rows_seen = [], []
    clash, forward = prescribed.mismatch, sciml.MLP.forward
    monkeypatch.setattr(prescribed, "mismatch", lambda *given: comparisons.append(1) or clash(*given))
    monkeypatch.setattr(sciml.MLP, "forward", lambda self, at: rows_seen.append(len(at)) or forward(self, at))
    assert found(problem, sciml.MLP(16)) == []
    assert not comparisons
    assert sum(rows_seen) < 800 * len(names)
