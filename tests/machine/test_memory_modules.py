"""Memory channels from SMBIOS tables, written here byte by byte after DSP0134."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from roofline.machine.system.host import memory_modules, theoretical_memory


def structure(kind: int, body: bytes, *texts: str) -> bytes:
    tail = b"".join(each.encode() + b"\0" for each in texts) + b"\0" if texts else b"\0\0"
    return struct.pack("<BBH", kind, 4 + len(body), 7) + body + tail


def module(slot: str, bank: str, *, mts: int = 4800, width: int = 64, size: int = 0x4000) -> bytes:
    body = struct.pack(
        "<HHHHHBBBBBHHBBBBBIH",
        *(0x1000, 0xFFFE, width + 8, width, size),
        *(9, 0, 1, 2, 0x22, 0, 5600, 0, 0, 0, 0, 0, 0),
        mts,
    )
    return structure(17, body, slot, bank)


def host(root: Path, *structures: bytes) -> Path:
    folder = root / "sys/firmware/dmi/tables"
    folder.mkdir(parents=True)
    other = structure(1, bytes(23), "Maker", "Product")
    (folder / "DMI").write_bytes(other + b"".join(structures) + structure(127, b""))
    return root


def test_channels_are_counted_once(tmp_path: Path) -> None:
    """Two channels of two modules each, one slot empty: 2 x 4800 MT/s x 8 byte = 76.8 GB/s."""
    banks = [(f"DIMM {i}", f"P0 CHANNEL {letter}") for letter in "AB" for i in (0, 1)]
    empty = module("DIMM 0", "P0 CHANNEL C", size=0, mts=0)
    found = theoretical_memory(host(tmp_path, *(module(*each) for each in banks), empty))
    assert found is not None
    assert found.per_s == pytest.approx(76.8e9)
    assert found.provenance.source == "derived"
    assert found.provenance.note == "2 channels x 4800 MT/s x 8 byte"


def test_channels_of_two_sockets_have_the_same_letters(tmp_path: Path) -> None:
    banks = [(f"P{socket}", f"P{socket} CHANNEL A") for socket in (0, 1)]
    found = theoretical_memory(host(tmp_path, *(module(*each) for each in banks)))
    assert found is not None and found.per_s == pytest.approx(2 * 38.4e9)


def test_the_slot_may_name_the_channel(tmp_path: Path) -> None:
    slots = [f"Controller{i}-ChannelA-DIMM0" for i in (0, 1)]
    found = theoretical_memory(host(tmp_path, *(module(slot, "BANK 0") for slot in slots)))
    assert found is not None and "2 channels" in found.provenance.note


@pytest.mark.parametrize(
    "modules",
    [
        (),
        (module("DIMM 0", "Bank 0"),),
        (module("DIMM 0", "CHANNEL A", mts=0),),
        (module("DIMM 0", "CHANNEL A", width=0xFFFF - 8),),
        (module("DIMM 0", "CHANNEL A"), module("DIMM 0", "CHANNEL B", mts=3200)),
        (module("DIMM 0", "CHANNEL A"),) * 4,
    ],
    ids=["none", "no channel", "no speed", "no width", "two speeds", "too many in one channel"],
)
def test_what_is_not_certain_is_unknown(modules: tuple[bytes, ...], tmp_path: Path) -> None:
    assert theoretical_memory(host(tmp_path, *modules)) is None


def test_unreadable_or_damaged_tables_are_unknown(tmp_path: Path) -> None:
    assert theoretical_memory(tmp_path) is None
    whole = module("DIMM 0", "CHANNEL A")
    for end in range(len(whole)):
        assert memory_modules(whole[:end]) == []
    assert len(memory_modules(whole)) == 1
    assert memory_modules(b"\x11\x00" * 50) == []
