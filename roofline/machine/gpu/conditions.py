"""What the device's sensors say about a measurement, in words."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from roofline.machine.gpu.device import DeviceFacts, Reading
from roofline.machine.gpu.telemetry import FIXED_CLOCKS, HARDWARE_SLOWDOWN, HEAT, POWER_BRAKE
from roofline.machine.gpu.trials import Trial

_BUSY = 0.05
"""Load by others from which they cost something that can be seen."""

_MOST_NAMES = 4

FAULTY = frozenset({HEAT, HARDWARE_SLOWDOWN, POWER_BRAKE})
"""Limits that say that something is wrong; a power cap is how the device was built."""


def device_conditions(
    facts: DeviceFacts,
    before: Reading | None,
    after: Reading | None,
    trials: Sequence[Trial],
    obstacle: str,
) -> list[str]:
    """One line for everything a reader must know; empty: all was calm.

    Args:
        facts: the device.
        before: its sensors before anything ran.
        after: its sensors after everything.
        trials: with their readings.
        obstacle: why the sensors could not be asked.
    """
    found: list[str] = []
    if facts.mig:
        found.append(
            f"{facts.name} is a part of a device (MIG): the figures are those of the part,"
            " and others may load the memory that it shares"
        )
    if facts.integrated:
        found.append("the device shares the host's memory: what the CPU does there costs bandwidth")
    if before is None or after is None:
        return [*found, f"clocks, power, throttling and other users are unknown: {obstacle}"]
    return [
        *found,
        *_others(before),
        *_state(trials),
        *_limits(trials),
        *_memory_errors(facts, before, after),
    ]


def _others(before: Reading) -> list[str]:
    if before.busy is not None and before.busy > _BUSY:
        return [
            f"another process uses the device ({_percent(before.busy)} before measuring);"
            " the figures are too low where it computed"
        ]
    if before.other_processes:
        them = (
            "1 other process has"
            if before.other_processes == 1
            else f"{before.other_processes} other processes have"
        )
        return [f"{them} memory on the device, but did not compute before measuring"]
    return []


def _state(trials: Sequence[Trial]) -> list[str]:
    readings = [reading for trial in trials for reading in trial.readings]
    parts = [
        _range("SM clock", [each.clock_hz for each in readings], 1e-6, "MHz"),
        _range("memory clock", [each.memory_clock_hz for each in readings], 1e-6, "MHz"),
        _range("power", [each.power_w for each in readings], 1.0, "W"),
        _range("temperature", [each.temperature_c for each in readings], 1.0, "°C"),
    ]
    told = [part for part in parts if part]
    return [f"while measuring: {', '.join(told)}"] if told else []


def _range(name: str, values: Iterable[float | None], scale: float, unit: str) -> str:
    known = [value * scale for value in values if value is not None]
    if not known:
        return ""
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    return f"{name} {low} {unit}" if low == high else f"{name} {low}–{high} {unit}"


def _limits(trials: Sequence[Trial]) -> list[str]:
    by_limit: dict[str, list[str]] = {}
    for trial in trials:
        for limit in sorted(limits_of(trial)):
            by_limit.setdefault(limit, []).append(trial.label)
    return [
        f"throttled by {limit} during {_names(labels)}"
        if limit != FIXED_CLOCKS
        else f"held by {limit} (`nvidia-smi -q -d CLOCK`): the device could clock higher"
        for limit, labels in by_limit.items()
    ]


def limits_of(trial: Trial) -> frozenset[str]:
    """What kept the clock down while a trial ran, on any occasion."""
    return frozenset[str]().union(*(reading.limits for reading in trial.readings))


def doubt_of(trial: Trial) -> str:
    """Why the figure of a trial may be too low by what the sensors said; ``""``: nothing does."""
    wrong = sorted(limits_of(trial) & FAULTY)
    return f"throttled by {' and '.join(wrong)} while it was measured" if wrong else ""


def median_clock_hz(trials: Sequence[Trial]) -> tuple[float, float] | None:
    """The highest and the median clock of the multiprocessors while they computed."""
    clocks = [
        reading.clock_hz
        for trial in trials
        for reading in trial.readings
        if reading.clock_hz is not None and reading.clock_hz > 0
    ]
    return (max(clocks), statistics.median(clocks)) if clocks else None


def _memory_errors(facts: DeviceFacts, before: Reading, after: Reading) -> list[str]:
    found: list[str] = []
    if before.ecc_errors is not None and after.ecc_errors is not None:
        new = after.ecc_errors - before.ecc_errors
        if new > 0:
            found.append(f"{new} memory errors that ECC could not correct happened meanwhile")
        elif after.ecc_errors > 0:
            found.append(
                f"{after.ecc_errors} memory errors that ECC could not correct since the start;"
                " the device may need a reset or a repair"
            )
    if before.ecc is False and facts.capability >= (7, 0):
        found.append("ECC is off")
    return found


def _names(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:_MOST_NAMES])
    more = len(labels) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _percent(fraction: float) -> str:
    return f"{fraction * 100:.0f} %"
