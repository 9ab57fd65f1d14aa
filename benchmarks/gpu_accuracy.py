"""How far predictions on GPUs are from public measurements of GPUs that were left out of learning.

    python benchmarks/gpu_accuracy.py [FOLDER] [--shipped] > benchmarks/gpu_accuracy.md

FOLDER has public measurements as CSV files, `../shared/measurements` unless given. Each chip is
predicted by constants learned from all other chips: boards of one chip are left out together, and
`learn_without` refuses measurements of the chip that is judged. With `--shipped`, the constants
that ship with the package are judged on the measurements of FOLDER, and nothing is learned.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gpu_rows
import numpy as np
import pandas as pd
from gpu_learning import (
    AMP,
    COMPILED,
    Data,
    Runs,
    host_of,
    learn,
    learn_gemms,
    learn_narrow,
    learn_operators,
    learn_whole,
    measurements,
    scale,
    split,
    whole_s,
    with_host,
)
from gpu_rows import Measured, Whole, chip

from roofline.latency.gpu.learned import Learned, shipped
from roofline.latency.gpu.times import seconds

Z_80 = 1.2815515655446004


class LeakError(Exception):
    """A measurement of the chip that is judged is among those to learn from."""


def learn_without(data: Data, left_out: str) -> Learned:
    """Return what is learned from measurements that must have none of a chip.

    Raises:
        LeakError: they have.
    """
    if left_out in data.chips:
        raise LeakError(f"{left_out}: is among the measurements to learn from")
    return learn(data)


@dataclass(frozen=True)
class Judged:
    """Predictions of one chip and kind: logarithmic errors, times, deviations of predictions."""

    chip: str
    kind: str
    errors: np.ndarray
    time_s: np.ndarray
    deviation: float
    is_extrapolated: bool = False

    @property
    def median(self) -> float:
        """Median of relative errors."""
        return float(np.median(np.abs(np.expm1(self.errors))))

    @property
    def mape(self) -> float:
        """Mean of relative errors."""
        return float(np.mean(np.abs(np.expm1(self.errors))))

    @property
    def by_time(self) -> float:
        """Sum of errors ÷ sum of times."""
        return float(np.abs(np.expm1(self.errors) * self.time_s).sum() / self.time_s.sum())

    @property
    def coverage(self) -> float:
        """Share of measurements in the 80 % interval."""
        return float(np.mean(np.abs(self.errors) <= Z_80 * self.deviation))

    @property
    def width(self) -> float:
        """Upper ÷ lower end of the interval."""
        return float(np.exp(2 * Z_80 * self.deviation))


def judge(rows: Measured, learned: Learned, host_s: float) -> Judged | None:
    """Return the errors of operators; None where no prediction is justified."""
    profile = chip(rows.device)[1]
    kind = "pointwise" if rows.kind == "elementwise" else rows.kind
    group = learned.group(kind, rows.type, profile.architecture)
    if group is None or not rows.kernels:
        return None
    found_s = with_host(rows, learned, host_s)
    is_far = profile.architecture not in group.architectures
    label = f"{rows.kind} {rows.type}" if "gemm" in rows.kind else rows.kind
    return Judged(
        rows.chip,
        label,
        np.log(found_s / rows.time_s),
        rows.time_s,
        group.far_deviation if is_far else group.deviation,
        is_far,
    )


def judge_whole(wholes: Sequence[Whole], learned: Learned, kind: str) -> Judged:
    """Return the errors of whole runs on one device."""
    found_s = whole_s(wholes, learned)
    times = np.array([each.time_s for each in wholes])
    name = chip(wholes[0].device)[0]
    return Judged(name, kind, np.log(found_s / times), times, learned.pass_deviation)


def operators(data: Data, *, is_shipped: bool) -> Iterable[Judged]:
    """Yield errors of operators and of language models, by chip and kind."""
    for name in sorted({each.chip for each in data.rows}):
        rest = data.without(name)
        if is_shipped:
            learned, host_s = shipped(), {}
        else:
            rest = replace(rest, eager=(), compiled=())
            learned = learn_without(rest, name)
            _, host_s = learn_operators([each for each in rest.rows if "gemm" not in each.kind])
            host_s |= learn_gemms(rest.rows, learned)[1]
        for rows in data.rows:
            if rows.chip == name and (found := judge(rows, learned, host_of(rows, host_s))):
                yield found
        if of_chip := [each for each in data.language if chip(each.device)[0] == name]:
            yield judge_whole(of_chip, learned, "end to end")


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def operator_tables(found: Sequence[Judged]) -> None:
    """Print errors by chip and kind, and means of chips."""
    single = [each for each in found if each.kind != "end to end"]
    table(
        "Operators, chip left out",
        ["kind", "chip", "times", "by time", "median", "in 80 % interval", "upper ÷ lower", ""],
        (
            [
                each.kind,
                each.chip,
                f"{len(each.errors):,}",
                percent(each.by_time),
                percent(each.median),
                percent(each.coverage),
                f"{each.width:.2f}",
                "extrapolated" * each.is_extrapolated,
            ]
            for each in sorted(single, key=lambda one: (one.kind, one.chip))
        ),
    )
    by_kind: dict[str, list[Judged]] = {}
    for each in single:
        # GEMM: linear layers and batched ones of a chip together.
        kind = "float32 GEMM" if "gemm float32" in each.kind else each.kind
        by_kind.setdefault(kind, []).append(each)
    table(
        "Means of chips",
        ["kind", "by time", "median", "in 80 % interval", "upper ÷ lower"],
        (
            [
                kind,
                percent(float(np.mean([_of_chip(chosen, name) for name in _chips(chosen)]))),
                percent(float(np.mean([each.median for each in chosen]))),
                percent(float(np.mean([each.coverage for each in known]))) if known else "–",
                f"{np.median([each.width for each in chosen]):.2f}",
            ]
            for kind, chosen in sorted(by_kind.items())
            for known in [[each for each in chosen if not each.is_extrapolated]]
        ),
    )
    table(
        "Intervals by chip (kinds weighted equally, without extrapolated ones)",
        ["chip", "in 80 % interval"],
        (
            [name, percent(float(np.mean([each.coverage for each in chosen])))]
            for name in _chips(single)
            for chosen in [[o for o in single if o.chip == name and not o.is_extrapolated]]
            if chosen
        ),
    )


def _chips(found: Sequence[Judged]) -> list[str]:
    return sorted({each.chip for each in found})


def _of_chip(found: Sequence[Judged], name: str) -> float:
    """Return the time-weighted error of all rows of a chip."""
    chosen = [each for each in found if each.chip == name]
    return sum(each.by_time * each.time_s.sum() for each in chosen) / sum(
        each.time_s.sum() for each in chosen
    )


def whole_table(found: Sequence[Judged], folder: Path) -> None:
    """Print end-to-end errors by chip, next to those of published predictors."""
    path = folder / "gpu-models-fp32.csv.gz"
    published = pd.read_csv(path) if path.exists() else pd.DataFrame()
    if len(published):
        published = published[published.variant.isna() & (published["mode"] == "inf")]
    columns = {"neusight_s": "NeuSight", "habitat_s": "Habitat", "their_roofline_s": "roofline"}

    def theirs(name: str, column: str) -> str:
        if column not in published:
            return "–"
        rows = published[[gpu_rows.is_chip(device, name) for device in published.device]]
        errors = (rows[column] / rows.measured_s - 1).abs().dropna()
        return percent(float(errors.mean())) if len(errors) else "–"

    whole = [each for each in found if each.kind == "end to end"]
    rows = [
        [
            each.chip,
            str(len(each.errors)),
            percent(each.mape),
            percent(each.coverage),
            f"{each.width:.2f}",
            *(theirs(each.chip, column) for column in columns),
        ]
        for each in whole
    ]
    for label, without in (("mean of chips", ""), ("… without p4", "p4")):
        chosen = [each.mape for each in whole if each.chip != without]
        if chosen:
            rows.append([label, "", f"**{percent(float(np.mean(chosen)))}**", *[""] * 5])
    table(
        "End to end: BERT, GPT-2, GPT-3, OPT in float32, inference",
        [
            *("chip", "runs", "MAPE", "in 80 % interval", "upper ÷ lower"),
            *(f"{each} (published)" for each in columns.values()),
        ],
        rows,
    )


def vision_table(data: Data, base: Learned) -> None:
    """Print errors of vision models: learned on one GPU, predicted on the other."""
    by_chip = {chip(each[0].device)[0]: each for each in data.eager if each}
    known, judged = by_chip.get("rtx3090"), by_chip.get("rtx4090")
    if not known or not judged:
        return
    errors: list[np.ndarray] = []
    inner: list[np.ndarray] = []
    for fold in range(5):
        train = split(known, fold)[0]
        families = {each.family for each in train}
        test = [each for each in judged if each.family not in families]
        learned = learn_whole([Runs(train)], base, data.trace_rows)
        times = [each.time_s for each in test]
        errors.append(np.log(whole_s(test, learned) / times))
        # The deviation is that of families left out on the GPU of learning.
        held = split(train, 0)
        again = learn_whole([Runs(held[0])], base, data.trace_rows)
        inner.append(np.log(whole_s(held[1], again) / [each.time_s for each in held[1]]))
    deviation = scale(inner)
    flat = np.concatenate(errors)
    found = Judged("rtx4090", "vision", flat, np.ones(len(flat)), deviation)
    table(
        "Vision models of timm, AMP, eager, NCHW: learned on RTX 3090, families left out",
        ["predicted on", "models", "median", "MAPE", "in 80 % interval", "upper ÷ lower"],
        [
            [
                "rtx4090",
                f"{len(flat):,}",
                f"**{percent(found.median)}**",
                percent(found.mape),
                percent(found.coverage),
                f"{found.width:.2f}",
            ]
        ],
    )


def compiled_table(folder: Path, data: Data, base: Learned) -> None:
    """Print errors of the ratio of compiled to eager time, families left out."""
    device = COMPILED[1]
    eager = gpu_rows.vision_models(
        gpu_rows.vision_rows(folder, AMP.format("pt291-cu128-4090")), device
    )
    by_name = {each.name: each for each in eager}
    compiled = [each for of in data.compiled for each in of if each.name in by_name]
    if not compiled:
        return
    eager = [by_name[each.name] for each in compiled]
    errors: list[np.ndarray] = []
    for fold in range(5):
        (known, judged), (known_c, judged_c) = split(eager, fold), split(compiled, fold)
        learned = learn_whole([Runs(known)], base)
        learned = learn_whole([Runs(known_c)], learned, compiled=True)
        ratio = whole_s(judged, learned) / Runs(judged_c).seconds(learned, compiled=True)
        measured = [a.time_s / b.time_s for a, b in zip(judged, judged_c, strict=True)]
        errors.append(np.log(ratio / measured))
    ratios = np.log([a.time_s / b.time_s for a, b in zip(eager, compiled, strict=True)])
    constant = Judged("", "", np.median(ratios) - ratios, np.ones(len(ratios)), 0.0)
    found = [
        Judged("", "", each, np.ones(len(each)), scale(errors[:at] + errors[at + 1 :]))
        for at, each in enumerate(errors)
    ]
    flat = replace(found[0], errors=np.concatenate(errors))
    table(
        "torch.compile: eager ÷ compiled time on RTX 4090, families left out (no other GPU has"
        " compiled runs here: this chip is in learning)",
        ["models", "median error", "constant ratio", "in 80 % interval", "upper ÷ lower"],
        [
            [
                f"{len(flat.errors):,}",
                f"**{percent(flat.median)}**",
                percent(constant.median),
                percent(float(np.mean([each.coverage for each in found]))),
                f"{np.mean([each.width for each in found]):.2f}",
            ]
        ],
    )


def traces_table(data: Data) -> None:
    """Print predicted ÷ measured sums of operators in traces, without them and without their chip.

    Only sums of the traces have operators of less than `gpu_rows.SHORT_S`.
    """
    ways: list[list[Learned]] = []
    base, _ = learn_operators([each for each in data.rows if "gemm" not in each.kind])
    base, _ = learn_gemms([each for each in data.rows if each.type == "float32"], base)
    for trace in data.traces:
        name = chip(trace.whole.device)[0]
        rest = replace(data, traces=[each for each in data.traces if each is not trace])
        known = [learn_narrow(rest, base)]
        known.append(ways[0][1] if ways else learn_narrow(data.without(name), base))
        ways.append(known)
    kinds: dict[tuple[str, str], np.ndarray] = {}
    rows: list[list[str]] = []
    for trace, known in zip(data.traces, ways, strict=True):
        calls = dict(zip(trace.whole.kernels, trace.whole.calls, strict=True))
        for each in trace.rows:
            many = np.array([calls[kernel] for kernel in each.kernels])
            found = [seconds(each.table, chip(each.device)[1], one) for one in known]
            sums = np.array([many.sum(), *((many * of).sum() for of in (each.time_s, *found))])
            label = (each.kind, each.type)
            kinds[label] = kinds.get(label, 0.0) + sums
        sums = [Runs([trace.whole]).seconds(one)[0] / trace.whole.time_s for one in known]
        rows.append(
            [trace.whole.name, f"{1e3 * trace.whole.time_s:.2f} ms", *(f"{x:.2f}" for x in sums)]
        )
    head = ["measured", "predicted ÷ measured, trace left out", "H100 left out"]
    table(
        "Operators of H100 traces from 20 µs on",
        ["kind", "type", "calls", *head],
        (
            [
                *label,
                f"{calls:,.0f}",
                f"{1e3 * measured_s:.1f} ms",
                *(f"{of / measured_s:.2f}" for of in found),
            ]
            for label, (calls, measured_s, *found) in sorted(
                kinds.items(), key=lambda one: -one[1][1]
            )
        ),
    )
    table("Kernels of H100 traces, sums", ["trace", *head], rows)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=gpu_rows.FOLDER)
    parser.add_argument("--shipped", action="store_true")
    asked = parser.parse_args()
    data = measurements(asked.folder)
    how = "constants learned from all other chips"
    if asked.shipped:
        how = "the constants that ship with the package"
    print(
        f"# Predictions on GPUs against public measurements\n\nEach chip is predicted by {how}."
        " Rerun: `python benchmarks/gpu_accuracy.py > benchmarks/gpu_accuracy.md` (about an hour on"
        " two cores, most of it captures of timm). The forms of formulas were chosen with these"
        " chips in view; only other chips test them ([gpu_predictors.md](gpu_predictors.md))."
    )
    found = list(operators(data, is_shipped=asked.shipped))
    whole_table(found, asked.folder)
    operator_tables(found)
    if asked.shipped:
        for wholes in filter(None, data.eager):
            each = judge_whole(wholes, shipped(), "vision")
            print(f"\nVision models, {each.chip}: median error {percent(each.median)}")
    else:
        base = learn_without(replace(data.without("rtx4090"), eager=(), compiled=()), "rtx4090")
        vision_table(data, base)
        compiled_table(asked.folder, data, base)
    if not asked.shipped:
        traces_table(data)
    table(
        "Rows left out",
        ["rows", "reason"],
        ([f"{n:,}", reason] for reason, n in gpu_rows.REFUSED.items() if n),
    )


if __name__ == "__main__":
    main()
