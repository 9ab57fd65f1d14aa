"""Torchvision's detection operators: comparison of boxes, and features sampled in boxes.

Positions of boxes depend on values: features may be read many times, or hardly at all.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.convolution import Dimension, inner_taps
from roofline.workload.formulas.pointwise import first_output
from roofline.workload.formulas.registry import Flop, Tensors, formula, from_macs, untouched
from roofline.workload.tensors import TensorSpec as Tensor

_OVERLAP_FLOP = 13
"""FLOP per pair of boxes: four limits, two differences, two comparisons with 0, a product; the
union of areas (2), a division, and a comparison with the threshold."""

_PLACE_FLOP = 18
"""Two coordinates of 4 operations each, their floors, 4 differences, 4 weights."""

_BILINEAR_FLOP = 7
"""Four products and their sum."""

_BOX_FLOP = 8
"""Four coordinates scaled, two sizes, two sizes of a bin."""


@formula("torchvision.nms")
def non_maximum_suppression(dets: Tensor, **_: Any) -> Flop:
    """Areas (3), sorted scores, and 13 per pair of boxes.

    A suppressed box is compared no further; the best box may suppress all others.
    """
    boxes = dets.shape[0]
    if not boxes:
        return Flop()
    pairs = boxes * (boxes - 1) // 2
    sorting = boxes * math.ceil(math.log2(boxes))
    return Flop(
        other=3 * boxes + sorting + _OVERLAP_FLOP * pairs,
        least=boxes - 1 + _OVERLAP_FLOP * (boxes - 1),
    )


@formula(
    *("torchvision.roi_align", "torchvision.ps_roi_align"),
    byte="4 elements of the features per sample, or all; minimum: none",
)
def roi_align(rois: Tensor, sampling_ratio: int, output: Tensor | Tensors, **_: Any) -> Flop:
    """The mean of sampling_ratio^2 bilinear samples per bin of each box and channel.

    A ratio of 0 takes more samples in larger boxes; 1 is counted.
    """
    pooled, samples = first_output(output), max(1, sampling_ratio) ** 2
    bins = pooled.elements // max(1, pooled.shape[1])
    each = samples * _BILINEAR_FLOP + samples  # n - 1 sums and a division
    return Flop(
        other=_BOX_FLOP * rois.shape[0] + bins * samples * _PLACE_FLOP + pooled.elements * each,
        # Samples outside the image are 0.
        least=0,
        elements={"input": 4 * samples * pooled.elements},
        min_elements=untouched("input"),
    )


@formula(
    *("torchvision.roi_pool", "torchvision.ps_roi_pool"),
    byte="1 element of the features per element of the result; minimum: none",
)
def roi_pool(rois: Tensor, output: Tensors, **_: Any) -> Flop:
    """The maximum or mean of each bin: 1 operation per bin is counted.

    The number of elements per bin depends on values; it may be 0.
    """
    bins = output[0].elements
    return Flop(
        other=_BOX_FLOP * rois.shape[0] + bins,
        least=0,
        elements={"input": bins},
        min_elements=untouched("input"),
    )


@formula(
    "torchvision.deform_conv2d",
    type="convolution",
    byte="each operand once; the samples, written and read, are internal",
)
def deformable_convolution(
    input: Tensor,
    weight: Tensor,
    output: Tensor,
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
    """As a convolution, on bilinear samples at given offsets: 7 per sample, 8 with a mask.

    The channels of an offset group share sample positions, at 12 each: two sums, two floors, four
    differences, four weights. A bias is always present. Minimum: offsets of 0, and a free bias.
    """
    (samples, channels, *size), (*_channels, tall, wide) = input.shape, weight.shape
    rows, columns = output.shape[2:]
    places = samples * rows * columns * tall * wide
    taps = inner_taps(*Dimension(size[0], tall, stride_h, pad_h, dilation_h, rows)) * inner_taps(
        *Dimension(size[1], wide, stride_w, pad_w, dilation_w, columns)
    )
    sampled = places * channels
    count = from_macs(
        output.elements * math.prod(weight.shape[1:]),
        places * offset_groups * 12 + sampled * (7 + use_mask) + output.elements,
        samples * weight.shape[0] * weight.shape[1] * taps,
    )
    return replace(
        count, min_elements=untouched("input"), internal_bytes=2 * input.dtype.byte(sampled)
    )
