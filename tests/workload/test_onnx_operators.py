"""Every ONNX operator that is known here gives what ONNX's own reference implementation gives."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roofline.workload.models.files.onnx_models import onnx_source
from roofline.workload.models.files.onnx_operators import FUNCTIONS
from tests.workload.onnx_files import single_node

RANDOM = np.random.default_rng(5)


def noise(*shape: int) -> np.ndarray:
    """Normal noise in float32."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def whole(*values: Any) -> np.ndarray:
    """Whole numbers in int64."""
    return np.array(values, dtype=np.int64)


X, Y = noise(2, 3, 4), noise(2, 3, 4)
IMAGE = noise(2, 4, 9, 8)
POSITIVE = np.abs(X) + 0.5

Case = tuple[str, list[Any], list[Any], dict[str, Any], int, int]


def case(
    operator: str,
    given: Sequence[Any],
    fixed: Sequence[Any] = (),
    *,
    outputs: int = 1,
    opset: int = 21,
    **attributes: Any,
) -> Case:
    return operator, list(given), list(fixed), attributes, outputs, opset


def recurrent(gates: int, directions: int) -> list[Any]:
    """Weights of a layer of width 5 on inputs of width 3."""
    return [
        noise(directions, gates * 5, 3),
        noise(directions, gates * 5, 5),
        noise(directions, 2 * gates * 5),
    ]


CASES: list[Case] = [
    *(case(each, [X]) for each in ("Abs", "Neg", "Exp", "Sin", "Cos", "Tanh", "Erf", "Sign")),
    *(case(each, [X]) for each in ("Floor", "Ceil", "Round", "Relu", "Sigmoid", "Softplus")),
    *(case(each, [X]) for each in ("HardSwish", "Selu", "Elu", "LeakyRelu", "Celu", "Softsign")),
    *(case(each, [X]) for each in ("Mish", "IsNaN", "ThresholdedRelu", "Identity", "Tan")),
    *(case(each, [POSITIVE]) for each in ("Sqrt", "Log", "Reciprocal")),
    *(case(each, [X, Y]) for each in ("Add", "Sub", "Mul", "Div", "Greater", "Less", "Equal")),
    *(case(each, [X, Y]) for each in ("GreaterOrEqual", "LessOrEqual", "Max", "Min", "Sum")),
    *(case(each, [X, Y, noise(4)]) for each in ("Max", "Min", "Sum", "Mean")),
    *(case(each, [X > 0, Y > 0]) for each in ("And", "Or", "Xor")),
    case("Not", [X > 0]),
    case("Div", [whole(-7, 7, -8), whole(2, 2, 3)]),
    case("Mod", [whole(-7, 7, -8), whole(2, -2, 3)]),
    case("Mod", [X, Y], fmod=1),
    case("Pow", [POSITIVE], [np.array(2.0, dtype=np.float32)]),
    case("Pow", [POSITIVE, Y]),
    case("Clip", [X], [np.float32(-0.5) * np.ones(()).astype(np.float32), None]),
    case("Clip", [X], [np.array(0, np.float32), np.array(6, np.float32)]),
    case("HardSigmoid", [X]),
    case("HardSigmoid", [X], alpha=1 / 6, beta=0.5),
    case("Gelu", [X]),
    case("Gelu", [X], approximate="tanh"),
    case("PRelu", [IMAGE], [noise(4, 1, 1)]),
    case("PRelu", [X], [noise(4)]),
    case("Where", [X > 0, X, Y]),
    case("Cast", [X], to=7),
    case("Cast", [whole(0, 2)], to=9),
    case("CastLike", [X, whole(1)]),
    case("CumSum", [X], [np.array(1)]),
    case("CumSum", [X], [np.array(1)], exclusive=1, reverse=1),
    case("Dropout", [X]),
    *(case(f"Reduce{each}", [X], [whole(1)]) for each in ("Mean", "Sum", "Max", "Min", "Prod")),
    *(case(f"Reduce{each}", [X], [whole(0, -1)], keepdims=0) for each in ("L1", "L2", "Prod")),
    *(case(f"Reduce{each}", [POSITIVE], [whole(2)]) for each in ("LogSum", "LogSumExp")),
    case("ReduceSumSquare", [X]),
    case("ReduceMean", [X], opset=13, axes=[1], keepdims=0),
    case("ReduceSum", [X], noop_with_empty_axes=1),
    case("ArgMax", [X], axis=1),
    case("ArgMin", [X], axis=-1, keepdims=0),
    case("TopK", [X], [whole(2)], outputs=2, axis=1),
    case("MatMul", [X, noise(4, 5)]),
    case("MatMul", [noise(4), noise(4, 5)]),
    case("Gemm", [noise(3, 4)], [noise(5, 4), noise(5)], transB=1),
    case("Gemm", [noise(4, 3)], [noise(4, 5), noise(3, 1)], transA=1, alpha=0.5, beta=2.0),
    case("Gemm", [noise(3, 4)], [noise(4, 5)]),
    case("Einsum", [X, noise(2, 4, 5)], equation="bij,bjk->bik"),
    case("Softmax", [X], axis=1),
    case("LogSoftmax", [X], axis=-1),
    case("Conv", [IMAGE], [noise(6, 4, 3, 3), noise(6)], pads=[1, 1, 1, 1], strides=[2, 1]),
    case("Conv", [IMAGE], [noise(6, 4, 3, 3)], pads=[0, 1, 2, 0]),
    case("Conv", [IMAGE], [noise(6, 2, 3, 3)], group=2, dilations=[2, 2]),
    case("Conv", [IMAGE], [noise(6, 4, 3, 3)], auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", [noise(2, 4, 9)], [noise(6, 4, 3)], auto_pad="SAME_LOWER"),
    case("ConvTranspose", [IMAGE], [noise(4, 6, 3, 3), noise(6)], strides=[2, 2]),
    case("ConvTranspose", [IMAGE], [noise(4, 6, 3, 3)], pads=[1, 1, 1, 1], strides=[2, 2]),
    case("MaxPool", [IMAGE], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("MaxPool", [IMAGE], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("AveragePool", [IMAGE], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("AveragePool", [IMAGE], kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1),
    case("GlobalAveragePool", [IMAGE]),
    case("GlobalMaxPool", [IMAGE]),
    case("BatchNormalization", [IMAGE], [noise(4), noise(4), noise(4), np.abs(noise(4)) + 1]),
    case("InstanceNormalization", [IMAGE], [noise(4), noise(4)]),
    case("LayerNormalization", [X], [noise(4), noise(4)]),
    case("LayerNormalization", [X], [noise(3, 4)], axis=1, epsilon=1e-3),
    case("GroupNormalization", [IMAGE], [noise(4), noise(4)], num_groups=2),
    # The reference goes through as many channels as there are samples.
    case("LRN", [noise(4, 4, 3, 3)], size=3),
    case("LpNormalization", [X], axis=1),
    case("RMSNormalization", [X], [noise(4)], opset=23),
    case("Reshape", [X], [whole(0, -1)]),
    case("Flatten", [IMAGE], axis=2),
    case("Transpose", [X], perm=[2, 0, 1]),
    case("Unsqueeze", [X], [whole(0, -1)]),
    case("Unsqueeze", [X], opset=11, axes=[1]),
    case("Squeeze", [noise(1, 3, 1)], [whole(0)]),
    case("Concat", [X, Y], axis=1),
    case("Split", [IMAGE], [whole(1, 3)], outputs=2, axis=1),
    case("Split", [X], outputs=3, axis=1, num_outputs=3),
    case("Slice", [X], [whole(1), whole(2**62), whole(2), whole(2)]),
    case("Slice", [X], [whole(-1), whole(-(2**62)), whole(1), whole(-1)]),
    case("Slice", [X], opset=9, starts=[0, 1], ends=[1, 3], axes=[0, 2]),
    case("Expand", [noise(3, 1)], [whole(2, 1, 4)]),
    case("Tile", [X], [whole(1, 2, 3)]),
    case("Pad", [X], [whole(0, 1, 2, 0, 0, 3), np.array(1.5, np.float32)]),
    case("Pad", [IMAGE], [whole(0, 0, 1, 2, 0, 0, 2, 1)], mode="reflect"),
    case("Pad", [IMAGE], [whole(0, 0, 1, 2, 0, 0, 2, 1)], mode="edge"),
    case("DepthToSpace", [noise(1, 8, 2, 3)], blocksize=2),
    case("DepthToSpace", [noise(1, 8, 2, 3)], blocksize=2, mode="CRD"),
    case("SpaceToDepth", [noise(1, 2, 4, 6)], blocksize=2),
    case("Trilu", [noise(4, 4)], [np.array(1)]),
    case("Trilu", [noise(4, 4)], upper=0),
    case("Gather", [X], [whole(0, 2)], axis=1),
    case("Gather", [X], [np.array(-1)], axis=2),
    case("Gather", [noise(6, 4), whole(1, 5, 0)]),
    case("GatherElements", [X, RANDOM.integers(0, 3, (2, 2, 4))], axis=1),
    case("GatherND", [X, whole([0, 1], [1, 2])]),
    case("ScatterElements", [X, RANDOM.integers(0, 3, (2, 1, 4)), noise(2, 1, 4)], axis=1),
    case("ScatterND", [X, whole([0, 1], [1, 2]), noise(2, 4)]),
    case("OneHot", [whole(1, 0, 2)], [np.array(3), np.array([0.0, 2.0], np.float32)]),
    case("Resize", [IMAGE], [None, None, whole(2, 4, 18, 16)], mode="linear"),
    case(
        "Resize",
        [IMAGE],
        [None, np.array([1, 1, 2, 2], np.float32)],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    case(
        "Resize",
        [IMAGE],
        [None, None, whole(2, 4, 17, 15)],
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    case("LSTM", [noise(6, 2, 3)], recurrent(4, 1), outputs=3, hidden_size=5),
    case(
        "LSTM",
        [noise(6, 2, 3)],
        recurrent(4, 2),
        outputs=3,
        hidden_size=5,
        direction="bidirectional",
    ),
    case("GRU", [noise(6, 2, 3)], recurrent(3, 1), outputs=2, hidden_size=5, linear_before_reset=1),
    case("RNN", [noise(6, 2, 3)], recurrent(1, 1), outputs=2, hidden_size=5),
    case("DequantizeLinear", [RANDOM.integers(0, 9, (2, 4)).astype(np.uint8)], [np.float32(0.5)]),
    case(
        "QuantizeLinear",
        [X],
        [noise(3) ** 2 + 0.01, np.array([1, 0, 2], np.int8)],
        axis=1,
    ),
]


def as_arrays(result: Any) -> list[np.ndarray]:
    several = result if isinstance(result, tuple) else (result,)
    return [each.detach().numpy() for each in several]


@pytest.mark.parametrize("each", CASES, ids=lambda each: each[0])
def test_as_the_reference_implementation(each: Case, tmp_path: Path) -> None:
    operator, given, fixed, attributes, outputs, opset = each
    fixed = [None if one is None else np.asarray(one) for one in fixed]
    model = single_node(tmp_path / "a.onnx", operator, given, fixed, outputs, attributes, opset)
    reference = importlib.import_module("onnx.reference")
    named = {f"x{i}": one for i, one in enumerate(given)}
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        expected = reference.ReferenceEvaluator(model).run(None, named)
    with torch.no_grad():
        found = as_arrays(onnx_source(tmp_path / "a.onnx").module(*map(torch.from_numpy, given)))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == np.shape(other)
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_max_pool_padded_at_one_end(tmp_path: Path) -> None:
    """Brute force: pads are the begins of all axes, then their ends; the reference mixes them."""
    attributes = {"kernel_shape": [3, 2], "pads": [0, 0, 2, 1]}
    single_node(tmp_path / "a.onnx", "MaxPool", [IMAGE], [], 1, attributes, 21)
    found = onnx_source(tmp_path / "a.onnx").module(torch.from_numpy(IMAGE)).numpy()
    assert found.shape == (2, 4, 9, 8)
    for row in range(9):
        for column in range(8):
            window = IMAGE[:, :, row : row + 3, column : column + 2]
            assert np.array_equal(found[:, :, row, column], window.max(axis=(2, 3)))


def test_softmax_before_opset_13(tmp_path: Path) -> None:
    """It went over all axes from the one that is named: 12 equal values are a twelfth each."""
    zeros = np.zeros((2, 3, 4), np.float32)
    single_node(tmp_path / "a.onnx", "Softmax", [zeros], [], 1, {"axis": 1}, 11)
    found = onnx_source(tmp_path / "a.onnx").module(torch.from_numpy(zeros))
    np.testing.assert_allclose(found.numpy(), np.full((2, 3, 4), 1 / 12), rtol=1e-6)


def test_no_operator_is_left_untested_by_oversight() -> None:
    """The others need values, are random, or have no reference implementation."""
    tested = {each[0] for each in CASES}
    others = {each for each in FUNCTIONS if "." not in each} - tested
    assert others <= {
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "IsInf"),
        *("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Swish", "Attention"),
        *("AffineGrid", "CenterCropPad", "GridSample", "Upsample", "NonZero", "EyeLike"),
        *("Constant", "ConstantOfShape", "Range", "RandomNormalLike", "RandomUniformLike"),
        *("SimplifiedLayerNormalization", "SkipLayerNormalization", "Scatter"),
    }
