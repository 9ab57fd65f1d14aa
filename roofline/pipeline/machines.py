"""Which machine is meant: given, named, or this one, measured first if it never was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from roofline.errors import HardwareError, InputError
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile

Progress = Callable[[float, str], None]
"""Told how far a measurement is (0 to 1) and what it is doing."""

Hardware = HardwareProfile | str | Path


def measure_hardware(
    *, threads: int | None = None, progress: Progress | None = None, save: bool = True
) -> HardwareProfile:
    """Measures this machine's ceilings, in flop/s and byte/s; takes about ten seconds.

    Args:
        threads: how many threads "all" means; by default one for each available core.
        progress: told how far it is.
        save: keep the profile in the user's folder, where `analyze` finds it.

    Raises:
        MeasurementError: nothing could be measured here.
        HardwareError: more threads than this machine has.
        InputError: the profile could not be kept; said before anything is measured.
    """
    from roofline.machine.benchmark import measure_hardware as measure

    if save:
        catalog.check_user_folder()
    profile = measure(threads=threads, progress=progress)
    if save:
        catalog.save_host_profile(profile)
    return profile


def host_hardware(progress: Progress | None = None) -> tuple[HardwareProfile, tuple[str, ...]]:
    """This machine's profile, measured first if it never was, and what to know about it."""
    from roofline.machine.host import describe_host

    if not catalog.host_file().exists():
        try:
            catalog.check_user_folder()
        except InputError as error:
            # Ten seconds of measuring are not thrown away because they cannot be kept.
            profile = measure_hardware(progress=progress, save=False)
            return profile, (f"this machine's profile could not be kept: {error}",)
        return measure_hardware(progress=progress), ()
    return catalog.still_valid(catalog.load_hardware(catalog.HOST), describe_host())


def hardware_for(
    hardware: Hardware | None, progress: Progress | None = None
) -> tuple[HardwareProfile, tuple[str, ...]]:
    """The profile that is meant: given, named, or (None, ``"host"``) that of this machine."""
    if isinstance(hardware, HardwareProfile):
        return hardware, ()
    if hardware is None or means_host(hardware):
        return host_hardware(progress)
    return catalog.load_hardware(hardware), ()


def means_host(hardware: str | Path) -> bool:
    """Whether the name is that of this machine: ``"host"``, or the one in its profile."""
    return str(hardware) in (catalog.HOST, catalog.name_of_host())


def threads_on(profile: HardwareProfile, threads: int | None, *, alone: bool) -> int:
    """How many threads of a machine compute; beside others, `threads` means those of CPUs.

    Raises:
        HardwareError: the machine does not have so many.
    """
    if threads is None or (not alone and profile.device != "cpu"):
        return profile.threads
    if not alone and threads > profile.threads:
        raise HardwareError(
            f"--threads {threads} is for every CPU, and '{profile.name}' has {profile.threads}:"
            " leave it out, and each machine uses all of its threads"
        )
    return profile.check_threads(threads)


def check_threads_of_host(threads: int) -> None:
    """Raises HardwareError where this machine, which was not measured yet, has fewer CPUs."""
    from roofline.machine.host import describe_host

    available = describe_host().available_cpus
    if threads > available:
        raise HardwareError(f"--threads {threads}: this machine has {available} CPUs available")
