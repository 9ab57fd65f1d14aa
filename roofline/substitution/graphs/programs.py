"""What is read of an exported program: types, names, modules, and operators that do not write."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from roofline.errors import ModelError
from roofline.substitution.graphs.weights import TensorType

PREFIX = "model."
"""What the names of the model's own weights and modules begin with in a program."""


class NotExpressibleError(Exception):
    """Says what a program does that a graph of these operators cannot."""


@functools.cache
def overload_that_gives(func: Any) -> Any:
    """The operator that gives what `func` writes, with the same arguments; mostly so called.

    Raises:
        NotExpressibleError: there is none.
    """
    packet = getattr(getattr(torch.ops, func.namespace), func._opname.removesuffix("_"), None)
    found = [
        getattr(packet, overload)
        for overload in (packet.overloads() if packet is not None else ())
        if _takes(getattr(packet, overload)) == _takes(func)
    ]
    if not found:
        raise NotExpressibleError(f"{func.namespace}.{func._opname} has no form that only gives")
    return next((each for each in found if each._overloadname == func._overloadname), found[0])


def _takes(func: Any) -> list[tuple[str, str]]:
    """The arguments of an overload; the first may have another name where it is written."""
    first, *others = func._schema.arguments
    return [("", str(first.type)), *((each.name, str(each.type)) for each in others)]


def module_path(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return f"{stack[-1][0]}.".removeprefix(PREFIX).rstrip(".") if stack else ""


def type_of(tensor: torch.Tensor) -> TensorType:
    if not isinstance(tensor, torch.Tensor) or any(
        isinstance(size, torch.SymInt) for size in tensor.shape
    ):
        raise ModelError("a size in it depends on the values in a tensor")
    return TensorType(
        shape=tuple(tensor.shape),
        stride=tuple(map(int, tensor.stride())),
        dtype=str(tensor.dtype).removeprefix("torch."),
    )


def place_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where a tensor lies: the same for tied ones."""
    if not tensor.numel():
        return (id(tensor),)
    storage = tensor.untyped_storage()
    return (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)


def names_of(model: torch.nn.Module) -> Mapping[tuple[Any, ...], tuple[str, ...]]:
    """The names of a model's tensors by where they lie, in its order."""
    found: dict[tuple[Any, ...], tuple[str, ...]] = {}
    for name, tensor in _named(model):
        place = place_of(tensor)
        found[place] = (*found.get(place, ()), name)
    return found


def _named(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
