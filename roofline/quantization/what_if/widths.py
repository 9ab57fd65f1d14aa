"""Which data type a machine computes a width in, and what values of a width are kept in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from roofline.foundation.dtypes import DType, dtype
from roofline.machine.hardware import HardwareProfile
from roofline.quantization.policy import FLOAT_BITS, LayerBits

_HALVES = ("bfloat16", "float16")
INT8 = "int8"
_INT4 = "int4"
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
    """The data types that a machine has, by the ceilings of its library, else of its hardware.

    Args:
        profile: the machine.
        threads: how many compute.
    """

    profile: HardwareProfile
    threads: int

    @cached_property
    def _library(self) -> dict[str, float]:
        return self._rates("library")

    @cached_property
    def _hardware(self) -> dict[str, float]:
        return self._rates("hardware")

    def _rates(self, kind: str) -> dict[str, float]:
        """The highest ceiling of every type, that on as many threads where it is known."""
        found: dict[str, tuple[bool, float]] = {}
        for each in self.profile.compute:
            if each.kind == kind:
                rank = (each.threads == self.threads, each.peak_flop_per_s)
                found[each.dtype.name] = max(found.get(each.dtype.name, rank), rank)
        return {name: rate for name, (_, rate) in found.items()}

    def has(self, name: str) -> bool:
        """Whether there is a ceiling for a type, of whatever kind."""
        return name in self._library or name in self._hardware

    def has_kernel(self, name: str) -> bool:
        """Whether a type can be run: torch ran it here, or a data sheet has it."""
        return name in (self._library or self._hardware)

    @cached_property
    def half(self) -> DType | None:
        """The faster of both floating types of 16 bits; None where the machine has neither."""
        for rates in (self._library, self._hardware):
            known = [each for each in _HALVES if each in rates]
            if known:
                return dtype(max(known, key=lambda each: rates[each]))
        return None

    def executable(self, bits: LayerBits, base: DType) -> Executable:
        """What a layer of these bits is computed in, if its tensors are of `base` as it is."""
        if is_kept(bits, base):
            return Executable(dtype=base, has_kernel=True)
        weights, activations = own_bits(bits.weights, base), own_bits(bits.activations, base)
        found = self._narrowest(max(weights, activations), base)
        is_width = weights == activations == found.bits
        return Executable(dtype=found, has_kernel=is_width and self.has_kernel(found.name))

    def _narrowest(self, bits: int, base: DType) -> DType:
        names: list[str] = []
        if bits <= dtype(_INT4).bits:
            names.append(_INT4)
        if bits < _NARROWEST_HALF:
            names.append(INT8)
        for name in names:
            if self.has(name):
                return dtype(name)
        half = self.half
        is_half = half is not None and bits <= half.bits < base.bits
        return half if is_half and half is not None else base

    def kept_in(self, bits: int, *, is_weight: bool = False) -> DType:
        """The type of values of so many bits: torch's where they can be computed with, else codes.

        Args:
            bits: fewer than those of the floats that they were.
            is_weight: of a weight, which has a sign.
        """
        half = self.half
        if half is not None and bits == half.bits and self.has_kernel(half.name):
            return half
        if bits == dtype(INT8).bits and self.has_kernel(INT8):
            return dtype("qint8" if is_weight else "quint8")
        return DType(f"{_CODES}{bits}", bits, "int" if is_weight else "uint")


def own_bits(bits: int, base: DType) -> int:
    """The bits of what is asked to have `bits`, or is left as it is, in `base`."""
    return base.bits if bits == FLOAT_BITS else min(bits, base.bits)


def is_kept(bits: LayerBits, base: DType) -> bool:
    """Whether layers of that type stay as they are: no fewer bits are asked for."""
    return min(own_bits(bits.weights, base), own_bits(bits.activations, base)) == base.bits


def is_codes(of: DType) -> bool:
    """Whether torch has no type for such values."""
    return of.name.startswith(_CODES)
