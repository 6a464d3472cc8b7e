"""The directory of a run: one writer at a time, every file in two generations, and checksums of all of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from sciml import archive, generations, lock
from sciml.archive import PREVIOUS
from sciml.errors import ArchiveWarning, FileError, listed, nearest
from sciml.manifest import MANIFEST, Entry, Manifest

_Value = TypeVar("_Value")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_LONGEST = 150
_PATIENCE = 50
_held: dict[Path, RunDirectory] = {}


class RunDirectory:
    r"""A directory in which one process at a time writes, and nothing that was written is lost.

    ``with RunDirectory(path) as run:`` makes the directory, locks it, and sweeps what writers that died left behind. The lock
    is the kernel's: when its holder dies it is free at once, so that a stale one does not exist. Reading needs no lock.

    Each ``write`` keeps the file that was there as ``.previous/name`` and notes the SHA-256 of both in ``manifest.json``. For
    content C after B, and A before that, the steps are

    .. math::
        (B \mid A;\ BA) \to (B \mid A;\ CBA) \to (B \mid B;\ CBA) \to (C \mid B;\ CBA),

    file | previous file; manifest. Every step is one rename, written through to the disk before the next. After each of them
    the file under its name is whole, and what lies there agrees with the manifest: as the newest content, or as the one before
    it when the write did not finish. A file that is found damaged is not kept as the previous one, for that would be the
    end of the last good one.

    Args:
        path: the directory; parents are made as well.
        command: what was asked for on the command line, which the run's record keeps.

    Raises:
        FileError: when entered: another process writes there, or the directory cannot be made or written.

    Example:
        >>> import tempfile
        >>> from sciml.run_directory import RunDirectory
        >>> with RunDirectory(tempfile.mkdtemp()) as run:
        ...     for step in (1, 2):
        ...         _ = run.save("checkpoint.pt", {"step": step})
        ...     _ = (run.path / "checkpoint.pt").write_bytes(b"spoiled")
        >>> list(run.verify()["state"])  # of the manifest, of the file, and of the one before it
        ['whole', 'damaged', 'whole']
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     run.load("checkpoint.pt")["step"]
        1
    """

    def __init__(self, path: str | Path, *, command: Mapping[str, Any] | None = None) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path) or "\0" in str(path):
            raise FileError(f"the directory of a run must be a path, such as 'runs/decay'; given: {path!r}")
        # Absolute: it stays the same wherever the process goes.
        self.path, self.command = (
            Path(os.path.abspath(os.path.expanduser(path))),
            None if command is None else dict(command),
        )
        self._lock: lock.Lock | None = None
        self._mutex = threading.RLock()

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    def __enter__(self) -> RunDirectory:
        if self.held:
            raise FileError(f"{self.path} is already being written by this very object; do not enter it twice")
        # A callback may change the working directory.
        self.path = self.path.absolute()
        try:
            made = not self.path.is_dir()
            self.path.mkdir(parents=True, exist_ok=True)
            if made:
                archive.flush(self.path.parent)
        except OSError as error:
            raise FileError(f"cannot make the directory {self.path}: {error}") from error
        self._lock = lock.Lock(self.path)
        try:
            self._sweep()
            self._mend()
        except BaseException:
            self._lock.release()
            self._lock = None
            raise
        _held[self.path.resolve()] = self
        return self

    def __exit__(self, *_: object) -> None:
        _held.pop(self.path.resolve(), None)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock, and may write."""
        return self._lock is not None and self._lock.held

    def write(self, name: str, content: bytes) -> Path:
        """Write a file; the one that was there becomes the previous one.

        Args:
            name: of the file, without directories.
            content: all of it.

        Returns:
            Its path.

        Raises:
            FileError: the lock is not held, the name cannot be one, or the file cannot be written; what was there is unchanged.

        Example:
            >>> import tempfile
            >>> from sciml.run_directory import RunDirectory
            >>> with RunDirectory(tempfile.mkdtemp()) as run:
            ...     run.write("summary.json", b"{}").name
            'summary.json'
        """
        with self._written(name) as temporary:
            temporary.write_bytes(content)
            self._install(name, temporary, hashlib.sha256(content).hexdigest())
        return self.path / name

    @contextlib.contextmanager
    def replaced(self, name: str) -> Iterator[Path]:
        """A file to write to piece by piece, which takes the place of another when the block ends well.

        Raises:
            FileError: as ``write``.
        """
        with self._written(name) as temporary:
            yield temporary
            self._install(name, temporary, generations.digest_of(temporary))

    def save(self, name: str, content: dict[str, Any]) -> Path:
        """Write tensors and plain values (numbers, texts, lists, dicts), with a checksum of their own.

        Raises:
            FileError: as ``write``.
        """
        return self.write(name, archive.packed(content))

    def load(self, name: str) -> dict[str, Any]:
        """What ``save`` saved: the newest generation that is whole.

        Raises:
            FileError: none is; the message names what was tried.
            ArchiveWarning: a warning, that the newest was damaged and the one before it was taken.
        """
        return self._newest(name, archive.unpacked)

    def read(self, name: str) -> bytes:
        """The content of a file: the newest generation that is whole.

        Raises:
            FileError: none is; the message names what was tried.
            ArchiveWarning: a warning, that the newest was damaged and the one before it was taken, or that the manifest is
                damaged and nothing can be checked.
        """
        return self._newest(name, lambda content, _: content)

    def remove(self, name: str) -> None:
        """Remove a file with its previous generation; nothing happens where there is none.

        Raises:
            FileError: the lock is not held, or the file cannot be removed.
        """
        self._check_held(name)
        with self._mutex:
            rest = {each: entry for each, entry in Manifest.read(self.path).entries.items() if each != name}
            # A file that is not listed is no alarm; one that is listed but missing would be.
            archive.write_atomic(self.path / MANIFEST, Manifest(rest, "whole").as_bytes())
            # In this order: a copy alone would be taken for the file.
            for file in (self.path / PREVIOUS / name, self.path / name):
                archive.removed(file)

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name, in any generation, whole or not."""
        self._check_name(name)
        return (self.path / name).is_file() or (self.path / PREVIOUS / name).is_file()

    def verify(self) -> pd.DataFrame:
        """Every file and its previous generation, compared with the checksums.

        Returns:
            A row for each: ``file``, ``generation`` (newest, previous), ``state`` (whole, damaged, missing, unlisted), and
            ``advice``, what to do.

        Raises:
            FileError: there is no such directory.
        """
        if not self.path.is_dir():
            raise FileError(f"there is no directory {self.path}")
        from sciml.verification import rows

        return pd.DataFrame(rows(self.path), columns=["file", "generation", "state", "advice"])

    @staticmethod
    def holder(path: str | Path) -> dict[str, Any] | None:
        """Who writes into a directory now: process, host and since when; None if nobody does.

        Example:
            >>> import os, tempfile
            >>> from sciml.run_directory import RunDirectory
            >>> with RunDirectory(tempfile.mkdtemp()) as run:
            ...     RunDirectory.holder(run.path)["pid"] == os.getpid()
            True
            >>> RunDirectory.holder(run.path) is None
            True
        """
        return lock.holder(Path(path))

    @staticmethod
    def may_have(name: object) -> bool:
        """Whether a file of a run can have this name.

        Example:
            >>> from sciml.run_directory import RunDirectory
            >>> RunDirectory.may_have("../summary.json")
            False
        """
        return (
            isinstance(name, str) and _NAME.fullmatch(name) is not None and name != MANIFEST and len(name) <= _LONGEST
        )

    def _check_name(self, name: str) -> None:
        if not self.may_have(name):
            raise FileError(
                f"a file of a run has a plain name, such as 'summary.json', that is not {MANIFEST!r}; given: {name!r}"
            )

    def _check_held(self, name: str) -> None:
        if not self.held:
            raise FileError(
                f"cannot change {name} in {self.path} without its lock: with RunDirectory({str(self.path)!r}) as run: ..."
            )

    @contextlib.contextmanager
    def _written(self, name: str) -> Iterator[Path]:
        self._check_name(name)
        self._check_held(name)
        with self._mutex, archive.temporary(self.path / name) as temporary:
            yield temporary

    def _install(self, name: str, temporary: Path, digest: str) -> None:
        """Put a written file in its place; the class describes the steps."""
        target, manifest = self.path / name, Manifest.read(self.path)
        archive.settle(temporary, target)
        entry = manifest.entries.get(name)
        present = generations.digest_of(target) if target.is_file() else None
        if entry is not None and present == digest == entry.newest:
            return
        listed_before = entry is not None
        if entry is None:
            kept = self.path / PREVIOUS / name
            entry = Entry(
                digest, present, generations.digest_of(kept) if present is not None and kept.is_file() else None
            )
        else:
            if present not in entry.under_name:
                present = None
            entry = entry.followed_by(digest, present)
        with archive.temporary(self.path / MANIFEST) as noted:
            noted.write_bytes(manifest.with_entry(name, entry).as_bytes())
            archive.settle(noted, self.path / MANIFEST)
            if present is None and not listed_before:
                # There is nothing to lose yet, and a file that is not listed is no alarm; one that is listed but missing is.
                generations.moved(temporary, target)
                generations.moved(noted, self.path / MANIFEST)
                return
            generations.moved(noted, self.path / MANIFEST)
        if present is not None:
            generations.keep(target)
        generations.moved(temporary, target)

    def _sweep(self) -> None:
        """Remove temporary files of writers that died."""
        for directory in (self.path, self.path / PREVIOUS):
            with contextlib.suppress(OSError):
                for each in list(directory.iterdir()):
                    if archive.orphaned(each.name):
                        with contextlib.suppress(OSError):
                            each.unlink()

    def _mend(self) -> None:
        """Make a manifest again where it is damaged, or gone although there are previous generations."""
        manifest, kept = Manifest.read(self.path), self.path / PREVIOUS
        names = sorted(each.name for each in kept.glob("*") if _NAME.fullmatch(each.name) and each.is_file())
        if manifest.state == "whole" or (manifest.state == "missing" and not names):
            return
        for name in names:
            newest, previous = generations.sound(self.path / name), generations.sound(kept / name)
            known = newest or previous
            if known is not None:
                manifest = manifest.with_entry(name, Entry(known, previous or known, None))
        archive.write_atomic(self.path / MANIFEST, manifest.as_bytes())
        warnings.warn(
            f"{self.path / MANIFEST} was {manifest.state} and was made again from the files that are there; only those with a "
            "checksum of their own could be checked",
            ArchiveWarning,
            stacklevel=3,
        )

    def _newest(self, name: str, parse: Callable[[bytes, Path], _Value]) -> _Value:
        self._check_name(name)
        tried = []
        for file in (self.path / name, self.path / PREVIOUS / name):
            try:
                value = parse(self._whole(name, file), file)
            except FileError as error:
                tried.append(str(error))
                continue
            if tried:
                message = f"{tried[0]}; the one saved before it was taken, {file}"
                warnings.warn(message, ArchiveWarning, stacklevel=3)
            return value
        if not self.exists(name):
            names = sorted(Manifest.read(self.path).entries)
            raise FileError(f"there is no file {name} in {self.path}; files: {listed(names)}.{nearest(name, names)}")
        raise FileError(f"no generation of {name} in {self.path} is whole: {'; '.join(tried)}")

    def _whole(self, name: str, file: Path) -> bytes:
        """The content of a file that agrees with the manifest, read while another process may write."""
        before: tuple[Any, str] | None = None
        for _ in range(_PATIENCE):
            manifest = Manifest.read(self.path)
            content = archive.read(file)
            digest, entry = hashlib.sha256(content).hexdigest(), manifest.entries.get(name)
            if manifest.state == "damaged":
                message = f"{self.path / MANIFEST} is damaged: {file} is taken as it is"
                warnings.warn(message, ArchiveWarning, stacklevel=5)
            if entry is None or digest in (entry.under_name if file.parent == self.path else entry.kept):
                return content
            # Only what stays the same between two looks is damage, and not a write in between.
            if before == (entry, digest):
                break
            before = (entry, digest)
        raise FileError(f"{file} is damaged: its content does not agree with its checksum in {MANIFEST}")


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """As ``archive.replaced``; a file in the directory of a run is listed there, with its previous generation.

    Raises:
        FileError: the file cannot be written, or is one of a run that another process writes; an older one is still there.
    """
    if not (path.parent / MANIFEST).is_file():
        path = archive.followed(path)
    run = _held.get(path.parent.resolve())
    if run is None and (path.parent / MANIFEST).is_file() and RunDirectory.may_have(path.name):
        manifest = Manifest.read(path.parent)
        if path.name in manifest.entries or lock.holder(path.parent) is None:
            with RunDirectory(path.parent) as run, run.replaced(path.name) as temporary:
                yield temporary
            return
    if run is not None and run.held and run.may_have(path.name):
        with run.replaced(path.name) as temporary:
            yield temporary
    else:
        with archive.replaced(path) as temporary:
            yield temporary


def write_file(path: Path, content: bytes) -> None:
    """As ``archive.write_atomic``; a file in the directory of a run is listed there, with its previous generation.

    Raises:
        FileError: as ``replaced``.
    """
    with replaced(path) as temporary:
        temporary.write_bytes(content)
