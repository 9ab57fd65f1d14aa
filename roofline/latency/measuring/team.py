"""How many threads torch computes with, and on which cores, for a while."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

_TASKS = Path("/proc/self/task")


@contextlib.contextmanager
def team(threads: int, cores: Sequence[int]) -> Iterator[None]:
    """Within, torch computes with `threads` threads, on as many `cores` where there are more.

    Afterwards their number, and where each thread of the process may run, are as before.

    Args:
        threads: how many; from 1.
        cores: one CPU for each physical core that may be used, the fastest first.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with _on(set(cores[:threads])) if threads < len(cores) else contextlib.nullcontext():
            yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _on(cpus: set[int]) -> Iterator[None]:
    """All threads of the process on `cpus`; where the system has no such thing, nothing."""
    before: dict[int, set[int]] = {}
    for thread in _threads():
        # A thread may end in between, or belong to a container's cpuset that says otherwise.
        with contextlib.suppress(OSError, AttributeError):
            allowed = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, cpus)
            before[thread] = allowed
    whole = before.get(os.getpid(), set[int]())
    try:
        yield
    finally:
        for thread in _threads():
            # Those that began meanwhile inherited the smaller set.
            with contextlib.suppress(OSError, AttributeError):
                os.sched_setaffinity(thread, before.get(thread, whole) or whole)


def _threads() -> list[int]:
    try:
        return [int(each.name) for each in _TASKS.iterdir()]
    except OSError:
        return []
