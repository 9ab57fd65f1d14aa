"""Quantized layers: integer operations count like those of the same layer on floats.

Throughput of int8 layers is given in operations per second; plain integer products (aten.mm) stay
integer arithmetic. Packed weights arrive as a list of the weight, in its stored type, and the bias.
Zero-point corrections are not counted. Only MACs are unavoidable: scales can move elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.costs import Cost, F, cost
from roofline.workload.formulas.matmul import activation_flop
from roofline.workload.formulas.recurrent import (
    GRU,
    LSTM,
    RELU,
    TANH,
    Cell,
    Layers,
    describe_layers,
    describe_step,
)
from roofline.workload.formulas.registry import Flop, Tensors, formula, from_macs, table, untouched
from roofline.workload.tensors import TensorSpec as Tensor

QUANTIZE_FLOP = 5
"""x / scale, its rounding, the zero point, two comparisons with the limits of the type."""
DEQUANTIZE_FLOP = 2
"""(q - zero_point) * scale."""
LIMITS_FLOP = 2
"""Two comparisons, with minimum and maximum, for a dynamic scale."""
DYNAMIC_FLOP = LIMITS_FLOP + QUANTIZE_FLOP
"""Dynamic quantization of an input: its scale is found from its values."""

Packed = Sequence[Tensor | None]


def has_bias(packed: Packed) -> bool:
    return len(packed) > 1 and packed[1] is not None


def output_flop(output: Tensor) -> int:
    """FLOP per result: quantized, or only scaled for a float output."""
    return 1 if output.dtype.kind == "float" else QUANTIZE_FLOP


# -- linear layers ---------------------------------------------------------------------------------


def linear(input: Tensor, output: Tensor, each_input: int, each_output: int) -> Flop:
    """Count a linear layer, and operations per element of its input and its output."""
    other = each_input * input.elements + each_output * output.elements
    return from_macs(output.elements * input.shape[-1], other)


def _packed_linear(
    each: tuple[int, int], X: Tensor, W_prepack: Packed, output: Tensor, **_: Any
) -> Flop:
    """Count operations per element of the input and of the output, without a bias."""
    return linear(X, output, each[0], each[1] + has_bias(W_prepack))


table(
    """
quantized.linear = 0, 5
    Integer MACs; a bias, and quantization of the result: 5 per element.
quantized.linear_relu = 0, 6
    As quantized.linear, and 1 comparison per element.
quantized.linear_leaky_relu = 0, 7
    As quantized.linear, and a comparison and a product per element.
quantized.linear_tanh = 0, 13
    As quantized.linear, and a function per element.
quantized.linear_dynamic = 7, 1
    The input is quantized by its limits: 7 per element; the result is scaled, a bias added.
quantized.linear_relu_dynamic = 7, 2
    As quantized.linear_dynamic, and 1 comparison per element.
quantized.linear_with_input_q_dq_qweight_dq_output_fp32
quantized.linear_with_input_q_dq_qweight_dq_relu_output_fp32 = 5, 1
    The input is quantized with a given scale: 5 per element; the result is scaled, a bias added.
quantized.linear_dynamic_fp16 = 0, 0
    A linear layer of floats, with a half-precision weight.
quantized.linear_relu_dynamic_fp16 = 0, 1
    As quantized.linear_dynamic_fp16, and 1 comparison per element.
""",
    _packed_linear,
    type="matrix product",
)


table(
    """
aten._wrapped_quantized_linear_prepacked = linear(
    input, output, QUANTIZE_FLOP, 1 + QUANTIZE_FLOP + DEQUANTIZE_FLOP)
    The input is quantized; the result is quantized and dequantized, with a bias.
aten.fbgemm_linear_int8_weight
aten.fbgemm_linear_int8_weight_fp32_activation = linear(input, output, DYNAMIC_FLOP, 2)
    As quantized.linear_dynamic, with a bias.
aten.fbgemm_linear_fp16_weight
aten.fbgemm_linear_fp16_weight_fp32_activation = linear(input, output, 0, int(bias is not None))
    As quantized.linear_dynamic_fp16.
onednn.linear_dynamic_fp16
onednn.linear_relu_dynamic_fp16 = linear(x, output, 0, int(bias is not None))
    As quantized.linear_dynamic_fp16; the comparison of a relu is not counted.
aten._int_mm = Flop(macs=output.elements * self.shape[-1])
    int8 MACs, accumulated in int32.
aten._weight_int8pack_mm = linear(self, output, 0, 1)
    Float by int8 MACs; the result is scaled per row of the weight.
aten._weight_int4pack_mm aten._weight_int4pack_mm_for_cpu
aten._weight_int4pack_mm_with_scales_and_zeros
quantized.int4mm_packed_weight_cpu = from_macs(
    output.elements * self.shape[-1], DEQUANTIZE_FLOP * output.shape[-1] * self.shape[-1])
    Float by int4 MACs; each weight is first scaled and shifted.
quantized.matmul = from_macs(output.elements * qa.shape[-1], QUANTIZE_FLOP * output.elements)
    Integer MACs; the result is quantized.
""",
    type="matrix product",
)


@formula("onednn.qlinear_pointwise", type="matrix product")
def linear_of_onednn(
    qx: Tensor,
    output: Tensor,
    bias: Tensor | None = None,
    post_op_name: str = "",
    post_op_algorithm: str = "",
    binary_post_op: str = "",
    unary_post_op: str = "",
    unary_post_op_algorithm: str = "",
    **_: Any,
) -> Flop:
    """As quantized.linear, then an activation, or an operation with another tensor and one."""
    operations = [post_op_name, binary_post_op, unary_post_op]
    each = activation_flop(operations, post_op_algorithm or unary_post_op_algorithm).flop
    return linear(qx, output, 0, each + (bias is not None) + output_flop(output))


@formula("aten._dyn_quant_matmul_4bit", type="matrix product")
def dynamic_product_with_half_bytes(
    inp: Tensor, in_features: int, output: Tensor, block_size: int = 0, **_: Any
) -> Flop:
    """Rows are quantized by their own limits; 1 scale per block of a sum."""
    blocks = in_features // block_size if block_size else 1
    return linear(inp, output, DYNAMIC_FLOP, 2 * blocks)


# -- convolutions ----------------------------------------------------------------------------------


def _packed_convolution(
    each: tuple[int, int],
    qx: Tensor,
    output: Tensor,
    packed_weight: Packed = (),
    weight: Packed = (),
    qaccum: Tensor | None = None,
    **_: Any,
) -> Flop:
    """Count operations per element of the input and of the output, without a bias.

    An added tensor is first dequantized. Packed parameters hide stride and padding: the minimum has
    one tap inside per window.
    """
    packed = packed_weight or weight
    kernel = packed[0]
    assert kernel is not None
    taps = kernel.shape[1] if len(kernel.shape) > 1 else 1
    each_output = each[1] + has_bias(packed) + (0 if qaccum is None else DEQUANTIZE_FLOP)
    return from_macs(
        output.elements * math.prod(kernel.shape[1:]),
        output.elements * each_output + each[0] * qx.elements,
        output.elements * taps if qx.elements else 0,
    )


table(
    """
quantized.conv1d quantized.conv2d quantized.conv3d = 0, 5
    Integer MACs; a bias, and quantization of the result: 5 per element.
quantized.conv1d_relu quantized.conv2d_relu quantized.conv3d_relu quantized.conv2d_add = 0, 6
    As quantized.conv2d, and a comparison, or a sum with a dequantized tensor.
quantized.conv2d_add_relu = 0, 7
    As quantized.conv2d_add, and a comparison.
quantized.conv1d_dynamic quantized.conv2d_dynamic quantized.conv3d_dynamic = 7, 1
    The input is quantized by its limits: 7 per element; the result is scaled, a bias added.
""",
    _packed_convolution,
    type="convolution",
)


@formula(
    *(f"quantized.conv_transpose{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_dynamic")),
    type="convolution",
)
def transposed_convolution(qx: Tensor, packed_weight: Packed, output: Tensor, **_: Any) -> Flop:
    """1 MAC per input element, tap and output channel of its group; then as quantized.conv2d."""
    weight = packed_weight[0]
    assert weight is not None
    before = DYNAMIC_FLOP * qx.elements if output.dtype.kind == "float" else 0
    each = output_flop(output) + has_bias(packed_weight)
    macs = qx.elements * math.prod(weight.shape[1:])
    return from_macs(macs, before + output.elements * each, 0)


@formula(
    *("onednn.qconv_pointwise", "onednn.qconv1d_pointwise", "onednn.qconv2d_pointwise"),
    *("onednn.qconv3d_pointwise", "onednn.qconv2d_pointwise.binary"),
    "onednn.qconv2d_pointwise.binary_tensor",
    type="convolution",
)
def convolution_of_onednn(
    qx: Tensor,
    qw: Tensor,
    output: Tensor,
    bias: Tensor | None = None,
    attr: str = "",
    algorithm: str | None = "",
    binary_attr: str = "",
    unary_attr: str | None = "",
    unary_algorithm: str | None = "",
    **_: Any,
) -> Flop:
    """As quantized.conv2d, then an activation, or an operation with another tensor and one.

    The weight, in any order, takes part in each place of the result.
    """
    places = output.elements // output.shape[1] if output.elements else 0
    each = activation_flop([attr, binary_attr, unary_attr], algorithm or unary_algorithm).flop
    kernel = math.prod(qw.shape[-(len(output.shape) - 2) :])
    macs = places * qw.elements
    return from_macs(
        macs,
        output.elements * (each + (bias is not None) + output_flop(output)),
        macs // max(1, kernel) if qx.elements else 0,
    )


# -- recurrent layers and cells --------------------------------------------------------------------

Operands = Tensor | Tensors


def _quantized(whole: Layers, is_half: bool = False) -> Flop:
    """Count float layers with quantized operands (unless half precision) and narrow weights."""
    count = whole.forward()
    multiplied = whole.vectors * whole.directions * sum(whole.input_lengths) + whole.cells
    narrow = whole.repeated_weights * (2 if is_half else 1)
    wide = whole.input.dtype.byte(whole.repeated_weights)
    return replace(
        count,
        other=count.other + (0 if is_half else DYNAMIC_FLOP * multiplied),
        internal_bytes=count.internal_bytes - wide + narrow,
    )


_LAYER = "input, states, weights and results once; gates and repeated weights are internal"


@formula("aten.quantized_lstm", "aten.quantized_gru", type="recurrent", byte=_LAYER)
def layers(hx: Operands, dtype: object = None, **given: Any) -> Flop:
    """As aten.lstm and aten.gru, with inputs and states quantized for each product."""
    cell = GRU if isinstance(hx, Tensor) else LSTM
    # Packed parameters have no shape; dropout between layers is not counted.
    given |= {"params": (), "train": False}
    whole = describe_layers(cell, hx, **given)
    return _quantized(whole, "float16" in str(dtype))


def _step(cell: Cell, input: Tensor, hx: Operands, **_: Any) -> Flop:
    hidden = (hx if isinstance(hx, Tensor) else hx[0]).shape[-1]
    return _quantized(describe_step(cell, input, hidden, hidden, True))


table(
    """
quantized.quantized_lstm_cell_dynamic aten.quantized_lstm_cell = LSTM
    As aten.lstm_cell, with input and state quantized for each product.
quantized.quantized_gru_cell_dynamic aten.quantized_gru_cell = GRU
    As aten.gru_cell, with input and state quantized for each product.
quantized.quantized_rnn_tanh_cell_dynamic aten.quantized_rnn_tanh_cell = TANH
    As aten.rnn_tanh_cell, with input and state quantized for each product.
quantized.quantized_rnn_relu_cell_dynamic aten.quantized_rnn_relu_cell = RELU
    As aten.rnn_relu_cell, with input and state quantized for each product.
""",
    _step,
    type="recurrent",
    byte=_LAYER,
    names={"TANH": TANH, "RELU": RELU},
)


# Quantize and dequantize operators, and other layers. Operators on quantized tensors count as on
# dequantized floats, quantized again; a kernel may use tables, so the minimum is 0.


def elements_of(operands: Operands) -> int:
    if isinstance(operands, Tensor):
        return operands.elements
    return sum(each.elements for each in operands)


def _each(operations: int, output: Operands, self: object = None, **_: Any) -> Flop:
    given = self if isinstance(self, Tensor) else output
    return Flop(other=operations * elements_of(given), least=0)


table(
    """
aten.quantize_per_tensor aten.quantize_per_channel = 5
    x / scale, its rounding, the zero point, two comparisons: 5 per element.
aten.quantize_per_tensor_dynamic = 7
    As aten.quantize_per_tensor, with 2 more comparisons to find the limits.
aten.dequantize = 2
    (q - zero_point) * scale: 2 per element.
aten.fake_quantize_per_tensor_affine_cachemask aten.fake_quantize_per_tensor_affine
aten.fake_quantize_per_channel_affine_cachemask aten.fake_quantize_per_channel_affine
aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
aten._fake_quantize_learnable_per_tensor_affine
aten._fake_quantize_learnable_per_channel_affine = 7
    Quantized and dequantized: 7 per element.
aten._fused_moving_avg_obs_fq_helper = 9
    As aten.fake_quantize_per_tensor_affine, with 2 more comparisons to find the limits.
""",
    _each,
)
table(
    """
aten.int_repr aten._make_per_tensor_quantized_tensor aten.q_per_channel_scales
aten._make_per_channel_quantized_tensor aten.q_per_channel_zero_points
aten._empty_affine_quantized aten._empty_per_channel_affine_quantized quantized.linear_prepack
quantized.linear_prepack_fp16 quantized.linear_unpack quantized.linear_unpack_fp16
quantized.conv_prepack quantized.conv_unpack quantized.conv1d_prepack quantized.conv1d_unpack
quantized.conv2d_prepack quantized.conv2d_unpack quantized.conv3d_prepack quantized.conv3d_unpack
quantized.conv_transpose1d_prepack quantized.conv_transpose1d_unpack
quantized.conv_transpose2d_prepack quantized.conv_transpose2d_unpack
quantized.conv_transpose3d_prepack quantized.conv_transpose3d_unpack
quantized.embedding_bag_prepack quantized.embedding_bag_unpack quantized.max_pool1d
quantized.max_pool2d quantized.relu6 quantized.clamp quantized.threshold
quantized.make_quantized_cell_params_dynamic quantized.make_quantized_cell_params_fp16
quantized.make_quantized_cell_params onednn.qlinear_prepack onednn.qconv_prepack
onednn.linear_prepack_fp16 aten.fbgemm_pack_quantized_matrix = 0
    Integers are copied, packed or compared, not computed.
""",
    type="data movement",
)


# -- other layers ----------------------------------------------------------------------------------


def requantized(inputs: int, output: Operands, each: Cost | int) -> Flop:
    """`inputs` dequantized numbers; `each` operations per result, which is quantized."""
    operations = cost(each).operations + QUANTIZE_FLOP
    return Flop(other=DEQUANTIZE_FLOP * inputs + operations * elements_of(output), least=0)


@formula(
    *("quantized.add", "quantized.mul", "quantized.add_relu", "quantized.mul_relu"),
    *("quantized.add_scalar", "quantized.mul_scalar", "quantized.add_scalar_relu"),
    "quantized.mul_scalar_relu",
)
def arithmetic(qa: Tensor, output: Tensor, qb: object = None, **_: Any) -> Flop:
    """1 per element, between integers; a comparison with 0 is on integers."""
    return requantized(
        elements_of([each for each in (qa, qb) if isinstance(each, Tensor)]), output, 1
    )


def _each_between(each: Cost | int, output: Tensor, **_: Any) -> Flop:
    return requantized(output.elements, output, each)


table(
    """
onednn.qadd onednn.qmul onednn.qadd_relu = requantized(self.elements + other.elements, output, 1)
    As quantized.add.
"""
)
table(
    """
quantized.cat quantized.cat_relu = requantized(elements_of(qx), output, 0)
    Each part is requantized with the scale of the whole.
""",
    type="data movement",
)
table(
    """
quantized.leaky_relu quantized.dropout = 2
    A comparison and a multiplication, between integers.
quantized.hardswish = 5
    5 per element, between integers.
quantized.sigmoid quantized.elu quantized.celu = 3 + F
    3 operations and an exponential per element, between integers.
""",
    _each_between,
    names={"F": F},
)
table(
    """
quantized.softmax = 4 + F
    As aten._softmax, between integers: a comparison, a difference, a sum, a division.
""",
    _each_between,
    type="softmax",
    names={"F": F},
)
table(
    """
quantized.layer_norm quantized.group_norm quantized.instance_norm = 8
    Mean and variance, 4; difference, quotient, weight, bias: 8 per element, between integers.
quantized.batch_norm quantized.batch_norm_relu aten.quantized_batch_norm
quantized.batch_norm1d quantized.batch_norm2d quantized.batch_norm3d quantized.batch_norm1d_relu
quantized.batch_norm2d_relu quantized.batch_norm3d_relu onednn.qbatch_norm2d = 2
    A product and a sum per element, between integers.
""",
    _each_between,
    type="normalization",
)


_ROWS = "the rows looked up, not the table; minimum: one row, none in bags"


@formula("quantized.embedding_byte", "quantized.embedding_4bit", type="embedding", byte=_ROWS)
def embedding(output: Tensor, **_: Any) -> Flop:
    """A product and a sum per element of a looked-up row."""
    return Flop(
        other=DEQUANTIZE_FLOP * output.elements,
        least=0,
        elements={"weight": output.elements},
        min_elements={"weight": min(output.shape[-1], output.elements)},
    )


def _bags(elements: int, indices: Tensor, output: Tensor, **_: Any) -> Flop:
    """Count `elements` of the table per index; lengths of bags depend on values."""
    return Flop(
        other=(DEQUANTIZE_FLOP + 1) * indices.elements * output.shape[-1],
        least=0,
        elements={"weight": indices.elements * elements},
        min_elements=untouched("weight"),
    )


table(
    """
quantized.embedding_bag_byte quantized.embedding_bag_4bit = output.shape[-1]
    As quantized.embedding_byte, with the rows of a bag added.
quantized.embedding_bag_byte_rowwise_offsets quantized.embedding_bag_4bit_rowwise_offsets
quantized.embedding_bag_2bit_rowwise_offsets = weight.shape[-1]
    As quantized.embedding_bag_byte, with scale and offset at the end of each row.
""",
    _bags,
    type="embedding",
    byte=_ROWS,
)
