"""What a trace says of an operator, and of the pass as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from roofline.analysis import Analysis, OperatorRow, minimum_times_of
from roofline.analysis.facts import run_words
from roofline.analysis.times import above_roof
from roofline.foundation import schema
from roofline.foundation.text import printable
from roofline.foundation.units import format_shape
from roofline.machine.hardware import describe_threads
from roofline.machine.origin import origin
from roofline.workload.operators import State

CLASSES = "class"
_NAMED = 20

_WHAT = (
    "Not one recorded run: the medians of every operator over several passes, laid end to end in"
    " the order of the calls. When in a pass an operator began, and the gaps between operators, are"
    " not known. Calls of one module that follow each other are one slice."
)


def operator_args(row: OperatorRow) -> dict[str, Any]:
    """What is known of an operator, in SI units; what is not known is left out, never 0."""
    time_s = row.measured_s
    known: dict[str, Any] = {
        "op": printable(row.op),
        "type": printable(row.type),
        "module": printable(row.module_path),
        "phase": row.phase,
        "index": row.index,
        "inputs": [f"{format_shape(each.shape)} {each.dtype}" for each in row.inputs],
        "outputs": [f"{format_shape(each.shape)} {each.dtype}" for each in row.outputs],
        "flop": row.flop,
        "traffic_bytes": row.traffic_bytes,
        "intensity_flop_per_byte": row.intensity_flop_per_byte,
        "level": row.level or None,
        "ceiling": printable(row.ceiling) or None,
        "bound_by": str(row.bound),
        "eager_min_time_s": row.eager_min_time_s,
        "eager_min_time_s": row.eager_min_time_s,
        "fused_min_time_s": row.fused_min_time_s,
        "predicted_s": row.predicted_s,
        "predicted_low_s": row.predicted_low_s,
        "predicted_high_s": row.predicted_high_s,
        "prediction_source": row.prediction_source,
        "measured_s": time_s,
        "measured_iqr_s": row.measured_iqr_s,
        "passes": len(row.measured_times_s) or None,
        "page_faults": row.measured_page_faults,
    }
    if time_s:
        known["achieved_flop_per_s"] = None if row.flop is None else row.flop / time_s
        known["achieved_bytes_per_s"] = row.traffic_bytes / time_s
        is_working = row.state is not State.FREE and row.eager_min_time_s is not None
        known["share_of_roof"] = (row.eager_min_time_s or 0.0) / time_s if is_working else None
    return {name: value for name, value in known.items() if value is not None}


def other_data(analysis: Analysis, timelines: Mapping[str, int]) -> dict[str, Any]:
    """What a reader must know of the trace: what it is, of which pass, where numbers come from.

    Args:
        analysis: whose trace it is.
        timelines: how many operators each timeline has.
    """
    profile, run = analysis.hardware, analysis.measurement
    unknown = [row for row in analysis.operators if row.state is State.UNKNOWN]
    known: dict[str, Any] = {
        "what": _WHAT,
        "made_by": f"roofline {_version()}",
        "schema_version": schema.VERSION,
        "model": printable(analysis.model),
        "inputs": [f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs],
        "run": run_words(analysis.run),
        "machine": printable(profile.name),
        "threads": describe_threads(profile, analysis.threads),
        "ceilings": origin(profile, None),
        "operators": dict(timelines),
        **minimum_times_of(analysis.totals),
        "not_timed": sum(row.measured_s is None for row in analysis.operators) or None,
        "memory": "known where it is fullest only; other moments are left out",
    }
    if profile.host is not None:
        known["cpu"] = printable(profile.host.cpu_model)
        known["operating_system"] = printable(profile.host.operating_system)
        known["versions"] = dict(profile.host.versions)
    if unknown:
        known["unknown_flop"] = {
            "operators": len(unknown),
            "names": list(dict.fromkeys(printable(row.op) for row in unknown))[:_NAMED],
            "note": "the counter 'compute achieved' keeps its last value while they run, and"
            " 'compute done' lacks theirs: how many they are is not known",
        }
    if run is not None:
        known["measurement"] = {
            "date": run.date,
            "end_to_end_s": run.measured_s,
            "end_to_end_iqr_s": run.end_to_end.iqr_s,
            "operators_s": run.operators_s,
            "framework_overhead_s": run.overhead_s,
            "passes": run.rounds,
            "discarded_rounds": run.discarded,
            "disturbed": run.are_disturbed,
            "page_faults": run.page_faults,
            "conditions": [printable(each) for each in run.conditions],
            "overhead": _overhead(run.overhead_s),
        }
    else:
        known["overhead"] = "not known: the pass was not timed as a whole"
    known["warnings"] = [printable(each) for each in (*above_roof(analysis), *analysis.warnings)]
    return {name: value for name, value in known.items() if value not in (None, [], {})}


def _overhead(overhead_s: float) -> str:
    if overhead_s > 0:
        return (
            "end to end less the operators; shown as one slice at the end, though it lies between"
            " them"
        )
    return "timing each operator cost more than what runs between them, so that is not shown"


def _version() -> str:
    try:
        return version("roofline")
    except PackageNotFoundError:
        return "(not installed)"
