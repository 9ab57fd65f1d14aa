"""How compilers can put an operator into a kernel with others, by its kind."""

from __future__ import annotations

import math
from enum import IntEnum

from roofline.workload.operators import OperatorRecord, State

ROW_ON_CHIP_BYTE = 64 * 1024
"""The longest row that a kernel keeps while it sums it up and goes over it again: the memory that
a block of the smallest recent GPU has to itself (Turing, 64 KiB); CPU cores have larger caches."""


class Kind(IntEnum):
    """What an operator can be joined with, from what takes part in anything to what is alone.

    ELEMENTWISE: each element of the result from the same element of its operands, or from none.
    It joins what makes these, and kernels of that kind join each other.
    AFFINE: the same with a scale and a shift for each channel: batch normalisation in inference.
    GATHER: each element from a few others, wherever they are (pooling, resampling, embedding,
    flips, concatenations): takes what follows; what makes its operands is another kernel, as it
    reads them more than once or in another order.
    REDUCTION: one sweep over its operand, which may be made on the fly.
    ROWWISE: rows are summed up and then gone over again (softmax, layer normalisation): what makes
    them may be done on the fly if the row stays on chip; what follows always can.
    PRODUCT: convolutions and matrix products: a library's or a generated kernel in tiles, that can
    do elementwise work on a tile before it leaves (an epilogue). What makes its operands is done
    before: tiles of them are read many times.
    OPAQUE: alone. Everything else: sorting, scans, scatters, fused attention and recurrent layers,
    operators without a formula.
    """

    ELEMENTWISE = 0
    AFFINE = 1
    GATHER = 2
    REDUCTION = 3
    ROWWISE = 4
    PRODUCT = 5
    OPAQUE = 6


_COPIES = frozenset({"aten.clone", "aten.contiguous", "aten.lift_fresh_copy", "aten.alias_copy"})
"""In a graph of operators, these are there to change the layout, which a product's tile keeps."""

_ELEMENTWISE_MOVES = _COPIES | {
    *("aten._to_copy", "aten.copy", "aten.where", "aten.masked_fill", "aten.fill", "aten.zero"),
    *("aten.zeros", "aten.ones", "aten.full", "aten.zeros_like", "aten.ones_like"),
    *("aten.full_like", "aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.scalar_tensor"),
    *("aten.arange", "aten.linspace", "aten.eye", "aten.tril", "aten.triu", "aten.complex"),
    *("aten.detach_copy", "aten.view_copy"),
}
_GATHERING_MOVES = frozenset(
    {
        *("aten.index", "aten.index_select", "aten.gather", "aten.take", "aten._unsafe_index"),
        *("aten.flip", "aten.roll", "aten.rot90", "aten.repeat", "aten.constant_pad_nd"),
        *("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d"),
        *("aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d"),
        *("aten.pixel_shuffle", "aten.pixel_unshuffle", "aten.channel_shuffle"),
        *("aten.native_channel_shuffle", "aten.select_copy", "aten.slice_copy"),
        *("aten.narrow_copy", "aten.diagonal_copy", "aten.expand_copy", "aten.im2col"),
        "aten.linalg_cross",
    }
)
_CONCATENATIONS = frozenset({"aten.cat", "aten.stack"})
_SINGLE_SWEEP = frozenset(
    {
        *("aten.sum", "aten.mean", "aten.prod", "aten.amax", "aten.amin", "aten.max", "aten.min"),
        *("aten.argmax", "aten.argmin", "aten.any", "aten.all", "aten.count_nonzero", "aten.norm"),
        *("aten.var", "aten.var_mean", "aten.std", "aten.std_mean", "aten.linalg_vector_norm"),
        *("aten.aminmax", "aten.nansum", "aten.logsumexp"),
    }
)
"""Reductions of one sweep; a variance by Welford's method."""

_ROWWISE = frozenset(
    {
        *("aten.native_layer_norm", "aten.rms_norm", "aten._fused_rms_norm"),
        *("aten.native_group_norm", "aten._softmax", "aten.softmax", "aten._safe_softmax"),
        *("aten._masked_softmax", "aten._log_softmax", "aten.log_softmax"),
        *("aten._softmax_backward_data", "aten._log_softmax_backward_data"),
    }
)
_BATCH_NORMS = frozenset(
    {
        *("aten.native_batch_norm", "aten._native_batch_norm_legit", "aten.cudnn_batch_norm"),
        *("aten.miopen_batch_norm", "aten._batch_norm_with_update"),
    }
)
_BY_TYPE = {
    "pointwise": Kind.ELEMENTWISE,
    "convolution": Kind.PRODUCT,
    "depthwise convolution": Kind.PRODUCT,
    "matrix product": Kind.PRODUCT,
    "pooling": Kind.GATHER,
    "embedding": Kind.GATHER,
    "resampling": Kind.GATHER,
}
_DRAWS = frozenset(
    {
        *("aten.rand", "aten.rand_like", "aten.randn", "aten.randn_like", "aten.uniform"),
        *("aten.normal", "aten.exponential", "aten.bernoulli", "aten.native_dropout"),
        *("aten.randint", "aten.randint_like", "aten.random"),
    }
)
"""Every element on its own, by generators that need no state (Philox)."""


def kind_of(record: OperatorRecord) -> Kind:
    """How an operator can be put into a kernel with others."""
    if record.state is State.UNKNOWN:
        return Kind.OPAQUE
    op = record.op.removesuffix("_")
    if op in _ELEMENTWISE_MOVES or op in _DRAWS:
        return Kind.ELEMENTWISE
    if op in _ROWWISE:
        return Kind.ROWWISE
    if op in _SINGLE_SWEEP and record.type == "reduction":
        return Kind.REDUCTION
    if op == "aten._native_batch_norm_legit_no_training":
        return Kind.AFFINE
    if op in _BATCH_NORMS:
        # In training the statistics are those of a channel of the batch, too long to stay on chip.
        return Kind.ROWWISE if record.attributes.get("training", True) else Kind.AFFINE
    if op in _GATHERING_MOVES or op in _CONCATENATIONS:
        return Kind.GATHER
    kind = _BY_TYPE.get(record.type, Kind.OPAQUE)
    is_scatter = kind is Kind.GATHER and op.endswith("_backward")
    return Kind.OPAQUE if is_scatter or op.startswith("aten._foreach") else kind


def is_copy(record: OperatorRecord) -> bool:
    """Whether it is there to change the layout of a tensor."""
    return record.op.removesuffix("_") in _COPIES


def is_concatenation(record: OperatorRecord) -> bool:
    """Whether it puts its operands side by side, whole and unchanged."""
    return record.op in _CONCATENATIONS


def is_draw(record: OperatorRecord) -> bool:
    """Whether its result differs from pass to pass."""
    return record.op.removesuffix("_") in _DRAWS


def rows_of(record: OperatorRecord) -> int:
    """The number of rows that a reduction or a rowwise operator sums up."""
    attributes, whole = record.attributes, record.inputs[0].elements
    if kind_of(record) is Kind.REDUCTION:
        return record.outputs[0].elements
    if "normalized_shape" in attributes:
        return whole // max(1, math.prod(attributes["normalized_shape"]))
    if "group" in attributes:
        return int(attributes["N"]) * int(attributes["group"])
    shape = record.outputs[0].shape
    if "dim" in attributes and shape:
        return whole // max(1, shape[int(attributes["dim"])])
    return shape[1] if len(shape) > 1 else 1


def row_is_on_chip(record: OperatorRecord) -> bool:
    """Whether a row lies in one piece, and is short enough to be kept."""
    spec = record.inputs[0]
    rows = rows_of(record)
    if not rows or record.op.removesuffix("_") in _BATCH_NORMS:
        return False
    return _ends_with_row(record) and spec.dtype.byte(spec.elements // rows) <= ROW_ON_CHIP_BYTE


def _ends_with_row(record: OperatorRecord) -> bool:
    """Whether it reduces the last dimensions of its operand."""
    shape = record.inputs[0].shape
    dims = record.attributes.get("dim")
    if "normalized_shape" in record.attributes or "group" in record.attributes or dims is None:
        return True
    listed = dims if isinstance(dims, list) else [dims]
    if not all(isinstance(each, int) for each in listed):
        return False
    reduced = {int(each) % len(shape) for each in listed} if shape else set[int]()
    kept_after = [n for n in range(min(reduced, default=0), len(shape)) if n not in reduced]
    return all(shape[n] == 1 for n in kept_after)
