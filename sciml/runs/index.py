"""Index of runs: a table of what lies in a directory of runs, from small files alone."""

from __future__ import annotations

import contextlib
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from sciml.data.archive import PREVIOUS
from sciml.data.memory import readable
from sciml.errors import FileError
from sciml.runs.directory import CHECKPOINT, HISTORY, LOCK, RECORD, SOLUTION, SUMMARY, RunDirectory
from sciml.runs.history import json_object

STATES = ("running", "success", "not a success", "interrupted", "unfinished", "damaged", "not a run")

# Far more than a fit writes there; a larger file is none of ours.
_MOST_BYTES = 2**22
_TAIL = 2**16
_COLUMNS = ("problem", "state", "pid", "steps", "held_out", "seconds", "when", "bytes", "note", "path")


def table(directory: str | Path = "runs") -> pd.DataFrame:
    """The runs in a directory, the newest first; only small files of theirs are read, and nothing is changed.

    A run is ``running`` while a process holds its lock; it ended as a ``success``, ``not a success`` or ``interrupted``;
    it is ``unfinished`` if it ended without saying so, as a run that was killed does. What cannot be read is ``damaged``, a
    folder with no file of a run in it ``not a run``: each is a row, and none is an error.

    Args:
        directory: the folder of runs, or the folder of one run.

    Returns:
        A row for each folder in it, by name: ``problem``, ``state``, ``pid`` of the process at work, ``steps`` done,
        ``held_out`` loss at the last look, ``seconds`` of work, ``when`` it ended or last wrote (UTC), ``bytes`` on disk, a
        ``note`` on what is missing or damaged, and its ``path``. Numbers that are not known are NaN.

    Raises:
        FileError: there is no such directory, or it cannot be listed.

    Example:
        >>> import pathlib, tempfile, sciml
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> (folder / "decay").mkdir()
        >>> _ = (folder / "decay" / "run.json").write_text('{"problem": "Decay", "began": "2030-01-01", "ended": null}')
        >>> sciml.runs.table(folder)[["problem", "state", "note"]]
             problem       state                                note
        name
        decay  Decay  unfinished  no checkpoint: it would begin anew
    """
    if not isinstance(directory, str | Path) or not str(directory) or "\0" in str(directory):
        raise FileError(f"runs needs the path of a directory; given: {directory!r}")
    root = Path(directory)
    try:
        there = sorted(os.scandir(root), key=lambda each: each.name)
    except OSError as error:
        hint = "; a fit writes there with out=" if isinstance(error, FileNotFoundError) else ""
        raise FileError(f"cannot list the runs in {root}: {error.strerror or error}{hint}") from error
    if {each.name for each in there} & {RECORD, SUMMARY, CHECKPOINT, HISTORY}:
        folders = [root]
    else:
        folders = [Path(each.path) for each in there if not each.name.startswith(".") and _is_folder(each)]
    rows = [_row(folder) for folder in folders]
    names = pd.Index([_text(folder.name or folder.resolve().name) for folder in folders], name="name", dtype=object)
    table = pd.DataFrame(rows, index=names, columns=list(_COLUMNS))
    table["when"] = pd.to_datetime(table["when"], utc=True)
    for name in ("pid", "steps", "held_out", "seconds", "bytes"):
        table[name] = table[name].astype(float)
    return table.sort_values("when", ascending=False, kind="stable", na_position="last")


class _Folder:
    """The files of a folder and of the generation before, with their sizes, and ``notes`` on what is wrong with them."""

    def __init__(self, path: Path) -> None:
        self.path, self.notes = path, list[str]()
        self.sizes: dict[str, int] = {}
        times = []
        for each in (*path.iterdir(), *(path / PREVIOUS).glob("*")):
            with contextlib.suppress(OSError):
                about = each.stat()
                # To open a pipe or a device may wait for ever.
                if stat.S_ISREG(about.st_mode):
                    self.sizes[str(each.relative_to(path))] = about.st_size
                    times.append(about.st_mtime)
        self.changed = max(times, default=None)

    def _end(self, name: str, most: int) -> bytes | None:
        """The last bytes of a file; None if it is missing or, with a note, cannot be read."""
        if name not in self.sizes:
            return None
        try:
            with (self.path / name).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - most))
                return file.read(most)
        except OSError as error:
            self.notes.append(f"{name} cannot be read: {error.strerror or error}")
            return None

    def json(self, name: str) -> dict[str, Any] | None:
        """What a file holds; None if it is missing or, with a note, damaged."""
        data = self._end(name, _MOST_BYTES)
        if data is None:
            return None
        content = json_object(data) if self.sizes[name] <= _MOST_BYTES else None
        if content is None:
            self.notes.append(f"{name} is damaged")
        return content

    def last_report(self) -> dict[str, Any]:
        """The last whole line of the history; empty if there is none. A line that a crash cut off is no fault."""
        # What follows the last line end was cut off, or is being written now.
        lines = (self._end(HISTORY, _TAIL) or b"").split(b"\n")[:-1]
        found = next(filter(None, map(json_object, reversed(lines))), None)
        if found is None and any(lines):
            self.notes.append(f"{HISTORY} is damaged")
        return found or {}


def _row(path: Path) -> dict[str, Any]:
    """What is known of one folder."""
    row: dict[str, Any] = dict.fromkeys(_COLUMNS) | {"path": _text(str(path)), "problem": "", "note": ""}
    try:
        folder = _Folder(path)
    except OSError as error:
        return row | {"state": "damaged", "note": f"cannot be listed: {error.strerror or error}"}
    record, summary, look = folder.json(RECORD), folder.json(SUMMARY), folder.last_report()
    writer = RunDirectory.holder(path) if LOCK in folder.sizes else None
    state, ended = ("running", False) if writer is not None else _state(folder, record, summary)
    # While it runs, the summary is that of the run before.
    done = (summary or {}) if ended else {}
    return row | {
        "problem": _text((record or {}).get("problem") or (summary or {}).get("problem"))[:200],
        "state": state,
        "pid": None if writer is None else _number(writer.get("pid")),
        "steps": _number(done.get("nit"), look.get("step")),
        "held_out": _number(look.get("held_out")),
        "seconds": _number(done.get("seconds"), look.get("seconds")),
        "when": ended if isinstance(ended, datetime) else _moment(folder.changed),
        "bytes": sum(folder.sizes.values()),
        "note": "; ".join(folder.notes),
    }


def _state(folder: _Folder, record: dict[str, Any] | None, summary: dict[str, Any] | None) -> tuple[str, datetime | bool]:
    """The state of a run at which nobody is at work; and when it ended, or whether it has ended at all."""
    sizes, notes = folder.sizes, folder.notes
    ended = (record or {}).get("ended")
    if not isinstance(ended, dict | None):
        notes.append(f"{RECORD} is damaged")
    if record is None and (RECORD in sizes or (notes and summary is None)):
        return "damaged", False
    if isinstance(ended, dict):
        if SOLUTION not in sizes:
            notes.append(f"no {SOLUTION}")
        at = _moment(ended.get("at")) or True
        if ended.get("status") != "interrupted":
            return _outcome(folder, ended.get("success"), RECORD), at
    elif record is not None and notes:
        return "damaged", False
    if record is not None:
        if CHECKPOINT not in sizes:
            notes.append("no checkpoint: it would begin anew")
        return ("unfinished", False) if ended is None else ("interrupted", at)
    if summary is not None:
        return _outcome(folder, summary.get("success"), SUMMARY), True
    if CHECKPOINT in sizes:
        notes.append(f"no {RECORD}")
        return "unfinished", False
    if HISTORY in sizes or SOLUTION in sizes:
        notes.append(f"neither {RECORD} nor {SUMMARY}")
        return "damaged", False
    return "not a run", False


def _outcome(folder: _Folder, success: object, name: str) -> str:
    if not isinstance(success, bool):
        folder.notes.append(f"{name} is damaged")
        return "damaged"
    return "success" if success else "not a success"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A circle of links is a row.
        return True


def _number(*values: object) -> float | None:
    """The first that is a number."""
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                return float(value)
    return None


def _text(value: object) -> str:
    """A text that can be encoded: names of files may be any bytes, and JSON may hold half a character."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _moment(found: Any) -> datetime | None:
    """A time of UTC, from seconds or from a text."""
    with contextlib.suppress(TypeError, ValueError, OverflowError, OSError):
        found = datetime.fromisoformat(found) if isinstance(found, str) else datetime.fromtimestamp(found, UTC)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return None


def lines_of(table: pd.DataFrame) -> list[list[str]]:
    """The table of ``runs`` as texts for people; what a terminal could take for a command, or cannot show, is replaced."""
    formats = {"steps": ".0f", "held_out": ".2e", "seconds": ".1f", "when": "%Y-%m-%d %H:%M"}
    found = []
    for name, row in zip(table.index, table.to_dict("records"), strict=True):
        known = {key: value for key, value in row.items() if not pd.isna(value)}
        cells = [
            *(str(name), row["problem"], row["state"] + (f" ({row['pid']:.0f})" if "pid" in known else "")),
            *(format(known[key], digits) if key in known else "" for key, digits in formats.items()),
            *(readable(known["bytes"]) if "bytes" in known else "", row["note"]),
        ]
        found.append(["".join(sign if sign.isprintable() else "\ufffd" for sign in cell) for cell in cells])
    return found
