"""A sweep over balances: designs on hypothetical machines of each, and on those that there are."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from roofline.design.comparison.axes import BALANCE
from roofline.design.comparison.balance import Balance, Crossing, KnownMachine
from roofline.design.comparison.cells import Cell
from roofline.design.comparison.result import Comparison
from roofline.errors import HardwareError, ModelError, RooflineError
from roofline.foundation.dtypes import DType
from roofline.foundation.dtypes import dtype as dtype_called
from roofline.machine import catalog
from roofline.machine.hardware import Bandwidth, HardwareProfile, MemoryLevel, Provenance
from roofline.pipeline.assembly import memory_peak
from roofline.pipeline.runs import CapturedPass
from roofline.pipeline.sweeps.jobs import inputs_text, notes_on_inputs
from roofline.pipeline.sweeps.planning import Plan
from roofline.placement import Roof, arithmetic_dtype, other_device_note, place
from roofline.run import Run

_HALVINGS = 50
"""Of the distance between two balances, to find where bounds cross: more than digits are shown."""


def balance_sweep(plan: Plan) -> Comparison:
    """The bounds of designs, which a plan has at a single point, over its balances.

    Raises:
        HardwareError: the machine has no ceilings for the data type, or for some operators.
        ModelError: a design that cannot be built.
    """
    (machine, *_) = plan.context.machines
    base, threads = machine.profile, machine.threads
    options = plan.context.options

    @functools.cache
    def captured_on(run: Run) -> list[CapturedPass]:
        found: list[CapturedPass] = []
        for job, name in zip(plan.jobs(), plan.names, strict=True):
            try:
                found.append(plan.context.captured(job, run.device))
            except RooflineError as error:
                raise ModelError(f"{name}: {error}") from None
        return found

    captures = captured_on(options.run(base.device))
    of = dtype_called(str(options.dtype)) if options.dtype else _dtype(captures[plan.reference])
    peak = Roof(base, threads).compute(of)
    if peak is None or not base.memory:
        raise HardwareError(
            f"hardware '{base.name}' has no hardware ceilings for {of}: choose another"
            " (--hardware NAME)"
        )

    def bounds_s(balance: float) -> tuple[float, ...]:
        profile = with_bandwidth(base, peak.flop_per_s / balance, threads)
        times = _bounds_s(captures, Roof(profile, threads))
        if times is None:
            raise HardwareError(
                f"hardware '{base.name}' has no ceilings for some operators of these designs, so"
                " their bounds are not known: choose another (--hardware NAME)"
            )
        return times

    peaks = [memory_peak(each.capture, each.reuse).byte for each in captures]

    def cells(times: Sequence[float], capacity_bytes: int | None = None) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                eager_min_time_s=time_s,
                peak_memory_bytes=byte,
                memory_capacity_bytes=capacity_bytes,
            )
            for time_s, byte in zip(times, peaks, strict=True)
        )

    rows = tuple(map(bounds_s, plan.balances))
    known: list[tuple[KnownMachine, tuple[Cell, ...]]] = []
    left_out: list[str] = []
    for entry in catalog.entries():
        profile = entry.profile
        balance = balance_of(profile, of) if profile else None
        if profile is None or balance is None:
            why = "cannot be read" if profile is None else f"no ceilings for {of}"
            left_out.append(f"{entry.name} ({why})")
            continue
        there = captured_on(options.run(profile.device))
        times = _bounds_s(there, Roof(profile, profile.threads))
        if times is None:
            left_out.append(f"{entry.name} (no ceilings for some operators)")
            continue
        caches = not profile.knows_only_dram
        found = KnownMachine(name=entry.name, balance=balance, has_caches=caches)
        known.append((found, cells(times, profile.memory_capacity_bytes)))
    known.sort(key=lambda each: each[0].balance)
    device = captures[plan.reference].capture.run.device
    return Comparison(
        designs=plan.names,
        reference=plan.reference,
        axes={BALANCE: plan.balances},
        cells=(*map(cells, rows), *(each for _, each in known)),
        hardware=(base,),
        threads=threads,
        run=inputs_text(captures[plan.reference].inputs),
        warnings=(
            *((other_device_note(base, device),) if device != base.device else ()),
            *notes_on_inputs(plan.names, [each.inputs for each in captures]),
        ),
        balance=Balance(
            dtype=of.name,
            crossings=_crossings(plan.balances, rows, bounds_s),
            machines=tuple(machine for machine, _ in known),
            left_out=tuple(left_out),
        ),
    )


def _dtype(captured: CapturedPass) -> DType:
    """The type that most FLOP of a design are done in."""
    found: Counter[DType] = Counter()
    for record in captured.capture.records:
        of = arithmetic_dtype((*record.inputs, *record.outputs))
        if of is not None:
            found[of] += record.work.flop or 0
    return found.most_common(1)[0][0] if found else dtype_called("float32")


def _bounds_s(captures: Sequence[CapturedPass], roof: Roof) -> tuple[float, ...] | None:
    """The bound of each design in seconds; None where that of an operator is not known."""
    found: list[float] = []
    for each in captures:
        bounds_s = [one.eager_min_time_s for one in place(each.capture.records, each.reuse, roof)]
        known = [eager_min_time_s for eager_min_time_s in bounds_s if eager_min_time_s is not None]
        if len(known) < len(bounds_s):
            return None
        found.append(sum(known))
    return tuple(found)


def with_bandwidth(base: HardwareProfile, bytes_per_s: float, threads: int) -> HardwareProfile:
    """A hypothetical machine: the compute ceilings of `base`, and one memory of that bandwidth."""
    memory = MemoryLevel(
        name=base.memory[-1].name,
        scope="shared",
        bandwidth=(
            Bandwidth(
                kernel="unspecified",
                threads=threads,
                peak_bytes_per_s=bytes_per_s,
                sustained_bytes_per_s=bytes_per_s,
                provenance=Provenance(
                    source="derived", reference=f"hypothetical, made of {base.name}", date=""
                ),
            ),
        ),
    )
    return replace(
        base,
        name=f"{base.name} with other memory",
        memory=(memory,),
        overheads=(),
        links=(),
        bandwidth_curves=(),
        latency_curve=None,
    )


def balance_of(profile: HardwareProfile, of: DType) -> float | None:
    """FLOP that a machine does for each byte of its farthest memory, all of it at work."""
    roof = Roof(profile, profile.threads)
    peak = roof.compute(of)
    return peak.flop_per_s / roof.levels[-1].bytes_per_s if peak and roof.levels else None


def _crossings(
    balances: Sequence[float],
    rows: Sequence[tuple[float, ...]],
    bounds_s: Callable[[float], tuple[float, ...]],
) -> tuple[Crossing, ...]:
    """Where the lead changes, between two balances of which it did."""
    found: list[Crossing] = []
    for i in range(len(balances) - 1):
        before, after = _best(rows[i]), _best(rows[i + 1])
        low = balances[i]
        while before != after:
            # The lowest balance found at which another leads.
            high = balances[i + 1]
            for _ in range(_HALVINGS):
                middle = math.sqrt(low * high)
                if _best(bounds_s(middle)) == before:
                    low = middle
                else:
                    high = middle
            then = _best(bounds_s(high))
            found.append(Crossing(balance=high, before=before, after=then))
            before, low = then, high
    return tuple(found)


def _best(times_s: Sequence[float]) -> int:
    return min(range(len(times_s)), key=lambda i: (times_s[i], i))
