"""Times of isolated operators, with the cache state that they have in their model.

Weights are cold: copies rotate, and between two uses of one as many bytes are touched as in a pass
of the model. Activations are warm: they are written again before every call. Results come from the
ordinary allocator.
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
from roofline.latency.measuring.calls import Call, RotatedCall, plan_copies
from roofline.latency.measuring.rounds import Effort, Gauges, run_rounds, torch_threads
from roofline.latency.samples import IsolatedSample
from roofline.latency.store import Store
from roofline.machine.library.default_settings import default_settings

EFFORT = Effort(warm_ups=2, min_rounds=5, max_rounds=30, budget_s=0.1)
"""Effort for one operator; small ones take 30 rounds in a few milliseconds."""

_CYCLE_CACHES = 2
"""Bytes touched between two uses of cold memory, in last-level caches."""

_LEAST_CYCLE_BYTE = 2**20

_FREE_MEMORY_SHARE = 0.4
"""Largest share of the free memory for arguments; results come on top."""


def cycle_size(last_level_bytes: int, pass_bytes: int | None = None) -> int:
    """Return the bytes touched between two uses of a weight: one of a few sizes, so that models
    share measurements."""
    most = _CYCLE_CACHES * last_level_bytes
    if pass_bytes is None:
        return most
    return min(most, max(_LEAST_CYCLE_BYTE, 2 ** math.ceil(math.log2(max(1, pass_bytes)))))


def measure_isolated(
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
    """Return the times of unique calls, from the store or measured and stored.

    None for calls that cannot be measured, reported once per operator to `say`, and for None in
    `calls`. ``pass_bytes`` are the bytes that a pass of the model touches (None: more than the
    cache), ``cores`` one CPU of each physical core.
    """
    cycle_bytes = cycle_size(last_level_bytes, pass_bytes)
    keys = [_key(call, threads, cycle_bytes) if call is not None else "" for call in calls]
    unique = {key: call for key, call in zip(keys, calls, strict=True) if call is not None}
    found = {key: store.isolated(key) for key, call in unique.items() if not call.problem}
    missing = [key for key in unique if found.get(key) is None]
    if not missing:
        return [found.get(key) for key in keys]
    silenced: set[str] = set()
    sweep = _Sweep(cycle_bytes)
    # Default settings of torch; calls begin below autograd, as in a pass.
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        default_settings(),
        torch.random.fork_rng(devices=[]),
        torch_threads(threads, cores),
        torch._C._AutoDispatchBelowAutograd(),
    ):
        torch.manual_seed(0)
        for done, key in enumerate(missing):
            call = unique[key]
            if progress is not None:
                progress(done / len(missing), f"timing {call.op}")
            try:
                sample, is_disturbed = _measured(call, sweep, gauges or Gauges(), effort)
            # An operator may raise anything on generated arguments.
            except Exception as error:
                if call.op not in silenced:
                    silenced.add(call.op)
                    reason = error_text(error) or type(error).__name__
                    say(f"{call.op} cannot be timed alone: {reason[:200]}")
                continue
            found[key] = sample
            # Disturbed calls are measured again the next time, as functions of the user, which may
            # change.
            if not is_disturbed and not call.function._defined_in_python:
                store.keep_isolated(key, sample)
    return [found.get(key) for key in keys]


def _key(call: Call, threads: int, cycle_bytes: int) -> str:
    is_cold = any(each.is_kept and each.byte for each in call.storages)
    return call.key(threads) + (f" cycle={cycle_bytes}" if is_cold else "")


class _Sweep:
    """Reads as many bytes as a pass touches between two uses of a weight."""

    def __init__(self, byte: int) -> None:
        self.byte = byte

    def __call__(self) -> None:
        self._memory.sum()

    @functools.cached_property
    def _memory(self) -> torch.Tensor:
        # Unwritten zeros would all be the same page.
        return torch.ones(self.byte // 8, dtype=torch.int64)


def _measured(
    call: Call, sweep: _Sweep, gauges: Gauges, effort: Effort
) -> tuple[IsolatedSample, bool]:
    """Return the times of a call, and True if other processes disturbed too many rounds."""
    if call.problem:
        raise MeasurementError(call.problem)
    plan = plan_copies(
        call.storages, cycle_bytes=sweep.byte, turns=effort.warm_ups + effort.max_rounds
    )
    free_bytes = psutil.virtual_memory().available
    if plan.byte > _FREE_MEMORY_SHARE * free_bytes:
        raise MeasurementError(
            f"operands need {format_bytes(plan.byte)}, {format_bytes(free_bytes)} are free"
        )
    turns = RotatedCall(call, plan, sweep=sweep if plan.is_swept else None, clock=gauges.wall)
    rounds = run_rounds([turns.prepare, turns.call], gauges, effort)
    # Warm-ups come before all rounds.
    times_s = tuple(turns.seconds[effort.warm_ups + number] for number in rounds.kept)
    sample = IsolatedSample(sample=Sample(times_s=times_s), pace=rounds.core_state)
    return sample, rounds.are_disturbed
