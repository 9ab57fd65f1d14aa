"""Times from FLOP alone, and from a plain roofline, against the times of plain_torch.md.

    python benchmarks/simple_predictors.py > benchmarks/simple_predictors.md

Both baselines get the best of what they are: their rates (one throughput; one throughput and one
bandwidth) are fitted to the measured times of all *other* families, for each number of threads,
by the smallest MAPE. `FLOP` is FLOP ÷ throughput; `roofline` the sum over operators of the larger
of FLOP ÷ throughput and operand bytes ÷ bandwidth. Times to predict, and those that roofline
predicts, are the rows of plain_torch.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean, median

import numpy as np

import roofline
from roofline.latency.calibration_set import family_of

UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
ROW = re.compile(r"\| (\S+) \| ([18]) \| ([12]) \| ([\d.]+ \w+) \|.*?\| ([-+][\d.]+) % \|")


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * UNITS[unit]


def rows() -> list[tuple[str, int, int, float, float]]:
    """Return model, batch, threads, measured seconds and roofline's error of each run."""
    text = (Path(__file__).parent / "plain_torch.md").read_text(encoding="utf-8")
    found: dict[tuple[str, int, int], tuple[float, float]] = {}
    for model, batch, threads, time, error in ROW.findall(text):
        found.setdefault((model, int(batch), int(threads)), (seconds(time), float(error) / 100))
    return [(*key, *value) for key, value in found.items()]


def main() -> None:
    runs = rows()
    work: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}
    for model, batch in {run[:2] for run in runs}:
        table = roofline.analyze(model, batch=batch, hardware="epyc-9654").to_frame()
        work[model, batch] = (
            table["flop"].to_numpy(float, na_value=0.0),
            table["traffic_bytes"].to_numpy(float, na_value=0.0),
        )
    throughputs, bandwidths = np.geomspace(1e9, 1e12, 121), np.geomspace(1e9, 1e12, 121)
    errors: dict[str, list[float]] = {"FLOP": [], "roofline, fitted": [], "roofline predict": []}
    for threads in (1, 2):
        here = [run for run in runs if run[2] == threads]
        measured = np.array([run[3] for run in here])
        by_flop = np.array([work[run[:2]][0].sum() for run in here])[:, None] / throughputs
        by_roof = np.array(
            [
                [
                    [np.maximum(flop / peak, byte / rate).sum() for rate in bandwidths[::3]]
                    for peak in throughputs[::3]
                ]
                for flop, byte in (work[run[:2]] for run in here)
            ]
        ).reshape(len(here), -1)
        families = [family_of(run[0]) for run in here]
        for place, run in enumerate(here):
            others = [n for n, family in enumerate(families) if family != families[place]]
            for name, times in (("FLOP", by_flop), ("roofline, fitted", by_roof)):
                relative = np.abs(times / measured[:, None] - 1)
                best = relative[others].mean(axis=0).argmin()
                errors[name].append(float(relative[place, best]))
            errors["roofline predict"].append(abs(run[4]))
    print("# Simple predictors against plain torch\n")
    print(
        f"{len(runs)} runs of `plain_torch.md`; rates of both baselines fitted to other families."
    )
    print("Rerun: `python benchmarks/simple_predictors.py > benchmarks/simple_predictors.md`\n")
    print("| predictor | MAPE | median error |\n|---|---:|---:|")
    for name, found in errors.items():
        print(f"| {name} | {mean(found):.1%} | {median(found):.1%} |".replace("%", " %"))


if __name__ == "__main__":
    main()
