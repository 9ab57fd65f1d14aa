"""A pass by its parts, before and after: what quantisation saves, and what it adds."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.analysis import OperatorRow, sum_bound_s, working
from roofline.quantization.result import Part, PartName, QuantizationPass
from roofline.quantization.what_if.after import After
from roofline.quantization.what_if.times import NO_TIME, time_of_rows, total


def parts_of(after: After, passes: Sequence[QuantizationPass]) -> tuple[Part, ...]:
    """Layers, requantisation, conversions, shortcuts, and all others.

    The bytes, bounds and times before are those of the whole pass, and so are those after without
    requantisation, which kernels do before they write.
    """
    part_of = _parts_of_operators(after)
    rows = after.analysis.operators
    found: list[Part] = []
    for name in ("layers", "shortcuts", "others"):
        before = [row for place, row in enumerate(rows) if part_of.get(place, "others") == name]
        places = [
            place
            for place, step in enumerate(after.steps)
            if step.node is not None and part_of.get(step.node.operators[0], "others") == name
        ]
        found.append(_part(name, before, places, after))
    conversions = [each for each in passes if each.is_separate]
    requantized = [each for each in passes if not each.is_separate]
    return (
        found[0],
        _added("requantization", requantized, after),
        _added("conversions", conversions, after),
        found[1],
        found[2],
    )


def _parts_of_operators(after: After) -> dict[int, PartName]:
    return {
        operator: "layers" if group.layer is not None else "shortcuts"
        for group in after.plan.groups
        for operator in group.operators
    }


def _part(
    name: PartName, before: Sequence[OperatorRow], places: Sequence[int], after: After
) -> Part:
    now = [after.rows[each] for each in places]
    layers = {each.index for each in after.plan.structure.layers}
    additions = {each.addition for each in after.plan.structure.shortcuts}
    counts = {"layers": len(layers), "shortcuts": len(additions)}
    timed_before = after.analysis.prediction is not None
    return Part(
        name=name,
        count=counts.get(name, len(working(before))),
        before_byte=sum(row.traffic_byte for row in before),
        after_byte=sum(row.traffic_byte for row in now),
        before_bound_s=sum_bound_s(before),
        after_bound_s=sum_bound_s(now),
        before_time=time_of_rows(before) if timed_before else None,
        after_time=after.time(places) if after.times.are_known else None,
    )


def _added(name: PartName, passes: Sequence[QuantizationPass], after: After) -> Part:
    """A part that there was none of before."""
    return Part(
        name=name,
        count=len(passes),
        before_byte=0,
        after_byte=sum(each.traffic_byte for each in passes),
        before_bound_s=0.0,
        after_bound_s=bound_of(passes),
        before_time=NO_TIME if after.analysis.prediction is not None else None,
        after_time=total(each.time for each in passes) if after.times.are_known else None,
    )


def bound_of(passes: Sequence[QuantizationPass]) -> float | None:
    """The seconds that passes take at least; None if one of them is unknown."""
    bounds_s = [each.bound_s for each in passes if each.bound_s is not None]
    return sum(bounds_s) if len(bounds_s) == len(passes) else None
