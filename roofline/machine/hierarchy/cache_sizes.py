"""Cache sizes as the latency curve shows them, held against what the operating system reports.

Which size enters bounds where the two do not agree: one that is too small makes a bound that can
be beaten, one that is too large only a looser one. So an unreported cache counts with the upper
edge of its step. A shared cache may look smaller than it is, since neighbours on the host hold a
part: a reported size of up to four times the upper edge stands. So does twice that of a core's own
caches, which another thread of the core may use. Everything beyond is not believed.
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

# What is used of caches holds for every replacement policy. Of a working set S that is visited in
# random order, a cache of C bytes can serve no more than the fraction C / S. So where a fraction h
# of the loads of S is as fast as the nearer level, that level has at least S x h bytes: the lower
# edge. Lines of a set that fits may still collide, but not most of them: the upper edge is the
# first size at which less than half is served.

CLEAR_RATIO = 1.6
"""Between the latencies of one level and the next, at least.

Neighbouring levels differ by 2.5 and more, a last cache and memory by 2, of which 1.75 shows where
a quarter of the curve's last working set is still in the cache. A miss in a translation buffer adds
7 cycles to a second level's 14, or 25 to a last level's 50: 1.5.
"""

_SERVED = 0.5

_BEYOND_ONE_CACHE = 1.25
"""A single cache holds no more than up to its upper edge; what seems to, by more than the noise of
a curve, is two."""

_HALF_WINDOW = math.sqrt(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A rise from one level's latency to the next one's.

    The nearer level holds ``lower_bytes`` whatever the replacement; at ``upper_byte`` it serves
    less than half.
    """

    lower_bytes: int
    upper_byte: int
    near_s: float
    far_s: float


def find_steps(curve: LatencyCurve) -> list[Step]:
    """The steps of a curve, smallest working set first; none where latency hardly rises.

    A level between two others is believed where its latency is clear of both (``CLEAR_RATIO``) and
    flat, and the curve is faster than the nearer one alone could make it. So gradual steps, as of
    random replacement or of neighbours that hold a part of the cache, are no levels.
    """
    sizes, latencies = curve.size_bytes, _rising(curve.latency_s)
    last = len(sizes) - 1
    if latencies[last] < CLEAR_RATIO * latencies[0]:
        return []
    plateaus = [0, *_between(sizes, latencies, 0, last), last]
    return [_step(sizes, latencies, i, j) for i, j in itertools.pairwise(plateaus)]


def _rising(values: Sequence[float]) -> list[float]:
    """`values` without single outliers, and nowhere falling: neighbours that do share a median."""
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
    """Indices of the plateaus between those at `first` and `last`.

    The flattest place, if latency rises by less than ``CLEAR_RATIO`` in an octave; then those on
    both sides of it.
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
    """How steeply latency rises round size i: logarithm over logarithm, across an octave."""
    low = min(i - 1, bisect.bisect_left(sizes, sizes[i] / _HALF_WINDOW))
    high = max(i + 1, bisect.bisect_right(sizes, sizes[i] * _HALF_WINDOW) - 1)
    return math.log(latencies[high] / latencies[low]) / math.log(sizes[high] / sizes[low])


def _held(
    sizes: Sequence[int], latencies: Sequence[float], first: int, last: int
) -> tuple[list[float], list[float]]:
    """Of the sizes from `first` to `last`: fractions of loads as fast as at `first`, and bytes.

    The other loads are as slow as at `last`; so many bytes must be held by what is as fast.
    """
    near, far = latencies[first], latencies[last]
    served = [(far - latency) / (far - near) for latency in latencies[first : last + 1]]
    return served, [size * h for size, h in zip(sizes[first:], served, strict=False)]


def _step(sizes: Sequence[int], latencies: Sequence[float], first: int, last: int) -> Step:
    served, held = _held(sizes, latencies, first, last)
    beyond = next(i for i, h in enumerate(served) if h < _SERVED)
    return Step(
        # Beyond the upper edge a little noise of the fraction would be many bytes.
        lower_bytes=round(max(held[:beyond])),
        upper_byte=sizes[first + beyond],
        near_s=latencies[first],
        far_s=latencies[last],
    )


_MEMORY_S = 80e-9
"""What takes so long is memory: the slowest last caches, those of Sapphire Rapids in a guest, take
71 ns. A step from there on is of translation buffers."""

_LIKELY_MEMORY_S = 50e-9
"""What takes so long is memory where all caches are reported, and shown by other steps."""

_USUAL_LEVELS = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """What is reported of a level, and the step that shows it; one of them may be missing."""

    cache: Cache | None
    step: Step | None


def drop_memory_steps(steps: Sequence[Step], reported: Sequence[Cache]) -> list[Step]:
    """`steps` without those whose nearer side is at the latency of memory already."""
    found = list(steps)
    while found:
        is_surplus = len(found) > len(reported) >= _USUAL_LEVELS
        if found[-1].near_s < (_LIKELY_MEMORY_S if is_surplus else _MEMORY_S):
            break
        found.pop()
    return found


def pair_levels(reported: Sequence[Cache], steps: Sequence[Step]) -> list[Pair]:
    """Caches and steps in order; as many as possible are paired, those most alike."""
    fewer = min(len(reported), len(steps))

    def unlike(choice: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
        """How far reported sizes lie outside of their steps, in octaves."""
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
    # Caches keep their order; steps without one come between them, by size.
    places = list(itertools.accumulate(map(_place, pairs), max))
    alone = [Pair(None, step) for j, step in enumerate(steps) if j not in shown]
    placed = [*zip(places, pairs, strict=True), *((_place(pair), pair) for pair in alone)]
    return [pair for _, pair in sorted(placed, key=lambda item: item[0])]


def _place(pair: Pair) -> float:
    if pair.step:
        return math.sqrt(pair.step.lower_bytes * pair.step.upper_byte)
    return pair.cache.size_bytes if pair.cache else 0


FARTHER = 2.0
"""Working sets of so many times the last cache are, for the greater part, in memory."""

_WELL_INSIDE = 0.6  # of what a level holds: so much of it collides hardly


def add_latency(level: CacheLevel, below: CacheLevel | None, samples: Samples) -> CacheLevel:
    """The level with the latency of working sets that it holds and the one below does not."""
    least = 0 if below is None else 2 * below.capacity_bytes
    inside = [size for size in samples if least <= size <= _WELL_INSIDE * level.held_bytes]
    # The larger ones: the smaller a working set, the more of it the level below still serves.
    middle = math.sqrt(max(least, level.held_bytes // 16) * level.held_bytes)
    sizes = [size for size in inside if size >= middle] or inside
    return replace(level, latency=_duration(samples, sizes)) if sizes else level


def memory_latency(samples: Samples, last_byte: int) -> Duration | None:
    """Of the largest octave of working sets, if that is well beyond the last cache."""
    least = max(max(samples) / 2, FARTHER * last_byte)
    sizes = [size for size in samples if size > least]
    cached = f", of which {format_capacity(last_byte)} may be in the last cache"
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
            f" places; in working sets of {span}{remark}",
            f"{len(times_s)} bursts",
        ),
    )


_GRID = 1.25
"""Two neighbouring sizes of the curve are a quarter apart at most: an edge is not known better."""

_SIBLINGS = 2.0
"""A reported size of up to so many times the upper edge stands for the caches of one core."""

_NEIGHBOURS = 4.0
"""A guest with a quarter of the cores that share a cache holds a quarter of it among busy ones."""

_PRIVATE_LEVELS = 2
"""What is presumed of a level that is not reported; farther ones are presumed shared."""

_LEAST_MEMORY_S = 25e-9
"""The fastest main memories take 40 ns for a load at a random place, and 32 ns in a curve that ends
where a quarter of it is still in a last cache of 10 ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """The caches of a host, nearest first, the latency of memory, and conditions in words.

    The latency is None where the curve does not reach far enough beyond the last cache.
    """

    levels: tuple[CacheLevel, ...]
    memory_latency: Duration | None
    conditions: tuple[str, ...]


def find_levels(latencies: Latencies | None, topology: Topology) -> Hierarchy:
    """The caches that the first core of `topology` uses, with the sizes to be believed.

    Without latencies of one thread on that core, what is reported stands.
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
                f"a step of the latency curve {_edges(pair.step)} is left out: the operating system"
                f" reports no level there before L{farther.level}"
            )
            continue
        level, condition = _level(pair, number, topology, latencies)
        if levels and level.capacity_bytes <= levels[-1].capacity_bytes:
            conditions.append(
                f"{level.name} of {format_capacity(level.capacity_bytes)} is left out: it is no"
                f" larger than {levels[-1].name}"
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
    """Whether the largest working set is still served faster than any memory could."""
    return latencies.curve.latency_s[-1] < _LEAST_MEMORY_S


def _beyond_the_curve(
    levels: Sequence[CacheLevel], pairs: Sequence[Pair], latencies: Latencies
) -> tuple[CacheLevel, str] | None:
    """The last cache, if the curve ends in one that is larger than what is reported."""
    end, end_s = latencies.curve.size_bytes[-1], latencies.curve.latency_s[-1]
    if not levels or not ends_in_cache(latencies) or levels[-1].capacity_bytes >= end:
        return None
    size = format_capacity(end)
    fact = f"working sets of {size} are still served in {format_s(end_s)}, as no memory does"
    last, cache = levels[-1], pairs[-1].cache
    if pairs[-1].step is None and cache is not None:
        told = f"the operating system reports {format_capacity(cache.size_bytes)}"
    else:
        told = "not reported by the operating system"
        last = replace(last, level=last.level + 1, scope="shared", groups=(), proportions=())
    why = f"{told}, but {fact}; {size} is taken: the least that it holds"
    found = replace(last, capacity_bytes=end, held_bytes=end, provenance=provenance(why))
    return found, f"{found.name}: {why}"


def _level(
    pair: Pair, number: int, topology: Topology, latencies: Latencies | None
) -> tuple[CacheLevel, str]:
    """A level, and what is odd about it (``""``: nothing); `number` is that of one not reported."""
    cache, step = pair.cache, pair.step
    if cache is None:
        assert step is not None
        private = number <= _PRIVATE_LEVELS
        why = f"not reported by the operating system; the latency curve steps {_edges(step)}"
        level = CacheLevel(
            level=number,
            capacity_bytes=step.upper_byte,
            held_bytes=step.lower_bytes,
            scope="private" if private else "shared",
            provenance=provenance(f"{why}, the upper edge is taken"),
        )
        sharing = "private to each core" if private else "shared by all cores"
        return level, f"{level.name}: {why}; presumed {sharing}"
    # Whether cores share a cache of this level, and which CPUs do; shared where that is not told.
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
        silent = end >= FARTHER * cache.size_bytes
        what = "shows no step for it" if silent else f"ends at {format_capacity(end)}"
        note = f"not confirmed: the latency curve {what}"
        stated = replace(reported.provenance, note=note)
        condition = f"{reported.name}: {size} as reported by the operating system is {note}"
        return replace(reported, provenance=stated), condition
    if step.lower_bytes / _GRID <= cache.size_bytes <= step.upper_byte * _GRID:
        confirmed = provenance(
            f"reported by the operating system, confirmed by the latency curve: step {_edges(step)}"
        )
        return replace(reported, provenance=confirmed), ""
    why = f"the operating system reports {size}, but the latency curve steps {_edges(step)}"
    # Alone in its guest, a core still shares the last cache with cores outside, and all of its
    # caches with another thread of the same core.
    shared = scope == "shared" or cache.level > _PRIVATE_LEVELS
    most = step.upper_byte * (_NEIGHBOURS if shared else _SIBLINGS)
    if step.upper_byte < cache.size_bytes <= most:
        why += "; neighbours on the host may hold the rest, so the reported size stands"
        capacity = cache.size_bytes
    else:
        why += "; the upper edge is taken"
        capacity = step.upper_byte
    found = replace(
        reported, capacity_bytes=capacity, held_bytes=step.lower_bytes, provenance=provenance(why)
    )
    return found, f"{found.name}: {why}"


def _edges(step: Step) -> str:
    """``"between 44 and 52 KiB"``; in steps of a 32nd of an octave: no edge is more exact."""

    def rounded(byte: int) -> str:
        unit = max(1, 1 << (byte.bit_length() - 6))
        return format_capacity(round(byte / unit) * unit)

    low, high = rounded(step.lower_bytes), rounded(step.upper_byte)
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    return f"between {low} and {high}"
