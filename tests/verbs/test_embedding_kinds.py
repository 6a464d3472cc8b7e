"""Embeddings of every kind of module and trial function, their derivatives, and files of them."""

import dataclasses

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import problem_class
from torch import nn

import sciml
from problems import Decay
from sciml import d
from sciml.errors import FileError, MissingExtraError, ModelError, ProblemError
from sciml.models import Scaled, Windowed


class Heat(sciml.Problem):
    domain = sciml.Box(x=(0, 2), t=(0, 1))
    fields = ["u"]
    conditions = [
        sciml.Initial(u=lambda x: torch.sin(torch.pi * x)),
        sciml.Dirichlet(u=0.0, on=domain.faces("x")),
    ]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - 0.1 * d(u, x, x)


class Round(Heat):
    conditions = [sciml.Initial(u=lambda x: torch.sin(torch.pi * x)), sciml.Periodic("x")]


PLACES = pd.DataFrame({"t": [0.1, 0.5, 0.9], "x": [0.3, 1.1, 1.7]})


def solved(model, problem=None, **options):
    return sciml.fit(problem or Heat(), model, solver=sciml.LeastSquares(2), points=60, **options)


# Every tensor that a layer returns has a row a point, or a place for it.
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Pair()

    def forward(self, points):
        first, second = self.inner(points)
        return first + second.sum((1, 2))[:, None]


class Pair(nn.Module):
    def forward(self, points):
        return points, points[:, :, None] * points[:, None, :]


class Wave(nn.Module):
    def forward(self, points):
        return torch.exp(1j * points)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, points):
        return self.inner(self.inner(points))


def test_several_outputs_stand_side_by_side():
    points = torch.rand(4, 2)
    z = sciml.embed(Two(), points, layer="inner").to_numpy()
    assert np.array_equal(z, np.concatenate([points, (points[:, :, None] * points[:, None]).flatten(1)], axis=1))


def test_images_keep_one_row_each():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1)).double()
    pictures = torch.rand(5, 1, 4, 4, dtype=torch.float64)
    assert np.array_equal(sciml.embed(model, pictures, layer="0"), model[0](pictures).detach().flatten(1))
    assert np.array_equal(sciml.embed(model, pictures.numpy()), model[:3](pictures).detach())


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_layers_give_their_steps(kind, first):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = kind(2, 3, num_layers=2, batch_first=first, dtype=torch.float64)

        def forward(self, series):
            return self.cell(series if first else series.transpose(0, 1))[0].sum()

    # As many points as steps and as layers: shapes alone could not tell them apart.
    model, series = Reader(), torch.rand(2, 2, 2, dtype=torch.float64)
    steps = model.cell(series if first else series.transpose(0, 1))[0]
    z = sciml.embed(model, series, layer="cell")
    assert np.allclose(z, (steps if first else steps.transpose(0, 1)).detach().flatten(1), rtol=1e-12)
    assert "step after step" in z.attrs["meaning"]


@pytest.mark.parametrize("first", [True, False])
def test_transformers_are_read_inside_though_torch_fuses_them(first):
    block = nn.TransformerEncoderLayer(4, 2, 8, batch_first=first)

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = block

        def forward(self, series):
            found = self.block(series if first else series.transpose(0, 1))
            return found if first else found.transpose(0, 1)

    series = torch.rand(3, 5, 4)
    model = Reader().eval()
    assert sciml.embed(model, series, layer="block").shape == (3, 20)
    # Five times and five points: shapes alone could not tell them apart.
    square = torch.rand(5, 5, 4)
    inside = sciml.embed(model, square, layer="block.linear1")
    assert inside.shape == (5, 40)
    assert np.allclose(sciml.embed(model, square[2:3], layer="block.linear1"), inside[2:3], atol=1e-6)
    # The model itself has points in front.
    assert sciml.embed(model, square, layer=model).shape == (5, 20)
    assert np.allclose(sciml.embed(model, square[2:3], layer=model), sciml.embed(model, square, layer=model)[2:3], atol=1e-6)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("first", [True, False])
def test_attention_gives_its_outputs_without_its_weights(first):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=first)

        def forward(self, series):
            given = series if first else series.transpose(0, 1)
            return self.attention(given, given, given)[0].sum()

    series, model = torch.rand(3, 3, 4), Reader()
    whole, alone = (sciml.embed(model, each, layer="attention") for each in (series, series[1:2]))
    assert whole.shape == (3, 12)
    assert np.allclose(whole[1:2], alone, atol=1e-6)


def test_whole_numbers_that_are_looked_up_and_complex_layers():
    words = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 1))
    assert sciml.embed(words, np.array([[1, 2], [3, 4]]), layer="0").shape == (2, 6)
    model, points = nn.Sequential(Wave()), np.random.default_rng(0).random((3, 2))
    z = sciml.embed(model, points, layer="0").to_numpy()
    assert np.array_equal(z[:, ::2], np.cos(points))
    assert np.array_equal(z[:, 1::2], np.sin(points))


def test_layers_may_be_given_themselves_and_so_may_the_model():
    model = sciml.MLP(5, 4, inputs=2, outputs=3).double()
    points = torch.rand(6, 2, dtype=torch.float64)
    assert sciml.embed(model, points, layer=model.layers[0]).equals(sciml.embed(model, points, layer="layers.0"))
    assert np.array_equal(sciml.embed(model, points, layer=model), model(points).detach())
    with pytest.raises(ModelError, match=r"no part of the model.*take the layer from solution\.model"):
        sciml.embed(model, points, layer=nn.Linear(2, 2))


def test_a_layer_that_runs_twice_is_refused():
    with pytest.raises(ModelError, match="ran 2 times"):
        sciml.embed(Twice(), torch.rand(3, 2), layer="inner")


@pytest.mark.parametrize("form", [pd.DataFrame, sciml.Table, dict])
def test_modules_take_tables(form):
    columns = {"x": np.array([0.1, 0.2]), "t": np.array([1.0, 2.0])}
    model = sciml.MLP(4, inputs=2, outputs=1)
    expected = sciml.embed(model, np.stack([columns["x"], columns["t"]], axis=1))
    assert np.array_equal(sciml.embed(model, form(columns)), expected)
    assert sciml.embed(model, form(columns), jets=["t"]).columns[-1] == "z3_t"


def seeded(make):
    """A network with the same weights whichever tests ran before."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


MEANINGS = [
    (sciml.MLP(6, 5), {}, 5, "last of 2 hidden layers"),
    (sciml.RandomFeatures(40), {}, 40, "drawn and not learned"),
    (sciml.Spectral(5), {}, None, "products of Chebyshev polynomials"),
    (seeded(lambda: nn.Sequential(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 1))), {}, 7, "last linear layer of the Sequential"),
    (sciml.MLP(6), {"exact": True}, 6, "g and φ.*no part"),
    (sciml.MLP(6), {"exact": True, "problem": Round()}, 6, "behind cosines and sines"),
]


@pytest.mark.parametrize(("model", "options", "width", "words"), MEANINGS)
def test_every_trial_function_says_what_it_embeds_and_knows_its_derivatives(model, options, width, words):
    solution = solved(model, **options)
    z = sciml.embed(solution, PLACES)
    assert width is None or z.shape[1] == width
    assert pd.Series([z.attrs["meaning"]]).str.contains(words).all()
    check_jets(solution, z)


def check_jets(solution, z):
    """Derivatives against central differences, and the fields' own against those of the embedding."""
    plan = ("x", ("x", "x"), ("t", "x"))
    found = sciml.embed(solution, PLACES, jets=plan)
    width = z.shape[1]
    assert np.allclose(found.iloc[:, :width], z, rtol=1e-13, atol=1e-13)
    step = 1e-4

    def shifted(dx, dt):
        return sciml.embed(solution, PLACES.assign(x=PLACES["x"] + dx, t=PLACES["t"] + dt)).to_numpy()

    first = (shifted(step, 0) - shifted(-step, 0)) / (2 * step)
    second = (shifted(step, 0) - 2 * z.to_numpy() + shifted(-step, 0)) / step**2
    mixed = (shifted(step, step) - shifted(-step, step) - shifted(step, -step) + shifted(-step, -step)) / (4 * step**2)
    for number, expected in enumerate((first, second, mixed), start=1):
        own = found.iloc[:, number * width : (number + 1) * width].to_numpy()
        size = np.abs(expected).max()
        assert np.abs(own - expected).max() < 2e-5 * size + 1e-6
    assert found.columns[width] == "z0_x"
    assert found.columns[3 * width] == "z0_t_x"


def test_taylor_mode_and_nested_differentiation_agree():
    model = sciml.MLP(6, 5, inputs=2, outputs=1).double()
    plain = nn.Sequential(*model.layers)

    class Opaque(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = plain

        def forward(self, points):
            return self.inner(points)

    points = torch.rand(7, 2, dtype=torch.float64)
    plan = ["x0", ("x1", "x1"), ("x0", "x1", "x1")]
    taylor, nested = (sciml.embed(each, points, jets=plan, batch=3) for each in (model, Opaque()))
    assert np.allclose(taylor, nested, rtol=1e-12, atol=1e-13)
    # The fields are affine in the last hidden layer, and so are their derivatives.
    weight = model.layers[-1].weight.detach().numpy()[0]
    moving = points.clone().requires_grad_()
    slope = torch.autograd.grad(model(moving).sum(), moving)[0][:, 0]
    assert np.allclose(taylor[[f"z{k}_x0" for k in range(5)]].to_numpy() @ weight, slope, rtol=1e-12)


def test_polished_and_cornered_solutions_say_what_is_what():
    network = sciml.MLP(6, 5, inputs=2, outputs=1).double()
    deep = sciml.DeepFeatures(network, 30)
    points = torch.rand(4, 2, dtype=torch.float64)
    z = sciml.embed(deep, points)
    assert z.shape == (4, 35)
    assert np.allclose(z.iloc[:, 30:], sciml.embed(network, points), rtol=1e-13)
    assert "the first 30: random sines of the trained network's last hidden layer" in z.attrs["meaning"]
    check_jets_of(deep, points)


def check_jets_of(model, points):
    step = 1e-5
    z = sciml.embed(model, points, jets=["x0"])
    width = z.shape[1] // 2
    ends = [sciml.embed(model, points + torch.tensor([side * step, 0.0])).to_numpy() for side in (1, -1)]
    assert np.allclose(z.iloc[:, width:], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6)


def test_corners():
    solution = sciml.fit(problem_class("poisson_l_shape")())
    inside = {"x": [-0.5, 0.4], "y": [0.5, 0.3]}
    z = sciml.embed(solution, inside, jets=["x"])
    assert "functions that are singular at the corners" in z.attrs["meaning"]
    width = z.shape[1] // 2
    weights = solution.model.layers[-1].weight.numpy()[0]
    x = torch.tensor(inside["x"], dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(solution(x=x, y=torch.tensor(inside["y"]).double())["u"].sum(), x)[0]
    own = z.iloc[:, width:].to_numpy() @ weights * float(solution.trial.scale)
    assert np.allclose(own, slope, rtol=1e-6)


def test_one_window_is_one_model_and_two_are_refused_with_the_remedy():
    halves = [Scaled(sciml.MLP(4, inputs=2, outputs=1), [0, a], [2, a + 1], [0], [1]).double() for a in (0.0, 1.0)]
    whole = solved(sciml.MLP(4))
    one = dataclasses.replace(whole, trial=Windowed([0.0, 1.0], halves[:1], column=1))
    assert "scaled to [-1, 1]" in sciml.embed(one, PLACES).attrs["meaning"]
    expected = sciml.embed(halves[0].model, torch.tensor([[-0.7, -0.8]], dtype=torch.float64))
    assert np.allclose(sciml.embed(one, PLACES[:1], jets=["x"]).iloc[:, :4], expected)
    two = dataclasses.replace(whole, trial=Windowed([0.0, 1.0, 2.0], halves, column=1))
    with pytest.raises(ModelError, match=r"2 windows of time, each with a model of its own \(MLP\).*sciml\.distil"):
        sciml.embed(two, PLACES)


def test_grids_and_elements_are_refused_with_reason_and_remedy():
    with pytest.raises(ModelError, match=r"no network: it holds values at the nodes of a grid.*sciml\.distil"):
        sciml.embed(sciml.baseline(Heat(), tolerance=1e-2), PLACES)

    with pytest.raises(ModelError, match="values at times, joined by polynomials"):
        sciml.embed(sciml.baseline(Decay()), {"t": [0.5]})
    burgers = problem_class("burgers")(nu=0.05)
    with pytest.raises(ModelError, match=r"windows of time on elements.*sciml\.distil"):
        sciml.embed(sciml.fit(burgers), {"x": [0.0], "t": [0.0]})


@pytest.mark.parametrize("ending", ["h5", "parquet"])
@pytest.mark.parametrize("index", [None, [f"p{k}" for k in range(10)], np.arange(10) * 2.5])
def test_files_hold_what_the_frame_holds(tmp_path, ending, index):
    model = sciml.MLP(4, 3, inputs=2, outputs=1).double()
    points = pd.DataFrame(np.random.default_rng(0).random((10, 2)), columns=["a", "b"], index=index)
    frame = sciml.embed(model, points, jets=["a"])
    path = sciml.embed(model, points, jets=["a"], out=tmp_path / f"z.{ending}", batch=4)
    assert path == tmp_path / f"z.{ending}"
    if ending == "parquet":
        again = pd.read_parquet(path)
        assert again.attrs == frame.attrs
    else:
        with h5py.File(path) as file:
            assert file["z0"].fletcher32
            assert file.attrs["meaning"] == frame.attrs["meaning"]
            columns = {name: file[name][...] for name in file.attrs["columns"]}
            own = None if index is None else file["index"].asstr()[...] if index[0] == "p0" else file["index"][...]
        again = pd.DataFrame(columns, index=own)
    # Matrix products of other sizes round differently.
    pd.testing.assert_frame_equal(again, frame, rtol=1e-13, atol=1e-15)
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name]


def test_large_inputs_are_read_and_written_piece_by_piece(tmp_path):
    class Counted:
        """An array that tells how many of its rows were asked for at a time."""

        shape, most = (1000, 2), 0

        def __getitem__(self, rows):
            self.most = max(self.most, rows.stop - rows.start)
            return np.full((rows.stop - rows.start, 2), rows.start / 1000)

    points, model = Counted(), sciml.MLP(3, inputs=2, outputs=1)
    sciml.embed(model, points, out=tmp_path / "z.h5", batch=64)
    assert points.most == 64
    with h5py.File(tmp_path / "z.h5") as file:
        assert len(file["z0"]) == 1000
        assert len(np.unique(file["z0"][...])) == 16
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["points"] = np.random.default_rng(0).random((20, 2))
        assert len(sciml.embed(model, file["points"], batch=7)) == 20


def test_a_file_that_could_not_be_finished_leaves_the_old_one(tmp_path):
    class Broken:
        shape = (10, 2)

        def __getitem__(self, rows):
            if rows.start:
                raise KeyboardInterrupt
            return np.zeros((rows.stop - rows.start, 2))

    path = tmp_path / "z.h5"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        sciml.embed(sciml.MLP(3, inputs=2, outputs=1), Broken(), out=path, batch=5)
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_no_points_give_an_empty_table(tmp_path):
    model = sciml.MLP(3, inputs=2, outputs=1)
    assert sciml.embed(model, np.empty((0, 2))).shape == (0, 3)
    sciml.embed(model, np.empty((0, 2)), out=tmp_path / "z.h5")
    sciml.embed(model, np.empty((0, 2)), out=tmp_path / "z.parquet")
    assert pd.read_parquet(tmp_path / "z.parquet").shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m, p: sciml.embed(m, p, jets=["y"]), ProblemError, "of 'x0', 'x1'"),
        (lambda m, p: sciml.embed(m, p, jets=[()]), ProblemError, "jets are coordinates"),
        (lambda m, p: sciml.embed(m, p, batch=0), ProblemError, "batch must be a whole number of at least 1"),
        (lambda m, p: sciml.embed(m, p, out="z.csv"), FileError, r"ends in \.h5"),
        (lambda m, p: sciml.embed(m, {}), ProblemError, "no column"),
        (lambda m, p: sciml.embed(m, [["a"]]), ProblemError, "array of numbers"),
        (lambda m, p: sciml.embed(m, p, layer=3), ModelError, "name of a submodule"),
        (lambda m, p: sciml.embed("model", p), ModelError, "a solution or a torch.nn.Module"),
        (lambda m, p: sciml.embed(m, torch.rand(2, 3)), ProblemError, "does not accept points of shape"),
    ],
)
def test_misuse_is_told(call, error, words):
    with pytest.raises(error, match=words):
        call(sciml.MLP(3, inputs=2, outputs=1), torch.rand(2, 2))


def test_parquet_without_its_library_names_the_extra(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"sciml\[files\]"):
        sciml.embed(sciml.MLP(3, inputs=2, outputs=1), torch.rand(2, 2), out=tmp_path / "z.parquet")


@pytest.mark.gpu
def test_modules_stay_where_they_are(gpu):
    model = sciml.MLP(3, inputs=2, outputs=1).to(gpu)
    assert sciml.embed(model, np.random.default_rng(0).random((5, 2)), jets=["x0"]).shape == (5, 6)
    assert next(model.parameters()).device.type == gpu
