"""By which keys configurations name their sizes, and what may stand there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline.errors import InputError
from roofline.foundation.text import printable

_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "key-value heads": (
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
    "key-value rank": ("kv_lora_rank",),
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
"""Each size by the keys that families have for it, the usual one first; a dot leads inwards."""

_MOST = 2**40
"""No size of a model is as large."""


class Keys:
    """The sizes of a configuration, by our names for them."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        self._configuration = configuration

    def name(self, what: str) -> str:
        """The key under which the configuration has a size; the usual one where it has none."""
        found = self._found(what)
        return found[0] if found else _NAMES[what][0]

    def size(self, what: str) -> int:
        """A size that every configuration has, at least 1.

        Raises:
            InputError: it is missing, or no such number.
        """
        found = self.optional(what)
        if found is None:
            keys = " or ".join(_NAMES[what][:2])
            raise InputError(
                f"the configuration has no {keys}, so the number of its {what} is not known;"
                f" give it: --config {_NAMES[what][0]}=N"
            )
        return found

    def optional(self, what: str) -> int | None:
        """A size, at least 1; None where the configuration has none.

        Raises:
            InputError: it is no such number.
        """
        found = self.count(what)
        if found == 0:
            raise InputError(f"{self.name(what)}=0: must be a whole number from 1")
        return found

    def count(self, what: str) -> int | None:
        """A number that may be 0; None where the configuration has none.

        Raises:
            InputError: it is no such number.
        """
        found = self._found(what)
        if found is None:
            return None
        key, value = found
        if type(value) is not int or not 0 <= value < _MOST:
            shown = printable(repr(value))[:60]
            raise InputError(f"{key}={shown}: must be a whole number from 1 to {_MOST:,}")
        return value

    def is_true(self, key: str) -> bool:
        """Whether a switch is on; False where it is not there."""
        return self._configuration.get(key) is True

    def is_false(self, key: str) -> bool:
        """Whether a switch is there and off."""
        return self._configuration.get(key) is False

    def listed(self, key: str) -> list[Any] | None:
        """A list, such as one of what each layer is; None: there is none."""
        value = self._configuration.get(key)
        return list(value) if isinstance(value, (list, tuple)) else None

    def text(self, key: str) -> str:
        """A word; ``""`` where there is none."""
        value = self._configuration.get(key)
        return value if isinstance(value, str) else ""

    def _found(self, what: str) -> tuple[str, Any] | None:
        """The first of its keys that the configuration has a value for."""
        for key in _NAMES[what]:
            value: Any = self._configuration
            for part in key.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                return key, value
        return None
