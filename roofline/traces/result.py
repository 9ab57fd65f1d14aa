"""The result of a trace: operators with their measured kernel times, and the step around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from roofline.analysis import (
    FRAME_COLUMNS,
    Analysis,
    OperatorRow,
    Totals,
    coverage_of,
    known_work,
    sum_eager_min_time_s,
)
from roofline.analysis.rows import SUMMED
from roofline.analysis.tables import group_grid
from roofline.analysis.words import is_below_minimum, short_op
from roofline.core.blocks import Block, KeyValueBlock, View, notes, table
from roofline.core.rows import fields_of
from roofline.core.sampling import quantile
from roofline.core.text import counted, printable
from roofline.core.units import (
    MISSING,
    format_bytes,
    format_bytes_per_s,
    format_flop,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
    format_shape,
    sum_known,
)
from roofline.errors import InputError
from roofline.machine.hardware import HardwareProfile
from roofline.machine.roof import ceiling_text
from roofline.placement import Bound
from roofline.result import Result
from roofline.run import Run
from roofline.traces.linking import Evidence
from roofline.traces.timeline import WHOLE_TRACE, Collective, Copies, Gap, StepTimes
from roofline.workload.operators import State

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkShare:
    """Kernels that were linked to operators by one kind of evidence, and their time in seconds.

    ``share`` is their part of the kernel time of the trace; ``with_shapes`` the part whose
    operators have shapes.
    """

    evidence: Evidence
    kernels: int
    time_s: float
    share: float
    with_shapes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """Calls of one kernel in a step: the operator that launched it ("": none), and their seconds.

    ``inputs`` are the shapes of the operator, ``times_s`` the sums of each step.
    """

    kernel: str
    operator: str
    inputs: str = ""
    calls: int
    times_s: tuple[float, ...]

    @property
    def time_s(self) -> float:
        """Median over the steps, in seconds."""
        return median(self.times_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmodeled:
    """Operators without a count: their calls, seconds (None: not recorded) and the reason."""

    operator: str
    shapes: str
    calls: int
    time_s: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TraceAnalysis(Result):
    """A profiler trace under the ceilings of its machine.

    ``trace`` is the name of the file, ``machine_source`` how the machine was found. ``operators``
    are those of one step with their kernel time (the median over ``steps`` that ran the same
    operators); operands are taken to be where two calls of the operator in a row leave them, since
    traces do not name storages. ``unmodeled`` operators have no count, ``kernels`` are all of the
    step, linked or not, the longest first. ``gaps``, ``copies`` and ``collectives`` are those of
    the step of median time.
    """

    kind: ClassVar = "trace"
    made_by: ClassVar = "roofline trace FILE -o RESULT.json"
    columns: ClassVar = {
        name: kind
        for name, kind in FRAME_COLUMNS.items()
        if not name.startswith(("predicted", "prediction", "fused", "model_", "chain"))
    }

    trace: str
    hardware: HardwareProfile
    machine_source: str
    threads: int
    run: Run
    steps: tuple[StepTimes, ...]
    operators: tuple[OperatorRow, ...]
    unmodeled: tuple[Unmodeled, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    links: tuple[LinkShare, ...] = ()
    gaps: tuple[Gap, ...] = ()
    copies: tuple[Copies, ...] = ()
    collectives: tuple[Collective, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_of_other_machine(self) -> bool:
        """True if the trace was recorded on another machine than the one that was given."""
        return self.machine_source.startswith(OTHER_MACHINE)

    @property
    def step(self) -> StepTimes | None:
        """The step of median time; None: the trace has no times."""
        ordered = sorted(self.steps, key=lambda each: each.time_s)
        return ordered[(len(ordered) - 1) // 2] if ordered else None

    @property
    def kernel_s(self) -> float | None:
        """Seconds of all kernels and copies of a step, linked or not; None: no times recorded."""
        return sum(each.time_s for each in self.kernels) if self.steps else None

    @property
    def measured_s(self) -> float | None:
        """Kernel seconds of the operators that were counted; None: no times recorded."""
        return self._measured_s(self.operators)

    def _measured_s(self, rows: Iterable[OperatorRow]) -> float | None:
        return sum(row.measured_s or 0.0 for row in rows) if self.steps else None

    @property
    def _time(self) -> str:
        """Name of the time that operators took."""
        return "CPU time" if self.run.device == "cpu" else "kernel time"

    def check_has_times(self) -> None:
        """Check that times were recorded.

        Raises:
            InputError: there are none, as in execution traces.
        """
        if not self.steps:
            raise InputError(f"{self.trace}: has no times; give a trace of a profiler")

    @property
    def eager_min_time_s(self) -> float | None:
        """Sum of the minimum times of the operators that were counted, in seconds."""
        return sum_eager_min_time_s(self.operators)

    @property
    def linked_share(self) -> float:
        """Share of the trace's kernel time that was linked to operators with shapes."""
        return sum(each.with_shapes for each in self.links)

    @property
    def modeled_share(self) -> float | None:
        """Share of the kernel time of linked operators whose FLOP and bytes were counted."""
        time_s = self.measured_s or 0.0
        whole = time_s + sum(each.time_s or 0.0 for each in self.unmodeled)
        return time_s / whole if whole else None

    @property
    def analysis(self) -> Analysis:
        """The operators as an analysis, for tables and pictures; sizes of the model are 0 in it."""
        work = known_work(self.operators)
        return Analysis(
            model=self.trace,
            inputs=(),
            run=self.run,
            threads=self.threads,
            hardware=self.hardware,
            coverage=coverage_of(self.operators),
            totals=Totals(
                **{name: getattr(work, name) for name in SUMMED},
                traffic_bytes=work.traffic_bytes,
                unknown_operators=sum(row.state is State.UNKNOWN for row in self.operators),
                parameters=0,
                parameter_size_bytes=0,
                buffer_size_bytes=0,
                peak_memory_bytes=0,
                all_tensors_bytes=0,
                eager_min_time_s=self.eager_min_time_s,
                measured_s=self.measured_s,
            ),
            operators=self.operators,
        )

    @property
    def summary(self) -> str:
        """Time of a step, its busy share, and what limits the operators."""
        name, step = printable(self.trace), self.step
        what = "operators" if self.run.device == "cpu" else "kernels"
        if step is None or not self.kernels:
            least = format_s(self.eager_min_time_s)
            counts = f"{counted(len(self.operators), 'operator')}, minimum {least} (eager)"
            return f"{name}: {counts if self.operators else 'no operators'}; no kernel times"
        per = "in the whole trace" if step.name == WHOLE_TRACE else "per step"
        busy = f"measured {format_s(step.time_s)} {per}, busy for"
        busy += f" {_percent(step.busy_s, step.time_s)}"
        linked = self.linked_share
        if linked < _LINKED:
            return f"{name}: {busy}; {format_percent(linked)} of {self._time} has shapes"
        if not (time_s := self.measured_s) or self.eager_min_time_s is None:
            return f"{name}: {busy}"
        limits = ", ".join(
            f"{words}-bound for {format_percent(part / time_s)}"
            for words, bound in (("compute", Bound.COMPUTE), ("memory", Bound.MEMORY))
            if (part := self._measured_s(r for r in self.operators if r.bound is bound))
        )
        return (
            f"{name}: {busy}; {what} {format_s(time_s)} measured, minimum"
            f" {format_s(self.eager_min_time_s)} (eager), {limits}"
        )

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row for each counted operator of a step."""
        return fields_of(self.columns, self.operators)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, operators or modules or kernels, what was not counted, and the timeline."""
        yield KeyValueBlock(lines=tuple(self._facts()))
        by = view.by
        if by == "kernel":
            yield self._kernel_table(view)
        elif self.operators and by != "operator":
            yield group_grid(self.analysis, by, view)
        elif self.operators:
            yield self._operator_table(view)
        if self.unmodeled:
            yield table(
                f"Operators without a count, by {self._time}",
                self.unmodeled[: view.rows(_ROWS)],
                {
                    "Operator": lambda each: printable(each.operator),
                    "Inputs": lambda each: printable(each.shapes),
                    "Calls": "calls",
                    "Time": "time_s",
                    "Reason": lambda each: printable(each.reason),
                },
                left=("Operator", "Inputs", "Reason"),
                narrow=("Inputs", "Reason"),
            )
        # Gaps of a CPU are between operators: the host itself.
        if self.gaps and self.run.device != "cpu":
            is_known = any(each.host_bound_s is not None for each in self.gaps)
            host_bound = {"Host-bound": "host_bound_s"} if is_known else {}
            yield table(
                "Longest idle gaps",
                self.gaps[: view.rows(_ROWS)],
                {
                    "Gap": "time_s",
                    **host_bound,
                    "After": lambda each: printable(short_kernel(each.before)),
                    "Before": lambda each: printable(short_kernel(each.after)),
                },
                left=("After", "Before"),
            )
        if self.copies:
            yield table(
                "Copies and fills",
                self.copies,
                {
                    "Kind": lambda each: printable(each.kind),
                    "Calls": "calls",
                    "Bytes": lambda each: format_bytes(each.bytes),
                    "Time": "time_s",
                    "Bandwidth": lambda each: format_bytes_per_s(_rate(each.bytes, each.time_s)),
                },
                left=("Kind",),
            )
        if self.collectives:
            yield table(
                "Communication",
                self.collectives,
                {
                    "Operation": lambda each: printable(each.kind),
                    "Ranks": "ranks",
                    "Calls": "calls",
                    "Bytes": lambda each: format_bytes(each.bytes),
                    "Time": "time_s",
                    "Bus bandwidth": "bus_bytes_per_s",
                },
                left=("Operation",),
            )
        yield from notes("Warnings", (*self.warnings, *self._faster()), urgent=True)

    def _facts(self) -> Iterable[tuple[str, str]]:
        source = f" ({self.machine_source})" if self.machine_source else ""
        yield "Machine", f"{printable(self.hardware.name)}{printable(source)}"
        if (step := self.step) is not None:
            times = [each.time_s for each in self.steps]
            iqr = ""
            if len(times) > 1:
                spread = quantile(times, 0.75) - quantile(times, 0.25)
                iqr = f" (median of {len(times)} steps, IQR {format_s(spread, 2)})"
            calls = counted(step.launches, "launch", "launches")
            if self.run.device == "cpu":
                calls = counted(step.launches, "operator")
            title = "Trace" if step.name == WHOLE_TRACE else "Step"
            yield title, f"{format_s(median(times))}{iqr} · {calls}"
            parts = [
                f"busy {format_s(step.busy_s)}",
                f"idle {format_s(step.idle_s)}",
            ]
            if step.host_bound_s is not None:
                parts.append(f"host-bound {format_s(step.host_bound_s)}")
            if step.overlap_s:
                parts.append(f"streams overlap {format_s(step.overlap_s)}")
            if step.communication_s:
                exposed = format_s(step.exposed_communication_s)
                parts.append(f"communication {format_s(step.communication_s)} ({exposed} exposed)")
            yield "Host" if self.run.device == "cpu" else "Device", " · ".join(parts)
        if self.links:
            yield (
                "Linked",
                " · ".join(
                    f"{format_percent(each.share)} by {each.evidence}"
                    if each.evidence not in ("none", "graph")
                    else f"{format_percent(each.share)} {_UNLINKED[each.evidence]}"
                    for each in self.links
                ),
            )
        if self.operators:
            work = known_work(self.operators)
            flop, time_s = work.flop or 0, self.measured_s
            minimum = self.eager_min_time_s
            byte, of, flop_rate, byte_rate = work.traffic_bytes, "", "", ""
            if time_s:
                of = f" · {_percent(minimum, time_s)} of {format_s(time_s)} measured"
                flop_rate = f" · {format_flop_per_s(flop / time_s)} achieved"
                byte_rate = f" · {format_bytes_per_s(byte / time_s)}"
            yield "Minimum", f"eager {format_s(minimum)}{of}"
            yield "Compute", f"{format_flop(flop)}{flop_rate}"
            yield "Traffic", f"{format_bytes(byte)} operands{byte_rate}"
            if (share := self.modeled_share) is not None and share < 1:
                yield "Coverage", f"{format_percent(share)} of the linked {self._time} is counted"
            if units := unit_shares(self.kernels):
                yield "Units", " · ".join(f"{name} {format_percent(part)}" for name, part in units)

    def _operator_table(self, view: View) -> Block:
        """Return the operators by kernel time, equal calls together."""
        groups: dict[tuple[Any, ...], list[OperatorRow]] = {}
        for row in self.operators:
            groups.setdefault((row.op, row.phase, row.inputs, row.outputs), []).append(row)
        whole_s, measured_s = self.kernel_s, self._measured_s

        def least_s(rows: list[OperatorRow]) -> float | None:
            return sum_known([row.eager_min_time_s for row in rows])

        def flop(rows: list[OperatorRow]) -> int:
            return sum(row.flop or 0 for row in rows)

        def rate(rows: list[OperatorRow]) -> float | None:
            time_s = measured_s(rows)
            return flop(rows) / time_s if time_s and flop(rows) else None

        ordered = sorted(groups.values(), key=lambda rows: (-(measured_s(rows) or 0), -flop(rows)))
        count = view.rows(10 if view.verbose else _ROWS)
        shown, others = ordered[:count], ordered[count:]
        rest = [row for rows in others for row in rows]
        columns: dict[str, Callable[[list[OperatorRow]], str]] = {
            "Op": lambda rows: printable(short_op(rows[0])),
            "Inputs": lambda rows: _inputs(rows[0]),
            "Calls": lambda rows: str(len(rows)),
            "FLOP": lambda rows: format_flop(flop(rows)),
            "Limiting AI": lambda rows: format_intensity(rows[0].intensity_flop_per_byte),
            "Limiter": lambda rows: ceiling_text(rows[0].ceiling) or MISSING,
            "FLOP/s": lambda rows: format_flop_per_s(rate(rows)),
            "Min time": lambda rows: format_s(least_s(rows)),
            "Measured": lambda rows: format_s(measured_s(rows)),
            "Min/measured": lambda rows: _percent(least_s(rows), measured_s(rows)),
            "Share": lambda rows: _percent(measured_s(rows), whole_s),
        }
        more = (f"{len(others)} more", "", str(len(rest)), *[""] * 5)
        times = (format_s(measured_s(rest)), "", _percent(measured_s(rest), whole_s))
        return table(
            f"Operators by {self._time} (totals over equal calls)",
            shown,
            columns,
            left=("Op", "Inputs", "Limiter"),
            narrow=("FLOP/s", "Min/measured", "Limiter", "FLOP", "Inputs", "Limiting AI"),
            sums=[(*more, *times)] if rest else (),
        )

    def _kernel_table(self, view: View) -> Block:
        whole_s, count = self.kernel_s, view.rows(10 if view.verbose else _ROWS)
        groups: dict[tuple[str, str], list[KernelTime]] = {}
        for each in self.kernels:
            groups.setdefault((each.kernel, each.operator), []).append(each)

        def time_s(group: list[KernelTime]) -> float:
            return sum(each.time_s for each in group)

        return table(
            "Kernels by time",
            sorted(groups.values(), key=lambda group: -time_s(group))[:count],
            {
                "Kernel": lambda group: printable(short_kernel(group[0].kernel)),
                "Operator": lambda group: printable(group[0].operator) or MISSING,
                "Calls": lambda group: str(sum(each.calls for each in group)),
                "Time": lambda group: format_s(time_s(group)),
                "Share": lambda group: _percent(time_s(group), whole_s),
            },
            left=("Kernel", "Operator"),
        )

    def _faster(self) -> Iterable[str]:
        faster = [row for row in self.operators if is_below_minimum(row)]
        if faster:
            share = _percent(self._measured_s(faster), self.measured_s)
            yield (
                f"{counted(len(faster), 'operator')} ({share} of {self._time}) ran faster than"
                " their minimum: the machine file or a count is wrong there"
            )

    def draw(self, figure: Figure, **options: Any) -> None:
        """Draw the operators under the roofline of the machine, at their measured times."""
        self.analysis.draw(figure, **options)


_UNITS = (
    ("TF32", re.compile(r"tf32", re.IGNORECASE)),
    ("FP8", re.compile(r"e4m3|e5m2|fp8|float8", re.IGNORECASE)),
    (
        "tensor cores",
        re.compile(
            r"tensorop|[hiqw]g?mma|xmma|mma_|_mma|(?:16816|1688|884)gemm|MFMA|_MI\d+x", re.I
        ),
    ),
)
"""Units and types of matrix products, by what names of kernels have."""


def unit_shares(kernels: Sequence[KernelTime]) -> list[tuple[str, float]]:
    """Return shares of kernel time on tensor cores, and in TF32 and FP8, by names of kernels."""
    whole_s = sum(each.time_s for each in kernels)
    found: list[tuple[str, float]] = []
    for name, pattern in _UNITS:
        part_s = sum(each.time_s for each in kernels if pattern.search(each.kernel))
        if part_s and whole_s:
            found.append((name, part_s / whole_s))
    return found


def _inputs(row: OperatorRow) -> str:
    shapes = (format_shape(each.shape) for each in row.inputs if each.shape)
    return ", ".join(shapes)


HOST_TRANSFER = "host transfer"
"""The type of copies between host and device: their bytes cross a link, not the device's memory."""

OTHER_MACHINE = "not the trace's"
"""Start of `TraceAnalysis.machine_source` where the device of a trace is not the machine given."""

_LINKED = 0.05
_UNLINKED = {"graph": "in graphs without a capture", "none": "without an operator"}


def _percent(part_s: float | None, whole_s: float | None) -> str:
    return format_percent(part_s / whole_s if part_s is not None and whole_s else None)


def _rate(byte: int | None, time_s: float) -> float | None:
    return byte / time_s if byte is not None and time_s else None


def short_kernel(name: str, longest: int = 60) -> str:
    """Return the name of a kernel without arguments and usual namespaces, cut in the middle."""
    plain = re.sub(r"^void |\(anonymous namespace\)::|at::native::", "", name)
    head = plain.partition("(")[0].strip() or plain
    end = longest // 3
    return head if len(head) <= longest else f"{head[: longest - end - 1]}…{head[-end:]}"
