"""Changes that would shorten a traced step, each with its evidence and the most that it saves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from roofline.analysis import Finding, OperatorRow, ranked
from roofline.analysis.words import short_op
from roofline.core.blocks import Block, KeyValueBlock, View, notes, table
from roofline.core.dtypes import dtype
from roofline.core.rows import fields_of
from roofline.core.text import counted, printable
from roofline.core.units import format_bytes, format_percent, format_s
from roofline.placement import Roof, arithmetic_dtype
from roofline.result import Result
from roofline.traces.result import HOST_TRANSFER, TraceAnalysis, short_kernel
from roofline.workload.residency import trace_residency

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
    """Return changes for a traced step, those that save most first."""
    step = trace.step
    if step is None or not step.time_s:
        return ()
    found = [each for rule in _RULES for each in rule(trace)]
    return ranked(tuple(each for each in found if (each.saving_s or 0) >= _MATTERS * step.time_s))


def _finding(
    rule: str,
    rows: Iterable[OperatorRow],
    before_s: float,
    after_s: float,
    *,
    evidence: str,
    change: str,
) -> Finding:
    of = {row.index: row for row in rows}
    return Finding(
        rule=rule,
        operators=tuple(sorted(of)),
        basis="at most",
        predicted_before_s=before_s,
        predicted_after_s=min(max(after_s, 0.0), before_s),
        evidence=evidence + _most(of.values()),
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


def _launch_bound(trace: TraceAnalysis) -> Iterator[Finding]:
    """Idle time in which the device waited for the host."""
    step = trace.step
    if step is not None and step.host_bound_s:
        share = format_percent(step.host_bound_s / step.time_s)
        yield _finding(
            "launch-bound",
            (),
            step.time_s,
            step.time_s - step.host_bound_s,
            evidence=(
                f"the device waited {format_s(step.host_bound_s)} ({share} of the step) for the"
                f" host, which made {counted(step.launches, 'launch', 'launches')}; longest after"
                f" {', '.join(dict.fromkeys(short_kernel(each.before) for each in trace.gaps[:3]))}"
            ),
            change=(
                "capture the step in CUDA graphs (torch.compile(mode='reduce-overhead')), enlarge"
                " the batch, or remove synchronization (.item(), .cpu(), printing)"
            ),
        )


def _pointwise_chains(trace: TraceAnalysis) -> Iterator[Finding]:
    """Runs of pointwise operators on one shape, each of which reads what the one before wrote."""
    chains: list[list[OperatorRow]] = [[]]
    for row in trace.operators:
        last = chains[-1][-1] if chains[-1] else None
        if row.type not in _FUSIBLE or not row.outputs:
            chains.append([])
            continue
        if last is not None and last.outputs[0].shape != row.outputs[0].shape:
            chains.append([])
        chains[-1].append(row)
    long = [chain for chain in chains if len(chain) > 1]
    rows = [row for chain in long for row in chain]
    before_s = sum(row.measured_s or 0.0 for row in rows)
    after_s = sum(_fused_s(chain) for chain in long)
    if rows:
        byte = sum(row.traffic_bytes for row in rows)
        yield _finding(
            "fusible chains",
            rows,
            before_s,
            after_s,
            evidence=(
                f"{counted(len(long), 'run')} of pointwise operators on one shape"
                f" ({counted(len(rows), 'operator')}) move {format_bytes(byte)}"
            ),
            change="fuse them with torch.compile",
        )


_FUSIBLE = ("pointwise", "data movement", "normalization")


def _fused_s(chain: Sequence[OperatorRow]) -> float:
    """Return the time of a chain that keeps what is between its operators in registers."""
    between = sum(2 * row.outputs[0].byte for row in chain[:-1])
    byte = sum(row.traffic_bytes for row in chain)
    time_s = sum(row.measured_s or 0.0 for row in chain)
    return time_s * max(0.0, 1 - between / byte) if byte else time_s


def _lower_precision(trace: TraceAnalysis) -> Iterator[Finding]:
    """Matrix products and convolutions in float32 on a device with faster 16-bit units."""
    roof = Roof(trace.hardware, trace.threads)
    fast = roof.compute(dtype("bfloat16"))
    slow = roof.compute(dtype("float32"))
    rows = [
        row
        for row in trace.operators
        if row.macs and str(arithmetic_dtype((*row.inputs, *row.outputs))) == "float32"
    ]
    if not rows or fast is None or slow is None or fast.flop_per_s <= slow.flop_per_s:
        return
    before_s = sum(row.measured_s or 0.0 for row in rows)
    after_s = 0.0
    for row in rows:
        reuses = trace_residency([row.record]).steady[0]
        placed = roof.place(row.record, reuses, compute_as=dtype("bfloat16"))
        after_s += placed.eager_min_time_s or 0.0
    yield _finding(
        "lower precision",
        rows,
        before_s,
        after_s,
        evidence=(
            f"{counted(len(rows), 'product')} in float32 take {format_s(before_s)}; bfloat16 units"
            f" are {fast.flop_per_s / slow.flop_per_s:.1f}× faster"
        ),
        change=(
            f"run them in bfloat16: torch.autocast('{trace.run.device}', torch.bfloat16), or"
            " .bfloat16()"
        ),
    )


def _layout_copies(trace: TraceAnalysis) -> Iterator[Finding]:
    """Copies between layouts and types, as operators or as kernels of convolutions."""
    rows = [
        row
        for row in trace.operators
        if row.op.removeprefix("aten.") in ("copy_", "clone", "_to_copy", "contiguous")
        and row.type != HOST_TRANSFER
    ]
    kernels = [each for each in trace.kernels if "nchwToNhwc" in each.kernel]
    kernels += [each for each in trace.kernels if "nhwcToNchw" in each.kernel]
    copy_s = sum(row.measured_s or 0.0 for row in rows)
    layout_s = sum(each.time_s for each in kernels)
    if layout_s:
        yield _finding(
            "channels last",
            (),
            layout_s,
            0.0,
            evidence=(
                f"{sum(each.calls for each in kernels)} kernels change the layout of images for"
                f" {', '.join(dict.fromkeys(each.operator for each in kernels))}"
                f" ({format_s(layout_s)})"
            ),
            change="model and input.to(memory_format=torch.channels_last)",
        )
    if rows:
        yield _finding(
            "copies",
            rows,
            copy_s,
            0.0,
            evidence=(
                f"{counted(len(rows), 'copy', 'copies')} between layouts and types move"
                f" {format_bytes(sum(row.traffic_bytes for row in rows))}"
            ),
            change=(
                "keep one type and layout: avoid .contiguous() after transpose, casts in loops and"
                " repeated .to()"
            ),
        )


def _small_products(trace: TraceAnalysis) -> Iterator[Finding]:
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
            rows,
            before_s,
            after_s,
            evidence=(
                f"{counted(len(rows), 'matrix product')} have fewer tiles of 128x128 than the"
                f" {multiprocessors} multiprocessors ({format_s(before_s)}, minimum"
                f" {format_s(after_s)})"
            ),
            change="enlarge the batch, or join products that share an input into one",
        )


def _attention(trace: TraceAnalysis) -> Iterator[Finding]:
    """Attention written out: a batched product, softmax, and another batched product."""
    rows: list[OperatorRow] = []
    products_s = softmax_s = least_s = 0.0
    window: list[OperatorRow] = []
    for row in trace.operators:
        name = row.op.removeprefix("aten.")
        if name == "bmm":
            if window and any(each.op.endswith("_softmax") for each in window):
                chain = [*window, row]
                rows += chain
                least_s += (window[0].eager_min_time_s or 0.0) + (row.eager_min_time_s or 0.0)
                products = (window[0].measured_s or 0.0) + (row.measured_s or 0.0)
                products_s += products
                softmax_s += sum(each.measured_s or 0.0 for each in chain) - products
                window = []
            else:
                window = [row]
        elif window and (name == "_softmax" or row.type in _FUSIBLE):
            window.append(row)
        else:
            window = []
    if rows:
        yield _finding(
            "attention written out",
            rows,
            products_s + softmax_s,
            least_s,
            evidence=(
                f"{sum(row.op.endswith('_softmax') for row in rows)} times a product, softmax and a"
                f" product: what is between the products takes {format_s(softmax_s)}"
            ),
            change="torch.nn.functional.scaled_dot_product_attention",
        )


_RULES: tuple[Callable[[TraceAnalysis], Iterator[Finding]], ...] = (
    _launch_bound,
    _attention,
    _lower_precision,
    _pointwise_chains,
    _layout_copies,
    _small_products,
)
