"""Measures a GPU: own programs, torch's products and copies in rounds, the sensors beside them.

Method: bursts of a few milliseconds timed by the device's own clock, interleaved over all trials
until the time budget is used. Peak is the 95th percentile of the burst rates, sustained their
median.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from roofline.errors import HardwareError, InputError, MeasurementError, said_by
from roofline.foundation.progress import Progress, silent
from roofline.foundation.sampling import Sample, quantile
from roofline.foundation.units import format_flop_per_s
from roofline.machine.gpu.arithmetic import ArithmeticKernel
from roofline.machine.gpu.datasheet import DataSheet, hardware_unit
from roofline.machine.gpu.device import (
    Call,
    Device,
    DeviceError,
    DeviceFacts,
    Direction,
    HostMemory,
)
from roofline.machine.gpu.matrices import MMA
from roofline.machine.gpu.preparation import L2, Preparation
from roofline.machine.gpu.ptx import empty_program
from roofline.machine.gpu.trials import (
    Rated,
    SizedProduct,
    Stream,
    Transfer,
    Trial,
    bursts_of,
    device_conditions,
    doubt_of,
    measured,
    median_clock_hz,
    method_of,
    rates,
    reservations_of,
)
from roofline.machine.hardware import (
    Bandwidth,
    Clock,
    ComputeCeiling,
    Duration,
    Effort,
    HardwareProfile,
    Host,
    Link,
    MemoryLevel,
    Overhead,
    TheoreticalRate,
)
from roofline.machine.measuring.estimation import Finding, Series
from roofline.machine.system.host import describe_host

# A hardware ceiling must be one that nothing beats. So where torch's product is faster than our own
# kernel of the same unit, it is the ceiling, named ``gemm``; its provenance says what ours reached.


def compute_ceilings(found: Sequence[Rated], sheet: DataSheet) -> list[ComputeCeiling]:
    """The hardware's ceilings, then the library's."""
    capability = sheet.facts.capability
    products: dict[tuple[str, str], Rated] = {}
    for each in found:
        if isinstance(each.subject, SizedProduct):
            product = each.subject.product
            products[str(product.dtype), hardware_unit(product, capability)] = each
    ceilings: list[ComputeCeiling] = []
    covered: set[tuple[str, str]] = set()
    for each in found:
        kernel = each.subject
        if not isinstance(kernel, ArithmeticKernel):
            continue
        rival = None
        if kernel.name in (MMA, "fma"):
            key = str(kernel.dtype), kernel.unit
            covered.add(key)
            rival = products.get(key)
        ceilings.append(_hardware(each, kernel, rival, sheet))
    for key, each in products.items():
        if key not in covered:
            ceilings.append(_uncontested(each, key[1], sheet))
    ceilings += [_library(each, sheet) for each in products.values()]
    return ceilings


def _hardware(
    own: Rated, kernel: ArithmeticKernel, rival: Rated | None, sheet: DataSheet
) -> ComputeCeiling:
    best, name, note = own, kernel.name, kernel.note
    if rival is not None and rival.rate.peak > own.rate.peak:
        best, name = rival, "gemm"
        note = (
            f"torch's product of {_size(rival)}, the fastest known here; our own kernel"
            f" ({kernel.instruction}) reached {format_flop_per_s(own.rate.peak)}"
        )
    theoretical = sheet.compute(str(kernel.dtype), kernel.unit, kernel.name)
    return ComputeCeiling(
        kind="hardware",
        kernel=name,
        dtype=kernel.dtype,
        unit=kernel.unit,
        threads=1,
        peak_flop_per_s=best.rate.peak,
        sustained_flop_per_s=best.rate.sustained,
        spread=best.rate.spread,
        theoretical=theoretical,
        doubt=reservations_of(best, theoretical),
        provenance=measured(f"{method_of(best)}; {note}", bursts_of(best)),
    )


def _uncontested(each: Rated, unit: str, sheet: DataSheet) -> ComputeCeiling:
    """A unit for which there is no kernel of our own: torch's product, with a doubt."""
    assert isinstance(each.subject, SizedProduct)
    product = each.subject.product
    theoretical = sheet.product(product)
    reservations = (
        f"no kernel of our own drives this unit on {sheet.facts.name}: other programs may be faster"
        " than torch's product",
        reservations_of(each, theoretical),
    )
    return ComputeCeiling(
        kind="hardware",
        kernel="gemm",
        dtype=product.dtype,
        unit=unit,
        threads=1,
        peak_flop_per_s=each.rate.peak,
        sustained_flop_per_s=each.rate.sustained,
        spread=each.rate.spread,
        theoretical=theoretical,
        doubt="; ".join(filter(None, reservations)),
        provenance=measured(
            f"{method_of(each)}; torch's product of {_size(each)}", bursts_of(each)
        ),
    )


def _library(each: Rated, sheet: DataSheet) -> ComputeCeiling:
    assert isinstance(each.subject, SizedProduct)
    product = each.subject.product
    return ComputeCeiling(
        kind="library",
        kernel="gemm",
        dtype=product.dtype,
        unit=product.unit,
        threads=1,
        peak_flop_per_s=each.rate.peak,
        sustained_flop_per_s=each.rate.sustained,
        spread=each.rate.spread,
        theoretical=sheet.product(product),
        doubt=doubt_of(each.trial),
        provenance=measured(
            f"{method_of(each)}; {sheet.facts.library}", f"{_size(each)}; {bursts_of(each)}"
        ),
    )


def _size(each: Rated) -> str:
    assert isinstance(each.subject, SizedProduct)
    n = each.subject.size
    return f"{n}x{n}x{n}"


def describe(facts: DeviceFacts) -> str:
    """A device in a line: name, size, what runs it."""
    major, minor = facts.capability
    return (
        f"{facts.name}, {facts.multiprocessors} SMs, {facts.memory_bytes / (1 << 30):.0f} GiB,"
        f" compute capability {major}.{minor}, driver {facts.driver}"
    )


_CALLS = 100
_ROUNDS = 9
_SMALL_BYTE = 4
_FAST = 0.05


def launch_overheads(
    device: Device, report: Callable[[str], None]
) -> tuple[list[Overhead], list[str]]:
    """Of an empty program and of small calls of torch's; and what was left out, in words.

    ``launch`` is the time from one launch to the next where the queue is never empty, ``round
    trip`` that of a launch and of waiting for its end.
    """
    overheads: list[Overhead] = []
    conditions: list[str] = []

    def add(name: str, make: Callable[[], Call], calls: int) -> None:
        report(name)
        try:
            overheads.append(
                Overhead(
                    name=name,
                    threads=1,
                    time=_duration(device, make(), calls, device.facts.library),
                )
            )
        except DeviceError as error:
            conditions.append(f"left out: {name}: {error}")

    def empty() -> Call:
        return device.launch(device.load(empty_program()), 1, ())

    add("launch of an empty kernel", empty, _CALLS)
    add("round trip of an empty kernel", empty, 1)
    for name, call in device.small_calls().items():
        add(name, lambda call=call: call, _CALLS)
    return overheads, conditions


def copy_latencies(device: Device) -> dict[str, Duration]:
    """Seconds of the smallest copy and of waiting for it, by the labels of `Transfer`."""
    ways: Sequence[tuple[HostMemory, Direction]] = (
        ("pinned", "to device"),
        ("pageable", "to device"),
        ("pinned", "to host"),
        ("pageable", "to host"),
    )
    found: dict[str, Duration] = {}
    for memory, direction in ways:
        try:
            call = device.transfer(direction, memory, _SMALL_BYTE)
            found[f"{memory} copy {direction}"] = _duration(device, call, 1, f"{_SMALL_BYTE} bytes")
        except DeviceError:
            # The copy itself fails too, and its trial says so.
            continue
    return found


def _duration(device: Device, call: Call, calls: int, note: str) -> Duration:
    device.queue_time(call, calls)
    times = tuple(max(device.queue_time(call, calls) / calls, 1e-12) for _ in range(_ROUNDS))
    sample = Sample(times_s=times)
    return Duration(
        fast_s=quantile(times, _FAST),
        median_s=sample.median_s,
        spread=sample.spread,
        provenance=measured(
            f"median of {_ROUNDS} rounds of {calls} calls and one wait, by the host's clock", note
        ),
    )


def memory_levels(found: Sequence[Rated], sheet: DataSheet) -> Iterable[MemoryLevel]:
    """The L2 and the device's own memory; nothing if the latter was not measured."""
    reported = measured("reported by the CUDA driver")
    capacities = {L2: sheet.facts.l2_bytes, sheet.memory_name: sheet.facts.memory_bytes}
    if not any(_level(each) == sheet.memory_name for each in found):
        # The L2 alone would be taken for all the memory there is.
        return
    for name, capacity_bytes in capacities.items():
        paper = sheet.memory() if name != L2 else None
        bandwidth = tuple(_bandwidth(each, paper) for each in found if _level(each) == name)
        if bandwidth:
            yield MemoryLevel(
                name=name,
                capacity_bytes=capacity_bytes,
                scope="shared",
                capacity_provenance=reported,
                bandwidth=bandwidth,
            )


def _level(each: Rated) -> str:
    return each.subject.level if isinstance(each.subject, Stream) else ""


def _bandwidth(each: Rated, theoretical: TheoreticalRate | None) -> Bandwidth:
    assert isinstance(each.subject, Stream)
    return Bandwidth(
        kernel=each.subject.kernel.name,
        threads=1,
        peak_bytes_per_s=each.rate.peak,
        sustained_bytes_per_s=each.rate.sustained,
        spread=each.rate.spread,
        # A GPU's caches keep track of bytes: a line that is written whole is not read first.
        write_allocate="none",
        theoretical=theoretical,
        doubt=reservations_of(each, theoretical),
        provenance=measured(f"{method_of(each)}; {each.subject.note}", bursts_of(each)),
    )


def links(found: Sequence[Rated], latencies: dict[str, Duration]) -> list[Link]:
    """The ways between host and device; `latencies` of the smallest copy, by the trial's label."""
    made: list[Link] = []
    for each in found:
        transfer = each.subject
        if not isinstance(transfer, Transfer):
            continue
        to_device = transfer.direction == "to device"
        made.append(
            Link(
                source="host" if to_device else "device",
                target="device" if to_device else "host",
                kernel=f"copy, {transfer.memory}",
                threads=1,
                peak_bytes_per_s=each.rate.peak,
                sustained_bytes_per_s=each.rate.sustained,
                spread=each.rate.spread,
                latency=latencies.get(transfer.label),
                provenance=measured(
                    f"{method_of(each)}; {transfer.byte >> 20} MiB of {transfer.memory} memory",
                    bursts_of(each),
                ),
            )
        )
    return made


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
