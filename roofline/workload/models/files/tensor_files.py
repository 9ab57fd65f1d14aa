"""Weights out of .safetensors files: a list of tensors as JSON, and their values; no code."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from roofline.errors import FileFormatError, ModelError
from roofline.foundation.text import printable

SUFFIX = ".safetensors"

_DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_MOST_LIST_BYTE = 100_000_000
_LENGTH_BYTE = 8


def tensors_in(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file by their names; values are read where they are needed.

    Raises:
        ModelError: it cannot be read, or there are no tensors in it.
        FileFormatError: it is cut short or damaged.
    """
    try:
        with path.open("rb") as file:
            size_byte = file.seek(0, 2)
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size_byte else b""
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {printable(str(error))}") from None
    list_byte = int.from_bytes(content[:_LENGTH_BYTE], "little")
    begin = _LENGTH_BYTE + list_byte
    if list_byte > _MOST_LIST_BYTE or begin > len(content):
        raise FileFormatError(f"{path}: the file is cut short or damaged: its list is not whole")
    try:
        told = json.loads(content[_LENGTH_BYTE:begin])
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise FileFormatError(f"{path}: the list of tensors in it is damaged")
    told.pop("__metadata__", None)
    if not told:
        raise ModelError(f"{path}: there are no weights in it")
    return {name: _tensor(path, name, each, content, begin) for name, each in told.items()}


def _tensor(path: Path, name: str, told: Any, content: Any, begin: int) -> torch.Tensor:
    shown = printable(name)[:80]
    try:
        kind = _DTYPES[told["dtype"]]
        shape = tuple(int(each) for each in told["shape"])
        first, last = (int(each) for each in told["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise FileFormatError(f"{path}: what it says of the tensor '{shown}' is damaged") from None
    elements = math.prod(shape)
    is_inside = 0 <= first <= last <= len(content) - begin
    is_possible = min(shape, default=0) >= 0 and math.prod(max(each, 1) for each in shape) < 2**62
    if not is_possible or not is_inside or elements * kind.itemsize != last - first:
        raise FileFormatError(
            f"{path}: the tensor '{shown}' has the shape {shape}, and other values in the file; it"
            " is cut short or damaged"
        )
    if not elements:
        return torch.empty(shape, dtype=kind)
    flat = torch.frombuffer(content, dtype=kind, count=elements, offset=begin + first)
    return flat.reshape(shape)
