"""Reports of a run: ``summary.json``, ``solution.pt``, and tables for a terminal."""

from __future__ import annotations

import io
import itertools
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.markup import escape
from rich.table import Table as RichTable

from sciml.data import archive
from sciml.errors import FileError
from sciml.runs import save as saving
from sciml.runs.directory import MANIFEST, SOLUTION, SUMMARY, RunDirectory
from sciml.runs.fingerprint import versions
from sciml.runs.history import finite
from sciml.solution import Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 2**24
_NONE = type(None)
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("problem", "solver", "engine", "dtype", "device", "status", "message"), (str,)),
    **dict.fromkeys(("points", "residuals", "unknowns", "versions", "estimated_error"), (dict,)),
    **dict.fromkeys(("relative_l2", "data"), (dict, _NONE)),
    **dict.fromkeys(("parameters", "nit"), (int,)),
    "fields": (list,),
    "model": (str, _NONE),
    "seed": (int, _NONE),
    "seconds": (int, float),
    "success": (bool,),
}


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


def read_summary(path: str | Path) -> dict[str, Any]:
    """The ``summary.json`` at a path or in a directory, compared with the checksum in the run's manifest if there is one."""
    path = Path(path)
    path = path / SUMMARY if path.is_dir() else path
    if path.is_file() and path.stat().st_size > _MOST:
        raise FileError(f"{path} is no summary of a run: it has more than {_MOST} bytes")
    if (path.parent / MANIFEST).is_file() and RunDirectory.may_have(path.name):
        content = RunDirectory(path.parent).read(path.name)
    else:
        content = archive.read(path)
    try:
        return _checked(json.loads(content.decode(), parse_constant=_refused))
    except (ValueError, RecursionError, MemoryError) as error:
        raise FileError(f"{path} is no summary of a run, or is damaged: {str(error)[:200]}") from error


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _checked(found: Any) -> dict[str, Any]:
    """What ``summary`` makes; anything else is a ``ValueError``."""
    if not isinstance(found, dict):
        raise ValueError(f"it holds {type(found).__name__}, not names and values")
    # Runs of before have none.
    found.setdefault("estimated_error", {})
    for name, kinds in _KINDS.items():
        if name not in found:
            raise ValueError(f"it has no {name!r}")
        if type(found[name]) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{name!r} is {str(found[name])[:50]!r}; expected {expected}")
    rows = [
        found["points"],
        found["estimated_error"],
        found["relative_l2"] or {},
        *found["residuals"].values(),
        *found["unknowns"].values(),
    ]
    if not all(isinstance(row, dict) and {*map(type, row.values())} <= {int, float, _NONE} for row in rows):
        raise ValueError("not all of 'points', 'relative_l2', 'residuals', 'unknowns' are numbers by name")
    if not all(isinstance(each, str) for each in [*found["fields"], *found["versions"].values()]):
        raise ValueError("a field or a version is no text")
    return found


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
