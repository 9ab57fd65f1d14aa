"""Predictions for an H100 before and after learning from traces of it, each trace left out.

    python benchmarks/learning_from_traces.py [FOLDER] > benchmarks/learning_from_traces.md

FOLDER has `traces/h100-*.json.gz` of public measurements, `../shared/measurements` unless given.
What is learned from four traces predicts the kernels of the fifth; copies from and to the host are
left out. Kernels below 20 µs count in the sums alone: traces leave out part of their start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roofline.latency.gpu.chips import chip_of
from roofline.latency.gpu.corrections import cell_of, corrections_of, measured_kernels
from roofline.latency.gpu.kernels import Kernel
from roofline.latency.gpu.learned import shipped
from roofline.latency.gpu.predictor import GpuPredictor
from roofline.latency.gpu.times import group_of
from roofline.latency.prediction import Prediction
from roofline.machine.catalog import load_hardware
from roofline.pipeline.machine_times import rows_of_trace
from roofline.pipeline.traces import read_trace

FOLDER = Path(__file__).parents[2] / "shared" / "measurements"
CHIP = chip_of(load_hardware("h100"))
assert CHIP is not None
JUDGED_S = 2e-5

Rows = Sequence[tuple[Kernel, float]]


@dataclass(frozen=True)
class Judged:
    """A kernel of a trace with its time, and predictions before and after learning."""

    trace: str
    kernel: Kernel
    time_s: float
    before: Prediction
    after: Prediction


def judged(name: str, rows: Rows, others: Rows) -> tuple[list[Judged], list[str]]:
    """Return the kernels of a trace, and its row of the table of traces."""
    kernels = [kernel for kernel, _ in rows]
    known, _ = measured_kernels(others, CHIP, shipped())
    plain = GpuPredictor(chip=CHIP)
    taught = GpuPredictor(chip=CHIP, corrections=corrections_of(known, CHIP, shipped()))
    least_s = [0.0] * len(kernels)
    before, after = plain.kernels(kernels, least_s), taught.kernels(kernels, least_s)
    measured_s = sum(time_s for _, time_s in rows)
    row = [name, f"{1e3 * measured_s:.2f} ms", f"{len(known)}"]
    for predictor, found in ((plain, before), (taught, after)):
        whole = predictor.whole(found, 0)
        is_inside = whole.low_s <= measured_s <= whole.high_s
        row += [
            f"{whole.predicted_s / measured_s:.2f}",
            f"{whole.low_s / measured_s:.2f}–{whole.high_s / measured_s:.2f}"
            + "" * is_inside
            + " (missed)" * (not is_inside),
        ]
    columns = zip(rows, before, after, strict=True)
    return [Judged(name, *pair, one, two) for pair, one, two in columns], row


def figures(label: str, chosen: Sequence[Judged], weight: str) -> list[str]:
    """Return a row of errors; each kernel counts once, or each shape of a trace."""
    if weight == "shape":
        chosen = list({(each.trace, each.kernel): each for each in chosen}.values())
    times = np.array([each.time_s for each in chosen])
    row = [label, f"{len(chosen):,}", f"{1e3 * times.sum():.2f} ms"]
    for found in ([each.before for each in chosen], [each.after for each in chosen]):
        predicted = np.array([each.predicted_s for each in found])
        errors = np.abs(predicted - times)
        inside = [o.low_s <= t <= o.high_s for o, t in zip(found, times, strict=True)]
        width = np.median([each.high_s / each.low_s for each in found])
        row += [
            f"{predicted.sum() / times.sum():.2f}",
            f"{100 * np.mean(errors / times):.1f} %",
            f"{100 * errors.sum() / times.sum():.1f} %",
            f"{100 * np.mean(inside):.0f} %",
            f"{width:.1f}",
        ]
    return row


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    """Print the tables."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    traces: dict[str, Rows] = {}
    for path in sorted((folder / "traces").glob("h100-*.json.gz")):
        rows = rows_of_trace(read_trace(path, hardware="h100"))
        name = path.name.removeprefix("h100-").partition("__")[0]
        traces[name] = [row for row in rows if group_of(row[0], CHIP, shipped())]
    found: list[Judged] = []
    wholes: list[list[str]] = []
    for name, rows in traces.items():
        others = [row for other, some in traces.items() if other != name for row in some]
        kernels, whole = judged(name, rows, others)
        found += kernels
        wholes.append(whole)
    long = [each for each in found if each.time_s >= JUDGED_S]
    cells: dict[str, list[Judged]] = {}
    for each in long:
        cells.setdefault(" ".join(filter(None, cell_of(each.kernel, CHIP))), []).append(each)
    ordered = sorted(cells.items(), key=lambda each: -sum(one.time_s for one in each[1]))
    both = ["predicted ÷ measured", "MAPE", "by time", "in 80 % interval", "upper ÷ lower"]
    head = ["", "measured", *both, *(f"after: {each}" for each in both)]
    print("# Learning from traces of the same GPU\n\nH100, each trace predicted from the others.")
    table(
        "Sums of kernels",
        [
            "trace",
            "measured",
            "shapes learned",
            "before",
            "80 % interval",
            "after",
            "80 % interval",
        ],
        wholes,
    )
    rows = [figures(f"**{name}**", long, name) for name in ("kernel", "shape")]
    table("Kernels from 20 µs on, by kernel and by shape", ["each", *head], rows)
    rows = [figures(name, chosen, "shape") for name, chosen in ordered]
    table("Shapes by kind", ["kind", *head], rows)


if __name__ == "__main__":
    main()
