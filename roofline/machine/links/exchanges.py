"""What ranks do to find out what a link carries: all-reduces of rising sizes, in turn."""

# torch leaves the types of its collectives open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import time

import torch
from torch import distributed

_WARM_UPS = 3


def timed_all_reduces(rank: int, ranks: int, sizes_bytes: tuple[int, ...], rounds: int) -> Times:
    """The seconds of every all-reduce of float32, by size, as one rank sees them.

    Sizes take turns, so that what comes and goes meets all of them. Before each, ranks wait for one
    another.
    """
    data = {byte: torch.zeros(max(1, byte // 4)) for byte in sizes_bytes}
    for each in data.values():
        for _ in range(_WARM_UPS):
            distributed.all_reduce(each)
    times: dict[int, list[float]] = {byte: [] for byte in sizes_bytes}
    for _ in range(rounds):
        for byte, each in data.items():
            distributed.barrier()
            begin = time.perf_counter()
            distributed.all_reduce(each)
            times[byte].append(time.perf_counter() - begin)
    return times


def timed_messages(rank: int, ranks: int, sizes_bytes: tuple[int, ...], rounds: int) -> Times:
    """The seconds of a message there and back, by size, between the first two ranks."""
    times: dict[int, list[float]] = {byte: [] for byte in sizes_bytes}
    for byte in sizes_bytes:
        data = torch.zeros(max(1, byte // 4))
        for each in range(_WARM_UPS + rounds):
            distributed.barrier()
            begin = time.perf_counter()
            if rank == 0:
                distributed.send(data, 1)
                distributed.recv(data, 1)
            elif rank == 1:
                distributed.recv(data, 0)
                distributed.send(data, 0)
            if each >= _WARM_UPS:
                times[byte].append(time.perf_counter() - begin)
    return times


Times = dict[int, list[float]]
"""Seconds of every exchange, by bytes of the data of one rank."""
