"""The grids of a layout's samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sciml.datasets.damage import check_safe
from sciml.datasets.grid import Column, Grid
from sciml.datasets.layouts import Layout
from sciml.datasets.request import Request, split_columns
from sciml.errors import DataError, listed, nearest


def sample_grids(request: Request, layout: Layout, sample: Any) -> tuple[Grid, ...]:
    """A grid for each sample that was asked for.

    Args:
        request: what was asked for.
        layout: of the file.
        sample: the number or name of a sample, or several; None if there is only one.

    Raises:
        DataError: no such sample or variable, several samples and no choice, axes that do not fit.
    """
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
    ours_of = {theirs: ours for ours, theirs in wanted.items()}
    needed = {variables[theirs].dataset for theirs in (*layout.coordinates, *wanted.values())}
    # All at once: one by one, thousands of samples would take long.
    check_safe(path, (name.replace("{sample}", samples[number]) for name in needed for number in chosen))
    return tuple(_sample(request, layout, wanted, ours_of, number) for number in chosen)


def _sample(request: Request, layout: Layout, wanted: dict[str, str], ours_of: dict[str, str], number: int) -> Grid:
    name = layout.samples[number]
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
    columns: list[Column] = []
    order = [axis for axis in layout.coordinates if axis in lengths] or list(layout.coordinates)
    for axis in order:
        held = located[axis].shape[-1]
        # PDEBench's times may be one more than the steps in the data.
        if held not in (lengths.setdefault(axis, held), lengths[axis] + (axis == "t")):
            raise DataError(f"{request.path}: {axis!r} has {held} values for an axis of {lengths[axis]}")
        columns += split_columns(
            request, ours_of.get(axis, axis), axis, located[axis], layout.variables[axis].axes, (), {"sample": number}
        )
    for ours, theirs in wanted.items():
        if theirs not in layout.coordinates:
            variable = layout.variables[theirs]
            columns += split_columns(
                request, ours, theirs, located[theirs], variable.axes, variable.components, {"sample": number}
            )
    return Grid(tuple((axis, lengths[axis]) for axis in order), tuple(columns), label=name)
