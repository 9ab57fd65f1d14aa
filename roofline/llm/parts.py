"""Minimum work of prefill and decode by part, independent of the machine.

Counted are matrix products and attention, and the bytes of weights and KV cache, each once per
pass. Norms, rotary embeddings and intermediate results may stay on chip and are left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from roofline.core.dtypes import DType
from roofline.llm.architecture import Architecture

# Each token uses k of E experts. Under uniform routing all choices are equally likely and tokens
# are independent: the formulas are exact. Real routers prefer some experts, so fewer are read.

_LEAST_VARIANCE = 1e-60


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSpread:
    """Distinct experts per layer and pass, and the bytes of their weights.

    ``least`` with identical routing of all tokens, ``most`` with disjoint routing, ``expected``
    with uniform routing, whose standard deviation is ``deviation``. ``layers`` is the number of
    layers with experts; ``expert_bytes`` one expert, ``shared_bytes`` the shared ones.
    """

    tokens: int
    count: int
    per_token: int
    layers: int
    least: int
    expected: float
    deviation: float
    most: int
    expert_bytes: int
    shared_bytes: int

    @property
    def typical(self) -> int:
        """Rounded mean of uniform routing."""
        return round(self.expected)


def distinct_experts(count: int, per_token: int, tokens: int) -> tuple[float, float]:
    """Return mean and standard deviation of the distinct experts under uniform routing.

    A token leaves out one expert with probability (E - k) / E, and two with (E - k)(E - k - 1) /
    E(E - 1). The number of unused experts is a sum over experts.
    """
    free = count - per_token
    alone = (free / count) ** tokens
    pair = (free * (free - 1) / (count * (count - 1))) ** tokens if count > 1 else 0.0
    left = count * alone
    variance = count * (count - 1) * pair + left - left**2
    # Meaningless, and below the smallest number in files.
    return count - left, math.sqrt(variance) if variance > _LEAST_VARIANCE else 0.0


def expert_spread(architecture: Architecture, tokens: int, dtype: DType) -> ExpertSpread | None:
    """Return the distinct experts of `tokens` tokens; None without experts."""
    sizes = architecture.experts
    layers = sum(architecture.sparse)
    if sizes is None or not layers:
        return None
    expected, deviation = distinct_experts(sizes.count, sizes.per_token, tokens)
    products = 3 if architecture.is_gated else 2
    return ExpertSpread(
        tokens=tokens,
        count=sizes.count,
        per_token=sizes.per_token,
        layers=layers,
        least=sizes.per_token if tokens else 0,
        expected=expected,
        deviation=deviation,
        most=min(sizes.count, tokens * sizes.per_token),
        expert_bytes=dtype.byte(products * architecture.width * sizes.width),
        shared_bytes=dtype.byte(products * architecture.width * sizes.shared_width),
    )


Stage = Literal["prefill", "decode"]
STAGES: tuple[Stage, ...] = ("prefill", "decode")

PartName = Literal[
    "attention projections",
    "attention",
    "feed-forward",
    "router",
    "shared experts",
    "experts",
    "vocabulary",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSize:
    """Size of a stage: ``batch`` sequences of ``context`` tokens.

    Prefill processes a whole context and returns the logits of its last token. Decode processes one
    token per sequence, with ``context`` tokens in the KV cache.
    """

    stage: Stage
    batch: int
    context: int

    @property
    def new_tokens(self) -> int:
        """Tokens of all sequences that prefill reads or decode generates."""
        return self.batch * (self.context if self.stage == "prefill" else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of work in ``count`` equal layers; numbers are per layer.

    ``macs`` counts the full attention rectangle, ``min_flop`` only unmasked positions. ``weights``
    are elements read once; ``cache_elements`` and ``new_elements`` are read from and written to the
    cache.
    """

    name: PartName
    count: int
    macs: int
    min_flop: int
    weights: int = 0
    cache_elements: int = 0
    new_elements: int = 0
    is_quantized: bool = True


def parts_of(
    architecture: Architecture, size: StageSize, distinct: int | None = None
) -> tuple[Part, ...]:
    """Return the parts of a pass, in order; `distinct` experts per layer (None: the minimum)."""
    of, tokens, sparse = architecture, size.new_tokens, sum(architecture.sparse)
    products = (3 if of.is_gated else 2) * of.width
    windows = Counter(zip(of.windows, of.chunked, strict=True))
    found = [
        *_projections(of, tokens),
        *(
            _attention(of, size, window, count, is_chunk=is_chunk)
            for (window, is_chunk), count in windows.items()
        ),
    ]
    if dense := of.layers - sparse:
        found.append(_product("feed-forward", dense, tokens, products, of.inner_width))
    if (experts := of.experts) is not None and sparse:
        found.append(_product("router", sparse, tokens, of.width, experts.count, floats=True))
        if shared := experts.shared_width:
            found.append(_product("shared experts", sparse, tokens, products, shared))
        touched = min(experts.per_token, experts.count) if distinct is None else distinct
        each = tokens * experts.per_token
        every = _product("experts", sparse, each, products, experts.width)
        found.append(replace(every, weights=touched * every.weights))
    found.append(_product("vocabulary", 1, size.batch, of.width, of.vocabulary, floats=True))
    return tuple(found)


def _product(
    name: PartName, count: int, tokens: int, read: int, written: int, *, floats: bool = False
) -> Part:
    weights = read * written
    macs = tokens * weights
    return Part(
        name=name,
        count=count,
        macs=macs,
        min_flop=2 * macs,
        weights=weights,
        is_quantized=not floats,
    )


def _projections(of: Architecture, tokens: int) -> Iterable[Part]:
    """Yield the query, key, value and output projections."""
    heads, latent = of.heads, of.latent
    if latent is None:
        sizes = [
            (of.width, heads * of.head_size),
            (of.width, 2 * of.key_value_heads * of.head_size),
        ]
    else:
        queries, rank = heads * latent.key_size, latent.query_rank
        sizes = [(of.width, queries)] if rank is None else [(of.width, rank), (rank, queries)]
        # In prefill the last expands keys and values; in decode the same weights are absorbed into
        # queries and outputs, and cached keys are never expanded.
        expanded = heads * (latent.plain_size + latent.value_size)
        sizes += [(of.width, latent.kept), (latent.key_value_rank, expanded)]
    for read, written in (*sizes, (heads * of.value_size, of.width)):
        yield _product("attention projections", of.layers, tokens, read, written)


def attended_pairs(size: StageSize, window: int | None, *, is_chunk: bool = False) -> int:
    """Return the number of unmasked pairs of query and key in one sequence.

    With a `window` a query attends to that many tokens, itself included; in chunks only to those of
    its own chunk.
    """
    context = size.context
    if size.stage == "decode":
        seen = context + 1
        if window is not None:
            seen = context % window + 1 if is_chunk else min(seen, window)
        return seen
    if window is None:
        return _triangle(context)
    if is_chunk:
        return context // window * _triangle(window) + _triangle(context % window)
    full = min(context, window)
    return _triangle(full) + (context - full) * full


def _triangle(tokens: int) -> int:
    return tokens * (tokens + 1) // 2


def _attention(
    architecture: Architecture, size: StageSize, window: int | None, count: int, *, is_chunk: bool
) -> Part:
    latent, heads = architecture.latent, architecture.heads
    key, value = architecture.key_size, architecture.value_size
    kept, least = architecture.key_value_heads * (key + value), key + value
    decoding = size.stage == "decode"
    if latent is not None:
        kept = latent.kept
        if decoding:
            # On latent vectors. Expanded keys and values need fewer FLOP and more bytes: the
            # minimum takes the smaller of each.
            key, value = latent.kept, latent.key_value_rank
    seen = attended_pairs(size, window, is_chunk=is_chunk)
    rectangle = attended_pairs(size, window) if decoding else size.context**2
    # The cache keeps the tokens that the next one attends to.
    left = attended_pairs(replace(size, stage="decode"), window, is_chunk=is_chunk) - 1
    return Part(
        name="attention",
        count=count,
        macs=size.batch * heads * rectangle * (key + value),
        min_flop=2 * size.batch * heads * seen * min(least, key + value),
        cache_elements=size.batch * (seen - 1) * kept if decoding else 0,
        new_elements=size.batch * (1 if decoding else left) * kept,
    )


def product_weights(architecture: Architecture) -> int:
    """Return the weights of all products and experts in elements, without embeddings."""
    return sum(each.count * each.weights for each in _with_all_experts(architecture))


def weights_of(architecture: Architecture) -> int:
    """Return the weights of products and embeddings in elements, without norms and biases."""
    table = 0 if architecture.is_tied else architecture.vocabulary * architecture.width
    return product_weights(architecture) + table


def quantized_weights(architecture: Architecture) -> int:
    """Return the elements of weights that weight-only quantization applies to."""
    parts = _with_all_experts(architecture)
    return sum(each.count * each.weights for each in parts if each.is_quantized)


def _with_all_experts(architecture: Architecture) -> tuple[Part, ...]:
    sizes = architecture.experts
    size = StageSize(stage="decode", batch=1, context=1)
    return parts_of(architecture, size, sizes.count if sizes is not None else None)
