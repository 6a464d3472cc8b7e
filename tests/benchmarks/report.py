"""The page of results: a function from figures to Markdown, and nothing else."""

import math
import statistics
from collections.abc import Mapping
from typing import Any

from .case import Case, Target
from .markup import reflowed

_HEAD = """# Benchmarks

Every problem is solved in three ways, in a fresh process each, in float64, on one thread:
automatically, by `sciml.fit(problem, seed=seed)` with nothing else said; by a network,
`sciml.fit(problem, sciml.MLP(20, 20, 20))`; and by SciPy, `sciml.baseline(problem)`, from the same
class. The second column names the method. Only the rows that say so are networks. Targets are those
of the automatic way. Errors are relative L2 errors of the worst field against an exact or converged
solution (for inverse problems the relative error of the worst unknown); seconds are those of `fit`,
wall-clock, and the processor's own beside them where the machine was busy with something else.
Median over the seeds, the worst in brackets. `make bench` writes this page and `benchmarks.json`,
problem by problem; what peers reach was measured on one core, or published where it says so, and
not in the same run unless the last section says so. Other libraries with the same network and as
many seconds are beside ours in [a network of your own](your-own-network.md), maps between functions
in [operators](operators.md). How fast files larger than memory are read is in [large
files](large-files.md).
"""


def page(cases: Mapping[str, Case], results: Mapping[str, Any], left_out: Mapping[int, str]) -> str:
    """The page for results by name; only problems that were run have a row."""
    run = [case for case in cases.values() if case.name in results]
    missing = [f"`{case.name}`" for case in cases.values() if case.name not in results]
    lines = [_HEAD]
    if run:
        lines += [
            "| # | problem | method | target | error | seconds | memory | success | target met | peers |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *(line for case in run for line in (_line(case, results[case.name]), *_beside(case, results[case.name]))),
            "",
        ]
    if missing:
        lines += [f"Not run yet: {', '.join(missing)}.", ""]
    lines += [f"Left out: row {row}, {why}." for row, why in left_out.items()]
    if run:
        lines += ["", "## What was chosen", "", *_choices(run, results), "## Where and when", ""]
        lines += [*environments({case.name: results[case.name] for case in run}), "", *_peers(run, results)]
    return reflowed("\n".join(lines).rstrip() + "\n")


def summary(case: Case, result: Mapping[str, Any]) -> dict[str, Any]:
    """Median and worst value and seconds, successes, and for each target whether the medians meet it.

    A run that failed, timed out or gave no number counts as infinitely bad.
    """
    runs = result["runs"]
    worthless = -math.inf if case.more_is_better else math.inf
    values = [worthless if one.get("value") is None else one["value"] for one in runs]
    seconds = [math.inf if one.get("value") is None and not one.get("seconds") else one["seconds"] for one in runs]
    busy = [one["processor_seconds"] for one in runs if "processor_seconds" in one]
    median, took = statistics.median(values), statistics.median(seconds)
    return {
        "median": median,
        "worst": min(values) if case.more_is_better else max(values),
        "seconds": took,
        "slowest": max(seconds),
        "processor": statistics.median(busy) if busy else None,
        "megabytes": max((one["peak_megabytes"] for one in runs if "peak_megabytes" in one), default=None),
        "successes": sum(bool(one.get("success")) for one in runs),
        "timeouts": sum(bool(one.get("timed_out")) for one in runs),
        "failures": [one["failed"] for one in runs if "failed" in one],
        "runs": len(runs),
        "met": [case.meets(target, median, took) for target in case.targets],
    }


def _line(case: Case, result: Mapping[str, Any]) -> str:
    found = summary(case, result)
    memory = "–" if found["megabytes"] is None else f"{found['megabytes']:.0f} MB"
    success = f"{found['successes']} of {found['runs']}"
    if found["timeouts"]:
        success += f"; {found['timeouts']} timed out after {result['time_limit']:g} s"
    if found["failures"]:
        success += f"; {len(found['failures'])} failed"
    ours = f"{number(found['median'])} ({number(found['worst'])})"
    seconds = f"{found['seconds']:.3g} ({found['slowest']:.3g})"
    if found["processor"] is not None and found["processor"] < 0.8 * found["seconds"]:
        seconds += f"; processor {found['processor']:.3g}"
    met = "; ".join(f"{'stretch: ' if position else ''}{'yes' if good else 'no'}" for position, good in enumerate(found["met"]))
    target = "; stretch ".join(aim(case, each) for each in case.targets)
    cells = [
        str(case.row),
        case.title,
        _method(result["runs"][0]),
        target,
        ours,
        seconds,
        memory,
        success,
        met,
        case.peers or "–",
    ]
    return f"| {' | '.join(cells)} |"


def _method(run: Mapping[str, Any]) -> str:
    """How a problem was solved: by which strategy, and which solver."""
    reached = {
        name: float(residual)
        for choice in run.get("choices", ())
        for name, found, residual in [choice.partition(": residual ")]
        if found
    }
    solver = str(run.get("solver", "–"))
    return f"{min(reached, key=lambda name: reached[name])}, {solver}" if reached else solver


def _beside(case: Case, result: Mapping[str, Any]) -> list[str]:
    """The rows of a network and of SciPy, where they were run."""
    lines = []
    for way, run in result.get("beside", {}).items():
        method = "network MLP(20, 20, 20)" if way == "network" else f"SciPy, {run.get('solver', '–')}"
        refused = run.get("failed") or ("timed out" if run.get("timed_out") else None)
        error = refused or number(math.inf if run.get("value") is None else run["value"])
        memory = f"{run['peak_megabytes']:.0f} MB" if "peak_megabytes" in run else "–"
        success = "yes" if run.get("success") else "no"
        seconds = "–" if refused else f"{run['seconds']:.3g}"
        lines.append(f"| {case.row} | | {method} | | {error} | {seconds} | {memory} | {success} | | |")
    return lines


def aim(case: Case, target: Target) -> str:
    """A target in words."""
    bound = "" if case.unit == "error" else "≥ " if case.more_is_better else "≤ "
    return bound + number(target.value) + ("" if target.seconds is None else f" in {target.seconds:g} s")


def number(value: float) -> str:
    """A figure in two digits."""
    if not math.isfinite(value):
        return "none"
    if 0.01 <= value < 1000:
        return f"{value:.2g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"


def _choices(run: list[Case], results: Mapping[str, Any]) -> list[str]:
    lines = []
    for case in run:
        first = results[case.name]["runs"][0]
        said = [*chosen(first), *([f"failed: {first['failed']}"] if "failed" in first else [])]
        if said:
            lines.append(f"- `{case.name}` (seed {first['seed']}; {first.get('solver', '–')}): {'. '.join(said)}.")
    return [*lines, ""] if lines else []


def chosen(result: Mapping[str, Any]) -> list[str]:
    """What a fit chose and what each way reached; what kept the others from serving is in the figures' file."""
    return [each for each in result.get("choices", ()) if ": left out, " not in each and not each.startswith("points:")]


def environments(results: Mapping[str, Any]) -> list[str]:
    """Each distinct surrounding once, with what was run in it."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, result in results.items():
        where = result["environment"]
        names.setdefault(tuple(f"{key} {value}" for key, value in where.items()), []).append(f"`{name}`")
    return [f"- {', '.join(each)}: {', '.join(where)}." for where, each in names.items()]


def _peers(run: list[Case], results: Mapping[str, Any]) -> list[str]:
    lines = []
    for case in run:
        for one in results[case.name].get("peers", ()):
            outcome = one.get("failed") or ("timed out" if one.get("timed_out") else None)
            told = outcome or f"{number(one['value'])} in {one['seconds']:.3g} s"
            lines.append(f"- `{case.name}`, {one['peer']} ({one['settings']}): {told}.")
    return ["## Peers on the same machine, one run in turn with ours", "", *lines] if lines else []
