"""What the attributes of a stored dataset say: texts in any encoding, and how numbers were packed."""

from __future__ import annotations

from typing import Any

import numpy as np

from sciml.errors import DataError


def text(value: Any) -> str | None:
    r"""The text of an attribute; None if it is none. What is not UTF-8 is taken for Latin-1, as ``µ`` of old programs is.

    Args:
        value: as h5py or pyarrow give it: bytes, or a str in which bytes that are not UTF-8 are lone surrogates.

    Raises:
        DataError: never.

    Example:
        >>> from sciml.datasets.attributes import text
        >>> text(b"\xb5s"), text("\xb5s".encode())
        ('µs', 'µs')
    """
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if not isinstance(value, bytes):
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def label(what: str, row: int, value: Any) -> str:
    r"""The name of a row's group. A guess of its encoding could make another name of it, so only UTF-8 is taken.

    Args:
        what: the file and the dataset, for messages.
        row: its number.
        value: a text, its bytes, or a whole number.

    Raises:
        DataError: bytes that are not UTF-8.

    Example:
        >>> from sciml.datasets.attributes import label
        >>> label("run.h5: 'city'", 0, "Zürich".encode())
        'Zürich'
    """
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        return str(value)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{what}, row {row}: {raw!r} is not UTF-8 text; write the names of groups in UTF-8") from error


def packing(attributes: Any) -> str | None:
    """What has to be done to a dataset's numbers by the conventions CF before they mean anything; None for nothing.

    A fill value of NaN, which is missing anyway, and a factor of one change nothing.

    Args:
        attributes: by name, as h5py gives them.

    Raises:
        DataError: never.

    Example:
        >>> from sciml.datasets.attributes import packing
        >>> packing({"scale_factor": 0.01, "add_offset": 0.0})
        'scale_factor = 0.01'
    """
    for name, neutral in (("scale_factor", 1.0), ("add_offset", 0.0), ("_FillValue", None), ("missing_value", None)):
        if name not in attributes:
            continue
        value = np.ravel(np.asarray(attributes[name]))
        nothing = value.dtype.kind in "iuf" and np.all(np.isnan(value) if neutral is None else value == neutral)
        if not nothing:
            return f"{name} = {value[0] if len(value) == 1 else value}"
    return None
