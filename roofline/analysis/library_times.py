"""Times of operator types, also with products at the measured rates of the library."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.analysis.grouping import working
from roofline.analysis.result import Analysis, Basis
from roofline.analysis.rows import OperatorRow
from roofline.placement import ComputeRoof, Roof, ceiling_types
from roofline.workload.formulas.convolution_algorithms import is_convolution


def times_by_type(analysis: Analysis, basis: Basis) -> dict[str, float] | None:
    """Return the seconds of each operator type; None if one is unknown.

    The times of ``library`` are minimum times in which a product takes at least as long as at the
    highest measured rate of the library's GEMM or convolution in its type.
    """
    library = Roof(analysis.hardware, analysis.threads).library.units
    found: dict[str, float] = {}
    for row in working(analysis.operators):
        time_s = row.predicted_s if basis == "prediction" else row.eager_min_time_s
        if basis == "library" and time_s is not None and row.macs:
            rate = _library_rate(row, library)
            time_s = max(time_s, (row.min_flop or 0) / rate) if rate else None
        if time_s is None:
            return None
        found[row.type] = found.get(row.type, 0.0) + time_s
    return found


def _library_rate(row: OperatorRow, library: Sequence[ComputeRoof]) -> float | None:
    """Return the highest measured FLOP/s of the library for a product; None if unknown."""
    types = ceiling_types(row.inputs, row.outputs, row.macs)
    of_type = [each for each in library if each.dtype in types]
    is_conv = is_convolution(row.record)
    like = [each for each in of_type if each.kernel.startswith("conv") == is_conv]
    return max((each.flop_per_s for each in like or of_type), default=None)
