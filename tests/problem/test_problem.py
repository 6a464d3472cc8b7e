"""Stating problems: what is refused when the class is defined, constants, terms."""

import copy
import pickle

import numpy as np
import pytest
import torch

import sciml
from sciml import d
from sciml.errors import ProblemError
from tests.problems import Heat


def define(**members):
    """A problem class with sound defaults and some members replaced."""
    box = sciml.Box(x=(0, 1), t=(0, 1))

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - d(u, x, x)

    return type("Made", (sciml.Problem,), {"domain": box, "fields": ["u"], "heat": heat, **members})


def test_a_sound_definition_passes():
    assert define()().equations == ("heat",)


@sciml.equation
def wrong_field(self, w, t):
    return d(w, t)


@sciml.equation
def catch_all(self, *fields):
    return fields[0]


BOX = sciml.Box(x=(0, 1), t=(0, 1))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"heat": wrong_field}, "'w', which is neither a field nor a coordinate; fields: 'u'; coordinates: 'x', 't'"),
        ({"fields": "u"}, "list of names"),
        ({"fields": []}, "has no fields"),
        ({"fields": ["u", "u"]}, "named twice"),
        ({"fields": ["u", "x"]}, "named twice"),
        ({"domain": (0, 1)}, "must be a sciml.Box"),
        ({"time": "s"}, "time = 's' is not a coordinate"),
        ({"conditions": sciml.Initial(u=0.0)}, "must be a list"),
        ({"conditions": [3]}, "not a condition"),
        ({"conditions": [sciml.Initial(v=0.0)]}, "Initial names 'v'; it may name 'u', 'u_t'"),
        ({"conditions": [sciml.Initial(u=lambda y: y)]}, "asks for 'y'; it may ask for the coordinates 'x', 't'"),
        ({"conditions": [sciml.Initial(u="zero")]}, "must be a number or a function"),
        ({"conditions": [sciml.Initial(u=float("nan"))]}, "the target of Initial.* must be finite; given: nan"),
        ({"conditions": [sciml.Dirichlet(u=torch.tensor(float("inf")), on=BOX.boundary)]}, "must be finite; given: inf"),
        ({"conditions": [sciml.Dirichlet(v=0.0, on=BOX.boundary)]}, "Dirichlet names 'v'; fields: 'u'"),
        ({"conditions": [sciml.Periodic("y")]}, "Periodic names the coordinate 'y'"),
        ({"conditions": [sciml.Periodic("x", "v")]}, "'v'"),
    ],
)
def test_fault_51_wrong_names_are_refused_by_the_class(members, words):
    """A wrong name is refused when the class is defined, with the right ones."""
    with pytest.raises(ProblemError, match=words):
        define(**members)


def test_numbers_of_numpy_are_numbers():
    define(conditions=[sciml.Initial(u=np.int64(1)), sciml.Dirichlet(u=np.float32(0.5), on=BOX.faces("x"))])
    assert Decay(rate=np.int64(3)).rate == Decay(rate=np.float32(3.0)).rate == 3


def test_a_constant_that_is_asked_for_by_name():
    with pytest.raises(
        ProblemError, match=r"equation 'heat' asks for 'rate', a constant: take the argument self, and self\.rate"
    ):
        define(heat=sciml.equation(lambda self, u, t, rate: d(u, t) - rate * u), rate=2.0)
    with pytest.raises(ProblemError, match=r"observe={'w': \.\.\.} asks for 'start', a constant"):
        sciml.fit(Decay(), data={"t": [0.0, 1.0], "w": [2.0, 1.0]}, observe={"w": lambda u, start: start * u})


def test_star_arguments_name_nothing():
    with pytest.raises(ProblemError, match="name the fields and coordinates"):
        define(heat=catch_all)


def test_initial_needs_time():
    with pytest.raises(ProblemError, match="needs a time coordinate"):
        type(
            "Still",
            (sciml.Problem,),
            {"domain": sciml.Interval(x=(0, 1)), "fields": ["u"], "conditions": [sciml.Initial(u=0)]},
        )


@pytest.mark.parametrize("make", [lambda: sciml.Initial(), lambda: sciml.Dirichlet(on=BOX.boundary)])
def test_conditions_prescribe_something(make):
    with pytest.raises(ProblemError, match="prescribes nothing"):
        make()


def test_regions_are_regions():
    with pytest.raises(ProblemError, match="must be a region"):
        sciml.Dirichlet(u=0.0, on="x")


def test_fault_50_a_region_without_points():
    """A condition on a region without points is refused."""
    made = type(
        "Ode",
        (sciml.Problem,),
        {
            "domain": sciml.Interval(t=(0, 1)),
            "fields": ["u"],
            "conditions": [sciml.Dirichlet(u=0.0, on=sciml.Interval(t=(0, 1)).boundary)],
        },
    )
    with pytest.raises(ProblemError, match="empty region"):
        made().terms()


class Decay(sciml.Problem):
    """u_t = -k u."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    rate = 2.0
    start = sciml.Unknown(1.0, lower=0)
    conditions = [sciml.Initial(u=lambda self: self.start)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.rate * u

    def reference(self, t):
        return torch.exp(-self.rate * t)


def test_constants_are_replaced_by_keywords():
    problem = Decay(rate=3.0)
    assert problem.rate == 3.0
    assert Decay.rate == 2.0
    assert repr(problem) == "Decay(rate=3.0)"
    with pytest.raises(ProblemError, match=r"no constant 'rat'.*Did you mean 'rate'"):
        Decay(rat=1.0)


def test_numbers_and_unknowns_change_places():
    assert set(Decay().unknowns) == {"start"}
    assert set(Decay(start=1.0).unknowns) == set()
    assert set(Decay(rate=sciml.Unknown(1.0)).unknowns) == {"rate", "start"}


def test_problems_are_immutable_and_bind_copies():
    problem = Decay()
    with pytest.raises(ProblemError, match="immutable"):
        problem.rate = 1.0
    bound = problem.bind(start=torch.tensor(5.0))
    assert float(bound.start) == 5.0
    assert isinstance(problem.start, sciml.Unknown)
    assert isinstance(Decay.start, sciml.Unknown)


def test_a_domain_may_be_replaced_by_one_with_the_same_coordinates():
    assert Decay(domain=sciml.Interval(t=(0, 5))).domain.measure == 5
    with pytest.raises(ProblemError, match="with the coordinates 't'"):
        Decay(domain=sciml.Interval(x=(0, 5)))


def test_the_reference_satisfies_the_equation_and_a_wrong_sign_shows():
    t = torch.linspace(0, 1, 9).numpy()
    assert abs(Decay().residuals(Decay().reference, t=t)["decay"]).max() < 1e-15
    assert abs(Decay().residuals(lambda t: torch.exp(2 * t), t=t)["decay"]).max() > 1


def test_what_a_reference_raises_says_where_it_comes_from():
    class Faulty(Decay):
        def reference(self, t):
            raise ArithmeticError("no root")

    with pytest.raises(ArithmeticError, match="no root") as raised:
        sciml.fit(Faulty())
    assert "raised by Faulty.reference" in raised.value.__notes__[0]


def test_the_reference_sees_constants_in_double_precision():
    made = define(rate=sciml.Unknown(0.1), reference=lambda self, x, t: self.rate + 0 * x)()
    for given in (None, {"rate": 0.1}):
        assert made.reference_values({"x": 0.5, "t": 0.5}, given)["u"] == 0.1


def test_terms_have_names_of_their_own():
    box = sciml.Box(x=(0, 1), t=(0, 1))
    made = define(
        conditions=[
            sciml.Initial(u=0.0, u_t=1.0),
            sciml.Dirichlet(u=0.0, on=box.face(x=0)),
            sciml.Dirichlet(u=1.0, on=box.face(x=1)),
            sciml.Neumann(u=0.0, on=box.face(x=1), name="flux"),
            sciml.Periodic("x"),
        ]
    )
    names = [term.name for term in made().terms()]
    assert names == [
        "heat",
        "initial.u",
        "initial.u_t",
        "dirichlet",
        "dirichlet_2",
        "flux",
        "periodic.u",
        "periodic.u_x",
    ]


def test_another_name_for_time():
    made = type(
        "Tau",
        (sciml.Problem,),
        {
            "domain": sciml.Box(x=(0, 1), τ=(0, 1)),
            "fields": ["u"],
            "time": "τ",
            "conditions": [sciml.Initial(u=0.0, u_τ=1.0)],
        },
    )
    assert [term.name for term in made().terms()] == ["initial.u", "initial.u_τ"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"initial": float("nan")}, "finite"),
        ({"initial": 1.0, "lower": 2.0}, "strictly between"),
        ({"initial": 1.0, "upper": 1.0}, "strictly between"),
    ],
)
def test_bad_unknowns_are_refused(arguments, words):
    with pytest.raises(ProblemError, match=words):
        sciml.Unknown(**arguments)


@pytest.mark.parametrize("bounds", [{}, {"lower": 0.0}, {"upper": 9.0}, {"lower": 0.0, "upper": 9.0}])
def test_unknowns_start_at_their_initial_value_and_stay_in_bounds(bounds):
    unknown = sciml.Unknown(2.0, **bounds)
    assert abs(float(unknown.value(unknown.raw_initial())) - 2.0) < 1e-15
    ends = unknown.value(torch.tensor([-30.0, 30.0], dtype=torch.float64))
    assert float(ends.min()) >= bounds.get("lower", -1e15)
    assert float(ends.max()) <= bounds.get("upper", 1e15)


def test_conditions_vanish_on_functions_that_satisfy_them():
    """Normal derivatives have their sign, periodic jumps their order."""
    box = sciml.Box(x=(0, 2), t=(0, 1))

    class Wave(sciml.Problem):
        """Functions sin(pi x) (1 + t) satisfy all of this."""

        domain = box
        fields = ["u"]
        conditions = [
            sciml.Initial(u=lambda x: torch.sin(torch.pi * x), u_t=lambda x: torch.sin(torch.pi * x)),
            sciml.Periodic("x"),
            sciml.Neumann(u=lambda x, t: torch.sign(x - 1) * torch.pi * (1 + t), on=box.faces("x")),
        ]

        @sciml.equation
        def wave(self, u, x, t):
            return d(u, x, x) + torch.pi**2 * u

        @sciml.condition(on=box.face(x=2))
        def mixed(self, u, x, t):
            return d(u, x) - torch.pi * (1 + t)

    from sciml.geometry import draw
    from sciml.problem.collocation import Collocation
    from sciml.solvers import ResidualSystem

    class Exact(torch.nn.Module):
        def forward(self, points):
            x, t = points.unbind(1)
            return (torch.sin(torch.pi * x) * (1 + t))[:, None]

    problem = Wave()
    generator = np.random.default_rng(0)
    blocks = [Collocation(draw(term.place, box, 16, generator), (term,)) for term in problem.terms()]
    residuals = ResidualSystem(problem, Exact(), {}).residuals(blocks)
    assert len(residuals) == 7
    for name, values in residuals.items():
        assert float(values.detach().abs().max()) < 1e-14, name


def test_fault_52_a_coarser_type_is_not_taken_silently():
    """Values of a coarser type are refused."""
    coarse = sciml.Initial(u=lambda t: torch.where(t > -1, 0.1, 0.2))
    made = type("Coarse", (Decay,), {"conditions": [coarse]})
    with pytest.raises(
        ProblemError, match=r"Initial\(u=...\) came back in torch.float32 although coordinates have torch.float64"
    ):
        sciml.fit(made(start=1.0), sciml.MLP(4), solver=sciml.Adam(1))


def test_numbers_that_are_the_same_in_a_coarser_type_may_be_given():
    """`torch.where(t > 0, 1.0, 0.0)` is of torch's default type, and holds what was meant."""
    given = sciml.Initial(u=lambda t: torch.where(t > -1, 1.0, 0.0))
    problem = type("Given", (Decay,), {"conditions": [given]})(start=1.0)
    (term,) = [each for each in problem.terms() if each.name == "initial"]
    values = term.prescription.values(problem, torch.zeros(1, 1, dtype=torch.float64))
    assert values.dtype == torch.float64
    assert values.tolist() == [1.0]


def test_an_override_is_an_equation_too():
    class Slower(Decay):
        def decay(self, u, t):
            return d(u, t) + 0.5 * u

    class Without(Decay):
        decay = None

    assert Slower().equations == ("decay",)
    assert Without().equations == ()


def test_boundary_and_a_named_face_unite():
    box = sciml.Box(x=(0, 1), t=(0, 1))
    faces = (box.boundary | box.face(t=0)).resolve(box, "t")
    assert [(face.coordinate, face.side) for face in faces] == [("x", "lower"), ("x", "upper"), ("t", "lower")]


def test_problems_can_be_copied_and_pickled():
    import copy
    import pickle

    problem = copy.deepcopy(Decay(domain=sciml.Interval(t=(0, 5))))
    assert problem.domain.measure == 5
    assert pickle.loads(pickle.dumps(sciml.Box(x=(0, 1)))) == sciml.Box(x=(0, 1))


@pytest.mark.parametrize("value", ["a", None])
def test_constants_are_numbers(value):
    with pytest.raises(ProblemError, match="must be a number"):
        Decay(rate=value)
    with pytest.raises(ProblemError, match="finite number"):
        sciml.Unknown(value)


def test_a_function_without_named_parameters_is_told_to_be_wrapped():
    with pytest.raises(sciml.errors.ProblemError, match="lambda x: sin"):

        class Wave(sciml.Problem):
            domain = sciml.Box(x=(0, 1), t=(0, 1))
            fields = ("u",)
            conditions = (sciml.Initial(u=torch.sin),)


@pytest.mark.parametrize(
    ("residual", "said"),
    [
        (lambda self, u, t: d(u, t) - speed * u, r"define or import it; a constant of the class is self\.speed"),  # noqa: F821
        (lambda self, u, t: d(u, t) - self.speed * u, r"no attribute 'speed'; set it in the class"),
        (lambda self, u, t: d(u, t) if u > 0 else u, r"choose by torch\.where\(condition, one, other\) instead of if"),
        (lambda self, u, t: np.sin(d(u, t)) + float("x"), r"torch\.sin, not math\.sin"),
    ],
)
def test_what_to_do_about_an_equation_that_raises(residual, said):
    with pytest.raises(ProblemError, match=said):
        sciml.fit(define(heat=sciml.equation(residual))())


def on_plate(on, domain):
    def laplace(self, u, x, y):
        return d(u, x, x) + d(u, y, y)

    members = {"domain": domain, "fields": ["u"], "conditions": [sciml.Dirichlet(u=0.0, on=on)]}
    return type("Plate", (sciml.Problem,), {**members, "laplace": sciml.equation(laplace)})


SQUARE, HOLE = sciml.Box(x=(0, 1), y=(0, 1)), sciml.Disk((0.5, 0.5), 0.2)


@pytest.mark.parametrize(
    "on",
    [
        sciml.Box(x=(0, 2), y=(0, 1)).faces("x"),
        sciml.Box(x=(0, 2), y=(0, 1)).boundary,
        HOLE.boundary,
        SQUARE.boundary | HOLE.boundary,
        sciml.Disk((0.2, 0.2), 0.05).piece("circle"),
    ],
)
def test_regions_of_another_domain_are_refused(on):
    """They were moved to the problem's own boundary, or to all of it, and solved there."""
    with pytest.raises(ProblemError, match=r"the condition 'dirichlet' lies on the boundary of .*, and not of"):
        on_plate(on, SQUARE - HOLE)


@pytest.mark.parametrize(
    "on",
    [
        SQUARE.boundary,
        sciml.Box(x=(0, 2), y=(0, 1)).faces("y"),
        SQUARE.faces("x") | HOLE.piece("circle"),
        SQUARE.boundary - HOLE.piece("circle"),
    ],
)
def test_regions_of_parts_of_the_domain_are_its_own(on):
    plate = on_plate(on, SQUARE - HOLE)
    # The same sides of another domain.
    assert type("Long", (plate,), {"domain": sciml.Box(x=(0, 3), y=(0, 2)) - HOLE})().conditions
    assert plate(domain=sciml.Box(x=(0, 4), y=(0, 2)) - HOLE).conditions


def test_what_is_inherited_or_made_means_the_same_sides_of_another_domain():
    long = sciml.Box(x=(0, 2), t=(0, 1))

    class Longer(Heat):
        domain = long
        conditions = [*Heat.conditions]

    assert Longer().conditions
    assert sciml.experiments({"a": Heat(k=1.0, domain=long), "b": Heat(k=2.0, domain=long)}).fields
    # The boundary has no faces of time, and rounding moves none.
    later, third = sciml.Box(x=(0, 0.3), t=(0, 2)), sciml.Box(x=(0, 0.1 * 3), t=(0, 1))
    for on in (third.boundary, third.faces("x")):
        assert define(domain=later, conditions=[sciml.Dirichlet(u=0.0, on=on)])().conditions


def test_copies_of_promoted_problems_are_of_their_class():
    promoted = Heat().promote(k=(1.0, 2.0))
    for other in (copy.copy(promoted), copy.deepcopy(promoted)):
        assert type(other) is type(promoted)
        assert other.domain == promoted.domain


def test_problems_and_solutions_are_pickled_though_their_conditions_hold_functions():
    """As they are between the processes of ``multiprocessing``; a pickle names the class, which is in a module."""
    problem = Heat(k=0.5)
    solution = sciml.fit(problem.promote(k=(0.4, 0.6)))
    other = pickle.loads(pickle.dumps((problem, solution)))
    assert [term.name for term in other[0].terms()] == [term.name for term in problem.terms()]
    assert other[0].k == 0.5
    assert other[1].success
    assert other[1].problem.coordinates == ("x", "t", "k")
    assert np.array_equal(other[1](x=0.3, t=0.5, k=0.5)["u"], solution(x=0.3, t=0.5, k=0.5)["u"])
    assert other[1].at(k=0.5).error()["u"] < 1e-6


def test_a_pickle_keeps_initial_values_that_were_found():
    begun = Heat().supplied({}, {"u": 2.0})
    assert pickle.loads(pickle.dumps(begun)).conditions[0].targets == {"u": 2.0}
