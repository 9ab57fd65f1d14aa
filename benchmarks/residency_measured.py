"""Does an operator run at the speed of the memory level that it is placed under?

Run on a quiet machine that `roofline measure` has measured:

    python benchmarks/residency_measured.py > benchmarks/residency_measured.md

Small models whose operators do nothing but move bytes, in four patterns and many sizes. Residency
says from which level their bytes come; the clock says how fast they came. A whole pass is timed,
without anything that looks at operators, and what the same pass takes on a single element, the
dispatch, is taken off.

An operator is at a level's speed where its bytes come at half or more of the slowest rate that our
own kernels sustain there, and no faster than their fastest peak: torch's kernels are others.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

import roofline
from roofline.core.units import format_bytes
from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Roof
from roofline.workload.operators import State

LENGTH = 64
KEPT_HEAP = (
    "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296:"
    "glibc.malloc.top_pad=268435456"
)


class Chain(torch.nn.Module):
    """Each result is the next operand and then dropped: two buffers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(LENGTH):
            x = torch.relu(x)
        return x


class InPlace(torch.nn.Module):
    """One buffer, read and written again and again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for _ in range(LENGTH):
            x.relu_()
        return x


class Ring(torch.nn.Module):
    """Eight tensors in turn: each is read seven operators after it was written."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ring = [torch.relu(x) for _ in range(8)]
        for step in range(LENGTH):
            ring[step % 8] = torch.relu(ring[step % 8])
        return ring[0]


class Weights(torch.nn.Module):
    """Many parameters, each read once a pass."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.ones(elements) for _ in range(LENGTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x * weight
        return x


PATTERNS: dict[str, Callable[[int], torch.nn.Module]] = {
    "chain of new tensors": lambda _: Chain(),
    "in place": lambda _: InPlace(),
    "ring of eight": lambda _: Ring(),
    "a weight each": Weights,
}


@dataclass(frozen=True)
class Row:
    """One pattern at one size; rates are of the bytes that must come from the slowest level."""

    pattern: str
    byte: int
    level: str
    reached: float
    slowest: float
    fastest: float

    @property
    def verdict(self) -> str:
        if self.reached > self.fastest:
            return "faster than the level"
        return "at its speed" if self.reached >= self.slowest / 2 else "slower"


def pass_s(model: torch.nn.Module, x: torch.Tensor, repeats: int) -> float:
    """The median time of a pass in seconds."""
    times: list[float] = []
    with torch.no_grad():
        for _ in range(3):
            model(x)
        for _ in range(repeats):
            start = time.perf_counter()
            model(x)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def row(pattern: str, byte: int, profile: HardwareProfile, threads: int) -> Row:
    """How fast the bytes of one pattern came."""
    model = PATTERNS[pattern](byte // 4).eval()
    shape = (byte // 4,)
    analysis = roofline.analyze(model, shape, hardware=profile, threads=threads)
    working = [each for each in analysis.operators if each.state is not State.FREE]
    levels = [each.level for each in working]
    level = max(set(levels), key=levels.count)
    crossing = sum(each.level_bytes[level] for each in working)
    # Small passes are short: more of them for the same time.
    repeats = max(9, min(400, 2**26 // byte))
    dispatch = pass_s(PATTERNS[pattern](1).eval(), torch.ones(1), 200)
    taken = pass_s(model, torch.ones(shape), repeats) - dispatch
    (found,) = [each for each in profile.memory if each.name == level]
    rates = [
        each
        for each in found.bandwidth
        if each.kind == "hardware"
        and each.threads == threads
        and "nt" not in each.kernel.split("-")
    ]
    (roof,) = [each for each in Roof(profile, threads).levels if each.level.name == level]
    return Row(
        pattern=pattern,
        byte=byte,
        level=level,
        reached=crossing / taken if taken > 0 else float("inf"),
        slowest=min(each.sustained_bytes_per_s for each in rates),
        fastest=roof.bytes_per_s,
    )


def main() -> None:
    if "GLIBC_TUNABLES" not in os.environ:
        # Large blocks that go back to the system at once would cost page faults at every use.
        os.execve(
            sys.executable, [sys.executable, *sys.argv], {**os.environ, "GLIBC_TUNABLES": KEPT_HEAP}
        )
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, nargs="*", default=[1])
    options = parser.parse_args()
    profile = load_hardware("host")
    print("# Does an operator run at the speed of the level that it is placed under?\n")
    host = profile.host
    print(
        f"{profile.name} ({host.cpu_model if host else '?'}, {profile.date}), torch"
        f" {torch.__version__}, float32, medians; {LENGTH} operators a pass.\n"
    )
    print((__doc__ or "").split("\n\n")[3].strip() + "\n")
    print((__doc__ or "").split("\n\n")[4].strip() + "\n")
    print("Rerun: `python benchmarks/residency_measured.py > benchmarks/residency_measured.md`\n")
    print(
        "| pattern | threads | a tensor | placed under | its bytes came at | our kernels there |"
        " verdict |"
    )
    print("|---|---:|---:|---|---:|---:|---|")
    verdicts: dict[tuple[str, str], int] = {}
    for threads in options.threads:
        torch.set_num_threads(threads)
        for pattern in PATTERNS:
            for kib in (8, 32, 128, 512, 2048, 8192, 32768):
                each = row(pattern, kib * 1024, profile, threads)
                verdicts[each.level, each.verdict] = verdicts.get((each.level, each.verdict), 0) + 1
                rates = f"{each.slowest / 1e9:.0f} to {each.fastest / 1e9:.0f} GB/s"
                print(
                    f"| {pattern} | {threads} | {format_bytes(each.byte)} | {each.level} |"
                    f" {each.reached / 1e9:.0f} GB/s | {rates} | {each.verdict} |",
                    flush=True,
                )
    print()
    for (level, verdict), count in sorted(verdicts.items()):
        print(f"* {level}: {count} {verdict}")


if __name__ == "__main__":
    main()
