"""Pictures of solutions.

Several solutions of one problem in one picture, and below them what each of them misses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sciml._text import listed
from sciml.errors import ProblemError
from sciml.geometry import Box, Domain, Interior, draw
from sciml.typing import Array

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


_PANEL_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

_LINE, _BOX, _SHAPE = 500, 161, 321

_PROBES = 256

Values = Mapping[str, Array]


@dataclass(frozen=True)
class Shown:
    """One solution to draw: its heading, its values, what they should be, whether it is itself what they should be, and
    whether some of its values are not finite, so that no difference is drawn.
    """

    title: str
    values: Callable[[Mapping[str, Array]], Values]
    truth: Callable[[Mapping[str, Array]], Values]
    is_truth: bool = False
    blown_up: bool = False


def side_by_side(
    shown: Sequence[Shown], fields: Sequence[str], domain: Domain, time: str | None, against: str
) -> Figure:
    """Draw solutions side by side, and the difference of each from the truth below it.

    Args:
        shown: the solutions, in order; their functions take coordinates by name, arrays of one shape.
        fields: the fields to draw, one below the other.
        domain: where they are solutions.
        time: the coordinate that runs to the right, or None.
        against: what the truth is called.

    Returns:
        A figure that belongs to no window. Over one coordinate: for each field the curves of all solutions, and beside them
        the logarithms of their differences. Over two: colour maps with one scale for all solutions, below them maps of the
        differences, each with a scale of its own. Over more: such maps on a slice, named in the figure's title.
    """
    if len(domain.coordinates) == 1:
        return _curves(shown, fields, domain, against)
    return _panel_maps(shown, fields, domain, time, against)


def _curves(shown: Sequence[Shown], fields: Sequence[str], domain: Domain, against: str) -> Figure:
    (coordinate,) = domain.coordinates
    at = {coordinate: np.linspace(*domain.bounds[coordinate], _LINE)}
    figure = Figure(figsize=(11.0, 3.6 * len(fields)), layout="constrained")
    axes = figure.subplots(len(fields), 2, squeeze=False)
    found = [(each, each.values(at), each.truth(at)) for each in shown]
    for (left, right), field in zip(axes, fields, strict=True):
        for number, (each, values, truth) in enumerate(found):
            colour, style = _PANEL_COLOURS[number % len(_PANEL_COLOURS)], ("-", "--", "-.", ":")[number % 4]
            left.plot(at[coordinate], values[field], style, color=colour, linewidth=1.8, label=each.title)
            gap = np.abs(values[field] - truth[field])
            if not (each.is_truth or each.blown_up) and (gap > 0).any():
                # What is equal to the last bit has no logarithm.
                gap = np.where(gap > 0, gap, np.nan)
                right.semilogy(at[coordinate], gap, style, color=colour, linewidth=1.4, label=each.title)
        if not any(each.is_truth for each in shown):
            left.plot(at[coordinate], found[0][2][field], color="black", linewidth=0.8, label=against)
        left.set(xlabel=coordinate, ylabel=field)
        right.set(xlabel=coordinate, title=f"|{field} less {against}|")
        left.legend(frameon=False, fontsize="small")
        for panel in (left, right):
            panel.spines[["top", "right"]].set_visible(False)
    return figure


def _panel_maps(
    shown: Sequence[Shown], fields: Sequence[str], domain: Domain, time: str | None, against: str
) -> Figure:
    horizontal, vertical, fixed = _plane(domain, time)
    points, inside = _grid(domain, horizontal, vertical, fixed)
    figure = Figure(figsize=(4.2 * len(shown), 6.4 * len(fields)), layout="constrained")
    axes = figure.subplots(2 * len(fields), len(shown), squeeze=False)
    found = [(each, _spread(each.values, points, inside), _spread(each.truth, points, inside)) for each in shown]
    flat = points[horizontal], points[vertical]
    for row, field in enumerate(fields):
        every = np.concatenate([values[field][np.isfinite(values[field])] for _, values, _ in found])
        limits = (float(every.min()), float(every.max())) if len(every) else None
        for column, (each, values, truth) in enumerate(found):
            upper, lower = axes[2 * row, column], axes[2 * row + 1, column]
            _panel_map(figure, upper, flat, values[field], limits, "viridis", f"{field}: {each.title}")
            upper.set(xlabel=horizontal, ylabel=vertical)
            if each.is_truth:
                lower.set_axis_off()
                continue
            gap = values[field] - truth[field] if not each.blown_up else np.full_like(values[field], np.nan)
            size = float(np.nanmax(np.abs(gap))) if np.isfinite(gap).any() else 0.0
            _panel_map(figure, lower, flat, gap, (-size, size), "RdBu_r", f"less {against}")
            lower.set(xlabel=horizontal, ylabel=vertical)
    if not isinstance(domain, Box) and time not in (horizontal, vertical):
        for panel in axes.flat:
            panel.set_aspect("equal")
    if fixed:
        figure.suptitle(", ".join(f"{name} = {value:.4g}" for name, value in fixed.items()))
    return figure


def _panel_map(
    figure: Figure, axes: Axes, flat: tuple[Array, Array], values: Array, limits: Any, colours: str, title: str
) -> None:
    axes.set_title(title, fontsize="medium")
    if not np.isfinite(values).any():
        axes.text(0.5, 0.5, "blow-up:\nno comparison made", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    shading: Any = "gouraud" if np.isfinite(values).all() else "nearest"
    mesh = axes.pcolormesh(*flat, values, cmap=colours, shading=shading, rasterized=True)
    mesh.set_clim(*limits)
    figure.colorbar(mesh, ax=axes)


def _plane(domain: Domain, time: str | None) -> tuple[str, str, dict[str, float]]:
    """The coordinates to draw over, and where the others are: at the end of time, else in the middle."""
    names = list(domain.coordinates)
    if len(names) == 2:
        # Time runs to the right, as it does in every other picture of it.
        return (names[1], names[0], {}) if names[1] == time else (names[0], names[1], {})
    horizontal, vertical = [name for name in names if name != time][:2]
    rest = [name for name in names if name not in (horizontal, vertical)]
    fixed = {name: domain.bounds[name][1] if name == time else sum(domain.bounds[name]) / 2 for name in rest}
    if not _grid(domain, horizontal, vertical, fixed)[1].any():
        # The middle lies in a hole: through the nearest of some points inside.
        inside = draw(Interior(), domain, _PROBES, np.random.default_rng(0)).points[0].numpy()
        columns = [names.index(name) for name in rest]
        nearest = inside[np.abs(inside[:, columns] - list(fixed.values())).sum(axis=1).argmin()]
        fixed = {name: float(nearest[column]) for name, column in zip(rest, columns, strict=True)}
    return horizontal, vertical, fixed


def _grid(domain: Domain, horizontal: str, vertical: str, fixed: Mapping[str, float]) -> tuple[dict[str, Array], Array]:
    """A grid by coordinate over the bounds of the domain, and which of its points lie inside."""
    count = _BOX if isinstance(domain, Box) else _SHAPE
    flat = np.meshgrid(*(np.linspace(*domain.bounds[name], count) for name in (horizontal, vertical)), indexing="xy")
    points = dict(zip((horizontal, vertical), flat, strict=True))
    points |= {name: np.full_like(flat[0], value) for name, value in fixed.items()}
    at = np.stack([points[name].ravel() for name in domain.coordinates], axis=1)
    return points, domain.contains(at).reshape(flat[0].shape)


def _spread(function: Callable[[Mapping[str, Array]], Values], points: Mapping[str, Array], inside: Array) -> Values:
    """A function's values at the points of a grid that lie inside; NaN at the others."""
    found = {}
    for name, values in function({name: grid[inside] for name, grid in points.items()}).items():
        found[name] = np.full(inside.shape, np.nan)
        found[name][inside] = values
    return found
