"""Memory of a language model: weights, KV cache, activations, and available memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from roofline.analysis.rows import fits
from roofline.core.dtypes import DType
from roofline.errors import InputError
from roofline.llm.architecture import Architecture, AttentionKind
from roofline.llm.parts import Stage, kept_elements

Fit = Literal["fits", "minimum fits", "only without copies", "does not fit", "unknown"]
"""``minimum fits``: weights, cache and activations fit, the peak of transformers (with copies) is
unknown. ``only without copies``: that peak does not fit."""

_ENDLESS = 2**40
"""Context beyond which memory is taken as unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayers:
    """``count`` layers with an attention window of ``window`` tokens (None: all).

    ``elements`` are those of one token in one layer: 0 if the layers read the cache of others.
    """

    count: int
    window: int | None
    elements: int

    def tokens(self, context: int) -> int:
        """Return the number of tokens in the cache of a layer."""
        return context if self.window is None else min(context, self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """KV cache of a model."""

    ALSO_WRITTEN: ClassVar = ("token_bytes",)

    attention: AttentionKind
    key_value_heads: int
    dtype: DType
    layers: tuple[CacheLayers, ...]

    def __post_init__(self) -> None:
        if self.dtype.kind not in ("float", "int", "uint"):
            raise InputError(f"KV cache in {self.dtype}: not supported; use bfloat16 or int8")

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in all layers, without full windows."""
        return sum(each.count * self.dtype.byte(each.elements) for each in self.layers)

    def byte(self, context: int, batch: int = 1, shared: int = 0) -> int:
        """Return the bytes of `batch` sequences of `context` tokens.

        The first `shared` of them are the same in all sequences, and kept once.
        """
        whole = 0
        for each in self.layers:
            kept = each.tokens(context)
            own = min(kept, context - shared)
            whole += each.count * (batch * own + kept - own) * self.dtype.byte(each.elements)
        return whole


def cache_of(architecture: Architecture, dtype: DType) -> Cache:
    """Return the KV cache of an architecture in a data type."""
    layers: dict[tuple[int | None, int], int] = {}
    for kind, count in architecture.kinds.items():
        key = kind.window, kept_elements(architecture, kind)
        layers[key] = layers.get(key, 0) + count
    return Cache(
        attention=architecture.attention,
        key_value_heads=architecture.key_value_heads,
        dtype=dtype,
        layers=tuple(
            CacheLayers(count=count, window=window, elements=elements)
            for (window, elements), count in layers.items()
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Available memory: ``size_bytes`` (None: unknown), and the source of that number."""

    size_bytes: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Minimum activations: bytes per token in the layers, and of the logits per sequence.

    ``takes_context``: all tokens of a context pass the layers together; else one per sequence.
    """

    token_bytes: int
    sequence_bytes: int
    takes_context: bool

    def byte(self, context: int, batch: int = 1) -> int:
        """Return the bytes of `batch` sequences of `context` tokens."""
        tokens = context if self.takes_context else 1
        return batch * max(tokens * self.token_bytes, self.sequence_bytes)


def activations_of(architecture: Architecture, stage: Stage, dtype: DType) -> Activations:
    """Return the minimum activations: input and output of one layer, or the logits."""
    return Activations(
        token_bytes=dtype.byte(2 * architecture.width),
        sequence_bytes=dtype.byte(architecture.width + architecture.vocabulary),
        takes_context=stage == "prefill",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory footprint of ``batch`` sequences of ``context`` tokens.

    Attributes:
        weight_bytes: parameters and buffers; on several ranks, of one.
        cache_bytes: KV cache of all sequences.
        activation_bytes: minimum activations.
        peak_bytes: peak memory of transformers; None if unknown.
        max_sequences: number of sequences of this context that fit; None if unknown.
        max_context: longest context that fits at this batch; None if unknown or unlimited.
    """

    ALSO_WRITTEN: ClassVar = ("total_bytes", "fit")

    context: int
    batch: int
    weight_bytes: int
    cache_bytes: int
    activation_bytes: int
    peak_bytes: int | None
    memory: Memory
    max_sequences: int | None
    max_context: int | None

    @property
    def total_bytes(self) -> int:
        """Minimum memory in bytes."""
        return self.weight_bytes + self.cache_bytes + self.activation_bytes

    @property
    def fit(self) -> Fit:
        """Verdict on the available memory."""
        return fit_of(self.total_bytes, self.peak_bytes, self.memory.size_bytes)


def fit_of(min_bytes: int, peak_bytes: int | None, memory_bytes: int | None) -> Fit:
    """Return the verdict on available memory; None stands for unknown."""
    least_fits, peak_fits = fits(min_bytes, memory_bytes), fits(peak_bytes, memory_bytes)
    if least_fits is None:
        return "unknown"
    if not least_fits:
        return "does not fit"
    if peak_fits is None:
        return "minimum fits"
    return "fits" if peak_fits else "only without copies"


def footprint_of(
    cache: Cache,
    *,
    context: int,
    batch: int,
    weight_bytes: int,
    activations: Activations,
    memory: Memory,
    peak_bytes: int | None = None,
    shared: int = 0,
) -> Footprint:
    """Return the footprint; arguments are fields of `Footprint`, `shared` as in `Cache.byte`."""
    max_sequences = max_context = None
    if memory.size_bytes is not None:
        room = max(0, memory.size_bytes - weight_bytes)
        # The prefix of a cache is kept once.
        once = 2 * cache.byte(context, 1, shared) - cache.byte(context, 2, shared)
        each = cache.byte(context, 1, shared) - once + activations.byte(context)
        max_sequences = max(0, room - once) // each
        if not shared:
            max_context = _most_context(cache, activations, batch, room)
    return Footprint(
        context=context,
        batch=batch,
        weight_bytes=weight_bytes,
        cache_bytes=cache.byte(context, batch, shared),
        activation_bytes=activations.byte(context, batch),
        peak_bytes=peak_bytes,
        memory=memory,
        max_sequences=max_sequences,
        max_context=max_context,
    )


def _most_context(
    cache: Cache, activations: Activations, batch: int, room_bytes: int
) -> int | None:
    """Return the longest context that fits into `room_bytes`; None if unlimited."""

    def fits(context: int) -> bool:
        return cache.byte(context, batch) + activations.byte(context, batch) <= room_bytes

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
        if high > _ENDLESS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
