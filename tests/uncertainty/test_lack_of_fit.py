"""Misfits of neighbouring measurements are independent where equations describe the data, and alike where they do not."""

import numpy as np
import pytest
import torch

import sciml
from problems import Growth, Heat
from sciml.uncertainty.lack_of_fit import autocorrelation, neighbours


@pytest.mark.parametrize("noise", ["normal", "sizes that differ", "outliers", "grid in the plane"])
def test_independent_noise_has_a_score_of_variance_one(noise):
    draw, scores = np.random.default_rng(0), []
    for _ in range(300):
        points = draw.uniform(size=(80, 2))
        values = draw.normal(size=80)
        if noise == "sizes that differ":
            values *= np.exp(4 * points[:, 0])
        elif noise == "outliers":
            values = draw.standard_t(2, size=80)
        elif noise == "grid in the plane":
            points = np.stack(np.meshgrid(np.arange(10.0), np.arange(8.0)), axis=-1).reshape(-1, 2)
        scores.append(autocorrelation(values, neighbours(points))[1])
    assert abs(np.mean(scores)) < 0.2
    assert 0.8 < np.std(scores) < 1.2
    assert max(scores) < 4.4  # above it a fit is told to miss


def test_the_correlation_is_the_share_that_is_systematic():
    draw = np.random.default_rng(1)
    points = draw.uniform(size=(2000, 2))
    pattern = np.sin(3 * points[:, 0]) * np.cos(2 * points[:, 1])
    values = pattern + draw.normal(size=2000)
    found, score = autocorrelation(values, neighbours(points))
    assert abs(found - np.mean(pattern**2) / np.mean(values**2)) < 0.05
    assert score > 4.4


def test_replicates_are_neighbours_of_one_another_and_units_do_not_matter():
    places = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 1e6]], 5, axis=0)
    one, other = neighbours(places)
    assert len(one) == 30
    assert (one // 5 == other // 5).all()
    assert (one < other).all()


def test_what_is_no_number_has_no_score():
    assert np.isnan(autocorrelation(np.zeros(20), neighbours(np.arange(20.0)[:, None]))).all()


def grown(law, count=60, noise=0.01):
    t = np.linspace(0, 2, count)
    return {"t": t, "u": law(t) * (1 + noise * np.random.default_rng(0).normal(size=count))}


def test_a_law_that_the_data_contradict_is_no_success_and_its_error_is_told():
    def gompertz(t):
        return np.exp(1 - np.exp(-t))

    solution = sciml.fit(Growth(), data=grown(gompertz))
    assert not solution.success
    assert "neighbouring measurements of 'u' deviate alike" in solution.message
    t = np.linspace(0, 2, 500)
    truth = gompertz(t)
    off = np.sqrt(np.mean((solution(t=t)["u"] - truth) ** 2) / np.mean(truth**2))
    assert off / 2 < solution.estimated_error["u"] < 2 * off
    assert solution.statistics["autocorrelation.u"] > 0.5


def test_a_law_that_describes_them_is_a_success_without_a_remark():
    solution = sciml.fit(Growth(), data=grown(lambda t: np.exp(0.7 * t)))
    assert solution.success
    assert "alike" not in solution.message
    assert solution.statistics["autocorrelation.u"] < 0.3


def test_what_is_measured_may_differentiate_expressions():
    t = np.linspace(0, 2, 60)
    rate = 1.4 * np.exp(1.4 * t) * (1 + 0.01 * np.random.default_rng(0).normal(size=60))
    measured = sciml.Measurements({"t": t, "q": rate}, observe={"q": lambda u, t: sciml.d(u * u, t)})
    solution = sciml.fit(Growth(), data=measured)
    assert solution.success, solution.message
    assert solution.statistics["autocorrelation.q"] < 0.3


def test_a_pattern_that_is_small_is_a_remark():
    solution = sciml.fit(Growth(), data=grown(lambda t: np.exp(0.7 * t) * (1 + 0.01 * np.sin(3 * t)), noise=1e-4))
    assert solution.success
    assert "deviate alike" in solution.message
    assert solution.estimated_error["u"] > 1e-3


def test_exact_values_have_no_pattern_but_rounding():
    solution = sciml.fit(Growth(), data=grown(lambda t: np.exp(0.7 * t), noise=0))
    assert solution.success
    assert "alike" not in solution.message


def test_outliers_are_no_pattern():
    data = grown(lambda t: np.exp(0.7 * t))
    data["u"][20:23] += 3.0  # three in a row
    solution = sciml.fit(Growth(), data=data, noise=sciml.Huber())
    assert solution.success
    assert "alike" not in solution.message


class Cooling(Heat):
    """Heat conduction of unknown diffusivity."""

    k = sciml.Unknown(0.5, lower=0)
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(torch.pi * x) + 0.5 * torch.sin(3 * torch.pi * x)),
        sciml.Dirichlet(u=0.0, on=Heat.domain.faces("x")),
    ]


@pytest.mark.parametrize("decay", [0.0, 3.0])
def test_a_law_in_space_and_time(decay):
    draw = np.random.default_rng(0)
    x, t = draw.uniform(size=(2, 300))
    modes = ((1.0, 1), (0.5, 3))
    truth = sum(size * np.exp(-(0.2 * (n * np.pi) ** 2 + decay) * t) * np.sin(n * np.pi * x) for size, n in modes)
    solution = sciml.fit(Cooling(), data={"x": x, "t": t, "u": truth + 0.005 * draw.normal(size=300)}, seconds=30)
    assert solution.success == (decay == 0)
    assert ("deviate alike" in solution.message) == (decay > 0)
