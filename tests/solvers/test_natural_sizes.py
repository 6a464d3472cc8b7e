"""Natural sizes of fields about which nothing but zeros is prescribed, by dominant balance."""

import math

import numpy as np
import pytest
import torch
from candidates import workspace
from scipy.integrate import solve_bvp, solve_ivp

import sciml
from sciml import d
from sciml.diagnostics.certificate import Certificate


def sizes(problem):
    return {name: size for name, (_, size) in workspace(problem).discrete.sizes.items()}


class Convection(sciml.Problem):
    """Natural convection in a square between a hot and a cold wall (G. de Vahl Davis, 1983)."""

    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u", "v", "p", "T"]
    rayleigh, prandtl = 1e3, 0.71
    conditions = [
        sciml.Dirichlet(u=0.0, v=0.0, on=domain.boundary),
        sciml.Dirichlet(T=1.0, on=domain.face(x=0)),
        sciml.Dirichlet(T=0.0, on=domain.face(x=1)),
        sciml.Neumann(T=0.0, on=domain.faces("y")),
        sciml.Mean(p=0.0),
    ]

    @sciml.equation
    def along(self, u, v, p, x, y):
        return u * d(u, x) + v * d(u, y) + d(p, x) - self.prandtl * sciml.laplacian(u, x, y)

    @sciml.equation
    def upward(self, u, v, p, T, x, y):
        weight = self.rayleigh * self.prandtl * T
        return u * d(v, x) + v * d(v, y) + d(p, y) - self.prandtl * sciml.laplacian(v, x, y) - weight

    @sciml.equation
    def heat(self, u, v, T, x, y):
        return u * d(T, x) + v * d(T, y) - sciml.laplacian(T, x, y)

    @sciml.equation
    def mass(self, u, v, x, y):
        return d(u, x) + d(v, y)


def test_heat_drives_a_flow_until_this_carries_as_much_and_pressure_bears_the_weight():
    found = sizes(Convection(rayleigh=1e6))
    # Velocities are some tens to two hundred, the pressure is some hundred thousands.
    assert found["T"] == 1
    assert 1 < found["u"] < 100
    assert 1 < found["v"] < 100
    assert 1e4 < found["p"] < 1e6


def test_natural_convection_carries_the_heat_of_the_benchmark():
    solution = sciml.fit(Convection(), strategy=sciml.strategies.Spectral(20))
    assert solution.success
    x, y = (each.ravel() for each in np.meshgrid(*[(np.arange(100) + 0.5) / 100] * 2))
    found = solution(x=x, y=y)
    # Nusselt's number: what is carried and conducted across, by what is conducted at rest.
    assert math.isclose(1 + float((found["u"] * found["T"]).mean()), 1.118, abs_tol=0.002)


def test_tiles_follow_fields_that_are_larger_than_what_is_prescribed():
    problem = Convection(rayleigh=1e4)
    tiles = sciml.fit(problem, strategy=sciml.strategies.Tiles(4, 8))
    spectral = sciml.fit(problem, strategy=sciml.strategies.Spectral(20))
    assert tiles.error(spectral)["u"] < 0.02


def test_products_of_a_field_with_itself_have_its_square():
    found = sizes(sciml.gallery.problem("robertson"))
    # At most 3.65e-5 of the second species is there, of the third up to one.
    assert 1e-5 < found["b"] < 1e-4
    assert 0.05 < found["c"] < 5


@pytest.mark.parametrize("source", [1e-4, 1.0, 1e4])
def test_a_source_tells_how_large_a_field_is(source):
    class Membrane(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

        @sciml.equation
        def balance(self, u, x, y):
            return sciml.laplacian(u, x, y) + source

    assert 0.02 * source < sizes(Membrane())["u"] < source


def test_a_source_in_one_place_drives_no_less():
    class Heated(sciml.Problem):
        domain = sciml.Box(x=(-1, 1), y=(-1, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

        @sciml.equation
        def balance(self, u, x, y):
            return sciml.laplacian(u, x, y) + torch.exp(-((x - 0.3) ** 2 + y**2) / 0.01)

    assert 1e-3 < sizes(Heated())["u"] < 1


class Nerve(sciml.Problem):
    """A potential of 1e-5 V that a current drives into a cable at rest, in SI units."""

    domain = sciml.Box(x=(0, 3e-3), t=(0, 0.1))
    fields = ["v"]
    conditions = [
        sciml.Initial(v=0.0),
        sciml.Neumann(v=0.01, on=domain.face(x=0)),
        sciml.Neumann(v=0.0, on=domain.face(x=3e-3)),
    ]

    @sciml.equation
    def cable(self, v, x, t):
        return 0.02 * d(v, t) - 1e-6 * d(v, x, x) + v


class Microvolts(Nerve):
    conditions = [
        sciml.Initial(v=0.0),
        sciml.Neumann(v=1e4, on=Nerve.domain.face(x=0)),
        sciml.Neumann(v=0.0, on=Nerve.domain.face(x=3e-3)),
    ]


class Heated(sciml.Problem):
    """A source that is small beside the flux through one end, and a value where it is cooled: both count."""

    domain = sciml.Interval(x=(0, 0.1))
    fields = ["u"]
    conditions = [
        sciml.Neumann(u=1e3, on=domain.face(x=0)),
        sciml.Robin(u=0.0, coefficient=1.0, on=domain.face(x=0.1)),
    ]

    @sciml.equation
    def balance(self, u, x):
        return d(u, x, x) + 1.0


def test_a_flux_tells_how_large_a_field_is():
    assert 2e-6 < sizes(Nerve())["v"] < 2e-5
    assert sizes(Microvolts())["v"] == pytest.approx(1e6 * sizes(Nerve())["v"])
    assert sizes(Heated())["u"] > 10


def test_what_joins_a_field_to_another_counts_where_nothing_else_does():
    left, right = sciml.Interval(x=(0, 1)), sciml.Interval(x=(1, 2))

    class Layers(sciml.Problem):
        domain = left | right
        fields = ["u", "v"]
        source = 0.0
        conditions = [
            sciml.Neumann(u=1e-7, on=domain.piece("x=0")),
            sciml.Dirichlet(v=0.0, on=domain.piece("x=2")),
        ]

        @sciml.equation(on=left)
        def first(self, u, x):
            return d(u, x, x)

        @sciml.equation(on=right)
        def second(self, v, x):
            return d(v, x, x) + self.source

        @sciml.condition(on=left.interface(right))
        def contact(self, u, v):
            return u - v

        @sciml.condition(on=left.interface(right))
        def flux(self, u, v, x):
            return d(u, x) - d(v, x)

    found = sizes(Layers())
    assert 1e-8 < found["u"] < 1e-6
    assert 1e-8 < found["v"] < 1e-6
    # A source of its own says more.
    assert sizes(Layers(source=1.0))["v"] > 1e-2


def test_the_tail_of_a_pulse_is_no_size():
    assert 0.1 < sizes(sciml.gallery.problem("wave_materials"))["v"] < 10


def test_a_condition_speaks_for_what_it_prescribes_alone():
    """An exchange of heat depends a little on how far a rod expands, which says nothing of how far it does."""

    class Expanding(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["T", "u"]
        conditions = [
            sciml.Dirichlet(T=100.0, u=0.0, on=domain.face(x=0)),
            sciml.Neumann(u=0.0, on=domain.face(x=1)),
        ]

        @sciml.equation
        def heat(self, T, x):
            return d(T, x, x)

        @sciml.equation
        def expansion(self, T, u, x):
            return d(u, x, x) - 1e-7 * d(T, x)

        @sciml.condition(on=domain.face(x=1))
        def exchange(self, T, u, x):
            return d(T, x) + 0.5 * (T - 20) * (1 + 1e-2 * u)

    assert sizes(Expanding())["u"] < 1e-3


def test_what_a_flux_drives_is_right_in_any_unit():
    volts, microvolts = sciml.fit(Nerve()), sciml.fit(Microvolts())
    assert volts.success
    assert microvolts.success
    x, t = np.array([0.0, 1e-4, 1e-3]), np.array([0.1, 0.02, 0.05])
    assert 1e6 * volts(x=x, t=t)["v"] == pytest.approx(microvolts(x=x, t=t)["v"], rel=1e-6)


class Cantilever(sciml.Problem):
    """A beam on a foundation that hardens, sheared at its free end, which alone would bend it by hundreds."""

    domain = sciml.Interval(x=(0, 10))
    fields = ["w"]
    power = 3
    conditions = [sciml.Dirichlet(w=0.0, on=domain.face(x=0)), sciml.Neumann(w=0.0, on=domain.face(x=0))]

    @sciml.condition(on=domain.face(x=10))
    def moment(self, w, x):
        return d(w, x, x)

    @sciml.condition(on=domain.face(x=10))
    def shear(self, w, x):
        return d(w, x, x, x) - 0.5

    @sciml.equation
    def bending(self, w, x):
        return d(w, x, x, x, x) + w + 5 * w**self.power - 3 * torch.exp(-4 * (x - 5) ** 2)


@pytest.mark.parametrize("power", [1, 3, 5])
def test_a_foundation_that_hardens_bounds_what_a_shear_drives(power):
    problem = Cantilever(power=power)
    (size,) = sizes(problem).values()
    assert size > 100 if power == 1 else 0.2 < size < 20

    def rates(x, w):
        return np.array([w[1], w[2], w[3], 3 * np.exp(-4 * (x - 5) ** 2) - w[0] - 5 * w[0] ** power])

    def ends(left, right):
        return np.array([left[0], left[1], right[2], right[3] - 0.5])

    x = np.linspace(0, 10, 101)
    mesh = np.linspace(0, 10, 401)
    reference = solve_bvp(rates, ends, mesh, np.zeros((4, 401)), tol=1e-9, max_nodes=100_000)
    solution = sciml.fit(problem)
    assert solution.success, solution.message
    np.testing.assert_allclose(solution(x=x)["w"], reference.sol(x)[0], atol=1e-7)


class Charged(sciml.Problem):
    """Ions beside a charged cylinder: their density grows exponentially with the potential."""

    domain = sciml.Disk((0, 0), 2, piece="outer") - sciml.Disk((0, 0), 1, piece="inner")
    fields = ["u"]
    conditions = [sciml.Neumann(u=6.0, on=domain.piece("inner")), sciml.Dirichlet(u=0.0, on=domain.piece("outer"))]

    @sciml.equation
    def poisson_boltzmann(self, u, x, y):
        return sciml.laplacian(u, x, y) - 4 * torch.sinh(u)


def test_an_exponential_law_bounds_what_a_flux_drives():
    (size,) = sizes(Charged()).values()
    assert 0.5 < size < 6


def test_a_condition_that_mostly_holds_by_itself_gives_no_size():
    class Masked(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.faces("y")), sciml.Dirichlet(u=0.0, on=domain.face(x=1))]

        @sciml.condition(on=domain.face(x=0))
        def heater(self, u, x, y):
            return torch.where(y < 0.3, d(u, x) - 1, 0 * u)

        @sciml.equation
        def laplace(self, u, x, y):
            return sciml.laplacian(u, x, y)

    assert sizes(Masked())["u"] > 0


def test_a_field_drives_the_next_one():
    class Chain(sciml.Problem):
        domain = sciml.Interval(t=(0, 2))
        fields = ["a", "b", "c"]
        conditions = [sciml.Initial(a=1e3, b=0.0, c=0.0)]

        @sciml.equation
        def first(self, a, t):
            return d(a, t) + a

        @sciml.equation
        def second(self, a, b, t):
            return d(b, t) - 1e-3 * a

        @sciml.equation
        def third(self, b, c, t):
            return d(c, t) - 1e-3 * b

    found = sizes(Chain())
    assert 0.1 < found["b"] < 10
    assert 1e-4 < found["c"] < 1e-2


def test_what_is_bounded_however_large_it_is_has_no_large_size():
    class Saturated(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u", "w"]
        conditions = [sciml.Initial(u=1.0, w=0.0)]

        @sciml.equation
        def first(self, u, w, t):
            return d(u, t) + 100 * u + torch.tanh(w)

        @sciml.equation
        def second(self, w, t):
            return d(w, t)

    assert 0 < sizes(Saturated())["w"] < 1e3


def test_what_nothing_drives_may_be_one():
    class Flat(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

        @sciml.equation
        def straight(self, u, x):
            return d(u, x, x)

    assert sizes(Flat()) == {"u": 1.0}


@pytest.mark.parametrize("size", [1e-9, 1e-3, 1e7])
def test_a_field_of_any_size_between_zeros(size):
    """From a size of one a cubic term led beyond all of it: zero was returned for fields of 1e-9, as a success on tiles."""

    def exact(x):
        return size * torch.sin(torch.pi * x) * (1 + x)

    class Small(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0)]

        def law(self, u, x):
            return d(u, x, x) - 20 * u * (u / size) ** 2 - 3 * u * torch.exp(-u / size)

        @sciml.equation
        def balance(self, u, x):
            return self.law(u, x) - self.law(exact(x), x)

        def reference(self, x):
            return exact(x)

    solution = sciml.fit(Small())
    assert solution.success
    assert solution.error()["u"] < 1e-10


class Explosion(sciml.Problem):
    """Heat by Arrhenius' law in a slab, below the critical rate (D. A. Frank-Kamenetskii, 1955), in metres and kelvins."""

    domain = sciml.Box(x=(0, 0.05), y=(0, 0.1))
    fields = ["T"]
    conditions = [
        sciml.Dirichlet(T=400.0, on=domain.face(x=0.05)),
        sciml.Neumann(T=0.0, on=domain.face(x=0)),
        sciml.Neumann(T=0.0, on=domain.faces("y")),
    ]
    rate = 0.8 * 400.0**2 / 12000 / 0.05**2

    @sciml.equation
    def heat(self, T, x, y):
        return sciml.laplacian(T, x, y) + self.rate * torch.exp(30 - 12000 / T)


class Pellet(sciml.Problem):
    """A reaction that heats the pores it happens in: concentration and temperature of a catalyst pellet (P. B. Weisz, 1962)."""

    domain = sciml.Interval(x=(0, 5e-3))
    fields = ["c", "T"]
    conditions = [
        sciml.Neumann(c=0.0, T=0.0, on=domain.face(x=0)),
        sciml.Dirichlet(c=50.0, T=450.0, on=domain.face(x=5e-3)),
    ]

    @sciml.equation
    def species(self, c, T, x):
        return 1e-6 * d(c, x, x) - 1e9 * torch.exp(-9000 / T) * c

    @sciml.equation
    def heat(self, c, T, x):
        return 0.2 * d(T, x, x) + 5e4 * 1e9 * torch.exp(-9000 / T) * c


def test_a_law_without_a_value_at_zero_is_solved_from_what_is_prescribed():
    assert workspace(Explosion()).discrete.sizes == {"T": (400.0, 400.0)}
    solution = sciml.fit(Explosion())
    assert solution.success

    def slopes(x, state):
        return np.array([state[1], -Explosion.rate * np.exp(30 - 12000 / state[0])])

    nodes = np.linspace(0, 0.05, 101)
    peer = solve_bvp(slopes, lambda a, b: [a[1], b[0] - 400], nodes, np.array([400 + 0 * nodes, 0 * nodes]), tol=1e-9)
    assert np.allclose(solution(x=nodes, y=0 * nodes + 0.03)["T"], peer.sol(nodes)[0], rtol=1e-8)


def test_surroundings_hold_a_field_away_from_zero():
    class Cooled(Explosion):
        domain = Explosion.domain
        conditions = [
            sciml.Robin(T=400.0 * 395, coefficient=400.0, on=domain.face(x=0.05)),
            sciml.Neumann(T=0.0, on=domain.face(x=0)),
            sciml.Neumann(T=0.0, on=domain.faces("y")),
        ]

    assert workspace(Cooled()).discrete.sizes["T"][0] == pytest.approx(395)
    assert sciml.fit(Cooled()).success


def test_fields_of_a_law_without_a_value_at_zero_are_no_free_ones():
    solution = sciml.fit(Pellet())
    assert solution.success, solution.message
    # By the two equations the heat and the species that diffuse are the same.
    found = solution(x=np.linspace(0, 5e-3, 11))
    assert np.allclose(0.2 * (found["T"] - 450), 5e4 * 1e-6 * (50 - found["c"]), rtol=0, atol=1e-8)
    assert found["T"][0] > 450.1


@pytest.mark.parametrize("law", [torch.log, torch.reciprocal, torch.sqrt], ids=["log", "reciprocal", "root"])
def test_laws_that_are_singular_at_zero_on_cut_tiles(law):
    class Plate(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.2)
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=lambda x, y: 1.5 + torch.sin(2 * x) * torch.cos(y), on=domain.boundary)]

        @sciml.equation
        def balance(self, u, x, y):
            wanted = 1.5 + torch.sin(2 * x) * torch.cos(y)
            return sciml.laplacian(u, x, y) - law(u) + 5 * (wanted - 1.5) + law(wanted)

    solution = sciml.fit(Plate(), strategy=sciml.strategies.Tiles(4, 8))
    assert solution.success, solution.message
    assert abs(solution(x=0.1, y=0.2)["u"] - 1.5 - math.sin(0.2) * math.cos(0.2)) < 1e-8


def test_an_equation_that_is_degenerate_at_zero_begins_where_a_field_is_held():
    """Groundwater between two rivers (J. Dupuit, 1863), in metres and seconds."""

    class Aquifer(sciml.Problem):
        domain = sciml.Interval(x=(0, 500))
        fields = ["h"]
        conditions = [sciml.Dirichlet(h=10.0, on=domain.face(x=0)), sciml.Dirichlet(h=6.0, on=domain.face(x=500))]

        @sciml.equation
        def recharge(self, h, x):
            return d(1e-5 * h * d(h, x), x) + 1e-8

    assert workspace(Aquifer()).discrete.sizes == {"h": (8.0, 10.0)}
    solution = sciml.fit(Aquifer(), strategy=sciml.strategies.Spectral())
    assert solution.success, solution.message
    x = np.linspace(0, 500, 21)
    assert np.allclose(solution(x=x)["h"] ** 2, 100 - 64 * x / 500 + 1e-3 * (500 - x) * x, rtol=1e-9)


@pytest.mark.parametrize("unit", [1.0, 1e22])
def test_what_joins_fields_holds_none_of_them(unit):
    """Two layers, in kelvins or in any other unit."""
    left, right = sciml.Interval(x=(0, 0.4)), sciml.Interval(x=(0.4, 1))

    class Layers(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u", "v"]
        conditions = [sciml.Dirichlet(u=400 * unit, on=domain.face(x=0)), sciml.Dirichlet(v=420 * unit, on=domain.face(x=1))]

        @sciml.equation(on=left)
        def first(self, u, x):
            return d(u, x, x) + 1e3 * unit * torch.exp(20 - 12000 * unit / u)

        @sciml.equation(on=right)
        def second(self, v, x):
            return 2 * d(v, x, x) + 1e3 * unit * torch.exp(20 - 12000 * unit / v)

        @sciml.condition(on=left.interface(right))
        def contact(self, u, v):
            return u - v

        @sciml.condition(on=left.interface(right))
        def flux(self, u, v, x):
            return d(u, x) - 2 * d(v, x)

    centres = {name: centre / unit for name, (centre, _) in workspace(Layers()).discrete.sizes.items()}
    assert centres == pytest.approx({"u": 400, "v": 420})
    assert sciml.fit(Layers()).success


class Rectifier(sciml.Problem):
    """A capacitor behind a diode, whose current is as steep as e^(v / 26 mV)."""

    domain = sciml.Interval(t=(0, 0.004))
    fields = ("v",)
    conditions = (sciml.Initial(v=0.0),)

    @sciml.equation
    def node(self, v, t):
        drop = 5 * torch.sin(100 * torch.pi * t) - v
        return 1e-5 * d(v, t) + v / 1e3 - 1e-9 * (torch.exp(drop / 0.0259) - 1)


class Periods(Rectifier):
    """The same over three periods."""

    domain = sciml.Interval(t=(0, 0.06))


def test_a_source_as_steep_as_the_current_of_a_diode_gives_a_size_where_it_acts():
    assert 1e-3 < sizes(Periods())["v"] < 50


@pytest.mark.slow
def test_a_law_as_steep_as_the_current_of_a_diode_is_solved():
    solution = sciml.fit(Rectifier())
    assert solution.success, solution.message

    def rate(t, v):
        return [(-v[0] / 1e3 + 1e-9 * np.expm1(min((5 * np.sin(100 * np.pi * t) - v[0]) / 0.0259, 300.0))) / 1e-5]

    exact = solve_ivp(rate, (0, 0.004), [0.0], "Radau", rtol=1e-10, atol=1e-12, max_step=1e-5, dense_output=True)
    t = np.linspace(0, 0.004, 101)
    assert np.abs(solution(t=t)["v"] - exact.sol(t)[0]).max() < 1e-5


def test_residuals_that_a_steep_law_hides_at_random_jets_are_told():
    made = workspace(Rectifier()).discrete
    assert made.natural["node"] > 1e10
    with torch.no_grad():
        # At 5 V nothing charges it, and what it should lose is next to nothing beside currents at random volts.
        for each in made.trial.model.parameters():
            each.zero_()
        made.trial.offset.fill_(5.0)
    assert Certificate.issue(made, 0.05).residuals["relative"]["node"] > 0.05


@pytest.mark.parametrize("waves", [1, 8])
def test_what_rounding_makes_of_a_prescribed_zero_is_no_size(waves):
    def exact(x, y):
        return torch.sin(waves * torch.pi * x) * torch.sin(waves * torch.pi * y)

    class Sines(sciml.Problem):
        """Prescribed is a wave that is zero on all sides, but for rounding."""

        domain = sciml.Box(x=(0, 1), y=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=exact)]

        @sciml.equation
        def poisson(self, u, x, y):
            return sciml.laplacian(u, x, y) + 2 * (waves * torch.pi) ** 2 * exact(x, y)

    assert 0.1 < sizes(Sines())["u"] < 1e3
    found = sciml.fit(Sines())
    assert found.success
    x, y = torch.rand(2, 500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert np.abs(found(x=x.numpy(), y=y.numpy())["u"] - exact(x, y).numpy()).max() < 1e-6


@pytest.mark.parametrize("begins", [0.0, 1e-16, -1e-12, 1e-3])
def test_a_value_that_no_source_can_leave_as_small_is_no_size(begins):
    class Driven(sciml.Problem):
        domain = sciml.Interval(t=(1, 2))
        fields = ["u"]
        conditions = [sciml.Initial(u=begins)]

        @sciml.equation
        def law(self, u, t):
            return d(u, t) + 2 - t

    found = sciml.fit(Driven())
    assert found.success
    assert float(found(t=2.0)["u"]) == pytest.approx(begins - 0.5, abs=1e-12)


def test_a_slow_flow_is_not_as_large_as_the_weight_that_pressure_bears_would_make_it():
    class Creeping(sciml.Problem):
        domain = sciml.Box(x=(0, 1), y=(0, 1))
        fields = ["u", "v", "p"]
        conditions = [sciml.Dirichlet(u=lambda y: 1e-12 * y, v=1e-12, on=domain.boundary), sciml.Mean(p=0.0)]

        @sciml.equation
        def along(self, u, p, x, y):
            return d(p, x) - sciml.laplacian(u, x, y)

        @sciml.equation
        def up(self, v, p, x, y):
            return d(p, y) - sciml.laplacian(v, x, y) + 1e4

        @sciml.equation
        def mass(self, u, v, x, y):
            return d(u, x) + d(v, y)

    found = sizes(Creeping())
    assert found["u"] == found["v"] == 1e-12


@pytest.mark.parametrize(
    "target",
    [lambda x: 30.0 * (x >= 1), lambda x: torch.where(x == 0, 0.0 * x, 0.0 * x + 30.0), lambda x: 30 * torch.floor(x)],
    ids=["from", "where", "floor"],
)
def test_a_value_that_jumps_at_the_end_is_no_rounding(target):
    class Heated(sciml.Problem):
        domain = sciml.Interval(x=(0, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=target)]

        @sciml.equation
        def law(self, u, x):
            return d(u, x, x) - torch.sinh(u)

    assert sizes(Heated()) == {"u": 30.0}


def test_an_equation_that_acts_on_a_part_of_the_time_outweighs_nothing():
    class Switched(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["u", "v"]
        conditions = [sciml.Initial(u=300.0, v=2.0)]

        @sciml.equation
        def heated(self, u, v, t):
            return (t < 0.3) * (d(u, t) - 1.0) + (t >= 0.3) * 0 * u

        @sciml.equation
        def decays(self, u, v, t):
            return d(v, t) + v * u * 1e-2

    assert sizes(Switched()) == {"u": 300.0, "v": 2.0}


def test_fields_in_other_units_are_no_tails():
    class Plasma(sciml.Problem):
        domain = sciml.Interval(t=(0, 1))
        fields = ["n", "T"]
        conditions = [sciml.Initial(n=1e20, T=1e5)]

        @sciml.equation
        def recombines(self, n, t):
            return d(n, t) + n

        @sciml.equation
        def cools(self, T, t):
            return d(T, t) + T

    assert sizes(Plasma()) == {"n": 1e20, "T": 1e5}
