"""Mistakes that are told before the first step: faults 45 to 53 of the table of faults, each under its number."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import sciml
from problems import Poisson
from sciml import d
from sciml.errors import DataError, ModelError, ProblemError, SciMLError, SolverError

ROD = sciml.Box(x=(0, 1), t=(0, 1))


def refused(error, words, problem=None, model=None, **options):
    """The error comes before any step is taken."""
    steps = []
    with pytest.raises(error, match=words) as caught:
        sciml.fit(problem or Poisson(), model, solver=sciml.Adam(1), callbacks=[steps.append], **options)
    assert isinstance(caught.value, SciMLError)
    assert not steps


def net(*layers):
    return nn.Sequential(*layers).double()


def test_fault_45_relu_under_a_second_derivative():
    refused(
        ModelError,
        r"derivative u_xx of the model is exactly zero everywhere because of layers.1 \(ReLU\)",
        model=sciml.MLP(8, activation="relu"),
    )
    refused(ModelError, "u_xx .*smooth activation", model=net(nn.Linear(2, 1)))


def test_fault_45_a_last_layer_of_zeros_is_no_mistake():
    model = sciml.MLP(8, inputs=2, outputs=1)
    nn.init.zeros_(model.layers[-1].weight)
    sciml.fit(Poisson(), model, solver=sciml.Adam(1))


def made(**members):
    return type("Made", (Poisson,), members)()


@sciml.equation
def ignorant(self, x, y):
    return x + y


@sciml.equation
def constant(self, u, x, y):
    return torch.zeros_like(x)


def test_fault_46_a_residual_that_ignores_the_fields():
    refused(ProblemError, "residual 'poisson' does not depend on any field", made(poisson=ignorant))
    refused(ProblemError, "residual 'poisson' does not depend on any field", made(poisson=constant))


def test_fault_46_an_unknown_that_appears_nowhere():
    refused(ProblemError, "unknown 'k' appears in no equation", made(k=sciml.Unknown(1.0)))


class Detached(nn.Linear):
    def forward(self, points):
        return super().forward(points).detach()


class Blind(nn.Linear):
    """Does not look at the second coordinate."""

    def forward(self, points):
        return torch.sin(super().forward(points * torch.tensor([1.0, 0.0])))


def test_fault_47_detached_output():
    refused(ModelError, "it is detached", model=Detached(2, 1))
    refused(ModelError, "does not depend on the coordinate 'y'", model=Blind(2, 1).double())


def test_fault_48_a_layer_that_mixes_points():
    mixing = net(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    refused(ModelError, r"mixes points in 1 \(BatchNorm1d\)", model=mixing)


def test_fault_48_dropout_and_a_residual_that_mixes_points():
    @sciml.equation
    def mean(self, u, x, y):
        return d(u, x, x) - u.mean()

    refused(ModelError, "mixes points|dropout", model=net(nn.Linear(2, 64), nn.Tanh(), nn.Dropout(0.5), nn.Linear(64, 1)))
    refused(ProblemError, "residual 'poisson' mixes points", made(poisson=mean))


def test_fault_49_shapes_that_would_broadcast():
    @sciml.equation
    def column(self, u, x, y):
        return d(u, x, x) - x[:, None]

    @sciml.equation
    def total(self, u, x, y):
        return d(u, x, x).mean()

    @sciml.equation
    def nothing(self, u, x, y):
        d(u, x, x)

    refused(ProblemError, r"returned shape \(\d+, \d+\).*an \(n,\) was combined with an \(n, 1\)", made(poisson=column))
    refused(ProblemError, r"returned shape \(\).*a mean, a sum", made(poisson=total))
    refused(ProblemError, "returned NoneType .a return statement is missing", made(poisson=nothing))


def test_fault_49_a_target_of_the_wrong_shape():
    wrong = made(conditions=[sciml.Dirichlet(u=lambda x: x[:, None], on=Poisson.domain.boundary)])
    refused(ProblemError, r"target of Dirichlet\(u=...\) has shape", wrong)


def test_fault_50_no_points():
    refused(ProblemError, "positive whole number of points; given: 0", points=0)
    refused(ProblemError, "points names 'dirichlets'.*Did you mean 'dirichlet'", points={"dirichlets": 3})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Linear(3, 1), r"does not accept points of shape \(n, 2\)"),
        (nn.Linear(2, 2), r"returned \(3, 2\) for 3 points; expected \(3, 1\).*'x', 'y'"),
        (sciml.MLP(4, inputs=1, outputs=1), "does not accept points"),
        (sciml.MLP, "a class: call it"),
        (lambda points: points, "must be a torch.nn.Module"),
        ({"t": [0.0], "u": [1.0]}, "measurements are passed as data="),
    ],
)
def test_fault_51_wrong_width(model, words):
    refused(ModelError, words, model=model)


def test_fault_52_unusable_dtype_and_device():
    refused(SolverError, "dtype must be torch.float64 or torch.float32", dtype=torch.float16)
    refused(SolverError, "device 'quantum' cannot be used", device="quantum")


def table(**columns):
    return sciml.Table({"x": [0.2, 0.3], "y": [0.2, 0.3], "u": [0.0, 0.1], **columns})


def test_fault_53_data_outside_the_domain():
    refused(DataError, "1 of 2 rows lie outside the domain, the first in row 1 with x = 7", data=table(x=[0.2, 7.0]))


def test_data_without_a_coordinate_or_field():
    refused(ProblemError, "must have the coordinates", data=sciml.Table({"x": [0.1], "u": [0.0]}))
    refused(ProblemError, "at least one of the fields", data=sciml.Table({"x": [0.1], "y": [0.1]}))
    refused(DataError, "data must be a sciml.Table", data=np.zeros(3))


def test_a_class_instead_of_an_object():
    refused(ProblemError, r"did you mean Poisson\(\)", Poisson)


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        ([], "empty list"),
        ("adam", "a solver is"),
        (torch.optim.Adam([torch.zeros(1, requires_grad=True)]), "give the class"),
    ],
)
def test_unusable_solvers(solver, words):
    with pytest.raises(SolverError, match=words):
        sciml.fit(Poisson(), solver=solver)


def test_unusable_weights():
    refused(ProblemError, "weights names 'dirichlt'.*Did you mean", weights={"dirichlt": 1.0})
    refused(ProblemError, "not negative", weights={"dirichlet": -1.0})


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (SolverError, "seed must be", {"seed": -1}),
        (SolverError, "seed must be", {"seed": 1.5}),
        (ProblemError, "points must be", {"points": 3.5}),
        (ProblemError, "weights must be", {"weights": 3.0}),
        (SolverError, "tolerance must be", {"tolerance": -1.0}),
        (SolverError, "early_stopping must be", {"early_stopping": True}),
        (SolverError, "sampler must be", {"sampler": np.zeros(2)}),
        (SolverError, "device", {"device": 3.5}),
        (DataError, "not a column of numbers", {"data": {"x": [[1], [1, 2]], "y": [0.0], "u": [0.0]}}),
        (SciMLError, "out must be", {"out": 123}),
    ],
)
def test_arguments_of_the_wrong_kind(error, words, options):
    refused(error, words, **options)


def test_callbacks_are_a_list():
    with pytest.raises(SolverError, match="callbacks must be"):
        sciml.fit(Poisson(), callbacks=print)


@pytest.mark.parametrize("make", [lambda: sciml.Adam(2.5), lambda: sciml.LBFGS(10.5), lambda: sciml.Adam(0)])
def test_counts_are_whole_numbers(make):
    with pytest.raises(SolverError, match="whole numbers"):
        make()


def test_an_optimizer_that_cannot_be_made():
    with pytest.raises(SolverError, match="cannot be made with these settings"):
        sciml.fit(Poisson(), sciml.MLP(4), solver=sciml.Adam(3, lr=-1.0))


def test_equations_without_conditions_or_data():
    refused(ProblemError, "neither conditions nor data", made(conditions=[]))


def test_numpy_in_an_equation_is_told():
    @sciml.equation
    def numpy(self, u, x, y):
        return d(u, x, x) + np.sin(u)

    refused(ProblemError, "equation 'poisson' failed.*use torch's functions.*detach", made(poisson=numpy))


def test_a_reference_that_fails_is_told_first():
    class Wrong(Poisson):
        def reference(self, x, y):
            return x[:, None]

    refused(ProblemError, "have shape", Wrong())


class Rod(sciml.Problem):
    """Heat through a rod of two materials, as one field."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.face(x=0)), sciml.Dirichlet(u=1.0, on=domain.face(x=1))]

    @sciml.equation
    def balance(self, u, x):
        return d(torch.where(x < 0.37, 1.0, 8.0).to(x) * d(u, x), x) + 1


class Core(sciml.Problem):
    """A disk whose core conducts better, in time; ``radius`` beyond one is no core."""

    domain = sciml.Disk((0, 0), 1) * sciml.Interval(t=(0, 1))
    fields = ["u"]
    radius = 0.5
    conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def heat(self, u, x, y, t):
        k = torch.where(x * x + y * y < self.radius**2, 8.0, 1.0).to(x)
        return d(u, t) - d(k * d(u, x), x) - d(k * d(u, y), y) - 1


def test_what_is_differentiated_must_not_jump():
    refused(ProblemError, r"'balance' takes d\(...\) of an expression that jumps .* at x=0.37: .*sciml.composite", Rod())
    refused(ProblemError, "'heat' takes .* jumps", Core())
    assert sciml.preflight(Core(radius=2.0)) == ()


@pytest.mark.parametrize(
    "expression",
    [
        lambda u, x: d(torch.where(x < 0.37, 1.0, 8.0).to(x) * u, x, x),  # twice
        lambda u, x: d(torch.floor(3 * x) * d(u, x), x),
    ],
)
def test_jumps_of_any_origin_are_found(expression):
    found = sciml.preflight(type("Made", (Rod,), {"balance": sciml.equation(lambda self, u, x: expression(u, x))})())
    assert any("jumps" in str(each) for each in found)


@pytest.mark.parametrize(
    "expression",
    [
        lambda u, x: torch.where(x < 0.37, 1.0, 8.0).to(x) * d(u, x, x),  # the slope is continuous
        lambda u, x: d((1 + abs(x - 0.37)) * d(u, x), x),  # a kink
        lambda u, x: d((2 + torch.tanh((x - 0.37) / 1e-4)) * d(u, x), x),  # a layer
        lambda u, x: d((1 + (u > 0.5)) * u, x, x),  # by the field
        lambda u, x: d(torch.where(x < 0.37, 0.0, x - 0.37) * d(u, x), x) + d(u, x, x),
    ],
)
def test_what_is_no_jump_is_not_told(expression):
    found = sciml.preflight(type("Made", (Rod,), {"balance": sciml.equation(lambda self, u, x: expression(u, x))})())
    assert not any("jumps" in str(each) for each in found)


class Melting(Rod):
    """A rod that conducts better where it is warm."""

    @sciml.equation
    def balance(self, u, x):
        return d(torch.where(u < 0.5, 1.0, 5.0) * d(u, x), x) + 3


class Peak(Rod):
    """The field is even about the jump: no flux crosses it, and the fluxes of both sides agree."""

    domain = sciml.Interval(x=(-1, 1))
    conditions = [sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def balance(self, u, x):
        k = torch.where(x < 0, 1.0, 8.0).to(x)
        return d(k * d(u, x), x) + k * (math.pi / 2) ** 2 * torch.cos(math.pi * x / 2)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_jumps_at_the_solution_is_no_success():
    for problem in (Rod(), Melting()):
        found = sciml.fit(problem, strategy="Spectral", preflight="warn")
        assert not found.success
        assert "'balance' takes d(...) of an expression that jumps" in found.message
    found = sciml.fit(Peak(), strategy="Spectral", preflight="warn")
    x = np.linspace(-1, 1, 9)
    assert found.success
    assert abs(found(x=x)["u"] - np.cos(math.pi * x / 2)).max() < 1e-9


class Boltzmann(sciml.Problem):
    """Ions before a blocking electrode: nothing flows anywhere."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["c", "p"]
    conditions = [
        sciml.Dirichlet(c=1.0, p=0.0, on=domain.face(x=0)),
        sciml.Dirichlet(p=5.0, on=domain.face(x=1)),
    ]

    @sciml.equation
    def drift(self, c, p, x):
        return d(1e-9 * (d(c, x) + c * d(p, x)), x)

    @sciml.equation
    def poisson(self, c, p, x):
        return d(p, x, x) - c

    @sciml.condition(on=domain.face(x=1))
    def blocked(self, c, p, x):
        return d(c, x) + c * d(p, x)


class Layered(sciml.Problem):
    """Heat that flows along one axis alone, in windows of time, stated by fluxes along both."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.1))
    fields = ["T"]
    conditions = [
        sciml.Initial(T=lambda x, y: torch.cos(math.pi * x)),
        sciml.Neumann(T=0.0, on=domain.faces("x", "y")),
    ]

    @sciml.equation
    def heat(self, T, x, y, t):
        return d(T, t) - d(2 * d(T, x), x) - d(2 * torch.exp(y) * d(T, y), y)


def test_rounding_of_a_flux_along_one_axis_is_no_jump():
    solution = sciml.fit(Layered())
    assert solution.success, solution.message


def test_rounding_of_a_flux_that_vanishes_is_no_jump():
    solution = sciml.fit(Boltzmann())
    assert solution.success, solution.message
    found = solution(x=np.linspace(0, 1, 11))
    assert np.allclose(found["c"], np.exp(-found["p"]), rtol=0, atol=1e-10)


def test_coefficients_that_jump_in_another_coordinate_are_no_mistake():
    class Layers(sciml.Problem):
        domain = sciml.Box(x=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

        @sciml.equation
        def heat(self, u, x, t):
            return d(torch.where(x < 0.37, 1.0, 8.0).to(x) * u, t) - d(u, x, x)

    assert sciml.preflight(Layers()) == ()


def test_a_normal_has_a_component_for_time_too():
    class Wall(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
        fields = ["u"]
        conditions = [sciml.Initial(u=0.0)]

        @sciml.equation
        def heat(self, u, x, y, t):
            return d(u, t) - sciml.laplacian(u, x, y)

        @sciml.condition(on=domain.faces("x", "y"))
        def cooled(self, u, x, y, t, normal):
            nx, ny = normal
            return nx * d(u, x) + ny * d(u, y) + u

    with pytest.raises(ProblemError, match="normal has a component for each coordinate of the domain, time included"):
        sciml.fit(Wall(), sciml.MLP(8))


def rod(*stated):
    class Rod(sciml.Problem):
        domain = ROD
        fields = ["u"]
        conditions = list(stated)

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - d(u, x, x)

    return Rod()


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([sciml.Initial(u=0.0), sciml.Initial(u=1.0)], "'initial' and 'initial_2' prescribe different values of u"),
        (
            [sciml.Dirichlet(u=lambda t: t, on=ROD.face(x=0)), sciml.Dirichlet(u=lambda t: 1 + t, on=ROD.faces("x"))],
            "'dirichlet' and 'dirichlet_2' prescribe different values of u",
        ),
        (
            [sciml.Neumann(u=0.0, on=ROD.face(x=1)), sciml.Neumann(u=2.0, on=ROD.face(x=1))],
            "'neumann' and 'neumann' prescribe different values of u_x",
        ),
    ],
    ids=["start", "values", "slopes"],
)
def test_conditions_that_differ_all_over_a_side_are_refused(conditions, said):
    with pytest.raises(ProblemError, match=f"{said} wherever both hold.*leave one of them out"):
        sciml.fit(rod(*conditions))


def test_conditions_that_agree_somewhere_on_a_side_are_warned_of():
    partly = rod(sciml.Initial(u=lambda x: x), sciml.Initial(u=lambda x: x.clamp(max=0.5)))
    (found, *_) = sciml.preflight(partly)
    assert found.severity == "warning"
    assert "'initial' and 'initial_2' contradict each other" in found.what
    alike = rod(sciml.Initial(u=lambda x: x), sciml.Initial(u=lambda x: x * (1 + 1e-9)))
    assert {each.severity for each in sciml.preflight(alike)} == {"warning"}


def test_rounding_of_a_zero_contradicts_no_zero():
    end = ROD.face(x=1)
    waves = rod(
        sciml.Dirichlet(u=lambda x, t: torch.sin(torch.pi * x) * (2 + t), on=ROD.faces("x")), sciml.Dirichlet(u=0.0, on=end)
    )
    slopes = rod(
        sciml.Neumann(u=lambda x: torch.cos(torch.pi / 2 * x), on=end), sciml.Neumann(u=0.0, on=end), sciml.Initial(u=0.0)
    )
    for problem in (waves, slopes):
        assert {each.severity for each in sciml.preflight(problem)} <= {"warning"}


def test_a_warning_beside_does_not_hide_what_nothing_fulfils():
    class Rounded(type(rod(sciml.Initial(u=0.0), sciml.Initial(u=1.0)))):
        rate = torch.tensor(0.1)

    found = sciml.preflight(Rounded())
    assert {each.severity for each in found} == {"error", "warning"}


def test_a_target_that_is_no_number_is_refused():
    with pytest.raises(ProblemError, match=r"the target of Initial\(u=...\) is 'cold'; expected numbers"):
        sciml.fit(rod(sciml.Initial(u=lambda x: "cold"), sciml.Dirichlet(u=0.0)))


def test_what_has_no_value_anywhere_is_told_and_no_division_by_zero():
    with pytest.raises(ProblemError, match="the residual 'initial' is not finite at 24 of 24 points"):
        sciml.fit(rod(sciml.Initial(u=lambda x: torch.log(x - 2)), sciml.Dirichlet(u=0.0)))


def test_a_device_that_is_refused_leaves_no_run(tmp_path):
    with pytest.raises(SolverError, match="cannot be used"):
        sciml.fit(rod(sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0)), device="cuda:77", out=tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()
