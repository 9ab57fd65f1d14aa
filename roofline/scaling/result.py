"""Data-parallel training: step time, efficiency and memory over the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from roofline.analysis import MINIMUM_TIMES, Analysis, fit_words, minimum_times_of, unknown_capacity
from roofline.analysis.words import fit_cell, hardware_fact, model_fact, run_fact
from roofline.core.blocks import Block, Grid, KeyValueBlock, View, notes, table
from roofline.core.text import counted
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
from roofline.scaling.settings import Settings, Wire
from roofline.workload.operators import Gradient

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TimeKind = Literal["measured", "bound"]
"""What the times of operators are: measured if every one of them is, else minimum times."""

_BUCKETS = 12
"""Number of buckets listed; of more, the first and the last ones."""

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
    """A step on ``ranks`` ranks; times in seconds, None where operators have none.

    Attributes:
        flop: of one rank; None: some of it is not known.
        link_bytes: sent by the busiest rank.
        transfer_s: of all buckets over the link.
        min_transfer_s: the same by the best algorithm.
        step_s: of a step that overlaps communication with the backward pass.
        step_low_s: where communication takes nothing from computation.
        step_high_s: where nothing is computed during communication.
        efficiency: step time of one rank alone over `step_s`. Ranks compute in the times of
            operators: where those are minimum times, a slower rank hides more and keeps more, but
            no rank has more samples/s. It is above 1 only where states are sharded.
        max_efficiency: the same with the best buckets and algorithm.
        samples_per_s: on all ranks together; None: no batch, or no time.
        fits: whether a rank fits into the memory of its machine; None: capacity not known.
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
        """Communication that the update waits for."""
        return self.timeline.exposed_s if self.timeline else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChoice:
    """Memory of a rank with one setting changed, which ``what`` names."""

    what: str
    memory: RankMemory
    fits: bool | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scaling(Result):
    """A training step of a model with a copy of it on each of several ranks.

    Attributes:
        analysis: of the step on one rank.
        link: None: there is one rank alone, and no link was named or known.
        time_kind: of the operators' times that are used.
        alone_s: of a step (all its passes) of one rank that sends nothing.
        slowdown: computing time next to the other ranks over that alone; None: taken as 1.
        gradients: in the order in which they are done.
        buckets: in the order in which they are sent.
        broadcast_bytes: of buffers, sent before each forward pass.
        points: for rising numbers of ranks, that of `settings` among them.
        batch: first size of the first input, of one pass on one rank; None: it has none.
    """

    kind: ClassVar = "scaling"
    made_by: ClassVar = "roofline analyze MODEL --train --data-parallel N -o FILE.json"
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
    link: Wire | None
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
        """The one of `settings`."""
        return next(each for each in self.points if each.ranks == self.settings.ranks)

    @property
    def minimum_times(self) -> dict[str, float | None]:
        """Eager, fused and model minimum time of the step on one rank."""
        return minimum_times_of(self.analysis.totals)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients, which every rank has."""
        return sum(each.size_bytes for each in self.buckets)

    @property
    def link_words(self) -> str:
        """The link with its source; ``""``: there is none."""
        return self.link.told if self.link else ""

    @property
    def memory_capacity_bytes(self) -> int | None:
        """Capacity of the memory of a rank's machine; None: not known."""
        return self.analysis.hardware.memory_capacity_bytes

    def stops_at(self, least: float = 0.5) -> int | None:
        """Return the fewest ranks whose efficiency is below `least`; None: none of the points."""
        few = (
            each.ranks
            for each in self.points
            if each.efficiency is not None and each.efficiency < least
        )
        return next(few, None)

    @property
    def summary(self) -> str:
        """Efficiency and samples/s, and what communication costs."""
        memory = self.point.memory.total_bytes
        words = fit_words(memory, self.memory_capacity_bytes)
        return self._verdict() + (f"; but a rank {words}" if self.point.fits is False else "")

    def _verdict(self) -> str:
        point, count = self.point, counted(self.point.ranks, "rank")
        subject = f"A training step of {self.model} on {count}"
        sent = f"{format_bytes(self.gradient_bytes)} of gradients in "
        sent += counted(len(self.buckets), "bucket")
        if point.ranks == 1:
            return f"{subject} sends nothing"
        if point.efficiency is None or point.speedup is None:
            return f"{subject} sends {sent}; its time is not known"
        data = f"{_multiple(point.speedup)}× the samples/s of one rank"
        if self.time_kind == "bound":
            data = f"at most {data} at best"
        return (
            f"{subject}: scaling efficiency {format_percent(point.efficiency)} with computing"
            f" {self._computing}, {data}; {sent}, {self._hidden()}"
        )

    @property
    def _computing(self) -> str:
        return {"measured": "as measured here", "bound": "at its minimum time"}[self.time_kind]

    def _hidden(self) -> str:
        """How much of communication overlaps with the backward pass."""
        point = self.point
        if point.exposed_s is None or not point.transfer_s:
            return "sent in no time"
        sending = f"{format_s(point.transfer_s)} over the link"
        if point.exposed_s < 0.005 * point.transfer_s:
            return f"{sending}, all behind the backward pass"
        return f"{sending}, {format_s(point.exposed_s)} of it after the backward pass"

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each number of ranks; the minimum times are those of one rank."""
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
        """Return facts, and tables of ranks, buckets and memory."""
        yield KeyValueBlock(lines=tuple(self._facts(view)))
        yield self._points_table()
        yield self._buckets_table()
        yield self._memory_table()
        yield from notes("Notes", self.notes)
        yield from notes("Warnings", self.warnings, urgent=True)

    def _facts(self, view: View) -> Iterable[tuple[str, str]]:
        analysis, point = self.analysis, self.point
        yield model_fact(analysis)
        yield from run_fact(analysis)
        yield hardware_fact(analysis, view.today)
        yield "Ranks", self.settings.words
        yield "Link", self.link_words or "none: one rank sends nothing"
        yield (
            "Times",
            {
                "bound": "minimum times of operators: no step is shorter, and no more samples/s can"
                " be had; slower ranks overlap more, and keep more efficiency",
                "measured": "of operators measured here in one process alone, and of the link",
            }[self.time_kind],
        )
        yield "Communication", self._communication()
        if point.step_s is not None:
            yield "Step", self._step()
        yield "Efficiency", self._efficiency()
        words = fit_words(point.memory.total_bytes, self.memory_capacity_bytes)
        words = words or "".join(unknown_capacity([analysis.hardware]))
        yield "Memory", f"peak {format_bytes(point.memory.total_bytes)} per rank · {words}"

    def _communication(self) -> str:
        point, gradients = self.point, f"{format_bytes(self.gradient_bytes)} of gradients a step"
        if point.ranks == 1:
            return f"none: the {gradients} stay where they are"
        parts = [
            f"{gradients}; {format_bytes(point.link_bytes)} leave the busiest of"
            f" {point.ranks} ranks"
        ]
        if self.broadcast_bytes:
            parts.append(f"{format_bytes(self.broadcast_bytes)} of buffers before the forward pass")
        if self.settings.sharded:
            parts.append("parameters after the update")
        return ", ".join(parts)

    def _step(self) -> str:
        point, is_bound = self.point, self.time_kind == "bound"
        alone = f"{'minimum ' if is_bound else ''}{format_s(self.alone_s)} alone"
        if self.slowdown is not None:
            alone += f", {self.slowdown:.2f}× that next to the other ranks"
        rate = ""
        if point.samples_per_s is not None:
            most = "at most " if is_bound else ""
            rate = f" · {most}{format_si(point.samples_per_s, 'samples/s')}"
        return (
            f"{alone} → {format_s(point.step_s)} on {point.ranks} ranks, from"
            f" {format_s(point.step_low_s)} (communication costs no computing) to"
            f" {format_s(point.step_high_s)} (no overlap){rate}"
        )

    def _efficiency(self) -> str:
        point = self.point
        if point.efficiency is None:
            return "not known: operators have no times on this hardware"
        parts = [
            f"{format_percent(point.efficiency)} of {point.ranks} ranks, computing"
            f" {self._computing}",
            f"{format_percent(point.max_efficiency)} with the best buckets and algorithm",
        ]
        if (ranks := self.stops_at()) is not None:
            parts.append(f"below half from {ranks} ranks on")
        return " · ".join(parts)

    def _points_table(self) -> Grid:
        least, most = (" ≥", " ≤") if self.time_kind == "bound" else ("", "")
        asked = self.settings.ranks
        columns: dict[str, str | Callable[[ScalePoint], str]] = {
            "ranks": lambda each: f"{'→ ' if each.ranks == asked else ''}{each.ranks}",
            "all-reduce": "transfer_s",
            "minimum": "min_transfer_s",
            "exposed": "exposed_s",
            f"step{least}": "step_s",
            "efficiency": "efficiency",
            "best case": lambda each: format_percent(each.max_efficiency),
            f"speedup{most}": lambda each: _multiple(each.speedup),
            f"samples/s{most}": lambda each: format_si(each.samples_per_s, ""),
            "memory per rank": lambda each: (
                format_bytes(each.memory.total_bytes) + ", does not fit" * (each.fits is False)
            ),
        }
        return table(f"Efficiency over ranks, computing {self._computing}", self.points, columns)

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
            f"Buckets in the order of sending on {self.settings.ranks} ranks, computing"
            f" {self._computing}",
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
        """Draw the roofline with the link as one more roof, and efficiency over ranks below."""
        from roofline.scaling.drawing import draw_scaling

        draw_scaling(figure, self)


def _multiple(value: float | None) -> str:
    """A ratio of any size: ``"7.8"``, ``"90.7 k"``."""
    if value is None:
        return MISSING
    return f"{value:.3g}" if value < 1000 else format_si(value, "")
