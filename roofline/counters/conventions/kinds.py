"""Names of our operators that the rules of several counters are about."""

from __future__ import annotations

from roofline.workload.operators import OperatorRecord
from roofline.workload.work import FLOP_PER_FMA

CONVOLUTIONS = frozenset(("convolution", "depthwise convolution", "transposed convolution"))
"""The types of convolutions."""

PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm"))
"""What linear layers, matmul and einsum become."""

FUSED_LAYERS = frozenset(("_native_multi_head_attention", "_transformer_encoder_layer_fwd"))
"""Linear layers, attention and more in one operator: torch's fast path for transformers."""

BATCH_NORMS = frozenset(
    ("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training")
)


TAKEN_APART = (
    "takes fused layers of transformers apart in part, as hooks in them do: counts their linear"
    " layers and norms, misses what stays fused"
)
"""What a counter with hooks or a tracer does to torch's fast path."""


def macs(record: OperatorRecord) -> int:
    """The multiply-adds of a call, one each."""
    return record.work.macs or 0


def two_a_multiply_add(record: OperatorRecord) -> int:
    """The multiply-adds of a call, two each."""
    return FLOP_PER_FMA * macs(record)


def input_elements(record: OperatorRecord) -> int:
    """The elements of the first operand."""
    return record.inputs[0].elements


def output_elements(record: OperatorRecord) -> int:
    """The elements of the first result."""
    return record.outputs[0].elements
