"""Weights as rules see them: what the model has, and how others are made from that."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """What is known of a tensor before it is there: sizes, strides in elements, and data type.

    ``dtype`` is torch's name (``"float32"``).
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}/{list(self.stride)}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weight:
    """A tensor that is known before the model runs.

    One of the model's own has its qualified ``name``; one that a rule makes has the name of the
    constructor that makes it (``made_by``), of which weights (``of``) and with which ``options``.
    Equal descriptions are one tensor. ``is_parameter`` tells parameters from buffers, and
    ``is_trained`` those that take gradients: products ask for it, also where none are computed.
    What is made of weights none of which does, does not.
    """

    type: TensorType
    is_parameter: bool = True
    is_trained: bool = True
    name: str = ""
    made_by: str = ""
    of: tuple[Weight, ...] = ()
    options: tuple[tuple[str, object], ...] = ()
    key: str = field(init=False)

    def __post_init__(self) -> None:
        if bool(self.name) == bool(self.made_by):
            raise ValueError("a weight is either the model's own, or made by a constructor")
        parts = (self.name, self.made_by, str(self.type), *(each.key for each in self.of))
        text = "\n".join((*parts, repr(self.options)))
        if self.of:
            object.__setattr__(self, "is_trained", any(each.is_trained for each in self.of))
        object.__setattr__(self, "key", hashlib.sha1(text.encode()).hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Weight) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.name or f"{self.made_by}({', '.join(map(str, self.of))})"

    def originals(self) -> Iterator[Weight]:
        """The model's own weights that it is made of, each once."""
        seen: set[str] = set()
        waiting: list[Weight] = [self]
        while waiting:
            weight = waiting.pop()
            if weight.key in seen:
                continue
            seen.add(weight.key)
            if weight.name:
                yield weight
            waiting.extend(reversed(weight.of))


def contiguous(shape: tuple[int, ...], dtype: str) -> TensorType:
    """The type of a contiguous tensor."""
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= max(1, size)
    return TensorType(shape=shape, stride=tuple(stride), dtype=dtype)
