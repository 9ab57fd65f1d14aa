"""Microarchitectures: which core a host has, and what one such core can do each cycle.

Only what the vendors' optimisation guides, or measurements that others can repeat, say for certain;
what is left out is unknown, and no theoretical rate follows from it.
"""

from __future__ import annotations

from roofline.errors import InputError, nearest
from roofline.machine.theory.microarchitectures import amd, arm, intel
from roofline.machine.theory.microarchitectures.cores import Core as Core
from roofline.machine.theory.microarchitectures.cores import NearestCache as NearestCache
from roofline.machine.theory.microarchitectures.cores import Throughput as Throughput
from roofline.machine.theory.microarchitectures.identification import identify_core as identify_core

CORES: tuple[Core, ...] = (*amd.CORES, *intel.CORES, *arm.CORES)
"""Every core that is known."""


def core_named(name: str) -> Core:
    """The core called `name`; case and the vendor before it do not matter.

    Raises:
        InputError: no such core; the message names the nearest.
    """
    wanted = " ".join(name.lower().split())
    known = {key: each for each in CORES for key in _names(each)}
    if wanted in known:
        return known[wanted]
    hint = nearest(wanted, known)
    raise InputError(
        f"unknown core '{name}'{hint or '; known are ' + ', '.join(c.name for c in CORES)}"
    )


def _names(core: Core) -> tuple[str, str]:
    full = core.name.lower()
    return full, full.partition(" ")[2]
