"""The time of operators, each on its own, under the conditions that it has in its model.

What the model keeps (weights) is cold: copies take turns, and between two uses of one as much is
touched as the model touches from pass to pass. What it has just computed is warm: it is written
again before every call. Results come from the ordinary allocator.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import psutil
import torch

from roofline.errors import MeasurementError, said_by
from roofline.foundation.progress import Progress, Say
from roofline.foundation.sampling import Sample
from roofline.foundation.units import format_bytes
from roofline.latency.measuring.calls import Call, Turns, plan_for
from roofline.latency.measuring.rounds import Effort, Gauges, run_rounds, team
from roofline.latency.samples import IsolatedSample
from roofline.machine.library.default_settings import default_settings

EFFORT = Effort(warm_ups=2, least=5, most=30, budget_s=0.1)
"""For one operator; small ones take their 30 rounds in a few milliseconds."""

_CYCLE_CACHES = 2
"""Times the last-level cache that is touched between two uses of what is cold."""

_LEAST_CYCLE_BYTE = 2**20

_FREE_MEMORY_SHARE = 0.4
"""Of the free memory, the most that arguments may take: what the operator makes comes on top."""


class Cache(Protocol):
    """Where times are kept by key, such as `roofline.latency.store.Store`."""

    def isolated(self, key: str) -> IsolatedSample | None:
        """The times under that key; None: there are none."""
        ...

    def keep_isolated(self, key: str, sample: IsolatedSample) -> None:
        """Keeps times under a key."""
        ...


def cycle_of(last_level_bytes: int, pass_bytes: int | None = None) -> int:
    """How many bytes are touched between two uses of a weight: of a few sizes, so that models share
    what is measured.

    Args:
        last_level_bytes: size of the last-level cache.
        pass_bytes: what one pass of the model touches, each byte once; None: more than the cache.
    """
    most = _CYCLE_CACHES * last_level_bytes
    if pass_bytes is None:
        return most
    return min(most, max(_LEAST_CYCLE_BYTE, 2 ** math.ceil(math.log2(max(1, pass_bytes)))))


def measure_call(
    call: Call,
    *,
    threads: int,
    last_level_bytes: int,
    pass_bytes: int | None = None,
    cores: Sequence[int] = (),
    gauges: Gauges | None = None,
    effort: Effort = EFFORT,
) -> IsolatedSample:
    """The times of one call; its arguments are made for that, and are gone afterwards.

    Args:
        call: what is called.
        threads: how many torch computes with.
        last_level_bytes: size of the last-level cache.
        pass_bytes: what one pass of the model touches; None: more than the cache.
        cores: one CPU for each physical core that may be used, the fastest first.
        gauges: what is read around each call.
        effort: how many calls.

    Raises:
        MeasurementError: it cannot be made again, or there is no memory for it.
        Exception: whatever the operator raises.
    """
    bench = _Bench(gauges or Gauges(), cycle_of(last_level_bytes, pass_bytes), effort)
    with _conditions(threads, cores):
        return bench.measured(call).sample


def measure_unique(
    calls: Sequence[Call | None],
    *,
    store: Cache,
    threads: int,
    last_level_bytes: int,
    say: Say,
    pass_bytes: int | None = None,
    cores: Sequence[int] = (),
    gauges: Gauges | None = None,
    effort: Effort = EFFORT,
    progress: Progress | None = None,
) -> list[IsolatedSample | None]:
    """The times of calls, equal ones measured once, and none that the store has.

    Each is kept in the store as soon as it is measured.

    Args:
        calls: what is called; None: nobody asks.
        store: keeps times from process to process.
        threads: how many torch computes with.
        last_level_bytes: size of the last-level cache.
        say: called with a line for each kind of operator that cannot be measured.
        pass_bytes: what one pass of the model touches; None: more than the cache.
        cores: one CPU for each physical core that may be used, the fastest first.
        gauges: what is read around each call.
        effort: how many calls for each.
        progress: told how far it is.

    Returns:
        For each of `calls` its times; None for those that cannot be measured, and that nobody asks.
    """
    cycle_bytes = cycle_of(last_level_bytes, pass_bytes)
    keys = [_key(call, threads, cycle_bytes) if call is not None else "" for call in calls]
    unique = {key: call for key, call in zip(keys, calls, strict=True) if call is not None}
    found = {key: store.isolated(key) for key, call in unique.items() if not call.problem}
    missing = [key for key in unique if found.get(key) is None]
    silenced: set[str] = set()
    if missing:
        bench = _Bench(gauges or Gauges(), cycle_bytes, effort)
        with _conditions(threads, cores):
            for done, key in enumerate(missing):
                call = unique[key]
                if progress is not None:
                    progress(done / len(missing), f"timing {call.op}")
                measured = _attempt(bench, call, say, silenced)
                if measured is None:
                    continue
                found[key] = measured.sample
                # What did not have the cores is measured again the next time.
                if not measured.is_disturbed:
                    store.keep_isolated(key, measured.sample)
    return [found.get(key) for key in keys]


def _key(call: Call, threads: int, cycle_bytes: int) -> str:
    is_cold = any(each.is_kept and each.byte for each in call.storages)
    return call.key(threads) + (f" cycle={cycle_bytes}" if is_cold else "")


def _attempt(bench: _Bench, call: Call, say: Say, silenced: set[str]) -> _Measured | None:
    """The times of `call`, or None, which is said once for each operator."""
    try:
        return bench.measured(call)
    # An operator may raise anything on arguments that are not the model's own.
    except Exception as error:
        if call.op not in silenced:
            silenced.add(call.op)
            said = said_by(error) or type(error).__name__
            say(f"{call.op} cannot be timed on its own: {said[:200]}")
        return None


@contextlib.contextmanager
def _conditions(threads: int, cores: Sequence[int]) -> Iterator[None]:
    """Within, torch is as it comes, and calls begin below autograd, as those of a pass do."""
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        default_settings(),
        torch.random.fork_rng(devices=[]),
        team(threads, cores),
        torch._C._AutoDispatchBelowAutograd(),
    ):
        torch.manual_seed(0)
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The times of a call, and whether too few of them are of calls that had the cores."""

    sample: IsolatedSample
    is_disturbed: bool


class _Bench:
    """Times calls one after another.

    Args:
        gauges: what is read around each call.
        cycle_bytes: bytes that are touched between two uses of what is cold.
        effort: how many calls.
        free_bytes: how much memory there is.
    """

    def __init__(
        self,
        gauges: Gauges,
        cycle_bytes: int,
        effort: Effort,
        free_bytes: Callable[[], int] = lambda: psutil.virtual_memory().available,
    ) -> None:
        self._gauges = gauges
        self._cycle_bytes = cycle_bytes
        self._effort = effort
        self._free_bytes = free_bytes

    def measured(self, call: Call) -> _Measured:
        """The times of `call`, in rounds of what comes before it, and the call.

        Raises:
            MeasurementError: it cannot be made again, or there is no memory for it.
            Exception: whatever the operator raises.
        """
        if call.problem:
            raise MeasurementError(call.problem)
        effort = self._effort
        plan = plan_for(
            call.storages, cycle_bytes=self._cycle_bytes, turns=effort.warm_ups + effort.most
        )
        free_bytes = self._free_bytes()
        if plan.byte > _FREE_MEMORY_SHARE * free_bytes:
            raise MeasurementError(
                f"its operands take {format_bytes(plan.byte)}, and {format_bytes(free_bytes)} are"
                " free"
            )
        sweep = self._swept if plan.is_swept else None
        turns = Turns(call, plan, sweep=sweep, clock=self._gauges.wall)
        rounds = run_rounds([turns.prepare, turns.call], self._gauges, effort)
        # Those that warm up come before all rounds.
        seconds = turns.seconds[effort.warm_ups :]
        return _Measured(
            sample=IsolatedSample(
                sample=Sample(times_s=tuple(seconds[number] for number in rounds.kept)),
                pace=rounds.pace,
            ),
            is_disturbed=rounds.are_disturbed,
        )

    def _swept(self) -> None:
        """Reads as much memory as is touched between two uses of what is cold."""
        self._swept_memory.sum()

    @functools.cached_property
    def _swept_memory(self) -> torch.Tensor:
        # Zeros that nobody wrote would all be the same page.
        return torch.ones(self._cycle_bytes // 8, dtype=torch.int64)
