"""Results of `roofline optimize` against the model minimum of their originals: none is below it.

    python benchmarks/optimized_bounds.py > benchmarks/optimized_bounds.md

Nine networks at batch 1, searched with bounds as the cost, on one thread and on two. The result's
time (the median of interleaved rounds, against eager, or with ``--compile`` against `torch.compile`
with freezing) is held against the model minimum of the original. The minimum times of a result are
bounds as well, and may be looser. The machine must have been measured (`roofline measure`), and
nothing else may run. Some ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import math

import torch
from networks.cases import NETWORKS

import roofline
from roofline.core.units import format_s
from roofline.machine.catalog import load_hardware


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    profile = load_hardware("host")
    print("# Results of optimize against the model minimum\n")
    print(f"{profile.name} ({profile.date}), torch {torch.__version__}, batch 1, float32.")
    print("Rerun: `python benchmarks/optimized_bounds.py > benchmarks/optimized_bounds.md`\n")
    print(
        "| network | threads | rewrites | model min of the original | eager min of the result"
        " | fused min of the result | measured result | fused min ÷ model min"
        " | measured ÷ model min |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    below = lines = 0
    for name in options.networks:
        network = NETWORKS[name]
        for threads in options.threads:
            found = roofline.optimize(
                network.built() if network.is_own else network.model,
                network.inputs(1),
                cost="bound",
                threads=threads,
                rounds=options.rounds,
                baseline="compile" if options.compile else "eager",
            )
            minimum_s = found.before.totals.model_min_time_s or math.nan
            after = found.after.totals
            measured = [each.after_s for each in found.rounds]
            result = (
                after.eager_min_time_s or math.nan,
                after.fused_min_time_s or math.nan,
                min(measured, default=math.nan),
            )
            ratios = (result[1] / minimum_s, result[2] / minimum_s)
            lines += 1
            below += not ratios[1] >= 1
            cells = " | ".join(
                format_s(each) if not math.isnan(each) else "–" for each in (minimum_s, *result)
            )
            print(
                f"| {name} | {threads} | {len(found.substitutions)} | {cells} | {ratios[0]:.3f}"
                f" | {ratios[1]:.2f} |",
                flush=True,
            )
    print(f"\nMeasured results below the model minimum of their original: {below} of {lines}.")


if __name__ == "__main__":
    main()
