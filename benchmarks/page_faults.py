"""Page faults of a pass: plain torch in fresh processes against the simulation of its allocator.

    python benchmarks/page_faults.py measure [MODEL …]   # adds runs to benchmarks/page_faults.json
    python benchmarks/page_faults.py settle [MODEL …]    # adds runs with the settings proposed
    python benchmarks/page_faults.py > benchmarks/page_faults.md

What is measured imports torch, timm and torchvision, and nothing of this project. It forks a
process for each run, which builds the model, makes 20 warm-up passes and counts the minor page
faults of each of 10 more. Runs with settings are processes that were started with them. Counts do
not depend on what else the machine does. They do depend on the process: where small blocks lie
among the tensors differs from one to the next.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any

from roofline.workload.capture.passes import capture
from roofline.workload.inputs import resolve_inputs
from roofline.workload.models import sources
from roofline.workload.operators import OperatorRecord
from roofline.workload.page_faults import count_page_faults, fault_free_settings

RESULTS = Path(__file__).with_suffix(".json")

MODELS = [
    *("timm:resnet18", "timm:regnety_004", "timm:regnetx_008", "timm:rexnet_100"),
    *("timm:rexnet_150", "timm:mixnet_s", "timm:mixnet_m", "timm:mobilenetv3_small_100"),
    *("timm:mobilenetv3_large_100", "timm:efficientnet_b0", "timm:vit_tiny_patch16_224"),
    *("timm:vit_small_patch32_224", "timm:poolformer_s12", "timm:poolformerv2_s12"),
    *("timm:densenet121", "timm:convnext_atto", "timm:convnext_femto", "timm:mixer_s32_224"),
    *("timm:resmlp_12_224", "timm:ghostnet_100", "torchvision:shufflenet_v2_x1_0"),
    *("torchvision:squeezenet1_1", "torchvision:mnasnet0_5", "torchvision:mobilenet_v2"),
]
BATCHES, THREADS = (1, 8), (1, 2)
WARM_UP, PASSES = 20, 10
SHARE, PAGES = 0.25, 100
"""A prediction holds that is within this share of the count, or so many pages."""

# Beside a torch of another build torchvision needs schemas of two operators to be imported.
_SCRIPT = """
import json, os, resource, sys
import torch
if {schemas}:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import timm, torchvision
for full, batch, threads in {runs}:
    if (child := os.fork()):
        os.waitpid(child, 0)
        continue
    library, name = full.split(":")
    made = timm.create_model(name) if library == "timm" else getattr(torchvision.models, name)()
    model = made.eval()
    torch.set_num_threads(threads)
    x = torch.randn(batch, 3, 224, 224)
    counts = []
    with torch.no_grad():
        for _ in range({passes}):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            model(x)
            counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    print(json.dumps([full, batch, threads, counts]), flush=True)
    os._exit(0)
"""


def run(runs: list[tuple[str, int, int]], tunables: str = "") -> list[list[Any]]:
    """Model, batch, threads and the faults of every pass, of each run."""
    imported = subprocess.run(
        [sys.executable, "-c", "import torchvision"], capture_output=True, text=True, check=False
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_TUNABLES", "OMP_NUM_THREADS", "PYTHONPATH"))
    }
    if tunables:
        environment["GLIBC_TUNABLES"] = tunables
    script = _SCRIPT.format(
        schemas="torchvision::nms" in imported.stderr, runs=runs, passes=WARM_UP + PASSES
    )
    done = subprocess.run(
        # -P: nothing of this folder is imported.
        [sys.executable, "-P", "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def records_of(name: str, batch: int) -> tuple[OperatorRecord, ...]:
    source = sources.load_model(name)
    module = source.module.eval()
    inputs = resolve_inputs(module, None, source.default_inputs, name=name, batch=batch)
    return capture(module, inputs, name=name, rebuild=source.rebuild).records


def read() -> dict[str, list[list[Any]]]:
    empty: dict[str, list[list[Any]]] = {"runs": [], "settled": []}
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else empty


def write(results: dict[str, list[list[Any]]]) -> None:
    rows = {
        name: "[\n" + ",\n".join(map(json.dumps, each)) + "\n]" for name, each in results.items()
    }
    RESULTS.write_text("{" + ",\n".join(f'"{name}": {text}' for name, text in rows.items()) + "}\n")


def measure(models: list[str]) -> None:
    results = read()
    for batch in BATCHES:
        for model in models:
            results["runs"] += run([(model, batch, threads) for threads in THREADS])
            write(results)


def settle(models: list[str]) -> None:
    """Runs each model as the simulation proposes it."""
    results = read()
    for model in models:
        found = fault_free_settings(records_of(model, 1))
        sizes = (found.mmap_threshold_bytes, found.trim_threshold_bytes)
        tunables = "glibc.malloc.mmap_threshold={}:glibc.malloc.trim_threshold={}".format(*sizes)
        results["settled"] += [[*each, *sizes] for each in run([(model, 1, 1)], tunables)]
        write(results)


def holds(predicted: float, count: float) -> bool:
    return abs(predicted - count) <= max(PAGES, SHARE * count)


def table() -> None:
    results = read()
    print("# Page faults of a pass: simulated and counted\n")
    print(
        f"`python benchmarks/page_faults.py`: default settings of glibc, each run in a process of"
        f" its own; median of {PASSES} passes after {WARM_UP}. A prediction holds within"
        f" {SHARE:.0%} or {PAGES} pages.\n"
    )
    print("| model | batch | threads | counted (range) | simulated (80 %) | holds |")
    print("|---|--:|--:|--:|--:|---|")
    held: list[bool] = []
    inside: list[bool] = []
    counted: dict[tuple[str, int, int], list[float]] = {}
    predicted = functools.cache(
        lambda model, batch, threads: count_page_faults(records_of(model, batch), threads=threads)
    )
    for model, batch, threads, counts in sorted(results["runs"]):
        found = predicted(model, batch, threads)
        last = counts[WARM_UP:]
        middle = median(last)
        held.append(holds(found.page_faults, middle))
        counted.setdefault((model, batch, threads), []).append(middle)
        inside.append(found.low - PAGES <= middle <= found.high + PAGES)
        print(
            f"| {model} | {batch} | {threads} | {middle:,.0f} ({min(last):,}–{max(last):,})"
            f" | {found.page_faults:,} ({found.low:,}–{found.high:,})"
            f" | {'yes' if held[-1] else 'no'} |",
            flush=True,
        )
    pairs = [holds(*pair) for same in counted.values() for pair in permutations(same, 2)]
    print(f"\n{sum(held)} of {len(held)} runs hold; {sum(inside)} lie in the simulated range.")
    print(
        f"Of two processes that ran the same, one predicts the other within the same limits in"
        f" {sum(pairs)} of {len(pairs)} cases.\n"
    )
    print("## With thresholds that leave no faults, by the simulation\n")
    print(
        "Rows up to rexnet_150 were run with the smallest trim threshold of the simulation; the"
        " last two, and what is proposed now, with twice that.\n"
    )
    print("| model (batch 1, 1 thread) | mmap threshold (MiB) | trim threshold (MiB) | counted |")
    print("|---|--:|--:|--:|")
    for model, _, _, counts, mapped, trim in results["settled"]:
        last = counts[WARM_UP:]
        print(
            f"| {model} | {mapped / 2**20:g} | {trim / 2**20:g}"
            f" | {median(last):,.0f} ({min(last):,}–{max(last):,}) |"
        )


if __name__ == "__main__":
    command, models = "".join(sys.argv[1:2]), sys.argv[2:] or MODELS
    {"measure": lambda: measure(models), "settle": lambda: settle(models), "": table}[command]()
