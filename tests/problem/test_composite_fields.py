"""Complex fields and vectors: the same rows as their parts written by hand, in equations, conditions and solutions."""

import math

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.diagnostics.well_posedness import condition_warnings
from sciml.errors import ProblemError
from sciml.geometry import draw
from sciml.problem.collocation import Collocation
from sciml.solvers import ResidualSystem

BOX = sciml.Box(x=(-5, 5), t=(0, 0.5))


def start(x):
    return torch.exp(0.5j * x) / torch.cosh(x)


class Schroedinger(sciml.Problem):
    """i h_t + h_xx/2 + |h|² h = 0 with a moving soliton."""

    domain = BOX
    fields = ["u", "v"]
    complex_fields = {"h": ("u", "v")}
    conditions = [sciml.Initial(h=start), sciml.Dirichlet(h=lambda x, t: soliton(x, t), on=domain.faces("x"))]

    @sciml.equation
    def wave(self, h, x, t):
        return 1j * d(h, t) + d(h, x, x) / 2 + abs(h) ** 2 * h

    def reference(self, x, t):
        return soliton(x, t)


def soliton(x, t):
    # exp(i (c x + (1 - c²) t / 2)) sech(x - c t) with c = 1/2.
    return torch.exp(0.5j * x + 0.375j * t) / torch.cosh(x - 0.5 * t)


class ByHand(sciml.Problem):
    """The same in real numbers."""

    domain = BOX
    fields = ["u", "v"]
    conditions = [
        sciml.Initial(u=lambda x: start(x).real, v=lambda x: start(x).imag),
        sciml.Dirichlet(u=lambda x, t: soliton(x, t).real, v=lambda x, t: soliton(x, t).imag, on=domain.faces("x")),
    ]

    @sciml.equation
    def real(self, u, v, x, t):
        return -d(v, t) + d(u, x, x) / 2 + (u * u + v * v) * u

    @sciml.equation
    def imag(self, u, v, x, t):
        return d(u, t) + d(v, x, x) / 2 + (u * u + v * v) * v

    def reference(self, x, t):
        return {"u": soliton(x, t).real, "v": soliton(x, t).imag}


def rows(problem, model, count=32, **raw):
    """Every residual of a problem at points that do not depend on how it is written."""
    found = ResidualSystem(problem, model, raw)
    blocks = [
        Collocation(draw(term.place, problem.domain, count, np.random.default_rng(0)), (term,)) for term in problem.terms()
    ]
    return found.residuals(blocks)


def network(inputs, outputs, seed=0):
    model = sciml.MLP(12, 12)
    model.build(inputs, outputs, torch.Generator().manual_seed(seed))
    return model.double()


def test_a_complex_equation_has_the_rows_of_the_pair_written_by_hand():
    model = network(2, 2)
    mine, theirs = rows(Schroedinger(), model), rows(ByHand(), model)
    assert Schroedinger().equations == ("wave.real", "wave.imag")
    names = {"wave.real": "real", "wave.imag": "imag"}
    for name, values in mine.items():
        assert torch.allclose(values, theirs[names.get(name, name)], rtol=0, atol=1e-14), name
    assert [names.get(name, name) for name in mine] == list(theirs)
    # And so are their derivatives by the weights.
    for name, values in mine.items():
        one, two = (
            torch.autograd.grad(each.square().sum(), list(model.parameters()), retain_graph=True)
            for each in (values, theirs[names.get(name, name)])
        )
        assert all(torch.allclose(a, b, rtol=1e-11, atol=1e-12) for a, b in zip(one, two, strict=True))


def test_the_reference_satisfies_the_complex_equation():
    residuals = Schroedinger().residuals(Schroedinger().reference, x=np.linspace(-4, 4, 9), t=0.3)
    assert list(residuals) == ["wave.real", "wave.imag"]
    assert max(np.abs(values).max() for values in residuals.values()) < 1e-13
    assert condition_warnings(Schroedinger()) == []


def test_a_fit_of_a_complex_field_has_complex_values(tmp_path):
    solution = sciml.fit(Schroedinger())
    assert solution.success, solution.message
    assert max(solution.error().values()) < 1e-7
    assert {"wave.real", "wave.imag", "initial.u", "initial.v"} <= set(solution.residuals.index)
    values = solution(x=[0.0, 1.0], t=0.5)
    assert list(values) == ["u", "v", "h"]
    assert solution.fields == ("u", "v")
    assert np.array_equal(values["h"], values["u"] + 1j * values["v"])
    exact = soliton(torch.tensor([0.0, 1.0]), torch.tensor(0.5)).numpy()
    assert values["h"] == pytest.approx(exact, abs=1e-6)
    t = torch.tensor([0.1], requires_grad=True)
    (slope,) = torch.autograd.grad(solution(x=torch.tensor([0.3]), t=t)["h"].real.sum(), t)
    assert slope.isfinite().all()
    path = solution.save(tmp_path / "soliton.pt")
    assert (sciml.load(path, problem=Schroedinger())(x=0.1, t=0.2)["h"] == solution(x=0.1, t=0.2)["h"]).all()
    assert list(sciml.load(path)(x=0.1, t=0.2)) == ["u", "v"]
    # A truth may be complex, too.
    truth = lambda x, t: {"h": soliton(torch.as_tensor(x), torch.as_tensor(t)).numpy()}  # noqa: E731
    assert solution.error(truth) == pytest.approx(solution.error(), rel=1e-6)


@pytest.mark.parametrize("solver", [sciml.LeastSquares(3), sciml.LBFGS(3)])
def test_every_supplier_of_jets_serves_complex_fields(solver):
    class Custom(torch.nn.Module):
        """No known layers, so that its jets come from nested autograd."""

        def __init__(self):
            super().__init__()
            self.inner = network(2, 2)
            self.power = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))

        def forward(self, points):
            return self.inner(points) * torch.cos(self.power * points[:, :1])

    for model in (sciml.MLP(8), Custom()):
        solution = sciml.fit(Schroedinger(), model, solver=solver, points=64, sampler=None)
        assert np.isfinite(solution(x=0.0, t=0.1)["h"])


def test_exact_conditions_hold_complex_values():
    problem = Schroedinger()
    solution = sciml.fit(problem, sciml.MLP(6), solver=sciml.Adam(2), exact=True)
    x = np.linspace(-5, 5, 11)
    assert solution(x=x, t=0.0)["h"] == pytest.approx(start(torch.from_numpy(x)).numpy(), abs=1e-12)
    assert "held exactly: 'dirichlet.u', 'dirichlet.v', 'initial.u', 'initial.v'" in solution.choices


def evaluated(problem, fields, function, **points):
    """A residual of given fields at points, complex or not."""
    at = torch.tensor(list(zip(*np.broadcast_arrays(*points.values()), strict=True)), dtype=torch.float64)
    columns = dict(zip(points, at.unbind(1), strict=True))
    trial = lambda many: torch.stack(list(fields(*many.unbind(1))), dim=1)  # noqa: E731
    space = problem.space(at, trial)
    arguments = problem.composites.arguments(space, [*problem.composites.names, *points])
    return function(**arguments), columns


@pytest.mark.parametrize(
    ("derive", "expected"),
    [
        (lambda h, x, t: d(h, x), lambda h, x, t: (2j + 2 * x * t) * h),
        (lambda h, x, t: d(h, x, t), lambda h, x, t: (2 * x + (2j + 2 * x * t) * x**2) * h),
        (lambda h, x, t: d(d(h, x), x), lambda h, x, t: (2 * t + (2j + 2 * x * t) ** 2) * h),
        (lambda h, x, t: d(x * h, x), lambda h, x, t: (1 + x * (2j + 2 * x * t)) * h),
        (lambda h, x, t: d(h * h, x, x), lambda h, x, t: (4 * t + (4j + 4 * x * t) ** 2) * h * h),
        (lambda h, x, t: d(h.conj(), t), lambda h, x, t: x**2 * h.conj()),
        (lambda h, x, t: d(abs(h) ** 2, x), lambda h, x, t: 4 * x * t * abs(h) ** 2),
        (lambda h, x, t: d(torch.exp(1j * x), x) * h, lambda h, x, t: 1j * torch.exp(1j * x) * h),
    ],
)
def test_derivatives_of_complex_expressions(derive, expected):
    # h = exp(2 i x + x² t)
    def fields(x, t):
        whole = torch.exp(2j * x + x * x * t)
        return whole.real, whole.imag

    found, at = evaluated(Schroedinger(), fields, derive, x=[0.1, -0.7, 1.2], t=[0.2, 0.3, 0.4])
    h = torch.exp(2j * at["x"] + at["x"] ** 2 * at["t"])
    assert torch.allclose(found, torch.as_tensor(expected(h, **at), dtype=found.dtype), rtol=1e-12)


class Kovasznay(sciml.Problem):
    """Flow behind a grid, its velocity as a vector."""

    domain = sciml.Box(x=(-0.5, 1), y=(-0.5, 1.5))
    fields = ["u", "v", "p"]
    vectors = {"velocity": ("u", "v")}
    rate = 20 - math.sqrt(400 + 4 * math.pi**2)
    conditions = [
        sciml.Dirichlet(velocity=lambda self, x, y: self.flow(x, y)[:2], on=domain.boundary, name="wall"),
        sciml.Point(p=lambda self, x, y: self.flow(x, y)[2], at={"x": 0.0, "y": 0.0}),
    ]

    def flow(self, x, y):
        wave = torch.exp(self.rate * x)
        angle = 2 * torch.pi * y
        return (
            1 - wave * torch.cos(angle),
            self.rate / (2 * torch.pi) * wave * torch.sin(angle),
            (1 - wave * wave) / 2,
        )

    @sciml.equation
    def along(self, velocity, p, x, y):
        u, v = velocity
        return u * d(u, x) + v * d(u, y) + d(p, x) - sciml.laplacian(u, x, y) / 40

    @sciml.equation
    def across(self, velocity, p, x, y):
        u, v = velocity
        return u * d(v, x) + v * d(v, y) + d(p, y) - sciml.laplacian(v, x, y) / 40

    @sciml.equation
    def continuity(self, velocity, x, y):
        return sciml.div(velocity, x, y)

    def reference(self, x, y):
        return dict(zip(("u", "v", "p"), self.flow(x, y), strict=True))


def test_a_vector_is_a_tuple_of_its_components():
    problem = Kovasznay()
    assert max(np.abs(r).max() for r in problem.residuals(problem.reference, x=0.2, y=[0.1, 0.7]).values()) < 1e-13
    names = [term.name for term in problem.terms()]
    assert names == ["along", "across", "continuity", "wall.u", "wall.v", "point"]
    model = network(2, 3)
    found = rows(problem, model)
    at = draw(problem.terms()[3].place, problem.domain, 32, np.random.default_rng(0)).points[0]
    exact = problem.flow(*at.unbind(1))
    for column, name in enumerate(("wall.u", "wall.v")):
        assert torch.allclose(found[name], model(at)[:, column] - exact[column])


def test_a_flow_with_a_vector_is_solved():
    solution = sciml.fit(Kovasznay())
    assert solution.success, solution.message
    assert max(solution.error().values()) < 1e-8


def test_operators():
    class Space(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1))
        fields = ["a", "b", "c"]
        vectors = {"w": ("a", "b", "c")}

    def fields(x, y, z):
        return y * z, x * x * z, torch.sin(x) * y

    def check(function, expected):
        found, at = evaluated(Space(), fields, function, x=[0.1, 0.4], y=[0.2, 0.6], z=[0.3, 0.9])
        for one, two in zip(found if isinstance(found, tuple) else (found,), expected(**at), strict=True):
            assert torch.allclose(one, two, atol=1e-14)

    check(
        lambda w, x, y, z: sciml.curl(w, x, y, z),
        lambda x, y, z: (torch.sin(x) - x * x, y - torch.cos(x) * y, 2 * x * z - z),
    )
    check(lambda w, x, y, z: sciml.grad(w[2], x, y, z), lambda x, y, z: (torch.cos(x) * y, torch.sin(x), 0 * x))
    check(lambda w, x, y, z: sciml.div(sciml.grad(w[2], x, y, z), x, y, z), lambda x, y, z: (-torch.sin(x) * y,))
    check(lambda w, x, y, z: sciml.laplacian(w[2], x, y, z), lambda x, y, z: (-torch.sin(x) * y,))
    check(lambda w, x, y, z: sciml.div(sciml.curl(w, x, y, z), x, y, z), lambda x, y, z: (0 * x,))
    check(lambda w, x, y, z: d(w, y), lambda x, y, z: (z, 0 * x, torch.sin(x)))
    space = Space().space(torch.rand(3, 3, dtype=torch.float64), lambda at: at)
    x, y = space.coordinates["x"], space.coordinates["y"]
    a = space.jet("a")
    for wrong in (lambda: sciml.div((a, a), x), lambda: sciml.div(a, x), lambda: sciml.curl((a, a, a), x, y)):
        with pytest.raises(ProblemError, match="takes a vector with a component for each coordinate"):
            wrong()
    with pytest.raises(ProblemError, match="two or three components"):
        sciml.curl((a,), x)
    with pytest.raises(ProblemError, match=r"as in grad\(u, x, y\)"):
        sciml.grad(a)
    with pytest.raises(ProblemError, match=r"as in laplacian\(u, x, y\)"):
        sciml.laplacian(a)


def define(**members):
    return type("Made", (sciml.Problem,), {"domain": BOX, "fields": ["u", "v"], **members})


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"complex_fields": {"h": ("u", "w")}}, "'h' has the part 'w', which is no field; fields: 'u', 'v'"),
        ({"complex_fields": {"h": ("u", "v"), "g": ("v", "u")}}, "'v' is a part of 'h' and of 'g'"),
        ({"complex_fields": {"h": ("u", "u")}}, "'u' is a part of 'h' and of 'h'"),
        ({"complex_fields": {"u": ("u", "v")}}, "the name 'u' is taken"),
        ({"complex_fields": {"t": ("u", "v")}}, "the name 't' is taken"),
        ({"complex_fields": {"h": ("u", "v")}, "vectors": {"h": ("u", "v")}}, "the name 'h' is taken"),
        ({"complex_fields": {"h": ("u",)}}, 'complex_fields must be names of fields under a name, as in {"h"'),
        ({"complex_fields": ["h"]}, "complex_fields must be"),
        ({"vectors": {"velocity": ("u", "w")}}, "the component 'w' of 'velocity' is no field"),
        ({"vectors": {"velocity": ("u", "u")}}, "the component 'u' of 'velocity' is given twice"),
        ({"vectors": {"velocity": "uv"}}, "vectors must be"),
        (
            {"vectors": {"velocity": ("u", "v")}, "conditions": [sciml.Dirichlet(velocity=0.0, on=BOX.faces("x"))]},
            r"Dirichlet\(velocity=...\) must have a value for each of 'u', 'v', as in \(0.0, 0.0\)",
        ),
        (
            {"vectors": {"velocity": ("u", "v")}, "conditions": [sciml.Initial(velocity=(1.0,))]},
            "must have a value for each of 'u', 'v'",
        ),
        (
            {"complex_fields": {"h": ("u", "v")}, "conditions": [sciml.Initial(h="one")]},
            "must be a number or a function",
        ),
        ({"complex_fields": {"h": ("u", "v")}, "conditions": [sciml.Initial(g=1j)]}, "Initial names 'g'"),
        (
            {"conditions": [sciml.Robin(u=0.0, coefficient=1j, on=BOX.face(x=5))]},
            "a complex coefficient of Robin is for complex fields; given: 1j for 'u'",
        ),
    ],
)
def test_wrong_declarations_are_refused_by_the_class(members, words):
    with pytest.raises(ProblemError, match=words):
        define(**members)


def test_a_vector_function_that_returns_too_little():
    problem = define(vectors={"w": ("u", "v")}, conditions=[sciml.Initial(w=lambda x: (x,))])()
    with pytest.raises(ProblemError, match=r"Initial\(w=...\) must return 2 values, for 'u', 'v'"):
        rows(problem, network(2, 2))


@pytest.mark.parametrize(
    ("condition", "labels"),
    [
        (sciml.Periodic("x", "h"), {"periodic.u", "periodic.u_x", "periodic.v", "periodic.v_x"}),
        (sciml.Initial(h=1 + 2j, h_t=0.0), {"initial.u", "initial.v", "initial.u_t", "initial.v_t"}),
        (sciml.Neumann(h=lambda t: 1j * t, on=BOX.face(x=5)), {"neumann.u", "neumann.v"}),
        (sciml.Robin(h=0.0, coefficient=2.0, on=BOX.face(x=5)), {"robin.u", "robin.v"}),
        (sciml.Robin(h=0.0, coefficient=1 - 2j, on=BOX.face(x=5)), {"robin.u", "robin.v"}),
        (sciml.Point(h=1j, at={"x": 0, "t": 0}), {"point.u", "point.v"}),
        (sciml.Mean(h=0.0), {"mean.u", "mean.v"}),
        (sciml.Integral(h=lambda: 1j), {"integral.u", "integral.v"}),
    ],
)
def test_every_condition_takes_complex_fields(condition, labels):
    @sciml.equation
    def wave(self, h, x, t):
        return 1j * d(h, t) + d(h, x, x)

    problem = define(complex_fields={"h": ("u", "v")}, conditions=[condition], wave=wave)()
    assert {term.name for term in problem.terms()} == {"wave.real", "wave.imag", *labels}
    assert all(values.isfinite().all() for values in rows(problem, network(2, 2)).values())


@pytest.mark.parametrize("coefficient", [-3j, lambda self: -1j * self.k, lambda self, x: -1j * self.k * x])
def test_waves_leave_through_an_impedance(coefficient):
    class Leaving(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u", "v"]
        complex_fields = {"h": ("u", "v")}
        k = 3.0
        conditions = [
            sciml.Dirichlet(h=1.0, on=domain.face(x=0)),
            sciml.Robin(h=0.0, coefficient=coefficient, on=domain.face(x=1)),
        ]

        @sciml.equation
        def helmholtz(self, h, x):
            return d(h, x, x) + self.k**2 * h

    solution = sciml.fit(Leaving())
    x = np.linspace(0, 1, 11)
    assert np.abs(solution(x=x)["h"] - np.exp(3j * x)).max() < 1e-9


def test_a_complex_coefficient_of_a_real_field_is_refused():
    problem = define(conditions=[sciml.Robin(u=0.0, coefficient=lambda x: 1j * x, on=BOX.face(x=5))])()
    with pytest.raises(ProblemError, match=r"Robin\(coefficient=...\) is complex, and what it is for is real"):
        rows(problem, network(2, 2))


def test_a_condition_of_the_users_own_may_be_complex():
    class Scattering(sciml.Problem):
        """u'' + 9 u = 0 with an outgoing wave on the right."""

        domain = sciml.Interval(x=(0, 1))
        fields = ["a", "b"]
        complex_fields = {"w": ("a", "b")}
        conditions = [sciml.Dirichlet(w=1.0, on=domain.face(x=0))]

        @sciml.equation
        def helmholtz(self, w, x):
            return d(w, x, x) + 9 * w

        @sciml.condition(on=domain.face(x=1))
        def outgoing(self, w, x):
            return d(w, x) - 3j * w

        def reference(self, x):
            return torch.exp(3j * x)

    names = [term.name for term in Scattering().terms()]
    assert names == ["helmholtz.real", "helmholtz.imag", "dirichlet.a", "dirichlet.b", "outgoing.real", "outgoing.imag"]
    solution = sciml.fit(Scattering())
    assert solution.success
    assert max(solution.error().values()) < 1e-10


def test_real_equations_of_complex_fields_stay_as_they_are():
    class Mixed(Schroedinger):
        @sciml.equation
        def density(self, h, u, t):
            return d(abs(h) ** 2, t) - u

    assert Mixed().equations == ("wave.real", "wave.imag", "density")


def test_vectors_of_complex_fields():
    class Field(sciml.Problem):
        domain = BOX
        fields = ["a", "b", "c", "e"]
        complex_fields = {"one": ("a", "b"), "two": ("c", "e")}
        vectors = {"both": ("one", "two")}
        conditions = [sciml.Initial(both=lambda x: (1j * x, x))]

        @sciml.equation
        def balance(self, both, x, t):
            return d(both[0], t) - d(both[1], x)

    problem = Field()
    assert [term.name for term in problem.terms()] == [
        "balance.real",
        "balance.imag",
        *(f"initial.{name}" for name in "abce"),
    ]
    model = network(2, 4)
    found = rows(problem, model)
    at = draw(problem.terms()[2].place, problem.domain, 32, np.random.default_rng(0)).points[0]
    assert torch.allclose(found["initial.b"], model(at)[:, 1] - at[:, 0])
    assert torch.allclose(found["initial.e"], model(at)[:, 3])


def test_ordinary_equations_with_complex_fields_have_a_classical_solution():
    class Turning(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u", "v"]
        complex_fields = {"z": ("u", "v")}
        conditions = [sciml.Initial(z=1.0 + 0.5j)]

        @sciml.equation
        def turn(self, z, t):
            return d(z, t) - 2j * z

        def reference(self, t):
            return (1.0 + 0.5j) * torch.exp(2j * t)

    assert max(sciml.baseline(Turning(), tolerance=1e-9).error().values()) < 1e-7
    assert max(sciml.fit(Turning()).error().values()) < 1e-10
