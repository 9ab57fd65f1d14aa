"""ONNX files made node by node: what tests of reading them are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
MACHINE = "10980xe"

Shape = Sequence[Any] | None


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(operator, inputs, outputs, **attributes)


def weight(name: str, values: Any, kind: Any = np.float32) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(values, dtype=kind), name)


def graph_file(
    path: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    weights: Sequence[Any] = (),
    *,
    known: Mapping[str, Shape] | None = None,
    opset: int = 18,
    functions: Sequence[Any] = (),
) -> Path:
    """A model of float32; ``known`` are shapes that it tells of values in between."""
    helper = onnx.helper

    def values(shapes: Mapping[str, Shape]) -> list[Any]:
        return [helper.make_tensor_value_info(name, 1, each) for name, each in shapes.items()]

    graph = helper.make_graph(nodes, "test", values(inputs), values(outputs), list(weights))
    graph.value_info.extend(values(known or {}))
    domains = {each.domain: 1 for each in nodes} | {"": opset}
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*each) for each in domains.items()],
        functions=functions,
    )
    path.write_bytes(model.SerializeToString())
    return path


def product_file(path: Path) -> Path:
    """x (open × 6) times a matrix of 6 × 4."""
    nodes = [node("MatMul", ["x", "w"], ["y"], name="product")]
    weights = [weight("w", np.ones((6, 4)))]
    return graph_file(path, nodes, {"x": ["batch", 6]}, {"y": ["batch", 4]}, weights)


def changed_model(path: Path, change: Callable[[Any], object]) -> Path:
    """The file, with its model changed."""
    model = onnx.load(path, load_external_data=False)
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def external(path: Path, location: str) -> Path:
    """The product of `product_file`, with its weights in a file beside it."""

    def change(model: Any) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    return changed_model(product_file(path), change)


def single_node(
    path: Path,
    operator: str,
    given: Sequence[np.ndarray | None],
    fixed: Sequence[np.ndarray | None],
    outputs: int,
    attributes: Mapping[str, Any],
    opset: int,
) -> Any:
    """A model of one node: `given` go in, `fixed` follow them as initializers."""
    helper = onnx.helper
    names = [f"x{i}" if each is not None else "" for i, each in enumerate([*given, *fixed])]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in zip(names, given, strict=False)
        if each is not None
    ]
    weights = [
        onnx.numpy_helper.from_array(each, name)
        for name, each in zip(names[len(given) :], fixed, strict=True)
        if each is not None
    ]
    results = [f"y{i}" for i in range(outputs)]
    told = [helper.make_empty_tensor_value_info(name) for name in results]
    nodes = [node(operator, names, results, **attributes)]
    graph = helper.make_graph(nodes, "test", inputs, told, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    path.write_bytes(model.SerializeToString())
    return model
