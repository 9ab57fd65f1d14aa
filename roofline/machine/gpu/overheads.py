"""What a launch and a small copy cost on a device, whatever the work: medians of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from roofline.foundation.sampling import Sample, quantile
from roofline.machine.gpu.device import Call, Device, DeviceError, Direction, HostMemory
from roofline.machine.gpu.ptx import empty_program
from roofline.machine.gpu.rated import measured
from roofline.machine.hardware import Duration, Overhead

_CALLS = 100
_ROUNDS = 9
_SMALL_BYTE = 4
_FAST = 0.05


def launch_overheads(
    device: Device, report: Callable[[str], None]
) -> tuple[list[Overhead], list[str]]:
    """Of an empty program and of small calls of torch's; and what was left out, in words.

    ``launch`` is the time from one launch to the next where the queue is never empty, ``round
    trip`` that of a launch and of waiting for its end.
    """
    overheads: list[Overhead] = []
    conditions: list[str] = []

    def add(name: str, make: Callable[[], Call], calls: int) -> None:
        report(name)
        try:
            overheads.append(
                Overhead(
                    name=name,
                    threads=1,
                    time=_duration(device, make(), calls, device.facts.library),
                )
            )
        except DeviceError as error:
            conditions.append(f"left out: {name}: {error}")

    def empty() -> Call:
        return device.launch(device.load(empty_program()), 1, ())

    add("launch of an empty kernel", empty, _CALLS)
    add("round trip of an empty kernel", empty, 1)
    for name, call in device.small_calls().items():
        add(name, lambda call=call: call, _CALLS)
    return overheads, conditions


def copy_latencies(device: Device) -> dict[str, Duration]:
    """Seconds of the smallest copy and of waiting for it, by the labels of `Transfer`."""
    ways: Sequence[tuple[HostMemory, Direction]] = (
        ("pinned", "to device"),
        ("pageable", "to device"),
        ("pinned", "to host"),
        ("pageable", "to host"),
    )
    found: dict[str, Duration] = {}
    for memory, direction in ways:
        try:
            call = device.transfer(direction, memory, _SMALL_BYTE)
            found[f"{memory} copy {direction}"] = _duration(device, call, 1, f"{_SMALL_BYTE} bytes")
        except DeviceError:
            # The copy itself fails too, and its trial says so.
            continue
    return found


def _duration(device: Device, call: Call, calls: int, note: str) -> Duration:
    device.queue_time(call, calls)
    times = tuple(max(device.queue_time(call, calls) / calls, 1e-12) for _ in range(_ROUNDS))
    sample = Sample(times_s=times)
    return Duration(
        fast_s=quantile(times, _FAST),
        median_s=sample.median_s,
        spread=sample.spread,
        provenance=measured(
            f"median of {_ROUNDS} rounds of {calls} calls and one wait, by the host's clock", note
        ),
    )
