"""Report of a solution: one HTML file with the mathematics, the answer, what vouches for it, and how to get it again."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from sciml import plots
from sciml.data import archive
from sciml.deploy.mathml import equations
from sciml.errors import ProblemError
from sciml.problem.conditions import Evaluation
from sciml.runs.fingerprint import versions
from sciml.runs.report import png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sciml.solution import Solution

_FRAMES, _FIELDS, _DPI = 13, 4, 72
_WIDE = 121


def report(solution: Solution, path: str | Path, *, baseline: Solution | None = None, overwrite: bool = False) -> Path:
    """Write a report of a solution: one HTML file that needs no network and, but for sliders, no JavaScript.

    It holds the equations and conditions as mathematics, what was chosen and tried, estimated errors and the certificate,
    unknown constants with their intervals, the fields with sliders over time, maps of the residuals, the history of the fit,
    the measurements against the model with the diagnostics of their residuals (quantiles against those of a normal
    distribution, autocorrelation), another solution beside it, where the data came from, versions, and how to get it again. It
    prints on A4.

    Args:
        solution: what ``fit`` or ``baseline`` returned; loaded with its problem, if mathematics and residuals are wanted.
        path: where to write.
        baseline: another solution of the same problem to set beside it, such as that of ``sciml.baseline``.
        overwrite: whether a file that is there may be replaced.

    Returns:
        The path.

    Raises:
        FileError: the path exists, or cannot be written.

    Example:
        >>> import pathlib, tempfile, sciml
        >>> solution = sciml.fit(sciml.gallery.problem("harmonic_oscillator"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     text = solution.report(pathlib.Path(folder) / "report.html").read_text()
        >>> "<math" in text, "success" in text
        (True, True)
    """
    path = Path(path)
    archive.check_free(path, overwrite)
    parts = [_verdict(solution), *_mathematics(solution), *_answer(solution), *_fields(solution)]
    parts += [
        *_certificate(solution),
        *_measured(solution),
        *_beside(solution, baseline),
        *_history(solution),
        _origin(solution),
    ]
    _write(path, solution.name, parts)
    return path


def report_of_run(directory: str | Path, path: str | Path, problem: Any = None, *, overwrite: bool = False) -> Path:
    """The report of a run's directory; of one that has not ended a page that says so, and how far it is.

    Raises:
        FileError: the directory holds no run, or the path exists.
    """
    from sciml.runs import load, table
    from sciml.runs.directory import SOLUTION
    from sciml.runs.history import read_lines

    directory, path = Path(directory), Path(path)
    row = table(directory).iloc[0]
    state = str(row["state"])
    if state not in ("running", "unfinished"):
        return report(load(directory / SOLUTION, problem), path, overwrite=overwrite)
    archive.check_free(path, overwrite)
    still = "is still going" if state == "running" else "has not ended: sciml resume continues it"
    said = f"{row['steps']:.0f} steps" if np.isfinite(row["steps"]) else "no step yet"
    parts = [
        f"<h1>{html.escape(str(row['problem']))}</h1>",
        f'<p class="verdict no">This run {still}. So far {said}, {row["seconds"]:.0f} s. There is no solution to show yet.</p>',
    ]
    lines = pd.DataFrame(read_lines(directory / "history.jsonl") if (directory / "history.jsonl").exists() else [])
    if {"loss", "seconds"} <= set(lines.columns):
        parts += ["<h2>History so far</h2>", _image(_curves(lines), "loss over seconds")]
    _write(path, str(row["problem"]), parts)
    return path


def _write(path: Path, title: str, parts: list[str]) -> None:
    template = Template((resources.files("sciml.deploy") / "report.html").read_text())
    page = template.substitute(title=html.escape(f"{title}: report"), body="\n".join(parts))
    archive.write_atomic(path, page.encode())


def _verdict(solution: Solution) -> str:
    outcome = "success" if solution.success else "not a success"
    said = [f"<strong>{outcome}</strong>, {solution.status} in {solution.seconds:.1f} s", html.escape(solution.message)]
    if solution.estimate:
        said.append(html.escape(solution.estimate))
    kind = "" if solution.success else " no"
    return f'<h1>{html.escape(solution.name)}</h1>\n<p class="verdict{kind}">{". ".join(said)}.</p>'


def _mathematics(solution: Solution) -> Iterator[str]:
    if solution.problem is None:
        yield "<p>Loaded without its problem: equations and residuals are not shown.</p>"
        return
    yield "<h2>The problem</h2>"
    doc = (type(solution.problem).__doc__ or "").strip().split("\n\n")[0]
    if doc and type(solution.problem).__doc__ is not type(solution.problem).__mro__[1].__doc__:
        yield f"<p>{html.escape(doc)}</p>"
    for name, shown in equations(solution.problem):
        yield f"<h3>{name}</h3>\n{shown}"
    units = solution.units
    rows = {name: {"from": low, "to": high, "unit": units.get(name, "")} for name, (low, high) in solution.bounds.items()}
    yield _table(pd.DataFrame(rows).T, "coordinates")
    fixed = {name: value for name, value in solution.problem.constants.items() if isinstance(value, int | float)}
    if fixed:
        yield _table(pd.DataFrame({"value": fixed}), "constants")


def _answer(solution: Solution) -> Iterator[str]:
    yield "<h2>The answer</h2>"
    if len(solution.unknowns):
        yield _table(solution.unknowns, "unknown constants with standard errors and 95 % intervals")
        yield _image(_intervals(solution), "estimates with their intervals, in units of the estimate")
    if len(solution.correlation) > 1:
        yield _table(solution.correlation, "correlation of the unknown constants")
    if np.isfinite(solution.unknowns["standard_error"]).any():
        how = "" if len(solution.profiles) else '; fit(..., intervals="profile") refits with each of them held'
        yield _image(plots.inference(solution), f"profiles of the likelihood, and joint 95 % regions{how}")
    items = "".join(f"<li>{html.escape(choice)}</li>" for choice in solution.choices)
    yield f"<h3>What was chosen, and why</h3>\n<ul>{items}</ul>" if items else ""


def _fields(solution: Solution) -> Iterator[str]:
    """Pictures of the fields; where there is time beside space, one for each of some times, with a slider."""
    yield "<h2>Fields</h2>"
    time = "t" if solution.problem is None else solution.problem.time
    try:
        if time not in solution.coordinates or len(solution.coordinates) == 1:
            yield _image(solution.plot(), f"fields of {solution.name}")
            return
        moments = np.linspace(solution.bounds[time][0], solution.bounds[time][1], _FRAMES)
        if len(solution.coordinates) == 2:
            yield _image(solution.plot(), f"fields of {solution.name} over space and time")
        for field in solution.fields[:_FIELDS]:
            frames = []
            for number, moment in enumerate(moments):
                at = f"{plots.labelled(solution, str(time))} = {moment:.4g}"
                figure = plots.frame(solution, field, float(moment))
                shown = _encoded(figure)
                on = ' class="on"' if number == 0 else ""
                frames.append(f'<img{on} data-at="{html.escape(at)}" alt="{html.escape(f"{field} at {at}")}" src="{shown}">')
            name = html.escape(field)
            yield (
                f'<figure class="frames">{"".join(frames)}<div class="slider"><input type="range" min="0" max="{_FRAMES - 1}" '
                f'value="0" aria-label="time of {name}"> <output></output></div><figcaption>{name}</figcaption></figure>'
            )
    except ProblemError as error:
        yield f"<p>No picture: {html.escape(str(error))}</p>"


def _certificate(solution: Solution) -> Iterator[str]:
    yield "<h2>What vouches for it</h2>"
    frame = solution.residuals[["rms", "max", "relative", "points"]]
    yield _table(frame, f"residuals at points that were not fitted; a success needs relative ones below {solution.tolerance:g}")
    if solution.estimated_error:
        yield _table(pd.DataFrame({"estimated relative L2 error": dict(solution.estimated_error)}), "")
    if solution.problem is not None and solution.problem.has_reference:
        yield _table(pd.DataFrame({"relative L2 error": solution.error()}), "against the reference of the problem")
    if solution.problem is not None:
        try:
            yield _image(_residuals(solution), "size of the residuals of the equations over the domain")
        except ProblemError as error:
            yield f"<p>No map of residuals: {html.escape(str(error))}</p>"


def _measured(solution: Solution) -> Iterator[str]:
    data = solution.data
    measured = [] if data is None else [name for name in solution.fields if name in data.columns]
    if data is None or not measured:
        return
    yield "<h2>Measurements</h2>"
    values = solution({name: np.asarray(data[name]) for name in solution.coordinates})
    gaps = {name: np.asarray(data[name]) - values[name] for name in measured}
    yield _image(_diagnostics(gaps), "residuals of the measurements: their quantiles and autocorrelation")
    if solution.statistics:
        plain = {name: value for name, value in solution.statistics.items() if not name.startswith("correlation.")}
        yield _table(pd.DataFrame({"value": plain}), "statistics of the fit")


def _beside(solution: Solution, other: Solution | None) -> Iterator[str]:
    if other is None:
        return
    yield f"<h2>Beside {html.escape(other.engine)}</h2>"
    try:
        yield _table(pd.DataFrame({"relative L2 difference": solution.error(other)}), html.escape(other.message))
        yield _image(solution.plot(other), "the solution and its difference from the other one")
    except ProblemError as error:
        yield f"<p>{html.escape(str(error))}</p>"


def _history(solution: Solution) -> Iterator[str]:
    if len(solution.history) > 1 and {"loss", "seconds"} <= set(solution.history.columns):
        yield "<h2>History</h2>"
        yield _image(_curves(solution.history), "loss over seconds")


def _origin(solution: Solution) -> str:
    rows = {**versions(), "solver": solution.solver, "derivatives": solution.engine, "seed": str(solution.seed)}
    rows["trial function"] = repr(solution.model) if solution.model is not None else type(solution.trial).__name__
    origin = getattr(solution.data, "provenance", None)
    told = "" if origin is None else f"<pre>{html.escape(json.dumps(origin.as_dict(), indent=1, default=str))}</pre>"
    again = (
        "import sciml\n"
        f"solution = sciml.fit({solution.name}()"
        + ("" if solution.data is None else ", data=sciml.read(...)")
        + (f", seed={solution.seed}" if solution.seed else "")
        + ")\n"
    )
    return (
        "<h2>Where it comes from</h2>\n"
        + _table(pd.DataFrame({"": {name: str(value)[:200] for name, value in rows.items()}}), "versions and settings")
        + told
        + f"<h3>To get it again</h3><pre>{html.escape(again)}</pre>"
        + "<p>With the same settings, versions and kind of machine the numbers are the same.</p>"
    )


def _table(frame: pd.DataFrame, caption: str) -> str:
    """A table for any width of screen."""
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in ("", *frame.columns))
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in frame.itertuples(name=None))
    inside = f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide"><table>{inside}</table></div>'


def _cell(value: Any) -> str:
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return f"<td>{'' if np.isnan(value) else f'{value:.5g}'}</td>"
    return f'<td class="text">{html.escape(str(value))}</td>'


def _encoded(figure: Figure) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(figure, _DPI)).decode()}"


def _image(figure: Figure, about: str) -> str:
    about = html.escape(about)
    return f'<figure><img src="{_encoded(figure)}" alt="{about}"><figcaption>{about}</figcaption></figure>'


def _intervals(solution: Solution) -> Figure:
    figure = plots.new_figure(7.0, 0.6 + 0.4 * len(solution.unknowns))
    axes = figure.subplots()
    for row, (_, each) in enumerate(solution.unknowns.iterrows()):
        scale = abs(each["estimate"]) or 1.0
        low, high = ((each[end] - each["estimate"]) / scale for end in ("low", "high"))
        if np.isfinite([low, high]).all():
            axes.plot([low, high], [row, row], color="#0072b2", linewidth=3)
        axes.plot([0], [row], "o", color="black")
    axes.set_yticks(range(len(solution.unknowns)), list(map(str, solution.unknowns.index)))
    axes.set_xlabel("relative to the estimate")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _curves(history: pd.DataFrame) -> Figure:
    figure = plots.new_figure(7.0, 3.2)
    axes = figure.subplots()
    for name in ("loss", "held_out"):
        if name in history.columns:
            values = pd.to_numeric(history[name], errors="coerce").where(lambda each: each > 0)
            if values.notna().any():
                axes.semilogy(history["seconds"], values, label=name.replace("_", "-"))
    axes.set(xlabel="seconds")
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    return figure


def _residuals(solution: Solution) -> Figure:
    """Logarithms of the residuals of the equations: a curve over one coordinate, a map of the plotted slice over more."""
    problem = solution.problem
    assert problem is not None
    bound = problem.valued(solution.constants)
    terms = bound.equation_residuals()

    def at(points: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        flat = torch.from_numpy(np.stack([np.ravel(points[name]) for name in solution.coordinates], axis=1))
        trial: Callable[..., Any] = solution.trial
        evaluation = Evaluation(bound, (bound.space(flat.to(solution.dtype), trial),))
        found = {term.name: term.evaluate(evaluation).detach().double().abs().numpy() for term in terms}
        return {name: np.log10(np.maximum(values, 1e-300)) for name, values in found.items()}

    if len(solution.coordinates) == 1:
        (name,) = solution.coordinates
        line = np.linspace(solution.bounds[name][0], solution.bounds[name][1], 400)
        figure = plots.new_figure(7.0, 3.2)
        axes = figure.subplots()
        for term, values in at({name: line}).items():
            axes.plot(line, values, label=term)
        axes.set(xlabel=plots.labelled(solution, name), ylabel="log10 |residual|")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        return figure
    across, _, grid, inside = plots.slice_through(solution, {}, _WIDE)
    names = [each.name for each in terms]
    sizes = plots.on_grid(at, names, grid, inside)
    figure = plots.new_figure(4.6 * len(names), 3.6)
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        plots.draw_map(axes, across, grid, sizes[name], name, bar="log10 |residual|", signs=False)
    return figure


def _diagnostics(residuals: Mapping[str, np.ndarray]) -> Figure:
    """Quantiles of residuals against those of a normal distribution, and their autocorrelation in the order of the rows."""
    import scipy

    figure = plots.new_figure(8.0, 3.0 * len(residuals))
    every = figure.subplots(len(residuals), 2, squeeze=False)
    for (left, right), (name, given) in zip(every, residuals.items(), strict=True):
        values = given[np.isfinite(given)]
        (theory, ordered), (slope, middle, _) = scipy.stats.probplot(values)
        left.plot(theory, ordered, "o", markersize=3)
        left.plot(theory, slope * theory + middle, color="black", linewidth=0.8)
        left.set(title=f"{name}: quantiles", xlabel="normal", ylabel="residual")
        centred = values - values.mean()
        lags = range(min(20, len(values) - 1) + 1)
        power = float(centred @ centred) or 1.0
        right.bar(lags, [float(centred[: len(centred) - lag] @ centred[lag:]) / power for lag in lags], width=0.4)
        for bound in (-1.96, 1.96):
            right.axhline(bound / np.sqrt(len(values)), color="black", linewidth=0.8, linestyle="--")
        right.set(title=f"{name}: autocorrelation", xlabel="lag")
    return figure
