"""ridge_sweep: designs on hypothetical machines of every balance, and on those that there are."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roofline.design.sweeps.axes import BALANCE, Axis, Grid, grid_of
from roofline.design.sweeps.ridge import Crossing, KnownMachine, RidgeSweep
from roofline.errors import HardwareError, InputError, ModelError, RooflineError
from roofline.foundation.dtypes import DType
from roofline.foundation.dtypes import dtype as dtype_called
from roofline.foundation.progress import Progress
from roofline.machine import catalog
from roofline.machine.hardware import Bandwidth, HardwareProfile, MemoryLevel, Provenance
from roofline.pipeline.assembly import memory_peak
from roofline.pipeline.machines import Hardware
from roofline.pipeline.sweeps.jobs import Captured, inputs_text, notes_on_inputs
from roofline.pipeline.sweeps.planning import Plan, plan_of
from roofline.placement import Roof, arithmetic_dtype, other_device_note, place
from roofline.run import Run, RunOptions

if TYPE_CHECKING:
    import torch

_HALVINGS = 50
"""Of the distance between two balances, to find where bounds cross: more than digits are shown."""

DEFAULT_BALANCES = "1:256:x2"


def ridge_sweep(
    *designs: str | torch.nn.Module,
    axes: str | Mapping[str, object] | None = None,
    inputs: Any = None,
    reference: int = 0,
    hardware: Hardware | None = None,
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    train: bool = False,
    optimizer: str | None = None,
    autocast: str | torch.dtype | None = None,
    channels_last: bool = False,
    device: str | None = None,
    names: Sequence[str] = (),
    progress: Progress | None = None,
) -> RidgeSweep:
    """Which design wins on which hardware: bounds over the balance of machines, in FLOP/byte.

    Hypothetical machines have the compute ceilings of one, and a memory that makes their ridge
    point the balance; every operand is charged to that memory (the classic roofline model), so that
    balance alone decides. There are no predictions for machines that do not exist. The known
    machines (this one, the user's, those that come with roofline) stand at their own balance, with
    bounds of their own profile, caches and all: how far they are from the line is how far the
    abstraction holds.

    Args:
        designs: at least two, without variables, or with such as have one value in `axes`.
        axes: the balances, ``{"balance": [1, 2, 4]}`` or ``"balance=1:256:x2"`` (None), and single
            values of variables.
        hardware: the machine that hypothetical ones are made of; None: this one.
        inputs, reference, dtype, batch, seq, threads, train, optimizer, autocast, channels_last,
            device, names, progress: as for `sweep`.

    Raises:
        InputError: balances that are no numbers above 0, or another axis of several values; and
            whatever `analyze` raises.
        HardwareError: the machine has no ceilings for the data type.
    """
    grid = grid_of(axes or {BALANCE: DEFAULT_BALANCES})
    balances = _balances(grid)
    rest = tuple(axis for axis in grid.axes if axis.name != BALANCE)
    plan = plan_of(
        designs,
        Grid(axes=rest, text=grid.text),
        names=names,
        reference=reference,
        hardware=hardware,
        inputs=inputs,
        batch=batch,
        seq=seq,
        threads=threads,
        options=RunOptions(
            dtype=dtype,
            train=train,
            optimizer=optimizer,
            autocast=autocast,
            channels_last=channels_last,
            device=device,
        ),
        progress=progress,
    )
    return ridge_of(plan, balances)


def _balances(grid: Grid) -> tuple[float, ...]:
    found: Axis | None = None
    for axis in grid.axes:
        if axis.name == BALANCE:
            found = axis
        elif len(axis.values) > 1 or axis.name in ("hardware", "threads"):
            raise InputError(
                f"--sweep: {BALANCE} is an axis of machines, and '{axis.name}' cannot vary beside"
                f" it; give {axis.name} one value"
            )
    if found is None:
        raise InputError(f"a ridge sweep takes the axis {BALANCE}, as in {BALANCE}=1:256:x2")
    values = tuple(each for each in found.values if not isinstance(each, str) and each > 0)
    if len(values) < len(found.values) or len(values) < 2:
        raise InputError(f"--sweep: {BALANCE} takes at least two numbers of FLOP/byte above 0")
    return tuple(map(float, values))


def ridge_of(plan: Plan, balances: tuple[float, ...]) -> RidgeSweep:
    """The ridge sweep of designs that a plan has at a single point."""
    (machine, *_) = plan.context.machines
    base, threads = machine.profile, machine.threads

    @functools.cache
    def captured_on(run: Run) -> list[Captured]:
        return [_captured(plan, index, run.device) for index in range(len(plan.names))]

    def captures_on(device: str) -> list[Captured]:
        return captured_on(plan.context.options.run(device))

    captures = captures_on(base.device)
    of = _dtype(plan, captures[plan.reference])
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

    rows = tuple(map(bounds_s, balances))
    machines, left_out = _known(captures_on, of)
    device = captures[plan.reference].capture.run.device
    return RidgeSweep(
        designs=plan.names,
        reference=plan.reference,
        base=base,
        threads=threads,
        dtype=of.name,
        balances=balances,
        eager_min_time_s=rows,
        peak_memory_bytes=tuple(memory_peak(each.capture, each.reuse).byte for each in captures),
        crossings=_crossings(balances, rows, bounds_s),
        machines=machines,
        left_out=left_out,
        run=inputs_text(captures[plan.reference].asked),
        warnings=(
            *((other_device_note(base, device),) if device != base.device else ()),
            *notes_on_inputs(plan.names, [each.asked for each in captures]),
        ),
    )


def _captured(plan: Plan, design: int, device: str) -> Captured:
    (job,) = (each for each in plan.jobs() if each.design == design)
    try:
        return plan.context.captured(job, device)
    except RooflineError as error:
        raise ModelError(f"{plan.names[design]}: {error}") from None


def _dtype(plan: Plan, captured: Captured) -> DType:
    """The type that most of the reference's FLOP are done in."""
    asked = plan.context.options.dtype
    if asked is not None:
        return dtype_called(str(asked))
    found: Counter[DType] = Counter()
    for record in captured.capture.records:
        of = arithmetic_dtype((*record.inputs, *record.outputs))
        if of is not None:
            found[of] += record.work.flop or 0
    return found.most_common(1)[0][0] if found else dtype_called("float32")


def _bounds_s(captures: Sequence[Captured], roof: Roof) -> tuple[float, ...] | None:
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


def _known(
    captures_on: Callable[[str], Sequence[Captured]], of: DType
) -> tuple[tuple[KnownMachine, ...], tuple[str, ...]]:
    """The machines that have a name, by balance, and those of which the balance is not known."""
    found: list[KnownMachine] = []
    left_out: list[str] = []
    for entry in catalog.entries():
        profile = entry.profile
        balance = balance_of(profile, of) if profile else None
        if profile is None or balance is None:
            why = "cannot be read" if profile is None else f"no ceilings for {of}"
            left_out.append(f"{entry.name} ({why})")
            continue
        times = _bounds_s(captures_on(profile.device), Roof(profile, profile.threads))
        if times is None:
            left_out.append(f"{entry.name} (no ceilings for some operators)")
            continue
        found.append(
            KnownMachine(
                name=entry.name,
                balance=balance,
                eager_min_time_s=times,
                has_caches=not profile.knows_only_dram,
                memory_capacity_bytes=profile.memory_capacity_bytes,
            )
        )
    return tuple(sorted(found, key=lambda each: each.balance)), tuple(left_out)


def _crossings(
    balances: Sequence[float], rows: Sequence[tuple[float, ...]], bounds_s: Any
) -> tuple[Crossing, ...]:
    """Where the lead changes, between two balances of which it did."""
    found: list[Crossing] = []
    for i in range(len(balances) - 1):
        before, after = _best(rows[i]), _best(rows[i + 1])
        low, high = balances[i], balances[i + 1]
        while before != after:
            at, then = _first_change(low, high, before, bounds_s)
            found.append(Crossing(balance=at, before=before, after=then))
            before, low = then, at
    return tuple(found)


def _first_change(low: float, high: float, before: int, bounds_s: Any) -> tuple[float, int]:
    """The lowest balance found at which another than `before` leads, and who."""
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if _best(bounds_s(middle)) == before:
            low = middle
        else:
            high = middle
    return high, _best(bounds_s(high))


def _best(times_s: tuple[float, ...]) -> int:
    return min(range(len(times_s)), key=lambda i: (times_s[i], i))
