"""What measuring needs of a GPU, and nothing more: so that a fake one can stand in its place."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from roofline.errors import MeasurementError, said_by
from roofline.foundation.dtypes import DType
from roofline.machine.gpu.ptx import Capability, Program

Call = Callable[[], object]
"""Puts one piece of work on the device's queue and returns."""

Argument = tuple[int, Literal[4, 8]]
"""A parameter of a program: its value and its bytes."""

Direction = Literal["to device", "to host"]
HostMemory = Literal["pinned", "pageable"]


class DeviceError(MeasurementError):
    """The driver refused a program or a call; the device goes on."""


class DeviceMemoryError(DeviceError):
    """The device has too little memory for that."""


class DeviceLostError(MeasurementError):
    """The driver reported a fault after which this process cannot use the device any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What the driver says of a device.

    ``clock_hz`` is the highest clock of the multiprocessors; ``memory_clock_hz`` and ``bus_bit``
    those of the memory, which moves two bits a cycle and line. ``integrated``: it shares the
    host's memory. ``mig``: it is a part of a device. None: not known.
    """

    name: str
    capability: Capability
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    bus_bit: int | None = None
    integrated: bool = False
    mig: bool = False
    driver: str = ""
    library: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the device's sensors say at one moment; None where they do not.

    ``limits`` are the reasons why it does not clock higher, in the words of `telemetry`.
    """

    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    busy: float | None = None
    other_processes: int | None = None
    ecc: bool | None = None
    ecc_errors: int | None = None
    limits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A square product of torch's: element type, and the one it is rounded to (``tf32``)."""

    dtype: DType
    tf32: bool = False

    @property
    def unit(self) -> str:
        """How the ceiling's unit is named."""
        return "torch-tf32" if self.tf32 else "torch"

    @property
    def label(self) -> str:
        """How it is named in progress and conditions: ``"float32 torch-tf32 gemm"``."""
        return f"{self.dtype} {self.unit} gemm"


class Function(Protocol):
    """A program that was loaded on a device."""

    @property
    def program(self) -> Program: ...


class Device(Protocol):
    """One GPU, ready for use.

    Raises (all methods): DeviceError, DeviceMemoryError and DeviceLostError, as they say.
    """

    @property
    def facts(self) -> DeviceFacts: ...

    def free_bytes(self) -> int:
        """Bytes of its memory that are free."""
        ...

    def allocate(self, byte: int) -> int:
        """The address of so much memory, filled with ordinary float32 numbers."""
        ...

    def load(self, program: Program) -> Function:
        """Has the driver compile a program."""
        ...

    def launch(self, function: Function, grid: int, arguments: Sequence[Argument]) -> Call:
        """A call that runs `grid` blocks of a program."""
        ...

    def product(self, product: Product, size: int) -> Call:
        """A call that multiplies two matrices of `size` by `size`, of random numbers."""
        ...

    def transfer(self, direction: Direction, memory: HostMemory, byte: int) -> Call:
        """A call that copies so much between the host's memory and the device's."""
        ...

    def small_calls(self) -> dict[str, Call]:
        """Calls of torch whose arithmetic costs nothing, by name."""
        ...

    def times(self, call: Call, calls: int, bursts: int) -> list[float]:
        """Seconds of each of `bursts` times `calls` calls, by the device's clock."""
        ...

    def queue_time(self, call: Call, calls: int) -> float:
        """Seconds until `calls` calls are done, by the host's clock."""
        ...

    def reading(self) -> Reading | None:
        """What the sensors say; None if there is no way to ask."""
        ...

    def reading_obstacle(self) -> str:
        """Why the sensors cannot be asked, in words; ``""`` if they can."""
        ...

    def watch(self, call: Call, calls: int) -> Reading | None:
        """What the sensors say while `calls` calls run."""
        ...

    def close(self) -> None:
        """Frees what was allocated and puts torch's settings back; may be called twice."""
        ...


# They are only read; no setting of the device is touched. pynvml comes with the extra ``nvidia``.

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
