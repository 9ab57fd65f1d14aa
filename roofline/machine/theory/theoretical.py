"""What ceilings would be on paper: clock x width x pipes, with the arithmetic shown.

The loss between that and the measured figure then has causes that one can name: a clock that falls
under wide vectors or on all cores, a neighbour on the core, a kernel that does not fill the pipes.
"""

from __future__ import annotations

from roofline.foundation.dtypes import DType
from roofline.foundation.text import counted
from roofline.foundation.units import format_si
from roofline.machine.hardware import Clock, Provenance, TheoreticalRate
from roofline.machine.theory.microarchitectures import Core, NearestCache

# Loads and stores of one element by each kernel of the streams.
_MOVES = {"read": (1, 0), "write": (0, 1), "copy": (1, 1), "triad": (2, 1), "update": (1, 1)}


def theoretical_rate(
    *,
    kernel: str,
    dtype: DType,
    unit: str,
    threads: int,
    core: Core | None,
    clock: Clock | None,
) -> TheoreticalRate | None:
    """Operations per second that `threads` cores of this kind would do at this clock.

    Args:
        kernel: as in `ComputeCeiling`; so are dtype, unit and threads.
        dtype: what is multiplied.
        unit: the vector unit.
        threads: cores that compute, one thread each.
        core: the microarchitecture; None: not known.
        clock: of a busy core, its peak is taken; None: not known.

    Returns:
        None where the core, its clock, or what it does with this unit is not known.
    """
    found = core.throughput(kernel, dtype, unit) if core else None
    if core is None or clock is None or found is None:
        return None
    return TheoreticalRate(
        per_s=threads * clock.peak_hz * found.flop_per_cycle(dtype),
        provenance=_derived(core, clock, threads, found.arithmetic(dtype)),
    )


def theoretical_bandwidth(
    *,
    level: str,
    kernel: str,
    threads: int,
    vector_bytes: int,
    core: Core | None,
    clock: Clock | None,
) -> TheoreticalRate | None:
    """Bytes per second that `threads` cores would move to and from their own caches.

    Known of L1, and of reads from L2, for vectors as wide as the core moves; what is beyond belongs
    to the chip and not to the core.

    Returns:
        None where the core, its clock, or what it does with this kernel is not known.
    """
    if core is None or clock is None:
        return None
    if level == "L1" and core.l1:
        byte = l1_bytes_per_cycle(core.l1, kernel) if 8 * vector_bytes >= core.l1.bits else None
    else:
        byte = core.l2_read_bytes if (level, kernel) == ("L2", "read") else None
    if byte is None:
        return None
    return TheoreticalRate(
        per_s=threads * clock.peak_hz * byte,
        provenance=_derived(core, clock, threads, f"{byte:g} byte"),
    )


def l1_bytes_per_cycle(cache: NearestCache, kernel: str) -> float | None:
    """Bytes that a kernel's loads and stores name, each cycle; None: not known."""
    if kernel not in _MOVES:
        return None
    loads, stores = _MOVES[kernel]
    if stores and (cache.store_bytes is None or cache.together_bytes is None):
        return None
    cycles = max(
        loads / cache.load_bytes,
        stores / cache.store_bytes if cache.store_bytes else 0.0,
        (loads + stores) / cache.together_bytes if cache.together_bytes else 0.0,
    )
    return (loads + stores) / cycles


def _derived(core: Core, clock: Clock, threads: int, per_cycle: str) -> Provenance:
    how = "measured, peak of the dependent additions"
    if clock.provenance.source != "measured":
        how = "highest that the document gives"
    cores = f"{counted(threads, 'thread')}"
    return Provenance(
        source="derived",
        reference=f"{core.name}: {core.reference}",
        date=clock.provenance.date,
        tool_version=clock.provenance.tool_version,
        note=f"{cores} x {format_si(clock.peak_hz, 'Hz')} ({how}) x {per_cycle}",
    )
