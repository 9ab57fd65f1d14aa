"""The memory channels that the firmware's tables list (SMBIOS), and their bandwidth on paper.

DMTF, System Management BIOS Reference Specification (DSP0134), structure type 17. Linux shows the
tables to root only, and hypervisors leave speeds out: then nothing is known.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from roofline.foundation.text import counted
from roofline.machine.hardware import Provenance, TheoreticalRate
from roofline.machine.system.topology import ROOT

_TABLES = "sys/firmware/dmi/tables/DMI"
_MEMORY_DEVICE, _END = 17, 127
_HEADER_BYTE = 4
_UNKNOWN = (0, 0xFFFF)
_MOST_SLOTS = 3

_CHANNEL = re.compile(r"channel[ _-]?[a-z0-9]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModule:
    """A module: the channel of its slot, transfers per second, and the bytes of each."""

    channel: str
    transfer_per_s: float
    bus_bytes: int


def theoretical_memory(root: Path = ROOT) -> TheoreticalRate | None:
    """The bandwidth of all populated channels; `root` stands for ``/``.

    Returns:
        None where the tables cannot be read, or do not name every module's channel and speed.
    """
    try:
        tables = (root / _TABLES).read_bytes()
    except OSError:
        return None
    modules = memory_modules(tables)
    if not modules:
        return None
    channels = [each.channel for each in modules]
    kinds = {(each.transfer_per_s, each.bus_bytes) for each in modules}
    # More modules of one name than a channel has slots are on channels that the name leaves open.
    if len(kinds) != 1 or any(channels.count(each) > _MOST_SLOTS for each in channels):
        return None
    transfer_per_s, bus_bytes = kinds.pop()
    count = len(set(channels))
    return TheoreticalRate(
        per_s=count * transfer_per_s * bus_bytes,
        provenance=Provenance(
            source="derived",
            reference=f"SMBIOS tables of this machine (/{_TABLES})",
            date="",
            note=f"{counted(count, 'channel')} x {transfer_per_s / 1e6:g} MT/s x {bus_bytes} byte",
        ),
    )


def memory_modules(tables: bytes) -> list[MemoryModule]:
    """The populated modules in SMBIOS tables; empty if one of them is not fully described."""
    found: list[MemoryModule] = []
    for body, texts in _structures(tables):
        if body[0] != _MEMORY_DEVICE or len(body) < 0x22:
            continue
        width, size = (struct.unpack_from("<H", body, at)[0] for at in (0x0A, 0x0C))
        if size == 0:
            continue
        channel = _channel(_text(texts, body[at]) for at in (0x10, 0x11))
        (rate,) = struct.unpack_from("<H", body, 0x20)
        if not channel or rate in _UNKNOWN or width in _UNKNOWN or width % 8:
            return []
        found.append(MemoryModule(channel=channel, transfer_per_s=rate * 1e6, bus_bytes=width // 8))
    return found


def _channel(locators: Iterable[str]) -> str:
    """The channel in the names of a slot and its bank, with what stands before it: its socket."""
    for text in locators:
        if match := _CHANNEL.search(text):
            return text[: match.end()]
    return ""


def _structures(tables: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each structure's formatted part, and the texts that follow it."""
    at = 0
    while at + _HEADER_BYTE <= len(tables):
        length = tables[at + 1]
        end = tables.find(b"\0\0", at + length)
        if length < _HEADER_BYTE or end < 0 or tables[at] == _END:
            return
        body = tables[at : at + length]
        yield body, tables[at + length : end].split(b"\0")
        at = end + 2


def _text(texts: list[bytes], number: int) -> str:
    return texts[number - 1].decode("ascii", "replace") if 0 < number <= len(texts) else ""
