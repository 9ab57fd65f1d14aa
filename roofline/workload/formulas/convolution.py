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
def plain_convolution(**given: Any) -> Flop:
    """As `convolution`, never transposed."""
    return _batched(transposed=False, **given)


def _batched(input: TensorSpec, weight: TensorSpec, output: TensorSpec, **given: Any) -> Flop:
    input, output = batched(input, weight), batched(output, weight)
    return convolution(input=input, weight=weight, output=output, **given)


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


# Convolutions under the names of the libraries and kernels that run them.
#
# On a GPU or through MKL-DNN `aten.convolution` may arrive as one of these; they count the same.


def _of_self(count: Flop) -> Flop:
    """The same of an operator whose input is named `self`."""
    elements, min_elements = (
        {("self" if name == "input" else name): many for name, many in each.items()}
        for each in (count.elements, count.min_elements)
    )
    return replace(count, elements=elements, min_elements=min_elements)


@formula(
    *("aten.cudnn_convolution", "aten.miopen_convolution", "aten.miopen_depthwise_convolution"),
    *("aten.mkldnn_convolution", "aten._mps_convolution", "aten._slow_conv2d_forward"),
    *("aten.slow_conv3d_forward", "aten.thnn_conv2d", "aten.slow_conv3d"),
    *("aten.slow_conv_dilated2d", "aten.slow_conv_dilated3d"),
    byte=UNTOUCHED,
)
def library_convolution(self: TensorSpec, **given: Any) -> Flop:
    """As `aten.convolution`; some have no bias, no dilation or no groups."""
    lacking: dict[str, Any] = {"bias": None, "dilation": (1,), "groups": 1}
    return _of_self(convolution(input=self, transposed=False, **{**lacking, **given}))


@formula("aten._nnpack_spatial_convolution", byte=UNTOUCHED)
def convolution_of_nnpack(
    input: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    padding: Sequence[int],
    stride: Sequence[int],
    output: TensorSpec,
    **_: Any,
) -> Flop:
    """As `aten.convolution`, of one group and not dilated."""
    return convolution(input, weight, bias, stride, padding, (1,), False, 1, output)


@formula("aten._conv_depthwise2d", "aten.conv_depthwise3d", byte=UNTOUCHED)
def depthwise_convolution(self: TensorSpec, output: TensorSpec, **arguments: Any) -> Flop:
    """As `aten.convolution`, with a group for each channel."""
    return library_convolution(self=self, output=output, groups=self.shape[1], **arguments)


@formula(
    *("aten.cudnn_convolution_transpose", "aten.miopen_convolution_transpose"),
    *("aten._mps_convolution_transpose", "aten.slow_conv_transpose2d"),
    "aten.slow_conv_transpose3d",
    byte=UNTOUCHED,
)
def library_transposed_convolution(self: TensorSpec, **given: Any) -> Flop:
    """As `aten.convolution`, transposed."""
    lacking: dict[str, Any] = {"bias": None, "groups": 1}
    return convolution(input=self, transposed=True, **{**lacking, **given})


@formula(
    *("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d"), byte=UNTOUCHED
)
def transposed_convolution(**given: Any) -> Flop:
    """As `aten.convolution`, transposed: what arrives in inference mode."""
    return _batched(transposed=True, **given)


@formula(
    *("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding"),
    "aten._convolution_mode",
    byte=UNTOUCHED,
)
def named_padding(weight: TensorSpec, padding: str, dilation: Sequence[int], **given: Any) -> Flop:
    """As `aten.convolution`; "same" pads to the size of the input, the odd element at the end."""
    before = leading_padding(padding, weight.shape[2:], dilation)
    return _batched(weight=weight, padding=before, dilation=dilation, transposed=False, **given)


@formula("aten.cudnn_convolution_relu", "aten.miopen_convolution_relu", byte=UNTOUCHED)
def convolution_relu(output: TensorSpec, **arguments: Any) -> Flop:
    """A convolution, then a comparison an element."""
    return _with(library_convolution(output=output, **arguments), output.elements, output.elements)


@formula("aten.cudnn_convolution_add_relu", "aten.miopen_convolution_add_relu", byte=UNTOUCHED)
def convolution_add_relu(
    output: TensorSpec, alpha: float | None, bias: TensorSpec | None, **arguments: Any
) -> Flop:
    """A convolution, alpha * z added, a comparison: 2 an element, 3 where alpha is not 1.

    Of z and the bias one is where the accumulator starts, for free.
    """
    scaling = 0 if alpha is None or alpha == 1 else output.elements
    count = library_convolution(output=output, bias=bias, **arguments)
    least = output.elements * (1 if bias is None else 2) + scaling
    return _with(count, 2 * output.elements + scaling, least)


def _with(count: Flop, more: int, least: int) -> Flop:
    """`count` and `more` simple operations, of which `least` cannot be avoided."""
    return replace(count, other=count.other + more, least=count.min_flop + least)


# Gradients of convolutions: of input, weight and bias, each where it is asked for.

_BYTE = (
    "the weight is read for the gradient of the input only, the input for that of the weight only"
)


@formula("aten.convolution_backward", byte=_BYTE)
@formula("aten.convolution_backward_overrideable", byte=_BYTE)
def convolution_backward(
    grad_output: TensorSpec,
    input: TensorSpec,
    weight: TensorSpec,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """As many FMAs as the forward, for the input's gradient and again for the weight's.

    Each FMA output += input * weight has one in input_grad += output_grad * weight and one in
    weight_grad += output_grad * input, so groups, strides and dilation count as they do forward.
    The gradient of the bias is a sum over batch and space.
    """
    for_input, for_weight, for_bias = output_mask
    gradients = for_input + for_weight
    kernel = weight.shape[2:]
    swept, swept_over = (input, grad_output) if transposed else (grad_output, input)
    dimensions = spatial_dimensions(swept_over, swept, kernel, stride, padding, dilation)
    pairs = swept.shape[0] * weight.shape[1] * swept.shape[1]
    bias = max(0, grad_output.elements - grad_output.shape[1]) if for_bias else 0
    inner = math.prod(inner_taps(*each) for each in dimensions)
    taps = math.prod(needed(*each)[0] for each in dimensions)
    reaching = math.prod(needed(*each)[1] for each in dimensions)
    least_swept = math.prod(swept.shape[:2]) * reaching
    least_swept_over = math.prod(swept_over.shape[:2]) * math.prod(touched(*d) for d in dimensions)
    least_of_input, least_of_gradient = (
        (least_swept, least_swept_over) if transposed else (least_swept_over, least_swept)
    )
    min_elements = {
        "input": least_of_input if for_weight else 0,
        "weight": math.prod(weight.shape[:2]) * taps if for_input else 0,
        # The gradient of the bias sums all of it.
        "grad_output": grad_output.elements if for_bias else least_of_gradient,
    }
    unread = {"input": 0} if not for_weight else {}
    if not for_input:
        unread["weight"] = 0
    depthwise = groups > 1 and groups == input.shape[1]
    return Flop(
        macs=gradients * pairs * math.prod(swept.shape[2:]) * math.prod(kernel),
        other=bias,
        least=gradients * FLOP_PER_FMA * pairs * inner + bias,
        min_macs=gradients * pairs * inner,
        elements=unread,
        min_elements=min_elements,
        type="depthwise convolution" if depthwise else "",
    )


@formula("aten._slow_conv2d_backward", byte=_BYTE)
def unfolded_convolution_backward(
    self: TensorSpec, output: Sequence[TensorSpec | None], **given: Any
) -> Flop:
    """As `convolution_backward`: one group, not dilated; its other form has no mask."""
    given["output_mask"] = [each is not None for each in output]
    return _of_self(
        convolution_backward(input=self, dilation=(1,), transposed=False, groups=1, **given)
    )


@formula("aten.mps_convolution_backward", byte=_BYTE)
def convolution_backward_of_mps(self: TensorSpec, **given: Any) -> Flop:
    """As `convolution_backward`, never transposed."""
    return _of_self(convolution_backward(input=self, transposed=False, **given))


@formula("aten.mps_convolution_transpose_backward", byte=_BYTE)
def transposed_convolution_backward_of_mps(
    self: TensorSpec, output_mask: Sequence[bool], **given: Any
) -> Flop:
    """As `convolution_backward`, transposed; the gradient of a bias is another operator's."""
    given["output_mask"] = (*output_mask, False)
    return _of_self(convolution_backward(input=self, transposed=True, **given))
