"""ONNX operators as earlier and later versions have them, and the ways in which torch has none."""

from __future__ import annotations

import importlib
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import roofline
from roofline.workload.models.files.onnx_models import onnx_source
from tests.workload.onnx_files import MACHINE, changed_model, graph_file, node, onnx, single_node
from tests.workload.test_onnx_operators import IMAGE


def found_of(folder: Path, operator: str, given: list[Any], fixed: Any = (), **how: Any) -> Any:
    """What a node gives when it is read here and run."""
    attributes = {name: each for name, each in how.items() if name not in ("opset", "outputs")}
    outputs, opset = how.get("outputs", 1), how.get("opset", 21)
    single_node(folder / "a.onnx", operator, given, list(fixed), outputs, attributes, opset)
    with torch.no_grad():
        return onnx_source(folder / "a.onnx").module(*map(torch.from_numpy, given))


def reference_of(folder: Path, given: list[Any]) -> Any:
    """What ONNX's own reference implementation gives of the file that was last made."""
    evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator(
        onnx.load(folder / "a.onnx")
    )
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        return evaluator.run(None, {f"x{i}": each for i, each in enumerate(given)})[0]


PLACES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
ROUNDED = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@pytest.mark.parametrize(("places", "rounded"), list(itertools.product(PLACES, ROUNDED)))
def test_nearest_pixels(places: str, rounded: str, tmp_path: Path) -> None:
    """Of every way to place and to round them, to more pixels and to fewer."""
    how: dict[str, Any] = {
        "coordinate_transformation_mode": places,
        "nearest_mode": rounded,
        "mode": "nearest",
    }
    for sizes in ((2, 4, 18, 24), (2, 4, 3, 5)):
        fixed = [None, None, np.array(sizes, dtype=np.int64)]
        found = found_of(tmp_path, "Resize", [IMAGE], fixed, **how)
        np.testing.assert_array_equal(found.numpy(), reference_of(tmp_path, [IMAGE]))


def test_scales_are_multiplied_as_runtimes_do(tmp_path: Path) -> None:
    """0.7 in float32 is a little less than 0.7, and 10 times that is 7 in float32 all the same."""
    image = np.zeros((1, 1, 10, 10), np.float32)
    fixed = [None, np.array([1, 1, 0.7, 1.2], dtype=np.float32)]
    assert found_of(tmp_path, "Resize", [image], fixed, mode="linear").shape == (1, 1, 7, 12)


def test_resizes_before_there_was_a_region(tmp_path: Path) -> None:
    """Each pixel twice in both directions, as Resize 10, Upsample 9 and Upsample 7 say it."""
    expected = IMAGE.repeat(2, axis=2).repeat(2, axis=3)
    scales = np.array([1, 1, 2, 2], dtype=np.float32)
    for operator, opset in (("Resize", 10), ("Upsample", 9)):
        found = found_of(tmp_path, operator, [IMAGE], [scales], opset=opset, mode="nearest")
        np.testing.assert_array_equal(found.numpy(), expected)
    found = found_of(tmp_path, "Upsample", [IMAGE], scales=[1.0, 1.0, 2.0, 2.0], opset=7)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_operands_that_lay_along_an_axis(tmp_path: Path) -> None:
    """Before opset 7: a number for each of four channels."""
    channels = np.arange(4, dtype=np.float32)
    found = found_of(tmp_path, "Add", [IMAGE], [channels], opset=6, broadcast=1, axis=1)
    np.testing.assert_array_equal(found.numpy(), IMAGE + channels[:, None, None])


def test_attributes_that_became_operands(tmp_path: Path) -> None:
    found = found_of(
        tmp_path, "Slice", [IMAGE], opset=9, starts=[1, -3], ends=[3, 2**31], axes=[1, 3]
    )
    np.testing.assert_array_equal(found.numpy(), IMAGE[:, 1:3, :, -3:])
    found = found_of(tmp_path, "Squeeze", [IMAGE[:, :1]], opset=11, axes=[1])
    assert found.shape == (2, 9, 8)
    found = found_of(tmp_path, "Clip", [IMAGE], opset=6, min=-0.5, max=0.25)
    np.testing.assert_array_equal(found.numpy(), IMAGE.clip(-0.5, 0.25))
    found, places = found_of(tmp_path, "TopK", [IMAGE], opset=9, outputs=2, k=3)
    np.testing.assert_array_equal(found.numpy(), np.sort(IMAGE)[..., :-4:-1])
    assert places.shape == (2, 4, 9, 3)


def test_limits_that_are_computed(tmp_path: Path) -> None:
    """Of a clip, whose limits may be values that only a run gives."""
    limits = [np.array(each, dtype=np.float32) for each in (-0.5, 0.25)]
    found = found_of(tmp_path, "Clip", [IMAGE, *limits])
    np.testing.assert_array_equal(found.numpy(), IMAGE.clip(-0.5, 0.25))
    counted = roofline.analyze(str(tmp_path / "a.onnx"), hardware=MACHINE)
    assert [each.op for each in counted.operators if each.flop] == ["aten.clamp"]


@pytest.mark.parametrize(("negative", "positive"), [(1, 1), (0, 1), (1, 0)])
def test_signs_of_the_infinite(negative: int, positive: int, tmp_path: Path) -> None:
    values = np.array([-np.inf, 1, np.inf, np.nan], dtype=np.float32)
    how = {"detect_negative": negative, "detect_positive": positive}
    found = found_of(tmp_path, "IsInf", [values], **how)
    assert found.tolist() == [bool(negative), False, bool(positive), False]


def test_codes_without_a_zero_point(tmp_path: Path) -> None:
    scale = np.array(0.02, dtype=np.float32)
    found = found_of(tmp_path, "QuantizeLinear", [IMAGE], [scale], output_dtype=3)
    assert found.dtype == torch.int8
    np.testing.assert_array_equal(found.numpy(), reference_of(tmp_path, [IMAGE]))


@pytest.mark.parametrize(
    ("operator", "how", "shape"),
    [
        ("AveragePool", {"kernel_shape": [2, 2], "dilations": [2, 2]}, (2, 4, 7, 6)),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}, (2, 4, 9, 8)),
        ("MaxPool", {"kernel_shape": [2, 2], "outputs": 2}, (2, 4, 8, 7)),
        ("Resize", {"antialias": 1, "mode": "linear"}, (2, 4, 3, 5)),
        ("Resize", {"coordinate_transformation_mode": "tf_crop_and_resize"}, (2, 4, 3, 5)),
        ("ConvTranspose", {"output_shape": [18, 16], "strides": [2, 2]}, (2, 4, 18, 16)),
    ],
)
def test_ways_that_torch_has_not_are_unknown(
    operator: str, how: dict[str, Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    """No FLOP are made up, and the rest of the model is counted."""
    fixed: list[Any] = []
    if operator == "Resize":
        fixed = [None, None, np.array(shape, dtype=np.int64)]
    if operator == "ConvTranspose":
        fixed = [np.ones((4, 4, 2, 2), np.float32)]
    attributes = {name: each for name, each in how.items() if name != "outputs"}
    outputs = how.get("outputs", 1)
    single_node(tmp_path / "a.onnx", operator, [IMAGE], fixed, outputs, attributes, 21)

    def change(model: Any) -> None:
        model.graph.node.append(node("Relu", ["y0"], ["z"]))
        told = [onnx.helper.make_tensor_value_info("y0", 1, shape)]
        told += [onnx.helper.make_tensor_value_info("y1", 7, shape)] * (outputs - 1)
        model.graph.value_info.extend(told)
        model.graph.output[0].name = "z"
        del model.graph.output[1:]

    changed_model(tmp_path / "a.onnx", change)
    found = roofline.analyze(str(tmp_path / "a.onnx"), hardware=MACHINE)
    assert [(each.op, each.flop) for each in found.operators] == [
        (f"onnx_operator.{operator}", None),
        ("aten.relu", int(np.prod(shape))),
    ]


def test_a_resize_of_channels_is_not_taken_for_one_of_pixels(tmp_path: Path) -> None:
    """As where channels come last: the sizes of the result are known, and no FLOP are."""
    fixed = [None, np.array([1, 2, 2, 1], dtype=np.float32)]
    single_node(tmp_path / "a.onnx", "Resize", [IMAGE], fixed, 1, {}, 21)
    told = onnx.helper.make_tensor_value_info("y0", 1, (2, 8, 18, 8))
    changed_model(tmp_path / "a.onnx", lambda model: model.graph.output[0].CopyFrom(told))
    (only,) = roofline.analyze(str(tmp_path / "a.onnx"), hardware=MACHINE).operators
    assert (only.state, only.output_bytes) == ("unknown", 2 * 8 * 18 * 8 * 4)


def test_large_weights_that_stand_in_the_graph(tmp_path: Path) -> None:
    """Some exporters write weights as constants: 80 × 60 parameters of 4 bytes."""
    table = onnx.numpy_helper.from_array(np.ones((80, 60), np.float32))
    nodes = [node("Constant", [], ["w"], value=table), node("MatMul", ["x", "w"], ["y"])]
    path = graph_file(tmp_path / "a.onnx", nodes, {"x": (5, 80)}, {"y": (5, 60)}, opset=21)
    found = roofline.analyze(str(path), hardware=MACHINE)
    assert found.totals.macs == 5 * 80 * 60
    assert (found.totals.parameters, found.totals.parameter_size_bytes) == (4800, 19200)


@pytest.mark.parametrize("opset", [9, 11, 13, 18])
def test_files_of_the_exporter_that_traces(opset: int, tmp_path: Path) -> None:
    """With an open batch; a sample is 8 x 36 results of 27 multiply-adds, and 10 of 288."""
    layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(288, 10)).eval()
    image = torch.from_numpy(np.random.default_rng(3).random((1, 3, 8, 8), np.float32))
    path = tmp_path / "a.onnx"
    with warnings.catch_warnings(action="ignore"):
        exporter: Any = torch.onnx.export
        exporter(
            model,
            (image,),
            path,
            dynamo=False,
            opset_version=opset,
            input_names=["image"],
            dynamic_axes={"image": {0: "batch"}},
        )
    found = roofline.analyze(str(path), hardware=MACHINE, batch=3)
    assert found.totals.macs == 3 * (8 * 36 * 27 + 10 * 288)
    with torch.no_grad():
        torch.testing.assert_close(onnx_source(path).module(image), model(image))
