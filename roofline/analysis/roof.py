"""The roof as lines: compute ceilings, memory diagonals, and the ridges where they meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from roofline.analysis.result import Analysis
from roofline.foundation.dtypes import DType
from roofline.foundation.text import printable
from roofline.foundation.units import format_byte_per_s, format_flop_per_s
from roofline.placement import (
    MIX,
    ComputeRoof,
    LevelRoof,
    Roof,
    arithmetic_dtype,
    ridge_flop_per_byte,
)
from roofline.plots.roof import Ceiling, Diagonal, RoofLines

Roofs = Literal["all", "in use"]

_NAME_CHARACTERS = 40


def line_name(label: str) -> str:
    """A line's name in one line, its middle left out where it would leave a picture no room."""
    name = printable(label)
    if len(name) <= _NAME_CHARACTERS:
        return name
    half = _NAME_CHARACTERS // 2
    return f"{name[:half]}…{name[1 - half :]}"


def roof_lines(analysis: Analysis, roofs: Roofs) -> RoofLines:
    """The lines of the analysis' machine for the threads it used."""
    profile = analysis.hardware
    roof = Roof(profile, analysis.threads)
    as_hardware = tuple(
        replace(each, kind="hardware") for each in profile.compute if each.kind == "library"
    )
    library = Roof(replace(profile, compute=as_hardware), analysis.threads)
    main = _dtypes_in_use(analysis, roof)
    fastest = max((level.byte_per_s for level in roof.levels), default=None)
    # Additions beside products lift the highest ceiling of a type; drawn for each unit as well they
    # would hide the others.
    units: list[tuple[Literal["hardware", "library"], ComputeRoof]] = [
        *(
            ("hardware", unit)
            for unit in roof.units
            if unit.kernel != MIX or unit == roof.compute_any(unit.dtype)
        ),
        *(("library", unit) for unit in library.units),
    ]
    ceilings = [
        Ceiling(
            label=f"{line_name(unit.label)} {format_flop_per_s(unit.flop_per_s)}",
            kind=kind,
            flop_per_s=unit.flop_per_s,
            start_flop_per_byte=unit.flop_per_s / fastest if fastest else None,
            main=unit.dtype in main,
        )
        for kind, unit in units
        if unit.dtype in main
        or (roofs == "all" and kind == "hardware" and unit == roof.compute_any(unit.dtype))
    ]
    hardware = [unit for unit in roof.units if roofs == "all" or unit.dtype in main]
    top = hardware[0] if hardware else None
    main_top = (roof.compute(main[0]) if main else None) or top
    return RoofLines(
        ceilings=tuple(sorted(ceilings, key=lambda each: -each.flop_per_s)),
        diagonals=tuple(_diagonal(level, main_top, top) for level in roof.levels),
        main_top_flop_per_s=main_top.flop_per_s if main_top else None,
    )


def _diagonal(level: LevelRoof, main_top: ComputeRoof | None, top: ComputeRoof | None) -> Diagonal:
    return Diagonal(
        label=f"{line_name(level.label)} {format_byte_per_s(level.byte_per_s)}",
        level=printable(level.level.name),
        byte_per_s=level.byte_per_s,
        ridge_flop_per_byte=ridge_flop_per_byte(main_top, level) if main_top else None,
        cut_flop_per_byte=ridge_flop_per_byte(top, level) if top else None,
    )


def _dtypes_in_use(analysis: Analysis, roof: Roof) -> Sequence[DType]:
    """The data types of the ceilings that the model's operators stand under, most FLOP first.

    A model without arithmetic makes no type more important than another: all are in use.
    """
    flop: dict[DType, int] = {}
    for row in analysis.operators:
        of = arithmetic_dtype((*row.inputs, *row.outputs))
        unit = roof.compute(of) if of else None
        if unit is not None:
            flop[unit.dtype] = flop.get(unit.dtype, 0) + (row.flop or 0)
    if not flop:
        return list(dict.fromkeys(each.dtype for each in analysis.hardware.compute))
    return sorted(flop, key=lambda of: -flop[of])
