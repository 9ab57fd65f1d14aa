"""Measurement of this host with own kernels and with torch; the result is a profile.

Method: 0.25 ms bursts timed inside the compiled code, with a common start of all threads,
interleaved over all kernels until the time budget is used. Bursts during which a thread lost its
CPU are discarded. Peak is the 95th percentile of burst rates, sustained their median.
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
from roofline.machine.measuring.estimation import (
    TIME_BUDGETS,
    Finding,
    MeasuredFigures,
    Series,
    TimeBudget,
)
from roofline.machine.measuring.kernel_measurement import measure_kernels
from roofline.machine.system.activity import disturbances, read_activity
from roofline.machine.system.host_state import host_conditions, read_host_state

_ALMOST = 0.99


def measure_hardware(
    *,
    effort: Effort = "default",
    program: TimeBudget | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    found: Callable[[Finding], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[HardwareProfile, tuple[Series, ...]]:
    """Measure this host; return the profile and its bursts.

    The time budget of ``program`` (None: that of `effort`) is measured by ``clock``; kernels are
    timed inside the compiled code. ``threads`` is the larger team (None: one per physical core);
    one thread is also measured. ``progress`` gets the fraction done and the next step, ``found``
    preliminary rates.
    """
    begin = clock()
    plan = program or TIME_BUDGETS[effort]
    notify = progress or silent

    def report(_: float, what: str) -> None:
        # Overall progress is elapsed over expected time.
        notify(min(_ALMOST, (clock() - begin) / plan.expected_s), what)

    host_state = read_host_state(compiler_features=compiler.host_features)
    topology = host_state.topology
    count = topology.available_cpus if threads is None else threads
    before = read_activity(cpus=topology.allowed_cpus)
    obstacle = _obstacle()
    with ThreadPoolExecutor(1) as pool:
        # torch is imported during the compilation of kernels.
        importing = pool.submit(_import_library) if plan.library_s else None
        if obstacle:
            hardware = MeasuredFigures(conditions=(obstacle,))
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
    library = MeasuredFigures()
    if importing:
        report(0.0, "importing torch")
        left_s = max(plan.library_s, begin + plan.budget_s - clock())
        try:
            measure_library = importing.result().measure_library
        except (Exception, SystemExit) as error:
            # A broken torch may raise anything; hardware figures remain valid.
            why = f"no library ceilings: cannot import torch ({error_text(error)})"
            library = MeasuredFigures(conditions=(why,))
        else:
            library = measure_library(
                threads=count,
                budget_s=left_s,
                clock=clock,
                progress=report,
                working_sets=hardware.sets,
            )
    notify(1.0, "done")
    missing = (*hardware.conditions, *library.conditions)
    if not hardware.compute and not hardware.memory and not library.compute:
        hint = () if plan.library_s else ("use the default effort for library ceilings",)
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
    """Return a short name for a host: ``"amd-epyc-7763-8cpu"``."""
    plain = re.sub(
        r"\((?:r|tm|c)\)|@.*|\b(?:cpu|processor|\d+-core)\b", " ", host.cpu_model.lower()
    )
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return f"{slug or host.architecture}-{host.available_cpus}cpu"


def _obstacle() -> str:
    """Return the reason why own kernels cannot run, or ``""``."""
    if sys.platform not in ("linux", "darwin"):
        return f"no hardware ceilings: own kernels need Linux or macOS, not {sys.platform}"
    if not compiler.is_available():
        return "no hardware ceilings: cannot load llvmlite (`pip install llvmlite`)"
    return ""


def _import_library() -> Any:
    return importlib.import_module("roofline.machine.library")
