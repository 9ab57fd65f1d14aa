"""Which host this is: CPU, instruction sets, CPUs that may be used, versions of what runs on it."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path

from roofline.machine.cgroups import control_group, read
from roofline.machine.hardware import Host
from roofline.machine.topology import ROOT, describe_topology, sysctl

_RELEVANT = re.compile(r"s?sse|pni$|avx|fma|f16c$|amx|asimd|fphp$|bf16$|i8mm$|sve|sme(?!p)")
"""How the names of instruction sets begin that change what a CPU can compute per second."""

_PACKAGES = ("roofline", "torch", "llvmlite", "numpy")


def describe_host(root: Path = ROOT) -> Host:
    """This host; `root` stands for ``/`` (a fake one in tests). Takes a few milliseconds.

    Instruction sets are those that the CPU has and the operating system enabled, by the kernel's
    names; nothing is deduced from the name of the CPU.
    """
    macos = sys.platform == "darwin" and root == ROOT
    cpuinfo = {} if macos else _cpuinfo(root)
    return Host(
        cpu_model=(sysctl("machdep.cpu.brand_string") if macos else _linux_model(root, cpuinfo))
        or platform.processor()
        or "unknown CPU",
        architecture=architecture(),
        operating_system=_operating_system(root),
        instruction_sets=(macos_sets(sysctl) if macos else _linux_sets(cpuinfo)),
        available_cpus=describe_topology(root).available_cpus,
        versions=_versions(),
    )


def architecture(machine: str | None = None) -> str:
    """The CPU architecture by LLVM's name: ``x86_64``, ``aarch64`` …"""
    name = (machine or platform.machine()).lower()
    return {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}.get(name, name)


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's lines in /proc/cpuinfo; on Arm also the last lines, on the board."""
    table: dict[str, str] = {}
    for line in read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        table.setdefault(key.strip(), value.strip())
    return table


def _linux_model(root: Path, cpuinfo: dict[str, str]) -> str:
    named = cpuinfo.get("model name") or cpuinfo.get("Model") or cpuinfo.get("Hardware")
    if named:
        return named
    board = read(root / "proc/device-tree/model").rstrip("\0")
    part, maker = cpuinfo.get("CPU part"), cpuinfo.get("CPU implementer")
    identity = f"Arm implementer {maker} part {part}" if part and maker else ""
    return " ".join(each for each in (board, identity) if each)


def _linux_sets(cpuinfo: dict[str, str]) -> tuple[str, ...]:
    flags = cpuinfo.get("flags") or cpuinfo.get("Features") or ""
    return _relevant(flags.split())


def _relevant(flags: list[str]) -> tuple[str, ...]:
    return tuple(sorted({flag for flag in flags if _RELEVANT.match(flag)}))


_MACOS_SETS = {
    "hw.optional.fma": "fma",
    "hw.optional.avx1_0": "avx",
    "hw.optional.avx2_0": "avx2",
    "hw.optional.avx512f": "avx512f",
    "hw.optional.sse2": "sse2",
    "hw.optional.neon": "asimd",
    "hw.optional.AdvSIMD": "asimd",
    "hw.optional.arm.FEAT_FP16": "fphp",
    "hw.optional.arm.FEAT_BF16": "bf16",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_SME": "sme",
}


def macos_sets(ask: Callable[[str], str]) -> tuple[str, ...]:
    """A Mac's instruction sets by Linux's names; `ask` answers like ``sysctl -n``."""
    return tuple(sorted({name for key, name in _MACOS_SETS.items() if ask(key) == "1"}))


def _operating_system(root: Path) -> str:
    kernel = f"{platform.system()} {platform.release()}"
    for line in read(root / "etc/os-release").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return f"{value.strip().strip(chr(34))}, {kernel}"
    return kernel


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


def available_memory_byte(root: Path = ROOT) -> int:
    """Bytes that can be allocated without swapping, within the container's limit."""
    if sys.platform == "darwin" and root == ROOT:
        import psutil

        return int(psutil.virtual_memory().available)
    free = 0
    for line in read(root / "proc/meminfo").splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable":
            free = int(value.split()[0]) * 1024
    room = control_group(root).available_memory_byte()
    return free if room is None else min(free, room)
