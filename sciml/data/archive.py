"""Files that are either complete or not there: temporary file, fsync, rename; and tensors with their own checksum.

Tensors and plain values in torch's files: what may go in, and how it comes out without running what is in there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import pickle
import pickletools
import re
import secrets
import stat
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sciml._text import listed
from sciml.errors import FileError

_OLDEST = (2, 10)

_DEPTH = 100

# A tensor may repeat its elements without taking memory for them; whoever copies it takes the memory.
_REPEATED = 2**28

_DIRECTORY, _ENCRYPTED = 0x10, 0x2041

_VALUES = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size}

_CONTAINERS = {dict, OrderedDict, list, tuple, set}

_GLOBALS = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "torch Size",
    "torch device",
    "_codecs encode",
    "__builtin__ set",
    "__builtin__ complex",
    "builtins set",
    "builtins complex",
    *(f"torch {str(dtype).removeprefix('torch.')}" for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)),
}

_STORAGE = re.compile(
    r"torch (Double|Float|Half|BFloat16|Long|Int|Short|Char|Byte|Bool|ComplexDouble|ComplexFloat)Storage"
)

_DTYPES = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
}


def tensors(data: bytes | memoryview, path: Path, *, compare: bool) -> dict[str, Any]:
    """The dict of tensors and plain values in the bytes of a torch file.

    Nothing is loaded before it is known that no part of it is compressed and that it asks for nothing but tensors and plain
    values; torch's own restriction to such comes after that.

    Args:
        data: all of the file.
        path: for messages.
        compare: whether to compare the parts with the checksums (CRC-32) of the archive, for files without a better one.

    Raises:
        FileError: it is damaged, too large when unpacked, holds anything else, or this torch cannot be trusted with it.

    Example:
        >>> import io, pathlib, torch
        >>> file = io.BytesIO()
        >>> torch.save({"a": torch.ones(2)}, file)
        >>> tensors(file.getvalue(), pathlib.Path("a.pt"), compare=True)
        {'a': tensor([1., 1.])}
    """
    _check_torch(path)
    try:
        _check_parts(data, path, compare)
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        if type(content) is not dict or not all(type(name) is str for name in content):
            raise FileError(f"{path} holds no names with their values")
        _Survey(f"{path}: ").value(content, "content", 0)
    except FileError:
        raise
    except pickle.UnpicklingError as error:
        raise FileError(f"{path} holds more than tensors and plain values and was refused: {_line(error)}") from error
    # Whatever a damaged file does to the readers of archives, pickles and tensors: it is the file that is wrong.
    except Exception as error:
        raise FileError(f"{path} cannot be read; it is damaged: {type(error).__name__}: {_line(error)}") from error
    return content


def check_payload(content: dict[str, Any]) -> None:
    """Refuse what could be written but not be read again.

    Raises:
        FileError: with the place of the first value that is no tensor, number, text, list or dict.

    Example:
        >>> import numpy as np
        >>> try:
        ...     check_payload({"rate": [1.0, np.float64(2.0)]})
        ... except OSError as error:
        ...     print(str(error)[:56])
        cannot save: content['rate'][1] is a numpy.float64; expe
    """
    _Survey("cannot save: ").value(content, "content", 0)


class _Survey:
    """A walk through nested values that is short even where they are shared so often that all together would be endless."""

    def __init__(self, opening: str) -> None:
        self.opening = opening
        self.on_the_way: set[int] = set()
        self.known: dict[int, int] = {}
        self.repeated = 0

    def value(self, value: Any, place: str, depth: int) -> int:
        """The number of values in all, each counted as often as it is met."""
        kind = type(value)
        if kind in _VALUES:
            return 1
        if kind in _CONTAINERS:
            return self.container(value, place, depth)
        if isinstance(value, Tensor):
            self.tensor(value, place)
            return 1
        raise FileError(
            f"{self.opening}{place} is a {kind.__module__}.{kind.__qualname__}; expected tensors, numbers, texts, lists and "
            "dicts of them: convert it, for example by .item() or torch.as_tensor"
        )

    def container(self, value: Any, place: str, depth: int) -> int:
        if id(value) in self.known:
            return self.known[id(value)]
        if depth > _DEPTH or id(value) in self.on_the_way:
            raise FileError(f"{self.opening}it is nested more than {_DEPTH} deep, or in itself")
        self.on_the_way.add(id(value))
        count = len(value) + 1
        if isinstance(value, dict):
            if not set(map(type, value)) <= _VALUES:
                raise FileError(f"{self.opening}a key of {place} is no number or text")
            inner: Any = value.items() if not set(map(type, value.values())) <= _VALUES else ()
        else:
            inner = enumerate(value) if not set(map(type, value)) <= _VALUES else ()
        for key, each in inner:
            count += self.value(each, f"{place}[{key!r}]", depth + 1)
        if count > 2**31:
            raise FileError(f"{self.opening}{place} has more than {2**31} values, shared by one another")
        self.on_the_way.discard(id(value))
        self.known[id(value)] = count
        return count

    def tensor(self, value: Tensor, place: str) -> None:
        kind = type(value)
        plain = kind in (Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized
        if not plain or value.dtype not in _DTYPES or value.device.type == "meta":
            raise FileError(
                f"{self.opening}{place} is a tensor of another kind ({kind.__name__}, {value.layout}, {value.dtype}, "
                f"{value.device.type}); expected a dense one of numbers"
            )
        self.repeated += max(0, value.numel() * value.element_size() - value.untyped_storage().nbytes())
        if self.repeated > _REPEATED:
            raise FileError(f"{self.opening}{place} repeats few elements very often: save them once")


def _check_torch(path: Path) -> None:
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
        raise FileError(
            f"{path} is not read by torch {torch.__version__}, whose reader can be made to run what is in a file "
            "(CVE-2025-32434, CVE-2026-24747): pip install 'torch>=2.10'"
        )


def _check_parts(data: bytes | memoryview, path: Path, compare: bool) -> None:
    """Refuse archives with compressed or overlapping parts, and pickles that ask for more than tensors and plain values."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile as error:
        raise FileError(f"{path} is damaged or cut off: {error}") from error
    with archive:
        parts = archive.infolist()
        compressed = [part.filename for part in parts if part.compress_type != zipfile.ZIP_STORED]
        if compressed:
            raise FileError(
                f"{path} has compressed parts, which files of sciml never have, and was refused: {compressed[0]!r}"
            )
        size = sum(part.file_size for part in parts)
        if size > len(data) or any(part.file_size != part.compress_size for part in parts):
            raise FileError(f"{path} says that it holds {size} bytes, but is {len(data)} bytes long; it was refused")
        # Of a part that is called a directory torch reads nothing, and gives whatever the memory held.
        odd = [part.filename for part in parts if part.external_attr & _DIRECTORY or part.flag_bits & _ENCRYPTED]
        if odd:
            raise FileError(
                f"{path} is damaged or was tampered with: its part {odd[0]!r} is marked as a directory or encrypted"
            )
        if len({part.filename for part in parts}) < len(parts):
            raise FileError(f"{path} holds two parts of the same name and was refused")
        broken = archive.testzip() if compare else None
        if broken is not None:
            raise FileError(f"{path} is damaged: its part {broken!r} does not agree with its checksum (CRC-32)")
        for part in parts:
            if part.filename.endswith(".pkl"):
                _check_pickle(archive.read(part), path)


def _check_pickle(code: bytes, path: Path) -> None:
    asked = set()
    for operation, argument, _ in pickletools.genops(code):
        if operation.name in ("GLOBAL", "INST"):
            asked.add(str(argument))
        elif operation.name in ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4"):
            asked.add(operation.name)
    foreign = sorted(name for name in asked if name not in _GLOBALS and _STORAGE.fullmatch(name) is None)
    if foreign:
        asks = listed(name.replace(" ", ".")[:100] for name in foreign[:3])
        raise FileError(f"{path} holds more than tensors and plain values and was refused: it asks for {asks}")


def _line(error: BaseException) -> str:
    """The first line of a message, which may be long."""
    return (str(error).strip().splitlines() or [""])[0][:300]


FORMAT = 2

PREVIOUS = ".previous"

# From this version of HDF5 on the structure of a file has checksums, and not only its numbers.
HDF5 = ("v110", "v110")

_HEADER = re.compile(rb"sciml ([0-9]{1,6}) ([0-9a-f]{64})\n")

_LENGTH = len(b"sciml 2 \n") + 64

# Distinguishes this process from a dead one that had the same number, as happens in containers.
_PROCESS = secrets.token_hex(4)

# A file's name may have 255 bytes, its temporary one 35 more than what is taken of it.
_TAKEN = 100

# What file systems answer that have no such thing.
_UNSUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}

_TEMPORARY = re.compile(r"\..+?\.(?:(\d+)-([0-9a-f]{8})\.)?\w{8}\.tmp")


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a crash at any moment leaves the old one or the new one, never a mixture.

    Raises:
        FileError: the file cannot be written (no space, no permission); an older file of that name is still there.
    """
    with replaced(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file beside another one to write to, which takes its place when the block ends well and vanishes when it does not.

    It has the permissions of the other; where there is none, those of any new file. A symbolic link stays, and leads to it.

    Raises:
        FileError: the file cannot be written (no space, no permission); an older file of that name is still there.
    """
    path = followed(path)
    with temporary(path) as beside:
        yield beside
        settle(beside, path)
        moved(beside, path)


# Directories that keep books of their files say here how these are replaced (``runs.directory`` does).
_books: list[Callable[[Path], contextlib.AbstractContextManager[Path] | None]] = []


def keeps_books(opener: Callable[[Path], contextlib.AbstractContextManager[Path] | None]) -> None:
    """Let files be replaced by somebody who keeps books of them: ``opener(path)`` is how, or None for other files."""
    _books.append(opener)


def recorded(path: Path) -> contextlib.AbstractContextManager[Path]:
    """As ``replaced``; a file in the directory of a run is listed there, with its previous generation.

    Raises:
        FileError: the file cannot be written, or is one of a run that another process writes; an older one is still there.
    """
    kept = (opener(path) for opener in _books)
    return next((each for each in kept if each is not None), None) or replaced(path)


def write_file(path: Path, content: bytes) -> None:
    """As ``write_atomic``; a file in the directory of a run is listed there, with its previous generation.

    Raises:
        FileError: as ``recorded``.
    """
    with recorded(path) as temporary:
        temporary.write_bytes(content)


def followed(path: Path) -> Path:
    """Where a symbolic link leads, be there a file or not; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def moved(source: Path, target: Path) -> None:
    """Rename a file, for good before anything else is done.

    Raises:
        FileError: it has its new name, and that could not be written through to the disk.
    """
    os.replace(source, target)
    try:
        flush(target.parent)
    except OSError as error:
        raise FileError(
            f"{target} was replaced by the new file, which may not outlast a power failure: {error}; write it again"
        ) from error


@contextlib.contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """An empty file beside another one, gone when the block ends unless it was moved into the place of the other.

    Raises:
        FileError: anything that the system refuses within the block.
    """
    name = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        name = _made(path)
        yield Path(name)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"cannot write {path}: {error}; what was there before is unchanged") from error
    finally:
        if name and os.path.exists(name):
            os.unlink(name)


def _made(path: Path) -> str:
    """Make the temporary file of another, which nobody may read who may not read that."""
    beginning = os.fsencode(path.name)[:_TAKEN].decode(errors="ignore") or "file"
    mode = _mode(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    while True:
        name = path.parent / f".{beginning}.{os.getpid()}-{_PROCESS}.{secrets.token_hex(4)}.tmp"
        with contextlib.suppress(FileExistsError):
            # The system takes off what the umask forbids; to ask for the umask would change it for other threads.
            os.close(os.open(name, flags, 0o666 if mode is None else mode | stat.S_IRUSR | stat.S_IWUSR))
            return str(name)


def _mode(path: Path) -> int | None:
    """The permissions of a file; None if there is none."""
    try:
        found = path.stat().st_mode
    except OSError:
        return None
    return stat.S_IMODE(found) & 0o777 if stat.S_ISREG(found) else None


def settle(path: Path, target: Path) -> None:
    """Have a temporary file written through to the disk, with the permissions of the file whose place it will take."""
    flush(path)
    mode = _mode(target)
    if mode is not None and mode != _mode(path):
        try:
            os.chmod(path, mode)
        except OSError as error:
            # Where permissions cannot be changed, they say nothing either.
            if error.errno not in _UNSUPPORTED | {errno.EPERM, errno.EACCES}:
                raise


def flush(path: Path) -> None:
    """Have a file or directory written through to the disk; for directories not every file system has such a thing."""
    directory = path.is_dir()
    if os.name == "nt" and directory:
        return
    try:
        handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        # One may write into a directory that one may not read.
        if not directory or error.errno not in _UNSUPPORTED | {errno.EACCES}:
            raise


def orphaned(name: str) -> bool:
    """Whether a file of this name is the temporary one of a writer that is dead."""
    found = _TEMPORARY.fullmatch(name)
    if found is None:
        return False
    if found[1] is None:
        return True
    process = int(found[1])
    if process == os.getpid():
        return found[2] != _PROCESS
    # On Windows signal 0 would end the process; an open file cannot be removed there anyway.
    return os.name == "nt" or not _alive(process)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def removed(path: Path) -> None:
    """Remove a file if it is there.

    Raises:
        FileError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"cannot remove {path}: {error}") from error


def check_writable(directory: Path) -> None:
    """Refuse a directory that cannot be written, before time is spent on what should go there.

    Raises:
        FileError: with the reason.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise FileError(f"cannot write into {directory}: {error}") from error


def packed(content: dict[str, Any]) -> bytes:
    """Tensors and plain values (numbers, texts, lists, dicts) as the bytes of a file.

    The file is torch's, after a line with the SHA-256 of all that follows it: a byte that changed anywhere is found out.

    Raises:
        FileError: it holds anything else, which could not be read again.

    Example:
        >>> packed({"seed": 1})[:8]
        b'sciml 2 '
    """
    check_payload(content)
    buffer = io.BytesIO()
    torch.save({"sciml_format": FORMAT, **content}, buffer)
    inner = buffer.getbuffer()
    return b"".join([f"sciml {FORMAT} {hashlib.sha256(inner).hexdigest()}\n".encode(), inner])


def unpacked(data: bytes, path: Path) -> dict[str, Any]:
    """What ``packed`` packed, or torch's file alone, as version 0.1 wrote it; code in it is never run.

    Args:
        data: the whole content of a file.
        path: of the file, for messages.

    Raises:
        FileError: it is damaged, holds anything but tensors and plain values, or is not one of ours.

    Example:
        >>> import pathlib
        >>> unpacked(packed({"seed": 1}), pathlib.Path("a.pt"))["seed"]
        1
    """
    expected, inner = check(data, path)
    content = tensors(inner, path, compare=expected == 1)
    found = content.get("sciml_format")
    if type(found) is not int or found != expected:
        raise FileError(f"{path} is not a file of sciml's (format {FORMAT}); its format is {found!r}")
    return content


def check(data: bytes, path: Path) -> tuple[int, memoryview]:
    """The format of a file and what follows its header, which agrees with the checksum.

    Raises:
        FileError: it is damaged, or not one of ours.
    """
    if not data:
        raise FileError(f"{path} is damaged: it is empty")
    if data[:2] == b"PK":
        return 1, memoryview(data)
    header = _HEADER.fullmatch(data[:_LENGTH])
    if header is None:
        newer = _HEADER.match(data[: _LENGTH + 6])
        if newer is not None:
            raise FileError(f"{path} has format {int(newer[1])}, this sciml knows {FORMAT}: update sciml to read it")
        raise FileError(f"{path} is not a file of sciml's, or its beginning is damaged")
    if int(header[1]) != FORMAT:
        raise FileError(f"{path} has format {int(header[1])}, this sciml knows {FORMAT}: update sciml to read it")
    inner = memoryview(data)[_LENGTH:]
    if hashlib.sha256(inner).hexdigest().encode() != header[2]:
        raise FileError(f"{path} is damaged: its content does not agree with its checksum (SHA-256)")
    return FORMAT, inner


def state(path: Path) -> tuple[str, str]:
    """Whether a file alone is whole, damaged or missing, and what to do; ``unlisted`` where it has no checksum of its own.

    Example:
        >>> import pathlib
        >>> state(pathlib.Path("nowhere.pt"))[0]
        'missing'
    """
    try:
        with path.open("rb") as file:
            own = file.read(6) == b"sciml "
        if own:
            check(read(path), path)
    except FileNotFoundError:
        return "missing", "write it again"
    except FileError as error:
        return "damaged", str(error)
    except OSError as error:
        return "damaged", f"it cannot be read: {error}"
    if own:
        return "whole", "nothing; it has a checksum of its own"
    return "unlisted", "nothing; it was not written as a file of the run, and cannot be checked"


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Save tensors and plain values (numbers, texts, lists, dicts) with a checksum.

    Raises:
        FileError: the file cannot be written.
    """
    write_atomic(path, packed(content))


def load_tensors(path: Path) -> dict[str, Any]:
    """Load what ``save_tensors`` saved; code in the file is never run.

    Raises:
        FileError: the file is missing, damaged, holds anything but tensors and plain values, or is not one of ours; if the
            one before it is still there and whole, the message names it.
    """
    try:
        return unpacked(read(path), path)
    except FileError as error:
        earlier = path.parent / PREVIOUS / path.name
        if path.parent.name == PREVIOUS or not earlier.is_file():
            raise
        try:
            unpacked(read(earlier), earlier)
        except FileError:
            raise error from None
        raise FileError(f"{error}; the one saved before it is whole: load {earlier}") from error


def read(path: Path) -> bytes:
    """The content of a file.

    Raises:
        FileError: there is none, or it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"there is no file {path}") from None
    except (OSError, MemoryError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error or type(error).__name__}") from error
