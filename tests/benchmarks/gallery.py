"""``make gallery``: solve problems without settings, show them as they come, write docs/gallery.md and its pages."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table

from sciml import gallery
from sciml.data.archive import write_atomic

from . import gallery_pages, harness
from .stored import ROOT

DOCS = ROOT / "docs"


def run(names: Sequence[str], limit: float, docs: Path = DOCS) -> None:
    """Solve problems in turn; after each one the files are written, with what earlier runs left for the others.

    Args:
        names: of the gallery.
        limit: seconds that a process may take; each problem has one for ``fit`` and one for ``baseline``.
        docs: the folder that holds ``gallery.json``, ``gallery.md`` and ``gallery/``.
    """
    results, environment = earlier(docs), harness.environment()
    stated = gallery.table()
    shown: dict[str, dict[str, Any]] = {}
    (docs / "gallery").mkdir(parents=True, exist_ok=True)
    with Live(_table(stated, shown, names), refresh_per_second=4) as live:
        for name in names:
            picture = (docs / "gallery" / f"{name}.png").resolve()
            shown[name] = results[name] = {
                "fit": outcome(harness.in_process("gallery_worker", "fit", name, str(picture), limit=limit)),
                "baseline": outcome(harness.in_process("gallery_worker", "baseline", name, limit=limit)),
                "time_limit": limit,
                "environment": environment,
            }
            live.update(_table(stated, shown, names))
            write(results, docs)


def outcome(found: dict[str, Any]) -> dict[str, Any]:
    """What a process printed; where it printed nothing, no success and the reason."""
    if found.get("timed_out"):
        return {"success": False, "reason": f"not done after {found['seconds']:g} s"}
    if "failed" in found:
        return {"success": False, "reason": f"the process ended: {found['failed'].replace(str(ROOT), '.')}"}
    return found


def earlier(docs: Path = DOCS) -> dict[str, Any]:
    """Results of earlier runs, by name; those of problems that are no more are dropped."""
    path = docs / "gallery.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return {name: result for name, result in found.items() if name in gallery.names()}


def write(results: dict[str, Any], docs: Path = DOCS) -> None:
    """Write figures and pages, each file all or nothing, and remove what belongs to no problem."""
    texts = gallery_pages.texts(results)
    for name, text in texts.items():
        write_atomic(docs / name, text.encode())
    pictures = {f"{name}.png" for name, result in results.items() if result["fit"].get("picture")}
    for file in (docs / "gallery").iterdir():
        if file.name not in pictures and f"gallery/{file.name}" not in texts:
            file.unlink()


def _table(stated: pd.DataFrame, results: dict[str, Any], names: Sequence[str]) -> Table:
    # What a problem is, and how many numbers describe a solution, is left to the page: a terminal is narrow.
    told = [place for place, head in enumerate(gallery_pages.COLUMNS) if place == 0 or (place >= 4 and head != "numbers")]
    table = Table(
        *(Column(gallery_pages.COLUMNS[place], no_wrap=place == 0) for place in told),
        title=f"Gallery, one thread: {len(results)} of {len(names)}",
    )
    for name, result in results.items():
        cells = gallery_pages.cells(name, stated.loc[name], result)
        table.add_row(*(escape(cells[place]) for place in told))
    return table


def main() -> None:
    """The command line."""
    known = gallery.names()
    parser = argparse.ArgumentParser(prog="make gallery", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which; all by default: {', '.join(known)}")
    parser.add_argument("--time-limit", type=float, default=180.0, help="seconds that one process may take (180)")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder to write to (docs)")
    parser.add_argument("--pages", action="store_true", help="write the pages from docs/gallery.json; solve nothing")
    given = parser.parse_args()
    wrong = [name for name in given.names if name not in known]
    if wrong:
        parser.error(f"the gallery has no problem {', '.join(wrong)}; there are {', '.join(known)}")
    if given.time_limit <= 0:
        parser.error(f"--time-limit must be positive; given: {given.time_limit:g}")
    if given.pages:
        write(earlier(given.docs), given.docs)
        Console().print(f"wrote the pages of {len(known)} problems")
    else:
        run(given.names or known, given.time_limit, given.docs)


if __name__ == "__main__":
    main()
