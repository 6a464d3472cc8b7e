"""The files of a run compared with their checksums."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sciml import archive
from sciml.archive import PREVIOUS
from sciml.errors import FileError
from sciml.manifest import MANIFEST, Entry, Manifest

_LOOKS = 100
_NOTHING = "nothing"


def rows(directory: Path) -> list[tuple[str, str, str, str]]:
    """File, generation, state and what to do, for every file of a run.

    A file that is written meanwhile is looked at again, so that a write in between is not taken for damage.

    Example:
        >>> import tempfile
        >>> from sciml.run_directory import RunDirectory
        >>> with RunDirectory(tempfile.mkdtemp()) as run:
        ...     _ = run.write("summary.json", b"{}")
        >>> run.verify().iloc[0].tolist()
        ['manifest.json', 'newest', 'whole', 'nothing']
    """
    manifest = Manifest.read(directory)
    entries = manifest.entries
    try:
        present = sorted(each.name for each in directory.iterdir() if each.is_file() and each.name[0] != ".")
        kept = sorted(each.name for each in (directory / PREVIOUS).glob("*") if each.is_file() and each.name[0] != ".")
    except OSError as error:
        raise FileError(f"{directory} cannot be read: {error}") from error
    found = []
    if manifest.state != "missing" or kept:
        advice = _NOTHING if manifest.state == "whole" else "the next run that writes here makes it again"
        found.append((MANIFEST, "newest", manifest.state, advice))
    for name in sorted({*entries, *present} - {MANIFEST}):
        file, earlier = directory / name, directory / PREVIOUS / name
        if name in entries:
            found += _settled(file, earlier, entries[name])
        else:
            found.append((name, "newest", *archive.state(file)))
    for name in kept:
        if name not in entries:
            found.append((f"{PREVIOUS}/{name}", "previous", *archive.state(directory / PREVIOUS / name)))
    return found


def _settled(file: Path, earlier: Path, entry: Entry) -> list[tuple[str, str, str, str]]:
    """What is found when no write comes between the look at the manifest and the looks at the files."""
    for _ in range(_LOOKS):
        found = _listed(file, earlier, entry)
        if all(state == "whole" for _, _, state, _ in found):
            break
        now = Manifest.read(file.parent).entries.get(file.name)
        if now in (None, entry):
            break
        entry = now
    return found


def _listed(file: Path, earlier: Path, entry: Entry) -> list[tuple[str, str, str, str]]:
    # In this order: a new content comes under the name only after the one that was there has its copy.
    now = _digest(file)
    before = _digest(earlier)
    good = before is not None and before in entry.kept
    name, copy = file.name, f"{PREVIOUS}/{file.name}"
    found = []
    if now == entry.newest:
        found.append((name, "newest", "whole", _NOTHING))
    elif now is not None and now == entry.previous:
        found.append((name, "newest", "whole", "nothing; a later write did not come to its end"))
    else:
        remedy = f"the one saved before it is whole: it is taken, or copy {copy}" if good else "write it again"
        found.append((name, "newest", "missing" if now is None else "damaged", remedy))
    if good:
        found.append((copy, "previous", "whole", _NOTHING))
    elif before is not None:
        found.append((copy, "previous", "damaged", "nothing; the next write replaces it"))
    elif entry.previous is not None and now != entry.previous:
        found.append((copy, "previous", "missing", "nothing; the next write makes one"))
    return found


def _digest(path: Path) -> str | None:
    """The SHA-256 of a file; None without one, empty for one that cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    except OSError:
        return ""
