"""Minimum work of prefill and decode by part, independent of the machine.

Counted are matrix products and attention, and the bytes of weights and KV cache, each once per
pass. Norms, rotary embeddings and intermediate results may stay on chip and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from roofline.core.dtypes import DType
from roofline.llm.architecture import Architecture, LayerKind

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

    Prefill processes a context and returns the logits of its last token. Decode processes ``drafts
    + 1`` tokens per sequence, with ``context`` tokens in the KV cache: one, and drafts to verify.
    The first ``shared`` tokens of the context are the same in all sequences, and already cached.
    """

    stage: Stage
    batch: int
    context: int
    shared: int = 0
    drafts: int = 0

    @property
    def new_tokens(self) -> int:
        """Tokens of all sequences that prefill reads or decode generates."""
        is_prefill = self.stage == "prefill"
        return self.batch * (self.context - self.shared if is_prefill else 1 + self.drafts)

    @property
    def logits(self) -> int:
        """Tokens of all sequences whose logits are computed."""
        return self.batch * (1 + self.drafts)


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
    found = [
        *_projections(of, tokens),
        *(_attention(of, size, kind, count) for kind, count in of.kinds.items()),
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
    found.append(_product("vocabulary", 1, size.logits, of.width, of.vocabulary, floats=True))
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
    for kind, count in of.kinds.items():
        if latent is None:
            one = kind.key_value_heads * kind.head_size
            sizes = [(of.width, heads * kind.head_size)]
            if kind.has_cache:
                sizes.append((of.width, (1 + kind.has_values) * one))
        else:
            queries, rank = heads * latent.key_size, latent.query_rank
            sizes = [(of.width, queries)] if rank is None else [(of.width, rank), (rank, queries)]
            # In prefill the last expands keys and values; in decode the same weights are absorbed
            # into queries and outputs, and cached keys are never expanded.
            expanded = heads * (latent.plain_size + latent.value_size)
            sizes += [(of.width, latent.kept), (latent.key_value_rank, expanded)]
        for read, written in (*sizes, (heads * of.value_size(kind), of.width)):
            yield _product("attention projections", count, tokens, read, written)


def _seen(position: int, window: int | None, *, is_chunk: bool) -> int:
    """Return the number of tokens that the one at `position` (from 0) attends to, with itself."""
    if window is None:
        return position + 1
    return position % window + 1 if is_chunk else min(position + 1, window)


def attended_pairs(size: StageSize, window: int | None, *, is_chunk: bool = False) -> int:
    """Return the number of unmasked pairs of query and key in one sequence.

    With a `window` a query attends to that many tokens, itself included; in chunks only to those of
    its own chunk.
    """
    context = size.context
    if size.stage == "decode":
        places = range(context, context + 1 + size.drafts)
        return sum(_seen(each, window, is_chunk=is_chunk) for each in places)

    def pairs(tokens: int) -> int:
        if window is None:
            return _triangle(tokens)
        if is_chunk:
            return tokens // window * _triangle(window) + _triangle(tokens % window)
        full = min(tokens, window)
        return _triangle(full) + (tokens - full) * full

    return pairs(context) - pairs(size.shared)


def _triangle(tokens: int) -> int:
    return tokens * (tokens + 1) // 2


def kept_elements(of: Architecture, kind: LayerKind) -> int:
    """Return the elements of a token in the KV cache of a layer; 0 if it has none."""
    if not kind.has_cache:
        return 0
    if of.latent is not None:
        return of.latent.kept
    return kind.key_value_heads * 2 * kind.head_size


def _attention(of: Architecture, size: StageSize, kind: LayerKind, count: int) -> Part:
    latent, heads = of.latent, of.heads
    key, value = of.key_size(kind), of.value_size(kind)
    least, decoding = key + value, size.stage == "decode"
    if latent is not None and decoding:
        # On latent vectors. Expanded keys and values need fewer FLOP and more bytes: the minimum
        # takes the smaller of each.
        key, value = latent.kept, latent.key_value_rank
    window, is_chunk = kind.window, kind.is_chunk
    pairs = attended_pairs(size, window, is_chunk=is_chunk)
    if decoding:
        rectangle = attended_pairs(size, window)
    else:
        rectangle = (size.context - size.shared) * size.context

    def behind(tokens: int) -> int:
        """Return the cached tokens that the next one attends to."""
        return _seen(tokens, window, is_chunk=is_chunk) - 1

    # Tokens of the shared prefix are read once for all sequences.
    own = size.context - size.shared
    if decoding:
        read = size.batch * min(behind(size.context), own) + max(0, behind(size.context) - own)
        written = size.batch * (1 + size.drafts)
    else:
        read, written = behind(size.shared), size.batch * min(behind(size.context), own)
    kept = kept_elements(of, kind)
    return Part(
        name="attention",
        count=count,
        macs=size.batch * heads * rectangle * (key + value),
        min_flop=2 * size.batch * heads * pairs * min(least, key + value),
        cache_elements=read * kept,
        new_elements=written * kept,
    )


def product_weights(architecture: Architecture) -> int:
    """Return the weights of all products and experts in elements, without embeddings."""
    return sum(each.count * each.weights for each in all_parts(architecture))


def table_weights(architecture: Architecture) -> int:
    """Return the elements of an embedding that is not shared with the vocabulary product."""
    return 0 if architecture.is_tied else architecture.vocabulary * architecture.width


def weights_of(architecture: Architecture) -> int:
    """Return all weights in elements; without norms and biases if these are unknown."""
    small = architecture.small_weights or 0
    return product_weights(architecture) + table_weights(architecture) + small


def all_parts(architecture: Architecture) -> tuple[Part, ...]:
    """Return the parts of a pass that touches all experts, and so all weights of products."""
    sizes = architecture.experts
    size = StageSize(stage="decode", batch=1, context=1)
    return parts_of(architecture, size, sizes.count if sizes is not None else None)
