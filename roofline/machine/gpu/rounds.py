"""Runs a device's trials: in rounds, and each for a second on end where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from roofline.foundation.progress import Progress
from roofline.machine.gpu.device import Device, DeviceLostError
from roofline.machine.gpu.trials import Trial, lost_during
from roofline.machine.measuring.estimation import Burst, Estimate, estimate
from roofline.machine.measuring.schedule import CALL_LIMIT_S, interleave

_ROUNDS = 6
"""Rounds that shall fit into the time: enough for drift to hit all trials alike."""

_LEAST_BURSTS = 2


def rates(
    device: Device,
    trials: Sequence[Trial],
    *,
    deadline: float,
    stretch_s: float,
    clock: Callable[[], float],
    progress: Progress,
) -> list[tuple[Estimate, tuple[Burst, ...]]]:
    """What each trial reached, and the bursts that it follows from.

    Args:
        device: what they run on.
        trials: sized; at least one.
        deadline: when the rounds shall be over, by `clock`.
        stretch_s: how long each runs on end after them (0: it does not). What it keeps up is then
            the median of that stretch alone, when the device is warm and its power cap holds.
        clock: seconds.
        progress: called with the fraction done, 0 to 1, and what is measured next.

    Raises:
        DeviceLostError: a fault, with the trial that caused it.
    """
    begin = clock()
    left_s = max(0.0, deadline - begin)
    per_call_s = min(left_s / len(trials) / _ROUNDS, CALL_LIMIT_S)
    whole_s = left_s + stretch_s * len(trials)
    share = left_s / whole_s if whole_s else 1.0
    bursts = interleave(
        trials,
        lambda trial: _slice(device, trial, per_call_s),
        deadline=deadline,
        clock=clock,
        progress=lambda done, trial: progress(share * done, trial.label),
    )
    found = [
        estimate(trial.work_per_burst, each) for trial, each in zip(trials, bursts, strict=True)
    ]
    reached = [(rate, tuple(each)) for rate, each in zip(found, bursts, strict=True)]
    if stretch_s <= 0:
        return reached
    for i, (trial, (cold, early)) in enumerate(zip(trials, reached, strict=True)):
        progress(share + (1 - share) * i / len(trials), f"{trial.label}, on end")
        late = _stretch(device, trial, stretch_s)
        reached[i] = _warm(trial, cold, late), (*early, *late)
    return reached


def _slice(device: Device, trial: Trial, slice_s: float) -> list[Burst]:
    # One more burst runs beside the reading of the sensors.
    bursts = max(_LEAST_BURSTS, int(slice_s / trial.burst_s) - 1)
    try:
        return trial.run(device, bursts)
    except DeviceLostError as error:
        raise lost_during(trial, error) from None


def _stretch(device: Device, trial: Trial, stretch_s: float) -> list[Burst]:
    """Slices without a pause between them: an interrupt has to wait for one."""
    bursts: list[Burst] = []
    while sum(burst.wall_s for burst in bursts) < stretch_s:
        bursts += _slice(device, trial, CALL_LIMIT_S)
    return bursts


def _warm(trial: Trial, cold: Estimate, stretch: Sequence[Burst]) -> Estimate:
    on_end = estimate(trial.work_per_burst, stretch)
    return replace(
        on_end,
        peak=max(cold.peak, on_end.peak),
        bursts=cold.bursts + on_end.bursts,
    )
