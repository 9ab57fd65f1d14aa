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

from roofline.workload.formulas.matmul import after
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.recurrent import GRU, LSTM, RELU, TANH, Cell, Layers
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


def _step(cell: Cell, input: TensorSpec, hx: Operands) -> Flop:
    state = hx if isinstance(hx, TensorSpec) else hx[0]
    sequences = math.prod(input.shape[:-1])
    return _layers(cell, input, state, sequences=sequences, steps=1, has_biases=True)


@formula(
    *("quantized.quantized_lstm_cell_dynamic", "aten.quantized_lstm_cell"),
    type="recurrent",
    byte=_LAYER,
)
def lstm_step(input: TensorSpec, hx: Operands, **_: Any) -> Flop:
    """As `aten.lstm_cell`, with an input and a state that are quantised for each product."""
    return _step(LSTM, input, hx)


@formula(
    *("quantized.quantized_gru_cell_dynamic", "aten.quantized_gru_cell"),
    type="recurrent",
    byte=_LAYER,
)
def gru_step(input: TensorSpec, hx: TensorSpec, **_: Any) -> Flop:
    """As `aten.gru_cell`, with an input and a state that are quantised for each product."""
    return _step(GRU, input, hx)


@formula(
    *("quantized.quantized_rnn_tanh_cell_dynamic", "aten.quantized_rnn_tanh_cell"),
    type="recurrent",
    byte=_LAYER,
)
def tanh_step(input: TensorSpec, hx: TensorSpec, **_: Any) -> Flop:
    """As `aten.rnn_tanh_cell`, with an input and a state that are quantised for each product."""
    return _step(TANH, input, hx)


@formula(
    *("quantized.quantized_rnn_relu_cell_dynamic", "aten.quantized_rnn_relu_cell"),
    type="recurrent",
    byte=_LAYER,
)
def relu_step(input: TensorSpec, hx: TensorSpec, **_: Any) -> Flop:
    """As `aten.rnn_relu_cell`, with an input and a state that are quantised for each product."""
    return _step(RELU, input, hx)
