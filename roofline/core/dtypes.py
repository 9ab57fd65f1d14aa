"""Data types with their bit width; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.errors import InputError, did_you_mean

Kind = Literal["float", "int", "uint", "bool", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """A data type: torch's name, bit width and kind."""

    name: str
    bits: int
    kind: Kind

    def byte(self, elements: int) -> int:
        """Return the bytes of packed elements, rounded up."""
        return (elements * self.bits + 7) // 8

    def __str__(self) -> str:
        return self.name


_BITS: dict[Kind, dict[str, int]] = {
    "float": {
        "float64": 64,
        "float32": 32,
        "float16": 16,
        "bfloat16": 16,
        "float8_e4m3fn": 8,
        "float8_e5m2": 8,
        "float8_e4m3fnuz": 8,
        "float8_e5m2fnuz": 8,
        "float8_e8m0fnu": 8,
        "float4_e2m1fn_x2": 8,
    },
    "int": {
        **{f"int{bits}": bits for bits in (64, 32, 16, 8, 7, 6, 5, 4, 3, 2, 1)},
        "qint8": 8,
        "qint32": 32,
    },
    "uint": {
        **{f"uint{bits}": bits for bits in (64, 32, 16, 8, 7, 6, 5, 4, 3, 2, 1)},
        "quint8": 8,
        "quint4x2": 4,
        "quint2x4": 2,
        "bits16": 16,
        "bits8": 8,
        # An element of these is a byte.
        "bits4x2": 8,
        "bits2x4": 8,
        "bits1x8": 8,
    },
    "bool": {"bool": 8},
    "complex": {"complex128": 128, "complex64": 64, "complex32": 32, "bcomplex32": 32},
}
_KNOWN = {
    name: DType(name, bits, kind) for kind, sizes in _BITS.items() for name, bits in sizes.items()
}

_ALIASES = {
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
}


def dtype(name: object) -> DType:
    """Return the data type with a name of torch or a short one (``fp32``), or a torch dtype."""
    plain = str(name).removeprefix("torch.")
    found = _KNOWN.get(_ALIASES.get(plain, plain))
    if found is None:
        hint = did_you_mean(plain, [*_KNOWN, *_ALIASES])
        raise InputError(
            f"unknown dtype '{name}'{hint or '; use float32, bfloat16, float16 or float64'}"
        )
    return found
