"""Which host this is: CPU, instruction sets, CPUs that may be used, versions of what runs on it."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from roofline.machine.hardware import Host
from roofline.machine.system.cgroups import control_group
from roofline.machine.system.instruction_sets import baseline, compiler_sets, macos_sets, relevant
from roofline.machine.system.system_files import kilobytes, read, table
from roofline.machine.system.topology import ROOT, describe_topology, sysctl

UNKNOWN_CPU = "unknown CPU"
"""The model of a CPU that nothing names."""

_PACKAGES = ("roofline", "torch", "llvmlite", "numpy")

_LONGEST_MODEL = 200

_ADDRESS_SHARE = 2
"""Of addresses, memory gets one part in so many: the compiler and threads' heaps take them too."""

CompilerFeatures = Callable[[], Mapping[str, bool]]
"""LLVM's features of this host's CPU, each with whether it is there."""


def describe_host(root: Path = ROOT, compiler_features: CompilerFeatures | None = None) -> Host:
    """This host; `root` stands for ``/`` (a fake one in tests). Takes a few milliseconds.

    Instruction sets are those that the CPU has and the operating system enabled, by the kernel's
    names; nothing is deduced from the name of the CPU. Where the system shows none (no ``/proc``),
    `compiler_features` is asked; without it, or where it knows none either, they are those that
    the architecture demands of every CPU.
    """
    macos = sys.platform == "darwin" and root == ROOT
    cpuinfo = {} if macos else table(read(root / "proc/cpuinfo"))
    model = sysctl("machdep.cpu.brand_string") if macos else _linux_model(root, cpuinfo)
    sets = macos_sets(sysctl) if macos else _linux_sets(cpuinfo)
    if not sets and compiler_features is not None:
        sets = compiler_sets(compiler_features())
    return Host(
        cpu_model=_printable(model) or _printable(platform.processor()) or UNKNOWN_CPU,
        architecture=architecture(),
        operating_system=_operating_system(root),
        instruction_sets=sets or baseline(architecture()),
        available_cpus=describe_topology(root).available_cpus,
        versions=_versions(),
    )


def _printable(text: str) -> str:
    """`text` in one line that a terminal can show, of bounded length."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(shown.split())[:_LONGEST_MODEL]


def architecture(machine: str | None = None) -> str:
    """The CPU architecture by LLVM's name: ``x86_64``, ``aarch64`` …"""
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


def _linux_sets(cpuinfo: dict[str, str]) -> tuple[str, ...]:
    flags = cpuinfo.get("flags") or cpuinfo.get("Features") or ""
    return relevant(flags.split())


def _operating_system(root: Path) -> str:
    kernel = f"{platform.system()} {platform.release()}"
    name = table(read(root / "etc/os-release"), "=").get("PRETTY_NAME", "").strip('"')
    return f"{_printable(name)}, {kernel}" if _printable(name) else kernel


@functools.cache
def package_version(package: str) -> str:
    """The installed version of a distribution; ``"unknown"`` if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _versions() -> dict[str, str]:
    versions = {name: package_version(name) for name in _PACKAGES}
    return {
        **{name: version for name, version in versions.items() if version != "unknown"},
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def total_memory_bytes(root: Path = ROOT) -> int | None:
    """Bytes of memory that the operating system has; None: it does not say."""
    if sys.platform == "darwin" and root == ROOT:
        import psutil

        return int(psutil.virtual_memory().total)
    return kilobytes(table(read(root / "proc/meminfo")).get("MemTotal", ""))


def available_memory_bytes(
    root: Path = ROOT,
    ask_system: Callable[[], int] | None = None,
    address_limit: Callable[[], int | None] | None = None,
) -> int:
    """Bytes that can be allocated without swapping, within the limits of container and process.

    `ask_system` is asked where ``/proc/meminfo`` does not say; `address_limit` for the bytes of
    addresses that this process may have (``ulimit -v``), None: no limit.
    """
    if sys.platform == "darwin" and root == ROOT:
        import psutil

        return int(psutil.virtual_memory().available)
    meminfo = table(read(root / "proc/meminfo"))
    # Kernels before 3.14 do not estimate what is available: what is free is less than that.
    told = (kilobytes(meminfo.get(key, "")) for key in ("MemAvailable", "MemFree"))
    free = next((byte for byte in told if byte is not None), None)
    free = (ask_system or _unused_bytes)() if free is None else free
    room = control_group(root).available_memory_bytes()
    limit = (address_limit or _address_limit_bytes)()
    addresses = (
        None if limit is None else max(0, limit - _address_space_bytes(root)) // _ADDRESS_SHARE
    )
    return min(each for each in (free, room, addresses) if each is not None)


def _address_limit_bytes() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _address_space_bytes(root: Path) -> int:
    """Bytes of addresses that this process has; 0 where that is not shown."""
    pages = read(root / "proc/self/statm").partition(" ")[0]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") if pages.isdecimal() else 0


def _unused_bytes() -> int:
    """Bytes in pages that nothing uses, by a system call; 0 where there is none that says it."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
