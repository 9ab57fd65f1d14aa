"""Alignment of the modules or operator types of several models, with times, FLOP and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from roofline.analysis import Analysis, Group, groups, minimum_times_of, module_tree
from roofline.design.comparison.differences import Kind, kind_of_times, pass_time_s

DEPTH = 2  # Default levels of the module tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterpart:
    """Module of one model, or its operators of one type.

    ``flop`` is None with unknown operators, ``time_s`` unless all models have that kind of time;
    ``share`` is that of the whole pass.
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
    """Counterparts by model; None: missing in that model."""

    parts: tuple[Counterpart | None, ...]

    @property
    def name(self) -> str:
        """Name in the first model that has it."""
        return next(each.name for each in self.parts if each)

    def difference(self, reference: int) -> float:
        """Return the largest difference from the reference in seconds, or bytes without times."""
        if any(each is not None and each.time_s is None for each in self.parts):
            sizes = [each.traffic_bytes if each else 0.0 for each in self.parts]
        else:
            sizes = [(each.time_s or 0.0) if each else 0.0 for each in self.parts]
        return max(abs(size - sizes[reference]) for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Rows that add up to each model, in reference order; ``kind`` is that of their times."""

    rows: tuple[AlignedRow, ...]
    kind: Kind | None

    def is_similar(self, reference: int) -> bool:
        """Return True if every model shares half of its rows, or of the reference's rows."""
        columns = list(zip(*(row.parts for row in self.rows), strict=True))
        sizes = [sum(each is not None for each in column) for column in columns]
        return all(
            2 * sum(bool(a and b) for a, b in zip(columns[reference], column, strict=True))
            >= min(size, sizes[reference])
            > 0
            for column, size in zip(columns, sizes, strict=True)
        )


def align_modules(
    analyses: Sequence[Analysis],
    *,
    reference: int = 0,
    depth: int = DEPTH,
    samples: Sequence[int] | None = None,
) -> Alignment:
    """Return the modules of all models, each next to its counterparts.

    Modules of equal paths are counterparts. Between these, modules are aligned in order: equal runs
    of classes (`difflib`), then replacements of equal length. Others have no counterpart.
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


def align_types(
    analyses: Sequence[Analysis], *, reference: int = 0, samples: Sequence[int] | None = None
) -> Alignment:
    """Return the operator types of all models, each next to its counterparts."""
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
        whole_s = pass_time_s(analysis, kind) if kind else 0.0
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
"""Indices of counterparts in two columns; each index is in one pair at most."""


def _merged(
    columns: Sequence[Column], reference: int, pairs: Callable[[Column, Column], Pairs]
) -> tuple[AlignedRow, ...]:
    """Return rows in reference order; missing ones follow their predecessor in the other model."""
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
            # Another model may have the same module, missing in the reference.
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
    """Return counterparts by path, then by order and class in the gaps."""
    found = _by_name(here, there)
    for start, end in _gaps(found, len(here), len(there)):
        taken = ({a for a, _ in found}, {b for _, b in found})
        left = [i for i in range(start[0], end[0]) if i not in taken[0]]
        right = [i for i in range(start[1], end[1]) if i not in taken[1]]
        matcher = SequenceMatcher(
            None, [here[i].kind for i in left], [there[i].kind for i in right], autojunk=False
        )
        for tag, a, b, c, d in matcher.get_opcodes():
            # Replacements of equal length: a ReLU for a SiLU.
            if tag == "equal" or (tag == "replace" and b - a == d - c):
                found += zip(left[a:b], right[c:d], strict=True)
    return found


def _gaps(pairs: Pairs, here: int, there: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the gaps between pairs that have the same order on both sides."""
    start = (0, 0)
    for pair in [*sorted(pairs), (here, there)]:
        if pair[1] >= start[1]:
            yield start, pair
            start = (pair[0] + 1, pair[1] + 1)
