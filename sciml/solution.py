"""Solutions: what ``fit`` and ``baseline`` return."""

from __future__ import annotations

import copy
import html
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from sciml import archive, plots
from sciml.embedding import embed
from sciml.errors import FileError, ProblemError, listed
from sciml.models import MLP, Scaled
from sciml.models.hermite import Hermite
from sciml.problem import Problem, points_from
from sciml.table import Table
from sciml.uncertainty import Estimate

_CHUNK = 65536


class ExtrapolationWarning(UserWarning):
    """A solution was evaluated outside the domain on which it was found."""


@dataclass(frozen=True, repr=False, eq=False)
class Solution:
    """The outcome of ``fit`` or ``baseline``: a callable of the coordinates, with all that is known about it.

    Attributes:
        trial: the trial function in physical units, points ``(n, D)`` to fields ``(n, F)``.
        problem: the problem that was solved, or None after loading without it.
        name: the name of the problem's class.
        fields: the names of the fields.
        bounds: lower and upper bound of each coordinate, in its unit.
        unknowns: DataFrame indexed by name: ``estimate``, ``standard_error`` and the 95 % interval ``low``, ``high``.
        history: DataFrame, a row a look: phase, step, seconds, loss, held-out loss, every term, every unknown.
        residuals: the certificate, a DataFrame indexed by term, on points not used before: ``rms`` and ``max`` in the
            residual's unit, ``relative`` (rms by the residual's natural size), ``points``.
        success: whether the certificate holds and the run ended well.
        status: ``"converged"``, ``"plateau"``, ``"budget"``, ``"stopped"``, ``"interrupted"`` or ``"diverged"``.
        message: the same in a sentence.
        nit: steps taken.
        nfev: evaluations of the residuals and their derivatives.
        seconds: wall-clock time.
        solver: the solvers used, in order.
        engine: what supplied the derivatives or, for a baseline, which SciPy routine ran.
        seed: the seed, or None where nothing was random.
        points: the number of training points of each term.
        choices: what was chosen for the user, and why.
        data: the measurements, if any.
    """

    trial: nn.Module
    problem: Problem | None
    name: str
    fields: tuple[str, ...]
    bounds: Mapping[str, tuple[float, float]]
    unknowns: pd.DataFrame
    history: pd.DataFrame
    residuals: pd.DataFrame
    success: bool
    status: str
    message: str
    nit: int
    nfev: int
    seconds: float
    solver: str
    engine: str
    seed: int | None = None
    points: Mapping[str, int] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    data: Table | None = None

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        return tuple(self.bounds)

    @property
    def model(self) -> nn.Module | None:
        """The trained copy of the model that was passed to ``fit``; None for a baseline."""
        return self.trial.model if isinstance(self.trial, Scaled) else None

    @property
    def parameters(self) -> int:
        """The number of numbers that describe the solution: a network's parameters, or a grid's values."""
        own = self.trial.buffers() if self.model is None else self.model.parameters()
        return sum(value.numel() for value in own)

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the trial function."""
        return next(self.trial.buffers()).dtype

    @property
    def device(self) -> torch.device:
        """Where the trial function lives."""
        return next(self.trial.buffers()).device

    @property
    def title(self) -> str:
        """A line for the head of a figure."""
        by = self.engine if self.model is None else type(self.model).__name__
        return f"{self.name}, {by}{'' if self.success else ' (not a success)'}"

    def __call__(self, **coordinates: Any) -> dict[str, Any]:
        """The fields at points.

        Args:
            coordinates: every coordinate by name, in its unit; numbers, arrays or tensors that broadcast. When one of
                them is a tensor, tensors come back, differentiable by the coordinates.

        Returns:
            For each field an array (or tensor) of the shape that the coordinates broadcast to.

        Raises:
            ProblemError: a coordinate is missing or unknown, or the shapes do not broadcast.

        Warns:
            ExtrapolationWarning: some points lie outside the domain.
        """
        if any(isinstance(value, Tensor) for value in coordinates.values()):
            return self._tensors(coordinates)
        points, shape = points_from(coordinates, self.coordinates)
        self._warn_outside(points)
        with torch.no_grad():
            like = next(self.trial.buffers())
            chunks = [self.trial(chunk.to(like)).double().cpu() for chunk in points.split(_CHUNK)]
        values = torch.cat(chunks).numpy() if chunks else np.empty((0, len(self.fields)))
        return {name: values[:, column].reshape(shape) for column, name in enumerate(self.fields)}

    def _tensors(self, coordinates: Mapping[str, Any]) -> dict[str, Tensor]:
        if set(coordinates) != set(self.coordinates):
            raise ProblemError(f"expected the coordinates {listed(self.coordinates)}; given: {listed(coordinates)}")
        like = next(self.trial.buffers())
        columns = torch.broadcast_tensors(*(torch.as_tensor(coordinates[name]).to(like) for name in self.coordinates))
        points = torch.stack([column.reshape(-1) for column in columns], dim=1)
        self._warn_outside(points.detach())
        values = self.trial(points)
        return {name: values[:, position].reshape(columns[0].shape) for position, name in enumerate(self.fields)}

    def _warn_outside(self, points: Tensor) -> None:
        ends = torch.tensor(list(self.bounds.values()), dtype=torch.float64, device=points.device)
        slack = 1e-9 * (ends[:, 1] - ends[:, 0])
        outside = ((points < ends[:, 0] - slack) | (points > ends[:, 1] + slack)).any(dim=1)
        if bool(outside.any()):
            warnings.warn(
                f"{int(outside.sum())} of {len(points)} points lie outside the domain {dict(self.bounds)}; the values "
                "there are extrapolated and nothing vouches for them",
                ExtrapolationWarning,
                stacklevel=3,
            )

    def error(self, reference: Any = None, resolution: int | None = None) -> dict[str, float]:
        r"""The relative L2 error of each field, :math:`\lVert u - u^*\rVert_2/\lVert u^*\rVert_2` on a dense grid.

        Args:
            reference: another solution, or a function of the coordinates by name that returns arrays by field (or one
                array for a single field); by default the problem's own ``reference``.
            resolution: grid points along each coordinate; by default 1,000 for one coordinate, 200 for two, 40 for more.

        Raises:
            ProblemError: there is no reference.
        """
        count = resolution or {1: 1000, 2: 200}.get(len(self.bounds), 40)
        axes = [np.linspace(low, high, count) for low, high in self.bounds.values()]
        grid = dict(zip(self.coordinates, np.meshgrid(*axes, indexing="ij"), strict=True))
        truth: Any
        if reference is not None:
            truth = reference(**grid)
            if not isinstance(truth, Mapping) and len(self.fields) == 1:
                truth = {self.fields[0]: truth}
        else:
            truth = None if self.problem is None else self.problem.reference_values(grid)
        if truth is None:
            raise ProblemError(
                f"{self.name} has no reference: pass one, solution.error(reference), as a function of "
                f"{', '.join(self.coordinates)} or as another solution"
            )
        missing = [name for name in self.fields if name not in truth]
        if missing:
            raise ProblemError(f"the reference lacks the field {listed(missing)}; it has {listed(truth)}")
        own = self(**grid)
        return {name: _relative(own[name], np.asarray(truth[name], dtype=np.float64)) for name in self.fields}

    def embed(self, points: Any, layer: str | None = None) -> pd.DataFrame:
        """The activations of a layer at points; see ``sciml.embed``."""
        return embed(self, points, layer)

    def plot(self, other: Solution | None = None) -> Figure:
        """A matplotlib figure of the fields over one or two coordinates, beside another solution or the reference.

        Raises:
            ProblemError: the problem has more than two coordinates.
        """
        return plots.plot(self, other)

    def save(self, path: str | Path) -> Path:
        """Write the solution to one file, all of it or nothing.

        It holds tensors and plain values, no code and no pickled objects: the state of the model, scaling, unknowns,
        history, certificate. ``sciml.load`` reads it.

        Raises:
            FileError: the file cannot be written.
        """
        path = Path(path)
        archive.save_tensors(path, self._state())
        return path

    def _state(self) -> dict[str, Any]:
        model = self.model
        kind: dict[str, Any] = {"kind": "module", "class": f"{type(model).__module__}.{type(model).__qualname__}"}
        if isinstance(model, MLP):
            kind = {"kind": "mlp", **model.config}
        elif isinstance(self.trial, Hermite):
            kind = {"kind": "hermite"}
        return {
            "model": kind,
            "trial": {key: value.detach().cpu() for key, value in self.trial.state_dict().items()},
            "dtype": str(self.dtype).removeprefix("torch."),
            "bounds": {key: list(pair) for key, pair in self.bounds.items()},
            "fields": list(self.fields),
            "frames": {
                key: {"index": list(map(str, frame.index)), "columns": frame.to_dict("list")}
                for key, frame in (
                    ("unknowns", self.unknowns),
                    ("history", self.history),
                    ("residuals", self.residuals),
                )
            },
            "data": None
            if self.data is None
            else {key: values.tolist() for key, values in self.data.as_mapping().items()},
            "points": dict(self.points),
            "choices": list(self.choices),
            **{key: getattr(self, key) for key in _PLAIN},
        }

    def __repr__(self) -> str:
        outcome = "success" if self.success else "NOT a success"
        lines = [
            f"Solution of {self.name}: {outcome}, {self.status} in {self.seconds:.1f} s ({self.solver}; {self.engine})"
        ]
        lines.append(f"  {self.message}")
        for frame in (self.unknowns, self.residuals):
            if len(frame):
                lines += ["", frame.to_string(float_format=lambda value: f"{value:.4g}")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: the outcome, the unknowns and the certificate."""
        outcome = "success" if self.success else "<b>not a success</b>"
        parts = [
            f"<p><b>{html.escape(self.name)}</b>: {outcome}, {self.status} in {self.seconds:.1f} s. "
            f"{html.escape(self.message)}</p>"
        ]
        parts += [
            frame.to_html(float_format="{:.4g}".format) for frame in (self.unknowns, self.residuals) if len(frame)
        ]
        return "".join(parts)


_PLAIN = ("name", "success", "status", "message", "nit", "nfev", "seconds", "solver", "engine", "seed")


def load(path: str | Path, problem: Problem | None = None, model: nn.Module | None = None) -> Solution:
    """Read a solution that ``Solution.save`` wrote.

    Args:
        path: the file.
        problem: the problem, if residuals, references or plots of references are wanted from the loaded solution.
        model: for a solution with a model of the user's own: an object of the same class; its copy receives the state.

    Returns:
        The solution, on the CPU, with the same values as when it was saved.

    Raises:
        FileError: the file is missing, damaged, holds anything but tensors and plain values, needs ``model``, or belongs
            to another problem or model.
    """
    content = archive.load_tensors(Path(path))
    bounds = {key: (float(pair[0]), float(pair[1])) for key, pair in content["bounds"].items()}
    fields = tuple(content["fields"])
    if problem is not None and (problem.coordinates != tuple(bounds) or tuple(problem.fields) != fields):
        raise FileError(
            f"{path} holds a solution of {content['name']} with coordinates {listed(bounds)} and fields {listed(fields)}, "
            f"not of {type(problem).__name__} with {listed(problem.coordinates)} and {listed(problem.fields)}"
        )
    frames: dict[str, Any] = {
        key: pd.DataFrame(stored["columns"], index=stored["index"]) for key, stored in content["frames"].items()
    }
    frames["history"] = frames["history"].reset_index(drop=True)
    data = content["data"]
    return Solution(
        trial=_trial(Path(path), content, bounds, model),
        problem=problem,
        fields=fields,
        bounds=bounds,
        data=None if data is None else Table(data, source=str(path), missing="mask"),
        points=content["points"],
        choices=tuple(content["choices"]),
        **frames,
        **{key: content[key] for key in _PLAIN},
    )


def _trial(
    path: Path, content: dict[str, Any], bounds: Mapping[str, tuple[float, float]], model: nn.Module | None
) -> nn.Module:
    kind = dict(content["model"])
    sort = kind.pop("kind")
    dtype = {"float32": torch.float32, "float64": torch.float64}[content["dtype"]]
    if sort == "hermite":
        return Hermite.from_state(content["trial"])
    if sort == "mlp":
        model = MLP.from_config(**kind)
    elif model is None:
        raise FileError(
            f"{path} holds a model of class {kind['class']}: pass an object of it, sciml.load(path, model=...)"
        )
    zeros = [0.0] * len(content["fields"])
    trial = Scaled(
        copy.deepcopy(model), [b[0] for b in bounds.values()], [b[1] for b in bounds.values()], zeros, zeros
    ).to(dtype)
    try:
        trial.load_state_dict(content["trial"])
    except RuntimeError as error:
        raise FileError(f"{path} does not fit the model given: {error}") from error
    return trial.eval()


def _relative(values: np.ndarray, truth: np.ndarray) -> float:
    size = float(np.linalg.norm(truth))
    return float(np.linalg.norm(values - truth)) / (size if size > 0 else 1.0)


def unknowns_frame(estimates: Mapping[str, Estimate]) -> pd.DataFrame:
    """Estimates as the table that ``Solution.unknowns`` shows."""
    rows = [(found.value, found.standard_error, found.low, found.high) for found in estimates.values()]
    columns = ["estimate", "standard_error", "low", "high"]
    return pd.DataFrame(rows, index=pd.Index(estimates, dtype=str), columns=columns, dtype=float)
