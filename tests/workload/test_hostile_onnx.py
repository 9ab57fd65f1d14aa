"""ONNX files that are no graph that could run, or would take all memory there is."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roofline
from roofline.errors import RooflineError
from roofline.workload.models.sources import load
from tests.workload.hostile_files import said_of
from tests.workload.test_onnx_files import MACHINE, graph_file, product_file, weight

onnx: Any = pytest.importorskip("onnx")


def node(operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(operator, inputs, outputs, **attributes)


def refused(path: Path, *given: str) -> str:
    """The one line that counting a file ends with."""
    with pytest.raises(RooflineError) as caught:
        roofline.analyze(str(path), list(given) or None, hardware=MACHINE)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_graph_that_goes_in_a_circle(tmp_path: Path) -> None:
    nodes = [node("Relu", ["b"], ["a"], name="first"), node("Relu", ["a"], ["b"], name="second")]
    path = graph_file(tmp_path / "a.onnx", nodes, [("x", [2])], [("b", [2])])
    assert "the value 'b' is read by 'first' before it is made" in said_of(path)


def _function(name: str, *called: str) -> Any:
    inner = [node(each, ["x"], [f"y{i}"], domain="mine") for i, each in enumerate(called)]
    inner.append(node("Relu", ["x"], ["y"]))
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("mine", 1)]
    return onnx.helper.make_function("mine", name, ["x"], ["y"], inner, opsets)


def with_functions(path: Path, *functions: Any) -> Path:
    call = node("F0", ["x"], ["y"], domain="mine")
    graph_file(path, [call], [("x", [2])], [("y", [2])], opsets=(("", 18), ("mine", 1)))
    model = onnx.load(path)
    model.functions.extend(functions)
    path.write_bytes(model.SerializeToString())
    return path


def test_functions_are_counted(tmp_path: Path) -> None:
    """The outer one and the inner one have a ReLU of two numbers each."""
    path = with_functions(tmp_path / "a.onnx", _function("F0", "F1"), _function("F1"))
    found = roofline.analyze(str(path), hardware=MACHINE)
    assert [each.op for each in found.operators] == ["aten.relu"] * 2
    assert found.totals.flop == 4


def test_functions_that_call_each_other_for_ever(tmp_path: Path) -> None:
    path = with_functions(tmp_path / "a.onnx", _function("F0", "F1"), _function("F1", "F0"))
    assert "in a circle" in said_of(path)


def test_functions_that_come_to_more_than_any_memory_has(tmp_path: Path) -> None:
    """Sixty of them, each of which calls the next one twice."""
    several = [_function(f"F{i}", f"F{i + 1}", f"F{i + 1}") for i in range(60)]
    path = with_functions(tmp_path / "a.onnx", *several, _function("F60"))
    assert "come to more than 1,000,000 operators" in said_of(path)


def test_sizes_that_no_tensor_has(tmp_path: Path) -> None:
    path = product_file(tmp_path / "a.onnx")
    model = onnx.load(path)
    model.graph.initializer[0].dims[:] = [0, 2**62, 2**62]
    model.graph.initializer[0].raw_data = b""
    path.write_bytes(model.SerializeToString())
    assert "which no tensor has" in said_of(path)
    largest = 2**63 - 1
    nodes = [node("Relu", ["x"], ["y"])]
    refused(graph_file(tmp_path / "b.onnx", nodes, [("x", [largest, largest])], [("y", None)]))


def test_values_that_their_type_has_not(tmp_path: Path) -> None:
    path = product_file(tmp_path / "a.onnx")
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_type = onnx.TensorProto.UINT8
    tensor.int32_data.extend([300] * 24)
    path.write_bytes(model.SerializeToString())
    assert "has values that are no uint8" in said_of(path)


def test_shapes_of_which_much_would_be_made(tmp_path: Path) -> None:
    """Three rows along three axes: 64 billion numbers, for which nothing is allocated."""
    shapes = {"a": [4000, 1, 1], "b": [1, 4000, 1], "c": [1, 1, 4000]}
    nodes = [node("Reshape", ["row", f"shape_{name}"], [name]) for name in shapes] + [
        node("Cast", ["a"], ["truth"], to=9),
        node("Where", ["truth", "b", "c"], ["y"]),
    ]
    weights = [weight("row", np.arange(4000), np.int64)]
    weights += [weight(f"shape_{name}", each, np.int64) for name, each in shapes.items()]
    path = graph_file(tmp_path / "a.onnx", nodes, [("x", [1])], [("y", None)], weights)
    found = roofline.analyze(str(path), hardware=MACHINE)
    assert found.operators[-1].output_bytes == 4000**3 * 8


def test_nodes_with_too_few_operands_and_results(tmp_path: Path) -> None:
    for made in (
        node("Relu", [], ["y"]),
        node("Shape", [""], ["y"]),
        node("Concat", ["x"], ["y"]),
        node("Conv", ["x"], ["y"]),
        node("LSTM", ["x", "w", "w"], ["y"]),
        node("Split", ["x"], ["y"], num_outputs=1, axis=7),
        node("Reshape", ["x", "x"], ["y"]),
        node("Cast", ["x"], ["y"], to=8),
        node("Cast", ["x"], ["y"], to=999),
        node("", ["x"], ["y"]),
        node("3 ; drop", ["x"], ["y"], domain="\x1b[31m"),
    ):
        weights = [weight("w", [[[2**40]]], np.int64)]
        refused(graph_file(tmp_path / "a.onnx", [made], [("x", [2, 2])], [("y", None)], weights))


def test_a_value_that_its_operator_does_not_give(tmp_path: Path) -> None:
    nodes = [
        node("MaxPool", ["x"], ["h", "where"], kernel_shape=[2]),
        node("Relu", ["where"], ["y"]),
    ]
    path = graph_file(tmp_path / "a.onnx", nodes, [("x", [1, 2, 8])], [("y", None)])
    assert "MaxPool" in refused(path)
    nodes = [node("Relu", ["x"], ["h", "more"]), node("Relu", ["more"], ["y"])]
    path = graph_file(tmp_path / "b.onnx", nodes, [("x", [1, 2, 8])], [("y", None)])
    assert "gives no 'more'" in refused(path)


def test_bytes_that_are_changed(tmp_path: Path) -> None:
    """Whatever is damaged, there is one line, or a model."""
    content = with_functions(
        tmp_path / "a.onnx", _function("F0", "F1"), _function("F1")
    ).read_bytes()
    content += product_file(tmp_path / "b.onnx").read_bytes()
    chance = random.Random(5)
    refusals = 0
    for turn in range(300):
        damaged = bytearray(content)
        for _ in range(1 + turn % 4):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        (tmp_path / "c.onnx").write_bytes(damaged)
        try:
            load(str(tmp_path / "c.onnx"))
        except RooflineError as error:
            refusals += 1
            assert "\n" not in str(error)
    assert refusals


# -- what is told in part --------------------------------------------------------------------------


def test_inputs_whose_shape_is_not_told_are_asked_for(tmp_path: Path) -> None:
    path = graph_file(
        tmp_path / "a.onnx", [node("Relu", ["x"], ["y"])], [("x", [2])], [("y", None)]
    )
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    path.write_bytes(model.SerializeToString())
    assert "inputs are not known" in refused(path)
    assert roofline.analyze(str(path), "3x5", hardware=MACHINE).totals.flop == 15


def test_loops_and_branches_are_unknown_and_never_zero(tmp_path: Path) -> None:
    """Their bytes count where the file tells what they give, and nothing is made up."""
    inner = onnx.helper.make_graph(
        [node("Relu", ["x"], ["z"])], "g", [], [onnx.helper.make_tensor_value_info("z", 1, [2, 3])]
    )
    nodes = [
        node("If", ["c"], ["h"], then_branch=inner, else_branch=inner, name="choice"),
        node("Relu", ["h"], ["y"]),
    ]
    weights = [weight("c", True, np.bool_)]
    path = graph_file(tmp_path / "a.onnx", nodes, [("x", [2, 3])], [("y", None)], weights)
    assert "the ONNX operator If ('choice') is not known here" in refused(path)
    model = onnx.load(path)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("h", 1, [2, 3]))
    path.write_bytes(model.SerializeToString())
    found = roofline.analyze(str(path), hardware=MACHINE)
    assert [(each.op, each.flop) for each in found.operators] == [
        ("onnx_operator.If", None),
        ("aten.relu", 6),
    ]


def test_values_without_a_shape_are_no_scalars(tmp_path: Path) -> None:
    """Of an operator that is not known they would be four bytes, whatever they are."""
    nodes = [node("Fancy", ["x"], ["h"], domain="mine"), node("Relu", ["h"], ["y"])]
    opsets = (("", 18), ("mine", 1))
    path = graph_file(tmp_path / "a.onnx", nodes, [("x", [2])], [("y", None)], opsets=opsets)
    model = onnx.load(path)
    told = model.graph.value_info.add()
    told.name = "h"
    told.type.tensor_type.elem_type = 1
    path.write_bytes(model.SerializeToString())
    assert "does not tell what shape it gives" in refused(path)


def test_weights_in_a_cache_of_links(tmp_path: Path) -> None:
    """Caches of models keep files under other names, in one folder, and link to them."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "shown").mkdir()
    values = np.arange(24, dtype=np.float32)
    (tmp_path / "kept" / "1").write_bytes(values.tobytes())
    model = onnx.load(product_file(tmp_path / "kept" / "2"))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "model.data"
    (tmp_path / "kept" / "2").write_bytes(model.SerializeToString())
    (tmp_path / "shown" / "model.onnx").symlink_to("../kept/2")
    (tmp_path / "shown" / "model.data").symlink_to("../kept/1")
    source = load(str(tmp_path / "shown" / "model.onnx"))
    assert sum(each.numel() for each in source.module.parameters()) == 24
