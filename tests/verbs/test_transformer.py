"""``sciml.Embedding`` keeps the rules of scikit-learn, and does what it says."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ROOT
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import sciml
from sciml import d
from sciml.errors import MissingExtraError, ModelError, ProblemError


@parametrize_with_checks([sciml.Embedding(steps=30), sciml.Embedding(target="y", steps=20)])
def test_rules_of_scikit_learn(estimator, check):
    check(estimator)


def arc(count=80, seed=0, noise=0.0):
    generator = np.random.default_rng(seed)
    angle = generator.uniform(0, 4, count)
    points = np.stack([np.cos(angle), np.sin(angle), 0.3 * angle], axis=1)
    return points + noise * generator.normal(size=points.shape), angle


def test_before_training_it_is_a_principal_component_analysis():
    rows, _ = arc()
    start, linear = sciml.Embedding(steps=0).fit(rows), PCA(2).fit(rows)
    expected = linear.inverse_transform(linear.transform(rows))
    assert np.allclose(start.inverse_transform(start.transform(rows)), expected, atol=1e-12)
    assert start.n_iter_ == 0


def test_training_gives_back_what_no_line_can():
    rows, _ = arc()
    unseen, angle = arc(seed=1)
    embedding = sciml.Embedding(n_components=1, steps=400, ridge=1e-4).fit(rows)
    start = sciml.Embedding(n_components=1, steps=0).fit(rows)
    assert embedding.error_ < 0.2 * start.error_
    z = embedding.transform(unseen)[:, 0]
    assert np.sqrt(np.mean((embedding.inverse_transform(z[:, None]) - unseen) ** 2)) < 0.1
    # One number tells where on the arc a point is, in order.
    order = np.corrcoef(np.argsort(np.argsort(z)), np.argsort(np.argsort(angle)))[0, 1]
    assert abs(order) > 0.99


def test_an_encoder_of_y_helps_a_linear_regression():
    rows, angle = arc(150, noise=0.02)
    unseen, truth = arc(150, seed=1, noise=0.02)
    wanted, true = np.sin(3 * angle), np.sin(3 * truth)
    piped = make_pipeline(sciml.Embedding(target="y", n_components=6), Ridge(1e-3)).fit(rows, wanted)
    plain = Ridge(1e-3).fit(rows, wanted)
    assert piped.score(unseen, true) > 0.9
    assert plain.score(unseen, true) < 0.7


def test_pipelines_searches_and_frames():
    rows, angle = arc(40)
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    search = GridSearchCV(make_pipeline(sciml.Embedding(steps=5), Ridge()), {"embedding__n_components": [1, 2]}, cv=2).fit(
        frame, angle
    )
    assert search.best_params_["embedding__n_components"] in (1, 2)
    embedding = sciml.Embedding(steps=5).set_output(transform="pandas").fit(frame)
    assert embedding.transform(frame).columns.tolist() == ["z0", "z1"]
    assert embedding.get_feature_names_out().tolist() == ["z0", "z1"]
    assert np.array_equal(sciml.Embedding(steps=5).fit_transform(frame), embedding.transform(frame))
    assert embedding.transform(frame.astype(np.float32)).dtypes.eq(np.float64).all()


class Decay(sciml.Problem):
    domain = sciml.Box(x=(0, 1), t=(0, 2))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x: torch.cos(x))]

    @sciml.equation
    def decay(self, u, x, t):
        return d(u, t) + u


def test_a_solution_given_is_the_embedding_and_can_be_pickled():
    solution = sciml.fit(Decay(), sciml.MLP(6, 5), solver=sciml.Adam(3))
    frame = pd.DataFrame({"t": [0.0, 1.0], "x": [0.5, 0.2]})
    expected = sciml.embed(solution, frame).to_numpy()
    embedding = sciml.Embedding(solution).fit(frame)
    assert np.array_equal(embedding.transform(frame), expected)
    # Without names columns are the coordinates, in order.
    assert np.array_equal(sciml.Embedding(solution).fit_transform(frame[["x", "t"]].to_numpy()), expected)
    again = pickle.loads(pickle.dumps(clone(embedding).fit(frame)))
    assert np.array_equal(again.transform(frame), expected)
    assert sciml.Embedding(solution, "layers.0").fit_transform(frame).shape == (2, 6)
    assert not hasattr(embedding, "inverse_transform")
    with pytest.raises(ModelError, match=r"has the coordinates \('x', 't'\).*given: 3 columns"):
        sciml.Embedding(solution).fit(np.zeros((2, 3)))
    with pytest.raises(ProblemError, match="lack the coordinate 'x'"):
        sciml.Embedding(solution).fit(frame.rename(columns={"x": "y"}))


def test_a_module_given_is_not_trained():
    model = sciml.MLP(4, inputs=3, outputs=1).double()
    before = [parameter.clone() for parameter in model.parameters()]
    rows, _ = arc(5)
    z = sciml.Embedding(model).fit_transform(rows)
    assert np.array_equal(z, sciml.embed(model, rows))
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("options", "y", "words"),
    [
        ({"target": "z"}, None, "'X' or 'y'"),
        ({"target": "y"}, None, "requires y"),
        ({"target": "y"}, np.zeros((6, 2, 2)), "Found array with dim 3"),
        ({"target": "y"}, np.zeros(5), r"must have shape \(6,\)"),
        ({"n_components": 4}, None, "n_features=3"),
        ({"n_components": 0}, None, "n_components must be a whole number of at least 1"),
        ({"hidden": (2.5,)}, None, "hidden must be a whole number of at least 1"),
        ({"ridge": -1.0}, None, "ridge must be"),
        ({"layer": "layers.0"}, None, "there is none"),
        ({"ridge": "a"}, None, "ridge must be"),
        ({"ridge": None}, None, "ridge must be"),
        ({"hidden": 8}, None, r"as in hidden=\(32,\); given: 8"),
        ({"hidden": 8, "target": "y"}, np.zeros(6), r"as in hidden=\(32,\); given: 8"),
        ({"target": np.array(["X", "y"])}, None, "'X' or 'y'"),
        ({"model": 5}, None, r"a torch\.nn\.Module or None; given: 5"),
        ({"random_state": -1}, None, "random_state must be .*given: -1"),
        ({"random_state": "a"}, None, "random_state must be .*given: 'a'"),
        ({"random_state": 1.5}, None, r"random_state must be .*given: 1\.5"),
    ],
)
def test_misuse_is_told(options, y, words):
    with pytest.raises(ValueError, match=words):
        sciml.Embedding(**options).fit(arc(6)[0], y)


def test_random_states_of_scikit_learn():
    rows = arc(10)[0]
    first, again, other = (
        sciml.Embedding(steps=3, random_state=np.random.RandomState(seed)).fit_transform(rows) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(*(sciml.Embedding(steps=3, random_state=None).fit_transform(rows) for _ in range(2)))
    same = (sciml.Embedding(steps=3, random_state=kind(3)).fit_transform(rows) for kind in (int, np.int64))
    assert np.array_equal(*same)


@pytest.mark.slow
def test_scikit_learn_is_imported_when_it_is_needed_and_named_when_it_is_missing(monkeypatch):
    code = "import sys, sciml, sciml.cli\nassert 'sklearn' not in sys.modules\nassert 'Embedding' in dir(sciml)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    monkeypatch.delitem(sys.modules, "sciml.transformer", raising=False)
    monkeypatch.delitem(vars(sciml), "Embedding", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingExtraError, match=r"sciml\[learn\]"):
        _ = sciml.Embedding
    with pytest.raises(AttributeError, match="no attribute 'Embeding'"):
        _ = sciml.Embeding


def test_it_is_documented():
    assert "Raises:" in sciml.Embedding.__doc__
    for name in ("fit", "transform", "inverse_transform", "get_feature_names_out"):
        assert getattr(sciml.Embedding, name).__doc__


def test_curves_that_are_even_in_their_first_component_are_learned():
    """There a network without biases is odd, and begins at a saddle."""
    angle = np.linspace(-1.5, 1.5, 41)
    rows = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    assert sciml.Embedding(n_components=1).fit(rows).error_ < 0.1


def test_targets_that_are_rounding_are_not_blown_up():
    rows, angle = arc(120)
    wanted = np.stack([angle, 1e-17 * np.random.default_rng(0).normal(size=len(angle))], axis=1)
    assert sciml.Embedding(target="y").fit(rows, wanted).error_ < 0.02
