"""Attention: softmax(Q K^T * scale + mask) V, and the layers that torch runs as one operator.

The multiply-adds are those of the full rectangle of queries and keys, causal or not. A fused
operator's traffic is its operands, which is what it cannot avoid: what its parts hand to each
other in memory is not in it. Grouped keys and values are counted in their own number of heads,
as torch hands them over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.activation import gelu
from roofline.workload.formulas.matmul import linear
from roofline.workload.formulas.normalization import layer_norm
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, floats, one_operation
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


def _triangle(queries: int, keys: int) -> int:
    """Keys that all queries see together, each those up to its own number."""
    square = min(queries, keys)
    return square * (square + 1) // 2 + (queries - square) * keys


def _attention(
    rows: int,
    queries: int,
    keys: int,
    features: int,
    values: int,
    *,
    is_causal: bool = False,
    is_masked: bool = False,
    operations: int = 0,
) -> Flop:
    """`rows` times attention of `queries` to `keys`: two products and a softmax between them.

    ``features`` and ``values`` are the lengths of the vectors that are compared and of those that
    are added up; ``operations`` are what a score takes besides softmax, the addition of a mask say.

    The least: both products for the scores that ``is_causal`` leaves, their exponentials and the
    sums of these, and the division of probabilities or of outputs, whichever are fewer. Scores can
    be accumulated on top of a mask, a scale goes into the exponent, and the maximum that is
    subtracted only guards against overflow. What a mask leaves cannot be known from shapes: its
    scores count as computed, but need no exponential.
    """
    if not keys:
        return Flop()
    pairs, softmax = rows * queries * keys, 4 + TRANSCENDENTAL_FLOP
    seen = _triangle(queries, keys) if is_causal else queries * keys
    # One query of `seen` keys divides as many probabilities, or as many numbers as a value has.
    fewer = min(keys, values)
    divisions = _triangle(queries, fewer) if is_causal else queries * fewer
    exponentials = 0 if is_masked else 2 * seen - queries + divisions
    return Flop(
        multiply_add=pairs * (features + values),
        other=pairs * (operations + softmax) - 2 * rows * queries,
        least=rows * (FLOP_PER_FMA * seen * (features + values) + exponentials),
    )


def _of_tensors(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    result: TensorSpec,
    mask: TensorSpec | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Flop:
    """Attention as torch is asked for it; the queries take the scale, unless it is 1."""
    queries, features = query.shape[-2:]
    rows = math.prod(result.shape[:-2])
    core = _attention(
        rows,
        queries,
        key.shape[-2],
        features,
        value.shape[-1],
        is_causal=is_causal,
        is_masked=mask is not None,
        operations=floats(mask) + (dropout_p > 0),
    )
    scaled = 0 if scale == 1 else rows * queries * features
    least_elements: dict[str, int] = {}
    if is_causal and queries < key.shape[-2]:
        # No query sees the keys behind the last of them. What heads or samples share is there once.
        for name, spec in (("key", key), ("value", value)):
            least_elements[name] = spec.distinct_elements * queries // spec.shape[-2]
    return replace(core, other=core.other + scaled, least_elements=least_elements)


@formula("aten.scaled_dot_product_attention", "aten._scaled_dot_product_attention_math")
@formula("aten._scaled_dot_product_attention_math_for_mps")
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
    where there are fewer of one.
    """
    result = output if isinstance(output, TensorSpec) else output[0]
    return _of_tensors(query, key, value, result, attn_mask, dropout_p, is_causal, scale)


@formula("aten._scaled_dot_product_flash_attention_for_cpu")
@formula("aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_cudnn_attention")
@formula("aten._scaled_dot_product_efficient_attention")
@formula("aten._scaled_dot_product_fused_attention_overrideable")
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
    **_: Any,
) -> Flop:
    """As `scaled_dot_product_attention`; it also returns the logarithm of each softmax's sum.

    A query takes a logarithm for that, and the addition of the maximum.
    """
    mask = attn_mask if attn_mask is not None else attn_bias
    result, logarithms = output[:2]
    core = _of_tensors(query, key, value, result, mask, dropout_p, is_causal, scale)
    # Some kernels leave it out when asked to, or round its length up.
    queries = math.prod(result.shape[:-1]) if logarithms.elements else 0
    return replace(
        core,
        other=core.other + queries * (1 + TRANSCENDENTAL_FLOP),
        least=core.least_flop + queries,
    )


def _sum(*parts: Flop) -> Flop:
    return Flop(
        multiply_add=sum(each.multiply_add for each in parts),
        other=sum(each.other for each in parts),
        least=sum(each.least_flop for each in parts),
    )


@formula("aten._native_multi_head_attention", type="attention")
def multi_head_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    embed_dim: int,
    num_head: int,
    qkv_bias: TensorSpec | None,
    proj_bias: TensorSpec | None,
    mask: TensorSpec | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    **_: Any,
) -> Flop:
    """The sum of its parts: three projections, attention with scaled queries, one projection.

    Weights that are asked for are averaged over the heads unless told not to. The multiply-adds are
    those of the layer taken apart, whose other operations differ in two things: a masked score is
    an addition there (here masks are made boolean first, and select), and where weights are not
    asked for, `fused_attention` also returns logarithms.
    """
    samples, queries = math.prod(query.shape[:-2]), query.shape[-2]
    keys, width = key.shape[-2], embed_dim // max(num_head, 1)
    projected = [replace(each, shape=(*each.shape[:-1], embed_dim)) for each in (query, key, value)]
    weights = samples * queries * keys * num_head
    return _sum(
        *(
            linear(each, out, bias=qkv_bias)
            for each, out in zip((query, key, value), projected, strict=True)
        ),
        # The scale of the queries, which can go into the exponent.
        Flop(other=projected[0].elements, least=0),
        _attention(samples * num_head, queries, keys, width, width, is_masked=mask is not None),
        Flop(other=weights if need_weights and average_attn_weights else 0),
        linear(projected[0], query, bias=proj_bias),
    )


@formula("aten._transformer_encoder_layer_fwd", type="attention")
def encoder_layer(
    src: TensorSpec,
    embed_dim: int,
    num_heads: int,
    qkv_bias: TensorSpec | None,
    proj_bias: TensorSpec | None,
    use_gelu: bool,
    norm_weight_1: TensorSpec | None,
    norm_bias_1: TensorSpec | None,
    norm_weight_2: TensorSpec | None,
    norm_bias_2: TensorSpec | None,
    ffn_weight_1: TensorSpec,
    ffn_bias_1: TensorSpec | None,
    ffn_bias_2: TensorSpec | None,
    mask: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """The sum of its parts: attention of the source to itself, two linear layers, two norms.

    Around either half a residual is added; norms first or last is the same work. Relu or gelu
    between the linear layers. Against the layer taken apart see `multi_head_attention`.
    """
    hidden = replace(src, shape=(*src.shape[:-1], ffn_weight_1.shape[0]))
    shape = src.shape[-1:]
    return _sum(
        multi_head_attention(
            src, src, src, embed_dim, num_heads, qkv_bias, proj_bias, mask, need_weights=False
        ),
        layer_norm(src, shape, norm_weight_1, norm_bias_1),
        linear(src, hidden, bias=ffn_bias_1),
        gelu(hidden) if use_gelu else one_operation(hidden),
        linear(hidden, src, bias=ffn_bias_2),
        layer_norm(src, shape, norm_weight_2, norm_bias_2),
        Flop(other=2 * src.elements),
    )


@formula("aten._transform_bias_rescale_qkv", type="attention")
def bias_and_scale(qkv: TensorSpec, **_: Any) -> Flop:
    """A bias for queries, keys and values, and a scale for the queries, a third of them."""
    return Flop(other=qkv.elements + qkv.elements // 3)
