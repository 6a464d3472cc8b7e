"""What holds of every solver: it is written out as the call that makes it, and refuses settings out of range."""

import inspect
import math

import pytest
import torch

import sciml.solvers
from sciml import solvers
from sciml.errors import SolverError

NAMESPACE = {"torch": torch, **{name: getattr(solvers, name) for name in solvers.__all__}}

SOLVERS = {
    "Adam": [solvers.Adam(), solvers.Adam(100, lr=1e-2, batch=32, rates={"unknowns": 0.1})],
    "FirstOrder": [
        solvers.FirstOrder(torch.optim.SGD),
        solvers.FirstOrder(
            torch.optim.AdamW,
            500,
            scheduler=torch.optim.lr_scheduler.StepLR,
            scheduler_options={"step_size": 3},
            clip=1.0,
            lr=0.1,
        ),
    ],
    "GaussNewton": [solvers.GaussNewton(), solvers.GaussNewton(30, rank_tolerance=0.0)],
    "LBFGS": [solvers.LBFGS(), solvers.LBFGS(50, history=5)],
    "LeastSquares": [
        solvers.LeastSquares(),
        solvers.LeastSquares(20, seconds=math.inf, factorisation="svd", memory=1e9),
    ],
    "LinearLeastSquares": [solvers.LinearLeastSquares(), solvers.LinearLeastSquares(3, rank_tolerance=1e-12)],
    "SSBroyden": [solvers.SSBroyden(), solvers.SSBroyden(10, memory=2.0**30)],
}

RECORDS = [
    solvers.Adaptive(every=5),
    solvers.Balanced("ntk", smoothing=0.5),
    solvers.Causal(chunks=4),
    solvers.EarlyStopping(patience=3),
    solvers.HardConstraints(harmonics=2),
]


def concrete():
    kinds = (getattr(sciml.solvers, name) for name in solvers.__all__)
    return {
        kind.__name__
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, solvers.Solver) and not inspect.isabstract(kind)
    }


def test_every_solver_is_here():
    assert concrete() == set(SOLVERS)


@pytest.mark.parametrize("given", [*(each for both in SOLVERS.values() for each in both), *RECORDS], ids=repr)
def test_a_repr_is_the_call_that_makes_it(given):
    again = eval(repr(given), dict(NAMESPACE))
    assert type(again) is type(given)
    assert vars(again) == vars(given)
    assert repr(again) == repr(given)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("setting", ["steps", "look"])
def test_numbers_of_steps_are_checked(name, setting):
    first = (torch.optim.SGD,) if name == "FirstOrder" else ()
    for wrong in (0, -1, True):
        with pytest.raises(SolverError, match=f"{setting}.* must be positive whole numbers of at least 1"):
            getattr(solvers, name)(*first, **{setting: wrong})
