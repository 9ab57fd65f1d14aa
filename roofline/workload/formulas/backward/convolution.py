"""Gradients of convolutions: of input, weight and bias, each where it is asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.convolution import inner_taps, needed, spatial_dimensions, touched
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA

_BYTE = (
    "the weight is read for the gradient of the input only, the input for that of the weight only"
)


@formula("aten.convolution_backward", type="convolution", byte=_BYTE)
@formula("aten.convolution_backward_overrideable", type="convolution", byte=_BYTE)
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


@formula("aten._slow_conv2d_backward", type="convolution", byte=_BYTE)
def unfolded_convolution_backward(
    grad_output: TensorSpec,
    self: TensorSpec,
    weight: TensorSpec,
    stride: Sequence[int],
    padding: Sequence[int],
    output: Sequence[TensorSpec | None],
    **_: Any,
) -> Flop:
    """As `convolution_backward`: one group, not dilated; its other form has no mask."""
    asked = [each is not None for each in output]
    count = convolution_backward(grad_output, self, weight, stride, padding, (1,), False, 1, asked)
    return _of_self(count)


@formula("aten.mps_convolution_backward", type="convolution", byte=_BYTE)
def convolution_backward_of_mps(
    self: TensorSpec,
    grad_output: TensorSpec,
    weight: TensorSpec,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """As `convolution_backward`, never transposed."""
    return _of_self(
        convolution_backward(
            grad_output, self, weight, stride, padding, dilation, False, groups, output_mask
        )
    )


@formula("aten.mps_convolution_transpose_backward", type="convolution", byte=_BYTE)
def transposed_convolution_backward_of_mps(
    self: TensorSpec,
    grad_output: TensorSpec,
    weight: TensorSpec,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """As `convolution_backward`, transposed; the gradient of a bias is another operator's."""
    mask = (*output_mask, False)
    return _of_self(
        convolution_backward(
            grad_output, self, weight, stride, padding, dilation, True, groups, mask
        )
    )


def _of_self(count: Flop) -> Flop:
    """The same of an operator whose input is named `self`."""
    elements, min_elements = (
        {("self" if name == "input" else name): many for name, many in each.items()}
        for each in (count.elements, count.min_elements)
    )
    return replace(count, elements=elements, min_elements=min_elements)
