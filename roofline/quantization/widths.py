"""The data types in which a machine computes with values of few bits, and keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from roofline.core.dtypes import DType, dtype
from roofline.machine.hardware import HardwareProfile
from roofline.quantization.policy import FLOAT_BITS, LayerBits

INT8 = "int8"
_INT4 = "int4"
_HALVES = ("bfloat16", "float16")
_NARROWEST_HALF = 9
_CODES = "codes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """The data type that a layer would be computed in on a machine.

    ``has_kernel``: that type is as wide as weights and activations, and the machine has it.
    """

    dtype: DType
    has_kernel: bool


@dataclass(frozen=True)
class Widths:
    """The data types that a machine has for so many threads, by the ceilings of its library, else
    of its hardware.
    """

    profile: HardwareProfile
    threads: int

    @cached_property
    def _rates(self) -> dict[str, dict[str, float]]:
        """The highest ceiling of every type, that on as many threads where it is known."""
        found: dict[str, dict[str, tuple[bool, float]]] = {"library": {}, "hardware": {}}
        for each in self.profile.compute:
            rank = (each.threads == self.threads, each.peak_flop_per_s)
            by_type = found[each.kind]
            by_type[each.dtype.name] = max(by_type.get(each.dtype.name, rank), rank)
        return {
            kind: {name: rate for name, (_, rate) in by_type.items()}
            for kind, by_type in found.items()
        }

    def has_kernel(self, name: str) -> bool:
        """Whether a type can be run: torch ran it here, or a data sheet has it."""
        return name in (self._rates["library"] or self._rates["hardware"])

    @cached_property
    def half(self) -> DType | None:
        """The faster of both floating types of 16 bits; None where the machine has neither."""
        for rates in self._rates.values():
            known = [each for each in _HALVES if each in rates]
            if known:
                return dtype(max(known, key=lambda each: rates[each]))
        return None

    def executable(self, bits: LayerBits, base: DType) -> Executable:
        """What a layer of these bits is computed in, if its tensors are of `base` as it is."""
        weights, activations = own_bits(bits.weights, base), own_bits(bits.activations, base)
        if min(weights, activations) == base.bits:
            return Executable(dtype=base, has_kernel=True)
        found = self._narrowest(max(weights, activations), base)
        is_width = weights == activations == found.bits
        return Executable(dtype=found, has_kernel=is_width and self.has_kernel(found.name))

    def _narrowest(self, bits: int, base: DType) -> DType:
        for name, most in ((_INT4, dtype(_INT4).bits), (INT8, _NARROWEST_HALF - 1)):
            if bits <= most and any(name in rates for rates in self._rates.values()):
                return dtype(name)
        half = self.half
        return half if half is not None and bits <= half.bits < base.bits else base

    def kept_in(self, bits: int, *, is_weight: bool = False) -> DType:
        """The type of values of so many bits: torch's where it computes with them, else codes."""
        half = self.half
        if half is not None and bits == half.bits and self.has_kernel(half.name):
            return half
        if bits == dtype(INT8).bits and self.has_kernel(INT8):
            return dtype("qint8" if is_weight else "quint8")
        return DType(f"{_CODES}{bits}", bits, "int" if is_weight else "uint")


def own_bits(bits: int, base: DType) -> int:
    """The bits of what is asked to have `bits`, or is left as it is, in `base`."""
    return base.bits if bits == FLOAT_BITS else min(bits, base.bits)


def is_codes(of: DType) -> bool:
    """Whether torch has no type for such values."""
    return of.name.startswith(_CODES)
