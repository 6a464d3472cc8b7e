"""Training data of operator learning: samples of a family, solved in processes, kept one by one on disk, resumable."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sciml._text import whole
from sciml.baselines import baseline
from sciml.data.archive import write_atomic
from sciml.errors import FileError, SciMLError, SolverError
from sciml.fitting import fit
from sciml.models import Spectral, model_of
from sciml.operators.family import Axes, Family
from sciml.operators.pairs import Pairs
from sciml.parallel.workers import check_workers, worked
from sciml.solution import Solution

_LOOK = 1.0


def sample(
    family: Family,
    count: int,
    *,
    out: str | Path | None = None,
    grid: Mapping[str, Any] | None = None,
    input_grid: Mapping[str, Any] | None = None,
    how: str | Callable[..., Solution] = "fit",
    workers: int | None = 1,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
    **options: Any,
) -> Pairs:
    """Training pairs of an operator: inputs drawn from a family, and the solutions of their problems on a grid.

    Sample i is drawn from a generator of its own, so the same seed gives the same samples whatever ``count`` and ``workers``
    are. With ``out`` every solved sample is on disk at once, in ``<out>.parts``, until all of them are in one file: after a
    crash the same call goes on, with a larger ``count`` too.

    Args:
        family: the problems.
        count: how many samples are drawn. Those that cannot be solved are left out, and kept with the reason in ``failures``.
        out: the HDF5 file to keep them in.
        grid: for coordinates of the output their nodes or number: ``{"x": 128, "t": [1.0]}``. By default 128 along one
            coordinate, 33 along each of two, 17 of three.
        input_grid: likewise for the input functions.
        how: ``"fit"``, ``"baseline"``, or a function of a problem that returns a solution.
        workers: how many processes, with one thread each; more than one need joblib. None: as ``joblib.parallel_config`` says.
        seed: of the draws.
        progress: is told how many are done, of how many, every second or so.
        options: keywords for ``fit`` or ``baseline``.

    Returns:
        The pairs that were solved.

    Raises:
        SolverError: no sample could be solved; a number that is none.
        FileError: ``out`` cannot be written, or its parts are of other samples.
        MissingExtraError: several workers without joblib.

    Example:
        >>> import sciml
        >>> from sciml import operators
        >>> family = operators.Family(sciml.gallery.problem("logistic_growth"), rate=(1.0, 3.0))
        >>> pairs = operators.sample(family, 5, grid={"t": 33}, how="baseline")
        >>> pairs
        5 pairs: rate to u on 33 (t)
    """
    whole("count", count, 1, SolverError)
    check_workers(workers)
    axes = family.axes(family.base.coordinates, grid)
    input_axes = {name: family.axes(along, input_grid) for name, along in family.coordinates.items()}
    work = _Work(family, axes, input_axes, how, seed, options, None if out is None else Path(f"{out}.parts"))
    known = work.known(count)
    left, began = [number for number in range(count) if number not in known], 0.0
    for number, record in worked(work.solved, left, workers):
        known[number] = record
        if progress is not None and (time.monotonic() - began > _LOOK or len(known) == count):
            began = time.monotonic()
            progress(len(known), count)
    pairs = work.gathered(known)
    if out is not None and work.parts is not None:
        pairs.save(out)
        shutil.rmtree(work.parts, ignore_errors=True)
    return pairs


@dataclass(frozen=True)
class _Work:
    """What is common to all samples, and how one is solved."""

    family: Family
    axes: Axes
    input_axes: Mapping[str, Axes]
    how: Any
    seed: int
    options: Mapping[str, Any]
    parts: Path | None

    def __post_init__(self) -> None:
        if self.how not in ("fit", "baseline") and not callable(self.how):
            raise SolverError(f"how must be 'fit', 'baseline' or a function of a problem; given: {self.how!r}")

    def known(self, count: int) -> dict[int, dict[str, Any]]:
        """The samples that lie on disk from an earlier call."""
        if self.parts is None:
            return {}
        self.parts.mkdir(parents=True, exist_ok=True)
        label, ours = self.parts / "samples.json", self._fingerprint()
        if label.exists() and json.loads(label.read_text()) != ours:
            raise FileError(
                f"{self.parts} holds other samples (another family, grid, seed or way): remove it, or choose another out"
            )
        write_atomic(label, json.dumps(ours).encode())
        found = {}
        for file in self.parts.glob("*.npz"):
            number = int(file.stem)
            if number < count:
                with np.load(file, allow_pickle=False) as content:
                    found[number] = {key: content[key] for key in content.files}
        return found

    def _fingerprint(self) -> dict[str, Any]:
        grids = {"outputs": self.axes, **self.input_axes}
        digest = hashlib.sha256()
        for name, axes in grids.items():
            for coordinate, nodes in axes.items():
                digest.update(f"{name}.{coordinate}".encode() + nodes.tobytes())
        varied = [
            [each.name, each.kind, repr(each.sampler) if isinstance(each.sampler, tuple) else type(each.sampler).__name__]
            for each in self.family.varied
        ]
        return {
            "problem": repr(self.family.base),
            "varied": varied,
            "grids": digest.hexdigest(),
            "seed": self.seed,
            "how": self.how if isinstance(self.how, str) else getattr(self.how, "__name__", "function"),
        }

    def solved(self, number: int) -> tuple[int, dict[str, Any]]:
        """One sample: its inputs and outputs on the grids, or why there are none."""
        inputs = self.family.draw(np.random.default_rng([self.seed, number]))
        record: dict[str, Any] = {
            f"input.{name}": np.asarray(self.family.on_axes(name, value, axes), dtype=float)
            for (name, axes), value in zip(self.input_axes.items(), inputs.values(), strict=True)
        }
        try:
            problem = self.family.posed(inputs)
            if callable(self.how):
                solution = self.how(problem, **self.options)
            elif self.how == "baseline":
                solution = baseline(problem, **self.options)
            else:
                solution = fit(problem, **{"progress": False, "seed": number, **self.options})
        except SciMLError as error:
            record["failure"] = np.array(f"{type(error).__name__}: {error}")
        else:
            record |= self._kept(solution)
        if self.parts is not None:
            with io.BytesIO() as content:
                np.savez(content, **record)
                write_atomic(self.parts / f"{number:07d}.npz", content.getvalue())
        return number, record

    def _kept(self, solution: Solution) -> dict[str, Any]:
        """What is kept of a solution: its values on the grid and how it was found, or that it is none."""
        if not solution.success:
            return {"failure": np.array(f"no success: {solution.message}")}
        at: dict[str, Any] = dict(zip(self.axes, np.meshgrid(*self.axes.values(), indexing="ij"), strict=True))
        values = solution(**at)
        found = {f"output.{name}": np.asarray(values[name]) for name in self.family.base.fields}
        return {**found, "way": np.array(json.dumps(_way(solution)))}

    def gathered(self, records: Mapping[int, Mapping[str, Any]]) -> Pairs:
        """All samples that were solved, in the order of their numbers."""
        failures = {number: str(each["failure"]) for number, each in sorted(records.items()) if "failure" in each}
        good = [each for number, each in sorted(records.items()) if number not in failures]
        if not good:
            raise SolverError(f"none of {len(records)} samples could be solved; the first: {next(iter(failures.values()), '')}")
        ways = [json.loads(str(each["way"])) for each in good]
        around = tuple(name for name in self.family.periodic if name in self.axes)
        return Pairs(
            {name: np.stack([each[f"input.{name}"] for each in good]) for name in self.family.names},
            {name: np.stack([each[f"output.{name}"] for each in good]) for name in self.family.base.fields},
            self.axes,
            self.input_axes,
            periodic=around,
            family=self.family,
            failures=failures,
            ways=_common(ways),
        )


def _way(solution: Solution) -> dict[str, Any]:
    """How a solution was found: the degrees of polynomials on the whole box, if that is what it is, and seconds."""
    model = model_of(solution.trial)
    found: dict[str, Any] = {"seconds": float(solution.seconds)}
    if isinstance(model, Spectral):
        config = model.config
        found["degrees"] = [int(each) for each in np.broadcast_to(config["degree"], len(solution.coordinates))]
        found["periodic"] = [int(each) for each in config["periodic"]]
    return found


def _common(ways: list[dict[str, Any]]) -> dict[str, Any]:
    """What suits most samples: the median degrees, where most were polynomials."""
    found: dict[str, Any] = {"seconds": float(np.median([each["seconds"] for each in ways]))}
    degrees = [each["degrees"] for each in ways if "degrees" in each]
    if len(degrees) > len(ways) / 2:
        found["degrees"] = np.ceil(np.median(degrees, axis=0)).astype(int).tolist()
        found["periodic"] = next(each["periodic"] for each in ways if "degrees" in each)
    return found
