"""Changes that would shorten a traced step, each with its evidence and the most that it saves."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from roofline.analysis import Analysis, Finding, OperatorRow, ranked
from roofline.analysis.words import short_op
from roofline.core.blocks import Block, KeyValueBlock, View, notes, table
from roofline.core.rows import fields_of
from roofline.core.text import counted, printable
from roofline.core.units import format_percent, format_s
from roofline.design.advice.rules import proposals_of
from roofline.design.advice.subject import Subject
from roofline.design.advice.transformers import compilation
from roofline.minimum import kernel_minimums
from roofline.placement import Roof
from roofline.result import Result
from roofline.traces.result import TraceAnalysis, short_kernel
from roofline.workload.fusion import fused_traffic
from roofline.workload.residency import trace_residency
from roofline.workload.tensors import Role, TensorSpec

_MATTERS = 0.02
"""Share of a step, below which a finding is not worth a line."""

_SMALL = 1.0
"""Blocks per multiprocessor, below which a product leaves part of the device idle."""

_SMALL_TILE = 128 * 128
"""Elements of the output that one block of a product computes, at the usual tile."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TraceAdvice(Result):
    """Changes that would shorten a traced step; ``findings`` begin with the largest saving."""

    kind: ClassVar = "trace advice"
    made_by: ClassVar = "roofline advise TRACE.json.gz -o RESULT.json"
    suffixes: ClassVar = (".json", ".csv", ".md", ".html")
    columns: ClassVar = {
        **dict.fromkeys(("rule", "evidence", "change"), "string"),
        **dict.fromkeys(("predicted_before_s", "predicted_after_s", "saving_s"), "Float64"),
    }

    trace: str
    hardware: str
    step_s: float | None
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, trace: TraceAnalysis) -> TraceAdvice:
        """Return the findings of a trace.

        Raises:
            InputError: it has no times, as execution traces.
        """
        trace.check_has_times()
        return cls(
            trace=trace.trace,
            hardware=trace.hardware.name,
            step_s=trace.step.time_s if trace.step else None,
            findings=findings_of_trace(trace),
            warnings=trace.warnings,
        )

    @property
    def summary(self) -> str:
        """The largest saving, or that there is none."""
        name, of = printable(self.trace), format_s(self.step_s)
        if not self.findings:
            return f"{name}: {of} per step; no change of more than {format_percent(_MATTERS)} found"
        best = self.findings[0]
        return f"{name}: {best.rule} could save at most {format_s(best.saving_s)} of {of} per step"

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row for each finding."""
        return fields_of(self.columns, self.findings)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the findings in a table, then evidence and change of each."""
        yield KeyValueBlock(lines=(("Machine", printable(self.hardware)),))
        shown = self.findings[: view.rows()]
        yield from notes("Warnings", self.warnings, urgent=True)
        if not shown:
            return
        yield table(
            "Changes by the most that they save (savings overlap)",
            shown,
            {
                "Change": "rule",
                "Of": "predicted_before_s",
                "Saves at most": "saving_s",
                "Share of step": lambda each: format_percent(
                    (each.saving_s or 0.0) / self.step_s if self.step_s else None
                ),
            },
            left=("Change",),
        )
        said = (
            f"{number} · {printable(each.evidence)} ⇒ {each.change}"
            for number, each in enumerate(shown, 1)
        )
        yield from notes("Evidence and change", said)


def findings_of_trace(trace: TraceAnalysis) -> tuple[Finding, ...]:
    """Return changes for a traced step, those that save most first.

    Of operators without storages, rules follow operands by size and type (`with_storages`).
    """
    step = trace.step
    if step is None or not step.time_s:
        return ()
    timed = [row for row in trace.operators if row.measured_s is not None]
    analysis = with_storages(replace(trace.analysis, operators=tuple(timed)))
    found = [*_waits(trace), *_layout_kernels(trace), *_small_products(analysis)]
    kernels = Counter(row.chain for row in analysis.operators)
    explained = {index for each in found for index in each.operators}
    # torch.compile saves the time of fused operators, though not that of products.
    explained.update(
        row.index for row in analysis.operators if kernels[row.chain] > 1 and not row.macs
    )
    proposals = *proposals_of(analysis, explained=explained), *compilation(Subject(analysis))
    return ranked(
        replace(
            each,
            operators=tuple(timed[index].index for index in each.operators),
            evidence=each.evidence + _most(timed[index] for index in each.operators),
        )
        for each in (*found, *(proposal.finding for proposal in proposals))
        if (each.saving_s or 0) >= _MATTERS * step.time_s
    )


def with_storages(analysis: Analysis) -> Analysis:
    """Return the timed operators of a trace with storages, and fused kernels from these.

    An operand is the latest output of its type and size; a strided one also a part of the latest
    larger one. Products of one size behind each other share the operand of the first. Operands
    without such an output are inputs, with at most two dimensions parameters.
    """
    outputs: deque[tuple[TensorSpec, OperatorRow]] = deque(maxlen=_NEAR)
    numbers, unread = itertools.count(), set[int]()
    rows: list[OperatorRow] = []
    for row in analysis.operators:
        storages: dict[int, int] = {}
        inputs: list[TensorSpec] = []
        for place, spec in enumerate(row.inputs):
            role = spec.role
            if spec.storage not in storages:
                is_weight = place == len(row.inputs) - 1 and row.op in ("aten.mm", "aten.addmm")
                source = None
                if not (is_weight and spec.layout == "strided"):
                    source = _source(spec, row, [*outputs], unread, storages.values())
                storages[spec.storage] = next(numbers) if source is None else source.storage
                role = Role.ACTIVATION
                if source is None:
                    is_small = len(spec.shape) <= _OF_WEIGHTS and spec.dtype.kind == "float"
                    role = Role.PARAMETER if is_small else Role.INPUT
            inputs.append(replace(spec, storage=storages[spec.storage], offset_bytes=0, role=role))
        written = [
            replace(spec, storage=storages.setdefault(spec.storage, next(numbers)))
            for spec in row.outputs
        ]
        unread.difference_update(storages.values())
        unread.update(spec.storage for spec in written)
        linked = {"inputs": tuple(inputs), "outputs": tuple(written)}
        rows.append(replace(row, index=len(rows), **linked))
        outputs += [(spec, rows[-1]) for spec in written]
    return replace(analysis, operators=_fused(rows, Roof(analysis.hardware, analysis.threads)))


_NEAR = 64  # Outputs among which that of an operand is
_OF_WEIGHTS = 2  # Maximum dimensions of operands from outside that are taken for parameters


def _source(
    spec: TensorSpec,
    row: OperatorRow,
    outputs: Sequence[tuple[TensorSpec, OperatorRow]],
    unread: Collection[int],
    taken: Collection[int],
) -> TensorSpec | None:
    """Return the output that an operand is, the latest unread one if there is one; or None."""
    fitting: list[TensorSpec] = []
    parts: list[TensorSpec] = []
    for output, writer in reversed(outputs):
        if output.dtype != spec.dtype or output.storage in taken:
            continue
        if output.distinct_elements == spec.distinct_elements:
            if len(spec.shape) == 1 != len(output.shape):
                continue
            left = writer.inputs[-2:][:1]
            if (
                not fitting
                and row.macs
                and (row.op, [spec.shape])
                == (
                    writer.op,
                    [each.shape for each in left],
                )
            ):
                return left[0]
            fitting.append(output)
        elif spec.layout == "strided" and not output.distinct_elements % max(1, spec.elements):
            parts.append(output)
    return next(
        (each for each in fitting if each.storage in unread),
        next(iter(fitting or parts), None),
    )


def _fused(rows: Sequence[OperatorRow], roof: Roof) -> tuple[OperatorRow, ...]:
    """Return the operators with their fused kernels, and the minimum times of these."""
    # What no operator reads may be read by one that was not counted.
    last = {spec.storage: row.index for row in rows for spec in row.inputs}
    freed: dict[int, list[int]] = {}
    for storage, index in last.items():
        freed.setdefault(index, []).append(storage)
    records = [replace(row.record, freed=tuple(freed.get(row.index, ()))) for row in rows]
    kernels = fused_traffic(records)
    placed = [roof.place(each, trace_residency([each]).steady[0]) for each in records]
    times = kernel_minimums(placed, kernels, roof)
    return tuple(
        replace(
            row,
            chain=each.chain,
            fused_bytes=each.traffic_bytes,
            fused_min_time_s=times[row.index].time_s if row.index in times else None,
        )
        for row, each in zip(rows, kernels, strict=True)
    )


def _finding(
    rule: str,
    before_s: float,
    after_s: float,
    rows: Iterable[OperatorRow] = (),
    *,
    evidence: str,
    change: str,
) -> Finding:
    return Finding(
        rule=rule,
        operators=tuple(row.index for row in rows),
        basis="measured at most",
        predicted_before_s=before_s,
        predicted_after_s=min(max(after_s, 0.0), before_s),
        evidence=evidence,
        change=change,
    )


def _most(rows: Iterable[OperatorRow]) -> str:
    """Return the operators, and classes of modules, that take most of the time of some rows."""
    operators: dict[str, float] = {}
    modules: dict[str, float] = {}
    for row in rows:
        module = row.module_path.rpartition(".")[2].rpartition("_")[0]
        for times, name in ((operators, short_op(row)), (modules, module)):
            times[name] = times.get(name, 0.0) + (row.measured_s or 0.0)
    longest = [
        ", ".join(sorted(filter(None, times), key=times.__getitem__, reverse=True)[:3])
        for times in (operators, modules)
    ]
    return f"; most time: {' in '.join(filter(None, longest))}" if operators else ""


_OF_LAUNCHES_S = 1e-3
"""Longest wait that calls of operators explain: hundreds of them."""


def _waits(trace: TraceAnalysis) -> Iterator[Finding]:
    """Idle time in which the device waited for the host: for launches, or for other work."""
    step = trace.step
    if step is None or not step.host_bound_s:
        return
    long = [each for each in trace.gaps if (each.host_bound_s or 0.0) > _OF_LAUNCHES_S]
    others = [each for each in trace.gaps if each not in long]
    long_s = sum(each.host_bound_s or 0.0 for each in long)
    count = counted(step.launches, "launch", "launches")
    for rule, wait_s, gaps, what, change in (
        (
            "host work",
            long_s,
            long,
            f"{counted(len(long), 'wait')} of the device for the host of more than"
            f" {format_s(_OF_LAUNCHES_S)}",
            "prepare inputs before the step, in DataLoader workers (pin_memory=True, copies with"
            " non_blocking=True) or on the device",
        ),
        (
            "launch-bound",
            step.host_bound_s - long_s,
            others,
            f"short waits of the device for the host, which made {count}",
            "capture the step in CUDA graphs (torch.compile(mode='reduce-overhead')), enlarge the"
            " batch, or remove synchronization (.item(), .cpu(), printing)",
        ),
    ):
        share = format_percent(wait_s / step.time_s)
        ends = ", ".join(dict.fromkeys(short_kernel(each.before) for each in gaps[:3]))
        yield _finding(
            rule,
            step.time_s,
            step.time_s - wait_s,
            evidence=f"{what}: {format_s(wait_s)}, {share} of the step; longest after {ends}",
            change=change,
        )


def _layout_kernels(trace: TraceAnalysis) -> Iterator[Finding]:
    """Kernels of convolutions that change the layout of images."""
    kernels = [e for e in trace.kernels if "nchwToNhwc" in e.kernel or "nhwcToNchw" in e.kernel]
    layout_s = sum(each.time_s for each in kernels)
    if layout_s:
        yield _finding(
            "channels last",
            layout_s,
            0.0,
            evidence=(
                f"{sum(each.calls for each in kernels)} kernels change the layout of images for"
                f" {', '.join(dict.fromkeys(each.operator for each in kernels))}"
                f" ({format_s(layout_s)})"
            ),
            change="model and input.to(memory_format=torch.channels_last)",
        )


def _small_products(trace: Analysis) -> Iterator[Finding]:
    """Products whose output has fewer tiles than the device has multiprocessors."""
    multiprocessors = trace.hardware.multiprocessors
    if not multiprocessors:
        return
    rows = [
        row
        for row in trace.operators
        if row.macs
        and row.outputs
        and row.outputs[0].elements < _SMALL * multiprocessors * _SMALL_TILE
        and row.type == "matrix product"
    ]
    if rows:
        before_s = sum(row.measured_s or 0.0 for row in rows)
        after_s = sum(row.eager_min_time_s or 0.0 for row in rows)
        yield _finding(
            "small products",
            before_s,
            after_s,
            rows,
            evidence=(
                f"{counted(len(rows), 'matrix product')} have fewer tiles of 128x128 than the"
                f" {multiprocessors} multiprocessors ({format_s(before_s)}, minimum"
                f" {format_s(after_s)})"
            ),
            change="enlarge the batch, or join products that share an input into one",
        )
