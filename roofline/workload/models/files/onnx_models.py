"""Models from .onnx files: read without running code, and run by torch operators."""

from __future__ import annotations

import functools
import importlib
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from roofline.core.dtypes import dtype
from roofline.core.text import printable
from roofline.core.units import format_bytes
from roofline.errors import FileFormatError, ModelError, argument, error_text
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import Source
from roofline.workload.models.files.onnx_graph import Graph, Node, domain_of, read_graph
from roofline.workload.models.files.onnx_layers import convert_recurrent_weights
from roofline.workload.models.files.onnx_operators import (
    FUNCTIONS,
    RANDOM,
    UnsupportedSemanticsError,
    call_unknown,
    integers,
    numbers,
)

_MAX_KNOWN_ELEMENTS = 4096
"""Largest value that is computed outside of the pass, as sizes may depend on it, in elements."""

_MAX_MADE_ELEMENTS = 2**24
"""Largest intermediate result of an operator on such values, in elements."""

_OF_SHAPES = ("Shape", "Size")
_STATISTICS = {"BatchNormalization": (3, 4)}
"""Inputs of operators that are buffers: running means and variances."""

_SIZES = {"Resize": (1, 2), "Upsample": (1,), "OneHot": (2,), "Pad": (2,), "Clip": (1, 2)}
"""Inputs of operators that are settings in floats."""


class OnnxModel(torch.nn.Module):
    """A module that runs the operators of a graph in order.

    Sizes computed in the graph (``Shape``, ``Gather``, ``Concat`` …) are computed outside of the
    pass, as Python does in eager code, and are not recorded.

    Args:
        graph: the graph.
        title: name in messages.
    """

    def __init__(self, graph: Graph, *, title: str) -> None:
        super().__init__()
        self.takes = tuple(each.name for each in graph.inputs)
        self._graph = graph
        self._title = title
        self._weight_names: dict[str, str] = {}
        self._constants: dict[str, torch.Tensor] = {}
        statistics, sizes = (
            {
                node.inputs[place]
                for node in graph.nodes
                for place in places.get(node.operator, ())
                if place < len(node.inputs)
            }
            for places in (_STATISTICS, _SIZES)
        )
        for name, tensor in graph.weights.items():
            is_value = name in sizes or not tensor.dim() or not _is_float(tensor)
            if is_value and tensor.numel() <= _MAX_KNOWN_ELEMENTS:
                self._constants[name] = tensor
                continue
            safe = _safe_name(name, self._weight_names.values())
            self._weight_names[name] = safe
            if name in statistics or not _is_float(tensor):
                self.register_buffer(safe, tensor)
            else:
                self.register_parameter(safe, torch.nn.Parameter(tensor))
        self._last_use = _last_uses(graph)

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        """Return the outputs of the graph: a tensor or a tuple."""
        if len(args) > len(self.takes) or not set(kwargs) <= set(self.takes[len(args) :]):
            raise ValueError(f"unexpected inputs; expected {', '.join(self.takes)}")
        values = dict(zip(self.takes, args, strict=False)) | kwargs
        if missing := [each for each in self.takes if each not in values]:
            raise ValueError(f"missing inputs: {', '.join(missing)}")
        values |= {name: getattr(self, safe) for name, safe in self._weight_names.items()}
        known = dict(self._constants)
        for position, node in enumerate(self._graph.nodes):
            self._run(node, values, known)
            for name in self._last_use.get(position, ()):
                values.pop(name, None)
        results = tuple(
            known[name] if name in known else values[name] for name in self._graph.outputs
        )
        return results[0] if len(results) == 1 else results

    def _run(
        self, node: Node, values: dict[str, torch.Tensor], known: dict[str, torch.Tensor]
    ) -> None:
        """Run a node, outside of the pass if all its inputs are known."""
        operands: list[Any] = [
            known[name] if name in known else values[name] if name else None for name in node.inputs
        ]
        is_whole = all((node.inputs, node.outputs, *node.inputs, *node.outputs))
        if node.full_name in _OF_SHAPES and is_whole:
            with _disable_current_modes():
                known[node.outputs[0]] = _sizes(node, operands[0])
            return
        for name, result in zip_longest(node.outputs, self._results(node, operands, known)):
            if name and result is None:
                raise RuntimeError(
                    f"{node.operator} '{printable(node.name)[:60]}' has no output"
                    f" '{printable(name)[:60]}'"
                )
            if name and result is not None and name not in known:
                values[name] = result

    def _results(
        self, node: Node, operands: list[Any], known: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor | None, ...]:
        """Return the results of a node; small ones with known values are added to `known`."""
        are_known = node.operator not in RANDOM and all(
            name in known for name in node.inputs if name
        )
        try:
            if are_known and _made_elements(node, operands) <= _MAX_MADE_ELEMENTS:
                with _disable_current_modes():
                    results = _call(node, operands)
                if all(each is None or each.numel() <= _MAX_KNOWN_ELEMENTS for each in results):
                    made = zip(node.outputs, results, strict=False)
                    known |= {name: each for name, each in made if name and each is not None}
                    return results
            return _call(node, operands)
        except UnsupportedSemanticsError:
            return call_unknown(node, operands, self._graph.known, title=self._title)


def _call(node: Node, operands: list[Any]) -> tuple[torch.Tensor | None, ...]:
    if (function := FUNCTIONS.get(node.full_name)) is None:
        raise UnsupportedSemanticsError
    try:
        result = function(node, *operands)
    except (RuntimeError, ModelError):
        raise
    # Invalid calls: omitted operands, attributes of another type.
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise RuntimeError(
            f"{node.operator} '{printable(node.name)[:60]}': {type(error).__name__}:"
            f" {error_text(error)}"
        ) from error
    return result if isinstance(result, tuple) else (result,)


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _sizes(node: Node, tensor: torch.Tensor) -> torch.Tensor:
    if node.operator == "Size":
        return torch.tensor(tensor.numel())
    shape = list(tensor.shape)
    end = node.get("end", len(shape))
    return torch.tensor(shape[node.get("start", 0) : end], dtype=torch.int64)


def _safe_name(name: str, taken: Any) -> str:
    """Return a valid attribute name for a tensor, similar to that in the file."""
    safe = re.sub(r"\W", "_", name) or "weight"
    safe = f"w_{safe}" if safe[0].isdigit() or hasattr(torch.nn.Module, safe) else safe
    while safe in taken or safe in ("training", "takes"):
        safe += "_"
    return safe


def _last_uses(graph: Graph) -> dict[int, list[str]]:
    """Return the values to release after each node, as in eager code."""
    last: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        last |= dict.fromkeys((*node.inputs, *node.outputs), position)
    kept = {*graph.outputs, *graph.weights}
    found: dict[int, list[str]] = {}
    for name, position in last.items():
        if name not in kept:
            found.setdefault(position, []).append(name)
    return found


_MAX_DEPTH = 100
_MAX_NODES = 1_000_000


def _without_functions(path: Path, model: Any) -> Any:
    """Return the model with its functions inlined, if they do not grow beyond a limit."""
    if not model.functions:
        return model
    bodies = {(domain_of(each), each.name): each.node for each in model.functions}

    @functools.cache
    def nodes_of(domain: str, name: str, depth: int) -> int:
        return nodes_in(bodies.get((domain, name), ()), depth + 1)

    def nodes_in(nodes: Iterable[Any], depth: int) -> int:
        """Return the number of nodes after inlining."""
        if depth > _MAX_DEPTH:
            raise FileFormatError(
                f"{path}: function calls nested deeper than {_MAX_DEPTH}, or recursive"
            )
        count = 0
        for node in nodes:
            inner = (graph for each in node.attribute for graph in (each.g, *each.graphs))
            count += 1 + nodes_of(domain_of(node), node.op_type, depth)
            count += sum(nodes_in(graph.node, depth + 1) for graph in inner)
            if count > _MAX_NODES:
                raise FileFormatError(
                    f"{path}: more than {_MAX_NODES:,} operators after inlining of functions"
                )
        return count

    nodes_in(model.graph.node, 0)
    return importlib.import_module("onnx.inliner").inline_local_functions(model)


_MAX_FILE_BYTES = 2**31 - 1
"""Limit of a protobuf message; larger weights are in external files."""

_SHOWN = 5


def onnx_source(path: Path) -> Source:
    """Return the model in an .onnx file, with inputs of its declared shapes, open sizes as 1."""
    graph = convert_recurrent_weights(_graph(path))
    inputs, input_notes = _inputs(path.name, graph)
    return Source(
        name=str(path),
        module=OnnxModel(graph, title=str(path)),
        default_inputs=inputs,
        input_notes=input_notes,
        notes=tuple(_notes(path.name, graph)),
    )


def onnx_package() -> Any:
    """Return the package onnx; ModelError with an install command if it is missing."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module("onnx")
    except ImportError as error:
        raise ModelError(
            "ONNX files need the packages onnx and onnxscript: python -m pip install"
            f" 'roofline[onnx]' ({error_text(error)})"
        ) from None


def _graph(path: Path) -> Graph:
    onnx = onnx_package()
    size_bytes = path.stat().st_size
    if size_bytes > _MAX_FILE_BYTES:
        raise FileFormatError(
            f"{path}: {format_bytes(size_bytes)} exceed the limit of an ONNX file; store weights in"
            " an external file"
        )
    try:
        model = onnx.load_model_from_string(path.read_bytes())
        if not model.HasField("graph") or not model.opset_import:
            raise FileFormatError(f"{path}: no graph in the file; truncated or not an ONNX model")
        model = _without_functions(path, model)
    except FileFormatError:
        raise
    # The parser's exceptions differ between versions.
    except Exception as error:
        raise FileFormatError(
            f"{path}: truncated or not an ONNX model ({type(error).__name__}:"
            f" {printable(error_text(error))[:100]})"
        ) from None
    return read_graph(path, model)


def _inputs(name: str, graph: Graph) -> tuple[tuple[InputRequest, ...], tuple[str, ...]]:
    """Return a tensor for each input, with 1 for open sizes; none if a rank is unknown."""
    if any(each.shape is None for each in graph.inputs):
        return (), ()
    requests: list[InputRequest] = []
    open_sizes: dict[str, None] = {}
    for each in graph.inputs:
        shape: list[int] = []
        for place, size in enumerate(each.shape or ()):
            if isinstance(size, int) and size > 0:
                shape.append(size)
                continue
            shape.append(1)
            label = size if isinstance(size, str) else ""
            open_sizes[label or f"dimension {place} of {each.name}"] = None
        kind = str(each.dtype).removeprefix("torch.")
        dtype_asked = None if kind == "float32" else dtype(kind)
        requests.append(InputRequest(shape=tuple(shape), dtype=dtype_asked))
    if not open_sizes:
        return tuple(requests), ()
    labels = ", ".join(printable(each)[:40] for each in open_sizes)
    return tuple(requests), (
        f"open sizes of {name} are 1 here: {labels}; {argument('inputs')} sets others",
    )


def _notes(name: str, graph: Graph) -> Iterator[str]:
    unknown = Counter(
        node.full_name
        for node in graph.nodes
        if node.full_name not in FUNCTIONS and node.operator not in _OF_SHAPES
    )
    if unknown:
        names = ", ".join(
            f"{printable(each)[:60]}{f' (×{count})' if count > 1 else ''}"
            for each, count in unknown.most_common(_SHOWN)
        )
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        yield (
            f"unknown ONNX operators of {name}: {names}{more}; their bytes are counted, their FLOP"
            " are unknown"
        )


# -- sizes of results with known values ------------------------------------------------------------

_ALWAYS_RECORDED = frozenset(
    {
        *("MatMul", "Gemm", "Einsum", "FusedMatMul", "Conv", "ConvTranspose", "Attention"),
        *("LSTM", "GRU", "RNN", "Pad", "OneHot", "Resize", "Upsample"),
    }
)
"""Matrix products and convolutions, which must be counted, and operators with large results."""

_UNBOUNDED = 2**62


def _made_elements(node: Node, operands: list[Any]) -> int:
    """Return the largest number of elements of a result on operands with known values."""
    given = [each for each in operands if each is not None]
    sizes = [each.numel() for each in given]
    try:
        match node.operator:
            case _ if node.operator in _ALWAYS_RECORDED:
                return _UNBOUNDED
            case "ConstantOfShape" if given:
                return math.prod(integers(given[0]))
            case "Expand" | "Tile" if len(given) == 2:
                return math.prod(integers(given[1])) * sizes[0]
            case "Range" if len(given) == 3 and all(sizes):
                first, last, step = (numbers(each)[0] for each in given)
                return math.ceil(abs((last - first) / step)) if step else 0
            case "Concat":
                return sum(sizes)
            case _ if math.prod(sizes) <= _MAX_MADE_ELEMENTS:
                return math.prod(sizes)
            case _:
                return math.prod(torch.broadcast_shapes(*(each.shape for each in given)))
    # Invalid sizes: the operator itself raises the error.
    except (ArithmeticError, ValueError, TypeError, RuntimeError):
        return _UNBOUNDED
