"""Chrome trace of one measured pass, for Perfetto and chrome://tracing.

The JSON form of D. Duca, N. Sinclair, "Trace Event Format", 2016. Slices are pairs of B and E
events in order, never X events: readers round times to whole nanoseconds, after which an X event
may end before one inside it.

The timeline is not one recorded pass: medians of the operators are laid end to end in call order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, takewhile
from typing import Any

from roofline.analysis.grouping import working
from roofline.analysis.result import Analysis
from roofline.analysis.rows import OperatorRow, minimum_times_of
from roofline.analysis.words import Kind, above_roofline, kind_of_time, run_text, short_op, time_of
from roofline.core import schema
from roofline.core.text import printable
from roofline.core.units import format_shape
from roofline.errors import InputError
from roofline.machine.hardware import describe_threads
from roofline.machine.quantities import origin
from roofline.machine.roof import ceiling_text
from roofline.workload.operators import State

NOT_MEASURED = "a trace needs measured operators: roofline profile MODEL -o run.trace.json"

Event = dict[str, Any]

_MEASURED = 1  # The number of the process, and of its thread, that shows what was measured

_TITLES = {
    "measured": "measured: medians end to end",
    "predicted": "predicted, end to end",
    "bound": "minimum times, end to end",
}
_RATE_FLOP, _RATE_BYTE = "compute achieved", "traffic achieved"
_DONE_FLOP, _DONE_BYTE = "compute done", "traffic done"
_BETWEEN = "between operators (Python, dispatch, memory)"
CLASSES = "class"
_NAMED = 20

_WHAT = (
    "Not a recorded pass: medians of operators over several passes, laid end to end in call order."
    " Start times and gaps between operators are unknown. Consecutive calls of a module are one"
    " slice."
)

_SHOWN_AT_THE_END = (
    "pass time minus operators; shown as one slice at the end, although it lies between them"
)
_NOT_SHOWN = "hidden: timing overhead per operator exceeds the time between operators"


def trace_json(analysis: Analysis) -> str:
    """Return the trace of a measured analysis as JSON text, one event a line."""
    trace = trace_of(analysis)
    events = ",\n".join(
        json.dumps(each, separators=(",", ":"), allow_nan=False) for each in trace["traceEvents"]
    )
    rest = {name: value for name, value in trace.items() if name != "traceEvents"}
    return f'{{"traceEvents":[\n{events}\n],\n{json.dumps(rest, allow_nan=False, indent=1)[2:]}\n'


def trace_of(analysis: Analysis) -> dict[str, Any]:
    """Return the trace as plain data; times in µs, as the format wants them."""
    if kind_of_time(analysis) != "measured":
        raise InputError(f"{printable(analysis.model)}: not measured; {NOT_MEASURED}")
    at_work = working(analysis.operators)
    shown = {
        "measured": _steps(analysis.operators, "measured"),
        "predicted": _steps(at_work, "predicted"),
        "bound": _steps(at_work, "bound"),
    }
    events: list[Event] = []
    for number, (timeline, steps) in enumerate(shown.items(), start=1):
        if steps:
            title = f"{printable(analysis.model)} · {_TITLES[timeline]}"
            for name, args in (
                ("process_name", {"name": title}),
                ("process_sort_index", {"sort_index": number}),
                ("thread_name", {"name": "modules and operators"}),
            ):
                at = {"ph": "M", "pid": number, "tid": number}
                events.append({**at, "name": name, "args": args})
            overhead_s = 0.0
            if timeline == "measured" and analysis.measurement is not None:
                overhead_s = analysis.measurement.overhead_s
            events += _slices(number, steps, analysis, overhead_s)
    events += _counters(shown["measured"])
    # The moment when memory is fullest; what it holds at others is not known.
    for step in shown["measured"]:
        if (peak := analysis.peak) is not None and step.row.index == peak.operator:
            args = {"peak_memory_bytes": peak.byte, **{each: getattr(peak, each) for each in _HELD}}
            more = {"s": "p", "cat": "memory", "args": args}
            events.append(_event("i", "memory peak", _MEASURED, step.start_ns, **more))
    # The sort is stable: simultaneous events keep their nesting.
    events.sort(key=lambda each: each.get("ts", -1.0))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": _other_data(
            analysis, {name: len(steps) for name, steps in shown.items() if steps}
        ),
    }


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator on the timeline, in whole nanoseconds from the start of the pass."""

    row: OperatorRow
    start_ns: int
    end_ns: int


def _steps(rows: Sequence[OperatorRow], kind: Kind) -> list[_Step]:
    """Return the operators whose time is known, end to end; rounding never adds up."""
    found: list[_Step] = []
    now_s = 0.0
    for row in rows:
        known = time_of(row, kind)
        if known is not None:
            found.append(_Step(row, round(now_s * 1e9), round((now_s + known) * 1e9)))
            now_s += known
    return found


def _event(sort: str, name: str, number: int, now_ns: float, **more: Any) -> Event:
    at = {"pid": number, "tid": number, "ts": now_ns / 1e3}
    return {"ph": sort, "name": name, **at, **more}


def _slices(
    number: int, steps: Sequence[_Step], analysis: Analysis, overhead_s: float
) -> list[Event]:
    events: list[Event] = []
    # Subject, name and category of each open slice.
    opened: list[tuple[str, str, str]] = []

    def begin(of: str, name: str, kind: str, now_ns: int, args: Event | None = None) -> None:
        more: Event = {"args": args} if args else {}
        events.append(_event("B", name, number, now_ns, cat=kind, **more))
        opened.append((of, name, kind))

    def end(now_ns: int, left_open: int) -> None:
        while len(opened) > left_open:
            _, name, kind = opened.pop()
            events.append(_event("E", name, number, now_ns, cat=kind))

    classes = {module.path: module.kind for module in analysis.modules}
    has_phases = len({step.row.phase for step in steps}) > 1
    whole_ns = steps[-1].end_ns
    begin("", f"one pass of {printable(analysis.model)}", "pass", 0)
    for step in steps:
        row = step.row
        # Enclosing slices, outermost first.
        places = [(f"phase {row.phase}", row.phase, "phase")] if has_phases else []
        paths = accumulate(filter(None, row.module_path.split(".")), "{}.{}".format)
        places += [(f"module {path}", path, "module") for path in paths]
        # Close the slices that end, open the new ones.
        both = zip(places, opened[1:], strict=False)
        shared = len(list(takewhile(lambda each: each[0][0] == each[1][0], both)))
        end(step.start_ns, shared + 1)
        for of, name, kind in places[shared:]:
            is_known = kind == "module" and name in classes
            args = {CLASSES: printable(classes[name])} if is_known else None
            begin(of, printable(name), kind, step.start_ns, args)
        begin("", short_op(row), "operator", step.start_ns, operator_args(row))
        end(step.end_ns, len(opened) - 1)
    end(whole_ns, 1)
    if overhead_s > 0:
        between = {"framework_overhead_s": overhead_s, "where": "unknown; shown at the end"}
        begin("", _BETWEEN, "overhead", whole_ns, between)
        whole_ns += round(overhead_s * 1e9)
    end(whole_ns, 0)
    return events


def _counters(steps: Sequence[_Step]) -> Iterator[Event]:
    """Return rates and running totals; unknown FLOP are left out."""

    def counter(name: str, unit: str, value: float, now_ns: int) -> Event:
        return _event("C", name, _MEASURED, now_ns, args={unit: value})

    flop = byte = 0
    yield counter(_DONE_FLOP, "FLOP", 0, 0)
    yield counter(_DONE_BYTE, "byte", 0, 0)
    for step in steps:
        row, time_s = step.row, step.row.measured_s
        if step.end_ns > step.start_ns and time_s:
            if row.flop is not None:
                yield counter(_RATE_FLOP, "FLOP/s", row.flop / time_s, step.start_ns)
            yield counter(_RATE_BYTE, "byte/s", row.traffic_bytes / time_s, step.start_ns)
        flop += row.flop or 0
        byte += row.traffic_bytes
        yield counter(_DONE_FLOP, "FLOP", flop, step.end_ns)
        yield counter(_DONE_BYTE, "byte", byte, step.end_ns)
    # No rate after the last operator.
    yield counter(_RATE_FLOP, "FLOP/s", 0, steps[-1].end_ns)
    yield counter(_RATE_BYTE, "byte/s", 0, steps[-1].end_ns)


_HELD = (
    *("parameter_bytes", "buffer_bytes", "input_bytes", "activation_bytes", "gradient_bytes"),
    "optimizer_bytes",
)


_WORK = ("flop", "traffic_bytes", "intensity_flop_per_byte")
_TIMES = (
    *("eager_min_time_s", "fused_min_time_s", "predicted_s", "predicted_low_s", "predicted_high_s"),
    *("prediction_source", "measured_s", "measured_iqr_s"),
)


def operator_args(row: OperatorRow) -> dict[str, Any]:
    """Return the known figures of an operator in SI units; unknown ones are left out."""
    time_s = row.measured_s
    known: dict[str, Any] = {
        "op": printable(row.op),
        "type": printable(row.type),
        "module": printable(row.module_path),
        "phase": row.phase,
        "index": row.index,
        "inputs": [f"{format_shape(each.shape)} {each.dtype}" for each in row.inputs],
        "outputs": [f"{format_shape(each.shape)} {each.dtype}" for each in row.outputs],
        **{name: getattr(row, name) for name in _WORK},
        "level": row.level or None,
        "ceiling": ceiling_text(row.ceiling) or None,
        "bound_by": str(row.bound),
        **{name: getattr(row, name) for name in _TIMES},
        "passes": len(row.measured_times_s) or None,
        "page_faults": row.measured_page_faults,
    }
    if time_s:
        known["achieved_flop_per_s"] = None if row.flop is None else row.flop / time_s
        known["achieved_bytes_per_s"] = row.traffic_bytes / time_s
        is_working = row.state is not State.FREE and row.eager_min_time_s is not None
        known["share_of_roof"] = (row.eager_min_time_s or 0.0) / time_s if is_working else None
    return {name: value for name, value in known.items() if value is not None}


def _other_data(analysis: Analysis, timelines: Mapping[str, int]) -> dict[str, Any]:
    profile, run = analysis.hardware, analysis.measurement
    try:
        made_by = f"roofline {version('roofline')}"
    except PackageNotFoundError:
        made_by = "roofline (not installed)"
    unknown = [row for row in analysis.operators if row.state is State.UNKNOWN]
    known: dict[str, Any] = {
        "what": _WHAT,
        "made_by": made_by,
        "schema_version": schema.VERSION,
        "model": printable(analysis.model),
        "inputs": [f"{format_shape(each.shape)} {each.dtype}" for each in analysis.inputs],
        "run": run_text(analysis.run),
        "machine": printable(profile.name),
        "threads": describe_threads(profile, analysis.threads),
        "ceilings": origin(profile, None),
        "operators": dict(timelines),
        **minimum_times_of(analysis.totals),
        "not_timed": sum(row.measured_s is None for row in analysis.operators) or None,
        "memory": "known at its peak only",
    }
    if profile.host is not None:
        known["cpu"] = printable(profile.host.cpu_model)
        known["operating_system"] = printable(profile.host.operating_system)
        known["versions"] = dict(profile.host.versions)
    if unknown:
        known["unknown_flop"] = {
            "operators": len(unknown),
            "names": list(dict.fromkeys(printable(row.op) for row in unknown))[:_NAMED],
            "note": "FLOP unknown: 'compute achieved' keeps its value, 'compute done' lacks theirs",
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
            "overhead": _SHOWN_AT_THE_END if run.overhead_s > 0 else _NOT_SHOWN,
        }
    else:
        known["overhead"] = "unknown: the pass was not timed as a whole"
    known["warnings"] = [
        printable(each) for each in (*above_roofline(analysis), *analysis.warnings)
    ]
    return {name: value for name, value in known.items() if value not in (None, [], {})}
