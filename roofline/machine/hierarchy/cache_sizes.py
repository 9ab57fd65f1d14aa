"""Cache sizes from the latency curve, compared with the reported sizes.

Where they disagree, the larger size is safe: a cache taken too small gives a minimum time that can
be beaten, one taken too large only a lower one. So an unreported cache counts with the upper edge
of its step. A shared cache may look smaller than it is, because other guests use a part: a reported
size of up to four times the upper edge is kept, and up to twice for a core's own caches, which
another thread of the core may use. Larger reported sizes are rejected.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.core.sampling import Sample, quantile
from roofline.core.units import format_capacity, format_s
from roofline.machine.hardware import Duration, LatencyCurve, Provenance
from roofline.machine.hierarchy.curves import Latencies, Samples
from roofline.machine.hierarchy.working_sets import CacheLevel
from roofline.machine.measuring.estimation import PEAK_QUANTILE, provenance
from roofline.machine.system.topology import Cache, Topology

# Valid for every replacement policy: of a working set S in random order, a cache of C bytes serves
# at most the fraction C / S. If a fraction h of the loads is as fast as the nearer level, it has at
# least S x h bytes: the lower edge. Lines of a fitting set may collide, but not most of them: the
# upper edge is the first size at which less than half is served.

CLEAR_RATIO = 1.6
"""Minimum ratio between the latencies of one level and the next.

Adjacent levels differ by 2.5 and more; a last-level cache and memory by 2, of which 1.75 is visible
if a quarter of the largest working set still hits. A TLB miss adds 7 cycles to 14 of L2, or 25 to
50 of the last level: 1.5.
"""

_SERVED = 0.5

_BEYOND_ONE_CACHE = 1.25
"""A single cache holds at most its upper edge; apparent capacity above that, beyond the noise, is a
second cache."""

_HALF_WINDOW = math.sqrt(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Rise of latency from one level to the next.

    The nearer level holds ``lower_bytes`` with any replacement policy; at ``upper_byte`` it serves
    less than half of the loads.
    """

    lower_bytes: int
    upper_byte: int
    near_s: float
    far_s: float


def find_steps(curve: LatencyCurve) -> list[Step]:
    """Return the steps of a curve, smallest working set first; none if latency hardly rises.

    An intermediate level needs a flat latency, a factor ``CLEAR_RATIO`` from both neighbors, at
    sizes that the nearer level alone cannot serve. Gradual steps, from random replacement or shared
    caches, are not levels.
    """
    sizes, latencies = curve.size_bytes, _rising(curve.latency_s)
    last = len(sizes) - 1
    if latencies[last] < CLEAR_RATIO * latencies[0]:
        return []
    plateaus = [0, *_between(sizes, latencies, 0, last), last]
    return [_step(sizes, latencies, i, j) for i, j in itertools.pairwise(plateaus)]


def _rising(values: Sequence[float]) -> list[float]:
    """Return `values` without single outliers, monotonic by pooling adjacent values to medians."""
    calm = [
        statistics.median(values[max(0, min(i - 1, len(values) - 3)) :][:3])
        for i in range(len(values))
    ]
    blocks: list[list[float]] = []
    for value in calm:
        blocks.append([value])
        while len(blocks) > 1 and statistics.median(blocks[-2]) > statistics.median(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return [statistics.median(block) for block in blocks for _ in block]


def _between(sizes: Sequence[int], latencies: Sequence[float], first: int, last: int) -> list[int]:
    """Return indices of the plateaus between `first` and `last`.

    The flattest point with a slope below ``CLEAR_RATIO`` per octave, then those on both sides.
    """
    near, far = latencies[first], latencies[last]
    reach = max(_held(sizes, latencies, first, last)[1])
    candidates = [
        i
        for i in range(first + 1, last)
        if latencies[i] >= CLEAR_RATIO * near
        and far >= CLEAR_RATIO * latencies[i]
        and _slope(sizes, latencies, i) < math.log2(CLEAR_RATIO)
        and reach > _BEYOND_ONE_CACHE * _step(sizes, latencies, first, i).upper_byte
    ]
    if not candidates:
        return []
    best = min(candidates, key=lambda i: _slope(sizes, latencies, i))
    return [
        *_between(sizes, latencies, first, best),
        best,
        *_between(sizes, latencies, best, last),
    ]


def _slope(sizes: Sequence[int], latencies: Sequence[float], i: int) -> float:
    """Return the log-log slope of latency at size i, across an octave."""
    low = min(i - 1, bisect.bisect_left(sizes, sizes[i] / _HALF_WINDOW))
    high = max(i + 1, bisect.bisect_right(sizes, sizes[i] * _HALF_WINDOW) - 1)
    return math.log(latencies[high] / latencies[low]) / math.log(sizes[high] / sizes[low])


def _held(
    sizes: Sequence[int], latencies: Sequence[float], first: int, last: int
) -> tuple[list[float], list[float]]:
    """Return the fraction of loads as fast as at `first`, and the bytes that must be cached, by
    size.

    Other loads are assumed as slow as at `last`.
    """
    near, far = latencies[first], latencies[last]
    served = [(far - latency) / (far - near) for latency in latencies[first : last + 1]]
    return served, [size * h for size, h in zip(sizes[first:], served, strict=False)]


def _step(sizes: Sequence[int], latencies: Sequence[float], first: int, last: int) -> Step:
    served, held = _held(sizes, latencies, first, last)
    beyond = next(i for i, h in enumerate(served) if h < _SERVED)
    return Step(
        # Beyond the upper edge, noise of the fraction would mean many bytes.
        lower_bytes=round(max(held[:beyond])),
        upper_byte=sizes[first + beyond],
        near_s=latencies[first],
        far_s=latencies[last],
    )


_MEMORY_S = 80e-9
"""Latency of memory: the slowest last-level caches, of Sapphire Rapids in a guest, take 71 ns.
Steps above are due to TLBs."""

_LIKELY_MEMORY_S = 50e-9
"""Latency of memory if all caches are reported and found by other steps."""

_USUAL_LEVELS = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """A reported cache and the step that shows it; one may be missing."""

    cache: Cache | None
    step: Step | None


def drop_memory_steps(steps: Sequence[Step], reported: Sequence[Cache]) -> list[Step]:
    """Return `steps` without those that start at memory latency."""
    found = list(steps)
    while found:
        is_surplus = len(found) > len(reported) >= _USUAL_LEVELS
        if found[-1].near_s < (_LIKELY_MEMORY_S if is_surplus else _MEMORY_S):
            break
        found.pop()
    return found


def pair_levels(reported: Sequence[Cache], steps: Sequence[Step]) -> list[Pair]:
    """Return caches paired with steps in order: as many as possible, closest sizes first."""
    fewer = min(len(reported), len(steps))

    def unlike(choice: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
        """Return the distance of reported sizes from their steps, in octaves."""
        return sum(
            math.log2(max(1.0, step.lower_bytes / size, size / step.upper_byte))
            for i, j in zip(*choice, strict=True)
            for size, step in [(reported[i].size_bytes, steps[j])]
        )

    caches, shown = min(
        itertools.product(
            itertools.combinations(range(len(reported)), fewer),
            itertools.combinations(range(len(steps)), fewer),
        ),
        key=unlike,
    )
    of = dict(zip(caches, shown, strict=True))
    pairs = [Pair(cache, steps[of[i]] if i in of else None) for i, cache in enumerate(reported)]
    # Caches keep their order; unpaired steps are inserted by size.
    places = list(itertools.accumulate(map(_place, pairs), max))
    alone = [Pair(None, step) for j, step in enumerate(steps) if j not in shown]
    placed = [*zip(places, pairs, strict=True), *((_place(pair), pair) for pair in alone)]
    return [pair for _, pair in sorted(placed, key=lambda item: item[0])]


def _place(pair: Pair) -> float:
    if pair.step:
        return math.sqrt(pair.step.lower_bytes * pair.step.upper_byte)
    return pair.cache.size_bytes if pair.cache else 0


FARTHER = 2.0
"""Working sets of this multiple of the last-level cache are mostly in memory."""

_WELL_INSIDE = 0.6  # of the capacity: few conflict misses


def add_latency(level: CacheLevel, below: CacheLevel | None, samples: Samples) -> CacheLevel:
    """Return the level with the latency of working sets that fit it and not the level below."""
    least = 0 if below is None else 2 * below.capacity_bytes
    inside = [size for size in samples if least <= size <= _WELL_INSIDE * level.held_bytes]
    # The larger ones: small working sets are partly served by the level below.
    middle = math.sqrt(max(least, level.held_bytes // 16) * level.held_bytes)
    sizes = [size for size in inside if size >= middle] or inside
    return replace(level, latency=_duration(samples, sizes)) if sizes else level


def memory_latency(samples: Samples, last_byte: int) -> Duration | None:
    """Return the latency of the largest octave, if well beyond the last-level cache."""
    least = max(max(samples) / 2, FARTHER * last_byte)
    sizes = [size for size in samples if size > least]
    cached = f", up to {format_capacity(last_byte)} of it in the last-level cache"
    return _duration(samples, sizes, cached) if sizes else None


def _duration(samples: Samples, sizes: Sequence[int], remark: str = "") -> Duration | None:
    times_s = tuple(value for size in sizes for value in samples[size])
    if not times_s:
        return None
    sample = Sample(times_s=times_s)
    span = format_capacity(min(sizes))
    if len(sizes) > 1:
        span += f" to {format_capacity(max(sizes))}"
    low = 1 - PEAK_QUANTILE
    return Duration(
        fast_s=min(sample.median_s, quantile(times_s, low)),
        median_s=sample.median_s,
        spread=sample.spread,
        provenance=provenance(
            f"{low * 100:.0f}th percentile and median of bursts of dependent loads at random"
            f" addresses; working sets of {span}{remark}",
            f"{len(times_s)} bursts",
        ),
    )


_GRID = 1.25
"""Ratio of adjacent curve sizes, the accuracy of an edge."""

_SIBLINGS = 2.0
"""Tolerance of reported sizes for a core's own caches, relative to the upper edge."""

_OTHER_GUESTS = 4.0
"""Tolerance for shared caches: a guest with a quarter of the cores may hold a quarter."""

_PRIVATE_LEVELS = 2
"""Unreported levels up to this one are assumed private, others shared."""

_LEAST_MEMORY_S = 25e-9
"""Lower limit of memory latency: at least 40 ns for random loads, 32 ns in a curve whose last
working set is a quarter cached at 10 ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """Caches of a host, nearest first, memory latency, and conditions.

    The latency is None if the curve ends too close to the last-level cache.
    """

    levels: tuple[CacheLevel, ...]
    memory_latency: Duration | None
    conditions: tuple[str, ...]


def find_levels(latencies: Latencies | None, topology: Topology) -> Hierarchy:
    """Return the caches of the first core of `topology`, with verified sizes.

    Without latencies of that core, reported sizes are used.
    """
    reported = [
        cache
        for number in sorted({cache.level for cache in topology.caches})
        if (cache := topology.cache(number)) is not None
    ]
    steps = drop_memory_steps(find_steps(latencies.curve), reported) if latencies else []
    pairs = pair_levels(reported, steps)
    levels: list[CacheLevel] = []
    conditions: list[str] = []
    for i, pair in enumerate(pairs):
        number = levels[-1].level + 1 if levels else 1
        farther = next((each.cache for each in pairs[i + 1 :] if each.cache), None)
        if pair.cache is None and pair.step and farther and farther.level <= number:
            conditions.append(
                f"step of the latency curve {_edges(pair.step)} ignored: no level before"
                f" L{farther.level} is reported"
            )
            continue
        level, condition = _level(pair, number, topology, latencies)
        if levels and level.capacity_bytes <= levels[-1].capacity_bytes:
            conditions.append(
                f"{level.name} of {format_capacity(level.capacity_bytes)} ignored: not larger than"
                f" {levels[-1].name}"
            )
            continue
        levels.append(level)
        conditions += [condition] if condition else []
    if not latencies:
        return Hierarchy(levels=tuple(levels), memory_latency=None, conditions=tuple(conditions))
    beyond = _beyond_the_curve(levels, pairs, latencies)
    if beyond:
        level, condition = beyond
        if level.level == levels[-1].level:
            levels.pop()
            conditions.pop()
        levels.append(level)
        conditions.append(condition)
    last = levels[-1].capacity_bytes if levels else 0
    return Hierarchy(
        levels=tuple(
            add_latency(level, below, latencies.samples)
            for below, level in zip([None, *levels], levels, strict=False)
        ),
        memory_latency=memory_latency(latencies.samples, last) if steps and not beyond else None,
        conditions=tuple(conditions),
    )


def ends_in_cache(latencies: Latencies) -> bool:
    """Return True if the largest working set is faster than any memory."""
    return latencies.curve.latency_s[-1] < _LEAST_MEMORY_S


def _beyond_the_curve(
    levels: Sequence[CacheLevel], pairs: Sequence[Pair], latencies: Latencies
) -> tuple[CacheLevel, str] | None:
    """Return the last-level cache if the curve ends in one larger than reported."""
    end, end_s = latencies.curve.size_bytes[-1], latencies.curve.latency_s[-1]
    if not levels or not ends_in_cache(latencies) or levels[-1].capacity_bytes >= end:
        return None
    size = format_capacity(end)
    fact = f"working sets of {size} take {format_s(end_s)} per load, less than any memory"
    last, cache = levels[-1], pairs[-1].cache
    if pairs[-1].step is None and cache is not None:
        reported = f"reported as {format_capacity(cache.size_bytes)}"
    else:
        reported = "size not reported"
        last = replace(last, level=last.level + 1, scope="shared", groups=(), proportions=())
    why = f"{reported}, but {fact}; assumed size: {size}, its lower limit"
    found = replace(last, capacity_bytes=end, held_bytes=end, provenance=provenance(why))
    return found, f"{found.name}: {why}"


def _level(
    pair: Pair, number: int, topology: Topology, latencies: Latencies | None
) -> tuple[CacheLevel, str]:
    """Return a level and a note on it (or ``""``); `number` applies if unreported."""
    cache, step = pair.cache, pair.step
    if cache is None:
        assert step is not None
        private = number <= _PRIVATE_LEVELS
        why = f"size not reported; latency curve: step {_edges(step)}"
        level = CacheLevel(
            level=number,
            capacity_bytes=step.upper_byte,
            held_bytes=step.lower_bytes,
            scope="private" if private else "shared",
            provenance=provenance(f"{why}, upper edge used"),
        )
        sharing = "private to each core" if private else "shared by all cores"
        return level, f"{level.name}: {why}; assumed {sharing}"
    # A cache is assumed shared if its CPUs are not reported.
    known = topology.caches if cache.cpus else ()
    instances = [each for each in known if each.level == cache.level and each.cpus]
    groups = tuple(each.cpus for each in instances)
    proportions = tuple(each.size_bytes / cache.size_bytes for each in instances)
    alone = all(len(set(group) & set(topology.cores)) <= 1 for group in groups)
    scope = "private" if groups and alone else "shared"
    reported = CacheLevel(
        level=cache.level,
        capacity_bytes=cache.size_bytes,
        held_bytes=cache.size_bytes,
        scope=scope,
        groups=groups,
        proportions=proportions,
        provenance=Provenance(
            source="datasheet",
            reference="reported by the operating system",
            date="",
            note="not confirmed: no latency curve was measured",
        ),
    )
    size = format_capacity(cache.size_bytes)
    if latencies is None:
        return reported, ""
    if step is None:
        end = latencies.curve.size_bytes[-1]
        no_step = end >= FARTHER * cache.size_bytes
        what = "has no step for it" if no_step else f"ends at {format_capacity(end)}"
        note = f"not confirmed: the latency curve {what}"
        stated = replace(reported.provenance, note=note)
        condition = f"{reported.name}: reported size of {size} {note}"
        return replace(reported, provenance=stated), condition
    if step.lower_bytes / _GRID <= cache.size_bytes <= step.upper_byte * _GRID:
        confirmed = provenance(
            f"reported by the operating system, confirmed by the latency curve: step {_edges(step)}"
        )
        return replace(reported, provenance=confirmed), ""
    why = f"reported size {size}, but latency curve: step {_edges(step)}"
    # Other guests share the last-level cache, and another thread of the core all its caches.
    shared = scope == "shared" or cache.level > _PRIVATE_LEVELS
    most = step.upper_byte * (_OTHER_GUESTS if shared else _SIBLINGS)
    if step.upper_byte < cache.size_bytes <= most:
        why += "; other guests may use the rest, reported size kept"
        capacity = cache.size_bytes
    else:
        why += "; upper edge used"
        capacity = step.upper_byte
    found = replace(
        reported, capacity_bytes=capacity, held_bytes=step.lower_bytes, provenance=provenance(why)
    )
    return found, f"{found.name}: {why}"


def _edges(step: Step) -> str:
    """Return ``"between 44 and 52 KiB"``, rounded to a 32nd of an octave."""

    def rounded(byte: int) -> str:
        unit = max(1, 1 << (byte.bit_length() - 6))
        return format_capacity(round(byte / unit) * unit)

    low, high = rounded(step.lower_bytes), rounded(step.upper_byte)
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    return f"between {low} and {high}"
