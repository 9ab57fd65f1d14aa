"""Interface of a GPU for measurements, which a fake device can implement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from roofline.core.dtypes import DType
from roofline.errors import MeasurementError
from roofline.machine.gpu.ptx import Capability, Program

Call = Callable[[], object]
"""Enqueues work on the device and returns."""

Argument = tuple[int, Literal[4, 8]]
"""Parameter of a program: value and size in bytes."""

Direction = Literal["to device", "to host"]
HostMemory = Literal["pinned", "pageable"]


class DeviceError(MeasurementError):
    """The driver rejected a program or a call; the device stays usable."""


class DeviceMemoryError(DeviceError):
    """The device is out of memory."""


class DeviceLostError(MeasurementError):
    """The driver reported a fault; this process can no longer use the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProperties:
    """Properties of a device, by its driver.

    ``clock_hz`` is the maximum clock of the multiprocessors; ``memory_clock_hz`` and ``bus_bit``
    are for memory with two bits per cycle and line. ``integrated``: shares host memory. ``mig``: a
    MIG slice. None: unknown.
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
    """Sensor values; None if unknown. ``limits`` are active clock limits."""

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
class Gemm:
    """A square GEMM of torch: element type, with or without ``tf32``."""

    dtype: DType
    tf32: bool = False

    @property
    def unit(self) -> str:
        """Unit name of the ceiling."""
        return "torch-tf32" if self.tf32 else "torch"

    @property
    def label(self) -> str:
        """Name in progress and conditions: ``"float32 torch-tf32 gemm"``."""
        return f"{self.dtype} {self.unit} gemm"


class Device(Protocol):
    """An opened GPU; methods raise DeviceError, DeviceMemoryError and DeviceLostError."""

    @property
    def facts(self) -> DeviceProperties: ...

    def free_bytes(self) -> int: ...

    def allocate(self, byte: int) -> int:
        """Return the address of `byte` bytes with ordinary float32 numbers."""
        ...

    def load(self, program: Program) -> None:
        """Compile a program in the driver, once."""
        ...

    def launch(self, program: Program, grid: int, arguments: Sequence[Argument]) -> Call:
        """Return a call that runs `grid` blocks of a loaded program."""
        ...

    def product(self, product: Gemm, size: int) -> Call:
        """Return a call that multiplies two random matrices of `size` by `size`."""
        ...

    def transfer(self, direction: Direction, memory: HostMemory, byte: int) -> Call:
        """Return a call that copies `byte` bytes between host and device."""
        ...

    def small_calls(self) -> dict[str, Call]:
        """Return torch calls with negligible arithmetic, by name."""
        ...

    def times(self, call: Call, calls: int, bursts: int) -> list[float]:
        """Return the seconds of each of `bursts` bursts of `calls` calls, by device clock."""
        ...

    def queue_time(self, call: Call, calls: int) -> float:
        """Return the seconds until `calls` calls have finished, by host clock."""
        ...

    def reading(self) -> Reading | None:
        """Return the sensor values; None if unavailable."""
        ...

    def reading_obstacle(self) -> str:
        """Return the reason why sensors are unavailable, or ``""``."""
        ...

    def watch(self, call: Call, calls: int) -> Reading | None:
        """Return the sensor values during `calls` calls."""
        ...

    def close(self) -> None:
        """Free all allocations and restore torch's settings; may be called twice."""
        ...
