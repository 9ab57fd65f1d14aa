"""Files of packed models: a byte sequence, and a table that describes it.

A file is a dictionary written by ``torch.save``: ``format``, ``version``, ``table`` (JSON text),
``payload`` (uint8: all tensors without gaps, in native byte order) and ``crc32`` (of table and
payload). ``torch.load`` reads it with ``weights_only=True``.
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


# Codes form a bit stream, lowest bit of each code first; bit *n* of the stream is bit ``n % 8`` of
# byte ``n // 8``, bit 0 being the lowest. The last byte is padded with zeros. The 2-bit codes 1, 2,
# 3, 0, 3 are the bytes 0x39 (``00 11 10 01``) and 0x03 (``00 00 00 11``).


def packed_bytes(count: int, bits: int) -> int:
    """Return the size of packed codes in bytes: ``ceil(count * bits / 8)``."""
    return (count * bits + 7) // 8


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return codes as bytes: one-dimensional uint8 of size ``ceil(n * bits / 8)``.

    Args:
        codes: integers from 0 to ``2 ** bits - 1``, of any integer type and shape.
        bits: bits per code, 1 to 16.

    Raises:
        InputError: invalid bits or codes.
    """
    check_width(bits)
    if codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool:
        raise InputError(f"pack: codes of type {codes.dtype}; use integers (uint8, int32 …)")
    wide = codes.detach().reshape(-1).to(torch.int64)
    count = wide.numel()
    if count and (int(wide.min()) < 0 or int(wide.max()) >= 2**bits):
        raise InputError(
            f"pack: codes from {int(wide.min())} to {int(wide.max())}; the range of {bits} bits is"
            f" 0 to {2**bits - 1}"
        )
    return _regroup_bits(wide, bits, 8)[: packed_bytes(count, bits)].to(torch.uint8)


def unpack(packed: torch.Tensor, bits: int, shape: Sequence[int]) -> torch.Tensor:
    """Return the codes from `pack`: uint8 up to 8 bits, int32 for more.

    Args:
        packed: result of `pack`.
        bits: bits per code, 1 to 16.
        shape: shape of the codes.

    Raises:
        InputError: invalid bits, or bytes that do not fit the shape.
    """
    check_width(bits)
    sizes = tuple(shape)
    count = math.prod(sizes)
    due = packed_bytes(count, bits)
    if min(sizes, default=0) < 0:
        raise InputError(f"unpack: shape {sizes} has a negative size")
    if packed.dtype != torch.uint8 or packed.dim() != 1 or packed.numel() != due:
        raise InputError(
            f"unpack: {packed.dtype} of shape {tuple(packed.shape)}; {count} codes of {bits} bits"
            f" are {due} bytes of uint8 in one dimension"
        )
    codes = _regroup_bits(packed, 8, bits)
    if codes[count:].any():
        raise InputError("unpack: bits set after the last code; the bytes are damaged")
    return _shaped(codes, bits, sizes)


def unpack_trusted(packed: torch.Tensor, bits: int, shape: Sequence[int]) -> torch.Tensor:
    """Return the codes as in `unpack`, without checks that read values."""
    return _shaped(_regroup_bits(packed, 8, bits), bits, shape)


def _shaped(codes: torch.Tensor, bits: int, shape: Sequence[int]) -> torch.Tensor:
    dtype = torch.uint8 if bits <= 8 else torch.int32
    return codes[: math.prod(shape)].to(dtype).reshape(tuple(shape))


def _regroup_bits(numbers: torch.Tensor, old: int, new: int) -> torch.Tensor:
    """Return numbers of `old` bits, as a bit stream, as numbers of `new` bits.

    Processed in groups of `new` numbers, which have as many bits as `old` results; padded with
    zeros.
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
"""Packed weights, their scales, clipping values of activations, and all other tensors (biases,
norms, unquantized layers).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTensor:
    """Size of one tensor: ``bits`` per element, ``byte`` in total."""

    name: str
    kind: Kind
    bits: int
    elements: int
    byte: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedWeight:
    """Weight of one layer: ``packed`` codes, and ``alpha`` per tensor or channel.

    ``axis`` is the channel dimension of the weight. A code has the value ``alpha / (levels - 1) *
    (2 * code - (levels - 1))``.
    """

    bits: int
    levels: int
    axis: int
    shape: tuple[int, ...]
    packed: torch.Tensor
    alpha: torch.Tensor

    def codes(self) -> torch.Tensor:
        return unpack(self.packed, self.bits, self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBits:
    """Input quantizer of a module; its clipping value is in ``rest``."""

    bits: int
    signed: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedModel:
    """Content of a packed model: codes, scales, and other tensors.

    ``weights`` and ``inputs`` are by qualified module name, ``rest`` by name in the state dict.
    Shared tensors are the same object under all names, and count once.
    """

    weights: Mapping[str, PackedWeight]
    inputs: Mapping[str, InputBits]
    rest: Mapping[str, torch.Tensor]

    @property
    def byte(self) -> int:
        """Total size in bytes: packed codes, each tensor once, without names and alignment."""
        return sum(row.byte for row in self.rows)

    @property
    def rows(self) -> tuple[PackedTensor, ...]:
        """Sizes by tensor; codes and scales of a weight are two rows of the same name."""
        found: list[PackedTensor] = []
        for path, weight in _distinct(self.weights):
            name, codes = qualified_name(path, "weight"), _row("", "codes", weight.packed)
            elements = math.prod(weight.shape)
            found.append(replace(codes, name=name, bits=weight.bits, elements=elements))
            found.append(_row(name, "scale", weight.alpha))
        for name, tensor in _distinct(self.rest):
            parts = name.split(".")
            kind: Kind = "other"
            if "input_quantizer" in parts:
                kind = "clipping"
            elif parts[-4:-2] == ["parametrizations", "weight"]:
                kind = "scale"
            found.append(_row(name, kind, tensor))
        return tuple(found)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model to a file, atomically; `packed_models.load_packed` reads it.

        Names and shapes add about a hundred bytes per tensor, and two thousand.

        Raises:
            InputError: the file exists, or cannot be written.
        """
        write_atomically(Path(path), file_content(self), overwrite=overwrite)


def qualified_name(path: str, name: str) -> str:
    """Return the name of a module's tensor in the state dict: ``"layer1.0.conv1.weight"``."""
    return f"{path}.{name}" if path else name


def _distinct(named: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    """Yield distinct values, each with its first name."""
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
_FIX = "write it again with packed_state(model).save"
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
                "alpha": _describe(path, weight.alpha),
            }
        )
    rest: list[dict[str, Any]] = []
    for name, tensor in packed.rest.items():
        if id(tensor) in first:
            rest.append({"name": name, "same_as": first[id(tensor)]})
            continue
        first[id(tensor)] = name
        tensors.append(tensor)
        rest.append({"name": name, **_describe(name, tensor)})
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
            "crc32": _checksum(table, payload),
        },
        content,
    )
    return content.getvalue()


def read_packed(path: Path) -> PackedModel:
    """Return the packed model of a file.

    Raises:
        FileFormatError: not a packed model, damaged, or of a newer version.
    """
    file = str(path)
    found = _load(path)
    is_ours = isinstance(found, dict) and type(found.get("format")) is str
    if not is_ours or found["format"] != _FORMAT:
        raise refused(file, "is not a packed model", _FIX)
    version = found.get("version")
    if type(version) is int and version > _VERSION:
        raise refused(file, f"is of version {version}; this roofline reads {_VERSION}", "update it")
    table: Any = found.get("table")
    payload: Any = found.get("payload")
    is_whole = (
        all(type(found.get(key)) is kind for key, kind in _KINDS.items())
        and version == _VERSION
        # An expanded byte could exhaust memory.
        and payload.layout == torch.strided
        and (payload.dtype, payload.dim(), payload.device.type) == (torch.uint8, 1, "cpu")
        and payload.is_contiguous()
        and found["crc32"] == _checksum(table, payload)
    )
    if not is_whole:
        raise refused(file, "is damaged: its contents do not match their checksum", _FIX)
    try:
        return _from_table(json.loads(table), payload)
    # The table is untrusted.
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, InputError) as error:
        raise refused(file, f"is damaged ({error_text(error)})", _FIX) from None


# -- bytes -----------------------------------------------------------------------------------------

_NOTHING = torch.empty(0, dtype=torch.uint8)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == 0:
        return _NOTHING
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _describe(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _DTYPES or tensor.is_sparse or tensor.is_meta:
        raise InputError(f"{name}: unsupported tensor of {dtype} ({tensor.layout})")
    return {"dtype": dtype, "shape": list(tensor.shape)}


def _checksum(table: str, payload: torch.Tensor) -> int:
    return zlib.crc32(payload.numpy().tobytes(), zlib.crc32(table.encode()))


def _load(path: Path) -> Any:
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
        # torch.load warns about older formats before it fails.
        warnings.simplefilter("ignore")
        try:
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        # torch.load may raise anything for other files.
        except Exception:
            raise refused(str(path), "is not a packed model, or is damaged", _FIX) from None


# -- the table -------------------------------------------------------------------------------------


class _PayloadReader:
    def __init__(self, payload: torch.Tensor) -> None:
        self.rest = payload

    def bytes(self, count: int) -> torch.Tensor:
        if count > self.rest.numel():
            raise ValueError("payload shorter than in the table")
        found, self.rest = self.rest[:count].clone(), self.rest[count:]
        return found

    def tensor(self, described: dict[str, Any]) -> torch.Tensor:
        """Return the next tensor, described by the table."""
        dtype, shape = _DTYPES[described["dtype"]], _shape(described["shape"])
        if math.prod(shape) == 0:
            return torch.empty(shape, dtype=dtype)
        return self.bytes(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def _from_table(table: dict[str, Any], payload: torch.Tensor) -> PackedModel:
    cut = _PayloadReader(payload)

    def read(rows: list[dict[str, Any]], made: Callable[[dict[str, Any]], T]) -> dict[str, T]:
        found = dict[str, T]()
        for row in rows:
            found[_text(row["name"])] = found[row["same_as"]] if "same_as" in row else made(row)
        return found

    weights = read(table["weights"], lambda row: _weight(row, cut))
    rest = read(table["rest"], cut.tensor)
    if cut.rest.numel():
        raise ValueError("payload longer than in the table")
    inputs = dict[str, InputBits]()
    for row in table["inputs"]:
        check_width(row["bits"])
        path = _text(row["name"])
        inputs[path] = InputBits(bits=row["bits"], signed=bool(row["signed"]))
        alpha = rest.get(qualified_name(path, "input_quantizer.alpha"))
        is_number = alpha is not None and not alpha.dim() and alpha.is_floating_point()
        if alpha is None or not is_number or not 0 < alpha < math.inf:
            raise ValueError(f"'{path}' has no clipping value above 0")
    return PackedModel(weights=weights, inputs=inputs, rest=rest)


def _weight(row: dict[str, Any], cut: _PayloadReader) -> PackedWeight:
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
        raise ValueError("invalid scales")
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
