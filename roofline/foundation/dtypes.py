"""Data types as names with a width in bits, so that analyses are read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.errors import InputError, nearest

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
    },
    "int": {"int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "qint8": 8, "qint32": 32},
    "uint": {"uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint4": 4, "quint8": 8},
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


def dtype(name: str) -> DType:
    """The data type called `name`; torch's names and the usual short ones (``fp32``, ``bf16``).

    Raises:
        InputError: no such data type; the message names the nearest.
    """
    plain = name.removeprefix("torch.")
    found = _KNOWN.get(_ALIASES.get(plain, plain))
    if found is None:
        hint = nearest(plain, [*_KNOWN, *_ALIASES])
        raise InputError(
            f"unknown dtype '{name}'{hint or '; try float32, bfloat16, float16 or float64'}"
        )
    return found
