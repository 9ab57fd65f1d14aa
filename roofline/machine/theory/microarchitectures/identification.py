"""Which core the CPUs of this host are, from what the operating system says."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from roofline.machine.system.system_files import cpu_list, read, whole_number
from roofline.machine.system.topology import ROOT, sysctl
from roofline.machine.theory.microarchitectures import amd, arm, intel
from roofline.machine.theory.microarchitectures.cores import Core

_TELLING = {"amx_tile": "amx", "avx512_fp16": "avx512-fp16"}
"""Flags of instructions that only some cores have, with the unit that such a core lists."""

_APPLE = re.compile(r"Apple M[1-4]\b")


def identify_core(root: Path = ROOT, cpus: Sequence[int] = (0,)) -> Core | None:
    """The microarchitecture that all of these CPUs have; `root` stands for ``/`` (a fake in tests).

    None: not known, not the same for all of them, or the host has instructions that this core
    lacks: guests may be shown the number of another one.
    """
    if sys.platform == "darwin" and root == ROOT:
        return macos_core(sysctl("machdep.cpu.brand_string"))
    processors = _processors(root)
    found = {_core(root, processors.get(cpu, {}), cpu) for cpu in cpus}
    return found.pop() if len(found) == 1 else None


def macos_core(brand: str) -> Core | None:
    """The performance core of a Mac by the name of its chip; None: not known."""
    return arm.APPLE_PERFORMANCE if _APPLE.match(brand) else None


def _processors(root: Path) -> Mapping[int, Mapping[str, str]]:
    """The lines on each CPU in /proc/cpuinfo."""
    found: dict[int, dict[str, str]] = {}
    latest: dict[str, str] = {}
    for line in read(root / "proc/cpuinfo").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        number = whole_number(value) if key == "processor" else None
        if number is not None:
            latest = found[number] = {}
        else:
            latest.setdefault(key, value)
    return found


def _core(root: Path, info: Mapping[str, str], cpu: int) -> Core | None:
    numbers = {
        key: value
        for key in ("cpu family", "model", "stepping")
        if (value := whole_number(info.get(key, ""))) is not None
    }
    family, model = numbers.get("cpu family"), numbers.get("model")
    if info.get("CPU implementer"):
        return _arm(info)
    if family is None or model is None:
        return None
    match info.get("vendor_id"):
        case "AuthenticAMD":
            found = _amd(family, model)
        case "GenuineIntel" if family == 6:
            name = info.get("model name", "")
            found = _intel(root, model, numbers.get("stepping", 0), name, cpu)
        case _:
            return None
    flags = set(info.get("flags", "").split())
    units = {each.unit for each in found.throughputs} if found else set[str]()
    lacks = any(flag in flags and unit not in units for flag, unit in _TELLING.items())
    return None if lacks else found


def _amd(family: int, model: int) -> Core | None:
    for its_family, first, last, core in amd.MODELS:
        if family == its_family and first <= model <= last:
            return core
    return None


def _intel(root: Path, model: int, stepping: int, name: str, cpu: int) -> Core | None:
    if model == intel.SKYLAKE_SERVER_MODEL:
        if not intel.TWO_FMA_UNITS.search(re.sub(r"\((?:R|TM)\)|CPU", "", name)):
            return intel.SKYLAKE_SERVER
        newer = stepping >= intel.FIRST_CASCADE_LAKE_STEPPING
        return intel.CASCADE_LAKE_2 if newer else intel.SKYLAKE_SERVER_2
    if model in intel.HYBRID_MODELS:
        # Both kinds of core have the same model; guests that do not see which get no answer.
        kinds = ("sys/devices/cpu_core/cpus", "sys/devices/cpu_atom/cpus")
        for core, where in zip(intel.HYBRID_MODELS[model], kinds, strict=True):
            if cpu in cpu_list(read(root / where)):
                return core
        return None
    return intel.MODELS.get(model)


def _arm(info: Mapping[str, str]) -> Core | None:
    try:
        key = int(info.get("CPU implementer", ""), 16), int(info.get("CPU part", ""), 16)
    except ValueError:
        return None
    return arm.PARTS.get(key)
