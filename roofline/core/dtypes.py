"""Data types as names with a width in bits, so that analyses are read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.errors import InputError, did_you_mean

Kind = Literal["float", "int", "uint", "bool", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """A data type: torch's name for it, its width in bits, and its kind."""

    name: str
    bits: int
    kind: Kind

    def byte(self, elements: int) -> int:
        """Bytes that `elements` packed elements take, rounded up to whole bytes."""
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
        # Of these an element is a byte, whatever lies in it.
        "bits4x2": 8,
        "bits2x4": 8,
        "bits1x8": 8,
    },
    "bool": {"bool": 8},
    "complex": {"complex128": 128, "complex64": 64, "complex32": 32},
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
    """The data type called `name`; torch's names and the usual short ones (``fp32``, ``bf16``).

    Also a data type of torch itself, which needs no torch here: its text is its name.
    """
    plain = str(name).removeprefix("torch.")
    found = _KNOWN.get(_ALIASES.get(plain, plain))
    if found is None:
        hint = did_you_mean(plain, [*_KNOWN, *_ALIASES])
        raise InputError(
            f"unknown dtype '{name}'{hint or '; try float32, bfloat16, float16 or float64'}"
        )
    return found
