"""Operators: families, samples, pairs, surrogates and what is done with them."""

import numpy as np
import pytest
import torch

import sciml
from sciml import d, operators
from sciml.operators.codes import PrincipalComponents
from sciml.operators.fourier import SpectralConvolution
from sciml.operators.pairs import relative_errors


class Rod(sciml.Problem):
    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    time = None
    k = 1.0
    load = None
    conditions = [sciml.Dirichlet(u=0.0)]

    @sciml.equation
    def balance(self, u, x):
        return -self.k * d(u, x, x) - self.load(x)


class Advection(sciml.Problem):
    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    speed = 1.0
    conditions = [sciml.Initial(u=0.0), sciml.Periodic("x")]

    @sciml.equation
    def motion(self, u, x, t):
        return d(u, t) + self.speed * d(u, x)


def rods():
    return operators.Family(Rod(), load=operators.GaussianField(sigma=20.0, tau=3.0, alpha=2.0, modes=8), k=(0.5, 2.0))


def exact(problem):
    """A stand-in for a solver: the solution of a rod by its polynomials."""
    return sciml.fit(problem, strategy=sciml.strategies.Spectral(24), progress=False)


@pytest.fixture(scope="module")
def pairs():
    return operators.sample(rods(), 150, grid={"x": 33}, input_grid={"x": 33}, how=exact)


@pytest.fixture(scope="module")
def surrogate(pairs):
    return sciml.fit(pairs)


def shifts(count=80, points=32, seed=0):
    x = np.arange(points) / points
    weights = np.random.default_rng(seed).normal(size=(count, 5))
    waves = np.stack([np.ones(points), *(each(2 * np.pi * k * x) for k in (1, 2) for each in (np.sin, np.cos))])
    f = weights @ waves
    return operators.Pairs({"f": f}, {"u": np.roll(f, 8, axis=1)}, {"x": x}, {"f": {"x": x}}, periodic=("x",))


# Random fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", [True, False])
def test_a_gaussian_field_has_the_variance_of_its_covariance(around):
    field = operators.GaussianField(sigma=2.0, tau=3.0, alpha=1.0, periodic=around, modes=32)
    x, bounds = np.linspace(0, 1, 9)[:-1], {"x": (0.0, 1.0)}
    drawn = np.stack([field.draw(bounds, np.random.default_rng(k)).on_grid(x) for k in range(4000)])
    length = 2 * np.pi if around else np.pi
    k = np.arange(1, 33) if around else np.arange(1, 32)
    squares = 2.0 if around else 2 * np.cos(np.pi * np.outer(k, x)) ** 2
    terms = 4.0 * (length**2 * k[:, None] ** 2 + 9.0) ** -1.0
    wanted = 4.0 / 9.0 + (terms * squares).sum(axis=0)
    assert np.allclose(drawn.var(axis=0), wanted, rtol=0.12)


def test_a_function_is_the_same_at_points_on_a_grid_and_in_a_batch():
    field = operators.GaussianField(alpha=2.0, modes=6, mean=1.0, transform=torch.exp)
    bounds = {"x": (0.0, 2.0), "y": (-1.0, 1.0)}
    f, g = (field.draw(bounds, np.random.default_rng(k)) for k in (0, 1))
    x, y = np.linspace(0, 2, 5), np.linspace(-1, 1, 4)
    mesh = [torch.from_numpy(each.ravel()) for each in np.meshgrid(x, y, indexing="ij")]
    assert np.allclose(f.on_grid(x, y).ravel(), f(*mesh).numpy())
    both = torch.from_numpy(np.stack([f.weights] * 10 + [g.weights] * 10))
    assert torch.allclose(f.many(both, *mesh), torch.cat([f(*(each[:10] for each in mesh)), g(*(each[10:] for each in mesh))]))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sigma": 0.0}, "sigma must be a positive number"),
        ({"tau": 0.0}, "tau must be positive"),
        ({"boundary": "robin"}, "'neumann' or 'dirichlet'"),
    ],
)
def test_fields_that_are_none_are_refused(wrong, said):
    with pytest.raises(sciml.errors.ProblemError, match=said):
        operators.GaussianField(**wrong)


def test_a_field_that_is_too_rough_is_refused():
    with pytest.raises(sciml.errors.ProblemError, match="only distributions"):
        operators.GaussianField(alpha=1.0).draw({"x": (0, 1), "y": (0, 1)}, np.random.default_rng(0))


# Families ---------------------------------------------------------------------------------------------------------------


def test_a_sample_of_a_family_is_a_problem_like_any_other():
    solution = sciml.fit(rods().problem(load=lambda x: 2.0 + 0 * x, k=0.5), progress=False)
    assert abs(float(solution(x=0.5)["u"]) - 0.5) < 1e-9


def test_initial_values_and_speeds_vary():
    family = operators.Family(Advection(), initial={"u": operators.GaussianField(periodic=True)}, speed=(0.5, 1.5))
    solution = sciml.fit(family.problem(initial={"u": lambda x: torch.sin(2 * torch.pi * x)}, speed=0.7), progress=False)
    assert abs(float(solution(x=0.4, t=1.0)["u"]) - np.sin(2 * np.pi * (0.4 - 0.7))) < 1e-6
    assert family.base.conditions[0].targets == {"u": 0.0}, "the problem itself is not changed"


def test_values_on_nodes_are_as_good_as_a_function():
    family = operators.Family(Advection(), initial={"u": operators.GaussianField(periodic=True)})
    x = np.arange(64) / 64
    problem = family.problem(initial={"u": np.sin(2 * np.pi * x)})
    at = torch.linspace(0, 1, 101, dtype=torch.float64)
    (start, *_) = problem.conditions
    assert float((start.targets["u"](at) - torch.sin(2 * torch.pi * at)).abs().max()) < 1e-7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "varies nothing"),
        ({"initial": {"u": operators.GaussianField()}}, "no initial values of 'u'"),
        ({"q": (0, 1)}, "no constant 'q'"),
        ({"k": (2, 1)}, "low < high"),
        ({"source": operators.GaussianField()}, "source = None"),
    ],
)
def test_families_that_vary_what_is_not_there_are_refused(given, said):
    with pytest.raises(sciml.errors.ProblemError, match=said):
        operators.Family(Rod(), **given)


def test_inputs_that_are_missing_are_named():
    with pytest.raises(sciml.errors.ProblemError, match="'load', 'k'; given: 'k'"):
        rods().problem(k=1.0)


# Samples ----------------------------------------------------------------------------------------------------------------


def test_samples_do_not_depend_on_their_number(pairs):
    few = operators.sample(rods(), 3, grid={"x": 33}, input_grid={"x": 33}, how=exact)
    assert np.array_equal(few.outputs["u"], pairs.outputs["u"][:3])


def test_what_was_solved_is_on_disk_and_not_solved_again(tmp_path):
    count = [0]

    def fails_at_the_third(problem):
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return exact(problem)

    def goes_on(problem):
        count[0] += 1
        return exact(problem)

    goes_on.__name__ = fails_at_the_third.__name__
    options = {"grid": {"x": 17}, "out": tmp_path / "pairs.h5"}
    with pytest.raises(KeyboardInterrupt):
        operators.sample(rods(), 4, how=fails_at_the_third, **options)
    assert len(list((tmp_path / "pairs.h5.parts").glob("*.npz"))) == 2
    found = operators.sample(rods(), 4, how=goes_on, **options)
    assert count[0] == 5
    assert not (tmp_path / "pairs.h5.parts").exists()
    again = operators.read(tmp_path / "pairs.h5", family=rods())
    assert np.array_equal(again.outputs["u"], found.outputs["u"])
    assert again.input_axes["k"] == {}


def test_parts_of_other_samples_are_refused(tmp_path):
    def stops(problem):
        raise KeyboardInterrupt

    for seed, wanted in ((0, KeyboardInterrupt), (1, sciml.errors.FileError)):
        with pytest.raises(wanted):
            operators.sample(rods(), 2, how=stops, seed=seed, out=tmp_path / "pairs.h5")


def test_failures_are_kept_with_their_reason():
    def sometimes(problem):
        if problem.k > 1:
            raise sciml.errors.SolverError("too stiff")
        return exact(problem)

    found = operators.sample(rods(), 8, how=sometimes)
    assert 0 < len(found.failures) < 8
    assert len(found) == 8 - len(found.failures)
    assert set(found.failures.values()) == {"SolverError: too stiff"}
    with pytest.raises(sciml.errors.SolverError, match="none of 2 samples"):
        operators.sample(rods(), 2, how=lambda problem: sometimes(problem.bind(k=2.0)))


@pytest.mark.slow
def test_processes_find_the_same_samples(pairs):
    pytest.importorskip("joblib")
    found = operators.sample(rods(), 4, grid={"x": 33}, input_grid={"x": 33}, how="fit", workers=2)
    assert np.allclose(found.outputs["u"], pairs.outputs["u"][:4], atol=1e-8)


# Pairs ------------------------------------------------------------------------------------------------------------------


def test_pairs_that_do_not_belong_together_are_refused():
    x = np.linspace(0, 1, 4)
    with pytest.raises(sciml.errors.DataError, match="a 3, u 2"):
        operators.Pairs({"a": np.ones(3)}, {"u": np.ones((2, 4))}, {"x": x}, {"a": {}})
    with pytest.raises(sciml.errors.DataError, match=r"\(4,\); it has \(5,\)"):
        operators.Pairs({"a": np.ones(3)}, {"u": np.ones((3, 5))}, {"x": x}, {"a": {}})


def test_samples_that_are_not_finite_are_named():
    pairs = shifts()
    pairs.inputs["f"][7, 3] = np.nan
    with pytest.raises(sciml.errors.DataError, match="numbers 7"):
        sciml.fit(pairs, operators.Linear())


def test_too_few_pairs_are_refused():
    with pytest.raises(sciml.errors.DataError, match="8 pairs or more; given: 5"):
        sciml.fit(shifts(5))


def test_options_that_mean_nothing_are_refused():
    with pytest.raises(sciml.errors.SolverError, match="windows"):
        sciml.fit(shifts(), windows=3)
    with pytest.raises(sciml.errors.ModelError, match="given: MLP"):
        sciml.fit(shifts(), sciml.MLP(8))


# Closed forms -----------------------------------------------------------------------------------------------------------


def test_a_linear_map_is_found_to_rounding():
    found = sciml.fit(shifts(), operators.Linear())
    assert found.error < 1e-10
    assert found.success
    assert set(found.errors.index) == {"training mean", "nearest neighbour", "Linear"}


def test_components_keep_what_varies():
    rows = np.random.default_rng(0).normal(size=(30, 3)) @ np.random.default_rng(1).normal(size=(3, 50))
    code = PrincipalComponents(rows)
    assert code.count == 3
    assert np.allclose(code.decode(code.encode(rows)), rows)
    assert abs(float(np.mean(code.distance(rows) ** 2)) - 29 / 30) < 1e-12
    assert code.distance(10 * rows).min() > code.distance(rows).min()


@pytest.mark.parametrize("kind", ["matern", "rbf", "rational"])
def test_kernels_learn_a_nonlinear_map_and_know_their_error(kind):
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 25)
    a = rng.normal(size=(300, 3))
    u = np.tanh(a[:, :1] * x + 0.5 * a[:, 1:2] ** 2 - a[:, 2:] * x**2)
    given = operators.Pairs({f"a{k}": a[:, k] for k in range(3)}, {"u": u}, {"x": x}, {f"a{k}": {} for k in range(3)})
    train, held = given[:240], given[240:]
    found = sciml.fit(train, operators.Kernel(kind))
    errors = relative_errors(found.predict(held.inputs), held.wanted())
    assert np.median(errors) < 0.1 * found.errors.loc["Linear", "median"]
    values, spread = found.model.predict(held.inputs)
    inside = np.mean(np.abs(values - held.wanted()) <= 2 * spread)
    assert 0.85 <= inside <= 1.0
    far = {name: 4 * each for name, each in held.inputs.items()}
    assert found.model.predict(far)[1].mean() > 2 * spread.mean()


# Surrogates -------------------------------------------------------------------------------------------------------------


def test_the_best_is_chosen_beside_the_baselines(surrogate):
    assert surrogate.success, surrogate
    assert list(surrogate.errors.index[:3]) == ["training mean", "nearest neighbour", "Linear"]
    assert surrogate.error == surrogate.errors["mean"].iloc[2:].min()
    assert any("not tried" in each for each in surrogate.choices)


def test_a_prediction_is_a_function_with_a_standard_error(surrogate):
    problem = rods().problem(load=lambda x: 3 * torch.cos(2 * x), k=1.2)
    truth, found = exact(problem), surrogate(load=lambda x: 3 * torch.cos(2 * x), k=1.2)
    x = np.linspace(0.1, 0.9, 7)
    size = np.abs(truth(x=x)["u"]).max()
    assert np.abs(found(x=x)["u"] - truth(x=x)["u"]).max() < 0.1 * size
    assert (found.standard_error(x=x)["u"] > 0).all()
    with pytest.raises(sciml.errors.ProblemError, match="function of 'x'"):
        found(y=x)
    with pytest.raises(sciml.errors.ProblemError, match=r"inputs are 'load', 'k'"):
        surrogate(k=1.0)


def test_a_prediction_is_corrected_by_the_equation(surrogate):
    problem = rods().problem(load=lambda x: 3 * torch.cos(2 * x), k=1.2)
    found = surrogate(load=lambda x: 3 * torch.cos(2 * x), k=1.2).correct()
    x = np.linspace(0, 1, 21)
    assert found.success
    assert np.abs(found(x=x)["u"] - exact(problem)(x=x)["u"]).max() < 1e-9
    assert "corrected from a prediction" in found.choices[0]


def test_a_prediction_teaches_and_begins_fits(surrogate):
    problem = rods().problem(load=lambda x: 3 * torch.cos(2 * x), k=1.2)
    found = surrogate(load=lambda x: 3 * torch.cos(2 * x), k=1.2)
    begun = found.solution(12)
    x = np.linspace(0.05, 0.95, 9)
    assert np.abs(begun(x=x)["u"] - found(x=x)["u"]).max() < 1e-3
    assert not begun.success
    again = sciml.fit(problem, start=begun)
    assert np.abs(again(x=x)["u"] - exact(problem)(x=x)["u"]).max() < 1e-8
    learned = sciml.fit(problem, sciml.MLP(6), teacher=begun)
    assert np.abs(learned(x=x)["u"] - found(x=x)["u"]).max() < 0.05


def test_inputs_are_embedded_and_predictions_drawn(surrogate, pairs):
    frame = sciml.embed(surrogate, pairs.inputs)
    assert len(frame) == len(pairs)
    assert np.allclose(frame.std().mean(), 1.0, atol=0.2)
    found = surrogate(load=lambda x: 3 * torch.cos(2 * x), k=1.2)
    titles = [axes.get_title() for axes in found.plot(found.correct()).axes]
    assert titles == ["input load", "prediction of u", "error of u"]


def test_without_a_family_there_is_nothing_to_correct_by():
    found = sciml.fit(shifts(), operators.Linear())
    with pytest.raises(sciml.errors.ProblemError, match="no family"):
        found(f=np.zeros(32)).correct()


def test_inputs_far_from_training_are_warned_of(surrogate):
    near = surrogate(load=lambda x: torch.cos(2 * x), k=1.2)
    with pytest.warns(sciml.errors.ExtrapolationWarning, match="times as far"):
        far = surrogate(load=lambda x: 1e4 * torch.cos(2 * x), k=1.2)
    assert far.distance > 1.5 > near.distance
    assert np.mean(far.spread) > 10 * np.mean(near.spread)


def test_what_is_not_finite_is_refused(surrogate):
    with pytest.raises(sciml.errors.DataError, match="not finite"):
        surrogate(load=lambda x: x / 0, k=1.0)


NETWORKS = {
    "DeepONet": operators.DeepONet(24, 2, 16),
    "PODDeepONet": operators.PODDeepONet(24, 2, 8),
    "FNO": operators.FNO(4, 8, 2),
    "UNet": operators.UNet(8, 1),
    "Transformer": operators.Transformer(16, 1, 2, 4),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_learn_save_and_answer(name, tmp_path):
    solver = sciml.FirstOrder(torch.optim.AdamW, 150, lr=3e-3, batch=20)
    found = sciml.fit(shifts(), NETWORKS[name], solver=solver, seed=1)
    assert found.error < 0.9 * found.errors.loc["training mean", "mean"]
    assert len(found.history)
    path = found.save(tmp_path / "map.pt")
    again = operators.load(path)
    f = shifts(1, seed=5).inputs["f"][0]
    assert np.array_equal(again(f=f).values, found(f=f).values)
    same = sciml.fit(shifts(), NETWORKS[name], solver=solver, seed=1)
    assert np.array_equal(same(f=f).values, found(f=f).values), "the same call gives the same bits"


class Counted(torch.optim.AdamW):
    """AdamW that counts its steps."""

    taken = 0

    def step(self, *given):
        type(self).taken += 1
        return super().step(*given)


def test_a_training_that_was_interrupted_goes_on_to_the_same_bits(tmp_path):
    solver = sciml.FirstOrder(Counted, 40, lr=3e-3, batch=20, look=5)
    Counted.taken = 0
    whole = sciml.fit(shifts(), NETWORKS["FNO"], solver=solver)
    looks = []

    def stops(report):
        looks.append(report.step)
        if len(looks) == 5:
            raise RuntimeError("the machine stops")

    options = {"solver": solver, "out": tmp_path / "run", "checkpoint": sciml.runs.CheckpointEvery(steps=1)}
    with pytest.raises(RuntimeError, match="the machine stops"):
        sciml.fit(shifts(), NETWORKS["FNO"], callbacks=[stops], **options)
    assert (tmp_path / "run" / "checkpoint.pt").exists()
    with pytest.raises(sciml.errors.FileError, match=r"another fit \('pairs', 'seed' differ"):
        sciml.fit(shifts(), NETWORKS["FNO"], seed=1, resume=True, **options)
    Counted.taken = 0
    again = sciml.fit(shifts(), NETWORKS["FNO"], resume=True, **options)
    assert 0 < Counted.taken < solver.steps, "what was done before is not done again"
    f = shifts(1, seed=5).inputs["f"][0]
    assert np.array_equal(again(f=f).values, whole(f=f).values)
    assert not (tmp_path / "run" / "checkpoint.pt").exists()
    assert np.array_equal(operators.load(tmp_path / "run" / "surrogate.pt")(f=f).values, whole(f=f).values)


def test_a_spectral_convolution_is_the_convolution_with_its_kernel():
    kernel = torch.randn(1, 1, 12, 10, generator=torch.Generator().manual_seed(0))
    coefficients = torch.fft.rfftn(kernel, dim=(2, 3))
    # Frequencies from -4 to 3 along the first dimension, those of both signs have weights of their own.
    layer = SpectralConvolution(1, (4, 3), torch.Generator().manual_seed(1)).to(torch.float64)
    kept = torch.cat([coefficients[:, :, :4, :3], coefficients[:, :, -4:, :3]], dim=2)
    with torch.no_grad():
        layer.weight.copy_(torch.view_as_real(kept))
    values = torch.randn(2, 1, 12, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    smooth = torch.zeros_like(coefficients)
    smooth[:, :, :4, :3], smooth[:, :, -4:, :3] = kept[:, :, :4], kept[:, :, 4:]
    smooth = torch.fft.irfftn(smooth, s=(12, 10), dim=(2, 3)).double()
    places = [(i, j) for i in range(12) for j in range(10)]
    direct = sum(smooth[:, :, i, j, None, None] * values.roll((i, j), dims=(2, 3)) for i, j in places)
    assert torch.allclose(layer(values), direct, atol=1e-5)


def test_closed_forms_are_saved(surrogate, tmp_path):
    again = operators.load(surrogate.save(tmp_path / "rod.pt"), rods())
    inputs = {"load": lambda x: torch.cos(3 * x), "k": 0.9}
    one, two = surrogate(**inputs), again(**inputs)
    assert np.array_equal(one.values, two.values)
    assert np.array_equal(one.spread, two.spread)
    with pytest.raises(sciml.errors.FileError, match=r"varies initial\.u"):
        operators.load(
            tmp_path / "rod.pt", operators.Family(Advection(), initial={"u": operators.GaussianField(periodic=True)})
        )


def test_a_solution_is_no_surrogate(tmp_path):
    path = exact(rods().problem(load=lambda x: 1 + 0 * x, k=1.0)).save(tmp_path / "rod.pt")
    with pytest.raises(sciml.errors.FileError, match="no surrogate"):
        operators.load(path)


def test_another_resolution_is_given_or_refused():
    solver = sciml.FirstOrder(torch.optim.AdamW, 300, lr=3e-3, batch=20)
    fine = shifts(1, 64, seed=3)
    for name in ("FNO", "DeepONet", "Transformer"):
        found = sciml.fit(shifts(), NETWORKS[name], solver=solver)
        values = found(f=fine.inputs["f"][0][::2], grid={"x": 64})
        assert values.values.shape == (64, 1)
        assert np.allclose(values.values[::2], found(f=fine.inputs["f"][0][::2]).values, atol=0.5)
    for name in ("UNet", "PODDeepONet"):
        found = sciml.fit(shifts(), NETWORKS[name], solver=sciml.FirstOrder(torch.optim.AdamW, 2, batch=20))
        with pytest.raises(sciml.errors.ModelError, match="grid of its training alone"):
            found(f=fine.inputs["f"][0][::2], grid={"x": 64})


def test_complex_weights_are_counted_as_two_numbers_each():
    from sciml.operators.fourier import SpectralConvolution

    layer = SpectralConvolution(3, (5, 4), torch.Generator())
    assert sum(each.numel() for each in layer.parameters()) == 3 * 3 * 10 * 4 * 2


def test_a_spectral_convolution_is_the_same_function_on_any_grid():
    from sciml.operators.fourier import SpectralConvolution

    layer = SpectralConvolution(2, (3, 3), torch.Generator().manual_seed(0)).double()

    def on(count):
        x = torch.arange(count, dtype=torch.float64) / count
        one = torch.sin(2 * torch.pi * x)[:, None] * torch.cos(2 * torch.pi * x)
        two = torch.cos(4 * torch.pi * x)[:, None] + torch.sin(2 * torch.pi * x)
        return layer(torch.stack([one, two])[None])

    assert torch.allclose(on(12), on(24)[..., ::2, ::2])


def test_scattered_points_are_served():
    rng = np.random.default_rng(0)
    points, a = rng.uniform(size=(60, 2)), rng.uniform(0.5, 2, size=100)
    u = np.sin(a[:, None] * points[:, 0] + points[:, 1])
    pairs = operators.Pairs({"a": a}, {"u": u}, {}, {"a": {}}, points=points)
    assert sciml.fit(pairs).error < 1e-3
    solver = sciml.FirstOrder(torch.optim.AdamW, 150, lr=3e-3, batch=20)
    assert sciml.fit(pairs, NETWORKS["Transformer"], solver=solver).error < 0.3
    f = np.cos(a[:, None] * points[:, 0] ** 2)
    pairs = operators.Pairs({"f": f}, {"u": f**2}, {}, {}, points=points)
    found = sciml.fit(pairs, NETWORKS["Transformer"], solver=solver)
    assert found.error < found.errors.loc["training mean", "mean"]
    assert found(f=f[0]).values.shape == (60, 1)
    x = np.linspace(0, 1, 7)
    pairs = operators.Pairs({"f": a[:, None] * x}, {"u": u}, {}, {"f": {"x": x}}, points=points)
    with pytest.raises(sciml.errors.ModelError, match="scattered points: take Kernel"):
        sciml.fit(pairs, NETWORKS["Transformer"], solver=solver)
    assert sciml.fit(pairs, operators.Kernel()).error < 1e-2


def test_no_more_is_read_than_memory_holds(tmp_path, monkeypatch):
    from sciml.operators import selection

    path = shifts().save(tmp_path / "pairs.h5")
    found = operators.read(path, lazy=True)
    monkeypatch.setattr(selection, "free_bytes", lambda: int(30 * found.nbytes / len(found) / 0.15))
    surrogate = sciml.fit(found, operators.Linear())
    assert any("memory holds 30 of 72 pairs" in each for each in surrogate.choices)
    assert surrogate.error < 1e-9


def test_progress_is_shown_where_it_is_asked_for(capsys):
    sciml.fit(shifts(), NETWORKS["FNO"], solver=sciml.FirstOrder(torch.optim.AdamW, 60, batch=20), progress=True)
    assert "AdamW" in capsys.readouterr().err


# Roll-outs --------------------------------------------------------------------------------------------------------------


def test_a_step_is_repeated():
    found = sciml.fit(shifts(), operators.Linear())
    state = shifts(1, seed=9).inputs["f"][0]
    rolled = found.roll(state, 4)
    assert rolled.shape == (5, 32, 1)
    assert np.allclose(rolled[4, :, 0], state, atol=1e-8), "four quarters of the circle"


def test_a_recurrence_goes_on_beyond_its_training():
    x, t = np.arange(24) / 24, np.arange(6) * 0.05
    phase = np.random.default_rng(0).uniform(0, 1, 120)
    f = np.sin(2 * np.pi * (x + phase[:, None]))
    u = np.sin(2 * np.pi * (x[:, None] + phase[:, None, None] - t))
    pairs = operators.Pairs({"f": f}, {"u": u}, {"x": x, "t": t}, {"f": {"x": x}}, periodic=("x",))
    solver = sciml.FirstOrder(torch.optim.AdamW, 400, lr=5e-3, batch=30)
    found = sciml.fit(pairs, operators.Recurrent(32, 4), solver=solver)
    assert found.error < 0.1
    rolled = found.roll(f[0], 9)
    assert rolled.shape == (10, 24, 1)
    assert np.linalg.norm(rolled[9, :, 0] - np.sin(2 * np.pi * (x + phase[0] - 0.45))) < 0.3 * np.linalg.norm(f[0])


# Files of others --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["npz", "pt", "mat", "h5"])
def test_arrays_of_others_are_read(kind, tmp_path):
    import h5py
    import scipy.io

    pairs, path = shifts(), tmp_path / f"theirs.{kind}"
    arrays = {"before": pairs.inputs["f"], "after": pairs.outputs["u"], "place": pairs.axes["x"]}
    if kind == "npz":
        np.savez(path, **arrays)
    elif kind == "pt":
        torch.save({name: torch.from_numpy(each) for name, each in arrays.items()}, path)
    elif kind == "mat":
        scipy.io.savemat(path, arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, each in arrays.items():
                file[name] = each
    found = operators.read(path, inputs={"f": "before"}, outputs={"u": "after"}, grid={"x": "place"})
    assert np.array_equal(found[:].outputs["u"], pairs.outputs["u"])
    assert np.array_equal(found.axes["x"], pairs.axes["x"])
    with pytest.raises(sciml.errors.DataError, match="no array 'befor'"):
        operators.read(path, inputs="befor", outputs="after", grid={"x": "place"})
    with pytest.raises(sciml.errors.DataError, match="must name the 1 coordinates"):
        operators.read(path, inputs="before", outputs="after")


def test_arrays_may_stay_in_their_file(tmp_path):
    path = shifts().save(tmp_path / "pairs.h5")
    found = operators.read(path, lazy=True)
    assert not isinstance(found.inputs["f"], np.ndarray)
    assert np.array_equal(found[[5, 2]].outputs["u"], shifts().outputs["u"][[5, 2]])
    assert sciml.fit(found, operators.Linear()).error < 1e-10


def test_published_layouts_are_pairs(tmp_path):
    import h5py

    x, t = np.linspace(0, 1, 8), np.linspace(0, 1, 5)
    values = np.random.default_rng(0).normal(size=(6, 5, 8))
    with h5py.File(tmp_path / "burgers.h5", "w") as file:
        file["tensor"], file["x-coordinate"], file["t-coordinate"] = values, x, t
    found = operators.read(tmp_path / "burgers.h5")
    assert np.array_equal(found.inputs["initial.tensor"], values[:, 0])
    assert np.array_equal(found.outputs["tensor"], values[:, 1:])
    assert np.array_equal(found.axes["t"], t[1:])
    with h5py.File(tmp_path / "darcy.h5", "w") as file:
        file["tensor"], file["nu"] = np.ones((4, 1, 8, 8)), np.full((4, 8, 8), 2.0)
        file["x-coordinate"], file["y-coordinate"] = x, x
    found = operators.read(tmp_path / "darcy.h5")
    assert found.inputs["nu"].shape == found.outputs["tensor"].shape == (4, 8, 8)


# The equation in training and in inversion ------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_operator_learns_from_residuals_alone():
    family = operators.Family(Rod(), load=operators.GaussianField(sigma=20.0, tau=3.0, alpha=2.0, modes=4))
    found = sciml.fit(family, operators.DeepONet(48, 3, 32), solver=sciml.Adam(2500, 3e-3, batch=32), seed=0)
    assert found.errors.loc["DeepONet", "median"] < 0.15, found
    assert found(load=lambda x: torch.cos(2 * x)).correct().success


def test_residuals_of_an_operator_are_those_of_its_problems():
    """The rows of many inputs at once are what each problem's own residuals are for the same function."""
    from sciml.operators.physics import Setup
    from sciml.problem.conditions import Evaluation

    family = operators.Family(Advection(), initial={"u": operators.GaussianField(periodic=True, modes=5)}, speed=(0.5, 1.5))
    drawn = [family.draw(np.random.default_rng(k)) for k in range(10)]
    setup = Setup(family, operators.DeepONet(8, 2, 4), drawn, 12, 0, None)
    for block in setup.train:
        number = int(block.sample.points[0][0, 0])
        one = block.part(torch.tensor([0]))
        shared, suppliers = setup.rows.evaluation(one)
        for term in one.terms:
            stated = {each.name: each for each in family.posed(drawn[number]).terms()}[term.name]
            inner = shared.inner
            bound = family.posed(drawn[number])
            points = tuple(torch.stack(list(space.coordinates.values()), dim=1).detach() for space in inner.spaces)
            own = Evaluation.of(bound, points, suppliers, inner.normals)
            wanted = stated.evaluate(own).square().mean().sqrt()
            assert torch.allclose(term.evaluate(shared)[0], wanted, rtol=1e-10), term.name


def test_an_input_is_found_from_measured_outputs(surrogate):
    x, rng = np.linspace(0.05, 0.95, 25), np.random.default_rng(3)
    hidden = rods().draw(rng)
    data = {"x": x, "u": exact(rods().posed(hidden))(x=x)["u"] + 1e-4 * rng.normal(size=25)}
    found = operators.identify(surrogate, data, noise=1e-4, modes=8)
    assert found.success, found
    at = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)
    gap = found.inputs["load"](at) / found.inputs["k"] - hidden["load"](at) / hidden["k"]
    assert float(gap.abs().max()) < 0.5
    assert found.standard_error("k") > 0.05, "only the ratio of load and conductivity is determined"
    assert (found.standard_error("load", x=at.numpy()) > 0).all()
    with pytest.raises(sciml.errors.DataError, match="lack 'x'"):
        operators.identify(surrogate, {"u": x}, noise=0.1)
