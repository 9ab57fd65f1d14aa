"""Measuring this machine: alone on it, and kept where it is found again."""

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
    profile_to_toml,
    read_profile,
)
from roofline.machine.measuring.estimation import Finding, Series
from roofline.scaling.settings import BETWEEN_PROCESSES, is_between_ranks

if TYPE_CHECKING:
    from roofline.machine.measuring.explanation import KernelPlan, Section


def this_host() -> Host:
    """This machine as profiles name it, so that it can be told whether one is of another."""
    from roofline.machine.kernels.compiler import host_features
    from roofline.machine.system.host import describe_host

    return describe_host(compiler_features=host_features)


def check_threads_of_host(threads: int) -> None:
    """Refuses a number of threads that this machine has not the CPUs for."""
    available = this_host().available_cpus
    if not 1 <= threads <= available:
        raise HardwareError(
            f"{argument('threads', threads)} does not fit this host: choose 1 to {available}"
        )


def measure_links(
    *, save: bool = True, say: Callable[[str], None] | None = None
) -> HardwareProfile:
    """This machine's profile with its links between processes, measured now over gloo.

    Links that were measured so before are replaced; all else in the profile stays.
    """
    from roofline.machine.links import measure_links as measure
    from roofline.machine.system.exclusive import exclusive_measurement

    file = catalog.host_file()
    if not file.exists():
        raise HardwareError(
            "this machine was not measured yet, and links are kept in its profile; run"
            " `roofline measure` first"
        )
    before = catalog.load_hardware(file)
    difference = before.host.difference(this_host()) if before.host else ""
    if difference:
        raise HardwareError(
            f"links are kept in this machine's profile, and that is of another host ({difference});"
            " run `roofline measure` first"
        )
    if save:
        catalog.check_user_folder()
    tell = say or silent
    with exclusive_measurement(tell):
        tell("measuring what goes between two processes over gloo")
        links = measure()
    # Read now: whoever was waited for may have measured all the rest anew.
    found = with_links(catalog.load_hardware(file), links)
    if save:
        write_atomically(file, profile_to_toml(found), overwrite=True)
    return found


def with_links(profile: HardwareProfile, links: tuple[Link, ...]) -> HardwareProfile:
    """The profile with these links, in the place of their like: same ends, same kernel."""
    new = {(each.source, each.target, each.kernel) for each in links}
    kept = [each for each in profile.links if (each.source, each.target, each.kernel) not in new]
    return replace(profile, links=(*kept, *links))


def with_links_kept(profile: HardwareProfile) -> tuple[HardwareProfile, str]:
    """A new profile of this machine with the links between processes that the old one had.

    Returns:
        The profile, and in a line what became of the links; ``""``: there were none.
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
    difference = "it does not say which"
    if profile.host is not None and before.host is not None:
        difference = before.host.difference(profile.host)
    again = "`roofline measure --links` measures them again"
    if difference:
        return profile, f"links between processes were of another host ({difference}); {again}"
    newest = max(each.provenance.date for each in links)
    torch = {each.host.versions.get("torch", "") if each.host else "" for each in (before, profile)}
    before_torch = before.host.versions.get("torch", "") if before.host else ""
    with_torch = f" with torch {before_torch}" if len(torch) > 1 else ""
    return (
        with_links(profile, links),
        f"kept the links between processes as measured on {newest}{with_torch}; {again}",
    )


Found = Callable[[Finding], None]
"""Told of a rate as it is found, and again as it gets better known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measured profile, the bursts behind it, and the file it is kept in (None: it is not).

    ``problem`` says why it could not be kept although it should be; ``""``: nothing went wrong.
    ``note`` says what became of links that an earlier profile had; ``""``: it had none.
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
    """Measures this machine's ceilings, in flop/s and byte/s.

    Only one measurement runs at a time: another one on this machine is waited for.

    Args:
        effort: ``"quick"`` takes three seconds and leaves torch's ceilings out, ``"default"`` ten,
            ``"thorough"`` minutes: every kernel then runs a second on end.
        device: ``"cpu"``, or ``"cuda"`` for the first CUDA device.
        threads: how many threads "all" means; by default one for each available core.
        progress: told how far it is.
        found: told of every rate as it is found, and again as it gets better known.
        waiting: told, in words, that another measurement is waited for.
        save: keep the profile in the user's folder, with its raw samples beside it; that of a CPU
            is where `analyze` finds it.

    Raises:
        MeasurementError: nothing could be measured here.
        HardwareError: more threads than this machine has, or no such device.
        InputError: the profile cannot be kept; said before anything is measured, unless the disk
            fills up meanwhile.
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
    """As `measure_hardware`, with the raw samples, and the file that the profile is kept in."""
    from roofline.machine.system.exclusive import exclusive_measurement

    if effort not in get_args(Effort) or effort == "unspecified":
        raise InputError(f"effort '{effort}' is unknown; choose quick, default or thorough")
    if threads is not None and type(threads) is not int:
        raise InputError(f"threads must be a whole number, got {threads!r}")
    if device not in ("cpu", "cuda"):
        raise InputError(f"device '{device}' cannot be measured; choose cpu or cuda")
    if device == "cuda" and threads is not None:
        raise HardwareError(f"a cuda device computes as a whole; leave {argument('threads')} out")
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
        # The disk filled up meanwhile: what was measured is not thrown away for that.
        problem = f"measured, but the profile could not be kept: {error}"
    return Measurement(profile=profile, series=series, file=file, problem=problem, note=note)


def explain_measurement() -> tuple[Section, ...]:
    """What `measure_hardware` will do on this machine and why, in words; measures nothing."""
    from roofline.machine.hierarchy.cache_sizes import find_levels
    from roofline.machine.hierarchy.working_sets import DRAM, plan_working_sets
    from roofline.machine.kernels.compiler import host_features
    from roofline.machine.measuring.explanation import Section, explain
    from roofline.machine.system.host_state import read_host_state

    host_state = read_host_state(compiler_features=host_features)
    count = host_state.topology.available_cpus
    # What all threads together will go over in DRAM, as far as caches are what is reported.
    levels = find_levels(None, host_state.topology).levels
    sets, _ = plan_working_sets(levels, host_state.topology, (count,), host_state.available_bytes)
    in_memory = (each.bytes_per_thread * count for each in sets if each.level == DRAM)
    last, problem = None, ""
    if catalog.host_file().exists():
        try:
            last = catalog.load_hardware(catalog.HOST)
        except RooflineError as error:
            problem = f"It cannot be read, and the next measurement takes its place: {error}"
    sections = explain(
        host_state,
        _kernels(host_state.host),
        threads=count,
        array_bytes=next(in_memory, None),
        profile_file=catalog.host_file(),
        last=last,
    )
    return (*sections, Section(title="What is kept", lines=(problem,))) if problem else sections


def _kernels(host: Host) -> KernelPlan:
    from roofline.machine.kernels import register_loop
    from roofline.machine.kernels.compute import COMPUTE_KERNELS, compute_kernels
    from roofline.machine.measuring.explanation import KernelPlan

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
    for each in here:
        if not each.unit.instruction_sets <= sets:
            lacking.setdefault(each.unit.name, set()).update(each.unit.instruction_sets - sets)
        elif each.unit.name not in refused:
            able.setdefault(str(each.dtype), {}).setdefault(each.name, []).append(each.unit.name)
    measured: list[str] = []
    for element, by_kernel in able.items():
        kernels = [f"{name} on {_words(on)}" for name, on in by_kernel.items()]
        measured.append(f"{element} ({', '.join(kernels)})")
    return KernelPlan(
        measured=tuple(measured),
        lacking={unit: ", ".join(sorted(missing)) for unit, missing in lacking.items()},
        refused=refused,
        used_sets=frozenset(name for each in here for name in each.unit.instruction_sets),
    )


def _words(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
