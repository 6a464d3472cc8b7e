"""What the tests of distributed fits run, in one process or in several: each named fit, and what came of it in a file."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch

import sciml
from sciml import d, models, solvers
from sciml.parallel import process_group
from sciml.solvers.matrix_free import MatrixFreeSystem
from sciml.solvers.objective import Objective
from sciml.strategies.prepare import prepare

torch.set_num_threads(1)
FIRST = os.environ.get("RANK", "0") == "0"


class Heat(sciml.Problem):
    """A rod with an unknown conductivity."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    k = sciml.Unknown(0.5, lower=0)
    conditions = [sciml.Initial(u=lambda x: torch.sin(torch.pi * x)), sciml.Dirichlet(u=0.0)]

    @sciml.equation
    def heat(self, u, x, t):
        return d(u, t) - self.k * d(u, x, x)


class Mean(sciml.Problem):
    """A rod at rest, its mean prescribed."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    conditions = [sciml.Dirichlet(u=0.0, on=domain.face(x=0)), sciml.conditions.Integral(u=0.5)]

    @sciml.equation
    def rest(self, u, x):
        return d(u, x, x)


def measured():
    x, t = np.random.default_rng(0).uniform(size=(2, 400))
    u = np.sin(np.pi * x) * np.exp(-0.1 * np.pi**2 * t)
    return {"x": x, "t": t, "u": np.where(np.arange(400) < 30, np.nan, u)}


def lazy(folder):
    return sciml.read_hdf5(folder / "decay.h5", columns={"t": "t", "u": "u", "v": "v"}, lazy=True, missing="mask")


class Decay(sciml.Problem):
    """u' = -k u, and v = 2 u measured with it."""

    domain = sciml.Interval(t=(0, 2))
    fields = ["u", "v"]
    k = sciml.Unknown(0.5, lower=0)

    @sciml.equation
    def decay(self, u, t):
        return d(u, t) + self.k * u

    @sciml.equation
    def double(self, u, v):
        return v - 2 * u


FITS = {
    "Adam": {"solver": solvers.Adam(40)},
    "mini-batches": {"solver": solvers.Adam(40, batch=100)},
    "LBFGS": {"solver": solvers.LBFGS(25)},
    "SSBroyden": {"solver": solvers.SSBroyden(25)},
    "LeastSquares": {"solver": solvers.LeastSquares(8)},
    "LeastSquares by QR": {"solver": solvers.LeastSquares(8, factorisation="qr")},
    "LeastSquares by SVD": {"solver": solvers.LeastSquares(4, factorisation="svd")},
    "LeastSquares, few rows": {"solver": solvers.LeastSquares(6), "points": 60},
    "LeastSquares, mixed precision": {"solver": solvers.LeastSquares(5, factorisation="mixed")},
    "GaussNewton": {"solver": solvers.GaussNewton(4), "model": models.RandomFeatures(60)},
    "adaptive": {"solver": solvers.Adam(40), "sampler": solvers.Adaptive(every=10)},
    "balanced": {"solver": solvers.Adam(40), "weights": solvers.Balanced("ntk", every=10), "causal": solvers.Causal()},
    "ended by a callback": {"solver": solvers.Adam(200, look=10), "callbacks": [lambda report: report.step >= 30]},
    "averages": {"solver": solvers.LBFGS(25), "problem": Mean},
    "stream": {"solver": solvers.Adam(30, batch=512), "problem": Decay},
    "whole": {"solver": None, "problem": Mean, "model": None},
}


def solved(name, folder, **more):
    how = {"problem": Heat, "model": sciml.MLP(16, 16), **FITS[name], **more}
    kind, model = how.pop("problem"), how.pop("model")
    data = {Heat: lambda: sciml.Table(measured(), missing="mask"), Mean: lambda: None, Decay: lambda: lazy(folder)}[kind]()
    return sciml.fit(kind(), model, data=data, **how)


def values_of(solution):
    at = np.linspace(0.05, 0.95, 7)
    found = solution(**dict.fromkeys(solution.coordinates, at))
    return np.concatenate([*found.values(), solution.unknowns["estimate"]])


def products():
    """Products with a Jacobian that is not formed; a fit ends its conjugate gradients where rounding has a say."""
    setup = prepare(Heat(), sciml.MLP(16, 16), sciml.Table(measured(), missing="mask"), None, None, torch.float64, "cpu", 0)
    with process_group.joined() if process_group.offered() else contextlib.nullcontext():
        found = MatrixFreeSystem(setup.objective(), 1e9)
        vector = torch.linspace(-1, 1, len(found.gradient), dtype=torch.float64)
        values = torch.tensor([found.value, found.foretold(1e-3 * vector)], dtype=torch.float64)
        return torch.cat([values, found.gradient, found.square(vector)]).numpy()


def all_fits(folder):
    # Pieces of the file as in the tests of streams.
    sciml.data.lazy._PIECE_ROWS = 1000
    found = {name: values_of(solved(name, folder)) for name in FITS} | {"matrix-free products": products()}
    if FIRST:
        np.savez(folder / f"fits.{os.environ.get('WORLD_SIZE', '1')}.npz", **found)


def interrupted(folder):
    """A process asks for the end after some looks."""
    looks = []

    def asks(report):
        looks.append(report.step)
        if len(looks) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    solved("LBFGS", folder, out=folder / "run", solver=solvers.LBFGS(25, look=4), callbacks=[asks])


def resumed(folder):
    """Goes on, and says how many evaluations that took."""
    evaluate, count = Objective.evaluate, []

    def counted(self, *given):
        count.append(1)
        return evaluate(self, *given)

    Objective.evaluate = counted
    solution = solved("LBFGS", folder, out=folder / "run", solver=solvers.LBFGS(25, look=4), resume=True)
    np.save(folder / f"evaluations.{os.environ.get('RANK', '0')}.npy", len(count))
    if FIRST:
        np.save(folder / "resumed.npy", values_of(solution))


def killed(folder):
    """The second process dies in the middle."""

    class Dying(torch.optim.Adam):
        taken = 0

        def step(self, *given):
            self.taken += 1
            if self.taken == 20 and not FIRST:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step(*given)

    every = sciml.runs.CheckpointEvery(steps=5)
    solved("Adam", folder, out=folder / "run", solver=solvers.FirstOrder(Dying, 40), checkpoint=every)


def concluding(folder):
    """A callback is told the end."""

    class Told:
        def __call__(self, report):
            pass

        def conclude(self, solution):
            solution.save(folder / f"told.{os.environ['RANK']}.pt")

    solved("Adam", folder, callbacks=[Told()])


def unequal(folder):
    solved("Adam", folder, seed=0 if FIRST else 1)


def apart(folder):
    """Every process by itself."""
    solution = solved("Adam", folder, seed=int(os.environ["RANK"]), distributed=False)
    np.save(folder / f"apart.{os.environ['RANK']}.npy", values_of(solution))


def drawing(folder):
    """An optimizer that does something else in every process."""

    class Shifting(torch.optim.Adam):
        def step(self, *given):
            found = super().step(*given)
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data += 0.0 if FIRST else 1e-6
            return found

    sciml.fit(Heat(), sciml.MLP(8), data=sciml.Table(measured(), missing="mask"), solver=solvers.FirstOrder(Shifting, 60))


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](Path(sys.argv[2]))
    except sciml.errors.SciMLError as error:
        print(f"{type(error).__name__} in process {os.environ.get('RANK', '0')}: {error}", file=sys.stderr, flush=True)
        raise SystemExit(3) from None
