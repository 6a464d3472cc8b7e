"""The pages of the gallery: a function from figures and problem files to texts, and nothing else."""

import ast
import json
import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from sciml import gallery
from sciml.data import StoredReference

from . import report
from .markup import markdown, reflowed
from .published import PUBLISHED

# Errors below are the same in a race.
_EXACT = 1e-10
_RACE = """There both are a success, or `fit` is none, and the error of `baseline` is the smaller one; errors
below 1e-10, or below a hundred times what a stored solution is converged to, count as equal."""
# An error is stated if the reference is so many times as exact.
_SURE = 100

_HEAD = """# Gallery

Each problem is a file of some thirty lines in `problems/`. `sciml list` shows their names; `sciml
fit burgers` solves one, `sciml.gallery.problem("burgers")` makes it in Python. A name leads to its
page: the mathematics, a picture, what was measured, and the code.

Here each was solved by `sciml.fit(problem)` and by `sciml.baseline(problem)`, with nothing else
said, each in a fresh process, in float64, on one thread and within the time limit. How to read the
table:

- **truth**: where the solution is known from. *exact*: a formula; *stored*: computed once by
  another method and kept in `data/`; *measured*: data, beside one of these or alone.
- **error**: relative L2 error of each field against that truth on a dense grid; below a hundred
  times what a stored solution is converged to only that bound is stated. Where constants are
  unknown, how far the worst estimate is from published values: in standard errors (both combined)
  or, where the data were made with constants that are known, relative to these.
- **seconds**: of the call, wall-clock, the processor's own beside them where the machine was busy
  with something else.
- **numbers**: how many describe the solution, be they parameters, coefficients on elements or
  values on a grid.
- **success**: whether the solution calls itself one, by its residuals on points that were not used
  to find it. The error plays no part in that.

"""
_COLUMNS = (
    "problem",
    "what it is",
    "coordinates and unknowns",
    "truth",
    "error",
    "seconds",
    "numbers",
    "by",
    "success",
)
_CLASSICAL = ("classical: error", "seconds", "numbers", "by")
COLUMNS = (*_COLUMNS, *_CLASSICAL)


def texts(results: Mapping[str, Any]) -> dict[str, str]:
    """Every file that stands in ``docs/``, by its name there; problems that were not run have a page without figures."""
    table = gallery.table()
    kept = {name: results[name] for name in table.index if name in results}
    return {
        "gallery.json": json.dumps(kept, indent=1, ensure_ascii=False) + "\n",
        "gallery.md": overview(table, kept),
        **{f"gallery/{name}.md": page(str(name), table.loc[name], kept.get(name)) for name in table.index},
    }


def overview(table: pd.DataFrame, results: Mapping[str, Any]) -> str:
    """The table of all problems, what was chosen, and what did not succeed."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for name, result in results.items():
        told = dict(enumerate(cells(name, table.loc[name], result)))
        told[0] = f"[{name}](gallery/{name}.md)"
        if "parameters" not in result["baseline"]:
            told[len(COLUMNS) - 1] = "[none](#what-did-not-succeed)"
        lines.append(f"| {' | '.join(map(_cell, told.values()))} |")
    missing = [f"[{name}](gallery/{name}.md)" for name in table.index if name not in results]
    if missing:
        lines += ["", f"Not run yet: {', '.join(missing)}."]
    chosen = [f"- `{name}`: {_choices(result)}" for name, result in results.items() if _choices(result)]
    if chosen:
        lines += ["", "## What `fit` chose", "", *chosen]
    lacking = [
        f"- `{name}`, {verb}: {_sentence(result[verb]['reason'])}"
        for name, result in results.items()
        for verb in ("fit", "baseline")
        if not result[verb]["success"]
    ]
    better = [f"`{name}`" for name in lost(results)]
    lines += ["", "## Where `baseline` is better in the same time", "", f"{', '.join(better) or 'Nowhere'}. {_RACE}"]
    lines += ["", "## What did not succeed", "", *(lacking or ["Nothing."])]
    lines += ["", "## Where and when", "", *report.environments(results), ""]
    limits = sorted({result["time_limit"] for result in results.values()})
    lines += [f"`make gallery` writes this page. Time limit of a process: {', '.join(f'{each:g}' for each in limits)} s."]
    return reflowed(_HEAD + "\n".join(lines) + "\n")


def lost(results: Mapping[str, Any]) -> list[str]:
    """The problems that ``baseline`` solves in the time of ``fit`` or less, and more exactly, or ``fit`` not at all."""
    found = []
    for name, result in results.items():
        fit, classical = result["fit"], result["baseline"]
        if not classical["success"] or not fit.get("error"):
            continue
        reached, there = (max(part["error"].values()) for part in (fit, classical))
        exact = max(there, _EXACT, _SURE * known_to(name))
        if not fit["success"] or (reached > exact and classical["seconds"] <= fit["seconds"]):
            found.append(name)
    return found


def cells(name: str, row: Any, result: Mapping[str, Any] | None) -> list[str]:
    """A row of the table as plain text, for ``COLUMNS``."""
    coordinates = ", ".join(row["coordinates"])
    if row["unknowns"]:
        coordinates += f"; unknown: {', '.join(row['unknowns'])}"
    told = [name, row["line"].removesuffix("."), coordinates, row["truth"]]
    if result is None:
        return told + [""] * (len(COLUMNS) - len(told))
    fit, classical = result["fit"], result["baseline"]
    told += [errors(name, fit), _seconds(fit), _numbers(fit), fit.get("solver", "–"), "yes" if fit["success"] else "no"]
    method = classical.get("solver", "none")
    if "parameters" in classical and not classical["success"]:
        method += " (not a success)"
    return [*told, errors(name, classical), _seconds(classical), _numbers(classical), method]


def errors(name: str, part: Mapping[str, Any]) -> str:
    """Errors of the fields, and how far the worst unknown is from published values."""
    told = []
    fields = part.get("error", {})
    for field, error in fields.items():
        told.append(f"{field} {_stated(name, error)}" if len(fields) > 1 else _stated(name, error))
    distances = [distance(name, unknown, one) for unknown, one in part.get("unknowns", {}).items()]
    if known := [each for each in distances if each is not None]:
        # Distances in standard errors and relative ones do not mix: a problem's published values are all of one kind.
        worst = max(each for each, _ in known)
        told.append(f"unknowns {_number(worst)}{known[0][1]}" if math.isfinite(worst) else "unknowns not finite")
    return ", ".join(told) or "–"


def distance(name: str, unknown: str, one: Mapping[str, float | None]) -> tuple[float, str] | None:
    """How far an estimate is from the published value, and in what; None where nothing is published."""
    known = PUBLISHED[name].values.get(unknown) if name in PUBLISHED else None
    estimate = one["estimate"]
    if known is None:
        return None
    if estimate is None:
        return math.inf, ""
    value, error = known
    if error == 0:
        return abs(estimate - value) / abs(value), ""
    return abs(estimate - value) / math.hypot(error, one["standard_error"] or 0.0), " s.e."


def page(name: str, row: Any, result: Mapping[str, Any] | None) -> str:
    """The page of a problem: its mathematics, picture, figures and code."""
    text = gallery.path(name).read_text()
    tree = ast.parse(text)
    # The docstring stands above as prose.
    code = "\n".join(text.splitlines()[tree.body[0].end_lineno :]).strip()
    fields = [f"{len(row['fields'])} field{'s' * (len(row['fields']) > 1)} {_listed(row['fields'])}"]
    fields += [f"coordinates {_listed(row['coordinates'])}", f"truth: {row['truth']}"]
    fields += [f"unknown: {_listed(row['unknowns'])}"] if row["unknowns"] else []
    lines = [f"# {name}", "", markdown(ast.get_docstring(tree) or ""), f"{'; '.join(fields)}.", ""]
    lines += ["[All problems](../gallery.md)", ""]
    if result is None:
        lines += ["Not measured yet.", ""]
    else:
        lines += [*_measured(name, result), ""]
    lines += ["## The code", "", f"[problems/{name}.py](../../problems/{name}.py), after its text above:", ""]
    return reflowed("\n".join([*lines, "```python", code, "```", "", _call(name)]) + "\n")


def _measured(name: str, result: Mapping[str, Any]) -> Iterable[str]:
    fit, classical = result["fit"], result["baseline"]
    if fit.get("picture"):
        yield from (f"![What fit found]({name}.png)", "")
    elif "no_picture" in fit:
        yield from (f"No picture: {_sentence(fit['no_picture'])}", "")
    rows = [("", "`sciml.fit`", "`sciml.baseline`"), ("---",) * 3]
    for field in fit.get("error") or classical.get("error") or ():
        rows.append((f"error of {field}", *(_stated(name, part.get("error", {}).get(field)) for part in (fit, classical))))
    for unknown in fit.get("unknowns") or classical.get("unknowns") or ():
        head = unknown
        if name in PUBLISHED and unknown in PUBLISHED[name].values:
            head += f"; published {_estimate(*PUBLISHED[name].values[unknown])}"
        rows.append((head, *(_estimated(part, unknown) for part in (fit, classical))))
    rows.append(("seconds", _seconds(fit), _seconds(classical)))
    rows.append(("numbers", _numbers(fit), _numbers(classical)))
    if "peak_megabytes" in fit:
        rows.append(("memory", f"{fit['peak_megabytes']:.0f} MB", "–"))
    rows.append(("by", fit.get("solver", "–"), classical.get("solver", "–")))
    rows.append(("success", *("yes" if part["success"] else f"no: {part['reason']}" for part in (fit, classical))))
    yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)
    if name in PUBLISHED and "unknowns" in fit:
        yield from ("", f"Published: {PUBLISHED[name].source}.")
    if _choices(result):
        yield from ("", f"What `fit` chose: {_choices(result)}")
    yield from ("", f"Measured: {', '.join(f'{key} {value}' for key, value in result['environment'].items())}.")


def _call(name: str) -> str:
    return f'Solve it: `sciml fit {name}`, or `sciml.fit(sciml.gallery.problem("{name}"))`.'


def _choices(result: Mapping[str, Any]) -> str:
    """What was chosen, in words."""
    chosen = report.chosen(result["fit"])
    return f"{'; '.join(chosen)}." if chosen else ""


def _seconds(part: Mapping[str, Any]) -> str:
    if "parameters" not in part:
        return "–"
    told, busy = f"{part['seconds']:.2g}", part.get("processor_seconds", math.inf)
    return f"{told}; processor {busy:.2g}" if busy < 0.8 * part["seconds"] else told


def _numbers(part: Mapping[str, Any]) -> str:
    return f"{part['parameters']:,}" if "parameters" in part else "–"


def _number(value: float | None) -> str:
    return "–" if value is None else report.number(value)


def _stated(name: str, error: float | None) -> str:
    """An error, or a bound where the reference itself is not a hundred times as exact."""
    least = _SURE * known_to(name)
    return f"< {_number(least)}" if error is not None and error < least else _number(error)


@cache
def known_to(name: str) -> float:
    """The relative accuracy to which a problem's stored reference is converged; zero for a formula, and where there is none."""
    if name not in gallery.names():
        return 0.0
    reference = getattr(type(gallery.problem(name)), "reference", None)
    return float(reference.attributes["converged_to"]) if isinstance(reference, StoredReference) else 0.0


def _estimated(part: Mapping[str, Any], unknown: str) -> str:
    one = part.get("unknowns", {}).get(unknown)
    return "–" if one is None or one["estimate"] is None else _estimate(one["estimate"], one["standard_error"])


def _estimate(value: float, error: float | None) -> str:
    return f"{value:.4g} ± {error:.2g}" if error else f"{value:.4g}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in names)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
