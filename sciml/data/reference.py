"""Reference solutions stored in HDF5 files, interpolated by tensor-product splines."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

from sciml._text import among
from sciml.data import archive
from sciml.data.archive import HDF5
from sciml.data.sandbox import FOREIGN, check_safe
from sciml.data.splines import TensorSpline
from sciml.errors import FileError, ProblemError
from sciml.geometry.coordinates import points_from
from sciml.typing import Array

_DEGREE = 7
_CHUNK = 16384
_ROUNDING = 1e-9


class StoredReference:
    r"""A reference solution on a tensor grid, read from an HDF5 file, as a function of the coordinates.

    Between the points of the grid it is the tensor-product spline of degree 7 (less where an axis has fewer than eight
    points) that takes the stored values at the points,

    .. math::
        u(x, t) = \sum_{ij} c_{ij}\,B_i(x)\,B_j(t),

    with knots by the rule "not a knot", or periodic where the solution is. It is made of torch operations, so its derivatives
    are to be had by autograd, to the sixth along each coordinate. At the points themselves nothing is lost.

    On a domain that is no box the fields are NaN at the points of the grid that lie outside. No spline crosses these: between
    the points the reference is linear along each coordinate then, and NaN beside those outside.

    Assigned in a problem's class, ``reference = sciml.StoredReference(path)``, it is the problem's reference. A problem whose
    constants are not those that the file was computed for (its attribute ``parameters``) has none. ``Solution.error`` is
    then taken at the stored points.

    The file has a one-dimensional dataset for each coordinate, increasing, and for each field a dataset of the grid's
    shape; the attributes ``coordinates`` and ``fields`` name them in order, and ``periodic`` the coordinates along which the
    fields are periodic, if any. ``parameters`` is a JSON object of numbers. Nothing is read before the first use.

    Args:
        path: the file.
        fields: the fields to take, in this order; all by default.

    Raises:
        FileError: at the first use: no such file, or one that is damaged or of another kind.
        ProblemError: a field that the file does not have; when evaluated: wrong coordinates, or points off the grid.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np, sciml
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "reference.h5"
        >>> t = np.linspace(0, 1, 21)
        >>> sciml.StoredReference.write(file, {"t": t}, {"u": np.exp(-2 * t)}, parameters={"rate": 2.0})
        >>> decay = sciml.StoredReference(file)
        >>> bool(abs(decay(t=0.33)["u"] - np.exp(-0.66)) < 1e-11)
        True
    """

    def __init__(self, path: str | Path, *, fields: Sequence[str] | None = None) -> None:
        self.path = Path(path)
        self._wanted = None if fields is None else tuple(fields)

    def __repr__(self) -> str:
        return f"StoredReference({str(self.path)!r})"

    def __get__(self, problem: Any, owner: type | None = None) -> StoredReference | None:
        """Itself; None for a problem with other constants than those of the file, which is no reference for it."""
        if problem is None:
            return self
        for name, value in self.parameters.items():
            own = getattr(problem, name, value)
            # Unknown constants are tensors while they are estimated; the reference is the truth whatever they are.
            if isinstance(own, int | float) and not math.isclose(own, value, rel_tol=_ROUNDING):
                return None
        return self

    @staticmethod
    def write(
        path: str | Path,
        axes: Mapping[str, Array],
        fields: Mapping[str, Array],
        parameters: Mapping[str, float] | None = None,
        **attributes: Any,
    ) -> None:
        """Write a reference: float64, compressed, with checksums.

        Args:
            path: the file, which is replaced.
            axes: for each coordinate its values, increasing, in its unit.
            fields: for each field an array with a dimension for each axis, in its unit; NaN outside of the domain.
            parameters: the constants of the problem that it was computed for.
            attributes: what else to say: equation, method, resolution, converged_to ...

        Raises:
            FileError: the file cannot be written; an older one is still there.
            ProblemError: an axis does not increase, or a field has another shape than the grid.
        """
        shape = _checked_axes(axes)
        for name, values in fields.items():
            if np.shape(values) != shape:
                raise ProblemError(f"the field {name!r} has shape {np.shape(values)}; the grid has {shape}")
        # In memory first: of a full disk HDF5 tells late, and not always.
        buffer = io.BytesIO()
        with h5py.File(buffer, "w", libver=HDF5) as file:
            for name, values in {**axes, **fields}.items():
                array = np.asarray(values, dtype=np.float64)
                file.create_dataset(name, data=array, chunks=array.shape, compression="gzip", fletcher32=True)
            about = {"parameters": json.dumps(dict(parameters or {})), **attributes}
            for name, value in {**about, "coordinates": list(axes), "fields": list(fields)}.items():
                # Texts of variable length lie where checksums do not reach.
                values = np.asarray(value)
                file.attrs[name] = np.char.encode(values, "utf-8") if values.dtype.kind == "U" else value
        archive.write_file(Path(path), buffer.getvalue())

    @property
    def axes(self) -> dict[str, Array]:
        """The points of the grid along each coordinate."""
        return self._content[0]

    @property
    def fields(self) -> dict[str, Array]:
        """The values of each field on the grid."""
        return self._content[1]

    @property
    def attributes(self) -> dict[str, Any]:
        """What the file says of itself: equation, method, resolution, converged_to ..."""
        return self._content[2]

    @property
    def parameters(self) -> dict[str, float]:
        """The constants that the reference was computed for."""
        return self.attributes["parameters"]

    def grid(self) -> dict[str, Array]:
        """The coordinates of all stored points, each of the grid's shape; of those with values, where some have none."""
        points = dict(zip(self.axes, np.meshgrid(*self.axes.values(), indexing="ij"), strict=True))
        return points if self._inside.all() else {name: each[self._inside] for name, each in points.items()}

    def covers(self, bounds: Mapping[str, tuple[float, float]]) -> bool:
        """True if the grid reaches from end to end of these intervals, and no further."""
        return list(bounds) == list(self.axes) and all(
            np.allclose(self.axes[name][[0, -1]], ends, rtol=0, atol=_ROUNDING * (ends[1] - ends[0]))
            for name, ends in bounds.items()
        )

    def __call__(self, **coordinates: Any) -> dict[str, Tensor]:
        """The fields at points.

        Args:
            coordinates: every coordinate by name, in its unit; numbers, arrays or tensors that broadcast.

        Returns:
            For each field a float64 tensor of the shape that the coordinates broadcast to, differentiable by them.

        Raises:
            ProblemError: wrong coordinates, or points off the grid.
        """
        points, shape = points_from(coordinates, tuple(self.axes), torch.empty(0, dtype=torch.float64))
        for column, (name, axis) in enumerate(self.axes.items()):
            self._check_within(name, axis, points[:, column].detach())
        values = torch.cat([self._spline(part) for part in points.split(_CHUNK)])
        return {name: each.reshape(shape) for name, each in zip(self.fields, values.T, strict=True)}

    def _check_within(self, name: str, axis: Array, values: Tensor) -> None:
        slack = _ROUNDING * (axis[-1] - axis[0])
        if not bool(((values >= axis[0] - slack) & (values <= axis[-1] + slack)).all()):
            raise ProblemError(
                f"{self.path} holds the reference for {name} between {axis[0]:g} and {axis[-1]:g}; asked for it between "
                f"{float(values.min()):g} and {float(values.max()):g}: stay within, or pass a reference of your own"
            )

    @cached_property
    def _content(self) -> tuple[dict[str, Array], dict[str, Array], dict[str, Any]]:
        if not self.path.is_file():
            raise FileError(f"there is no reference {self.path}: keep the folder data beside the folder problems")
        try:
            check_safe(self.path)
            with h5py.File(self.path, "r") as file:
                attributes = {name: _plain(value) for name, value in file.attrs.items()}
                axes = {name: file[name][...] for name in attributes.pop("coordinates")}
                fields = {name: file[name][...] for name in attributes.pop("fields")}
                attributes["parameters"] = json.loads(attributes.get("parameters", "{}"))
        except FOREIGN as error:
            raise FileError(f"{self.path} is no reference, or is damaged: {error}") from error
        shape = _checked_axes(axes)
        if any(values.shape != shape for values in fields.values()):
            raise FileError(f"{self.path} is damaged: its fields have other shapes than its grid, {shape}")
        for name in self._wanted or ():
            if name not in fields:
                raise ProblemError(f"{self.path} has no field {name!r}; fields: {among(name, fields)}")
        return axes, {name: fields[name] for name in self._wanted or fields}, attributes

    @cached_property
    def _inside(self) -> Array:
        """Where on the grid there are values."""
        return np.isfinite(np.stack(list(self.fields.values()))).all(0)

    @cached_property
    def _spline(self) -> TensorSpline:
        degree, periodic = (_DEGREE, self.attributes.get("periodic", ())) if self._inside.all() else (1, ())
        axes = [
            (axis, min(degree, len(axis) - 1 - len(axis) % 2), "periodic" if name in periodic else None)
            for name, axis in self.axes.items()
        ]
        return TensorSpline(axes, np.stack(list(self.fields.values())))


def _checked_axes(axes: Mapping[str, Array]) -> tuple[int, ...]:
    """The shape of the grid of some axes; a ``ProblemError`` unless each is two or more increasing numbers."""
    for name, axis in axes.items():
        if np.ndim(axis) != 1 or len(axis) < 2 or not (np.diff(axis) > 0).all():
            raise ProblemError(f"the axis {name!r} of a reference must hold two or more increasing numbers")
    return tuple(len(axis) for axis in axes.values())


def _plain(value: Any) -> Any:
    """An attribute as Python values."""
    array = np.asarray(value)
    return (np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array).tolist()
