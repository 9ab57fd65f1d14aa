"""Consistency of saved analyses: totals and rows against operators and hardware."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from statistics import median

from roofline.analysis.grouping import working
from roofline.analysis.result import Analysis
from roofline.analysis.rows import (
    SUMMED,
    Coverage,
    OperatorRow,
    coverage_of,
    known_work,
    minimum_times_of,
    sum_eager_min_time_s,
    sum_fused_bytes,
)
from roofline.core.units import sum_known
from roofline.placement import Bound, ComputeRoof, LevelRoof
from roofline.workload.operators import PHASES, State
from roofline.workload.work import FLOP_PER_MAC, Work, traffic_of

_ROUNDING = 1e-9
"""Relative tolerance of sums added in another order."""

_BYTE_FIELDS = tuple(
    each.name
    for each in fields(Work)
    if each.name.endswith("_bytes") and each.name != "internal_bytes"
)
"""Fields of the work that follow from the tensors of an operator."""


_Follows = Iterator[tuple[str, float | None, float | None, str]]
"""Name of a number, its value, the expected value, and the reason."""


def contradictions(analysis: Analysis) -> Iterable[str]:
    """Return what in an analysis does not follow from its operators and its hardware, in words."""
    hardware, totals, rows = analysis.hardware, analysis.totals, analysis.operators
    if not 1 <= analysis.threads <= hardware.threads:
        yield f"threads is {analysis.threads}, but the hardware has {hardware.threads}"
    yield from _wrong(_numbers(analysis))
    yield from _contradictions_of_minimum(analysis)
    kept_bytes = totals.parameter_size_bytes + totals.buffer_size_bytes
    if not kept_bytes <= totals.peak_memory_bytes <= totals.all_tensors_bytes:
        yield (
            f"totals.peak_memory_bytes is {totals.peak_memory_bytes}, not between the {kept_bytes}"
            f" of parameters and buffers and the {totals.all_tensors_bytes} of all tensors"
        )
    if analysis.earlier is not None:
        # Earlier runs are eager inference with warm caches.
        run = analysis.run
        if analysis.measurement is not None:
            yield "earlier is given together with a measurement"
        if analysis.cache == "cold":
            yield "earlier is given, but cache is 'cold'"
        if run.train or run.autocast or run.device != "cpu":
            yield "earlier is given, but run is no eager inference on a CPU"
    fullest = analysis.peak.operator if analysis.peak else None
    if fullest is not None and fullest >= len(rows):
        yield f"peak.operator is {fullest}, but there are {len(rows)}"
    paths = Counter(each.path for each in analysis.modules)
    yield from (f"modules has '{path}' twice" for path, count in paths.items() if count > 1)
    phases = [PHASES.index(row.phase) for row in rows]
    if phases != sorted(phases):
        yield "the phases of the operators do not follow each other"
    if phases and phases[-1] and not analysis.run.train:
        yield f"operators are of the {PHASES[phases[-1]]} phase, but run.train is false"
    for number, finding in enumerate(analysis.findings):
        for index in finding.operators:
            if not 0 <= index < len(rows):
                yield f"findings[{number}] names operator {index}, but there are {len(rows)}"
    labels: _Labels = (
        {
            level.name: {
                LevelRoof(level=level, kernel=each.kernel, bytes_per_s=1.0).label
                for each in level.bandwidth
                if each.kind == "hardware"
            }
            for level in hardware.memory
        },
        {
            ComputeRoof(dtype=each.dtype, unit=each.unit, kernel=each.kernel, flop_per_s=1.0).label
            for each in hardware.compute
            if each.kind == "hardware"
        },
    )
    for position, row in enumerate(rows):
        if row.index != position:
            yield f"operators[{position}]: index is {row.index}, but its place is {position}"
        for contradiction in _contradictions_of_row(row, labels):
            yield f"operators[{position}]: {contradiction}"


def _wrong(followed: _Follows) -> Iterable[str]:
    for name, said, right, because in followed:
        if not _is_same(said, right):
            yield f"{name} is {said}, but {because} {right}"


def _numbers(analysis: Analysis) -> _Follows:
    totals, rows, at_work = analysis.totals, analysis.operators, working(analysis.operators)
    work = known_work(rows)
    sums: dict[str, float | None] = {
        **{name: getattr(work, name) for name in SUMMED},
        "traffic_bytes": work.traffic_bytes,
        "fused_bytes": sum_fused_bytes(rows),
        "unknown_operators": sum(row.state is State.UNKNOWN for row in rows),
        "eager_min_time_s": sum_eager_min_time_s(rows),
        "predicted_s": sum_known(row.predicted_s for row in at_work) if at_work else None,
        "measured_s": sum_known(row.measured_s for row in at_work) if at_work else None,
    }
    for name, right in sums.items():
        yield f"totals.{name}", getattr(totals, name), right, "the operators add up to"
    if analysis.prediction is not None:
        said = analysis.prediction.operators_s
        yield "prediction.operators_s", said, totals.predicted_s, "the operators add up to"
    covered = coverage_of(rows)
    for name in (each.name for each in fields(Coverage)):
        said = getattr(analysis.coverage, name)
        yield f"coverage.{name}", said, getattr(covered, name), "that of the operators is"
    if (peak := analysis.peak) is not None:
        yield "totals.peak_memory_bytes", totals.peak_memory_bytes, peak.byte, "peak has"
        for name, right in (
            ("parameter_bytes", totals.parameter_size_bytes),
            ("buffer_bytes", totals.buffer_size_bytes),
            ("optimizer_bytes", totals.optimizer_state_bytes),
        ):
            yield f"peak.{name}", getattr(peak, name), right, "the model keeps"


def _contradictions_of_minimum(analysis: Analysis) -> Iterable[str]:
    """Return what is not model ≤ fused ≤ eager, and kernels that do not add up."""
    totals = analysis.totals
    eager_s, fused_s, model_s = minimum_times_of(totals).values()
    kernels = [row.fused_min_time_s for row in analysis.operators]
    if fused_s is None or model_s is None or eager_s is None:
        if (fused_s, model_s) != (None, None) or any(each is not None for each in kernels):
            yield "minimum times are given, but not all of them"
        return
    if not model_s <= fused_s <= eager_s * (1 + _ROUNDING):
        yield (
            f"totals has the minimum times {model_s} (model), {fused_s} (fused) and {eager_s}"
            " (eager), which must not be in another order"
        )
    expected = max(model_s, min(eager_s, sum(each or 0.0 for each in kernels)))
    if not _is_same(fused_s, expected):
        yield f"totals.fused_min_time_s is {fused_s}, but the kernels add up to {expected}"
    for row, kernel_s in zip(analysis.operators, kernels, strict=True):
        begins = row.state is not State.FREE and row.chain == row.index
        if begins != (kernel_s is not None):
            yield (
                f"operators[{row.index}]: fused_min_time_s is {kernel_s}, but the chain is"
                f" {row.chain}"
            )


_Labels = tuple[dict[str, set[str]], set[str]]
"""Valid names of limiters: by memory level, and of compute ceilings."""


def _contradictions_of_row(row: OperatorRow, labels: _Labels) -> Iterable[str]:
    yield from _contradictions_of_work(row)
    if row.chain is not None and row.chain > row.index:
        yield f"chain is {row.chain}, but a chain begins with the first of its operators"
    if row.state is not State.FREE:
        yield from _contradictions_of_place(row, labels)
    elif row.work != Work() or row.level_bytes or row.level or row.ceiling or row.eager_min_time_s:
        yield "state is 'free', but it takes something"
    yield from _wrong(_numbers_of_row(row))
    time_s, attainable = row.eager_min_time_s, row.attainable_flop_per_s
    rate = row.flop / time_s if row.flop is not None and time_s else None
    if (attainable is None) != (rate is None) or (attainable or 0) > (rate or 0) * (1 + _ROUNDING):
        yield f"attainable_flop_per_s is {attainable}, but flop over eager_min_time_s is {rate}"


def _contradictions_of_place(row: OperatorRow, labels: _Labels) -> Iterable[str]:
    levels, units = labels
    for name in (*row.level_bytes, *([row.level] if row.level else [])):
        if name not in levels:
            yield f"memory level '{name}' is not in the hardware ({', '.join(levels) or 'none'})"
    byte = [row.traffic_bytes, *(row.level_bytes.get(name, -1) for name in levels)]
    if min(byte) < 0 or byte != sorted(byte, reverse=True):
        yield (
            f"level_bytes is {dict(row.level_bytes)}, but of {row.traffic_bytes} bytes no more come"
            f" from a farther level than from a nearer ({', '.join(levels)})"
        )
    if bool(levels) != bool(row.level):
        yield f"level is '{row.level}', but the hardware has {', '.join(levels) or 'none'}"
    is_known = row.state is State.COUNTED and row.eager_min_time_s is not None
    if is_known != (row.bound in (Bound.MEMORY, Bound.COMPUTE)):
        yield (
            f"state is '{row.state}' and eager_min_time_s {row.eager_min_time_s},"
            f" but bound is '{row.bound}'"
        )
    of_level = levels.get(row.level, ("",))
    if row.ceiling not in (units if row.bound is Bound.COMPUTE else of_level):
        yield f"ceiling is '{row.ceiling}', but bound is '{row.bound}' and level '{row.level}'"


def _contradictions_of_work(row: OperatorRow) -> Iterable[str]:
    if row.flop is not None and row.flop < FLOP_PER_MAC * (row.macs or 0):
        yield f"flop is {row.flop}, but each of {row.macs} macs counts for two"
    if row.flop is not None and row.flop < (row.min_flop or 0):
        yield f"flop is {row.flop}, but min_flop is {row.min_flop}"
    if (row.min_macs or 0) > min(row.macs or 0, (row.min_flop or 0) / 2):
        yield (f"min_macs is {row.min_macs}, of {row.macs} macs and min_flop {row.min_flop}")
    if row.measured_iqr_s is not None and row.measured_s is None:
        yield f"measured_iqr_s is {row.measured_iqr_s}, but measured_s is null"
    if not row.op.isprintable() or not row.op.strip():
        yield f"op is {row.op!r}, which is no operator's name"
    for spec in (*row.inputs, *row.outputs):
        least = spec.distinct_elements if spec.min_elements is None else spec.min_elements
        if not least <= spec.distinct_elements <= spec.elements:
            yield (
                f"a tensor of {spec.elements} elements has {spec.distinct_elements} distinct ones,"
                f" of which {least} are touched"
            )


def _numbers_of_row(row: OperatorRow) -> _Follows:
    if row.measured_times_s:
        right = median(row.measured_times_s)
        yield "measured_s", row.measured_s, right, "the median of measured_times_s is"
    parts = Work() if row.state is State.FREE else Work(**traffic_of(row.inputs, row.outputs))
    for name in _BYTE_FIELDS:
        yield name, getattr(row, name), getattr(parts, name), "its tensors have"
    crossing, said = row.level_bytes.get(row.level, 0), row.intensity_flop_per_byte
    intensity = row.flop / crossing if row.flop is not None and crossing else None
    yield "intensity_flop_per_byte", said, intensity, f"flop over bytes of '{row.level}' is"


def _is_same(value: float | None, expected: float | None) -> bool:
    if value is None or expected is None:
        return value is expected
    if isinstance(value, int) and isinstance(expected, int):
        return value == expected
    return math.isclose(value, expected, rel_tol=_ROUNDING)
