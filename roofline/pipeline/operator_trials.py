"""Operators and those that would take their place, timed in turn, each on tensors of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roofline.design.advice.alternatives import Alternative
from roofline.design.advice.subject import Swap
from roofline.errors import MeasurementError
from roofline.latency.measuring.gauges import Gauges
from roofline.latency.measuring.rounds import Effort, run_rounds
from roofline.machine.measuring.pace_gauge import pace_gauge
from roofline.pipeline.timing import Bench
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import TensorSpec

if TYPE_CHECKING:
    from roofline.latency.measuring.calls import Call, TensorNeed

_MOST_PAIRS = 40
"""Different operators that are timed for one finding: those that take longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapTimes:
    """The seconds of a swap, before and after, in every round."""

    before_s: tuple[float, ...]
    after_s: tuple[float, ...]

    @property
    def savings_s(self) -> tuple[float, ...]:
        """What was saved in every round."""
        pairs = zip(self.before_s, self.after_s, strict=True)
        return tuple(before - after for before, after in pairs)


def times_of_swaps(
    here: Bench, swaps: Sequence[Swap], threads: int, last_level_bytes: int, effort: Effort
) -> list[SwapTimes]:
    """The times of every swap, its operators in turn; runs in a process of its own.

    Equal swaps are timed once.

    Raises:
        MeasurementError: an operator cannot be called on its own.
    """
    import torch

    from roofline.latency.measuring.team import team
    from roofline.machine.library.default_settings import default_settings

    known: dict[object, SwapTimes] = {}
    found: list[SwapTimes] = []
    cores = here.topology.cores
    with (
        torch.no_grad(),
        default_settings(),
        team(threads, cores),
        pace_gauge(cores[:threads]) as pace,
    ):
        gauges = replace(Gauges(), pace=pace)
        for swap in swaps:
            before = [call_of(each) for each in swap.before]
            after = [call_of(each) for each in swap.after]
            key = (
                *(tuple(each.key(threads) for each in calls) for calls in (before, after)),
                swap.factor,
            )
            if key not in known:
                if len(known) == _MOST_PAIRS:
                    raise MeasurementError(f"more than {_MOST_PAIRS} different operators")
                known[key] = _timed(before, after, swap.factor, gauges, last_level_bytes, effort)
            found.append(known[key])
    return found


def _timed(
    before: Sequence[Call],
    after: Sequence[Call],
    factor: float,
    gauges: Gauges,
    last_level_bytes: int,
    effort: Effort,
) -> SwapTimes:
    from roofline.latency.measuring.isolated import cycle_of
    from roofline.latency.measuring.turns import Turns, plan_for

    turns: list[Turns] = []
    for call in (*before, *after):
        plan = plan_for(
            call.storages,
            cycle_bytes=cycle_of(last_level_bytes),
            turns=effort.warm_ups + effort.most,
        )
        turns.append(Turns(call, plan, sweep=None, clock=gauges.wall))
    rounds = run_rounds(
        [subject for each in turns for subject in (each.prepare, each.call)], gauges, effort
    )
    kept = [[each.seconds[effort.warm_ups + number] for each in turns] for number in rounds.kept]
    return SwapTimes(
        before_s=tuple(sum(times[: len(before)]) for times in kept),
        after_s=tuple(factor * sum(times[len(before) :]) for times in kept),
    )


def call_of(operator: Alternative) -> Call:
    """The call that a record is of, to be made with tensors like its own.

    Raises:
        MeasurementError: torch has no such operator, or what it takes is not in the record.
    """
    import torch

    from roofline.latency.measuring.calls import Call

    record = operator.record
    space, _, name = record.op.partition(".")
    packet: Any = getattr(getattr(torch.ops, space), name, None)
    overloads: list[str] = packet.overloads() if packet is not None else []
    overload = next((each for each in ("default", "Tensor") if each in overloads), None)
    if overload is None:
        raise MeasurementError(f"{record.op} cannot be called on its own")
    tensors = [_need(spec, number) for number, spec in enumerate(record.inputs)]
    args: list[Any] = []
    kwargs: list[tuple[str, Any]] = []
    for argument in getattr(packet, overload)._schema.arguments:
        value = _argument(record, argument, tensors)
        if argument.kwarg_only:
            kwargs.append((argument.name, value))
        else:
            args.append(value)
    if tensors:
        raise MeasurementError(f"{record.op} has operands that its record does not tell apart")
    return Call(op=record.op, overload=overload, args=tuple(args), kwargs=tuple(kwargs))


def _argument(record: OperatorRecord, argument: Any, tensors: list[TensorNeed]) -> Any:
    """One argument: the next of the record's tensors, or what the record says of it."""
    kind = str(argument.type)
    if kind == "Tensor" or (kind == "Optional[Tensor]" and tensors):
        if not tensors:
            raise MeasurementError(f"{record.op} takes more tensors than its record has")
        return tensors.pop(0)
    if "Device" in kind or argument.name in ("device", "layout", "pin_memory"):
        return None
    value = record.attributes.get(argument.name, argument.default_value)
    if isinstance(value, str) and value.startswith("torch."):
        import torch

        return getattr(torch, value.removeprefix("torch."))
    return tuple(value) if isinstance(value, list) else value


def _need(spec: TensorSpec, number: int) -> TensorNeed:
    """The tensor of a record's operand, in a storage of its own."""
    from roofline.latency.measuring.calls import TensorNeed
    from roofline.workload.torch_dtypes import torch_dtype

    return TensorNeed(
        shape=spec.shape,
        stride=strides_of(spec),
        dtype=torch_dtype(spec.dtype.name),
        storage=number,
        offset_bytes=0,
        is_kept=spec.role.persists,
    )


def strides_of(spec: TensorSpec) -> tuple[int, ...]:
    """The strides in elements that its layout says; of other layouts, with two sizes swapped."""
    order = list(range(len(spec.shape)))
    if spec.layout == "channels-last":
        order = [order[0], *order[2:], order[1]]
    elif spec.layout == "strided" and len(order) > 1:
        # Which way it is strided is not kept: a transposed matrix, mostly, or a swap of two sizes.
        order[-1], order[-2] = order[-2], order[-1]
    strides, step = [0] * len(order), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= max(1, spec.shape[dimension])
    return tuple(strides)
