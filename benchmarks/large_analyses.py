"""What showing a large analysis costs: 2,000 operators, no two alike, as table, files and pictures.

    python benchmarks/large_analyses.py > benchmarks/large_analyses.md

In the process: CPU time of the thread, without imports. Whole processes: user + system as the
operating system counts it, reading the saved analysis and all imports included.
"""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console

import roofline
from roofline.core.blocks import View
from roofline.render.console import print_report
from roofline.render.pages import report_html

OPERATORS = 2000
RUNS = 5
MACHINES = ("v100", "a100", "h100", "rtx4090", "m1-max", "epyc-9654", "xeon-8592plus", "orin")


def deep() -> torch.nn.Module:
    """Convolutions of changing widths and kernels, each followed by a ReLU."""
    widths = [3, *(8 + 37 * i % 211 for i in range(OPERATORS // 2))]
    layers: list[torch.nn.Module] = []
    for i in range(OPERATORS // 2):
        kernel = 1 + 2 * (i % 3)
        convolution = torch.nn.Conv2d(
            widths[i], widths[i + 1], kernel, padding=kernel // 2, bias=False, device="meta"
        )
        layers += [convolution, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def cpu_s(work: Callable[[], object]) -> list[float]:
    """CPU time of this thread for each run, after one that warms up."""
    work()
    taken: list[float] = []
    for _ in range(RUNS):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return taken


def process_s(*arguments: str) -> list[float]:
    """CPU time of whole processes of the command line, after one that warms up."""
    command = [str(Path(sys.executable).parent / "roofline"), *arguments]
    taken: list[float] = []
    for _ in range(RUNS + 1):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _pid, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{command} failed")
        taken.append(usage.ru_utime + usage.ru_stime)
    return taken[1:]


def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120)


def row(name: str, one: list[float], several: list[float]) -> None:
    cells = [
        f"{statistics.median(each):.2f} s ({min(each):.2f} – {max(each):.2f})"
        for each in (one, several)
    ]
    print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    model, shape = deep(), (1, 3, 32, 32)
    one = roofline.analyze(model, shape, hardware="10980xe")
    several = roofline.compare_machines(model, shape, hardware=MACHINES)
    working = sum(each.state != "free" for each in one.operators)
    print("# What showing a large analysis costs\n")
    print(
        f"{working:,} operators on one machine, and on {len(MACHINES)} at once; matplotlib"
        f" {version('matplotlib')}, {date.today().isoformat()}."
    )
    print(
        f"CPU time of {RUNS} runs each: median (least – most). What one machine costs must stay"
        " below 2 s; with several, whole processes mostly read the file."
    )
    print("Rerun: `python benchmarks/large_analyses.py > benchmarks/large_analyses.md`\n")
    print(f"| in the process | one machine | {len(MACHINES)} machines |\n|---|---:|---:|")
    for top in (10, OPERATORS):
        row(
            f"table, {top} rows",
            cpu_s(lambda top=top: print_report(one.report(View(top=top)), console())),
            cpu_s(lambda top=top: print_report(several.report(View(top=top)), console())),
        )
    for suffix, format in zip(type(several).suffixes, several.formats(), strict=True):
        row(
            f"`{suffix}`",
            cpu_s(lambda format=format: one.render(format, View(top=OPERATORS))),
            cpu_s(lambda format=format: several.render(format, View(top=OPERATORS))),
        )
    row(
        "HTML of notebooks",
        cpu_s(lambda: report_html(one.report(View(top=OPERATORS)))),
        cpu_s(lambda: report_html(several.report(View(top=OPERATORS)))),
    )
    print(f"\n| whole process | one machine | {len(MACHINES)} machines |\n|---|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "one.json", Path(folder) / "several.json"]
        one.save(files[0])
        several.save(files[1])
        for name, extra in {
            "`roofline show FILE`": [],
            f"`roofline show FILE --top {OPERATORS}`": ["--top", str(OPERATORS)],
            "`roofline show FILE -o FILE.png`": ["-o", f"{folder}/a.png", "--force"],
            "`roofline show FILE -o FILE.svg`": ["-o", f"{folder}/a.svg", "--force"],
        }.items():
            row(name, *(process_s("show", str(file), *extra) for file in files))


if __name__ == "__main__":
    main()
