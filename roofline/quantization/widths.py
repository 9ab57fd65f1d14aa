"""Data types in which a machine computes and stores quantized values."""

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
    """Data type that a layer is computed in on a machine.

    ``has_kernel``: the machine has the type, and it is as wide as weights and activations.
    """

    dtype: DType
    has_kernel: bool


@dataclass(frozen=True)
class Widths:
    """Data types of a machine, from its library ceilings, else from its hardware ceilings."""

    profile: HardwareProfile
    threads: int

    @cached_property
    def _rates(self) -> dict[str, dict[str, float]]:
        """Highest ceiling of each data type, for this number of threads if available."""
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
        """Return whether a type runs: on torch here, or according to a data sheet."""
        return name in (self._rates["library"] or self._rates["hardware"])

    @cached_property
    def half(self) -> DType | None:
        """Faster 16-bit floating-point type; None: the machine has none."""
        for rates in self._rates.values():
            known = [each for each in _HALVES if each in rates]
            if known:
                return dtype(max(known, key=lambda each: rates[each]))
        return None

    def executable(self, bits: LayerBits, base: DType) -> Executable:
        """Return the data type that a layer of these bits is computed in; `base` is its original
        type.
        """
        weights, activations = (
            effective_bits(bits.weights, base),
            effective_bits(bits.activations, base),
        )
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

    def storage_type(self, bits: int, *, is_weight: bool = False) -> DType:
        """Return the type of stored values: torch's if it computes with this width, else codes."""
        half = self.half
        if half is not None and bits == half.bits and self.has_kernel(half.name):
            return half
        if bits == dtype(INT8).bits and self.has_kernel(INT8):
            return dtype("qint8" if is_weight else "quint8")
        return DType(f"{_CODES}{bits}", bits, "int" if is_weight else "uint")


def effective_bits(bits: int, base: DType) -> int:
    """Return the bit width of `bits` in data type `base`: unquantized values keep their own."""
    return base.bits if bits == FLOAT_BITS else min(bits, base.bits)


def is_code_type(of: DType) -> bool:
    """Return whether torch has no such data type."""
    return of.name.startswith(_CODES)
