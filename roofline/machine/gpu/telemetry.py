"""The sensors of an NVIDIA device through NVML: clocks, power, heat, and what limits the clock.

They are only read; no setting of the device is touched. pynvml comes with the extra ``nvidia``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from roofline.errors import said_by
from roofline.machine.gpu.device import Reading

POWER_CAP = "the power cap"
HEAT = "heat"
POWER_BRAKE = "the power brake"
HARDWARE_SLOWDOWN = "a hardware slowdown"
FIXED_CLOCKS = "clocks that someone set"
SYNC_BOOST = "a slower device of the same boost group"

_LIMITS = {
    0x2: FIXED_CLOCKS,
    0x4: POWER_CAP,
    0x8: HARDWARE_SLOWDOWN,
    0x10: SYNC_BOOST,
    0x20: HEAT,
    0x40: HEAT,
    0x80: POWER_BRAKE,
}
"""NVML's bits (nvmlClocksEventReasons); idle and display settings are left out: nothing is lost."""

_SM_CLOCK, _MEMORY_CLOCK, _CORE_TEMPERATURE = 1, 2, 0
_UNCORRECTED, _SINCE_BOOT = 1, 0


class Telemetry:
    """Reads the device whose UUID is given; ``obstacle`` says why it cannot, ``""`` if it can.

    Args:
        uuid: the device's, as NVML writes it (``"GPU-…"``).
        nvml: pynvml, or what stands for it in tests.
    """

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
            self.obstacle = f"NVML does not answer ({said_by(error) or type(error).__name__})"

    def driver(self) -> str:
        """The driver's version; ``""`` if it cannot be asked."""
        answer = self._ask(lambda nvml, _: nvml.nvmlSystemGetDriverVersion())
        return answer.decode() if isinstance(answer, bytes) else str(answer or "")

    def reading(self) -> Reading | None:
        """What the sensors say now; a value that this device does not tell is None."""
        if self.obstacle:
            return None
        clock = self._ask(lambda nvml, of: nvml.nvmlDeviceGetClockInfo(of, _SM_CLOCK))
        memory_clock = self._ask(lambda nvml, of: nvml.nvmlDeviceGetClockInfo(of, _MEMORY_CLOCK))
        power = self._ask(lambda nvml, of: nvml.nvmlDeviceGetPowerUsage(of))
        heat = self._ask(lambda nvml, of: nvml.nvmlDeviceGetTemperature(of, _CORE_TEMPERATURE))
        usage = self._ask(lambda nvml, of: nvml.nvmlDeviceGetUtilizationRates(of).gpu)
        ecc = self._ask(lambda nvml, of: nvml.nvmlDeviceGetEccMode(of)[0])
        return Reading(
            clock_hz=None if clock is None else clock * 1e6,
            memory_clock_hz=None if memory_clock is None else memory_clock * 1e6,
            power_w=None if power is None else power / 1000,
            temperature_c=None if heat is None else float(heat),
            busy=None if usage is None else usage / 100,
            other_processes=self._others(),
            ecc=None if ecc is None else bool(ecc),
            ecc_errors=self._ask(
                lambda nvml, of: nvml.nvmlDeviceGetTotalEccErrors(of, _UNCORRECTED, _SINCE_BOOT)
            )
            if ecc
            else None,
            limits=self._limits(),
        )

    def close(self) -> None:
        """Ends the connection; may be called twice."""
        if self._handle is not None:
            self._handle = None
            self._nvml.nvmlShutdown()
            self.obstacle = "NVML was closed"

    def _limits(self) -> frozenset[str]:
        # The function was renamed; old packages know only the old name.
        bits = self._ask(lambda nvml, of: nvml.nvmlDeviceGetCurrentClocksEventReasons(of))
        if bits is None:
            bits = self._ask(lambda nvml, of: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(of))
        return frozenset(name for bit, name in _LIMITS.items() if (bits or 0) & bit)

    def _others(self) -> int | None:
        processes = self._ask(lambda nvml, of: nvml.nvmlDeviceGetComputeRunningProcesses(of))
        if processes is None:
            return None
        return sum(each.pid != os.getpid() for each in processes)

    def _ask(self, question: Callable[[Any, Any], Any]) -> Any:
        """The answer, or None: devices and drivers differ in what they tell."""
        if self._handle is None:
            return None
        try:
            return question(self._nvml, self._handle)
        except Exception:
            return None
