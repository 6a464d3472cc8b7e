"""A lock on a directory that its holder cannot leave behind: it is the kernel's, and goes when the process goes.

``manifest.json``: the checksums of the files of a run.

The steps in which a file takes the place of another, which is kept.

The files of a run compared with their checksums.

The directory of a run: one writer at a time, every file in two generations, and checksums of all of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from sciml._text import listed, nearest
from sciml.data import archive
from sciml.data.archive import PREVIOUS
from sciml.errors import ArchiveWarning, FileError

LOCK = ".lock"

_LOCK_PATIENCE = 0.2

_PAUSE = 0.01

# Beyond the text, which others must be able to read: on Windows a locked byte cannot be read.
_FAR = 2**30

_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}

_TAKEN = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


class Lock:
    """The right to write into a directory, taken at once or not at all, until ``release`` or the end of the process.

    Args:
        directory: it is there already.

    Raises:
        FileError: another process holds it, named by number and host; or its file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> lock = Lock(pathlib.Path(tempfile.mkdtemp()))
        >>> lock.held
        True
        >>> lock.release()
    """

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise FileError(f"cannot write into {directory}: {error}") from error
        self._handle: int | None = handle
        try:
            self._take(directory)
            told = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "since": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            }
            os.ftruncate(handle, 0)
            os.lseek(handle, 0, os.SEEK_SET)
            os.write(handle, json.dumps(told).encode())
        except OSError as error:
            self._close()
            if isinstance(error, FileError):
                raise
            raise FileError(f"cannot write {path}: {error}") from error
        _locked.add(self)

    def _take(self, directory: Path) -> None:
        assert self._handle is not None
        end = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                _lock(self._handle, exclusive=True)
                return
            except OSError as error:
                if error.errno in _UNSUPPORTED:
                    warnings.warn(
                        f"the file system of {directory} has no locks ({error}): a second writer would not be noticed",
                        ArchiveWarning,
                        stacklevel=5,
                    )
                    return
                if error.errno not in _TAKEN:
                    raise FileError(
                        f"cannot lock {directory}: {error}; repair its file system, or choose another directory"
                    ) from error
            # Someone who looks whether there is a holder has it for a moment.
            if time.monotonic() > end:
                told = _told(directory)
                raise FileError(
                    f"{directory} is being written by process {told['pid']} on {told['host']} since {told['since']}: wait "
                    "until it ends, stop it, or choose another directory"
                )
            time.sleep(_PAUSE)

    @property
    def held(self) -> bool:
        """Whether it is still held."""
        return self._handle is not None

    def release(self) -> None:
        """Let others have it."""
        if self._handle is not None:
            # Who held it is of no interest any more; on a full disk the text may stay.
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
            self._close()

    def _close(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _locked.discard(self)
            with contextlib.suppress(OSError):
                os.close(handle)


def holder(directory: Path) -> dict[str, Any] | None:
    """Who holds the lock of a directory: ``pid``, ``host``, ``since`` (``unknown`` if unreadable); None if nobody does.

    Example:
        >>> import pathlib
        >>> holder(pathlib.Path("nowhere")) is None
        True
    """
    try:
        handle = os.open(
            directory / LOCK, (os.O_RDWR if os.name == "nt" else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)
        )
    except OSError:
        return None
    try:
        _lock(handle, exclusive=False)
    except OSError as error:
        return _told(directory) if error.errno in _TAKEN else None
    finally:
        os.close(handle)
    return None


def _told(directory: Path) -> dict[str, Any]:
    """What the lock's file says of its holder."""
    unknown = dict.fromkeys(("pid", "host", "since"), "unknown")
    try:
        with (directory / LOCK).open("rb") as file:
            told = json.loads(file.read(4096))
    except (OSError, ValueError, RecursionError):
        return unknown
    return {key: told.get(key, "unknown") for key in unknown} if isinstance(told, dict) else unknown


def _lock(handle: int, *, exclusive: bool) -> None:
    """Take the kernel's lock on an open file at once, or raise ``OSError``; it goes when the file is closed."""
    if os.name == "nt":  # pragma: no cover
        import msvcrt

        os.lseek(handle, _FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    import fcntl

    fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


def _forget() -> None:
    """In a copy of the process: close what it has of its parent's locks, which would outlive the parent otherwise."""
    for each in list(_locked):
        each._close()


_locked: weakref.WeakSet[Lock] = weakref.WeakSet()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def digest_of(path: Path) -> str:
    """The SHA-256 of a file.

    Example:
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


_LOOKS = 100

_NOTHING = "nothing"


def rows(directory: Path) -> list[tuple[str, str, str, str]]:
    """File, generation, state and what to do, for every file of a run.

    A file that is written meanwhile is looked at again, so that a write in between is not taken for damage.

    Example:
        >>> import tempfile
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
        self._lock: Lock | None = None
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
        self._lock = Lock(self.path)
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
            self._install(name, temporary, digest_of(temporary))

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

        return pd.DataFrame(rows(self.path), columns=["file", "generation", "state", "advice"])

    @staticmethod
    def holder(path: str | Path) -> dict[str, Any] | None:
        """Who writes into a directory now: process, host and since when; None if nobody does.

        Example:
            >>> import os, tempfile
            >>> with RunDirectory(tempfile.mkdtemp()) as run:
            ...     RunDirectory.holder(run.path)["pid"] == os.getpid()
            True
            >>> RunDirectory.holder(run.path) is None
            True
        """
        return holder(Path(path))

    @staticmethod
    def may_have(name: object) -> bool:
        """Whether a file of a run can have this name.

        Example:
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
        present = digest_of(target) if target.is_file() else None
        if entry is not None and present == digest == entry.newest:
            return
        listed_before = entry is not None
        if entry is None:
            kept = self.path / PREVIOUS / name
            entry = Entry(digest, present, digest_of(kept) if present is not None and kept.is_file() else None)
        else:
            if present not in entry.under_name:
                present = None
            entry = entry.followed_by(digest, present)
        with archive.temporary(self.path / MANIFEST) as noted:
            noted.write_bytes(manifest.with_entry(name, entry).as_bytes())
            archive.settle(noted, self.path / MANIFEST)
            if present is None and not listed_before:
                # There is nothing to lose yet, and a file that is not listed is no alarm; one that is listed but missing is.
                moved(temporary, target)
                moved(noted, self.path / MANIFEST)
                return
            moved(noted, self.path / MANIFEST)
        if present is not None:
            keep(target)
        moved(temporary, target)

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
            newest, previous = sound(self.path / name), sound(kept / name)
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


def _recorded(path: Path) -> contextlib.AbstractContextManager[Path] | None:
    """How a file in the directory of a run is replaced; None for files elsewhere."""
    if not (path.parent / MANIFEST).is_file():
        path = archive.followed(path)
    run = _held.get(path.parent.resolve())
    if run is None and (path.parent / MANIFEST).is_file() and RunDirectory.may_have(path.name):
        manifest = Manifest.read(path.parent)
        if path.name in manifest.entries or holder(path.parent) is None:
            return _opened(path)
    return run.replaced(path.name) if run is not None and run.held and run.may_have(path.name) else None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Path]:
    with RunDirectory(path.parent) as run, run.replaced(path.name) as temporary:
        yield temporary


archive.keeps_books(_recorded)
