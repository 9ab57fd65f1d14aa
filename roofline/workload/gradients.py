"""What a training step trains, the gradients it makes, and when each is done."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.foundation.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A parameter that is trained, whether or not a gradient reaches it.

    ``parameter`` is the qualified name, the first where it has several.

    Raises:
        ValueError: a negative number.
    """

    parameter: str
    elements: int
    dtype: DType

    def __post_init__(self) -> None:
        if self.elements < 0:
            raise ValueError(f"a parameter has no negative size: {self}")

    @property
    def byte(self) -> int:
        """Bytes of all of its elements."""
        return self.dtype.byte(self.elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The gradient of one parameter, as the backward pass finished it.

    ``parameter`` is the qualified name, the first where it has several; ``after`` how many
    operators of the pass had run when it was done; ``storage`` is the number of the
    storage that it lies in, as in records; ``state_bytes`` what the optimizer keeps for the
    parameter from step to step.

    Raises:
        ValueError: a negative number.
    """

    parameter: str
    elements: int
    dtype: DType
    after: int
    storage: int
    state_bytes: int = 0

    def __post_init__(self) -> None:
        if min(self.elements, self.after, self.storage, self.state_bytes) < 0:
            raise ValueError(f"a gradient has no negative sizes: {self}")

    @property
    def byte(self) -> int:
        """Bytes of all of its elements."""
        return self.dtype.byte(self.elements)
