"""What checkpoints cost: ``python -m tests.benchmarks.checkpoint_cost``.

Fits write one every two seconds; what one takes, as a share of the default interval of sixty, is what the default costs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import sciml
from sciml.gallery import load_problem
from sciml.runs.checkpoint import CHECKPOINT, Checkpointer

_INTERVAL = 60.0


def _burgers(*solvers: Any, widths: tuple[int, ...] = (20, 20, 20, 20)) -> Callable[..., sciml.Solution]:
    return lambda **options: sciml.fit(load_problem("burgers"), sciml.MLP(*widths), solver=list(solvers), **options)


FITS: dict[str, Callable[..., sciml.Solution]] = {
    "Adam, 4 x 128": _burgers(sciml.Adam(150, look=10), widths=(128,) * 4),
    "L-BFGS, 4 x 64, 50 pairs": _burgers(sciml.LBFGS(120), widths=(64,) * 4),
    "SSBroyden, 4 x 20": _burgers(sciml.SSBroyden(300)),
    "Levenberg-Marquardt, 4 x 20": _burgers(sciml.LeastSquares(30)),
    "elements, Kuramoto-Sivashinsky": lambda **options: sciml.fit(load_problem("kuramoto_sivashinsky"), **options),
}


def measured(fit: Callable[..., sciml.Solution]) -> tuple[float, list[float], float]:
    """The seconds of a fit, those of each of its checkpoints, and the size of the largest in MB."""
    taken, sizes, save = list[float](), [0.0], Checkpointer._save

    def timed(self: Checkpointer, journal: Any) -> None:
        begin = time.perf_counter()
        save(self, journal)
        taken.append(time.perf_counter() - begin)
        assert self.run is not None
        sizes.append((self.run.path / CHECKPOINT).stat().st_size / 1e6)

    with tempfile.TemporaryDirectory() as place, mock.patch.object(Checkpointer, "_save", timed):
        solution = fit(out=Path(place), checkpoint=sciml.CheckpointEvery(seconds=2))
    return solution.seconds, taken, max(sizes)


def main() -> None:
    """The command line."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{'fit':<32} {'seconds':>8} {'checkpoints':>11} {'median s':>9} {'most s':>7} {'MB':>6} {'of a minute':>11}")
    for name, fit in FITS.items():
        seconds, taken, size = measured(fit)
        middle, most = statistics.median(taken or [0.0]), max(taken, default=0.0)
        share = most / _INTERVAL
        print(
            f"{name:<32} {seconds:>8.1f} {len(taken):>11} {middle:>9.3f} {most:>7.3f} {size:>6.1f} {share:>11.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
