"""A pass in few bits, placed and timed: what all figures of a what-if are taken from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofline.analysis import Analysis, OperatorRow, row_of, sum_eager_min_time_s
from roofline.design.advice.alternatives import reuses_for
from roofline.design.advice.times import Time
from roofline.foundation.dtypes import DType
from roofline.latency.predicted import Predicts
from roofline.latency.prediction import Prediction
from roofline.placement import Bound, Pass, Placement, Roof
from roofline.quantization.nodes import Node
from roofline.quantization.planning import Plan
from roofline.quantization.policy import FLOAT_BITS
from roofline.quantization.records import executed_records
from roofline.quantization.result import LayerWhatIf, Side
from roofline.quantization.steps import Step, steps_of, with_ends
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import residency

# How long the model keeps what it makes is not in an analysis, so that everything is taken to end
# with its last reader. What memory then seems nearer than it was, by the operators as they are, is
# put back: an operator that does not change stands where it stood.

Farther = Mapping[str, float]
"""Bytes that must come from each memory level beyond those of short lives, for each byte moved."""


def placed(
    records: Sequence[OperatorRecord],
    roof: Roof,
    cache: Pass,
    farther: Sequence[Farther],
    compute_as: Sequence[DType | None] | None = None,
) -> tuple[Placement, ...]:
    """Where each operator of a pass stands, its operands being reused as the others leave them.

    Args:
        records: the pass, in its order.
    """
    types = compute_as or (None,) * len(records)
    crossing = _level_bytes(records, roof, cache)
    return tuple(
        roof.place(record, reuses_for(_moved(byte, record, each), roof), compute_as=of)
        for record, byte, each, of in zip(records, crossing, farther, types, strict=True)
    )


def farther_of(analysis: Analysis, roof: Roof) -> list[dict[str, int]]:
    """Bytes of each operator by memory level beyond those that short lives would give."""
    rows = analysis.operators
    short = _level_bytes([row.record for row in rows], roof, analysis.cache)
    return [
        {name: crossing - byte.get(name, 0) for name, crossing in row.level_bytes.items()}
        for row, byte in zip(rows, short, strict=True)
    ]


def together(
    operators: Sequence[int], farther: Sequence[Mapping[str, int]], analysis: Analysis
) -> Farther:
    """The same of operators that become one, for each byte that they move."""
    moved = sum(analysis.operators[each].traffic_bytes for each in operators)
    found: dict[str, float] = {}
    for each in operators if moved else ():
        for name, byte in farther[each].items():
            found[name] = found.get(name, 0.0) + byte / moved
    return found


def _level_bytes(
    records: Sequence[OperatorRecord], roof: Roof, cache: Pass
) -> list[Mapping[str, int]]:
    reuse = residency(with_ends(records))
    by_pass = reuse.steady if cache == "steady" else reuse.cold
    return [
        {} if record.state is State.FREE else roof.level_bytes(reuses)
        for record, reuses in zip(records, by_pass, strict=True)
    ]


def _moved(byte: Mapping[str, int], record: OperatorRecord, farther: Farther) -> dict[str, int]:
    """Bytes by memory level with those from farther away; no level gives more than one nearer."""
    found: dict[str, int] = {}
    most: int | None = None
    for name, crossing in byte.items():
        more = crossing + round(farther.get(name, 0.0) * record.work.traffic_bytes)
        # The nearest gives all there is.
        most = crossing if most is None else max(0, min(most, more))
        found[name] = most
    return found


NO_TIME = Time(s=0.0, low_s=0.0, high_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Predictions of a pass in few bits.

    ``steps`` are those of each step, None where torch has no kernel or nothing was learned of it;
    ``whole`` that of the pass, None where a step has none.
    """

    steps: tuple[Time | None, ...]
    whole: Time | None = None

    @property
    def are_known(self) -> bool:
        """Whether something was predicted."""
        return any(each is not None for each in self.steps)


def times_of(
    steps: Sequence[Step],
    plan: Plan,
    roof: Roof,
    cache: Pass,
    farther: Sequence[Farther],
    predictor: Predicts | None,
) -> Times:
    """Predictions of what torch would run.

    Args:
        predictor: what was learned on that machine; None: nothing.
    """
    if predictor is None:
        return Times(steps=(None,) * len(steps))
    calls = executed_records(steps, plan)
    # What has no kernel stands for itself: others find the caches as it leaves them.
    run = [each or (step.record,) for each, step in zip(calls, steps, strict=True)]
    all_records = [record for each in run for record in each]
    all_farther = [one for each, one in zip(run, farther, strict=True) for _ in each]
    placements = iter(placed(all_records, roof, cache, all_farther))
    by_step = [[next(placements) for _ in each] for each in run]
    asked = [each for each, known in zip(by_step, calls, strict=True) if known]
    predicted = predictor.predict([one for each in asked for one in each], roof.threads)
    found = iter(predicted.operators or (None,) * sum(map(len, asked)))
    times = tuple(_time(each, [next(found) for _ in each]) if each else None for each in calls)
    whole = predicted.run if all(calls) and None not in times else None
    return Times(
        steps=times,
        whole=Time(s=whole.predicted_s, low_s=whole.low_s, high_s=whole.high_s)
        if whole is not None
        else None,
    )


def total(times: Iterable[Time | None]) -> Time | None:
    """One after the other; None if one of them is unknown. The ends of intervals add up, too."""
    found = tuple(times)
    known = [each for each in found if each is not None]
    if len(known) != len(found):
        return None
    lows = [each.low_s for each in known if each.low_s is not None]
    highs = [each.high_s for each in known if each.high_s is not None]
    return Time(
        s=sum(each.s for each in known),
        low_s=sum(lows) if len(lows) == len(known) else None,
        high_s=sum(highs) if len(highs) == len(known) else None,
    )


def time_of_rows(rows: Iterable[OperatorRow]) -> Time | None:
    """The predictions of operators as they are, added up; None if one of them has none."""
    return total(
        None
        if row.predicted_s is None
        else Time(s=row.predicted_s, low_s=row.predicted_low_s, high_s=row.predicted_high_s)
        for row in rows
        if row.state is not State.FREE
    )


def _time(records: Sequence[OperatorRecord], found: Sequence[Prediction | None]) -> Time | None:
    """The time of the calls of one step; what is free takes none."""
    return total(
        Time(s=each.predicted_s, low_s=each.low_s, high_s=each.high_s) if each else None
        for record, each in zip(records, found, strict=True)
        if record.state is not State.FREE
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class After:
    """A pass in few bits, beside the analysis of the pass as it is.

    ``rows`` and ``times.steps`` are those of ``steps``, one each.
    """

    analysis: Analysis
    plan: Plan
    roof: Roof
    steps: tuple[Step, ...]
    rows: tuple[OperatorRow, ...]
    times: Times

    def places(self, operators: Iterable[int]) -> list[int]:
        """The positions of the steps that operators became, conversions left aside."""
        wanted = set(operators)
        return [
            place
            for place, step in enumerate(self.steps)
            if step.node is not None and step.node.operators[0] in wanted
        ]

    def time(self, places: Iterable[int]) -> Time | None:
        """The predicted time of steps, one after the other; None if one of them has none."""
        return total(
            self.times.steps[place] for place in places if self.rows[place].state is not State.FREE
        )


def after_of(analysis: Analysis, plan: Plan, predictor: Predicts | None) -> After:
    """The pass that a plan makes of an analysed one, on its machine.

    Args:
        predictor: what was learned on that machine; None: nothing.
    """
    roof = Roof(analysis.hardware, analysis.threads)
    steps = steps_of(plan)
    operators = farther_of(analysis, roof)
    farther = [
        together(each.node.operators, operators, analysis) if each.node is not None else {}
        for each in steps
    ]
    placements = placed(
        [each.record for each in steps],
        roof,
        analysis.cache,
        farther,
        [each.compute_as for each in steps],
    )
    return After(
        analysis=analysis,
        plan=plan,
        roof=roof,
        steps=steps,
        rows=tuple(map(row_of, placements)),
        times=times_of(steps, plan, roof, analysis.cache, farther, predictor),
    )


def layers_of(after: After) -> tuple[LayerWhatIf, ...]:
    """Each layer before and after, in the order in which they run."""
    nodes = {each.operators[0]: each for each in after.plan.nodes}
    return tuple(
        _layer(group.operators, nodes[group.operators[0]], after)
        for group in after.plan.groups
        if group.layer is not None
    )


def _layer(operators: tuple[int, ...], node: Node, after: After) -> LayerWhatIf:
    layer, plan = node.layer, after.plan
    rows = [after.analysis.operators[each] for each in operators]
    macs = rows[0].macs
    assert layer is not None
    assert macs is not None
    bits = plan.bits[layer.index]
    executable = plan.widths.executable(bits, plan.base(layer))
    places = after.places(operators)
    is_quantised = node.handling == "layer"
    return LayerWhatIf(
        layer=layer,
        bits=bits,
        operators=operators,
        output_bits=plan.written(node) if is_quantised else FLOAT_BITS,
        executable=executable.dtype.name,
        has_kernel=executable.has_kernel,
        parameters=rows[0].inputs[layer.weight].elements,
        macs=macs,
        before=side_of(rows, time_of_rows(rows)),
        after=side_of([after.rows[each] for each in places], after.time(places)),
    )


def side_of(rows: Sequence[OperatorRow], time: Time | None) -> Side:
    """Operators taken together; level and ceiling are those of the one with the longest bound."""
    decisive = max(rows, key=lambda row: row.eager_min_time_s or 0.0)
    known = [row.flop for row in rows if row.flop is not None]
    flop = sum(known) if len(known) == len(rows) else None
    eager_min_time_s = sum_eager_min_time_s(rows)
    crossing = sum(row.level_bytes.get(decisive.level, 0) for row in rows)
    is_known = eager_min_time_s is not None and decisive.bound is not Bound.UNKNOWN
    return Side(
        weight_bytes=sum(row.parameter_bytes for row in rows),
        input_bytes=sum(row.input_bytes for row in rows),
        output_bytes=sum(row.output_bytes for row in rows),
        flop=flop,
        level=decisive.level,
        ceiling=decisive.ceiling,
        bound=decisive.bound,
        eager_min_time_s=eager_min_time_s,
        intensity_flop_per_byte=flop / crossing if flop is not None and crossing else None,
        attainable_flop_per_s=_attainable(rows, flop) if is_known else None,
        time=time,
    )


def _attainable(rows: Sequence[OperatorRow], flop: int | None) -> float | None:
    """The rate of all where each runs at the rate that its ceiling allows.

    A bound leaves out FLOP that a kernel may leave out (padding taps), so that all FLOP by the sum
    of bounds would lie above the roof.
    """
    taken_s = [
        row.flop / row.attainable_flop_per_s
        if row.flop and row.attainable_flop_per_s
        else row.eager_min_time_s
        for row in rows
    ]
    known = [each for each in taken_s if each is not None]
    total_s = sum(known)
    return flop / total_s if flop is not None and total_s and len(known) == len(rows) else None
