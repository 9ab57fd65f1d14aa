"""What was learned of a machine, found beside its profile, and loaded once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from roofline.core.progress import Progress
from roofline.errors import FileFormatError, HardwareError, InputError, argument
from roofline.latency.allocator import DEFAULT, Allocator, allocator_here
from roofline.latency.calibration import Calibration
from roofline.latency.predictor import Predictor
from roofline.latency.samples import RunSample
from roofline.latency.store import Environment, Store, read_runs
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile, Host
from roofline.machine.system.host import package_version
from roofline.pipeline.measuring import measure_hardware, measure_with_samples, this_host
from roofline.run import Run

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
    if means_host(hardware):
        return host_hardware(progress)
    return catalog.load_hardware(str(hardware)), ()


def means_host(hardware: Hardware | None) -> bool:
    """Whether this machine is asked for: by None, as ``"host"``, or by the name in its profile."""
    if isinstance(hardware, HardwareProfile):
        return False
    return hardware is None or str(hardware) in (catalog.HOST, catalog.name_of_host())


def is_this_machine(hardware: object) -> bool:
    """Whether the host is meant."""
    if isinstance(hardware, HardwareProfile):
        return hardware.name == catalog.name_of_host()
    return hardware is None or means_host(str(hardware))


def threads_on(profile: HardwareProfile, threads: int | None, *, alone: bool) -> int:
    """How many threads of a machine compute; beside others, `threads` means those of CPUs."""
    if threads is None or (not alone and profile.device != "cpu"):
        return profile.threads
    if not alone and threads > profile.threads:
        raise HardwareError(
            f"{argument('threads', threads)} is for every CPU, and '{profile.name}' has"
            f" {profile.threads}: leave it out, and each machine uses all of its threads"
        )
    return profile.check_threads(threads)


_loaded: dict[Path, tuple[tuple[object, ...], Predictor | None]] = {}
"""By file, with what told that it was the same: a search asks thousands of times."""


def latency_file(profile: Path) -> Path:
    """The file of the samples of a machine, next to its profile: ``host.latency.sqlite``."""
    return profile.with_suffix(".latency.sqlite")


def host_latency_file() -> Path:
    """The file of the samples of this machine; it need not exist."""
    return latency_file(catalog.host_file())


def host_environment() -> Environment:
    """Where and with what is measured now."""
    return Environment(host=this_host(), torch=package_version("torch"))


def predictor_of(profile: HardwareProfile, named: Hardware | None, run: Run) -> Predictor | None:
    """What was learned on the machine of a profile of such runs; None: nothing.

    Learned is of eager inference by operators for the device of the profile. Samples are next to
    the file of the profile, as it was `named`. Those of this machine are used only with the torch
    that they were measured with, and notes of the predictor say so where they are not.
    """
    if run.train or run.autocast or run.device != profile.device:
        return None
    file = latency_file(_file_of(profile, named))
    return _loaded_from(file, profile) if file.exists() else None


def _file_of(profile: HardwareProfile, named: Hardware | None) -> Path:
    if means_host(named):
        return catalog.host_file()
    if not isinstance(named, HardwareProfile):
        return catalog.find_hardware(str(named))
    # A value has no file: it is this machine's, or that of a name.
    of_host = catalog.host_file()
    if profile.name == catalog.name_of_host() or not of_host.parent.is_dir():
        return of_host
    return catalog.user_folder() / f"{profile.name}.toml"


def _loaded_from(file: Path, profile: HardwareProfile) -> Predictor | None:
    # What changes when samples are added: they are in the log before they are in the file.
    stamp: list[object] = [profile.host]
    for path in (file, file.with_name(f"{file.name}-wal")):
        try:
            state = path.stat()
            stamp += [state.st_mtime_ns, state.st_size]
        except OSError:
            stamp.append(None)
    known = _loaded.get(file)
    if known is None or known[0] != tuple(stamp):
        known = _loaded[file] = tuple(stamp), _read(file, profile)
    return known[1]


def _read(file: Path, profile: HardwareProfile) -> Predictor | None:
    if profile.host is None:
        return None
    is_of_host = file == host_latency_file()
    if is_of_host:
        if profile.host.difference(this_host()):
            # Measured here, and put under the roof of another machine.
            return None
        calibration, notes = _of_host(file, profile)
    else:
        try:
            kept = read_runs(file, profile.host)
        except FileFormatError as error:
            return Predictor(calibration=Calibration(()), notes=(str(error),))
        calibration, notes = calibration_of(kept[1] if kept else (), profile), ()
        if kept is not None:
            notes = (f"predicted for {profile.name} with torch {kept[0].torch}",)
    if not calibration.runs and not notes:
        return None
    allocator = allocator_here() if is_of_host else _usual_allocator(profile.host)
    return Predictor(
        calibration=calibration,
        notes=tuple(notes),
        is_of_host=is_of_host,
        allocator=allocator,
        page_fault_s=profile.page_fault_s(huge=allocator.has_huge_pages),
        lanes=lanes_of(profile),
    )


def _usual_allocator(host: Host) -> Allocator:
    """Return the allocator of processes on another machine: glibc, unless its system has none."""
    system = host.operating_system
    if any(each in system for each in _WITHOUT_GLIBC):
        return Allocator(library=f"the allocator of {system}", settings=None)
    return DEFAULT


_WITHOUT_GLIBC = ("Darwin", "Windows", "Alpine")
"""Parts of names of operating systems."""


def lanes_of(profile: HardwareProfile) -> int:
    """float32 elements in a vector register of a CPU."""
    sets = profile.host.instruction_sets if profile.host else ()
    return 16 if any(each.startswith("avx512") for each in sets) else 8


def _of_host(file: Path, profile: HardwareProfile) -> tuple[Calibration, tuple[str, ...]]:
    """What was learned on this machine, and what to say of it."""
    here = host_environment()
    try:
        with Store(file, here) as store:
            return calibration_of(store.runs(), profile), store.unused()
    except FileFormatError as error:
        return Calibration(()), (str(error),)
    except InputError:
        # What cannot be written can be read all the same.
        kept = read_runs(file, here.host)
        if kept is None or kept[0].difference(here):
            return Calibration(()), ()
        return calibration_of(kept[1], profile), ()


def calibration_of(runs: Iterable[RunSample], profile: HardwareProfile) -> Calibration:
    """What was learned from runs; page faults cost what the profile says."""
    # Settings of the process that predicts say nothing of those that were measured.
    return Calibration(runs, page_fault_s=profile.page_fault_s())
