"""What a sweep says, in sentences, and along which lines of its grid the winner changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from roofline.design.sweeps.axes import Grid, text_of
from roofline.design.sweeps.regions import Region, places_of, words
from roofline.design.sweeps.verdicts import Verdict, factor_text
from roofline.foundation.text import counted

_CLOSE, _UNKNOWN = -1, -2
"""What stands in the place of a winner where there is none."""


def sentences_of(
    grid: Grid, designs: Sequence[str], verdicts: Sequence[Verdict], reference: int
) -> Iterator[str]:
    """Who wins where, and by how much."""
    states = [_state(each) for each in verdicts]
    wins = Counter(each for each in states if each >= 0)
    close = [i for i, each in enumerate(states) if each == _CLOSE]
    if not wins:
        if close:
            yield (
                f"too close to call at {_of_all(len(close), len(states))}"
                f"{_between(designs, verdicts)}"
            )
        return
    first = wins.most_common(1)[0][0]
    others = [each for each in sorted(wins) if each != first]
    lost = [i for i, each in enumerate(states) if each != first]
    name = designs[first]
    if not lost:
        yield f"{name} wins at {_of_all(len(states), len(states))}{_by(verdicts, states, first)}"
        return
    if len(others) == 1 and not close and len(lost) == wins[others[0]]:
        region = Region.around(grid, lost)
        if region.count == len(lost) and region.text:
            slower = _at_most([verdicts[i] for i in lost])
            than = f"; there it is{slower} slower than {designs[others[0]]}" if slower else ""
            yield f"{name} wins everywhere but at {region.text}{than}"
            return
    yield (
        f"{name} wins at {wins[first]} of {_points(len(states))}"
        f"{_where(grid, states, first)}{_by(verdicts, states, first)}"
    )
    for each in others:
        yield (
            f"{designs[each]} wins at {wins[each]}{_where(grid, states, each)}"
            f"{_by(verdicts, states, each)}"
        )
    if close:
        yield (
            f"{len(close)} {'is' if len(close) == 1 else 'are'} too close to call"
            f"{_where(grid, states, _CLOSE)}{_between(designs, verdicts)}"
        )


def _state(verdict: Verdict) -> int:
    if verdict.winner is None:
        return _UNKNOWN
    return _CLOSE if verdict.is_close else verdict.winner


def _points(count: int) -> str:
    return f"{counted(count, 'point')}"


def _of_all(count: int, whole: int) -> str:
    if whole == 1:
        return "the only point"
    return f"all {_points(whole)}" if count == whole else f"{count} of {_points(whole)}"


def _where(grid: Grid, states: Sequence[int], wanted: int) -> str:
    return _region(grid, [i for i, each in enumerate(states) if each == wanted])


def _region(grid: Grid, chosen: Sequence[int]) -> str:
    """The smallest box around these points: ``", everywhere at batch ≥ 64"``."""
    region = Region.around(grid, chosen)
    if not region.text:
        return ""
    whole = "everywhere" if region.count == len(chosen) else "all"
    return f", {whole} at {region.text}"


def _between(designs: Sequence[str], verdicts: Sequence[Verdict]) -> str:
    """Between whom it is close, where there are more than two; the most frequent ones."""
    if len(designs) == 2:
        return ""
    found = Counter(
        tuple(sorted((each.winner, *each.rivals)))
        for each in verdicts
        if each.winner is not None and each.is_close
    )
    parts = [
        f"{words([designs[i] for i in group])} at {count}"
        if len(group) < len(designs)
        else f"all of them at {count}"
        for group, count in found.most_common(3)
    ]
    return f" (between {', '.join(parts)})"


def _by(verdicts: Sequence[Verdict], states: Sequence[int], winner: int) -> str:
    won = [each for each, state in zip(verdicts, states, strict=True) if state == winner]
    factors = [each.factor for each in won if each.factor is not None]
    if not factors:
        return ""
    low, high = map(factor_text, (min(factors), max(factors)))
    return f", {low} × faster" if low == high else f", {low} to {high} × faster"


def _at_most(verdicts: Iterable[Verdict]) -> str:
    factors = [each.factor for each in verdicts if each.factor is not None]
    return f" up to {factor_text(max(factors))} ×" if factors else ""


def changes_of(
    grid: Grid, designs: Sequence[str], verdicts: Sequence[Verdict], along: str
) -> list[tuple[str, str]]:
    """Along the axis `along`, who wins up to where: a line of the other axes, and what is on it.

    Lines on which nothing changes are left out; neighbours that say the same are one.
    """
    number = [each.name for each in grid.axes].index(along)
    axis = grid.axes[number]
    lines: dict[tuple[int, ...], dict[int, int]] = {}
    for index, verdict in enumerate(verdicts):
        places = places_of(grid, index)
        line = (*places[:number], *places[number + 1 :])
        lines.setdefault(line, {})[places[number]] = _state(verdict)
    others = Grid(axes=tuple(each for each in grid.axes if each.name != along))
    found: list[tuple[str, list[int]]] = []
    for line, states in lines.items():
        ordered = [states[place] for place in range(len(axis.values))]
        if len(set(ordered)) > 1:
            found.append((_runs_text(along, axis.values, designs, ordered), [others.index(line)]))
    joined: list[tuple[str, str]] = []
    for said, alike in groupby(found, key=lambda each: each[0]):
        points = [index for _, indexes in alike for index in indexes]
        joined += [(where, said) for where in _lines_text(others, points)]
    return joined


def _lines_text(others: Grid, points: Sequence[int]) -> list[str]:
    """The lines in words: one where they fill a box, else each."""
    if not others.axes:
        return [""]
    region = Region.around(others, points)
    if region.count == len(points):
        return [region.text or "everywhere"]
    return [Region.around(others, [each]).text for each in points]


def _runs_text(
    name: str, values: Sequence[object], designs: Sequence[str], states: Sequence[int]
) -> str:
    """Who wins from where to where: ``"standard up to 32, separable from 64"``."""
    parts: list[str] = []
    place = 0
    for state, run in groupby(states):
        length = len(list(run))
        first, last = text_of(values[place]), text_of(values[place + length - 1])  # pyright: ignore[reportArgumentType]
        who = {_CLOSE: "too close", _UNKNOWN: "no two to compare"}.get(state) or designs[state]
        if place == 0:
            parts.append(f"{who} up to {name} {last}")
        elif place + length == len(states):
            parts.append(f"{who} from {first}")
        else:
            parts.append(f"{who} at {first}" if length == 1 else f"{who} {first} to {last}")
        place += length
    return ", ".join(parts)


def problems_of(
    designs: Sequence[str], problems: Sequence[Sequence[str]], points: int
) -> Iterator[str]:
    """Which designs cannot be built at some points, and why; a line for each reason.

    Args:
        designs: their names.
        problems: at each point the reasons, one for each design, ``""`` where there is none.
        points: how many points there are.
    """
    counts: Counter[tuple[int, str]] = Counter()
    for at_point in problems:
        counts.update((index, why) for index, why in enumerate(at_point) if why)
    by_design = Counter({index: 0 for index, _ in counts})
    for (index, why), count in counts.most_common():
        by_design[index] += 1
        if by_design[index] <= 3:
            yield f"{designs[index]} cannot be built at {count} of {_points(points)}: {why}"
    more = [f"{designs[i]} ({count - 3} reasons)" for i, count in by_design.items() if count > 3]
    if more:
        yield f"and for other reasons: {words(more)}; the files have all of them"


def too_large_at(
    grid: Grid, designs: Sequence[str], fits: Sequence[Sequence[bool | None]]
) -> Iterator[str]:
    """Which designs do not fit into memory, and where; a line for each.

    Args:
        grid: the points.
        designs: their names.
        fits: at each point whether each design fits; None: not known.
    """
    for index, name in enumerate(designs):
        chosen = [place for place, at_point in enumerate(fits) if at_point[index] is False]
        if chosen:
            where = _region(grid, chosen)
            yield f"{name} does not fit into memory at {_of_all(len(chosen), grid.count)}{where}"
