"""Matrix products: an m x k by k x n product takes m * k * n FMAs; on integers, no FLOP.

Of complex numbers a multiply-add is four real ones, which is what is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.complex_numbers import PRODUCT, REAL_FMA, SCALED, is_complex
from roofline.workload.formulas.convolution import convolution
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, elementwise, floats, gelu
from roofline.workload.formulas.pooling import UNTOUCHED, max_pool
from roofline.workload.formulas.registry import Flop, formula, table
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


def _of(macs: int, numbers: TensorSpec) -> int:
    """Real multiply-adds of so many on the type of `numbers`."""
    if not floats(numbers):
        return 0
    return macs * (REAL_FMA if is_complex(numbers) else 1)


@formula("aten.mm", "aten.bmm", type="matrix product", is_for_complex=True)
def product(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Each output element is a dot product along the last dimension of the first matrix."""
    return Flop(macs=_of(output.elements * self.shape[-1], output))


@formula(
    "aten._grouped_mm",
    type="matrix product",
    byte="the matrices of as many groups as can have rows; at the least, of one",
)
def grouped_product(self: TensorSpec, mat2: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Rows of the first matrix, each with the matrix of its group (its expert) of the second.

    Where the inner dimension is what is grouped, each element of it belongs to one product. Which
    groups have rows cannot be known from shapes: no more than there are rows, and maybe only one.
    """
    rows = self.shape[0] if len(self.shape) == 2 else 0
    if len(self.shape) == len(mat2.shape) == 2:
        return Flop(macs=rows * self.shape[1] * mat2.shape[1] if floats(output) else 0)
    elements: dict[str, int] = {}
    min_elements: dict[str, int] = {}
    if rows and len(mat2.shape) == 3:
        matrix = math.prod(mat2.shape[1:])
        elements["mat2"] = min(mat2.shape[0], rows) * matrix
        min_elements["mat2"] = matrix
    return Flop(
        macs=output.elements * self.shape[-1] if floats(output) else 0,
        elements=elements,
        min_elements=min_elements,
    )


@formula("aten.mv", "aten.dot", "aten.vdot", type="matrix product", is_for_complex=True)
def vector_product(self: TensorSpec, **_: Any) -> Flop:
    """Every element of the matrix, or of the first vector, is multiplied and added once."""
    return Flop(macs=_of(self.elements, self))


def _added(macs: int, output: TensorSpec, beta: float, alpha: float) -> Flop:
    """A product plus a term: one addition an output, and a multiplication for each scale but 1.

    The accumulator can start with the unscaled term, so only the FMAs cannot be avoided; not even
    these where alpha is 0, for which libraries leave the product out.
    """
    if not floats(output):
        return Flop()
    scales = [beta] * (beta not in (0, 1)) + [alpha] * (alpha != 1)
    if is_complex(output):
        products = sum((PRODUCT if is_complex(each) else SCALED).simple for each in scales)
        operations = 2 * (beta != 0) + products
    else:
        operations = (beta != 0) + len(scales)
    products = _of(macs, output)
    return Flop(
        macs=products,
        other=operations * output.elements,
        least=FLOP_PER_FMA * products if alpha else 0,
        min_macs=products if alpha else 0,
    )


_TERMS = "each operand once, but no term of beta 0; minimum: no product of alpha 0"


def _of_terms(factors: list[str], output: TensorSpec, **given: Any) -> Flop:
    """As `_added`; of the operands, ``self`` is the term, and `factors` are multiplied.

    Matrices of a batch whose result is one matrix are summed up.
    """
    first, beta, alpha = given[factors[0]], given.get("beta", 1), given.get("alpha", 1)
    inner = first.shape[-1] if len(first.shape) > 1 else 1
    summed = first.shape[0] if len(first.shape) > len(output.shape) == 2 else 1
    return replace(
        _added(output.elements * summed * inner, output, beta, alpha),
        elements={"self": 0, "output": output.elements} if beta == 0 else {},
        min_elements=dict.fromkeys(factors[:2], 0) if alpha == 0 else {},
    )


table(
    """
aten.addmm = mat1 mat2 complex
    beta * self + alpha * mat1 @ mat2.
aten.baddbmm = batch1 batch2 complex
    beta * self + alpha * batch1 @ batch2, for each matrix of the batch.
aten.addbmm = batch1 batch2 complex
    beta * self + alpha * the sum of batch1 @ batch2 over the batch.
aten.addmv = mat vec complex
    beta * self + alpha * mat @ vec.
aten.addr = vec1 vec2 complex
    beta * self + alpha * vec1 (outer) vec2: one FMA an element.
""",
    _of_terms,
    str.split,
    type="matrix product",
    byte=_TERMS,
)


@formula("aten.linear", type="matrix product", is_for_complex=True)
def linear(input: TensorSpec, output: TensorSpec, bias: TensorSpec | None = None, **_: Any) -> Flop:
    """Each output element is a dot product along the features, plus the bias."""
    macs = output.elements * input.shape[-1]
    return _added(macs, output, 0 if bias is None else 1, 1)


@formula("aten._addmm_activation", type="matrix product", byte=_TERMS)
def added_product_with_activation(output: TensorSpec, use_gelu: bool = False, **given: Any) -> Flop:
    """As `added_product`, then gelu or relu."""
    product = _of_terms(["mat1", "mat2"], output, **given)
    after = gelu(output) if use_gelu else elementwise({}, output, 1)
    return replace(
        product,
        other=product.other + after.other,
        least=product.min_flop + after.min_flop,
    )


@formula("aten._trilinear", type="matrix product")
def trilinear(
    i1: TensorSpec,
    i2: TensorSpec,
    i3: TensorSpec,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    output: TensorSpec,
    **_: Any,
) -> Flop:
    """The sum of i1 * i2 * i3 over ``sumdim``; dimensions in ``expand`` are put in, of size 1.

    As two products: i1 with i2, summed over what i3 does not have; that with i3, over the rest.
    """
    if not floats(output):
        return Flop()
    first, second, third = (
        _expanded(each.shape, dims) for each, dims in ((i1, expand1), (i2, expand2), (i3, expand3))
    )
    pairs = [max(a, b) if a and b else 0 for a, b in zip(first, second, strict=True)]
    kept = [1 if dim in sumdim and dim in expand3 else size for dim, size in enumerate(pairs)]
    rest = [max(a, b) if a and b else 0 for a, b in zip(kept, third, strict=True)]
    return Flop(macs=math.prod(pairs) + math.prod(rest))


def _expanded(shape: Sequence[int], dims: Sequence[int]) -> list[int]:
    """`shape` with a 1 at each of the positions `dims` of the result."""
    sizes = iter(shape)
    return [1 if dim in dims else next(sizes) for dim in range(len(shape) + len(dims))]


@formula("aten.affine_grid_generator", "aten.cudnn_affine_grid_generator", type="matrix product")
def affine_grid(theta: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Each place, as a vector with a 1 at its end, times the matrix of its sample."""
    return Flop(macs=output.elements * theta.shape[-1])


@formula("aten.linalg_cross", type="pointwise", is_for_complex=True)
def cross(output: TensorSpec, **_: Any) -> Flop:
    """Two products and their difference for each number; complex: 6, 6 and 2."""
    each = 2 * PRODUCT.simple + 2 if is_complex(output) else 3
    return Flop(other=each * output.elements if floats(output) else 0)


# Products under the names of the libraries and kernels that run them, and in formats of theirs.
#
# Scaled, sparse and mixed ones are kernels for GPUs. A weight in a library's own order is read
# once; the one it was made from, which comes along, is not.

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


@formula(
    *("mkldnn._convolution_pointwise", "mkldnn._convolution_transpose_pointwise"),
    *("mkldnn._convolution_pointwise_.binary", "mkldnn._convolution_pointwise.binary"),
    type="convolution",
    byte="each operand once; at the least, of the input what lies under a tap",
)
def convolution_and_more(
    X: TensorSpec,
    W: TensorSpec,
    B: TensorSpec | None,
    output: TensorSpec,
    attr: str = "",
    binary_attr: str = "",
    unary_attr: str | None = None,
    algorithm: str | None = "",
    unary_algorithm: str | None = "",
    output_padding: Sequence[int] | None = None,
    **given: Any,
) -> Flop:
    """A convolution, then an activation, or an operation with another tensor and an activation."""
    is_transposed = output_padding is not None
    count = convolution(input=X, weight=W, bias=B, output=output, transposed=is_transposed, **given)
    names = {"input": "X", "weight": "W", "bias": "B"}
    count = replace(count, min_elements={names[name]: n for name, n in count.min_elements.items()})
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


# Backward of products of matrices, where a device has kernels of its own for it.


@formula("aten.linear_backward", type="matrix product")
def linear_backward(
    self: TensorSpec, grad_output: TensorSpec, output_mask: Sequence[bool], **_: Any
) -> Flop:
    """One FMA for each number of the gradient and feature, for input and weight alike.

    The bias sums the gradient over all rows. ``output_mask`` says which of the three are wanted.
    """
    outputs = grad_output.shape[-1] if grad_output.shape else 1
    products = grad_output.elements * self.shape[-1]
    sums = max(0, grad_output.elements - outputs)
    return Flop(
        macs=products * (bool(output_mask[0]) + bool(output_mask[1])),
        other=sums if output_mask[2] else 0,
    )


@formula("aten.matmul_backward", type="matrix product")
def matmul(grad: TensorSpec, self: TensorSpec, mask: Sequence[bool], **_: Any) -> Flop:
    """As many FMAs as the product took, for either factor that is wanted.

    A factor that was repeated over a batch sums over it, which its FMAs do.
    """
    inner = self.shape[-1] if self.shape else 1
    return Flop(macs=grad.elements * inner * (bool(mask[0]) + bool(mask[1])))
