"""Plots of solutions: one solution beside its reference, or several side by side with their differences below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sciml._text import listed
from sciml.errors import ProblemError
from sciml.geometry import Box, Domain, Interior, draw
from sciml.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_STYLES = ("-", "--", "-.", ":")
# Points along a coordinate: of curves; of maps on boxes and on other domains, alone and side by side.
_LINE, _ALONE, _BESIDE = 500, (201, 401), (161, 321)
_PROBES = 256

Values = Mapping[str, Array]
Function = Callable[[Mapping[str, Array]], Values]


def _figure(width: float, height: float) -> Figure:
    """An empty figure, its size in inches; who draws nothing need not wait for matplotlib."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@dataclass(frozen=True)
class Shown:
    """One solution to draw, its fields and what they should be; of one with values that are not finite no difference."""

    title: str
    values: Function
    truth: Function
    is_truth: bool = False
    blown_up: bool = False


def plot(solution: Any, other: Any = None) -> Figure:
    """Draw the fields of a solution over its coordinates.

    Over one coordinate: a line for each field, measurements as dots, the reference or another solution dashed. Over two:
    a colour map for each field on the domain, and beside it the difference from the other solution or the reference, where
    there is one. Over more: the same on a slice along the first two coordinates that are not time, through the middle of all
    the others; the title says where. The figure belongs to no window and no global state; save it with ``figure.savefig``.

    Raises:
        ProblemError: the slice through the middle does not meet the domain.
    """
    second: Function | None = None
    label = "reference"
    if other is not None:
        second, label = (lambda points: other(**points)), other.engine
    elif solution.problem is not None and solution.problem.has_reference:
        second = solution.truth
    if len(solution.coordinates) == 1:
        return _lines(solution, second, label)
    return _maps(solution, second, label, other is None)


def panels(shown: Mapping[str, tuple[Mapping[str, Array], Array]], bands: Mapping[str, Array]) -> Figure:
    """Functions on grids side by side, each by its title with its nodes and values: lines, or maps of the first plane.

    ``bands`` are half-widths around lines, by title; a title that begins with "error" has a map symmetric about zero.
    """
    figure = _figure(3.6 * len(shown), 3.2)
    for axes, (title, (nodes, values)) in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown.items(), strict=True):
        long = [name for name, each in nodes.items() if len(each) > 1]
        values = np.reshape(values, [len(nodes[name]) for name in long])
        if len(long) == 1:
            x = nodes[long[0]]
            axes.plot(x, values, color=_COLOURS[0])
            if title in bands:
                half = np.reshape(bands[title], values.shape)
                axes.fill_between(x, values - half, values + half, color=_COLOURS[0], alpha=0.25, linewidth=0)
            axes.set_title(title, fontsize="medium")
            axes.set(xlabel=long[0])
            continue
        while values.ndim > 2:
            values = values[..., values.shape[-1] // 2]
        across = long[0], long[1]
        points = dict(zip(across, np.meshgrid(*(nodes[name] for name in across), indexing="xy"), strict=True))
        _map(axes, across, points, values.T, title, difference=title.startswith("error"))
    return figure


def side_by_side(shown: Sequence[Shown], fields: Sequence[str], domain: Domain, time: str | None, against: str) -> Figure:
    """Draw solutions side by side, and the difference of each from the truth, called ``against``, below it.

    Over one coordinate: for each field the curves of all solutions, and beside them the logarithms of their differences. Over
    two: colour maps with one scale for all solutions, below them maps of the differences, each with a scale of its own. Over
    more: such maps on a slice, named in the figure's title.
    """
    if len(domain.coordinates) == 1:
        return _compared_lines(shown, fields, domain, against)
    return _compared_maps(shown, fields, domain, time, against)


def living(solution: Any, points: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a solution's fields at points, NaN where a field means nothing since its equations hold elsewhere."""
    values = solution(**points)
    return {name: np.where(there, values[name], np.nan) for name, there in solution.lives(points).items()}


def _lines(solution: Any, second: Function | None, label: str) -> Figure:
    (coordinate,) = solution.coordinates
    low, high = solution.bounds[coordinate]
    at = {coordinate: np.linspace(low, high, _LINE)}
    values, beside = living(solution, at), second(at) if second is not None else {}
    figure = _figure(7.0, 4.2)
    axes = figure.subplots()
    for position, field in enumerate(solution.fields):
        colour = _COLOURS[position % len(_COLOURS)]
        axes.plot(at[coordinate], values[field], color=colour, linewidth=1.8, label=field)
        if field in beside:
            axes.plot(at[coordinate], beside[field], "--", color="black", linewidth=1.0, label=f"{field}, {label}")
        if solution.data is not None and field in solution.data.columns:
            measured = solution.data[coordinate], solution.data[field]
            axes.scatter(*measured, s=22, color=colour, zorder=3, label=f"{field}, measured")
    if high - low >= 10:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=coordinate, title=solution.title)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.get_legend_handles_labels()[0]) > 4:
        figure.legend(frameon=False, loc="outside right upper")
    else:
        axes.legend(frameon=False)
    return figure


def _compared_lines(shown: Sequence[Shown], fields: Sequence[str], domain: Domain, against: str) -> Figure:
    (coordinate,) = domain.coordinates
    at = {coordinate: np.linspace(*domain.bounds[coordinate], _LINE)}
    figure = _figure(11.0, 3.6 * len(fields))
    axes = figure.subplots(len(fields), 2, squeeze=False)
    found = [(each, each.values(at), each.truth(at)) for each in shown]
    for (left, right), field in zip(axes, fields, strict=True):
        for number, (each, values, truth) in enumerate(found):
            colour, style = _COLOURS[number % len(_COLOURS)], _STYLES[number % len(_STYLES)]
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


def _maps(solution: Any, second: Function | None, label: str, at_errors: bool) -> Figure:
    """``at_errors``: draw the difference at the points where errors are taken, so that the picture shows the same ones."""
    domain, fields, time = solution.domain, solution.fields, "t" if solution.problem is None else solution.problem.time
    across, rest = _plane(domain, time)
    fixed = {name: sum(domain.bounds[name]) / 2 for name in rest}
    points, inside = _grid(domain, across, fixed, _ALONE)
    if not inside.any():
        raise ProblemError(
            f"the slice through the middle of {listed(rest)} does not meet the domain of {solution.name}: evaluate the "
            "solution on a slice that does, and draw that"
        )
    first = partial(living, solution)
    values = _spread(first, fields, points, inside)
    columns = 1 if second is None else 2
    figure = _figure(5.2 * columns, 3.8 * len(fields))
    axes = figure.subplots(len(fields), columns, squeeze=False)
    for row, field in enumerate(fields):
        _map(axes[row, 0], across, points, values[field], field)
    if second is not None:
        at, within = points, inside
        if at_errors and not fixed and isinstance(domain, Box):
            at = solution.grid()
            within = np.ones(at[across[0]].shape, dtype=bool)
            values = _spread(first, fields, at, within)
        beside = _spread(second, fields, at, within)
        for row, field in enumerate(fields):
            _map(axes[row, 1], across, at, values[field] - beside[field], f"{field} less {label}", difference=True)
    _shape(axes, domain, time, across)
    figure.suptitle(f"{solution.title}, at {_where(fixed)}" if fixed else solution.title)
    return figure


def _compared_maps(shown: Sequence[Shown], fields: Sequence[str], domain: Domain, time: str | None, against: str) -> Figure:
    across, rest = _plane(domain, time)
    fixed = {name: domain.bounds[name][1] if name == time else sum(domain.bounds[name]) / 2 for name in rest}
    points, inside = _grid(domain, across, fixed, _BESIDE)
    if not inside.any():
        # The middle lies in a hole: through the nearest of some points inside.
        some = draw(Interior(), domain, _PROBES, np.random.default_rng(0)).points[0].numpy()
        some = some[:, [domain.coordinates.index(name) for name in rest]]
        nearest = some[np.abs(some - list(fixed.values())).sum(axis=1).argmin()]
        fixed = dict(zip(rest, nearest.tolist(), strict=True))
        points, inside = _grid(domain, across, fixed, _BESIDE)
    figure = _figure(4.2 * len(shown), 6.4 * len(fields))
    axes = figure.subplots(2 * len(fields), len(shown), squeeze=False)
    found = [[_spread(function, fields, points, inside) for function in (each.values, each.truth)] for each in shown]
    for row, field in enumerate(fields):
        every = np.concatenate([values[field][np.isfinite(values[field])] for values, _ in found])
        limits = (float(every.min()), float(every.max())) if len(every) else None
        for column, (each, (values, truth)) in enumerate(zip(shown, found, strict=True)):
            upper, lower = axes[2 * row, column], axes[2 * row + 1, column]
            _map(upper, across, points, values[field], f"{field}: {each.title}", limits)
            if each.is_truth:
                lower.set_axis_off()
                continue
            gap = np.full_like(values[field], np.nan) if each.blown_up else values[field] - truth[field]
            _map(lower, across, points, gap, f"less {against}", difference=True)
    _shape(axes, domain, time, across)
    if fixed:
        figure.suptitle(_where(fixed))
    return figure


def _map(
    axes: Axes,
    across: tuple[str, str],
    points: Mapping[str, Array],
    values: Array,
    title: str,
    limits: tuple[float, float] | None = None,
    *,
    difference: bool = False,
) -> None:
    """A colour map of values, differences symmetric about zero; words in place of values of which none is finite."""
    axes.set_title(title, fontsize="medium")
    axes.set(xlabel=across[0], ylabel=across[1])
    if not np.isfinite(values).any():
        axes.text(0.5, 0.5, "blow-up:\nno comparison made", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    if difference:
        size = float(np.nanmax(np.abs(values)))
        limits = (-size, size)
    # Gouraud's shading has no way to leave points out.
    shading: Any = "gouraud" if np.isfinite(values).all() else "nearest"
    colours, flat = "RdBu_r" if difference else "viridis", [points[name] for name in across]
    mesh = axes.pcolormesh(*flat, values, cmap=colours, shading=shading, rasterized=True)
    mesh.set_clim(*(limits or (None, None)))
    figure = axes.figure
    assert figure is not None
    figure.colorbar(mesh, ax=axes)


def _plane(domain: Domain, time: str | None) -> tuple[tuple[str, str], list[str]]:
    """The coordinates to draw over, to the right and upwards, and the others."""
    first, second = sorted(domain.coordinates, key=lambda name: name == time)[:2]
    rest = [name for name in domain.coordinates if name not in (first, second)]
    # Time runs to the right, as it does in every other picture of it.
    return ((second, first) if second == time else (first, second)), rest


def _grid(
    domain: Domain, across: tuple[str, str], fixed: Mapping[str, float], counts: tuple[int, int]
) -> tuple[dict[str, Array], Array]:
    """A grid by coordinate over the bounds of the domain, and which of its points lie inside."""
    count = counts[0] if isinstance(domain, Box) else counts[1]
    flat = np.meshgrid(*(np.linspace(*domain.bounds[name], count) for name in across), indexing="xy")
    points = dict(zip(across, flat, strict=True)) | {name: np.full_like(flat[0], at) for name, at in fixed.items()}
    at = np.stack([points[name].ravel() for name in domain.coordinates], axis=1)
    return points, domain.contains(at).reshape(flat[0].shape)


def _spread(function: Function, fields: Sequence[str], points: Mapping[str, Array], inside: Array) -> Values:
    """A function's values at the points of a grid that lie inside; NaN at the others."""
    values = function({name: grid[inside] for name, grid in points.items()})
    found = {name: np.full(inside.shape, np.nan) for name in fields}
    for name, each in found.items():
        each[inside] = values[name]
    return found


def _shape(axes: Any, domain: Domain, time: str | None, across: tuple[str, str]) -> None:
    """Maps of domains that are no boxes have one scale along both coordinates."""
    if not isinstance(domain, Box) and time not in across:
        for panel in axes.flat:
            panel.set_aspect("equal")


def _where(fixed: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:.4g}" for name, value in fixed.items())
