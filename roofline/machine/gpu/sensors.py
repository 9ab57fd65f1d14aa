"""Sensors of a device, read through NVML, and notes on a measurement.

No setting is changed. pynvml is installed with the extra ``nvidia``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from roofline.errors import error_text
from roofline.machine.gpu.device import DeviceProperties, Reading

FIXED_CLOCKS = "fixed clocks"
_LIMITS = {
    0x2: FIXED_CLOCKS,
    0x4: "the power cap",
    0x8: "a hardware slowdown",
    0x10: "a slower device of the same boost group",
    0x20: "temperature",
    0x40: "temperature",
    0x80: "the power brake",
}
"""NVML's clock event reasons; idle and display settings are harmless and omitted."""

_FAULTY = frozenset(_LIMITS[bit] for bit in (0x8, 0x20, 0x80))
"""Limits that indicate a fault; a power cap is normal."""

_SM_CLOCK, _MEMORY_CLOCK, _CORE_TEMPERATURE = 1, 2, 0
_UNCORRECTED, _SINCE_BOOT = 1, 0

_BUSY = 0.05
"""Load by other processes above which it is reported."""

_MOST_NAMES = 4


class Telemetry:
    """Sensors of the device with a UUID (``"GPU-…"``); ``obstacle`` is an error, or ``""``."""

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
            self.obstacle = f"NVML failed ({error_text(error) or type(error).__name__})"

    def driver(self) -> str:
        """Return the driver version; ``""`` if unknown."""
        answer = self._asked(lambda nvml: nvml.nvmlSystemGetDriverVersion())
        return answer.decode() if isinstance(answer, bytes) else str(answer or "")

    def reading(self) -> Reading | None:
        """Return the current sensor values; unsupported ones are None."""
        if self.obstacle:
            return None
        ecc = self._ask("EccMode")
        others = self._ask("ComputeRunningProcesses")
        power_mw, usage = self._ask("PowerUsage"), self._ask("UtilizationRates")
        # Old packages have the old name.
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
        """Close the connection; may be called twice."""
        if self._handle is not None:
            self._handle = None
            self._nvml.nvmlShutdown()
            self.obstacle = "NVML was closed"

    def _ask(self, what: str, *arguments: int) -> Any:
        name = f"nvmlDeviceGet{what}"
        return self._asked(lambda nvml: getattr(nvml, name)(self._handle, *arguments))

    def _asked(self, question: Callable[[Any], Any]) -> Any:
        """Return the answer, or None: devices and drivers differ."""
        if self._handle is None:
            return None
        try:
            return question(self._nvml)
        except Exception:
            return None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def limits_of(readings: Sequence[Reading]) -> frozenset[str]:
    return frozenset[str]().union(*(each.limits for each in readings))


def throttling_doubt(readings: Sequence[Reading]) -> str:
    """Return the reason why a trial may be too low, by its readings, or ``""``."""
    wrong = sorted(limits_of(readings) & _FAULTY)
    return f"throttled by {' and '.join(wrong)} during the measurement" if wrong else ""


def device_conditions(
    facts: DeviceProperties,
    before: Reading | None,
    after: Reading | None,
    readings: Sequence[tuple[str, Sequence[Reading]]],
    obstacle: str,
) -> list[str]:
    """Return notes from readings before, after and in each trial."""
    found: list[str] = []
    if facts.mig:
        found.append(
            f"{facts.name} is a MIG slice: other processes may use the memory bandwidth it shares"
        )
    if facts.integrated:
        found.append("integrated device: CPU processes reduce its memory bandwidth")
    if before is None or after is None:
        return [*found, f"clocks, power, throttling and other processes unknown: {obstacle}"]
    if before.busy is not None and before.busy > _BUSY:
        found.append(
            f"other processes used the device ({before.busy * 100:.0f} % before the measurement);"
            " figures may be too low"
        )
    elif before.other_processes:
        count = before.other_processes
        them = "1 idle process has" if count == 1 else f"{count} idle processes have"
        found.append(f"{them} memory on the device")
    ranges: list[str] = []
    for name, field, scale, unit in (
        ("SM clock", "clock_hz", 1e-6, "MHz"),
        ("memory clock", "memory_clock_hz", 1e-6, "MHz"),
        ("power", "power_w", 1.0, "W"),
        ("temperature", "temperature_c", 1.0, "°C"),
    ):
        values = [getattr(each, field) for _, of in readings for each in of]
        if known := [value * scale for value in values if value is not None]:
            ends = dict.fromkeys(f"{each:.0f}" for each in (min(known), max(known)))
            ranges.append(f"{name} {'–'.join(ends)} {unit}")
    if ranges:
        found.append(f"during the measurement: {', '.join(ranges)}")
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
            else f"{limit} limit the device (`nvidia-smi -q -d CLOCK`)"
        )
    if before.ecc_errors is not None and after.ecc_errors is not None:
        new = after.ecc_errors - before.ecc_errors
        if new > 0:
            found.append(f"{new} uncorrectable memory errors (ECC) during the measurement")
        elif after.ecc_errors > 0:
            found.append(
                f"{after.ecc_errors} uncorrectable memory errors (ECC) since boot; the device may"
                " need a reset or repair"
            )
    if before.ecc is False and facts.capability >= (7, 0):
        found.append("ECC is off")
    return found
