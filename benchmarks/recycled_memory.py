"""Why residency recycles released memory: a chain of small operators against two bounds.

    python benchmarks/recycled_memory.py > benchmarks/recycled_memory.md

The chain relu(relu(… x …)) makes a new tensor in every step and drops the one before. Were each of
them memory of its own, the chain would stream through far more bytes than the caches hold, and its
bound would be that of DRAM. In truth the allocator hands the same two buffers out again and again,
and a plain copy between two warm buffers takes less than such a "bound".

glibc gives large blocks back to the system at once, which costs page faults; the chain runs with a
heap that is kept.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

import torch

from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Roof, place
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs
from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import trace_residency
from roofline.workload.tensors import Role

LENGTH = 400
KEPT_HEAP = (
    "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296:"
    "glibc.malloc.top_pad=268435456"
)


class Chain(torch.nn.Module):
    """relu, many times, each into a new tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(LENGTH):
            x = torch.relu(x)
        return x


def kept_apart(record: OperatorRecord) -> OperatorRecord:
    """The record with every tensor in memory of its own, as if nothing were ever recycled."""
    return replace(
        record,
        inputs=tuple(replace(spec, role=Role.BUFFER) for spec in record.inputs),
        outputs=tuple(replace(spec, role=Role.BUFFER) for spec in record.outputs),
    )


def copy_s(profile: HardwareProfile, byte: int) -> float:
    """The sustained time of one thread's copy between two buffers of `byte` in the caches."""
    for level in profile.memory:
        if (level.capacity_bytes or 2 * byte) >= 2 * byte:
            rates = {each.kernel: each for each in level.bandwidth if each.threads == 1}
            return 2 * byte / rates["copy"].sustained_bytes_per_s
    raise SystemExit("no memory level is large enough")


def main() -> None:
    if KEPT_HEAP not in os.environ.get("GLIBC_TUNABLES", ""):
        kept = {**os.environ, "GLIBC_TUNABLES": KEPT_HEAP}
        os.execve(sys.executable, [sys.executable, __file__], kept)
    profile = load_hardware("host")
    print("# Recycled memory: a chain of relu against two bounds\n")
    print(f"{profile.name}, {profile.date}, torch {torch.__version__}, 1 thread, {LENGTH} steps.")
    print(
        "relu: the least of 30 runs, a step, with a kept heap; a warm copy: our kernel, sustained."
    )
    print("Rerun: `python benchmarks/recycled_memory.py > benchmarks/recycled_memory.md`\n")
    print("| tensor | bound if every tensor had its own memory | a warm copy | bound | relu |")
    print("|---:|---:|---:|---:|---:|")
    torch.set_num_threads(1)
    roof = Roof(profile, 1)
    for kibibyte in (64, 128, 256, 512, 1024, 4096):
        shape = (kibibyte * 256,)
        records = capture(Chain(), Inputs(shape), name="chain").records
        bounds: list[float] = []
        for taken in ([kept_apart(each) for each in records], records):
            placed = place(taken, trace_residency(taken), roof)
            bounds.append(sum(each.eager_min_time_s or 0.0 for each in placed) / LENGTH)
        times: list[float] = []
        chain, x = Chain(), torch.randn(shape)
        with torch.no_grad():
            for _ in range(30):
                start = time.perf_counter()
                chain(x)
                times.append((time.perf_counter() - start) / LENGTH)
        apart, recycled, least = (value * 1e6 for value in (*bounds, min(times)))
        copied = copy_s(profile, 4 * shape[0]) * 1e6
        mark = " (beaten)" if copied < apart else ""
        print(
            f"| {kibibyte} KiB | {apart:.2f} µs{mark} | {copied:.2f} µs | {recycled:.2f} µs |"
            f" {least:.2f} µs |"
        )


if __name__ == "__main__":
    main()
