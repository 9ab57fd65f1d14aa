"""Which machine is meant: given, named, or this one, measured first if it never was."""

from __future__ import annotations

from pathlib import Path

from roofline.errors import HardwareError, InputError
from roofline.foundation.progress import Progress
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.hosts import this_host
from roofline.pipeline.measuring import measure_hardware, measure_with_samples

Hardware = HardwareProfile | str | Path


def host_hardware(progress: Progress | None = None) -> tuple[HardwareProfile, tuple[str, ...]]:
    """This machine's profile, measured first if it never was, and what to know about it."""
    if not catalog.host_file().exists():
        try:
            catalog.check_user_folder()
        except InputError as error:
            # Ten seconds of measuring are not thrown away because they cannot be kept.
            profile = measure_hardware(progress=progress, save=False)
            return profile, (f"this machine's profile could not be kept: {error}",)
        measured = measure_with_samples(progress=progress)
        return measured.profile, (measured.problem,) if measured.problem else ()
    return catalog.still_valid(catalog.load_hardware(catalog.HOST), this_host())


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
