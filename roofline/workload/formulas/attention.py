"""Attention: softmax(Q K^T * scale + mask) V, as one operator.

The multiply-adds are those of the full rectangle of queries and keys, whatever a query may see: a
causal or windowed one needs a part of them, and that is the least. Grouped keys and values are
counted in their own number of heads, as torch hands them over.

What the parts would hand to each other in memory, its internal traffic, are the scores, written by
the first product and read by the softmax, and the probabilities, written by that and read by the
second product: two rectangles in the type of the queries, each written and read. Scaled queries,
sums and maxima of a row are not in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.foundation.dtypes import DType
from roofline.workload.formulas.attention_band import Band, causal, whole
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA

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
    softmax = heads.scores * SOFTMAX_FLOP - 2 * heads.rows * heads.queries
    products = heads.rows * heads.least_pairs * vectors
    return Flop(
        macs=heads.scores * vectors,
        # With fewer keys than queries there are queries of packed sequences that have none.
        other=max(softmax, heads.scores * TRANSCENDENTAL_FLOP) + heads.scores * operations,
        least=FLOP_PER_FMA * products + heads.rows * exponentials,
        min_macs=products,
        internal_bytes=heads.internal_bytes(2, 2),
    )


def needed(heads: Heads, **operands: TensorSpec) -> dict[str, int]:
    """Elements of ``query``, ``key`` and ``value`` that see or are seen, where not all of them do.

    What heads or samples share is there once.
    """
    least: dict[str, int] = {}
    band = heads.band
    if band is None or not heads.scores:
        return least
    for name, spec in operands.items():
        part, every = (
            (band.seeing_queries, band.queries) if name == "query" else (band.seen_keys, band.keys)
        )
        if part < every:
            least[name] = spec.distinct_elements * part // every
    return least


def with_logarithms(count: Flop, queries: int) -> Flop:
    """`count`, and for each of the `queries` a logarithm and the addition of its maximum."""
    return replace(
        count,
        other=count.other + queries * (1 + TRANSCENDENTAL_FLOP),
        least=count.min_flop + queries,
    )


def scaled(count: Flop, heads: Heads, scale: float | None, times: int = 1) -> Flop:
    """`count`, and the multiplication of the queries with a scale that is not 1."""
    if scale == 1:
        return count
    multiplications = times * heads.rows * heads.queries * heads.features
    return replace(count, other=count.other + multiplications, least=count.min_flop)


def _of_tensors(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    result: TensorSpec,
    mask: TensorSpec | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Flop, Heads]:
    """Attention as torch is asked for it; the queries take the scale, unless it is 1."""
    heads = heads_of(query, key, value, result, is_causal)
    core = of_heads(heads, is_masked=mask is not None, operations=floats(mask) + (dropout_p > 0))
    least = needed(heads, query=query, key=key, value=value)
    return replace(scaled(core, heads, scale), min_elements=least), heads


def heads_of(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, result: TensorSpec, is_causal: bool
) -> Heads:
    """Of tensors of (…, heads, sequence, features); the result has as many heads as there are."""
    queries, features = query.shape[-2:]
    band = (causal if is_causal else whole)(queries, key.shape[-2])
    return heads_in(math.prod(result.shape[:-2]), band, features, value.shape[-1], query.dtype)


@formula("aten.scaled_dot_product_attention", "aten._scaled_dot_product_attention_math", byte=BYTE)
@formula("aten._scaled_dot_product_attention_math_for_mps", byte=BYTE)
def scaled_dot_product_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    output: TensorSpec | Sequence[TensorSpec],
    attn_mask: TensorSpec | None = None,
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
    is_alone = isinstance(output, TensorSpec)
    result = output if is_alone else output[0]
    count, heads = _of_tensors(query, key, value, result, attn_mask, dropout_p, is_causal, scale)
    return count if is_alone else replace(count, internal_bytes=heads.internal_bytes(1, 2))


@formula("aten._triton_scaled_dot_attention", byte=BYTE)
def triton_attention(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, output: TensorSpec, dropout_p: float = 0, **_: Any
) -> Flop:
    """As `scaled_dot_product_attention`, by other names."""
    return scaled_dot_product_attention(q, k, v, output, dropout_p=dropout_p)


@formula("aten._scaled_dot_product_flash_attention_for_cpu", byte=BYTE)
@formula("aten._scaled_dot_product_flash_attention", byte=BYTE)
@formula("aten._scaled_dot_product_cudnn_attention", byte=BYTE)
@formula("aten._scaled_dot_product_efficient_attention", byte=BYTE)
@formula("aten._scaled_dot_product_fused_attention_overrideable", byte=BYTE)
def fused_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    output: Sequence[Any],
    attn_mask: TensorSpec | None = None,
    attn_bias: TensorSpec | None = None,
    dropout_p: float = 0,
    is_causal: bool = False,
    scale: float | None = None,
    v_descale: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """As `scaled_dot_product_attention`; it also returns the logarithm of each softmax's sum.

    A query takes a logarithm for that, and the addition of the maximum. On quantized operands the
    scales of queries and keys go into the scale of the scores; that of the values multiplies the
    results.
    """
    mask = attn_mask if attn_mask is not None else attn_bias
    result, logarithms = output[:2]
    count, _heads = _of_tensors(query, key, value, result, mask, dropout_p, is_causal, scale)
    # Some kernels leave it out when asked to, or round its length up.
    queries = math.prod(result.shape[:-1]) if logarithms.elements else 0
    return with_logarithms(unscaled_values(count, result, v_descale), queries)


def unscaled_values(count: Flop, result: TensorSpec, v_descale: TensorSpec | None) -> Flop:
    """`count`, and a multiplication for each number of the result where the values have a scale."""
    operations = 0 if v_descale is None else result.elements
    return replace(count, other=count.other + operations, least=count.min_flop + operations)
