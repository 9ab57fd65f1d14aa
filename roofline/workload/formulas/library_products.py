"""Products under the names of the libraries and kernels that run them, and in formats of theirs.

Scaled, sparse and mixed ones are kernels for GPUs. A weight in a library's own order is read once;
the one it was made from, which comes along, is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.convolution import convolution
from roofline.workload.formulas.matmul import grouped_product, linear
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.pooling import UNTOUCHED, adaptive_avg_pool2d, max_pool
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA

_AFTER = {
    **dict.fromkeys(("", "none"), (0, 0)),
    **dict.fromkeys(("relu", "add", "sum", "sub", "mul", "div"), (1, 0)),
    **dict.fromkeys(("leaky_relu", "hardtanh"), (2, 0)),
    "hardsigmoid": (4, 0),
    "hardswish": (5, 0),
    "tanh": (0, 1),
    "gelu": (4, 1),
    "gelu, tanh": (8, 1),
    **dict.fromkeys(("sigmoid", "swish", "silu"), (3, 1)),
}
"""Operations and transcendental functions of what a library does with each element at last."""


def after(operations: Sequence[str | None], algorithm: str | None = "") -> tuple[int, int]:
    """FLOP an element of such `operations`, one after the other, and of that the least.

    One without an entry of its own is taken as a single operation.
    """
    approximated = "gelu, tanh" if algorithm == "tanh" else "gelu"
    names = [approximated if name == "gelu" else name or "" for name in operations]
    found = [_AFTER.get(name, (1, 0)) for name in names]
    simple, functions = (sum(each[i] for each in found) for i in (0, 1))
    return simple + TRANSCENDENTAL_FLOP * functions, simple + functions


def followed(
    count: Flop, output: TensorSpec, operations: Sequence[str | None], algorithm: str | None = ""
) -> Flop:
    """A product, and then `operations` on each element of its result."""
    each, least = after(operations, algorithm)
    return replace(
        count,
        other=count.other + each * output.elements,
        least=count.min_flop + least * output.elements,
    )


@formula("mkldnn._linear_pointwise", type="matrix product")
def linear_and_more(
    X: TensorSpec,
    B: TensorSpec | None,
    attr: str,
    output: TensorSpec,
    algorithm: str | None = "",
    **_: Any,
) -> Flop:
    """A linear layer, then an activation, or an operation with another tensor."""
    return followed(linear(X, output, bias=B), output, [attr], algorithm)


@formula("aten.mkldnn_linear", type="matrix product")
def mkldnn_linear(
    self: TensorSpec, output: TensorSpec, bias: TensorSpec | None = None, **_: Any
) -> Flop:
    """As `aten.linear`."""
    return linear(self, output, bias=bias)


@formula(
    "mkl._mkl_linear",
    type="matrix product",
    byte="the weight in the library's order, not the one it was made from",
)
def mkl_linear(X: TensorSpec, B: TensorSpec | None, output: TensorSpec, **_: Any) -> Flop:
    """As `aten.linear`."""
    return replace(linear(X, output, bias=B), elements={"ORI_W": 0})


_NAMES = {"input": "X", "weight": "W", "bias": "B"}
"""Of the operands of `aten.convolution`, here."""


def _convolved(X: TensorSpec, W: TensorSpec, is_transposed: bool, **arguments: Any) -> Flop:
    """A convolution whose operands have other names."""
    count = convolution(
        X,
        W,
        arguments["B"],
        arguments["stride"],
        arguments["padding"],
        arguments["dilation"],
        is_transposed,
        arguments["groups"],
        arguments["output"],
    )
    return replace(
        count,
        elements={_NAMES[name]: n for name, n in count.elements.items()},
        min_elements={_NAMES[name]: n for name, n in count.min_elements.items()},
    )


@formula(
    *("mkldnn._convolution_pointwise", "mkldnn._convolution_transpose_pointwise"),
    *("mkldnn._convolution_pointwise_.binary", "mkldnn._convolution_pointwise.binary"),
    type="convolution",
    byte="each operand once; at the least, of the input what lies under a tap",
)
def convolution_and_more(
    X: TensorSpec,
    W: TensorSpec,
    output: TensorSpec,
    attr: str = "",
    binary_attr: str = "",
    unary_attr: str | None = None,
    algorithm: str | None = "",
    unary_algorithm: str | None = "",
    output_padding: Sequence[int] | None = None,
    **arguments: Any,
) -> Flop:
    """A convolution, then an activation, or an operation with another tensor and an activation."""
    count = _convolved(X, W, output_padding is not None, output=output, **arguments)
    operations = [attr, binary_attr, unary_attr]
    return followed(count, output, operations, algorithm or unary_algorithm)


@formula(
    *("mkldnn._reorder_linear_weight", "mkldnn._reorder_convolution_weight"),
    *("mkldnn._reorder_convolution_transpose_weight", "mkl._mkl_reorder_linear_weight"),
    *("mkldnn._reorder_mkldnn_rnn_layer_weight", "aten.mkldnn_reorder_conv2d_weight"),
    *("aten.mkldnn_reorder_conv3d_weight", "aten.to_mkldnn", "aten._mkldnn_reshape"),
    *("aten._mkldnn_transpose", "aten._to_dense", "aten._cslt_compress"),
    *("aten._to_sparse_semi_structured", "aten._convert_weight_to_int4pack"),
    *("aten._convert_weight_to_int4pack_for_cpu", "aten._dyn_quant_pack_4bit_weight"),
    type="data movement",
)
def reordered(**_: Any) -> Flop:
    """The same numbers in another order."""
    return Flop()


@formula(
    *("aten.mkldnn_max_pool2d", "aten.mkldnn_max_pool3d", "aten.quantized_max_pool1d"),
    *("aten.quantized_max_pool2d", "aten.quantized_max_pool3d"),
    type="pooling",
    byte=UNTOUCHED,
)
def library_max_pool(**arguments: Any) -> Flop:
    """As `aten.max_pool2d`; comparing integers is no floating-point arithmetic."""
    return max_pool(**arguments)


@formula("aten.mkldnn_adaptive_avg_pool2d", "aten.adaptive_avg_pool1d", type="pooling")
def library_adaptive_avg_pool(**arguments: Any) -> Flop:
    """As `aten._adaptive_avg_pool2d`; of one dimension, each channel is a window of its own."""
    return adaptive_avg_pool2d(**arguments)


# -- scaled ----------------------------------------------------------------------------------------

_HALVES = "float4_e2m1fn_x2"
"""The type that holds two numbers in each element."""


def _inner(self: TensorSpec) -> int:
    """Numbers in a row of the first matrix."""
    return self.shape[-1] * (2 if self.dtype.name == _HALVES else 1)


@formula("aten._scaled_mm", "aten._scaled_mm_v2", type="matrix product")
def scaled_product(
    self: TensorSpec,
    output: TensorSpec,
    bias: TensorSpec | None = None,
    scale_result: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """A product of narrow floats; its result is scaled for both matrices, and a bias added.

    A scale for each block of a row takes more, which is left out, as is what the least can put
    into the product.
    """
    macs = output.elements * _inner(self)
    each = 2 + (bias is not None) + (scale_result is not None)
    return Flop(
        macs=macs,
        other=each * output.elements,
        least=FLOP_PER_FMA * macs,
        min_macs=macs,
    )


@formula(
    *("aten._scaled_grouped_mm", "aten._scaled_grouped_mm_v2"),
    type="matrix product",
    byte="the matrices of as many groups as can have rows; at the least, of one",
)
def scaled_grouped_product(
    self: TensorSpec,
    mat2: TensorSpec,
    output: TensorSpec,
    bias: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """As `aten._grouped_mm`; the result is scaled for both matrices, and a bias added."""
    count = grouped_product(self, mat2, output)
    macs = count.macs * (_inner(self) // max(1, self.shape[-1]))
    each = 2 + (bias is not None)
    return replace(
        count,
        macs=macs,
        other=each * output.elements,
        least=FLOP_PER_FMA * macs,
        min_macs=macs,
    )


# -- sparse ----------------------------------------------------------------------------------------


@formula("aten._cslt_sparse_mm", type="matrix product")
def half_sparse_product(
    dense_B: TensorSpec,
    output: TensorSpec,
    bias: TensorSpec | None = None,
    alpha: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """Two of four elements of the first matrix are 0: half of the multiply-adds are there."""
    macs = output.elements * dense_B.shape[0] // 2
    each = (bias is not None) + (alpha is not None)
    return Flop(
        macs=macs,
        other=each * output.elements,
        least=FLOP_PER_FMA * macs,
        min_macs=macs,
    )


@formula("aten._sparse_semi_structured_mm", type="matrix product")
def compressed_product(mat1: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Half of a row is kept of the first matrix: as many multiply-adds an element of the result."""
    return Flop(macs=output.elements * mat1.shape[-1])


@formula("aten._sparse_semi_structured_addmm", type="matrix product")
def added_compressed_product(
    mat1: TensorSpec, output: TensorSpec, alpha: float = 1, beta: float = 1, **_: Any
) -> Flop:
    """beta * input + alpha * mat1 @ mat2, as `aten.addmm`."""
    macs = output.elements * mat1.shape[-1]
    each = (beta != 0) + (beta not in (0, 1)) + (alpha != 1)
    return Flop(
        macs=macs,
        other=each * output.elements,
        least=FLOP_PER_FMA * macs,
        min_macs=macs,
    )


@formula("aten._sparse_semi_structured_linear", type="matrix product")
def compressed_linear(
    weight: TensorSpec,
    output: TensorSpec,
    bias: TensorSpec | None = None,
    activation: str | None = None,
    **_: Any,
) -> Flop:
    """A linear layer with half of each row of its weight, and an activation."""
    macs = output.elements * weight.shape[-1]
    count = Flop(
        macs=macs,
        other=output.elements if bias is not None else 0,
        least=FLOP_PER_FMA * macs,
        min_macs=macs,
    )
    return followed(count, output, [activation])


@formula("aten._mixed_dtypes_linear", type="matrix product")
def mixed_linear(
    input: TensorSpec,
    weight: TensorSpec,
    output: TensorSpec,
    bias: TensorSpec | None = None,
    activation: str | None = None,
    **_: Any,
) -> Flop:
    """A linear layer whose integer weights are scaled first, and an activation."""
    count = linear(input, output, bias=bias)
    scaled = replace(count, other=count.other + output.shape[-1] * input.shape[-1])
    return followed(scaled, output, [activation])
