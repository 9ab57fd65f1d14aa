"""What a page of memory costs that the system hands out fresh: it is cleared, and mapped."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

from roofline.latency.measuring.gauges import Gauges

_ELEMENTS = 2**24
"""64 MiB of float32: more than glibc ever keeps for the next allocation."""

_ROUNDS = 9


def page_fault_s(
    gauges: Gauges | None = None, make: Callable[[], torch.Tensor] | None = None
) -> float | None:
    """Seconds that one minor page fault adds, on the threads that torch computes with.

    Memory is written when it is fresh, and once more; the difference is that of its pages.

    Args:
        gauges: what is read around each of both.
        make: makes a tensor in fresh memory.

    Returns:
        None where the system counts no faults, or has none to hand out.
    """
    read = gauges or Gauges()
    make = make or (lambda: torch.empty(_ELEMENTS))
    costs: list[float] = []
    for _ in range(_ROUNDS):
        tensor = make()
        before = read.read()
        tensor.fill_(1.0)
        fresh = read.since(before)
        before = read.read()
        tensor.fill_(2.0)
        again = read.since(before)
        faults = fresh.faults - again.faults
        if faults > 0:
            costs.append((fresh.wall_s - again.wall_s) / faults)
        del tensor
    return max(0.0, median(costs)) if costs else None
