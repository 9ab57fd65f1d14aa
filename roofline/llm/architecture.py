"""Sizes of a language model, read from its configuration.

Nothing is built: a configuration is plain data, as in transformers' ``config.json``. Model families
use different keys for one size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roofline.core.text import printable
from roofline.errors import InputError, argument

_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "KV heads": (
        *("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
        "attn_config.kv_n_heads",
    ),
    "head size": ("head_dim", "attention_head_size"),
    "inner width": (
        *("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
        *("ffn_config.ffn_hidden_size", "dff", "dim_ff", "decoder_ffn_dim"),
    ),
    "vocabulary": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    "window": ("sliding_window", "sliding_window_size", "attention_window"),
    "chunk": ("attention_chunk_size",),
    "KV rank": ("kv_lora_rank",),
    "query rank": ("q_lora_rank",),
    "plain size": ("qk_nope_head_dim",),
    "rotary size": ("qk_rope_head_dim",),
    "value size": ("v_head_dim",),
    "experts": (
        *("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
        "ffn_config.moe_num_experts",
    ),
    "experts per token": (
        *("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"),
        "ffn_config.moe_top_k",
    ),
    "expert width": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "llama4 expert width": ("intermediate_size",),
    "shared experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared width": ("shared_expert_intermediate_size",),
    "dense before": ("first_k_dense_replace", "moe_layer_start_index"),
    "sparse every": ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"),
}
"""Keys of each size in model families, the most common first; dots separate levels."""

_MOST = 2**40
"""Upper limit of all sizes."""


class _Keys:
    """Sizes of a configuration by the names in `_NAMES`."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        self._configuration = configuration

    def name(self, what: str) -> str:
        """Return the configuration's key of a size; the most common key if there is none."""
        return self._found(what)[0]

    def size(self, what: str) -> int:
        """Return a required size, at least 1."""
        found = self.optional(what)
        if found is None:
            keys = " or ".join(_NAMES[what][:2])
            raise InputError(
                f"configuration without {keys} ({what}); add"
                f" {argument('config')} {_NAMES[what][0]}=N"
            )
        return found

    def optional(self, what: str) -> int | None:
        """Return an optional size, at least 1; None if missing."""
        found = self.count(what)
        if found == 0:
            raise InputError(f"{self.name(what)}=0: must be a whole number from 1")
        return found

    def count(self, what: str) -> int | None:
        """Return an optional number, at least 0; None if missing."""
        key, value = self._found(what)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < _MOST:
            shown = printable(repr(value))[:60]
            raise InputError(f"{key}={shown}: must be a whole number from 1 to {_MOST:,}")
        return value

    def get(self, key: str) -> Any:
        """Return the value of a key; None if missing."""
        return self._configuration.get(key)

    def listed(self, key: str, layers: int | None = None) -> list[Any] | None:
        """Return a list, with `layers` entries if given; None if missing."""
        value = self.get(key)
        if not isinstance(value, (list, tuple)):
            return None
        if layers is not None and len(value) != layers:
            raise InputError(
                f"{key} has {len(value)} entries, but {self.name('layers')}={layers}; the numbers"
                f" must be equal, or {key} absent"
            )
        return list(value)

    def _found(self, what: str) -> tuple[str, Any]:
        """Return the first key of a size with a value, and the value."""
        for key in _NAMES[what]:
            value: Any = self._configuration
            for part in key.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                return key, value
        return _NAMES[what][0], None


_ALL = frozenset(("full_attention", "global", "global_attention", "attention"))
_WINDOW = frozenset(("sliding_attention", "sliding_window", "local_sliding"))
_CHUNK = frozenset(("chunked_attention",))
_NO_WINDOW = frozenset(("gpt_neo",))
"""Model types whose windows are masks, without effect on the KV cache."""


def _windows_of(keys: _Keys, layers: int) -> list[tuple[int | None, bool]]:
    """Return the attention window of each layer in tokens (None: all), and True for chunks."""
    is_free = keys.get("model_type") in _NO_WINDOW
    kinds = keys.listed("layer_types", None if is_free else layers)
    if kinds is None:
        is_used = not is_free and keys.get("use_sliding_window") is not False
        return [(keys.optional("window") if is_used else None, False)] * layers
    found: list[tuple[int | None, bool]] = []
    for kind in map(str, kinds):
        if is_free or kind in _ALL:
            found.append((None, kind in _CHUNK))
        elif kind in _WINDOW:
            found.append((keys.size("window"), False))
        elif kind in _CHUNK:
            found.append((keys.size("chunk"), True))
        else:
            raise InputError(
                f"layer_types: unknown type '{printable(kind)}'; known are full_attention,"
                " sliding_attention and chunked_attention"
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSizes:
    """Experts of a layer: each token uses ``per_token`` of ``count``.

    ``width`` is the inner width of one expert, ``shared_width`` that of the shared experts (0:
    none).
    """

    count: int
    per_token: int
    width: int
    shared_width: int = 0

    def __post_init__(self) -> None:
        if self.per_token > self.count:
            raise InputError(
                f"{self.per_token} experts per token of {self.count} experts; num_experts_per_tok"
                " must not exceed the number of experts"
            )


def _expert_sizes_of(keys: _Keys) -> ExpertSizes | None:
    """Return the experts of a configuration; None for dense models."""
    count = keys.count("experts")
    # Dense models of mixture families name one expert, none, or a switch.
    is_one = count == 1 and keys.count("experts per token") in (None, 0, 1)
    if not count or is_one or keys.get("is_moe") is False:
        return None
    is_llama4 = str(keys.get("model_type")).startswith("llama4")
    width = keys.optional("expert width")
    if width is None and is_llama4:
        width = keys.size("llama4 expert width")
    elif width is None:
        width = keys.optional("inner width") or 4 * keys.size("width")
    shared = keys.count("shared width")
    if shared is None:
        shared = (keys.count("shared experts") or 0) * width
    return ExpertSizes(
        count=count,
        per_token=keys.optional("experts per token") or 1,
        width=width,
        # Its expert layers have one shared expert, without a key.
        shared_width=width if is_llama4 else shared,
    )


def _expert_layers_of(keys: _Keys, layers: int, experts: ExpertSizes | None) -> tuple[bool, ...]:
    """Return True for each layer with experts."""
    if experts is None:
        return (False,) * layers
    kinds = keys.listed("mlp_layer_types", layers)
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    named = keys.listed("moe_layers")
    if named is not None:
        return tuple(layer in named for layer in range(layers))
    dense = set(keys.listed("mlp_only_layers") or ())
    first = keys.count("dense before") or 0
    step = keys.optional("sparse every") or 1
    # DeepSeek counts layers from 0, other families from 1.
    start = 0 if keys.name("sparse every") == "moe_layer_freq" else 1
    return tuple(
        layer >= first and layer not in dense and (layer + start) % step == 0
        for layer in range(layers)
    )


AttentionKind = Literal["multi-head", "grouped-query", "multi-query", "latent"]

_TWO_PRODUCTS = frozenset(
    (
        *("apertus", "arcee", "biogpt", "bloom", "codegen", "ctrl", "falcon", "gpt_bigcode"),
        *("gpt2", "gpt_neo", "gpt_neox", "gpt_neox_japanese", "gptj", "jais2", "mpt", "nanochat"),
        *("nemotron", "openai-gpt", "opt", "persimmon", "phi", "starcoder2", "xglm"),
        # Decoders of encoder-decoder models, built alone.
        *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp"),
        *("pegasus", "plbart", "trocr", "whisper"),
    )
)
"""Model types with two feed-forward products per layer; others have three (gated)."""


_OF_STATES = ("mamba_", "ssm_")
"""Prefixes of settings of state-space layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSizes:
    """Multi-head latent attention: keys and values of all heads come from one vector per token.

    ``key_value_rank`` is the length of that vector, ``rotary_size`` that of the rotary key,
    ``plain_size`` and ``value_size`` those of a head's other key elements and of its value.
    ``query_rank`` is the length of the latent query (None: queries are projected directly).
    """

    key_value_rank: int
    query_rank: int | None
    plain_size: int
    rotary_size: int
    value_size: int

    @property
    def key_size(self) -> int:
        """Elements of a head's key, rotary part included."""
        return self.plain_size + self.rotary_size

    @property
    def kept(self) -> int:
        """Elements per token in the KV cache of a layer."""
        return self.key_value_rank + self.rotary_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes of a decoder-only language model.

    By layer, ``windows`` are attention windows in tokens (None: all), ``chunked`` is true for
    chunked attention, ``sparse`` for experts. ``inner_width`` is the feed-forward width of dense
    layers; ``is_gated``: these have three products. ``positions`` is the maximum context.
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
                f"{self.key_value_heads} KV heads do not divide {self.heads} heads;"
                f" {_divisors(self.heads)}"
            )

    @staticmethod
    def of(configuration: Mapping[str, Any]) -> Architecture:
        """Return the architecture of a transformers configuration or of its ``text_config``."""
        if configuration.get("is_encoder_decoder"):
            name = printable(str(configuration.get("model_type", "the model")))
            raise InputError(
                f"{name} is an encoder-decoder model; prefill and decode require a decoder-only"
                " model, such as hf:llama"
            )
        inner = configuration.get("text_config")
        if isinstance(inner, Mapping):
            configuration = {**configuration, **inner}
        if state := next((key for key in configuration if key.startswith(_OF_STATES)), ""):
            raise InputError(
                f"{state}: state-space layers are not supported; choose a model with attention"
                " layers only, such as hf:llama"
            )
        keys = _Keys(configuration)
        layers, width, heads = (keys.size(what) for what in ("layers", "width", "heads"))
        model_type = str(configuration.get("model_type") or "")
        is_shared = (
            keys.get("multi_query") is True and keys.get("new_decoder_architecture") is not True
        )
        latent, experts = _latent_of(keys), _expert_sizes_of(keys)
        windows = _windows_of(keys, layers)
        return Architecture(
            model_type=model_type,
            width=width,
            heads=heads,
            key_value_heads=1 if is_shared else keys.optional("KV heads") or heads,
            head_size=_head_size(keys, width, heads, is_latent=latent is not None),
            inner_width=keys.optional("inner width") or 4 * width,
            is_gated=model_type not in _TWO_PRODUCTS,
            vocabulary=keys.size("vocabulary"),
            is_tied=configuration.get("tie_word_embeddings") is not False,
            windows=tuple(window for window, _ in windows),
            chunked=tuple(is_chunk for _, is_chunk in windows),
            sparse=_expert_layers_of(keys, layers, experts),
            experts=experts,
            latent=latent,
            positions=keys.optional("positions"),
        )

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.windows)

    @property
    def attention(self) -> AttentionKind:
        """Kind of attention."""
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


def _head_size(keys: _Keys, width: int, heads: int, *, is_latent: bool) -> int:
    known = keys.optional("head size")
    if known or is_latent:
        return known or max(1, width // heads)
    if width % heads:
        raise InputError(
            f"{keys.name('heads')}={heads} does not divide {keys.name('width')}={width};"
            f" {_divisors(width)}, or give head_dim"
        )
    return width // heads


def _latent_of(keys: _Keys) -> LatentSizes | None:
    rank = keys.optional("KV rank")
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
    """Return the four largest divisors in words."""
    found: Sequence[int] = [each for each in range(1, min(of, 256) + 1) if of % each == 0]
    return f"divisors are {', '.join(map(str, found[-4:]))}"
