"""The solution of a problem, as ``fit`` and ``baseline`` return it."""

from __future__ import annotations

import html
import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sciml._text import listed
from sciml.data import StoredReference, Table, archive
from sciml.errors import ExtrapolationWarning, FileError, ProblemError
from sciml.geometry import Box, Domain
from sciml.geometry.coordinates import points_along, points_from
from sciml.jets import jets_of
from sciml.models import model_of
from sciml.problem import Problem
from sciml.problem.observations import derivative_named
from sciml.solvers.batching import predicted
from sciml.uncertainty import Estimate
from sciml.uncertainty.error_bands import FieldCovariance, standard_errors
from sciml.uncertainty.model_selection import scored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Points of a dense grid of four and more coordinates.
_MOST_POINTS = 3e6
# Formats that a name promises and save does not write: of tables, of grids, pictures, pages and programs.
_FOREIGN = {".csv", ".h5", ".hdf5", ".json", ".mat", ".npy", ".npz", ".parquet", ".txt", ".xlsx"}
_FOREIGN |= {".gif", ".html", ".jpg", ".mp4", ".nc", ".onnx", ".pdf", ".png", ".pt2", ".svg", ".vtk", ".vtu", ".xdmf"}


@dataclass(frozen=True, repr=False, eq=False)
class Solution:
    """The outcome of ``fit`` or ``baseline``: a callable of the coordinates, with all that is known about it.

    Attributes:
        trial: the trial function in physical units, points ``(n, D)`` to fields ``(n, F)``.
        problem: the problem that was solved, or None after loading without it.
        name: the name of the problem's class.
        fields: the names of the fields.
        domain: where it was solved.
        unknowns: DataFrame indexed by name: ``estimate``, ``standard_error`` and the 95 % interval ``low``, ``high``.
        history: DataFrame, a row for each report: phase, step, seconds, loss, held-out loss, every term, every unknown.
        residuals: the certificate, a DataFrame indexed by term: ``rms`` and ``max`` in the residual's unit, ``relative``
            (rms by the residual's natural size), ``points``. Equations and conditions are taken at points not used before;
            measurements at those held out, or at all of them when there were too few to hold any out.
        success: whether the certificate holds and the run ended well.
        status: ``"converged"``, ``"plateau"``, ``"budget"``, ``"stopped"``, ``"interrupted"`` or ``"diverged"``.
        message: the same in a sentence.
        nit: steps taken.
        nfev: evaluations of the residuals and their derivatives.
        seconds: wall-clock time, in seconds.
        solver: the solvers used, in order.
        engine: what supplied the derivatives or, for a baseline, which SciPy routine ran.
        seed: the seed, or None where nothing was random.
        points: the number of training points of each term.
        choices: what was chosen for the user, and why.
        data: the measurements, if any.
        events: DataFrame of the events that ``baseline`` was asked to look for, in order of time: ``event``, the coordinate,
            and the fields there.
        statistics: of a fit to measurements: their number, how many numbers were fitted to them, ``chi2``, the
            ``log_likelihood``, ``AIC`` and ``BIC``, each column's standard deviation, given or found (``sigma.<column>``),
            the correlations of the unknowns (``correlation.<one>.<other>``), that of the misfits of neighbouring measurements
            (``autocorrelation.<column>``, Moran's I, about zero where equations describe the data), and ``drift``, the
            numerical error of the unknowns in standard errors: how far they would still move.
        tolerance: the relative residual that the certificate allows.
        estimated_error: the estimated relative L2 error of each field, at most 1, and nothing where it cannot be estimated: of
            a model that learned from a ``teacher`` its distance from that; of a baseline how far grids differ; else by the
            linearised equations for the error, of problems without unknowns, in windows of time one after another, or where
            these do not tell it by the distance from a path that SciPy's LSODA integrates roughly. Of a fit to
            measurements it is the error that their noise leads one to expect, ``standard_error`` over the domain. An error that
            may be all that there is of a field is told as a share of a thousandth of its natural size, if that is larger.
        spread: how the measurements' noise spreads over the trial function, for ``standard_error``; None where nothing was
            inferred.
        profiles: of a fit with ``intervals="profile"`` a DataFrame with a row for each value at which an unknown was held:
            ``unknown``, ``value`` and ``fall``, by how much twice the log-likelihood fell there.
    """

    trial: nn.Module
    problem: Problem | None
    name: str
    fields: tuple[str, ...]
    domain: Domain
    success: bool
    status: str
    message: str
    solver: str
    unknowns: pd.DataFrame = field(default_factory=lambda: unknowns_frame({}))
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    residuals: pd.DataFrame = field(default_factory=pd.DataFrame)
    nit: int = 0
    nfev: int = 0
    seconds: float = 0.0
    engine: str = ""
    seed: int | None = None
    points: Mapping[str, int] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    data: Table | None = None
    events: pd.DataFrame = field(default_factory=pd.DataFrame)
    statistics: Mapping[str, float] = field(default_factory=dict)
    tolerance: float = 0.05
    estimated_error: Mapping[str, float] = field(default_factory=dict)
    spread: FieldCovariance | None = None
    profiles: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """Lower and upper bound of each coordinate, in its unit."""
        return self.domain.bounds

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        return tuple(self.bounds)

    @property
    def model(self) -> nn.Module | None:
        """The trained copy of the model that was passed to ``fit``; None for a baseline."""
        return model_of(self.trial)

    @property
    def parameters(self) -> int:
        """The number of numbers that describe the solution: a network's parameters, or values on a grid or on elements."""
        own = [] if self.model is None else list(self.model.parameters())
        return sum(value.numel() for value in own or self.trial.state_dict().values())

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the trial function."""
        return next(self.trial.buffers()).dtype

    @property
    def device(self) -> torch.device:
        """The device of the trial function."""
        return next(self.trial.buffers()).device

    @property
    def units(self) -> dict[str, str]:
        """The units that are known, by coordinate and field: those of the problem's class, else those of the measurements."""
        measured = {} if self.data is None else dict(self.data.units)
        return {name: unit for name, unit in (measured | dict(getattr(self.problem, "units", {}))).items() if unit}

    @property
    def constants(self) -> dict[str, float]:
        """The estimates of the unknown constants, by name."""
        return {str(name): float(value) for name, value in self.unknowns["estimate"].items()}

    @property
    def correlation(self) -> pd.DataFrame:
        """The correlation of the unknown constants, of their covariance at the solution; empty where it is not known."""
        names = [str(name) for name in self.unknowns.index]
        found = pd.DataFrame(np.eye(len(names)), index=names, columns=names)
        for one, other in itertools.combinations(names, 2):
            value = self.statistics.get(f"correlation.{one}.{other}")
            if value is None:
                return pd.DataFrame()
            found.loc[one, other] = found.loc[other, one] = value
        return found

    @property
    def title(self) -> str:
        """A line for the head of a figure."""
        by = self.engine if self.model is None else type(self.model).__name__
        return f"{self.name}, {by}{'' if self.success else ' (not a success)'}"

    @property
    def estimate(self) -> str:
        """The estimated errors in words; empty where nothing is known."""
        known = ", ".join(f"{name} {value:.1e}" for name, value in self.estimated_error.items())
        return f"estimated relative error: {known}" if known else ""

    def __call__(self, frame: Any = None, /, *, derivatives: Sequence[str] = (), **coordinates: Any) -> dict[str, Any]:
        """The fields at points, outside the domain too: there they are what the trial function happens to be.

        Args:
            frame: a ``Table``, a DataFrame or a dict with a column for each coordinate; others are ignored.
            derivatives: derivatives that are wanted beside the fields, such as ``["u_x", "u_tt"]``.
            coordinates: every coordinate by name, in its unit; numbers, arrays or tensors that broadcast.

        Returns:
            For each field, each complex field of the problem and each derivative an array of the shape that the coordinates
            broadcast to; where one of them is a tensor, a tensor on its device, of fields differentiable by them.

        Raises:
            ProblemError: a coordinate is missing or unknown, the shapes do not broadcast, or a derivative is none of a field.
            TypeError: points without the names of their coordinates.

        Warns:
            ExtrapolationWarning: some points lie outside the domain.
        """
        coordinates |= self._columns_of(frame)
        given = next((value for value in coordinates.values() if isinstance(value, Tensor)), None)
        points, shape = points_from(coordinates, self.coordinates, None if given is None else next(self.trial.buffers()))
        outside = ~self.domain.contains(points.detach().cpu().numpy())
        if outside.any():
            warnings.warn(
                f"{int(outside.sum())} of {len(points)} points lie outside the domain {self.domain!r}; the values "
                "there are extrapolated and have no certificate",
                ExtrapolationWarning,
                stacklevel=2,
            )
        values: Any
        if given is not None:
            values = self.trial(points).to(given.device)
        else:
            values = predicted(self.trial, points).numpy() if len(points) else np.empty((0, len(self.fields)))
        found = {name: values[:, column].reshape(shape) for column, name in enumerate(self.fields)}
        with torch.inference_mode(False), torch.enable_grad():
            jets = jets_of(self.trial, points.detach().clone(), self.coordinates, self.fields) if derivatives else None
            for name in derivatives:
                meant = derivative_named(name, self.fields, self.coordinates)
                if meant is None:
                    example = f"{self.fields[0]}_{self.coordinates[0]}"
                    raise ProblemError(
                        f"{name!r} is no derivative of {listed(self.fields)} by {listed(self.coordinates)}, as {example}"
                    )
                assert jets is not None
                slope = jets.jet(*meant).detach().reshape(shape)
                found[name] = slope.double().cpu().numpy() if given is None else slope.to(given.device)
        # The values of complex fields are added as far as the problem that names them is known.
        return found if self.problem is None else found | self.problem.composites.joined(found)

    def _columns_of(self, frame: Any) -> dict[str, Any]:
        """The coordinates that a table has as columns."""
        if frame is None:
            return {}
        columns = frame.as_mapping() if isinstance(frame, Table) else frame
        if not isinstance(columns, Mapping | pd.DataFrame):
            named = ", ".join(f"{name}=..." for name in self.coordinates)
            raise TypeError(
                f"points need the names of their coordinates, solution({named}), or a DataFrame with these columns; given: "
                f"{type(frame).__name__}"
            )
        missing = [name for name in self.coordinates if name not in columns]
        if missing:
            raise ProblemError(f"the table lacks the coordinate {listed(missing)}; it has {listed(map(str, columns))}")
        return {name: np.asarray(columns[name]) for name in self.coordinates}

    def standard_error(self, **coordinates: Any) -> dict[str, np.ndarray]:
        """The standard error of the fields at points: how far the noise of the measurements moves them, in their units.

        The equations count as exact and the trial function as rich enough; the result is the scatter that other measurements
        of the same kind would cause. In problems with unknown functions of coordinates their assumed smoothness counts, too.

        Args:
            coordinates: as for a call, which returns arrays of the same shapes.

        Raises:
            ProblemError: nothing was inferred from measurements, or the problem is not known (``load(path, problem)``).
        """
        if self.spread is None or self.problem is None:
            why = "loaded without its problem" if self.problem is None else "from a fit without data and unknowns"
            if self.problem is not None and len(self.unknowns) and self.statistics:
                why = "from a fit that kept the scatter of its constants alone, as those of large problems do,"
            elif self.problem is not None and self.data is not None and not self.success:
                why = "from a fit that ended before it knew how its measurements scatter what they determine,"
            raise ProblemError(
                f"this solution is {why} and knows no standard errors of fields: they come from sciml.fit(problem, data=...) "
                "with unknown constants or fields"
            )
        points, shape = points_from(coordinates, self.coordinates)
        found = standard_errors(self.problem, self.trial, self.spread, points)
        return {name: values.reshape(shape) for name, values in found.items()}

    def interval(self, **coordinates: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The pointwise 95 % intervals of the fields, lower and upper ends; see ``standard_error``."""
        errors, values = self.standard_error(**coordinates), self(**coordinates)
        assert self.spread is not None
        half = {name: self.spread.quantile * each for name, each in errors.items()}
        return {name: (values[name] - each, values[name] + each) for name, each in half.items()}

    def score(self, data: Any, **how: Any) -> pd.DataFrame:
        """The errors of the solution as a prediction of measurements, best ones that were not fitted.

        Args:
            data: measurements as for ``fit``, and likewise ``observe`` and ``noise``.

        Returns:
            A DataFrame by column: ``rms`` of what is measured less what the solution says, in the column's unit, ``relative``
            (by the column's standard deviation), and the number of ``values``.

        Raises:
            ProblemError: the solution was loaded without its problem.
        """
        if self.problem is None:
            raise ProblemError("this solution was loaded without its problem: sciml.load(path, problem)")
        return scored(self.problem.valued(self.constants), self.trial, data, **how)

    def at(self, **constants: float) -> Solution:
        """The solution at one value of constants that were promoted to coordinates, without any training.

        Args:
            constants: values by name, of all or some promoted constants, beyond the range that was solved for, too.

        Returns:
            A solution with a certificate of its own, whose model has one input less for each; ``fit`` can start from it.

        Raises:
            ProblemError: there is no such promoted constant, or the solution was loaded without its problem.
        """
        from sciml.runs import slice as slicing

        return slicing.fix_parameters(self, constants)

    def grid(self, resolution: int | None = None) -> dict[str, np.ndarray]:
        """A dense grid by coordinate; on domains that are no boxes, the points of it that lie inside, one after another.

        Without ``resolution`` the points at which the reference is stored, else 1,000 along one coordinate, 200 of two, 40
        of three, as many as make three million of more.

        Raises:
            ProblemError: a resolution that is no whole number from 1 on.
        """
        reference = getattr(self.problem, "reference", None)
        if resolution is None and isinstance(reference, StoredReference) and reference.covers(self.bounds):
            return reference.grid()
        several = min(40, int(_MOST_POINTS ** (1 / len(self.bounds))))
        count = points_along(resolution, {1: 1000, 2: 200}.get(len(self.bounds), several))
        axes = [np.linspace(low, high, count) for low, high in self.bounds.values()]
        grid = dict(zip(self.coordinates, np.meshgrid(*axes, indexing="ij"), strict=True))
        if isinstance(self.domain, Box):
            return grid
        within = self.domain.contains(np.stack([values.ravel() for values in grid.values()], axis=1))
        return {name: values.ravel()[within] for name, values in grid.items()}

    def error(self, reference: Any = None, resolution: int | None = None) -> dict[str, float]:
        r"""The relative L2 error of each field, :math:`\lVert u - u^*\rVert_2/\lVert u^*\rVert_2` on a dense grid, ``grid``.

        Args:
            reference: another solution, or a function of the coordinates by name that returns arrays by field (or one
                array for a single field); by default the problem's own ``reference``.
            resolution: grid points along each coordinate.

        Raises:
            ProblemError: there is no reference.
        """
        grid = self.grid(resolution)
        truth, own = self.truth(grid, reference), self(grid)
        norm = np.linalg.norm
        return {
            name: float(norm((own[name] - truth[name])[there]) / (norm(truth[name][there]) or 1.0))
            for name, there in self.lives(grid).items()
        }

    def lives(self, points: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Where each field means something at points, arrays by coordinate: all over, unless its equations hold on parts."""
        if self.problem is None:
            shape = np.broadcast_shapes(*(np.shape(each) for each in points.values()))
            return {name: np.ones(shape, dtype=bool) for name in self.fields}
        return {name: self.problem.lives(name, points) for name in self.fields}

    def truth(self, points: Mapping[str, Any], reference: Any = None) -> dict[str, np.ndarray]:
        """The reference values of the fields at points: of ``reference``, or of the problem at the estimated constants."""
        values: Any
        if reference is None:
            values = None if self.problem is None else self.problem.reference_values(points, self.constants)
        elif callable(reference):
            values = reference(**points)
        else:
            raise ProblemError(f"a reference is a solution or a function of coordinates; given: {type(reference).__name__}")
        if values is None:
            how = f"as a function of {', '.join(self.coordinates)} or as another solution"
            raise ProblemError(f"{self.name} has no reference: pass one, solution.error(reference), {how}")
        if not isinstance(values, Mapping) and len(self.fields) == 1:
            values = {self.fields[0]: values}
        if self.problem is not None:
            values = self.problem.composites.separated(values)
        shape = np.broadcast_shapes(*(np.shape(each) for each in points.values()))
        found = {}
        for name in self.fields:
            if name not in values:
                raise ProblemError(f"the reference lacks the field {name!r}; it has {listed(values)}")
            each = np.asarray(values[name], dtype=np.float64)
            if each.shape not in ((), shape):
                raise ProblemError(f"the reference of {name!r} has shape {each.shape} at points of shape {shape}")
            found[name] = np.broadcast_to(each, shape)
        return found

    def embed(self, points: Any, layer: str | nn.Module | None = None, **options: Any) -> Any:
        """The activations of a layer at points; see ``sciml.embed``."""
        from sciml.embedding import embed

        return embed(self, points, layer, **options)

    def plot(self, other: Solution | None = None, **options: Any) -> Figure:
        """A matplotlib figure of the fields, beside another solution or the reference; see ``sciml.plots.plot``."""
        from sciml import plots

        return plots.plot(self, other, **options)

    def animate(self, field: str | None = None, path: str | Path = "animation.gif", **options: Any) -> Path:
        """Write a GIF or MP4 of a field over time; see ``sciml.plots.animate``."""
        from sciml import plots

        return plots.animate(self, field, path, **options)

    def save(self, path: str | Path) -> Path:
        """Write the solution to one file, all of it or nothing.

        It holds tensors and plain values, no code and no pickled objects; ``sciml.load`` reads it.

        Raises:
            FileError: the file cannot be written, or its name is that of another format.
        """
        from sciml.runs import save as saving

        path = Path(path)
        if path.suffix.lower() in _FOREIGN:
            raise FileError(
                f"save writes a file of this library's own, such as solution.pt, and no {path.suffix}: grids of values are "
                "written by to_xarray().to_netcdf(...) and to_vtk(...), tables by pandas.DataFrame(solution(...)), pictures by "
                "plot().savefig(...) and animate(...), programs by export(...), a page by report(...)"
            )
        archive.write_file(path, archive.packed(saving.to_record(self)))
        return path

    def export(self, path: str | Path, fields: Any = None, **options: Any) -> Path:
        """Write fields and derivatives as an ONNX graph or a program for ``torch.export``; see ``sciml.deploy.export``."""
        from sciml.deploy import export

        return export(self, path, fields, **options)

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a report, one HTML file; see ``sciml.deploy.report``."""
        from sciml.deploy import report

        return report(self, path, **options)

    def to_xarray(self, resolution: int | None = None) -> Any:
        """The fields on a grid as an xarray ``Dataset``; see ``sciml.deploy.to_xarray``."""
        from sciml.deploy import to_xarray

        return to_xarray(self, resolution)

    def to_vtk(self, path: str | Path, resolution: int | None = None, **options: Any) -> Path:
        """Write the fields for ParaView; see ``sciml.deploy.to_vtk``."""
        from sciml.deploy import to_vtk

        return to_vtk(self, path, resolution, **options)

    def __repr__(self) -> str:
        outcome = "success" if self.success else "NOT a success"
        how = f"{self.status} in {self.seconds:.1f} s ({self.solver}; {self.engine})"
        lines = [f"Solution of {self.name}: {outcome}, {how}", f"  {self.message}"]
        lines += [f"  {self.estimate}"] if self.estimate else []
        for frame in (self.unknowns, self.residuals):
            if len(frame):
                lines += ["", frame.to_string(float_format=lambda value: f"{value:.4g}")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: the outcome, the unknowns and the certificate."""
        outcome = f"{'success' if self.success else '<b>not a success</b>'}, {self.status} in {self.seconds:.1f} s"
        said = f"{self.message}. {self.estimate}" if self.estimate else self.message
        head = f"<p><b>{html.escape(self.name)}</b>: {outcome}. {html.escape(said)}</p>"
        frames = [frame for frame in (self.unknowns, self.residuals) if len(frame)]
        return head + "".join(frame.to_html(float_format="{:.4g}".format) for frame in frames)


def unknowns_frame(estimates: Mapping[str, Estimate]) -> pd.DataFrame:
    """Estimates as the table that ``Solution.unknowns`` shows."""
    rows = [(found.value, found.standard_error, found.low, found.high) for found in estimates.values()]
    columns = ["estimate", "standard_error", "low", "high"]
    return pd.DataFrame(rows, index=pd.Index(estimates, dtype=str), columns=columns, dtype=float)


def profiles_frame(profiles: Mapping[str, Sequence[tuple[float, float]]]) -> pd.DataFrame:
    """Profiles of the likelihood as the table that ``Solution.profiles`` shows."""
    rows = [(name, *point) for name, points in profiles.items() for point in points]
    return pd.DataFrame(rows, columns=["unknown", "value", "fall"])
