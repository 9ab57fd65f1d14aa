"""Designs over a grid of sizes: fastest design, speedup, and designs that cannot run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from roofline.core.text import counted
from roofline.design.comparison.axes import Axis, Grid, Value, axis_names, join_words, text_of
from roofline.design.comparison.cells import Verdict, factor_text

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

_CLOSE, _UNKNOWN = -1, -2  # Instead of the index of the fastest design


def check(comparison: Comparison) -> None:
    """Raise an error without axes or with an incomplete grid of cells."""
    if not comparison.axes:
        raise ValueError("a sweep has at least one axis")
    count, cells, balance = comparison.grid.count, comparison.cells, comparison.balance
    count += len(balance.machines) if balance else 0
    if len(cells) != count or {len(each) for each in cells} != {len(comparison.designs)}:
        raise ValueError(f"rows are no full grid of {count} points and the designs")


def summary(comparison: Comparison) -> str:
    """Return the verdict: the designs, and the fastest of them."""
    found = next(sentences(comparison), "no times to compare")
    return f"{' vs '.join(comparison.names)} over {axis_names(comparison.grid)}: {found}"


def sentences(comparison: Comparison) -> Iterator[str]:
    """Yield the fastest design by region of the grid, with speedups."""
    designs, grid, verdicts = comparison.names, comparison.grid, comparison.verdicts
    states = list(map(_state, verdicts))
    wins = Counter(each for each in states if each >= 0)
    places = {state: [i for i, each in enumerate(states) if each == state] for state in states}
    close = places.get(_CLOSE, [])
    if not wins:
        if close:
            between = _between(designs, verdicts)
            yield f"no significant difference at {_of_all(len(close), len(states))}{between}"
        return
    first = wins.most_common(1)[0][0]
    others = [each for each in sorted(wins) if each != first]
    lost = [i for i, each in enumerate(states) if each != first]
    if not lost:
        by = _by(verdicts, places[first])
        yield f"{designs[first]} is fastest at {_of_all(len(states), len(states))}{by}"
        return
    if len(others) == 1 and not close and len(lost) == wins[others[0]]:
        count, where = grid.box(lost)
        if count == len(lost) and where:
            factors = [factor for i in lost if (factor := verdicts[i].factor) is not None]
            slower = f"up to {factor_text(max(factors))}×" if factors else ""
            than = f" ({slower} slower there than {designs[others[0]]})" if slower else ""
            yield f"{designs[first]} is fastest except at {where}{than}"
            return
    for each in (first, *others):
        of = f" of {counted(len(states), 'point')}" if each == first else ""
        where, by = _where(grid, places[each]), _by(verdicts, places[each])
        yield f"{designs[each]} is fastest at {wins[each]}{of}{where}{by}"
    if close:
        where, between = _where(grid, close), _between(designs, verdicts)
        yield f"no significant difference at {len(close)}{where}{between}"


def _state(verdict: Verdict) -> int:
    if verdict.winner is None:
        return _UNKNOWN
    return _CLOSE if verdict.is_close else verdict.winner


def _of_all(count: int, whole: int) -> str:
    part = "all" if count == whole else f"{count} of"
    return "the only point" if whole == 1 else f"{part} {counted(whole, 'point')}"


def _where(grid: Grid, chosen: Sequence[int]) -> str:
    """Return the smallest box around points: ``" (all points with batch ≥ 64)"``."""
    count, where = grid.box(chosen)
    return f" ({'all points with' if count == len(chosen) else 'only at'} {where})" if where else ""


def _between(designs: Sequence[str], verdicts: Sequence[Verdict]) -> str:
    if len(designs) == 2:
        return ""
    found = Counter(
        tuple(sorted((each.winner, *each.rivals)))
        for each in verdicts
        if each.winner is not None and each.is_close
    )
    parts = [
        f"{join_words([designs[i] for i in group])} at {count}"
        if len(group) < len(designs)
        else f"all of them at {count}"
        for group, count in found.most_common(3)
    ]
    return f" (between {', '.join(parts)})"


def _by(verdicts: Sequence[Verdict], won: Sequence[int]) -> str:
    factors = [factor for i in won if (factor := verdicts[i].factor) is not None]
    return f"{span_text(factors)} faster" if factors else ""


def span_text(factors: Sequence[float]) -> str:
    """Return the range of factors: ``", 2.0 to 8.0×"``."""
    low, high = map(factor_text, (min(factors), max(factors)))
    return f", {low}×" if low == high else f", {low} to {high}×"


def winner_changes(comparison: Comparison, along: str) -> list[tuple[str, str]]:
    """Return the lines along an axis on which the fastest design changes, equal ones merged."""
    grid, names = comparison.grid, comparison.names
    number = [each.name for each in grid.axes].index(along)
    lines: dict[tuple[int, ...], list[int]] = {}
    for index, verdict in enumerate(comparison.verdicts):
        places = grid.places(index)
        line = (*places[:number], *places[number + 1 :])
        # Points are in axis order.
        lines.setdefault(line, []).append(_state(verdict))
    others = Grid(axes=tuple(each for each in grid.axes if each.name != along))
    found = [
        (_runs_text(along, grid.axes[number].values, names, states), others.index(line))
        for line, states in lines.items()
        if len(set(states)) > 1
    ]
    joined: list[tuple[str, str]] = []
    for said, alike in groupby(found, key=lambda each: each[0]):
        points = [index for _, index in alike]
        if not others.axes:
            joined.append(("", said))
            continue
        count, where = others.box(points)
        # One line if they fill a box, else one each.
        boxes = [where or "everywhere"] if count == len(points) else []
        joined += [(each, said) for each in boxes or [others.box([i])[1] for i in points]]
    return joined


def _runs_text(
    name: str, values: Sequence[Value], designs: Sequence[str], states: Sequence[int]
) -> str:
    parts: list[str] = []
    place = 0
    for state, run in groupby(states):
        length = len(list(run))
        first, last = text_of(values[place]), text_of(values[place + length - 1])
        who = {_CLOSE: "not significant", _UNKNOWN: "no comparison"}.get(state) or designs[state]
        if place == 0:
            parts.append(f"{who} up to {name} {last}")
        elif place + length == len(states):
            parts.append(f"{who} from {first}")
        else:
            parts.append(f"{who} at {first}" if length == 1 else f"{who} {first} to {last}")
        place += length
    return ", ".join(parts)


def problems(comparison: Comparison) -> Iterator[str]:
    """Yield designs that cannot be built, by reason, and designs that do not fit."""
    designs, cells, grid = comparison.names, comparison.cells, comparison.grid
    counts = Counter(
        (index, cell.problem) for at in cells for index, cell in enumerate(at) if cell.problem
    )
    by_design: Counter[int] = Counter()
    for (index, why), count in counts.most_common():
        by_design[index] += 1
        if by_design[index] <= 3:
            points = counted(grid.count, "point")
            yield f"{designs[index]} cannot be built at {count} of {points}: {why}"
    more = [f"{designs[i]} ({count - 3} reasons)" for i, count in by_design.items() if count > 3]
    if more:
        yield f"more reasons: {join_words(more)}; see -o FILE.csv"
    for index, name in enumerate(designs):
        chosen = [place for place, at in enumerate(cells) if at[index].fits is False]
        if chosen:
            where = f"{_of_all(len(chosen), grid.count)}{_where(grid, chosen)}"
            yield f"{name} does not fit into memory at {where}"


# -- rows ------------------------------------------------------------------------------------------

_NUMBERS = (
    *("flop", "macs", "parameters", "traffic_bytes"),
    *("eager_min_time_s", "fused_min_time_s", "model_min_time_s"),
    *("predicted_s", "predicted_low_s", "predicted_high_s", "ceiling", "ceiling_share"),
    *("peak_memory_bytes", "memory_capacity_bytes", "problem"),
)


def columns(comparison: Comparison) -> dict[str, str]:
    """Return column names with pandas' types."""
    types = {
        **dict.fromkeys(("flop", "macs", "parameters"), "Int64"),
        **dict.fromkeys(("fits", "is_best", "is_close"), "boolean"),
    }
    ends = {"_bytes": "Int64", "_s": "Float64", "_share": "Float64"}
    names = (*_NUMBERS, "fits", "compared_by", "is_best", "is_close")
    found = {**dict.fromkeys((*comparison.axes, "design"), "object")}
    for name in names:
        by_end = (kind for end, kind in ends.items() if name.endswith(end))
        found[name] = types.get(name) or next(by_end, "object")
    return found


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a row per point and design: axes, numbers, verdict."""
    return [
        {
            **point,
            "design": name,
            **{number: getattr(cell, number) for number in _NUMBERS},
            "fits": cell.fits,
            "compared_by": verdict.basis,
            "is_best": None if verdict.winner is None else verdict.winner == index,
            "is_close": None if verdict.winner is None else verdict.is_close,
        }
        for point, cells, verdict in zip(
            comparison.points, comparison.cells, comparison.verdicts, strict=True
        )
        for index, (name, cell) in enumerate(zip(comparison.designs, cells, strict=True))
    ]


def points_of_files(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the verdict at every point."""
    return [
        {
            **point,
            "winner": None if each.winner is None else comparison.designs[each.winner],
            "reference_over_best_other": each.ratio,
            "is_close": each.is_close,
            "compared_by": each.basis,
        }
        for point, each in zip(comparison.points, comparison.verdicts, strict=True)
    ]


def map_axes(comparison: Comparison) -> tuple[Axis, Axis | None, Grid]:
    """Return the axis across, the axis down, and the axes with a map per value."""
    across, *rest = comparison.varied
    down = rest[0] if rest else None
    return across, down, Grid(axes=tuple(rest[1:]))


def places_of_map(
    comparison: Comparison, facet: int, columns: range, rows: range
) -> list[list[int]]:
    """Return the point numbers of a map (`facet` of the other axes) by row."""
    across, down, facets = map_axes(comparison)
    fixed = dict(zip((each.name for each in facets.axes), facets.places(facet), strict=True))

    def number(i: int, j: int) -> int:
        chosen = {**fixed, across.name: i, **({down.name: j} if down else {})}
        return comparison.grid.index([chosen.get(each, 0) for each in comparison.axes])

    return [[number(i, j) for i in columns] for j in rows]
