"""ONNX files: sizes that they compute, unknown operators, weights beside them, graphs that could
not run or would take all memory there is, and damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import roofline
from roofline.errors import RooflineError
from roofline.workload.inputs import InputRequest
from roofline.workload.models.sources import load_model
from tests.workload.hostile_files import said_of
from tests.workload.onnx_files import (
    MACHINE,
    changed_model,
    external,
    graph_file,
    node,
    onnx,
    product_file,
    weight,
)


def analyzed(path: Path, *given: str, **options: Any) -> Any:
    return roofline.analyze(str(path), list(given) or None, hardware=MACHINE, **options)


def refused(path: Path) -> str:
    """The one line that counting a file ends with."""
    with pytest.raises(RooflineError) as caught:
        analyzed(path)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_open_sizes_are_taken_as_one_and_said(tmp_path: Path) -> None:
    source = load_model(str(product_file(tmp_path / "a.onnx")))
    assert source.default_inputs == (InputRequest(shape=(1, 6)),)
    assert source.input_notes == ("open sizes of a.onnx are 1 here: batch; inputs sets others",)


def test_counts_worked_out_by_hand(tmp_path: Path) -> None:
    """Five rows: 5 × 6 × 4 multiply-adds, twice as many FLOP, 24 parameters of 4 bytes."""
    found = analyzed(product_file(tmp_path / "a.onnx"), batch=5)
    assert (found.totals.macs, found.totals.flop) == (120, 240)
    assert (found.totals.parameters, found.totals.parameter_size_bytes) == (24, 96)
    assert found.coverage.calls == 1


def test_sizes_that_a_graph_computes_leave_no_records(tmp_path: Path) -> None:
    """As exporters write `x.view(x.shape[0], -1)`; eager code asks for the shape in Python."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "axes"], ["batch1"]),
        node("Concat", ["batch1", "rest"], ["sizes"], axis=0),
        node("Reshape", ["x", "sizes"], ["flat"]),
        node("Relu", ["flat"], ["y"]),
    ]
    fixed = {"zero": 0, "axes": [0], "rest": [-1]}
    weights = [weight(name, each, np.int64) for name, each in fixed.items()]
    found = analyzed(graph_file(tmp_path / "a.onnx", nodes, {"x": [2, 3, 4]}, {"y": None}, weights))
    assert [each.op for each in found.operators if each.state == "counted"] == ["aten.relu"]
    assert found.totals.flop == 24


# -- operators that are not known ------------------------------------------------------------------


def fancy(path: Path, **known: list[int]) -> Path:
    nodes = [
        node("Fancy", ["x"], ["h"], domain="com.example", name="/block/fancy"),
        node("Relu", ["h"], ["y"]),
    ]
    return graph_file(path, nodes, {"x": [3, 5]}, {"y": [3, 7]}, known=known)


def test_an_operator_that_is_not_known_is_named_and_never_zero(tmp_path: Path) -> None:
    found = analyzed(fancy(tmp_path / "a.onnx", h=[3, 7]))
    first, second = found.operators
    name = "onnx_operator.com_example_Fancy"
    assert (first.op, first.state, first.flop) == (name, "unknown", None)
    # 15 floats are read and 21 written.
    assert (first.input_bytes, first.output_bytes) == (60, 84)
    assert (second.op, second.flop) == ("aten.relu", 21)
    assert found.coverage.calls == 0.5
    assert any("com.example.Fancy" in each for each in found.warnings)


def test_values_without_a_shape_are_no_scalars(tmp_path: Path) -> None:
    """Of an operator that is not known they would be four bytes, whatever they are."""

    def tell_the_type(model: Any) -> None:
        model.graph.value_info.add(name="h").type.tensor_type.elem_type = 1

    path = fancy(tmp_path / "a.onnx")
    words = "unknown ONNX operator com.example.Fancy ('/block/fancy') without a"
    for _ in range(2):
        assert f"{words} declared output shape" in refused(path)
        changed_model(path, tell_the_type)


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
    path, inputs, outputs = tmp_path / "a.onnx", {"x": [2, 3]}, {"y": None}
    graph_file(path, nodes, inputs, outputs, weights)
    assert "unknown ONNX operator If ('choice')" in refused(path)
    found = analyzed(graph_file(path, nodes, inputs, outputs, weights, known={"h": [2, 3]}))
    assert [(each.op, each.flop) for each in found.operators] == [
        ("onnx_operator.If", None),
        ("aten.relu", 6),
    ]


def test_inputs_whose_shape_is_not_told_are_asked_for(tmp_path: Path) -> None:
    path = graph_file(tmp_path / "a.onnx", [node("Relu", ["x"], ["y"])], {"x": None}, {"y": None})
    assert "input shapes are not known" in refused(path)
    assert analyzed(path, "3x5").totals.flop == 15


# -- functions -------------------------------------------------------------------------------------


def with_functions(path: Path, calls: dict[str, list[str]]) -> Path:
    """A call of F0; each function calls others, and has a ReLU of its own."""
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("mine", 1)]
    functions: list[Any] = []
    for name, called in calls.items():
        inner = [node(each, ["x"], [f"y{i}"], domain="mine") for i, each in enumerate(called)]
        inner.append(node("Relu", ["x"], ["y"]))
        functions.append(onnx.helper.make_function("mine", name, ["x"], ["y"], inner, opsets))
    call = node("F0", ["x"], ["y"], domain="mine")
    return graph_file(path, [call], {"x": [2]}, {"y": [2]}, functions=functions)


def test_functions_are_counted(tmp_path: Path) -> None:
    """The outer one and the inner one have a ReLU of two numbers each."""
    found = analyzed(with_functions(tmp_path / "a.onnx", {"F0": ["F1"], "F1": []}))
    assert [each.op for each in found.operators] == ["aten.relu"] * 2
    assert found.totals.flop == 4


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ({"F0": ["F1"], "F1": ["F0"]}, "or recursive"),
        (
            {**{f"F{i}": [f"F{i + 1}"] * 2 for i in range(60)}, "F60": []},
            "more than 1,000,000 operators",
        ),
    ],
)
def test_functions_that_come_to_more_than_any_memory_has(
    calls: dict[str, list[str]], words: str, tmp_path: Path
) -> None:
    assert words in said_of(with_functions(tmp_path / "a.onnx", calls))


# -- graphs that could not run, or would make too much ---------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (
            [node("Relu", ["y"], ["a"], name="first"), node("Relu", ["a"], ["y"], name="second")],
            "value 'y' is read by 'first' before its definition",
        ),
        ([node("Relu", ["z"], ["y"], name="n")], "value 'z' is undefined"),
        ([node("Relu", ["x"], ["h"])], "value 'y' is undefined, but an output"),
        ([node("Relu", ["x"], ["y"])] * 2, "value 'y' is defined twice"),
    ],
)
def test_values_that_are_not_made_once_before_they_are_read(
    nodes: list[Any], words: str, tmp_path: Path
) -> None:
    assert words in said_of(graph_file(tmp_path / "a.onnx", nodes, {"x": [2]}, {"y": [2]}))


@pytest.mark.parametrize(
    "made",
    [
        node("Relu", [], ["y"]),
        node("Shape", [""], ["y"]),
        node("Concat", ["x"], ["y"]),
        node("Conv", ["x"], ["y"]),
        node("LSTM", ["x", "w", "w"], ["y"]),
        node("Split", ["x"], ["y"], num_outputs=1, axis=7),
        node("Slice", ["x"], ["y"]),
        node("Pad", ["x"], ["y"]),
        node("Reshape", ["x", "x"], ["y"]),
        node("Cast", ["x"], ["y"], to=8),
        node("Cast", ["x"], ["y"], to=999),
        node("", ["x"], ["y"]),
        node("3 ; drop", ["x"], ["y"], domain="\x1b[31m"),
    ],
    ids=lambda made: repr(made.op_type),
)
def test_nodes_with_too_few_operands_and_results(made: Any, tmp_path: Path) -> None:
    weights = [weight("w", [[[2**40]]], np.int64)]
    refused(graph_file(tmp_path / "a.onnx", [made], {"x": [2, 2]}, {"y": None}, weights))


def test_a_value_that_its_operator_does_not_give(tmp_path: Path) -> None:
    path, inputs = tmp_path / "a.onnx", {"x": [1, 2, 8]}
    first = node("MaxPool", ["x"], ["h", "more"], kernel_shape=[2])
    last = node("Relu", ["more"], ["y"])
    assert "MaxPool" in refused(graph_file(path, [first, last], inputs, {"y": None}))
    first = node("Relu", ["x"], ["h", "more"])
    assert "has no output 'more'" in refused(graph_file(path, [first, last], inputs, {"y": None}))


def test_sizes_that_no_machine_has(tmp_path: Path) -> None:
    largest = 2**63 - 1
    nodes = [node("Relu", ["x"], ["y"])]
    refused(graph_file(tmp_path / "a.onnx", nodes, {"x": [largest, largest]}, {"y": None}))


def test_shapes_of_which_much_would_be_made(tmp_path: Path) -> None:
    """Three rows along three axes: 64 billion numbers, for which nothing is allocated."""
    shapes = {"a": [4000, 1, 1], "b": [1, 4000, 1], "c": [1, 1, 4000]}
    nodes = [node("Reshape", ["row", f"shape_{name}"], [name]) for name in shapes] + [
        node("Cast", ["a"], ["truth"], to=9),
        node("Where", ["truth", "b", "c"], ["y"]),
    ]
    weights = [weight("row", np.arange(4000), np.int64)]
    weights += [weight(f"shape_{name}", each, np.int64) for name, each in shapes.items()]
    found = analyzed(graph_file(tmp_path / "a.onnx", nodes, {"x": [1]}, {"y": None}, weights))
    assert found.operators[-1].output_bytes == 4000**3 * 8
    nodes = [node("ConstantOfShape", ["sizes"], ["ones"]), node("Add", ["ones", "x"], ["y"])]
    weights = [weight("sizes", [2**20, 2**22], np.int64)]
    found = analyzed(graph_file(tmp_path / "a.onnx", nodes, {"x": [1]}, {"y": None}, weights))
    assert found.totals.flop == 2**42


# -- damage ----------------------------------------------------------------------------------------


def _another_shape(*sizes: int) -> Callable[[Any], None]:
    def change(tensor: Any) -> None:
        tensor.dims[:] = sizes

    return change


def _small_numbers(tensor: Any) -> None:
    tensor.ClearField("raw_data")
    tensor.data_type = onnx.TensorProto.UINT8
    tensor.int32_data.extend([300] * 24)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_another_shape(2**40, 4), "the file has 96"),
        (_another_shape(0, 2**62, 2**62), "the invalid shape"),
        (_small_numbers, "has invalid values for uint8"),
    ],
)
def test_tensors_with_other_values_than_their_shape_and_type_have(
    change: Callable[[Any], None], words: str, tmp_path: Path
) -> None:
    path = product_file(tmp_path / "a.onnx")
    changed_model(path, lambda model: change(model.graph.initializer[0]))
    assert words in said_of(path)


def test_files_that_are_damaged_anywhere(tmp_path: Path) -> None:
    """Whatever is damaged, there is one line, or a model."""
    path = tmp_path / "c.onnx"
    path.write_bytes(b"this is a text and not a model at all")
    assert "not an ONNX model" in said_of(path)
    content = product_file(tmp_path / "b.onnx").read_bytes()
    for length in range(1, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(RooflineError) as caught:
            load_model(str(path))
        assert "\n" not in str(caught.value)
    content += with_functions(tmp_path / "a.onnx", {"F0": ["F1"], "F1": []}).read_bytes()
    chance = random.Random(5)
    refusals = 0
    for turn in range(300):
        damaged = bytearray(content)
        for _ in range(1 + turn % 4):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            load_model(str(path))
        except RooflineError as error:
            refusals += 1
            assert "\n" not in str(error)
    assert refusals


# -- weights beside the model ----------------------------------------------------------------------


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", ""])
def test_weights_outside_of_the_folder_are_not_read(location: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(96))
    assert "outside of the model's folder" in said_of(external(tmp_path / "in/a.onnx", location))
    (tmp_path / "in" / "w.bin").symlink_to(tmp_path / "secret.bin")
    assert "which is missing in its folder" in said_of(external(tmp_path / "in/a.onnx", "w.bin"))


def test_weights_beside_the_model(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    path = external(tmp_path / "a.onnx", "w.bin")
    with torch.no_grad():
        found = load_model(str(path)).module(torch.eye(6))
    assert torch.equal(found, torch.from_numpy(values))
    (tmp_path / "w.bin").write_bytes(bytes(95))
    assert "are outside of 'w.bin'" in said_of(path)


def test_weights_in_a_cache_of_links(tmp_path: Path) -> None:
    """Caches of models keep files under other names, in one folder, and link to them."""
    for name in ("kept", "shown"):
        (tmp_path / name).mkdir()
    (tmp_path / "kept" / "1").write_bytes(np.arange(24, dtype=np.float32).tobytes())
    external(tmp_path / "kept" / "2", "model.data")
    (tmp_path / "shown" / "model.onnx").symlink_to("../kept/2")
    (tmp_path / "shown" / "model.data").symlink_to("../kept/1")
    source = load_model(str(tmp_path / "shown" / "model.onnx"))
    assert sum(each.numel() for each in source.module.parameters()) == 24
