"""Tensors and plain values in torch's files: what may go in, and how it comes out without running what is in there."""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sciml.errors import FileError, listed

_OLDEST = (2, 10)
_DEPTH = 100
# A tensor may repeat its elements without taking memory for them; whoever copies it takes the memory.
_REPEATED = 2**28
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


def tensors(data: bytes | memoryview, path: Path, *, check: bool) -> dict[str, Any]:
    """The dict of tensors and plain values in the bytes of a torch file.

    Nothing is loaded before it is known that no part of it is compressed and that it asks for nothing but tensors and plain
    values; torch's own restriction to such comes after that.

    Args:
        data: all of the file.
        path: for messages.
        check: whether to compare the parts with the checksums (CRC-32) of the archive, for files without a better one.

    Raises:
        FileError: it is damaged, too large when unpacked, holds anything else, or this torch cannot be trusted with it.

    Example:
        >>> import io, pathlib, torch
        >>> from sciml import payload
        >>> file = io.BytesIO()
        >>> torch.save({"a": torch.ones(2)}, file)
        >>> payload.tensors(file.getvalue(), pathlib.Path("a.pt"), check=True)
        {'a': tensor([1., 1.])}
    """
    _check_torch(path)
    try:
        _check_parts(data, path, check)
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


def check(content: dict[str, Any]) -> None:
    """Refuse what could be written but not be read again.

    Raises:
        FileError: with the place of the first value that is no tensor, number, text, list or dict.

    Example:
        >>> import numpy as np
        >>> from sciml import payload
        >>> try:
        ...     payload.check({"rate": [1.0, np.float64(2.0)]})
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


def _check_parts(data: bytes | memoryview, path: Path, check: bool) -> None:
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
        if len({part.filename for part in parts}) < len(parts):
            raise FileError(f"{path} holds two parts of the same name and was refused")
        broken = archive.testzip() if check else None
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
