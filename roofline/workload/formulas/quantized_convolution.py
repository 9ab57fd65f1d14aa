"""Quantised convolutions, counted as `quantized` says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.library_products import after
from roofline.workload.formulas.quantized import (
    DEQUANTIZE_FLOP,
    LIMITS_FLOP,
    QUANTIZE_FLOP,
    Packed,
    end,
    has_bias,
)
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


def _convolution(qx: TensorSpec, packed: Packed, output: TensorSpec, each: int) -> Flop:
    """What is packed has no stride and padding: at the least a tap of each window is inside."""
    weight = packed[0]
    assert weight is not None
    inner = math.prod(weight.shape[1:])
    taps = weight.shape[1] if len(weight.shape) > 1 else 1
    products = output.elements * taps if qx.elements else 0
    return Flop(
        macs=output.elements * inner,
        other=output.elements * (each + has_bias(packed)),
        least=FLOP_PER_FMA * products,
        min_macs=products,
    )


@formula("quantized.conv1d", "quantized.conv2d", "quantized.conv3d", type="convolution")
def convolution(
    qx: TensorSpec,
    output: TensorSpec,
    packed_weight: Packed = (),
    weight: Packed = (),
    **_: Any,
) -> Flop:
    """Integers times integers; a bias, and the result quantised: 5 an element."""
    return _convolution(qx, packed_weight or weight, output, QUANTIZE_FLOP)


@formula(
    *("quantized.conv1d_relu", "quantized.conv2d_relu", "quantized.conv3d_relu"),
    *("quantized.conv2d_add",),
    type="convolution",
)
def convolution_relu(
    qx: TensorSpec,
    output: TensorSpec,
    packed_weight: Packed = (),
    weight: Packed = (),
    qaccum: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """As `quantized.conv2d`, and a comparison; or a sum with a tensor that is made floats."""
    each = 1 if qaccum is None else 1 + DEQUANTIZE_FLOP
    return _convolution(qx, packed_weight or weight, output, each + QUANTIZE_FLOP)


@formula("quantized.conv2d_add_relu", type="convolution")
def convolution_add_relu(
    qx: TensorSpec, packed_weight: Packed, output: TensorSpec, **_: Any
) -> Flop:
    """As `quantized.conv2d_add`, and a comparison."""
    return _convolution(qx, packed_weight, output, 2 + DEQUANTIZE_FLOP + QUANTIZE_FLOP)


@formula(
    *("quantized.conv1d_dynamic", "quantized.conv2d_dynamic", "quantized.conv3d_dynamic"),
    type="convolution",
)
def dynamic_convolution(
    qx: TensorSpec, packed_weight: Packed, output: TensorSpec, **_: Any
) -> Flop:
    """The limits of the input are found and it is quantised; the result is scaled, a bias added."""
    count = _convolution(qx, packed_weight, output, 1)
    before = (LIMITS_FLOP + QUANTIZE_FLOP) * qx.elements
    return replace(count, other=count.other + before, least=count.min_flop)


@formula(
    *(f"quantized.conv_transpose{dimensions}d" for dimensions in (1, 2, 3)),
    *(f"quantized.conv_transpose{dimensions}d_dynamic" for dimensions in (1, 2, 3)),
    type="convolution",
)
def transposed_convolution(
    qx: TensorSpec, packed_weight: Packed, output: TensorSpec, **_: Any
) -> Flop:
    """Each input is spread over the window of each output channel of its group; then as above."""
    weight = packed_weight[0]
    assert weight is not None
    is_dynamic = output.dtype.kind == "float"
    before = (LIMITS_FLOP + QUANTIZE_FLOP) * qx.elements if is_dynamic else 0
    each = end(output) + has_bias(packed_weight)
    return Flop(
        macs=qx.elements * math.prod(weight.shape[1:]),
        other=before + output.elements * each,
        least=0,
    )


@formula(
    *("onednn.qconv_pointwise", "onednn.qconv1d_pointwise", "onednn.qconv2d_pointwise"),
    *("onednn.qconv3d_pointwise", "onednn.qconv2d_pointwise.binary"),
    *("onednn.qconv2d_pointwise.binary_tensor",),
    type="convolution",
)
def convolution_of_onednn(
    qx: TensorSpec,
    qw: TensorSpec,
    output: TensorSpec,
    bias: TensorSpec | None = None,
    attr: str = "",
    algorithm: str | None = "",
    binary_attr: str = "",
    unary_attr: str | None = "",
    unary_algorithm: str | None = "",
    **_: Any,
) -> Flop:
    """As `quantized.conv2d`, then an activation, or an operation with another tensor and one.

    The weight, in whatever order, takes part in each place of the result.
    """
    places = output.elements // output.shape[1] if output.elements else 0
    each, _least = after([attr, binary_attr, unary_attr], algorithm or unary_algorithm)
    macs = places * qw.elements
    kernel = math.prod(qw.shape[-(len(output.shape) - 2) :])
    products = macs // max(1, kernel) if qx.elements else 0
    return Flop(
        macs=macs,
        other=output.elements * (each + (bias is not None) + end(output)),
        least=FLOP_PER_FMA * products,
        min_macs=products,
    )
