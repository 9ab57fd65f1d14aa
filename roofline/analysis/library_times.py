"""Times of operator types, also with products at the measured rates of the library."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.analysis.grouping import working
from roofline.analysis.result import Analysis, Basis
from roofline.analysis.rows import OperatorRow
from roofline.core.text import counted
from roofline.placement import ComputeRoof, Roof, ceiling_types
from roofline.workload.formulas.convolution_algorithms import is_convolution

_NAMES = {"gemm": "GEMM", "conv": "convolution"}
"""Kernels of the library in reports."""


def times_by_type(analysis: Analysis, basis: Basis) -> dict[str, float] | None:
    """Return the seconds of each operator type; None if one is unknown.

    The times of ``library`` are minimum times in which a product takes at least as long as at the
    highest measured rate of the library's GEMM or convolution in its type; none if one of these
    rates is unreliable.
    """
    library = Roof(analysis.hardware, analysis.threads).library.units
    if basis == "library" and unreliable_rates(analysis):
        return None
    found: dict[str, float] = {}
    for row in working(analysis.operators):
        time_s = row.predicted_s if basis == "prediction" else row.eager_min_time_s
        if basis == "library" and time_s is not None and row.macs:
            rate = _library_rate(row, library)
            time_s = max(time_s, (row.min_flop or 0) / rate.flop_per_s) if rate else None
        if time_s is None:
            return None
        found[row.type] = found.get(row.type, 0.0) + time_s
    return found


def unreliable_rates(analysis: Analysis) -> list[str]:
    """Return the doubtful library rates of an analysis: ``"float32 GEMM on 2 threads"``."""
    library = Roof(analysis.hardware, analysis.threads).library.units
    used = {
        (rate.dtype, rate.unit, rate.kernel)
        for row in working(analysis.operators)
        if row.macs and (rate := _library_rate(row, library))
    }
    found: list[str] = []
    for of in used:
        rates = [
            each
            for each in analysis.hardware.compute
            if each.kind == "library" and (each.dtype, each.unit, each.kernel) == of
        ]
        # Without a measurement on these threads, the rate follows from those on others.
        alike = [each for each in rates if each.threads == analysis.threads] or rates
        found += [
            f"{each.dtype} {_NAMES.get(each.kernel, each.kernel)} on"
            f" {counted(each.threads, 'thread')}"
            for each in alike
            if each.doubt
        ]
    return sorted(found)


def _library_rate(row: OperatorRow, library: Sequence[ComputeRoof]) -> ComputeRoof | None:
    """Return the highest measured rate of the library for a product; None if unknown."""
    types = ceiling_types(row.inputs, row.outputs, row.macs)
    of_type = [each for each in library if each.dtype in types]
    is_conv = is_convolution(row.record)
    like = [each for each in of_type if each.kernel.startswith("conv") == is_conv]
    return max(like or of_type, key=lambda each: each.flop_per_s, default=None)
