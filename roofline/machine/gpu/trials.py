"""Trials on a device: sizes, rounds, rates, and what the sensors report meanwhile."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from roofline.foundation.progress import Progress
from roofline.machine.gpu.arithmetic import ArithmeticKernel
from roofline.machine.gpu.device import (
    FIXED_CLOCKS,
    HARDWARE_SLOWDOWN,
    HEAT,
    POWER_BRAKE,
    Call,
    Device,
    DeviceFacts,
    DeviceLostError,
    Direction,
    HostMemory,
    Product,
    Reading,
)
from roofline.machine.gpu.ptx import StreamKernel
from roofline.machine.hardware import Provenance, TheoreticalRate
from roofline.machine.measuring.estimation import (
    CALL_LIMIT_S,
    PEAK_QUANTILE,
    Burst,
    Estimate,
    estimate,
    interleave,
    repeats_for,
)
from roofline.machine.system.host import package_version

_MOST_REPEATS = 1 << 28
_BEST_OF = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream kernel on one memory level; ``note`` says which arrays it goes over."""

    kernel: StreamKernel
    level: str
    note: str

    @property
    def label(self) -> str:
        """How it is named in progress and conditions: ``"L2 read"``."""
        return f"{self.level} {self.kernel.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedProduct:
    """A product of torch's at the size at which it is fastest."""

    product: Product
    size: int

    @property
    def label(self) -> str:
        """As `Product.label`."""
        return self.product.label

    @property
    def flop(self) -> int:
        """A multiply-add is two."""
        return 2 * self.size**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy between the host's memory and the device's."""

    direction: Direction
    memory: HostMemory
    byte: int

    @property
    def label(self) -> str:
        """How it is named in progress and conditions: ``"pinned copy to device"``."""
        return f"{self.memory} copy {self.direction}"


Subject = ArithmeticKernel | Stream | SizedProduct | Transfer


@dataclass(slots=True, kw_only=True)
class Trial:
    """What is timed: ``repeated(n)`` gives the call that does it n times, in ``calls`` calls.

    ``work`` is flop or byte of one repeat. A program repeats itself inside one launch; what is
    torch's is called again. ``doubt`` is what speaks against its figure from the start.
    """

    subject: Subject
    work: float
    repeated: Callable[[int], tuple[Call, int]]
    most: int = _MOST_REPEATS
    repeats: int = 1
    burst_s: float = 0.0
    doubt: str = ""
    readings: list[Reading] = field(default_factory=list[Reading])

    @property
    def label(self) -> str:
        """How progress and conditions name it."""
        return self.subject.label

    @property
    def quantity(self) -> Literal["flop", "byte"]:
        """What ``work`` is."""
        return "byte" if isinstance(self.subject, Stream | Transfer) else "flop"

    @property
    def work_per_burst(self) -> float:
        """Flop or byte of one burst."""
        return self.work * self.repeats

    def calibrate(self, device: Device, target_s: float) -> None:
        """Chooses the repeats of a burst, so that it takes about `target_s`.

        Raises:
            DeviceError: it cannot be run.
        """

        def run(repeats: int) -> float:
            call, calls = self.repeated(repeats)
            return device.times(call, calls, 1)[0]

        # The first run also compiles, plans and wakes the device up.
        run(1)
        self.repeats = repeats_for(run, target_s, most=self.most)
        self.burst_s = min(run(self.repeats) for _ in range(_BEST_OF))

    def run(self, device: Device, bursts: int) -> list[Burst]:
        """So many bursts, then one more during which the sensors are read."""
        call, calls = self.repeated(self.repeats)
        times_s = device.times(call, calls, bursts)
        reading = device.watch(call, calls)
        if reading is not None:
            self.readings.append(reading)
        # The device's clock does not count what the host's CPUs do to others.
        return [Burst(wall_s=time_s, cpu_s=time_s, busy=1.0) for time_s in times_s]


def lost_during(trial: Trial, error: DeviceLostError) -> DeviceLostError:
    """A fault with what caused it, and what can be done."""
    return DeviceLostError(
        f"the device was lost while measuring {trial.label}: {error};"
        f" measure again, and if it happens again leave it out (leave_out=['{trial.label}'])"
    )


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


_FAR_BELOW = 0.75
_ABOVE = 1.05
"""Fractions of the figure on paper from which on a measured one needs a word."""


@dataclass(frozen=True, slots=True)
class Rated:
    """A trial with the rate that it reached, in flop or byte per second."""

    trial: Trial
    rate: Estimate

    @property
    def subject(self) -> Subject:
        """What was timed."""
        return self.trial.subject


def measured(reference: str, note: str = "") -> Provenance:
    """Where a number measured now and here comes from."""
    return Provenance(
        source="measured",
        reference=reference,
        date=datetime.date.today().isoformat(),
        tool_version=package_version("roofline"),
        note=note,
    )


def method_of(rated: Rated) -> str:
    """How its rate was found."""
    return (
        f"{PEAK_QUANTILE * 100:.0f}th percentile (peak) and median (sustained) of interleaved"
        f" {rated.trial.burst_s * 1e3:.1f} ms bursts by CUDA events"
    )


def reservations_of(each: Rated, theoretical: TheoreticalRate | None) -> str:
    """Why its figure may be wrong, by the sensors and by the one on paper; ``""``: nothing."""
    parts = [each.trial.doubt, doubt_of(each.trial)]
    fraction = each.rate.peak / theoretical.per_s if theoretical else 1.0
    percent = f"{fraction * 100:.0f} % of the figure on paper"
    if fraction < _FAR_BELOW:
        parts.append(f"only {percent}: other programs may be faster")
    elif fraction > _ABOVE:
        parts.append(f"{percent}: the device clocks higher than that, or is another variant")
    return "; ".join(filter(None, parts))


def bursts_of(each: Rated) -> str:
    """How many bursts its rate follows from."""
    return f"{each.rate.bursts} bursts"
