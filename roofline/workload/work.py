"""The work of an operator, and its algebra: results add up to those of modules and models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.workload.tensors import Role, TensorSpec

FLOP_PER_FMA = 2
"""A fused multiply-add is two floating-point operations. (fvcore's "flops" are multiply-adds.)"""

COUNTS = ("flop", "multiply_add", "least_flop", "least_multiply_add")
"""What formulas say of arithmetic, by the names that `Work` has for it."""


def least_products(multiply_add: int, flop: int, least_flop: int) -> int:
    """Multiply-adds that are among `least_flop` even if all other FLOP are among them too."""
    others = flop - FLOP_PER_FMA * multiply_add
    return min(multiply_add, max(0, least_flop - others) // FLOP_PER_FMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Floating-point operations and bytes; adding two gives the work of both.

    ``multiply_add`` counts those in convolutions and matrix products by the usual convention,
    ``flop`` twice that plus everything else, ``least_flop`` what no kernel can avoid (only it
    enters bounds) and ``least_multiply_add`` the multiply-adds among that; where it is not given,
    as many as are left if nothing else is optional. All are None together where they are unknown,
    and unknown plus anything is unknown. Bytes are always known, but for ``internal_byte``: what
    the parts of fused operators hand to each other, written and read, or read again at every step.
    Their traffic lies between ``traffic_byte``, where all of that stays on chip, and that much
    more, where none of it does; None where it is unknown.
    ``Work()`` is no work.
    """

    flop: int | None = 0
    multiply_add: int | None = 0
    least_flop: int | None = 0
    least_multiply_add: int | None = None
    parameter_byte: int = 0
    input_byte: int = 0
    output_byte: int = 0
    gradient_byte: int = 0
    optimizer_byte: int = 0
    internal_byte: int | None = 0

    def __post_init__(self) -> None:
        if self.least_multiply_add is None and self.flop is not None:
            least = least_products(self.multiply_add or 0, self.flop, self.least_flop or 0)
            object.__setattr__(self, "least_multiply_add", least)

    @property
    def least_product_flop(self) -> int | None:
        """FLOP of the products that no kernel can avoid, or None."""
        least = self.least_multiply_add
        return None if least is None else FLOP_PER_FMA * least

    @property
    def traffic_byte(self) -> int:
        """All bytes read and written, each operand once."""
        return (
            self.parameter_byte
            + self.input_byte
            + self.output_byte
            + self.gradient_byte
            + self.optimizer_byte
        )

    @property
    def intensity_flop_per_byte(self) -> float | None:
        """FLOP per byte of traffic; None where FLOP is unknown or nothing moves."""
        if self.flop is None or not self.traffic_byte:
            return None
        return self.flop / self.traffic_byte

    def __add__(self, other: Work) -> Work:
        return Work(
            flop=_plus(self.flop, other.flop),
            multiply_add=_plus(self.multiply_add, other.multiply_add),
            least_flop=_plus(self.least_flop, other.least_flop),
            least_multiply_add=_plus(self.least_multiply_add, other.least_multiply_add),
            parameter_byte=self.parameter_byte + other.parameter_byte,
            input_byte=self.input_byte + other.input_byte,
            output_byte=self.output_byte + other.output_byte,
            gradient_byte=self.gradient_byte + other.gradient_byte,
            optimizer_byte=self.optimizer_byte + other.optimizer_byte,
            internal_byte=_plus(self.internal_byte, other.internal_byte),
        )

    def __radd__(self, other: object) -> Work:
        """So that ``sum(works)``, which starts at 0, gives a `Work`."""
        return self if other == 0 else NotImplemented


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


_BYTE_FIELD = {
    Role.PARAMETER: "parameter_byte",
    Role.BUFFER: "parameter_byte",
    Role.GRADIENT: "gradient_byte",
    Role.OPTIMIZER_STATE: "optimizer_byte",
}


def traffic_of(inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> dict[str, int]:
    """Bytes by the byte fields of `Work`: each operand read once, each output written once.

    Parameters, buffers, gradients and optimizer states count where they belong whether read or
    written; of the rest, what is read is ``input_byte`` and what is written ``output_byte``.
    An operator that updates in place lists its operand among both: it counts as read and written.
    """
    byte: dict[str, int] = {}
    for specs, otherwise in ((inputs, "input_byte"), (outputs, "output_byte")):
        for spec in specs:
            name = _BYTE_FIELD.get(spec.role, otherwise)
            byte[name] = byte.get(name, 0) + spec.byte
    return byte
