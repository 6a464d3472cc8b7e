"""Reports of a run: ``summary.json``, ``solution.pt``, and tables for a terminal."""

from __future__ import annotations

import io
import itertools
import json
import math
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.markup import escape
from rich.table import Table as RichTable

from sciml.runs import save as saving
from sciml.runs.directory import SOLUTION, SUMMARY, RunDirectory
from sciml.runs.fingerprint import versions
from sciml.runs.history import finite
from sciml.solution import Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def summary(solution: Solution) -> dict[str, Any]:
    """The contract of ``summary.json``: plain values only; numbers that are not finite become null.

    Keys: ``problem, fields, model, parameters, solver, engine, dtype, device, seed, points, seconds, nit, success, status,
    message, relative_l2`` (by field, null without a reference), ``estimated_error`` (by field, empty where there is none),
    ``residuals`` (by term: rms, max, relative, points; on
    fresh points), ``unknowns`` (by name: value, standard_error, low, high), ``data`` (path, sha256, rows,
    reader, options, versions of the file of measurements; null if there is none), ``versions``.
    """
    problem = solution.problem
    has_reference = problem is not None and problem.has_reference
    model = solution.model
    origin = getattr(solution.data, "provenance", None)
    return finite(
        {
            "problem": solution.name,
            "fields": solution.fields,
            "model": None if model is None else f"{type(model).__name__}({model.extra_repr()})",
            **{name: getattr(solution, name) for name in ("parameters", "solver", "engine")},
            "dtype": str(solution.dtype).removeprefix("torch."),
            "device": str(solution.device),
            "seed": solution.seed,
            "points": dict(solution.points),
            "seconds": round(solution.seconds, 3),
            **{name: getattr(solution, name) for name in ("nit", "success", "status", "message")},
            "relative_l2": solution.error() if has_reference else None,
            "estimated_error": dict(solution.estimated_error),
            "residuals": {name: {**row, "points": int(row["points"])} for name, row in solution.residuals.T.items()},
            "unknowns": solution.unknowns.rename(columns={"estimate": "value"}).to_dict("index"),
            "data": None if origin is None else origin.as_dict(),
            "versions": versions(),
        }
    )


def write(solution: Solution, run: RunDirectory) -> None:
    """Write ``summary.json`` and ``solution.pt`` into the directory of a run; each appears whole or not at all."""
    run.save(SOLUTION, saving.to_record(solution))
    run.write(SUMMARY, (json.dumps(summary(solution), indent=2) + "\n").encode())


def png(figure: Figure, dpi: int = 150) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def unknowns_table(solution: Solution, other: Solution | None = None) -> RichTable:
    """Estimates with standard errors and intervals, another solution's beside them."""
    title = f"{solution.name}: estimates with standard errors and 95 % intervals"
    # Two solutions side by side have room in eighty columns only without lines between the columns.
    table = RichTable(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("unknown", no_wrap=True)
    shown = [solution] if other is None else [solution, other]
    for head in (head for each in shown for head in (short_name(each), "± s.e.", "95 % interval")):
        table.add_column(head, justify="right", no_wrap=True)
    for name in solution.unknowns.index:
        rows = (each.unknowns.loc[name] for each in shown)
        cells = ((f"{value:.4g}", f"{error:.2g}", f"{low:.3g} … {high:.3g}") for value, error, low, high in rows)
        table.add_row(str(name), *itertools.chain(*cells))
    return table


def table_of(frame: pd.DataFrame, title: str, name: str = "", digits: str = ".3g", meaning: str | None = None) -> RichTable:
    """A DataFrame as a table for a terminal: ``name`` heads the index, ``digits`` formats numbers that are not whole."""
    table = RichTable(title=title, caption=meaning, title_justify="left", caption_justify="left")
    table.add_column(name, overflow="fold")
    for column, kind in frame.dtypes.items():
        number = pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind)
        table.add_column(str(column), overflow="fold", justify="right" if number else "left")
    for row in frame.itertuples(name=None):
        table.add_row(*(_cell(value, digits) for value in row))
    return table


def _cell(value: object, digits: str) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else format(value, digits)
    return escape(str(value))


def short_name(solution: Solution) -> str:
    """What found a solution, in a word: the class of its model, or SciPy."""
    model = solution.model
    name = "SciPy" if model is None else type(model).__name__
    known = {"RandomFeatures": "features", "DeepFeatures": "polished", "Windowed": "windows", "Spectral": "spectral"}
    return known.get(name, name)
