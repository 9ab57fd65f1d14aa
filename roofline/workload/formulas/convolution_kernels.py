"""Convolutions under the names of the libraries and kernels that run them.

On a GPU or through MKL-DNN `aten.convolution` may arrive as one of these; they count the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.convolution import UNTOUCHED, batched, convolution, leading_padding
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def _of_self(count: Flop) -> Flop:
    """The same of an operator whose input is named `self`."""
    least = {("self" if name == "input" else name): n for name, n in count.min_elements.items()}
    return replace(count, min_elements=least)


@formula("aten.cudnn_convolution", "aten.miopen_convolution", type="convolution", byte=UNTOUCHED)
@formula(
    "aten.miopen_depthwise_convolution",
    "aten.mkldnn_convolution",
    type="convolution",
    byte=UNTOUCHED,
)
@formula("aten._mps_convolution", type="convolution", byte=UNTOUCHED)
@formula(
    "aten._slow_conv2d_forward", "aten.slow_conv3d_forward", type="convolution", byte=UNTOUCHED
)
@formula(
    *("aten.thnn_conv2d", "aten.slow_conv3d", "aten.slow_conv_dilated2d"),
    *("aten.slow_conv_dilated3d",),
    type="convolution",
    byte=UNTOUCHED,
)
def library_convolution(
    self: TensorSpec,
    weight: TensorSpec,
    stride: Sequence[int],
    padding: Sequence[int],
    output: TensorSpec,
    dilation: Sequence[int] = (1,),
    groups: int = 1,
    bias: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """As `aten.convolution`; some have no bias, no dilation or no groups."""
    return _of_self(
        convolution(self, weight, bias, stride, padding, dilation, False, groups, output)
    )


@formula("aten._nnpack_spatial_convolution", type="convolution", byte=UNTOUCHED)
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


@formula("aten._conv_depthwise2d", "aten.conv_depthwise3d", type="convolution", byte=UNTOUCHED)
def depthwise_convolution(self: TensorSpec, output: TensorSpec, **arguments: Any) -> Flop:
    """As `aten.convolution`, with a group for each channel."""
    return library_convolution(self=self, output=output, groups=self.shape[1], **arguments)


@formula(
    *("aten.cudnn_convolution_transpose", "aten.miopen_convolution_transpose"),
    *("aten._mps_convolution_transpose",),
    type="convolution",
    byte=UNTOUCHED,
)
@formula(
    "aten.slow_conv_transpose2d", "aten.slow_conv_transpose3d", type="convolution", byte=UNTOUCHED
)
def library_transposed_convolution(
    self: TensorSpec,
    weight: TensorSpec,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output: TensorSpec,
    groups: int = 1,
    bias: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """As `aten.convolution`, transposed."""
    return convolution(self, weight, bias, stride, padding, dilation, True, groups, output)


@formula(
    *("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d"),
    type="convolution",
    byte=UNTOUCHED,
)
def transposed_convolution(
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
    """As `aten.convolution`, transposed: what arrives in inference mode."""
    input, output = batched(input, weight), batched(output, weight)
    return convolution(input, weight, bias, stride, padding, dilation, True, groups, output)


@formula(
    "aten.conv1d.padding",
    "aten.conv2d.padding",
    "aten.conv3d.padding",
    type="convolution",
    byte=UNTOUCHED,
)
@formula("aten._convolution_mode", type="convolution", byte=UNTOUCHED)
def named_padding(
    input: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    stride: Sequence[int],
    padding: str,
    dilation: Sequence[int],
    groups: int,
    output: TensorSpec,
    **_: Any,
) -> Flop:
    """As `aten.convolution`; "same" pads to the size of the input, the odd element at the end."""
    before = leading_padding(padding, weight.shape[2:], dilation)
    input, output = batched(input, weight), batched(output, weight)
    return convolution(input, weight, bias, stride, before, dilation, False, groups, output)


@formula(
    "aten.cudnn_convolution_relu",
    "aten.miopen_convolution_relu",
    type="convolution",
    byte=UNTOUCHED,
)
def convolution_relu(output: TensorSpec, **arguments: Any) -> Flop:
    """A convolution, then a comparison an element."""
    return _with(library_convolution(output=output, **arguments), output.elements)


@formula(
    *("aten.cudnn_convolution_add_relu", "aten.miopen_convolution_add_relu"),
    type="convolution",
    byte=UNTOUCHED,
)
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


def _with(count: Flop, more: int, least: int | None = None) -> Flop:
    """`count` and `more` simple operations, of which `least` cannot be avoided (None: none can)."""
    return replace(
        count,
        other=count.other + more,
        least=count.min_flop + (more if least is None else least),
    )
