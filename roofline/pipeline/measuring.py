"""Measurement of this machine, exclusive on the host, with its profile stored for later use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from roofline.core.files import write_atomically
from roofline.core.progress import Progress, silent
from roofline.errors import (
    FileFormatError,
    HardwareError,
    InputError,
    MeasurementError,
    RooflineError,
    argument,
)
from roofline.machine import catalog
from roofline.machine.hardware import (
    Device,
    Effort,
    HardwareProfile,
    Host,
    Link,
    MemoryKernel,
    profile_to_toml,
    read_profile,
)
from roofline.machine.measuring.estimation import Finding, Series
from roofline.scaling.settings import BETWEEN_PROCESSES, is_between_ranks

if TYPE_CHECKING:
    from roofline.machine.measuring.explanation import KernelPlan, Section


def this_host() -> Host:
    """Return this host as profiles describe it."""
    from roofline.machine.kernels.compiler import host_features
    from roofline.machine.system.host import describe_host

    return describe_host(compiler_features=host_features)


def check_threads_of_host(threads: int) -> None:
    """Raise HardwareError if this host has fewer available CPUs than `threads`."""
    available = this_host().available_cpus
    if not 1 <= threads <= available:
        raise HardwareError(
            f"{argument('threads', threads)} does not fit this host: choose 1 to {available}"
        )


def measure_links(
    *, save: bool = True, say: Callable[[str], None] | None = None
) -> HardwareProfile:
    """Measure inter-process bandwidth and latency over gloo; return the updated host profile.

    Earlier links are replaced; the rest of the profile stays.
    """
    from roofline.machine.links import measure_links as measure
    from roofline.machine.system.exclusive import exclusive_measurement

    file = catalog.host_file()
    if not file.exists():
        raise HardwareError(
            "no profile of this machine to store the links in; run `roofline measure` first"
        )
    before = catalog.load_hardware(file)
    difference = before.host.difference(this_host()) if before.host else ""
    if difference:
        raise HardwareError(
            f"the stored profile is from another host ({difference}); run `roofline measure` first"
        )
    if save:
        catalog.check_user_folder()
    say = say or silent
    with exclusive_measurement(say):
        say("measuring inter-process bandwidth and latency (gloo)")
        links = measure()
    # Read only now: another measurement may have replaced the profile meanwhile.
    found = with_links(catalog.load_hardware(file), links)
    if save:
        write_atomically(file, profile_to_toml(found), overwrite=True)
    return found


def with_links(profile: HardwareProfile, links: tuple[Link, ...]) -> HardwareProfile:
    """Return the profile with `links` in place of those with the same ends and kernel."""
    new = {(each.source, each.target, each.kernel) for each in links}
    kept = [each for each in profile.links if (each.source, each.target, each.kernel) not in new]
    return replace(profile, links=(*kept, *links))


def with_links_kept(profile: HardwareProfile) -> tuple[HardwareProfile, str]:
    """Return a new profile of this machine with the inter-process links of the old one.

    Returns:
        The profile, and a note on the links; ``""`` if there were none.
    """
    try:
        before = read_profile(catalog.host_file())
    except FileFormatError:
        return profile, ""
    links = tuple(
        each
        for each in before.links
        if is_between_ranks(each) and each.source == each.target == BETWEEN_PROCESSES
    )
    if not links or profile.device != "cpu":
        return profile, ""
    difference = "unknown host"
    if profile.host is not None and before.host is not None:
        difference = before.host.difference(profile.host)
    again = "run `roofline measure --links` to measure them again"
    if difference:
        return (
            profile,
            f"inter-process links of another host dropped ({difference}); {again}",
        )
    newest = max(each.provenance.date for each in links)
    torch = {each.host.versions.get("torch", "") if each.host else "" for each in (before, profile)}
    before_torch = before.host.versions.get("torch", "") if before.host else ""
    with_torch = f" with torch {before_torch}" if len(torch) > 1 else ""
    return (
        with_links(profile, links),
        f"inter-process links kept from {newest}{with_torch}; {again}",
    )


Found = Callable[[Finding], None]
"""Callback for each rate, called again as the rate gets more accurate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measured profile, its bursts, and its file (None: not saved).

    ``problem``: reason why it could not be saved, or ``""``. ``note``: note on the links of an
    earlier profile, or ``""``.
    """

    profile: HardwareProfile
    series: tuple[Series, ...]
    file: Path | None
    problem: str = ""
    note: str = ""


def measure_hardware(
    *,
    effort: Effort = "default",
    device: Device = "cpu",
    threads: int | None = None,
    progress: Progress | None = None,
    found: Found | None = None,
    waiting: Callable[[str], None] | None = None,
    save: bool = True,
) -> HardwareProfile:
    """Measure this machine's ceilings, in FLOP/s and byte/s.

    Only one measurement runs at a time on a machine; others wait.

    Args:
        effort: ``"quick"`` takes three seconds and omits torch's ceilings, ``"default"`` ten,
            ``"thorough"`` minutes: every kernel then runs for a second without a break.
        device: ``"cpu"``, or ``"cuda"`` for the first CUDA device.
        threads: number of threads of multi-threaded figures; default: one per available core.
        progress: called with the fraction done and the current step.
        found: called with each rate, and again as it gets more accurate.
        waiting: called with a message while another measurement runs.
        save: save the profile and its raw samples in the user's folder, where `analyze` finds it.

    Raises:
        MeasurementError: nothing could be measured.
        HardwareError: more threads than CPUs, or no such device.
        InputError: the profile cannot be saved. Checked before measuring, but the disk may fill up.
    """
    measured = measure_with_samples(
        effort=effort,
        device=device,
        threads=threads,
        progress=progress,
        found=found,
        waiting=waiting,
        save=save,
    )
    if measured.problem:
        raise InputError(measured.problem)
    return measured.profile


def measure_with_samples(
    *,
    effort: Effort = "default",
    device: Device = "cpu",
    threads: int | None = None,
    progress: Progress | None = None,
    found: Found | None = None,
    waiting: Callable[[str], None] | None = None,
    save: bool = True,
) -> Measurement:
    """Measure as `measure_hardware`; return also the raw samples and the file."""
    from roofline.machine.system.exclusive import exclusive_measurement

    if effort not in get_args(Effort) or effort == "unspecified":
        raise InputError(f"unknown effort '{effort}'; choose quick, default or thorough")
    if threads is not None and type(threads) is not int:
        raise InputError(f"threads must be a whole number, got {threads!r}")
    if device not in ("cpu", "cuda"):
        raise InputError(f"cannot measure device '{device}'; choose cpu or cuda")
    if device == "cuda" and threads is not None:
        raise HardwareError(f"{argument('threads')} has no effect on a cuda device; leave it out")
    if threads is not None:
        check_threads_of_host(threads)
    if save:
        catalog.check_user_folder()
    with exclusive_measurement(waiting or silent):
        if device == "cuda":
            from roofline.machine.gpu.measurement import measure_gpu

            profile, series = measure_gpu(effort=effort, progress=progress, found=found)
        else:
            from roofline.machine.measuring.benchmark import measure_hardware as measure

            profile, series = measure(
                effort=effort, threads=threads, progress=progress, found=found
            )
    profile, note = with_links_kept(profile)
    file, problem = None, ""
    try:
        if save:
            file = catalog.save_measured_profile(profile, series)
    except InputError as error:
        # The disk may be full; the measurement is still returned.
        problem = f"measured, but cannot save the profile: {error}"
    return Measurement(profile=profile, series=series, file=file, problem=problem, note=note)


def explain_measurement() -> tuple[Section, ...]:
    """Return a description of the measurement on this machine; measures nothing."""
    from roofline.machine.hierarchy.cache_sizes import find_levels
    from roofline.machine.hierarchy.working_sets import DRAM, plan_working_sets
    from roofline.machine.kernels.compiler import host_features
    from roofline.machine.measuring.explanation import Section, explain
    from roofline.machine.system.host_state import read_host_state

    host_state = read_host_state(compiler_features=host_features)
    count = host_state.topology.available_cpus
    # DRAM working set of all threads, assuming the reported cache sizes.
    levels = find_levels(None, host_state.topology).levels
    sets, _ = plan_working_sets(levels, host_state.topology, (count,), host_state.available_bytes)
    in_memory = (each.bytes_per_thread * count for each in sets if each.level == DRAM)
    last, problem = None, ""
    if catalog.host_file().exists():
        try:
            last = catalog.load_hardware(catalog.HOST)
        except RooflineError as error:
            problem = f"Unreadable, the next measurement replaces it: {error}"
    sections = explain(
        host_state,
        _kernels(host_state.host),
        threads=count,
        array_bytes=next(in_memory, None),
        profile_file=catalog.host_file(),
        last=last,
    )
    return (*sections, Section(title="Stored profile", lines=(problem,))) if problem else sections


def _kernels(host: Host) -> KernelPlan:
    from roofline.machine.kernels import register_loop
    from roofline.machine.kernels.compute import COMPUTE_KERNELS, compute_kernels
    from roofline.machine.measuring.explanation import KernelPlan
    from roofline.machine.roof import ceiling_text

    sets = frozenset(host.instruction_sets)
    here = [each for each in COMPUTE_KERNELS if each.unit.architecture == host.architecture]
    refused: dict[str, str] = {}
    if any(each.unit.name == "amx" for each in compute_kernels(host.architecture, sets)):
        try:
            register_loop.request_permission()
        except MeasurementError as error:
            refused["amx"] = str(error)
    able: dict[str, dict[str, list[str]]] = {}
    lacking: dict[str, set[str]] = {}
    usable = {each.unit.name for each in here if each.unit.instruction_sets <= sets}
    for each in here:
        if not each.unit.instruction_sets <= sets:
            # Some units need an instruction set per data type.
            unit = f"{each.dtype} on {each.unit.name}"
            unit = unit if each.unit.name in usable else each.unit.name
            lacking.setdefault(unit, set()).update(each.unit.instruction_sets - sets)
        elif each.unit.name not in refused:
            able.setdefault(str(each.dtype), {}).setdefault(each.name, []).append(each.unit.name)
    measured: list[str] = []
    for element, by_kernel in able.items():
        kernels = [f"{name} on {_words(on)}" for name, on in by_kernel.items()]
        measured.append(ceiling_text(f"{element} ({', '.join(kernels)})"))
    return KernelPlan(
        measured=tuple(measured),
        lacking={ceiling_text(unit): ", ".join(sorted(sets)) for unit, sets in lacking.items()},
        refused=refused,
        used_sets=frozenset(name for each in here for name in each.unit.instruction_sets),
        names=(*{each.name for each in here}, *get_args(MemoryKernel)),
    )


def _words(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
