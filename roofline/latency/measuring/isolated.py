"""The time of operators, each on its own, under the conditions that it has in its model.

What the model keeps (weights) is cold: copies take turns, and between two uses of one as much is
touched as the model touches from pass to pass. What it has just computed is warm: it is written
again before every call. Results come from the ordinary allocator.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import psutil
import torch

from roofline.core.progress import Progress, Say
from roofline.core.sampling import Sample
from roofline.core.units import format_bytes
from roofline.errors import MeasurementError, error_text
from roofline.latency.measuring.calls import Call, Turns, plan_for
from roofline.latency.measuring.rounds import Effort, Gauges, run_rounds, team
from roofline.latency.samples import IsolatedSample
from roofline.latency.store import Store
from roofline.machine.library.default_settings import default_settings

EFFORT = Effort(warm_ups=2, least=5, most=30, budget_s=0.1)
"""For one operator; small ones take their 30 rounds in a few milliseconds."""

_CYCLE_CACHES = 2
"""Times the last-level cache that is touched between two uses of what is cold."""

_LEAST_CYCLE_BYTE = 2**20

_FREE_MEMORY_SHARE = 0.4
"""Of the free memory, the most that arguments may take: what the operator makes comes on top."""


def cycle_of(last_level_bytes: int, pass_bytes: int | None = None) -> int:
    """How many bytes are touched between two uses of a weight: of a few sizes, so that models share
    what is measured.
    """
    most = _CYCLE_CACHES * last_level_bytes
    if pass_bytes is None:
        return most
    return min(most, max(_LEAST_CYCLE_BYTE, 2 ** math.ceil(math.log2(max(1, pass_bytes)))))


def measure_unique(
    calls: Sequence[Call | None],
    *,
    store: Store,
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

    Each is kept in the store as soon as it is measured. None for those that cannot be measured, of
    whose kind `say` is told once, and for None in `calls`. ``pass_bytes`` is what one pass of the
    model touches (None: more than the cache), ``cores`` one CPU of each physical core.
    """
    cycle_bytes = cycle_of(last_level_bytes, pass_bytes)
    keys = [_key(call, threads, cycle_bytes) if call is not None else "" for call in calls]
    unique = {key: call for key, call in zip(keys, calls, strict=True) if call is not None}
    found = {key: store.isolated(key) for key, call in unique.items() if not call.problem}
    missing = [key for key in unique if found.get(key) is None]
    if not missing:
        return [found.get(key) for key in keys]
    silenced: set[str] = set()
    sweep = _Sweep(cycle_bytes)
    # Torch is as it comes, and calls begin below autograd, as those of a pass do.
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        default_settings(),
        torch.random.fork_rng(devices=[]),
        team(threads, cores),
        torch._C._AutoDispatchBelowAutograd(),
    ):
        torch.manual_seed(0)
        for done, key in enumerate(missing):
            call = unique[key]
            if progress is not None:
                progress(done / len(missing), f"timing {call.op}")
            try:
                sample, is_disturbed = _measured(call, sweep, gauges or Gauges(), effort)
            # An operator may raise anything on arguments that are not the model's own.
            except Exception as error:
                if call.op not in silenced:
                    silenced.add(call.op)
                    said = error_text(error) or type(error).__name__
                    say(f"{call.op} cannot be timed on its own: {said[:200]}")
                continue
            found[key] = sample
            # What did not have the cores is measured again the next time.
            if not is_disturbed:
                store.keep_isolated(key, sample)
    return [found.get(key) for key in keys]


def _key(call: Call, threads: int, cycle_bytes: int) -> str:
    is_cold = any(each.is_kept and each.byte for each in call.storages)
    return call.key(threads) + (f" cycle={cycle_bytes}" if is_cold else "")


class _Sweep:
    """Reads as many bytes as are touched between two uses of what is cold."""

    def __init__(self, byte: int) -> None:
        self.byte = byte

    def __call__(self) -> None:
        self._memory.sum()

    @functools.cached_property
    def _memory(self) -> torch.Tensor:
        # Zeros that nobody wrote would all be the same page.
        return torch.ones(self.byte // 8, dtype=torch.int64)


def _measured(
    call: Call, sweep: _Sweep, gauges: Gauges, effort: Effort
) -> tuple[IsolatedSample, bool]:
    """The times of `call` in rounds of what comes before it and the call, and whether too few of
    them are of calls that had the cores; its arguments are gone afterwards.
    """
    if call.problem:
        raise MeasurementError(call.problem)
    plan = plan_for(call.storages, cycle_bytes=sweep.byte, turns=effort.warm_ups + effort.most)
    free_bytes = psutil.virtual_memory().available
    if plan.byte > _FREE_MEMORY_SHARE * free_bytes:
        raise MeasurementError(
            f"its operands take {format_bytes(plan.byte)}, and {format_bytes(free_bytes)} are free"
        )
    turns = Turns(call, plan, sweep=sweep if plan.is_swept else None, clock=gauges.wall)
    rounds = run_rounds([turns.prepare, turns.call], gauges, effort)
    # Those that warm up come before all rounds.
    times_s = tuple(turns.seconds[effort.warm_ups + number] for number in rounds.kept)
    sample = IsolatedSample(sample=Sample(times_s=times_s), core_state=rounds.core_state)
    return sample, rounds.are_disturbed
