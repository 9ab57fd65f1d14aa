"""Machine profiles and their predictors, loaded once from calibration data next to a profile."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roofline.core.files import read_json, refused
from roofline.core.progress import Progress
from roofline.core.schema import from_data
from roofline.errors import FileFormatError, HardwareError, InputError, argument
from roofline.latency import generic
from roofline.latency.allocator import DEFAULT, Allocator, allocator_here
from roofline.latency.calibration import Calibration
from roofline.latency.prediction import MachinePredictor
from roofline.latency.prediction_cache import PredictionCache
from roofline.latency.predictor import Predictor
from roofline.latency.samples import RunSample
from roofline.latency.store import Environment, Store, read_runs
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile, Host
from roofline.machine.system.host import package_version
from roofline.pipeline import cache
from roofline.pipeline.measuring import measure_hardware, measure_with_samples, this_host
from roofline.run import Run

if TYPE_CHECKING:
    from roofline.latency.gpu.corrections import MachineTimes

Hardware = HardwareProfile | str | Path


def host_profile(progress: Progress | None = None) -> tuple[HardwareProfile, tuple[str, ...]]:
    """Return the profile of this machine, measured first if it is missing, and notes on it."""
    if not catalog.host_file().exists():
        try:
            catalog.check_user_folder()
        except InputError as error:
            # Use the measurement even if it cannot be saved.
            profile = measure_hardware(progress=progress, save=False)
            return profile, (f"this machine's profile could not be saved: {error}",)
        measured = measure_with_samples(progress=progress)
        return measured.profile, (measured.problem,) if measured.problem else ()
    return catalog.validate_for_host(catalog.load_hardware(catalog.HOST), this_host())


def resolve_hardware(
    hardware: Hardware | None, progress: Progress | None = None
) -> tuple[HardwareProfile, tuple[str, ...]]:
    """Return the profile given, named, or (None, ``"host"``) that of this machine, with notes."""
    if isinstance(hardware, HardwareProfile):
        return hardware, ()
    if names_host(hardware):
        return host_profile(progress)
    return catalog.load_hardware(str(hardware)), ()


def names_host(hardware: Hardware | None) -> bool:
    """Return True for this machine: None, ``"host"``, or the name in its profile."""
    if isinstance(hardware, HardwareProfile):
        return False
    return hardware is None or str(hardware) in (catalog.HOST, catalog.host_profile_name())


def is_this_machine(hardware: object) -> bool:
    """Return True if a profile or a name is that of this machine."""
    if isinstance(hardware, HardwareProfile):
        return hardware.name == catalog.host_profile_name()
    return hardware is None or names_host(str(hardware))


def threads_on(profile: HardwareProfile, threads: int | None, *, alone: bool) -> int:
    """Return the number of compute threads; among several machines, `threads` is for CPUs."""
    if threads is None or (not alone and profile.device != "cpu"):
        return profile.threads
    if not alone and threads > profile.threads:
        raise HardwareError(
            f"{argument('threads', threads)} applies to every CPU, but '{profile.name}' has"
            f" {profile.threads}; leave it out to use all threads of each machine"
        )
    return profile.check_threads(threads)


_loaded: dict[tuple[Path, bool], tuple[tuple[object, ...], Predictor | None, Path | None]] = {}
"""By file, and whether predictions are cached on disk: stamp, predictor, and file of predictions.

A search needs them thousands of times.
"""

_DEFINED_BY = (
    *("latency", "latency/generic.json", "core", "errors.py", "machine/hardware"),
    *("machine/core_state.py", "pipeline/machines.py"),
)
"""Sources of this package that predictions depend on."""


def latency_file(profile: Path) -> Path:
    """Return the file of the samples of a machine, next to its profile: ``host.latency.sqlite``."""
    return profile.with_suffix(".latency.sqlite")


def host_latency_file() -> Path:
    """Return the file of the samples of this machine; it need not exist."""
    return latency_file(catalog.host_file())


def host_environment() -> Environment:
    """Return the host and the torch version of measurements made now."""
    return Environment(host=this_host(), torch=package_version("torch"))


def load_predictor(
    profile: HardwareProfile, named: Hardware | None, run: Run, *, no_cache: bool = False
) -> MachinePredictor | None:
    """Return the predictor of a machine for a run; None where nothing similar was measured.

    CPUs have their own calibration data or the generic model, NVIDIA GPUs what was learned from
    public measurements, and from their own if there are some.
    """
    if profile.device == "cuda" and run.device == "cuda":
        # Analyses on CPUs start without these modules.
        from roofline.latency.gpu.chips import chip_of
        from roofline.latency.gpu.corrections import corrections_of
        from roofline.latency.gpu.learned import shipped
        from roofline.latency.gpu.predictor import GpuPredictor

        if chip := chip_of(profile):
            own = read_times(profile, named)
            known = corrections_of(own.kernels, chip, shipped()) if own else {}
            return GpuPredictor(chip=chip, corrections=known)
    calibrated = load_calibrated(profile, named, run, no_cache=no_cache)
    if calibrated is not None and calibrated.calibration.has_runs:
        return calibrated
    return _generic(profile, run, calibrated.notes if calibrated else ()) or calibrated


def _generic(profile: HardwareProfile, run: Run, notes: tuple[str, ...]) -> Predictor | None:
    """Return the predictor of a CPU without calibration data: the generic model, if it holds."""
    calibration = calibration_of((), profile)
    is_plain = not (run.train or run.autocast or run.channels_last)
    is_plain = is_plain and run.device == profile.device
    if not is_plain or calibration.prior is None:
        return None
    is_here = profile.host is not None and is_this_machine(profile)
    return _predictor(profile, calibration, notes, is_here=is_here)


def _predictor(
    profile: HardwareProfile, calibration: Calibration, notes: tuple[str, ...], *, is_here: bool
) -> Predictor:
    allocator = allocator_here() if is_here else _usual_allocator(profile.host)
    if calibration.prior and calibration.uses_prior:
        by = "from few models with the" if calibration.has_runs else "by the"
        where = "for this host" if is_here else "on that machine"
        learned = f"{by} {calibration.prior.description}"
        notes = (*notes, f"predicted {learned}; run `roofline calibrate` {where}")
    return Predictor(
        calibration=calibration,
        notes=notes,
        is_of_host=is_here,
        allocator=allocator,
        page_fault_s=profile.page_fault_s(huge=allocator.has_huge_pages),
        lanes=vector_lanes(profile),
    )


def times_file(profile: HardwareProfile, named: Hardware | None) -> Path:
    """Return the file of a GPU's measured times, in the user's folder or next to its profile."""
    file = _file_of(profile, named)
    folder = catalog.user_folder() if file.parent == catalog.bundled_folder() else file.parent
    # Names can have slashes, and be too long for a file; `read_times` compares them.
    return folder / f"{Path(profile.name[-60:]).name}.times.json"


def read_times(profile: HardwareProfile, named: Hardware | None) -> MachineTimes | None:
    """Return the measured times of a GPU; None without any.

    Raises:
        FileFormatError: their file is damaged, or of another machine.
    """
    from roofline.latency.gpu.corrections import MachineTimes

    file = times_file(profile, named)
    if not file.exists():
        return None
    fix = "remove it; `roofline calibrate --from FILE` learns again"
    found = from_data(MachineTimes, read_json(file, fix=fix), file=str(file), fix=fix)
    if found.machine != profile.name:
        raise refused(str(file), f"has times of '{found.machine}', not of '{profile.name}'", fix)
    return found


def load_calibrated(
    profile: HardwareProfile, named: Hardware | None, run: Run, *, no_cache: bool = False
) -> Predictor | None:
    """Return the predictor of a machine for a run; None without calibration data.

    Calibration data are of eager inference on the device of the profile, in a file next to the
    profile as it was `named`. Data of this machine from another torch are not used, which a note
    reports. With `no_cache`, predictions on disk are neither read nor written.
    """
    if run.train or run.autocast or run.device != profile.device:
        return None
    file = latency_file(_file_of(profile, named))
    if not file.exists():
        return None
    is_cached = not no_cache and not cache.is_off()
    stamp = profile.host, _stamp(file)
    known = _loaded.get((file, is_cached))
    if known is None or known[0] != stamp:
        place = _predictions_file(file, profile) if is_cached else None
        known = _loaded[file, is_cached] = stamp, _read(file, profile, place), place
    return known[1]


def _file_of(profile: HardwareProfile, named: Hardware | None) -> Path:
    if names_host(named):
        return catalog.host_file()
    if not isinstance(named, HardwareProfile):
        return catalog.find_hardware(str(named))
    # Profiles without a file: that of this machine, or one in the user's folder.
    of_host = catalog.host_file()
    if profile.name == catalog.host_profile_name() or not of_host.parent.is_dir():
        return of_host
    return catalog.user_folder() / f"{profile.name}.toml"


def _stamp(file: Path) -> tuple[object, ...]:
    """Return file states that change when samples are added, to the log or the file."""
    found: list[object] = []
    for path in (file, file.with_name(f"{file.name}-wal")):
        with contextlib.suppress(OSError):
            state = path.stat()
            found += [state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino]
            with path.open("rb") as content:
                # The header of SQLite counts changes.
                found.append(content.read(100))
    return tuple(found)


def _predictions_file(file: Path, profile: HardwareProfile) -> Path:
    """Return the cache file of the predictions that follow from the samples in a file."""
    # The last digits of numbers depend on the libraries of numpy and its threads.
    numbers = [np.__version__, *map(os.environ.get, ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"))]
    machine = profile.name, profile.host, sorted(profile.page_fault_s().items())
    parts = file.absolute(), _stamp(file), machine, host_environment(), numbers
    return cache.file_of("prediction", parts, sources=_DEFINED_BY)


@atexit.register
def save_predictions() -> None:
    """Write new predictions of this process to disk, unless samples changed meanwhile."""
    for (file, _), (stamp, predictor, place) in _loaded.items():
        if place and predictor and stamp[1] == _stamp(file):
            predictions = predictor.calibration.cache
            if predictions.should_be_saved:
                cache.keep(place, predictions.values)


def _read(file: Path, profile: HardwareProfile, place: Path | None) -> Predictor | None:
    if profile.host is None:
        return None
    is_of_host = file == host_latency_file()
    # Otherwise samples of this machine would predict another one.
    if is_of_host and profile.host.difference(this_host()):
        return None
    kept = cache.read(place) if place else None
    predictions = PredictionCache(kept if isinstance(kept, dict) else None)
    read = functools.cache(functools.partial(_read_samples, file, profile))
    try:
        notes = predictions.get("notes", lambda: read()[1])
    except FileFormatError as error:
        calibration, notes = Calibration(()), (str(error),)
    else:
        calibration = calibration_of(lambda: read()[0], profile, predictions)
    if not calibration.has_runs:
        # Callers that need data of this machine see the notes.
        return _predictor(profile, Calibration(()), notes, is_here=is_of_host) if notes else None
    return _predictor(profile, calibration, notes, is_here=is_of_host)


def _usual_allocator(host: Host | None) -> Allocator:
    """Return the allocator of processes on another machine: glibc, unless its system has none."""
    system = host.operating_system if host else ""
    if any(each in system for each in _WITHOUT_GLIBC):
        return Allocator(library=f"the allocator of {system}", settings=None)
    return DEFAULT


_WITHOUT_GLIBC = ("Darwin", "Windows", "Alpine")
"""Parts of names of operating systems."""


def vector_lanes(profile: HardwareProfile) -> int:
    """Return the float32 elements in a vector register of a CPU."""
    sets = profile.host.instruction_sets if profile.host else ()
    return 16 if any(each.startswith("avx512") for each in sets) else 8


def _read_samples(
    file: Path, profile: HardwareProfile
) -> tuple[tuple[RunSample, ...], tuple[str, ...]]:
    """Return the runs in a file, and notes on them."""
    if file != host_latency_file():
        kept = read_runs(file, profile.host) if profile.host else None
        if kept is None:
            return (), ()
        return kept[1], (f"predicted for {profile.name} with torch {kept[0].torch}",)
    here = host_environment()
    try:
        with Store(file, here) as store:
            return store.runs(), store.unused_samples()
    except FileFormatError:
        raise
    except InputError:
        # A file that cannot be written can still be read.
        kept = read_runs(file, here.host)
        return ((), ()) if kept is None or kept[0].difference(here) else (kept[1], ())


def calibration_of(
    runs: Iterable[RunSample] | Callable[[], Iterable[RunSample]],
    profile: HardwareProfile,
    predictions: PredictionCache | None = None,
) -> Calibration:
    """Return the calibration from runs, with the cost of page faults in the profile.

    The generic model is its prior on CPUs with the memory levels under which it was learned.
    """
    is_hierarchical = len(profile.memory) >= _HIERARCHY and bool(profile.compute)
    prior = generic.shipped() if profile.device == "cpu" and is_hierarchical else None
    # The allocator of this process does not matter: the runs were measured in others.
    page_fault_s = profile.page_fault_s()
    return Calibration(runs, page_fault_s=page_fault_s, cache=predictions, prior=prior)


_HIERARCHY = 3
"""Fewest memory levels of a machine that the generic model predicts."""
