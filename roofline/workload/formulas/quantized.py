"""Quantised layers: operations on integers are counted as those on floats are in the same layer.

int8 products are what such a layer is for, and everybody gives them in operations per second; plain
products of integers (`aten.mm`) stay integer arithmetic. Packed weights arrive as a list of the
weight, in the type it is kept in, and the bias. Corrections for zero points are left out. Only
products cannot be avoided: scales can be put into what is before or after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.library_products import after
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA

QUANTIZE_FLOP = 5
"""x / scale, its rounding, the zero point, two comparisons with the limits of the type."""
DEQUANTIZE_FLOP = 2
"""(q - zero_point) * scale."""
LIMITS_FLOP = 2
"""Of a scale that is found from the values: is it the smallest, is it the largest?"""

Packed = Sequence[TensorSpec | None]


def _product(macs: int, other: int) -> Flop:
    return Flop(
        macs=macs,
        other=other,
        least=FLOP_PER_FMA * macs,
        min_macs=macs,
    )


def has_bias(packed: Packed) -> bool:
    """Whether a bias comes with the weight."""
    return len(packed) > 1 and packed[1] is not None


def end(output: TensorSpec) -> int:
    """The result quantised, or only scaled if it is to be of floats."""
    return 1 if output.dtype.kind == "float" else QUANTIZE_FLOP


# -- linear layers ---------------------------------------------------------------------------------


def _linear(input: TensorSpec, output: TensorSpec, each_input: int, each_output: int) -> Flop:
    """A linear layer, and operations on each element of its input and its output."""
    return _product(
        output.elements * input.shape[-1],
        each_input * input.elements + each_output * output.elements,
    )


@formula("quantized.linear", type="matrix product")
def linear(X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any) -> Flop:
    """Integers times integers; a bias, and the result quantised: 5 an element."""
    return _linear(X, output, 0, has_bias(W_prepack) + QUANTIZE_FLOP)


@formula("quantized.linear_relu", type="matrix product")
def linear_relu(X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any) -> Flop:
    """As `quantized.linear`, and a comparison an element."""
    return _linear(X, output, 0, has_bias(W_prepack) + 1 + QUANTIZE_FLOP)


@formula("quantized.linear_leaky_relu", type="matrix product")
def linear_leaky_relu(X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any) -> Flop:
    """As `quantized.linear`, a comparison and a product an element."""
    return _linear(X, output, 0, has_bias(W_prepack) + 2 + QUANTIZE_FLOP)


@formula("quantized.linear_tanh", type="matrix product")
def linear_tanh(X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any) -> Flop:
    """As `quantized.linear`, and a function an element."""
    return _linear(X, output, 0, has_bias(W_prepack) + TRANSCENDENTAL_FLOP + QUANTIZE_FLOP)


@formula("quantized.linear_dynamic", type="matrix product")
def dynamic_linear(X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any) -> Flop:
    """The limits of the input are found and it is quantised; the result is scaled, a bias added."""
    return _linear(X, output, LIMITS_FLOP + QUANTIZE_FLOP, 1 + has_bias(W_prepack))


@formula("quantized.linear_relu_dynamic", type="matrix product")
def dynamic_linear_relu(X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any) -> Flop:
    """As `quantized.linear_dynamic`, and a comparison an element."""
    return _linear(X, output, LIMITS_FLOP + QUANTIZE_FLOP, 2 + has_bias(W_prepack))


@formula(
    *("quantized.linear_with_input_q_dq_qweight_dq_output_fp32",),
    *("quantized.linear_with_input_q_dq_qweight_dq_relu_output_fp32",),
    type="matrix product",
)
def linear_of_floats(X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any) -> Flop:
    """The input is quantised with a scale that is given; the result is scaled, a bias added."""
    return _linear(X, output, QUANTIZE_FLOP, 1 + has_bias(W_prepack))


@formula("quantized.linear_dynamic_fp16", type="matrix product")
def linear_of_halves(X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any) -> Flop:
    """A linear layer of floats whose weight is kept in half of their width."""
    return _linear(X, output, 0, int(has_bias(W_prepack)))


@formula("quantized.linear_relu_dynamic_fp16", type="matrix product")
def linear_of_halves_relu(X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any) -> Flop:
    """As `quantized.linear_dynamic_fp16`, and a comparison an element."""
    return _linear(X, output, 0, 1 + has_bias(W_prepack))


@formula("aten._wrapped_quantized_linear_prepacked", type="matrix product")
def wrapped_linear(input: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """The input is quantised, and the result from integers made floats again, with a bias."""
    return _linear(input, output, QUANTIZE_FLOP, 1 + QUANTIZE_FLOP + DEQUANTIZE_FLOP)


@formula("aten.fbgemm_linear_int8_weight", type="matrix product")
@formula("aten.fbgemm_linear_int8_weight_fp32_activation", type="matrix product")
def linear_of_fbgemm(input: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """As `quantized.linear_dynamic`, with a bias."""
    return _linear(input, output, LIMITS_FLOP + QUANTIZE_FLOP, 2)


@formula("aten.fbgemm_linear_fp16_weight", type="matrix product")
@formula("aten.fbgemm_linear_fp16_weight_fp32_activation", type="matrix product")
def linear_of_fbgemm_halves(
    input: TensorSpec, output: TensorSpec, bias: TensorSpec | None = None, **_: Any
) -> Flop:
    """As `quantized.linear_dynamic_fp16`."""
    return _linear(input, output, 0, int(bias is not None))


@formula("onednn.qlinear_pointwise", type="matrix product")
def linear_of_onednn(
    qx: TensorSpec,
    output: TensorSpec,
    bias: TensorSpec | None = None,
    post_op_name: str = "",
    post_op_algorithm: str = "",
    binary_post_op: str = "",
    unary_post_op: str = "",
    unary_post_op_algorithm: str = "",
    **_: Any,
) -> Flop:
    """As `quantized.linear`, then an activation, or an operation with another tensor and one."""
    operations = [post_op_name, binary_post_op, unary_post_op]
    each, _least = after(operations, post_op_algorithm or unary_post_op_algorithm)
    return _linear(qx, output, 0, each + (bias is not None) + end(output))


@formula("onednn.linear_dynamic_fp16", "onednn.linear_relu_dynamic_fp16", type="matrix product")
def linear_of_onednn_halves(
    x: TensorSpec, output: TensorSpec, bias: TensorSpec | None = None, **_: Any
) -> Flop:
    """As `quantized.linear_dynamic_fp16`; a comparison with 0 is left out."""
    return _linear(x, output, 0, int(bias is not None))


# -- products with packed weights ------------------------------------------------------------------


@formula("aten._int_mm", type="matrix product")
def product_of_integers(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """int8 times int8, summed as int32."""
    return Flop(macs=output.elements * self.shape[-1])


@formula("aten._weight_int8pack_mm", type="matrix product")
def product_with_bytes(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Floats times int8; the result is scaled for each row of the weight."""
    return _linear(self, output, 0, 1)


@formula(
    *("aten._weight_int4pack_mm", "aten._weight_int4pack_mm_for_cpu"),
    *("aten._weight_int4pack_mm_with_scales_and_zeros", "quantized.int4mm_packed_weight_cpu"),
    type="matrix product",
)
def product_with_half_bytes(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Floats times 4-bit integers, each of which is scaled and shifted first."""
    weights = output.shape[-1] * self.shape[-1]
    return _product(output.elements * self.shape[-1], DEQUANTIZE_FLOP * weights)


@formula("aten._dyn_quant_matmul_4bit", type="matrix product")
def dynamic_product_with_half_bytes(
    inp: TensorSpec, in_features: int, output: TensorSpec, block_size: int = 0, **_: Any
) -> Flop:
    """Rows are quantised by their own limits; a scale for each block of a sum."""
    blocks = in_features // block_size if block_size else 1
    return _linear(inp, output, LIMITS_FLOP + QUANTIZE_FLOP, 2 * blocks)
