"""Surrogates: fitted operators, their predictions as functions, and predictions corrected by the equation."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import nn

from sciml._text import listed
from sciml.data import archive
from sciml.errors import DataError, ExtrapolationWarning, ModelError, ProblemError
from sciml.models import Spectral
from sciml.operators.codes import PrincipalComponents, parts_of
from sciml.operators.correction import corrected, in_polynomials
from sciml.operators.family import Axes, Family, by_name, nodes_on
from sciml.operators.learning import Frame, LearnedOperator, interpolated
from sciml.operators.recurrent import Recurrent
from sciml.plots import panels
from sciml.solution import Solution
from sciml.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLAIN = ("furthest", "calibration", "error", "success", "message", "seconds")
"""What a file of a surrogate holds as it is."""

# A Mahalanobis distance from the inputs of training that is no longer usual, beyond the largest of those.
_FAR = 1.5


@dataclass(frozen=True, repr=False)
class Surrogate:
    """A fitted solution operator: call it with inputs, and it predicts the fields.

    Attributes:
        model: the operator.
        frame: the grids and names of inputs and outputs.
        family: the problems behind the pairs, or None.
        errors: DataFrame with a row for each model that was tried and for the baselines (mean, nearest neighbour, linear):
            mean, median and worst relative L2 error on held-out pairs, seconds, coverage of the 95 % band.
        error: the mean relative L2 error on held-out pairs.
        success: whether that is below the tolerance.
        message: the same in a sentence.
        choices: what was tried and chosen.
        seconds: how long it took.
        ways: how the training samples were solved, for ``correct``.
    """

    model: Any
    frame: Frame
    code: PrincipalComponents
    scale: Any
    furthest: float
    calibration: float
    family: Family | None
    errors: pd.DataFrame
    error: float
    success: bool
    message: str
    choices: tuple[str, ...]
    seconds: float
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    ways: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self, initial: Mapping[str, Any] | None = None, *, grid: Mapping[str, Any] | None = None, **inputs: Any
    ) -> Prediction:
        """The fields for one input: numbers, functions of torch tensors, or values on the grid of the inputs.

        Args:
            initial: initial values by field, where they vary.
            grid: nodes of the outputs, where others than those of training are wanted.
            inputs: everything else that varies, by name.

        Warns:
            ExtrapolationWarning: the input is farther from those of training than any of them; the standard error is widened.
        """
        given = by_name(initial, inputs, list(self.frame.inputs), "this surrogate's inputs")
        rows = {name: self.on_grid(name, value) for name, value in given.items()}
        axes = None if grid is None else self._axes(grid)
        values, spread = self.model.predict(rows, axes)
        far = float(self.code.distance(self.scale.rows(parts_of(rows)))[0]) / self.furthest
        if far > _FAR:
            warnings.warn(
                f"this input is {far:.1f} times as far from the inputs of training (Mahalanobis distance in the code) as any "
                "of them: the prediction is an extrapolation; correct() solves the equation",
                ExtrapolationWarning,
                stacklevel=2,
            )
        if spread is None:
            # Without an own standard error: that of held-out pairs, in proportion to the field.
            size = np.sqrt(np.mean(values**2, axis=1, keepdims=True))
            spread = np.broadcast_to(self.calibration * size, values.shape)
        frame = self.frame.on(axes)
        wider = max(1.0, far)
        return Prediction(self, given, frame, values[0], wider * spread[0], far)

    def predict(self, inputs: Mapping[str, Any], axes: Axes | None = None) -> Array:
        """Outputs ``(samples, points, fields)`` of many inputs on their grids, by name."""
        return self.model.predict({name: np.asarray(inputs[name], dtype=float) for name in self.frame.inputs}, axes)[0]

    def roll(self, state: Any, steps: int, **constants: float) -> Array:
        """A roll-out in time: the operator applied to what it predicted, so many times.

        Args:
            state: the fields to begin from on the grid, ``{field: values}``, or values of a single one; ``Recurrent`` takes the
                input that it was trained with.
            steps: how many steps.
            constants: inputs that are numbers.

        Returns:
            ``(steps + 1, points, fields)``, the first of them the state.

        Raises:
            ModelError: the outputs are not on the grid of the inputs, so they cannot be put in again.
        """
        state = state if isinstance(state, Mapping) else {next(name for name, axes in self.frame.inputs.items() if axes): state}
        own = {name: self.on_grid(name, value) for name, value in {**state, **constants}.items()}
        if isinstance(self.model, Recurrent):
            column = list(self.frame.axes).index(self.model.time)
            found = self.model.rolled(own, steps + 1)[0]
            shape = [steps + 1 if number == column else length for number, length in enumerate(self.frame.shape)]
            return np.moveaxis(found.reshape(*shape, -1), column, 0).reshape(steps + 1, -1, len(self.frame.fields))
        functions = [name for name, axes in self.frame.inputs.items() if axes]
        if len(functions) != len(self.frame.fields):
            raise ModelError(
                f"roll needs an input for every field; there are {listed(functions)} and {listed(self.frame.fields)}"
            )
        found = [np.stack([own[name].reshape(-1) for name in functions], axis=1)]
        for _ in range(steps):
            values = self.predict(own)[0]
            if values.shape != found[0].shape:
                raise ModelError(f"roll needs outputs on the grid of the inputs, {found[0].shape}; they have {values.shape}")
            found.append(values)
            own |= {name: values[:, k].reshape(own[name].shape) for k, name in enumerate(functions)}
        return np.stack(found)

    def embedded(self, inputs: Mapping[str, Any], out: Any = None) -> pd.DataFrame:
        """The codes of many inputs, an embedding of functions: principal components, scaled by how they vary in training.

        Args:
            inputs: by name, functions on their grid ``(samples, points...)`` and numbers ``(samples,)``.
            out: must be None: codes are small.
        """
        if out is not None:
            raise ProblemError("the codes of inputs are small: write the DataFrame that is returned")
        rows = {name: np.asarray(inputs[name], dtype=float) for name in self.frame.inputs}
        codes = self.code.encode(self.scale.rows(parts_of(rows))) / self.code.spread.numpy()
        frame = pd.DataFrame(codes, columns=[f"z{number}" for number in range(codes.shape[1])])
        frame.attrs.update(meaning="principal components of the inputs, in standard deviations of training", model="Surrogate")
        return frame

    def save(self, path: str | Path) -> Path:
        """Write one file that ``operators.load`` reads: tensors and plain values."""
        model = self.model
        content = {
            "kind": "surrogate",
            "model": type(model).__name__,
            "config": model.config,
            "found": model.found,
            "state": _state(model),
            "frame": self.frame.config,
            "code": _state(self.code),
            "scale": {**_state(self.scale), "sizes": list(self.scale.sizes)},
            "errors": {"index": list(self.errors.index), "columns": self.errors.to_dict("list")},
            "history": self.history.to_dict("list"),
            "choices": list(self.choices),
            "ways": dict(self.ways),
            **{name: getattr(self, name) for name in PLAIN},
        }
        archive.write_file(Path(path), archive.packed(content))
        return Path(path)

    def on_grid(self, name: str, value: Any) -> Array:
        """One input as an array with one sample."""
        axes = self.frame.inputs[name]
        if not axes:
            return np.array([float(value)])
        found = Family.on_axes(name, value, axes)
        if not np.isfinite(found).all():
            raise DataError(f"{name} has values that are not finite on the grid of the inputs")
        return found[None]

    def _axes(self, grid: Mapping[str, Any]) -> Axes:
        """Nodes for all coordinates of the outputs."""
        unknown = [name for name in grid if name not in self.frame.axes]
        if unknown:
            raise ProblemError(f"grid: the outputs depend on {listed(self.frame.axes)}; given: {listed(unknown)}")
        found = {}
        for name, nodes in self.frame.axes.items():
            bounds, around = self.frame.bounds[name], name in self.frame.periodic
            found[name] = nodes_on(grid.get(name, nodes), bounds, periodic=around)
        return found

    def __repr__(self) -> str:
        """The model, its error on held-out pairs, and the table of what was tried."""
        head = f"Surrogate {type(self.model).__name__}: {', '.join(self.frame.inputs)} to {', '.join(self.frame.fields)}"
        shown = self.errors.to_string(float_format=lambda value: f"{value:.3g}")
        return f"{head}\n{'success' if self.success else 'no success'}: {self.message}\n\n{shown}"


@dataclass(frozen=True, repr=False)
class Prediction:
    """What a surrogate predicts for one input: a function of the coordinates, with its standard error.

    Attributes:
        surrogate: what predicted it.
        inputs: the input, by name.
        frame: the grid that it lies on.
        values: the fields at the nodes, ``(points, fields)``.
        spread: their standard errors.
        distance: how far the input is from those of training, as a share of the farthest of them.
    """

    surrogate: Surrogate
    inputs: Mapping[str, Any]
    frame: Frame
    values: Array
    spread: Array
    distance: float

    def __call__(self, **coordinates: Any) -> dict[str, Array]:
        """The fields at points, arrays that broadcast by coordinate: splines between the nodes, the trunk of a DeepONet."""
        return self._at(coordinates, self.values, continuous=True)

    def standard_error(self, **coordinates: Any) -> dict[str, Array]:
        """The standard errors of the fields at points."""
        return self._at(coordinates, self.spread, continuous=False)

    def grid(self, name: str | None = None) -> Array:
        """A field at the nodes, in the shape of the grid."""
        return self.values[:, self.frame.fields.index(name or self.frame.fields[0])].reshape(self.frame.shape)

    def correct(self, **options: Any) -> Solution:
        """Solve the equation for this input, begun at the prediction: a solution with its estimated error.

        Where the samples of training were polynomials on the whole box, Gauss-Newton steps in these begin at the prediction;
        elsewhere the problem is solved as ``fit`` solves it. ``choices`` tells how far the prediction was.

        Args:
            options: keywords for ``fit``.

        Raises:
            ProblemError: the pairs have no family, so there is no equation.
        """
        surrogate = self.surrogate
        if surrogate.family is None:
            raise ProblemError("correct() solves the equation, and these pairs have no family: make them by operators.sample")
        problem = surrogate.family.posed(self.inputs)
        return corrected(problem, self, self.values, self.frame.axes, surrogate.ways, **options)

    def solution(self, degree: int | Sequence[int] = 16) -> Solution:
        """The prediction in polynomials of a degree, as a solution that a fit can begin from or learn from.

        It is none of the equation and no success; ``sciml.fit(problem, start=u.solution())`` makes it one, and
        ``teacher=u.solution()`` teaches it to a network.

        Raises:
            ProblemError: the pairs have no family, so there is no problem.
        """
        family = self.surrogate.family
        if family is None:
            raise ProblemError("solution() belongs to a problem, and these pairs have no family: make them by operators.sample")
        problem, axes = family.posed(self.inputs), self.frame.axes
        around = [problem.coordinates.index(name) for name in self.frame.periodic]
        return in_polynomials(problem, Spectral(degree, periodic=around), self, axes)

    def plot(self, truth: Any = None) -> Figure:
        """Draw the input, the prediction with its 95 % band or standard error, and its error where the truth is given.

        Args:
            truth: a solution, such as ``correct()`` returns, or any function of the coordinates.
        """
        frame = self.frame
        shown = {
            f"input {name}": (axes, self.surrogate.on_grid(name, self.inputs[name])[0])
            for name, axes in frame.inputs.items()
            if axes
        }
        bands, at = {}, dict(zip(frame.axes, np.meshgrid(*frame.axes.values(), indexing="ij"), strict=True))
        for column, name in enumerate(frame.fields):
            title, flat = f"prediction of {name}", sum(length > 1 for length in frame.shape) == 1
            shown[title] = (frame.axes, self.values[:, column])
            bands[title] = 1.96 * self.spread[:, column]
            if truth is not None:
                gap = self.grid(name) - np.asarray(truth(**at)[name])
                shown[f"error of {name}"] = (frame.axes, gap)
            if not flat:
                shown[f"standard error of {name}"] = (frame.axes, self.spread[:, column])
        return panels(shown, bands)

    def _at(self, coordinates: Mapping[str, Any], values: Array, *, continuous: bool) -> dict[str, Array]:
        frame = self.frame
        if set(coordinates) != set(frame.bounds):
            raise ProblemError(
                f"a prediction is a function of {listed(frame.bounds)}; given: {listed(coordinates) or 'nothing'}"
            )
        columns = np.broadcast_arrays(*(np.asarray(coordinates[name], dtype=float) for name in frame.bounds))
        places = np.stack([column.ravel() for column in columns], axis=1)
        if frame.points is not None:
            raise ModelError("a prediction on scattered points has its values there: read values")
        if continuous and isinstance(self.surrogate.model, LearnedOperator) and hasattr(self.surrogate.model, "terms"):
            found = self._continuous(places)
        else:
            found = between(frame, values, places)
        return {name: found[:, column].reshape(columns[0].shape) for column, name in enumerate(frame.fields)}

    def _continuous(self, places: Array) -> Array:
        """The function itself, where the model is one of the coordinates."""
        rows = {name: self.surrogate.on_grid(name, value) for name, value in self.inputs.items()}
        model = copy.copy(self.surrogate.model)
        frame = Frame(model.frame.inputs, model.frame.fields, {}, places, model.frame.periodic, model.frame.bounds)
        return model.outputs(model.features(frame, rows), frame).detach().numpy()[0]

    def __repr__(self) -> str:
        """Fields, grid, standard error and distance."""
        size = np.sqrt(np.mean(self.values**2, axis=0))
        share = np.sqrt(np.mean(self.spread**2, axis=0)) / np.maximum(size, np.finfo(float).tiny)
        known = ", ".join(
            f"{name} (standard error {each:.1e} of it)" for name, each in zip(self.frame.fields, share, strict=True)
        )
        return f"Prediction of {known} on {' x '.join(map(str, self.frame.shape))} nodes"


def between(frame: Frame, values: Array, places: Array) -> Array:
    """Values between the nodes, ``(n, fields)``; a coordinate with one node is no coordinate."""
    axes = {name: nodes for name, nodes in frame.axes.items() if len(nodes) > 1}
    columns = [column for column, name in enumerate(frame.axes) if name in axes]
    highs = {name: frame.bounds[name][1] for name in axes if name in frame.periodic}
    ends = {name: high for name, high in highs.items() if high > axes[name][-1]}
    held = values.reshape(*map(len, axes.values()), -1)
    return interpolated(axes, held, places[:, columns], ends, cubic=True)


def _state(module: nn.Module) -> dict[str, Any]:
    return {name: value.detach().cpu() for name, value in module.state_dict().items()}
