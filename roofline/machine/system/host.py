"""Host description: CPU, instruction sets, usable CPUs, memory modules, software versions."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from roofline.core.text import counted
from roofline.machine.hardware import Host, Provenance, TheoreticalRate
from roofline.machine.system.system_files import control_group, kilobytes, read, table
from roofline.machine.system.topology import ROOT, describe_topology, sysctl

# DMTF, System Management BIOS Reference Specification (DSP0134), structure type 17. The tables are
# readable by root only, and hypervisors omit speeds.

_TABLES = "sys/firmware/dmi/tables/DMI"
_MEMORY_DEVICE, _END = 17, 127
_HEADER_BYTE = 4
_UNKNOWN = (0, 0xFFFF)
_MOST_SLOTS = 3

_CHANNEL = re.compile(r".*?channel[ _-]?[a-z0-9]", re.IGNORECASE | re.DOTALL)


class MemoryModule(NamedTuple):
    """A memory module: its channel, transfers per second, and bytes per transfer."""

    channel: str
    transfer_per_s: float
    bus_bytes: int


def theoretical_memory(root: Path = ROOT) -> TheoreticalRate | None:
    """Return the bandwidth of all populated channels; `root` stands for ``/``.

    None if the tables are unreadable, or lack a channel or speed.
    """
    try:
        tables = (root / _TABLES).read_bytes()
    except OSError:
        return None
    modules = memory_modules(tables)
    if not modules:
        return None
    channels = [each.channel for each in modules]
    kinds = {each[1:] for each in modules}
    # More modules than slots under one name: the name does not identify the channel.
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
    """Return the populated modules in SMBIOS tables; empty if any is incomplete."""
    found: list[MemoryModule] = []
    for body, texts in _structures(tables):
        if body[0] != _MEMORY_DEVICE or len(body) < 0x22:
            continue
        width, size, rate = (struct.unpack_from("<H", body, at)[0] for at in (0x0A, 0x0C, 0x20))
        if size == 0:
            continue
        # The channel is part of the name of slot or bank, after the socket.
        numbers = (body[at] for at in (0x10, 0x11))
        names = (texts[each - 1] for each in numbers if 0 < each <= len(texts))
        matches = (_CHANNEL.match(name.decode("ascii", "replace")) for name in names)
        channel = next((match[0] for match in matches if match), "")
        if not channel or rate in _UNKNOWN or width in _UNKNOWN or width % 8:
            return []
        found.append(MemoryModule(channel, rate * 1e6, width // 8))
    return found


def _structures(tables: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the formatted part and the texts of each structure."""
    at = 0
    while at + _HEADER_BYTE <= len(tables):
        length = tables[at + 1]
        end = tables.find(b"\0\0", at + length)
        if length < _HEADER_BYTE or end < 0 or tables[at] == _END:
            return
        yield tables[at : at + length], tables[at + length : end].split(b"\0")
        at = end + 2


# Each source lists instruction sets that the CPU has *and* the operating system enabled.

_RELEVANT = re.compile(
    r"s?sse|pni$|avx|fma|f16c$|amx|asimd|fphp$|e?bf16$|i8mm$|f8|sve|sme(?!p)",
)
"""Prefixes of instruction sets that affect compute throughput."""

_BASELINES = {"x86_64": ("sse", "sse2"), "aarch64": ("asimd",)}
"""Instruction sets that every CPU of an architecture has."""


def relevant(flags: Iterable[str]) -> tuple[str, ...]:
    """Return the kernel flags that affect ceilings, sorted."""
    return tuple(sorted({flag for flag in flags if _RELEVANT.match(flag)}))


def baseline(architecture: str) -> tuple[str, ...]:
    """Return the instruction sets of every CPU of an architecture; empty if unknown."""
    return _BASELINES.get(architecture, ())


_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
_SAME_ON_MACS = ("sse", "sse2", "sse4_1", "sse4_2", "f16c", "fma", *_AVX512)
_MACOS = {
    **{f"hw.optional.{name}": name for name in _SAME_ON_MACS},
    "hw.optional.sse3": "pni",
    "hw.optional.supplementalsse3": "ssse3",
    "hw.optional.avx1_0": "avx",
    "hw.optional.avx2_0": "avx2",
    "hw.optional.neon": "asimd",
    "hw.optional.AdvSIMD": "asimd",
    "hw.optional.neon_fp16": "asimdhp fphp",
    "hw.optional.arm.FEAT_FP16": "asimdhp fphp",
    "hw.optional.arm.FEAT_BF16": "bf16",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_SME": "sme",
    "hw.optional.arm.FEAT_SME2": "sme2",
}
"""Instruction sets by their macOS names."""


def macos_sets(ask: Callable[[str], str]) -> tuple[str, ...]:
    """Return a Mac's instruction sets; `ask` answers like ``sysctl -n``."""
    return _joined(names for key, names in _MACOS.items() if ask(key) == "1")


_SAME_IN_LLVM = (
    *("sse", "sse2", "ssse3", "f16c", "fma", "avx", "avx2", "avx512f", "avx512bw", "avx512cd"),
    *("avx512dq", "avx512vl", "avx512ifma", "avx512vbmi"),
    *("bf16", "i8mm", "sve", "sve2", "sme", "sme2"),
)
_COMPILER = {
    **{name: name for name in _SAME_IN_LLVM},
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
    "avxvnniint16": "avx_vnni_int16",
    "avxifma": "avx_ifma",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    **{f"amx-{name}": f"amx_{name}" for name in ("tile", "bf16", "int8", "fp16")},
    "neon": "asimd",
    "fullfp16": "asimdhp fphp",
    "dotprod": "asimddp",
}
_WITH_SVE = {"bf16": "svebf16", "i8mm": "svei8mm"}
"""One architectural feature has a kernel name for each vector type."""


def compiler_sets(features: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the host's instruction sets from LLVM features, without ``/proc/cpuinfo``."""
    named = [names for key, names in _COMPILER.items() if features.get(key)]
    if features.get("sve"):
        named += [name for key, name in _WITH_SVE.items() if features.get(key)]
    return _joined(named)


def _joined(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for each in names for name in each.split()}))


UNKNOWN_CPU = "unknown CPU"
"""CPU model where none is reported."""

_PACKAGES = ("roofline", "torch", "llvmlite", "numpy")

_LONGEST_MODEL = 200

_ADDRESS_SHARE = 2
"""Share of a limited address space for buffers; compiler and heaps need the rest."""

CompilerFeatures = Callable[[], Mapping[str, bool]]
"""LLVM features of this host's CPU."""


def describe_host(root: Path = ROOT, compiler_features: CompilerFeatures | None = None) -> Host:
    """Return the description of this host, in a few milliseconds; `root` stands for ``/``.

    Instruction sets are those of the CPU enabled by the operating system, by kernel names. Without
    ``/proc`` they come from LLVM, else from the architecture's baseline.
    """
    macos = sys.platform == "darwin" and root == ROOT
    if macos:
        model, sets = sysctl("machdep.cpu.brand_string"), macos_sets(sysctl)
    else:
        cpuinfo = table(read(root / "proc/cpuinfo"))
        model = _linux_model(root, cpuinfo)
        sets = relevant((cpuinfo.get("flags") or cpuinfo.get("Features") or "").split())
    if not sets and compiler_features is not None:
        sets = compiler_sets(compiler_features())
    kernel = f"{platform.system()} {platform.release()}"
    release = table(read(root / "etc/os-release"), "=").get("PRETTY_NAME", "").strip('"')
    versions = {name: package_version(name) for name in _PACKAGES}
    return Host(
        cpu_model=_printable(model) or _printable(platform.processor()) or UNKNOWN_CPU,
        architecture=architecture(),
        operating_system=", ".join(filter(None, (_printable(release), kernel))),
        instruction_sets=sets or baseline(architecture()),
        available_cpus=describe_topology(root).available_cpus,
        versions={
            **{name: version for name, version in versions.items() if version != "unknown"},
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
    )


def _printable(text: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(shown.split())[:_LONGEST_MODEL]


def architecture(machine: str | None = None) -> str:
    """Return the CPU architecture by LLVM's name: ``x86_64``, ``aarch64`` …"""
    name = (machine or platform.machine()).lower()
    return {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}.get(name, name)


def _linux_model(root: Path, cpuinfo: dict[str, str]) -> str:
    # On Arm the last lines are on the board: Model and Hardware.
    named = cpuinfo.get("model name") or cpuinfo.get("Model") or cpuinfo.get("Hardware")
    if named:
        return named
    board = read(root / "proc/device-tree/model").rstrip("\0")
    part, maker = cpuinfo.get("CPU part"), cpuinfo.get("CPU implementer")
    identity = f"Arm implementer {maker} part {part}" if part and maker else ""
    return " ".join(each for each in (board, identity) if each)


@functools.cache
def package_version(package: str) -> str:
    """Return the installed version of a package; ``"unknown"`` if not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def total_memory_bytes(root: Path = ROOT) -> int | None:
    """Return the memory of the operating system in bytes; None: unknown."""
    if sys.platform == "darwin" and root == ROOT:
        import psutil

        return int(psutil.virtual_memory().total)
    return kilobytes(table(read(root / "proc/meminfo")).get("MemTotal", ""))


def available_memory_bytes(
    root: Path = ROOT,
    ask_system: Callable[[], int] | None = None,
    address_limit: Callable[[], int | None] | None = None,
) -> int:
    """Return the bytes available without swapping, within container and process limits.

    `ask_system` replaces a missing ``/proc/meminfo``; `address_limit` returns ``ulimit -v``.
    """
    if sys.platform == "darwin" and root == ROOT:
        import psutil

        return int(psutil.virtual_memory().available)
    free = kilobytes(table(read(root / "proc/meminfo")).get("MemAvailable", ""))
    free = (ask_system or _unused_bytes)() if free is None else free
    room = control_group(root).available_memory_bytes()
    limit = (address_limit or _address_limit_bytes)()
    addresses = None
    if limit is not None:
        # Address space in use, in pages; 0 if unknown.
        pages = read(root / "proc/self/statm").partition(" ")[0]
        used = int(pages) * os.sysconf("SC_PAGE_SIZE") if pages.isdecimal() else 0
        addresses = max(0, limit - used) // _ADDRESS_SHARE
    return min(each for each in (free, room, addresses) if each is not None)


def _address_limit_bytes() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _unused_bytes() -> int:
    """Return the bytes of free pages; 0 if unknown."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
