"""Training step on any number of ranks: compute, communication, memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from roofline.analysis import Analysis, fits, working
from roofline.errors import InputError, argument
from roofline.placement import Roof
from roofline.scaling.buckets import Bucket, Timeline, Work, buckets_of, timeline, work_of
from roofline.scaling.memory import Peak, RankMemory, largest_shard
from roofline.scaling.result import MemoryChoice, ScalePoint, Scaling, TimeKind
from roofline.scaling.settings import (
    Collective,
    RankLink,
    Settings,
    all_reduce,
    broadcast,
    min_all_reduce_s,
)
from roofline.workload.operators import Gradient, TrainedParameter

_COPIED, _ADDED = 2, 3
"""Memory accesses per gradient byte: a copy reads and writes, an addition reads once more."""

OF_SCALING = "aten._amp_"
"""Gradient-scaling operators, which read every gradient on every rank."""

_USED_BYTE = 4
"""Bytes per parameter of the bitmap of used parameters."""


def batch_of(analysis: Analysis) -> int | None:
    """Return the batch size: dimension 0 of the first input with a shape; None without one."""
    shapes = [each.shape for each in analysis.inputs if each.shape]
    return shapes[0][0] if shapes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A training step on one rank.

    ``accumulating`` is the peak with gradients of earlier passes. ``trained`` are all parameters
    that may get a gradient, in model order (empty: those that get one). ``slowdown`` is compute
    time next to other ranks over that alone; None: not measured, taken as 1.
    """

    analysis: Analysis
    gradients: tuple[Gradient, ...]
    accumulating: Peak
    trained: tuple[TrainedParameter, ...] = ()
    slowdown: float | None = None

    @property
    def unused(self) -> tuple[str, ...]:
        """Trained parameters without a gradient."""
        done = {each.parameter for each in self.gradients}
        return tuple(each.parameter for each in self.trained if each.parameter not in done)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Evaluates one step on any number of ranks."""

    step: Step
    settings: Settings
    link: RankLink | None

    @cached_property
    def times(self) -> tuple[TimeKind, tuple[float, ...] | None]:
        """Operator times from `times_of`."""
        return times_of(self.step.analysis)

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        """Buckets of the step; a chosen size also applies to the first bucket."""
        cap_bytes, step = self.settings.bucket_bytes, self.step
        limits = {} if cap_bytes is None else {"first_byte": cap_bytes, "cap_bytes": cap_bytes}
        return buckets_of(step.gradients, step.trained if step.unused else (), **limits)

    @cached_property
    def alone(self) -> Work | None:
        """Compute of one pass and the update on one rank; None without operator times."""
        _, times_s = self.times
        if times_s is None:
            return None
        passes = sum(row.phase != "optimizer" for row in self.step.analysis.operators)
        # A bucket is never ready before its predecessors.
        after = itertools.accumulate((each.after for each in self.buckets), max)
        return work_of(times_s, passes=passes, after=list(after))

    @cached_property
    def whole_s(self) -> float:
        """Seconds of the update that every rank repeats with a sharded optimizer."""
        pairs = zip(self.step.analysis.operators, self.times[1] or (), strict=False)
        return sum(time_s for row, time_s in pairs if row.op.startswith(OF_SCALING))

    @cached_property
    def byte_s(self) -> float:
        """Seconds per gradient byte read or written; minimum times leave out cached bytes."""
        analysis, whole_bytes = self.step.analysis, sum(each.size_bytes for each in self.buckets)
        roof = Roof(analysis.hardware, analysis.threads)
        if not roof.levels or not whole_bytes:
            return 0.0
        *_, held = (0, *roof.held_bytes[:-1])
        share = 1.0
        if self.times[0] == "bound":
            share = max(0, whole_bytes - (held or 0)) / whole_bytes
        return share / roof.levels[-1].bytes_per_s

    @property
    def alone_s(self) -> float | None:
        """Step time of one rank without communication, with all of its passes, in seconds."""
        return None if self.alone is None else self._computing_s(self.alone, 1)

    @property
    def takes_cores(self) -> bool:
        """True if communication blocks compute; minimum times let both overlap."""
        return self.link is not None and self.link.is_in_host and self.times[0] != "bound"

    def point(self, ranks: int) -> ScalePoint:
        """Return the step on `ranks` ranks."""
        sending = [
            all_reduce(each.size_bytes, ranks, self.settings.algorithm) for each in self.buckets
        ]
        others = self._others(ranks)
        low, high = self._timeline(ranks, sending, 0.0), self._timeline(ranks, sending, 1.0)
        shown = high if self.takes_cores else low
        alone_s, memory = self.alone_s, self.memory(ranks, self.settings)
        batch, samples_per_s = batch_of(self.step.analysis), None
        if batch is not None and shown and shown.step_s:
            samples_per_s = batch * self.settings.accumulate * ranks / shown.step_s
        link, sizes = self.link, [each.size_bytes for each in self.buckets]
        least_s = (min_all_reduce_s(each, ranks, link) for each in sizes) if link else ()
        return ScalePoint(
            ranks=ranks,
            flop=self._flop(ranks),
            link_bytes=sum(each.sent_bytes for each in (*sending, *others)),
            transfer_s=sum(map(self._on_its_way_s, sending)),
            min_transfer_s=sum(least_s, 0.0),
            step_s=shown.step_s if shown else None,
            step_low_s=low.step_s if low else None,
            step_high_s=high.step_s if high else None,
            efficiency=alone_s / shown.step_s if shown and alone_s else None,
            max_efficiency=self._most(ranks),
            timeline=shown,
            memory=memory,
            samples_per_s=samples_per_s,
            fits=self._fits(memory),
        )

    def _fits(self, memory: RankMemory) -> bool | None:
        return fits(memory.total_bytes, self.step.analysis.hardware.memory_capacity_bytes)

    def _on_its_way_s(self, each: Collective) -> float:
        return each.time_s(self.link) if self.link else 0.0

    def _most(self, ranks: int) -> float | None:
        """Return the efficiency with one all-reduce, no latency and full overlap."""
        alone_s = self.alone_s
        if not alone_s or self.alone is None:
            return None
        without_latency = replace(self.link, latency_s=0.0) if self.link else None
        byte = sum(each.size_bytes for each in self.buckets)
        all_s = min_all_reduce_s(byte, ranks, without_latency) if without_latency else 0.0
        return alone_s / max(self._computing_s(self.alone, ranks), all_s)

    def _computing_s(self, alone: Work, ranks: int) -> float:
        """Return the compute time of a rank in seconds, without copies to and from buckets."""
        passes = self.settings.accumulate
        update_s = self.whole_s + (alone.update_s - self.whole_s) * self._share(ranks)
        return passes * alone.passes_s + (passes - 1) * self._walk_s(_ADDED) + update_s

    def _share(self, ranks: int) -> float:
        """Return the share of parameters in the largest optimizer shard."""
        whole = sum(each.elements for each in self.step.gradients)
        if not self.settings.sharded or not whole:
            return 1.0
        return largest_shard(self.step.gradients, ranks)[0] / whole

    def _flop(self, ranks: int) -> float | None:
        """Return the FLOP of a rank per step; None if those of an operator are unknown."""
        rows = self.step.analysis.operators
        if self.step.analysis.totals.unknown_operators:
            return None
        update = sum(row.flop or 0 for row in rows if row.phase == "optimizer")
        whole = sum(row.flop or 0 for row in rows if row.op.startswith(OF_SCALING))
        passes = sum(row.flop or 0 for row in rows) - update
        return self.settings.accumulate * passes + whole + (update - whole) * self._share(ranks)

    def _timeline(self, ranks: int, sending: Sequence[Collective], taken: float) -> Timeline | None:
        if self.alone is None:
            return None
        earlier = self.settings.accumulate - 1
        earlier_s = earlier * self._slowdown(ranks) * self.alone.passes_s
        earlier_s += max(0, earlier - 1) * self._walk_s(_ADDED)
        return timeline(
            self._last_pass(self.alone, ranks),
            list(map(self._on_its_way_s, sending)),
            before_s=earlier_s + sum(map(self._on_its_way_s, self._others(ranks))),
            taken=taken,
        )

    def _last_pass(self, alone: Work, ranks: int) -> Work:
        """Return the compute of the communicating pass, with copies to and from buckets."""
        added = _ADDED if self.settings.accumulate > 1 else 0
        copied = _COPIED if ranks > 1 else 0
        done_s = 0.0
        ready_s: list[float] = []
        slowdown = self._slowdown(ranks)
        for each, ready in zip(self.buckets, alone.ready_s, strict=True):
            done_s += self._walk_s(added + copied, each.size_bytes)
            ready_s.append(slowdown * ready + done_s)
        update_s = self.whole_s + (alone.update_s - self.whole_s) * self._share(ranks)
        return Work(
            passes_s=slowdown * alone.passes_s + done_s,
            update_s=slowdown * update_s + self._walk_s(copied),
            ready_s=tuple(ready_s),
        )

    def _slowdown(self, ranks: int) -> float:
        return (self.step.slowdown or 1.0) if ranks > 1 else 1.0

    def _walk_s(self, times: int, byte: int | None = None) -> float:
        """Return the seconds of reading or writing gradients (None: all) `times` times."""
        whole = sum(each.size_bytes for each in self.buckets)
        return times * (whole if byte is None else byte) * self.byte_s

    def _others(self, ranks: int) -> list[Collective]:
        """Return the collectives without overlap.

        These are buffers before the forward pass, the bitmap of used parameters if some are unused,
        and updated parameters of a sharded optimizer.
        """
        if ranks == 1:
            return []
        found: list[Collective] = []
        if self.step.analysis.totals.buffer_size_bytes:
            found.append(broadcast(self.step.analysis.totals.buffer_size_bytes, ranks))
        if self.step.unused:
            used_bytes = _USED_BYTE * len(self.step.trained)
            found.append(all_reduce(used_bytes, ranks, self.settings.algorithm))
        if self.settings.sharded:
            byte = sum(each.byte for each in self.step.trained or self.step.gradients)
            way = (ranks - 1) / ranks * byte
            found.append(Collective(messages=ranks - 1, way_bytes=way, sent_bytes=way))
        return found

    def memory(self, ranks: int, settings: Settings, *, are_views: bool = False) -> RankMemory:
        """Return the memory of a rank; `are_views`: gradients are views of the buckets."""
        analysis = self.step.analysis
        totals, peak = analysis.totals, analysis.peak
        optimizer_bytes = totals.optimizer_state_bytes
        if settings.sharded:
            optimizer_bytes = largest_shard(self.step.gradients, ranks)[1]
        activation_bytes = peak.activation_bytes if peak else 0
        gradient_bytes = peak.gradient_bytes if peak else 0
        held = self.step.accumulating
        if are_views:
            activation_bytes = held.activation_bytes
            gradient_bytes = held.gradient_bytes - held.kept_bytes
        elif settings.accumulate > 1:
            activation_bytes, gradient_bytes = held.activation_bytes, held.gradient_bytes
        return RankMemory(
            parameter_bytes=totals.parameter_size_bytes,
            buffer_bytes=totals.buffer_size_bytes,
            input_bytes=peak.input_bytes if peak else 0,
            optimizer_bytes=optimizer_bytes,
            activation_bytes=activation_bytes,
            gradient_bytes=gradient_bytes,
            bucket_bytes=sum(each.size_bytes for each in self.buckets) if ranks > 1 else 0,
        )

    def memory_choices(self) -> list[MemoryChoice]:
        """Return the memory with these settings, and with one setting changed."""
        settings, ranks = self.settings, self.settings.ranks
        found = [("these settings", settings), ("one rank", replace(settings, ranks=1))]
        if ranks > 1:
            other = replace(settings, sharded=not settings.sharded)
            words = "replicated optimizer" if settings.sharded else "sharded optimizer"
            found.append((words, other))
        if settings.accumulate == 1:
            found.append(("gradient accumulation", replace(settings, accumulate=2)))
        choices = [(what, self.memory(each.ranks, each)) for what, each in found]
        if ranks > 1:
            in_buckets = self.memory(ranks, settings, are_views=True)
            choices.append(("gradients as bucket views", in_buckets))
        return [
            MemoryChoice(what=what, memory=memory, fits=self._fits(memory))
            for what, memory in choices
        ]


MOST_RANKS = 1024
"""Largest number of ranks in the table, unless more are set."""


def scaling_of(
    step: Step, settings: Settings, link: RankLink | None, *, notes: Sequence[str] = ()
) -> Scaling:
    """Return the scaling of a training step; without a link, on one rank."""
    if not step.gradients:
        raise InputError(
            f"{argument('data_parallel')}: no parameter has a gradient, nothing to reduce; choose a"
            " model with trainable parameters"
        )
    if link is None and settings.ranks > 1:
        raise ValueError(f"{settings.ranks} ranks need a link")
    ranks = Ranks(step=step, settings=settings, link=link)
    numbers = {1}
    if link is not None:
        most = max(MOST_RANKS, settings.ranks)
        numbers = {settings.ranks, *(2**power for power in range(most.bit_length()))}
    return Scaling(
        model=step.analysis.model,
        analysis=step.analysis,
        settings=settings,
        link=link,
        time_kind=ranks.times[0],
        alone_s=ranks.alone_s,
        slowdown=step.slowdown,
        gradients=step.gradients,
        buckets=ranks.buckets,
        broadcast_bytes=step.analysis.totals.buffer_size_bytes,
        points=tuple(map(ranks.point, sorted(numbers))),
        memory_choices=tuple(ranks.memory_choices()),
        batch=batch_of(step.analysis),
        notes=tuple(notes),
        warnings=step.analysis.warnings,
    )


def times_of(analysis: Analysis) -> tuple[TimeKind, tuple[float, ...] | None]:
    """Return the kind of time and the seconds of every operator; None without ceilings.

    Times are measured if all are, else minimum times. Measured ones are scaled to the measured
    pass.
    """
    at_work = working(analysis.operators)
    kinds: tuple[tuple[TimeKind, str], ...] = (
        ("measured", "measured_s"),
        ("bound", "eager_min_time_s"),
    )
    for kind, name in kinds:
        if all(getattr(row, name) is not None for row in at_work):
            times_s = tuple(getattr(row, name) or 0.0 for row in analysis.operators)
            if kind == "measured" and analysis.measurement is not None and sum(times_s):
                scale = analysis.measurement.measured_s / sum(times_s)
                times_s = tuple(each * scale for each in times_s)
            return kind, times_s
    return "bound", None
