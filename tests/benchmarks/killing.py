"""Kill -9 at random moments of fits that write checkpoints: ``python -m tests.benchmarks.killing --kills 200``.

Every kill is one of a real process. The fit is resumed by another one, which is killed in its turn, until one comes to the end:
then its solution must have the bits of a fit that was never killed. What a kill loses is the time between the checkpoint and
the kill. It must not be more than the interval between checkpoints and the longest step or piece of work, during which
none is written.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import sciml
from sciml.runs import RunDirectory
from sciml.runs.checkpoint import CHECKPOINT
from sciml.solvers.journal import Journal
from tests.benchmarks.killed import FITS
from tests.children import Child

# A busy machine, and what writing takes.
_SLACK, _WRITING = 2.0, 0.3


@dataclass
class Killed:
    """What became of the kills."""

    kills: int = 0
    ends: int = 0
    unreadable: list[str] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    without: int = 0
    over: list[str] = field(default_factory=list)


def killed(count: int, interval: float, seed: int, names: list[str] | None = None) -> Killed:
    """Kill so many times, one fit after the other.

    Args:
        count: kills.
        interval: seconds between checkpoints.
        seed: of the moments.
        names: of the fits; all of them by default.
    """
    chance, found = random.Random(seed), Killed()
    chosen = names or list(FITS)
    wholes = {name: _whole(name, interval) for name in chosen}
    while found.kills < count:
        for name in chosen:
            if found.kills < count:
                _to_the_end(name, *wholes[name], interval, chance, found, count)
    return found


def _whole(name: str, interval: float) -> tuple[Any, float]:
    """A fit that is not killed, and the longest time between two moments at which it could have written a checkpoint."""
    moments, attend = [time.perf_counter()], Journal._attend

    def noted(journal: Journal, *state: Any) -> None:
        moments.append(time.perf_counter())
        attend(journal, *state)

    with tempfile.TemporaryDirectory() as place, mock.patch.object(Journal, "_attend", noted):
        whole = FITS[name](out=place, checkpoint=sciml.CheckpointEvery(seconds=interval))
    return whole, float(np.diff(moments).max())


def _to_the_end(
    name: str, whole: Any, longest: float, interval: float, chance: random.Random, found: Killed, count: int
) -> None:
    """Kill one fit again and again, with more and more time, until it has come to its end."""
    with tempfile.TemporaryDirectory() as place:
        path, patience = Path(place) / "run", whole.seconds / 4
        while True:
            last = found.kills >= count

            def work(tell: Any) -> None:
                start = time.time()
                tell(f"{start!r}")
                options = {"out": path, "resume": True, "checkpoint": sciml.CheckpointEvery(seconds=interval)}
                _same(whole, FITS[name](**options), tell)

            with Child(work) as child:
                start = float(child.line())
                if not last:
                    time.sleep(chance.uniform(0.0, patience))
                    child.send(signal.SIGKILL)
                moment = time.time()
                rest, status = child.wait()
            if status != -signal.SIGKILL:
                found.ends += 1
                if status != 0 or rest != ["same"]:
                    found.differ.append(f"{name}: {status} {rest}")
                return
            found.kills += 1
            patience *= 1.1
            lost = _lost(name, path, start, moment, found)
            if lost > interval + _SLACK * longest + _WRITING:
                found.over.append(f"{name}: {lost:.2f} s lost, longest piece of work {longest:.2f} s")


def _lost(name: str, path: Path, start: float, moment: float, found: Killed) -> float:
    """How many seconds a kill has lost; the process was at work from the start to the moment."""
    run = RunDirectory(path)
    if not path.is_dir() or not run.exists(CHECKPOINT):
        found.without += 1
        found.lost.append(moment - start)
        return moment - start
    try:
        with warnings.catch_warnings(action="error"):
            content = run.load(CHECKPOINT)
    except Exception as error:
        found.unreadable.append(f"{name}: {error}")
        return math.inf
    assert content["seconds"] >= 0
    found.lost.append(moment - max(start, (path / CHECKPOINT).stat().st_mtime))
    return found.lost[-1]


def _same(whole: Any, resumed: Any, tell: Any) -> None:
    """Tell whether two solutions have the same bits."""
    pairs = zip(whole.trial.state_dict().values(), resumed.trial.state_dict().values(), strict=True)
    alike = all(torch.equal(one, other) for one, other in pairs)
    steps = whole.history["step"].tolist() == resumed.history["step"].tolist()
    losses = np.array_equal(whole.history["loss"], resumed.history["loss"], equal_nan=True)
    tell("same" if alike and steps and losses and whole.nfev == resumed.nfev else "different")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--interval", type=float, default=0.2, help="seconds between checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(FITS)}")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = killed(given.kills, given.interval, given.seed, given.names or None)
    lost = sorted(found.lost) or [0.0]
    print(
        f"{found.kills} kills, {found.ends} fits came to their end, {len(found.differ)} of them with other bits; "
        f"{len(found.unreadable)} checkpoints unreadable; {found.without} kills before the first checkpoint; seconds between "
        f"the last checkpoint and the kill: median {lost[len(lost) // 2]:.3f}, most {lost[-1]:.3f} (interval "
        f"{given.interval:g}), {len(found.over)} more than the interval and the longest piece of work"
    )
    for each in (*found.unreadable, *found.differ, *found.over):
        print(each)


if __name__ == "__main__":
    main()
