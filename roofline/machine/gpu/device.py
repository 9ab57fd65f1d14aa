"""What measuring needs of a GPU, and nothing more: so that a fake one can stand in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from roofline.core.dtypes import DType
from roofline.errors import MeasurementError
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
class DeviceProperties:
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
    """What the device's sensors say; None where they do not. ``limits`` keep it slow."""

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


class Device(Protocol):
    """One GPU, ready for use; methods raise DeviceError, DeviceMemoryError and DeviceLostError."""

    @property
    def facts(self) -> DeviceProperties: ...

    def free_bytes(self) -> int: ...

    def allocate(self, byte: int) -> int:
        """The address of so much memory, filled with ordinary float32 numbers."""
        ...

    def load(self, program: Program) -> None:
        """Has the driver compile a program, unless it has."""
        ...

    def launch(self, program: Program, grid: int, arguments: Sequence[Argument]) -> Call:
        """A call that runs `grid` blocks of a program that was loaded."""
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
