"""Result of `scale`: step time, efficiency and memory by number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from roofline.analysis import MINIMUM_TIMES, Analysis, fit_text, minimum_times_of, unknown_capacity
from roofline.analysis.words import fit_cell, machine_fact, model_fact, run_fact
from roofline.core.blocks import Block, Grid, KeyValueBlock, View, notes, table, warning_notes
from roofline.core.text import NOTE, counted
from roofline.core.units import (
    MISSING,
    format_bytes,
    format_capacity,
    format_percent,
    format_s,
    format_si,
)
from roofline.result import Result
from roofline.scaling.buckets import Bucket, Timeline
from roofline.scaling.memory import RankMemory
from roofline.scaling.settings import RankLink, Settings
from roofline.workload.operators import Gradient

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TimeKind = Literal["measured", "bound"]
"""Kind of operator times: measured if all are, else minimum times."""

_BUCKETS = 12
"""Maximum number of buckets listed: the first ones and the last."""

_OF_MEMORY = {
    "parameters": "parameter_bytes",
    "buffers": "buffer_bytes",
    "inputs": "input_bytes",
    "optimizer": "optimizer_bytes",
    "activations": "activation_bytes",
    "gradients": "gradient_bytes",
    "buckets": "bucket_bytes",
}

_OF_POINT = (
    *("flop", "link_bytes", "transfer_s", "min_transfer_s", "step_s", "step_low_s", "step_high_s"),
    *("efficiency", "max_efficiency", "exposed_s", "speedup", "samples_per_s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """Step on ``ranks`` ranks; times in seconds, None without ceilings.

    Attributes:
        flop: of one rank; None if those of an operator are unknown.
        link_bytes: sent by the busiest rank.
        transfer_s: all-reduce time of all buckets.
        min_transfer_s: minimum all-reduce time with any algorithm.
        step_s: step time with communication/computation overlap.
        step_low_s: the same if communication needs no compute.
        step_high_s: the same without overlap.
        efficiency: step time of one rank over `step_s`; above 1 only with a sharded optimizer. From
            minimum times, efficiency is pessimistic and samples/s are an upper limit: slower ranks
            overlap more.
        max_efficiency: efficiency with the best buckets and algorithm.
        samples_per_s: of all ranks; None without batch or time.
        fits: whether a rank fits into its machine's memory; None if the capacity is unknown.
    """

    ALSO_WRITTEN: ClassVar = ("speedup", "exposed_s")

    ranks: int
    flop: float | None
    link_bytes: float
    transfer_s: float
    min_transfer_s: float
    step_s: float | None
    step_low_s: float | None
    step_high_s: float | None
    efficiency: float | None
    max_efficiency: float | None
    timeline: Timeline | None
    memory: RankMemory
    samples_per_s: float | None
    fits: bool | None

    @property
    def speedup(self) -> float | None:
        """Samples/s over those of one rank."""
        return None if self.efficiency is None else self.ranks * self.efficiency

    @property
    def exposed_s(self) -> float | None:
        """Communication after the backward pass, in seconds."""
        return self.timeline.exposed_s if self.timeline else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChoice:
    """Memory of a rank with the changed setting ``what``."""

    what: str
    memory: RankMemory
    fits: bool | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scaling(Result):
    """Data-parallel training step, with a copy of the model on each rank.

    Attributes:
        analysis: of the step on one rank.
        link: between ranks; None for one rank without a known link.
        time_kind: kind of operator times.
        alone_s: step time of one rank without communication, in seconds.
        slowdown: compute time next to other ranks over that alone; None: taken as 1.
        gradients: in completion order.
        buckets: in sending order.
        broadcast_bytes: buffers sent before each forward pass.
        points: by ascending number of ranks, with that of `settings`.
        batch: dimension 0 of the first input, per pass and rank; None without one.
    """

    kind: ClassVar = "scaling"
    made_by: ClassVar = "roofline scale MODEL --data-parallel N -o FILE.json"
    height_inch: ClassVar = 9.0
    columns: ClassVar = {
        "ranks": "Int64",
        **dict.fromkeys(_OF_POINT, "Float64"),
        **dict.fromkeys(_OF_MEMORY.values(), "Int64"),
        "memory_bytes": "Int64",
        "memory_capacity_bytes": "Int64",
        "fits": "boolean",
        "times": "string",
        "link": "string",
        **dict.fromkeys(MINIMUM_TIMES, "Float64"),
    }
    ALSO_WRITTEN: ClassVar = ("summary", "minimum_times", "memory_capacity_bytes", "gradient_bytes")

    model: str
    analysis: Analysis
    settings: Settings
    link: RankLink | None
    time_kind: TimeKind
    alone_s: float | None
    slowdown: float | None
    gradients: tuple[Gradient, ...]
    buckets: tuple[Bucket, ...]
    broadcast_bytes: int
    points: tuple[ScalePoint, ...]
    memory_choices: tuple[MemoryChoice, ...] = ()
    batch: int | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def point(self) -> ScalePoint:
        """Step with the ranks of `settings`."""
        return next(each for each in self.points if each.ranks == self.settings.ranks)

    @property
    def minimum_times(self) -> dict[str, float | None]:
        """Eager, fused and model minimum time of the step on one rank, in seconds."""
        return minimum_times_of(self.analysis.totals)

    @property
    def gradient_bytes(self) -> int:
        """Gradients per rank in bytes."""
        return sum(each.size_bytes for each in self.buckets)

    @property
    def link_words(self) -> str:
        """Link with its source; ``""`` without one."""
        return self.link.description if self.link else ""

    @property
    def memory_capacity_bytes(self) -> int | None:
        """Memory capacity of a rank's machine in bytes; None if unknown."""
        return self.analysis.hardware.memory_capacity_bytes

    def first_inefficient_rank_count(self, least: float = 0.5) -> int | None:
        """Return the smallest number of ranks with an efficiency below `least`, if any."""
        few = (
            each.ranks
            for each in self.points
            if each.efficiency is not None and each.efficiency < least
        )
        return next(few, None)

    @property
    def summary(self) -> str:
        """Verdict: efficiency, speedup, all-reduce time and its exposed part."""
        memory = self.point.memory.total_bytes
        words = fit_text(memory, self.memory_capacity_bytes)
        return self._verdict() + (f"; a rank {words}" if self.point.fits is False else "")

    def _verdict(self) -> str:
        point, count = self.point, counted(self.point.ranks, "rank")
        subject = f"Training step of {self.model} on {count}"
        if point.ranks == 1:
            return f"{subject}: no communication"
        if point.efficiency is None or point.speedup is None:
            sent = format_bytes(self.gradient_bytes)
            return f"{subject}: {sent} of gradients per step, time unknown (no ceilings)"
        most = "≤ " if self.time_kind == "bound" else ""
        return (
            f"{subject}: scaling efficiency {format_percent(point.efficiency)} ({self._basis}),"
            f" speedup {most}{_multiple(point.speedup)}×; {self._exposed()}"
        )

    @property
    def _basis(self) -> str:
        return {"measured": "measured compute", "bound": "minimum compute time"}[self.time_kind]

    def _exposed(self) -> str:
        point = self.point
        if point.exposed_s is None or not point.transfer_s:
            return "no all-reduce time"
        transfer = f"all-reduce {format_s(point.transfer_s)}"
        if point.exposed_s < 0.005 * point.transfer_s:
            return f"{transfer}, fully overlapped"
        return f"{transfer}, {format_s(point.exposed_s)} exposed"

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each number of ranks; minimum times are those of one rank."""
        minimum = self.minimum_times.values()
        for each in self.points:
            yield [
                each.ranks,
                *(getattr(each, name) for name in _OF_POINT),
                *(getattr(each.memory, name) for name in _OF_MEMORY.values()),
                *(each.memory.total_bytes, self.memory_capacity_bytes, each.fits),
                *(self.time_kind, self.link_words, *minimum),
            ]

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts and scaling by ranks; if verbose, buckets and memory by setting."""
        yield KeyValueBlock(lines=tuple(self._facts(view)))
        yield self._points_table()
        if view.verbose:
            yield self._buckets_table()
            yield self._memory_table()
        assumed = [each for each in self.notes if each.startswith("assumed")]
        yield from notes("Notes", (each for each in self.notes if each not in assumed))
        yield from warning_notes((*self.warnings, *(f"{NOTE}{each}" for each in assumed)), view)

    def _facts(self, view: View) -> Iterable[tuple[str, str]]:
        analysis, point = self.analysis, self.point
        yield model_fact(analysis)
        yield from run_fact(analysis)
        yield machine_fact(analysis, view)
        yield "Ranks", self.settings.words
        yield "Link", self.link_words or "none (one rank)"
        yield (
            "Times",
            {
                "bound": "minimum operator times (step ≥, samples/s ≤)",
                "measured": "operators measured in one process · communication from the link model",
            }[self.time_kind],
        )
        yield "Communication", self._communication()
        if point.step_s is not None:
            yield "Step", self._step()
        yield "Efficiency", self._efficiency()
        words = fit_text(point.memory.total_bytes, self.memory_capacity_bytes)
        words = words or "".join(unknown_capacity([analysis.hardware]))
        yield "Memory", f"peak {format_bytes(point.memory.total_bytes)} per rank · {words}"

    def _communication(self) -> str:
        point, gradients = self.point, f"{format_bytes(self.gradient_bytes)} of gradients"
        if point.ranks == 1:
            return f"none ({gradients} stay local)"
        parts = [
            f"{gradients} in {counted(len(self.buckets), 'bucket')}",
            f"{format_bytes(point.link_bytes)} sent by the busiest rank",
        ]
        if self.broadcast_bytes:
            parts.append(f"{format_bytes(self.broadcast_bytes)} of buffers before the forward pass")
        if self.settings.sharded:
            parts.append("parameters after the update")
        return " · ".join(parts)

    def _step(self) -> str:
        point, is_bound = self.point, self.time_kind == "bound"
        alone = f"{'minimum ' if is_bound else ''}{format_s(self.alone_s)} on 1 rank"
        if self.slowdown is not None:
            alone += f" ({self.slowdown:.2f}× slower next to other ranks)"
        rate = ""
        if point.samples_per_s is not None:
            most = "at most " if is_bound else ""
            rate = f" · {most}{format_si(point.samples_per_s, 'samples/s')}"
        return (
            f"{alone} → {format_s(point.step_s)} on {counted(point.ranks, 'rank')}"
            f" ({format_s(point.step_low_s)} if communication needs no compute,"
            f" {format_s(point.step_high_s)} without overlap){rate}"
        )

    def _efficiency(self) -> str:
        point = self.point
        if point.efficiency is None:
            return "unknown (no ceilings)"
        parts = [
            f"{format_percent(point.efficiency)} ({self._basis})",
            f"{format_percent(point.max_efficiency)} with the best buckets and algorithm",
        ]
        if (ranks := self.first_inefficient_rank_count()) is not None:
            parts.append(f"below 50 % from {ranks} ranks")
        return " · ".join(parts)

    def _points_table(self) -> Grid:
        least, most = (" ≥", " ≤") if self.time_kind == "bound" else ("", "")
        asked = self.settings.ranks
        columns: dict[str, str | Callable[[ScalePoint], str]] = {
            "ranks": lambda each: f"{'→ ' if each.ranks == asked else ''}{each.ranks}",
            "all-reduce": "transfer_s",
            "min all-reduce": "min_transfer_s",
            "exposed": "exposed_s",
            f"step{least}": "step_s",
            "efficiency": "efficiency",
            "max efficiency": lambda each: format_percent(each.max_efficiency),
            f"speedup{most}": lambda each: _multiple(each.speedup),
            f"samples/s{most}": lambda each: format_si(each.samples_per_s, ""),
            "memory per rank": lambda each: (
                format_bytes(each.memory.total_bytes) + ", does not fit" * (each.fits is False)
            ),
        }
        narrow = ("max efficiency", "memory per rank", "min all-reduce", f"speedup{most}")
        return table(
            f"Scaling by number of ranks ({self._basis})", self.points, columns, narrow=narrow
        )

    def _buckets_table(self) -> Grid:
        shown, left = self.buckets, len(self.buckets) - _BUCKETS
        if left > 0:
            shown = (*shown[: _BUCKETS - 1], shown[-1])
        count = sum(len(each.parameters) for each in self.buckets)
        sums: list[tuple[str, ...]] = [
            ("all", str(count), format_bytes(self.gradient_bytes), *("",) * 5)
        ]
        if left > 0:
            sums.insert(0, (f"{left} more", *("",) * 7))
        line = self.point.timeline

        def when(name: str) -> Callable[[Bucket], str]:
            def cell(bucket: Bucket) -> str:
                return format_s(getattr(line.sent[bucket.index], name)) if line else MISSING

            return cell

        return table(
            f"Gradient buckets in sending order on {counted(self.settings.ranks, 'rank')}",
            shown,
            {
                "bucket": "index",
                "gradients": lambda each: str(len(each.parameters)),
                "size": lambda each: (
                    f"{format_bytes(each.size_bytes)} ({format_capacity(each.size_bytes)})"
                ),
                "type": "dtype",
                "ready": when("ready_s"),
                "start": when("start_s"),
                "end": when("end_s"),
                "last gradient": lambda each: each.parameters[-1],
            },
            left=("type", "last gradient"),
            sums=sums,
        )

    def _memory_table(self) -> Grid:
        known = self.memory_capacity_bytes is not None
        columns: dict[str, str | Callable[[MemoryChoice], str]] = {"": "what"}
        for heading, name in _OF_MEMORY.items():
            columns[heading] = lambda each, of=name: format_bytes(getattr(each.memory, of))
        columns["total"] = lambda each: format_bytes(each.memory.total_bytes)
        if known:
            columns["fits in memory"] = lambda each: fit_cell(each.fits)
        return table(
            "Peak memory per rank", self.memory_choices, columns, left=("", "fits in memory")
        )

    def draw(self, figure: Figure) -> None:
        """Draw the roofline with the link as a ceiling, and efficiency over ranks below."""
        from roofline.scaling.drawing import draw_scaling

        draw_scaling(figure, self)


def _multiple(value: float | None) -> str:
    """Return a ratio of any size: ``"7.8"``, ``"90.7 k"``."""
    if value is None:
        return MISSING
    return f"{value:.3g}" if value < 1000 else format_si(value, "")
