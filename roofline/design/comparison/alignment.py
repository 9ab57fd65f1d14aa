"""Modules of several models side by side: who is whose counterpart, and what each takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from roofline.analysis import Analysis, Group, groups, minimum_times_of, module_tree
from roofline.design.comparison.differences import Kind, kind_of_times, whole_of

DEPTH = 2  # How far down the tree of modules goes, where nobody says


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterpart:
    """A module of one model, or its operators of one type.

    ``flop`` is None where that of an operator is unknown, ``time_s`` where not all models have that
    time; ``share`` is of the whole pass.
    """

    name: str
    kind: str
    flop: float | None
    traffic_bytes: float
    time_s: float | None
    share: float | None
    eager_min_time_s: float | None = None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedRow:
    """Counterparts, one for each model; None: that model has none."""

    parts: tuple[Counterpart | None, ...]

    @property
    def name(self) -> str:
        """What it is called: by the first model that has it."""
        return next(each.name for each in self.parts if each)

    def difference(self, reference: int) -> float:
        """How far any model is from the reference: seconds; bytes, where times are unknown."""
        if any(each is not None and each.time_s is None for each in self.parts):
            sizes = [each.traffic_bytes if each else 0.0 for each in self.parts]
        else:
            sizes = [(each.time_s or 0.0) if each else 0.0 for each in self.parts]
        return max(abs(size - sizes[reference]) for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Rows that add up to each model, in the order of the reference; ``kind`` of time they have."""

    rows: tuple[AlignedRow, ...]
    kind: Kind | None

    def is_of_kin(self, reference: int) -> bool:
        """Whether every model shares half of its rows with the reference, or has half of those."""
        columns = list(zip(*(row.parts for row in self.rows), strict=True))
        sizes = [sum(each is not None for each in column) for column in columns]
        return all(
            2 * sum(bool(a and b) for a, b in zip(columns[reference], column, strict=True))
            >= min(size, sizes[reference])
            > 0
            for column, size in zip(columns, sizes, strict=True)
        )


def modules_side_by_side(
    analyses: Sequence[Analysis],
    *,
    reference: int = 0,
    depth: int = DEPTH,
    samples: Sequence[int] | None = None,
) -> Alignment:
    """Return the modules of all models, each next to its counterparts.

    Modules of the same path are counterparts. Between two of these, the others are aligned in their
    order: equal runs of classes first, as `difflib` finds them, then what stands in each other's
    place. What only one model has stands alone.
    """
    found = [
        [
            (branch.group, f"{branch.path}.(own)".lstrip("."), branch.kind)
            if branch.part == "own"
            else (branch.group, branch.path, branch.kind)
            for branch in module_tree(each, depth=depth)
            if not branch.is_open and branch.group.calls
        ]
        for each in analyses
    ]
    return _aligned(analyses, found, reference, samples, _pairs)


def types_side_by_side(
    analyses: Sequence[Analysis], *, reference: int = 0, samples: Sequence[int] | None = None
) -> Alignment:
    """The same with all operators of one type taken together, whichever module they run in."""
    found = [
        [(group, group.name, "") for group in groups(each, lambda row: row.type)]
        for each in analyses
    ]
    return _aligned(analyses, found, reference, samples, _by_name)


def _aligned(
    analyses: Sequence[Analysis],
    found: Sequence[Sequence[tuple[Group, str, str]]],
    reference: int,
    samples: Sequence[int] | None,
    pairs: Callable[[Column, Column], Pairs],
) -> Alignment:
    kind = kind_of_times(analyses)
    columns: list[list[Counterpart]] = []
    for number, (analysis, parts) in enumerate(zip(analyses, found, strict=True)):
        whole_s = whole_of(analysis, kind) if kind else 0.0
        count = samples[number] if samples is not None else 1
        column: list[Counterpart] = []
        for group, name, kind_of_module in parts:
            time_s = group.predicted_s if kind == "predicted" else group.eager_min_time_s
            time_s = time_s if kind else None
            minimum = minimum_times_of(group)
            column.append(
                Counterpart(
                    name=name,
                    kind=kind_of_module,
                    flop=None if group.unknown_operators else (group.work.flop or 0) / count,
                    traffic_bytes=group.work.traffic_bytes / count,
                    time_s=None if time_s is None else time_s / count,
                    share=time_s / whole_s if time_s is not None and whole_s else None,
                    **{name: each and each / count for name, each in minimum.items()},
                )
            )
        columns.append(column)
    return Alignment(rows=_merged(columns, reference, pairs), kind=kind)


Column = Sequence[Counterpart]
Pairs = list[tuple[int, int]]
"""Places in two columns that are counterparts; each place stands in one pair at most."""


def _merged(
    columns: Sequence[Column], reference: int, pairs: Callable[[Column, Column], Pairs]
) -> tuple[AlignedRow, ...]:
    """Rows in the order of the reference; what it lacks comes after what precedes it elsewhere."""
    count = len(columns)
    rows: list[list[Counterpart | None]] = []
    for each in columns[reference]:
        row: list[Counterpart | None] = [None] * count
        row[reference] = each
        rows.append(row)
    anchors = list(rows)
    for number, column in enumerate(columns):
        if number == reference:
            continue
        partner = {there: anchors[here] for here, there in pairs(columns[reference], column)}
        after = 0
        for place, each in enumerate(column):
            # Another model may have opened a row for what the reference lacks and this one has too.
            lonely = (
                row
                for row in rows
                if row[reference] is None
                and any(part and (part.name, part.kind) == (each.name, each.kind) for part in row)
            )
            known = partner.get(place) or next(lonely, None)
            row = known if known is not None else [None] * count
            if known is None:
                rows.insert(after, row)
            row[number] = each
            after = next(i for i, found in enumerate(rows) if found is row) + 1
    return tuple(AlignedRow(parts=tuple(row)) for row in rows)


def _by_name(here: Column, there: Column) -> Pairs:
    places = {each.name: place for place, each in enumerate(there)}
    return [(place, places[each.name]) for place, each in enumerate(here) if each.name in places]


def _pairs(here: Column, there: Column) -> Pairs:
    """Counterparts by path, then by order and class in the gaps between those."""
    found = _by_name(here, there)
    for start, end in _gaps(found, len(here), len(there)):
        taken = ({a for a, _ in found}, {b for _, b in found})
        left = [i for i in range(start[0], end[0]) if i not in taken[0]]
        right = [i for i in range(start[1], end[1]) if i not in taken[1]]
        matcher = SequenceMatcher(
            None, [here[i].kind for i in left], [there[i].kind for i in right], autojunk=False
        )
        for tag, a, b, c, d in matcher.get_opcodes():
            # As many in each other's place: a ReLU for a SiLU.
            if tag == "equal" or (tag == "replace" and b - a == d - c):
                found += zip(left[a:b], right[c:d], strict=True)
    return found


def _gaps(pairs: Pairs, here: int, there: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The stretches between pairs that are in the same order on both sides."""
    start = (0, 0)
    for pair in [*sorted(pairs), (here, there)]:
        if pair[1] >= start[1]:
            yield start, pair
            start = (pair[0] + 1, pair[1] + 1)
