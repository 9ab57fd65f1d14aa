"""What a language model takes in memory, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.analysis import fits
from roofline.foundation.dtypes import DType
from roofline.language.architecture import Architecture
from roofline.language.cache import Cache
from roofline.language.parts import Stage

Fit = Literal["fits", "fits at the least", "only without copies", "does not fit", "unknown"]
"""``fits at the least``: weights, cache and what must be alive fit; whether the copies do that
transformers holds beside them, nobody asked. ``only without copies``: they do not, such as those
that it makes of a prompt's keys."""

_ENDLESS = 2**40
"""No context is as long: what still fits then fits with any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """How much there is: ``byte`` (None: not known), and who says so."""

    byte: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """What must be alive beside weights and cache: what goes through the layers, or the logits.

    ``token_byte`` for each token that goes through the layers, all of a context where
    ``takes_context``, else one of each sequence; ``sequence_byte`` for the logits of a sequence.
    """

    token_byte: int
    sequence_byte: int
    takes_context: bool

    def byte(self, context: int, batch: int = 1) -> int:
        """Bytes for so many sequences of so many tokens."""
        tokens = context if self.takes_context else 1
        return batch * max(tokens * self.token_byte, self.sequence_byte)


def activations_of(architecture: Architecture, stage: Stage, dtype: DType) -> Activations:
    """The activations of a stage in which every sequence takes one step.

    A layer reads what goes through it and writes it anew; the last token becomes logits.

    Args:
        architecture: the model.
        stage: prefill takes all tokens of a context at once.
        dtype: what it computes in.
    """
    return Activations(
        token_byte=dtype.byte(2 * architecture.width),
        sequence_byte=dtype.byte(architecture.width + architecture.vocabulary),
        takes_context=stage == "prefill",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What so many sequences of such a context take.

    ``weight_byte`` are parameters and buffers, ``cache_byte`` keys and values of all sequences,
    ``activation_byte`` what must be alive besides, at the least. ``peak_byte`` is the most that the
    pass of the library had alive at once; None: it was not run. ``memory`` is what there is.
    ``most_sequences`` of this context would fit and ``most_context`` for this batch, both None
    where memory is not known or there is no end.
    """

    context: int
    batch: int
    weight_byte: int
    cache_byte: int
    activation_byte: int
    peak_byte: int | None
    memory: Memory
    most_sequences: int | None
    most_context: int | None

    @property
    def byte(self) -> int:
        """What it takes at the least."""
        return self.weight_byte + self.cache_byte + self.activation_byte

    @property
    def fit(self) -> Fit:
        """Whether it fits."""
        return fit_of(self.byte, self.peak_byte, self.memory.byte)


def fit_of(least_byte: int, peak_byte: int | None, memory_byte: int | None) -> Fit:
    """Whether something fits into memory.

    Args:
        least_byte: what it takes at the least.
        peak_byte: what the library takes; None: not known.
        memory_byte: what there is; None: not known.
    """
    least_fits, peak_fits = fits(least_byte, memory_byte), fits(peak_byte, memory_byte)
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
    weight_byte: int,
    activations: Activations,
    memory: Memory,
    peak_byte: int | None = None,
) -> Footprint:
    """The footprint of a batch of sequences.

    Args:
        cache: what a token leaves.
        context: tokens of each sequence.
        batch: sequences.
        weight_byte: parameters and buffers.
        activations: what must be alive besides.
        memory: what there is.
        peak_byte: what the library had alive at once; None: it was not run.
    """
    most_sequences = most_context = None
    if memory.byte is not None:
        room = max(0, memory.byte - weight_byte)
        most_sequences = room // (cache.byte(context) + activations.byte(context))
        most_context = _most_context(cache, activations, batch, room)
    return Footprint(
        context=context,
        batch=batch,
        weight_byte=weight_byte,
        cache_byte=cache.byte(context, batch),
        activation_byte=activations.byte(context, batch),
        peak_byte=peak_byte,
        memory=memory,
        most_sequences=most_sequences,
        most_context=most_context,
    )


def _most_context(cache: Cache, activations: Activations, batch: int, room_byte: int) -> int | None:
    """The longest context that so much room is enough for; None: any is."""

    def fits(context: int) -> bool:
        return cache.byte(context, batch) + activations.byte(context, batch) <= room_byte

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
        if high > _ENDLESS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
