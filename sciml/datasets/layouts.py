"""Layouts of published collections of simulations in HDF5, recognised and laid out as grids: PDEBench and The Well."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sciml.datasets.attributes import label
from sciml.datasets.damage import check_safe
from sciml.datasets.vault import Handles, find, locate
from sciml.errors import DataError, listed

_SPACE = ("x", "y", "z")
_SUFFIX = "-coordinate"
_FIELDS = ("t0_fields", "t1_fields", "t2_fields")


@dataclass(frozen=True)
class Variable:
    """What a layout says of a dataset.

    Args:
        dataset: its path in the file; ``{sample}`` stands for the group of the sample.
        axes: for each axis ``"sample"``, the name of a coordinate, or ``"component"``.
        components: the columns that the components become, if the layout names them.

    Raises:
        DataError: never.

    Example:
        >>> from sciml.datasets.layouts import Variable
        >>> Variable("tensor", ("sample", "t", "x")).axes
        ('sample', 't', 'x')
    """

    dataset: str
    axes: tuple[str, ...]
    components: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """A file's variables by name, and its samples.

    Args:
        name: of the layout.
        coordinates: in the order of their axes.
        fields: everything that depends on them.
        samples: their names: numbers, or groups of the file.
        extra: variables that are taken only when asked for.

    Raises:
        DataError: never.

    Example:
        >>> from sciml.datasets.layouts import Layout, Variable
        >>> layout = Layout("PDEBench", {"x": Variable("x-coordinate", ("x",))}, {}, ("0",), {})
        >>> list(layout.variables)
        ['x']
    """

    name: str
    coordinates: Mapping[str, Variable]
    fields: Mapping[str, Variable]
    samples: Sequence[str]
    extra: Mapping[str, Variable]

    @property
    def variables(self) -> dict[str, Variable]:
        """Every variable by name."""
        return {**self.coordinates, **self.fields, **self.extra}


def recognised(handles: Handles, path: Path, links: Path | None) -> Layout | None:
    """The layout of a file, if it is one of those known here.

    - PDEBench, one dataset ``tensor`` (sample, t, x) with ``x-coordinate`` and ``t-coordinate``, or one for each field
      (``density``, ``Vx`` ...; sample, t, x, y, z). The times may be one more than the steps: the last is not in the data.
    - PDEBench, a group for each sample with ``data`` (t, x, y, channel) and ``grid/x``, ``grid/y``, ``grid/t``.
    - The Well: ``dimensions``, and fields in ``t0_fields``, ``t1_fields`` (vectors) and ``t2_fields`` (tensors).

    Args:
        handles: the open files.
        path: of the file.
        links: the folder below which other files may be read; None forbids them.

    Raises:
        DataError: it looks like one of them, and something does not fit.
    """
    source = _Source(handles, path, links)
    names = source.names("/")
    if "n_trajectories" in source.file.attrs and "dimensions" in names:
        check_safe(path, ("dimensions", *_FIELDS, "scalars"))
        return _well(source)
    if any(f"{axis}{_SUFFIX}" in names for axis in _SPACE):
        return _flat(source, names)
    if names and {"data", "grid"} <= set(source.names(names[0])):
        return _grouped(source, names)
    return None


@dataclass(frozen=True)
class _Source:
    """A file that may have one of the layouts."""

    handles: Handles
    path: Path
    links: Path | None

    @property
    def file(self) -> h5py.File:
        return self.handles[self.path]

    def names(self, group: str) -> list[str]:
        """What a group holds; nothing if there is none, or a link in its place."""
        if group != "/" and not isinstance(self.file.get(group, getlink=True), h5py.HardLink):
            return []
        check_safe(self.path, (group,))
        there = self.file[group]
        return list(there) if isinstance(there, h5py.Group) else []

    def shape(self, name: str) -> tuple[int, ...]:
        return locate(self.handles, self.path, name, links=self.links).shape

    def attributes(self, name: str) -> Mapping[str, Any]:
        return find(self.handles, self.path, name, links=self.links).attrs

    def varying(self, name: str, **axes: str) -> tuple[str, ...]:
        """The axes that a dataset's attributes say it has."""
        said = self.attributes(name)
        return tuple(axis for flag, axis in axes.items() if bool(said.get(f"{flag}_varying", False)))


def _flat(source: _Source, names: list[str]) -> Layout | None:
    space = [axis for axis in _SPACE if f"{axis}{_SUFFIX}" in names]
    timed = f"t{_SUFFIX}" in names
    axes = [*(["t"] if timed else []), *space]
    lengths = {axis: source.shape(f"{axis}{_SUFFIX}")[0] for axis in axes}
    fields: dict[str, Variable] = {}
    for name in names:
        if name.endswith(_SUFFIX):
            continue
        shape = source.shape(name)
        # Darcy's flow has an axis for a single time, and no times.
        single = not timed and len(shape) == len(space) + 2 and shape[1] == 1
        if len(shape) != 1 + single + len(axes) or shape[1 + single + timed :] != tuple(
            lengths[axis] for axis in space
        ):
            return None
        if timed and lengths["t"] not in (shape[1], shape[1] + 1):
            raise DataError(
                f"{source.path}: {name!r} has {shape[1]} times and t-coordinate {lengths['t']}; expected as many, or one more, "
                "as PDEBench writes them; pass axes= to say how they belong together"
            )
        fields[name] = Variable(name, ("sample", *(("component",) if single else ()), *axes))
    if not fields:
        return None
    count = source.shape(next(iter(fields)))[0]
    coordinates = {axis: Variable(f"{axis}{_SUFFIX}", (axis,)) for axis in axes}
    return Layout("PDEBench", coordinates, fields, [str(number) for number in range(count)], {})


def _grouped(source: _Source, names: list[str]) -> Layout | None:
    inner = source.names(f"{names[0]}/grid")
    axes = [axis for axis in ("t", *_SPACE) if axis in inner]
    shape = source.shape(f"{names[0]}/data")
    if not axes or len(shape) not in (len(axes), len(axes) + 1):
        return None
    coordinates = {axis: Variable(f"{{sample}}/grid/{axis}", (axis,)) for axis in axes}
    fields = {"data": Variable("{sample}/data", (*axes, *("component",) * (len(shape) - len(axes))))}
    return Layout("PDEBench", coordinates, fields, names, {})


def _well(source: _Source) -> Layout:
    dimensions = source.file["dimensions"]
    said = np.atleast_1d(dimensions.attrs.get("spatial_dims", []))
    space = [label(f"{source.path}: 'spatial_dims'", number, name) for number, name in enumerate(said)]
    if not space:
        raise DataError(f"{source.path}: 'dimensions' has no attribute spatial_dims, by which The Well names its axes")
    coordinates = {
        ours: Variable(f"dimensions/{theirs}", (*source.varying(f"dimensions/{theirs}", sample="sample"), ours))
        for ours, theirs in [("t", "time"), *((name, name) for name in space)]
    }
    fields: dict[str, Variable] = {}
    for order, group in enumerate(_FIELDS):
        for name in source.names(group):
            at = f"{group}/{name}"
            flags = np.atleast_1d(source.attributes(at).get("dim_varying", [True] * len(space)))
            if len(flags) != len(space):
                raise DataError(f"{source.path}: dim_varying of {at!r} has {len(flags)} entries; expected {len(space)}")
            axes = (
                *source.varying(at, sample="sample", time="t"),
                *(axis for axis, varies in zip(space, flags, strict=True) if varies),
            )
            shape = source.shape(at)
            trailing = len(shape) - len(axes)
            # Tensors are written with one axis of components or with two.
            if trailing not in ((order,) if order < 2 else (1, 2)):
                raise DataError(
                    f"{source.path}: {at!r} has shape {shape}; its attributes say the axes {listed(axes)}, and {order} for "
                    "components; repair the attributes, or pass axes= to say them"
                )
            components = tuple(f"{name}_{''.join(which)}" for which in itertools.product(space, repeat=order) if order)
            counted = math.prod(shape[len(axes) :])
            if order and len(components) != counted:
                components = tuple(f"{name}_{number}" for number in range(counted))
            fields[name] = Variable(at, (*axes, *("component",) * trailing), components)
    scalars = {
        name: Variable(f"scalars/{name}", source.varying(f"scalars/{name}", sample="sample", time="t"))
        for name in source.names("scalars")
        if name not in fields and name not in coordinates
    }
    samples = [str(number) for number in range(int(source.file.attrs["n_trajectories"]))]
    return Layout("The Well", coordinates, fields, samples, scalars)
