"""Operands of an operator: shapes, data types, storages and roles."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from roofline.core.dtypes import DType


class Role(StrEnum):
    """Use of a tensor in the model."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer_state"

    @property
    def persists(self) -> bool:
        """True if the tensor lives as long as the model, not only during one pass."""
        return self in (Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE, Role.INPUT)


Layout = Literal["contiguous", "channels-last", "strided"]
"""Memory order of a tensor's elements: by dimension, with the second dimension innermost, or any
other (a transposed matrix, for example)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One operand: its shape, data type and storage.

    ``distinct_elements`` are the elements an operator can touch: dimensions of stride 0 count once.
    ``storage`` numbers the storages of a capture by first appearance: operands with the same number
    share memory. ``offset_bytes`` is the start of the operand in it. ``min_elements`` are those
    that no kernel can avoid touching (None: all), for example where the stride of a convolution
    skips elements. Minimum times use them; traffic counts the distinct ones.
    """

    shape: tuple[int, ...]
    dtype: DType
    distinct_elements: int
    storage: int
    offset_bytes: int = 0
    min_elements: int | None = None
    layout: Layout = "contiguous"
    role: Role

    def __post_init__(self) -> None:
        numbers = (self.distinct_elements, self.storage, self.offset_bytes, self.min_elements or 0)
        if min((*self.shape, *numbers)) < 0:
            raise ValueError(f"a tensor has no negative sizes or offsets: {self.shape}, {numbers}")

    @property
    def byte(self) -> int:
        """Bytes of the distinct elements."""
        return self.dtype.byte(self.distinct_elements)

    @property
    def min_bytes(self) -> int:
        """Bytes that no kernel can avoid touching."""
        return self.byte if self.min_elements is None else self.dtype.byte(self.min_elements)

    @property
    def elements(self) -> int:
        """Elements of the shape, repeated ones included."""
        product = 1
        for size in self.shape:
            product *= size
        return product


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input of the model: its keyword (``""``: positional), shape and data type."""

    name: str = ""
    shape: tuple[int, ...]
    dtype: DType

    def __post_init__(self) -> None:
        if min(self.shape, default=0) < 0:
            raise ValueError(f"an input has no negative sizes: {self.shape}")
