"""What a language model takes in memory, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.language.cache import Cache

Fit = Literal["fits", "only without copies", "does not fit", "unknown"]
"""``only without copies``: weights, cache and what must be alive fit, but not what transformers
holds beside them, such as the grown copy of a cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """How much there is: ``byte`` (None: not known), and who says so."""

    byte: int | None
    source: str


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
    if memory_byte is None:
        return "unknown"
    if least_byte > memory_byte:
        return "does not fit"
    return "only without copies" if (peak_byte or 0) > memory_byte else "fits"


def footprint_of(
    cache: Cache,
    *,
    context: int,
    batch: int,
    weight_byte: int,
    activation_byte: int,
    memory: Memory,
    peak_byte: int | None = None,
) -> Footprint:
    """The footprint of a batch of sequences.

    Args:
        cache: what a token leaves.
        context: tokens of each sequence.
        batch: sequences.
        weight_byte: parameters and buffers.
        activation_byte: what must be alive besides, for the whole batch.
        memory: what there is.
        peak_byte: what the library had alive at once; None: it was not run.
    """
    room = None if memory.byte is None else memory.byte - weight_byte
    most_sequences = most_context = None
    if room is not None:
        each = cache.byte(context) + -(-activation_byte // batch)
        most_sequences = max(0, room // each) if each else None
        most_context = cache.most_context(room - activation_byte, batch)
    return Footprint(
        context=context,
        batch=batch,
        weight_byte=weight_byte,
        cache_byte=cache.byte(context, batch),
        activation_byte=activation_byte,
        peak_byte=peak_byte,
        memory=memory,
        most_sequences=most_sequences,
        most_context=most_context,
    )
