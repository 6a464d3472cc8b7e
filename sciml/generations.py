"""The steps in which a file takes the place of another, which is kept."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from sciml import archive
from sciml.archive import PREVIOUS


def digest_of(path: Path) -> str:
    """The SHA-256 of a file.

    Example:
        >>> from sciml.generations import digest_of
        >>> len(digest_of(__import__("pathlib").Path(__import__("sciml").__file__)))
        64
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sound(path: Path) -> str | None:
    """The SHA-256 of a file that is not found damaged by a checksum of its own; None for any other, or without one."""
    return None if archive.state(path)[0] in ("damaged", "missing") else digest_of(path)


def moved(source: Path, target: Path) -> None:
    """Rename a file, for good before anything else is done."""
    archive.moved(source, target)


def keep(target: Path) -> None:
    """Have a file under ``.previous`` too, and never be without it under its own name."""
    kept = target.parent / PREVIOUS / target.name
    if not kept.parent.is_dir():
        kept.parent.mkdir()
        archive.flush(target.parent)
    with archive.temporary(kept) as spare:
        spare.unlink()
        try:
            os.link(target, spare)
        except OSError:
            # Some file systems have no hard links.
            os.close(os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            shutil.copyfile(target, spare)
            archive.settle(spare, target)
        # Where both are one file already this does nothing, and the spare name goes with the block.
        moved(spare, kept)
