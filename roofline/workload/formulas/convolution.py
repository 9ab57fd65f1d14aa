"""Convolutions, plain, grouped, dilated and transposed, in one to three dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from roofline.workload.formulas.costs import has_floats
from roofline.workload.formulas.registry import Flop, Sizes, formula, from_macs, table, untouched
from roofline.workload.tensors import TensorSpec as Tensor

UNTOUCHED = "each operand once; minimum: no pixels without a tap, no taps that meet only padding"


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
        # window * stride - shift must lie in 0 … size - 1.
        shift = padding - tap * dilation
        first, last = max(0, -(-shift // stride)), min(windows - 1, (size - 1 + shift) // stride)
        pairs += max(0, last - first + 1)
    return pairs


@functools.cache
def touched_elements(
    size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int
) -> int:
    """Elements along one dimension of `size` under some tap of some window."""
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
def needed_taps(
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


def per_dimension(values: Sizes, dimensions: int) -> Sizes:
    return list(values) * dimensions if len(values) == 1 else values


def spatial_dimensions(
    swept_over: Tensor, swept: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> list[Dimension]:
    """Return the spatial dimensions of a convolution with windows over `swept_over`.

    `swept` has a place per window: the output, or the input of a transposed convolution.
    """
    many = len(kernel)
    return [
        Dimension(*each)
        for each in zip(
            swept_over.shape[2:],
            kernel,
            per_dimension(stride, many),
            per_dimension(padding, many),
            per_dimension(dilation, many),
            swept.shape[2:],
            strict=True,
        )
    ]


def leading_padding(padding: Sizes | str, kernel: Sizes, dilation: Sizes) -> Sizes:
    """Padding before the first place; "same" puts the odd element at the end, "valid" is none."""
    if not isinstance(padding, str):
        return padding
    if padding != "same":
        return [0] * len(kernel)
    spreads = per_dimension(dilation, len(kernel))
    return [d * (k - 1) // 2 for d, k in zip(spreads, kernel, strict=True)]


def with_batch(image: Tensor, weight: Tensor) -> Tensor:
    missing = len(weight.shape) - len(image.shape)
    return replace(image, shape=(*(1,) * missing, *image.shape))


@formula("aten.convolution", "aten._convolution", "aten.convolution_overrideable", byte=UNTOUCHED)
def convolution(
    input: Tensor,
    weight: Tensor,
    stride: Sizes,
    padding: Sizes,
    output: Tensor,
    bias: Tensor | None = None,
    dilation: Sizes = (1,),
    transposed: bool = False,
    groups: int = 1,
    **_: Any,
) -> Flop:
    """in_channels / groups * kernel_size MACs per output element, padding taps included.

    Transposed: out_channels / groups * kernel_size MACs per input element. A bias is 1 addition per
    output, which a kernel can avoid by starting the accumulator with it.
    """
    if not has_floats(output):
        return Flop()
    kernel = weight.shape[2:]
    swept, swept_over = (input, output) if transposed else (output, input)
    dimensions = spatial_dimensions(swept_over, swept, kernel, stride, padding, dilation)
    pairs = swept.shape[0] * weight.shape[1] * swept.shape[1]
    min_elements = {
        # Taps that meet only padding multiply nothing.
        "weight": math.prod(weight.shape[:2])
        * math.prod(needed_taps(*each)[0] for each in dimensions)
    }
    if not transposed:
        under_taps = math.prod(touched_elements(*each) for each in dimensions)
        min_elements["input"] = math.prod(input.shape[:2]) * under_taps
    count = from_macs(
        pairs * math.prod(swept.shape[2:]) * math.prod(kernel),
        output.elements if bias is not None else 0,
        pairs * math.prod(inner_taps(*each) for each in dimensions),
    )
    return replace(count, min_elements=min_elements, type=_type(input, groups))


def _type(input: Tensor, groups: int) -> str:
    return "depthwise convolution" if groups > 1 and groups == input.shape[1] else ""


@formula("aten.conv_tbc")
def convolution_over_time(
    self: Tensor, weight: Tensor, output: Tensor, pad: int = 0, **_: Any
) -> Flop:
    """kernel * in_channels MACs and a bias per output, of (time, batch, channels)."""
    kernel, inputs, outputs = weight.shape
    taps = inner_taps(self.shape[0], kernel, 1, pad, 1, output.shape[0])
    macs, least = output.elements * kernel * inputs, taps * self.shape[1] * inputs * outputs
    return from_macs(macs, output.elements, least)


# Convolutions named after libraries and kernels: aten.convolution may arrive as one of these on a
# GPU or through MKL-DNN. They count the same.


def named_convolution(
    fixed: dict[str, Any],
    weight: Tensor,
    output: Tensor,
    input: Tensor | None = None,
    self: Tensor | None = None,
    **given: Any,
) -> Flop:
    """Count a convolution whose image may be called ``self``, and may lack a batch."""
    image = self if input is None else input
    assert image is not None
    image, result = with_batch(image, weight), with_batch(output, weight)
    count = convolution(image, weight, output=result, **{**given, **fixed})
    return count if self is None else count.renamed(input="self")


table(
    """
aten.conv1d aten.conv2d aten.conv3d = {}
    As aten.convolution, never transposed.
aten.conv_transpose1d aten.conv_transpose2d aten.conv_transpose3d = {"transposed": True}
    As aten.convolution, transposed; used in inference mode.
aten.conv1d.padding aten.conv2d.padding aten.conv3d.padding
aten._convolution_mode = {"padding": leading_padding(padding, weight.shape[2:], dilation)}
    As aten.convolution; "same" pads to the size of the input, the odd element at the end.
aten._nnpack_spatial_convolution = {}
    As aten.convolution, with one group and no dilation.
aten.cudnn_convolution aten.miopen_convolution aten.miopen_depthwise_convolution
aten.mkldnn_convolution aten._mps_convolution aten._slow_conv2d_forward aten.slow_conv3d_forward
aten.thnn_conv2d aten.slow_conv3d aten.slow_conv_dilated2d aten.slow_conv_dilated3d = {}
    As aten.convolution; some have no bias, no dilation or no groups.
aten._conv_depthwise2d aten.conv_depthwise3d = {"groups": self.shape[1]}
    As aten.convolution, with one group per channel.
aten.cudnn_convolution_transpose aten.miopen_convolution_transpose
aten._mps_convolution_transpose aten.slow_conv_transpose2d
aten.slow_conv_transpose3d = {"transposed": True}
    As aten.convolution, transposed.
""",
    named_convolution,
    byte=UNTOUCHED,
)


@formula("aten.cudnn_convolution_relu", "aten.miopen_convolution_relu", byte=UNTOUCHED)
def convolution_relu(output: Tensor, **arguments: Any) -> Flop:
    """A convolution, then 1 comparison per element."""
    return named_convolution({}, output=output, **arguments).plus(output.elements)


@formula("aten.cudnn_convolution_add_relu", "aten.miopen_convolution_add_relu", byte=UNTOUCHED)
def convolution_add_relu(
    output: Tensor, alpha: float | None, bias: Tensor | None, **arguments: Any
) -> Flop:
    """A convolution, then 2 per element (add alpha * z, compare), 3 if alpha is not 1.

    The accumulator starts with z or the bias: one of them is free.
    """
    scaling = 0 if alpha is None or alpha == 1 else output.elements
    count = named_convolution({}, output=output, bias=bias, **arguments)
    least = output.elements * (1 if bias is None else 2)
    return count.plus(2 * output.elements + scaling, least + scaling)


# Gradients of convolutions: of input, weight and bias, as requested.

_BYTE = (
    "the weight is read only for the gradient of the input, the input only for that of the weight"
)


@formula("aten.convolution_backward", "aten.convolution_backward_overrideable", byte=_BYTE)
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sizes,
    padding: Sizes,
    output_mask: Sequence[bool],
    dilation: Sizes = (1,),
    transposed: bool = False,
    groups: int = 1,
    **_: Any,
) -> Flop:
    """As many MACs as forward for the gradient of the input, and as many for that of the weight.

    Each MAC output += input * weight has one in input_grad += output_grad * weight and one in
    weight_grad += output_grad * input; groups, strides and dilation count as forward. The gradient
    of the bias is a sum over batch and space.
    """
    for_input, for_weight, for_bias = output_mask
    kernel = weight.shape[2:]
    swept, swept_over = (input, grad_output) if transposed else (grad_output, input)
    dimensions = spatial_dimensions(swept_over, swept, kernel, stride, padding, dilation)
    pairs = (for_input + for_weight) * swept.shape[0] * weight.shape[1] * swept.shape[1]
    bias = max(0, grad_output.elements - grad_output.shape[1]) if for_bias else 0
    taps, reaching = (
        math.prod(each) for each in zip(*(needed_taps(*each) for each in dimensions), strict=True)
    )
    least = [
        math.prod(swept_over.shape[:2]) * math.prod(touched_elements(*each) for each in dimensions),
        math.prod(swept.shape[:2]) * reaching,
    ]
    of_input, of_gradient = reversed(least) if transposed else least
    min_elements = {
        "input": of_input if for_weight else 0,
        "weight": math.prod(weight.shape[:2]) * taps if for_input else 0,
        # The gradient of the bias sums all of it.
        "grad_output": grad_output.elements if for_bias else of_gradient,
    }
    unread = untouched(*["input"] * (not for_weight), *["weight"] * (not for_input))
    count = from_macs(
        pairs * math.prod(swept.shape[2:]) * math.prod(kernel),
        least=pairs * math.prod(inner_taps(*each) for each in dimensions),
    )
    return replace(
        count.plus(bias), elements=unread, min_elements=min_elements, type=_type(input, groups)
    )


def _backward_of_self(fixed: dict[str, Any], self: Tensor, **given: Any) -> Flop:
    return convolution_backward(input=self, **{**given, **fixed}).renamed(input="self")


table(
    """
aten._slow_conv2d_backward = {"output_mask": [each is not None for each in output]}
    As aten.convolution_backward: one group, no dilation; its other overload has no mask.
aten.mps_convolution_backward = {}
    As aten.convolution_backward, never transposed.
aten.mps_convolution_transpose_backward = {"transposed": True, "output_mask": [*output_mask, False]}
    As aten.convolution_backward, transposed; another operator computes the gradient of a bias.
""",
    _backward_of_self,
    byte=_BYTE,
)
