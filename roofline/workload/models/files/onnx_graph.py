"""ONNX graphs as plain values: nodes with attributes, and weights by name."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from roofline.core.text import printable
from roofline.errors import FileFormatError

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
"""torch data types by ONNX element type."""

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
"""Types whose bits are stored as integers."""

_EXTERNAL = 1
_MAX_ELEMENTS = 2**62


def dtype_of(path: Path, number: int, name: str) -> torch.dtype:
    """Return torch's type for an ONNX element type; FileFormatError if torch has none."""
    found = DTYPES.get(number)
    if found is None:
        raise FileFormatError(
            f"{path}: '{name}' has ONNX element type {number}, which torch does not support"
        )
    return found


def _tensor_of(path: Path, proto: Any) -> torch.Tensor:
    """Return a tensor with its values, from the file or from an external one next to it."""
    name = printable(proto.name)[:80]
    kind = dtype_of(path, proto.data_type, name)
    shape = tuple(proto.dims)
    elements = math.prod(shape)
    # The product of the other sizes must be valid even with a size of zero.
    if min(shape, default=0) < 0 or math.prod(max(each, 1) for each in shape) > _MAX_ELEMENTS:
        raise FileFormatError(f"{path}: '{name}' has the invalid shape {shape}")
    if proto.data_location == _EXTERNAL:
        return _external(path, name, proto, kind, shape)
    values: Any = proto.raw_data
    if is_raw := proto.HasField("raw_data"):
        expected = elements * kind.itemsize
    else:
        values, expected = list(getattr(proto, _FIELDS.get(kind, "int32_data"))), elements
        if kind.is_complex:
            values = [complex(*pair) for pair in zip(values[::2], values[1::2], strict=False)]
    if len(values) != expected:
        raise FileFormatError(
            f"{path}: '{name}' is damaged: shape {shape} needs {expected:,}"
            f" {'bytes' if is_raw else 'values'}, the file has {len(values):,}"
        )
    try:
        if is_raw and elements:
            return torch.frombuffer(bytearray(values), dtype=kind).reshape(shape)
        if kind in _BITS and elements:
            return torch.tensor(values, dtype=torch.int32).to(_BITS[kind]).view(kind).reshape(shape)
        return torch.tensor([] if is_raw else values, dtype=kind).reshape(shape)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise FileFormatError(
            f"{path}: '{name}' has invalid values for {str(kind).removeprefix('torch.')}:"
            f" {printable(str(error))[:100]}"
        ) from None


def _external(
    path: Path, name: str, proto: Any, kind: torch.dtype, shape: tuple[int, ...]
) -> torch.Tensor:
    """Return values from a file next to the model's, mapped into memory."""
    entries = {each.key: each.value for each in proto.external_data}
    location = str(entries.get("location", ""))
    where, shown = PurePosixPath(location), f"'{printable(location)[:80]}'"
    if not location or where.is_absolute() or ".." in where.parts or "\\" in location:
        raise FileFormatError(
            f"{path}: not opened: values of '{name}' are in {shown}, outside of the model's folder"
        )
    try:
        # Links out of the folder are not followed; in a model cache both files are links into one
        # folder.
        folders = path.parent.resolve(), path.resolve().parent
        places = [(folder / location).resolve() for folder in folders]
        inside = [each for each in places if any(map(each.is_relative_to, folders))]
        external = next((each for each in inside if each.is_file()), None)
        if external is None:
            raise FileFormatError(
                f"{path}: values of '{name}' are in {shown}, which is missing in its folder"
            )
        offset = int(entries.get("offset", "0"))
        size_bytes = math.prod(shape) * kind.itemsize
        length = int(entries.get("length", str(size_bytes)))
        if length != size_bytes or offset < 0 or offset + length > external.stat().st_size:
            raise FileFormatError(
                f"{path}: values of '{name}' are outside of {shown}; one of the files is truncated"
                " or of another model"
            )
        if not size_bytes:
            return torch.empty(shape, dtype=kind)
        with external.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{path}: values of '{name}' in {shown} cannot be read: {printable(str(error))[:100]}"
        ) from None
    flat = torch.frombuffer(content, dtype=kind, count=math.prod(shape), offset=offset)
    return flat.reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A call of an ONNX operator.

    ``domain`` is that of the operator (``""``: ONNX's own), ``opset`` the version of the domain.
    ``inputs`` and ``outputs`` are names of values, ``""`` for omitted ones.
    """

    operator: str
    domain: str
    opset: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or `default`."""
        return self.attributes.get(name, default)

    @property
    def given_outputs(self) -> int:
        """Number of outputs that are used."""
        return sum(map(bool, self.outputs))

    @property
    def full_name(self) -> str:
        """The operator with its domain, ``"com.microsoft.FusedMatMul"``."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Type and shape of a value; open sizes are None or a name.

    ``shape`` is None if the number of dimensions is unknown.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph: ``weights`` are its initializers, ``known`` its declared types and shapes."""

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    weights: Mapping[str, torch.Tensor]
    known: Mapping[str, Value]


_LARGEST_CONSTANT = 4096
"""Largest constant that may be a size, in elements; larger ones are weights."""


def read_graph(path: Path, model: Any) -> Graph:
    """Return the graph of an ``onnx.ModelProto``; FileFormatError if it is invalid."""
    proto = model.graph
    opsets = {domain_of(each): each.version for each in model.opset_import}
    if proto.sparse_initializer:
        raise FileFormatError(f"{path}: sparse weights are not supported")
    _check_texts(path, proto)
    weights = {each.name: _tensor_of(path, each) for each in proto.initializer}
    inputs = tuple(_value(path, each) for each in proto.input if each.name not in weights)
    nodes: list[Node] = []
    for each in proto.node:
        domain = domain_of(each)
        node = Node(
            operator=each.op_type,
            domain=domain,
            opset=opsets.get(domain, 1),
            name=each.name or each.op_type,
            inputs=tuple(each.input),
            outputs=tuple(each.output),
            attributes={one.name: _attribute(path, one) for one in each.attribute},
        )
        value: Any = node.get("value") if node.full_name == "Constant" else None
        is_one = isinstance(value, torch.Tensor) and len(node.outputs) == 1
        if is_one and value.numel() > _LARGEST_CONSTANT:
            weights[node.outputs[0]] = value
        else:
            nodes.append(node)
    outputs = tuple(each.name for each in proto.output)
    if not outputs or not nodes:
        raise FileFormatError(f"{path}: no graph in the file; truncated or not an ONNX model")
    _check_order(path, nodes, outputs, {*weights, *(each.name for each in inputs)})
    known = {
        each.name: _value(path, each)
        for each in (*proto.value_info, *proto.output)
        if each.type.HasField("tensor_type") and each.type.tensor_type.elem_type in DTYPES
    }
    return Graph(inputs=inputs, outputs=outputs, nodes=tuple(nodes), weights=weights, known=known)


def domain_of(proto: Any) -> str:
    """Return the domain of a node, function or operator set; ``""``: ONNX's own."""
    return "" if proto.domain == "ai.onnx" else proto.domain


def _check_order(path: Path, nodes: Sequence[Node], outputs: Sequence[str], made: set[str]) -> None:
    """Reject values that are defined twice, never, or after their use."""

    def check(name: str, is_sound: bool, what: str) -> None:
        if not is_sound:
            raise FileFormatError(f"{path}: value '{printable(name)[:80]}' is {what}")

    later = {name for node in nodes for name in node.outputs}
    for node in nodes:
        reader = f"'{printable(node.name)[:60]}'"
        for name in filter(None, node.inputs):
            what = f"undefined, but read by {reader}; the file is truncated or damaged"
            if name in later:
                what = f"read by {reader} before its definition: the nodes are not sorted"
            check(name, name in made, what)
        for name in filter(None, node.outputs):
            check(name, name not in made, "defined twice; the file is damaged")
            made.add(name)
    for name in outputs:
        what = "undefined, but an output; the file is truncated or damaged"
        check(name, name in made, what)


def _check_texts(path: Path, proto: Any) -> None:
    """Reject names that are not UTF-8, which protobuf returns as bytes."""
    named = (*proto.initializer, *proto.input, *proto.output, *proto.value_info)
    texts: list[Any] = [each.name for each in named]
    for node in proto.node:
        texts += (node.op_type, node.domain, node.name, *node.input, *node.output)
        texts += (each.name for each in node.attribute)
    for each in texts:
        if not isinstance(each, str):
            raise FileFormatError(f"{path}: damaged: invalid name {printable(repr(each))[:80]}")


def _value(path: Path, proto: Any) -> Value:
    name = printable(proto.name)
    if not proto.type.HasField("tensor_type"):
        raise FileFormatError(f"{path}: input '{name[:80]}' is a list or map, not a tensor")
    declared = proto.type.tensor_type
    kinds = [(each, each.WhichOneof("value")) for each in declared.shape.dim]
    sizes = tuple(getattr(each, kind) if kind else None for each, kind in kinds)
    return Value(
        name=proto.name,
        dtype=dtype_of(path, declared.elem_type, name[:80]),
        shape=sizes if declared.HasField("shape") else None,
    )


def _attribute(path: Path, proto: Any) -> Any:
    match proto.type:
        case 1 | 2:
            return proto.f if proto.type == 1 else proto.i
        case 3:
            return proto.s.decode("utf-8", "replace")
        case 4:
            return _tensor_of(path, proto.t)
        case 6 | 7:
            return list(proto.floats if proto.type == 6 else proto.ints)
        case 8:
            return [each.decode("utf-8", "replace") for each in proto.strings]
        case _:
            # Nested graphs: their callers are reported as unsupported.
            return None
