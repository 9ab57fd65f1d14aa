"""The roof as lines: compute ceilings, memory diagonals, and the ridges where they meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from roofline.analysis.result import Analysis
from roofline.foundation.dtypes import DType
from roofline.machine.roof import MIX, ComputeRoof, MachineRoof, ceiling_of, diagonal_of
from roofline.placement import Roof, arithmetic_dtype
from roofline.plots.roof import RoofLines

Roofs = Literal["all", "in use"]


def roof_lines(analysis: Analysis, roofs: Roofs) -> RoofLines:
    """The lines of the analysis' machine for the threads it used."""
    profile = analysis.hardware
    roof = Roof(profile, analysis.threads)
    main = dtypes_in_use(analysis, roof)
    # Additions beside products lift the highest ceiling of a type; drawn for each unit as well they
    # would hide the others.
    units: list[tuple[Literal["hardware", "library"], ComputeRoof]] = [
        *(
            ("hardware", unit)
            for unit in roof.units
            if unit.kernel != MIX or unit == roof.compute_any(unit.dtype)
        ),
        *(("library", unit) for unit in roof.library.units),
    ]
    ceilings = [
        ceiling_of(unit, kind, roof.fastest_bytes_per_s, main=unit.dtype in main)
        for kind, unit in units
        if unit.dtype in main
        or (roofs == "all" and kind == "hardware" and unit == roof.compute_any(unit.dtype))
    ]
    hardware = [unit for unit in roof.units if roofs == "all" or unit.dtype in main]
    top = hardware[0] if hardware else None
    main_top = (roof.compute(main[0]) if main else None) or top
    return RoofLines(
        ceilings=tuple(sorted(ceilings, key=lambda each: -each.flop_per_s)),
        diagonals=tuple(diagonal_of(level, main_top, top) for level in roof.levels),
        main_top_flop_per_s=main_top.flop_per_s if main_top else None,
    )


def dtypes_in_use(analysis: Analysis, roof: MachineRoof) -> Sequence[DType]:
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
