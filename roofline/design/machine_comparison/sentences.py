"""What a person should take home of a comparison of machines, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofline.analysis import Analysis, too_large
from roofline.design.machine_comparison.grouping import Across, changes_sides
from roofline.design.pass_times import DIGITS, lines_on_bounds_alone, lines_on_earlier
from roofline.foundation.text import counted
from roofline.foundation.units import format_s
from roofline.placement import Bound


def verdict(names: Sequence[str], operators: Sequence[Across]) -> Iterable[str]:
    """Who changes sides: how many operators, and between which machines."""
    changing = sum(changes_sides(row.bound for row in across) for across in operators)
    many = f"{counted(len(operators), 'operator')}"
    where = "both machines" if len(names) == 2 else f"all {len(names)} machines"
    if not changing:
        always = [
            sum(all(row.bound is bound for row in across) for across in operators)
            for bound in (Bound.COMPUTE, Bound.MEMORY)
        ]
        unknown = len(operators) - sum(always)
        rest = f", {unknown} of which one side or more is unknown" if unknown else ""
        yield (
            f"none of {many} changes sides: {always[0]} compute-bound"
            f" and {always[1]} memory-bound on {where}{rest}"
        )
        return
    # One way through each pair of machines: compute-bound on the first, not on the second.
    ways = sorted(
        (
            (-_crossing(operators, i, j), i, j)
            for i in range(len(names))
            for j in range(len(names))
            if i != j
        ),
    )
    (most, here, there), (back, *_) = ways[0], ways[1]
    are = "is" if most == -1 else "are"
    one_way = f"{are} compute-bound on {names[here]} but memory-bound on {names[there]}"
    if len(names) == 2:
        other_way = f", and {-back} the other way round" if back else ""
        yield f"{-most} of {many} {one_way}{other_way}"
        return
    if changing == 1:
        yield (
            f"1 of {many} changes sides: it is compute-bound on some of the"
            f" {len(names)} machines and memory-bound on others"
        )
    else:
        yield (
            f"{changing} of {many} change sides: each is compute-bound on some of the"
            f" {len(names)} machines and memory-bound on others"
        )
    yield f"the farthest apart: {-most} {one_way}"


def _crossing(operators: Sequence[Across], here: int, there: int) -> int:
    """How many operators are compute-bound on one machine and memory-bound on another."""
    return sum(
        across[here].bound is Bound.COMPUTE and across[there].bound is Bound.MEMORY
        for across in operators
    )


def bounds(names: Sequence[str], analyses: Sequence[Analysis]) -> Iterable[str]:
    """Where the bound is lowest and where highest of those that it fits on, and where none is."""
    known = [
        (each.totals.eager_min_time_s, name)
        for name, each in zip(names, analyses, strict=True)
        if each.totals.eager_min_time_s and each.fits is not False
    ]
    if len(known) > 1:
        (least, lowest), (most, highest) = min(known), max(known)
        ratio = f"{most / least:.3g}" if most < 1000 * least else f"{most / least:,.0f}"
        yield (
            f"the bound is lowest on {lowest}, {format_s(least)}; on {highest} it is {ratio} × that"
        )
    elif known and any(each.fits is False for each in analyses):
        ((only_s, only),) = known
        fits = "fits" if analyses[names.index(only)].fits else "may fit"
        yield f"the bound is {format_s(only_s)} on {only}, the only one where it {fits}"
    unknown = [
        name
        for name, each in zip(names, analyses, strict=True)
        if each.totals.eager_min_time_s is None
    ]
    if unknown:
        yield f"no bound on {', '.join(unknown)}: the ceilings are unknown"


def memory_fit(names: Sequence[str], analyses: Sequence[Analysis]) -> Iterable[str]:
    """On which machines the model does not fit."""
    large = too_large(names, analyses)
    if large:
        yield f"does not fit on {', '.join(large)}"


def predictions(names: Sequence[str], analyses: Sequence[Analysis]) -> Iterable[str]:
    """What the model is predicted to take, and on which machines only its bound is known."""
    for name, each in zip(names, analyses, strict=True):
        if each.prediction:
            low, high = each.prediction.low_s, each.prediction.high_s
            yield (
                f"predicted on {name}: {format_s(each.prediction.predicted_s, DIGITS)}"
                f" ({format_s(low, DIGITS)} to {format_s(high, DIGITS)})"
            )
    yield from lines_on_bounds_alone(names, analyses, place="on")
    yield from lines_on_earlier(names, analyses)
