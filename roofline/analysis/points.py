"""Operators as points of a plot; those without FLOP are listed apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from roofline.analysis.grouping import grouping_key, working
from roofline.analysis.result import Analysis
from roofline.analysis.rows import OperatorRow
from roofline.analysis.words import (
    MODEL_ITSELF,
    is_below_minimum,
    module_of,
    rate_flop_per_s,
    shape_of,
    short_op,
    time_s,
    total_s,
)
from roofline.core.dtypes import DType
from roofline.machine.roof import MIX, ComputeRoof, MachineRoof, ceiling_of, diagonal_of
from roofline.placement import Roof, arithmetic_dtype
from roofline.plots.roof import Point, RoofLines, StripPoint
from roofline.workload.operators import State

Roofs = Literal["all", "in use"]


def roof_lines(analysis: Analysis, roofs: Roofs) -> RoofLines:
    """Return the roofline of the machine with the threads of the analysis."""
    roof = Roof(analysis.hardware, analysis.threads)
    return lines_of(roof, dtypes_in_use(analysis, roof), roofs)


def lines_of(roof: MachineRoof, main: Sequence[DType], roofs: Roofs) -> RoofLines:
    """Return the roofline of a machine; `main` are the data types in use."""
    # FMA + ADD gives the highest ceiling of a type; drawn for each unit, it would hide the others.
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
    """Return the data types of the ceilings that operators stand under, most FLOP first."""
    flop: dict[DType, int] = {}
    for row in analysis.operators:
        of = arithmetic_dtype((*row.inputs, *row.outputs))
        unit = roof.compute(of) if of else None
        if unit is not None:
            flop[unit.dtype] = flop.get(unit.dtype, 0) + (row.flop or 0)
    if not flop:
        return list(dict.fromkeys(each.dtype for each in analysis.hardware.compute))
    return sorted(flop, key=lambda of: -flop[of])


_NAME_CHARACTERS = 28
_SAME_SPOT = 0.01  # Decades within which calls of one operator and shape share a point


def drawn(row: OperatorRow) -> bool:
    """Return whether a row has FLOP, bytes and a time, and so a place on the axes."""
    return bool(row.flop and row.intensity_flop_per_byte and rate_flop_per_s(row))


def points_of(analysis: Analysis) -> tuple[Point, ...]:
    """Return the operators on the axes, longest time first."""
    by_spot: dict[tuple[object, ...], list[OperatorRow]] = {}
    for row in analysis.operators:
        x, y = row.intensity_flop_per_byte, rate_flop_per_s(row)
        if row.flop and x and y:
            spot = [round(math.log10(value) / _SAME_SPOT) for value in (x, y)]
            by_spot.setdefault((row.op, row.type, row.phase, shape_of(row), *spot), []).append(row)
    whole = total_s(analysis)
    in_module = Counter(row.module_path for row in analysis.operators if drawn(row))
    found = [_point(rows, whole, in_module) for rows in by_spot.values()]
    return tuple(sorted(found, key=lambda point: -point.share))


def _point(rows: Sequence[OperatorRow], whole: float, in_module: Counter[str]) -> Point:
    flop = sum(row.flop or 0 for row in rows)
    # A point of several calls has the AI and rate of their sums.
    byte = sum((row.flop or 0) / (row.intensity_flop_per_byte or 1.0) for row in rows)
    at_rate_s = sum((row.flop or 0) / (rate_flop_per_s(row) or 1.0) for row in rows)
    first = max(rows, key=lambda row: time_s(row) or 0.0)
    # Tables count the first and equal calls; the others share its spot.
    same = sum(grouping_key(row) == grouping_key(first) for row in rows)
    name = name_of(first, alone=in_module[first.module_path] == 1, count=same)
    return Point(
        name=f"{name} +{len(rows) - same}" if len(rows) > same else name,
        op=short_op(first),
        type=first.type,
        phase=first.phase,
        count=len(rows),
        flop_per_byte=flop / byte,
        flop_per_s=flop / at_rate_s,
        share=sum(time_s(row) or 0.0 for row in rows) / whole,
        above=any(map(is_below_minimum, rows)),
    )


def name_of(row: OperatorRow, *, alone: bool, count: int) -> str:
    """Return a label: module, operator if the module has several, number of calls."""
    module, op = module_of(row), short_op(row)
    if module == MODEL_ITSELF:
        words = op
    else:
        words = _path_end(module) if alone else f"{_path_end(module)} {op}"
    return f"{words} ×{count}" if count > 1 else words


def _path_end(module: str) -> str:
    """Return the end of a long module path: ``"…layer_1.mlp.0"``."""
    if len(module) <= _NAME_CHARACTERS:
        return module
    end = module
    while len(end) >= _NAME_CHARACTERS and "." in end:
        end = end.partition(".")[2]
    return "…" + end[-_NAME_CHARACTERS + 1 :]


def strip_of(analysis: Analysis) -> tuple[StripPoint, ...]:
    """Return the operators with zero or unknown FLOP, longest time first."""
    by_name: dict[tuple[Literal["no FLOP", "FLOP unknown"], str, str], list[OperatorRow]] = {}
    for row in analysis.operators:
        if row.state is not State.FREE and not row.flop:
            why = "FLOP unknown" if row.flop is None else "no FLOP"
            by_name.setdefault((why, row.op, row.type), []).append(row)
    whole = total_s(analysis)
    found: list[StripPoint] = []
    for (why, _, kind), rows in by_name.items():
        times = [time for row in rows if (time := time_s(row)) is not None]
        found.append(
            StripPoint(
                op=short_op(rows[0]),
                type=kind,
                count=len(rows),
                share=sum(times) / whole if times and whole else None,
                why=why,
            )
        )
    # Unknown FLOP first: a short strip must not leave them out.
    return tuple(
        sorted(found, key=lambda each: (each.why == "no FLOP", -(each.share or 0.0), each.op))
    )


def types_by_time(analysis: Analysis) -> list[str]:
    """Return the types of the operators that are not free, longest first."""
    times: dict[str, float] = {}
    for row in working(analysis.operators):
        times[row.type] = times.get(row.type, 0.0) + (time_s(row) or 0.0)
    return sorted(times, key=lambda kind: -times[kind])
