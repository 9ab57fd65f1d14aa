"""Which keys the queries of attention see: all of them, or a band along a diagonal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from roofline.core.dtypes import DType
from roofline.workload.formulas.costs import TRANSCENDENTAL_FLOP, floats
from roofline.workload.formulas.matmul import linear
from roofline.workload.formulas.normalization import normalized
from roofline.workload.formulas.pointwise import GELU, elementwise
from roofline.workload.formulas.registry import Flop, Tensors, formula, products, table, total
from roofline.workload.tensors import TensorSpec as Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Query i sees key j where ``lowest <= j - i <= highest``; both are counted from 0."""

    queries: int
    keys: int
    lowest: int
    highest: int

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees."""
        return self.capped(self.keys)

    @property
    def seen_keys(self) -> int:
        """Keys that some query sees."""
        first = max(0, self.lowest)
        last = min(self.keys, self.queries + self.highest) - 1
        return max(0, last - first + 1) if self.pairs else 0

    @property
    def seeing_queries(self) -> int:
        """Queries that see some key."""
        return self.capped(1)

    @property
    def is_whole(self) -> bool:
        """Whether every query sees every key."""
        return self.pairs == self.queries * self.keys

    def capped(self, most: int) -> int:
        """The sum over all queries of the keys that each sees, or `most` where that is less."""
        most = max(0, min(most, self.keys, self.highest - self.lowest + 1))
        # Their number rises by 1 a query, stays, and falls by 1 a query; never both at once.
        rising = _ramp(self.queries, self.highest + 1, most)
        falling = _ramp(self.queries, self.keys - self.lowest - self.queries + 1, most)
        return rising + falling - most * self.queries


def whole(queries: int, keys: int) -> Band:
    """Every query sees every key."""
    return Band(queries=queries, keys=keys, lowest=-queries, highest=keys)


def causal(queries: int, keys: int, *, ends_together: bool = False) -> Band:
    """Each query sees the keys up to its own number, from the first of both, or from the last."""
    offset = keys - queries if ends_together else 0
    return Band(queries=queries, keys=keys, lowest=min(-queries, -keys), highest=offset)


def window(queries: int, keys: int, left: int | None, right: int | None) -> Band:
    """Each query sees `left` keys before its own and `right` behind it; None or -1: all of them.

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
    """The sum of `count` numbers rising by 1 from `first`, each at least 0 and at most `most`."""

    def up_to(number: int) -> int:
        rising = min(max(number, 0), most)
        return rising * (rising + 1) // 2 + max(number - most, 0) * most

    return up_to(first + count - 1) - up_to(first - 1)


# Attention: softmax(Q K^T * scale + mask) V, as one operator.
#
# The multiply-adds are those of the full rectangle of queries and keys, whatever a query may see: a
# causal or windowed one needs a part of them, and that is the least. Grouped keys and values are
# counted in their own number of heads, as torch hands them over.
#
# What the parts would hand to each other in memory, its internal traffic, are the scores, written
# by the first product and read by the softmax, and the probabilities, written by that and read by
# the second product: two rectangles in the type of the queries, each written and read. Scaled
# queries, sums and maxima of a row are not in it.

SOFTMAX_FLOP = 4 + TRANSCENDENTAL_FLOP
"""Of a score: a comparison, a subtraction, an exponential, an addition, a division."""

BYTE = (
    "queries, keys, values, mask and results once, keys and values in their own number of heads;"
    " scores and probabilities are internal"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The heads of all samples: `rows` times so many queries, and the pairs they make with keys.

    ``pairs`` are those of the full rectangle, ``least_pairs`` those that must be computed; ``band``
    says which they are, where lengths are known. ``features`` and ``values`` are the lengths of the
    vectors that are compared and of those that are added up; ``dtype`` is the type of the queries.
    """

    rows: int
    queries: int
    pairs: int
    least_pairs: int
    band: Band | None
    features: int
    values: int
    dtype: DType

    @property
    def scores(self) -> int:
        """Scores in all heads: the rectangles."""
        return self.rows * self.pairs

    @property
    def all_queries(self) -> int:
        """Queries in all heads."""
        return self.rows * self.queries

    def internal_bytes(self, written: int, read: int) -> int:
        """Bytes of so many rectangles of scores, written and read."""
        return self.dtype.byte(self.scores * written) + self.dtype.byte(self.scores * read)


def heads_in(rows: int, band: Band, features: int, values: int, dtype: DType) -> Heads:
    """Heads that are all alike: the queries and keys of `band`."""
    return Heads(
        rows=rows,
        queries=band.queries,
        pairs=band.queries * band.keys,
        least_pairs=band.pairs,
        band=band,
        features=features,
        values=values,
        dtype=dtype,
    )


def of_heads(heads: Heads, *, is_masked: bool = False, operations: int = 0) -> Flop:
    """Attention: two products and a softmax between them; ``operations`` a score come on top.

    The least: both products for the pairs that must be computed, their exponentials and the sums of
    these, and the division of probabilities or of outputs, whichever are fewer. Scores can be
    accumulated on top of a mask, a scale goes into the exponent, and the maximum that is subtracted
    only guards against overflow. What a mask leaves cannot be known from shapes: its scores count
    as computed, but need no exponential; nor do those of sequences whose lengths are not known.
    """
    if not heads.scores:
        return Flop()
    vectors, exponentials = heads.features + heads.values, 0
    if heads.band is not None and not is_masked:
        # A query divides as many probabilities as it sees keys, or as many numbers as a value has.
        divisions = heads.band.capped(heads.values)
        exponentials = 2 * heads.least_pairs - heads.band.seeing_queries + divisions
    # With fewer keys than queries there are queries of packed sequences that have none.
    softmax = max(
        heads.scores * SOFTMAX_FLOP - 2 * heads.all_queries, heads.scores * TRANSCENDENTAL_FLOP
    )
    count = products(
        heads.scores * vectors,
        softmax + heads.scores * operations,
        heads.rows * heads.least_pairs * vectors,
    )
    count = count.plus(0, heads.rows * exponentials)
    return replace(count, internal_bytes=heads.internal_bytes(2, 2))


def needed(heads: Heads, **operands: Tensor) -> dict[str, int]:
    """Elements of query, key and value that see or are seen, where not all do; each once."""
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


def with_logarithms(count: Flop, queries: int) -> Flop:
    """`count`, and for each of the `queries` a logarithm and the addition of its maximum."""
    return count.plus(queries * (1 + TRANSCENDENTAL_FLOP), queries)


def scaled(count: Flop, heads: Heads, scale: float | None) -> Flop:
    """`count`, and the multiplication of the queries with a scale that is not 1."""
    return count if scale == 1 else count.plus(heads.all_queries * heads.features, 0)


def heads_of(query: Tensor, key: Tensor, value: Tensor, result: Tensor, is_causal: bool) -> Heads:
    """Of tensors of (…, heads, sequence, features); the result has as many heads as there are."""
    queries, features = query.shape[-2:]
    band = (causal if is_causal else whole)(queries, key.shape[-2])
    return heads_in(math.prod(result.shape[:-2]), band, features, value.shape[-1], query.dtype)


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
    """Two products over the rectangle of queries and keys, and a softmax of what is between.

    A mask is an addition a score, or a selection where it is boolean; dropout a multiplication a
    score. Rows and columns of a causal mask start together at the first, as torch has it, also
    where there are fewer of one. Where the probabilities are returned too, they are no internal
    traffic but for being read once more.
    """
    is_alone = isinstance(output, Tensor)
    heads = heads_of(query, key, value, output if is_alone else output[0], is_causal)
    operations = floats(attn_mask) + (dropout_p > 0)
    count = of_heads(heads, is_masked=attn_mask is not None, operations=operations)
    least = needed(heads, query=query, key=key, value=value)
    internal = count.internal_bytes if is_alone else heads.internal_bytes(1, 2)
    return replace(scaled(count, heads, scale), min_elements=least, internal_bytes=internal)


table(
    """
aten._triton_scaled_dot_attention = scaled_dot_product_attention(q, k, v, output, None, dropout_p)
    As `scaled_dot_product_attention`, by other names.
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
    """As `scaled_dot_product_attention`; it also returns the logarithm of each softmax's sum.

    A query takes a logarithm for that, and the addition of the maximum. On quantized operands the
    scales of queries and keys go into the scale of the scores; that of the values multiplies the
    results.
    """
    mask = attn_mask if attn_mask is not None else attn_bias
    result, logarithms = output[:2]
    count = scaled_dot_product_attention(output=result, attn_mask=mask, **given)
    # Some kernels leave it out when asked to, or round its length up.
    queries = math.prod(result.shape[:-1]) if logarithms.elements else 0
    return with_logarithms(unscaled_values(count, result, v_descale), queries)


def unscaled_values(count: Flop, result: Tensor, v_descale: Tensor | None) -> Flop:
    """`count`, and a multiplication for each number of the result where the values have a scale."""
    return count if v_descale is None else count.plus(result.elements)


# Layers of attention that torch runs as one operator.


def _handed_over(*tensors: Tensor) -> Flop:
    """What one part writes and another one reads."""
    return Flop(internal_bytes=sum(2 * each.dtype.byte(each.elements) for each in tensors))


@formula(
    *("aten._native_multi_head_attention", "aten._triton_multi_head_attention"),
    byte="input, weights and result once; projections, scores, probabilities, context are internal",
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
    """The sum of its parts: three projections, attention with scaled queries, one projection.

    Weights that are asked for are averaged over the heads unless told not to. The multiply-adds are
    those of the layer taken apart, whose other operations differ in two things: a masked score is
    an addition there (here masks are made boolean first, and select), and where weights are not
    asked for, `fused_attention` also returns logarithms.

    Internal traffic: the projected queries, keys and values, the scores, the probabilities and what
    they make of the values, each written and read. Probabilities that are averaged are read once
    more; those that are returned as they are, are written anyway.
    """
    width = embed_dim // max(num_head, 1)
    given = (query, key, value)
    projected = [replace(each, shape=(*each.shape[:-1], embed_dim)) for each in given]
    band = whole(query.shape[-2], key.shape[-2])
    rows = math.prod(query.shape[:-2]) * num_head
    heads = heads_in(rows, band, width, width, query.dtype)
    is_averaged = need_weights and average_attn_weights
    written, read = (2, 2) if not need_weights else (2, 3) if is_averaged else (1, 2)
    core = of_heads(heads, is_masked=mask is not None)
    return total(
        (
            *(linear(each, out, qkv_bias) for each, out in zip(given, projected, strict=True)),
            # The scale of the queries, which can go into the exponent.
            Flop(other=projected[0].elements, least=0),
            replace(core, internal_bytes=heads.internal_bytes(written, read)),
            Flop(other=heads.scores if is_averaged else 0),
            linear(projected[0], query, proj_bias),
            _handed_over(*projected, projected[0]),
        )
    )


@formula(
    "aten._transformer_encoder_layer_fwd",
    byte="input, weights and result once; all that is between the parts is internal",
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
    """The sum of its parts: attention of the source to itself, two linear layers, two norms.

    Around either half a residual is added; norms first or last is the same work. Relu or gelu
    between the linear layers. Against the layer taken apart see `multi_head_attention`.

    Internal traffic, besides that of attention: five tensors like the source, each written and read
    (what attention and the linear layers give, what a norm takes or gives, a sum), and two as wide
    as the linear layers are inside. That residuals read their tensor once more is not in it.
    """
    hidden = replace(src, shape=(*src.shape[:-1], ffn_weight_1.shape[0]))
    rows = src.elements // max(src.shape[-1], 1)
    norms = normalized(src, rows, norm_weight_1, norm_bias_1)
    norms += normalized(src, rows, norm_weight_2, norm_bias_2)
    return total(
        (
            multi_head_attention(
                src, src, src, embed_dim, num_heads, qkv_bias, proj_bias, mask, need_weights=False
            ),
            linear(src, hidden, ffn_bias_1),
            elementwise({}, hidden, GELU if use_gelu else 1),
            linear(hidden, src, ffn_bias_2),
            Flop(other=norms + 2 * src.elements),
            _handed_over(*5 * [src], *2 * [hidden]),
        )
    )


table(
    """
aten._transform_bias_rescale_qkv = qkv.elements + qkv.elements // 3
    A bias for queries, keys and values, and a scale for the queries, a third of them.
"""
)
