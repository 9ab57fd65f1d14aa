"""An ONNX graph as plain values: nodes with their attributes, and the weights by name."""

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
_MAX_ELEMENTS = 2**62


def dtype_of(path: Path, number: int, name: str) -> torch.dtype:
    """Return torch's type for ONNX's number; FileFormatError where torch has none."""
    found = DTYPES.get(number)
    if found is None:
        raise FileFormatError(
            f"{path}: '{name}' has ONNX's element type {number}, for which torch has none"
        )
    return found


def _tensor_of(path: Path, proto: Any) -> torch.Tensor:
    """A tensor of the file with its values; those outside of it lie beside it."""
    name = printable(proto.name)[:80]
    kind = dtype_of(path, proto.data_type, name)
    shape = tuple(proto.dims)
    elements = math.prod(shape)
    # Of sizes beside a zero, too, the product must be one that torch can have.
    if min(shape, default=0) < 0 or math.prod(max(each, 1) for each in shape) > _MAX_ELEMENTS:
        raise FileFormatError(f"{path}: '{name}' has the shape {shape}, which no tensor has")
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
            f"{path}: '{name}' has the shape {shape}, which takes {expected:,}, and"
            f" {len(values):,} are in the file; it is damaged"
        )
    try:
        if is_raw and elements:
            return torch.frombuffer(bytearray(values), dtype=kind).reshape(shape)
        if kind in _BITS and elements:
            return torch.tensor(values, dtype=torch.int32).to(_BITS[kind]).view(kind).reshape(shape)
        return torch.tensor([] if is_raw else values, dtype=kind).reshape(shape)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise FileFormatError(
            f"{path}: '{name}' has values that are no {str(kind).removeprefix('torch.')}:"
            f" {printable(str(error))[:100]}"
        ) from None


def _external(
    path: Path, name: str, proto: Any, kind: torch.dtype, shape: tuple[int, ...]
) -> torch.Tensor:
    """Values in a file beside the model's, read where they are needed."""
    told = {each.key: each.value for each in proto.external_data}
    # Bytes that are no text are none.
    location = str(told.get("location", ""))
    where, shown = PurePosixPath(location), f"'{printable(location)[:80]}'"
    if not location or where.is_absolute() or ".." in where.parts or "\\" in location:
        raise FileFormatError(
            f"{path}: not opened: the values of '{name}' would be read from {shown}, outside of"
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
                f"{path}: the values of '{name}' are in {shown}, which is missing beside it"
            )
        offset = int(told.get("offset", "0"))
        size_bytes = math.prod(shape) * kind.itemsize
        length = int(told.get("length", str(size_bytes)))
        if length != size_bytes or offset < 0 or offset + length > beside.stat().st_size:
            raise FileFormatError(
                f"{path}: the values of '{name}' do not lie in {shown} as it says; one of both is"
                " cut short or of another model"
            )
        if not size_bytes:
            return torch.empty(shape, dtype=kind)
        with beside.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{path}: the values of '{name}' in {shown} cannot be read:"
            f" {printable(str(error))[:100]}"
        ) from None
    flat = torch.frombuffer(content, dtype=kind, count=math.prod(shape), offset=offset)
    return flat.reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A call of an ONNX operator.

    ``operator`` is its name, ``domain`` whose it is (``""``: ONNX's own), ``opset`` the version of
    that domain's operators; ``inputs`` and ``outputs`` are names of values, ``""`` for what is left
    out.
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
        """An attribute, or what it is where it is left out."""
        return self.attributes.get(name, default)

    @property
    def given_outputs(self) -> int:
        """How many of its outputs something reads."""
        return sum(map(bool, self.outputs))

    @property
    def full_name(self) -> str:
        """The operator with its domain, ``"com.microsoft.FusedMatMul"``."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What goes into a graph: its type, and its shape with None or a name for open sizes.

    ``shape`` is None where not even the number of sizes is told.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph: ``weights`` are its initializers, ``known`` the types and shapes it tells."""

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    weights: Mapping[str, torch.Tensor]
    known: Mapping[str, Value]


_LARGEST_CONSTANT = 4096
"""Elements of a constant that may be a size; what is larger is a weight."""


def read_graph(path: Path, model: Any) -> Graph:
    """Return the graph of an ``onnx.ModelProto``; FileFormatError where it is not whole."""
    proto = model.graph
    opsets = {domain_of(each): each.version for each in model.opset_import}
    if proto.sparse_initializer:
        raise FileFormatError(f"{path}: it has sparse weights, which cannot be counted")
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
        raise FileFormatError(f"{path}: there is no graph in it; it is cut short or no ONNX model")
    _check_order(path, nodes, outputs, {*weights, *(each.name for each in inputs)})
    known = {
        each.name: _value(path, each)
        for each in (*proto.value_info, *proto.output)
        if each.type.HasField("tensor_type") and each.type.tensor_type.elem_type in DTYPES
    }
    return Graph(inputs=inputs, outputs=outputs, nodes=tuple(nodes), weights=weights, known=known)


def domain_of(proto: Any) -> str:
    """Whose the operators of a node, function or set are; ``""``: ONNX's own."""
    return "" if proto.domain == "ai.onnx" else proto.domain


def _check_order(path: Path, nodes: Sequence[Node], outputs: Sequence[str], made: set[str]) -> None:
    """Refuses values that are made twice, nowhere, or only after they are read."""

    def check(name: str, is_sound: bool, what: str) -> None:
        if not is_sound:
            raise FileFormatError(f"{path}: the value '{printable(name)[:80]}' is {what}")

    later = {name for node in nodes for name in node.outputs}
    for node in nodes:
        reader = f"'{printable(node.name)[:60]}'"
        for name in filter(None, node.inputs):
            what = f"made nowhere, and {reader} reads it; the file is cut short or damaged"
            if name in later:
                what = (
                    f"read by {reader} before it is made: the nodes are in no order that could run"
                )
            check(name, name in made, what)
        for name in filter(None, node.outputs):
            check(name, name not in made, "made twice; it is damaged")
            made.add(name)
    for name in outputs:
        what = "made nowhere, and the graph gives it; the file is cut short or damaged"
        check(name, name in made, what)


def _check_texts(path: Path, proto: Any) -> None:
    """Refuses names that are no texts: of bytes that are no UTF-8, protobuf makes none."""
    named = (*proto.initializer, *proto.input, *proto.output, *proto.value_info)
    texts: list[Any] = [each.name for each in named]
    for node in proto.node:
        texts += (node.op_type, node.domain, node.name, *node.input, *node.output)
        texts += (each.name for each in node.attribute)
    for each in texts:
        if not isinstance(each, str):
            raise FileFormatError(
                f"{path}: a name in it is no text ({printable(repr(each))[:80]}); it is damaged"
            )


def _value(path: Path, proto: Any) -> Value:
    name = printable(proto.name)
    if not proto.type.HasField("tensor_type"):
        raise FileFormatError(f"{path}: the input '{name[:80]}' is no tensor but a list or map")
    told = proto.type.tensor_type
    kinds = [(each, each.WhichOneof("value")) for each in told.shape.dim]
    sizes = tuple(getattr(each, kind) if kind else None for each, kind in kinds)
    return Value(
        name=proto.name,
        dtype=dtype_of(path, told.elem_type, name[:80]),
        shape=sizes if told.HasField("shape") else None,
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
            # Graphs within graphs: who calls them says that they cannot be counted.
            return None
