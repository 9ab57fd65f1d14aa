"""Tensors out of ONNX files, held against what the file has before anything is allocated."""

from __future__ import annotations

import math
import mmap
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from roofline.errors import FileFormatError
from roofline.foundation.text import printable

DTYPES: dict[int, torch.dtype] = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    4: torch.uint16,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    12: torch.uint32,
    13: torch.uint64,
    14: torch.complex64,
    15: torch.complex128,
    16: torch.bfloat16,
    17: torch.float8_e4m3fn,
    19: torch.float8_e5m2,
}
"""torch's types by ONNX's numbers."""

_FIELDS = {
    torch.float32: "float_data",
    torch.complex64: "float_data",
    torch.float64: "double_data",
    torch.complex128: "double_data",
    torch.int64: "int64_data",
    torch.uint64: "uint64_data",
    torch.uint32: "uint64_data",
}
_BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.int8,
    torch.float8_e5m2: torch.int8,
}
"""Types of which the bits are given as whole numbers."""

_EXTERNAL = 1
_MOST_ELEMENTS = 2**62


def dtype_of(path: Path, number: int, name: str) -> torch.dtype:
    """torch's type for ONNX's number.

    Raises:
        FileFormatError: torch has none.
    """
    found = DTYPES.get(number)
    if found is None:
        raise FileFormatError(
            f"{path}: '{name}' has ONNX's element type {number}, for which torch has none"
        )
    return found


def tensor_of(path: Path, proto: Any) -> torch.Tensor:
    """A tensor of the file with its values.

    Args:
        path: the file; values outside of it lie beside it.
        proto: an ``onnx.TensorProto``.

    Raises:
        FileFormatError: it has more or fewer values than its shape says, or these lie elsewhere.
    """
    name = printable(proto.name)[:80]
    kind = dtype_of(path, proto.data_type, name)
    shape = tuple(proto.dims)
    elements = math.prod(shape)
    # Of sizes beside a zero, too, the product must be one that torch can have.
    if min(shape, default=0) < 0 or math.prod(max(each, 1) for each in shape) > _MOST_ELEMENTS:
        raise FileFormatError(f"{path}: '{name}' has the shape {shape}, which no tensor has")
    if proto.data_location == _EXTERNAL:
        return _external(path, name, proto, kind, shape)
    if proto.HasField("raw_data"):
        if len(proto.raw_data) != elements * kind.itemsize:
            raise _wrong_size(path, name, shape, elements * kind.itemsize, len(proto.raw_data))
        if not elements:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(bytearray(proto.raw_data), dtype=kind).reshape(shape)
    values = list(getattr(proto, _FIELDS.get(kind, "int32_data")))
    if kind.is_complex:
        values = [complex(*pair) for pair in zip(values[::2], values[1::2], strict=False)]
    if len(values) != elements:
        raise _wrong_size(path, name, shape, elements, len(values))
    try:
        if kind in _BITS:
            return torch.tensor(values, dtype=torch.int32).to(_BITS[kind]).view(kind).reshape(shape)
        return torch.tensor(values, dtype=kind).reshape(shape)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise FileFormatError(
            f"{path}: '{name}' has values that are no {str(kind).removeprefix('torch.')}:"
            f" {printable(str(error))[:100]}"
        ) from None


def _wrong_size(
    path: Path, name: str, shape: tuple[int, ...], expected: int, found: int
) -> FileFormatError:
    return FileFormatError(
        f"{path}: '{name}' has the shape {shape}, which takes {expected:,}, and {found:,} are in"
        " the file; it is damaged"
    )


def _external(
    path: Path, name: str, proto: Any, kind: torch.dtype, shape: tuple[int, ...]
) -> torch.Tensor:
    """Values in a file beside the model's, read where they are needed."""
    told = {each.key: each.value for each in proto.external_data}
    # Bytes that are no text are none.
    location = str(told.get("location", ""))
    where = PurePosixPath(location)
    shown = printable(location)[:80]
    if not location or where.is_absolute() or ".." in where.parts or "\\" in location:
        raise FileFormatError(
            f"{path}: not opened: the values of '{name}' would be read from '{shown}', outside of"
            " the model's folder"
        )
    try:
        # Neither it nor a folder on the way to it may be a link out of here; a cache of models has
        # links for both, to the files themselves in one folder.
        folders = path.parent.resolve(), path.resolve().parent
        places = [(folder / location).resolve() for folder in folders]
        inside = [each for each in places if any(map(each.is_relative_to, folders))]
        beside = next((each for each in inside if each.is_file()), None)
        if beside is None:
            raise FileFormatError(
                f"{path}: the values of '{name}' are in '{shown}', which is missing beside it"
            )
        offset = int(told.get("offset", "0"))
        size_bytes = math.prod(shape) * kind.itemsize
        length = int(told.get("length", str(size_bytes)))
        if length != size_bytes or offset < 0 or offset + length > beside.stat().st_size:
            raise FileFormatError(
                f"{path}: the values of '{name}' do not lie in '{shown}' as it says; one of both is"
                " cut short or of another model"
            )
        if not size_bytes:
            return torch.empty(shape, dtype=kind)
        with beside.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{path}: the values of '{name}' in '{shown}' cannot be read:"
            f" {printable(str(error))[:100]}"
        ) from None
    flat = torch.frombuffer(content, dtype=kind, count=math.prod(shape), offset=offset)
    return flat.reshape(shape)
