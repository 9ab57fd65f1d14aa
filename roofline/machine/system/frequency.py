"""What the system says about the clock of its cores: governor, limits, boost, a hypervisor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roofline.foundation.units import format_si
from roofline.machine.system.system_files import read, table, whole_number

_AUTONOMOUS_DRIVERS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""There the governor 'powersave' is the usual one and reaches every clock."""

_SLOW_GOVERNORS = ("powersave", "userspace")
_LATE_GOVERNORS = ("ondemand", "conservative", "schedutil")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequency:
    """How the clock of some cores is governed; fields are empty or None where it is not told.

    ``limit_hz`` is the most that the settings permit, ``most_hz`` the most that the hardware is
    said to reach, both of the fastest of the cores; ``boost`` whether clocks above the base are
    permitted. ``hypervisor`` is True in a virtual machine, whose host governs the clock.
    """

    governors: tuple[str, ...]
    driver: str
    limit_hz: float | None
    most_hz: float | None
    boost: bool | None
    hypervisor: bool


def read_frequency(root: Path, cpus: tuple[int, ...]) -> Frequency:
    """What ``/proc`` and ``/sys`` under `root` say of the clock of these CPUs."""
    folder = root / "sys/devices/system/cpu"
    scaling = [folder / f"cpu{cpu}/cpufreq" for cpu in cpus]
    governors = {read(each / "scaling_governor") for each in scaling}
    return Frequency(
        governors=tuple(sorted(name for name in governors if name.isidentifier())),
        driver=read(scaling[0] / "scaling_driver") if scaling else "",
        limit_hz=_most_hz([each / "scaling_max_freq" for each in scaling]),
        most_hz=_most_hz([each / "cpuinfo_max_freq" for each in scaling]),
        boost=_boost(folder),
        hypervisor=_is_virtual(root),
    )


def _most_hz(files: list[Path]) -> float | None:
    kilohertz = [number for file in files if (number := whole_number(read(file)))]
    return max(kilohertz) * 1e3 if kilohertz else None


def _boost(folder: Path) -> bool | None:
    off = read(folder / "intel_pstate/no_turbo")
    on = read(folder / "cpufreq/boost")
    if off in ("0", "1"):
        return off == "0"
    return on == "1" if on in ("0", "1") else None


def _is_virtual(root: Path) -> bool:
    flags = table(read(root / "proc/cpuinfo")).get("flags", "").split()
    kind = read(root / "sys/hypervisor/type")
    return "hypervisor" in flags or bool(kind)


def frequency_conditions(frequency: Frequency) -> list[str]:
    """What keeps the clock below what the CPU can do, in words; empty: nothing that is told."""
    found: list[str] = []
    autonomous = frequency.driver in _AUTONOMOUS_DRIVERS
    for governor in frequency.governors:
        if governor in _SLOW_GOVERNORS and not autonomous:
            found.append(
                f"governor: '{governor}' keeps the clock below what the CPU can do; for its"
                " ceilings set 'performance' (`cpupower frequency-set -g performance`)"
            )
        elif governor in _LATE_GOVERNORS:
            found.append(
                f"governor: '{governor}' raises the clock only after a while of work; the first"
                " bursts may be slower"
            )
    if frequency.boost is False:
        found.append("boost is off: the clock stays at its base, and so do the ceilings")
    limit, most = frequency.limit_hz, frequency.most_hz
    if limit is not None and most is not None and limit < most:
        found.append(
            f"the clock is limited to {format_si(limit, 'Hz')} by its settings"
            f" (scaling_max_freq); the CPU is said to reach {format_si(most, 'Hz')}"
        )
    return found
