"""The contract of a noise model: rows, score, curvature and density of one loss; sigma; the values that it refuses."""

import numpy as np
import pytest
import torch
from scipy import integrate

import sciml
from sciml.errors import DataError, ProblemError
from sciml.problem.noise import Noise, noise_of

MODELS = {
    "Normal": sciml.Normal(0.7),
    "Huber": sciml.Huber(0.7),
    "StudentT": sciml.StudentT(0.7, nu=3.0),
    "LogNormal": sciml.LogNormal(0.7),
    "Poisson": sciml.Poisson(),
}
DEVIATIONS = torch.tensor([-30.0, -2.0, -1.345, -0.5, -1e-3, 0.0, 1e-9, 0.3, 1.0, 5.0], dtype=torch.float64)
MEANS, COUNTS = (torch.tensor(each, dtype=torch.float64) for each in ([0.5, 2.0, 4.0, 9.0], [1.0, 2.0, 6.0, 3.0]))


@pytest.fixture(params=MODELS)
def noise(request):
    return MODELS[request.param]


def sigma_of(noise):
    return noise.sigma or 1.0


def loss(noise, means, measured=COUNTS):
    return noise.rows(noise.deviation(means, measured, sigma_of(noise))).square() / 2


def test_every_noise_model_is_held_by_this_contract():
    assert {type(each) for each in MODELS.values()} == set(Noise.__subclasses__())


def test_rows_scores_and_curvatures_belong_together(noise):
    z = DEVIATIONS.clone().requires_grad_()
    (slope,) = torch.autograd.grad((noise.rows(z).square() / 2).sum(), z, create_graph=True)
    assert torch.allclose(slope, noise.score(z), rtol=1e-12, atol=1e-14)
    inner = (z.detach().abs() - 1.345).abs() > 1e-6
    if noise.score(z) is z:  # a loss of squares
        assert bool((noise.curvature(z) == 1).all())
    else:
        (second,) = torch.autograd.grad(noise.score(z).sum(), z)
        assert torch.allclose(second[inner], noise.curvature(z)[inner], rtol=1e-12)
    (first,) = torch.autograd.grad(noise.rows(z).sum(), z)
    assert torch.isfinite(first).all()
    assert (first > 0).all()


def test_densities_integrate_to_one(noise):
    def density(y):
        at = torch.tensor([y], dtype=torch.float64)
        z = noise.deviation(torch.tensor([1.4], dtype=torch.float64), at, sigma_of(noise))
        return float(noise.log_density(z, at, sigma_of(noise)).exp())

    if isinstance(noise, sciml.Poisson):
        assert sum(density(float(count)) for count in range(40)) == pytest.approx(1.0, rel=1e-9)
    else:
        low = 0.0 if isinstance(noise, sciml.LogNormal) else -np.inf
        # LogNormal continues its deviation by a tangent where the model is below a hundredth of the measured value.
        high = 140.0 if isinstance(noise, sciml.LogNormal) else np.inf
        assert integrate.quad(density, low, high, limit=200)[0] == pytest.approx(1.0, rel=1e-6)


def test_the_loss_is_the_logarithm_of_the_density(noise):
    """Up to a term without the model's value."""
    other = MEANS.flip(0)
    found = [
        noise.log_density(noise.deviation(means, COUNTS, sigma_of(noise)), COUNTS, sigma_of(noise)) for means in (MEANS, other)
    ]
    assert torch.allclose(found[0] - found[1], loss(noise, other) - loss(noise, MEANS), rtol=1e-10, atol=1e-12)


def test_deviations_vanish_where_model_and_measurement_agree_and_grow_with_the_model(noise):
    assert torch.allclose(noise.deviation(COUNTS, COUNTS, sigma_of(noise)), torch.zeros(4).double(), atol=1e-12)
    means = torch.linspace(-1, 12, 60, dtype=torch.float64)
    z = noise.deviation(means, torch.full_like(means, 3.0), sigma_of(noise))
    assert bool((z.diff() > 0).all())


def test_values_that_were_measured_at_deviations_have_them(noise):
    if isinstance(noise, sciml.Poisson):
        return  # counts are drawn, and not shifted
    shift = np.array([-1.0, 0.2, 0.5, 2.0])
    measured = noise.measured(MEANS.numpy(), sigma_of(noise) * shift)
    z = noise.deviation(MEANS, torch.from_numpy(measured), sigma_of(noise))
    assert np.allclose(z.numpy(), shift, rtol=1e-12)


def test_squares_have_mean_one_where_the_noise_is_at_work(noise):
    rng = np.random.default_rng(0)
    model = np.full(40_000, 5.0)
    if isinstance(noise, sciml.Poisson):
        measured = rng.poisson(model).astype(float)
    else:
        measured = noise.measured(model, 0.7 * rng.normal(size=len(model)))
    tensors = torch.from_numpy(model), torch.from_numpy(measured)
    found = noise.squares(*tensors, noise.deviation(*tensors, sigma_of(noise)))
    if noise.robust:
        assert found is None
    else:
        squares, variances = found
        assert float(squares.mean()) == pytest.approx(1.0, abs=0.03)
        assert float(squares.var()) == pytest.approx(float(variances.mean()), rel=0.1)


def test_sigma_is_given_or_found(noise):
    assert noise.known
    assert noise.spread(COUNTS) > 0
    assert noise.spread(COUNTS[:0]) == 0.0
    if isinstance(noise, sciml.Poisson):
        with pytest.raises(ProblemError, match="no sigma"):
            noise.with_sigma(2.0)
        return
    unknown = type(noise)()
    assert not unknown.known
    assert unknown.with_sigma(0.3).known
    z = 2.5 * torch.from_numpy(np.random.default_rng(1).normal(size=4000))
    assert unknown.estimate(2 * z, len(z)) == pytest.approx(2 * unknown.estimate(z, len(z)), rel=1e-6)
    for wrong in (0.0, -1.0, float("nan"), True):
        with pytest.raises(ProblemError, match="positive number"):
            type(noise)(wrong)


def test_what_it_takes_and_refuses(noise):
    noise.check("u", COUNTS.numpy())
    assert noise_of(noise) is noise
    if isinstance(noise, sciml.LogNormal | sciml.Poisson):
        with pytest.raises(DataError, match="u: 1 value"):
            noise.check("u", np.array([2.0, -1.0]))
    with pytest.raises(ProblemError, match="a class: call it"):
        noise_of(type(noise))


def test_it_is_a_value(noise):
    again = eval(repr(noise), vars(sciml.noise) | {name: getattr(sciml, name) for name in MODELS})
    assert again == noise
    assert hash(again) == hash(noise)
    with pytest.raises(AttributeError):
        noise.sigma = 3.0
