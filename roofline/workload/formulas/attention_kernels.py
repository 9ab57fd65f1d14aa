"""The kernels of attention under the operators: their own layouts, windows, packed sequences.

Lengths of packed sequences are values: shapes give the sum of them, their number, and the longest.
The rectangles of pairs are counted as the most that these allow, which is what they are where all
are of one length, and the least is the fewest that they allow; no softmax is in it.
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
    causal,
    heads_in,
    heads_of,
    needed,
    of_heads,
    scaled,
    unscaled_values,
    whole,
    window,
    with_logarithms,
)
from roofline.workload.formulas.costs import TRANSCENDENTAL_FLOP, floats
from roofline.workload.formulas.registry import Flop, formula, none_of, products
from roofline.workload.tensors import TensorSpec as Tensor


class Packed(NamedTuple):
    """What shapes know of the lengths of packed sequences; ``is_self``: as many keys as queries."""

    sequences: int
    queries: int
    keys: int
    longest_queries: int
    longest_keys: int
    is_self: bool = False

    def least_pairs(self, is_causal: bool) -> int:
        """As few as there can be; none are known of a causal mask, but for self-attention.

        Where none is longer than the longest, at most ``longest_queries * missing keys`` pairs are
        missing from those that all queries had with the longest. Squares of lengths have the least
        sum where all are the same.
        """
        missing_keys = self.sequences * self.longest_keys - self.keys
        fewest = self.queries * self.longest_keys - self.longest_queries * missing_keys
        if self.is_self:
            fewest = max(fewest, -(-self.queries * self.keys // max(self.sequences, 1)))
            return (fewest + self.queries + 1) // 2 if is_causal else fewest
        return 0 if is_causal else max(fewest, 0)

    def heads(self, query: Tensor, value: Tensor, least_pairs: int) -> Heads:
        """Heads of packed (sequence, heads, features): a row is all sequences of a head."""
        most_pairs = min(self.queries * self.longest_keys, self.keys * self.longest_queries)
        return Heads(
            rows=query.shape[-2],
            queries=self.queries,
            pairs=most_pairs,
            least_pairs=least_pairs,
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
    """Heads of sequences that are packed, as it says where they start; None: they are not.

    Where what is seen is not known (``is_causal`` None), no pair is certain.
    """
    begin, begin_of_keys = starts
    # Kernels that must be given some are given empty ones.
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
    least = 0 if is_causal is None else lengths.least_pairs(is_causal)
    return lengths.heads(query, value, least)


def _dense(query: Tensor, value: Tensor, band: Band) -> Heads:
    """Of (samples, sequence, heads, features)."""
    rows = math.prod(query.shape[:-3]) * query.shape[-2]
    return heads_in(rows, band, query.shape[-1], value.shape[-1], query.dtype)


PACKED = BYTE + "; of packed sequences as they lie, of a table of blocks as many as can be used"

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
    """Queries and keys end together where there is a causal mask or a window."""
    left, right = window_size_left, 0 if is_causal else window_size_right
    is_open_left, is_open_right = (side is None or side < 0 for side in (left, right))
    is_known = is_open_left and (is_open_right or right == 0)
    seen = right == 0 if is_known else None
    packed = _packed(query, key, value, (cum_seq_q, cum_seq_k), (max_q, max_k), seen)
    return packed or _dense(query, value, window(query.shape[-3], key.shape[-3], left, right))


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

    Queries and keys end together where a causal mask or a window is asked for. Slopes take two
    operations a score (a distance times a slope, added). How many keys ``seqused_k`` and
    ``block_table`` leave are values: their products are not in the least.
    """
    elements: dict[str, int] = {}
    if block_table is None:
        heads = flash_heads(query, key, value, max_q=max_q, max_k=max_k, **given)
    else:
        # A row of the table names the blocks of a sequence.
        sequences, queries = block_table.shape[0], math.prod(query.shape[:-2])
        heads = Packed(sequences, queries, sequences * max_k, max_q, max_k).heads(query, value, 0)
        elements = dict.fromkeys(("key", "value"), sequences * max_k * math.prod(key.shape[-2:]))
    min_elements = needed(heads, query=query, key=key, value=value)
    if seqused_k is not None or block_table is not None:
        heads = replace(heads, least_pairs=0, band=None)
        min_elements = none_of("key", "value")
    operations = (dropout_p > 0) + 2 * (alibi_slopes is not None)
    count = scaled(of_heads(heads, operations=operations), heads, scale)
    count = with_logarithms(unscaled_values(count, query, v_descale), heads.all_queries)
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
    """Of (samples, sequence, heads, features), or packed as one sample.

    A causal mask begins with the first query and key, or ends with the last ones; with a window a
    query sees so many keys up to its own.
    """
    is_causal = custom_mask_type in (CAUSAL_FROM_FIRST, CAUSAL_FROM_LAST)
    has_window = is_causal and (window_size or 0) > 0
    starts, longest = (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k)
    packed = _packed(query, key, value, starts, longest, None if has_window else is_causal)
    if packed is not None:
        return packed
    band = whole(query.shape[-3], key.shape[-3])
    if is_causal:
        ends_together = custom_mask_type == CAUSAL_FROM_LAST
        band = causal(query.shape[-3], key.shape[-3], ends_together=ends_together)
    if has_window:
        band = replace(band, lowest=band.highest - (window_size or 0) + 1)
    return _dense(query, value, band)


def _of_kernel(
    heads: Heads, bias: Tensor | None, logarithms: Tensor, dropout_p: float, scale: float | None
) -> Flop:
    operations = floats(bias) + (dropout_p > 0)
    core = of_heads(heads, is_masked=bias is not None, operations=operations)
    queries = heads.all_queries if logarithms.elements else 0
    return with_logarithms(scaled(core, heads, scale), queries)


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
    """As `flash_attention`, with a bias that is added to the scores; see `efficient_heads`."""
    heads = efficient_heads(query, key, value, **given)
    min_elements = needed(heads, query=query, key=key, value=value)
    if seqlen_k is not None:
        heads = replace(heads, least_pairs=0, band=None)
        min_elements = none_of("key", "value")
    count = _of_kernel(heads, bias, output[1], dropout_p, scale)
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
    """Of (…, heads, sequence, features), or packed; a causal mask begins with the first of both."""
    packed = _packed(query, key, value, (cum_seq_q, cum_seq_k), (max_q, max_k), is_causal)
    return packed or heads_of(query, key, value, query, is_causal)


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
    """As `efficient_attention`, with its heads before the sequence; see `cudnn_heads`."""
    heads = cudnn_heads(query, key, value, **given)
    count = _of_kernel(heads, attn_bias, output[1], dropout_p, scale)
    return replace(count, min_elements=needed(heads, query=query, key=key, value=value))


# The backward pass of attention in one operator.
#
# It is handed the logarithms of the sums, not the probabilities, so it takes the scores anew: with
# S = Q K^T and P = softmax(S), five products, S, dP = dO V^T, dV = P^T dO, dQ = dS K, dK = dS^T Q,
# where the forward pass has two. All five are multiply-adds, over the full rectangle, and none of
# them can be avoided: the least has them for the pairs that are seen. Products for gradients that
# are not asked for are in neither.
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
    """Gradients of queries, keys, values and mask, as far as they are wanted.

    A score: an addition of the mask, the subtraction of the logarithm and an exponential for P; for
    dS = P * (dP - D) a subtraction and a multiplication; dropout multiplies P and dP. A query: its
    D, the sum of dO * O. The scale multiplies the queries, and their gradient. Groups of heads add
    up in the accumulators.

    The least: the products of the pairs that are seen, an exponential and a multiplication each,
    and D; the other additions go into accumulators. What a mask leaves counts as in the forward
    pass: products only.
    """
    for_query, for_key, for_value, for_mask = wanted
    min_elements = needed(heads, query=query, key=key, value=value)
    if not heads.scores or not any(wanted):
        return Flop(min_elements=min_elements)
    # A kernel that is always given a mask is given an empty one where there is none.
    mask = mask if mask is not None and mask.elements else None
    for_scores = for_query or for_key or for_mask
    vectors = heads.features * (1 + for_query + for_key) + heads.values * (for_scores + for_value)
    each = floats(mask) + 1 + TRANSCENDENTAL_FLOP + 2 * for_scores
    if dropout_p > 0:
        each += for_value + for_scores
    queries = heads.all_queries
    sums = queries * (2 * heads.values - 1) if for_scores and heads.values else 0
    scales = (1 + for_query) * queries * heads.features if scale != 1 else 0
    added_up = heads.scores - mask.elements if for_mask and mask is not None else 0
    has_softmax = heads.band is not None and mask is None
    softmax = heads.rows * heads.least_pairs * (1 + for_scores) if has_softmax else 0
    rectangles = 2 + 2 * for_scores
    byte = heads.internal_bytes(rectangles, rectangles)
    count = products(
        heads.scores * vectors,
        heads.scores * each + scales + max(added_up, 0) - softmax,
        heads.rows * heads.least_pairs * vectors,
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
    """Of (…, heads, sequence, features): five products where the forward pass has two.

    The gradient of a bias is summed over what shares it.
    """
    heads = heads_of(query, key, value, out, is_causal)
    mask = attn_mask if attn_mask is not None else attn_bias
    return _backward(heads, query, key, value, mask=mask, wanted=grad_input_mask, **given)


@formula("aten._flash_attention_backward", byte=BYTE_BACKWARD)
def flash_kernel_backward(**given: Any) -> Flop:
    """Of (samples, sequence, heads, features), or of packed sequences without samples."""
    return _backward(flash_heads(**given), **given)


@formula("aten._efficient_attention_backward", byte=BYTE_BACKWARD)
def efficient_kernel_backward(bias: Tensor | None, bias_requires_grad: bool, **given: Any) -> Flop:
    """Of (samples, sequence, heads, features), or packed as one sample."""
    wanted = (True, True, True, bias_requires_grad and bias is not None)
    return _backward(efficient_heads(**given), mask=bias, wanted=wanted, **given)


@formula("aten._cudnn_attention_backward", byte=BYTE_BACKWARD)
def cudnn_kernel_backward(attn_bias: Tensor | None, **given: Any) -> Flop:
    """Of (samples, heads, sequence, features), or of packed (sequence, heads, features)."""
    return _backward(cudnn_heads(**given), mask=attn_bias, **given)
