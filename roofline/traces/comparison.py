"""Differences between two traces: new, gone and slower operators, and other kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from roofline.analysis import OperatorRow
from roofline.core.blocks import Block, KeyValueBlock, View, notes, table
from roofline.core.rows import fields_of
from roofline.core.text import counted, printable
from roofline.core.units import MISSING, format_percent, format_s
from roofline.result import Result
from roofline.traces.result import TraceAnalysis, short_kernel

Change = Literal["new", "gone", "slower", "faster", "same"]
_ROWS = 10
_SAME = 0.02
"""Relative difference of times up to which an operator counts as unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChange:
    """An operator with its shapes in two traces: calls, and kernel seconds of a step.

    ``kernels_before`` and ``kernels_after`` are names of kernels that ran in one trace alone.
    """

    operator: str
    inputs: str
    change: Change
    calls_before: int
    calls_after: int
    time_before_s: float
    time_after_s: float
    kernels_before: tuple[str, ...] = ()
    kernels_after: tuple[str, ...] = ()

    @property
    def difference_s(self) -> float:
        """Seconds of a step more than before."""
        return self.time_after_s - self.time_before_s

    @property
    def is_other_kernel(self) -> bool:
        """True if the operator on these shapes ran other kernels."""
        return bool(self.calls_before and self.calls_after) and bool(
            self.kernels_before or self.kernels_after
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TraceComparison(Result):
    """Two traces: ``before`` and ``after``, and operators by the size of their difference."""

    kind: ClassVar = "trace comparison"
    made_by: ClassVar = "roofline compare A.json.gz B.json.gz -o RESULT.json"
    suffixes: ClassVar = (".json", ".csv", ".md", ".html")
    columns: ClassVar = {
        **dict.fromkeys(("operator", "inputs", "change"), "string"),
        **dict.fromkeys(("calls_before", "calls_after"), "Int64"),
        **dict.fromkeys(("time_before_s", "time_after_s", "difference_s"), "Float64"),
    }

    before: TraceAnalysis
    after: TraceAnalysis
    changes: tuple[OperatorChange, ...]

    @classmethod
    def of(cls, before: TraceAnalysis, after: TraceAnalysis) -> TraceComparison:
        """Return the differences between two traces, the largest first.

        Raises:
            InputError: one has no times, as execution traces.
        """
        for each in (before, after):
            each.check_has_times()
        one, other = _operators(before), _operators(after)
        found = [_change(*key, one.get(key), other.get(key)) for key in {**one, **other}]
        changes = sorted(found, key=lambda each: -abs(each.difference_s))
        return cls(before=before, after=after, changes=tuple(changes))

    @property
    def summary(self) -> str:
        """Step times, and the numbers of operators that changed."""
        times = [each.step.time_s if each.step else None for each in (self.before, self.after)]
        names = [printable(each.trace) for each in (self.before, self.after)]
        counts = Counter(each.change for each in self.changes)
        said = ", ".join(f"{counts[each]} {each}" for each in _ORDER if counts[each])
        kernels = sum(each.is_other_kernel for each in self.changes)
        said += f", {counted(kernels, 'operator')} with other kernels" if kernels else ""
        ratio = ""
        if times[0] and times[1]:
            ratio = f" ({format_percent(times[1] / times[0] - 1)} change)"
        return (
            f"{names[1]} against {names[0]}: {format_s(times[1])} per step, was"
            f" {format_s(times[0])}{ratio}; operators: {said or 'none'}"
        )

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row for each operator."""
        return fields_of(self.columns, self.changes)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return both steps, the largest differences, and operators that ran other kernels."""
        pair = (("Before", self.before), ("After", self.after))
        yield KeyValueBlock(lines=tuple((name, _step_words(each)) for name, each in pair))
        changed = [each for each in self.changes if each.change != "same"]
        if changed:
            yield table(
                "Operators by difference of kernel time",
                changed[: view.rows(_ROWS)],
                {
                    "Operator": lambda each: printable(each.operator.removeprefix("aten.")),
                    "Inputs": lambda each: printable(each.inputs),
                    "Change": "change",
                    "Calls": lambda each: _pair(each.calls_before, each.calls_after),
                    "Before": "time_before_s",
                    "After": "time_after_s",
                    "Difference": lambda each: _signed(each.difference_s),
                },
                left=("Operator", "Inputs", "Change"),
                narrow=("Inputs", "Calls"),
            )
        others = [each for each in self.changes if each.is_other_kernel]
        if others:
            yield table(
                "Operators that ran other kernels",
                others[: view.rows(_ROWS)],
                {
                    "Operator": lambda each: printable(each.operator.removeprefix("aten.")),
                    "Inputs": lambda each: printable(each.inputs),
                    "Difference": lambda each: _signed(each.difference_s),
                    "Before": lambda each: _kernels(each.kernels_before),
                    "After": lambda each: _kernels(each.kernels_after),
                },
                left=("Operator", "Inputs", "Before", "After"),
                narrow=("Inputs",),
            )
        traces = (self.before, self.after)
        warnings = [f"{printable(of.trace)}: {each}" for of in traces for each in of.warnings]
        if self.before.hardware.name != self.after.hardware.name:
            machines = f"{self.before.hardware.name} and {self.after.hardware.name}"
            warnings.append(f"recorded on two machines: {machines}")
        yield from notes("Warnings", warnings, urgent=True)


_ORDER: tuple[Change, ...] = ("new", "gone", "slower", "faster", "same")

_Known = tuple[int, float, frozenset[str]]
"""Calls, kernel seconds and kernels of an operator."""


def _operators(trace: TraceAnalysis) -> dict[tuple[str, str], _Known]:
    """Return operators that launched kernels, by name and shapes of their inputs."""
    found: dict[tuple[str, str], _Known] = {}
    calls = Counter((row.op, _inputs(row)) for row in trace.operators)
    for each in trace.kernels:
        if each.operator:
            key = each.operator.replace("::", ".", 1), each.inputs
            _, time_s, kernels = found.get(key, (0, 0.0, frozenset[str]()))
            number = calls.get(key, each.calls)
            found[key] = number, time_s + each.time_s, kernels | {each.kernel}
    return found


def _inputs(row: OperatorRow) -> str:
    return ", ".join("x".join(map(str, each.shape)) for each in row.inputs if each.shape)


def _change(
    operator: str, inputs: str, before: _Known | None, after: _Known | None
) -> OperatorChange:
    none: _Known = (0, 0.0, frozenset())
    one, other = before or none, after or none
    change: Change = "same"
    if before is None or after is None:
        change = "new" if before is None else "gone"
    elif abs(other[1] - one[1]) > _SAME * max(one[1], other[1]):
        change = "slower" if other[1] > one[1] else "faster"
    is_in_both = before is not None and after is not None
    return OperatorChange(
        operator=operator,
        inputs=inputs,
        change=change,
        calls_before=one[0],
        calls_after=other[0],
        time_before_s=one[1],
        time_after_s=other[1],
        kernels_before=tuple(sorted(one[2] - other[2])) if is_in_both else (),
        kernels_after=tuple(sorted(other[2] - one[2])) if is_in_both else (),
    )


def _step_words(trace: TraceAnalysis) -> str:
    step = trace.step
    busy = format_s(step.busy_s) if step else MISSING
    time = format_s(step.time_s) if step else MISSING
    kernel = format_s(trace.kernel_s)
    name = printable(trace.trace)
    return f"{name} · {trace.hardware.name} · step {time}, busy {busy} · kernels {kernel}"


def _pair(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} → {after}"


def _signed(time_s: float) -> str:
    return f"{'+' if time_s >= 0 else '-'}{format_s(abs(time_s))}"


def _kernels(names: Sequence[str]) -> str:
    shown = ", ".join(printable(short_kernel(each, 40)) for each in names[:2])
    return shown + (f" and {len(names) - 2} more" if len(names) > 2 else "")
