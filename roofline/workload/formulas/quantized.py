"""Quantised layers: operations on integers are counted as those on floats are in the same layer.

int8 products are what such a layer is for, and everybody gives them in operations per second; plain
products of integers (`aten.mm`) stay integer arithmetic. Packed weights arrive as a list of the
weight, in the type it is kept in, and the bias. Corrections for zero points are left out. Only
products cannot be avoided: scales can be put into what is before or after.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.complex_numbers import Cost
from roofline.workload.formulas.matmul import after
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, number
from roofline.workload.formulas.recurrent import GRU, LSTM, RELU, TANH, Cell, Layers
from roofline.workload.formulas.registry import Flop, formula, table
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


def _numbers(row: str) -> list[int]:
    return [int(each) for each in row.split(", ")]


def _packed_linear(
    each: Sequence[int], X: TensorSpec, W_prepack: Packed, output: TensorSpec, **_: Any
) -> Flop:
    """So many operations on each element of the input and of the output, a bias apart."""
    return _linear(X, output, each[0], each[1] + has_bias(W_prepack))


table(
    """
quantized.linear = 0, 5
    Integers times integers; a bias, and the result quantised: 5 an element.
quantized.linear_relu = 0, 6
    As `quantized.linear`, and a comparison an element.
quantized.linear_leaky_relu = 0, 7
    As `quantized.linear`, a comparison and a product an element.
quantized.linear_tanh = 0, 13
    As `quantized.linear`, and a function an element.
quantized.linear_dynamic = 7, 1
    The limits of the input are found and it is quantised; the result is scaled, a bias added.
quantized.linear_relu_dynamic = 7, 2
    As `quantized.linear_dynamic`, and a comparison an element.
quantized.linear_with_input_q_dq_qweight_dq_output_fp32
quantized.linear_with_input_q_dq_qweight_dq_relu_output_fp32 = 5, 1
    The input is quantised with a scale that is given; the result is scaled, a bias added.
quantized.linear_dynamic_fp16 = 0, 0
    A linear layer of floats whose weight is kept in half of their width.
quantized.linear_relu_dynamic_fp16 = 0, 1
    As `quantized.linear_dynamic_fp16`, and a comparison an element.
""",
    _packed_linear,
    _numbers,
    type="matrix product",
)


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


# Quantised convolutions, counted as `quantized` says.


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


def _packed_convolution(
    each: Sequence[int],
    qx: TensorSpec,
    output: TensorSpec,
    packed_weight: Packed = (),
    weight: Packed = (),
    qaccum: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """So many operations on each element of the input and of the output, a bias apart.

    What is added is made floats first.
    """
    added = 0 if qaccum is None else DEQUANTIZE_FLOP
    count = _convolution(qx, packed_weight or weight, output, each[1] + added)
    return replace(count, other=count.other + each[0] * qx.elements, least=count.min_flop)


table(
    """
quantized.conv1d quantized.conv2d quantized.conv3d = 0, 5
    Integers times integers; a bias, and the result quantised: 5 an element.
quantized.conv1d_relu quantized.conv2d_relu quantized.conv3d_relu quantized.conv2d_add = 0, 6
    As `quantized.conv2d`, and a comparison; or a sum with a tensor that is made floats.
quantized.conv2d_add_relu = 0, 7
    As `quantized.conv2d_add`, and a comparison.
quantized.conv1d_dynamic quantized.conv2d_dynamic quantized.conv3d_dynamic = 7, 1
    The limits of the input are found and it is quantised; the result is scaled, a bias added.
""",
    _packed_convolution,
    _numbers,
    type="convolution",
)


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


# Recurrent layers and cells with quantised weights, counted as `quantized` says.

Operands = TensorSpec | Sequence[TensorSpec]


def _layers(
    cell: Cell,
    given: TensorSpec,
    state: TensorSpec,
    is_half: bool = False,
    **layers: Any,
) -> Flop:
    """As the same layers of floats; what each product takes is quantised first, unless halves are.

    Weights that every step reads again are narrow.
    """
    whole = Layers(
        cell=cell,
        vectors=math.prod(given.shape[:-1]),
        inputs=given.shape[-1],
        hidden=state.shape[-1],
        output=state.shape[-1],
        dtype=given.dtype,
        **layers,
    )
    count = whole.forward()
    multiplied = whole.vectors * whole.directions * sum(whole.input_lengths) + whole.cells
    before = 0 if is_half else (LIMITS_FLOP + QUANTIZE_FLOP) * multiplied
    narrow = whole.repeated_weights * (2 if is_half else 1)
    return replace(
        count,
        other=count.other + before,
        internal_bytes=count.internal_bytes - whole.dtype.byte(whole.repeated_weights) + narrow,
    )


_LAYER = "input, states, weights and results once; gates and repeated weights are internal"


@formula("aten.quantized_lstm", "aten.quantized_gru", type="recurrent", byte=_LAYER)
def layers(
    hx: Operands,
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    input: TensorSpec | None = None,
    data: TensorSpec | None = None,
    batch_sizes: TensorSpec | None = None,
    batch_first: bool = False,
    dtype: object = None,
    **_: Any,
) -> Flop:
    """As `aten.lstm` and `aten.gru`, with inputs and states that are quantised for each product."""
    given = input if input is not None else data
    state = hx if isinstance(hx, TensorSpec) else hx[0]
    assert given is not None
    return _layers(
        GRU if isinstance(hx, TensorSpec) else LSTM,
        given,
        state,
        "float16" in str(dtype),
        sequences=math.prod(state.shape[1:-1]),
        steps=given.shape[1 if batch_first else 0] if batch_sizes is None else batch_sizes.elements,
        has_biases=has_biases,
        layers=num_layers,
        directions=1 + bidirectional,
    )


def _step(cell: Cell, input: TensorSpec, hx: Operands, **_: Any) -> Flop:
    state = hx if isinstance(hx, TensorSpec) else hx[0]
    sequences = math.prod(input.shape[:-1])
    return _layers(cell, input, state, sequences=sequences, steps=1, has_biases=True)


_CELLS = {"LSTM": LSTM, "GRU": GRU, "TANH": TANH, "RELU": RELU}

table(
    """
quantized.quantized_lstm_cell_dynamic aten.quantized_lstm_cell = LSTM
    As `aten.lstm_cell`, with an input and a state that are quantised for each product.
quantized.quantized_gru_cell_dynamic aten.quantized_gru_cell = GRU
    As `aten.gru_cell`, with an input and a state that are quantised for each product.
quantized.quantized_rnn_tanh_cell_dynamic aten.quantized_rnn_tanh_cell = TANH
    As `aten.rnn_tanh_cell`, with an input and a state that are quantised for each product.
quantized.quantized_rnn_relu_cell_dynamic aten.quantized_rnn_relu_cell = RELU
    As `aten.rnn_relu_cell`, with an input and a state that are quantised for each product.
""",
    _step,
    _CELLS.__getitem__,
    type="recurrent",
    byte=_LAYER,
)


# What surrounds quantised products: numbers made integers and floats again, and other layers.
#
# Operators on quantised tensors are counted as floats that were dequantised before and are
# quantised after; a kernel may use tables, so that nothing of it is sure.


def _elements(operands: Operands) -> int:
    """Of one tensor, or of all of a list."""
    if isinstance(operands, TensorSpec):
        return operands.elements
    return sum(each.elements for each in operands)


def _each(operations: int, output: Operands, self: object = None, **_: Any) -> Flop:
    given = output if self is None or not isinstance(self, TensorSpec) else self
    return Flop(other=operations * _elements(given), least=0)


table(
    """
aten.quantize_per_tensor aten.quantize_per_channel = 5
    x / scale, its rounding, the zero point, two comparisons: five an element.
aten.quantize_per_tensor_dynamic = 7
    As `quantize`, with limits that are found first: two comparisons more.
aten.dequantize = 2
    (q - zero_point) * scale: two an element.
aten.fake_quantize_per_tensor_affine_cachemask aten.fake_quantize_per_tensor_affine
aten.fake_quantize_per_channel_affine_cachemask aten.fake_quantize_per_channel_affine
aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
aten._fake_quantize_learnable_per_tensor_affine
aten._fake_quantize_learnable_per_channel_affine = 7
    Quantised and made floats again: seven an element.
aten._fused_moving_avg_obs_fq_helper = 9
    As `fake_quantize`, with limits that are found first.
""",
    _each,
    int,
    type="quantization",
)


@formula(
    *("aten.int_repr", "aten._make_per_tensor_quantized_tensor", "aten.q_per_channel_scales"),
    *("aten._make_per_channel_quantized_tensor", "aten.q_per_channel_zero_points"),
    *("aten._empty_affine_quantized", "aten._empty_per_channel_affine_quantized"),
    *("quantized.linear_prepack", "quantized.linear_prepack_fp16", "quantized.linear_unpack"),
    *("quantized.linear_unpack_fp16", "quantized.conv_prepack", "quantized.conv_unpack"),
    *(f"quantized.conv{n}d_{each}" for n in (1, 2, 3) for each in ("prepack", "unpack")),
    *(f"quantized.conv_transpose{n}d_{each}" for n in (1, 2, 3) for each in ("prepack", "unpack")),
    *("quantized.embedding_bag_prepack", "quantized.embedding_bag_unpack", "quantized.max_pool1d"),
    *("quantized.max_pool2d", "quantized.relu6", "quantized.clamp", "quantized.threshold"),
    *("quantized.make_quantized_cell_params_dynamic", "quantized.make_quantized_cell_params_fp16"),
    *("quantized.make_quantized_cell_params", "onednn.qlinear_prepack", "onednn.qconv_prepack"),
    *("onednn.linear_prepack_fp16", "aten.fbgemm_pack_quantized_matrix"),
    type="data movement",
)
def integers(**_: Any) -> Flop:
    """Integers are copied, packed or compared, not computed with."""
    return Flop()


# -- other layers ----------------------------------------------------------------------------------


def _between(inputs: int, output: Operands, simple: int, functions: int = 0) -> Flop:
    """`inputs` numbers made floats; so many operations for each result, which is quantised."""
    each = simple + TRANSCENDENTAL_FLOP * functions + QUANTIZE_FLOP
    return Flop(other=DEQUANTIZE_FLOP * inputs + each * _elements(output), least=0)


@formula(
    *("quantized.add", "quantized.mul", "quantized.add_relu", "quantized.mul_relu"),
    *("quantized.add_scalar", "quantized.mul_scalar", "quantized.add_scalar_relu"),
    *("quantized.mul_scalar_relu",),
    type="quantization",
)
def arithmetic(qa: TensorSpec, output: TensorSpec, qb: object = None, **_: Any) -> Flop:
    """One an element, between integers; a comparison with 0 is one of integers."""
    other = qb.elements if isinstance(qb, TensorSpec) else 0
    return _between(qa.elements + other, output, 1)


@formula("onednn.qadd", "onednn.qmul", "onednn.qadd_relu", type="quantization")
def arithmetic_of_onednn(self: TensorSpec, other: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """As `quantized.add`."""
    return _between(self.elements + other.elements, output, 1)


@formula("quantized.cat", "quantized.cat_relu", type="data movement")
def concatenated(qx: Sequence[TensorSpec], output: TensorSpec, **_: Any) -> Flop:
    """Each part is quantised again, with the scale of the whole."""
    return _between(_elements(qx), output, 0)


def _each_between(cost: Cost, output: TensorSpec, **_: Any) -> Flop:
    return _between(output.elements, output, cost.simple, cost.functions)


table(
    """
quantized.leaky_relu quantized.dropout = 2
    A comparison and a multiplication, between integers.
quantized.hardswish = 5
    Five an element, between integers.
quantized.sigmoid quantized.elu quantized.celu = 3+1f
    Three operations and an exponential an element, between integers.
""",
    _each_between,
    number,
    type="quantization",
)
table(
    """
quantized.softmax = 4+1f
    As `aten._softmax`, between integers: a comparison, a difference, a sum, a division.
""",
    _each_between,
    number,
    type="softmax",
)
table(
    """
quantized.layer_norm quantized.group_norm quantized.instance_norm = 8
    Mean and variance, 4; difference, quotient, weight, bias: eight an element, and integers.
quantized.batch_norm quantized.batch_norm_relu aten.quantized_batch_norm
quantized.batch_norm1d quantized.batch_norm2d quantized.batch_norm3d quantized.batch_norm1d_relu
quantized.batch_norm2d_relu quantized.batch_norm3d_relu onednn.qbatch_norm2d = 2
    A product and a sum an element, between integers.
""",
    _each_between,
    number,
    type="normalization",
)


@formula("quantized.matmul", type="matrix product")
def product(qa: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Integers times integers; the result is quantised."""
    macs = output.elements * qa.shape[-1]
    return Flop(
        macs=macs,
        other=QUANTIZE_FLOP * output.elements,
        least=FLOP_PER_FMA * macs,
        min_macs=macs,
    )


_ROWS = "the rows looked up, not the table; minimum: one row, none in bags"


@formula(*("quantized.embedding_byte", "quantized.embedding_4bit"), type="embedding", byte=_ROWS)
def embedding(output: TensorSpec, **_: Any) -> Flop:
    """A product and a sum for each number that is looked up."""
    return Flop(
        other=DEQUANTIZE_FLOP * output.elements,
        least=0,
        elements={"weight": output.elements},
        min_elements={"weight": min(output.shape[-1], output.elements)},
    )


@formula(
    *("quantized.embedding_bag_byte", "quantized.embedding_bag_4bit"), type="embedding", byte=_ROWS
)
def embedding_bag(indices: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """As `embedding`, and the rows of a bag are added."""
    looked_up = indices.elements * output.shape[-1]
    return _bags(looked_up, looked_up)


@formula(
    *(f"quantized.embedding_bag_{kind}_rowwise_offsets" for kind in ("byte", "4bit", "2bit")),
    type="embedding",
    byte=_ROWS,
)
def embedding_bag_of_bytes(
    weight: TensorSpec, indices: TensorSpec, output: TensorSpec, **_: Any
) -> Flop:
    """As `embedding_bag`; scale and offset stand at the end of each row."""
    looked_up = indices.elements * output.shape[-1]
    return _bags(looked_up, indices.elements * weight.shape[-1])


def _bags(numbers: int, elements: int) -> Flop:
    """So many numbers, in so many elements of the table; how long bags are lies in values."""
    return Flop(
        other=(DEQUANTIZE_FLOP + 1) * numbers,
        least=0,
        elements={"weight": elements},
        min_elements={"weight": 0},
    )
