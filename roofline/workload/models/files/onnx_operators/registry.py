"""Which function stands for which ONNX operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from roofline.workload.models.files.onnx_graph import Node

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

_FUNCTIONS: dict[str, Function] = {}
_RANDOM = frozenset(
    {
        *("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"),
        *("Bernoulli", "Multinomial"),
    }
)


class OtherwiseError(Exception):
    """An operator is used in a way that torch's does not have: its FLOP are unknown."""


def operator(*names: str) -> Callable[[F], F]:
    """Registers a function for ONNX operators; those of other domains with the domain before."""

    def decorate(function: F) -> F:
        for name in names:
            if name in _FUNCTIONS:
                raise ValueError(f"the ONNX operator {name} has two functions")
            _FUNCTIONS[name] = function
        return function

    return decorate


def function_of(node: Node) -> Function | None:
    """What a node calls; None: its operator is not known."""
    return _FUNCTIONS.get(node.full_name)


def known_operators() -> tuple[str, ...]:
    """All that have a function."""
    return tuple(sorted(_FUNCTIONS))


def is_random(node: Node) -> bool:
    """Whether a node gives something else every time."""
    return node.operator in _RANDOM


def numbers_or_none(tensor: torch.Tensor) -> list[Any] | None:
    """The values of a tensor in their order; None where only its shape is known."""
    with _disable_current_modes():
        if isinstance(tensor, FakeTensor) or tensor.is_meta:
            return None
        return tensor.detach().reshape(-1).tolist()


def numbers(tensor: torch.Tensor) -> list[Any]:
    """The values of a tensor in their order.

    Raises:
        RuntimeError: only its shape is known.
    """
    found = numbers_or_none(tensor)
    if found is None:
        raise RuntimeError("a size depends on the values of a fake tensor")
    return found


def axes_of(node: Node, given: torch.Tensor | None) -> list[int] | None:
    """The axes of an operator that had them as an attribute first, and as an input later."""
    if given is not None:
        return [int(each) for each in numbers(given)]
    found: Iterable[int] | None = node.get("axes")
    return list(found) if found is not None else None
