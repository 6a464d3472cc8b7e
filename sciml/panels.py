"""Several solutions of one problem in one picture, and below them what each of them misses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sciml.domains import Box, Domain, Interior
from sciml.sampling import draw
from sciml.typing import Array

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
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
    return _maps(shown, fields, domain, time, against)


def _curves(shown: Sequence[Shown], fields: Sequence[str], domain: Domain, against: str) -> Figure:
    (coordinate,) = domain.coordinates
    at = {coordinate: np.linspace(*domain.bounds[coordinate], _LINE)}
    figure = Figure(figsize=(11.0, 3.6 * len(fields)), layout="constrained")
    axes = figure.subplots(len(fields), 2, squeeze=False)
    found = [(each, each.values(at), each.truth(at)) for each in shown]
    for (left, right), field in zip(axes, fields, strict=True):
        for number, (each, values, truth) in enumerate(found):
            colour, style = _COLOURS[number % len(_COLOURS)], ("-", "--", "-.", ":")[number % 4]
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


def _maps(shown: Sequence[Shown], fields: Sequence[str], domain: Domain, time: str | None, against: str) -> Figure:
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
            _map(figure, upper, flat, values[field], limits, "viridis", f"{field}: {each.title}")
            upper.set(xlabel=horizontal, ylabel=vertical)
            if each.is_truth:
                lower.set_axis_off()
                continue
            gap = values[field] - truth[field] if not each.blown_up else np.full_like(values[field], np.nan)
            size = float(np.nanmax(np.abs(gap))) if np.isfinite(gap).any() else 0.0
            _map(figure, lower, flat, gap, (-size, size), "RdBu_r", f"less {against}")
            lower.set(xlabel=horizontal, ylabel=vertical)
    if not isinstance(domain, Box) and time not in (horizontal, vertical):
        for panel in axes.flat:
            panel.set_aspect("equal")
    if fixed:
        figure.suptitle(", ".join(f"{name} = {value:.4g}" for name, value in fixed.items()))
    return figure


def _map(
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
