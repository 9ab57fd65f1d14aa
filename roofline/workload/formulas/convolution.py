"""Convolutions, plain, grouped, dilated and transposed, in one to three dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from roofline.workload.formulas.pointwise import floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA

UNTOUCHED = "what no tap of the kernel meets, and taps that meet only padding, need not be read"


class Dimension(NamedTuple):
    """One spatial dimension: `windows` windows that step by `stride` over `size` places.

    Tap t of window w meets place w × stride + t × dilation - padding.
    """

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    windows: int


@functools.cache
def inner_taps(
    size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int
) -> int:
    """Pairs (window, tap) along one dimension whose tap lies inside `size`, not in padding."""
    pairs = 0
    for tap in range(kernel):
        # window * stride - shift must be from 0 to size - 1.
        shift = padding - tap * dilation
        first, last = max(0, -(-shift // stride)), min(windows - 1, (size - 1 + shift) // stride)
        pairs += max(0, last - first + 1)
    return pairs


@functools.cache
def touched(size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int) -> int:
    """Elements along one dimension of `size` that lie under some tap of some window."""
    if dilation == 1 and stride <= kernel:
        # Windows that meet or overlap leave no gap between the first tap and the last.
        return max(0, min(size, (windows - 1) * stride + kernel - padding) - max(0, -padding))
    under = {
        window * stride - padding + tap * dilation
        for window in range(windows)
        for tap in range(kernel)
    }
    return sum(0 <= each < size for each in under)


@functools.cache
def needed(
    size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int
) -> tuple[int, int]:
    """Taps along one dimension that lie inside `size` for some window; windows with such a tap."""
    taps = reaching = end = 0
    # From the last tap to the first, the windows whose tap lies inside move on.
    for tap in reversed(range(kernel)):
        shift = padding - tap * dilation
        first, last = max(0, -(-shift // stride)), min(windows - 1, (size - 1 + shift) // stride)
        if first <= last:
            taps += 1
            reaching += max(0, last + 1 - max(first, end))
            end = max(end, last + 1)
    return taps, reaching


def each_dimension(values: Sequence[int], dimensions: int) -> Sequence[int]:
    """`values`, one for each dimension; a single one holds for all."""
    return list(values) * dimensions if len(values) == 1 else values


def spatial_dimensions(
    swept_over: TensorSpec,
    swept: TensorSpec,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[Dimension]:
    """The spatial dimensions of a convolution that sweeps its windows over `swept_over`.

    `swept` has a place for each window: the output, or of a transposed convolution the input.
    """
    many = len(kernel)
    return [
        Dimension(*each)
        for each in zip(
            swept_over.shape[2:],
            kernel,
            each_dimension(stride, many),
            each_dimension(padding, many),
            each_dimension(dilation, many),
            swept.shape[2:],
            strict=True,
        )
    ]


def leading_padding(
    padding: Sequence[int] | str, kernel: Sequence[int], dilation: Sequence[int]
) -> Sequence[int]:
    """Padding before the first place; "same" puts the odd element at the end, "valid" is none."""
    if not isinstance(padding, str):
        return padding
    if padding != "same":
        return [0] * len(kernel)
    spreads = each_dimension(dilation, len(kernel))
    return [d * (k - 1) // 2 for d, k in zip(spreads, kernel, strict=True)]


def batched(image: TensorSpec, weight: TensorSpec) -> TensorSpec:
    """An image without a batch dimension is a batch of one."""
    missing = len(weight.shape) - len(image.shape)
    return replace(image, shape=(*(1,) * missing, *image.shape))


@formula("aten.convolution", "aten._convolution", "aten.convolution_overrideable", byte=UNTOUCHED)
def convolution(
    input: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    output: TensorSpec,
    **_: Any,
) -> Flop:
    """Each output element takes in_channels / groups * kernel_size FMAs, padding taps included.

    Transposed: each input element is spread over out_channels / groups * kernel_size outputs.
    A bias is one addition an output, which a kernel can avoid by starting the accumulator with it.
    """
    if not floats(output):
        return Flop()
    kernel = weight.shape[2:]
    swept, swept_over = (input, output) if transposed else (output, input)
    channels = weight.shape[1] * swept.shape[1]
    macs = swept.shape[0] * channels * math.prod(swept.shape[2:]) * math.prod(kernel)
    dimensions = spatial_dimensions(swept_over, swept, kernel, stride, padding, dilation)
    taps = math.prod(inner_taps(*each) for each in dimensions)
    depthwise = groups > 1 and groups == input.shape[1]
    min_elements = {
        # Taps that meet only padding multiply nothing.
        "weight": math.prod(weight.shape[:2]) * math.prod(needed(*each)[0] for each in dimensions)
    }
    if not transposed:
        min_elements["input"] = math.prod(input.shape[:2]) * math.prod(
            touched(*each) for each in dimensions
        )
    return Flop(
        macs=macs,
        other=output.elements if bias is not None else 0,
        least=FLOP_PER_FMA * swept.shape[0] * channels * taps,
        min_macs=swept.shape[0] * channels * taps,
        min_elements=min_elements,
        type="depthwise convolution" if depthwise else "",
    )


@formula("aten.conv1d", "aten.conv2d", "aten.conv3d", byte=UNTOUCHED)
def plain_convolution(
    input: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output: TensorSpec,
    **_: Any,
) -> Flop:
    """As `convolution`, never transposed."""
    input, output = batched(input, weight), batched(output, weight)
    return convolution(input, weight, bias, stride, padding, dilation, False, groups, output)


@formula("aten.conv_tbc")
def convolution_over_time(
    self: TensorSpec, weight: TensorSpec, output: TensorSpec, pad: int = 0, **_: Any
) -> Flop:
    """Time, batch and channels: each output takes kernel * in_channels FMAs, and a bias."""
    kernel, inputs, outputs = weight.shape
    taps = inner_taps(self.shape[0], kernel, 1, pad, 1, output.shape[0])
    products = taps * self.shape[1] * inputs * outputs
    return Flop(
        macs=output.elements * kernel * inputs,
        other=output.elements,
        least=FLOP_PER_FMA * products,
        min_macs=products,
    )
