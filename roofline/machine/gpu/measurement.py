"""Measures a GPU: own programs, torch's products and copies in rounds, the sensors beside them.

Method: bursts of a few milliseconds timed by the device's own clock, interleaved over all trials
until the time budget is used. Peak is the 95th percentile of the burst rates, sustained their
median.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from roofline.errors import HardwareError, InputError, MeasurementError, said_by
from roofline.foundation.progress import Progress, silent
from roofline.machine.gpu.arithmetic import ArithmeticKernel
from roofline.machine.gpu.ceilings import compute_ceilings, describe
from roofline.machine.gpu.conditions import device_conditions, median_clock_hz
from roofline.machine.gpu.datasheet import DataSheet
from roofline.machine.gpu.device import Device, DeviceFacts
from roofline.machine.gpu.levels import links, memory_levels
from roofline.machine.gpu.overheads import copy_latencies, launch_overheads
from roofline.machine.gpu.preparation import Preparation
from roofline.machine.gpu.rated import Rated, measured
from roofline.machine.gpu.rounds import rates
from roofline.machine.gpu.trials import Trial
from roofline.machine.hardware import Clock, Effort, HardwareProfile, Host
from roofline.machine.measuring.samples import Series
from roofline.machine.measuring.schedule import Finding
from roofline.machine.system.host import describe_host

BUDGET_S: dict[Effort, float] = {"quick": 2.3, "default": 9.2, "thorough": 20.0}
"""Seconds by effort, once torch was imported and has its context."""

_BURST_S: dict[Effort, float] = {"quick": 2e-3, "default": 4e-3, "thorough": 10e-3}
_PRODUCT_LIMIT_S: dict[Effort, float] = {"quick": 5e-3, "default": 12e-3, "thorough": 30e-3}

_STRETCH_S: dict[Effort, float] = {"quick": 0.0, "default": 0.0, "thorough": 1.0}
"""Seconds that each kernel runs on end after the rounds, outside the budget."""

_PREPARING = 0.2
"""How much of the progress bar preparing takes."""


def measure_gpu(
    *,
    device_index: int = 0,
    budget_s: float | None = None,
    effort: Effort = "default",
    progress: Progress | None = None,
    device: Device | None = None,
    clock: Callable[[], float] = time.perf_counter,
    host: Host | None = None,
    leave_out: Sequence[str] = (),
    found: Callable[[Finding], None] | None = None,
    keep: Callable[[Series], None] | None = None,
) -> HardwareProfile:
    """Measures what an NVIDIA device can do; takes about `budget_s` seconds.

    Settings of the device are never changed; torch's are put back, whatever happens.

    Args:
        device_index: the device's number, as torch counts them.
        budget_s: seconds for everything but the import of torch and the making of its context; by
            default that of `effort`. A thorough measurement takes a second a kernel on top.
        effort: how long bursts and products are, and how many there are.
        progress: called with the fraction done, 0 to 1, and what is measured next.
        device: measured in place of a real one; it is closed.
        clock: seconds, for the budget only; kernels are timed by the device's own clock.
        host: the host, by default asked for.
        leave_out: labels of what shall not be run, such as ``"bfloat16 tensor-core mma"``.
        found: called with rates as far as they are known, while it goes on.
        keep: called with the bursts of each trial in the end, for the profile's side file.

    Raises:
        InputError: a budget that is not positive, or an effort that there is none of.
        HardwareError: torch cannot use NVIDIA devices, there is none, or not that many.
        MeasurementError: nothing could be measured, or the device was lost by a fault.
    """
    if effort not in BUDGET_S:
        raise InputError(f"effort must be one of {', '.join(BUDGET_S)}, got '{effort}'")
    seconds = BUDGET_S[effort] if budget_s is None else budget_s
    if seconds <= 0:
        raise InputError(f"the time budget must be greater than 0 s, got {seconds:g} s")
    report = progress or silent
    if device is None:
        # Whether there is a device is said before anything else.
        device = _open(device_index)
    try:
        return _measure(
            device,
            seconds,
            effort,
            report,
            clock,
            host or describe_host(),
            leave_out,
            found or _unheard,
            keep or _unheard,
        )
    finally:
        device.close()


def _open(index: int) -> Device:
    try:
        from roofline.machine.gpu.torch_device import open_device
    except (ImportError, OSError) as error:
        raise HardwareError(
            f"--device cuda: torch cannot be imported ({said_by(error)}); install it with CUDA"
        ) from None
    return open_device(index)


def _measure(
    device: Device,
    budget_s: float,
    effort: Effort,
    report: Progress,
    clock: Callable[[], float],
    host: Host,
    leave_out: Sequence[str],
    found_one: Callable[[Finding], None],
    keep: Callable[[Series], None],
) -> HardwareProfile:
    begin = clock()
    sheet = DataSheet(device.facts)
    before = device.reading()
    preparation = Preparation(
        device=device,
        report=lambda what: report(_share(clock() - begin, budget_s), what),
        leave_out=leave_out,
        found=found_one,
    )
    preparation.prepare(
        memory_name=sheet.memory_name,
        burst_s=_BURST_S[effort],
        product_limit_s=_PRODUCT_LIMIT_S[effort],
    )
    trials = preparation.trials
    overheads, left_out = launch_overheads(device, preparation.report)
    latencies = copy_latencies(device)
    if not trials:
        raise MeasurementError("; ".join(("nothing could be measured", *preparation.conditions)))
    reached = rates(
        device,
        trials,
        deadline=begin + budget_s,
        stretch_s=_STRETCH_S[effort],
        clock=clock,
        progress=lambda done, what: report(_PREPARING + (1 - _PREPARING) * done, what),
    )
    found = [Rated(trial, rate) for trial, (rate, _) in zip(trials, reached, strict=True)]
    for trial, (_, bursts) in zip(trials, reached, strict=True):
        keep(
            Series(
                label=trial.label,
                quantity=trial.quantity,
                work=trial.work_per_burst,
                bursts=bursts,
            )
        )
    after = device.reading()
    report(1.0, "done")
    return HardwareProfile(
        name=profile_name(device.facts),
        device="cuda",
        threads=1,
        description=describe(device.facts),
        host=replace(host, versions={**host.versions, "driver": device.facts.driver}),
        effort=effort,
        multiprocessors=device.facts.multiprocessors,
        clock=_clock(trials),
        compute=tuple(compute_ceilings(found, sheet)),
        memory=tuple(memory_levels(found, sheet)),
        overheads=tuple(overheads),
        links=tuple(links(found, latencies)),
        conditions=(
            *device_conditions(device.facts, before, after, trials, device.reading_obstacle()),
            *preparation.conditions,
            *left_out,
            *([] if sheet.profile else [f"there is no data sheet for {device.facts.name}"]),
        ),
    )


def _share(elapsed_s: float, budget_s: float) -> float:
    return min(_PREPARING, _PREPARING * elapsed_s / budget_s * 4)


def _clock(trials: list[Trial]) -> Clock | None:
    computing = [each for each in trials if isinstance(each.subject, ArithmeticKernel)]
    clocks = median_clock_hz(computing)
    if clocks is None:
        return None
    return Clock(
        peak_hz=clocks[0],
        median_hz=clocks[1],
        provenance=measured("clock of the multiprocessors by NVML while kernels computed"),
    )


def profile_name(facts: DeviceFacts) -> str:
    """A short name for a device's profile: ``"nvidia-h100-80gb-hbm3"``."""
    slug = re.sub(r"[^a-z0-9]+", "-", facts.name.lower()).strip("-")
    return slug or "cuda-device"


def _unheard(_: object) -> None:
    pass
