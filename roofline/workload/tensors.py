"""What an operator reads and writes: shapes, data types, storages and roles."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from roofline.foundation.dtypes import DType


class Role(StrEnum):
    """What a tensor is to the model."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer_state"

    @property
    def persists(self) -> bool:
        """Whether the tensor lives as long as the model, not only during one pass."""
        return self in (Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE, Role.INPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One operand: its shape, data type, and which storage it lies in.

    ``distinct_elements`` are the elements an operator can touch: dimensions of stride 0 count once.
    ``storage`` numbers the storages of a capture by first appearance: operands with the same number
    share memory, and ``offset_byte`` is where in it this one begins.
    """

    shape: tuple[int, ...]
    dtype: DType
    distinct_elements: int
    storage: int
    offset_byte: int = 0
    role: Role

    @property
    def byte(self) -> int:
        """Bytes of the distinct elements."""
        return self.dtype.byte(self.distinct_elements)

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
