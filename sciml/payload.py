"""Tensors and plain values out of torch's files, without running what is in them."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from sciml.errors import FileError


def tensors(data: bytes | memoryview, path: Path) -> dict[str, Any]:
    """The dict of tensors and plain values in the bytes of a torch file."""
    try:
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise FileError(f"{path} holds more than tensors and plain values and was refused: {error}") from error
    except Exception as error:
        raise FileError(f"{path} cannot be read; it is damaged: {type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise FileError(f"{path} holds no names and values")
    return content
