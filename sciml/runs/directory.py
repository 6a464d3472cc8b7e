"""Run directory: a file lock for one writer at a time, two generations of every file, and a manifest of SHA-256 checksums."""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from filelock import FileLock, Timeout

from sciml._text import among
from sciml.data import archive
from sciml.data.archive import PREVIOUS
from sciml.data.provenance import digest_of
from sciml.errors import ArchiveWarning, FileError
from sciml.runs.history import json_object

if os.name != "nt":
    import fcntl

LOCK, MANIFEST = ".lock", "manifest.json"
RECORD, HISTORY, CHECKPOINT = "run.json", "history.jsonl", "checkpoint.pt"
SOLUTION, SUMMARY = "solution.pt", "summary.json"

# A process that looks for the holder of a lock shares it for a moment.
_PATIENCE = 0.2
_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
_TAKEN = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
_FORMAT = 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,149}")
_MOST_BYTES = 2**24
# How often files are looked at again that another process may be writing.
_LOOKS = 100
_NOTHING = "nothing"

_Value = TypeVar("_Value")

_held: dict[Path, RunDirectory] = {}


def lock(directory: Path) -> FileLock:
    """Lock a directory at once, or raise a ``FileError`` that names the holder; the lock ends with the process."""

    def describe(handle: int) -> None:
        since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}).encode())

    options: Any = {"thread_local": False, "poll_interval": 0.01, "preserve_lock_file": True, "on_acquired": describe}
    found = FileLock(directory / LOCK, _PATIENCE, **options)
    try:
        found.acquire()
    except Timeout:
        other = _described(directory)
        raise FileError(
            f"{directory} is being written by process {other['pid']} on {other['host']} since {other['since']}: wait until it "
            "ends, stop it, or choose another directory"
        ) from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise FileError(f"cannot lock {directory}: {error}; choose another directory") from error
        warnings.warn(
            f"the file system of {directory} has no locks ({error}): a second writer would not be noticed",
            ArchiveWarning,
            stacklevel=4,
        )
    return found


def _described(directory: Path) -> dict[str, Any]:
    """The holder of a lock by the text of its file."""
    found = None
    with contextlib.suppress(OSError), (directory / LOCK).open("rb") as file:
        found = json_object(file.read(4096))
    return {**dict.fromkeys(("pid", "host", "since"), "unknown"), **(found or {})}


def _state(path: Path) -> tuple[str, str]:
    """Whether a file that is not listed is whole, damaged or missing, and what to do; ``unlisted`` without own checksum."""
    try:
        with path.open("rb") as file:
            if file.read(6) != b"sciml ":
                return "unlisted", "nothing; it was not written as a file of the run, and cannot be checked"
        archive.checked(archive.read(path), path)
    except FileNotFoundError:
        return "missing", "write it again"
    except OSError as error:
        return "damaged", str(error)
    return "whole", "nothing; it has a checksum of its own"


def _manifest(directory: Path) -> tuple[dict[str, list[str]], str]:
    """The SHA-256 of the last contents of every file, and whether the manifest is ``whole``, ``missing`` or ``damaged``.

    For each file there are those of its newest content, of the one before it, and of the one before that, as far as they
    exist. While a write goes on, the file still has the second content and its copy the third.
    """
    try:
        with (directory / MANIFEST).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        files = json.loads(data)["files"]
        known = all(each and all(map(_DIGEST.fullmatch, each)) for each in files.values())
        # The text is the only one that stands for its entries: a byte that changed anywhere is found out.
        if known and len(data) <= _MOST_BYTES and _manifest_text(files) == data:
            return files, "whole"
    except (FileNotFoundError, NotADirectoryError):
        return {}, "missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
        pass
    return {}, "damaged"


def _manifest_text(files: Mapping[str, list[str]]) -> bytes:
    files = {name: files[name] for name in sorted(files)}
    digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    return (json.dumps({"format": _FORMAT, "sha256": digest, "files": files}, indent=1) + "\n").encode()


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
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self.command = None if command is None else dict(command)
        self._lock: FileLock | None = None
        self._process: int | None = None
        self._mutex = threading.RLock()

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    def __enter__(self) -> RunDirectory:
        if self.held:
            raise FileError(f"{self.path} is already being written by this very object; do not enter it twice")
        try:
            made = not self.path.is_dir()
            self.path.mkdir(parents=True, exist_ok=True)
            if made:
                archive.flush(self.path.parent)
        except OSError as error:
            raise FileError(f"cannot make the directory {self.path}: {error}") from error
        self._lock, self._process = lock(self.path), os.getpid()
        _held[self.path.resolve()] = self
        try:
            self._sweep()
            self._mend()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _held.pop(self.path.resolve(), None)
        if self._lock is not None:
            self._lock.release()
        self._lock = self._process = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock, and may write; in a copy of the process it does not."""
        return self._process == os.getpid()

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
        with self.replaced(name) as temporary:
            temporary.write_bytes(content)
        return self.path / name

    @contextlib.contextmanager
    def replaced(self, name: str) -> Iterator[Path]:
        """A file to write to piece by piece, which takes the place of another when the block ends well."""
        self._check(name, write=True)
        with self._mutex, archive.temporary(self.path / name) as temporary:
            yield temporary
            self._install(name, temporary)

    def save(self, name: str, content: dict[str, Any]) -> Path:
        """Write tensors and plain values (numbers, texts, lists, dicts) with their own checksum; it raises as ``write``."""
        return self.write(name, archive.packed(content))

    def load(self, name: str) -> dict[str, Any]:
        """What ``save`` saved: the newest generation that is whole; it raises and warns as ``read``."""
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
        self._check(name, write=True)
        with self._mutex:
            rest = {each: entry for each, entry in _manifest(self.path)[0].items() if each != name}
            # A file that is not listed is no alarm; one that is listed but missing would be.
            archive.write_atomic(self.path / MANIFEST, _manifest_text(rest))
            # In this order: a copy alone would be taken for the file.
            for file in (self.path / PREVIOUS / name, self.path / name):
                try:
                    file.unlink(missing_ok=True)
                except OSError as error:
                    raise FileError(f"cannot remove {file}: {error}") from error

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name, in any generation, whole or not."""
        self._check(name, write=False)
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
        files, state = _manifest(self.path)
        try:
            names, copies = (
                sorted(each.name for each in found if each.is_file() and each.name[0] != ".")
                for found in (self.path.iterdir(), (self.path / PREVIOUS).glob("*"))
            )
        except OSError as error:
            raise FileError(f"{self.path} cannot be read: {error}") from error
        rows = []
        if state != "missing" or copies:
            advice = _NOTHING if state == "whole" else "the next run that writes here makes it again"
            rows.append((MANIFEST, "newest", state, advice))
        for name in sorted({*files, *names} - {MANIFEST}):
            if name in files:
                rows += self._compared(name)
            else:
                rows.append((name, "newest", *_state(self.path / name)))
        for name in sorted({*copies} - {*files}):
            rows.append((f"{PREVIOUS}/{name}", "previous", *_state(self.path / PREVIOUS / name)))
        return pd.DataFrame(rows, columns=["file", "generation", "state", "advice"])

    def _compared(self, name: str) -> list[tuple[str, str, str, str]]:
        """The rows of ``verify`` for a file that is listed."""
        copy, found = f"{PREVIOUS}/{name}", []
        entry, digest, agrees = self._look(self.path / name, 0, digest_of)
        entry_of_copy, digest_of_copy, good = self._look(self.path / copy, 1, digest_of)
        if agrees:
            unfinished = "; a later write did not come to its end" if entry and digest != entry[0] else ""
            found.append((name, "newest", "whole", _NOTHING + unfinished))
        else:
            remedy = f"the one saved before it is whole: it is taken, or copy {copy}" if good else "write it again"
            found.append((name, "newest", "missing" if isinstance(digest, FileNotFoundError) else "damaged", remedy))
        if good:
            found.append((copy, "previous", "whole", _NOTHING))
        elif not isinstance(digest_of_copy, FileNotFoundError):
            found.append((copy, "previous", "damaged", "nothing; the next write replaces it"))
        elif len(entry_of_copy) > 1 and digest != entry_of_copy[1]:
            found.append((copy, "previous", "missing", "nothing; the next write makes one"))
        return found

    def _look(self, file: Path, age: int, read: Callable[[Path], _Value]) -> tuple[list[str], _Value | OSError, bool]:
        """What is listed of a file (``age`` 0) or its copy (1), what ``read`` made of it, and whether these agree.

        A file that is written meanwhile is looked at again: only what stays the same between two looks is damage.
        """
        before = None
        for _ in range(_LOOKS):
            files, state = _manifest(self.path)
            entry = files.get(file.name, [])
            digest: Any = None
            try:
                found: Any = read(file)
                digest = hashlib.sha256(found).hexdigest() if isinstance(found, bytes) else found
            except OSError as error:
                found = error
            agrees = digest in entry[age : age + 2] or not (entry or isinstance(found, OSError))
            if agrees or before == (entry, digest):
                break
            before = entry, digest
        if state == "damaged":
            message = f"{self.path / MANIFEST} is damaged: {file} is taken as it is"
            warnings.warn(message, ArchiveWarning, stacklevel=5)
        return entry, found, agrees

    @staticmethod
    def holder(path: str | Path) -> dict[str, Any] | None:
        """Who writes into a directory now: ``pid``, ``host`` and ``since`` (``unknown`` if unreadable); None if nobody does.

        Example:
            >>> import os, tempfile
            >>> with RunDirectory(tempfile.mkdtemp()) as run:
            ...     RunDirectory.holder(run.path)["pid"] == os.getpid()
            True
            >>> RunDirectory.holder(run.path) is None
            True
        """
        try:
            file = (Path(path) / LOCK).open("rb")
        except OSError:
            return None
        with file:
            try:
                if os.name == "nt":  # pragma: no cover - a locked byte cannot be read there
                    file.read(1)
                else:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as error:
                return _described(Path(path)) if error.errno in _TAKEN else None
        return None

    @staticmethod
    def may_have(name: object) -> bool:
        """Whether a file of a run can have this name."""
        return isinstance(name, str) and _NAME.fullmatch(name) is not None and name != MANIFEST

    def _check(self, name: str, *, write: bool) -> None:
        if not self.may_have(name):
            raise FileError(f"a file of a run has a plain name, such as 'summary.json'; given: {name!r}")
        if write and not self.held:
            raise FileError(f"cannot change {name} in {self.path} without its lock: with RunDirectory(...) as run: ...")

    def _install(self, name: str, temporary: Path) -> None:
        """Put a written file in its place; the class describes the steps."""
        target, files = self.path / name, _manifest(self.path)[0]
        archive.settle(temporary, target)
        digest = digest_of(temporary)
        known = files.get(name)
        present = digest_of(target) if target.is_file() else None
        if known and present == digest == known[0]:
            return
        if known is None:
            copy = self.path / PREVIOUS / name
            older = [digest_of(copy)] if copy.is_file() else []
            entry = [digest] if present is None else [digest, present, *older]
        elif present == known[0] and present not in known[1:2]:
            entry = [digest, *known[:2]]
        else:
            # Where the last write did not come to its end, the copy is of the previous content, or still of the one before.
            present, entry = present if present in known[1:2] else None, [digest, *known[1:]]
        with archive.temporary(self.path / MANIFEST) as noted:
            noted.write_bytes(_manifest_text({**files, name: entry}))
            archive.settle(noted, self.path / MANIFEST)
            if present is None and known is None:
                # There is nothing to lose yet, and a file that is not listed is no alarm; one that is listed but missing is.
                archive.moved(temporary, target)
            archive.moved(noted, self.path / MANIFEST)
        if present is not None:
            self._keep(target)
        if temporary.exists():
            archive.moved(temporary, target)

    def _keep(self, target: Path) -> None:
        """Have a file under ``.previous`` too, and never be without it under its own name."""
        kept = self.path / PREVIOUS / target.name
        if not kept.parent.is_dir():
            kept.parent.mkdir()
            archive.flush(self.path)
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
            archive.moved(spare, kept)

    def _sweep(self) -> None:
        """Remove temporary files of writers that died."""
        for directory in (self.path, self.path / PREVIOUS):
            for each in list(directory.glob(".*")):
                if archive.orphaned(each.name):
                    with contextlib.suppress(OSError):
                        each.unlink()

    def _mend(self) -> None:
        """Make a manifest again where it is damaged, or gone although there are previous generations."""
        files, state = _manifest(self.path)
        names = [each.name for each in (self.path / PREVIOUS).glob("*") if self.may_have(each.name) and each.is_file()]
        if state == "whole" or (state == "missing" and not names):
            return
        for name in names:
            places = (self.path / name, self.path / PREVIOUS / name)
            sound = [digest_of(each) for each in places if _state(each)[0] in ("whole", "unlisted")]
            if sound:
                files[name] = [sound[0], sound[-1]]
        archive.write_atomic(self.path / MANIFEST, _manifest_text(files))
        warnings.warn(
            f"{self.path / MANIFEST} was {state} and was made again from the files that are there; only those with a "
            "checksum of their own could be checked",
            ArchiveWarning,
            stacklevel=3,
        )

    def _newest(self, name: str, parse: Callable[[bytes, Path], _Value]) -> _Value:
        self._check(name, write=False)
        tried = []
        for age, file in enumerate((self.path / name, self.path / PREVIOUS / name)):
            _, content, agrees = self._look(file, age, archive.read)
            try:
                if isinstance(content, OSError):
                    raise content
                if not agrees:
                    raise FileError(f"{file} is damaged: its content does not agree with its checksum in {MANIFEST}")
                value = parse(content, file)
            except FileError as error:
                tried.append(str(error))
                continue
            if tried:
                message = f"{tried[0]}; the one saved before it was taken, {file}"
                warnings.warn(message, ArchiveWarning, stacklevel=3)
            return value
        if not self.exists(name):
            names = sorted(_manifest(self.path)[0])
            raise FileError(f"there is no file {name} in {self.path}; files: {among(name, names)}")
        raise FileError(f"no generation of {name} in {self.path} is whole: {'; '.join(tried)}")


def _recorded(path: Path) -> contextlib.AbstractContextManager[Path] | None:
    """How a file in the directory of a run is replaced; None for files elsewhere."""
    if not (path.parent / MANIFEST).is_file():
        path = archive.followed(path)
    if not RunDirectory.may_have(path.name):
        return None
    run = _held.get(path.parent.resolve())
    if run is not None:
        return run.replaced(path.name) if run.held else None
    files, state = _manifest(path.parent)
    free = state != "missing" and (path.name in files or RunDirectory.holder(path.parent) is None)
    return _opened(path) if free else None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Path]:
    with RunDirectory(path.parent) as run, run.replaced(path.name) as temporary:
        yield temporary


archive.recorder = _recorded
