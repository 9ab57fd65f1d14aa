"""Convolutions under other names count what `aten.convolution` counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from roofline.workload.formulas.registry import Flop, find
from roofline.workload.tensors import TensorSpec
from tests.workload.passes import only, passed
from tests.workload.schema_calls import spec


def counted(name: str, arguments: dict[str, Any]) -> Flop:
    found = find(name)
    assert found is not None
    assert found.type == "convolution"
    return found.count(arguments)


def of_self(count: Flop) -> tuple[Any, ...]:
    """All that a count says, whatever the input is called."""
    least = {name.replace("self", "input"): many for name, many in count.min_elements.items()}
    return count.macs, count.flop, count.min_flop, least, count.type


# The image, the weight, the result and the rest of a call, for each dimension.
PLAIN: dict[int, dict[str, Any]] = {
    d: {
        "input": spec(2, 4, *[9] * d),
        "weight": spec(6, 2, *[3] * d),
        "output": spec(2, 6, *[3] * d),
        "bias": None,
        "stride": [2] * d,
        "padding": [0] * d,
        "dilation": [2] * d,
        "groups": 2,
    }
    for d in (1, 2, 3)
}


def schema(name: str) -> tuple[set[str], dict[str, Any]]:
    """An operator's arguments, and their defaults."""
    operator = getattr(torch.ops.aten, name.removeprefix("aten."))
    found = getattr(operator, operator.overloads()[0])._schema.arguments
    return (
        {each.name for each in found},
        {each.name: each.default_value for each in found if each.has_default_value()},
    )


def call(name: str, geometry: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the operator's own schema."""
    names, defaults = schema(name)
    given = {**geometry, "self": geometry["input"]}
    return {**defaults, **{n: v for n, v in given.items() if n in names or n == "output"}}


@pytest.mark.parametrize("bias", [None, spec(6)])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize(
    "name",
    [
        *("aten.cudnn_convolution", "aten.miopen_convolution", "aten.mkldnn_convolution"),
        *("aten.miopen_depthwise_convolution", "aten._mps_convolution"),
    ],
)
def test_of_libraries(name: str, dimensions: int, bias: TensorSpec | None) -> None:
    geometry = {**PLAIN[dimensions], "bias": bias}
    if "bias" not in schema(name)[0]:
        geometry["bias"] = None
    expected = counted("aten.convolution", {**geometry, "transposed": False})
    assert expected.macs == 2 * 6 * 3**dimensions * 2 * 3**dimensions
    assert of_self(counted(name, call(name, geometry))) == of_self(expected)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(
    "name",
    [
        *("aten.cudnn_convolution_transpose", "aten.miopen_convolution_transpose"),
        "aten._mps_convolution_transpose",
    ],
)
def test_transposed_of_libraries(name: str, groups: int) -> None:
    geometry = {
        **PLAIN[2],
        "input": spec(2, 4, 3, 3),
        "weight": spec(4, 6 // groups if groups < 4 else 2, 3, 3),
        "groups": groups,
    }
    geometry["output"] = spec(2, geometry["weight"].shape[1] * groups, 9, 9)
    expected = counted("aten.convolution", {**geometry, "transposed": True})
    assert of_self(counted(name, call(name, geometry))) == of_self(expected)
    assert expected.type == ("depthwise convolution" if groups == 4 else "")


@pytest.mark.parametrize(
    ("name", "dimensions"),
    [
        *[("aten._slow_conv2d_forward", 2), ("aten.slow_conv3d_forward", 3)],
        *[("aten.thnn_conv2d", 2), ("aten.slow_conv3d", 3)],
        *[("aten.slow_conv_dilated2d", 2), ("aten.slow_conv_dilated3d", 3)],
        ("aten._nnpack_spatial_convolution", 2),
    ],
)
def test_of_one_group(name: str, dimensions: int) -> None:
    dilation = 2 if "dilated" in name else 1
    shape = [(9 - dilation * 2 - 1) // 2 + 1] * dimensions
    geometry = {
        **PLAIN[dimensions],
        "weight": spec(6, 4, *[3] * dimensions),
        "output": spec(2, 6, *shape),
        "dilation": [dilation] * dimensions,
        "groups": 1,
    }
    expected = counted("aten.convolution", {**geometry, "transposed": False})
    assert of_self(counted(name, call(name, geometry))) == of_self(expected)


@pytest.mark.parametrize(("name", "dimensions"), [("2d", 2), ("3d", 3)])
def test_transposed_of_one_group(name: str, dimensions: int) -> None:
    geometry = {
        **PLAIN[dimensions],
        "input": spec(2, 4, *[3] * dimensions),
        "weight": spec(4, 6, *[3] * dimensions),
        "output": spec(2, 6, *[9] * dimensions),
        "groups": 1,
    }
    name = f"aten.slow_conv_transpose{name}"
    expected = counted("aten.convolution", {**geometry, "transposed": True})
    assert of_self(counted(name, call(name, geometry))) == of_self(expected)


@pytest.mark.parametrize(
    ("name", "dimensions"), [("aten._conv_depthwise2d", 2), ("aten.conv_depthwise3d", 3)]
)
def test_depthwise(name: str, dimensions: int) -> None:
    """A group for each channel, as the schema has no groups."""
    geometry = {**PLAIN[dimensions], "weight": spec(4, 1, *[3] * dimensions), "groups": 4}
    geometry["output"] = spec(2, 4, *[3] * dimensions)
    found = counted(name, call(name, geometry))
    assert found.macs == 2 * 4 * 3**dimensions * 3**dimensions
    assert found.type == "depthwise convolution"


@pytest.mark.parametrize("library", ["cudnn", "miopen"])
def test_with_an_activation(library: str) -> None:
    """A bias is free where the accumulator starts; the comparison is not."""
    plain = counted("aten.convolution", {**PLAIN[2], "transposed": False})
    outputs = 2 * 6 * 9
    name = f"aten.{library}_convolution_relu"
    for bias, more in ((None, 1), (spec(6), 2)):
        found = counted(name, call(name, {**PLAIN[2], "bias": bias}))
        assert found.flop == plain.flop + more * outputs
        assert found.min_flop == plain.min_flop + outputs


@pytest.mark.parametrize("library", ["cudnn", "miopen"])
@pytest.mark.parametrize(
    ("alpha", "with_bias", "all_of_it", "least"),
    [(None, False, 2, 1), (1, True, 3, 2), (0.5, False, 3, 2), (0.5, True, 4, 3)],
)
def test_with_an_addend(
    library: str, alpha: float | None, with_bias: bool, all_of_it: int, least: int
) -> None:
    """relu(conv + bias + alpha * z): one of the two addends is where the accumulator starts."""
    plain = counted("aten.convolution", {**PLAIN[2], "transposed": False})
    outputs = 2 * 6 * 9
    geometry = {**PLAIN[2], "z": spec(2, 6, 3, 3), "alpha": alpha}
    name = f"aten.{library}_convolution_add_relu"
    found = counted(name, call(name, {**geometry, "bias": spec(6) if with_bias else None}))
    assert found.flop == plain.flop + all_of_it * outputs
    assert found.min_flop == plain.min_flop + least * outputs


@pytest.mark.parametrize("shape", [(4, 9, 8), (2, 4, 9, 8)])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_inside_inference_mode_composites_are_counted(padding: str, shape: tuple[int, ...]) -> None:
    """They count as they do outside, where torch splits them; so do images without a batch."""

    def plain(x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, x.new_ones(6, 2, 3, 3), padding=padding, dilation=2, groups=2)

    def transposed(x: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(x, x.new_ones(4, 3, 3, 3), stride=2, padding=1, groups=2)

    for function in (plain, transposed):

        def inside(x: torch.Tensor, function: Any = function) -> torch.Tensor:
            with torch.inference_mode():
                return function(x)

        outer, inner = (
            next(each for each in passed(f, shape).records if "conv" in each.op)
            for f in (function, inside)
        )
        assert inner.op == outer.op == "aten.convolution"
        assert inner.work.macs == outer.work.macs
        assert inner.work.min_flop == outer.work.min_flop
        assert inner.work.traffic_bytes == outer.work.traffic_bytes


def test_mkldnn_dispatched() -> None:
    """The one of these that a CPU has."""
    x, w = torch.zeros(1, 4, 8, 8), torch.zeros(4, 1, 3, 3)
    function: Any = torch.ops.aten.mkldnn_convolution
    record = only(passed(lambda x, w: function(x, w, None, [1, 1], [1, 1], [1, 1], 4), x, w))
    assert record.type == "depthwise convolution"
    assert record.work.macs == 4 * 64 * 9
