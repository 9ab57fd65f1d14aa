"""A kernel, a product or a copy on one device, sized so that a burst takes a few milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from roofline.machine.gpu.arithmetic import ArithmeticKernel
from roofline.machine.gpu.device import (
    Call,
    Device,
    DeviceLostError,
    Direction,
    HostMemory,
    Product,
    Reading,
)
from roofline.machine.gpu.streams import StreamKernel
from roofline.machine.measuring.estimation import Burst
from roofline.machine.measuring.schedule import repeats_for

_MOST_REPEATS = 1 << 28
_BEST_OF = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream kernel on one memory level; ``note`` says which arrays it goes over."""

    kernel: StreamKernel
    level: str
    note: str

    @property
    def label(self) -> str:
        """How it is named in progress and conditions: ``"L2 read"``."""
        return f"{self.level} {self.kernel.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedProduct:
    """A product of torch's at the size at which it is fastest."""

    product: Product
    size: int

    @property
    def label(self) -> str:
        """As `Product.label`."""
        return self.product.label

    @property
    def flop(self) -> int:
        """A multiply-add is two."""
        return 2 * self.size**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy between the host's memory and the device's."""

    direction: Direction
    memory: HostMemory
    byte: int

    @property
    def label(self) -> str:
        """How it is named in progress and conditions: ``"pinned copy to device"``."""
        return f"{self.memory} copy {self.direction}"


Subject = ArithmeticKernel | Stream | SizedProduct | Transfer


@dataclass(slots=True, kw_only=True)
class Trial:
    """What is timed: ``repeated(n)`` gives the call that does it n times, in ``calls`` calls.

    ``work`` is flop or byte of one repeat. A program repeats itself inside one launch; what is
    torch's is called again. ``doubt`` is what speaks against its figure from the start.
    """

    subject: Subject
    work: float
    repeated: Callable[[int], tuple[Call, int]]
    most: int = _MOST_REPEATS
    repeats: int = 1
    burst_s: float = 0.0
    doubt: str = ""
    readings: list[Reading] = field(default_factory=list[Reading])

    @property
    def label(self) -> str:
        """How progress and conditions name it."""
        return self.subject.label

    @property
    def quantity(self) -> Literal["flop", "byte"]:
        """What ``work`` is."""
        return "byte" if isinstance(self.subject, Stream | Transfer) else "flop"

    @property
    def work_per_burst(self) -> float:
        """Flop or byte of one burst."""
        return self.work * self.repeats

    def calibrate(self, device: Device, target_s: float) -> None:
        """Chooses the repeats of a burst, so that it takes about `target_s`.

        Raises:
            DeviceError: it cannot be run.
        """

        def run(repeats: int) -> float:
            call, calls = self.repeated(repeats)
            return device.times(call, calls, 1)[0]

        # The first run also compiles, plans and wakes the device up.
        run(1)
        self.repeats = repeats_for(run, target_s, most=self.most)
        self.burst_s = min(run(self.repeats) for _ in range(_BEST_OF))

    def run(self, device: Device, bursts: int) -> list[Burst]:
        """So many bursts, then one more during which the sensors are read."""
        call, calls = self.repeated(self.repeats)
        times_s = device.times(call, calls, bursts)
        reading = device.watch(call, calls)
        if reading is not None:
            self.readings.append(reading)
        # The device's clock does not count what the host's CPUs do to others.
        return [Burst(wall_s=time_s, cpu_s=time_s, busy=1.0) for time_s in times_s]


def lost_during(trial: Trial, error: DeviceLostError) -> DeviceLostError:
    """A fault with what caused it, and what can be done."""
    return DeviceLostError(
        f"the device was lost while measuring {trial.label}: {error};"
        f" measure again, and if it happens again leave it out (leave_out=['{trial.label}'])"
    )
