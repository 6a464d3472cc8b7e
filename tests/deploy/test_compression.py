"""Smaller copies of networks: how far off they are is measured, and too far is refused."""

import numpy as np
import onnxruntime
import pytest
import torch

import sciml
from sciml.deploy import compress, prune
from sciml.errors import FileError, ModelError


@pytest.fixture(scope="module")
def network():
    return sciml.fit(sciml.gallery.problem("logistic_growth"), sciml.MLP(24, 24), solver=sciml.LBFGS(150))


@pytest.mark.parametrize(("precision", "far"), [("float64", 1e-12), ("float32", 1e-5), ("float16", 5e-3), ("int8", 0.2)])
def test_fewer_bits(network, precision, far, tmp_path):
    path = tmp_path / "copy.onnx"
    table = compress(network, path, precision=precision, tolerance=far)
    assert table["error"].iloc[-1] <= far
    assert table["bytes"].iloc[-1] == path.stat().st_size
    kind = np.float64 if precision == "float64" else np.float32
    t = np.linspace(1, 5, 9)
    (values,) = onnxruntime.InferenceSession(path).run(None, {"t": t.astype(kind)})
    assert np.abs(values - network(t=t)["u"]).max() <= 5 * far
    if precision != "float64":
        assert table["bytes"].iloc[-1] < table["bytes"].iloc[0]


def test_half_of_the_units_say_the_same(network, tmp_path):
    """Units that are combinations of others go without a trace."""
    model = sciml.models.model_of(network.trial)
    with torch.no_grad():
        # Twins in the first layer: half of it is superfluous.
        model.layers[0].weight[12:] = model.layers[0].weight[:12]
        model.layers[0].bias[12:] = model.layers[0].bias[:12]
        model.layers[2].weight[12:] = model.layers[2].weight[:12]
        model.layers[2].bias[12:] = model.layers[2].bias[:12]
    small = prune(network, 0.5)
    assert sciml.models.model_of(small.trial).hidden == (12, 12)
    t = np.linspace(0.5, 5, 50)
    assert np.abs(small(t=t)["u"] - network(t=t)["u"]).max() < 1e-9
    table = compress(network, tmp_path / "small.onnx", precision="float64", keep=0.5, tolerance=1e-9)
    assert table["bytes"].iloc[1] < 0.8 * table["bytes"].iloc[0]
    again = sciml.load(small.save(tmp_path / "small.pt"))
    assert again(t=2.0)["u"] == small(t=2.0)["u"]


def test_what_is_too_far_is_not_written(network, tmp_path):
    with pytest.raises(ModelError, match="away from the solution, more than 1e-09, and was not written"):
        compress(network, tmp_path / "copy.onnx", precision="int8", tolerance=1e-9)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ModelError, match="'float64', 'float32', 'float16', 'int8'"):
        compress(network, tmp_path / "copy.onnx", precision="int4")
    with pytest.raises(ModelError, match="pruned of an MLP; given: Spectral"):
        prune(sciml.fit(sciml.gallery.problem("heat_rod")), 0.5)
    (tmp_path / "copy.onnx").write_text("")
    with pytest.raises(FileError, match="exists and is kept"):
        compress(network, tmp_path / "copy.onnx")
