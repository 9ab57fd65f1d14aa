"""The work of an operator, and its algebra: results add up to those of modules and models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.workload.tensors import Role, TensorSpec

FLOP_PER_FMA = 2
"""A fused multiply-add is two floating-point operations. (fvcore's "flops" are multiply-adds.)"""

COUNTS = ("flop", "macs", "min_flop", "min_macs")
"""What formulas say of arithmetic, by the names that `Work` has for it."""


def least_products(macs: int, flop: int, min_flop: int) -> int:
    """Multiply-adds that are among `min_flop` even if all other FLOP are among them too."""
    others = flop - FLOP_PER_FMA * macs
    return min(macs, max(0, min_flop - others) // FLOP_PER_FMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Floating-point operations and bytes; adding two gives the work of both.

    ``macs`` counts those in convolutions and matrix products by the usual convention,
    ``flop`` twice that plus everything else, ``min_flop`` what no kernel can avoid (only it
    enters bounds) and ``min_macs`` the multiply-adds among that; where it is not given,
    as many as are left if nothing else is optional. All are None together where they are unknown,
    and unknown plus anything is unknown. Bytes are always known, but for ``internal_bytes``: what
    the parts of fused operators hand to each other, written and read, or read again at every step.
    Their traffic lies between ``traffic_bytes``, where all of that stays on chip, and that much
    more, where none of it does; None where it is unknown.
    ``Work()`` is no work.
    """

    flop: int | None = 0
    macs: int | None = 0
    min_flop: int | None = 0
    min_macs: int | None = None
    parameter_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    internal_bytes: int | None = 0

    def __post_init__(self) -> None:
        if self.min_macs is None and self.flop is not None:
            least = least_products(self.macs or 0, self.flop, self.min_flop or 0)
            object.__setattr__(self, "min_macs", least)

    @property
    def min_product_flop(self) -> int | None:
        """FLOP of the products that no kernel can avoid, or None."""
        least = self.min_macs
        return None if least is None else FLOP_PER_FMA * least

    @property
    def traffic_bytes(self) -> int:
        """All bytes read and written, each operand once."""
        return (
            self.parameter_bytes
            + self.input_bytes
            + self.output_bytes
            + self.gradient_bytes
            + self.optimizer_bytes
        )

    @property
    def intensity_flop_per_byte(self) -> float | None:
        """FLOP per byte of traffic; None where FLOP is unknown or nothing moves."""
        if self.flop is None or not self.traffic_bytes:
            return None
        return self.flop / self.traffic_bytes

    def __add__(self, other: Work) -> Work:
        return Work(
            flop=_plus(self.flop, other.flop),
            macs=_plus(self.macs, other.macs),
            min_flop=_plus(self.min_flop, other.min_flop),
            min_macs=_plus(self.min_macs, other.min_macs),
            parameter_bytes=self.parameter_bytes + other.parameter_bytes,
            input_bytes=self.input_bytes + other.input_bytes,
            output_bytes=self.output_bytes + other.output_bytes,
            gradient_bytes=self.gradient_bytes + other.gradient_bytes,
            optimizer_bytes=self.optimizer_bytes + other.optimizer_bytes,
            internal_bytes=_plus(self.internal_bytes, other.internal_bytes),
        )

    def __radd__(self, other: object) -> Work:
        """So that ``sum(works)``, which starts at 0, gives a `Work`."""
        return self if other == 0 else NotImplemented


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


_BYTE_FIELD = {
    Role.PARAMETER: "parameter_bytes",
    Role.BUFFER: "parameter_bytes",
    Role.GRADIENT: "gradient_bytes",
    Role.OPTIMIZER_STATE: "optimizer_bytes",
}


def traffic_of(inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> dict[str, int]:
    """Bytes by the byte fields of `Work`: each operand read once, each output written once.

    Parameters, buffers, gradients and optimizer states count where they belong whether read or
    written; of the rest, what is read is ``input_bytes`` and what is written ``output_bytes``.
    An operator that updates in place lists its operand among both: it counts as read and written.
    """
    byte: dict[str, int] = {}
    for specs, otherwise in ((inputs, "input_bytes"), (outputs, "output_bytes")):
        for spec in specs:
            name = _BYTE_FIELD.get(spec.role, otherwise)
            byte[name] = byte.get(name, 0) + spec.byte
    return byte
