"""What a stage of a language model asks for at least, part by part, without a machine.

Only products and attention are counted, and of bytes weights, keys and values. Norms and rotations
may be done on the way, and what one part hands to the next may stay on chip. So every
implementation does at least this: weights once a pass, the cache once, each new key and value
written once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from roofline.core.dtypes import DType
from roofline.llm.architecture import Architecture

# Each token takes k of E experts. Under uniform routing every choice of k is as likely as any
# other, and tokens choose independently: the formulas are exact. Real routers prefer some experts,
# so that fewer are touched.

_LEAST_VARIANCE = 1e-60


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSpread:
    """The distinct experts that tokens touch in one layer, and the bytes of their weights.

    ``least`` if all tokens choose alike, ``most`` if they avoid each other; ``expected`` under
    uniform routing, with the standard deviation ``deviation``. ``layers`` have experts;
    ``expert_bytes`` is one of them, ``shared_bytes`` what every token goes through besides.
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
        """The whole number nearest to the mean of uniform routing."""
        return round(self.expected)


def distinct_experts(count: int, per_token: int, tokens: int) -> tuple[float, float]:
    """Return mean and standard deviation of the distinct experts under uniform routing.

    An expert is left out by one token with the chance (E - k) / E, by all with its power; two are
    left out together with (E - k)(E - k - 1) / E(E - 1). Both follow, as the number of those left
    out is a sum over experts.
    """
    free = count - per_token
    alone = (free / count) ** tokens
    pair = (free * (free - 1) / (count * (count - 1))) ** tokens if count > 1 else 0.0
    left = count * alone
    variance = count * (count - 1) * pair + left - left**2
    # Beyond any meaning, and smaller than numbers in files may be.
    return count - left, math.sqrt(variance) if variance > _LEAST_VARIANCE else 0.0


def expert_spread(architecture: Architecture, tokens: int, dtype: DType) -> ExpertSpread | None:
    """Return the experts that tokens touch; None: no layer has any."""
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
    """How large a stage is: ``batch`` sequences, ``context`` tokens each.

    Prefill takes all of a context in and gives the logits of its last token. Decode takes one
    token a sequence in, behind a cache of ``context`` tokens.
    """

    stage: Stage
    batch: int
    context: int

    @property
    def new_tokens(self) -> int:
        """Tokens that prefill takes in or decode gives, of all sequences."""
        return self.batch * (self.context if self.stage == "prefill" else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of work in ``count`` layers alike; all numbers are of one of them.

    ``macs`` takes the whole rectangle of attention, ``min_flop`` only what may be seen.
    ``weights`` are elements read once, ``cache_elements`` those of keys and values before, which
    are read, ``new_elements`` those that are written.
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
    """Return the parts of one pass of a stage, in order.

    `distinct` is how many experts a layer touches; None: as few as there can be.
    """
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
    """Queries, keys, values and what leaves attention: a product each."""
    heads, latent = of.heads, of.latent
    if latent is None:
        sizes = [
            (of.width, heads * of.head_size),
            (of.width, 2 * of.key_value_heads * of.head_size),
        ]
    else:
        queries, rank = heads * latent.key_size, latent.query_rank
        sizes = [(of.width, queries)] if rank is None else [(of.width, rank), (rank, queries)]
        # In prefill the last makes keys and values; in decode the same weights are applied to
        # queries and to what was summed instead, and keys of the cache are never made.
        expanded = heads * (latent.plain_size + latent.value_size)
        sizes += [(of.width, latent.kept), (latent.key_value_rank, expanded)]
    for read, written in (*sizes, (heads * of.value_size, of.width)):
        yield _product("attention projections", of.layers, tokens, read, written)


def seen_tokens(size: StageSize, window: int | None, *, is_chunk: bool = False) -> int:
    """Pairs of a query and a key that it may look at, in one sequence.

    Of a `window` a query sees so many tokens, itself included; of a chunk none before that in which
    it stands.
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
            # On what is kept. Keys and values that were made of it before would be fewer FLOP and
            # more bytes: the bound takes the least of both.
            key, value = latent.kept, latent.key_value_rank
    seen = seen_tokens(size, window, is_chunk=is_chunk)
    rectangle = seen_tokens(size, window) if decoding else size.context**2
    # Of a prompt, those are kept that the next token will see.
    left = seen_tokens(replace(size, stage="decode"), window, is_chunk=is_chunk) - 1
    return Part(
        name="attention",
        count=count,
        macs=size.batch * heads * rectangle * (key + value),
        min_flop=2 * size.batch * heads * seen * min(least, key + value),
        cache_elements=size.batch * (seen - 1) * kept if decoding else 0,
        new_elements=size.batch * (1 if decoding else left) * kept,
    )


def product_weights(architecture: Architecture) -> int:
    """Return the weights of all products in elements, all experts among them; no embeddings."""
    return sum(each.count * each.weights for each in _with_all_experts(architecture))


def weights_of(architecture: Architecture) -> int:
    """Return the elements of all products and of the embeddings; norms and biases left out."""
    table = 0 if architecture.is_tied else architecture.vocabulary * architecture.width
    return product_weights(architecture) + table


def quantized_weights(architecture: Architecture) -> int:
    """Return the elements of products that are quantized where weights have few bits."""
    parts = _with_all_experts(architecture)
    return sum(each.count * each.weights for each in parts if each.is_quantized)


def _with_all_experts(architecture: Architecture) -> tuple[Part, ...]:
    sizes = architecture.experts
    size = StageSize(stage="decode", batch=1, context=1)
    return parts_of(architecture, size, sizes.count if sizes is not None else None)
