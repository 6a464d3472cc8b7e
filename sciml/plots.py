"""Pictures of solutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sciml.domains import Box
from sciml.errors import ProblemError

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def plot(solution: Any, other: Any = None) -> Figure:
    """Draw the fields of a solution over its one or two coordinates.

    Over one coordinate: a line for each field, measurements as dots, the reference or another solution dashed. Over two:
    a colour map for each field on the domain, and beside it the difference from the other solution or the reference, where
    there is one. The figure belongs to no window and no global state; save it with ``figure.savefig``.

    Args:
        solution: the solution.
        other: a second one to draw beside it.

    Raises:
        ProblemError: the problem has more than two coordinates.
    """
    if len(solution.coordinates) == 1:
        return _lines(solution, other)
    if len(solution.coordinates) == 2:
        return _maps(solution, other)
    raise ProblemError(
        f"plot draws problems with one or two coordinates; this one has {len(solution.coordinates)}: evaluate it on a "
        "slice, solution(x=..., y=..., t=...), and draw that"
    )


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
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _maps(solution: Any, other: Any) -> Figure:
    horizontal, vertical = solution.coordinates
    time = "t" if solution.problem is None else solution.problem.time
    if vertical == time:
        # Time runs to the right, as it does in every other picture of it.
        horizontal, vertical = vertical, horizontal
    count = 201 if isinstance(solution.domain, Box) else 401
    axis = {name: np.linspace(low, high, count) for name, (low, high) in solution.bounds.items()}
    grids = np.meshgrid(axis[horizontal], axis[vertical], indexing="xy")
    points = {horizontal: grids[0], vertical: grids[1]}
    if isinstance(solution.domain, Box):
        values = living(solution, points)
        second, label = _second(solution, other, points)
    else:
        values, second, label = _within(solution, other, points)
    columns = 1 if second is None else 2
    figure = Figure(figsize=(5.2 * columns, 3.8 * len(solution.fields)), layout="constrained")
    axes = figure.subplots(len(solution.fields), columns, squeeze=False)
    for row, field in enumerate(solution.fields):
        _map(figure, axes[row, 0], points, horizontal, vertical, values[field], field, "viridis")
        if second is not None:
            difference = values[field] - second[field]
            _map(figure, axes[row, 1], points, horizontal, vertical, difference, f"{field} less {label}", "RdBu_r")
    if not isinstance(solution.domain, Box) and time not in solution.coordinates:
        for each in axes.flat:
            each.set_aspect("equal")
    figure.suptitle(solution.title)
    return figure


def _within(solution: Any, other: Any, points: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
    """Values to draw, and those to draw beside them, on a grid that reaches beyond the domain; NaN there."""
    shape = next(iter(points.values())).shape
    inside = solution.domain.contains(np.stack([points[name].ravel() for name in solution.coordinates], axis=1))
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
