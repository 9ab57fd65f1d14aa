"""Sensors of a device: read through NVML, and what they say about a measurement, in words.

They are only read; no setting of the device is touched. pynvml comes with the extra ``nvidia``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from roofline.errors import error_text
from roofline.machine.gpu.device import DeviceProperties, Reading

FIXED_CLOCKS = "clocks that someone set"
_LIMITS = {
    0x2: FIXED_CLOCKS,
    0x4: "the power cap",
    0x8: "a hardware slowdown",
    0x10: "a slower device of the same boost group",
    0x20: "heat",
    0x40: "heat",
    0x80: "the power brake",
}
"""NVML's bits (nvmlClocksEventReasons); idle and display settings are left out: nothing is lost."""

_FAULTY = frozenset(_LIMITS[bit] for bit in (0x8, 0x20, 0x80))
"""Limits that say that something is wrong; a power cap is how the device was built."""

_SM_CLOCK, _MEMORY_CLOCK, _CORE_TEMPERATURE = 1, 2, 0
_UNCORRECTED, _SINCE_BOOT = 1, 0

_BUSY = 0.05
"""Load by others from which they cost something that can be seen."""

_MOST_NAMES = 4


class Telemetry:
    """Reads the device of a UUID (``"GPU-…"``); ``obstacle`` says why it cannot, or ``""``."""

    def __init__(self, uuid: str, nvml: Any = None) -> None:
        self._nvml: Any = nvml
        self._handle: Any = None
        self.obstacle = ""
        try:
            self._nvml = nvml or importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        except ImportError:
            self.obstacle = "pynvml is not installed (`pip install nvidia-ml-py`)"
        except Exception as error:
            self.obstacle = f"NVML does not answer ({error_text(error) or type(error).__name__})"

    def driver(self) -> str:
        """The driver's version; ``""`` if it cannot be asked."""
        answer = self._asked(lambda nvml: nvml.nvmlSystemGetDriverVersion())
        return answer.decode() if isinstance(answer, bytes) else str(answer or "")

    def reading(self) -> Reading | None:
        """What the sensors say now; a value that this device does not tell is None."""
        if self.obstacle:
            return None
        ecc = self._ask("EccMode")
        others = self._ask("ComputeRunningProcesses")
        power_mw, usage = self._ask("PowerUsage"), self._ask("UtilizationRates")
        # The function was renamed; old packages know only the old name.
        limits = self._ask("CurrentClocksEventReasons")
        if limits is None:
            limits = self._ask("CurrentClocksThrottleReasons")
        return Reading(
            clock_hz=_scaled(self._ask("ClockInfo", _SM_CLOCK), 1e6),
            memory_clock_hz=_scaled(self._ask("ClockInfo", _MEMORY_CLOCK), 1e6),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=_scaled(self._ask("Temperature", _CORE_TEMPERATURE), 1.0),
            busy=None if usage is None else usage.gpu / 100,
            other_processes=None
            if others is None
            else sum(each.pid != os.getpid() for each in others),
            ecc=None if ecc is None else bool(ecc[0]),
            ecc_errors=self._ask("TotalEccErrors", _UNCORRECTED, _SINCE_BOOT)
            if ecc and ecc[0]
            else None,
            limits=frozenset(name for bit, name in _LIMITS.items() if (limits or 0) & bit),
        )

    def close(self) -> None:
        """Ends the connection; may be called twice."""
        if self._handle is not None:
            self._handle = None
            self._nvml.nvmlShutdown()
            self.obstacle = "NVML was closed"

    def _ask(self, what: str, *arguments: int) -> Any:
        name = f"nvmlDeviceGet{what}"
        return self._asked(lambda nvml: getattr(nvml, name)(self._handle, *arguments))

    def _asked(self, question: Callable[[Any], Any]) -> Any:
        """The answer, or None: devices and drivers differ in what they tell."""
        if self._handle is None:
            return None
        try:
            return question(self._nvml)
        except Exception:
            return None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def limits_of(readings: Sequence[Reading]) -> frozenset[str]:
    """What kept the clock down on any occasion."""
    return frozenset[str]().union(*(each.limits for each in readings))


def throttling_doubt(readings: Sequence[Reading]) -> str:
    """Why the figure of a trial may be too low by its readings; ``""``: nothing does."""
    wrong = sorted(limits_of(readings) & _FAULTY)
    return f"throttled by {' and '.join(wrong)} while it was measured" if wrong else ""


def device_conditions(
    facts: DeviceProperties,
    before: Reading | None,
    after: Reading | None,
    readings: Sequence[tuple[str, Sequence[Reading]]],
    obstacle: str,
) -> list[str]:
    """One line for everything a reader must know, of readings before, after and in each trial."""
    found: list[str] = []
    if facts.mig:
        found.append(
            f"{facts.name} is a part of a device (MIG): the figures are those of the part,"
            " and others may load the memory that it shares"
        )
    if facts.integrated:
        found.append("the device shares the host's memory: what the CPU does there costs bandwidth")
    if before is None or after is None:
        return [*found, f"clocks, power, throttling and other users are unknown: {obstacle}"]
    if before.busy is not None and before.busy > _BUSY:
        found.append(
            f"another process uses the device ({before.busy * 100:.0f} % before measuring);"
            " the figures are too low where it computed"
        )
    elif before.other_processes:
        count = before.other_processes
        them = "1 other process has" if count == 1 else f"{count} other processes have"
        found.append(f"{them} memory on the device, but did not compute before measuring")
    told: list[str] = []
    for name, field, scale, unit in (
        ("SM clock", "clock_hz", 1e-6, "MHz"),
        ("memory clock", "memory_clock_hz", 1e-6, "MHz"),
        ("power", "power_w", 1.0, "W"),
        ("temperature", "temperature_c", 1.0, "°C"),
    ):
        values = [getattr(each, field) for _, of in readings for each in of]
        if known := [value * scale for value in values if value is not None]:
            ends = dict.fromkeys(f"{each:.0f}" for each in (min(known), max(known)))
            told.append(f"{name} {'–'.join(ends)} {unit}")
    if told:
        found.append(f"while measuring: {', '.join(told)}")
    by_limit: dict[str, list[str]] = {}
    for label, of in readings:
        for limit in sorted(limits_of(of)):
            by_limit.setdefault(limit, []).append(label)
    for limit, labels in by_limit.items():
        more = len(labels) - _MOST_NAMES
        names = ", ".join(labels[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        found.append(
            f"throttled by {limit} during {names}"
            if limit != FIXED_CLOCKS
            else f"held by {limit} (`nvidia-smi -q -d CLOCK`): the device could clock higher"
        )
    if before.ecc_errors is not None and after.ecc_errors is not None:
        new = after.ecc_errors - before.ecc_errors
        if new > 0:
            found.append(f"{new} memory errors that ECC could not correct happened meanwhile")
        elif after.ecc_errors > 0:
            found.append(
                f"{after.ecc_errors} memory errors that ECC could not correct since the start;"
                " the device may need a reset or a repair"
            )
    if before.ecc is False and facts.capability >= (7, 0):
        found.append("ECC is off")
    return found
