"""Pictures of solutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sciml.domains import Box
from sciml.errors import ProblemError, listed

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def plot(solution: Any, other: Any = None) -> Figure:
    """Draw the fields of a solution over its coordinates.

    Over one coordinate: a line for each field, measurements as dots, the reference or another solution dashed. Over two:
    a colour map for each field on the domain, and beside it the difference from the other solution or the reference, where
    there is one. Over more: the same on a slice along the first two coordinates that are not time, through the middle of all
    the others; the title says where. The figure belongs to no window and no global state; save it with ``figure.savefig``.

    Args:
        solution: the solution.
        other: a second one to draw beside it.

    Returns:
        The figure, of matplotlib.

    Raises:
        ProblemError: the slice through the middle does not meet the domain.
    """
    return _lines(solution, other) if len(solution.coordinates) == 1 else _maps(solution, other)


def living(solution: Any, points: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a solution's fields at points, NaN where a field means nothing since its equations hold elsewhere."""
    values = solution(**points)
    return {name: np.where(there, values[name], np.nan) for name, there in solution.lives(points).items()}


def _lines(solution: Any, other: Any) -> Figure:
    (coordinate,) = solution.coordinates
    low, high = solution.bounds[coordinate]
    at = np.linspace(low, high, 500)
    values = living(solution, {coordinate: at})
    second, label = _second(solution, other, {coordinate: at})
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.subplots()
    for position, field in enumerate(solution.fields):
        colour = _COLOURS[position % len(_COLOURS)]
        axes.plot(at, values[field], color=colour, linewidth=1.8, label=field)
        if second is not None:
            axes.plot(at, second[field], "--", color="black", linewidth=1.0, label=f"{field}, {label}")
        if solution.data is not None and field in solution.data.columns:
            axes.scatter(
                solution.data[coordinate],
                solution.data[field],
                s=22,
                color=colour,
                zorder=3,
                label=f"{field}, measured",
            )
    if high - low >= 10:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(coordinate)
    axes.set_title(solution.title)
    if len(axes.get_legend_handles_labels()[0]) > 4:
        figure.legend(frameon=False, loc="outside right upper")
    else:
        axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _maps(solution: Any, other: Any) -> Figure:
    time = "t" if solution.problem is None else solution.problem.time
    across = sorted(solution.coordinates, key=lambda name: name == time)[:2]
    # Time runs to the right, as it does in every other picture of it.
    horizontal, vertical = sorted(across, key=lambda name: name != time)
    count = 201 if isinstance(solution.domain, Box) else 401
    middle = {name: (low + high) / 2 for name, (low, high) in solution.bounds.items() if name not in across}
    axis = {name: np.linspace(low, high, count) for name, (low, high) in solution.bounds.items() if name in across}
    grids = np.meshgrid(axis[horizontal], axis[vertical], indexing="xy")
    points = {horizontal: grids[0], vertical: grids[1]}
    points |= {name: np.full_like(grids[0], value) for name, value in middle.items()}
    beside = points
    if isinstance(solution.domain, Box):
        values = living(solution, points)
        if other is None and not middle:
            # Where errors are taken, so that the picture shows the same ones.
            beside = solution.grid()
        second, label = _second(solution, other, beside)
        first = values if second is None or beside is points else living(solution, beside)
    else:
        values, second, label = _within(solution, other, points)
        first = values
    columns = 1 if second is None else 2
    figure = Figure(figsize=(5.2 * columns, 3.8 * len(solution.fields)), layout="constrained")
    axes = figure.subplots(len(solution.fields), columns, squeeze=False)
    for row, field in enumerate(solution.fields):
        _map(figure, axes[row, 0], points, horizontal, vertical, values[field], field, "viridis")
        if second is not None:
            difference = first[field] - second[field]
            _map(figure, axes[row, 1], beside, horizontal, vertical, difference, f"{field} less {label}", "RdBu_r")
    if not isinstance(solution.domain, Box) and time not in across:
        for each in axes.flat:
            each.set_aspect("equal")
    where = ", ".join(f"{name} = {value:.4g}" for name, value in middle.items())
    figure.suptitle(f"{solution.title}, at {where}" if middle else solution.title)
    return figure


def _within(solution: Any, other: Any, points: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
    """Values to draw, and those to draw beside them, on a grid that reaches beyond the domain; NaN there."""
    shape = next(iter(points.values())).shape
    inside = solution.domain.contains(np.stack([points[name].ravel() for name in solution.coordinates], axis=1))
    if not inside.any():
        raise ProblemError(
            f"the slice through the middle of {listed(list(points)[2:])} does not meet the domain of {solution.name}: "
            "evaluate the solution on a slice that does, and draw that"
        )
    chosen = {name: grid.ravel()[inside] for name, grid in points.items()}

    def spread(values: dict[str, Any]) -> dict[str, Any]:
        found = {name: np.full(inside.shape, np.nan) for name in values}
        for name, each in values.items():
            found[name][inside] = each
        return {name: each.reshape(shape) for name, each in found.items()}

    second, label = _second(solution, other, chosen)
    return spread(living(solution, chosen)), None if second is None else spread(second), label


def _map(
    figure: Figure, axes: Axes, points: Any, horizontal: str, vertical: str, values: Any, title: str, colours: str
) -> None:
    bound = float(np.nanmax(np.abs(values))) if colours == "RdBu_r" else None
    # Gouraud's shading has no way to leave points out.
    shading: Any = "gouraud" if np.isfinite(values).all() else "nearest"
    mesh = axes.pcolormesh(points[horizontal], points[vertical], values, cmap=colours, shading=shading, rasterized=True)
    mesh.set_clim(None if bound is None else -bound, bound)
    figure.colorbar(mesh, ax=axes)
    axes.set(xlabel=horizontal, ylabel=vertical, title=title)


def _second(solution: Any, other: Any, points: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The values to draw beside a solution: another solution's, else the reference's."""
    if other is not None:
        return other(**points), other.engine
    if solution.problem is not None:
        return (solution.truth(points) if solution.problem.has_reference else None), "reference"
    return None, ""
