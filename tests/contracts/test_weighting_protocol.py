"""The contract of a weighting: it renews the weights of an objective, says what it chose, and refuses settings out of range."""

import pytest
import torch

import sciml
from problems import Heat
from sciml import solvers
from sciml.errors import SolverError
from sciml.solvers import Weighting
from sciml.strategies.prepare import prepare

WEIGHTINGS = {"Balanced": sciml.Balanced(every=2), "Causal": sciml.Causal(chunks=4, every=2)}


@pytest.fixture(params=WEIGHTINGS)
def weighting(request):
    return WEIGHTINGS[request.param]


def objective():
    model = sciml.MLP(6)
    return prepare(Heat(), model, None, 60, None, torch.float64, "cpu", 0).objective()


def test_every_weighting_is_held_by_this_contract():
    public = {getattr(solvers, name) for name in solvers.__all__}
    kinds = {each.__name__ for each in public if isinstance(each, type) and issubclass(each, Weighting)}
    assert kinds - {"Weighting"} == set(WEIGHTINGS)


def test_it_renews_weights_that_are_finite_and_says_which(weighting):
    some = objective()
    terms = {term.name for block in some.blocks for term in block.terms}
    weighting.renew(some, first=True)
    assert set(some.weights) == terms
    assert all(0 < each < float("inf") for each in some.weights.values())
    said = weighting.record(some)
    assert said
    assert all(isinstance(value, float) for value in said.values())
    assert float(some.evaluate()[0]) > 0


def test_the_same_objective_gives_the_same_weights(weighting):
    one, two = objective(), objective()
    for some in (one, two):
        weighting.renew(some, first=True)
        weighting.renew(some)
    assert one.weights == two.weights
    assert weighting.record(one) == weighting.record(two)


def test_a_fit_takes_it_and_tells_what_it_did(weighting):
    way = {"causal": weighting} if isinstance(weighting, sciml.Causal) else {"weights": weighting}
    history = sciml.fit(Heat(), sciml.MLP(6), solver=sciml.Adam(20, look=5), points=60, **way).history
    assert [name for name in history if name.startswith(("weight", "causal", "epsilon"))]


def test_settings_out_of_range_are_refused(weighting):
    with pytest.raises(SolverError, match="every"):
        type(weighting)(every=0)
