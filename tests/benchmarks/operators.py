"""Operator learning as a table: ``python -m tests.benchmarks.operators [NAMES] [--pairs DIRECTORY] [--seconds 60]``.

Pairs are made by the library's own solvers, once, and kept in a directory; the last 200 are held out of everything.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import sciml
from sciml import d, operators
from sciml.operators.pairs import relative_errors

TRAIN, HELD = 1000, 200


class Burgers(sciml.Problem):
    """Periodic Burgers' equation with viscosity 0.1, to t = 1."""

    domain = sciml.Box(x=(0, 1), t=(0, 1))
    fields = ["u"]
    conditions = [sciml.Initial(u=0.0), sciml.Periodic("x")]

    @sciml.equation
    def momentum(self, u, x, t):
        return d(u, t) + u * d(u, x) - 0.1 * d(u, x, x)


class Heat(sciml.Problem):
    """Steady heat in a rod with random conductivity and load, held at 0."""

    domain = sciml.Interval(x=(0, 1))
    fields = ["u"]
    time = None
    a = f = None
    conditions = [sciml.Dirichlet(u=0.0)]

    @sciml.equation
    def balance(self, u, x):
        return -d(self.a(x) * d(u, x), x) - self.f(x)


def burgers(count, out, workers):
    """u0 from N(0, 625(-Δ + 25)⁻²), periodic, to u(., 1) on 128 points."""
    field = operators.GaussianField(sigma=25.0, tau=5.0, alpha=2.0, periodic=True)
    family = operators.Family(Burgers(), initial={"u": field})
    return operators.sample(family, count, out=out, grid={"x": 128, "t": [1.0]}, workers=workers)


def heat(count, out, workers):
    """a = exp of N(0, 4(-Δ + 4)⁻²) and f from N(0, 100(-Δ + 9)⁻²), Neumann, 16 modes, to u on 101 points."""
    conductivity = operators.GaussianField(sigma=2.0, tau=2.0, alpha=2.0, modes=16, transform=torch.exp)
    load = operators.GaussianField(sigma=10.0, tau=3.0, alpha=2.0, modes=16)
    family = operators.Family(Heat(), a=conductivity, f=load)
    return operators.sample(family, count, out=out, grid={"x": 101}, input_grid={"x": 101}, workers=workers)


def darcy(count, out, workers):
    """-∇·(a∇u) = 1, u = 0 on the square: a is 12 or 3 by the sign of N(0, (-Δ + 9)⁻²), Neumann; 29 x 29 of 113 x 113 nodes."""
    from .thresholded import solved

    field = operators.GaussianField(sigma=1.0, tau=3.0, alpha=2.0, modes=40)
    nodes, bounds = np.linspace(0, 1, 113), {"x": (0.0, 1.0), "y": (0.0, 1.0)}
    inputs, outputs = [], []
    for number in range(count):
        values = field.draw(bounds, np.random.default_rng([0, number])).on_grid(nodes, nodes)
        inputs.append(np.where(values >= 0, 12.0, 3.0)[::4, ::4])
        outputs.append(solved(np.where(values >= 0, 12.0, 3.0))[::4, ::4])
    axes = {"x": nodes[::4], "y": nodes[::4]}
    return operators.Pairs({"a": np.stack(inputs)}, {"u": np.stack(outputs)}, axes, {"a": axes})


def darcy_coarse(count, out, workers):
    """Every second node of the same: 15 x 15."""
    whole = operators.read(out.with_name("darcy.h5"))[:]
    axes = {name: nodes[::2] for name, nodes in whole.axes.items()}
    inputs, outputs = whole.inputs["a"][:, ::2, ::2], whole.outputs["u"][:, ::2, ::2]
    return operators.Pairs({"a": inputs}, {"u": outputs}, axes, {"a": axes})


def advection(count, out, workers):
    """Boxes of random place, width and height, moved by 0.5: 40 points, periodic, the exact solution."""
    generator, x = np.random.default_rng(0), np.arange(40) / 40
    before, after = [], []
    for _ in range(count):
        centre, width, height = generator.uniform(0.3, 0.7), generator.uniform(0.3, 0.6), generator.uniform(1, 2)
        box = lambda at: height * (np.abs((at - centre + 0.5) % 1 - 0.5) < width / 2)  # noqa: B023, E731
        before.append(box(x))
        after.append(box((x - 0.5) % 1))
    axes = {"x": x}
    return operators.Pairs({"a": np.stack(before)}, {"u": np.stack(after)}, axes, {"a": axes}, periodic=("x",))


PROBLEMS = {"burgers": burgers, "darcy": darcy, "darcy_coarse": darcy_coarse, "advection": advection, "heat": heat}
FAMILIES = {
    "burgers": lambda: operators.Family(
        Burgers(), initial={"u": operators.GaussianField(sigma=25.0, tau=5.0, alpha=2.0, periodic=True)}
    ),
    "heat": lambda: operators.Family(
        Heat(),
        a=operators.GaussianField(sigma=2.0, tau=2.0, alpha=2.0, modes=16, transform=torch.exp),
        f=operators.GaussianField(sigma=10.0, tau=3.0, alpha=2.0, modes=16),
    ),
}
MODELS = {
    "Linear": operators.Linear,
    "Kernel": operators.Kernel,
    "FNO": lambda: operators.FNO(modes=8, width=20),
    "DeepONet": operators.DeepONet,
    "PODDeepONet": operators.PODDeepONet,
    "UNet": operators.UNet,
    "Transformer": operators.Transformer,
}


def ten_epochs(batch=16, lr=5e-3):
    """Ten times through 900 pairs, as short trainings of others are compared."""
    steps = 10 * -(-900 // batch)
    schedule = {"max_lr": lr, "total_steps": steps, "pct_start": 0.2}
    rule = torch.optim.lr_scheduler.OneCycleLR
    return sciml.FirstOrder(torch.optim.AdamW, steps, lr=lr, batch=batch, scheduler=rule, scheduler_options=schedule, clip=1.0)


def pairs_of(name, directory, workers):
    """The pairs of a problem, from their file or made."""
    path = directory / f"{name}.h5"
    if not path.exists():
        made = PROBLEMS[name](TRAIN + HELD, path, workers)
        if not path.exists():
            made.save(path)
    return operators.read(path, family=FAMILIES[name]() if name in FAMILIES else None)


def corrected(surrogate, pairs, numbers):
    """Median error of predictions corrected by the equation, and seconds beside those of a cold solve."""
    errors, warm, cold = [], [], []
    for number in numbers:
        inputs = surrogate.family.draw(np.random.default_rng([0, int(number)]))
        begin = time.perf_counter()
        found = surrogate(**_as_arguments(inputs)).correct()
        warm.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        truth = sciml.fit(surrogate.family.posed(inputs), progress=False)
        cold.append(time.perf_counter() - begin)
        mesh = np.meshgrid(*pairs.axes.values(), indexing="ij")
        ours, theirs = (each(**dict(zip(pairs.axes, mesh, strict=True)))["u"] for each in (found, truth))
        errors.append(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
    return np.median(errors), np.median(warm), np.median(cold)


def _as_arguments(inputs):
    initial = {name.removeprefix("initial."): each for name, each in inputs.items() if name.startswith("initial.")}
    return {name: each for name, each in inputs.items() if not name.startswith("initial.")} | (
        {"initial": initial} if initial else {}
    )


def trajectories(count, out, workers):
    """The same initial values as for Burgers' equation, at 41 times on 64 points."""
    family = FAMILIES["burgers"]()
    return operators.sample(family, count, out=out, grid={"x": 64, "t": 41}, input_grid={"x": 64}, workers=workers)


def rolled_out(directory, workers, seconds, train=200, held=40):
    """Rows of the error after 1, 10, 20 and 40 steps: one step repeated, or a recurrence, beside persistence."""
    path = directory / "trajectories.h5"
    if not path.exists():
        trajectories(train + held, path, workers)
    whole = operators.read(path)[:]
    states = np.moveaxis(whole.outputs["u"], 2, 1)
    axes = {"x": whole.axes["x"]}
    before, after = states[:train, :-1].reshape(-1, 64), states[:train, 1:].reshape(-1, 64)
    steps = operators.Pairs({"u": before}, {"u": after}, axes, {"u": axes}, periodic=("x",))
    few = steps[np.sort(np.random.default_rng(0).permutation(len(steps))[:2000])]
    times = {"x": whole.axes["x"], "t": whole.axes["t"]}
    runs = operators.Pairs({"u": states[:train, 0]}, {"u": whole.outputs["u"][:train]}, times, {"u": axes}, periodic=("x",))
    fitted = {
        "Linear": sciml.fit(few, operators.Linear()),
        "Kernel": sciml.fit(few, operators.Kernel()),
        "FNO": sciml.fit(steps, operators.FNO(modes=16, width=24), seconds=seconds),
        "Recurrent": sciml.fit(runs, operators.Recurrent(), seconds=seconds),
    }
    truth = states[train:]
    print("| one step repeated | 1 | 10 | 20 | 40 | seconds |\n|---|---|---|---|---|---|")
    for name in ("persistence", *fitted):
        if name == "persistence":
            found, took = np.repeat(truth[:, :1], 41, axis=1), 0.0
        else:
            found = np.stack([fitted[name].roll(each[0], 40)[:, :, 0] for each in truth])
            took = fitted[name].seconds
        errors = np.linalg.norm(found - truth, axis=2) / np.linalg.norm(truth, axis=2)
        print(f"| {name} | " + " | ".join(f"{errors[:, k].mean():.1e}" for k in (1, 10, 20, 40)) + f" | {took:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which; all by default: {', '.join(PROBLEMS)}")
    parser.add_argument("--pairs", type=Path, default=Path("runs/pairs"), help="where pairs are kept")
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="which models")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each network")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--roll-out", action="store_true", help="steps of time, repeated, in place of the table")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.roll_out:
        rolled_out(given.pairs, given.workers, given.seconds)
        return
    print("| problem | model | mean relative L2 | worst | seconds | coverage of 95 % |\n|---|---|---|---|---|---|")
    for name in given.names or PROBLEMS:
        pairs = pairs_of(name, given.pairs, given.workers)
        train, held = pairs[:TRAIN], pairs[TRAIN:]
        for model in given.models:
            begin = time.perf_counter()
            how = {"solver": ten_epochs()} if name == "darcy_coarse" and model == "FNO" else {}
            surrogate = sciml.fit(train, MODELS[model](), seconds=given.seconds, **how)
            seconds = time.perf_counter() - begin
            errors = relative_errors(surrogate.predict(held.inputs), held.wanted())
            row = f"{errors.mean():.2e} | {errors.max():.1e} | {seconds:.1f} | {surrogate.errors.coverage[model]:.0%}"
            print(f"| {name} | {model} | {row} |", flush=True)
            if model == "Kernel" and surrogate.family is not None:
                error, warm, cold = corrected(surrogate, pairs, range(TRAIN, TRAIN + 5))
                print(f"| {name} | Kernel, corrected | {error:.1e} | | {warm:.2f} for {cold:.2f} cold | |", flush=True)


if __name__ == "__main__":
    main()
