"""Coefficients from files: a field given on a grid, interpolated by splines, that equations call as a function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sciml._text import listed
from sciml.data.read import read
from sciml.data.splines import TensorSpline
from sciml.data.table import Table, unmasked
from sciml.errors import DataError
from sciml.typing import Array

_ROUNDING = 1e-9


class GridField:
    r"""A coefficient on a tensor-product grid: an interpolating spline that equations call as ``self.a(x, y)``.

    .. math::  a(x) = \sum_{k} c_k \prod_i B_{k_i}(x_i)

    with B-splines B of odd ``order`` p, not-a-knot at the ends. It is p - 1 times continuously differentiable, so that
    ``d(self.a(x, y) * d(u, x), x)`` may ask for its slope. Its error falls as :math:`h^{p+1}` with the distance h of the nodes
    where the field is smooth, and not at all across a jump: a coefficient that jumps is stated on parts of the domain.

    Args:
        axes: for each coordinate, in the order of the calls' arguments, its increasing nodes.
        values: at the nodes, with a dimension for each axis.
        order: 1, 3 or 5: linear, cubic or quintic.
        name: for messages.
        beyond: what it is beyond the grid: ``"error"``, or ``"nearest"``, the value at the nearest end, for tables of a law
            such as k(T): a search passes through fields far from the solution. Whether this stays within the table is for
            the caller to look at.

    Raises:
        DataError: nodes that do not increase, as many values as there are not nodes, values that are not finite, too few nodes
            for the order, another word for ``beyond``; when it is called: places beyond the grid.

    Example:
        >>> import numpy as np, torch, sciml
        >>> x, y = np.linspace(0, 1, 21), np.linspace(0, 2, 31)
        >>> a = sciml.data.GridField({"x": x, "y": y}, np.exp(x[:, None]) * np.cos(y))
        >>> at = torch.tensor([0.33], dtype=torch.float64)
        >>> bool(abs(a(at, at) - torch.exp(at) * torch.cos(at)) < 1e-6)
        True

    Reference: C. de Boor, A Practical Guide to Splines, Springer 2001.
    """

    def __init__(
        self, axes: Mapping[str, Any], values: Any, order: int = 3, name: str = "the field", *, beyond: str = "error"
    ) -> None:
        self.name, self.order, self.beyond = name, order, beyond
        self.nodes, self.values = {key: unmasked(nodes) for key, nodes in axes.items()}, unmasked(values)
        if order not in (1, 3, 5):
            raise DataError(f"{name}: order must be 1, 3 or 5; given: {order!r}")
        if beyond not in ("error", "nearest"):
            raise DataError(f"{name}: beyond must be 'error' or 'nearest'; given: {beyond!r}")
        shape = tuple(len(nodes) for nodes in self.nodes.values())
        if self.values.shape != shape:
            raise DataError(f"{name} needs {' x '.join(map(str, shape))} values, as many as nodes; given: {self.values.shape}")
        for key, nodes in self.nodes.items():
            if nodes.ndim != 1 or not np.isfinite(nodes).all() or not (np.diff(nodes) > 0).all():
                raise DataError(f"{name}: the nodes of {key} must be finite and increase; given: {nodes}")
            if len(nodes) <= order:
                raise DataError(f"{name}: order {order} needs {order + 1} nodes of {key} or more; given: {len(nodes)}")
        bad = np.argwhere(~np.isfinite(self.values))
        if len(bad):
            at = ", ".join(f"{key} = {nodes[k]:g}" for (key, nodes), k in zip(self.nodes.items(), bad[0], strict=True))
            raise DataError(f"{name} is {self.values[tuple(bad[0])]} at {at}; {len(bad)} of its values are not finite")
        self._spline = TensorSpline([(nodes, order, None) for nodes in self.nodes.values()], self.values[None])

    @classmethod
    def read(
        cls,
        path: str | Path,
        value: str,
        coordinates: Sequence[str],
        *,
        order: int = 3,
        beyond: str = "error",
        **options: Any,
    ) -> GridField:
        """A field from a CSV, HDF5, NetCDF, Parquet or MATLAB file with a row, or an entry, for each node of a full grid.

        Args:
            path: the file.
            value: the column, or dataset, of the field.
            coordinates: those of the nodes, in the order of the calls' arguments.
            order: of the interpolation.
            beyond: what it is beyond the grid, as for the class.
            options: of ``sciml.read``.

        Raises:
            DataError: what ``sciml.read`` raises; columns that are missing, nodes that are no full grid (with the first one
                that is missing), and what the class raises.

        Example:
            >>> import pathlib, tempfile, sciml
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "k.csv"
            >>> sciml.Table({"x": [0.0, 0.0, 1.0, 1.0], "y": [0.0, 1.0, 0.0, 1.0], "k": [1.0, 2.0, 3.0, 4.0]}).save(path)
            >>> k = sciml.data.GridField.read(path, "k", ("x", "y"), order=1)
            >>> float(k(0.5, 0.5))
            2.5
        """
        table = read(path, **options)
        if not isinstance(table, Table):
            raise DataError(f"{path}: a field is read at once; leave out lazy=")
        given, found = table[value], [np.unique(table[name], return_inverse=True) for name in coordinates]
        nodes, places = [each for each, _ in found], tuple(place for _, place in found)
        shape = tuple(map(len, nodes))
        count = np.zeros(shape, dtype=int)
        np.add.at(count, places, 1)
        for what, wrong in (("is missing", count == 0), ("is given more than once", count > 1)):
            if wrong.any():
                first = np.argwhere(wrong)[0]
                at = ", ".join(f"{name} = {each[k]:g}" for name, each, k in zip(coordinates, nodes, first, strict=True))
                raise DataError(f"{path}: {value!r} is no full grid of {listed(list(coordinates))}: the node {at} {what}")
        values = np.empty(shape)
        values[places] = given
        return cls(dict(zip(coordinates, nodes, strict=True)), values, order, f"{value!r} of {Path(path).name}", beyond=beyond)

    def __call__(self, *coordinates: Any) -> Tensor:
        """Values at places, tensors or numbers that broadcast, one argument for each axis."""
        if len(coordinates) != len(self.nodes):
            raise DataError(f"{self.name} takes {listed(list(self.nodes))}; given: {len(coordinates)} arguments")
        places = torch.broadcast_tensors(*(torch.as_tensor(each, dtype=torch.float64) for each in coordinates))
        if self.beyond == "nearest":
            places = tuple(x.clamp(nodes[0], nodes[-1]) for nodes, x in zip(self.nodes.values(), places, strict=True))
        for (key, nodes), x in zip(self.nodes.items(), places, strict=True):
            self._check(key, nodes, x.detach())
        return self._spline(torch.stack([each.reshape(-1) for each in places], dim=1))[:, 0].reshape(places[0].shape)

    def _check(self, key: str, nodes: Array, x: Tensor) -> None:
        low, high = float(nodes[0]), float(nodes[-1])
        reach = _ROUNDING * (high - low)
        # By the least and the largest of them: a comparison at all points would be taken for a jump of the equation.
        least, most = map(float, x.aminmax()) if x.numel() else (low, high)
        for wrong, side, end, asked in ((least < low - reach, "below", low, least), (most > high + reach, "above", high, most)):
            if wrong:
                raise DataError(
                    f"{self.name} is given for {key} from {low:g} to {high:g} and asked for at {key} = {asked:g}: the part "
                    f"{side} {end:g} is missing; extend the grid, cut the domain, "
                    "or, for the table of a law such as k(T), take beyond='nearest'"
                )

    @property
    def error(self) -> float:
        """The estimated relative error of the interpolation: that of every second node at the others, less by the order."""
        half = {key: nodes[::2] for key, nodes in self.nodes.items()}
        if any(len(nodes) <= self.order for nodes in half.values()):
            return math.nan
        coarse = GridField(half, self.values[tuple(slice(None, None, 2) for _ in half)], self.order, self.name)
        inner = {key: nodes[: 2 * len(half[key]) - 1] for key, nodes in self.nodes.items()}
        grid = np.meshgrid(*inner.values(), indexing="ij")
        exact = self.values[tuple(slice(0, len(nodes)) for nodes in inner.values())]
        missed = coarse(*(torch.from_numpy(each) for each in grid)).numpy() - exact
        size = max(float(np.linalg.norm(exact)), 1e-300) * 2 ** (self.order + 1)
        return float(np.linalg.norm(missed)) / size

    def __repr__(self) -> str:
        spans = ", ".join(f"{key}: {len(nodes)} nodes in [{nodes[0]:g}, {nodes[-1]:g}]" for key, nodes in self.nodes.items())
        beyond = ", beyond its ends as at the nearest" if self.beyond == "nearest" else ""
        return f"GridField({self.name}, order {self.order}, {spans}{beyond})"
