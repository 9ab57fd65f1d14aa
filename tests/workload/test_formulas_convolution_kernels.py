"""Convolutions under other names count what `aten.convolution` counts, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from roofline.workload.formulas.registry import Flop, find
from tests.workload.passes import only, passed
from tests.workload.schema_calls import count_of, spec, taken
from tests.workload.test_formulas_convolution import MASKS, Mask


def geometry(
    dimensions: int = 2,
    groups: int = 2,
    *,
    transposed: bool = False,
    dilation: int = 2,
    bias: bool = False,
) -> dict[str, Any]:
    """4 channels of 9 places to 8, in steps of 2; transposed, of 3 places to 9."""
    windows = 3 if transposed else (9 - 2 * dilation - 1) // 2 + 1
    sizes = [[windows] * dimensions, [9] * dimensions]
    of_input, of_output = sizes if transposed else sizes[::-1]
    weight = (4, 8 // groups) if transposed else (8, 4 // groups)
    return {
        **dict.fromkeys(("input", "self"), spec(2, 4, *of_input)),
        "weight": spec(*weight, *[3] * dimensions),
        "output": spec(2, 8, *of_output),
        "bias": spec(8) if bias else None,
        "stride": [2] * dimensions,
        "padding": [0] * dimensions,
        "dilation": [dilation] * dimensions,
        "groups": groups,
        "transposed": transposed,
    }


def all_of(count: Flop) -> tuple[Any, ...]:
    """All that a count says, whatever the input is called."""
    elements, least = (
        {name.replace("self", "input"): many for name, many in each.items()}
        for each in (count.elements, count.min_elements)
    )
    return count.macs, count.flop, count.min_flop, elements, least, count.type


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(
            (f"{library}_convolution", {"dimensions": dimensions, "bias": bias})
            for library in ("miopen", "mkldnn", "_mps")
            for dimensions in (1, 2, 3)
            for bias in (False, True)
        ),
        *(("cudnn_convolution", {"dimensions": each}) for each in (1, 2, 3)),
        *(("miopen_depthwise_convolution", {"bias": each}) for each in (False, True)),
        *(
            (f"{library}_convolution_transpose", {"groups": groups, "transposed": True})
            for library in ("cudnn", "miopen", "_mps")
            for groups in (1, 2, 4)
        ),
        # Those of one group, which some do not dilate.
        *(
            (name, {"groups": 1, "dilation": 1, "dimensions": 2 + ("3d" in name)})
            for name in ("_slow_conv2d_forward", "slow_conv3d_forward", "thnn_conv2d")
        ),
        ("slow_conv3d", {"groups": 1, "dilation": 1, "dimensions": 3}),
        ("_nnpack_spatial_convolution", {"groups": 1, "dilation": 1}),
        *((f"slow_conv_dilated{d}d", {"groups": 1, "dimensions": d}) for d in (2, 3)),
        *(
            (f"slow_conv_transpose{d}d", {"groups": 1, "dimensions": d, "transposed": True})
            for d in (2, 3)
        ),
        # A group for each channel: the schema has no groups.
        *(
            ("_conv_depthwise2d", {"groups": 4}),
            ("conv_depthwise3d", {"groups": 4, "dimensions": 3}),
        ),
    ],
)
def test_other_names(name: str, options: dict[str, Any]) -> None:
    given = geometry(**options)
    expected = count_of("aten.convolution", **given)
    dimensions, groups = len(given["stride"]), given["groups"]
    windows = given["input" if given["transposed"] else "output"].shape[2]
    assert expected.macs == 2 * 4 * 8 // groups * (3 * windows) ** dimensions
    assert expected.type == ("depthwise convolution" if groups == 4 else "")
    assert all_of(taken(f"aten.{name}", **given)) == all_of(expected)
    found = find(f"aten.{name}")
    assert found is not None and found.type == "convolution"


@pytest.mark.parametrize("library", ["cudnn", "miopen"])
@pytest.mark.parametrize(
    ("name", "options", "all_of_it", "least"),
    [
        # A bias is free where the accumulator starts; the comparison is not.
        ("relu", {"bias": None}, 1, 1),
        ("relu", {"bias": spec(8)}, 2, 1),
        # relu(conv + bias + alpha * z): one of the two addends is where the accumulator starts.
        ("add_relu", {"alpha": None, "bias": None}, 2, 1),
        ("add_relu", {"alpha": 1, "bias": spec(8)}, 3, 2),
        ("add_relu", {"alpha": 0.5, "bias": None}, 3, 2),
        ("add_relu", {"alpha": 0.5, "bias": spec(8)}, 4, 3),
    ],
)
def test_with_what_comes_after(
    library: str, name: str, options: dict[str, Any], all_of_it: int, least: int
) -> None:
    given = geometry()
    plain, outputs = count_of("aten.convolution", **given), 2 * 8 * 9
    given |= {"z": given["output"], **options}
    found = taken(f"aten.{library}_convolution_{name}", **given)
    assert found.flop == plain.flop + all_of_it * outputs
    assert found.min_flop == plain.min_flop + least * outputs


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("name", "transposed"),
    [
        ("convolution_backward_overrideable", False),
        ("mps_convolution_backward", False),
        ("mps_convolution_transpose_backward", True),
    ],
)
def test_backward_kernels(name: str, transposed: bool, mask: Mask) -> None:
    """Whatever the input is called, and however many gradients there are to ask for."""
    given = {**geometry(transposed=transposed), "output": [None] * 3}
    given |= {"grad_output": geometry(transposed=transposed)["output"]}
    asked = mask
    if transposed:
        mask, asked = (*mask[:2], False), mask[:2]
    expected = count_of("aten.convolution_backward", **given, output_mask=mask)
    assert all_of(taken(f"aten.{name}", **given, output_mask=asked)) == all_of(expected)


@pytest.mark.parametrize("shape", [(4, 9, 8), (2, 4, 9, 8)])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_inside_inference_mode_composites_are_counted(padding: str, shape: tuple[int, ...]) -> None:
    """They count as they do outside, where torch splits them; so do images without a batch."""

    def plain(x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, x.new_ones(6, 2, 3, 3), padding=padding, dilation=2, groups=2)

    def transposed(x: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(x, x.new_ones(4, 3, 3, 3), stride=2, padding=1, groups=2)

    for function in (plain, transposed):
        outer, inner = (
            next(each for each in passed(f, shape).records if "conv" in each.op)
            for f in (function, torch.inference_mode()(function))
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
