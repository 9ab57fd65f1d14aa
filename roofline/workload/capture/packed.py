"""Weights that a module keeps packed, in an object of a compiled class in place of a tensor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_unpacked: dict[int, tuple[torch.ScriptObject, tuple[torch.Tensor | None, ...]]] = {}


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """While this is open, an object that was unpacked gives the same tensors again."""
    try:
        yield
    finally:
        _unpacked.clear()


def unpacked(value: Any) -> tuple[torch.Tensor | None, ...] | None:
    """The weight and the bias, or None, in an object that packs them; None for any other."""
    if not isinstance(value, torch.ScriptObject) or not hasattr(value, "unpack"):
        return None
    if id(value) not in _unpacked:
        with _disable_current_modes():
            parts = value.unpack()  # pyright: ignore[reportAttributeAccessIssue]  of its class
        found = tuple(each if isinstance(each, torch.Tensor) else None for each in parts)
        _unpacked[id(value)] = value, found
    return _unpacked[id(value)][1]


def packed_in(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The tensors that the modules of `model` keep packed."""
    for module in model.modules():
        for value in module.__dict__.values():
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
