"""Atomic writes (temporary file, fsync, rename), and tensors with plain values in files that hold their own SHA-256.

A file is the old one or the new one after a crash at any moment. Reading never runs code: archives with compressed or
overlapping parts and pickles that ask for anything but tensors and plain values are refused before ``torch.load``.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import pickletools
import re
import secrets
import stat
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sciml._text import listed
from sciml.errors import FileError

FORMAT = 2
PREVIOUS = ".previous"
# From this version of HDF5 on the structure of a file has checksums, and not only its numbers.
HDF5 = ("v110", "v110")
_HEADER = re.compile(rb"sciml ([0-9]{1,6}) ([0-9a-f]{64})\n")
_LENGTH = len(b"sciml 2 \n") + 64
# Distinguishes this process from a dead one that had the same number, as happens in containers.
_PROCESS = secrets.token_hex(4)
# A file's name may have 255 bytes, its temporary one 43 more than what is taken of it.
_NAME_BYTES = 100
# What file systems answer that have no such thing.
_UNSUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_TEMPORARY = re.compile(r"\..+?\.(?:(\d+)-([0-9a-f]{8})\.)?\w{8,16}\.tmp")
_OLDEST = (2, 10)
_DEPTH = 100
_MOST_VALUES = 2**31
# A tensor may repeat its elements without taking memory for them; whoever copies it takes the memory.
_REPEATED = 2**28
_DIRECTORY, _ENCRYPTED = 0x10, 0x2041
_VALUES = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size}
_CONTAINERS = {dict, OrderedDict, list, tuple, set}
_DTYPES = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
}
# What the pickle in an archive may name. torch allows more, some of which takes any amount of memory (``bytearray``).
_NAMES = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)|torch (Size|device)|_codecs encode"
    r"|(__builtin__|builtins) (set|complex)"
    r"|torch (Double|Float|Half|BFloat16|Long|Int|Short|Char|Byte|Bool|ComplexDouble|ComplexFloat)Storage|"
    + "|".join(str(each).replace(".", " ") for each in vars(torch).values() if isinstance(each, torch.dtype))
)


def _check_values(content: dict[str, Any], opening: str) -> None:
    """Refuse all but tensors and plain values, soon even where they are shared so often that all together would be endless."""
    # The number of values in a container, each counted as often as it is met; None while they are counted.
    known: dict[int, int | None] = {}
    repeated = 0

    def count(value: Any, place: str, depth: int) -> int:
        nonlocal repeated
        kind = type(value)
        if isinstance(value, Tensor):
            plain = kind in (Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized
            if not plain or value.dtype not in _DTYPES or value.device.type == "meta":
                raise FileError(
                    f"{opening}{place} is a tensor of another kind ({kind.__name__}, {value.layout}, {value.dtype}, "
                    f"{value.device.type}); expected a dense one of numbers"
                )
            repeated += max(0, value.numel() * value.element_size() - value.untyped_storage().nbytes())
            if repeated > _REPEATED:
                raise FileError(f"{opening}{place} repeats few elements very often: save them once")
            return 1
        if kind not in _CONTAINERS:
            if kind not in _VALUES:
                raise FileError(
                    f"{opening}{place} is a {kind.__module__}.{kind.__qualname__}; expected tensors, numbers, texts, lists "
                    "and dicts of them: convert it, for example by .item() or torch.as_tensor"
                )
            return 1
        found = known.get(id(value), 0)
        if found is None or (depth > _DEPTH and not found):
            raise FileError(f"{opening}it is nested more than {_DEPTH} deep, or in itself")
        if not found:
            known[id(value)] = None
            named = isinstance(value, dict)
            if named and not set(map(type, value)) <= _VALUES:
                raise FileError(f"{opening}a key of {place} is no number or text")
            found = len(value) + 1
            if not set(map(type, value.values() if named else value)) <= _VALUES:
                for key, each in value.items() if named else enumerate(value):
                    found += count(each, f"{place}[{key!r}]", depth + 1)
            if found > _MOST_VALUES:
                raise FileError(f"{opening}{place} has more than {_MOST_VALUES} values, shared by one another")
            known[id(value)] = found
        return found

    count(content, "content", 0)


def _check_parts(data: memoryview, path: Path) -> None:
    """Refuse archives with compressed or overlapping parts, and pickles that ask for more than tensors and plain values."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
        compressed = [part.filename for part in parts if part.compress_type != zipfile.ZIP_STORED]
        if compressed:
            raise FileError(f"{path} has compressed parts, which files of sciml never have, and was refused: {compressed[0]!r}")
        size = sum(part.file_size for part in parts)
        if size > len(data) or any(part.file_size != part.compress_size for part in parts):
            raise FileError(f"{path} says that it holds {size} bytes, but is {len(data)} bytes long; it was refused")
        # Of a part that is called a directory torch reads nothing, and gives whatever the memory held.
        odd = any(part.external_attr & _DIRECTORY or part.flag_bits & _ENCRYPTED for part in parts)
        if odd or len({part.filename for part in parts}) < len(parts):
            raise FileError(f"{path} was tampered with: a part is doubled, encrypted or marked as a directory")
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
    foreign = sorted(name for name in asked if _NAMES.fullmatch(name) is None)
    if foreign:
        asks = listed(name.replace(" ", ".")[:100] for name in foreign[:3])
        raise FileError(f"{path} holds more than tensors and plain values and was refused: it asks for {asks}")


def check_free(path: Path, overwrite: bool) -> None:
    """Refuse to write where something is that may not be replaced."""
    if path.exists() and not overwrite:
        raise FileError(f"{path} exists and is kept: name another file, or pass overwrite=True")


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a crash at any moment leaves the old one or the new one, never a mixture."""
    with replaced(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file beside another one to write to, which takes its place when the block ends well and vanishes when it does not.

    It has the permissions of the other; where there is none, those of any new file. A symbolic link stays, and leads to it.
    Where it cannot be written (no space, no permission), a ``FileError`` is raised, and the older file is still there.
    """
    path = followed(path)
    with temporary(path) as beside:
        yield beside
        settle(beside, path)
        moved(beside, path)


# ``runs.directory`` sets here how a file in the directory of a run is replaced; None for files elsewhere.
recorder: Callable[[Path], contextlib.AbstractContextManager[Path] | None] = lambda path: None  # noqa: E731


def recorded(path: Path) -> contextlib.AbstractContextManager[Path]:
    """As ``replaced``; a file in the directory of a run is listed there, with its previous generation."""
    return recorder(path) or replaced(path)


def write_file(path: Path, content: bytes) -> None:
    """As ``write_atomic``; a file in the directory of a run is listed there, with its previous generation."""
    with recorded(path) as temporary:
        temporary.write_bytes(content)


def followed(path: Path) -> Path:
    """Where a symbolic link leads, be there a file or not; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def moved(source: Path, target: Path) -> None:
    """Rename a file, for good before anything else is done."""
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

    Nobody may read it who may not read the other. Whatever the system refuses within the block is a ``FileError``.
    """
    beginning = os.fsencode(path.name)[:_NAME_BYTES].decode(errors="ignore") or "file"
    found = path.parent / f".{beginning}.{os.getpid()}-{_PROCESS}.{secrets.token_hex(8)}.tmp"
    mode = _mode(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The system takes off what the umask forbids; to ask for the umask would change it for other threads.
        os.close(os.open(found, flags, 0o666 if mode is None else mode | stat.S_IRUSR | stat.S_IWUSR))
        yield found
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"cannot write {path}: {error}; what was there before is unchanged") from error
    finally:
        with contextlib.suppress(OSError):
            found.unlink(missing_ok=True)


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
    if found is None or found[1] is None:
        return found is not None
    if int(found[1]) == os.getpid():
        return found[2] != _PROCESS
    try:
        # On Windows signal 0 would end the process; an open file cannot be removed there anyway.
        if os.name != "nt":
            os.kill(int(found[1]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return os.name == "nt"


def packed(content: dict[str, Any]) -> bytes:
    """Tensors and plain values as the bytes of a file: torch's, after a line with the SHA-256 of all that follows it."""
    _check_values(content, "cannot save: ")
    buffer = io.BytesIO()
    torch.save({"sciml_format": FORMAT, **content}, buffer)
    inner = buffer.getbuffer()
    return b"".join([f"sciml {FORMAT} {hashlib.sha256(inner).hexdigest()}\n".encode(), inner])


def unpacked(data: bytes, path: Path) -> dict[str, Any]:
    """What ``packed`` packed, from the bytes of a file; anything else is a ``FileError``, and code in it is never run."""
    inner = checked(data, path)
    version = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if version is not None and (int(version[1]), int(version[2])) < _OLDEST:
        raise FileError(
            f"{path} is not read by torch {torch.__version__}, whose reader can be made to run what is in a file "
            "(CVE-2025-32434, CVE-2026-24747): pip install 'torch>=2.10'"
        )
    try:
        _check_parts(inner, path)
        content = torch.load(io.BytesIO(inner), map_location="cpu", weights_only=True)
        if type(content) is not dict or not all(type(name) is str for name in content):
            raise FileError(f"{path} holds no names with their values")
        _check_values(content, f"{path}: ")
    except FileError:
        raise
    # Whatever a damaged file does to the readers of archives, pickles and tensors: it is the file that is wrong.
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0][:300]
        raise FileError(f"{path} cannot be read; it is damaged: {type(error).__name__}: {line}") from error
    stated = content.get("sciml_format")
    if type(stated) is not int or stated != FORMAT:
        raise FileError(f"{path} is not a file of sciml's (format {FORMAT}); its format is {stated!r}")
    return content


def checked(data: bytes, path: Path) -> memoryview:
    """What follows the header of a file, which agrees with the checksum there."""
    if not data:
        raise FileError(f"{path} is damaged: it is empty")
    header = _HEADER.match(data[: _LENGTH + 6])
    if header is None:
        raise FileError(f"{path} is refused: it is not a file of sciml's, or its beginning is damaged")
    if int(header[1]) != FORMAT:
        raise FileError(f"{path} has format {int(header[1])}, this sciml knows {FORMAT}: update sciml to read it")
    inner = memoryview(data)[header.end() :]
    if hashlib.sha256(inner).hexdigest().encode() != header[2]:
        raise FileError(f"{path} is damaged: its content does not agree with its checksum (SHA-256)")
    return inner


def load_tensors(path: Path) -> dict[str, Any]:
    """What ``packed`` packed into a file; where it cannot be read and the one before it is whole, the message names that."""
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
    """The content of a file; a ``FileError`` if there is none, or it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"there is no file {path}") from None
    except (OSError, MemoryError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error or type(error).__name__}") from error
