"""Kernels of attention: their own layouts, windows, packed sequences.

Lengths of packed sequences depend on values: shapes give only their sum, number and maximum. The
counted pairs are the maximum that these allow, exact for equal lengths; the minimum is the fewest
that they allow, without softmax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from roofline.workload.formulas.attention import (
    BYTE,
    Band,
    Heads,
    add_logarithms,
    add_scale,
    add_value_scale,
    causal_band,
    count_attention,
    dense_heads,
    full_band,
    needed_elements,
    uniform_heads,
    window_band,
)
from roofline.workload.formulas.costs import TRANSCENDENTAL_FLOP, has_floats
from roofline.workload.formulas.registry import Flop, formula, from_macs, untouched
from roofline.workload.tensors import TensorSpec as Tensor


class Packed(NamedTuple):
    """Known lengths of packed sequences; ``is_self``: as many keys as queries."""

    sequences: int
    queries: int
    keys: int
    longest_queries: int
    longest_keys: int
    is_self: bool = False

    def min_pairs(self, is_causal: bool) -> int:
        """Minimum number of pairs; 0 for a causal mask, except in self-attention.

        If all had the maximum length, there would be ``queries * longest_keys`` pairs; at most
        ``longest_queries * missing_keys`` of these are missing. Squares of lengths have the
        smallest sum for equal lengths.
        """
        missing_keys = self.sequences * self.longest_keys - self.keys
        fewest = self.queries * self.longest_keys - self.longest_queries * missing_keys
        if self.is_self:
            fewest = max(fewest, -(-self.queries * self.keys // max(self.sequences, 1)))
            return (fewest + self.queries + 1) // 2 if is_causal else fewest
        return 0 if is_causal else max(fewest, 0)

    def heads(self, query: Tensor, value: Tensor, min_pairs: int) -> Heads:
        """Return the heads of packed (sequence, heads, features); a row is all sequences of one."""
        most_pairs = min(self.queries * self.longest_keys, self.keys * self.longest_queries)
        return Heads(
            rows=query.shape[-2],
            queries=self.queries,
            pairs=most_pairs,
            min_pairs=min_pairs,
            band=None,
            features=query.shape[-1],
            values=value.shape[-1],
            dtype=query.dtype,
        )


def _packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: tuple[Tensor | None, Tensor | None],
    longest: tuple[int | None, int | None],
    is_causal: bool | None,
) -> Heads | None:
    """Return the heads of packed sequences, from their starts; None if they are not packed.

    If the visible pairs are unknown (``is_causal`` None), the minimum is 0 pairs.
    """
    begin, begin_of_keys = starts
    # Kernels that require starts receive empty ones.
    if begin is None or not begin.elements:
        return None
    queries, keys = query.shape[-3], key.shape[-3]
    lengths = Packed(
        max(begin.elements - 1, 0),
        queries,
        keys,
        queries if longest[0] is None else min(longest[0], queries),
        keys if longest[1] is None else min(longest[1], keys),
        begin_of_keys is not None
        and (begin.storage, begin.offset_bytes)
        == (begin_of_keys.storage, begin_of_keys.offset_bytes),
    )
    least = 0 if is_causal is None else lengths.min_pairs(is_causal)
    return lengths.heads(query, value, least)


def _sequence_first(query: Tensor, value: Tensor, band: Band) -> Heads:
    """Return the heads of (samples, sequence, heads, features)."""
    rows = math.prod(query.shape[:-3]) * query.shape[-2]
    return uniform_heads(rows, band, query.shape[-1], value.shape[-1], query.dtype)


PACKED = BYTE + "; packed sequences without padding, a block table as far as it can be used"

CAUSAL_FROM_FIRST, CAUSAL_FROM_LAST = 1, 2
"""Values of ``custom_mask_type``."""


def flash_heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    **_: Any,
) -> Heads:
    """Return the heads of flash attention; queries and keys end together with a mask or window."""
    left, right = window_size_left, 0 if is_causal else window_size_right
    is_open_left, is_open_right = (side is None or side < 0 for side in (left, right))
    is_known = is_open_left and (is_open_right or right == 0)
    seen = right == 0 if is_known else None
    packed = _packed(query, key, value, (cum_seq_q, cum_seq_k), (max_q, max_k), seen)
    band = window_band(query.shape[-3], key.shape[-3], left, right)
    return packed or _sequence_first(query, value, band)


@formula(
    *("aten._flash_attention_forward", "aten._flash_attention_forward_no_dropout_inplace"),
    byte=PACKED,
)
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    scale: float | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    v_descale: Tensor | None = None,
    **given: Any,
) -> Flop:
    """Attention of (samples, sequence, heads, features), or of packed sequences without samples.

    With a causal mask or a window, queries and keys end together. Slopes add 2 per score (distance
    times slope, addition). The keys left by ``seqused_k`` and ``block_table`` depend on values:
    their products are not in the minimum.
    """
    elements: dict[str, int] = {}
    if block_table is None:
        heads = flash_heads(query, key, value, max_q=max_q, max_k=max_k, **given)
    else:
        # A row of the table lists the blocks of a sequence.
        sequences, queries = block_table.shape[0], math.prod(query.shape[:-2])
        heads = Packed(sequences, queries, sequences * max_k, max_q, max_k).heads(query, value, 0)
        elements = dict.fromkeys(("key", "value"), sequences * max_k * math.prod(key.shape[-2:]))
    min_elements = needed_elements(heads, query=query, key=key, value=value)
    if seqused_k is not None or block_table is not None:
        heads = replace(heads, min_pairs=0, band=None)
        min_elements = untouched("key", "value")
    operations = (dropout_p > 0) + 2 * (alibi_slopes is not None)
    count = add_scale(count_attention(heads, operations=operations), heads, scale)
    count = add_logarithms(add_value_scale(count, query, v_descale), heads.all_queries)
    return replace(count, elements=elements, min_elements=min_elements)


def efficient_heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    custom_mask_type: int,
    window_size: int | None = None,
    **_: Any,
) -> Heads:
    """Return the heads of (samples, sequence, heads, features), or packed as one sample.

    A causal mask starts at the first query and key, or ends at the last; with a window, a query
    sees that many keys up to its own.
    """
    is_causal = custom_mask_type in (CAUSAL_FROM_FIRST, CAUSAL_FROM_LAST)
    has_window = is_causal and (window_size or 0) > 0
    starts, longest = (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k)
    packed = _packed(query, key, value, starts, longest, None if has_window else is_causal)
    if packed is not None:
        return packed
    band = full_band(query.shape[-3], key.shape[-3])
    if is_causal:
        ends_together = custom_mask_type == CAUSAL_FROM_LAST
        band = causal_band(query.shape[-3], key.shape[-3], ends_together=ends_together)
    if has_window:
        band = replace(band, lowest=band.highest - (window_size or 0) + 1)
    return _sequence_first(query, value, band)


def _count_kernel(
    heads: Heads, bias: Tensor | None, logarithms: Tensor, dropout_p: float, scale: float | None
) -> Flop:
    operations = has_floats(bias) + (dropout_p > 0)
    core = count_attention(heads, is_masked=bias is not None, operations=operations)
    queries = heads.all_queries if logarithms.elements else 0
    return add_logarithms(add_scale(core, heads, scale), queries)


@formula("aten._efficient_attention_forward", byte=PACKED)
def efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    dropout_p: float,
    output: Sequence[Any],
    scale: float | None = None,
    seqlen_k: Tensor | None = None,
    **given: Any,
) -> Flop:
    """As aten._flash_attention_forward, with a bias added to the scores."""
    heads = efficient_heads(query, key, value, **given)
    min_elements = needed_elements(heads, query=query, key=key, value=value)
    if seqlen_k is not None:
        heads = replace(heads, min_pairs=0, band=None)
        min_elements = untouched("key", "value")
    count = _count_kernel(heads, bias, output[1], dropout_p, scale)
    return replace(count, min_elements=min_elements)


def cudnn_heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    **_: Any,
) -> Heads:
    """Return the heads of (…, heads, sequence, features), or packed; causal from the first key."""
    packed = _packed(query, key, value, (cum_seq_q, cum_seq_k), (max_q, max_k), is_causal)
    return packed or dense_heads(query, key, value, query, is_causal)


@formula("aten._cudnn_attention_forward", byte=PACKED)
def cudnn_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    output: Sequence[Any],
    dropout_p: float = 0,
    scale: float | None = None,
    **given: Any,
) -> Flop:
    """As aten._efficient_attention_forward, with heads before the sequence."""
    heads = cudnn_heads(query, key, value, **given)
    count = _count_kernel(heads, attn_bias, output[1], dropout_p, scale)
    return replace(count, min_elements=needed_elements(heads, query=query, key=key, value=value))


# The backward pass of attention in one operator.
#
# It receives logarithms of sums, not probabilities, so it recomputes the scores: with S = Q K^T and
# P = softmax(S) there are five products, S, dP = dO V^T, dV = P^T dO, dQ = dS K, dK = dS^T Q, where
# the forward pass has two. All five count as MACs over the full rectangle; the minimum has them for
# visible pairs. Products for gradients that are not requested are in neither.
#
# Internal traffic: scores, probabilities and their two gradients, each a rectangle in the type of
# the queries, written and read; and for each query the sum of dO * O, in the type of the
# logarithms.

BYTE_BACKWARD = (
    "queries, keys, values, mask, results, logarithms and gradients once; scores, probabilities and"
    " their gradients are internal"
)
ALL = (True, True, True, False)


def _backward(
    heads: Heads,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    logsumexp: Tensor,
    *,
    mask: Tensor | None = None,
    wanted: Sequence[bool] = ALL,
    scale: float | None = None,
    dropout_p: float = 0,
    **_: Any,
) -> Flop:
    """Count the requested gradients of queries, keys, values and mask.

    Per score: an addition of the mask, the subtraction of the logarithm and an exponential for P;
    for dS = P * (dP - D) a subtraction and a multiplication; dropout multiplies P and dP. Per
    query: its D, the sum of dO * O. The scale multiplies the queries and their gradient. Groups of
    heads add up in the accumulators.

    The minimum: the products of visible pairs, an exponential and a multiplication each, and D; the
    other additions go into accumulators. Masked scores count as in the forward pass: products only.
    """
    for_query, for_key, for_value, for_mask = wanted
    min_elements = needed_elements(heads, query=query, key=key, value=value)
    if not heads.scores or not any(wanted):
        return Flop(min_elements=min_elements)
    # Kernels that require a mask receive an empty one.
    mask = mask if mask is not None and mask.elements else None
    for_scores = for_query or for_key or for_mask
    vectors = heads.features * (1 + for_query + for_key) + heads.values * (for_scores + for_value)
    each = has_floats(mask) + 1 + TRANSCENDENTAL_FLOP + 2 * for_scores
    if dropout_p > 0:
        each += for_value + for_scores
    queries = heads.all_queries
    sums = queries * (2 * heads.values - 1) if for_scores and heads.values else 0
    scales = (1 + for_query) * queries * heads.features if scale != 1 else 0
    added_up = heads.scores - mask.elements if for_mask and mask is not None else 0
    has_softmax = heads.band is not None and mask is None
    softmax = heads.rows * heads.min_pairs * (1 + for_scores) if has_softmax else 0
    rectangles = 2 + 2 * for_scores
    byte = heads.internal_bytes(rectangles, rectangles)
    count = from_macs(
        heads.scores * vectors,
        heads.scores * each + scales + max(added_up, 0) - softmax,
        heads.rows * heads.min_pairs * vectors,
    )
    return replace(
        count.plus(softmax + sums),
        internal_bytes=byte + 2 * for_scores * logsumexp.dtype.byte(queries),
        min_elements=min_elements,
    )


@formula(
    *("aten._scaled_dot_product_flash_attention_backward",),
    *("aten._scaled_dot_product_flash_attention_for_cpu_backward",),
    *("aten._scaled_dot_product_cudnn_attention_backward",),
    *("aten._scaled_dot_product_fused_attention_overrideable_backward",),
    "aten._scaled_dot_product_efficient_attention_backward",
    byte=BYTE_BACKWARD,
)
def fused_attention_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    is_causal: bool = False,
    attn_mask: Tensor | None = None,
    attn_bias: Tensor | None = None,
    grad_input_mask: Sequence[bool] = ALL,
    **given: Any,
) -> Flop:
    """Five matrix products of (…, heads, sequence, features), where the forward pass has two.

    The gradient of a bias is summed over the elements that share it.
    """
    heads = dense_heads(query, key, value, out, is_causal)
    mask = attn_mask if attn_mask is not None else attn_bias
    return _backward(heads, query, key, value, mask=mask, wanted=grad_input_mask, **given)


@formula("aten._flash_attention_backward", byte=BYTE_BACKWARD)
def flash_kernel_backward(**given: Any) -> Flop:
    """Five matrix products of (samples, sequence, heads, features), or of packed sequences."""
    return _backward(flash_heads(**given), **given)


@formula("aten._efficient_attention_backward", byte=BYTE_BACKWARD)
def efficient_kernel_backward(bias: Tensor | None, bias_requires_grad: bool, **given: Any) -> Flop:
    """Five matrix products of (samples, sequence, heads, features), or packed as one sample."""
    wanted = (True, True, True, bias_requires_grad and bias is not None)
    return _backward(efficient_heads(**given), mask=bias, wanted=wanted, **given)


@formula("aten._cudnn_attention_backward", byte=BYTE_BACKWARD)
def cudnn_kernel_backward(attn_bias: Tensor | None, **given: Any) -> Flop:
    """Five matrix products of (samples, heads, sequence, features), or packed without samples."""
    return _backward(cudnn_heads(**given), mask=attn_bias, **given)
