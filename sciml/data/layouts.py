"""Layouts of published collections of simulations in HDF5, PDEBench and The Well: recognised, and their samples as grids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np

from sciml._text import listed, nearest
from sciml.data.hdf5_file import label
from sciml.data.hdf5_grid import Column, ColumnRequest, GridTable, split_columns
from sciml.data.sandbox import check_safe
from sciml.errors import DataError

_SPACE = ("x", "y", "z")
_SUFFIX = "-coordinate"
_FIELDS = ("t0_fields", "t1_fields", "t2_fields")


@dataclass(frozen=True)
class Variable:
    """What a layout says of a dataset."""

    dataset: str
    axes: tuple[str, ...]
    components: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """A file's samples, and its variables by name: coordinates, fields, and more that are read only if asked for."""

    name: str
    coordinates: Sequence[str]
    fields: Sequence[str]
    variables: Mapping[str, Variable]
    samples: Sequence[str]


def recognised(source: ColumnRequest) -> Layout | None:
    """The layout of a file, if it is one of those known here.

    - PDEBench, one dataset ``tensor`` (sample, t, x) with ``x-coordinate`` and ``t-coordinate``, or one for each field
      (``density``, ``Vx`` ...; sample, t, x, y, z). The times may be one more than the steps: the last is not in the data.
    - PDEBench, a group for each sample with ``data`` (t, x, y, channel) and ``grid/x``, ``grid/y``, ``grid/t``.
    - The Well: ``dimensions``, and fields in ``t0_fields``, ``t1_fields`` (vectors) and ``t2_fields`` (tensors).

    Raises:
        DataError: it looks like one of them, and something does not fit.
    """
    names = _members(source, "/")
    if "n_trajectories" in source.file.attrs and "dimensions" in names:
        check_safe(source.path, ("dimensions", *_FIELDS, "scalars"))
        return _well(source)
    if any(f"{axis}{_SUFFIX}" in names for axis in _SPACE):
        return _flat(source, names)
    if names and {"data", "grid"} <= set(_members(source, names[0])):
        return _grouped(source, names)
    return None


def _members(source: ColumnRequest, group: str) -> list[str]:
    """What a group holds; nothing if there is none, or a link in its place."""
    if group != "/" and not isinstance(source.file.get(group, getlink=True), h5py.HardLink):
        return []
    check_safe(source.path, (group,))
    there = source.file[group]
    return list(there) if isinstance(there, h5py.Group) else []


def _varying(source: ColumnRequest, name: str, **axes: str) -> tuple[str, ...]:
    """The axes that a dataset's attributes say it has."""
    said = source.find(name).attrs
    return tuple(axis for flag, axis in axes.items() if bool(said.get(f"{flag}_varying", False)))


def _flat(source: ColumnRequest, names: list[str]) -> Layout | None:
    space = [axis for axis in _SPACE if f"{axis}{_SUFFIX}" in names]
    timed = f"t{_SUFFIX}" in names
    axes = [*(["t"] if timed else []), *space]
    lengths = {axis: source.locate(f"{axis}{_SUFFIX}").shape[0] for axis in axes}
    fields: dict[str, Variable] = {}
    for name in names:
        if name.endswith(_SUFFIX):
            continue
        shape = source.locate(name).shape
        # Darcy's flow has an axis for a single time, and no times.
        single = not timed and len(shape) == len(space) + 2 and shape[1] == 1
        if len(shape) != 1 + single + len(axes) or shape[1 + single + timed :] != tuple(lengths[axis] for axis in space):
            return None
        if timed and lengths["t"] not in (shape[1], shape[1] + 1):
            raise DataError(
                f"{source.path}: {name!r} has {shape[1]} times and t-coordinate {lengths['t']}; expected as many, or one more, "
                "as PDEBench writes them; pass axes= to say how they belong together"
            )
        fields[name] = Variable(name, ("sample", *(("component",) if single else ()), *axes))
    if not fields:
        return None
    count = source.locate(next(iter(fields))).shape[0]
    coordinates = {axis: Variable(f"{axis}{_SUFFIX}", (axis,)) for axis in axes}
    return Layout("PDEBench", axes, list(fields), {**coordinates, **fields}, [str(number) for number in range(count)])


def _grouped(source: ColumnRequest, names: list[str]) -> Layout | None:
    inner = _members(source, f"{names[0]}/grid")
    axes = [axis for axis in ("t", *_SPACE) if axis in inner]
    shape = source.locate(f"{names[0]}/data").shape
    if not axes or len(shape) not in (len(axes), len(axes) + 1):
        return None
    coordinates = {axis: Variable(f"{{sample}}/grid/{axis}", (axis,)) for axis in axes}
    fields = {"data": Variable("{sample}/data", (*axes, *("component",) * (len(shape) - len(axes))))}
    return Layout("PDEBench", axes, ["data"], {**coordinates, **fields}, names)


def _well(source: ColumnRequest) -> Layout:
    dimensions = source.file["dimensions"]
    said = np.atleast_1d(dimensions.attrs.get("spatial_dims", []))
    space = [label(f"{source.path}: 'spatial_dims'", number, name) for number, name in enumerate(said)]
    if not space:
        raise DataError(f"{source.path}: 'dimensions' has no attribute spatial_dims, by which The Well names its axes")
    coordinates = {
        ours: Variable(f"dimensions/{theirs}", (*_varying(source, f"dimensions/{theirs}", sample="sample"), ours))
        for ours, theirs in [("t", "time"), *((name, name) for name in space)]
    }
    fields: dict[str, Variable] = {}
    for order, group in enumerate(_FIELDS):
        for name in _members(source, group):
            at = f"{group}/{name}"
            flags = np.atleast_1d(source.find(at).attrs.get("dim_varying", [True] * len(space)))
            if len(flags) != len(space):
                raise DataError(f"{source.path}: dim_varying of {at!r} has {len(flags)} entries; expected {len(space)}")
            axes = (
                *_varying(source, at, sample="sample", time="t"),
                *(axis for axis, varies in zip(space, flags, strict=True) if varies),
            )
            shape = source.locate(at).shape
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
        name: Variable(f"scalars/{name}", _varying(source, f"scalars/{name}", sample="sample", time="t"))
        for name in _members(source, "scalars")
        if name not in fields and name not in coordinates
    }
    samples = [str(number) for number in range(int(source.file.attrs["n_trajectories"]))]
    return Layout("The Well", list(coordinates), list(fields), {**coordinates, **fields, **scalars}, samples)


def sample_grids(request: ColumnRequest, layout: Layout, sample: Any) -> tuple[GridTable, ...]:
    """A grid for each sample that was asked for."""
    path, samples = request.path, layout.samples
    if sample is None:
        if len(samples) > 1:
            raise DataError(
                f"{path} ({layout.name}) holds {len(samples)} samples; choose with sample=0, or several with sample=[0, 1]"
            )
        sample = 0
    if not isinstance(sample, int | np.integer | str | Sequence | np.ndarray):
        raise DataError(f"sample must be the number or name of a sample, or a list of some; given: {sample!r}")
    chosen = []
    for each in [sample] if isinstance(sample, int | np.integer | str) else sample:
        number = list(samples).index(each) if isinstance(each, str) and each in samples else each
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < len(samples):
            raise DataError(f"{path} has no sample {each!r}; there are {len(samples)}, from 0 to {len(samples) - 1}")
        chosen.append(int(number))
    if not chosen or len(set(chosen)) < len(chosen):
        raise DataError(f"sample= needs one or more different samples; given: {sample!r}")
    variables = layout.variables
    wanted = request.wanted or {name: name for name in (*layout.coordinates, *layout.fields)}
    for theirs in wanted.values():
        if theirs not in variables:
            raise DataError(
                f"{path} is read as {layout.name}, with {listed(variables)}; there is no {theirs!r}."
                f"{nearest(theirs, variables)} To read datasets by their paths, say with axes= how they are laid out"
            )
    needed = {variables[theirs].dataset for theirs in (*layout.coordinates, *wanted.values())}
    # All at once: one by one, thousands of samples would take long.
    check_safe(path, (name.replace("{sample}", samples[number]) for name in needed for number in chosen))
    return tuple(_sample(replace(request, wanted=wanted), layout, number) for number in chosen)


def _sample(request: ColumnRequest, layout: Layout, number: int) -> GridTable:
    name, wanted = layout.samples[number], request.wanted
    ours_of = {theirs: ours for ours, theirs in wanted.items()}
    located = {
        theirs: request.locate(layout.variables[theirs].dataset.replace("{sample}", name))
        for theirs in dict.fromkeys((*layout.coordinates, *wanted.values()))
    }
    lengths: dict[str, int] = {}
    for theirs in wanted.values():
        if theirs not in layout.coordinates:
            for axis, length in zip(layout.variables[theirs].axes, located[theirs].shape, strict=False):
                if axis in layout.coordinates and lengths.setdefault(axis, length) != length:
                    raise DataError(
                        f"{request.path}: {theirs!r} has {length} values along {axis!r}, and another dataset {lengths[axis]}"
                    )
    order = [axis for axis in layout.coordinates if axis in lengths] or list(layout.coordinates)
    for axis in order:
        held = located[axis].shape[-1]
        # PDEBench's times may be one more than the steps in the data.
        if held not in (lengths.setdefault(axis, held), lengths[axis] + (axis == "t")):
            raise DataError(f"{request.path}: {axis!r} has {held} values for an axis of {lengths[axis]}")
    columns: list[Column] = []
    rest = [each for each in wanted.items() if each[1] not in layout.coordinates]
    for ours, theirs in [*((ours_of.get(axis, axis), axis) for axis in order), *rest]:
        variable = layout.variables[theirs]
        columns += split_columns(request, ours, located[theirs], variable.axes, variable.components, {"sample": number})
    return GridTable(tuple((axis, lengths[axis]) for axis in order), tuple(columns), label=name)
