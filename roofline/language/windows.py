"""How many tokens each layer looks back."""

from __future__ import annotations

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
