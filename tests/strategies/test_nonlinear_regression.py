"""Nonlinear regression: laws without derivatives, against NIST's certified values and laws that are not solved for a field."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy
import torch
from conftest import ROOT, problem_class

import sciml
from sciml import d

NIST = ROOT / "data" / "nist"
CERTIFIED, MEASURED = (pd.read_csv(NIST / f"{name}.csv") for name in ("certified", "measurements"))


def misra_a(b, x):
    return b[0] * (1 - torch.exp(-b[1] * x))


def chwirut(b, x):
    return torch.exp(-b[0] * x) / (b[1] + b[2] * x)


def lanczos(b, x):
    return sum(b[k] * torch.exp(-b[k + 1] * x) for k in (0, 2, 4))


def gauss(b, x):
    peaks = (b[k] * torch.exp(-(((x - b[k + 1]) / b[k + 2]) ** 2)) for k in (2, 5))
    return b[0] * torch.exp(-b[1] * x) + sum(peaks)


def hahn(b, x):
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def enso(b, x):
    waves = ((12, b[1], b[2]), (b[3], b[4], b[5]), (b[6], b[7], b[8]))
    return b[0] + sum(c * torch.cos(2 * math.pi * x / p) + s * torch.sin(2 * math.pi * x / p) for p, c, s in waves)


LAWS = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": misra_a,
    "Chwirut1": chwirut,
    "Chwirut2": chwirut,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": enso,
    "Eckerle4": lambda b, x: b[0] / b[1] * torch.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": gauss,
    "Gauss2": gauss,
    "Gauss3": gauss,
    "Hahn1": hahn,
    "Kirby2": lambda b, x: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Lanczos3": lanczos,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * torch.exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * torch.exp(-x * b[3]) + b[2] * torch.exp(-x * b[4]),
    "Misra1a": misra_a,
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda b, x, x2: b[0] - b[1] * x * torch.exp(-b[2] * x2),
    "Rat42": lambda b, x: b[0] / (1 + torch.exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + torch.exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - torch.atan(b[2] / (x - b[3])) / math.pi,
    "Thurber": hahn,
}


def stated(name, start="start2"):
    """One of NIST's problems, its table and its certified values."""
    table, certified = (each[each["dataset"] == name].dropna(axis=1) for each in (MEASURED, CERTIFIED))
    table = table.drop(columns="dataset")
    if name == "Nelson":
        table["y"] = np.log(table["y"])
    law, columns = LAWS[name], [column for column in table if column != "y"]
    unknowns = {each: sciml.Unknown(value) for each, value in zip(certified["parameter"], certified[start], strict=True)}

    def constants(self):
        return [getattr(self, each) for each in unknowns]

    if len(columns) == 1:

        def equation(self, y, x):
            return y - law(constants(self), x)
    else:

        def equation(self, y, x, x2):
            return y - law(constants(self), x, x2)

    domain = sciml.Box(**{column: (table[column].min(), table[column].max()) for column in columns})
    body = {"domain": domain, "fields": ["y"], "law": sciml.equation(equation), **unknowns}
    return type(name, (sciml.Problem,), body)(), table, certified


def digits(found, true):
    return -np.log10(np.max(np.abs(np.asarray(found) / np.asarray(true) - 1)) + 1e-16)


@pytest.mark.parametrize("name", LAWS)
def test_certified_values_of_nist(name):
    problem, table, certified = stated(name)
    solution = sciml.fit(problem, data=table)
    # One of these laws does not describe its data.
    assert solution.success == (name != "Nelson"), solution.message
    assert solution.solver == "LeastSquares"
    assert digits(solution.unknowns["estimate"], certified["estimate"]) > 6
    # The deviations of Lanczos1 are those of its last digit, 1e-14.
    assert digits(solution.unknowns["standard_error"], certified["standard_deviation"]) > (3 if name == "Lanczos1" else 4)


@pytest.mark.parametrize("name", ["Chwirut1", "Chwirut2", "Nelson"])
def test_a_law_fits_or_not_as_replicates_say(name):
    problem, table, certified = stated(name)
    columns = [column for column in table if column != "y"]
    solution = sciml.fit(problem, data=table)
    groups, lacking = table.groupby(columns)["y"], len(table) - len(certified)
    pure, apart = ((table["y"] - groups.transform("mean")) ** 2).sum(), len(table) - groups.ngroups
    whole = ((table["y"] - solution(**{column: table[column].to_numpy() for column in columns})["y"]) ** 2).sum()
    # The classical test of lack of fit: what means of replicates deviate by against what replicates do.
    ratio = (whole - pure) / (lacking - apart) / (pure / apart)
    assert (scipy.stats.f.sf(ratio, lacking - apart, apart) < 1e-4) == ("deviate alike" in solution.message)


@pytest.mark.parametrize("name", LAWS)
def test_from_far_away_it_arrives_or_says_that_it_did_not(name):
    problem, table, certified = stated(name, "start1")
    solution = sciml.fit(problem, data=table)
    if solution.success:
        assert digits(solution.unknowns["estimate"], certified["estimate"]) > 5


class Implicit(sciml.Problem):
    """Van der Waals' law and another: two fields, of which one is given by an equation that is not solved for it."""

    domain = sciml.Interval(p=(0.5, 2.0))
    fields = ["v", "s"]
    a, b = sciml.Unknown(0.05), sciml.Unknown(0.02, lower=0)

    @sciml.equation
    def state(self, v, p):
        return (p + self.a / v**2) * (v - self.b) - 1

    @sciml.equation
    def entropy(self, v, s):
        return s - torch.log(v - self.b)


def sample(a=0.1, b=0.05, count=40, noise=1e-3):
    p = np.linspace(0.5, 2.0, count)
    # Above the critical temperature there is one volume for each pressure.
    roots = [np.roots([each, -each * b - 1, a, -a * b]) for each in p]
    v = np.array([min(each, key=lambda root: abs(root.imag)).real for each in roots])
    scatter = np.random.default_rng(0).normal(size=(2, count)) * noise
    return pd.DataFrame({"p": p, "v": v + scatter[0], "s": np.log(v - b) + scatter[1]})


def test_laws_that_are_not_solved_for_their_fields():
    table = sample()
    solution = sciml.fit(Implicit(), data=table)
    assert solution.success, solution.message
    assert any("nonlinear regression" in choice for choice in solution.choices)
    for name, true in (("a", 0.1), ("b", 0.05)):
        row = solution.unknowns.loc[name]
        assert row["low"] < true < row["high"]
        assert row["standard_error"] < 0.05 * true
    # One standard error of the law itself is far smaller than the noise.
    band = solution.standard_error(p=[1.0])["v"][0]
    assert 0 < band < 1e-3
    assert abs(solution(p=1.0)["v"].item() - sample(noise=0.0).pipe(lambda t: np.interp(1.0, t["p"], t["v"]))) < 5 * band + 1e-4


def test_bands_are_those_of_classical_regression():
    solution = sciml.fit(*stated("Misra1a")[:1], data=stated("Misra1a")[1])
    x = np.linspace(100.0, 700.0, 7)
    b1, b2 = solution.unknowns["estimate"]
    slopes = np.stack([1 - np.exp(-b2 * x), b1 * x * np.exp(-b2 * x)])
    # Least squares in a handful of lines: the covariance of the two constants, and of the law between them.
    table = stated("Misra1a")[1]
    at = table["x"].to_numpy()
    jacobian = np.stack([1 - np.exp(-b2 * at), b1 * at * np.exp(-b2 * at)], axis=1)
    misfit = table["y"] - b1 * (1 - np.exp(-b2 * at))
    covariance = np.linalg.inv(jacobian.T @ jacobian) * (misfit**2).sum() / (len(at) - 2)
    expected = np.sqrt(np.einsum("in,ij,jn->n", slopes, covariance, slopes))
    assert np.allclose(solution.standard_error(x=x)["y"], expected, rtol=1e-3)


class Differential(Implicit):
    """Has a derivative: no regression."""

    @sciml.equation
    def entropy(self, v, s, p):
        return d(s, p) - d(v, p) / (v - self.b)


def test_what_is_not_regression():
    with pytest.raises(sciml.errors.SolverError, match="it has derivatives or conditions"):
        sciml.fit(Differential(), data=sample(), strategy="NonlinearRegression")
    with pytest.raises(sciml.errors.SolverError, match="no unknown constants, or no measurements"):
        sciml.fit(problem_class("logistic_growth")(), strategy="NonlinearRegression")


def test_a_network_learns_the_law():
    problem, table, certified = stated("Misra1a")
    solution = sciml.fit(problem, sciml.MLP(8), data=table)
    assert digits(solution.unknowns["estimate"], certified["estimate"]) > 6
    assert digits(solution.unknowns["standard_error"], certified["standard_deviation"]) > 4
