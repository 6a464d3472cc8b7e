"""A fit that was killed and resumed ends with the same bits as one that was not, whatever it was doing."""

import os
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import problem_class

import sciml
from problems import Growth, Heat
from sciml import d
from sciml.runs.checkpoint import Checkpointer
from sciml.runs.history import read_lines

BRIEF_ROD = sciml.Box(x=(0, 1), t=(0, 0.2))


class Decay(sciml.Problem):
    domain = sciml.Interval(t=(0, 2))
    fields = ["u"]
    conditions = [sciml.Initial(u=1.0)]

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + u**2


class Layer(sciml.Problem):
    """Too steep for the first few features."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def layer(self, u, x):
        return 1e-2 * d(u, x, x) - d(u, x) + torch.sin(40 * x)


class Plate(sciml.Problem):
    domain = sciml.Box(x=(0, 1), y=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.boundary)]

    @sciml.equation
    def plate(self, u, x, y):
        return d(u, x, x) + d(u, y, y) + 0.1 * u**2 + torch.sin(torch.pi * x) * torch.sin(3 * torch.pi * y)


HOLED = Plate.domain - sciml.Disk((0.3, 0.7), 0.15)


class Source(sciml.Problem):
    """The source f is not known."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u", "f"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.faces("x"))]

    @sciml.equation
    def poisson(self, u, f, x):
        return d(u, x, x) + f


class Reacting(sciml.Problem):
    """Its windows take the inverse that an earlier one has made."""

    domain = (sciml.Box(x=(0, 1), y=(0, 1)) - sciml.Disk((0.5, 0.5), 0.2)) * sciml.Interval(t=(0, 0.5))
    fields = ["u"]
    conditions = [sciml.Initial(u=lambda x, y: torch.cos(torch.pi * x)), sciml.Neumann(u=0.0, on=domain.boundary)]

    @sciml.equation
    def reaction(self, u, x, y, t):
        return d(u, t) - 0.1 * (d(u, x, x) + d(u, y, y)) + u**3


class Boxed(Reacting):
    """Its windows are solved on grids."""

    domain = sciml.Box(x=(0, 1), y=(0, 1), t=(0, 0.5))
    conditions = [sciml.Initial(u=lambda x, y: torch.cos(torch.pi * x)), sciml.Neumann(u=0.0)]


class Striped(sciml.Problem):
    """A start that jumps, which is projected onto grids."""

    domain = Boxed.domain
    fields = ["u"]
    conditions = [
        sciml.Periodic("x"),
        sciml.Periodic("y"),
        sciml.Initial(u=lambda x, y: ((x - 0.3).abs() < 0.2).to(x.dtype)),
    ]

    @sciml.equation
    def drift(self, u, x, y, t):
        return d(u, t) + 0.5 * d(u, x) - 0.1 * sciml.laplacian(u, x, y)


class Transport(sciml.Problem):
    """A speed from scattered measurements."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    speed = sciml.Unknown(0.5)

    @sciml.equation
    def transport(self, u, x, t):
        return d(u, t) + self.speed * u * d(u, x) - 0.1 * d(u, x, x)


class Curve(sciml.Problem):
    domain = sciml.Interval(t=(0, 1))
    fields = ["u"]


TIMES = np.linspace(0, 2, 15)
RNG = np.random.default_rng(0)
DATA = {"t": TIMES, "u": np.exp(0.8 * TIMES) + 0.01 * RNG.standard_normal(15)}
PLACES = np.linspace(0, 1, 41)
BENT = {"x": PLACES, "u": np.sin(np.pi * PLACES) / np.pi**2 + 1e-4 * RNG.standard_normal(41)}


def growing(solver, model=None, **options):
    return lambda **more: sciml.fit(Growth(), model or sciml.MLP(5, 5), data=DATA, solver=solver, **options, **more)


def heating(solver, **options):
    return lambda **more: sciml.fit(Heat(domain=BRIEF_ROD), sciml.MLP(5, 5), solver=solver, points=128, **options, **more)


PLACES_2, TIMES_2 = RNG.random((2, 60))
SCATTERED = {"x": PLACES_2, "t": TIMES_2, "u": np.sin(3 * PLACES_2) * np.exp(-TIMES_2)}
SCATTERED["u"] += 0.02 * RNG.standard_normal(60)


def lazily(**options):
    """A table that stays in its file, batch after batch."""
    path = Path(tempfile.gettempdir()) / f"sciml-resuming-{os.getpid()}.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            file["t"] = np.linspace(0, 1, 30_000)
            file["u"] = np.linspace(0, 1, 30_000) ** 2
    table = sciml.read_hdf5(path, lazy=sciml.LoaderOptions(workers=0))
    return sciml.fit(Curve(), sciml.MLP(4), data=table, solver=sciml.Adam(12, batch=512, look=3), **options)


def taught(**options):
    """A network that learns from windows, in few steps."""
    few = [sciml.Adam(6, look=3), sciml.SSBroyden(20, look=5)]
    with mock.patch("sciml.strategies.teaching.usual_stages", return_value=few):
        return sciml.fit(Decay(), sciml.MLP(4), **options)


def striped(**options):
    """Few nodes for a start that jumps."""
    with mock.patch.multiple("sciml.strategies.grid_slabs", _EFFORT=3e8, _OF_A_JUMP=1.0):
        return sciml.fit(Striped(), **options)


FITS = {
    "Adam": growing(sciml.Adam(20, look=5)),
    "Adam with rates": growing(sciml.Adam(20, look=5, rates={"layers.0": 1e-4, "unknowns": 1e-2})),
    "Adam on parts": growing(sciml.Adam(20, batch=8, look=5)),
    "a scheduler": growing(
        sciml.FirstOrder(
            torch.optim.SGD,
            steps=20,
            lr=1e-3,
            momentum=0.9,
            look=5,
            scheduler=torch.optim.lr_scheduler.StepLR,
            scheduler_options={"step_size": 3},
        )
    ),
    "AdamW": growing(sciml.FirstOrder(torch.optim.AdamW, steps=20, look=2), early_stopping=sciml.EarlyStopping(patience=2)),
    "NAdam": growing(sciml.FirstOrder(torch.optim.NAdam, steps=20, look=5, lr=1e-3)),
    "LBFGS": growing(sciml.LBFGS(20, look=5)),
    "SSBroyden": growing(sciml.SSBroyden(20, look=5)),
    "LeastSquares": growing(sciml.LeastSquares(12, look=3)),
    "LinearLeastSquares": growing(sciml.LinearLeastSquares(8), sciml.RandomFeatures(12, 2.0)),
    "GaussNewton": growing(sciml.GaussNewton(8, rank_tolerance=0.0), sciml.RandomFeatures(12, 2.0)),
    "two solvers": growing([sciml.Adam(12, look=4), sciml.LBFGS(20, look=5)]),
    "profile": growing(sciml.LeastSquares(20), sciml.RandomFeatures(12, 2.0), intervals="profile"),
    "passes": growing(sciml.LeastSquares(10), noise=sciml.Huber()),
    "frozen": growing(sciml.LBFGS(20, look=5), freeze="layers.0"),
    "Polish": heating([sciml.LeastSquares(6), sciml.Polish(60, steps=2, rounds=2)]),
    "Adaptive": heating(sciml.LBFGS(20, look=5), sampler=sciml.Adaptive(every=4)),
    "Causal": heating(sciml.Adam(20, look=5), causal=sciml.Causal(every=3)),
    "Balanced": heating(sciml.Adam(20, look=5), weights=sciml.Balanced(every=4)),
    "tangent kernel": heating(sciml.LBFGS(20, look=5), weights=sciml.Balanced("ntk", every=4)),
    "exact": heating(sciml.LBFGS(20, look=5), exact=True),
    "windows": heating([sciml.LBFGS(8, look=4), sciml.Polish(40, steps=2, rounds=1)], windows=2),
    "float32": heating(sciml.LBFGS(20, look=5), dtype=torch.float32),
    "features": lambda **more: sciml.fit(Layer(), **more),
    "features in windows": lambda **more: sciml.fit(Decay(), **more),
    "degrees": lambda **more: sciml.fit(Plate(), **more),
    "elements": lambda **more: sciml.fit(problem_class("fisher_kpp")(), **more),
    "corners": lambda **more: sciml.fit(problem_class("poisson_l_shape")(), **more),
    "constants": lambda **more: sciml.fit(Growth(), data=DATA, **more),
    "tiles": lambda **more: sciml.fit(Transport(), data=SCATTERED, **more),
    "cut tiles": lambda **more: sciml.fit(Plate(domain=HOLED), strategy=sciml.strategies.Tiles(3, 4), **more),
    "cut tiles in time": lambda **more: sciml.fit(problem_class("heat_holed")(), **more),
    "cut tiles with a reaction": lambda **more: sciml.fit(Reacting(), **more),
    "grids": lambda **more: sciml.fit(Boxed(), **more),
    "grids of a start that jumps": striped,
    "a lazy table": lazily,
    "taught": taught,
    "unknown fields": lambda **more: sciml.fit(Source(), data=BENT, **more),
}


# Of fits that have few pieces of work: after how many checkpoints they are killed the first time, and the second.
SHORT = {
    "LinearLeastSquares": (1, 1),
    "GaussNewton": (1, 1),
    "Polish": (3, 2),
    "features": (1, 1),
    "degrees": (1, 1),
    "elements": (4, 2),
    "corners": (1,),
    "tiles": (6,),
    "cut tiles": (1, 1),
    "cut tiles in time": (4,),
    "cut tiles with a reaction": (7, 2),
    "grids": (2, 2),
    "grids of a start that jumps": (4, 8),
}


# Killed again after they were resumed: one of each kind of state.
TWICE = {
    "Adam",
    "taught",
    "a scheduler",
    "LBFGS",
    "SSBroyden",
    "two solvers",
    "Adaptive",
    "passes",
    "elements",
    "windows",
    "cut tiles with a reaction",
}


class KilledError(BaseException):
    """The process is no more."""


@pytest.fixture
def kill(monkeypatch):
    """Make the writing of checkpoints the last thing that a fit does, at a number of them."""
    save = Checkpointer._save

    def kill_at(number):
        left = [number]

        def dying(self, journal):
            save(self, journal)
            left[0] -= 1
            if left[0] == 0:
                raise KilledError

        monkeypatch.setattr(Checkpointer, "_save", dying)

    return kill_at


def same(one, other):
    """The same bits in everything but seconds."""
    points = {name: np.linspace(*ends, 7) for name, ends in one.bounds.items()}
    inside = one.domain.contains(np.stack(list(points.values()), axis=1))
    points = {name: values[inside] for name, values in points.items()}
    assert all(np.array_equal(one(**points)[name], other(**points)[name]) for name in one.fields)
    for ours, theirs in zip(one.trial.state_dict().values(), other.trial.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs
    pd.testing.assert_frame_equal(
        one.history.drop(columns="seconds", errors="ignore"),
        other.history.drop(columns="seconds", errors="ignore"),
        check_exact=True,
    )
    for frame in ("unknowns", "residuals"):
        pd.testing.assert_frame_equal(getattr(one, frame), getattr(other, frame), check_exact=True)
    assert (one.status, one.nit, one.nfev, one.solver) == (other.status, other.nit, other.nfev, other.solver)
    assert one.choices == other.choices


@pytest.mark.parametrize("name", FITS)
def test_fault_11_a_resumed_fit_equals_one_that_was_never_killed(name, kill, tmp_path, monkeypatch):
    """Bitwise, for every solver and strategy, after one or two kills."""
    monkeypatch.setattr("sciml.solvers.journal._WORTH", 0.0)
    options = {"out": tmp_path, "checkpoint": sciml.CheckpointEvery(seconds=None, steps=1)}
    kills = SHORT.get(name, (6, 3) if name in TWICE else (6,))
    with warnings.catch_warnings(action="ignore", category=sciml.ConditionWarning):
        whole = FITS[name]()
        for time, number in enumerate(kills):
            kill(number)
            with pytest.raises(KilledError):
                FITS[name](**options, resume=time > 0)
        kill(-1)
        resumed = FITS[name](**options, resume=True)
    same(whole, resumed)
    lines = read_lines(tmp_path / "history.jsonl")
    assert len(lines) == len(whole.history)
