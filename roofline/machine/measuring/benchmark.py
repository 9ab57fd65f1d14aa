"""Measures this host: our own kernels, then what torch reaches; both make a profile.

Method: bursts of 0.25 ms timed inside the compiled code, all threads of a burst starting together,
interleaved over all kernels until the time budget is used. A burst during which a thread lost its
CPU is left out. Peak is the 95th percentile of the burst rates, sustained their median.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from roofline.errors import HardwareError, InputError, MeasurementError, said_by
from roofline.foundation.progress import Progress, silent
from roofline.machine.hardware import (
    Bandwidth,
    ComputeCeiling,
    Effort,
    HardwareProfile,
    Host,
    MemoryLevel,
    Overhead,
)
from roofline.machine.hierarchy.working_sets import WorkingSet
from roofline.machine.kernels import compiler
from roofline.machine.measuring.estimation import Finding, Program, Series, program
from roofline.machine.measuring.kernel_measurement import KernelFindings, measure_kernels
from roofline.machine.measuring.rounds import Found
from roofline.machine.system.activity import disturbances, read_activity
from roofline.machine.system.situation import circumstances, read_situation

Clock = Callable[[], float]

_LIBRARY_SHARE = 0.25
"""Of a budget too small for what the library wants."""


def measure_hardware(
    *,
    effort: Effort = "default",
    budget_s: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    found: Found | None = None,
    include_library: bool = True,
    clock: Clock = time.perf_counter,
) -> tuple[HardwareProfile, tuple[Series, ...]]:
    """Measures what this host can do: the profile, and the bursts that it was made of.

    Args:
        effort: how long it takes, and how much is measured (`effort`).
        budget_s: seconds for all of it but what ``thorough`` adds; None: what the effort says.
        threads: what "all threads" shall mean; by default one per physical core that this process
            may use. One thread is measured besides.
        progress: called with the fraction done, 0 to 1, and what is measured next.
        found: called with rates as far as they are known.
        include_library: whether to measure what torch reaches as well.
        clock: seconds, for the budget only; kernels are timed inside the compiled code.

    Raises:
        InputError: a budget that is not positive.
        HardwareError: more threads than this process may use.
        MeasurementError: threads cannot be started, or nothing could be measured.
    """
    begin = clock()
    plan = _program(effort, budget_s, include_library)
    report = _paced(progress or silent, plan.expected_s, begin, clock)
    situation = read_situation(compiler_features=compiler.host_features)
    topology = situation.topology
    count = topology.available_cpus if threads is None else threads
    if not 1 <= count <= topology.available_cpus:
        raise HardwareError(
            f"--threads {count} does not fit this host: choose 1 to {topology.available_cpus}"
        )
    before = read_activity(cpus=topology.allowed_cpus)
    obstacle = _obstacle()
    with _LibraryImport(wanted=plan.library_s > 0) as importing:
        if obstacle:
            hardware = KernelFindings(conditions=(obstacle,))
        else:
            hardware = measure_kernels(
                situation,
                (1, count) if count > 1 else (1,),
                plan,
                deadline=begin + plan.budget_s - plan.library_s,
                clock=clock,
                report=report,
                found=found or _unheard,
                before_timing=importing.wait,
            )
    library = _Library()
    if plan.library_s:
        library = _measure_library(
            count,
            max(plan.library_s, begin + plan.budget_s - clock()),
            hardware.sets,
            clock,
            report,
        )
    (progress or silent)(1.0, "done")
    if not hardware.compute and not hardware.memory and not library.compute:
        reasons = (*hardware.conditions, *library.conditions, *_left_out(effort, include_library))
        raise MeasurementError("; ".join(("nothing could be measured", *reasons)))
    after = read_activity(cpus=topology.allowed_cpus)
    profile = HardwareProfile(
        name=profile_name(situation.host),
        device="cpu",
        threads=count,
        description=f"{situation.host.cpu_model}, {situation.host.architecture}",
        host=situation.host,
        effort=effort,
        clock=hardware.clock,
        compute=(*hardware.compute, *library.compute),
        memory=_with_library(hardware.memory, library.bandwidth),
        overheads=(*hardware.overheads, *library.overheads),
        links=hardware.links,
        bandwidth_curves=hardware.bandwidth_curves,
        latency_curve=hardware.latency_curve,
        conditions=(
            *circumstances(
                situation.host, topology, situation.frequency, situation.memory_limit_bytes
            ),
            *disturbances(before, after, elapsed_s=clock() - begin, cpus=count),
            *hardware.conditions,
            *library.conditions,
        ),
    )
    return profile, (*hardware.series, *library.series)


def _program(effort: Effort, budget_s: float | None, include_library: bool) -> Program:
    plan = program(effort)
    budget = plan.budget_s if budget_s is None else budget_s
    if budget <= 0:
        raise InputError(f"the time budget must be greater than 0 s, got {budget:g} s")
    return dataclasses.replace(
        plan,
        budget_s=budget,
        curve_s=plan.curve_s * min(1.0, budget / plan.budget_s),
        library_s=min(plan.library_s, _LIBRARY_SHARE * budget) if include_library else 0.0,
    )


def _left_out(effort: Effort, include_library: bool) -> tuple[str, ...]:
    """That the effort did not ask for torch, which might be measured."""
    left_out = include_library and not program(effort).library_s
    return ("torch was left out (measure without --quick)",) if left_out else ()


def profile_name(host: Host) -> str:
    """A short name for a host's profile: ``"amd-epyc-7763-8cpu"``."""
    plain = re.sub(
        r"\((?:r|tm|c)\)|@.*|\b(?:cpu|processor|\d+-core)\b", " ", host.cpu_model.lower()
    )
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return f"{slug or host.architecture}-{host.available_cpus}cpu"


_ALMOST = 0.99


def _paced(progress: Progress, expected_s: float, begin: float, clock: Clock) -> Progress:
    """Reports how much of the expected time is over: a part knows only how far it is itself."""

    def report(_: float, what: str) -> None:
        progress(min(_ALMOST, (clock() - begin) / expected_s), what)

    return report


def _unheard(finding: Finding) -> None:
    pass


def _obstacle() -> str:
    """Why own kernels cannot run here; ``""`` if they can."""
    reason = ""
    if sys.platform not in ("linux", "darwin"):
        reason = f"own kernels run on Linux and macOS, not on {sys.platform}"
    elif not compiler.is_available():
        reason = "llvmlite cannot be loaded (`pip install llvmlite`)"
    return f"no hardware ceilings: {reason}" if reason else ""


class _LibraryImport:
    """Imports torch on a thread of its own, while kernels are compiled; `wait` before timing.

    What goes wrong is said where the library is measured.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._thread = threading.Thread(target=_import_library) if wanted else None

    def __enter__(self) -> _LibraryImport:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.wait()

    def wait(self) -> None:
        """Returns when torch is imported, or could not be."""
        if self._thread:
            self._thread.join()


def _import_library() -> None:
    try:
        importlib.import_module("roofline.machine.library")
    except (Exception, SystemExit):
        return


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    """What torch reaches, or why that is not known."""

    compute: tuple[ComputeCeiling, ...] = ()
    bandwidth: dict[str, tuple[Bandwidth, ...]] = dataclasses.field(
        default_factory=dict[str, tuple[Bandwidth, ...]]
    )
    overheads: tuple[Overhead, ...] = ()
    conditions: tuple[str, ...] = ()
    series: tuple[Series, ...] = ()


def _measure_library(
    threads: int, budget_s: float, sets: Sequence[WorkingSet], clock: Clock, report: Progress
) -> _Library:
    report(0.0, "importing torch")
    try:
        from roofline.machine import library
    except (Exception, SystemExit) as error:
        # A broken torch fails in its own ways; the hardware's figures stand without it.
        why = f"no library ceilings: torch cannot be imported ({said_by(error)})"
        return _Library(conditions=(why,))
    found = library.measure_library(
        threads=threads, budget_s=budget_s, clock=clock, progress=report, working_sets=sets
    )
    return _Library(
        compute=found.compute,
        bandwidth=found.bandwidth,
        overheads=found.overheads,
        conditions=found.conditions,
        series=found.series,
    )


def _with_library(
    memory: Sequence[MemoryLevel], bandwidth: dict[str, tuple[Bandwidth, ...]]
) -> tuple[MemoryLevel, ...]:
    return tuple(
        dataclasses.replace(level, bandwidth=(*level.bandwidth, *bandwidth.get(level.name, ())))
        for level in memory
    )
