"""Measurement of a GPU: own programs, torch GEMM and copies, interleaved, with sensor readings.

Method: bursts of a few milliseconds, timed by the device clock and interleaved over all trials
until the time budget is used. Peak is the 95th percentile of burst rates, sustained their median.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from roofline.core.dtypes import DType
from roofline.core.progress import Progress, Say, silent
from roofline.core.units import format_flop_per_s
from roofline.errors import HardwareError, MeasurementError, argument, error_text
from roofline.machine.gpu.arithmetic import MMA, ArithmeticKernel
from roofline.machine.gpu.datasheet import DataSheet, hardware_unit
from roofline.machine.gpu.device import Call, Device, DeviceError, DeviceProperties, Gemm
from roofline.machine.gpu.ptx import empty_program
from roofline.machine.gpu.sensors import device_conditions, throttling_doubt
from roofline.machine.gpu.trials import (
    L2,
    TRANSFER_BYTE,
    TRANSFERS,
    Preparation,
    SizedGemm,
    Stream,
    Transfer,
    Trial,
)
from roofline.machine.hardware import (
    Bandwidth,
    Clock,
    ComputeCeiling,
    Duration,
    Effort,
    HardwareProfile,
    Link,
    MemoryLevel,
    Overhead,
    TheoreticalRate,
)
from roofline.machine.measuring.estimation import Finding, Series, duration, method, provenance
from roofline.machine.measuring.rounds import KernelRate, Runner, run_continuously, run_rounds
from roofline.machine.system.host import describe_host


class _Program(NamedTuple):
    """Times of an effort, in seconds: total, burst, maximum GEMM, continuous run.

    Continuous runs follow the rounds, outside the budget.
    """

    budget_s: float
    burst_s: float
    product_limit_s: float
    continuous_s: float = 0.0


PROGRAMS: dict[Effort, _Program] = {
    "quick": _Program(2.3, 2e-3, 5e-3),
    "default": _Program(9.2, 4e-3, 12e-3),
    "thorough": _Program(20.0, 10e-3, 30e-3, continuous_s=1.0),
}

_FIGURES = 55
"""Number of kernels, GEMM and copies on Hopper."""

_ALMOST = 0.99

_ROUNDS = 6
"""Number of rounds in the budget, so that drift affects all trials."""

_LEAST_BURSTS = 2

_FAR_BELOW = 0.75
_ABOVE = 1.05
"""Fractions of the theoretical peak outside which a note is added."""

_CALLS = 100
_TIMES = 9
_SMALL_BYTE = 4


def measure_gpu(
    *,
    effort: Effort = "default",
    progress: Progress | None = None,
    found: Callable[[Finding], None] | None = None,
    device: Device | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[HardwareProfile, tuple[Series, ...]]:
    """Measure an NVIDIA device; return the profile and its bursts.

    Device settings are never changed; torch's are restored. The time is that of `effort`, by
    ``clock``, after torch is imported and has its context.
    """
    if device is None:
        # Fail early without a device.
        try:
            from roofline.machine.gpu.torch_device import open_device
        except (ImportError, OSError) as error:
            raise HardwareError(
                f"{argument('device', 'cuda')}: cannot import torch ({error_text(error)});"
                " install it with CUDA"
            ) from None
        device = open_device()
    with closing(device):
        return _measure(device, effort, progress or silent, found or silent, clock)


def _measure(
    device: Device,
    effort: Effort,
    report: Progress,
    found: Callable[[Finding], None],
    clock: Callable[[], float],
) -> tuple[HardwareProfile, tuple[Series, ...]]:
    program = PROGRAMS[effort]
    begin = clock()
    expected_s = program.budget_s + _FIGURES * program.continuous_s
    facts = device.facts
    sheet = DataSheet(facts)
    host = describe_host()
    before = device.reading()

    def say(what: str) -> None:
        report(min(_ALMOST, (clock() - begin) / expected_s), what)

    preparation = Preparation(device=device, report=say, found=found, burst_s=program.burst_s)
    preparation.prepare(memory_name=sheet.memory_name, product_limit_s=program.product_limit_s)
    overheads, left_out = launch_overheads(device, say)
    latencies = _copy_latencies(device)
    if not preparation.candidates:
        raise MeasurementError("; ".join(("nothing could be measured", *preparation.conditions)))
    runner: Runner[Trial] = Runner(
        # One more burst runs during the sensor reading.
        run=lambda trial, bursts: trial.run(device, max(_LEAST_BURSTS, bursts - 1)),
        clock=clock,
        report=lambda _, what: say(what),
        found=found,
        rounds=_ROUNDS,
        least_bursts=_LEAST_BURSTS,
    )
    rounds = run_rounds(preparation.candidates, runner, deadline=begin + program.budget_s)
    rates, series = rounds.rates, rounds.series
    if program.continuous_s:
        continuous = run_continuously(rates, runner, continuous_s=program.continuous_s)
        rates = continuous.rates
        series = tuple(
            replace(early, bursts=early.bursts + late.bursts)
            for early, late in zip(series, continuous.series, strict=True)
        )
    after = device.reading()
    report(1.0, "done")
    trials = [each.trial for each in rates]
    major, minor = facts.capability
    profile = HardwareProfile(
        name=profile_name(facts),
        device="cuda",
        threads=1,
        description=f"{facts.name}, {facts.multiprocessors} SMs,"
        f" {facts.memory_bytes / (1 << 30):.0f} GiB, compute capability {major}.{minor},"
        f" driver {facts.driver}",
        host=replace(host, versions={**host.versions, "driver": facts.driver}),
        effort=effort,
        multiprocessors=facts.multiprocessors,
        clock=_clock(trials),
        compute=tuple(compute_ceilings(rates, sheet)),
        memory=tuple(memory_levels(rates, sheet)),
        overheads=tuple(overheads),
        links=tuple(_links(rates, latencies)),
        conditions=(
            *device_conditions(
                facts,
                before,
                after,
                [(trial.label, trial.readings) for trial in trials],
                device.reading_obstacle(),
            ),
            *preparation.conditions,
            *left_out,
            *([] if sheet.profile else [f"no data sheet of {facts.name}"]),
        ),
    )
    return profile, series


def profile_name(facts: DeviceProperties) -> str:
    """Return a short name for a device: ``"nvidia-h100-80gb-hbm3"``."""
    slug = re.sub(r"[^a-z0-9]+", "-", facts.name.lower()).strip("-")
    return slug or "cuda-device"


def _clock(trials: Sequence[Trial]) -> Clock | None:
    """Return maximum and median clock of the multiprocessors during compute kernels."""
    clocks = [
        reading.clock_hz
        for trial in trials
        if isinstance(trial.subject, ArithmeticKernel)
        for reading in trial.readings
        if reading.clock_hz is not None and reading.clock_hz > 0
    ]
    if not clocks:
        return None
    return Clock(
        peak_hz=max(clocks),
        median_hz=statistics.median(clocks),
        provenance=provenance("SM clock by NVML during compute kernels"),
    )


def _rates(each: KernelRate[Trial], unit: str, how: str) -> dict[str, Any]:
    """Return the rate fields of a ceiling or bandwidth."""
    method_used = f"{method(f'{each.trial.burst_s * 1e3:.1f} ms bursts')} by CUDA events"
    return {
        "threads": 1,
        f"peak_{unit}_per_s": each.rate.peak,
        f"sustained_{unit}_per_s": each.rate.sustained,
        "spread": each.rate.spread,
        "provenance": provenance(f"{method_used}; {how}", each.rate.note),
    }


def _doubt(each: KernelRate[Trial], theoretical: TheoreticalRate | None, why: str = "") -> str:
    """Return the reasons why a figure may be wrong, by sensors and theoretical peak, or ``""``."""
    parts = [why, each.initial_doubt, throttling_doubt(each.trial.readings)]
    fraction = each.rate.peak / theoretical.per_s if theoretical else 1.0
    percent = f"{fraction * 100:.0f} % of the theoretical peak"
    if fraction < _FAR_BELOW:
        parts.append(f"only {percent}; other programs may be faster")
    elif fraction > _ABOVE:
        parts.append(f"{percent}; higher clock, or another variant of the device")
    return "; ".join(filter(None, parts))


# Nothing may exceed a hardware ceiling. So if torch's GEMM is faster than the own kernel of a unit,
# it is the ceiling, named ``gemm``, and its provenance has the rate of the own kernel.


def compute_ceilings(found: Sequence[KernelRate[Trial]], sheet: DataSheet) -> list[ComputeCeiling]:
    """Return hardware ceilings, then library ceilings."""
    products: dict[tuple[str, str], tuple[KernelRate[Trial], Gemm, str]] = {}
    for each in found:
        if isinstance(subject := each.trial.subject, SizedGemm):
            unit = hardware_unit(subject.product, sheet.facts.capability)
            size = "x".join([str(subject.size)] * 3)
            products[str(subject.product.dtype), unit] = each, subject.product, size
    ceilings: list[ComputeCeiling] = []
    covered: set[tuple[str, str]] = set()
    for own in found:
        kernel = own.trial.subject
        if not isinstance(kernel, ArithmeticKernel):
            continue
        best, name, note = own, kernel.name, kernel.note
        key = str(kernel.dtype), kernel.unit
        if kernel.name in (MMA, "fma"):
            covered.add(key)
            if key in products and products[key][0].rate.peak > own.rate.peak:
                best, _, size = products[key]
                name = "gemm"
                note = (
                    f"torch GEMM of {size}, faster than the own kernel"
                    f" ({kernel.instruction}): {format_flop_per_s(own.rate.peak)}"
                )
        theoretical = sheet.compute(*key, kernel.name)
        ceilings.append(_ceiling(best, name, kernel.unit, kernel.dtype, theoretical, note))
    for key, (each, product, size) in products.items():
        if key not in covered:
            how = f"torch GEMM of {size}"
            alone = (
                f"no own kernel for this unit on {sheet.facts.name}; other programs may be faster"
                " than torch's GEMM"
            )
            theoretical = sheet.product(product)
            ceilings.append(
                _ceiling(each, "gemm", key[1], product.dtype, theoretical, how, why=alone)
            )
    for each, product, size in products.values():
        how = sheet.facts.library
        theoretical = sheet.product(product)
        ceiling = _ceiling(each, "gemm", product.unit, product.dtype, theoretical, how)
        ceilings.append(
            replace(
                ceiling,
                kind="library",
                doubt=throttling_doubt(each.trial.readings),
                provenance=replace(ceiling.provenance, note=f"{size}; {each.rate.note}"),
            )
        )
    return ceilings


def _ceiling(
    each: KernelRate[Trial],
    kernel: str,
    unit: str,
    dtype: DType,
    theoretical: TheoreticalRate | None,
    how: str,
    why: str = "",
) -> ComputeCeiling:
    return ComputeCeiling(
        kind="hardware",
        kernel=kernel,
        dtype=dtype,
        unit=unit,
        theoretical=theoretical,
        doubt=_doubt(each, theoretical, why),
        **_rates(each, "flop", how),
    )


def memory_levels(found: Sequence[KernelRate[Trial]], sheet: DataSheet) -> Iterable[MemoryLevel]:
    """Yield L2 and device memory; nothing if the latter was not measured."""
    at: dict[str, list[Bandwidth]] = {L2: [], sheet.memory_name: []}
    for each in found:
        subject = each.trial.subject
        if not isinstance(subject, Stream):
            continue
        theoretical = sheet.memory() if subject.level != L2 else None
        at[subject.level].append(
            Bandwidth(
                kernel=subject.kernel.name,
                # GPU caches do not read lines that are written completely.
                write_allocate="none",
                theoretical=theoretical,
                doubt=_doubt(each, theoretical),
                **_rates(each, "bytes", subject.note),
            )
        )
    if not at[sheet.memory_name]:
        # L2 alone would count as main memory.
        return
    capacities = {L2: sheet.facts.l2_bytes, sheet.memory_name: sheet.facts.memory_bytes}
    for name, bandwidth in at.items():
        if bandwidth:
            yield MemoryLevel(
                name=name,
                capacity_bytes=capacities[name],
                scope="shared",
                capacity_provenance=provenance("reported by the CUDA driver"),
                bandwidth=tuple(bandwidth),
            )


def _links(found: Sequence[KernelRate[Trial]], latencies: dict[str, Duration]) -> Iterable[Link]:
    """Yield the links between host and device; `latencies` of the smallest copy by label."""
    for each in found:
        transfer = each.trial.subject
        if isinstance(transfer, Transfer):
            ways = ("host", "device")
            source, target = ways if transfer.direction == "to device" else reversed(ways)
            yield Link(
                source=source,
                target=target,
                kernel=f"copy, {transfer.memory}",
                latency=latencies.get(transfer.label),
                **_rates(each, "bytes", f"{TRANSFER_BYTE >> 20} MiB of {transfer.memory} memory"),
            )


def launch_overheads(device: Device, report: Say) -> tuple[list[Overhead], list[str]]:
    """Measure an empty kernel and small torch calls; return overheads, and notes on failures.

    ``launch`` is the time between launches with a full queue; ``round trip`` that of a launch and
    waiting for its end.
    """

    def empty() -> Call:
        program = empty_program()
        device.load(program)
        return device.launch(program, 1, ())

    found: list[tuple[str, Callable[[], Call], int]] = [
        ("launch of an empty kernel", empty, _CALLS),
        ("round trip of an empty kernel", empty, 1),
        *((name, lambda call=call: call, _CALLS) for name, call in device.small_calls().items()),
    ]
    overheads: list[Overhead] = []
    conditions: list[str] = []
    for name, make, calls in found:
        report(name)
        try:
            time = _duration(device, make(), calls, device.facts.library)
            overheads.append(Overhead(name=name, threads=1, time=time))
        except DeviceError as error:
            conditions.append(f"not measured: {name}: {error}")
    return overheads, conditions


def _copy_latencies(device: Device) -> dict[str, Duration]:
    """Return the latency of the smallest copy, by the labels of `Transfer`."""
    found: dict[str, Duration] = {}
    for each in TRANSFERS:
        # If it fails, the trial of the copy reports it.
        with suppress(DeviceError):
            call = device.transfer(each.direction, each.memory, _SMALL_BYTE)
            found[each.label] = _duration(device, call, 1, f"{_SMALL_BYTE} bytes")
    return found


def _duration(device: Device, call: Call, calls: int, note: str) -> Duration:
    device.queue_time(call, calls)
    times_s = [max(device.queue_time(call, calls) / calls, 1e-12) for _ in range(_TIMES)]
    how = f"median of {_TIMES} rounds of {calls} calls and one wait, by host clock"
    return duration(times_s, how, note)
