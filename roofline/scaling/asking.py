"""From the analysis of one training step to what it comes to on several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.analysis import Analysis, working
from roofline.errors import InputError
from roofline.placement import Roof
from roofline.scaling.buckets import Bucket, buckets_of, limits_of
from roofline.scaling.collectives import Collective, all_reduce, broadcast, least_all_reduce_s
from roofline.scaling.links import Wire
from roofline.scaling.memory import Peak, RankMemory, largest_shard
from roofline.scaling.overlap import Timeline, Work, timeline, work_of
from roofline.scaling.result import MemoryChoice, ScalePoint, Scaling, TimeKind
from roofline.scaling.settings import Settings
from roofline.workload.gradients import Gradient

MOST_RANKS = 1024
"""Up to where efficiency is told, unless more are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A training step on one rank.

    ``accumulating`` is its fullest moment where gradients of earlier passes are kept. ``slowdown``
    is how many times as long computing takes beside other ranks; None: not measured, and as alone.
    """

    analysis: Analysis
    gradients: tuple[Gradient, ...]
    accumulating: Peak
    slowdown: float | None = None


def scaling_of(step: Step, settings: Settings, wire: Wire, *, notes: Sequence[str] = ()) -> Scaling:
    """What a training step comes to on several ranks.

    Args:
        step: on one rank.
        settings: how many ranks there are, and how they train.
        wire: the link between any two of them.
        notes: what to know beside what follows from the rest.

    Raises:
        InputError: nothing is trained in it.
    """
    if not step.gradients:
        raise InputError("--data-parallel: no parameter gets a gradient, and nothing is sent")
    first_byte, cap_byte = limits_of(settings.bucket_byte)
    buckets = buckets_of(step.gradients, first_byte=first_byte, cap_byte=cap_byte)
    kind, times_s = times_of(step.analysis)
    ranks = _Ranks(
        step=step, settings=settings, wire=wire, kind=kind, buckets=buckets, times_s=times_s
    )
    return Scaling(
        model=step.analysis.model,
        analysis=step.analysis,
        settings=settings,
        wire=wire,
        time_kind=kind,
        alone_s=ranks.alone_s,
        slowdown=step.slowdown,
        gradients=step.gradients,
        buckets=buckets,
        broadcast_byte=step.analysis.totals.buffer_bytes,
        points=tuple(map(ranks.point, _numbers(settings.ranks))),
        memory_choices=tuple(ranks.memory_choices()),
        batch=_batch(step.analysis),
        notes=tuple(notes),
        warnings=step.analysis.warnings,
    )


def times_of(analysis: Analysis) -> tuple[TimeKind, tuple[float, ...] | None]:
    """The seconds of every operator, of the best kind that each of them has; None: of none.

    What is measured of whole passes is more than its operators: that is shared out among them.
    """
    at_work = working(analysis.operators)
    kinds: tuple[tuple[TimeKind, str], ...] = (
        ("measured", "measured_s"),
        ("predicted", "predicted_s"),
        ("bound", "bound_s"),
    )
    for kind, name in kinds:
        if all(getattr(row, name) is not None for row in at_work):
            times_s = tuple(getattr(row, name) or 0.0 for row in analysis.operators)
            if kind == "measured" and analysis.measurement is not None and sum(times_s):
                scale = analysis.measurement.measured_s / sum(times_s)
                times_s = tuple(each * scale for each in times_s)
            return kind, times_s
    return "bound", None


def _batch(analysis: Analysis) -> int | None:
    shapes = [each.shape for each in analysis.inputs if each.shape]
    return shapes[0][0] if shapes else None


def _numbers(asked: int) -> list[int]:
    """Powers of two, and the number asked for among them."""
    most = max(MOST_RANKS, asked)
    return sorted({asked, *(2**power for power in range(most.bit_length()) if 2**power <= most)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranks:
    """One step, and what it comes to on a number of ranks."""

    step: Step
    settings: Settings
    wire: Wire
    kind: TimeKind
    buckets: tuple[Bucket, ...]
    times_s: tuple[float, ...] | None

    @property
    def alone_s(self) -> float | None:
        """A step of one rank that sends nothing, with all of its passes."""
        work = self._work(1)
        if work is None:
            return None
        return self.settings.accumulate * work.passes_s + work.update_s

    def point(self, ranks: int) -> ScalePoint:
        """A step on so many ranks."""
        sending = [all_reduce(each.byte, ranks, self.settings.algorithm) for each in self.buckets]
        least_s = sum(least_all_reduce_s(each.byte, ranks, self.wire) for each in self.buckets)
        others = self._others(ranks)
        low, high = self._timeline(ranks, sending, 0.0), self._timeline(ranks, sending, 1.0)
        shown = high if self.takes_cores else low
        alone_s, work = self.alone_s, self._work(ranks)
        most = None
        if alone_s and work is not None:
            whole_gradients = Wire(name="", byte_per_s=self.wire.byte_per_s, latency_s=0.0)
            byte = sum(each.byte for each in self.buckets)
            all_s = least_all_reduce_s(byte, ranks, whole_gradients)
            most = min(1.0, alone_s / max(alone_s, all_s))
        return ScalePoint(
            ranks=ranks,
            link_byte=sum(each.sent_byte for each in (*sending, *others)),
            sending_s=sum(each.time_s(self.wire) for each in sending),
            least_sending_s=least_s,
            step_s=shown.step_s if shown else None,
            step_low_s=low.step_s if low else None,
            step_high_s=high.step_s if high else None,
            efficiency=alone_s / shown.step_s if shown and alone_s else None,
            efficiency_most=most,
            timeline=shown,
            memory=self.memory(ranks, self.settings),
        )

    @property
    def takes_cores(self) -> bool:
        """Whether sending stops computing: a bound lets it run beside."""
        return self.wire.is_in_host and self.kind != "bound"

    def _timeline(self, ranks: int, sending: Sequence[Collective], taken: float) -> Timeline | None:
        work = self._work(ranks)
        if work is None:
            return None
        earlier_s = (self.settings.accumulate - 1) * (work.passes_s - self._copying_s(ranks))
        others_s = sum(each.time_s(self.wire) for each in self._others(ranks))
        return timeline(
            work,
            [each.time_s(self.wire) for each in sending],
            before_s=earlier_s + others_s,
            taken=taken,
        )

    def _others(self, ranks: int) -> list[Collective]:
        """What is sent beside gradients, and hides behind nothing.

        Buffers before the forward pass; after the update, where states are shared out, every
        parameter from the rank that updated it.
        """
        totals = self.step.analysis.totals
        found: list[Collective] = []
        if totals.buffer_bytes and ranks > 1:
            found.append(broadcast(totals.buffer_bytes, ranks))
        if self.settings.sharded and ranks > 1:
            byte = sum(each.byte for each in self.step.gradients)
            way = (ranks - 1) / ranks * byte
            found.append(Collective(messages=ranks - 1, way_byte=way, sent_byte=way))
        return found

    def _work(self, ranks: int) -> Work | None:
        """What a rank computes: with copies into buckets and back where there are others."""
        if self.times_s is None:
            return None
        rows = self.step.analysis.operators
        passes = sum(each.phase != "optimizer" for each in rows)
        slowdown = (self.step.slowdown or 1.0) if ranks > 1 else 1.0
        work = work_of(
            [each * slowdown for each in self.times_s],
            passes=passes,
            after=[each.after for each in self._in_order()],
        )
        share = 1.0
        if self.settings.sharded:
            whole = sum(each.elements for each in self.step.gradients)
            share = largest_shard(self.step.gradients, ranks)[0] / whole
        if ranks == 1:
            return work
        copied_s = 0.0
        ready_s: list[float] = []
        for each, ready in zip(self.buckets, work.ready_s, strict=True):
            copied_s += self._copy_s(each.byte)
            ready_s.append(ready + copied_s)
        return Work(
            passes_s=work.passes_s + copied_s,
            update_s=work.update_s * share + copied_s,
            ready_s=tuple(ready_s),
        )

    def _in_order(self) -> list[Bucket]:
        """Buckets that are done no earlier than those that are sent before them."""
        found: list[Bucket] = []
        for each in self.buckets:
            after = max(each.after, found[-1].after if found else 0)
            found.append(replace(each, after=after))
        return found

    def _copying_s(self, ranks: int) -> float:
        return sum(self._copy_s(each.byte) for each in self.buckets) if ranks > 1 else 0.0

    def _copy_s(self, byte: int) -> float:
        """The seconds of copying gradients into a bucket, or back.

        Both are read and written; a bound leaves out what the caches may hold.
        """
        roof = Roof(self.step.analysis.hardware, self.step.analysis.threads)
        if not roof.levels:
            return 0.0
        *caches, farthest = roof.levels
        held = caches[-1].level.capacity_for(roof.threads) if caches else 0
        whole = sum(each.byte for each in self.buckets)
        share = 1.0
        if self.kind == "bound":
            share = max(0, whole - (held or 0)) / whole
        return 2 * byte * share / farthest.byte_per_s

    def memory(self, ranks: int, settings: Settings) -> RankMemory:
        """What a rank keeps with these settings."""
        analysis = self.step.analysis
        totals, peak = analysis.totals, analysis.peak
        optimizer_byte = totals.optimizer_bytes
        if settings.sharded:
            optimizer_byte = largest_shard(self.step.gradients, ranks)[1]
        activation_byte = peak.activation_byte if peak else 0
        gradient_byte = peak.gradient_byte if peak else 0
        if settings.accumulate > 1:
            held = self.step.accumulating
            activation_byte, gradient_byte = held.activation_byte, held.gradient_byte
        return RankMemory(
            parameter_byte=totals.parameter_bytes,
            buffer_byte=totals.buffer_bytes,
            input_byte=peak.input_byte if peak else 0,
            optimizer_byte=optimizer_byte,
            activation_byte=activation_byte,
            gradient_byte=gradient_byte,
            bucket_byte=sum(each.byte for each in self.buckets) if ranks > 1 else 0,
        )

    def memory_choices(self) -> list[MemoryChoice]:
        """As it is asked for, and with one thing done otherwise."""
        settings, ranks = self.settings, self.settings.ranks
        found = [("as asked", settings), ("on one rank", replace(settings, ranks=1))]
        if ranks > 1:
            other = replace(settings, sharded=not settings.sharded)
            words = "optimizer states on every rank" if settings.sharded else "states shared out"
            found.append((words, other))
        if settings.accumulate == 1:
            words = "gradients of several passes added up"
            found.append((words, replace(settings, accumulate=2)))
        return [
            MemoryChoice(what=what, memory=self.memory(each.ranks, each)) for what, each in found
        ]
