"""In-place measurement of models on this machine, for profile, calibrate and validate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from roofline.core.progress import Progress, Say
from roofline.core.sampling import Sample
from roofline.core.units import format_bytes
from roofline.errors import HardwareError, ModelError, argument
from roofline.latency.allocator import allocator_here
from roofline.latency.measuring.rounds import Effort, Gauges
from roofline.latency.samples import PassTimes, RunMeasurement
from roofline.machine.core_state import CoreState
from roofline.machine.hardware import HardwareProfile
from roofline.machine.measuring.core_state_reader import core_state_reader
from roofline.machine.system.activity import (
    check_quiet,
    disturbances,
    memory_pressure,
    read_activity,
)
from roofline.machine.system.exclusive import exclusive_measurement
from roofline.machine.system.host_state import host_conditions, read_host_state
from roofline.machine.system.topology import Topology
from roofline.pipeline.machines import host_profile
from roofline.pipeline.runs import CapturedPass, Workload
from roofline.placement import Placement, Roof, place
from roofline.run import Run
from roofline.workload.residency import trace_residency

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """This machine reserved for measurements: profile, CPUs, conditions and notes."""

    profile: HardwareProfile
    topology: Topology
    conditions: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPass:
    """Measured pass: capture, placement under the roofline, and times."""

    passed: CapturedPass
    roof: Roof
    placements: tuple[Placement, ...]
    timed: PassTimes

    @property
    def roof_at_clock(self) -> Roof:
        """Roof at the clock of the measured passes, for minimum times that none undercuts."""
        clock_hz = self.timed.run.clock_hz
        if not clock_hz:
            return self.roof
        return Roof(self.roof.profile.at_clock(clock_hz), self.roof.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasurement:
    """Times of whole passes in seconds, and the core clock state."""

    sample: Sample
    core_state: CoreState


@contextmanager
def bench(
    *,
    force: bool,
    say: Say,
    of_device: HardwareProfile | None = None,
    progress: Progress | None = None,
) -> Iterator[Bench]:
    """Reserve this machine: no other measurement runs meanwhile."""
    profile, notes = (of_device, ()) if of_device else host_profile(progress)
    with exclusive_measurement(say, before_waiting=partial(_check_quiet_but_for, force=force)):
        host_state = read_host_state()
        topology = host_state.topology
        busy = check_quiet(topology, force=force)
        yield Bench(
            profile=profile,
            topology=topology,
            conditions=(*busy, *host_conditions(host_state), *memory_pressure()),
            notes=notes,
        )


def _check_quiet_but_for(process: int, *, force: bool) -> None:
    """Raise MeasurementError if others than a process and its children use the CPUs."""
    import psutil

    def used_s() -> float:
        spent_s = time.process_time()
        with suppress(psutil.Error):
            tree = psutil.Process(process)
            for each in (tree, *tree.children(recursive=True)):
                with suppress(psutil.Error):
                    # With children that ended.
                    spent_s += sum(each.cpu_times()[:4])
        return spent_s

    topology = read_host_state().topology
    cpus = topology.allowed_cpus or topology.cores
    look = partial(read_activity, cpus=cpus, own_clock=used_s)
    check_quiet(topology, force=force, read_now=look)


@contextmanager
def gauged(on: Bench, threads: int, gauges: Gauges | None = None) -> Iterator[Gauges]:
    """Pin a number of threads; yield gauges that read the clock state of their cores."""
    from roofline.latency.measuring.rounds import torch_threads

    cores = on.topology.cores
    with torch_threads(threads, cores), core_state_reader(cores[:threads]) as core_state:
        yield replace(gauges or Gauges(), core_state=core_state)


def materialize_model(workload: Workload) -> torch.nn.Module:
    """Return the model of a workload with real tensors."""
    import psutil

    from roofline.workload.capture.passes import materialize

    module = workload.source.module
    byte = sum(each.nbytes for each in (*module.parameters(), *module.buffers()))
    # A pass runs on copies.
    if 2 * byte > (free_bytes := psutil.virtual_memory().available):
        raise ModelError(
            f"{workload.name}: a pass needs {format_bytes(2 * byte)} for weights and their copies,"
            f" {format_bytes(free_bytes)} of memory are free"
        )
    model = materialize(workload.source.module, workload.source.rebuild)
    if model is None:
        raise ModelError(f"{workload.name} cannot be built with its weights, so it cannot be run")
    return model


def measure(
    on: Bench,
    workload: Workload,
    model: torch.nn.Module,
    *,
    threads: int,
    effort: Effort,
    compiled: bool = False,
    gauges: Gauges | None = None,
    progress: Progress | None = None,
) -> MeasuredPass:
    """Measure a model in place, and place its operators under this machine's roof."""
    from roofline.latency.measuring.in_place import measure_in_place

    if not 1 <= threads <= on.profile.threads:
        raise HardwareError(
            f"{argument('threads', threads)}: must be from 1 to {on.profile.threads} on this host"
        )
    cpus = on.topology.allowed_cpus or on.topology.cores
    gauges, device = gauges or Gauges(), workload.run.device
    before, begin = read_activity(cpus=cpus), gauges.wall()
    with gauged(on, threads, gauges) as paced:
        found = measure_in_place(
            model,
            workload.given,
            name=workload.name,
            run=workload.run,
            effort=effort,
            training=workload.options.training_config(),
            compiled=compiled,
            gauges=None if device == "cuda" else paced,
            progress=progress,
        )
    noticed = disturbances(
        before,
        read_activity(cpus=cpus),
        elapsed_s=gauges.wall() - begin,
        cpus=len(on.topology.cores),
    )
    capture = found.capture
    allocator = allocator_here()
    costs = on.profile.page_fault_s(huge=allocator.has_huge_pages)
    roof = Roof(on.profile, threads)
    passed = CapturedPass(
        name=workload.name,
        inputs=workload.specs,
        capture=capture,
        reuse=trace_residency(capture.records),
        notes=(*workload.notes, *capture.notes),
    )
    conditions = [*on.conditions, *(each for each in noticed if not each.startswith("load:"))]
    timed = PassTimes(
        run=RunMeasurement(
            end_to_end=found.end_to_end,
            operators_s=sum(each.median_s for each in found.operators),
            page_faults=found.page_faults,
            page_fault_s=costs.get(threads),
            allocator=allocator.name if device == "cpu" else "",
            rounds=len(found.end_to_end.times_s),
            discarded=found.discarded,
            are_disturbed=found.are_disturbed,
            compiled=found.compiled,
            date=date.today().isoformat(),
            conditions=(*conditions, *found.notes),
            clock_hz=found.core_state.clock_hz,
            core_to_core_latency_s=found.core_state.core_to_core_latency_s,
        ),
        operators=found.operators,
        page_faults=found.operator_faults,
    )
    return MeasuredPass(
        passed=passed,
        roof=roof,
        placements=place(capture.records, passed.reuse, roof, cache="steady"),
        timed=timed,
    )


def remeasure(
    on: Bench,
    workload: Workload,
    model: torch.nn.Module,
    *,
    threads: int,
    effort: Effort,
    compiled: bool = False,
) -> Remeasurement:
    """Measure whole passes again, also under `torch.compile`."""
    from roofline.latency.measuring.in_place import measure_whole

    with gauged(on, threads) as gauges:
        rounds = measure_whole(
            model,
            workload.given,
            name=workload.name,
            run=workload.run,
            effort=effort,
            compiled=compiled,
            gauges=gauges,
        )
    return Remeasurement(sample=Sample(times_s=rounds.times_s(0)), core_state=rounds.core_state)


def main_dtype(model: torch.nn.Module, run: Run) -> str:
    """Return the data type of most bytes of a model's parameters and buffers in a run."""
    if run.dtype:
        return run.dtype
    from roofline.workload.torch_dtypes import dtype_of

    byte: dict[str, int] = {}
    for each in (*model.parameters(), *model.buffers()):
        if each.is_floating_point():
            name = dtype_of(each.dtype).name
            byte[name] = byte.get(name, 0) + each.nbytes
    return max(byte, key=lambda name: byte[name]) if byte else "float32"
