"""Work of an operator, and its sum over modules and models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.workload.tensors import Role, TensorSpec

FLOP_PER_MAC = 2
"""A multiply-accumulate is two floating-point operations. (fvcore's "flops" are MACs.)"""

COUNTS = ("flop", "macs", "min_flop", "min_macs")
"""Fields of `Work` for arithmetic."""


def guaranteed_macs(macs: int, flop: int, min_flop: int) -> int:
    """Return the MACs among `min_flop` if all other FLOP are also among them."""
    others = flop - FLOP_PER_MAC * macs
    return min(macs, max(0, min_flop - others) // FLOP_PER_MAC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Floating-point operations and bytes; adding two gives the work of both.

    ``macs`` counts the MACs of convolutions and matrix products by the usual convention, ``flop``
    twice that plus all other operations. ``min_flop`` is the FLOP that no kernel can avoid; minimum
    times use it alone. ``min_macs`` are the MACs among it; by default as many as remain if nothing
    else is optional. All are None together if unknown, and unknown plus anything is unknown. Bytes
    are always known, except ``internal_bytes``: traffic between the parts of fused operators,
    written and read, or read again at every step. Actual traffic lies between ``traffic_bytes``
    (all of it stays on chip) and the sum of both (none does); None if unknown. ``Work()`` is no
    work.
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
            min_macs = guaranteed_macs(self.macs or 0, self.flop, self.min_flop or 0)
            object.__setattr__(self, "min_macs", min_macs)

    @property
    def min_mac_flop(self) -> int | None:
        """FLOP of the MACs that no kernel can avoid, or None."""
        return None if self.min_macs is None else FLOP_PER_MAC * self.min_macs

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
        """Support ``sum(works)``, which starts at 0."""
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
    """Return bytes by byte field of `Work`: each operand read once, each output written once.

    Parameters, buffers, gradients and optimizer states have fields of their own, read or written.
    Other reads are ``input_bytes``, other writes ``output_bytes``. An operand that is updated in
    place is listed as input and output: it counts as read and written.
    """
    byte: dict[str, int] = {}
    for specs, otherwise in ((inputs, "input_bytes"), (outputs, "output_bytes")):
        for spec in specs:
            name = _BYTE_FIELD.get(spec.role, otherwise)
            byte[name] = byte.get(name, 0) + spec.byte
    return byte
