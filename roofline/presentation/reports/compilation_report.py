"""What the report on a compilation says: launches and bytes beside eager torch's, then kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from roofline.analysis import fit_warnings
from roofline.analysis.facts import model_fact, run_fact
from roofline.analysis.words import hardware_fact
from roofline.design.compilation import Compilation, Side
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.text import counted, printable
from roofline.foundation.units import MISSING, format_bytes
from roofline.render.pages import report_html
from roofline.workload.compiled_kernels import CompiledGraph, CompiledKernel, Part
from roofline.workload.operators import Phase

DEFAULT_TOP = 10

_NAMED = 4
"""How many operators or modules of a kernel are named."""

_WHEN: dict[Part, str] = {
    "forward": "between graphs",
    "loss": "the loss",
    "backward": "backward, of the loss and of what was between graphs",
    "optimizer": "the update",
}


def compilation_report(
    compilation: Compilation, *, top: int | None = None, today: date | None = None
) -> Report:
    """The report on a compilation.

    Args:
        compilation: what torch.compile makes of a model.
        top: how many kernels are shown, those that move most; None: 10.
        today: for the hardware's age; None gives dates alone.
    """
    blocks: list[Block] = [Facts(lines=tuple(_facts(compilation, today)))]
    blocks.append(_sides_grid(compilation))
    if compilation.compiled.graphs:
        blocks.append(_kernels_grid(compilation, top or DEFAULT_TOP))
    for title, said, urgent in (
        ("Graphs end because of", compilation.compiled.breaks, False),
        ("Notes", compilation.compiled.notes, False),
        ("Warnings", _warnings(compilation), True),
    ):
        if said:
            lines = tuple(dict.fromkeys(map(printable, said)))
            blocks.append(Notes(title=title, lines=lines, urgent=urgent))
    return Report(headline=compilation.summary, blocks=tuple(blocks))


def _facts(compilation: Compilation, today: date | None) -> Iterable[tuple[str, str]]:
    analysis, compiled = compilation.analysis, compilation.compiled
    yield model_fact(analysis)
    yield from run_fact(analysis)
    yield hardware_fact(analysis, today)
    yield "Compiler", printable(compiled.compiler)
    if not compilation.is_available:
        yield "Compiled", f"not known: {printable(compiled.why_not)}"
        return
    yield "Graphs", _graphs(compiled.graphs)
    yield "Launches", _launches(compilation)
    yield "Buffers", _buffers(compilation)
    if outside := _outside(compilation):
        yield "Outside", outside


def _graphs(graphs: Sequence[CompiledGraph]) -> str:
    phases = [each.phase for each in graphs]
    parts = [
        f"{counted(phases.count(phase), 'graph')} {phase}"
        if "backward" in phases
        else counted(phases.count(phase), "graph")
        for phase in dict.fromkeys(phases)
    ]
    calls = sum(each.calls for each in graphs)
    again = f", called {calls:,} times in a pass" if calls > len(graphs) else ""
    return f"{' · '.join(parts)}{again}"


def _launches(compilation: Compilation) -> str:
    compiled = compilation.compiled
    generated = compiled.launches_of("generated")
    loops = sum(
        kernel.loops * graph.calls
        for graph in compiled.graphs
        for kernel in graph.kernels
        if kernel.kind == "generated"
    )
    parts = [
        f"{counted(generated, 'generated function')} with {counted(loops, 'loop nest')}",
        f"{counted(compiled.launches_of('library'), 'call')} of libraries",
    ]
    if unknown := compiled.unknown_launches():
        parts.append(f"bytes of {counted(unknown, 'launch', 'launches')} unknown")
    return " · ".join(parts)


def _buffers(compilation: Compilation) -> str:
    """Intermediate buffers of all graphs, and what the eager pass has alive at most."""
    graphs = compilation.compiled.graphs
    buffers, reused = sum(each.buffers for each in graphs), sum(each.reused for each in graphs)
    allocated = sum(each.allocated_bytes * each.calls for each in graphs)
    said = (
        f"{counted(buffers, 'buffer')}, {reused:,} in the memory of an earlier one;"
        f" {format_bytes(allocated)} allocated"
    )
    if len(graphs) > 1:
        return said
    eager = compilation.analysis.peak
    beside = f" (eager torch: {format_bytes(eager.activation_bytes)})" if eager is not None else ""
    return (
        f"{said}, {format_bytes(sum(each.peak_bytes for each in graphs))} alive at the most{beside}"
    )


def _outside(compilation: Compilation) -> str:
    """What runs as in eager torch, by the part of the pass that it is in."""
    compiled = compilation.compiled
    parts: list[str] = []
    for part, when in _WHEN.items():
        calls = compiled.called_outside(part)
        if calls:
            names = [
                each.op.removeprefix("aten.") for each in compiled.outside if each.part == part
            ]
            parts.append(f"{when}: {counted(calls, 'operator')} ({_some(names)})")
    return " · ".join(parts)


def _some(names: Iterable[str]) -> str:
    known = [printable(each) for each in dict.fromkeys(names)]
    more = f", {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ", ".join(known[:_NAMED]) + more


def _sides_grid(compilation: Compilation) -> Grid:
    phases: tuple[Phase | None, ...] = (None,)
    if compilation.analysis.run.train:
        phases = ("forward", "backward", None)
    rows: list[tuple[str, ...]] = []
    for phase in phases:
        eager = compilation.eager(phase)
        where = phase or ("both" if len(phases) > 1 else "")
        for name, side in (
            ("eager torch", eager),
            ("fused, by the rules of --fused", compilation.fused(phase)),
            ("Inductor", compilation.inductor(phase)),
        ):
            rows.append((where, name, *_side_cells(side, eager)))
    columns = (
        Column(heading="phase", sacrifice=2),
        Column(heading="run as"),
        Column(heading="launches", align="right"),
        Column(heading="traffic", align="right"),
        Column(heading="of eager", align="right", sacrifice=1),
    )
    if len(phases) == 1:
        columns, rows = columns[1:], [row[1:] for row in rows]
    left_out = ", loss and update left out" if compilation.analysis.run.train else ""
    return Grid(title=f"The pass, beside eager torch{left_out}", columns=columns, rows=tuple(rows))


def _side_cells(side: Side | None, eager: Side) -> tuple[str, str, str]:
    if side is None:
        return MISSING, MISSING, MISSING
    share = MISSING
    if eager.traffic_bytes and not side.unknown:
        share = f"{side.traffic_bytes / eager.traffic_bytes:.0%}"
    return f"{side.launches:,}", side.traffic, share


@dataclass(slots=True)
class _Line:
    """Kernels that no table can tell apart."""

    kernel: CompiledKernel
    phase: Phase
    calls: int = 0

    @property
    def byte(self) -> int:
        return (self.kernel.traffic_bytes or 0) * self.calls


def _kernels_grid(compilation: Compilation, top: int) -> Grid:
    lines: dict[object, _Line] = {}
    for graph in compilation.compiled.graphs:
        for kernel in graph.kernels:
            key = (graph.phase, kernel.name, kernel.operators, kernel.traffic_bytes)
            lines.setdefault(key, _Line(kernel, graph.phase)).calls += graph.calls
    ranked = sorted(lines.values(), key=lambda each: -each.byte)
    rest = ranked[top:]
    sums: list[tuple[str, ...]] = []
    if rest:
        calls = sum(each.calls for each in rest)
        name = f"({counted(len(rest), 'more row')})"
        sums.append((name, f"{calls:,}", "", "", "", "", format_bytes(sum(e.byte for e in rest))))
    inductor = compilation.inductor()
    if inductor is not None:
        launches = compilation.compiled.launches()
        sums.append(("total", f"{launches:,}", "", "", "", "", inductor.traffic))
    return Grid(
        title="Kernels that move most, as Inductor schedules them",
        columns=(
            Column(heading="kernel", least=16, sacrifice=2),
            Column(heading="launches", align="right", sacrifice=5),
            Column(heading="operators in it", least=16, sacrifice=1),
            Column(heading="modules", least=10, sacrifice=4),
            Column(heading="read", align="right", sacrifice=3),
            Column(heading="written", align="right", sacrifice=3),
            Column(heading="traffic", align="right"),
        ),
        rows=tuple(_cells(each) for each in ranked[:top]),
        sums=tuple(sums),
    )


def _cells(line: _Line) -> tuple[str, ...]:
    kernel = line.kernel
    byte = MISSING if kernel.traffic_bytes is None else format_bytes(line.byte)
    return (
        printable(kernel.name),
        f"{line.calls:,}",
        _some(each.removeprefix("aten.") for each in kernel.operators),
        _some(kernel.modules),
        _times(kernel.read_bytes, line.calls),
        _times(kernel.written_bytes, line.calls),
        byte,
    )


def _times(byte: int | None, calls: int) -> str:
    return MISSING if byte is None else format_bytes(byte * calls)


def _warnings(compilation: Compilation) -> tuple[str, ...]:
    compiled = compilation.compiled
    said: list[str] = []
    if compiled.breaks and compilation.analysis.run.train:
        said.append(
            "what runs between graphs is differentiated outside of them: the backward pass of"
            " Inductor lacks it"
        )
    return (*said, *fit_warnings(compilation.analysis), *compilation.analysis.warnings)


def compilation_html(compilation: Compilation) -> str:
    """The report as one HTML element for notebooks; everything is escaped."""
    return report_html(compilation_report(compilation))
