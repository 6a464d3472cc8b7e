"""Conditions that are too few, too many or at odds: counted and named before training, as warnings."""

import math
import warnings

import pytest
import torch
from conftest import ROOT, problem_class

import sciml
from problems import Heat
from sciml import d
from sciml.diagnostics.well_posedness import condition_warnings, lacking
from sciml.errors import ConditionWarning

NAMES = sorted(path.stem for path in (ROOT / "problems").glob("*.py"))
LINE, SQUARE = sciml.Interval(x=(0, 1)), sciml.Box(x=(0, 1), y=(0, 1))
STRIP = sciml.Box(x=(0, 1), t=(0, 2))
RING = sciml.Disk((0, 0), 1) - sciml.Disk((0, 0), 0.5, piece="inner")


def made(domain, conditions, fields=("u",), **equations):
    methods = {name: sciml.equation(function) for name, function in equations.items()}
    return type("Made", (sciml.Problem,), {"domain": domain, "fields": list(fields), "conditions": conditions, **methods})()


def second(self, u, x):
    return d(u, x, x) + 1.0


def poisson(self, u, x, y):
    return d(u, x, x) + d(u, y, y) + 1.0


def heat(self, u, x, t):
    return d(u, t) - d(u, x, x)


def wave(self, u, x, t):
    return d(u, t, t) - d(u, x, x)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_said_of_the_gallery(name):
    problem = problem_class(name)()
    assert condition_warnings(problem, hasattr(problem, "measurements")) == []


START, ENDS = sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=STRIP.faces("x"))


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (
            made(LINE, [sciml.Dirichlet(u=0.0, on=LINE.face(x=0))], second=second),
            "too few conditions: the equations of 'u' take 2 conditions in x and there are 1; there is none on x=1",
        ),
        (
            made(SQUARE, [sciml.Dirichlet(u=0.0, on=SQUARE.boundary - SQUARE.face(x=1))], poisson=poisson),
            "no conditions on x=1, where the equations of 'u', of order 2 in x, take 1: add a condition with "
            "on=domain.piece('x=1')",
        ),
        (
            made(STRIP, [START, ENDS], wave=wave),
            "nothing prescribes u_t at t=0: the equations take 2 conditions in t and there are 1; add sciml.Initial(u_t=...)",
        ),
        (
            made(STRIP, [ENDS], heat=heat),
            "nothing prescribes u at t=0: the equations take 1 condition in t and there are none; add sciml.Initial(u=...)",
        ),
        (
            made(STRIP, [START, sciml.Dirichlet(u=0.0, on=STRIP.face(x=0))], heat=heat),
            "no conditions on x=1, where the equations of 'u', of order 2 in x, take 1: add a condition with "
            "on=domain.piece('x=1')",
        ),
        (
            made(
                RING,
                [sciml.Dirichlet(u=0.0, on=RING.piece("circle"))],
                poisson=poisson,
            ),
            "no conditions on inner, where the equations of 'u', of order 2 in x, y, take 1: add a condition with "
            "on=domain.piece('inner')",
        ),
    ],
)
def test_what_is_missing_is_named_with_its_place(problem, sentence):
    assert condition_warnings(problem) == [sentence]
    # Measurements may stand in for it.
    assert condition_warnings(problem, measured=True) == []


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (
            made(LINE, [sciml.Dirichlet(u=0.0, on=LINE.boundary), sciml.Neumann(u=0.0, on=LINE.face(x=1))], second=second),
            ["too many conditions: the equations of 'u' take 2 conditions in x and there are 3, 'dirichlet', 'neumann'"],
        ),
        (
            made(
                SQUARE,
                [sciml.Dirichlet(u=0.0, on=SQUARE.boundary), sciml.Neumann(u=0.0, on=SQUARE.face(y=1))],
                poisson=poisson,
            ),
            [
                "too many conditions on the two faces of y: the equations of 'u' take 2 conditions and there are 3, "
                "'dirichlet', 'neumann'; they can only agree by chance"
            ],
        ),
        (
            made(STRIP, [sciml.Initial(u=0.0, u_t=0.0), ENDS], heat=heat),
            [
                "too many conditions at t=0: the equations take 1 condition in t and there are 2, 'initial.u', 'initial.u_t'; "
                "what is prescribed beyond that follows from the equations, or contradicts them"
            ],
        ),
    ],
)
def test_what_is_too_much_is_named(problem, words):
    assert condition_warnings(problem) == words


def test_two_conditions_of_one_kind_on_a_side_are_named():
    hot = sciml.Dirichlet(u=lambda y: 2.0 * (y > 0.5), on=SQUARE.face(x=1), name="hot")
    twice = [sciml.Dirichlet(u=0.0, on=SQUARE.boundary), hot]
    found = condition_warnings(made(SQUARE, twice, poisson=poisson))
    assert "u is prescribed twice on x=1, by 'dirichlet' and 'hot': leave one of them out" in found
    assert any("'dirichlet' and 'hot' contradict each other" in each and "0 and 2, 2 apart" in each for each in found)


class Stokes(sciml.Problem):
    """A square whose walls stand still."""

    domain = SQUARE
    fields = ["u", "v", "p"]
    conditions = [sciml.Dirichlet(u=0.0, v=0.0, on=domain.boundary), sciml.Mean(p=0.0)]

    @sciml.equation
    def along(self, u, p, x, y):
        return d(u, x, x) + d(u, y, y) - d(p, x)

    @sciml.equation
    def across(self, v, p, x, y):
        return d(v, x, x) + d(v, y, y) - d(p, y) + x

    @sciml.equation
    def continuity(self, u, v, x, y):
        return d(u, x) + d(v, y)


def test_systems_are_counted_by_their_structure():
    assert condition_warnings(Stokes()) == []

    class Slip(Stokes):
        conditions = [sciml.Dirichlet(u=0.0, on=SQUARE.boundary), sciml.Mean(p=0.0)]

    found = condition_warnings(Slip())
    assert len(found) == 4
    assert "1 condition on x=0, where the equations of 'u', 'v', 'p', of order 2 in x, take 2" in found[0]

    class First(sciml.Problem):
        """The wave equation as a system of first order, with one condition at each end."""

        domain = STRIP
        fields = ["u", "v"]
        conditions = [sciml.Initial(u=0.0, v=0.0), sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

        @sciml.equation
        def one(self, u, v, x, t):
            return d(u, t) - d(v, x)

        @sciml.equation
        def two(self, u, v, x, t):
            return d(v, t) - d(u, x)

    assert condition_warnings(First()) == []


def test_a_pressure_without_a_level_is_told():
    class Free(Stokes):
        conditions = [sciml.Dirichlet(u=0.0, v=0.0, on=SQUARE.boundary)]

    (sentence,) = condition_warnings(Free())
    assert "p is determined up to a constant" in sentence
    assert "sciml.Mean(p=0.0)" in sentence
    insulated = made(SQUARE, [sciml.Neumann(u=0.0, on=SQUARE.boundary)], poisson=poisson)
    assert "u is determined up to a constant" in condition_warnings(insulated)[0]


def test_equations_that_follow_from_each_other_leave_a_function_free():
    """The curl of a potential determines no potential; its divergence beside it does, and so do other laws of two fields."""

    def along(self, a, b, x, y):
        return d(d(b, x) - d(a, y), y) + y

    def across(self, a, b, x, y):
        return -d(d(b, x) - d(a, y), x) - x

    def gauge(self, a, b, x, y):
        return d(a, x) + d(b, y)

    held = [sciml.Dirichlet(b=0.0, on=SQUARE.faces("x")), sciml.Dirichlet(a=0.0, on=SQUARE.faces("y"))]
    (sentence,) = condition_warnings(made(SQUARE, held, ("a", "b"), along=along, across=across))
    assert sentence.startswith("'a', 'b' are determined up to a function of 'x', 'y': the equations 'along', 'across'")
    assert condition_warnings(made(SQUARE, held, ("a", "b"), along=along, across=across, gauge=gauge)) == []

    def grows(self, u, v, t):
        return d(u, t) - v

    def again(self, u, v, t):
        return 1e-6 * (d(u, t, t) - d(v, t))

    (sentence,) = condition_warnings(
        made(sciml.Interval(t=(0, 1)), [sciml.Initial(u=0.0, u_t=0.0)], ("u", "v"), grows=grows, again=again)
    )
    assert sentence.startswith("'u', 'v' are determined up to a function of 't'")


def test_an_algebraic_differential_system_takes_what_its_structure_says():
    class Pendulum(sciml.Problem):
        """In Cartesian coordinates, held by a force: four derivatives, two degrees of freedom."""

        domain = sciml.Interval(t=(0, 1))
        fields = ["x", "y", "force"]
        conditions = [sciml.Initial(x=1.0, x_t=0.0)]

        @sciml.equation
        def along(self, x, force, t):
            return d(x, t, t) + force * x

        @sciml.equation
        def down(self, y, force, t):
            return d(y, t, t) + force * y + 9.81

        @sciml.equation
        def length(self, x, y):
            return x * x + y * y - 1.0

    assert condition_warnings(Pendulum()) == []


def test_two_problems_in_one_are_counted_apart():
    def other(self, v, x):
        return d(v, x, x)

    walls = [sciml.Dirichlet(u=0.0, on=LINE.boundary), sciml.Neumann(u=0.0, on=LINE.boundary)]
    found = condition_warnings(made(LINE, walls, ("u", "v"), second=second, other=other))
    assert len(found) == 2
    assert "equations of 'u' take 2 conditions in x and there are 4" in found[0]
    assert "equations of 'v' take 2 conditions in x and there are none" in found[1]


def test_fit_warns_once_and_goes_on():
    problem = made(LINE, [sciml.Dirichlet(u=0.0, on=LINE.face(x=0))], second=second)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sciml.fit(problem, sciml.RandomFeatures(20, 1.0), solver=sciml.LinearLeastSquares())
        sciml.fit(problem)
    assert [each.category for each in caught] == [sciml.ConditionWarning] * 2
    assert str(caught[0].message).startswith("Made: too few conditions")
    # The warning points at the user's line.
    assert {each.filename for each in caught} == {__file__}


def test_conditions_that_disagree_at_a_corner_are_named_with_place_and_size():
    hot = made(
        SQUARE,
        [
            sciml.Dirichlet(u=0.0, on=SQUARE.boundary - SQUARE.face(y=1)),
            sciml.Dirichlet(u=5.0, on=SQUARE.face(y=1), name="lid"),
        ],
        poisson=poisson,
    )
    found = condition_warnings(hot)
    assert len(found) == 2
    assert "'dirichlet' and 'lid' contradict each other: at x=0, y=1 they prescribe u = 0 and 5, 5 apart" in found[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sciml.fit(hot, sciml.RandomFeatures(20, 1.0), solver=sciml.LinearLeastSquares())
    assert [str(each.message) for each in caught] == [f"Made: {sentence}" for sentence in found]


TRIANGLE = sciml.Polygon([(0, 0), (2, 0), (0, 1)], edges={"floor": 0, "slope": 1, "wall": 2})


@pytest.mark.parametrize(
    ("domain", "places"),
    [
        (TRIANGLE, ["x=0, y=0", "x=2, y=0"]),
        (TRIANGLE - sciml.Disk((0.4, 0.4), 0.1), ["x=0, y=0", "x=2, y=0"]),
        (SQUARE - sciml.Disk((1, 1), 0.5), ["x=0, y=0", "x=1, y=0"]),
    ],
)
def test_corners_of_shapes_are_looked_at(domain, places):
    floor = domain.pieces[0] if "floor" in domain.pieces else "y=0"
    walls = [sciml.Dirichlet(u=1.0, on=domain.piece(floor), name="bottom")]
    walls.append(sciml.Dirichlet(u=lambda x: 4.0 + 0 * x, on=domain.boundary - domain.piece(floor), name="rest"))
    found = condition_warnings(made(domain, walls, poisson=poisson))
    assert len(found) == 2
    for place in places:
        assert any(f"at {place} they prescribe u = " in each and "3 apart" in each for each in found), place
    product = lambda x, y: x * y  # noqa: E731
    agree = [sciml.Dirichlet(u=product, on=on) for on in (domain.piece(floor), domain.boundary - domain.piece(floor))]
    assert condition_warnings(made(domain, agree, poisson=poisson)) == []


def test_corners_of_a_shape_in_time_are_looked_at():
    domain = TRIANGLE * sciml.Interval(t=(0, 1))

    def plate(self, u, x, y, t):
        return d(u, t) - d(u, x, x) - d(u, y, y)

    walls = [sciml.Initial(u=0.0), sciml.Dirichlet(u=0.0, on=domain.piece("floor", "wall"))]
    walls.append(sciml.Dirichlet(u=lambda t: t, on=domain.piece("slope"), name="slope"))
    found = condition_warnings(made(domain, walls, plate=plate))
    assert len(found) == 2
    assert all("'dirichlet' and 'slope' contradict each other" in each for each in found)
    assert any("x=2, y=0" in each for each in found)
    assert any("x=0, y=1" in each for each in found)


def test_a_body_is_told_of_two_edges_and_of_how_many_there_are():
    body = sciml.Box(x=(0, 1), y=(0, 1), z=(0, 1), t=(0, 1))

    def heat(self, u, x, y, z, t):
        return d(u, t) - sciml.laplacian(u, x, y, z)

    conditions = [sciml.Initial(u=1.0), sciml.Dirichlet(u=0.0, on=body.faces("x", "y", "z"))]
    first, second = condition_warnings(made(body, conditions, heat=heat))
    assert "further" not in first
    assert second.endswith("1 apart, and likewise where further sides meet (4)")


def test_what_is_in_order():
    domain = sciml.Disk((0, 0), 1)
    assert condition_warnings(made(domain, [sciml.Dirichlet(u=lambda x: x, on=domain.boundary)], poisson=poisson)) == []
    ring = made(LINE, [sciml.Periodic("x"), sciml.Dirichlet(u=0.0, on=LINE.face(x=0))], second=second)
    assert condition_warnings(ring) == []


def test_where_an_equation_degenerates_regularity_stands_in_for_a_condition():
    pipe = sciml.Interval(r=(0, 1))
    outside = [sciml.Dirichlet(u=0.0, on=pipe.face(r=1))]

    def over(self, u, r):
        return d(u, r, r) + d(u, r) / r + 4.0

    def times(self, u, r):
        return d(r * d(u, r), r) + 4.0 * r

    def plain(self, u, r):
        return d(u, r, r) + d(u, r) / (1 + r) + 4.0

    assert condition_warnings(made(pipe, outside, over=over)) == []
    assert condition_warnings(made(pipe, outside, times=times)) == []
    assert len(condition_warnings(made(pipe, outside, plain=plain))) == 1
    market = sciml.Box(s=(0, 2), t=(0, 1))

    def price(self, u, s, t):
        return d(u, t) - 0.02 * s * s * d(u, s, s) - 0.05 * s * d(u, s) + 0.05 * u

    far = [sciml.Initial(u=1.0), sciml.Dirichlet(u=0.0, on=market.face(s=2))]
    assert not any("on s=0" in each for each in condition_warnings(made(market, far, price=price)))


def test_a_mean_at_each_time_stands_for_a_condition_at_an_end():
    """Heat of which one end is not known, but all that there is."""

    class Content(Heat):
        conditions = [Heat.conditions[0], sciml.Neumann(u=0.0, on=Heat.domain.face(x=0)), sciml.Mean(u=lambda t: torch.exp(-t))]

    class Nothing(Heat):
        conditions = Content.conditions[:2]

    class Pressed(Heat):
        fields = ["u", "p"]
        conditions = [*Content.conditions[:2], sciml.Mean(p=0.0)]

        @sciml.equation
        def heat(self, u, p, x, t):
            return d(u, t) - d(u, x, x) + p

        @sciml.equation
        def pressure(self, u, p, x, t):
            return d(p, x) - u

    assert condition_warnings(Content()) == []
    for lacks in (Nothing(), Pressed()):
        (told,) = condition_warnings(lacks)
        assert "no conditions on x=1" in told


def held_in_a_plate(*, joined: tuple[str, ...] = ("values", "fluxes"), over: str = "xy", timed: tuple[str, ...] = ()):
    """A disk in a plate, with equations of their own, at rest or from ``timed`` on."""
    plate, core = sciml.Box(x=(0, 1), y=(0, 1)), sciml.Disk((0.5, 0.5), 0.2)
    shell = plate - core
    if timed:
        plate, core, shell = (each * sciml.Interval(t=(0, 1)) for each in (plate, core, shell))
    border = core.interface(shell)
    starts = [sciml.Initial(**dict.fromkeys(timed, 0.0))] if timed else []

    class Held(sciml.Problem):
        domain = plate
        fields = ["inner", "outer"]
        conditions = [*starts, sciml.Dirichlet(outer=0.0, on=plate.faces(*over))]

        def heated(self, u, x, y, t=None):
            return (0 if t is None else d(u, t)) - d(u, x, x) - d(u, y, y) - 1

        if timed:

            @sciml.equation(on=core)
            def inside(self, inner, x, y, t):
                return self.heated(inner, x, y, t)

            @sciml.equation(on=shell)
            def around(self, outer, x, y, t):
                return self.heated(outer, x, y, t)

        else:

            @sciml.equation(on=core)
            def inside(self, inner, x, y):
                return self.heated(inner, x, y)

            @sciml.equation(on=shell)
            def around(self, outer, x, y):
                return self.heated(outer, x, y)

        if "values" in joined:

            @sciml.condition(on=border)
            def values(self, inner, outer):
                return inner - outer

        if "fluxes" in joined:

            @sciml.condition(on=border)
            def fluxes(self, inner, outer, x, y, normal):
                return normal[0] * d(inner - 3 * outer, x) + normal[1] * d(inner - 3 * outer, y)

    return Held()


@pytest.mark.parametrize("timed", [(), ("inner", "outer")])
def test_conditions_at_interfaces_are_counted(timed):
    assert condition_warnings(held_in_a_plate(timed=timed)) == []
    for joined, count in ((("values",), "1 condition on"), (("fluxes",), "1 condition on"), ((), "no conditions on")):
        (sentence,) = condition_warnings(held_in_a_plate(joined=joined, timed=timed))
        assert sentence.startswith(count)
        assert "interface(" in sentence
        assert "the equations of 'inner', 'outer' take 2" in sentence


def test_conditions_of_parts_are_counted_at_the_start_and_on_the_boundary():
    assert ["y=0" in each or "y=1" in each for each in condition_warnings(held_in_a_plate(over="x"))] == [True, True]
    (sentence,) = condition_warnings(held_in_a_plate(timed=("outer",)))
    assert "nothing prescribes inner at t=0" in sentence
    # What is not sought in a part needs nothing there; measurements may stand in for anything.
    assert condition_warnings(held_in_a_plate(joined=(), over="x"), measured=True) == []


def on_parts(domain, conditions, parts, joined=None):
    """Heat with a field of its own on each of two parts, which ``joined`` ties by two conditions."""

    class OnParts(sciml.Problem):
        fields = ["u", "v"]

        @sciml.equation(on=parts[0])
        def one(self, u, x, t):
            return d(u, t) - d(u, x, x)

        @sciml.equation(on=parts[1])
        def two(self, v, x, t):
            return d(v, t) - d(v, x, x)

        if joined is not None:

            @sciml.condition(on=joined)
            def values(self, u, v):
                return u - v

            @sciml.condition(on=joined)
            def fluxes(self, u, v, x):
                return d(u, x) - d(v, x)

    return type("OnParts", (OnParts,), {"domain": domain, "conditions": conditions})()


def test_parts_that_have_what_they_need_are_not_warned_of():
    line = sciml.Box(x=(0, 1), t=(0, 1))
    left, right = sciml.Box(x=(0, 0.5), t=(0, 1)), sciml.Box(x=(0.5, 1), t=(0, 1))
    start, end = sciml.Initial(u=0.0, v=0.0), sciml.Dirichlet(v=0.0, on=line.face(x=1))
    both, joined = (left, right), left.interface(right)
    at_zero = sciml.Dirichlet(u=0.0, on=line.face(x=0))
    assert condition_warnings(on_parts(line, [start, at_zero, end], both, joined)) == []
    # A mean at each time stands for a condition at an end.
    assert condition_warnings(on_parts(line, [start, sciml.Mean(u=0.0), end], both, joined)) == []
    # An initial value may lie on what a part has of the boundary.
    begins = [sciml.Dirichlet(u=0.0, on=left.interface(line).piece("t=0")), sciml.Initial(v=0.0)]
    assert condition_warnings(on_parts(line, [*begins, at_zero, end], both, joined)) == []
    # One part begins where the other ends.
    early, late = sciml.Box(x=(0, 1), t=(0, 0.5)), sciml.Box(x=(0, 1), t=(0.5, 1))
    walls = sciml.Dirichlet(u=0.0, v=0.0, on=line.faces("x"))
    later = on_parts(line, [sciml.Initial(u=0.0), walls], (early, late), early.interface(late))
    assert condition_warnings(later) == []
    # Two parts may overlap.
    apart = [start, walls, sciml.Dirichlet(u=0.0, on=line.inner(x=0.5))]
    assert not any("interface" in each for each in condition_warnings(on_parts(line, apart, (left, line))))


def consolidation(*starts):
    """Biot's equations: of the displacements w and the pressure p only one is prescribed at the start."""

    class Consolidation(sciml.Problem):
        domain = sciml.Box(z=(0, 1), t=(0, 0.5))
        fields = ["w", "p"]
        conditions = [
            *starts,
            sciml.Dirichlet(p=0.0, on=domain.face(z=0)),
            sciml.Neumann(p=0.0, on=domain.face(z=1)),
            sciml.Dirichlet(w=0.0, on=domain.face(z=1)),
        ]

        @sciml.condition(on=domain.face(z=0))
        def load(self, w, p, z, t):
            return d(w, z) - p + 1

        @sciml.equation
        def balance(self, w, p, z, t):
            return d(d(w, z) - p, z)

        @sciml.equation
        def storage(self, w, p, z, t):
            return d(d(w, z), t) - d(p, z, z)

        def reference(self, z, t):
            fades = torch.exp(-(math.pi**2) / 4 * t)
            return {"p": torch.sin(math.pi * z / 2) * fades, "w": 1 - z - torch.cos(math.pi * z / 2) * fades * 2 / math.pi}

    return Consolidation()


def test_a_start_may_follow_from_equations_without_rates():
    by_pressure = consolidation(sciml.Initial(p=lambda z: torch.sin(math.pi * z / 2)))
    assert condition_warnings(by_pressure) == []
    assert condition_warnings(consolidation(sciml.Initial(w=0.0))) == []
    assert any("nothing prescribes w" in each for each in condition_warnings(consolidation()))
    solution = sciml.fit(by_pressure)
    assert solution.success, solution.message
    assert max(solution.error().values()) < 1e-10


def test_a_pressure_is_no_start_of_a_flow():
    class Flow(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 1))
        fields = ["u", "v", "p"]
        conditions = [sciml.Initial(p=0.0), sciml.Dirichlet(u=0.0, v=0.0, on=domain.faces("x", "y"))]

        @sciml.equation
        def mass(self, u, v, x, y, t):
            return d(u, x) + d(v, y)

        @sciml.equation
        def along(self, u, p, x, y, t):
            return d(u, t) + d(p, x) - sciml.laplacian(u, x, y)

        @sciml.equation
        def across(self, v, p, x, y, t):
            return d(v, t) + d(p, y) - sciml.laplacian(v, x, y)

    assert any("nothing prescribes u, v" in each for each in condition_warnings(Flow()))


def test_an_interface_needs_its_conditions_everywhere():
    line = sciml.Box(x=(0, 1), t=(0, 1))
    middle, left = sciml.Box(x=(0.4, 0.6), t=(0, 1)), sciml.Box(x=(0, 0.4), t=(0, 1))
    conditions = [sciml.Initial(u=0.0, v=0.0), sciml.Dirichlet(v=0.0, on=line.faces("x"))]
    around = line - middle
    assert condition_warnings(on_parts(line, conditions, (middle, around), middle.interface(around))) == []
    (sentence,) = condition_warnings(on_parts(line, conditions, (middle, around), middle.interface(left)))
    assert sentence.startswith("no conditions on")


def test_levels_of_parts_are_counted():
    class Insulated(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1))
        half = sciml.Box(x=(0, 0.5), y=(0, 1))
        fields = ["u"]
        conditions = [sciml.Neumann(u=0.0, on=domain.faces("y"))]

        @sciml.equation(on=half)
        def laplace(self, u, x, y):
            return d(u, x, x) + d(u, y, y)

        @sciml.condition(on=half.interface(domain))
        def walls(self, u, x, y, normal):
            return normal[0] * d(u, x) + normal[1] * d(u, y)

    (sentence,) = condition_warnings(Insulated())
    assert sentence.startswith("u is determined up to a constant")


@pytest.mark.slow
def test_missing_conditions_at_an_interface_are_no_success():
    with pytest.warns(ConditionWarning, match="interface"):
        solution = sciml.fit(held_in_a_plate(joined=("values",)), strategy=sciml.strategies.Tiles(3, 6))
    assert not solution.success


def test_what_a_fluid_carries_along_a_wall_that_holds_it_enters_nowhere():
    channel = sciml.Box(x=(0, 1), t=(0, 1))
    start = sciml.Initial(h=1.0, u=lambda x: x * (1 - x), c=lambda x: x)

    def mass(self, h, u, x, t):
        return d(h, t) + d(h * u, x)

    def momentum(self, h, u, x, t):
        return d(u, t) + u * d(u, x) + d(h, x)

    def tracer(self, u, c, x, t):
        return d(c, t) + u * d(c, x)

    def warnings_of(*conditions):
        fields = {"mass": mass, "momentum": momentum, "tracer": tracer}
        return condition_warnings(made(channel, [start, *conditions], fields=["h", "u", "c"], **fields))

    assert warnings_of(sciml.Dirichlet(u=0.0, on=channel.faces("x"))) == []
    # An open end lets the tracer in, and a wall alone says nothing of the waves at the other one.
    assert any("too few conditions" in each for each in warnings_of(sciml.Dirichlet(u=0.1, on=channel.faces("x"))))
    assert len(warnings_of(sciml.Dirichlet(u=0.0, on=channel.face(x=0)))) == 1
    # What flows in from the other end has a value there.
    inflow = sciml.Dirichlet(u=0.0, on=channel.face(x=0)), sciml.Dirichlet(u=lambda t: -0.1 * t, on=channel.face(x=1))
    assert any("too few conditions" in each for each in warnings_of(*inflow))


def test_a_density_beside_viscosity_enters_at_no_wall():
    tube = sciml.Box(x=(-1, 1), t=(0, 1))
    start = sciml.Initial(r=lambda x: 2 + x, u=0.0)

    def mass(self, r, u, x, t):
        return d(r, t) + d(r * u, x)

    def momentum(self, r, u, x, t):
        return r * (d(u, t) + u * d(u, x)) + d(r, x) - 0.1 * d(u, x, x)

    def warnings_of(speed):
        ends = sciml.Dirichlet(u=speed, on=tube.faces("x"))
        return condition_warnings(made(tube, [start, ends], fields=["r", "u"], mass=mass, momentum=momentum))

    assert warnings_of(0.0) == []
    assert any("too few conditions" in each for each in warnings_of(0.5))


def test_equations_that_are_missing_are_told():
    """Conditions were asked for in their place."""

    class Coupled(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u", "v"]
        conditions = [sciml.Initial(u=1.0, v=0.0)]

        @sciml.equation
        def rate(self, u, v, t):
            return d(u, t) + v

    class Whole(Coupled):
        @sciml.equation
        def other(self, u, v, t):
            return d(v, t) - u

    assert lacking(Coupled())[0] == "2 field(s) need as many equations, and there are 1: add one, or pass data"
    assert lacking(Whole()) == []


def test_what_was_warned_of_is_the_cause_of_a_failure():
    """It had been told to take more time."""
    hot = sciml.Dirichlet(u=lambda y: 2.0 * (y > 0.5), on=SQUARE.face(x=1), name="hot")
    twice = [sciml.Dirichlet(u=0.0, on=SQUARE.boundary), hot]
    with pytest.warns(ConditionWarning):
        solution = sciml.fit(made(SQUARE, twice, poisson=poisson), strategy="Spectral", seconds=10)
    assert not solution.success
    assert "u is prescribed twice on x=1, by 'dirichlet' and 'hot': leave one of them out" in solution.message
