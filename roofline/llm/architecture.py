"""Sizes of a language model, read from its configuration.

Nothing is built: a configuration is plain data, as in transformers' ``config.json``. Model families
use different keys for one size.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from roofline.core.text import printable
from roofline.errors import InputError, argument
from roofline.llm.families import FAMILIES, Family

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
        *("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts"),
        "ffn_config.moe_top_k",
    ),
    "expert width": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "llama4 expert width": ("intermediate_size",),
    "shared experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared width": ("shared_expert_intermediate_size",),
    "dense before": ("first_k_dense_replace", "moe_layer_start_index"),
    "global KV heads": ("num_global_key_value_heads",),
    "global head size": ("global_head_dim",),
    "shared caches": ("num_kv_shared_layers",),
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
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            # By layer, all alike.
            value = value[0]
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


_REFUSED: Mapping[str, str] = {
    "index_topk": "sparse attention with an indexer",
    "hybrid_override_pattern": "state-space layers",
}
"""Keys of attention and layers that are not modeled."""

_OF_STATES = ("mamba_", "ssm_")
"""Prefixes of settings of state-space layers."""


def _refuse_unknown_layers(configuration: Mapping[str, Any]) -> None:
    for key in configuration:
        what = "state-space layers" if key.startswith(_OF_STATES) else _REFUSED.get(key)
        if what and configuration[key] is not None:
            raise InputError(
                f"{key}: {what} not supported; choose a model with attention layers only, such"
                " as hf:llama"
            )


_ALL = frozenset(("full_attention", "global", "global_attention", "attention"))
_WINDOW = frozenset(("sliding_attention", "sliding_window", "local_sliding"))
_CHUNK = frozenset(("chunked_attention",))
_NO_WINDOW = frozenset(("gpt_neo",))
"""Model types whose windows are masks, without effect on the KV cache."""


def _windows_of(keys: _Keys, layers: int) -> list[tuple[int | None, bool]]:
    """Return the attention window of each layer in tokens (None: all), and True for chunks."""
    is_free = keys.get("model_type") in _NO_WINDOW
    kinds = keys.listed("layer_types", None if is_free else layers)
    if kinds is None and (every := _pattern_of(keys)):
        inner = "chunked_attention" if keys.optional("chunk") else "sliding_attention"
        kinds = [inner if (layer + 1) % every else "full_attention" for layer in range(layers)]
    if kinds is None:
        # transformers' Qwen models have windows only where a switch says so.
        usual = not str(keys.get("model_type")).startswith("qwen")
        is_used = not is_free and keys.get("use_sliding_window") not in (
            *((False,) if usual else (False, None)),
        )
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


def _pattern_of(keys: _Keys) -> int:
    """Return the distance of layers that see all tokens; 0: all layers alike."""
    family = FAMILIES.get(str(keys.get("model_type")))
    given = keys.get("sliding_window_pattern")
    return given if type(given) is int else family.pattern if family else 0


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
    if str(keys.get("model_type")).startswith("gemma4"):
        # Its dense feed-forward runs next to the experts.
        shared = keys.size("inner width")
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
    if first > layers:
        raise InputError(f"{keys.name('dense before')}={first}: at most the {layers} layers")
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
class LayerKind:
    """Attention of a layer.

    ``window`` in tokens (None: all), ``is_chunk`` for chunked attention. ``has_cache`` is false if
    the layer reads the KV cache of an earlier one. ``has_values`` is false if values are projected
    with the weights of the keys.
    """

    window: int | None
    is_chunk: bool
    key_value_heads: int
    head_size: int
    has_cache: bool = True
    has_values: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes of a decoder-only language model.

    By layer, ``windows`` are attention windows in tokens (None: all), ``chunked`` is true for
    chunked attention, ``sparse`` for experts. ``inner_width`` is the feed-forward width of dense
    layers; ``is_gated``: these have three products. ``positions`` is the maximum context.
    ``global_key_value_heads`` and ``global_head_size`` are those of layers without a window (None:
    as in others), where ``keys_are_values`` may share the projection. The last ``shared_caches``
    layers read the KV cache of an earlier layer. ``small_weights`` are the elements of norms,
    biases and position tables; None: unknown.
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
    global_key_value_heads: int | None = None
    global_head_size: int | None = None
    keys_are_values: bool = False
    shared_caches: int = 0
    small_weights: int | None = None

    def __post_init__(self) -> None:
        if min(self.heads, self.key_value_heads) < 1:
            raise InputError(f"{self.heads} heads and {self.key_value_heads} KV heads: at least 1")
        for shared in (self.key_value_heads, self.global_key_value_heads or 1):
            if self.latent is None and self.heads % shared:
                raise InputError(
                    f"{shared} KV heads do not divide {self.heads} heads;"
                    f" {_divisors(self.heads, shared)}"
                )
        if self.shared_caches >= self.layers:
            raise InputError(
                f"num_kv_shared_layers={self.shared_caches}: must be below the {self.layers} layers"
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
        configuration = text_part(configuration)
        _refuse_unknown_layers(configuration)
        keys = _Keys(configuration)
        layers, width, heads = (keys.size(what) for what in ("layers", "width", "heads"))
        model_type = str(configuration.get("model_type") or "")
        is_shared = (
            keys.get("multi_query") is True and keys.get("new_decoder_architecture") is not True
        )
        latent, experts = _latent_of(keys), _expert_sizes_of(keys)
        windows = _windows_of(keys, layers)
        family = FAMILIES.get(model_type)
        tied = configuration.get("tie_word_embeddings")
        found = Architecture(
            model_type=model_type,
            width=width,
            heads=heads,
            key_value_heads=1 if is_shared else keys.optional("KV heads") or heads,
            head_size=_head_size(keys, width, heads, is_latent=latent is not None),
            inner_width=keys.optional("inner width") or 4 * width,
            is_gated=model_type not in _TWO_PRODUCTS,
            vocabulary=keys.size("vocabulary"),
            is_tied=family.is_tied if tied is None and family else tied is not False,
            windows=tuple(window for window, _ in windows),
            chunked=tuple(is_chunk for _, is_chunk in windows),
            sparse=_expert_layers_of(keys, layers, experts),
            experts=experts,
            latent=latent,
            positions=keys.optional("positions"),
            global_key_value_heads=keys.optional("global KV heads"),
            global_head_size=keys.optional("global head size"),
            keys_are_values=keys.get("attention_k_eq_v") is True,
            shared_caches=keys.count("shared caches") or 0,
        )
        return replace(found, small_weights=_small_weights(found, family, keys))

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.windows)

    @property
    def kinds(self) -> Mapping[LayerKind, int]:
        """Number of layers by kind."""
        return _kinds(self)

    @property
    def attention(self) -> AttentionKind:
        """Kind of attention."""
        if self.latent is not None:
            return "latent"
        if self.key_value_heads == self.heads:
            return "multi-head"
        return "multi-query" if self.key_value_heads == 1 else "grouped-query"

    def shard(self, ranks: int) -> Architecture:
        """Return the part of one of `ranks` tensor-parallel ranks (M. Shoeybi and others, 2019).

        Heads, inner widths of feed-forward layers and experts, and the vocabulary are divided. KV
        heads are divided, or repeated if there are fewer than ranks. Latent vectors, routers and
        norms are on every rank.
        """

        def share(number: int, name: str) -> int:
            if number % ranks and not (name == "KV heads" and ranks % number == 0):
                raise InputError(
                    f"{argument('tensor_parallel', ranks)}: does not divide {number:,} {name};"
                    f" {_divisors(number, ranks)}"
                )
            return max(1, number // ranks)

        if ranks == 1:
            return self
        experts, latent, of_global = self.experts, self.latent, self.global_key_value_heads
        shared = self.key_value_heads, "KV heads"
        return replace(
            self,
            heads=share(self.heads, "heads"),
            key_value_heads=share(*((self.heads, "heads") if latent else shared)),
            global_key_value_heads=of_global and share(of_global, "KV heads"),
            # Widths and vocabularies are padded.
            inner_width=-(-self.inner_width // ranks),
            vocabulary=-(-self.vocabulary // ranks),
            experts=experts
            and replace(
                experts,
                width=-(-experts.width // ranks),
                shared_width=-(-experts.shared_width // ranks),
            ),
        )

    def key_size(self, kind: LayerKind) -> int:
        """Return the elements of a head's key."""
        return self.latent.key_size if self.latent else kind.head_size

    def value_size(self, kind: LayerKind) -> int:
        """Return the elements of a head's value."""
        return self.latent.value_size if self.latent else kind.head_size


@functools.lru_cache(maxsize=256)
def _kinds(of: Architecture) -> Mapping[LayerKind, int]:
    own = of.layers - of.shared_caches
    return Counter(
        LayerKind(
            window=window,
            is_chunk=is_chunk,
            key_value_heads=(window is None and of.global_key_value_heads) or of.key_value_heads,
            head_size=(window is None and of.global_head_size) or of.head_size,
            has_cache=layer < own,
            has_values=not (of.keys_are_values and window is None),
        )
        for layer, (window, is_chunk) in enumerate(zip(of.windows, of.chunked, strict=True))
    )


def text_part(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration with the settings of its ``text_config``, if it has one."""
    inner = configuration.get("text_config")
    return {**configuration, **inner} if isinstance(inner, Mapping) else configuration


def _small_weights(of: Architecture, family: Family | None, keys: _Keys) -> int | None:
    """Return the elements of norms, biases and position tables; None for unknown types."""
    if family is None or keys.get("hidden_size_per_layer_input"):
        return None
    norm, biases = of.width * (2 if family.has_norm_bias else 1), set(family.biases)
    if keys.get("attention_bias") is True:
        # These have none on the output projection.
        biases |= set("qkv" if of.model_type in ("glm4_moe", "mimo") else "qkvo")
    if keys.get("mlp_bias") is True:
        biases.add("m")
    head_norms = family.head_norms or "one" * (keys.get("use_qk_norm") is True)
    if of.model_type == "llama4_text":
        head_norms = ""  # its norms of queries and keys have no weights
    whole = norm * (1 + family.norms * of.layers)
    for kind, count in of.kinds.items():
        queries, keys_size = of.heads * kind.head_size, kind.key_value_heads * kind.head_size
        each = queries * ("q" in biases) + of.width * ("o" in biases)
        each += keys_size * (("k" in biases) + ("v" in biases)) * kind.has_cache
        if head_norms == "one":
            each += kind.head_size * (1 + kind.has_cache)
        elif head_norms == "all":
            each += queries + keys_size
        if of.latent is not None:
            each += of.latent.key_value_rank + (of.latent.query_rank or 0)
        whole += count * (each + family.expert_biases * of.heads)
    if "m" in biases:
        products = 2 if of.is_gated else 1
        whole += of.layers * (products * of.inner_width + of.width)
    if (experts := of.experts) is not None:
        each = family.expert_biases * experts.count * (1 + 2 * experts.width + of.width)
        each += (family.expert_scales * of.width + experts.count) * (family.expert_scales > 0)
        whole += sum(of.sparse) * each
    whole += family.position_table * (of.positions or 0) * of.width
    return whole + family.head_bias * of.vocabulary


def _head_size(keys: _Keys, width: int, heads: int, *, is_latent: bool) -> int:
    known = keys.optional("head size")
    if known or is_latent:
        return known or max(1, width // heads)
    if width % heads:
        raise InputError(
            f"{keys.name('heads')}={heads} does not divide {keys.name('width')}={width};"
            f" {_divisors(width, heads)}, or give head_dim"
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


def _divisors(of: int, near: int) -> str:
    """Return the four nearest divisors in words."""
    found = [each for each in range(1, min(of, 2**16) + 1) if of % each == 0]
    nearest = sorted(found, key=lambda each: abs(each - near))[:4]
    return f"divisors are {', '.join(map(str, sorted(nearest)))}"
