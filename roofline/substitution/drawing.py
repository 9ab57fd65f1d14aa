"""Plot of an optimization: an arrow under the roofline for each rewrite."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from matplotlib.figure import Figure

from roofline.analysis import Analysis, OperatorRow, working
from roofline.analysis.points import roof_lines
from roofline.analysis.words import MODEL_ITSELF, machine_text, provenance_text
from roofline.core.text import counted
from roofline.core.units import format_ratio, format_shape, sum_known
from roofline.machine.roof import line_name
from roofline.placement import Roof
from roofline.plots.figures import foot_figure, title_figure
from roofline.plots.moves import Move, draw_moves, spot_key
from roofline.plots.roof import Spot
from roofline.plots.style import GREEN, Style
from roofline.substitution.costs import kernel_min_time_s, launch_times
from roofline.substitution.result import Optimization, Substitution

TimeKind = Literal["measured", "predicted", "bound"]
"""Kind of cluster times; ``bound``: minimum times and launches."""

_AFTER, _REJECTED = "after", "candidate, not applied"


def draw_optimization(figure: Figure, found: Optimization, labels: int) -> None:
    """Draw an arrow for each cluster of rewrites, from its old to its new operators."""
    clusters, kind = clusters_of(found)
    look = _REJECTED if found.is_kept else _AFTER
    moves = moves_of(clusters, found, look)
    times = {"bound": found.bound_name}.get(kind, f"{kind} time")
    axes, lines = figure.subplots(), roof_lines(found.before, "in use")
    handles, unnamed = draw_moves(
        axes,
        lines,
        moves,
        {look: Style(GREEN, "o")},
        labels=labels,
        rate=f"FLOP/s (FLOP / {times})",
    )
    axes.set_xlabel("arithmetic intensity of rewritten operators (FLOP/B)")
    fused = ", fused kernels" * found.is_fused
    points = f"points: all operators of a rewrite, {times}{fused}" if moves else ""
    title_figure(figure, _title(found), machine_text(found.before, points))
    inputs = [f"{format_shape(each.shape)} {each.dtype}" for each in found.before.inputs]
    notes = [f"Input: {', '.join(inputs)}"]
    if not clusters:
        notes.append("No rewrite found.")
    top = max((each.flop_per_s for each in lines.ceilings), default=float("inf"))
    if any(rate > top for each in moves for _, rate in (each.before, each.after)):
        omitted = "padding, masked attention, Winograd"
        notes.append(f"Above the roofline: kernels may omit some of the counted FLOP ({omitted})")
    if unnamed:
        notes.append(f"Without label: {counted(unnamed, 'arrow')}")
    if unplaced := sum(None in each.spots for each in clusters):
        why = "in modules searched alone" if found.parts else "without FLOP or time on one side"
        notes.append(f"Not drawn: {counted(unplaced, 'rewrite')} {why}")
    foot_figure(figure, handles, [*notes, provenance_text(found.before.hardware)])


def _title(found: Optimization) -> str:
    rounds, ratio = found.decisive, found.predicted_speedup
    speed = f": {format_ratio(ratio)}× faster (predicted)" if ratio else ""
    if found.is_kept:
        speed = ": original kept"
    elif found.decision == "measured faster" and rounds:
        speed = f": {rounds.speedup_text[0]}× faster (measured)"
    return f"Rewrites of {line_name(found.model)}{speed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Operators on one side of a cluster; None: unknown for one of them."""

    flop: int | None
    byte: int
    time_s: float | None

    @property
    def spot(self) -> Spot | None:
        """AI and FLOP/s; None without FLOP, bytes or time."""
        if not (self.flop and self.byte and self.time_s):
            return None
        return self.flop / self.byte, self.flop / self.time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Operators replaced by rewrites that share operators, before and after."""

    rules: tuple[str, ...]
    where: str
    before: Side
    after: Side

    @property
    def spots(self) -> tuple[Spot | None, Spot | None]:
        return self.before.spot, self.after.spot

    @property
    def saving_s(self) -> float:
        return (self.before.time_s or 0.0) - (self.after.time_s or 0.0)


def moves_of(clusters: Iterable[Cluster], found: Optimization, look: str) -> list[Move]:
    """Return the arrows, largest savings first; clusters on one spot share an arrow."""
    by_spot: dict[tuple[object, ...], list[Cluster]] = {}
    for each in clusters:
        before, after = each.spots
        if before and after:
            by_spot.setdefault((each.rules, *spot_key(before, after)), []).append(each)
    wholes_s = (found.figures_before.cost_s, found.figures_after.cost_s)

    def move(alike: Sequence[Cluster]) -> Move:
        first = alike[0]
        before, after = first.spots
        assert before and after
        more = f" +{len(alike) - 1}" if len(alike) > 1 else ""
        shares = [
            min(1.0, (side.time_s or 0.0) / whole_s) if whole_s > 0 else 0.0
            for side, whole_s in zip((first.before, first.after), wholes_s, strict=True)
        ]
        return Move(
            name=line_name(first.where) + more,
            look=look,
            before=before,
            after=after,
            share_before=shares[0],
            share_after=shares[1],
        )

    ordered = sorted(by_spot.values(), key=lambda alike: -sum(each.saving_s for each in alike))
    return [move(alike) for alike in ordered]


def clusters_of(found: Optimization) -> tuple[list[Cluster], TimeKind]:
    """Return the clusters, and the kind of their times.

    Rewrites that share operators form one cluster.
    """
    parts = [
        (members, _rows(found.before, before), _rows(found.after, after))
        for members, before, after in _joined(found.substitutions)
    ]
    every = [row for _, *sides in parts for side in sides for row in side]
    kind: TimeKind = "bound"
    # Without times of all operators: the cost of the search.
    if every and all(row.measured_s is not None for row in every):
        kind = "measured"
    elif found.cost != "bound" and all(row.predicted_s is not None for row in every):
        kind = "predicted"
    clusters = [
        Cluster(
            rules=tuple(dict.fromkeys(each.rule for each in members)),
            where=_common_path(before) or members[0].where or MODEL_ITSELF,
            before=_side(found.before, before, kind, found.is_fused),
            after=_side(found.after, after, kind, found.is_fused),
        )
        for members, before, after in parts
    ]
    return clusters, kind


def _common_path(rows: Iterable[OperatorRow]) -> str:
    """Return the innermost module of all operators; ``""``: the model itself."""
    paths = [row.module_path.split(".") for row in rows if row.module_path]
    levels = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return ".".join(parts[0] for parts in levels)


def _joined(
    substitutions: Iterable[Substitution],
) -> list[tuple[list[Substitution], set[int], set[int]]]:
    """Return groups of rewrites that share rows on either side, with all their rows."""
    found: list[tuple[list[Substitution], set[int], set[int]]] = []
    for each in substitutions:
        before, after = set(each.before_operators), set(each.after_operators)
        shared = [other for other in found if before & other[1] or after & other[2]]
        found = [other for other in found if other not in shared]
        found.append(
            (
                [*(one for members, _, _ in shared for one in members), each],
                before.union(*(rows for _, rows, _ in shared)),
                after.union(*(rows for _, _, rows in shared)),
            )
        )
    return found


def _rows(analysis: Analysis, numbers: Iterable[int]) -> list[OperatorRow]:
    return working(analysis.operators[number] for number in sorted(numbers))


def _side(analysis: Analysis, rows: Sequence[OperatorRow], kind: TimeKind, is_fused: bool) -> Side:
    launches = launch_times(analysis.hardware)
    if kind != "bound":
        time_s = sum_known(getattr(row, f"{kind}_s") for row in rows)
    elif is_fused:
        time_s = _fused_s(analysis, rows)
    else:
        time_s = sum_known(
            None if row.eager_min_time_s is None else row.eager_min_time_s + launches.of(row.record)
            for row in rows
        )
    return Side(
        flop=sum_known(row.flop for row in rows),
        byte=sum(_bytes(row) if is_fused else row.traffic_bytes for row in rows),
        time_s=time_s,
    )


def _fused_s(analysis: Analysis, rows: Iterable[OperatorRow]) -> float | None:
    """Return the cost of fused kernels: arithmetic or traffic, and one launch each."""
    roof, launches = Roof(analysis.hardware, analysis.threads), launch_times(analysis.hardware)
    kernels: dict[int, list[OperatorRow]] = {}
    for row in rows:
        kernels.setdefault(row.index if row.chain is None else row.chain, []).append(row)

    def kernel_s(members: Sequence[OperatorRow]) -> float | None:
        records = [row.record for row in members]
        eager_min_time_s = kernel_min_time_s(records, sum(map(_bytes, members)), roof)
        return (
            None if eager_min_time_s is None else eager_min_time_s + max(map(launches.of, records))
        )

    return sum_known(map(kernel_s, kernels.values()))


def _bytes(row: OperatorRow) -> int:
    """Return the traffic of an operator in fused kernels."""
    return row.traffic_bytes if row.fused_bytes is None else row.fused_bytes
