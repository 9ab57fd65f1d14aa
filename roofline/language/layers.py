"""Layers by configuration: attention windows and experts."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.errors import InputError
from roofline.foundation.text import printable
from roofline.language.keys import Keys

_ALL = frozenset(("full_attention", "global", "global_attention", "attention"))
_WINDOW = frozenset(("sliding_attention", "sliding_window", "local_sliding"))
_CHUNK = frozenset(("chunked_attention",))
_NO_WINDOW = frozenset(("gpt_neo",))
"""Types whose windows are masks: what they keep does not end with them."""


def windows_of(keys: Keys, layers: int) -> tuple[int | None, ...]:
    """For each layer how many tokens it sees at most, its own included; None: all.

    Args:
        keys: the sizes of the configuration.
        layers: how many there are.

    Raises:
        InputError: a layer that is no attention, or another number of kinds than of layers.
    """
    if keys.text("model_type") in _NO_WINDOW:
        return (None,) * layers
    kinds = keys.listed("layer_types")
    if kinds is None:
        is_used = not keys.is_false("use_sliding_window")
        window = keys.optional("window") if is_used else None
        return (window,) * layers
    if len(kinds) != layers:
        raise InputError(
            f"layer_types has {len(kinds)} entries, and {keys.name('layers')} is {layers}; give as"
            " many, or leave layer_types out"
        )
    return tuple(_window(str(kind), keys) for kind in kinds)


def chunked_of(keys: Keys, layers: int) -> tuple[bool, ...]:
    """For each layer whether its window is a chunk: tokens see those of their own chunk alone.

    Args:
        keys: the sizes of the configuration, whose `windows_of` is known.
        layers: how many there are.
    """
    kinds = keys.listed("layer_types") or ()
    return tuple(str(kind) in _CHUNK for kind in kinds) or (False,) * layers


def _window(kind: str, keys: Keys) -> int | None:
    if kind in _ALL:
        return None
    if kind in _WINDOW:
        return keys.size("window")
    if kind in _CHUNK:
        return keys.size("chunk")
    raise InputError(
        f"layer_types: what a layer of type '{printable(kind)}' keeps is not known here; known are"
        " full_attention, sliding_attention and chunked_attention"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSizes:
    """The experts of a layer: of ``count`` each token takes ``per_token``.

    ``width`` is the inner width of one; ``shared_width`` that of what every token goes through
    besides, 0 where there is nothing.

    Raises:
        InputError: a token takes more than there are.
    """

    count: int
    per_token: int
    width: int
    shared_width: int = 0

    def __post_init__(self) -> None:
        if self.per_token > self.count:
            raise InputError(
                f"a token takes {self.per_token} experts, and there are {self.count}; give"
                " num_experts_per_tok at most as many"
            )


def expert_sizes_of(keys: Keys) -> ExpertSizes | None:
    """The experts of a configuration; None: it has none.

    Raises:
        InputError: numbers that do not fit together.
    """
    count = keys.count("experts")
    # Families whose dense models share the configuration name one expert, or none, or switch it.
    is_one = count == 1 and keys.count("experts per token") in (None, 0, 1)
    if not count or is_one or keys.is_false("is_moe"):
        return None
    width = keys.optional("expert width") or _width_of_others(keys)
    shared = keys.count("shared width")
    if shared is None:
        shared = (keys.count("shared experts") or 0) * width
    if keys.text("model_type").startswith("llama4"):
        # Its layers of experts have one more that all tokens take, and no key says so.
        shared = width
    return ExpertSizes(
        count=count,
        per_token=keys.optional("experts per token") or 1,
        width=width,
        shared_width=shared,
    )


def _width_of_others(keys: Keys) -> int:
    if keys.text("model_type").startswith("llama4"):
        return keys.size("llama4 expert width")
    return keys.optional("inner width") or 4 * keys.size("width")


def expert_layers_of(keys: Keys, layers: int, experts: ExpertSizes | None) -> tuple[bool, ...]:
    """For each layer whether its products are experts.

    Args:
        keys: the sizes of the configuration.
        layers: how many there are.
        experts: those; None: none.

    Raises:
        InputError: another number of kinds than of layers.
    """
    if experts is None:
        return (False,) * layers
    kinds = keys.listed("mlp_layer_types")
    if kinds is not None:
        if len(kinds) != layers:
            raise InputError(
                f"mlp_layer_types has {len(kinds)} entries, and {keys.name('layers')} is {layers};"
                " give as many, or leave it out"
            )
        return tuple(kind == "sparse" for kind in kinds)
    named = keys.listed("moe_layers")
    if named is not None:
        return tuple(layer in named for layer in range(layers))
    dense = set(keys.listed("mlp_only_layers") or ())
    first = keys.count("dense before") or 0
    step = keys.optional("sparse every") or 1
    # DeepSeek counts the layers of its step from 0, all others from 1.
    start = 0 if keys.name("sparse every") == "moe_layer_freq" else 1
    return tuple(
        layer >= first and layer not in dense and (layer + start) % step == 0
        for layer in range(layers)
    )
