"""One problem of the gallery in a process of its own: ``python -m tests.benchmarks.gallery_worker fit burgers u.png``."""

import io
import json
import math
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from PIL import Image

import sciml
from sciml.data.archive import write_atomic
from sciml.errors import ProblemError, SciMLError

_SIZE = 60_000
# Of the colour maps of fields and of differences: rounding errors are noise, which takes room in as many steps as it has.
_STEPS = ((144, 96), (128, 48), (128, 24), (96, 16), (48, 8))


def fitted(name: str, picture: Path | None = None) -> dict[str, Any]:
    """What ``sciml.fit(problem)`` finds without settings; its picture is written to a file."""
    start, busy = time.perf_counter(), time.process_time()
    try:
        solution = sciml.fit(sciml.gallery.problem(name))
    except SciMLError as error:
        return refused(error)
    took = {"seconds": time.perf_counter() - start, "processor_seconds": time.process_time() - busy}
    unit = 2**20 if sys.platform == "darwin" else 2**10
    # Before errors are taken and pictures drawn, which need memory of their own.
    took["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    found = {**described(solution), **took, "solver": solution.solver, "choices": list(solution.choices)}
    if picture is not None:
        try:
            write_atomic(picture, small_png(solution.plot()))
            found["picture"] = True
        except ProblemError as error:
            found["no_picture"] = str(error)
    return found


def classical(name: str) -> dict[str, Any]:
    """What ``sciml.baseline(problem)`` finds without settings, or why it does not take the problem."""
    start, busy = time.perf_counter(), time.process_time()
    try:
        solution = sciml.baseline(sciml.gallery.problem(name))
    except SciMLError as error:
        return refused(error)
    took = {"seconds": time.perf_counter() - start, "processor_seconds": time.process_time() - busy}
    return {**described(solution), **took, "solver": solution.solver}


def described(solution: sciml.Solution) -> dict[str, Any]:
    """Errors and estimates, the numbers that describe a solution, and whether it calls itself a success."""
    found: dict[str, Any] = {"success": bool(solution.success), "parameters": solution.parameters}
    if not solution.success:
        found["reason"] = solution.message
    if solution.problem is not None and solution.problem.has_reference:
        found["error"] = solution.error(resolution=resolution(len(solution.coordinates)))
    if len(solution.unknowns):
        found["unknowns"] = solution.unknowns[["estimate", "standard_error"]].to_dict("index")
    return found


def refused(error: SciMLError) -> dict[str, Any]:
    """The outcome of a call that ended in one of our errors."""
    return {"success": False, "reason": f"{type(error).__name__}: {error}"}


def resolution(coordinates: int) -> int | None:
    """Points along each coordinate on which errors are taken: the library's own choice while those are a million at most."""
    return None if coordinates <= 3 else int(1e6 ** (1 / coordinates))


def small_png(figure: Figure) -> bytes:
    """A figure, 900 pixels wide at most, as a PNG of few colours and without metadata: equal figures give equal bytes."""
    maps = [each for axes in figure.axes for each in axes.collections if isinstance(each, QuadMesh)]
    rows = figure.axes[0].get_gridspec().nrows
    height = 3.6 if rows == 1 else 3.0 * rows
    figure.set_size_inches(9.0, height)
    buffer = io.BytesIO()
    # A tall one is drawn smaller.
    figure.savefig(buffer, format="png", dpi=100 * (3.6 / height) ** 0.35, metadata={"Software": None})
    with Image.open(buffer) as opened:
        image = opened.convert("RGB")
    for steps in _STEPS:
        buffer = io.BytesIO()
        few = image.quantize(palette=_palette(steps), dither=Image.Dither.NONE) if maps else image.quantize(steps[0])
        few.save(buffer, format="png", optimize=True)
        if buffer.tell() <= _SIZE:
            break
    return buffer.getvalue()


def _palette(steps: tuple[int, int]) -> Image.Image:
    """The colours of the two maps in so many steps, and greys for letters: chosen from the image they would miss extremes."""
    shades = [colormaps[name](np.linspace(0, 1, count)) for name, count in zip(("viridis", "RdBu_r"), steps, strict=True)]
    greys = np.repeat(np.linspace(0, 1, 16), 4).reshape(-1, 4)
    colours = np.concatenate([*shades, greys])[:, :3]
    image = Image.new("P", (1, 1))
    image.putpalette(np.rint(255 * colours).astype(np.uint8).tobytes())
    return image


def plain(value: Any) -> Any:
    """Figures with ten digits, as many as an exact estimate has right, and null where they are not finite."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value


if __name__ == "__main__":
    torch.set_num_threads(1)
    verb, problem, *rest = sys.argv[1:]
    record = fitted(problem, Path(rest[0]) if rest else None) if verb == "fit" else classical(problem)
    print(json.dumps(plain(record)))
