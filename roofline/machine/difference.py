"""Comparison of two machines, or of one machine at two dates: ratios, and significant changes.

Figures are matched by kind, data type or level, unit, kernel and number of threads. For two
machines, all threads of one are compared with all threads of the other.

A figure has changed if |ln(new / old)| exceeds both

* `FLOOR`, 4 %: on an idle host two runs agree within 3 % in 95 of 100 figures, 4 % in 99, and
* `QUANTILE` standard deviations of the difference of two single bursts: sqrt(s1² + s2²) / 1.349,
  with s the interquartile range over the median (1.349 standard deviations of a normal
  distribution). One run does not show how far medians of runs differ, so bursts stand in.

Without a saved spread, that of a normal distribution whose 95th percentile is the peak is used:
zero where peak and median are equal, as on data sheets. Cache sizes move by steps of their curve:
`CAPACITY_FLOOR`. Arithmetic, L1 and L2 run at the core clock. A change that matches the measured
change of the clock is not reported (`Pair.follows_clock`). A process that disturbs a whole run
lowers its median, not its peak, and is reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from roofline.core.blocks import Block, KeyValueBlock, Notes, View, notes, table
from roofline.core.dtypes import dtype
from roofline.core.text import counted
from roofline.core.units import MISSING, format_percent, format_si
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.quantities import (
    Quantity,
    age,
    best_figures,
    figure_names,
    origin,
    quantities_of,
)
from roofline.result import Result

FLOOR = 0.04
"""Relative change that is never significant, whatever the spreads."""

CAPACITY_FLOOR = 0.25
"""The same for cache sizes, which are as exact as the steps of their curve."""

QUANTILE = 2.576
"""Standard deviations exceeded by 1 of 100 differences within one normal distribution."""

_IQR_PER_SD = 1.349
_PEAK_PER_SD = 1.645

ALL = "all"
"""Threads label of figures measured on all threads of a machine."""

Both = tuple[float | None, float | None]
"""A number of each machine; None: unknown."""


def ratio(pair: Both) -> float | None:
    """Return the second of `pair` over the first; None where one is unknown or the first is 0."""
    first, second = pair
    return second / first if first and second is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One figure on both machines; None: unknown. Ratios are second over first.

    ``threads`` is a number, ``"all"`` (all threads of each machine), or ``""`` for capacities and
    clocks. ``clock_ratio`` is that of the core clock for figures that follow it, else 1.
    """

    first: Quantity | None
    second: Quantity | None
    threads: str
    clock_ratio: float = 1.0

    @property
    def one(self) -> Quantity:
        """The figure of a machine that has it, for the shared fields."""
        return self.first or self.second  # pyright: ignore[reportReturnType]  one is known

    @property
    def label(self) -> str:
        """Name of the figure: ``"DRAM copy"``."""
        return self.one.label

    @property
    def peaks(self) -> Both:
        """Peak rates; for times, the shortest."""
        return self.first and self.first.peak, self.second and self.second.peak

    @property
    def sustained(self) -> Both:
        return self.first and self.first.sustained, self.second and self.second.sustained

    @property
    def is_known(self) -> bool:
        """True if both machines have the figure and no value is zero."""
        return all((*self.peaks, *self.sustained))

    @property
    def peak_ratio(self) -> float | None:
        return ratio(self.peaks)

    @property
    def sustained_ratio(self) -> float | None:
        return ratio(self.sustained)

    @property
    def leading_ratio(self) -> float:
        """The ratio farther from 1, of medians or peaks; 1 if unknown."""
        ratios = (self.sustained_ratio or 1.0, self.peak_ratio or 1.0)
        return max(ratios, key=lambda each: abs(math.log(each)))

    @property
    def noise(self) -> float:
        """Largest |ln ratio| explained by spreads and floor."""
        if self.one.what == "capacity":
            return CAPACITY_FLOOR
        spreads: list[float] = []
        for each in filter(None, (self.first, self.second)):
            as_normal = abs(math.log(each.peak / each.sustained)) * _IQR_PER_SD / _PEAK_PER_SD
            spreads.append(as_normal if each.spread is None else each.spread)
        return max(FLOOR, QUANTILE * math.hypot(*spreads) / _IQR_PER_SD)

    @property
    def sustained_changed(self) -> bool:
        """True if the medians differ beyond noise and clock."""
        return self._is_beyond(self.sustained_ratio)

    @property
    def peak_changed(self) -> bool:
        """True if the peaks differ beyond noise and clock."""
        return self._is_beyond(self.peak_ratio)

    def _is_beyond(self, value: float | None) -> bool:
        by_clock = math.log(self.clock_ratio) * (-1 if self.one.measure == "s" else 1)
        change = math.log(value or 1.0)
        # An unchanged figure counts as unchanged even if the clock changed.
        return min(abs(change), abs(change - by_clock)) > self.noise

    @property
    def changed(self) -> bool:
        """True if peak or median changed significantly."""
        return self.sustained_changed or self.peak_changed

    @property
    def follows_clock(self) -> bool:
        """True if a change beyond the noise is explained by the clock."""
        farthest = abs(math.log(self.leading_ratio))
        return self.clock_ratio != 1.0 and not self.changed and farthest > self.noise

    @property
    def better(self) -> bool:
        """True if the largest change is an improvement: higher rate or size, shorter time."""
        return (self.leading_ratio > 1) == (self.one.measure != "s")


_NUMBERS = (
    *("first_peak", "second_peak", "peak_ratio"),
    *("first_sustained", "second_sustained", "sustained_ratio"),
    *("noise_ratio", "clock_ratio", "changed"),
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HardwareDifference(Result):
    """Comparison of two machines, or of one at two dates (``same_machine``).

    Ratios are second over first.
    """

    kind: ClassVar = "hardware difference"
    made_by: ClassVar = "roofline hardware diff A B -o FILE.json"
    suffixes: ClassVar = (".json", ".csv", ".md", ".html")
    columns: ClassVar = {
        **dict.fromkeys(("what", "name", "threads", "unit"), "string"),
        **dict.fromkeys(_NUMBERS, "Float64"),
        "changed": "boolean",
    }
    ALSO_WRITTEN: ClassVar = ("summary", "same", "figures", "host_difference", "versions")

    first: HardwareProfile
    second: HardwareProfile
    same_machine: bool = False

    @property
    def machines(self) -> tuple[HardwareProfile, HardwareProfile]:
        return self.first, self.second

    @property
    def names(self) -> tuple[str, str]:
        """Names, numbered if equal; "old" and "new" for one machine."""
        if self.same_machine:
            return "old", "new"
        first, second = (each.name for each in self.machines)
        return (f"{first} (1)", f"{second} (2)") if first == second else (first, second)

    @property
    def same(self) -> bool:
        """True if the profiles differ in nothing but their names."""
        names = ("device", "threads", "host", "compute", "memory", "overheads", "links", "clock")
        return all(getattr(self.first, each) == getattr(self.second, each) for each in names)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All figures: common ones in the first's order, then those of one machine."""
        old, new = self.first.clock, self.second.clock
        clock = new.median_hz / old.median_hz if self.same_machine and old and new else 1.0
        first, second = map(quantities_of, self.machines)
        return self._joined(first, second, clock)

    @property
    def best(self) -> tuple[Pair, ...]:
        """Highest rate of each data type, ridge points and memory; widest type first."""
        pairs = self._joined(best_figures(self.first), best_figures(self.second))

        def order(pair: Pair) -> tuple[object, ...]:
            each = pair.one
            if each.measure == "byte/s":
                return (1, 0, each.subject)
            return (2 * (each.what == "ridge"), -dtype(each.subject).bits, each.subject)

        return tuple(sorted(pairs, key=order))

    def _joined(
        self, first: Iterable[Quantity], second: Iterable[Quantity], clock: float = 1.0
    ) -> tuple[Pair, ...]:
        one, other = (
            {(each.identity, self._threads(each, machine)): each for each in found}
            for found, machine in zip((first, second), self.machines, strict=True)
        )
        pairs = [
            Pair(
                first=one.get(key),
                second=other.get(key),
                threads=key[1],
                clock_ratio=clock if key in one and _in_core(one[key]) else 1.0,
            )
            for key in {**one, **other}
        ]
        # The sort is stable, and figures of the second machine alone come last already.
        return tuple(sorted(pairs, key=lambda each: None in (each.first, each.second)))

    def _threads(self, each: Quantity, machine: HardwareProfile) -> str:
        if each.what in ("capacity", "clock"):
            return ""
        threads = each.threads or 1
        return ALL if threads == machine.threads and not self.same_machine else str(threads)

    @property
    def changes(self) -> tuple[Pair, ...]:
        """Figures that both machines have."""
        return tuple(each for each in self.pairs if each.is_known)

    @property
    def notable(self) -> tuple[Pair, ...]:
        """Significantly changed figures, largest change first."""
        found = [each for each in self.changes if each.changed]
        return tuple(sorted(found, key=lambda each: -abs(math.log(each.leading_ratio))))

    @property
    def following(self) -> tuple[Pair, ...]:
        """Figures that changed with the clock."""
        return tuple(each for each in self.changes if each.follows_clock)

    def only(self, which: int) -> tuple[Pair, ...]:
        """Return the figures of only the first (0) or only the second machine (1)."""
        return tuple(each for each in self.pairs if (each.second, each.first)[which] is None)

    @property
    def host_difference(self) -> str | None:
        """Differences of the host fingerprints; ``""``: none; None: unknown."""
        old, new = self.first.host, self.second.host
        return old.difference(new) if old and new else None

    @property
    def versions(self) -> dict[str, list[str | None]]:
        """Software versions that differ, first and second; None: absent."""
        if self.first.host is None or self.second.host is None:
            return {}
        old, new = self.first.host.versions, self.second.host.versions
        both = {name: [old.get(name), new.get(name)] for name in (*old, *new)}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}

    @property
    def figures(self) -> list[dict[str, Any]]:
        """All figures as plain data; the fastest also with their kernel."""
        names = ("what", "kind", "subject", "unit", "kernel", "threads", "measure", *_NUMBERS)
        figures: list[dict[str, Any]] = []
        for each in (*self.pairs, *self.best):
            cells = (*each.one.identity, each.threads, each.one.measure, *self._numbers(each))
            figures.append(dict(zip(names, cells, strict=True)))
            if each.one.what == "fastest":
                figures[-1]["first_by"] = each.first and each.first.kernel
                figures[-1]["second_by"] = each.second and each.second.kernel
        return figures

    def _numbers(self, each: Pair) -> list[Any]:
        if each.one.what in ("fastest", "ridge"):
            return [*each.peaks, each.peak_ratio, *(None,) * 6]
        rates = [*each.peaks, each.peak_ratio, *each.sustained, each.sustained_ratio]
        judged = self.same_machine and each.is_known
        change = [math.exp(each.noise), each.clock_ratio, each.changed] if judged else [None] * 3
        return [*rates, *change]

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row for each figure, then highest rates and ridge points."""
        for each in (*self.pairs, *self.best):
            one = each.one
            name = one.subject
            if one.what in ("compute", "bandwidth", "link"):
                kind = one.kind if one.what != "link" else ""
                name = " ".join(filter(None, (one.subject, one.unit, one.kernel, kind)))
            what = "memory" if one.what == "bandwidth" else one.what
            yield [what, name, each.threads, one.measure, *self._numbers(each)]

    @property
    def summary(self) -> str:
        """The verdict: significant changes, or ratios of float32 peak and memory bandwidth."""
        if self.same_machine:
            return _change_summary(self)
        first, second = self.names
        if self.same:
            return f"{first} and {second}: no difference"
        known = [each for each in self.best if each.is_known and each.one.what == "fastest"]
        rates = [each for each in known if each.one.measure == "flop/s"]
        # float32 is the default of models; else the widest common type.
        rates.sort(key=lambda each: each.one.subject != "float32")
        parts = [f"{each.one.subject} peak {_times(each.peak_ratio)}" for each in rates[:1]]
        memory = [each for each in known if each.one.subject == "memory"]
        parts += [f"memory bandwidth {_times(each.peak_ratio)}" for each in memory]
        return f"{second} / {first}: {', '.join(parts) or 'no common figure'}"

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, then significant changes or all ratios."""
        yield KeyValueBlock(lines=tuple(_facts(self, view)))
        if self.same_machine:
            yield from _changes(self)
        elif not self.same:
            yield from _ratios(self)
            if view.today:
                title = "Next: roofline compare MODEL --hardware A --hardware B"
                yield Notes(title=title, lines=(), urgent=False)


def hardware_change(old: HardwareProfile, new: HardwareProfile) -> HardwareDifference:
    """Return the comparison of two measurements of one machine."""
    return HardwareDifference(first=old, second=new, same_machine=True)


def _in_core(each: Quantity) -> bool:
    """Return True for figures that follow the core clock: arithmetic, L1 and L2."""
    if each.kind == "library":
        return False
    near = each.subject in ("L1", "L2") and not each.kernel.endswith("-nt")
    return each.what == "compute" or (each.what in ("bandwidth", "latency") and near)


_MOST_IN_SUMMARY = 3
_MOST_NAMES = 6


def _change_summary(change: HardwareDifference) -> str:
    found, compared = change.notable, counted(len(change.changes), "figure")
    if not change.changes:
        return "nothing to compare: the profiles have no common figure"
    if not found:
        return f"no change beyond the noise floor ({compared} compared)"
    parts: list[str] = []
    for each in found[:_MOST_IN_SUMMARY]:
        one, is_peak = each.one, each.leading_ratio != each.sustained_ratio
        old, new = map(one.text, each.peaks if is_peak else each.sustained)
        kind = " peak" if is_peak and one.measure != "s" else ""
        (name,) = figure_names([one], threaded=one.what != "clock")
        parts.append(f"{name}{kind} {old} → {new} ({_times(each.leading_ratio)})")
    more = len(found) - _MOST_IN_SUMMARY
    parts += [f"{more} more"] if more > 0 else []
    return f"{len(found)} of {compared} changed beyond the noise floor: {'; '.join(parts)}"


def _facts(difference: HardwareDifference, view: View) -> Iterable[tuple[str, str]]:
    is_change = difference.same_machine
    for name, profile in zip(difference.names, difference.machines, strict=True):
        effort = "" if profile.effort == "unspecified" else f"effort {profile.effort}"
        threads = describe_threads(profile, profile.threads)
        parts = (profile.description, threads, origin(profile, view.today), effort)
        if is_change:
            name = name.capitalize()
            when = age(profile.date, view.today).removeprefix("on ") if profile.date else ""
            parts = (profile.name, when, effort)
        yield name, " · ".join(filter(None, parts))
    hosts = difference.host_difference
    if hosts is None and is_change:
        yield "Hosts", "unknown"
    elif hosts is not None and not (hosts and is_change):
        yield "Hosts", hosts or "same CPU and instruction sets"
    if versions := difference.versions.items():
        words = (f"{name} {old or MISSING} → {new or MISSING}" for name, (old, new) in versions)
        yield "Versions", " · ".join(words)
    if not difference.same:
        yield "Ratio", " / ".join(reversed(difference.names))


def _changes(change: HardwareDifference) -> Iterable[Block]:
    """Return changed, new and missing figures, with the criteria."""
    if change.notable:
        yield table(
            "Changes beyond the noise floor, largest first (medians)",
            change.notable,
            {
                "figure": lambda each: each.one.label,
                "threads": lambda each: each.threads or MISSING,
                "old": lambda each: _median(each.first),
                "new": lambda each: _median(each.second),
                "ratio": lambda each: _times(each.sustained_ratio),
                "peak ratio": lambda each: _times(each.peak_ratio),
                "noise floor": lambda each: f"± {format_percent(math.expm1(each.noise))}",
                "verdict": _verdict,
            },
            left=("figure", "verdict"),
            narrow=("noise floor", "peak ratio", "verdict"),
        )
    if hosts := change.host_difference:
        yield from notes("Different hosts", [hosts], urgent=True)
    for title, which in (("New figures", 1), ("Missing figures", 0)):
        found = figure_names((each.one for each in change.only(which)), threaded=True)
        more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
        lines = [", ".join(found[:_MOST_NAMES]) + more] if found else []
        yield from notes(f"{title}: {len(change.only(which))}", lines)
    old, new = (each.conditions for each in change.machines)
    lines = [
        *(f"both: {each}" for each in dict.fromkeys(new) if each in old),
        *(f"old: {each}" for each in dict.fromkeys(old) if each not in new),
        *(f"new: {each}" for each in dict.fromkeys(new) if each not in old),
    ]
    yield from notes("Measurement conditions", lines, urgent=True)
    yield from notes("Notes", _judgment(change))


def _median(each: Quantity | None) -> str:
    return f"{'? ' if each.doubt else ''}{each.text(each.sustained)}" if each else MISSING


def _verdict(each: Pair) -> str:
    word = "better" if each.better else "worse"
    if not each.peak_changed:
        return f"{word}, peak unchanged"
    return word if each.sustained_changed else f"{word}, median unchanged"


def _judgment(change: HardwareDifference) -> Iterable[str]:
    if change.changes:
        yield (
            f"noise floor: {format_percent(FLOOR)} ({format_percent(CAPACITY_FLOOR)} for cache"
            " sizes), more where interquartile ranges are wide"
        )
    old, new = change.first.clock, change.second.clock
    if change.following and old and new:
        yield (
            f"clock {format_si(old.median_hz, 'Hz')} → {format_si(new.median_hz, 'Hz')}:"
            f" {len(change.following)} figures of arithmetic, L1 and L2 changed with it (not"
            " listed)"
        )
    if any(not each.peak_changed and each.one.measure != "s" for each in change.notable):
        yield "lower median, unchanged peak: usually other processes or a lower turbo clock"
    if any(side and side.doubt for each in change.notable for side in (each.first, each.second)):
        yield "?: unreliable figure, by its own measurement"
    if change.first.effort != change.second.effort:
        efforts = f"{change.first.effort}, {change.second.effort}"
        yield f"efforts differ ({efforts}): with fewer bursts quantiles are less accurate"


_TABLES = {
    "Compute ceilings": ("compute",),
    "Memory bandwidth": ("bandwidth", "link"),
    "Clock and capacities": ("clock", "capacity"),
    "Latencies and overheads (medians)": ("latency", "overhead"),
}
"""Tables of two machines, with the kinds of their figures."""


def _ratios(difference: HardwareDifference) -> Iterable[Block]:
    """Return ratios of two machines: highest rates, common figures, figures of one."""
    first, second = difference.names
    by = (f"{first} kernel", f"{second} kernel")

    def both(numbers: Callable[[Pair], Both]) -> dict[str, Callable[[Pair], str]]:
        return {
            first: lambda each: each.one.text(numbers(each)[0]),
            second: lambda each: each.one.text(numbers(each)[1]),
            "ratio": lambda each: _digits(ratio(numbers(each))),
        }

    peaks = both(lambda each: each.peaks)
    yield table(
        "Peaks and ridge points by data type",
        difference.best,
        {
            "figure": lambda each: (
                each.one.subject + " ridge point (FLOP/B)" * (each.one.what == "ridge")
            ),
            **peaks,
            by[0]: lambda each: (each.first and each.first.kernel) or MISSING,
            by[1]: lambda each: (each.second and each.second.kernel) or MISSING,
        },
        left=("figure", *by),
        narrow=by,
    )

    def name(each: Pair) -> str:
        is_library = each.one.what == "compute" and each.one.kind == "library"
        return each.one.label + " library" * is_library

    def peak(each: Pair) -> str:
        return each.one.text(each.one.peak)

    names: dict[str, Callable[[Pair], str]] = {"figure": name}
    if any(each.has_threads for each in difference.machines):
        names["threads"] = lambda each: each.threads or MISSING
    for title, of in _TABLES.items():
        pairs = [each for each in difference.changes if each.one.what in of]
        is_time = any(each.one.measure == "s" for each in pairs)
        columns = {**names, **both(lambda each: each.sustained)} if is_time else {**names, **peaks}
        # Data sheets have a single figure.
        if not is_time and any(each.peak_ratio != each.sustained_ratio for each in pairs):
            columns["sustained"] = lambda each: _digits(each.sustained_ratio)
        if pairs:
            yield table(title, pairs, columns, left=("figure",), narrow=("sustained",))
    for which, machine in enumerate(difference.names):
        only = [each for each in difference.only(which) if each.one.measure != "s"]
        with_all = {each.one.identity for each in only if each.threads == ALL}
        shown = [each for each in only if each.threads == ALL or each.one.identity not in with_all]
        if shown:
            best = {**names, "peak": peak}
            yield table(f"Figures of {machine} only", shown, best, left=("figure",))
    yield from notes("Notes", _remarks(difference))


def _remarks(difference: HardwareDifference) -> Iterable[str]:
    compute = [each for each in difference.pairs if each.one.what == "compute"]
    if compute and not any(each.is_known for each in compute):
        yield (
            "no compute ceiling has the same data type, unit and kernel on both machines; only the"
            " peaks by data type are comparable"
        )
    (one, other), (first, second) = difference.machines, difference.names
    if one.threads != other.threads and one.has_threads and other.has_threads:
        yield f"'{ALL}' threads are {one.threads} of {first} and {other.threads} of {second}"


def _digits(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"


def _times(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}×"
