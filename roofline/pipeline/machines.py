"""What was learned of a machine, found beside its profile, and loaded once."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from roofline.core.progress import Progress
from roofline.errors import FileFormatError, HardwareError, InputError, argument
from roofline.latency.allocator import DEFAULT, Allocator, allocator_here
from roofline.latency.answers import Answers
from roofline.latency.calibration import Calibration
from roofline.latency.predictor import Predictor
from roofline.latency.samples import RunSample
from roofline.latency.store import Environment, Store, read_runs
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile, Host
from roofline.machine.system.host import package_version
from roofline.pipeline import cache
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
    return hardware is None or str(hardware) in (catalog.HOST, catalog.host_profile_name())


def is_this_machine(hardware: object) -> bool:
    """Whether the host is meant."""
    if isinstance(hardware, HardwareProfile):
        return hardware.name == catalog.host_profile_name()
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


_loaded: dict[tuple[Path, bool], tuple[tuple[object, ...], Predictor | None, Path | None]] = {}
"""By file, and whether answers are kept: its stamp, its predictor, and the file of the answers. A
search needs them thousands of times."""

_FOLLOWS_FROM = (
    *("latency", "core", "errors.py", "machine/hardware", "machine/core_state.py"),
    "pipeline/machines.py",
)
"""Sources of this package that answers follow from."""


def latency_file(profile: Path) -> Path:
    """The file of the samples of a machine, next to its profile: ``host.latency.sqlite``."""
    return profile.with_suffix(".latency.sqlite")


def host_latency_file() -> Path:
    """The file of the samples of this machine; it need not exist."""
    return latency_file(catalog.host_file())


def host_environment() -> Environment:
    """Where and with what is measured now."""
    return Environment(host=this_host(), torch=package_version("torch"))


def predictor_of(
    profile: HardwareProfile, named: Hardware | None, run: Run, *, no_cache: bool = False
) -> Predictor | None:
    """What was learned on the machine of a profile of such runs; None: nothing.

    Learned is of eager inference by operators for the device of the profile. Samples are next to
    the file of the profile, as it was `named`. Those of this machine are used only with the torch
    that they were measured with, and notes of the predictor say so where they are not. With
    `no_cache`, no answers of earlier processes are read, and none are kept.
    """
    if run.train or run.autocast or run.device != profile.device:
        return None
    file = latency_file(_file_of(profile, named))
    is_kept = not no_cache and not cache.is_off()
    return _loaded_from(file, profile, is_kept=is_kept) if file.exists() else None


def _file_of(profile: HardwareProfile, named: Hardware | None) -> Path:
    if means_host(named):
        return catalog.host_file()
    if not isinstance(named, HardwareProfile):
        return catalog.find_hardware(str(named))
    # A value has no file: it is this machine's, or that of a name.
    of_host = catalog.host_file()
    if profile.name == catalog.host_profile_name() or not of_host.parent.is_dir():
        return of_host
    return catalog.user_folder() / f"{profile.name}.toml"


def _loaded_from(file: Path, profile: HardwareProfile, *, is_kept: bool) -> Predictor | None:
    stamp = profile.host, _stamp(file)
    known = _loaded.get((file, is_kept))
    if known is None or known[0] != stamp:
        place = _answers_file(file, profile) if is_kept else None
        known = _loaded[file, is_kept] = stamp, _read(file, profile, place), place
    return known[1]


def _stamp(file: Path) -> tuple[object, ...]:
    """Return what changes when samples are added, which go to the log before the file."""
    found: list[object] = []
    for path in (file, file.with_name(f"{file.name}-wal")):
        with contextlib.suppress(OSError):
            state = path.stat()
            found += [state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino]
            with path.open("rb") as content:
                # SQLite counts changes in its header.
                found.append(content.read(100))
    return tuple(found)


def _answers_file(file: Path, profile: HardwareProfile) -> Path:
    """Return where the answers are kept that follow from the samples in a file."""
    # The last digits of numbers depend on the library of numpy, and its threads.
    numbers = [np.__version__, *map(os.environ.get, ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"))]
    machine = profile.name, profile.host, sorted(profile.page_fault_s().items())
    parts = file.absolute(), _stamp(file), machine, host_environment(), numbers
    return cache.file_of("prediction", parts, sources=_FOLLOWS_FROM)


@atexit.register
def keep_answers() -> None:
    """Keep what was answered in this process, where samples are what they were."""
    for (file, _), (stamp, predictor, place) in _loaded.items():
        if place and predictor and stamp[1] == _stamp(file):
            answers = predictor.calibration.answers
            if answers.are_worth_keeping:
                cache.keep(place, answers.known)


def _read(file: Path, profile: HardwareProfile, place: Path | None) -> Predictor | None:
    if profile.host is None:
        return None
    is_of_host = file == host_latency_file()
    # Else measured here, and put under the roof of another machine.
    if is_of_host and profile.host.difference(this_host()):
        return None
    kept = cache.read(place) if place else None
    answers = Answers(kept if isinstance(kept, dict) else None)
    found = functools.cache(functools.partial(_found_in, file, profile))
    try:
        notes = answers.of("notes", lambda: found()[1])
    except FileFormatError as error:
        calibration, notes = Calibration(()), (str(error),)
    else:
        calibration = calibration_of(lambda: found()[0], profile, answers)
    if not calibration.has_runs and not notes:
        return None
    allocator = allocator_here() if is_of_host else _usual_allocator(profile.host)
    return Predictor(
        calibration=calibration,
        notes=notes,
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


_Found = tuple[tuple[RunSample, ...], tuple[str, ...]]


def _found_in(file: Path, profile: HardwareProfile) -> _Found:
    """The runs in a file, and what to say of them."""
    if file != host_latency_file():
        kept = read_runs(file, profile.host) if profile.host else None
        if kept is None:
            return (), ()
        return kept[1], (f"predicted for {profile.name} with torch {kept[0].torch}",)
    here = host_environment()
    try:
        with Store(file, here) as store:
            return store.runs(), store.unused()
    except FileFormatError:
        raise
    except InputError:
        # What cannot be written can be read all the same.
        kept = read_runs(file, here.host)
        return ((), ()) if kept is None or kept[0].difference(here) else (kept[1], ())


def calibration_of(
    runs: Iterable[RunSample] | Callable[[], Iterable[RunSample]],
    profile: HardwareProfile,
    answers: Answers | None = None,
) -> Calibration:
    """What was learned from runs; page faults cost what the profile says."""
    # Settings of the process that predicts say nothing of those that were measured.
    return Calibration(runs, page_fault_s=profile.page_fault_s(), answers=answers)
