"""Models out of .onnx files: read without running anything, and run by torch's operators."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from roofline.errors import FileFormatError, ModelError, said_by
from roofline.foundation.dtypes import dtype
from roofline.foundation.text import printable
from roofline.foundation.units import format_byte
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import Source
from roofline.workload.models.files.onnx_graph import Graph, Value, graph_of
from roofline.workload.models.files.onnx_module import OnnxModel
from roofline.workload.models.files.onnx_operators.recurrent import with_torch_weights
from roofline.workload.models.files.onnx_operators.registry import function_of

_DEEPEST = 100
_MOST_NODES = 1_000_000

_Key = tuple[str, str]


def without_functions(path: Path, model: Any) -> Any:
    """The model with the bodies of its functions where they are called.

    Args:
        path: the file, for messages.
        model: an ``onnx.ModelProto``.

    Raises:
        FileFormatError: functions call each other in a circle, or come to too many nodes: a few of
            them, each of which calls the next one twice, come to more than any memory has.
    """
    if not model.functions:
        return model
    bodies = {_key(each.domain, each.name): each.node for each in model.functions}
    _Counter(path, bodies).nodes_in(model.graph.node, 0)
    return importlib.import_module("onnx.inliner").inline_local_functions(model)


def _key(domain: str, name: str) -> _Key:
    return "" if domain == "ai.onnx" else domain, name


class _Counter:
    """Counts nodes with those of the functions that they call."""

    def __init__(self, path: Path, bodies: Mapping[_Key, Iterable[Any]]) -> None:
        self._path = path
        self._bodies = bodies
        self._counted: dict[_Key, int] = {}

    def nodes_in(self, nodes: Iterable[Any], depth: int) -> int:
        """How many nodes these come to."""
        if depth > _DEEPEST:
            raise FileFormatError(
                f"{self._path}: its functions call each other more than {_DEEPEST} deep, or in a"
                " circle"
            )
        count = 0
        for node in nodes:
            count += 1 + self._called(_key(node.domain, node.op_type), depth)
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    count += self.nodes_in(graph.node, depth + 1)
            if count > _MOST_NODES:
                raise FileFormatError(
                    f"{self._path}: its functions come to more than {_MOST_NODES:,} operators"
                )
        return count

    def _called(self, key: _Key, depth: int) -> int:
        body = self._bodies.get(key)
        if body is None:
            return 0
        if key not in self._counted:
            self._counted[key] = self.nodes_in(body, depth + 1)
        return self._counted[key]


_MOST_BYTE = 2**31 - 1
"""What one protobuf message can have; weights beyond that lie in files beside it."""

_SEEN_TO = ("Shape", "Size")
_SHOWN = 5


def onnx_source(path: Path) -> Source:
    """The model in an .onnx file, and inputs of the shapes that it tells.

    Open sizes (a batch that may be any) are taken as 1.

    Args:
        path: the file; weights in files beside it are read where it says, and nowhere else.

    Raises:
        ModelError: the package onnx is not installed.
        FileFormatError: it is no ONNX model, or not whole.
    """
    graph = with_torch_weights(_graph(path))
    inputs, input_notes = _inputs(path.name, graph)
    return Source(
        name=str(path),
        module=OnnxModel(graph, title=str(path)),
        default_inputs=inputs,
        input_notes=input_notes,
        notes=tuple(_notes(path.name, graph)),
    )


def onnx_package() -> Any:
    """The package onnx.

    Raises:
        ModelError: it is not installed, and what installs it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("onnx")
    except ImportError as error:
        raise ModelError(
            "ONNX files take the packages onnx and onnxscript: python -m pip install"
            f" 'roofline[onnx]' ({said_by(error)})"
        ) from None


def _graph(path: Path) -> Graph:
    onnx = onnx_package()
    size_byte = path.stat().st_size
    if size_byte > _MOST_BYTE:
        raise FileFormatError(
            f"{path}: {format_byte(size_byte)} are more than an ONNX file can have; its weights"
            " belong into a file beside it"
        )
    with _damage_said(path):
        model = onnx.load_model_from_string(path.read_bytes())
    if not model.HasField("graph") or not model.opset_import:
        raise FileFormatError(f"{path}: there is no graph in it; it is cut short or no ONNX model")
    with _damage_said(path):
        model = without_functions(path, model)
    opsets = {
        "" if each.domain == "ai.onnx" else each.domain: each.version for each in model.opset_import
    }
    return graph_of(path, model.graph, opsets)


@contextlib.contextmanager
def _damage_said(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, FileFormatError):
        raise
    # Its parser raises classes of its own that are not the same in every version.
    except Exception as error:
        raise FileFormatError(
            f"{path}: the file is cut short or no ONNX model ({type(error).__name__}:"
            f" {printable(said_by(error))[:100]})"
        ) from None


def _inputs(name: str, graph: Graph) -> tuple[tuple[InputRequest, ...], tuple[str, ...]]:
    """A tensor for each input of the graph, with 1 where a size is open.

    None where not even the number of sizes is told: then the user must say.
    """
    if any(each.shape is None for each in graph.inputs):
        return (), ()
    open_sizes: dict[str, None] = {}
    requests: list[InputRequest] = []
    for each in graph.inputs:
        open_sizes |= dict.fromkeys(_open(each))
        shape = tuple(
            size if isinstance(size, int) and size > 0 else 1 for size in each.shape or ()
        )
        kind = str(each.dtype).removeprefix("torch.")
        requests.append(InputRequest(shape=shape, dtype=None if kind == "float32" else dtype(kind)))
    if not open_sizes:
        return tuple(requests), ()
    told = ", ".join(printable(each)[:40] for each in open_sizes)
    return tuple(requests), (
        f"{name} leaves sizes open ({told}), which were taken as 1; --input gives others",
    )


def _open(value: Value) -> Iterator[str]:
    for place, size in enumerate(value.shape or ()):
        if isinstance(size, str) and size:
            yield size
        elif not isinstance(size, int) or size <= 0:
            yield f"size {place} of {value.name}"


def _notes(name: str, graph: Graph) -> Iterator[str]:
    unknown = Counter(
        node.full_name
        for node in graph.nodes
        if function_of(node) is None and node.operator not in _SEEN_TO
    )
    if unknown:
        told = ", ".join(
            f"{printable(each)[:60]}{f' (×{count})' if count > 1 else ''}"
            for each, count in unknown.most_common(_SHOWN)
        )
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        yield (
            f"ONNX operators of {name} that are not known here: {told}{more}; their bytes are"
            " counted, their FLOP are unknown"
        )
