"""What starting costs: `roofline --help`, and a whole analysis against building the bare model.

    python benchmarks/startup.py > benchmarks/startup.md

Whole processes, taken in turn; CPU time is user + system as the operating system counts it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = 9
BARE = """
import torch
library = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import torchvision
torchvision.models.resnet50()
"""
COMMANDS = {
    "`roofline --help`": [str(Path(sys.executable).parent / "roofline"), "--help"],
    "`./scripts/roofline --help`": [str(ROOT / "scripts" / "roofline"), "--help"],
    "bare: import torch, torchvision; build resnet50": [sys.executable, "-c", BARE],
    "`./scripts/roofline analyze resnet50`, machine measured before": [
        str(ROOT / "scripts" / "roofline"),
        "analyze",
        "resnet50",
    ],
}


def run(command: list[str]) -> tuple[float, float]:
    """CPU and wall time of a process in seconds."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _pid, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        raise SystemExit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime, wall


def main() -> None:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        run(command)
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            taken[name].append(run(command))
    print("# What starting costs\n")
    print(f"{RUNS} whole processes each, in turn: median (least – most).")
    print("Rerun: `python benchmarks/startup.py > benchmarks/startup.md`\n")
    print("| command | CPU | wall |\n|---|---:|---:|")
    for name, times in taken.items():
        cells = [
            f"{statistics.median(each):.3f} s ({min(each):.3f} – {max(each):.3f})"
            for each in zip(*times, strict=True)
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    bare, whole = list(taken.values())[2:]
    for kind, name in enumerate(("CPU", "wall")):
        ratios = [b[kind] / a[kind] for a, b in zip(bare, whole, strict=True)]
        print(
            f"\nThe analysis over the bare build, {name}, run by run: median"
            f" {statistics.median(ratios):.2f} ({min(ratios):.2f} – {max(ratios):.2f})."
        )


if __name__ == "__main__":
    main()
