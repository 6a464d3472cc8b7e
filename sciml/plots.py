"""Plots of solutions: one solution beside its reference, or several side by side with their differences below."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sciml._text import among, listed
from sciml.errors import FileError, ProblemError
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
# From which share of the larger side of zero on a field has both signs; how long a strip is drawn as it is.
_BOTH_SIGNS, _STRIP = 0.1, 5.0
_NOWHERE: Mapping[str, float] = {}
# Unknown constants whose profiles and pairs are drawn.
_MOST_UNKNOWNS = 6
# By what share of a coordinate's range a value may lie beyond it by rounding of single precision.
_ROUNDED = 1e-6

Values = Mapping[str, Array]
Function = Callable[[Mapping[str, Array]], Values]


def new_figure(width: float, height: float) -> Figure:
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


def plot(
    solution: Any,
    other: Any = None,
    *,
    fields: str | Sequence[str] | None = None,
    at: Mapping[str, float | Sequence[float]] | None = None,
    ax: Any = None,
    bands: bool = True,
) -> Figure:
    """Draw the fields of a solution over its coordinates, or over those that ``at`` leaves.

    Over one coordinate: a line for each field, fields of different units or sizes on axes of their own, measurements as dots,
    the reference or another solution dashed, and around what was inferred from measurements its 95 % interval. Over two: a
    colour map for each field on the domain, and beside it the difference from the other solution or the reference, where there
    is one. Over more: the same on a slice along the first two coordinates that are not time, through the middle of all the
    others; the title says where. Fields of both signs have a map that is white at zero, and contour lines, dashed below it, so
    that it can be read without colours. Labels have units where the problem or the measurements say them.

    Args:
        solution: what to draw.
        other: another solution to draw beside it, in the place of the problem's reference.
        fields: those to draw; all by default.
        at: values of coordinates to draw at, ``{"t": 0.5}``; where one coordinate is left, several, ``{"t": [0, 0.5, 1]}``, are
            several lines.
        ax: axes of matplotlib to draw into, as many as there are panels.
        bands: whether intervals are drawn.

    Returns:
        The figure. A new one belongs to no window and no global state; save it with ``figure.savefig``.

    Raises:
        ProblemError: a field or coordinate is unknown, ``at`` names values beyond what was solved for, ``ax`` has not as many
            axes as there are panels, or the slice does not meet the domain.

    Example:
        >>> import sciml
        >>> figure = sciml.fit(sciml.gallery.problem("heat_rod")).plot(at={"t": [0.0, 0.5]})
        >>> [line.get_label() for line in figure.axes[0].lines][::2]
        ['u, t = 0', 'u, t = 0.5']

    Reference: E. R. Tufte, The Visual Display of Quantitative Information, 2nd ed., Graphics Press 2001.
    """
    names = [fields] if isinstance(fields, str) else list(solution.fields if fields is None else fields)
    for name in names:
        if name not in solution.fields:
            raise ProblemError(f"there is no field {name!r} to draw; there are {among(name, solution.fields)}")
    chosen = {} if at is None else dict(at)
    for name in chosen:
        if name not in solution.coordinates:
            raise ProblemError(f"at= names {name!r}, which is no coordinate; there are {among(name, solution.coordinates)}")
    second: Function | None = None
    label = "reference"
    if other is not None:
        second, label = (lambda points: other(**points)), other.engine
    elif solution.problem is not None and solution.problem.has_reference:
        second = solution.truth
    free = [name for name in solution.coordinates if name not in chosen]
    if not free:
        raise ProblemError("at= fixes every coordinate: solution(...) gives the values there")
    several = {name: np.atleast_1d(values) for name, values in chosen.items()}
    for name, values in several.items():
        low, high = solution.bounds[name]
        beside = _ROUNDED * (high - low)
        if beyond := [repr(float(each)) for each in values if not low - beside <= each <= high + beside]:
            raise ProblemError(
                f"at= has {name} = {', '.join(beyond)}, and the solution of {solution.name} holds from {low!r} to {high!r}: "
                "name values between"
            )
        several[name] = values.clip(low, high)
    if len(free) == 1:
        slices = [dict(zip(several, map(float, each), strict=True)) for each in itertools.product(*several.values())]
        return _lines(solution, names, free[0], slices, second, label, ax, bands=bands)
    if any(len(values) != 1 for values in several.values()):
        raise ProblemError(f"a map over {listed(free)} is drawn at one value of each other coordinate; given: at={chosen!r}")
    return _maps(solution, names, {name: float(each[0]) for name, each in several.items()}, second, label, other is None, ax)


def animate(
    solution: Any, field: str | None = None, path: str | Path = "animation.gif", *, frames: int = 50, fps: float = 12.5
) -> Path:
    """Write an animation of a field over time as a GIF, or as MP4 where ffmpeg is installed.

    Args:
        solution: of one coordinate beside time, drawn as a line, or of more, drawn as a map.
        field: the field; the first by default.
        path: where to write, ending in ``.gif`` or ``.mp4``; a file that is there is replaced.
        frames: times, from the first to the last.
        fps: frames a second.

    Raises:
        ProblemError: there is no time, nothing beside it, or no such field.
        FileError: the file cannot be written, or ffmpeg is missing.
    """
    from matplotlib import animation
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    path, field = Path(path), solution.fields[0] if field is None else field
    time = "t" if solution.problem is None else solution.problem.time
    if time not in solution.coordinates or len(solution.coordinates) < 2:
        raise ProblemError(f"an animation needs time and another coordinate; there are {listed(solution.coordinates)}")
    writers: dict[str, Any] = {".gif": animation.PillowWriter, ".mp4": animation.FFMpegWriter}
    if path.suffix not in writers:
        raise FileError(f"an animation ends in .gif or .mp4; given: {path}")
    if not writers[path.suffix].isAvailable():
        raise FileError(f"{path}: ffmpeg is not installed; write a .gif")
    begin, end = solution.bounds[time]
    moments = np.linspace(begin, end, frames)
    limits = _limits(solution, field)
    figure = new_figure(6.0, 4.0)
    FigureCanvasAgg(figure)

    def drawn(moment: float) -> list[Any]:
        figure.clear()
        frame(solution, field, moment, figure, limits)
        return []

    try:
        animation.FuncAnimation(figure, drawn, list(moments), blit=False).save(path, writers[path.suffix](fps=fps))
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error}") from error
    return path


def frame(
    solution: Any, field: str, moment: float, figure: Figure | None = None, limits: tuple[float, float] | None = None
) -> Figure:
    """One field at one time, with the same limits at all times: a line over one other coordinate, else a map."""
    figure = new_figure(6.0, 4.0) if figure is None else figure
    low, high = limits or _limits(solution, field)
    time = "t" if solution.problem is None else solution.problem.time
    axes = figure.subplots()
    if len(solution.coordinates) == 2:
        plot(solution, fields=field, at={time: moment}, ax=axes, bands=False)
        room = 0.05 * (high - low or 1.0)
        axes.set_ylim(low - room, high + room)
        if (legend := axes.get_legend()) is not None:
            legend.remove()
    else:
        across, _, points, inside = slice_through(solution, {time: float(moment)})
        values = on_grid(partial(living, solution), [field], points, inside)[field]
        draw_map(axes, across, points, values, field, (low, high), bar=labelled(solution, field))
        _shape(np.array([axes]), solution.domain, time, across)
    figure.suptitle(f"{solution.title}, {labelled(solution, str(time))} = {moment:.3g}")
    return figure


def _limits(solution: Any, field: str) -> tuple[float, float]:
    """The least and largest value of a field, anywhere and at any time."""
    resolution = {2: 100, 3: 40}.get(len(solution.coordinates), 12)
    values = living(solution, {name: np.ravel(each) for name, each in solution.grid(resolution).items()})[field]
    return float(np.nanmin(values)), float(np.nanmax(values))


def labelled(solution: Any, name: str) -> str:
    """A coordinate or field with its unit: ``t [a]``."""
    unit = solution.units.get(name)
    return f"{name} [{unit}]" if unit else name


def _axes(ax: Any, rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    """New axes, or those given, ``(rows, columns)``."""
    if ax is None:
        figure = new_figure(size[0] * columns, size[1] * rows)
        return figure, figure.subplots(rows, columns, squeeze=False)
    given = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(given) != rows * columns:
        raise ProblemError(f"this picture has {rows * columns} panels; ax= has {len(given)} axes")
    return given[0].figure, given.reshape(rows, columns)


def panels(shown: Mapping[str, tuple[Mapping[str, Array], Array]], bands: Mapping[str, Array]) -> Figure:
    """Functions on grids side by side, each by its title with its nodes and values: lines, or maps of the first plane.

    ``bands`` are half-widths around lines, by title; a title that begins with "error" has a map symmetric about zero.
    """
    figure = new_figure(3.6 * len(shown), 3.2)
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
        draw_map(axes, across, points, values.T, title, difference=title.startswith("error"))
    return figure


def inference(solution: Any) -> Figure:
    """Profile plots of unknown constants, and below them for each pair its joint 95 % region.

    A profile is by how much twice the log-likelihood falls when a constant is held and all else is fitted anew: dots where a
    fit with ``intervals="profile"`` did so, dashed the parabola that the covariance says. Where it crosses the horizontal line
    the 95 % interval ends. Regions are the ellipses of the covariance.

    Reference: D. M. Bates and D. G. Watts, Nonlinear Regression Analysis and Its Applications, Wiley 1988, chapter 6.
    """
    from scipy.interpolate import pchip_interpolate

    table = solution.unknowns[np.isfinite(solution.unknowns["standard_error"])].iloc[:_MOST_UNKNOWNS]
    names, count = [str(name) for name in table.index], len(table)
    quantile = 1.96 if solution.spread is None else float(solution.spread.quantile)
    figure = new_figure(2.6 * max(count, 2), 2.3 * max(count, 1))
    panels = figure.subplots(count, count, squeeze=False)
    turns = np.linspace(0.0, 2.0 * np.pi, 200)
    for row, column in itertools.product(range(count), repeat=2):
        axes, across, up = panels[row, column], names[column], names[row]
        middle, error = (float(table.loc[across, name]) for name in ("estimate", "standard_error"))
        if row < column or (row > column and not len(solution.correlation)):
            axes.set_axis_off()
        elif row == column:
            line = np.linspace(-1.5, 1.5, 101) * quantile
            axes.plot(middle + error * line, line**2, "--", color="black", linewidth=0.8)
            if len(solution.profiles):
                known = solution.profiles[solution.profiles["unknown"] == across]
                axes.plot(known["value"], known["fall"], "o", color=_COLOURS[0], markersize=3)
                # The root of the fall, with the side's sign, is nearly a straight line.
                root = np.sqrt(np.maximum(known["fall"], 0.0)) * np.sign(known["value"] - middle)
                between = np.linspace(known["value"].min(), known["value"].max(), 101)
                axes.plot(between, pchip_interpolate(known["value"], root, between) ** 2, color=_COLOURS[0])
            axes.axhline(quantile**2, color="black", linewidth=0.5)
            axes.set(xlabel=across, ylabel="fall of 2 log L", ylim=(0.0, 2.0 * quantile**2))
        else:
            # Of two numbers the 95 % quantile of chi squared is 5.99, of one 3.84: both grow alike where noise was found.
            radius, share = np.sqrt(5.991 / 3.841) * quantile, float(solution.correlation.loc[up, across])
            tilted = share * np.cos(turns) + np.sqrt(max(1.0 - share**2, 0.0)) * np.sin(turns)
            other = float(table.loc[up, "estimate"]), float(table.loc[up, "standard_error"])
            axes.plot(middle + radius * error * np.cos(turns), other[0] + radius * other[1] * tilted, color=_COLOURS[0])
            axes.plot([middle], [other[0]], "+", color="black")
            axes.set(xlabel=across, ylabel=up, title=f"correlation {share:.2f}")
        axes.tick_params(labelsize="small")
        axes.spines[["top", "right"]].set_visible(False)
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


def _lines(
    solution: Any,
    fields: Sequence[str],
    coordinate: str,
    slices: Sequence[Mapping[str, float]],
    second: Function | None,
    label: str,
    ax: Any,
    *,
    bands: bool,
) -> Figure:
    """Curves along one coordinate, at each of some values of the others."""
    low, high = solution.bounds[coordinate]
    line = np.linspace(low, high, _LINE)
    drawn = [{coordinate: line, **{name: np.full_like(line, value) for name, value in each.items()}} for each in slices]
    found = []
    for points in drawn:
        inside = solution.domain.contains(np.stack([points[name] for name in solution.coordinates], axis=1))
        found.append(on_grid(partial(living, solution), fields, points, inside))
    beside = [on_grid(second, fields, points, np.ones(_LINE, dtype=bool)) if second is not None else {} for points in drawn]
    sizes = {name: float(np.nanmax([np.abs(each[name]) for each in found], initial=0.0)) for name in fields}
    groups = _together(solution, sizes)
    figure, every = _axes(ax, len(groups), 1, (7.0, 4.2 if len(groups) == 1 else 3.0))
    position = 0
    for axes, group in zip(every[:, 0], groups, strict=True):
        for field in group:
            for points, at, values, known in zip(drawn, slices, found, beside, strict=True):
                colour = _COLOURS[position % len(_COLOURS)]
                position += 1
                name = f"{field}, {_where(at)}" if at else field
                axes.plot(line, values[field], color=colour, linewidth=1.8, label=name)
                if bands and solution.spread is not None and solution.problem is not None:
                    low, high = solution.interval(**points)[field]
                    axes.fill_between(line, low, high, color=colour, alpha=0.2, linewidth=0)
                if known:
                    axes.plot(line, known[field], "--", color="black", linewidth=1.0, label=f"{name}, {label}")
            if not slices[0] and solution.data is not None and field in solution.data.columns:
                measured = solution.data[coordinate], solution.data[field]
                axes.scatter(*measured, s=22, color=colour, zorder=3, label=f"{field}, measured")
        if line[-1] - line[0] >= 10:
            from matplotlib.ticker import MaxNLocator

            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        unit = solution.units.get(group[0])
        axes.set(xlabel=labelled(solution, coordinate), ylabel=", ".join(group) + (f" [{unit}]" if unit else ""))
        axes.spines[["top", "right"]].set_visible(False)
        if ax is None and len(groups) == 1 and len(axes.get_legend_handles_labels()[0]) > 4:
            figure.legend(frameon=False, loc="outside right upper")
        else:
            axes.legend(frameon=False)
    if ax is None:
        every[0, 0].set_title(solution.title)
    return figure


def _together(solution: Any, sizes: Mapping[str, float]) -> list[list[str]]:
    """Fields that share axes: those of one unit, and of unknown units those whose sizes differ by less than a factor of ten."""
    groups: list[list[str]] = []
    for name, size in sizes.items():
        unit = solution.units.get(name)
        for group in groups:
            like = solution.units.get(group[0])
            first = sizes[group[0]]
            alike = unit == like if unit or like else size <= 10 * first and first <= 10 * size
            if alike:
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _compared_lines(shown: Sequence[Shown], fields: Sequence[str], domain: Domain, against: str) -> Figure:
    (coordinate,) = domain.coordinates
    at = {coordinate: np.linspace(*domain.bounds[coordinate], _LINE)}
    figure = new_figure(11.0, 3.6 * len(fields))
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


def _maps(
    solution: Any,
    fields: Sequence[str],
    at: Mapping[str, float],
    second: Function | None,
    label: str,
    at_errors: bool,
    ax: Any,
) -> Figure:
    """``at_errors``: draw the difference at the points where errors are taken, so that the picture shows the same ones."""
    domain, time = solution.domain, "t" if solution.problem is None else solution.problem.time
    across, fixed, points, inside = slice_through(solution, at)
    first = partial(living, solution)
    values = on_grid(first, fields, points, inside)
    figure, axes = _axes(ax, len(fields), 1 if second is None else 2, (5.2, 3.8))
    for row, field in enumerate(fields):
        draw_map(axes[row, 0], across, points, values[field], field, bar=labelled(solution, field))
    if second is not None:
        where, within = points, inside
        if at_errors and not fixed and isinstance(domain, Box):
            where = solution.grid()
            within = np.ones(where[across[0]].shape, dtype=bool)
            values = on_grid(first, fields, where, within)
        beside = on_grid(second, fields, where, within)
        for row, field in enumerate(fields):
            gap = values[field] - beside[field]
            draw_map(axes[row, 1], across, where, gap, f"{field} less {label}", difference=True, bar=labelled(solution, field))
    for panel in axes.flat:
        panel.set(xlabel=labelled(solution, across[0]), ylabel=labelled(solution, across[1]))
    _shape(axes, domain, time, across)
    if ax is None:
        figure.suptitle(f"{solution.title}, at {_where(fixed)}" if fixed else solution.title)
    return figure


def slice_through(
    solution: Any, at: Mapping[str, float], count: int | None = None
) -> tuple[tuple[str, str], dict[str, float], dict[str, Array], Array]:
    """The two coordinates drawn over, where the others stand, a grid, and which of its points lie inside."""
    domain, time = solution.domain, "t" if solution.problem is None else solution.problem.time
    across, rest = _plane(domain, time, at)
    fixed = {name: at.get(name, sum(domain.bounds[name]) / 2) for name in rest}
    points, inside = _grid(domain, across, fixed, _ALONE if count is None else (count, count))
    if not inside.any():
        where = f"at {_where(at)}" if at else f"through the middle of {listed(rest)}"
        raise ProblemError(
            f"the slice {where} does not meet the domain of {solution.name}: say another by at={{...}}, or evaluate the "
            "solution and draw that"
        )
    return across, fixed, points, inside


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
    figure = new_figure(4.2 * len(shown), 6.4 * len(fields))
    axes = figure.subplots(2 * len(fields), len(shown), squeeze=False)
    found = [[on_grid(function, fields, points, inside) for function in (each.values, each.truth)] for each in shown]
    for row, field in enumerate(fields):
        every = np.concatenate([values[field][np.isfinite(values[field])] for values, _ in found])
        limits = (float(every.min()), float(every.max())) if len(every) else None
        for column, (each, (values, truth)) in enumerate(zip(shown, found, strict=True)):
            upper, lower = axes[2 * row, column], axes[2 * row + 1, column]
            draw_map(upper, across, points, values[field], f"{field}: {each.title}", limits)
            if each.is_truth:
                lower.set_axis_off()
                continue
            gap = np.full_like(values[field], np.nan) if each.blown_up else values[field] - truth[field]
            draw_map(lower, across, points, gap, f"less {against}", difference=True)
    _shape(axes, domain, time, across)
    if fixed:
        figure.suptitle(_where(fixed))
    return figure


def draw_map(
    axes: Axes,
    across: tuple[str, str],
    points: Mapping[str, Array],
    values: Array,
    title: str,
    limits: tuple[float, float] | None = None,
    *,
    difference: bool = False,
    bar: str = "",
    signs: bool = True,
) -> None:
    """A colour map of values, white at zero where they have both signs; words in place of values of which none is finite."""
    axes.set_title(title, fontsize="medium")
    axes.set(xlabel=across[0], ylabel=across[1])
    if not np.isfinite(values).any():
        axes.text(0.5, 0.5, "blow-up:\nno comparison made", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    low, high = limits or (float(np.nanmin(values)), float(np.nanmax(values)))
    signed = difference or (signs and low < 0 < high and min(-low, high) > _BOTH_SIGNS * max(-low, high))
    if signed:
        size = max(-low, high)
        limits = (-size, size)
    # Gouraud's shading has no way to leave points out.
    shading: Any = "gouraud" if np.isfinite(values).all() else "nearest"
    colours, flat = "RdBu_r" if signed else "viridis", [points[name] for name in across]
    mesh = axes.pcolormesh(*flat, values, cmap=colours, shading=shading, rasterized=True)
    mesh.set_clim(*(limits or (None, None)))
    if signed and not difference and high > low:
        # Without colours the two halves of the map look alike: lines say the sign, dashed below zero.
        axes.contour(*flat, values, levels=7, colors="black", linewidths=0.4, negative_linestyles="dashed")
    figure = axes.figure
    assert figure is not None
    figure.colorbar(mesh, ax=axes, label=bar)


def _plane(domain: Domain, time: str | None, at: Mapping[str, float] = _NOWHERE) -> tuple[tuple[str, str], list[str]]:
    """The coordinates to draw over, to the right and upwards, and the others, among them those with a value given."""
    first, second = sorted((name for name in domain.coordinates if name not in at), key=lambda name: name == time)[:2]
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


def on_grid(function: Function, fields: Sequence[str], points: Mapping[str, Array], inside: Array) -> Values:
    """A function's values at the points of a grid that lie inside; NaN at the others."""
    values = function({name: grid[inside] for name, grid in points.items()})
    found = {name: np.full(inside.shape, np.nan) for name in fields}
    for name, each in found.items():
        each[inside] = values[name]
    return found


def _shape(axes: Any, domain: Domain, time: str | None, across: tuple[str, str]) -> None:
    """Maps over space have one scale along both coordinates, unless the domain is a long strip."""
    low, high = sorted(end - begin for begin, end in (domain.bounds[name] for name in across))
    if time not in across and (not isinstance(domain, Box) or high < _STRIP * low):
        for panel in axes.flat:
            panel.set_aspect("equal")


def _where(fixed: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:.4g}" for name, value in fixed.items())
