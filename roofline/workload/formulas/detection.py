"""Torchvision's operators for detection: boxes compared, and features read where boxes lie.

Where boxes lie cannot be known from shapes. Features may be read again and again, or hardly at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.convolution import inner_taps
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA

_OVERLAP_FLOP = 13
"""Of two boxes: four limits, two differences, two comparisons with 0, a product; the union of
areas (2), a division, and a comparison with the threshold."""

_PLACE_FLOP = 18
"""Two coordinates of 4 operations each, their floors, 4 differences, 4 weights."""

_BILINEAR_FLOP = 7
"""Four products and their sum."""


@formula("torchvision.nms", type="detection")
def non_maximum_suppression(dets: TensorSpec, **_: Any) -> Flop:
    """Areas (3), scores sorted, and each box compared with each better one: 13 a pair.

    A box that was suppressed is compared no more: it may be that the best suppresses all.
    """
    boxes = dets.shape[0]
    if not boxes:
        return Flop()
    pairs = boxes * (boxes - 1) // 2
    sorting = boxes * math.ceil(math.log2(boxes))
    least = boxes - 1 + _OVERLAP_FLOP * (boxes - 1)
    return Flop(other=3 * boxes + sorting + _OVERLAP_FLOP * pairs, least=least)


def _sampled(input: TensorSpec, rois: TensorSpec, pooled: TensorSpec, sampling_ratio: int) -> Flop:
    """The mean of bilinear samples in each bin; a ratio of 0 takes more of them in larger boxes.

    That many is in the values, so that one is counted.
    """
    samples = max(1, sampling_ratio) ** 2
    boxes, channels = rois.shape[0], max(1, pooled.shape[1])
    bins = pooled.elements // channels
    each = samples * _BILINEAR_FLOP + samples  # n - 1 sums and a division
    return Flop(
        # A box: four coordinates scaled, two sizes, two sizes of a bin.
        other=8 * boxes + bins * samples * _PLACE_FLOP + pooled.elements * each,
        # Places outside of the image give 0.
        least=0,
        elements={"input": 4 * samples * pooled.elements},
        min_elements={"input": 0},
    )


_SAMPLED_BYTE = "of the features 4 for each sample, or all; at the least none"


@formula("torchvision.roi_align", type="detection", byte=_SAMPLED_BYTE)
def roi_align(
    input: TensorSpec, rois: TensorSpec, sampling_ratio: int, output: TensorSpec, **_: Any
) -> Flop:
    """The mean of sampling_ratio^2 bilinear samples in each bin of each box and channel.

    A ratio of 0 takes more of them in larger boxes: one is counted, as their number is a value.
    """
    return _sampled(input, rois, output, sampling_ratio)


@formula("torchvision.ps_roi_align", type="detection", byte=_SAMPLED_BYTE)
def position_sensitive_roi_align(
    input: TensorSpec, rois: TensorSpec, sampling_ratio: int, output: Sequence[TensorSpec], **_: Any
) -> Flop:
    """As `roi_align`, each bin from channels of its own."""
    return _sampled(input, rois, output[0], sampling_ratio)


@formula(
    *("torchvision.roi_pool", "torchvision.ps_roi_pool"),
    type="detection",
    byte="an element for each of the result; at the least none",
)
def roi_pool(rois: TensorSpec, output: Sequence[TensorSpec], **_: Any) -> Flop:
    """The largest, or the mean, of what lies in each bin: one operation for each is counted.

    How many elements there are in a bin is in the values; it may be none.
    """
    return Flop(
        other=8 * rois.shape[0] + output[0].elements,
        least=0,
        elements={"input": output[0].elements},
        min_elements={"input": 0},
    )


@formula(
    "torchvision.deform_conv2d",
    type="convolution",
    byte="each operand once; the samples, written and read, are internal",
)
def deformable_convolution(
    input: TensorSpec,
    weight: TensorSpec,
    output: TensorSpec,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    offset_groups: int,
    use_mask: bool,
    **_: Any,
) -> Flop:
    """As a convolution, on bilinear samples where offsets say: 7 a sample, 8 with a mask.

    Places are shared by the channels of an offset group, at 12 each: two sums, two floors, four
    differences, four weights. A bias is always there. The least takes offsets of 0, and a bias for
    free.
    """
    samples, channels = input.shape[:2]
    kernel = weight.shape[2:]
    places = samples * math.prod(output.shape[2:]) * math.prod(kernel)
    columns = places * channels
    taps = math.prod(
        inner_taps(*each)
        for each in zip(
            input.shape[2:],
            kernel,
            (stride_h, stride_w),
            (pad_h, pad_w),
            (dilation_h, dilation_w),
            output.shape[2:],
            strict=True,
        )
    )
    products = samples * weight.shape[0] * weight.shape[1] * taps
    return Flop(
        macs=output.elements * math.prod(weight.shape[1:]),
        other=places * offset_groups * 12 + columns * (7 + use_mask) + output.elements,
        least=FLOP_PER_FMA * products,
        min_macs=products,
        min_elements={"input": 0},
        internal_bytes=2 * input.dtype.byte(columns),
    )
