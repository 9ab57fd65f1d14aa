"""One pass of a measured model as a Chrome trace, for Perfetto and chrome://tracing.

The JSON form of D. Duca, N. Sinclair, "Trace Event Format", 2016. Slices are pairs of B and E
events in the order in which they begin and end, never X events: a reader rounds times to whole
nanoseconds, and of a pair of an X event and one within it either may then end first.

What is shown is not one recorded run but the medians of the operators, laid end to end in the order
of their calls: when in a pass each began is not known, and the trace says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from roofline.analysis import Analysis, OperatorRow
from roofline.analysis.times import kind_of_time
from roofline.analysis.words import short_op
from roofline.errors import InputError
from roofline.foundation.text import printable
from roofline.presentation.trace_words import CLASSES, operator_args, other_data
from roofline.workload.operators import PHASES, State

if TYPE_CHECKING:
    pass

NOT_MEASURED = "a trace needs measured operators: roofline profile MODEL -o run.trace.json"

Event = dict[str, Any]
Timeline = Literal["measured", "predicted", "bound"]

_NUMBERS: dict[Timeline, int] = {"measured": 1, "predicted": 2, "bound": 3}
"""The number of the process, and of its thread, that shows a timeline."""

_TITLES: dict[Timeline, str] = {
    "measured": "measured: medians end to end",
    "predicted": "predicted, end to end",
    "bound": "bounds, end to end",
}
_RATE_FLOP, _RATE_BYTE = "compute achieved", "traffic achieved"
_DONE_FLOP, _DONE_BYTE = "compute done", "traffic done"
_BETWEEN = "between operators (Python, dispatch, memory)"


def trace_json(analysis: Analysis) -> str:
    """The trace of a measured analysis as JSON text, one event a line.

    Raises:
        InputError: its operators were not measured.
    """
    trace = trace_of(analysis)
    events = ",\n".join(
        json.dumps(each, separators=(",", ":"), allow_nan=False) for each in trace["traceEvents"]
    )
    rest = {name: value for name, value in trace.items() if name != "traceEvents"}
    return f'{{"traceEvents":[\n{events}\n],\n{json.dumps(rest, allow_nan=False, indent=1)[2:]}\n'


def trace_of(analysis: Analysis) -> dict[str, Any]:
    """The trace as plain data; times in µs, as the format wants them.

    Raises:
        InputError: its operators were not measured.
    """
    if kind_of_time(analysis) != "measured":
        raise InputError(f"{printable(analysis.model)} was not measured; {NOT_MEASURED}")
    shown: dict[Timeline, list[_Step]] = {
        "measured": _steps(analysis.operators, lambda row: row.measured_s),
        "predicted": _steps(_working(analysis.operators), lambda row: row.predicted_s),
        "bound": _steps(_working(analysis.operators), lambda row: row.eager_min_time_s),
    }
    events: list[Event] = []
    for timeline, steps in shown.items():
        if steps:
            events += _names(timeline, analysis)
            events += _slices(timeline, steps, analysis)
    events += _counters(shown["measured"])
    events += _peak(shown["measured"], analysis)
    # Python sorts stably: events of one moment stay in the order in which they nest.
    events.sort(key=lambda each: each.get("ts", -1.0))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": other_data(
            analysis, {name: len(steps) for name, steps in shown.items() if steps}
        ),
    }


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator on a timeline, in whole nanoseconds from the begin of the pass."""

    row: OperatorRow
    start_ns: int
    end_ns: int


def _working(rows: Sequence[OperatorRow]) -> list[OperatorRow]:
    return [row for row in rows if row.state is not State.FREE]


def _steps(
    rows: Sequence[OperatorRow], time_s: Callable[[OperatorRow], float | None]
) -> list[_Step]:
    """The operators whose time is known, end to end; rounding never adds up."""
    found: list[_Step] = []
    now_s = 0.0
    for row in rows:
        known = time_s(row)
        if known is not None:
            found.append(_Step(row, round(now_s * 1e9), round((now_s + known) * 1e9)))
            now_s += known
    return found


def _names(timeline: Timeline, analysis: Analysis) -> Iterator[Event]:
    number = _NUMBERS[timeline]
    at = {"ph": "M", "pid": number, "tid": number}
    title = f"{printable(analysis.model)} · {_TITLES[timeline]}"
    yield {**at, "name": "process_name", "args": {"name": title}}
    yield {**at, "name": "process_sort_index", "args": {"sort_index": number}}
    yield {**at, "name": "thread_name", "args": {"name": "modules and operators"}}


@dataclass(slots=True)
class _Track:
    """The slices of one thread, as they are opened and closed."""

    number: int
    events: list[Event] = field(default_factory=list[Event])
    open: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Of each open slice: what it is of, its name, its category."""

    def begin(self, of: str, name: str, kind: str, now_ns: int, args: Event) -> None:
        event: Event = self._event("B", name, kind, now_ns)
        if args:
            event["args"] = args
        self.events.append(event)
        self.open.append((of, name, kind))

    def end(self, now_ns: int) -> None:
        _, name, kind = self.open.pop()
        self.events.append(self._event("E", name, kind, now_ns))

    def _event(self, sort: str, name: str, kind: str, now_ns: int) -> Event:
        return {
            "ph": sort,
            "name": name,
            "cat": kind,
            "pid": self.number,
            "tid": self.number,
            "ts": now_ns / 1e3,
        }


def _slices(timeline: Timeline, steps: Sequence[_Step], analysis: Analysis) -> list[Event]:
    """The pass, its phases, its modules in each other, and their operators."""
    track = _Track(_NUMBERS[timeline])
    classes = {module.path: module.kind for module in analysis.modules}
    phases = [each for each in PHASES if any(step.row.phase == each for step in steps)]
    whole_ns = steps[-1].end_ns
    track.begin("", f"one pass of {printable(analysis.model)}", "pass", 0, {})
    for step in steps:
        _go_to(track, _places(step.row, len(phases) > 1), step.start_ns, classes)
        args = operator_args(step.row)
        track.begin("", printable(short_op(step.row)), "operator", step.start_ns, args)
        track.end(step.end_ns)
    while len(track.open) > 1:
        track.end(whole_ns)
    run = analysis.measurement
    if timeline == "measured" and run is not None and run.overhead_s > 0:
        between = {"framework_overhead_s": run.overhead_s, "where": "not known; shown at the end"}
        track.begin("", _BETWEEN, "overhead", whole_ns, between)
        whole_ns += round(run.overhead_s * 1e9)
        track.end(whole_ns)
    track.end(whole_ns)
    return track.events


def _places(row: OperatorRow, has_phases: bool) -> list[tuple[str, str, str]]:
    """The slices around an operator, the outermost first: what each is of, its name, its kind."""
    places = [(f"phase {row.phase}", row.phase, "phase")] if has_phases else []
    path = ""
    for part in filter(None, row.module_path.split(".")):
        path = f"{path}.{part}" if path else part
        places.append((f"module {path}", path, "module"))
    return places


def _go_to(
    track: _Track,
    places: Sequence[tuple[str, str, str]],
    now_ns: int,
    classes: dict[str, str],
) -> None:
    """Closes the slices that are left, and opens those that are entered; the first is the pass."""
    wanted = [of for of, _, _ in places]
    inside = [of for of, _, _ in track.open[1:]]
    shared = 0
    while shared < min(len(wanted), len(inside)) and wanted[shared] == inside[shared]:
        shared += 1
    while len(track.open) > shared + 1:
        track.end(now_ns)
    for of, name, kind in places[shared:]:
        args = {CLASSES: printable(classes[name])} if kind == "module" and name in classes else {}
        track.begin(of, printable(name), kind, now_ns, args)


def _counters(steps: Sequence[_Step]) -> Iterator[Event]:
    """What was reached, and how much was done so far; where FLOP are unknown, nothing is said."""
    number = _NUMBERS["measured"]

    def counter(name: str, unit: str, value: float, now_ns: int) -> Event:
        return {
            "ph": "C",
            "name": name,
            "pid": number,
            "tid": number,
            "ts": now_ns / 1e3,
            "args": {unit: value},
        }

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
    # After the last operator none runs.
    yield counter(_RATE_FLOP, "FLOP/s", 0, steps[-1].end_ns)
    yield counter(_RATE_BYTE, "byte/s", 0, steps[-1].end_ns)


def _peak(steps: Sequence[_Step], analysis: Analysis) -> Iterator[Event]:
    """The moment when memory is fullest; what it holds at others is not known."""
    peak, number = analysis.peak, _NUMBERS["measured"]
    if peak is None or peak.operator is None:
        return
    for step in steps:
        if step.row.index == peak.operator:
            yield {
                "ph": "i",
                "s": "p",
                "name": "memory is fullest",
                "cat": "memory",
                "pid": number,
                "tid": number,
                "ts": step.start_ns / 1e3,
                "args": {
                    "peak_memory_bytes": peak.byte,
                    "parameter_bytes": peak.parameter_bytes,
                    "buffer_bytes": peak.buffer_bytes,
                    "input_bytes": peak.input_bytes,
                    "activation_bytes": peak.activation_bytes,
                    "gradient_bytes": peak.gradient_bytes,
                    "optimizer_bytes": peak.optimizer_bytes,
                },
            }
