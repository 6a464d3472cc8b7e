"""Export with ``torch.export``: the trial function of a solution as a graph of operations that needs torch alone."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from sciml._text import among, listed
from sciml.data import archive
from sciml.errors import ModelError, ProblemError
from sciml.jets.calculus import describe
from sciml.models import PiecewisePolynomial, Tiles, Windowed
from sciml.problem.observations import derivative_named
from sciml.solution import Solution

_PROBES = 11
_DISTIL = "sciml.distil(solution) makes one network of it, which can be exported"


class _Chosen(nn.Module):
    """Some columns of a trial function's values."""

    def __init__(self, trial: nn.Module, columns: Sequence[int]) -> None:
        super().__init__()
        self.trial = trial
        self.columns = list(columns)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.trial(points)[:, self.columns]


def export(solution: Solution, path: str | Path, fields: Sequence[str] | None = None) -> Path:
    """Write the fields of a solution, or some of them, as a function of points to a file that ``torch.export.load`` reads.

    The program maps points ``(n, D)``, coordinates in the problem's order and unit, to values ``(n, F)`` in theirs, for any n
    of two or more; it is compared with the trial function before the file is there. Beside it ``sciml.json`` names
    coordinates, fields and bounds. Derivatives are not in it: the graph holds the operations of the values alone.

    Raises:
        ProblemError: ``fields`` names a derivative, or no field.
        ModelError: the trial function is no single network, or does what a graph cannot hold.
        FileError: the file cannot be written.

    Example:
        >>> import tempfile, pathlib, torch, sciml
        >>> solution = sciml.fit(sciml.gallery.problem("harmonic_oscillator"), sciml.MLP(8), solver=sciml.LBFGS(20))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = solution.export(pathlib.Path(folder) / "oscillator.pt2")
        ...     program = torch.export.load(path).module()
        >>> t = torch.tensor([[0.25], [0.5], [1.0]], dtype=torch.float64)
        >>> bool((program(t)[:, 0] == solution(t=t[:, 0])[solution.fields[0]]).all())
        True
    """
    chosen = _fields(solution, fields)
    pieces = isinstance(solution.model, PiecewisePolynomial | Tiles | Windowed)
    if solution.model is None or pieces:
        kind = type(solution.model or solution.trial).__name__
        raise ModelError(
            f"a trial function in pieces ({kind}) chooses by the points which piece to take, and a graph of its operations "
            f"cannot: {_DISTIL}"
        )
    columns = [solution.fields.index(name) for name in chosen]
    program = _Chosen(copy.deepcopy(solution.trial).cpu().eval(), columns)
    low, high = torch.tensor(list(solution.bounds.values()), dtype=solution.dtype).T
    points = low + (high - low) * torch.linspace(0.03, 0.97, _PROBES, dtype=solution.dtype)[:, None]
    buffer = io.BytesIO()
    about = {"coordinates": solution.coordinates, "fields": chosen, "bounds": dict(solution.bounds)}
    try:
        with torch.no_grad():
            count = torch.export.Dim("n", min=2)
            graph = torch.export.export(program, (points,), dynamic_shapes=({0: count},), strict=False)
            for node in graph.graph.nodes:
                # Where on this machine each operation was written is nobody else's business.
                node.meta.pop("stack_trace", None)
            torch.export.save(graph, buffer, extra_files={"sciml.json": json.dumps(about)})
            buffer.seek(0)
            again = torch.export.load(buffer).module()
            gaps = [again(part) - program(part) for part in (points, points[:3])]
    except Exception as error:
        # Whatever a module does that cannot be followed, torch.export refuses with an exception of its own kind.
        why = str(error).strip().splitlines()[0]
        keep = "free of choices that depend on values of the points"
        if "Constraints violated" in why:
            why = f"it holds for {len(points)} points alone"
            keep = "free of len(points) and int(...) of sizes, which are constants of a graph: take points.shape[0]"
        raise ModelError(
            f"the trial function cannot be cut out as a graph of torch operations ({type(error).__name__}: {why}): keep its "
            f"forward {keep}; or {_DISTIL}"
        ) from error
    slack = 64 * torch.finfo(solution.dtype).eps * max(1.0, float(program(points).abs().max()))
    if not all(bool((gap.abs() <= slack).all()) for gap in gaps):
        raise ModelError(f"the exported program gives other values than the solution and was thrown away: {_DISTIL}")
    archive.write_atomic(Path(path), buffer.getvalue())
    return Path(path)


def _fields(solution: Solution, fields: Sequence[str] | None) -> tuple[str, ...]:
    """The fields asked for, none of them a derivative."""
    if fields is None:
        return tuple(solution.fields)
    wanted = (fields,) if isinstance(fields, str) else tuple(fields)
    for name in wanted:
        if name in solution.fields:
            continue
        derivative = derivative_named(str(name), solution.fields, solution.coordinates)
        if derivative is not None:
            raise ProblemError(
                f"{describe(*derivative)} cannot be exported: derivatives are made by differentiating the trial function by "
                "its points, and the exported graph holds the operations of its values alone. Export "
                f"{derivative[0]!r}, and take derivatives from the solution itself: solution(...) of tensors that require "
                "gradients can be differentiated"
            )
        raise ProblemError(f"there is no field {name!r} to export; there are {among(name, solution.fields)}")
    if not wanted:
        raise ProblemError(f"export needs at least one field of {listed(solution.fields)}")
    return wanted
