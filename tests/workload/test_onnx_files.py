"""ONNX files: sizes that they compute, operators that nobody knows, weights beside them, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import roofline
from roofline.errors import FileFormatError, ModelError, RooflineError
from roofline.workload.inputs import InputRequest
from roofline.workload.models.sources import load

onnx: Any = pytest.importorskip("onnx")
MACHINE = "10980xe"


def graph_file(
    path: Path,
    nodes: list[Any],
    inputs: list[tuple[str, list[Any]]],
    outputs: list[tuple[str, list[Any] | None]],
    weights: list[Any] = (),  # pyright: ignore[reportArgumentType]
    opsets: tuple[tuple[str, int], ...] = (("", 18),),
) -> Path:
    helper = onnx.helper
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in outputs],
        list(weights),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in opsets])
    path.write_bytes(model.SerializeToString())
    return path


def weight(name: str, values: Any, kind: Any = np.float32) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(values, dtype=kind), name)


def product_file(path: Path) -> Path:
    """x (open × 6) times a matrix of 6 × 4."""
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    return graph_file(
        path, [node], [("x", ["batch", 6])], [("y", ["batch", 4])], [weight("w", np.ones((6, 4)))]
    )


def test_open_sizes_are_taken_as_one_and_said(tmp_path: Path) -> None:
    source = load(str(product_file(tmp_path / "a.onnx")))
    assert source.default_inputs == (InputRequest(shape=(1, 6)),)
    assert source.input_notes == (
        "a.onnx leaves sizes open (batch), which were taken as 1; --input gives others",
    )


def test_counts_worked_out_by_hand(tmp_path: Path) -> None:
    """Five rows: 5 × 6 × 4 multiply-adds, twice as many FLOP, 24 parameters of 4 bytes."""
    path = product_file(tmp_path / "a.onnx")
    found = roofline.analyze(str(path), hardware=MACHINE, batch=5)
    assert (found.totals.macs, found.totals.flop) == (120, 240)
    assert (found.totals.parameters, found.totals.parameter_size_bytes) == (24, 96)
    assert found.coverage.calls == 1


def test_sizes_that_a_graph_computes_leave_no_records(tmp_path: Path) -> None:
    """As exporters write `x.view(x.shape[0], -1)`; eager code asks for the shape in Python."""
    make = onnx.helper.make_node
    nodes = [
        make("Shape", ["x"], ["shape"]),
        make("Gather", ["shape", "zero"], ["batch"]),
        make("Unsqueeze", ["batch", "axes"], ["batch1"]),
        make("Concat", ["batch1", "rest"], ["sizes"], axis=0),
        make("Reshape", ["x", "sizes"], ["flat"]),
        make("Relu", ["flat"], ["y"]),
    ]
    weights = [
        weight("zero", 0, np.int64),
        weight("axes", [0], np.int64),
        weight("rest", [-1], np.int64),
    ]
    path = graph_file(tmp_path / "a.onnx", nodes, [("x", [2, 3, 4])], [("y", None)], weights)
    found = roofline.analyze(str(path), hardware=MACHINE)
    assert [each.op for each in found.operators if each.state == "counted"] == ["aten.relu"]
    assert found.totals.flop == 24


def fancy(path: Path, shape: list[Any] | None) -> Path:
    make = onnx.helper.make_node
    nodes = [
        make("Fancy", ["x"], ["h"], domain="com.example", name="/block/fancy"),
        make("Relu", ["h"], ["y"]),
    ]
    found = graph_file(
        path, nodes, [("x", [3, 5])], [("y", [3, 7])], opsets=(("", 18), ("com.example", 1))
    )
    if shape is not None:
        model = onnx.load(found)
        model.graph.value_info.append(onnx.helper.make_tensor_value_info("h", 1, shape))
        found.write_bytes(model.SerializeToString())
    return found


def test_an_operator_that_is_not_known_is_named_and_never_zero(tmp_path: Path) -> None:
    found = roofline.analyze(str(fancy(tmp_path / "a.onnx", [3, 7])), hardware=MACHINE)
    first, second = found.operators
    assert (first.op, first.state, first.flop) == (
        "onnx_operator.com_example_Fancy",
        "unknown",
        None,
    )
    # 15 floats are read and 21 written.
    assert (first.input_bytes, first.output_bytes) == (60, 84)
    assert (second.op, second.flop) == ("aten.relu", 21)
    assert found.coverage.calls == 0.5
    assert any("com.example.Fancy" in each for each in found.warnings)


def test_an_operator_that_is_not_known_and_tells_no_shape(tmp_path: Path) -> None:
    path = fancy(tmp_path / "a.onnx", None)
    with pytest.raises(ModelError, match=r"com\.example\.Fancy .*does not tell what shape"):
        roofline.analyze(str(path), hardware=MACHINE)


# -- damage ----------------------------------------------------------------------------------------


def said_of(path: Path) -> str:
    with pytest.raises((FileFormatError, ModelError)) as caught:
        load(str(path))
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith(str(path))
    return said


def test_files_cut_short_anywhere(tmp_path: Path) -> None:
    content = product_file(tmp_path / "a.onnx").read_bytes()
    for length in range(1, len(content), 7):
        (tmp_path / "b.onnx").write_bytes(content[:length])
        with pytest.raises(RooflineError) as caught:
            load(str(tmp_path / "b.onnx"))
        assert "\n" not in str(caught.value)


def test_what_is_no_onnx_model(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"this is a text and not a model at all")
    assert "no ONNX model" in said_of(tmp_path / "a.onnx")


def test_values_that_are_made_nowhere(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Relu", ["z"], ["y"], name="n")
    path = graph_file(tmp_path / "a.onnx", [node], [("x", [2])], [("y", [2])])
    assert "the value 'z' is made nowhere" in said_of(path)


def test_tensors_with_other_values_than_their_shape_has(tmp_path: Path) -> None:
    path = product_file(tmp_path / "a.onnx")
    model = onnx.load(path)
    model.graph.initializer[0].dims[0] = 2**40
    path.write_bytes(model.SerializeToString())
    assert "and 96 are in the file; it is damaged" in said_of(path)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", ""])
def test_weights_outside_of_the_folder_are_not_read(location: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(96))
    assert "outside of the model's folder" in said_of(external(tmp_path / "in", location))


def test_weights_behind_a_link_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(96))
    (tmp_path / "in" / "w.bin").symlink_to(tmp_path / "secret.bin")
    assert "which is missing beside it" in said_of(external(tmp_path / "in", "w.bin"))


def test_weights_beside_the_model(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    path = external(tmp_path, "w.bin")
    module = load(str(path)).module
    with torch.no_grad():
        found = module(torch.eye(6))
    assert torch.equal(found, torch.from_numpy(values))
    (tmp_path / "w.bin").write_bytes(bytes(95))
    assert "do not lie in 'w.bin' as it says" in said_of(path)


def external(folder: Path, location: str) -> Path:
    path = product_file(folder / "a.onnx")
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    path.write_bytes(model.SerializeToString())
    return path


def test_a_graph_that_would_make_a_huge_constant(tmp_path: Path) -> None:
    """Nothing is allocated for it while it is counted."""
    make = onnx.helper.make_node
    nodes = [
        make("ConstantOfShape", ["sizes"], ["ones"]),
        make("Add", ["ones", "x"], ["y"]),
    ]
    path = graph_file(
        tmp_path / "a.onnx",
        nodes,
        [("x", [1])],
        [("y", None)],
        [weight("sizes", [2**20, 2**22], np.int64)],
    )
    found = roofline.analyze(str(path), hardware=MACHINE)
    assert found.totals.flop == 2**42
