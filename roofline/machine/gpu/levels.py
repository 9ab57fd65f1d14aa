"""From the rates of stream kernels and copies to memory levels and links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofline.machine.gpu.datasheet import DataSheet
from roofline.machine.gpu.preparation import L2
from roofline.machine.gpu.rated import Rated, bursts_of, measured, method_of, reservations_of
from roofline.machine.gpu.trials import Stream, Transfer
from roofline.machine.hardware import Bandwidth, Duration, Link, MemoryLevel, TheoreticalRate


def memory_levels(found: Sequence[Rated], sheet: DataSheet) -> Iterable[MemoryLevel]:
    """The L2 and the device's own memory; nothing if the latter was not measured."""
    reported = measured("reported by the CUDA driver")
    capacities = {L2: sheet.facts.l2_byte, sheet.memory_name: sheet.facts.memory_byte}
    if not any(_level(each) == sheet.memory_name for each in found):
        # The L2 alone would be taken for all the memory there is.
        return
    for name, capacity_byte in capacities.items():
        paper = sheet.memory() if name != L2 else None
        bandwidth = tuple(_bandwidth(each, paper) for each in found if _level(each) == name)
        if bandwidth:
            yield MemoryLevel(
                name=name,
                capacity_byte=capacity_byte,
                scope="shared",
                capacity_provenance=reported,
                bandwidth=bandwidth,
            )


def _level(each: Rated) -> str:
    return each.subject.level if isinstance(each.subject, Stream) else ""


def _bandwidth(each: Rated, theoretical: TheoreticalRate | None) -> Bandwidth:
    assert isinstance(each.subject, Stream)
    return Bandwidth(
        kernel=each.subject.kernel.name,
        threads=1,
        peak_byte_per_s=each.rate.peak,
        sustained_byte_per_s=each.rate.sustained,
        spread=each.rate.spread,
        # A GPU's caches keep track of bytes: a line that is written whole is not read first.
        write_allocate="none",
        theoretical=theoretical,
        doubt=reservations_of(each, theoretical),
        provenance=measured(f"{method_of(each)}; {each.subject.note}", bursts_of(each)),
    )


def links(found: Sequence[Rated], latencies: dict[str, Duration]) -> list[Link]:
    """The ways between host and device; `latencies` of the smallest copy, by the trial's label."""
    made: list[Link] = []
    for each in found:
        transfer = each.subject
        if not isinstance(transfer, Transfer):
            continue
        to_device = transfer.direction == "to device"
        made.append(
            Link(
                source="host" if to_device else "device",
                target="device" if to_device else "host",
                kernel=f"copy, {transfer.memory}",
                threads=1,
                peak_byte_per_s=each.rate.peak,
                sustained_byte_per_s=each.rate.sustained,
                spread=each.rate.spread,
                latency=latencies.get(transfer.label),
                provenance=measured(
                    f"{method_of(each)}; {transfer.byte >> 20} MiB of {transfer.memory} memory",
                    bursts_of(each),
                ),
            )
        )
    return made
