"""``manifest.json``: the checksums of the files of a run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
_FORMAT = 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST = 2**24


@dataclasses.dataclass(frozen=True)
class Entry:
    """SHA-256 of a file's newest content, of the one before it, and of the one before that.

    While a write goes on, the file still has the previous content and its kept copy the one before.
    """

    newest: str
    previous: str | None
    older: str | None

    @property
    def under_name(self) -> tuple[str | None, ...]:
        """What the file may have."""
        return self.newest, self.previous

    @property
    def kept(self) -> tuple[str | None, ...]:
        """What the copy under ``.previous`` may have."""
        return self.previous, self.older

    def followed_by(self, newest: str, present: str | None) -> Entry:
        """The entry for the next content, with what lies under the name now; None when that is damaged or gone.

        Example:
            >>> from sciml.manifest import Entry
            >>> Entry("b" * 64, "a" * 64, None).followed_by("c" * 64, "b" * 64).kept == ("b" * 64, "a" * 64)
            True
        """
        if present is None:
            return dataclasses.replace(self, newest=newest)
        if present == self.previous:
            # The last write did not come to its end: the copy is of the previous content, or still of the one before.
            return Entry(newest, present, self.older)
        return Entry(newest, present, self.previous)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The entries by file, and whether they could be read (``state``: whole, missing, damaged).

    The text is the only one that stands for its entries, and holds their SHA-256: a byte that changed anywhere is found out.

    Example:
        >>> from sciml.manifest import Entry, Manifest
        >>> Manifest({}, "missing").with_entry("a.json", Entry("0" * 64, None, None)).as_bytes().count(b"a.json")
        1
    """

    entries: dict[str, Entry]
    state: str

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """The manifest of a directory; without entries if it is missing or damaged."""
        try:
            with (directory / MANIFEST).open("rb") as file:
                data = file.read(_MOST + 1)
        except FileNotFoundError:
            return cls({}, "missing")
        except OSError:
            return cls({}, "damaged")
        try:
            entries = {name: _entry(each) for name, each in json.loads(data)["files"].items()}
            found = cls(entries, "whole")
            if len(data) <= _MOST and found.as_bytes() == data:
                return found
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
            pass
        return cls({}, "damaged")

    def with_entry(self, name: str, entry: Entry) -> Manifest:
        """The same with another entry for one file."""
        return dataclasses.replace(self, entries={**self.entries, name: entry})

    def as_bytes(self) -> bytes:
        """The text of the file."""
        files = {name: dataclasses.asdict(self.entries[name]) for name in sorted(self.entries)}
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
        return (json.dumps({"format": _FORMAT, "sha256": digest, "files": files}, indent=1) + "\n").encode()


def _entry(found: Any) -> Entry:
    entry = Entry(**found)
    given = [each for each in (entry.newest, entry.previous, entry.older) if each is not None]
    if entry.newest is None or not all(_DIGEST.fullmatch(each) for each in given):
        raise ValueError("no checksum")
    return entry
