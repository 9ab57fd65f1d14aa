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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from roofline.core.files import refused, write_atomically
from roofline.errors import InputError, error_text
from roofline.quantization.quantizers import check_width

T = TypeVar("T")


# The bits of all codes stand one behind another, each code's lowest bit first; bit *n* of that
# stream is bit ``n % 8`` of byte ``n // 8``, the lowest being bit 0. What is left of the last byte
# is zero. The 2-bit codes 1, 2, 3, 0, 3 are the bytes 0x39 (``00 11 10 01``) and 0x03 (``00 00 00
# 11``).


def packed_bytes(count: int, bits: int) -> int:
    """The bytes that so many codes take, packed: ``ceil(count * bits / 8)``."""
    return (count * bits + 7) // 8


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes as bytes: one dimension of uint8, exactly ``ceil(n * bits / 8)`` of them.

    Args:
        codes: whole numbers from 0 to ``2 ** bits - 1``, of any integer type and shape.
        bits: of each code, 1 to 16.

    Raises:
        InputError: other bits, or codes that are no such numbers.
    """
    check_width(bits)
    if codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool:
        raise InputError(f"pack: codes of type {codes.dtype}; give whole numbers (uint8, int32 …)")
    wide = codes.detach().reshape(-1).to(torch.int64)
    count = wide.numel()
    if count and (int(wide.min()) < 0 or int(wide.max()) >= 2**bits):
        raise InputError(
            f"pack: codes from {int(wide.min())} to {int(wide.max())}; {bits} bits hold 0 to"
            f" {2**bits - 1}"
        )
    return _regrouped(wide, bits, 8)[: packed_bytes(count, bits)].to(torch.uint8)


def unpack(packed: torch.Tensor, bits: int, shape: Sequence[int]) -> torch.Tensor:
    """The codes that `pack` was given: uint8 up to 8 bits, int32 for more.

    Args:
        packed: what `pack` gave.
        bits: of each code, 1 to 16.
        shape: of the codes.

    Raises:
        InputError: other bits, or bytes that are not those of codes of that shape.
    """
    check_width(bits)
    sizes = tuple(shape)
    count = math.prod(sizes)
    due = packed_bytes(count, bits)
    if min(sizes, default=0) < 0:
        raise InputError(f"unpack: shape {sizes}; no size can be below 0")
    if packed.dtype != torch.uint8 or packed.dim() != 1 or packed.numel() != due:
        raise InputError(
            f"unpack: {packed.dtype} of shape {tuple(packed.shape)}; {count} codes of {bits} bits"
            f" are {due} bytes of uint8 in one dimension"
        )
    codes = _regrouped(packed, 8, bits)
    if codes[count:].any():
        raise InputError("unpack: bits are set behind the last code; the bytes are damaged")
    return _shaped(codes, bits, sizes)


def unpacked(packed: torch.Tensor, bits: int, shape: Sequence[int]) -> torch.Tensor:
    """What `unpack` gives, of bytes that are known to be sound: no value of them is looked at."""
    return _shaped(_regrouped(packed, 8, bits), bits, shape)


def _shaped(codes: torch.Tensor, bits: int, shape: Sequence[int]) -> torch.Tensor:
    dtype = torch.uint8 if bits <= 8 else torch.int32
    return codes[: math.prod(shape)].to(dtype).reshape(tuple(shape))


def _regrouped(numbers: torch.Tensor, old: int, new: int) -> torch.Tensor:
    """Numbers of `old` bits, whose bits are one stream, as numbers of `new` bits.

    `new` numbers of the one kind have as many bits as `old` of the other: such a group is done at
    once. What the last group lacks is zero.
    """
    groups = -(-numbers.numel() // new)
    padded = torch.zeros(groups * new, dtype=torch.int32, device=numbers.device)
    padded[: numbers.numel()] = numbers
    sources = padded.view(groups, new)
    results = sources.new_zeros((groups, old))
    for source in range(new):
        for result in range(old):
            left = source * old - result * new
            if -old < left < new:
                values = sources[:, source]
                shifted = values << left if left >= 0 else values >> -left
                results[:, result] |= shifted & (2**new - 1)
    return results.view(-1)


Kind = Literal["codes", "scale", "clipping", "other"]
"""Packed weights; what their codes are multiplied by; the clipping of activations; all the rest:
biases, norms, layers that are not quantized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTensor:
    """A row of the table of bytes: one tensor, ``bits`` of each of its elements."""

    name: str
    kind: Kind
    bits: int
    elements: int
    byte: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedWeight:
    """The weight of one layer: ``packed`` codes, and ``alpha`` for all or for each channel.

    ``axis`` is the dimension of the weight that has the channels. The value of a code is
    ``alpha / (levels - 1) * (2 * code - (levels - 1))``.
    """

    bits: int
    levels: int
    axis: int
    shape: tuple[int, ...]
    packed: torch.Tensor
    alpha: torch.Tensor

    def codes(self) -> torch.Tensor:
        """The codes in the shape of the weight."""
        return unpack(self.packed, self.bits, self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBits:
    """How a module quantizes what it reads; its clipping value is among the ``rest``."""

    bits: int
    signed: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedModel:
    """A quantized model as what a file needs to hold: codes, scales, and the rest as it is.

    ``weights`` and ``inputs`` are by the qualified names of modules, ``rest`` by the names of a
    state dict. What two names share is the same object under both, and is counted once.
    """

    weights: Mapping[str, PackedWeight]
    inputs: Mapping[str, InputBits]
    rest: Mapping[str, torch.Tensor]

    @property
    def byte(self) -> int:
        """The bytes of all of it: codes packed, each tensor once, no names and no alignment."""
        return sum(row.byte for row in self.rows)

    @property
    def rows(self) -> tuple[PackedTensor, ...]:
        """Its bytes by tensor; codes and scales of a weight are two rows under one name."""
        found: list[PackedTensor] = []
        for path, weight in _once(self.weights):
            name, codes = in_module(path, "weight"), _row("", "codes", weight.packed)
            elements = math.prod(weight.shape)
            found.append(replace(codes, name=name, bits=weight.bits, elements=elements))
            found.append(_row(name, "scale", weight.alpha))
        for name, tensor in _once(self.rest):
            parts = name.split(".")
            kind: Kind = "other"
            if "input_quantizer" in parts:
                kind = "clipping"
            elif parts[-4:-2] == ["parametrizations", "weight"]:
                kind = "scale"
            found.append(_row(name, kind, tensor))
        return tuple(found)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes it to a file, whole or not at all; `packed_models.load_packed` reads it.

        Besides these bytes the file has names and shapes: about a hundred bytes for each tensor,
        and two thousand.

        Raises:
            InputError: a file that exists, or one that cannot be written.
        """
        write_atomically(Path(path), file_content(self), overwrite=overwrite)


def in_module(path: str, name: str) -> str:
    """The name of a module's tensor in the state dict of the model: ``"layer1.0.conv1.weight"``."""
    return f"{path}.{name}" if path else name


def _once(named: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    """What has several names under the first of them."""
    seen: set[int] = set()
    for name, each in named.items():
        if id(each) not in seen:
            seen.add(id(each))
            yield name, each


def _row(name: str, kind: Kind, tensor: torch.Tensor) -> PackedTensor:
    return PackedTensor(
        name=name,
        kind=kind,
        bits=8 * tensor.element_size(),
        elements=tensor.numel(),
        byte=tensor.numel() * tensor.element_size(),
    )


_FORMAT = "roofline packed model"
_VERSION = 1
_FIX = "make it again with packed_state(model).save"
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
    """What a file of a packed model holds."""
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
    """The packed model of a file; a FileFormatError where it is none, or a damaged or newer one."""
    file = str(path)
    found = _loaded(path)
    is_ours = isinstance(found, dict) and type(found.get("format")) is str
    if not is_ours or found["format"] != _FORMAT:
        raise refused(file, "is no packed model", _FIX)
    version = found.get("version")
    if type(version) is int and version > _VERSION:
        raise refused(file, f"is of version {version}; this roofline reads {_VERSION}", "update it")
    table: Any = found.get("table")
    payload: Any = found.get("payload")
    is_whole = (
        all(type(found.get(key)) is kind for key, kind in _KINDS.items())
        and version == _VERSION
        # One byte that is said to be many would fill memory.
        and payload.layout == torch.strided
        and (payload.dtype, payload.dim(), payload.device.type) == (torch.uint8, 1, "cpu")
        and payload.is_contiguous()
        and found["crc32"] == _sum_of(table, payload)
    )
    if not is_whole:
        raise refused(file, "is damaged: its contents do not match their checksum", _FIX)
    try:
        return _from_table(json.loads(table), payload)
    # Of a table that somebody else made, anything may be wrong.
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, InputError) as error:
        raise refused(file, f"is damaged ({error_text(error)})", _FIX) from None


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
        why = error.strerror if isinstance(error, OSError) else error_text(error)
        raise refused(str(path), f"cannot be read: {why}", "") from None
    with warnings.catch_warnings():
        # It warns of files in older formats of its own before it fails at them.
        warnings.simplefilter("ignore")
        try:
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        # Of bytes that are no file of torch's, its readers raise anything.
        except Exception:
            raise refused(str(path), "is no packed model, or is damaged", _FIX) from None


# -- the table -------------------------------------------------------------------------------------


class _Cut:
    """Takes tensors off the front of the payload."""

    def __init__(self, payload: torch.Tensor) -> None:
        self.rest = payload

    def bytes(self, count: int) -> torch.Tensor:
        """So many of them."""
        if count > self.rest.numel():
            raise ValueError("the table tells of more bytes than there are")
        found, self.rest = self.rest[:count].clone(), self.rest[count:]
        return found

    def tensor(self, described: dict[str, Any]) -> torch.Tensor:
        """A tensor that the table describes."""
        dtype, shape = _DTYPES[described["dtype"]], _shape(described["shape"])
        if math.prod(shape) == 0:
            return torch.empty(shape, dtype=dtype)
        return self.bytes(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def _from_table(table: dict[str, Any], payload: torch.Tensor) -> PackedModel:
    cut = _Cut(payload)

    def read(rows: list[dict[str, Any]], made: Callable[[dict[str, Any]], T]) -> dict[str, T]:
        found = dict[str, T]()
        for row in rows:
            found[_text(row["name"])] = found[row["same_as"]] if "same_as" in row else made(row)
        return found

    weights = read(table["weights"], lambda row: _weight(row, cut))
    rest = read(table["rest"], cut.tensor)
    if cut.rest.numel():
        raise ValueError("the table tells of fewer bytes than there are")
    inputs = dict[str, InputBits]()
    for row in table["inputs"]:
        check_width(row["bits"])
        path = _text(row["name"])
        inputs[path] = InputBits(bits=row["bits"], signed=bool(row["signed"]))
        alpha = rest.get(in_module(path, "input_quantizer.alpha"))
        is_number = alpha is not None and not alpha.dim() and alpha.is_floating_point()
        if alpha is None or not is_number or not 0 < alpha < math.inf:
            raise ValueError(f"'{path}' has no clipping value above 0")
    return PackedModel(weights=weights, inputs=inputs, rest=rest)


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
