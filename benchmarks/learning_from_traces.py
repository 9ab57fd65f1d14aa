"""Predictions for an H100 before and after learning from traces of it, each trace left out.

    python benchmarks/learning_from_traces.py [FOLDER] > benchmarks/learning_from_traces.md

FOLDER has `traces/h100-*.json.gz` of public measurements, `../shared/measurements` unless given.
What is learned from four traces predicts the kernels of the fifth; copies from and to the host are
left out. Kernels below 20 µs count in the sums alone: traces leave out part of their start. The
constants that ship were learned from these traces too: here they are learned again without them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from gpu_learning import learn_narrow, measurements

from roofline.latency.gpu.chips import Chip, chip_of
from roofline.latency.gpu.corrections import SHORTEST_S, cell_of, corrections_of, measured_kernels
from roofline.latency.gpu.kernels import Kernel
from roofline.latency.gpu.learned import Learned, shipped
from roofline.latency.gpu.predictor import GpuPredictor
from roofline.latency.gpu.times import group_of
from roofline.latency.prediction import Prediction
from roofline.machine.catalog import load_hardware
from roofline.pipeline.machine_times import rows_of_trace
from roofline.pipeline.traces import read_trace

FOLDER = Path(__file__).parents[2] / "shared" / "measurements"
CHIP = cast("Chip", chip_of(load_hardware("h100")))

Rows = Sequence[tuple[Kernel, float]]


class Judged(NamedTuple):
    """A kernel of a trace with its time, and predictions before and after learning."""

    trace: str
    kernel: Kernel
    time_s: float
    before: Prediction
    after: Prediction


def judged(name: str, rows: Rows, others: Rows, learned: Learned) -> tuple[list[Judged], list[str]]:
    """Return the kernels of a trace, and its row of the table of traces."""
    kernels, times = zip(*rows, strict=True)
    known, _ = measured_kernels(others, CHIP, learned)
    corrections = corrections_of(known, CHIP, learned)
    row = [name, f"{1e3 * sum(times):.2f} ms", f"{len(known)}"]
    found: list[list[Prediction]] = []
    for predictor in (
        GpuPredictor(chip=CHIP, learned=learned),
        GpuPredictor(chip=CHIP, learned=learned, corrections=corrections),
    ):
        found.append(predictor.kernels(kernels, [0.0] * len(kernels)))
        whole = predictor.whole(found[-1], 0)
        middle, low, high = (
            each / sum(times) for each in (whole.predicted_s, whole.low_s, whole.high_s)
        )
        row += [f"{middle:.2f}", f"{low:.2f}–{high:.2f}{'' if low <= 1 <= high else ' (missed)'}"]
    columns = zip(kernels, times, *found, strict=True)
    return [Judged(name, *each) for each in columns], row


def figures(label: str, chosen: Sequence[Judged]) -> list[str]:
    """Return a row of errors before and after."""
    times = np.array([each.time_s for each in chosen])
    row = [label, f"{len(chosen):,}", f"{1e3 * times.sum():.2f} ms"]
    for found in ([each.before for each in chosen], [each.after for each in chosen]):
        predicted = np.array([each.predicted_s for each in found])
        errors = np.abs(predicted - times)
        inside = [o.low_s <= t <= o.high_s for o, t in zip(found, times, strict=True)]
        row += [
            f"{predicted.sum() / times.sum():.2f}",
            f"{100 * np.mean(errors / times):.1f} %",
            f"{100 * errors.sum() / times.sum():.1f} %",
            f"{100 * np.mean(inside):.0f} %",
            f"{np.median([each.high_s / each.low_s for each in found]):.1f}",
        ]
    return row


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))


def main() -> None:
    """Print the tables."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    learned = learn_narrow(replace(measurements(folder), traces=()), shipped())
    traces: dict[str, Rows] = {}
    for path in sorted((folder / "traces").glob("h100-*.json.gz")):
        rows = rows_of_trace(read_trace(path, hardware="h100"))
        name = path.name.removeprefix("h100-").partition("__")[0]
        traces[name] = [row for row in rows if group_of(row[0], CHIP, learned)]
    found: list[Judged] = []
    wholes: list[list[str]] = []
    for name, rows in traces.items():
        others = [row for other, some in traces.items() if other != name for row in some]
        kernels, whole = judged(name, rows, others, learned)
        found += [each for each in kernels if each.time_s >= SHORTEST_S]
        wholes.append(whole)
    shapes = list({(each.trace, each.kernel): each for each in found}.values())
    kinds: dict[str, list[Judged]] = {}
    for each in sorted(shapes, key=lambda one: cell_of(one.kernel, CHIP)):
        kinds.setdefault(" ".join(filter(None, cell_of(each.kernel, CHIP))), []).append(each)
    print("# Learning from traces of the same GPU\n\nH100, each trace predicted from the others.")
    print("Deviations before learning follow from the same five traces, constants do not.")
    head = ["before", "80 % interval", "after", "80 % interval"]
    table("Sums of kernels ÷ measured", ["trace", "measured", "shapes learned", *head], wholes)
    head = ["predicted ÷ measured", "MAPE", "by time", "in 80 % interval", "upper ÷ lower"]
    rows = [figures("calls", found), figures("shapes of a trace", shapes)]
    rows += [figures(kind, chosen) for kind, chosen in kinds.items()]
    head = ["", "number", "measured", *head, *(f"after: {each}" for each in head)]
    table("Kernels from 20 µs on; kinds by shapes", head, rows)


if __name__ == "__main__":
    main()
