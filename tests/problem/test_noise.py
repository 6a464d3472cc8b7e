"""Noise models: rows, scores and densities against each other and against SciPy's."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import sciml
from sciml.errors import DataError, ProblemError
from sciml.problem.noise import noise_of

NORMAL, HUBER, STUDENT = sciml.Normal(1.0), sciml.Huber(1.0), sciml.StudentT(1.0, nu=3.0)
DEVIATIONS = torch.tensor([-30.0, -2.0, -1.345, -0.5, -1e-3, 0.0, 1e-9, 0.3, 1.0, 5.0], dtype=torch.float64)


@pytest.mark.parametrize("noise", [NORMAL, HUBER, STUDENT], ids=lambda noise: type(noise).__name__)
def test_rows_scores_and_curvatures_belong_together(noise):
    z = DEVIATIONS.clone().requires_grad_()
    loss = noise.rows(z).square() / 2
    (slope,) = torch.autograd.grad(loss.sum(), z, create_graph=True)
    assert torch.allclose(slope, noise.score(z), rtol=1e-12, atol=1e-14)
    inner = (z.detach().abs() - 1.345).abs() > 1e-6
    (second,) = torch.autograd.grad(noise.score(z).sum(), z)
    assert torch.allclose(second[inner], noise.curvature(z)[inner], rtol=1e-12)
    (first,) = torch.autograd.grad(noise.rows(z).sum(), z)
    assert torch.isfinite(first).all()
    assert (first > 0).all()


@pytest.mark.parametrize("noise", [NORMAL, HUBER, STUDENT], ids=lambda noise: type(noise).__name__)
def test_densities_integrate_to_one(noise):
    def density(y):
        z = noise.deviation(torch.tensor([0.4]).double(), torch.tensor([y]).double(), 0.7)
        return float(noise.log_density(z, torch.tensor([y]).double(), 0.7).exp())

    assert integrate.quad(density, -np.inf, np.inf)[0] == pytest.approx(1.0, rel=1e-6)


def test_densities_are_those_of_scipy():
    y, m = np.array([0.5, 2.0, 7.0]), np.array([1.0, 1.5, 8.0])
    model, measured = torch.from_numpy(m), torch.from_numpy(y)
    for noise, expected in [
        (sciml.Normal(0.3), stats.norm.logpdf(y, m, 0.3)),
        (sciml.StudentT(0.3, nu=5.0), stats.t.logpdf(y, 5.0, m, 0.3)),
        (sciml.LogNormal(0.3), stats.lognorm.logpdf(y, 0.3, scale=m)),
    ]:
        found = noise.log_density(noise.deviation(model, measured, 0.3), measured, 0.3)
        assert np.allclose(found.numpy(), expected, rtol=1e-12)
    counts, means = np.array([0.0, 3.0, 40.0]), np.array([0.2, 3.0, 31.0])
    deviation = sciml.Poisson().deviation(torch.from_numpy(means), torch.from_numpy(counts), 1.0)
    found = sciml.Poisson().log_density(deviation, torch.from_numpy(counts), 1.0)
    assert np.allclose(found.numpy(), stats.poisson.logpmf(counts, means), rtol=1e-10)


def test_deviances_are_smooth_where_mean_and_count_agree_and_go_on_below_zero():
    counts = torch.tensor([5.0] * 7 + [0.0] * 2, dtype=torch.float64)
    means = torch.tensor(
        [5.0, 5 * (1 + 0.9999e-2), 5 * (1 + 1.0001e-2), 4.99, 0.05, 0.0, -3.0, 1e-4, -1.0], dtype=torch.float64
    )
    means = means.requires_grad_()
    deviation = sciml.Poisson().deviation(means, counts, 1.0)
    assert torch.autograd.gradcheck(
        lambda m: sciml.Poisson().deviation(m, counts[:4], 1.0), (means.detach()[:4].requires_grad_(),)
    )
    (slope,) = torch.autograd.grad(deviation.sum(), means)
    assert torch.isfinite(deviation).all()
    assert (slope > 0).all()
    assert float(slope[0].detach()) == pytest.approx(1 / np.sqrt(5))
    assert abs(float((deviation[2] - deviation[1]).detach()) / (5 * 2e-6) - float(slope[1])) < 1e-4


def test_logarithms_go_on_below_zero():
    model = torch.tensor([-1.0, 0.0, 0.01, 0.0100001, 1.0], dtype=torch.float64).requires_grad_()
    z = sciml.LogNormal(1.0).deviation(model, torch.ones(5).double(), 1.0)
    (slope,) = torch.autograd.grad(z.sum(), model)
    assert torch.isfinite(z).all()
    assert (slope > 0).all()
    assert float(slope[2]) == pytest.approx(float(slope[3]), rel=1e-3)
    assert float(z[4].detach()) == 0.0


@pytest.mark.parametrize(
    ("noise", "draw"),
    [
        (sciml.Normal(), lambda rng, n: rng.normal(size=n)),
        (sciml.Huber(), lambda rng, n: np.where(rng.random(n) < 0.05, 50.0, 1.0) * rng.normal(size=n)),
        (sciml.StudentT(nu=4.0), lambda rng, n: rng.standard_t(4.0, size=n)),
    ],
    ids=["Normal", "Huber", "StudentT"],
)
def test_sigma_is_found(noise, draw):
    z = torch.from_numpy(2.5 * draw(np.random.default_rng(0), 20000))
    assert noise.estimate(z, len(z)) == pytest.approx(2.5, rel=0.08)


def test_what_people_write():
    assert noise_of(0.1) == sciml.Normal(0.1)
    assert noise_of("error") == sciml.Normal("error")
    assert noise_of(sciml.Poisson()) == sciml.Poisson()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sciml.Normal(0.0), "positive number"),
        (lambda: sciml.Normal(True), "positive number"),
        (lambda: sciml.Huber(1.0, delta=-1), "delta must be a positive"),
        (lambda: sciml.StudentT(nu=float("nan")), "nu must be a positive"),
        (lambda: sciml.Poisson(2.0), "no sigma"),
        (lambda: noise_of(sciml.Normal), "a class: call it"),
        (lambda: noise_of([1]), "noise must be"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(ProblemError, match=words):
        make()


def test_impossible_values_are_refused():
    with pytest.raises(DataError, match=r"u in f: 1 value.* not positive, the least -1"):
        sciml.LogNormal().check("u in f", np.array([1.0, -1.0]))
    with pytest.raises(DataError, match=r"2 value.* no counts, one of them 0\.5"):
        sciml.Poisson().check("u in f", np.array([0.5, -1.0, 3.0]))


def test_rounding_has_the_unit_of_sigma():
    """Counts of zero have no rounding, and errors in per cent that of a number without a unit."""
    counts, large = torch.tensor([0.0, 3.0, 0.0]).double(), torch.tensor([4e14, 1e14]).double()
    assert sciml.Poisson().rounding(counts) < 1e-8
    assert sciml.Poisson().rounding(torch.zeros(2).double()) == 0
    assert sciml.LogNormal().rounding(large) == pytest.approx(1e-9, rel=1e-3)
    assert sciml.Normal().rounding(large) == pytest.approx(4e5, rel=1e-3)
    assert sciml.Normal().rounding(large[:0]) == 0
