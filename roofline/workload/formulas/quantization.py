"""What surrounds quantised products: numbers made integers and floats again, and other layers.

Operators on quantised tensors are counted as floats that were dequantised before and are quantised
after; a kernel may use tables, so that nothing of it is sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.complex_numbers import Cost
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, number
from roofline.workload.formulas.quantized import DEQUANTIZE_FLOP, QUANTIZE_FLOP
from roofline.workload.formulas.registry import Flop, formula, table
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA

Operands = TensorSpec | Sequence[TensorSpec]


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
