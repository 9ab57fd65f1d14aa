"""What the weights of a built module are called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx

from roofline.substitution.graphs.graph import Node
from roofline.substitution.graphs.weights import Weight

_TAKEN = frozenset(dir(fx.GraphModule)) | {"graph", "code", "recipe", "names", "casts"}
"""Attributes that weights of a module cannot be called."""


def name_of(weight: Weight, user: Node | None, argument: str) -> str:
    """The model's own name, or one that says which rule made a weight, and for what."""
    if weight.name:
        return weight.name
    parts = (weight.made_by, user.module_path if user else "", argument)
    return re.sub(r"\W+", "_", "_".join(part for part in parts if part)).strip("_")


def free_name(name: str, taken: Mapping[str, Any]) -> str:
    """That name, or one like it that no other attribute has."""
    first, dot, rest = name.partition(".")
    if first in _TAKEN or not first:
        name = f"{first}_{dot}{rest}"
    places = {*taken, *(part for each in taken for part in _places_of(each))}
    free, number = name, 1
    while free in places or any(free.startswith(f"{each}.") for each in taken):
        number += 1
        free = f"{name}_{number}"
    return free


def _places_of(name: str) -> Iterator[str]:
    """The submodules that an attribute of that name lies in."""
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))
