"""Torchvision's operators for detection, from their schemas: by hand, and by loops."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from roofline.workload.formulas import Flop, find
from tests.workload.passes import only, passed
from tests.workload.scalars import Scalar, Tally, numbers
from tests.workload.schema_calls import spec

SCHEMAS = [
    "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"
    " SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "torchvision::ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt"
    " pooled_height, SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    "torchvision::roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"
    " SymInt pooled_width) -> (Tensor, Tensor)",
    "torchvision::ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt"
    " pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    "torchvision::deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor"
    " bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h,"
    " SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
]
"""As torchvision defines them; its compiled part need not be there."""


def counted(operator: str, **arguments: object) -> Flop:
    """What the formula says of a call."""
    found = find(f"torchvision.{operator}")
    assert found is not None
    return found.count(arguments)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_parameters_are_those_of_the_schema(schema: str) -> None:
    """Formulas ask for nothing that a call does not have."""
    parsed = torch._C.parse_schema(schema)
    found = find(parsed.name.replace("::", "."))
    assert found is not None
    names = {each.name for each in parsed.arguments} | {"output"}
    parameters = inspect.signature(found.function).parameters.values()
    asked = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
    assert asked <= names


def positive(x: Scalar) -> Scalar:
    """It, or 0."""
    return x if x > 0 else Scalar(0.0, x.tally)


def overlap(a: list[Scalar], b: list[Scalar], area_a: Scalar, area_b: Scalar) -> bool:
    """Whether two boxes share more than half of what they cover."""
    left, top = (x if x > y else y for x, y in zip(a[:2], b[:2], strict=True))
    right, bottom = (x if x < y else y for x, y in zip(a[2:], b[2:], strict=True))
    width, height = right - left, bottom - top
    inner = positive(width) * positive(height)
    return inner / (area_a + area_b - inner) > 0.5


@given(boxes=st.integers(1, 8))
def test_boxes_that_are_apart_are_all_compared(boxes: int) -> None:
    """Areas, and every pair; sorting takes ceil(log2 n) comparisons a box besides."""
    corners = torch.arange(boxes).float()[:, None] * 10
    tally = Tally()
    rows = numbers(torch.cat([corners, corners, corners + 1, corners + 1], 1), tally)
    areas = [(row[2] - row[0]) * (row[3] - row[1]) for row in rows]
    for i in range(boxes):
        for j in range(i + 1, boxes):
            assert not overlap(rows[i], rows[j], areas[i], areas[j])
    count = counted("nms", dets=spec(boxes, 4), scores=spec(boxes), output=spec(boxes))
    assert count.other == tally.simple + boxes * math.ceil(math.log2(boxes))
    assert count.min_flop <= count.flop


def test_one_box_and_none() -> None:
    """The best may suppress all others: those are compared with it, and their scores."""
    assert counted("nms", dets=spec(0, 4), scores=spec(0), output=spec(0)).flop == 0
    assert counted("nms", dets=spec(1, 4), scores=spec(1), output=spec(1)).flop == 3
    assert counted("nms", dets=spec(9, 4), scores=spec(9), output=spec(1)).min_flop == 8 * 14


def test_features_of_boxes() -> None:
    """5 boxes, 3 channels, 2 x 2 bins of 4 samples: 20 bins, 60 results.

    A box takes 8 operations, a sample's place 18; a channel 7 a sample, 3 sums and a division.
    """
    features, boxes, pooled = spec(2, 3, 16, 16), spec(5, 5), spec(5, 3, 2, 2)
    arguments = {"input": features, "rois": boxes, "sampling_ratio": 2}
    count = counted("roi_align", **arguments, output=pooled)
    assert count.other == 5 * 8 + 20 * 4 * 18 + 60 * (4 * 7 + 3 + 1)
    assert count.elements == {"input": 60 * 4 * 4}
    assert count.min_flop == 0
    sensitive = counted("ps_roi_align", **arguments, output=[pooled, pooled])
    assert sensitive == count
    # How many samples there are is in the boxes: one at the least.
    unknown = counted("roi_align", **{**arguments, "sampling_ratio": 0}, output=pooled)
    assert unknown.other == 5 * 8 + 20 * 18 + 60 * 8
    largest = counted("roi_pool", input=features, rois=boxes, output=[pooled, pooled])
    assert largest.other == 5 * 8 + 60


@given(
    groups=st.sampled_from([1, 2]),
    stride=st.integers(1, 2),
    padding=st.integers(0, 1),
    use_mask=st.booleans(),
)
def test_deformable_convolution(groups: int, stride: int, padding: int, use_mask: bool) -> None:
    """A convolution of samples: 7 operations each and 1 of the mask; places 12, once a group.

    With offsets of 0 it is the plain convolution, whose least it has.
    """
    plain = only(
        passed(
            lambda x, w, b: F.conv2d(x, w, b, stride=stride, padding=padding, groups=groups),
            (2, 4, 7, 6),
            (6, 4 // groups, 3, 3),
            (6,),
        )
    )
    output = spec(*plain.outputs[0].shape)
    places = 2 * math.prod(output.shape[2:]) * 9
    count = counted(
        "deform_conv2d",
        input=spec(2, 4, 7, 6),
        weight=spec(6, 4 // groups, 3, 3),
        offset=spec(2, 36, *output.shape[2:]),
        mask=spec(2, 18, *output.shape[2:]) if use_mask else spec(0, 1),
        bias=spec(6),
        **dict.fromkeys(("stride_h", "stride_w"), stride),
        **dict.fromkeys(("pad_h", "pad_w"), padding),
        **dict.fromkeys(("dilation_h", "dilation_w"), 1),
        groups=groups,
        offset_groups=2,
        use_mask=use_mask,
        output=output,
    )
    assert count.macs == plain.work.macs
    assert count.min_flop == plain.work.min_flop
    assert count.other == 2 * places * 12 + 4 * places * (7 + use_mask) + output.elements
    # The samples, 4 bytes each, are written and read.
    assert count.internal_bytes == 2 * 4 * 4 * places
