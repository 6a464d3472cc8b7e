"""Damaged copies of valid files: bytes, blocks, and what a format means by them (numbers, quotes, members, opcodes, values)."""

import copy
import hashlib
import io
import json
import pickletools
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

INTEGERS = (0, 1, 2, 7, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
NUMBERS = (
    "0",
    "-0",
    "1e999",
    "-1e999",
    "1e-999",
    "nan",
    "inf",
    "1_000",
    "0x1p3",
    "1.0D+00",
    "1,000",
    "1.000,5",
    "٣",
    "½",
)
TEXTS = (
    *NUMBERS,
    "",
    " ",
    '"',
    '""',
    "'",
    "\x00",
    "\ufeff",
    "\u2028",
    "é",
    "\U0001f600",
    "=1+1",
    "9" * 400,
    "True",
    "a" * 200_000,
)
DELIMITERS = (",", ";", "\t", "|", " ", "\n", "\r", "\r\n", '"', "#", "\v", "\f", "\x1c", "\x85")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-7", "ascii")

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def _span(chance: random.Random, size: int) -> tuple[int, int]:
    """Two ends of a piece, short ones more often than long ones."""
    start = chance.randrange(size + 1)
    return start, min(size, start + int(2 ** chance.uniform(0, 12)))


def flipped(chance: random.Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    """One to eight bits are other ones."""
    content = bytearray(raw or b"\0")
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def overwritten(chance: random.Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    """An integer of one to eight bytes is replaced by one that programs stumble over."""
    width, order = chance.choice((1, 2, 4, 8)), chance.choice(("little", "big"))
    at = chance.randrange(max(len(raw) - width, 0) + 1)
    value = chance.choice((*INTEGERS, len(raw), len(raw) - at)) % 256**width
    return raw[:at] + value.to_bytes(width, order) + raw[at + width :]


def cut(chance: random.Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    """The end is missing, or the beginning."""
    at = chance.randrange(len(raw) + 1)
    return raw[:at] if chance.random() < 0.8 else raw[at:]


def removed(chance: random.Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    """A piece is missing."""
    start, stop = _span(chance, len(raw))
    return raw[:start] + raw[stop:]


def doubled(chance: random.Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    """A piece stands there several times."""
    start, stop = _span(chance, len(raw))
    return raw[:stop] + raw[start:stop] * chance.choice((1, 1, 2, 50)) + raw[stop:]


def spliced(chance: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """A piece is that of another file, or of another place."""
    other = chance.choice(others)
    start, stop = _span(chance, len(other))
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + other[start:stop] + raw[at + (stop - start) * chance.choice((0, 1)) :]


def zeroed(chance: random.Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    """A piece is all zeros or all ones, as after a crash of the machine."""
    start, stop = _span(chance, len(raw))
    return raw[:start] + chance.choice((b"\0", b"\xff")) * (stop - start) + raw[stop:]


BYTES: tuple[Mutation, ...] = (flipped, flipped, overwritten, overwritten, cut, removed, doubled, spliced, zeroed)


def near(*marks: bytes, reach: int = 64) -> Mutation:
    """Changes of bytes behind one of some signatures, where a format keeps its sizes, kinds and addresses."""

    def changed(chance: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
        places = [at for mark in marks for at in _places(raw, mark)]
        if not places:
            return flipped(chance, raw, others)
        start = chance.choice(places)
        stop = min(len(raw), start + reach)
        inner = chance.choice((flipped, overwritten))(chance, raw[start:stop], others)
        return raw[:start] + inner + raw[stop:]

    return changed


def _places(raw: bytes, mark: bytes) -> list[int]:
    found, at = [], raw.find(mark)
    while at >= 0:
        found.append(at + len(mark))
        at = raw.find(mark, at + 1)
    return found


def fields(chance: random.Random, raw: bytes, _: Sequence[bytes]) -> bytes:
    """A table of texts with other fields, delimiters, lines, quotes or encoding."""
    text = raw.decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    for _ in range(chance.choice((1, 1, 2, 4))):
        row = chance.randrange(len(lines))
        cells = lines[row].split(",")
        cell = chance.randrange(len(cells))
        what = chance.randrange(8)
        if what == 0:
            cells[cell] = chance.choice(TEXTS)
        elif what == 1:
            cells[cell] = '"' + cells[cell] + chance.choice(('"', "", '""', '"x', '\n"'))
        elif what == 2:
            cells.insert(cell, chance.choice(("", "1", "x")))
        elif what == 3:
            cells.pop(cell)
        elif what == 4:
            cells[cell] += chance.choice(DELIMITERS)
        elif what == 5:
            lines.insert(row, chance.choice(("", "#", "# x", " ", '"', lines[chance.randrange(len(lines))])))
            continue
        elif what == 6:
            lines = [chance.choice(DELIMITERS).join(each.split(",")) for each in lines]
            continue
        else:
            cells = [chance.choice(TEXTS), *cells[1:]]
        lines[row] = ",".join(cells)
    return (
        chance.choice(("\n", "\n", "\n", "\r\n", "\r"))
        .join(lines)
        .encode(
            chance.choice(ENCODINGS) if chance.random() < 0.1 else "utf-8",
            "replace" if chance.random() < 0.5 else "ignore",
        )
    )


def strange(chance: random.Random) -> Any:
    """A value of some kind, seldom the one that was meant."""
    return chance.choice(
        (
            None, True, 0, -1, 3, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf"), "", "u", "é" * 100, [],
            [1], [None], [[0.0, 1.0]], {}, {"u": 1}, {"u": [0.0]}, [[[[]]]], "x" * 10_000, list(range(1000)),
        )
    )  # fmt: skip


def values(chance: random.Random, content: Any, kind: Callable[[random.Random], Any] = strange) -> Any:
    """Nested lists and dicts in which something, somewhere, is other than it was."""
    content = copy.deepcopy(content)
    holders: list[Any] = []
    _collect(content, holders)
    for _ in range(chance.choice((1, 1, 2, 3))):
        holder = chance.choice(holders)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            continue
        key, what = chance.choice(keys), chance.randrange(6)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, dict):
            holder[chance.choice(("", "u", "kind", 3, "x" * 1000))] = holder.pop(key)
        elif what == 2:
            holder[key] = copy.deepcopy(chance.choice(holders))
        elif what == 3 and isinstance(holder[key], int | float) and abs(holder[key]) < 1e300:
            holder[key] = chance.choice((-holder[key], holder[key] * 10**6, holder[key] + 1, float(holder[key]), 0))
        else:
            holder[key] = kind(chance)
    return content


def _collect(content: Any, holders: list[Any]) -> None:
    if isinstance(content, dict | list):
        holders.append(content)
        for each in content.values() if isinstance(content, dict) else content:
            _collect(each, holders)


def _tensors(chance: random.Random) -> Any:
    """Values, and tensors of other shapes and types."""
    if chance.random() < 0.5:
        return strange(chance)
    return chance.choice(
        (
            torch.zeros(0), torch.zeros(3), torch.zeros(2, 2, dtype=torch.float64), torch.full((3, 1), torch.nan),
            torch.zeros(3, dtype=torch.int8), torch.zeros(1, dtype=torch.complex128), torch.tensor(2**62),
            torch.zeros(1).expand(2**33), torch.zeros((), dtype=torch.bool), torch.zeros(5).to_sparse(),
            torch.nn.Parameter(torch.zeros(2)), torch.zeros(2, device="meta"), torch.Size([2, 2]), torch.float16,
        )
    )  # fmt: skip


def _opened(raw: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """What is behind the line with a checksum, and how such a line that fits is put before it again."""
    found = re.match(rb"(sciml [0-9]+ )[0-9a-f]{64}\n", raw)
    if found is None:
        return raw, lambda inner: inner
    return raw[found.end() :], lambda inner: found[1] + hashlib.sha256(inner).hexdigest().encode() + b"\n" + inner


def inside(kind: Mutation) -> Mutation:
    """A mutation behind a file's own checksum, which is made to fit again: a file that was meant to be as it is."""

    def changed(chance: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
        inner, closed = _opened(raw)
        return closed(kind(chance, inner, [_opened(each)[0] for each in others]))

    return changed


def tensors(chance: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """A file of torch's whose values are other ones; everything around them is whole."""
    try:
        content = torch.load(io.BytesIO(raw), weights_only=True)
    except Exception:  # damaged by an earlier step
        return flipped(chance, raw, others)
    buffer = io.BytesIO()
    torch.save(values(chance, content, _tensors), buffer)
    return buffer.getvalue()


def json_values(chance: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """A JSON file whose values are other ones, or whose texts are written in another way."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        return flipped(chance, raw, others)
    if chance.random() < 0.1:
        deep = chance.choice((50, 5000, 200_000))
        return chance.choice((b"[" * deep, b'{"a":' * deep, b"[" * deep + b"]" * deep))
    if chance.random() < 0.1:
        return raw.replace(b"1", chance.choice((b"1" * 5000, b"1e400", b"NaN", b"-Infinity", b"0x1", b"1" + b"0" * 400)))
    try:
        text = json.dumps(values(chance, content), ensure_ascii=chance.random() < 0.5)
    except (ValueError, RecursionError):
        return spliced(chance, raw, others)
    return text.encode(chance.choice(("utf-8", "utf-8", "utf-8", "utf-16", "latin-1", "utf-8-sig")), "replace")


def members(chance: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """A zip archive whose members are damaged inside, with checksums that fit: missing, doubled, renamed, packed, grown."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            content = [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:
        return flipped(chance, raw, others)
    if not content:
        return raw
    at = next((at for at, (name, _) in enumerate(content) if name.endswith("data.pkl")), 0)
    at = at if chance.random() < 0.6 else chance.randrange(len(content))
    name, inner = content[at]
    what, method = chance.randrange(8), zipfile.ZIP_STORED
    if what == 0:
        content.pop(at)
    elif what == 1:
        content.append((name, content[chance.randrange(len(content))][1]))
    elif what == 2:
        content[at] = (chance.choice((name + "x", "../" + name, "/etc/x", name.upper(), "a/" * 500 + "x", "")), inner)
    elif what == 3:
        method = zipfile.ZIP_DEFLATED
    elif what == 4 and name.endswith("data.pkl"):
        content[at] = (name, opcodes(chance, inner))
    elif what == 5:
        content[at] = (name, b"\0" * chance.choice((0, 1, 10**5)))
    else:
        content[at] = (name, chance.choice(BYTES)(chance, inner, [inner]))
    buffer = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(buffer, "w", method) as archive:
        for key, each in content:
            info = zipfile.ZipInfo(key or "archive/none")
            info.compress_type = method
            archive.writestr(info, each)
    return buffer.getvalue()


def opcodes(chance: random.Random, raw: bytes) -> bytes:
    """A pickle with single operations left out, doubled, exchanged, or given other arguments; some of them run code."""
    try:
        starts = [place for _, _, place in pickletools.genops(raw) if place is not None]
    except Exception:
        return flipped(chance, raw, [raw])
    pieces = [raw[start:stop] for start, stop in zip(starts, [*starts[1:], len(raw)], strict=True)]
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, what = chance.randrange(len(pieces)), chance.randrange(6)
        if what == 0:
            pieces[at] = b""
        elif what == 1:
            pieces[at] *= chance.choice((2, 3, 1000))
        elif what == 2:
            other = chance.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif what == 3:
            whole = [index for index, piece in enumerate(pieces) if piece[:1] in b"KMJ" and piece]
            index = chance.choice(whole or [at])
            pieces[index] = b"\x8a\x0a" + chance.choice(INTEGERS).to_bytes(10, "little")
        elif what == 4:
            pieces.insert(
                at,
                chance.choice(
                    (
                        b"cos\nsystem\n", b"cbuiltins\neval\n", b"ctorch\nload\n", b"ccollections\nOrderedDict\n", b"R",
                        b"b", b"2", b"0", b"1", b"(", b"t", b"}", b"]", b"\x81", b"a", b"s", b"u", b"e", b"Q", b"N", b"h\xff",
                        b"r\xff\xff\xff\x7f",
                        b"\x8b\xff\xff\xff\x7f", b"X\xff\xff\xff\x7f", b"T\xff\xff\xff\x7f", b"\x8d" + struct.pack("<Q", 2**62),
                        b"\x96" + struct.pack("<Q", 2**50), b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nDoubleStorage\n",
                        b"ctorch\nfloat64\n", b"ctorch.nn.parameter\nParameter\n", b"ctorch._utils\n_rebuild_sparse_tensor\n",
                    )
                ),
            )  # fmt: skip
        else:
            pieces[at] = overwritten(chance, pieces[at], [raw])
    return b"".join(pieces)


def mutated(chance: random.Random, specimens: Sequence[bytes], special: Sequence[Mutation]) -> bytes:
    """One damaged copy of one of some valid files.

    Args:
        chance: what decides; the same state gives the same bytes.
        specimens: valid files.
        special: mutations that know the format; they are taken more often than those of bytes.
    """
    raw = chance.choice(specimens)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kind = chance.choice(special) if special and chance.random() < 0.65 else chance.choice(BYTES)
        try:
            raw = kind(chance, raw, specimens)
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            # The damage before leaves nothing of what this one would change.
            raw = flipped(chance, raw, specimens)
    return raw
