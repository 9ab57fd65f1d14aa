"""Which ceilings of a machine are drawn in the picture of its roof, and in which colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.foundation.dtypes import DType
from roofline.foundation.text import printable
from roofline.foundation.units import format_flop_per_s
from roofline.machine.hardware import HardwareProfile
from roofline.placement import ComputeRoof, Roof
from roofline.plots.roof import Ceiling
from roofline.plots.style import BLACK, BLUE, DARK_RED, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

_COLOURS = {
    "float64": BLUE,
    "float32": VERMILION,
    "float16": ORANGE,
    "bfloat16": GREEN,
    "int8": PURPLE,
    "int32": SKY,
}
"""Data types that keep their colour from picture to picture."""

_SPARE = (DARK_RED, GREY, BLACK)
_MOST_UNITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofLine:
    """A ceiling of one machine; ``alone`` is that of one thread where all are drawn too."""

    ceiling: Ceiling
    colour: str
    alone: bool


def colours_of(types: Iterable[DType]) -> dict[str, str]:
    """A colour for each data type, by name."""
    names = list(dict.fromkeys(each.name for each in types))
    others = [name for name in names if name not in _COLOURS]
    spare = {name: _SPARE[i % len(_SPARE)] for i, name in enumerate(others)}
    return {name: _COLOURS.get(name) or spare[name] for name in names}


def lines_of_roof(
    profile: HardwareProfile, roof: Roof, single: Roof | None
) -> tuple[RoofLine, ...]:
    """The ceilings worth a line, the highest first.

    Of each data type: the two highest of the hardware and the highest of each kernel of the
    library with all threads (`roof`), and the highest that multiplies on one thread (`single`).
    """
    fastest = max((level.byte_per_s for level in roof.levels), default=None)
    nearest = max((level.byte_per_s for level in single.levels), default=None) if single else None
    colours = colours_of(each.dtype for each in profile.compute)

    def line(
        unit: ComputeRoof, kind: Literal["hardware", "library"], *, alone: bool = False
    ) -> RoofLine:
        near = nearest if alone else fastest
        words = ", 1 thread" if alone else ""
        return RoofLine(
            ceiling=Ceiling(
                label=f"{printable(unit.label)}{words} {format_flop_per_s(unit.flop_per_s)}",
                kind=kind,
                flop_per_s=unit.flop_per_s,
                start_flop_per_byte=unit.flop_per_s / near if near else None,
                main=not alone,
            ),
            colour=colours[unit.dtype.name],
            alone=alone,
        )

    found = [
        *(line(unit, "hardware") for unit in _highest(roof.units)),
        *(line(unit, "library") for unit in _of_each_kernel(_library(profile).units)),
    ]
    if single:
        best: dict[DType, ComputeRoof] = {}
        for unit in single.units:
            product = single.compute(unit.dtype)
            if product is not None and product.dtype == unit.dtype:
                best[unit.dtype] = product
        found += [line(unit, "hardware", alone=True) for unit in best.values()]
    return tuple(sorted(found, key=lambda each: -each.ceiling.flop_per_s))


def _library(profile: HardwareProfile) -> Roof:
    compute = tuple(
        replace(each, kind="hardware") for each in profile.compute if each.kind == "library"
    )
    return Roof(replace(profile, compute=compute), profile.threads)


def _highest(units: Sequence[ComputeRoof]) -> list[ComputeRoof]:
    """The two highest of each data type; `units` come fastest first."""
    kept: dict[DType, list[ComputeRoof]] = {}
    for unit in units:
        if len(found := kept.setdefault(unit.dtype, [])) < _MOST_UNITS:
            found.append(unit)
    return [unit for found in kept.values() for unit in found]


def _of_each_kernel(units: Sequence[ComputeRoof]) -> list[ComputeRoof]:
    """The highest of each data type and kernel, whatever the layout of its operands."""
    kept: dict[tuple[DType, str], ComputeRoof] = {}
    for unit in units:
        kept.setdefault((unit.dtype, unit.kernel.partition("-")[0]), unit)
    return list(kept.values())
