"""Files of packed models: one run of bytes, and a table that says what stands where in it.

A file is what ``torch.save`` makes of a dictionary: ``format``, ``version``, ``table`` (JSON text),
``payload`` (uint8: all tensors one behind another, without gaps, as the machine lays them out) and
``crc32`` (of table and payload). ``torch.load`` reads it with ``weights_only=True``.
"""

from __future__ import annotations

import io
import json
import math
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from roofline.errors import FileFormatError, InputError, said_by
from roofline.foundation.reading import refused
from roofline.quantization.codes.contents import InputBits, PackedModel, PackedWeight, in_module
from roofline.quantization.codes.packing import packed_bytes, unpack
from roofline.quantization.quantizers.coefficients import check_width

_FORMAT = "roofline packed model"
_VERSION = 1
_FIX = "make it anew with packed_state(model).save"
_KINDS = {"version": int, "table": str, "payload": torch.Tensor, "crc32": int}

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.complex128, torch.complex64),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


def file_content(packed: PackedModel) -> bytes:
    """What a file of a packed model holds.

    Raises:
        InputError: a tensor of a type that such files do not have.
    """
    tensors: list[torch.Tensor] = []
    first: dict[int, str] = {}
    weights: list[dict[str, Any]] = []
    for path, weight in packed.weights.items():
        if id(weight) in first:
            weights.append({"name": path, "same_as": first[id(weight)]})
            continue
        first[id(weight)] = path
        tensors += [weight.packed, weight.alpha]
        weights.append(
            {
                "name": path,
                "bits": weight.bits,
                "levels": weight.levels,
                "axis": weight.axis,
                "shape": list(weight.shape),
                "alpha": _described(path, weight.alpha),
            }
        )
    rest: list[dict[str, Any]] = []
    for name, tensor in packed.rest.items():
        if id(tensor) in first:
            rest.append({"name": name, "same_as": first[id(tensor)]})
            continue
        first[id(tensor)] = name
        tensors.append(tensor)
        rest.append({"name": name, **_described(name, tensor)})
    inputs = [
        {"name": path, "bits": each.bits, "signed": each.signed}
        for path, each in packed.inputs.items()
    ]
    table = json.dumps({"weights": weights, "inputs": inputs, "rest": rest}, separators=(",", ":"))
    payload = torch.cat([_bytes_of(each) for each in tensors]) if tensors else _NOTHING
    content = io.BytesIO()
    torch.save(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "table": table,
            "payload": payload,
            "crc32": _sum_of(table, payload),
        },
        content,
    )
    return content.getvalue()


def read_packed(path: Path) -> PackedModel:
    """The packed model of a file.

    Raises:
        FileFormatError: it is missing or cannot be read, is no packed model, is damaged, or was
            written by a newer version.
    """
    file = str(path)
    found = _loaded(path)
    is_ours = isinstance(found, dict) and type(found.get("format")) is str
    if not is_ours or found["format"] != _FORMAT:
        raise refused(file, "is no packed model", _FIX)
    version = found.get("version")
    if type(version) is int and version > _VERSION:
        raise refused(file, f"is of version {version}; this roofline reads {_VERSION}", "update it")
    if any(type(found.get(key)) is not kind for key, kind in _KINDS.items()):
        raise _damaged(file)
    table, payload = found["table"], found["payload"]
    if version != _VERSION or not _is_row_of_bytes(payload):
        raise _damaged(file)
    if found["crc32"] != _sum_of(table, payload):
        raise _damaged(file)
    try:
        return _from_table(json.loads(table), payload)
    # Of a table that somebody else made, anything may be wrong.
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, InputError) as error:
        raise refused(file, f"is damaged ({said_by(error)})", _FIX) from None


# -- bytes -----------------------------------------------------------------------------------------

_NOTHING = torch.empty(0, dtype=torch.uint8)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == 0:
        return _NOTHING
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _described(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _DTYPES or tensor.is_sparse or tensor.is_meta:
        raise InputError(f"{name}: a tensor of {dtype} ({tensor.layout}) cannot be kept in a file")
    return {"dtype": dtype, "shape": list(tensor.shape)}


def _is_row_of_bytes(payload: torch.Tensor) -> bool:
    """Whether it is all there: one byte that is said to be many would fill memory."""
    is_row = payload.dtype == torch.uint8 and payload.dim() == 1 and payload.device.type == "cpu"
    return is_row and payload.layout == torch.strided and payload.is_contiguous()


def _sum_of(table: str, payload: torch.Tensor) -> int:
    return zlib.crc32(payload.numpy().tobytes(), zlib.crc32(table.encode()))


def _loaded(path: Path) -> Any:
    """What torch reads of a file, which may be anybody's."""
    try:
        if path.exists() and not path.is_file():
            # A pipe or a device may never end.
            raise refused(str(path), "cannot be read: it is not a regular file", "")
        content = path.read_bytes()
    except FileNotFoundError:
        raise refused(str(path), "no such file", "") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else said_by(error)
        raise refused(str(path), f"cannot be read: {why}", "") from None
    with warnings.catch_warnings():
        # It warns of files in older formats of its own before it fails at them.
        warnings.simplefilter("ignore")
        try:
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        # Of bytes that are no file of torch's, its readers raise anything.
        except Exception:
            raise refused(str(path), "is no packed model, or is damaged", _FIX) from None


def _damaged(file: str) -> FileFormatError:
    return refused(file, "is damaged: its contents do not match their checksum", _FIX)


# -- the table -------------------------------------------------------------------------------------


class _Cut:
    """Takes tensors off the front of the payload."""

    def __init__(self, payload: torch.Tensor) -> None:
        self._payload = payload
        self._at = 0

    def bytes(self, count: int) -> torch.Tensor:
        end = self._at + count
        if end > self._payload.numel():
            raise ValueError("the table tells of more bytes than there are")
        found = self._payload[self._at : end].clone()
        self._at = end
        return found

    def tensor(self, described: dict[str, Any]) -> torch.Tensor:
        dtype, shape = _DTYPES[described["dtype"]], _shape(described["shape"])
        if math.prod(shape) == 0:
            return torch.empty(shape, dtype=dtype)
        return self.bytes(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)

    def end(self) -> None:
        if self._at != self._payload.numel():
            raise ValueError("the table tells of fewer bytes than there are")


def _from_table(table: dict[str, Any], payload: torch.Tensor) -> PackedModel:
    cut = _Cut(payload)
    weights = dict[str, PackedWeight]()
    for row in table["weights"]:
        is_other = "same_as" in row
        weights[_text(row["name"])] = weights[row["same_as"]] if is_other else _weight(row, cut)
    rest = dict[str, torch.Tensor]()
    for row in table["rest"]:
        is_other = "same_as" in row
        rest[_text(row["name"])] = rest[row["same_as"]] if is_other else cut.tensor(row)
    cut.end()
    inputs = dict(_inputs(table["inputs"]))
    for path in inputs:
        alpha = rest.get(in_module(path, "input_quantizer.alpha"))
        if (
            alpha is None
            or alpha.dim()
            or not alpha.is_floating_point()
            or not 0 < alpha < math.inf
        ):
            raise ValueError(f"'{path}' has no clipping value above 0")
    return PackedModel(weights=weights, inputs=inputs, rest=rest)


def _inputs(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, InputBits]]:
    for row in rows:
        check_width(row["bits"])
        yield _text(row["name"]), InputBits(bits=row["bits"], signed=bool(row["signed"]))


def _weight(row: dict[str, Any], cut: _Cut) -> PackedWeight:
    bits, levels, shape = row["bits"], row["levels"], _shape(row["shape"])
    check_width(bits)
    packed = cut.bytes(packed_bytes(math.prod(shape), bits))
    alpha = cut.tensor(row["alpha"])
    axis = row["axis"]
    if not isinstance(levels, int) or not 2 <= levels <= 2**bits or axis not in range(len(shape)):
        raise ValueError(f"levels {levels!r}, axis {axis!r}")
    if alpha.dim() > 1 or (alpha.dim() == 1 and len(alpha) != shape[axis]):
        raise ValueError(f"{alpha.numel()} scales for {shape[axis]} channels")
    if not alpha.is_floating_point() or not bool(((alpha >= 0) & (alpha < math.inf)).all()):
        raise ValueError("scales that are no numbers from 0 on")
    codes = unpack(packed, bits, shape)
    if codes.numel() and int(codes.max()) >= levels:
        raise ValueError("a code beyond the levels")
    return PackedWeight(
        bits=bits, levels=levels, axis=axis, shape=shape, packed=packed, alpha=alpha
    )


def _shape(sizes: Sequence[int]) -> tuple[int, ...]:
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise ValueError(f"shape {sizes!r}")
    return tuple(sizes)


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"name {name!r}")
    return name
