"""Memory of a language model: weights, KV cache, activations, and available memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal

from roofline.analysis import fits
from roofline.core.dtypes import DType
from roofline.errors import InputError
from roofline.llm.architecture import Architecture, AttentionKind
from roofline.llm.parts import Stage

Fit = Literal["fits", "minimum fits", "only without copies", "does not fit", "unknown"]
"""``minimum fits``: weights, cache and activations fit, the peak of transformers (with copies) is
unknown. ``only without copies``: that peak does not fit."""

_ENDLESS = 2**40
"""Context beyond which memory is taken as unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayers:
    """``count`` layers with an attention window of ``window`` tokens (None: all)."""

    count: int
    window: int | None

    def tokens(self, context: int) -> int:
        """Return the number of tokens in the cache of a layer."""
        return context if self.window is None else min(context, self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """KV cache of a model; ``elements`` are those of one token in one layer."""

    ALSO_WRITTEN: ClassVar = ("token_bytes",)

    attention: AttentionKind
    key_value_heads: int
    elements: int
    dtype: DType
    layers: tuple[CacheLayers, ...]

    def __post_init__(self) -> None:
        if self.dtype.kind not in ("float", "int", "uint"):
            raise InputError(f"KV cache in {self.dtype}: not supported; use bfloat16 or int8")

    @property
    def token_bytes_of_layer(self) -> int:
        """Bytes of a token in one layer."""
        return self.dtype.byte(self.elements)

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in all layers, without full windows."""
        return sum(each.count for each in self.layers) * self.token_bytes_of_layer

    def byte(self, context: int, batch: int = 1) -> int:
        """Return the bytes of `batch` sequences of `context` tokens."""
        tokens = sum(each.count * each.tokens(context) for each in self.layers)
        return batch * tokens * self.token_bytes_of_layer


def cache_of(architecture: Architecture, dtype: DType) -> Cache:
    """Return the KV cache of an architecture in a data type."""
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
        weight_bytes: parameters and buffers.
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
) -> Footprint:
    """Return the footprint; arguments are fields of `Footprint`."""
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
