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
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from roofline.core.progress import Progress, silent
from roofline.errors import MeasurementError, error_text
from roofline.machine.hardware import Effort, HardwareProfile, Host
from roofline.machine.kernels import compiler
from roofline.machine.measuring.estimation import PROGRAMS, Finding, Findings, Program, Series
from roofline.machine.measuring.kernel_measurement import measure_kernels
from roofline.machine.system.activity import disturbances, read_activity
from roofline.machine.system.host_state import host_conditions, read_host_state

_ALMOST = 0.99


def measure_hardware(
    *,
    effort: Effort = "default",
    program: Program | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    found: Callable[[Finding], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[HardwareProfile, tuple[Series, ...]]:
    """Measures what this host can do: the profile, and the bursts that it was made of.

    The time of the ``program`` (None: that of the effort) is by ``clock``; kernels are timed inside
    the compiled code. ``threads`` is the larger team (None: one per physical core); one thread is
    measured besides. ``progress`` gets the fraction done and what is next, ``found`` rates as far
    as they are known.
    """
    begin = clock()
    plan = program or PROGRAMS[effort]
    tell = progress or silent

    def report(_: float, what: str) -> None:
        # How much of the expected time is over: a part knows only how far it is itself.
        tell(min(_ALMOST, (clock() - begin) / plan.expected_s), what)

    host_state = read_host_state(compiler_features=compiler.host_features)
    topology = host_state.topology
    count = topology.available_cpus if threads is None else threads
    before = read_activity(cpus=topology.allowed_cpus)
    obstacle = _obstacle()
    with ThreadPoolExecutor(1) as pool:
        # torch is imported while kernels are compiled.
        importing = pool.submit(_import_library) if plan.library_s else None
        if obstacle:
            hardware = Findings(conditions=(obstacle,))
        else:
            hardware = measure_kernels(
                host_state,
                (1, count) if count > 1 else (1,),
                plan,
                deadline=begin + plan.budget_s - plan.library_s,
                clock=clock,
                report=report,
                found=found or silent,
                before_timing=lambda: wait([importing] if importing else []),
            )
    library = Findings()
    if importing:
        report(0.0, "importing torch")
        left_s = max(plan.library_s, begin + plan.budget_s - clock())
        try:
            measure_library = importing.result().measure_library
        except (Exception, SystemExit) as error:
            # A broken torch fails in its own ways; the hardware's figures stand without it.
            why = f"no library ceilings: torch cannot be imported ({error_text(error)})"
            library = Findings(conditions=(why,))
        else:
            library = measure_library(
                threads=count,
                budget_s=left_s,
                clock=clock,
                progress=report,
                working_sets=hardware.sets,
            )
    tell(1.0, "done")
    missing = (*hardware.conditions, *library.conditions)
    if not hardware.compute and not hardware.memory and not library.compute:
        hint = () if plan.library_s else ("torch was left out (measure without --quick)",)
        raise MeasurementError("; ".join(("nothing could be measured", *missing, *hint)))
    after = read_activity(cpus=topology.allowed_cpus)
    profile = HardwareProfile(
        name=profile_name(host_state.host),
        device="cpu",
        threads=count,
        description=f"{host_state.host.cpu_model}, {host_state.host.architecture}",
        host=host_state.host,
        effort=effort,
        clock=hardware.clock,
        compute=(*hardware.compute, *library.compute),
        memory=tuple(
            dataclasses.replace(
                level, bandwidth=(*level.bandwidth, *library.bandwidth.get(level.name, ()))
            )
            for level in hardware.memory
        ),
        overheads=(*hardware.overheads, *library.overheads),
        links=hardware.links,
        bandwidth_curves=hardware.bandwidth_curves,
        latency_curve=hardware.latency_curve,
        conditions=(
            *host_conditions(host_state),
            *disturbances(before, after, elapsed_s=clock() - begin, cpus=count),
            *missing,
        ),
    )
    return profile, (*hardware.series, *library.series)


def profile_name(host: Host) -> str:
    """A short name for a host's profile: ``"amd-epyc-7763-8cpu"``."""
    plain = re.sub(
        r"\((?:r|tm|c)\)|@.*|\b(?:cpu|processor|\d+-core)\b", " ", host.cpu_model.lower()
    )
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return f"{slug or host.architecture}-{host.available_cpus}cpu"


def _obstacle() -> str:
    """Why own kernels cannot run here; ``""`` if they can."""
    if sys.platform not in ("linux", "darwin"):
        return f"no hardware ceilings: own kernels run on Linux and macOS, not on {sys.platform}"
    if not compiler.is_available():
        return "no hardware ceilings: llvmlite cannot be loaded (`pip install llvmlite`)"
    return ""


def _import_library() -> Any:
    return importlib.import_module("roofline.machine.library")
