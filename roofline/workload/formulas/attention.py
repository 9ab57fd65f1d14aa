"""Attention operators: scaled dot-product attention, and layers that torch runs as one operator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from roofline.core.dtypes import DType
from roofline.workload.formulas.costs import TRANSCENDENTAL_FLOP, has_floats
from roofline.workload.formulas.matmul import linear
from roofline.workload.formulas.normalization import norm_flop
from roofline.workload.formulas.pointwise import GELU, elementwise
from roofline.workload.formulas.registry import Flop, Tensors, formula, from_macs, table, total
from roofline.workload.tensors import TensorSpec as Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Band of visible keys: query i sees key j where ``lowest <= j - i <= highest``, from 0."""

    queries: int
    keys: int
    lowest: int
    highest: int

    @property
    def pairs(self) -> int:
        """Pairs of a query and a visible key."""
        return self.capped(self.keys)

    @property
    def seen_keys(self) -> int:
        """Keys visible to some query."""
        first = max(0, self.lowest)
        last = min(self.keys, self.queries + self.highest) - 1
        return max(0, last - first + 1) if self.pairs else 0

    @property
    def seeing_queries(self) -> int:
        """Queries that see some key."""
        return self.capped(1)

    @property
    def is_whole(self) -> bool:
        return self.pairs == self.queries * self.keys

    def capped(self, most: int) -> int:
        """Sum over all queries of their visible keys, at most `most` per query."""
        most = max(0, min(most, self.keys, self.highest - self.lowest + 1))
        # The count rises by 1 per query, stays, then falls by 1 per query; never both at once.
        rising = _ramp(self.queries, self.highest + 1, most)
        falling = _ramp(self.queries, self.keys - self.lowest - self.queries + 1, most)
        return rising + falling - most * self.queries


def full_band(queries: int, keys: int) -> Band:
    return Band(queries=queries, keys=keys, lowest=-queries, highest=keys)


def causal_band(queries: int, keys: int, *, ends_together: bool = False) -> Band:
    """Return the band in which query i sees keys up to i, from the first or the last of both."""
    offset = keys - queries if ends_together else 0
    return Band(queries=queries, keys=keys, lowest=min(-queries, -keys), highest=offset)


def window_band(queries: int, keys: int, left: int | None, right: int | None) -> Band:
    """Return a sliding window of `left` keys before a query and `right` after it (None or -1: all).

    Queries and keys end together.
    """
    offset = keys - queries
    is_open_left, is_open_right = left is None or left < 0, right is None or right < 0
    return Band(
        queries=queries,
        keys=keys,
        lowest=-queries if is_open_left else max(-queries, offset - (left or 0)),
        highest=keys if is_open_right else min(keys, offset + (right or 0)),
    )


def _ramp(count: int, first: int, most: int) -> int:
    """Sum of `count` numbers rising by 1 from `first`, each clamped to 0 … `most`."""

    def up_to(number: int) -> int:
        rising = min(max(number, 0), most)
        return rising * (rising + 1) // 2 + max(number - most, 0) * most

    return up_to(first + count - 1) - up_to(first - 1)


# Attention: softmax(Q K^T * scale + mask) V, as one operator.
#
# MACs count the full rectangle of queries and keys, whatever a query sees. A causal mask or a
# window needs a part of them: the minimum. Grouped keys and values count in their own number of
# heads, as torch passes them.
#
# Internal traffic: the scores, written by the first product and read by the softmax, and the
# probabilities, written by the softmax and read by the second product. Both are rectangles in the
# type of the queries. Scaled queries, and sums and maxima of a row, are not included.

SOFTMAX_FLOP = 4 + TRANSCENDENTAL_FLOP
"""FLOP per score: a comparison, a subtraction, an exponential, an addition, a division."""

BYTE = (
    "queries, keys, values, mask and results once, keys and values in their own number of heads;"
    " scores and probabilities are internal"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Heads of all samples: `rows` times so many queries, and their pairs with keys.

    ``pairs`` counts the full rectangle, ``min_pairs`` the pairs that must be computed; ``band``
    describes them if lengths are known. ``features`` is the length of query and key vectors,
    ``values`` that of value vectors, ``dtype`` the type of the queries.
    """

    rows: int
    queries: int
    pairs: int
    min_pairs: int
    band: Band | None
    features: int
    values: int
    dtype: DType

    @property
    def scores(self) -> int:
        """Scores in all heads, full rectangles."""
        return self.rows * self.pairs

    @property
    def all_queries(self) -> int:
        """Queries in all heads."""
        return self.rows * self.queries

    def internal_bytes(self, written: int, read: int) -> int:
        """Bytes of `written` and `read` rectangles of scores."""
        return self.dtype.byte(self.scores * written) + self.dtype.byte(self.scores * read)


def uniform_heads(rows: int, band: Band, features: int, values: int, dtype: DType) -> Heads:
    return Heads(
        rows=rows,
        queries=band.queries,
        pairs=band.queries * band.keys,
        min_pairs=band.pairs,
        band=band,
        features=features,
        values=values,
        dtype=dtype,
    )


def count_attention(heads: Heads, *, is_masked: bool = False, operations: int = 0) -> Flop:
    """Count two matrix products and a softmax between them, plus ``operations`` per score.

    The minimum: both products for the pairs that must be computed, their exponentials and the sums
    of these, and the division of probabilities or of outputs, whichever are fewer. Scores can
    accumulate on top of a mask, a scale goes into the exponent, and subtracting the maximum only
    prevents overflow. Shapes do not reveal the effect of a mask: its scores count as computed,
    without exponentials. The same holds for sequences of unknown length.
    """
    if not heads.scores:
        return Flop()
    vectors, exponentials = heads.features + heads.values, 0
    if heads.band is not None and not is_masked:
        # A query divides its probabilities (visible keys) or its output (length of a value).
        divisions = heads.band.capped(heads.values)
        exponentials = 2 * heads.min_pairs - heads.band.seeing_queries + divisions
    # With fewer keys than queries, some queries of packed sequences have no key.
    softmax = max(
        heads.scores * SOFTMAX_FLOP - 2 * heads.all_queries, heads.scores * TRANSCENDENTAL_FLOP
    )
    count = from_macs(
        heads.scores * vectors,
        softmax + heads.scores * operations,
        heads.rows * heads.min_pairs * vectors,
    )
    count = count.plus(0, heads.rows * exponentials)
    return replace(count, internal_bytes=heads.internal_bytes(2, 2))


def needed_elements(heads: Heads, **operands: Tensor) -> dict[str, int]:
    """Return the elements of query, key and value that see or are seen, where not all do."""
    band = heads.band
    if band is None or not heads.scores:
        return {}
    seen = {"query": (band.seeing_queries, band.queries)}
    parts = {name: seen.get(name, (band.seen_keys, band.keys)) for name in operands}
    return {
        name: spec.distinct_elements * parts[name][0] // parts[name][1]
        for name, spec in operands.items()
        if parts[name][0] < parts[name][1]
    }


def add_logarithms(count: Flop, queries: int) -> Flop:
    """Add a logarithm and the addition of its maximum for each of the `queries`."""
    return count.plus(queries * (1 + TRANSCENDENTAL_FLOP), queries)


def add_scale(count: Flop, heads: Heads, scale: float | None) -> Flop:
    """Add the multiplication of the queries by a scale that is not 1."""
    return count if scale == 1 else count.plus(heads.all_queries * heads.features, 0)


def dense_heads(query: Tensor, key: Tensor, value: Tensor, out: Tensor, is_causal: bool) -> Heads:
    """Return the heads of (…, heads, sequence, features) tensors; the result has all heads."""
    queries, features = query.shape[-2:]
    band = (causal_band if is_causal else full_band)(queries, key.shape[-2])
    return uniform_heads(math.prod(out.shape[:-2]), band, features, value.shape[-1], query.dtype)


@formula(
    *("aten.scaled_dot_product_attention", "aten._scaled_dot_product_attention_math"),
    "aten._scaled_dot_product_attention_math_for_mps",
    byte=BYTE,
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor | Tensors,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Flop:
    """Two matrix products over the rectangle of queries and keys, and a softmax between them.

    A mask adds 1 per score (0 if boolean: a selection), dropout 1. A causal mask starts at the
    first query and key, also for unequal numbers of them, as in torch. If probabilities are also
    returned, their write is no internal traffic, their read is.
    """
    is_alone = isinstance(output, Tensor)
    heads = dense_heads(query, key, value, output if is_alone else output[0], is_causal)
    operations = has_floats(attn_mask) + (dropout_p > 0)
    count = count_attention(heads, is_masked=attn_mask is not None, operations=operations)
    least = needed_elements(heads, query=query, key=key, value=value)
    internal = count.internal_bytes if is_alone else heads.internal_bytes(1, 2)
    return replace(add_scale(count, heads, scale), min_elements=least, internal_bytes=internal)


table(
    """
aten._triton_scaled_dot_attention = scaled_dot_product_attention(q, k, v, output, None, dropout_p)
    As aten.scaled_dot_product_attention, with other argument names.
""",
    byte=BYTE,
)


@formula(
    *("aten._scaled_dot_product_flash_attention_for_cpu",),
    *("aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_cudnn_attention"),
    *("aten._scaled_dot_product_efficient_attention",),
    "aten._scaled_dot_product_fused_attention_overrideable",
    byte=BYTE,
)
def fused_attention(
    output: Tensors,
    attn_mask: Tensor | None = None,
    attn_bias: Tensor | None = None,
    v_descale: Tensor | None = None,
    **given: Any,
) -> Flop:
    """As aten.scaled_dot_product_attention, and the logarithm of each softmax sum.

    That is a logarithm and the addition of the maximum per query. For quantized operands, the
    scales of queries and keys go into that of the scores; the scale of the values multiplies the
    results.
    """
    mask = attn_mask if attn_mask is not None else attn_bias
    result, logarithms = output[:2]
    count = scaled_dot_product_attention(output=result, attn_mask=mask, **given)
    # Some kernels omit it on request, or round its length up.
    queries = math.prod(result.shape[:-1]) if logarithms.elements else 0
    return add_logarithms(add_value_scale(count, result, v_descale), queries)


def add_value_scale(count: Flop, result: Tensor, v_descale: Tensor | None) -> Flop:
    """Add a multiplication per element of the result if the values have a scale."""
    return count if v_descale is None else count.plus(result.elements)


# Layers of attention that torch runs as one operator.


def _intermediates(*tensors: Tensor) -> Flop:
    """Internal traffic of tensors that one part writes and another one reads."""
    return Flop(internal_bytes=sum(2 * each.dtype.byte(each.elements) for each in tensors))


@formula(
    *("aten._native_multi_head_attention", "aten._triton_multi_head_attention"),
    byte="input, weights, result once; projections, scores, probabilities, context are internal",
)
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_bias: Tensor | None,
    proj_bias: Tensor | None,
    mask: Tensor | None = None,
    need_weights: bool = False,
    average_attn_weights: bool = True,
    **_: Any,
) -> Flop:
    """Three projections, attention with scaled queries, one output projection.

    Returned weights are averaged over the heads by default. MACs equal those of the decomposed
    layer. Its other operations differ in two ways: it adds its mask to each score (here a mask is
    boolean and selects), and its attention operator also returns logarithms where weights are not
    requested.

    Internal traffic: projected queries, keys and values, scores, probabilities and context, each
    written and read. Averaged probabilities are read once more; unaveraged results are written
    anyway.
    """
    width = embed_dim // max(num_head, 1)
    given = (query, key, value)
    projected = [replace(each, shape=(*each.shape[:-1], embed_dim)) for each in given]
    band = full_band(query.shape[-2], key.shape[-2])
    rows = math.prod(query.shape[:-2]) * num_head
    heads = uniform_heads(rows, band, width, width, query.dtype)
    is_averaged = need_weights and average_attn_weights
    written, read = (2, 2) if not need_weights else (2, 3) if is_averaged else (1, 2)
    core = count_attention(heads, is_masked=mask is not None)
    return total(
        (
            *(linear(each, out, qkv_bias) for each, out in zip(given, projected, strict=True)),
            # Scale of the queries; it can go into the exponent.
            Flop(other=projected[0].elements, least=0),
            replace(core, internal_bytes=heads.internal_bytes(written, read)),
            Flop(other=heads.scores if is_averaged else 0),
            linear(projected[0], query, proj_bias),
            _intermediates(*projected, projected[0]),
        )
    )


@formula(
    "aten._transformer_encoder_layer_fwd",
    byte="input, weights and result once; intermediates are internal",
)
def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_bias: Tensor | None,
    proj_bias: Tensor | None,
    use_gelu: bool,
    norm_weight_1: Tensor | None,
    norm_bias_1: Tensor | None,
    norm_weight_2: Tensor | None,
    norm_bias_2: Tensor | None,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor | None,
    ffn_bias_2: Tensor | None,
    mask: Tensor | None = None,
    **_: Any,
) -> Flop:
    """Self-attention, two linear layers with relu or gelu between them, two norms, two residuals.

    Norms first or last is the same work. For differences from the decomposed layer see
    aten._native_multi_head_attention.

    Internal traffic, besides that of attention: five tensors of the source's size, written and read
    (results of attention and linear layers, an operand or result of a norm, a sum), and two of the
    hidden width. The second read of residuals is not included.
    """
    hidden = replace(src, shape=(*src.shape[:-1], ffn_weight_1.shape[0]))
    rows = src.elements // max(src.shape[-1], 1)
    norms = norm_flop(src, rows, norm_weight_1, norm_bias_1)
    norms += norm_flop(src, rows, norm_weight_2, norm_bias_2)
    return total(
        (
            multi_head_attention(
                src, src, src, embed_dim, num_heads, qkv_bias, proj_bias, mask, need_weights=False
            ),
            linear(src, hidden, ffn_bias_1),
            elementwise({}, hidden, GELU if use_gelu else 1),
            linear(hidden, src, ffn_bias_2),
            Flop(other=norms + 2 * src.elements),
            _intermediates(*5 * [src], *2 * [hidden]),
        )
    )


table(
    """
aten._transform_bias_rescale_qkv = qkv.elements + qkv.elements // 3
    A bias for queries, keys and values, and a scale for the queries, a third of them.
"""
)
