"""The tables of the report on an optimization: figures, rewrites, timings and proofs."""

from __future__ import annotations

from collections.abc import Callable

from roofline.analysis import working
from roofline.foundation.blocks import Column, Grid
from roofline.foundation.spreads import digits_of, in_its_unit, rounds_title
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_flop,
    format_flop_per_s,
    format_percent,
    format_s,
)
from roofline.presentation.reports.optimization_rewrites import (
    RewriteGroup,
    measured_cell,
    saving_cell,
    share_cell,
)
from roofline.substitution.result import Figures, Optimization, Proof
from roofline.substitution.verdict import bounds_words, decisive, slowdown_words, speedup_words

_COST = {
    "bound": "time, {bounds}",
    "predicted": "time, predicted",
    "measured": "time, sum of operators",
}
"""What the search's cost is called beside measured times."""

_WIDE = 20
"""Times further apart than this factor have a unit each."""

_RUN = {"eager": "eager torch", "compile": "torch.compile"}


def figures_grid(optimization: Optimization) -> Grid:
    """The original and the result, as table 2 of the MetaFlow article has them.

    Where nothing was found there is one column; what was found and given up is said to be.
    """
    before, after = optimization.figures_before, optimization.figures_after
    rows = [
        *_times(optimization),
        _row("memory traffic", before.traffic_byte, after.traffic_byte, format_byte),
        _row("kernel launches", before.launches, after.launches, _count),
        *(_eager(optimization) if optimization.is_fused else ()),
        _row("FLOP", before.flop, after.flop, format_flop),
        _row("FLOP/s achieved", before.flop_per_s, after.flop_per_s, format_flop_per_s),
        _share_of_roof(before, after),
        _row("weights", before.weight_byte, after.weight_byte, format_byte),
    ]
    columns = (
        Column(heading=""),
        Column(heading="before", align="right"),
        Column(heading="after", align="right"),
        Column(heading="after / before", align="right", sacrifice=1),
    )
    if optimization.is_kept:
        columns = (*columns[:2], Column(heading="given up", align="right"), columns[3])
    if before == after:
        return Grid(
            title="",
            columns=(columns[0], Column(heading="original", align="right")),
            rows=tuple(row[:2] for row in rows),
        )
    return Grid(title="", columns=columns, rows=tuple(rows))


_Row = tuple[str, str, str, str]


def _times(optimization: Optimization) -> list[_Row]:
    before, after = optimization.figures_before, optimization.figures_after
    rows = [
        _row(
            _COST[optimization.cost].format(bounds=bounds_words(optimization)),
            before.cost_s,
            after.cost_s,
            format_s,
        )
    ]
    if before.measured_s is None and after.measured_s is None:
        return rows
    (was, was_within), (now, now_within) = _measured(before), _measured(after)
    timed = [each for each in optimization.rounds if each.after_s == after.measured_s]
    ratio, within = _ratio(before.measured_s, after.measured_s), ""
    if timed:
        ratio, within = slowdown_words(timed[0])
    compiled = decisive(optimization)
    is_compiled = compiled is not None and compiled.baseline == "compile"
    rows.append(("time, eager torch" if is_compiled else "time, measured", was, now, ratio))
    if was_within or now_within:
        rows.append(("10 to 90 % of rounds", was_within, now_within, within))
    if compiled is not None and is_compiled:
        ratio, within = slowdown_words(compiled)
        said = format_s(compiled.before_s), format_s(compiled.after_s)
        rows.append(("time, torch.compile", *said, f"{ratio} ({within})" if within else ratio))
    return rows


def _measured(figures: Figures) -> tuple[str, str]:
    """A median and its interval, in one unit and as many digits as the interval leaves."""
    middle, low, high = figures.measured_s, figures.measured_low_s, figures.measured_high_s
    if not middle or low is None or high is None:
        return format_s(middle), ""
    if high > _WIDE * low:
        return format_s(middle), f"{format_s(low)} to {format_s(high)}"
    digits = max(3, digits_of((high - low) / middle))
    (first, *ends), unit = in_its_unit(middle, (low, high), digits)
    return f"{first} {unit}", f"{ends[0]} to {ends[1]} {unit}"


def _eager(optimization: Optimization) -> list[_Row]:
    """What eager torch moves and launches: beside counts with chains on chip."""
    was, now = optimization.before, optimization.after
    launched = [len(working(each.operators)) for each in (was, now)]
    return [
        _row("traffic, unfused", was.totals.traffic_byte, now.totals.traffic_byte, format_byte),
        _row("launches, unfused", launched[0], launched[1], _count),
    ]


def _share_of_roof(before: Figures, after: Figures) -> _Row:
    return _row("share of the roof", before.share_of_roof, after.share_of_roof, format_percent)


def _row(
    name: str, before: float | None, after: float | None, form: Callable[[float], str]
) -> _Row:
    def said(value: float | None) -> str:
        return MISSING if value is None else form(value)

    return name, said(before), said(after), _ratio(before, after)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _ratio(before: float | None, after: float | None) -> str:
    if before is None or after is None or before <= 0:
        return MISSING
    return f"{float(f'{after / before:.3g}'):g}"


def rewrites_grid(optimization: Optimization, groups: tuple[RewriteGroup, ...], top: int) -> Grid:
    """The rewrites that were made, in their order, and what they save."""
    whole = optimization.figures_before.cost_s
    shown = groups[:top]
    is_timed = any(each.measured_s is not None for each in shown)
    columns = (
        Column(heading="#", align="right"),
        Column(heading="rule", least=28),
        Column(heading="saves", align="right"),
        Column(heading="of a pass", align="right", sacrifice=2),
        *((Column(heading="its operators, timed", align="right", sacrifice=3),) * is_timed),
        Column(heading="where", least=14, sacrifice=1),
    )
    rows: list[tuple[str, ...]] = []
    for number, each in enumerate(shown, 1):
        saved = each.saving_s
        cells = (str(number), each.name, saving_cell(saved), share_cell(saved, whole))
        rows.append((*cells, *((measured_cell(each),) * is_timed), each.where))
    return Grid(
        title="Rewrites that were found, and given up with the candidate"
        if optimization.is_kept
        else "Rewrites, in the order in which they were made",
        columns=columns,
        rows=tuple(rows),
        sums=_sums(optimization, groups, top, is_timed=is_timed),
    )


def _sums(
    optimization: Optimization, groups: tuple[RewriteGroup, ...], top: int, *, is_timed: bool
) -> tuple[tuple[str, ...], ...]:
    whole, count = optimization.figures_before.cost_s, len(optimization.substitutions)
    blank = ("",) * is_timed
    sums: list[tuple[str, ...]] = []
    rest = [each for group in groups[top:] for each in group.members]
    if rest:
        saved = RewriteGroup(rule="", members=tuple(rest)).saving_s
        words = f"{len(rest)} more (--top {len(groups)})"
        sums.append(("", words, saving_cell(saved), share_cell(saved, whole), *blank, ""))
    if count > 1:
        saved = whole - optimization.figures_after.cost_s
        words = f"all {count}"
        sums.append(("", words, saving_cell(saved), share_cell(saved, whole), *blank, ""))
    return tuple(sums)


def rounds_grid(optimization: Optimization) -> Grid:
    """What was timed: the original and each candidate in turn."""
    columns = (
        Column(heading="run by"),
        Column(heading="candidate", least=10),
        Column(heading="original", align="right"),
        Column(heading="candidate", align="right"),
        Column(heading="times as fast", align="right"),
        Column(heading="rounds", align="right", sacrifice=1),
    )
    rows: list[tuple[str, ...]] = []
    for each in optimization.rounds:
        speedup, within = speedup_words(each)
        digits = max(3, digits_of((each.speedup_high - each.speedup_low) / each.speedup))
        rows.append(
            (
                _RUN[each.baseline],
                printable(each.candidate),
                format_s(each.before_s, digits),
                format_s(each.after_s, digits),
                f"{speedup} ({within})" if within else speedup,
                str(each.rounds),
            )
        )
    title = rounds_title(
        "Timed end to end, in turn", (each.allocator for each in optimization.rounds)
    )
    return Grid(title=title, columns=columns, rows=tuple(rows))


def proofs_grid(optimization: Optimization) -> Grid:
    """The outputs of the original and of the result held against each other.

    Inputs that go well in one type with the same weights are one row, with the largest error.
    """
    columns = (
        Column(heading="in"),
        Column(heading="inputs", least=10),
        Column(heading="weights", sacrifice=2),
        Column(heading="error", align="right"),
        Column(heading="limit", align="right"),
        Column(heading="same argmax", align="right", sacrifice=1),
        Column(heading="holds"),
    )
    alike: dict[tuple[object, ...], list[Proof]] = {}
    for number, each in enumerate(optimization.proofs):
        failure = None if each.holds else number
        alike.setdefault((each.dtype, each.weights, each.limit, failure), []).append(each)
    rows = tuple(map(_proof_row, alike.values()))
    title = "Proof: the largest error of the outputs, over the largest of the original's"
    return Grid(title=title, columns=columns, rows=rows)


def _proof_row(proofs: list[Proof]) -> tuple[str, ...]:
    first, error = proofs[0], max(each.largest_error for each in proofs)
    rows_agree = [each.same_argmax for each in proofs if each.same_argmax is not None]
    return (
        printable(first.dtype),
        ", ".join(printable(each.inputs) for each in proofs),
        printable(first.weights),
        f"{error:.1e}" if error else "0",
        f"{first.limit:.0e}",
        format_percent(min(rows_agree, default=None)),
        "yes" if first.holds else "NO",
    )
