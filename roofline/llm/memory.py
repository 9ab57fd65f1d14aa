"""Memory of a language model: weights, KV cache, activations, and whether they fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal

from roofline.analysis import fits
from roofline.core.dtypes import DType
from roofline.errors import InputError
from roofline.llm.architecture import Architecture, AttentionKind
from roofline.llm.parts import Stage

Fit = Literal["fits", "fits at the least", "only without copies", "does not fit", "unknown"]
"""``fits at the least``: weights, cache and activations fit; the peak of transformers, which makes
copies, is not known. ``only without copies``: that peak does not fit."""

_ENDLESS = 2**40
"""A context beyond all: what fits with it fits with any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayers:
    """Layers that keep alike: ``count`` of them, each ``window`` tokens at most (None: all)."""

    count: int
    window: int | None

    def tokens(self, context: int) -> int:
        """Return how many tokens of a context such a layer keeps."""
        return context if self.window is None else min(context, self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The KV cache of a model.

    ``elements`` are of a token in one layer: keys and values of all KV heads, or with latent
    attention one vector and its position.
    """

    ALSO_WRITTEN: ClassVar = ("token_bytes",)

    attention: AttentionKind
    key_value_heads: int
    elements: int
    dtype: DType
    layers: tuple[CacheLayers, ...]

    def __post_init__(self) -> None:
        if self.dtype.kind not in ("float", "int", "uint"):
            raise InputError(f"a cache of {self.dtype} cannot be; take bfloat16 or int8")

    @property
    def token_bytes_of_layer(self) -> int:
        """Bytes of a token in one layer."""
        return self.dtype.byte(self.elements)

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in all layers, as long as no window is full."""
        return sum(each.count for each in self.layers) * self.token_bytes_of_layer

    def byte(self, context: int, batch: int = 1) -> int:
        """Return the bytes of `batch` sequences of `context` tokens; windows keep fewer tokens."""
        tokens = sum(each.count * each.tokens(context) for each in self.layers)
        return batch * tokens * self.token_bytes_of_layer


def cache_of(architecture: Architecture, dtype: DType) -> Cache:
    """Return the cache of an architecture whose keys and values are kept in a type."""
    heads, latent = architecture.key_value_heads, architecture.latent
    of_heads = heads * (architecture.key_size + architecture.value_size)
    return Cache(
        attention=architecture.attention,
        key_value_heads=heads,
        elements=latent.kept if latent is not None else of_heads,
        dtype=dtype,
        layers=tuple(
            CacheLayers(count=count, window=window)
            for window, count in Counter(architecture.windows).items()
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Available memory: ``size_bytes`` (None: not known), and the source of that number."""

    size_bytes: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Minimum activations: bytes of each token that goes through the layers, or of the logits of a
    sequence.

    ``takes_context``: all tokens of a context go through the layers at once; else one of each
    sequence.
    """

    token_bytes: int
    sequence_bytes: int
    takes_context: bool

    def byte(self, context: int, batch: int = 1) -> int:
        """Return the bytes of `batch` sequences of `context` tokens."""
        tokens = context if self.takes_context else 1
        return batch * max(tokens * self.token_bytes, self.sequence_bytes)


def activations_of(architecture: Architecture, stage: Stage, dtype: DType) -> Activations:
    """Return the activations of a stage in which every sequence takes one step.

    Each layer reads and writes what goes through it; the last token becomes logits.
    """
    return Activations(
        token_bytes=dtype.byte(2 * architecture.width),
        sequence_bytes=dtype.byte(architecture.width + architecture.vocabulary),
        takes_context=stage == "prefill",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory of ``batch`` sequences of ``context`` tokens.

    Attributes:
        weight_bytes: of parameters and buffers.
        cache_bytes: of keys and values of all sequences.
        activation_bytes: the minimum of activations.
        peak_bytes: the peak of the passes of transformers; None: they were not run.
        max_sequences: of this context that fit; None: memory is not known.
        max_context: that fits at this batch; None: memory is not known, or any context fits.
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
        """Minimum memory."""
        return self.weight_bytes + self.cache_bytes + self.activation_bytes

    @property
    def fit(self) -> Fit:
        """Whether it fits."""
        return fit_of(self.total_bytes, self.peak_bytes, self.memory.size_bytes)


def fit_of(min_bytes: int, peak_bytes: int | None, memory_bytes: int | None) -> Fit:
    """Return whether something fits into memory; a peak or a memory of None is not known."""
    least_fits, peak_fits = fits(min_bytes, memory_bytes), fits(peak_bytes, memory_bytes)
    if least_fits is None:
        return "unknown"
    if not least_fits:
        return "does not fit"
    if peak_fits is None:
        return "fits at the least"
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
) -> Footprint:
    """Return the footprint of a batch of sequences; the arguments are fields of `Footprint`."""
    max_sequences = max_context = None
    if memory.size_bytes is not None:
        room = max(0, memory.size_bytes - weight_bytes)
        max_sequences = room // (cache.byte(context) + activations.byte(context))
        max_context = _most_context(cache, activations, batch, room)
    return Footprint(
        context=context,
        batch=batch,
        weight_bytes=weight_bytes,
        cache_bytes=cache.byte(context, batch),
        activation_bytes=activations.byte(context, batch),
        peak_bytes=peak_bytes,
        memory=memory,
        max_sequences=max_sequences,
        max_context=max_context,
    )


def _most_context(
    cache: Cache, activations: Activations, batch: int, room_bytes: int
) -> int | None:
    """Return the longest context that fits into `room_bytes`; None: any does."""

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
