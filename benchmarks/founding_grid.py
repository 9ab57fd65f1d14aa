"""What a depthwise-separable convolution is worth in the place of a standard one.

The founding example, on a grid of sizes.

Run it on a quiet machine that was calibrated (`roofline calibrate`):

    python benchmarks/founding_grid.py           # 6 minutes
    python benchmarks/founding_grid.py --table   # only the table

It writes founding_grid.md and founding_grid.json beside itself. The designs are written as on the
command line; both are measured in turns, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
from datetime import date
from pathlib import Path
from typing import Any

import roofline
from roofline.errors import RooflineError
from roofline.latency.calibration_set import grid
from roofline.machine.system.host import package_version

HERE = Path(__file__).parent
KEPT = HERE / "founding_grid.json"
TABLE = HERE / "founding_grid.md"


def designs(channels: int, size_px: int) -> tuple[str, str]:
    """A standard 3x3 convolution, and a depthwise one followed by a pointwise one."""
    c, s = channels, size_px
    return (
        f"conv2d({c},{c},3,padding=1,bias=False)@{s}x{s}",
        f"conv2d({c},{c},3,padding=1,groups={c},bias=False)+conv2d({c},{c},1,bias=False)@{s}x{s}",
    )


def measured(channels: int, size_px: int, threads: int) -> dict[str, Any]:
    """One cell of the grid: how many times fewer, lower and faster."""
    comparison = roofline.compare(
        *designs(channels, size_px),
        names=("standard", "separable"),
        threads=threads,
        measure=True,
    )
    found: dict[str, Any] = {"channels": channels, "size_px": size_px, "threads": threads}
    for each in comparison.quantities:
        if each.name in ("flop", "eager_min_time_s", "predicted_s", "measured_s"):
            standard, separable = each.values
            found[each.name] = [standard, separable]
            found[f"{each.name}_ratio"] = standard / separable if standard and separable else None
    found["sentence"] = comparison.sentences[0]
    return found


def table(kept: dict[str, Any]) -> str:
    """The grid as Markdown, with the error of what was predicted."""
    cells = kept["cells"]
    known = [each for each in cells if each["predicted_s_ratio"]]
    errors = [abs(each["predicted_s_ratio"] / each["measured_s_ratio"] - 1) for each in known]
    promised = [abs(each["flop_ratio"] / each["measured_s_ratio"] - 1) for each in cells]
    bounded = [abs(each["eager_min_time_s_ratio"] / each["measured_s_ratio"] - 1) for each in cells]
    predicted_right = sum(
        (each["predicted_s_ratio"] > 1) == (each["measured_s_ratio"] > 1) for each in known
    )
    lines = [
        "# Standard against depthwise-separable 3x3 convolutions: what FLOP promise, what is"
        " predicted, what is measured",
        "",
        f"{kept['hardware']}, torch {kept['torch']}, {kept['date']}; float32, batch 1, without"
        " batch norm and ReLU. Both designs of a cell were measured in turns, each in a process of"
        " its own. Made by `python benchmarks/founding_grid.py`.",
        "",
        "| speed-up said by | mean error | median error | cells |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, found in (("FLOP", promised), ("bounds", bounded), ("prediction", errors)):
        lines.append(
            f"| {name} | {statistics.fmean(found):.1%} | {statistics.median(found):.1%} |"
            f" {len(found)} |"
        )
    lines += [
        "",
        f"The prediction names the faster design in {predicted_right} of {len(known)} cells.",
        "",
        "| channels | px | threads | FLOP | bound | predicted | measured | error of prediction |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in cells:
        ratios = [
            each[f"{name}_ratio"]
            for name in ("flop", "eager_min_time_s", "predicted_s", "measured_s")
        ]
        error = f"{ratios[2] / ratios[3] - 1:+.1%}" if ratios[2] else "–"
        words = [f"{ratio:.2f}" if ratio else "–" for ratio in ratios]
        where = f"{each['channels']} | {each['size_px']} | {each['threads']}"
        lines.append(f"| {where} | {' | '.join(words)} | {error} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures the grid, or reads what was measured, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="only the table")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    if not asked.table:
        cells: list[dict[str, Any]] = []
        for pair in grid():
            _, channels, size_px, _ = pair[0].shape
            for threads in asked.threads:
                try:
                    cells.append(measured(channels, size_px, threads))
                except RooflineError as error:
                    print(f"{channels} channels, {size_px} px, {threads} threads: {error}")
                    continue
                print(f"{channels} channels, {size_px} px: {cells[-1]['sentence']}", flush=True)
        profile = roofline.load_hardware("host")
        kept = {
            "hardware": profile.name,
            "torch": package_version("torch"),
            "date": date.today().isoformat(),
            "cells": cells,
        }
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    TABLE.write_text(table(json.loads(KEPT.read_text())))
    print(f"Wrote {TABLE}")


if __name__ == "__main__":
    main()
