"""Fusion kinds of operators, as compilers treat them."""

from __future__ import annotations

import math
from enum import IntEnum

from roofline.workload.operators import OperatorRecord, State

ROW_ON_CHIP_BYTE = 64 * 1024
"""Maximum row that a kernel keeps on chip for a second sweep: shared memory per block of the
smallest recent GPU (Turing, 64 KiB); CPU cores have larger caches."""


class Kind(IntEnum):
    """Fusion kind of an operator, from most to least fusible.

    ELEMENTWISE: each element of the result depends on the same element of its operands, or on none.
    It joins its producers, and kernels of that kind join each other.
    AFFINE: elementwise with a scale and a shift per channel: batch normalization in inference.
    GATHER: each element depends on a few others anywhere (pooling, resampling, embedding, flips,
    concatenations). It joins its consumers. Its producers stay separate, as it reads their results
    more than once or in another order.
    REDUCTION: one sweep over its operand, which may be produced on the fly.
    ROWWISE: rows are summed up and then swept again (softmax, layer normalization). Producers may
    join if the row stays on chip; consumers always can.
    PRODUCT: convolutions and matrix products, as library or generated kernels in tiles, with
    elementwise epilogues. Producers stay separate: tiles of operands are read many times.
    OPAQUE: never fused: sorting, scans, scatters, fused attention and recurrent layers, operators
    without a formula.
    """

    ELEMENTWISE = 0
    AFFINE = 1
    GATHER = 2
    REDUCTION = 3
    ROWWISE = 4
    PRODUCT = 5
    OPAQUE = 6


def aten(text: str) -> frozenset[str]:
    """Return operator names from space-separated names without ``aten.``."""
    return frozenset(f"aten.{each}" for each in text.split())


_COPIES = aten("clone contiguous lift_fresh_copy alias_copy")
"""Copies that only change the layout, which a product's tile keeps."""

_ELEMENTWISE_MOVES = _COPIES | aten(
    "_to_copy copy where masked_fill fill zero zeros ones full zeros_like ones_like full_like"
    " new_zeros new_ones new_full scalar_tensor arange linspace eye tril triu complex detach_copy"
    " view_copy"
)
_GATHERING_MOVES = aten(
    "index index_select gather take _unsafe_index flip roll rot90 repeat constant_pad_nd"
    " reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d"
    " replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle"
    " select_copy slice_copy narrow_copy diagonal_copy expand_copy im2col linalg_cross"
)
_CONCATENATIONS = aten("cat stack")
_SINGLE_SWEEP = aten(
    "sum mean prod amax amin max min argmax argmin any all count_nonzero norm var var_mean std"
    " std_mean linalg_vector_norm aminmax nansum logsumexp"
)
"""Reductions in one sweep; variances by Welford's method."""

_ROWWISE = aten(
    "native_layer_norm rms_norm _fused_rms_norm native_group_norm _softmax softmax _safe_softmax"
    " _masked_softmax _log_softmax log_softmax _softmax_backward_data _log_softmax_backward_data"
)
_BATCH_NORMS = aten(
    "native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm"
    " _batch_norm_with_update"
)
_DRAWS = aten(
    "rand rand_like randn randn_like uniform normal exponential bernoulli native_dropout randint"
    " randint_like random"
)
"""Independent elements, from stateless generators (Philox)."""
_RANDOM = _DRAWS | aten(
    "_fused_dropout _sample_dirichlet _standard_gamma binomial cauchy geometric log_normal"
    " multinomial normal_functional poisson randperm"
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


def kind_of(record: OperatorRecord) -> Kind:
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
        # Training statistics run over a channel of the batch, too long to stay on chip.
        return Kind.ROWWISE if record.attributes.get("training", True) else Kind.AFFINE
    if op in _GATHERING_MOVES or op in _CONCATENATIONS:
        return Kind.GATHER
    kind = _BY_TYPE.get(record.type, Kind.OPAQUE)
    is_scatter = kind is Kind.GATHER and op.endswith("_backward")
    return Kind.OPAQUE if is_scatter or op.startswith("aten._foreach") else kind


def is_copy(record: OperatorRecord) -> bool:
    """True if an operator only changes the layout of a tensor."""
    return record.op.removesuffix("_") in _COPIES


def is_concatenation(record: OperatorRecord) -> bool:
    """True if an operator joins its operands unchanged."""
    return record.op in _CONCATENATIONS


def is_random(record: OperatorRecord) -> bool:
    """True if the result differs from pass to pass."""
    return record.op.removesuffix("_") in _RANDOM


def rows_of(record: OperatorRecord) -> int:
    """Number of rows that a reduction or a rowwise operator sums up."""
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
    """True if a row is contiguous, at the end of its operand, and fits on chip."""
    spec, rows = record.inputs[0], rows_of(record)
    if not rows or record.op.removesuffix("_") in _BATCH_NORMS or not ends_with_row(record):
        return False
    return spec.dtype.byte(spec.elements // rows) <= ROW_ON_CHIP_BYTE


def ends_with_row(record: OperatorRecord) -> bool:
    """True if the dimensions that an operator sums up, or sweeps, are the last ones."""
    shape, dims = record.inputs[0].shape, record.attributes.get("dim")
    if "normalized_shape" in record.attributes or "group" in record.attributes or dims is None:
        return True
    listed = dims if isinstance(dims, list) else [dims]
    if not all(isinstance(each, int) for each in listed):
        return False
    reduced = {int(each) % len(shape) for each in listed} if shape else set[int]()
    kept_after = [n for n in range(min(reduced, default=0), len(shape)) if n not in reduced]
    return all(shape[n] == 1 for n in kept_after)
