"""Does any operator run faster than its bound? Every operator in place, against what analyze says.

Run on a quiet machine that `roofline measure` has measured:

    python benchmarks/bounds_hold.py [MODEL …] > benchmarks/bounds_hold.md

Times are the least of the repeats, taken around each dispatched operator of a real eager run: the
strictest test that a bound can be put to. The dispatch itself is in them. Ceilings that follow the
clock are scaled up to the highest that the core had meanwhile.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import roofline
from roofline.machine.catalog import load_hardware
from roofline.machine.measuring.core_state_reader import core_state_reader
from roofline.run import Run
from roofline.workload.capture.real_tensors import RealTensors
from roofline.workload.inputs import resolve_inputs
from roofline.workload.models import sources
from roofline.workload.torch_dtypes import input_dtype

MODELS = [
    "resnet50",
    "mobilenet_v2",
    "vgg16",
    "densenet121",
    "shufflenet_v2_x1_0",
    "efficientnet_b0",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
    "timm:mixer_s32_224",
    "hf:bert",
    "hf:gpt2",
]
SKIPPED = ("prim", "profiler")
BOOKKEEPING = ("lift_fresh", "_local_scalar_dense", "detach_")


class Clock(TorchDispatchMode):
    """The time of every operator that a capture records, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, float]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in SKIPPED or func._opname in BOOKKEEPING:
            return func(*args, **(kwargs or {}))
        start = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        self.calls.append((f"{func.namespace}.{func._opname}", time.perf_counter() - start))
        return result


def least_times(name: str, repeats: int) -> tuple[list[str], list[float], float, float]:
    """Operator names, the least time of each in seconds, the least time of the whole pass, and the
    highest clock of the core meanwhile in Hz (0: not known)."""
    with torch.no_grad(), core_state_reader(()) as core_state:
        source = sources.load_model(name)
        module = (source.rebuild or (lambda: source.module))().eval()
        inputs = resolve_inputs(module, None, source.default_inputs, name=name, batch=None)
        args, kwargs = inputs.build(
            lambda each: RealTensors(Run()).make_input(each, input_dtype(each, None))
        )
        module(*args, **kwargs)
        whole: list[float] = []
        names: list[str] = []
        best: list[float] = []
        clock_hz = 0.0
        for _ in range(repeats):
            clock_hz = max(clock_hz, core_state().clock_hz or 0.0)
            start = time.perf_counter()
            module(*args, **kwargs)
            whole.append(time.perf_counter() - start)
            with Clock() as clock:
                module(*args, **kwargs)
            names = [name for name, _ in clock.calls]
            times = [seconds for _, seconds in clock.calls]
            best = [min(pair) for pair in zip(best or times, times, strict=True)]
            clock_hz = max(clock_hz, core_state().clock_hz or 0.0)
    return names, best, min(whole), clock_hz


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    profile = load_hardware("host")
    host = profile.host
    print("# Does any operator run faster than its bound?\n")
    print(
        f"{profile.name} ({host.cpu_model if host else '?'}, {profile.date}), torch"
        f" {torch.__version__}, batch 1 (128 tokens), float32, least of {options.repeats} runs in"
        " place."
    )
    print("Rerun: `python benchmarks/bounds_hold.py > benchmarks/bounds_hold.md`\n")
    print(
        "| model | threads | operators | faster than their bound | tightest | bound | least time |"
    )
    print("|---|---:|---:|---:|---|---:|---:|")
    beaten: list[str] = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        for name in options.models:
            names, best, whole, clock_hz = least_times(name, options.repeats)
            at_clock = profile.at_clock(clock_hz)
            analysis = roofline.analyze(name, hardware=at_clock, threads=threads)
            rows = analysis.operators
            assert [row.op for row in rows] == names, f"{name}: other operators than in the capture"
            working = [(row, s) for row, s in zip(rows, best, strict=True) if row.eager_min_time_s]
            faster = [(row, s) for row, s in working if s < (row.eager_min_time_s or 0)]
            beaten += [
                f"{name} {row.op} {row.module_path} ({threads} threads): {s * 1e6:.1f} of"
                f" {(row.eager_min_time_s or 0) * 1e6:.1f} µs, {row.ceiling}"
                for row, s in faster
            ]
            row, s = max(working, key=lambda pair: (pair[0].eager_min_time_s or 0) / pair[1])
            share = (row.eager_min_time_s or 0) / s
            tightest = f"{row.op.removeprefix('aten.')} {row.module_path}: {share:.0%}"
            print(
                f"| {name} | {threads} | {len(working)} | {len(faster)} | {tightest} |"
                f" {(analysis.totals.eager_min_time_s or 0) * 1e3:.2f} ms | {whole * 1e3:.2f} ms |"
            )
    for line in beaten:
        print(f"\n* {line}")


if __name__ == "__main__":
    main()
