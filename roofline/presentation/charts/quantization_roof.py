"""The roof of a quantisation: the ceilings of floats, and of what few bits are computed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from roofline.analysis import Analysis, working
from roofline.analysis.roof import roof_lines
from roofline.errors import InputError
from roofline.foundation.dtypes import DType, dtype
from roofline.machine.hardware import ComputeCeiling, HardwareProfile
from roofline.placement import Roof, arithmetic_dtype
from roofline.plots.roof import RoofLines
from roofline.quantization.result import WhatIf


def quantized_roof_lines(analysis: Analysis, what_if: WhatIf) -> RoofLines:
    """The lines of the machine for the types before and after, all drawn as types in use.

    Of the hardware's ceilings the highest of each type is kept, of the library's all.
    """
    profile, roof = analysis.hardware, Roof(analysis.hardware, analysis.threads)
    wanted = list(dict.fromkeys((*_types_before(analysis, roof), *_types_after(what_if, roof))))
    kept = [each for each in profile.compute if each.dtype in wanted and _is_drawn(each, roof)]
    if not kept:
        return roof_lines(analysis, "in use")
    # An analysis without operators makes no type more important than another; the first counts
    # as the main one, whose ridges are drawn.
    ordered = sorted(kept, key=lambda each: -_top_flop_per_s(each.dtype, roof))
    shown = replace(analysis, operators=(), hardware=_with(profile, ordered))
    return roof_lines(shown, "in use")


def _types_before(analysis: Analysis, roof: Roof) -> Iterable[DType]:
    """The types whose ceilings the operators stand under as they are."""
    for row in working(analysis.operators):
        of = arithmetic_dtype((*row.inputs, *row.outputs)) if row.flop else None
        unit = roof.compute(of) if of is not None else None
        if unit is not None:
            yield unit.dtype


def _types_after(what_if: WhatIf, roof: Roof) -> Iterable[DType]:
    for name in dict.fromkeys(each.executable for each in what_if.layers):
        try:
            unit = roof.compute(dtype(name))
        except InputError:
            continue
        if unit is not None:
            yield unit.dtype


def _is_drawn(ceiling: ComputeCeiling, roof: Roof) -> bool:
    """Whether it is the library's, or the highest of its type in hardware."""
    if ceiling.kind == "library":
        return True
    highest = (roof.compute(ceiling.dtype), roof.compute_any(ceiling.dtype))
    return any(
        unit is not None and (unit.unit, unit.kernel) == (ceiling.unit, ceiling.kernel)
        for unit in highest
    )


def _top_flop_per_s(of: DType, roof: Roof) -> float:
    unit = roof.compute(of)
    return unit.flop_per_s if unit is not None else 0.0


def _with(profile: HardwareProfile, compute: Sequence[ComputeCeiling]) -> HardwareProfile:
    return replace(profile, compute=tuple(compute))
