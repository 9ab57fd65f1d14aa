"""Layers of attention that torch runs as one operator."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.activation import gelu
from roofline.workload.formulas.attention import heads_in, of_heads
from roofline.workload.formulas.attention_band import whole
from roofline.workload.formulas.matmul import linear
from roofline.workload.formulas.normalization import layer_norm
from roofline.workload.formulas.pointwise import one_operation
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def _sum(*parts: Flop) -> Flop:
    return Flop(
        macs=sum(each.macs for each in parts),
        other=sum(each.other for each in parts),
        least=sum(each.min_flop for each in parts),
        min_macs=sum(each.min_macs or 0 for each in parts),
        internal_bytes=sum(each.internal_bytes for each in parts),
    )


def _handed_over(*tensors: TensorSpec) -> Flop:
    """What one part writes and another one reads."""
    return Flop(internal_bytes=sum(2 * each.dtype.byte(each.elements) for each in tensors))


@formula(
    "aten._native_multi_head_attention",
    "aten._triton_multi_head_attention",
    type="attention",
    byte="input, weights and result once; projections, scores, probabilities, context are internal",
)
def multi_head_attention(
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    embed_dim: int,
    num_head: int,
    qkv_bias: TensorSpec | None,
    proj_bias: TensorSpec | None,
    mask: TensorSpec | None = None,
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
    samples, queries = math.prod(query.shape[:-2]), query.shape[-2]
    width = embed_dim // max(num_head, 1)
    projected = [replace(each, shape=(*each.shape[:-1], embed_dim)) for each in (query, key, value)]
    band = whole(queries, key.shape[-2])
    heads = heads_in(samples * num_head, band, width, width, query.dtype)
    core = of_heads(heads, is_masked=mask is not None)
    is_averaged = need_weights and average_attn_weights
    if need_weights:
        written, read = (2, 3) if is_averaged else (1, 2)
        core = replace(core, internal_bytes=heads.internal_bytes(written, read))
    return _sum(
        *(
            linear(each, out, bias=qkv_bias)
            for each, out in zip((query, key, value), projected, strict=True)
        ),
        # The scale of the queries, which can go into the exponent.
        Flop(other=projected[0].elements, least=0),
        core,
        Flop(other=heads.scores if is_averaged else 0),
        linear(projected[0], query, bias=proj_bias),
        _handed_over(*projected, projected[0]),
    )


@formula(
    "aten._transformer_encoder_layer_fwd",
    type="attention",
    byte="input, weights and result once; all that is between the parts is internal",
)
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

    Internal traffic, besides that of attention: five tensors like the source, each written and read
    (what attention and the linear layers give, what a norm takes or gives, a sum), and two as wide
    as the linear layers are inside. That residuals read their tensor once more is not in it.
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
        _handed_over(*5 * [src], *2 * [hidden]),
    )


@formula("aten._transform_bias_rescale_qkv", type="attention")
def bias_and_scale(qkv: TensorSpec, **_: Any) -> Flop:
    """A bias for queries, keys and values, and a scale for the queries, a third of them."""
    return Flop(other=qkv.elements + qkv.elements // 3)
