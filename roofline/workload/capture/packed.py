"""Weights that a module keeps packed, in an object of a compiled class in place of a tensor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

Parts = tuple[torch.Tensor | None, ...]

_unpacked: dict[int, tuple[torch.ScriptObject, Parts | None]] = {}


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """While this is open, an object that was unpacked gives the same tensors again."""
    try:
        yield
    finally:
        _unpacked.clear()


def unpacked(value: Any) -> Parts | None:
    """The weights and biases in an object that packs them; None for any other.

    Of a linear layer its weight and its bias, or None; of a recurrent layer the weights of input
    and hidden state, then their biases.
    """
    if not isinstance(value, torch.ScriptObject):
        return None
    if id(value) not in _unpacked:
        with _disable_current_modes():
            parts = _parts(value)
            found = tuple(_as_kept(each, value) for each in parts) if parts is not None else None
        _unpacked[id(value)] = value, found
    return _unpacked[id(value)][1]


def _parts(packed: Any) -> tuple[Any, ...] | None:
    if hasattr(packed, "unpack"):
        parts = packed.unpack()
        # Of an embedding it is the table itself.
        return (parts,) if isinstance(parts, torch.Tensor) else tuple(parts)
    if "CellParams" not in str(packed._type()):
        return None
    # Its state: a kind, tensors, numbers, and for each weight an object that packs it.
    _kind, biases, *_, weights = packed.__getstate__()[0]
    return (*(_as_kept(each.unpack()[0], each) for each in weights), *biases)


def _as_kept(part: Any, packed: torch.ScriptObject) -> torch.Tensor | None:
    """The part in the type that it is kept in: float16 weights are unpacked as float32."""
    if not isinstance(part, torch.Tensor):
        return None
    is_half = part.dim() == 2 and part.dtype == torch.float32
    return part.half() if is_half and "LinearPackedParams" in str(packed._type()) else part


def packed_in(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The tensors that the modules of `model` keep packed."""
    for module in model.modules():
        for value in module.__dict__.values():
            if type(value) is torch.ScriptObject:
                yield from (each for each in unpacked(value) or () if each is not None)


_PRODUCTS = frozenset(
    {
        torch.ops.quantized.linear_dynamic.default,
        torch.ops.quantized.linear_relu_dynamic.default,
        torch.ops.quantized.linear_dynamic_fp16.default,
    }
)
"""Operators without a kernel for fake tensors; what they return has the type of what they take."""


def result_of(func: Any, args: tuple[Any, ...]) -> torch.Tensor | None:
    """What `func` returns, without memory, if it is a product with packed weights; else None."""
    if func not in _PRODUCTS:
        return None
    weight = (unpacked(args[1]) or (None,))[0]
    if weight is None:
        return None
    given = args[0]
    return given.new_empty((*given.shape[:-1], weight.shape[0]))
