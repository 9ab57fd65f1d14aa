"""The backward pass of attention in one operator.

It is handed the logarithms of the sums, not the probabilities, so it takes the scores anew: with
S = Q K^T and P = softmax(S), five products, S, dP = dO V^T, dV = P^T dO, dQ = dS K, dK = dS^T Q,
where the forward pass has two. All five are multiply-adds, over the full rectangle, and none of
them can be avoided: the least has them for the pairs that are seen. Products for gradients that
are not asked for are in neither.

Internal traffic: scores, probabilities and their two gradients, each a rectangle in the type of the
queries, written and read; and for each query the sum of dO * O, in the type of the logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.attention import Heads, heads_of, needed
from roofline.workload.formulas.attention_kernels import (
    cudnn_heads,
    efficient_heads,
    flash_heads,
)
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA

BYTE = (
    "queries, keys, values, mask, results, logarithms and gradients once; scores, probabilities and"
    " their gradients are internal"
)
ALL = (True, True, True, False)


def _backward(
    heads: Heads,
    logarithms: TensorSpec,
    *,
    scale: float | None,
    mask: TensorSpec | None = None,
    dropout_p: float = 0,
    wanted: Sequence[bool] = ALL,
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
    if not heads.scores or not any(wanted):
        return Flop()
    for_scores = for_query or for_key or for_mask
    vectors = heads.features * (1 + for_query + for_key) + heads.values * (for_scores + for_value)
    each = floats(mask) + 1 + TRANSCENDENTAL_FLOP + 2 * for_scores
    if dropout_p > 0:
        each += for_value + for_scores
    queries = heads.rows * heads.queries
    sums = queries * (2 * heads.values - 1) if for_scores and heads.values else 0
    scales = (1 + for_query) * queries * heads.features if scale != 1 else 0
    added_up = heads.scores - mask.elements if for_mask and mask is not None else 0
    has_softmax = heads.band is not None and mask is None
    softmax = heads.rows * heads.least_pairs * (1 + for_scores) if has_softmax else 0
    rectangles = 2 + 2 * for_scores
    products = heads.rows * heads.least_pairs * vectors
    return Flop(
        macs=heads.scores * vectors,
        other=heads.scores * each + sums + scales + max(added_up, 0),
        least=FLOP_PER_FMA * products + softmax + sums,
        min_macs=products,
        internal_bytes=heads.internal_bytes(rectangles, rectangles)
        + 2 * for_scores * logarithms.dtype.byte(queries),
    )


@formula("aten._scaled_dot_product_flash_attention_backward", type="attention", byte=BYTE)
@formula("aten._scaled_dot_product_flash_attention_for_cpu_backward", type="attention", byte=BYTE)
@formula("aten._scaled_dot_product_cudnn_attention_backward", type="attention", byte=BYTE)
@formula(
    *("aten._scaled_dot_product_fused_attention_overrideable_backward",),
    type="attention",
    byte=BYTE,
)
def fused_attention_backward(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    out: TensorSpec,
    logsumexp: TensorSpec,
    dropout_p: float,
    is_causal: bool,
    attn_mask: TensorSpec | None = None,
    attn_bias: TensorSpec | None = None,
    grad_input_mask: Sequence[bool] = ALL,
    scale: float | None = None,
    **_: Any,
) -> Flop:
    """Of (…, heads, sequence, features): five products where the forward pass has two."""
    heads = heads_of(query, key, value, out, is_causal)
    mask = attn_mask if attn_mask is not None else attn_bias
    # A kernel that is always given a mask is given an empty one where there is none.
    mask = mask if mask is not None and mask.elements else None
    count = _backward(
        heads, logsumexp, scale=scale, mask=mask, dropout_p=dropout_p, wanted=grad_input_mask
    )
    return replace(count, min_elements=_needed(heads, query, key, value))


def _needed(heads: Heads, query: TensorSpec, key: TensorSpec, value: TensorSpec) -> dict[str, int]:
    return needed(heads, query=query, key=key, value=value)


@formula("aten._scaled_dot_product_efficient_attention_backward", type="attention", byte=BYTE)
def efficient_attention_backward(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    attn_bias: TensorSpec | None,
    out: TensorSpec,
    logsumexp: TensorSpec,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Flop:
    """As `fused_attention_backward`; the gradient of a bias is summed over what shares it."""
    return fused_attention_backward(
        *(query, key, value, out, logsumexp, dropout_p, is_causal),
        attn_bias=attn_bias,
        grad_input_mask=grad_input_mask,
        scale=scale,
    )


@formula("aten._flash_attention_backward", type="attention", byte=BYTE)
def flash_kernel_backward(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    logsumexp: TensorSpec,
    cum_seq_q: TensorSpec | None,
    cum_seq_k: TensorSpec | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    **_: Any,
) -> Flop:
    """Of (samples, sequence, heads, features), or of packed sequences without samples."""
    heads = flash_heads(
        *(query, key, value, _starts(cum_seq_q, cum_seq_k), (max_q, max_k), is_causal),
        *(window_size_left, window_size_right),
    )
    count = _backward(heads, logsumexp, scale=scale, dropout_p=dropout_p)
    return replace(count, min_elements=_needed(heads, query, key, value))


def _starts(
    queries: TensorSpec | None, keys: TensorSpec | None
) -> tuple[TensorSpec | None, TensorSpec | None]:
    """Where packed sequences start; kernels that must be given some are given empty ones."""
    return (queries if queries is not None and queries.elements else None), keys


@formula("aten._efficient_attention_backward", type="attention", byte=BYTE)
def efficient_kernel_backward(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    bias: TensorSpec | None,
    cu_seqlens_q: TensorSpec | None,
    cu_seqlens_k: TensorSpec | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    logsumexp: TensorSpec,
    dropout_p: float,
    custom_mask_type: int,
    bias_requires_grad: bool,
    scale: float | None = None,
    window_size: int | None = None,
    **_: Any,
) -> Flop:
    """Of (samples, sequence, heads, features), or packed as one sample."""
    heads = efficient_heads(
        *(query, key, value, _starts(cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k)),
        *(custom_mask_type, window_size),
    )
    wanted = (True, True, True, bias_requires_grad and bias is not None)
    count = _backward(heads, logsumexp, scale=scale, mask=bias, dropout_p=dropout_p, wanted=wanted)
    return replace(count, min_elements=_needed(heads, query, key, value))


@formula("aten._cudnn_attention_backward", type="attention", byte=BYTE)
def cudnn_kernel_backward(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    logsumexp: TensorSpec,
    attn_bias: TensorSpec | None,
    cum_seq_q: TensorSpec | None,
    cum_seq_k: TensorSpec | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    scale: float | None = None,
    **_: Any,
) -> Flop:
    """Of (samples, heads, sequence, features), or of packed (sequence, heads, features)."""
    starts = _starts(cum_seq_q, cum_seq_k)
    heads = cudnn_heads(query, key, value, starts, (max_q, max_k), is_causal)
    mask = attn_bias if attn_bias is not None and attn_bias.elements else None
    count = _backward(heads, logsumexp, scale=scale, mask=mask, dropout_p=dropout_p)
    return replace(count, min_elements=_needed(heads, query, key, value))
