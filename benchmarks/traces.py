"""Traces of torch.profiler, read: links, counts, and differences to TraceLens.

    python benchmarks/traces.py [FOLDER] > benchmarks/traces.md

FOLDER has traces (*.json.gz), `../shared/measurements/traces` unless given. A trace whose name has
`capture` is that of the graphs that the trace with the same beginning launches. TraceLens' tables
lie in `tracelens-*/NAME/unified_perf_summary.csv`, NAME being that of the trace without what stands
before its first dash. A machine that a trace does not name is taken from the trace's file name.

FLOP are compared for each row of TraceLens' table. Its operator is looked up in the trace by all of
its arguments; it must have launched kernels as often as TraceLens says, within the operator that is
counted here or around it. A difference has a reason only where the row itself shows it: products
alone (all of TraceLens' FLOP are those of our products), one operation an element (TraceLens counts
the elements of a tensor once), several an element, or nothing is computed (copies and integers).
"""

from __future__ import annotations

import ast
import csv
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from roofline.analysis import OperatorRow
from roofline.analysis.words import is_below_minimum
from roofline.errors import HardwareError, RooflineError, error_text
from roofline.pipeline.traces import read_trace
from roofline.traces.linking import Nesting, link, signature_of
from roofline.traces.reading import read_events
from roofline.traces.result import TraceAnalysis

FOLDER = Path(__file__).parents[2] / "shared" / "measurements" / "traces"


def read(path: Path) -> TraceAnalysis:
    """Return a trace; of a machine that it does not name, with the one of the file's name."""
    captures = [
        other
        for other in path.parent.glob("*capture*.json.gz")
        if other != path and other.name.split("-graph")[0] == path.name.split("-graph")[0]
    ]
    capture = captures[0] if captures and "graph" in path.name else None
    try:
        return read_trace(path, capture=capture)
    except HardwareError:
        return read_trace(path, hardware=path.name.split("-")[0], capture=capture)


def seconds_of_reading(path: Path) -> tuple[float, float]:
    """Return CPU seconds and MB of JSON of the events alone."""
    import gzip

    with gzip.open(path) as packed:
        size = sum(len(part) for part in iter(lambda: packed.read(1 << 22), b""))
    start = time.process_time()
    read_events(path)
    return time.process_time() - start, size / 1e6


def tracelens(folder: Path, trace: Path) -> Iterator[dict[str, str]]:
    name = trace.name.removesuffix(".json.gz").partition("-")[2]
    for table in folder.glob(f"tracelens-*/{name}/unified_perf_summary.csv"):
        with table.open(newline="") as file:
            yield from csv.DictReader(file)


Key = tuple[Any, ...]


def key_of(name: str, *arguments: Any) -> Key:
    """Return an operator with its arguments, without absent shapes if those are all there is."""

    def plain(each: Any) -> Any:
        return tuple(map(plain, each)) if isinstance(each, (list, tuple)) else each

    found = plain(arguments)
    shapes = tuple(each for each in found[0] if each)
    return name.replace("::", ".", 1), shapes, *found[1:]


def calls_of(path: Path, rows: Iterable[OperatorRow]) -> dict[Key, list[OperatorRow | None]]:
    """Return calls that launched kernels by name and arguments, with the rows that count them."""
    known: dict[Key, OperatorRow] = {}
    for row in rows:
        # Operators that write into a given tensor have it as their first argument.
        for tensors in (row.inputs, (*row.outputs, *row.inputs)):
            known.setdefault(key_of(row.op, [each.shape for each in tensors]), row)
    trace = read_events(path)
    nesting = Nesting(trace)
    found: dict[Key, list[OperatorRow | None]] = {}
    seen: set[int] = set()
    for operator in {*link(nesting).operator.tolist()} - {-1}:
        counted, outermost = None, dict[Key, int]()
        for place in nesting.around(operator):
            if of := signature_of(trace, place):
                name = trace.name_of(place)
                counted = known.get(key_of(name, of.dims)) or counted
                # An overload that calls another one with the same arguments is one call.
                outermost[key_of(name, of.dims, of.types, of.strides, of.values)] = place
        for key, place in outermost.items():
            if place not in seen:
                found.setdefault(key, []).append(counted)
        seen.update(outermost.values())
    return found


_ARGUMENTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def difference(row: OperatorRow, theirs: float) -> str:
    """Return why TraceLens has other FLOP for a call; "" where it is not known."""
    ours, products = row.flop or 0, 2 * (row.macs or 0)
    sizes = {each.elements for each in (*row.inputs, *row.outputs)}

    def is_near(value: float) -> bool:
        return abs(value - theirs) <= 0.5 + 1e-9 * theirs

    if is_near(ours):
        return "equal"
    if products and is_near(products):
        return "TraceLens counts products alone; softmax and bias are operations too"
    if products and is_near(products / 2) and row.attributes.get("is_causal"):
        return "causal: TraceLens counts half the rectangle"
    channels = row.inputs[-1].elements
    if is_near(5 * row.inputs[0].elements + 6 * channels):
        return "TraceLens counts 5 operations an element and 6 a channel; the formula has 7"
    if any(map(is_near, sizes)):
        if not ours:
            return "TraceLens counts one operation an element; copies and integers have no FLOP"
        return "TraceLens counts one operation an element; the formula has several"
    for operations in range(2, 16):
        if any(is_near(operations * size) for size in sizes):
            return f"TraceLens counts {operations} operations an element"
    return ""


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    traces = sorted(each for each in folder.glob("*.json.gz") if "capture" not in each.name)
    rows: list[str] = []
    reasons: Counter[tuple[str, str]] = Counter()
    unexplained: list[str] = []
    for path in traces:
        try:
            found = read(path)
        except RooflineError as error:
            rows.append(f"| {path.name[:46]} | {error_text(error)} | | | | | | |")
            continue
        seconds, size = seconds_of_reading(path)
        faster = [row for row in found.operators if is_below_minimum(row)]
        faster_s = sum(row.measured_s or 0.0 for row in faster)
        links = ", ".join(f"{each.share:.1%} {each.evidence}" for each in found.links)
        modeled = found.modeled_share
        rows.append(
            f"| {path.name[:46]} | {found.hardware.name} | {len(found.steps)} | {links} |"
            f" {found.linked_share:.2%} | {'–' if modeled is None else f'{modeled:.2%}'} |"
            f" {len(faster)} of {len(found.operators)} ({faster_s / (found.measured_s or 1):.2%}) |"
            f" {size:.1f} MB in {seconds:.2f} s |"
        )
        lines = [each for each in tracelens(folder, path) if each["GFLOPS"]]
        calls = calls_of(path, found.operators) if lines else {}
        for line in lines:
            theirs, name = 1e9 * float(line["GFLOPS"]), line["name"].removeprefix("aten::")
            arguments = [ast.literal_eval(line[each]) for each in _ARGUMENTS]
            counted = calls.get(key_of(line["name"], *arguments), [])
            row, why = next(iter(counted), None), ""
            if row is not None and len(counted) == int(line["operation_count"]):
                why = difference(row, theirs)
                if (ours := row.op.removeprefix("aten.")) != name:
                    name += f" in {ours}"
            reasons[name, why or "not explained"] += 1
            if not why:
                said = f"{line['operation_count']} × {line['name']} {line['Input Dims']}"
                unexplained.append(
                    f"{path.name}: {said}, {theirs:.0f} FLOP each; here {len(counted)} ×"
                    f" {row.flop if row else 'not counted'}"
                )
    print("# Published traces: links, counts, and differences to TraceLens\n")
    print("Rerun: `python benchmarks/traces.py [FOLDER] > benchmarks/traces.md`\n")
    print(f"Peak memory of this process: {_peak_mb():.0f} MB, torch included.\n")
    print(
        "| trace | machine | steps | kernel time by evidence | linked, with shapes | counted of"
        " linked | faster than minimum (of kernel time) | reading |\n"
        "|---|---|--:|---|--:|--:|--:|--:|"
    )
    print("\n".join(rows))
    print("\n## FLOP per operator and shapes against TraceLens\n")
    print("| operator | rows | why |\n|---|--:|---|")
    for (operator, why), count in sorted(reasons.items()):
        print(f"| {operator} | {count} | {why} |")
    print(f"\nNot explained: {len(unexplained)}\n")
    print("\n".join(f"* {each}" for each in unexplained))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
