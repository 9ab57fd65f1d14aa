"""What a model is called with and what it returns: tensors, and the containers that hold them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, cast

import torch

from roofline.errors import ModelError

Kind = Literal["tensor", "constant", "sequence", "named tuple", "mapping", "dataclass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A tensor, a constant, or a container.

    ``number`` is the tensor's; ``constant`` what is no tensor. Of containers, ``type`` is the
    class, ``keys`` are positions, keys or names of fields, and ``items`` what is there.
    """

    kind: Kind
    number: int = -1
    constant: Any = None
    type: Any = None
    keys: tuple[Any, ...] = ()
    items: tuple[Structure, ...] = ()

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The same containers with other tensors."""
        if self.kind == "tensor":
            return tensors[self.number]
        if self.kind == "constant":
            return self.constant
        return contained(self, [each.filled(tensors) for each in self.items])

    def leaves(self) -> Iterator[tuple[tuple[tuple[Kind, Any], ...], Structure]]:
        """What is no container, and the steps that lead to it: kinds of containers, and keys."""
        if not self.keys and self.kind in ("tensor", "constant"):
            yield (), self
        for key, each in zip(self.keys, self.items, strict=True):
            for path, leaf in each.leaves():
                yield ((self.kind, key), *path), leaf


def contained(structure: Structure, items: Sequence[Any]) -> Any:
    """A container of that structure with these items."""
    if structure.kind == "mapping":
        return structure.type(zip(structure.keys, items, strict=True))
    if structure.kind == "dataclass":
        return structure.type(**dict(zip(structure.keys, items, strict=True)))
    if structure.kind == "named tuple":
        return structure.type(*items)
    return structure.type(items)


def structure_of(value: Any, tensors: list[Any], where: str) -> Structure:
    """What a value is made of; its tensors are added to `tensors`.

    Args:
        value: arguments, or what a model returns.
        tensors: those that have numbers already; one that is there again gets another number.
        where: what messages call it.

    Raises:
        ModelError: a container that could not be made again.
    """

    def inside(keys: Sequence[Any], values: Sequence[Any], kind: Kind) -> Structure:
        items = tuple(
            structure_of(each, tensors, f"{where}[{key!r}]")
            for key, each in zip(keys, values, strict=True)
        )
        return Structure(kind=kind, type=of, keys=tuple(keys), items=items)

    of: Any = cast("type[Any]", type(value))
    if isinstance(value, (torch.Tensor, torch.fx.Proxy)):
        tensors.append(value)
        return Structure(kind="tensor", number=len(tensors) - 1)
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value) if each.init]
        return inside(names, [getattr(value, name) for name in names], "dataclass")
    if isinstance(value, Mapping) and of in (dict, OrderedDict):
        known = cast("Mapping[Any, Any]", value)
        return inside(list(known), list(known.values()), "mapping")
    if isinstance(value, (list, tuple)):
        sequence = cast("Sequence[Any]", value)
        positions = list(range(len(sequence)))
        if of in (list, tuple):
            return inside(positions, sequence, "sequence")
        if issubclass(of, tuple) and hasattr(of, "_fields"):
            return inside(positions, sequence, "named tuple")
    if value is None or isinstance(value, _CONSTANTS):
        return Structure(kind="constant", constant=value)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise ModelError(f"{where} is a number that depends on the values in a tensor")
    fix = "use tensors, numbers, and tuples, lists, dictionaries or dataclasses of them"
    if "Cache" in of.__name__:
        fix = "call it with use_cache=False"
    raise ModelError(f"{where} is of type {of.__name__}, which cannot be made again; {fix}")


_CONSTANTS = (bool, int, float, complex, str, torch.dtype, torch.device, torch.Size)
