"""Measuring this machine: alone on it, and kept where it is found again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from roofline.errors import HardwareError, InputError
from roofline.foundation.progress import Progress, silent
from roofline.machine import catalog
from roofline.machine.hardware import Device, Effort, HardwareProfile
from roofline.machine.measuring.samples import Series
from roofline.machine.measuring.schedule import Finding
from roofline.pipeline.hosts import check_threads_of_host
from roofline.pipeline.links import with_links_kept

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
    from roofline.machine.system.exclusive import alone_on_this_machine

    if effort not in get_args(Effort) or effort == "unspecified":
        raise InputError(f"effort '{effort}' is unknown; choose quick, default or thorough")
    if threads is not None and type(threads) is not int:
        raise InputError(f"threads must be a whole number, got {threads!r}")
    if device not in ("cpu", "cuda"):
        raise InputError(f"device '{device}' cannot be measured; choose cpu or cuda")
    if device == "cuda" and threads is not None:
        raise HardwareError("a cuda device computes as a whole; leave --threads out")
    if threads is not None:
        check_threads_of_host(threads)
    if save:
        catalog.check_user_folder()
    with alone_on_this_machine(waiting or silent):
        if device == "cuda":
            from roofline.machine.gpu import measure_gpu

            kept: list[Series] = []
            profile = measure_gpu(effort=effort, progress=progress, found=found, keep=kept.append)
            series = tuple(kept)
        else:
            from roofline.machine.measuring.benchmark import measure_hardware as measure

            profile, series = measure(
                effort=effort, threads=threads, progress=progress, found=found
            )
    profile, note = with_links_kept(profile)
    if not save:
        return Measurement(profile=profile, series=series, file=None, note=note)
    try:
        file = catalog.save_measured_profile(profile, series)
    except InputError as error:
        # The disk filled up meanwhile: what was measured is not thrown away for that.
        problem = f"measured, but the profile could not be kept: {error}"
        return Measurement(profile=profile, series=series, file=None, problem=problem, note=note)
    return Measurement(profile=profile, series=series, file=file, note=note)
