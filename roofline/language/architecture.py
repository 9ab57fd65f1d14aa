"""The sizes of a language model, out of its configuration: what its work and memory follow from.

Nothing is built: a configuration is plain data, as transformers writes it into ``config.json``.
Keys differ from family to family; `keys` knows by which names each size goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roofline.errors import InputError
from roofline.foundation.text import printable
from roofline.language.keys import Keys
from roofline.language.layers import (
    ExpertSizes,
    chunked_of,
    expert_layers_of,
    expert_sizes_of,
    windows_of,
)

AttentionKind = Literal["multi-head", "grouped-query", "multi-query", "latent"]

_TWO_PRODUCTS = frozenset(
    (
        *("apertus", "arcee", "biogpt", "bloom", "codegen", "ctrl", "falcon", "gpt_bigcode"),
        *("gpt2", "gpt_neo", "gpt_neox", "gpt_neox_japanese", "gptj", "jais2", "mpt", "nanochat"),
        *("nemotron", "openai-gpt", "opt", "persimmon", "phi", "starcoder2", "xglm"),
        # Decoders of models that have an encoder too, where they are built alone.
        *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp"),
        *("pegasus", "plbart", "trocr", "whisper"),
    )
)
"""Types whose layers end in two products; those of all others in three, of which one is a gate."""


_OF_STATES = ("mamba_", "ssm_")
"""How settings of layers begin that keep states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSizes:
    """Latent attention: keys and values of all heads are made of one vector a token.

    ``key_value_rank`` is the length of that vector, ``rotary_size`` of what stands beside it for
    the position, ``plain_size`` and ``value_size`` of a head's key without it and of its value;
    ``query_rank`` of the vector that queries are made of (None: they are made of the token itself).
    """

    key_value_rank: int
    query_rank: int | None
    plain_size: int
    rotary_size: int
    value_size: int

    @property
    def key_size(self) -> int:
        """Elements of a head's key, its position included."""
        return self.plain_size + self.rotary_size

    @property
    def kept(self) -> int:
        """Elements that a token leaves in the cache of a layer."""
        return self.key_value_rank + self.rotary_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The sizes of a language model that continues text.

    ``windows`` has for each layer how many tokens it looks back at most (None: all), ``chunked``
    whether no further than to where its chunk of so many begins, ``sparse`` whether its products
    are experts. ``inner_width`` is that of layers without experts,
    ``is_gated`` whether they have three products. ``positions`` is the longest context that the
    configuration names; None: none.

    Raises:
        InputError: sizes that no model can have.
    """

    model_type: str
    width: int
    heads: int
    key_value_heads: int
    head_size: int
    inner_width: int
    is_gated: bool
    vocabulary: int
    is_tied: bool
    windows: tuple[int | None, ...]
    chunked: tuple[bool, ...]
    sparse: tuple[bool, ...]
    experts: ExpertSizes | None = None
    latent: LatentSizes | None = None
    positions: int | None = None

    def __post_init__(self) -> None:
        if min(self.heads, self.key_value_heads) < 1:
            raise InputError(f"{self.heads} heads and {self.key_value_heads} KV heads: at least 1")
        if self.latent is None and self.heads % self.key_value_heads:
            raise InputError(
                f"{self.heads} heads cannot share {self.key_value_heads} key-value heads evenly;"
                f" {_divisors(self.heads)}"
            )

    @staticmethod
    def of(configuration: Mapping[str, Any]) -> Architecture:
        """The architecture that a configuration describes.

        Args:
            configuration: plain data with the keys of transformers; that of the text, where a model
                takes images as well, may lie in ``text_config``.

        Raises:
            InputError: a size is missing or impossible, or the model is none that continues text.
        """
        return _architecture(_text(configuration))

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.windows)

    @property
    def attention(self) -> AttentionKind:
        """How heads share keys and values."""
        if self.latent is not None:
            return "latent"
        if self.key_value_heads == self.heads:
            return "multi-head"
        return "multi-query" if self.key_value_heads == 1 else "grouped-query"

    @property
    def key_size(self) -> int:
        """Elements of a head's key."""
        return self.latent.key_size if self.latent else self.head_size

    @property
    def value_size(self) -> int:
        """Elements of a head's value."""
        return self.latent.value_size if self.latent else self.head_size


def _text(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    if configuration.get("is_encoder_decoder"):
        name = printable(str(configuration.get("model_type", "the model")))
        raise InputError(
            f"{name} has an encoder beside its decoder; stages are of models that only continue"
            " text, such as hf:llama"
        )
    inner = configuration.get("text_config")
    return {**configuration, **inner} if isinstance(inner, Mapping) else configuration


def _architecture(configuration: Mapping[str, Any]) -> Architecture:
    keys = Keys(configuration)
    state = next((key for key in configuration if key.startswith(_OF_STATES)), "")
    if state:
        raise InputError(
            f"{state} is of layers that keep a state beside keys and values, and how they work is"
            " not known here; stages are of models whose layers keep nothing else, such as hf:llama"
        )
    layers = keys.size("layers")
    width = keys.size("width")
    heads = keys.size("heads")
    model_type = str(configuration.get("model_type") or "")
    latent = _latent(keys)
    experts = expert_sizes_of(keys)
    return Architecture(
        model_type=model_type,
        width=width,
        heads=heads,
        key_value_heads=_key_value_heads(keys, heads),
        head_size=_head_size(keys, width, heads, is_latent=latent is not None),
        inner_width=keys.optional("inner width") or 4 * width,
        is_gated=model_type not in _TWO_PRODUCTS,
        vocabulary=keys.size("vocabulary"),
        is_tied=configuration.get("tie_word_embeddings") is not False,
        windows=windows_of(keys, layers),
        chunked=chunked_of(keys, layers),
        sparse=expert_layers_of(keys, layers, experts),
        experts=experts,
        latent=latent,
        positions=keys.optional("positions"),
    )


def _key_value_heads(keys: Keys, heads: int) -> int:
    if keys.is_true("multi_query") and not keys.is_true("new_decoder_architecture"):
        return 1
    return keys.optional("key-value heads") or heads


def _head_size(keys: Keys, width: int, heads: int, *, is_latent: bool) -> int:
    known = keys.optional("head size")
    if known or is_latent:
        return known or max(1, width // heads)
    if width % heads:
        raise InputError(
            f"{keys.name('heads')}={heads} does not divide {keys.name('width')}={width};"
            f" {_divisors(width)}, or give head_dim"
        )
    return width // heads


def _latent(keys: Keys) -> LatentSizes | None:
    rank = keys.optional("key-value rank")
    if rank is None:
        return None
    return LatentSizes(
        key_value_rank=rank,
        query_rank=keys.optional("query rank"),
        plain_size=keys.size("plain size"),
        rotary_size=keys.size("rotary size"),
        value_size=keys.size("value size"),
    )


def _divisors(of: int) -> str:
    """What would divide, in words: the few largest."""
    found: Sequence[int] = [each for each in range(1, min(of, 256) + 1) if of % each == 0]
    return f"{', '.join(map(str, found[-4:]))} would"
