"""What a language model keeps of the tokens before: keys and values, layer by layer, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.errors import InputError
from roofline.foundation.dtypes import DType
from roofline.language.architecture import Architecture, AttentionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayers:
    """Layers that keep alike: ``count`` of them, each ``window`` tokens at most (None: all)."""

    count: int
    window: int | None

    def tokens(self, context: int) -> int:
        """How many tokens such a layer keeps of a context."""
        return context if self.window is None else min(context, self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The key-value cache of a model.

    ``elements`` are those that a token leaves in one layer: keys and values of all key-value heads,
    or with latent attention one vector and its position.

    Raises:
        InputError: a type that is no floating or integer type.
    """

    attention: AttentionKind
    key_value_heads: int
    elements: int
    dtype: DType
    layers: tuple[CacheLayers, ...]

    def __post_init__(self) -> None:
        if self.dtype.kind not in ("float", "int", "uint"):
            raise InputError(f"a cache of {self.dtype} cannot be; take bfloat16 or int8")

    @property
    def token_byte_of_layer(self) -> int:
        """Bytes that a token leaves in one layer."""
        return self.dtype.byte(self.elements)

    @property
    def token_byte(self) -> int:
        """Bytes that a token leaves in all layers, as long as no window is full."""
        return sum(each.count for each in self.layers) * self.token_byte_of_layer

    def byte(self, context: int, batch: int = 1) -> int:
        """Bytes of a cache of so many tokens for each of so many sequences.

        Args:
            context: tokens of a sequence; windows keep fewer.
            batch: sequences.
        """
        tokens = sum(each.count * each.tokens(context) for each in self.layers)
        return batch * tokens * self.token_byte_of_layer


def cache_of(architecture: Architecture, dtype: DType) -> Cache:
    """The cache of an architecture whose keys and values are kept in a type.

    Args:
        architecture: the model.
        dtype: what an element is kept in.
    """
    heads = architecture.key_value_heads
    latent = architecture.latent
    of_heads = heads * (architecture.key_size + architecture.value_size)
    counts: dict[int | None, int] = {}
    for window in architecture.windows:
        counts[window] = counts.get(window, 0) + 1
    return Cache(
        attention=architecture.attention,
        key_value_heads=heads,
        elements=latent.kept if latent is not None else of_heads,
        dtype=dtype,
        layers=tuple(CacheLayers(count=n, window=window) for window, n in counts.items()),
    )
