"""``doctor``: what it sees in networks that cannot train, unknowns that nothing determines, and files of a run."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

import sciml
from problems import Heat
from sciml import cli, d
from sciml.errors import FileError, ModelError, ProblemError


class Decay(sciml.Problem):
    """Only the product of two constants is determined."""

    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]
    rate, factor, size = sciml.Unknown(1.5), sciml.Unknown(0.5), sciml.Unknown(1.0)

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.rate * self.factor * u

    def measurements(self):
        t = np.linspace(0, 1, 20)
        return sciml.Measurements({"t": t, "w": 3 * np.exp(-2 * t)}, observe={"w": lambda self, u: self.size * u})


def network(widths, function, gain=1.0):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(widths)])
            generator = torch.Generator().manual_seed(0)
            for layer in self.layers:
                nn.init.xavier_normal_(layer.weight, gain=gain, generator=generator)
                nn.init.zeros_(layer.bias)

        def forward(self, points):
            for layer in self.layers[:-1]:
                points = function(layer(points))
            return self.layers[-1](points)

    return Net()


def said(checkup, words):
    return any(words in each for each in checkup.sentences)


def test_a_sound_beginning():
    checkup = sciml.doctor(Heat(), sciml.MLP(8, 8), points=100)
    assert list(checkup.terms.index) == ["heat", "initial", "dirichlet"]
    assert checkup.terms["share"].sum() == pytest.approx(1)
    assert np.allclose(np.diag(checkup.conflicts), 1)
    assert list(checkup.layers.index) == [f"layers.{k}" for k in range(5)]
    assert checkup.layers.loc["layers.1", "dead"] == 0
    assert not said(checkup, "layer ")
    assert len(checkup.findings) == 0
    assert len(checkup.spectrum) == checkup.jacobian.loc[0, "parameters"]
    assert "conflicts: cosines" in str(checkup)
    with pytest.raises(AttributeError):
        checkup.terms = None


def test_gradients_of_terms_add_up_to_that_of_the_loss():
    problem, model = Heat(), sciml.MLP(6)
    checkup = sciml.doctor(problem, model, points=64)
    norms = checkup.terms["gradient"].to_numpy()
    total = np.sqrt(norms @ checkup.conflicts.to_numpy() @ norms)
    layers = checkup.layers["gradient"].dropna().astype(float)
    assert np.linalg.norm(layers) == pytest.approx(total, rel=1e-9)


def test_gradients_that_vanish_name_their_layers():
    checkup = sciml.doctor(Heat(), network([2, 12, 12, 12, 12, 12, 1], torch.sigmoid, gain=0.1), points=64)
    assert said(checkup, "layer layers.0 gets")
    assert said(checkup, "hardly trains")


def test_dead_and_saturated_units():
    dead = network([2, 16, 16, 1], torch.tanh)
    with torch.no_grad():
        dead.layers[1].bias[:8] = 400.0
    checkup = sciml.doctor(Heat(), dead, points=64)
    assert checkup.layers.loc["layers.1 to layers.2", "dead"] == 0.5
    assert said(checkup, "50% of the units of layers.1 to layers.2 (function) are dead")
    flat = sciml.doctor(Heat(), network([2, 16, 16, 1], torch.tanh, gain=60.0), points=64)
    assert said(flat, "are flat: its inputs are too large")


def test_unknowns_of_which_only_a_product_is_determined():
    checkup = sciml.doctor(Decay(), sciml.MLP(8))
    assert checkup.unknowns.loc["rate", "correlated"] == "factor"
    assert said(checkup, "'factor' and 'rate' are known together alone")
    assert said(checkup, "'rate' is part of a combination that is nearly undetermined")
    assert abs(checkup.unknowns.loc["size", "correlation"]) < 0.99


def test_an_unknown_that_the_model_imitates():
    class Source(Heat):
        strength = sciml.Unknown(1.0)
        conditions = ()

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - d(u, x, x) - self.strength

    nothing_said = {"x": [0.5, 0.5], "t": [0.5, 0.6], "u": [1.0, 1.1]}
    checkup = sciml.doctor(Source(), sciml.MLP(12, 12), nothing_said, points=100)
    assert said(checkup, "'strength' is nearly undetermined")


def test_what_is_said_of_unknowns_does_not_depend_on_the_width():
    class Unheard(Heat):
        k = sciml.Unknown(0.3)

        @sciml.equation
        def heat(self, u, x, t):
            return d(u, t) - self.k * d(u, x, x)

    x, t = np.random.default_rng(0).random((2, 150))
    data = {"x": x, "t": t, "u": np.exp(-0.1 * np.pi**2 * t) * np.sin(np.pi * x)}
    for model in (sciml.MLP(4), sciml.MLP(12, 12), sciml.MLP(40, 40)):
        checkup = sciml.doctor(Unheard(), model, data, points=100)
        row = checkup.jacobian.iloc[0]
        assert not said(checkup, "undetermined")
        assert not said(checkup, "directions") or row["rows"] >= row["parameters"]
    assert row["rank"] < row["rows"] < row["parameters"]
    # A model with more directions than there are rows imitates everything, and that says nothing.
    few = {name: values[:6] for name, values in data.items()}
    checkup = sciml.doctor(Unheard(), sciml.MLP(40, 40), few, points=8)
    assert checkup.unknowns.loc["k", "own"] < 1e-9
    assert checkup.unknowns.loc["k", "expected"] == 0
    assert not said(checkup, "undetermined")


def test_singular_values_are_those_of_the_jacobian():
    class Line(sciml.Problem):
        domain = sciml.Interval(x=(-1, 1))
        fields = ["u"]
        conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

        @sciml.equation
        def flat(self, u, x):
            return d(u, x) - 1.0

    checkup = sciml.doctor(Line(), nn.Linear(1, 1).double(), points=50)
    scale = {name: checkup.terms.loc[name, "scale"] for name in ("flat", "dirichlet")}
    weight = {name: checkup.terms.loc[name, "weight"] for name in ("flat", "dirichlet")}
    slope = np.concatenate(
        [
            np.tile([1.0, 0.0], (50, 1)) * np.sqrt(weight["flat"] / 50) / scale["flat"],
            np.array([[-1.0, 1.0], [1.0, 1.0]]) * np.sqrt(weight["dirichlet"] / 2) / scale["dirichlet"],
        ]
    )
    # Sizes of fields are put before the model.
    expected = np.linalg.svd(slope, compute_uv=False)
    ratio = checkup.spectrum["singular"].to_numpy() / expected
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-9)
    assert checkup.jacobian.loc[0, "rows"] == 52


def test_mistakes_come_first_and_what_cannot_be_fitted_has_no_tables():
    checkup = sciml.doctor(Heat(), sciml.MLP(4, activation="relu"), points=32)
    assert "exactly zero everywhere" in checkup.sentences[0]
    assert len(checkup.terms) == 3
    broken = sciml.doctor(Heat(), nn.Linear(3, 1))
    assert len(broken.terms) == 0
    assert "does not accept points" in broken.sentences[0]


def test_after_training_and_from_files(tmp_path):
    half = sciml.fit(Heat(), sciml.MLP(8), solver=sciml.Adam(30), points=64, out=tmp_path / "run")
    checkup = sciml.doctor(half)
    assert checkup.trained
    again = sciml.doctor(tmp_path / "run" / "solution.pt", problem=Heat())
    pd.testing.assert_frame_equal(again.terms, checkup.terms)
    done = sciml.fit(Heat())
    assert sciml.doctor(done).sentences == ("nothing stands out",)
    without = sciml.load(tmp_path / "run" / "solution.pt")
    with pytest.raises(ProblemError, match="without its problem"):
        sciml.doctor(without)
    with pytest.raises(ModelError, match="no single model"):
        sciml.doctor(sciml.baseline(sciml.gallery.problem("harmonic_oscillator")))
    with pytest.raises(FileError):
        sciml.doctor(tmp_path / "none.pt", problem=Heat())
    with pytest.raises(ProblemError, match="a problem, a solution or a file"):
        sciml.doctor(3)


def test_a_damaged_run_is_told(tmp_path):
    from sciml.runs import RunDirectory

    with RunDirectory(tmp_path / "run") as directory:
        directory.write("summary.json", b"{}")
    assert sciml.doctor(tmp_path / "run").sentences == ("nothing stands out",)
    (tmp_path / "run" / "summary.json").write_bytes(b"{]")
    checkup = sciml.doctor(tmp_path / "run")
    assert said(checkup, "summary.json (newest) is damaged")


def test_on_the_command_line(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_console", Console(width=120))
    runner = CliRunner()
    done = runner.invoke(cli.app, ["doctor", "heat_rod", "--model", "MLP(6)"])
    assert done.exit_code == 0, done.output
    for words in ("terms", "conduction", "cosines between gradients", "layers.0", "condition"):
        assert words in done.output
    wrong = runner.invoke(cli.app, ["doctor", "heat_rod", "--model", "MLP(6, activation='relu')"])
    assert wrong.exit_code == 1
    assert "exactly zero everywhere" in " ".join(wrong.output.split())


class Plate(sciml.Problem):
    """Solved on tiles, whose coefficients are no parameters."""

    domain = sciml.Disk((0, 0), 1)
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=lambda x, y: torch.exp(x) * torch.cos(y), on=domain.boundary)]

    @sciml.equation
    def laplace(self, u, x, y):
        return sciml.laplacian(u, x, y)


def test_of_polynomials_on_tiles_it_sees_the_residuals():
    good = sciml.doctor(sciml.fit(Plate()))
    assert list(good.terms.index) == ["laplace", "dirichlet"]
    assert good.terms["gradient"].isna().all()
    assert good.sentences == ("nothing stands out",)
    bad = sciml.doctor(sciml.fit(Plate(), strategy=sciml.strategies.Tiles(2, 2)))
    assert said(bad, "'laplace' misses by")
