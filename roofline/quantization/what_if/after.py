"""A pass in few bits, placed and timed: what all figures of a what-if are taken from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.analysis import Analysis, OperatorRow, row_of, sum_eager_min_time_s
from roofline.design.advice.times import Time
from roofline.latency.predicted import Predicts
from roofline.placement import Bound, Roof
from roofline.quantization.policy import FLOAT_BITS
from roofline.quantization.result import LayerWhatIf, Side
from roofline.quantization.what_if.nodes import Node
from roofline.quantization.what_if.placing import farther_of, placed, together
from roofline.quantization.what_if.planning import Plan
from roofline.quantization.what_if.steps import Step, steps_of
from roofline.quantization.what_if.times import Times, time_of_rows, times_of, total
from roofline.workload.operators import State


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
        analysis: of the model as it is.
        plan: its layers in few bits.
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
    """Operators taken together; level and ceiling are those of the one with the longest bound.

    Args:
        rows: a layer, and what is folded into it.
        time: the prediction of all of them.
    """
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
