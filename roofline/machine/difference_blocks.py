"""The report on two machines, or on one at two dates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from roofline.foundation.blocks import Block, Facts, Grid, View, notes, table
from roofline.foundation.text import counted
from roofline.foundation.units import (
    MISSING,
    format_percent,
    format_si,
)
from roofline.machine.difference import ALL, CAPACITY_FLOOR, FLOOR, HardwareDifference, Pair
from roofline.machine.hardware import describe_threads
from roofline.machine.origin import age, origin
from roofline.machine.quantities import Quantity, named

_MOST_IN_HEADLINE = 3
_MOST_NAMES = 6

_TABLES = {
    "Compute ceilings": ("compute",),
    "Memory bandwidth": ("bandwidth", "link"),
    "Clock and capacities": ("clock", "capacity"),
    "Latencies and overheads, medians": ("latency", "overhead"),
}
"""Tables of two machines, and which figures they hold."""


def headline(difference: HardwareDifference) -> str:
    """Return what changed of one machine; of two, ratios of float32 and memory bandwidth."""
    if difference.same_machine:
        return _changes_headline(difference)
    first, second = difference.names
    if difference.same:
        return f"{first} and {second}: no difference"
    known = [each for each in difference.best if each.is_known and each.one.what == "fastest"]
    rates = [each for each in known if each.one.measure == "flop/s"]
    # float32 is what models are made in; else the widest type that both know.
    rates.sort(key=lambda each: each.one.subject != "float32")
    said = [f"{each.one.subject} peak {_times(each.peak_ratio)}" for each in rates[:1]]
    memory = [each for each in known if each.one.subject == "memory"]
    said += [f"memory bandwidth {_times(each.peak_ratio)}" for each in memory]
    return f"{second} over {first}: {', '.join(said) or 'no figure in common'}"


def _changes_headline(change: HardwareDifference) -> str:
    found, compared = change.notable, counted(len(change.changes), "figure")
    if not change.changes:
        return "nothing to compare: the two profiles have no figure in common"
    if not found:
        return f"no change beyond the noise floor ({compared} compared)"
    said = "; ".join(map(_sentence, found[:_MOST_IN_HEADLINE]))
    more = len(found) - _MOST_IN_HEADLINE
    rest = f"; {more} more" if more > 0 else ""
    return f"{len(found)} of {compared} changed beyond the noise floor: {said}{rest}"


def _sentence(each: Pair) -> str:
    one, is_peak = each.one, each.leading_ratio != each.sustained_ratio
    old, new = each.peaks if is_peak else each.sustained
    how = " at its peak" if is_peak and one.measure != "s" else ""
    (name,) = named([one], threaded=one.what != "clock")
    return f"{name}{how} {one.text(old)} → {one.text(new)} ({_times(each.leading_ratio)})"


def difference_blocks(difference: HardwareDifference, view: View) -> Iterable[Block]:
    """Return facts, then what changed of one machine, or all ratios of two."""
    yield Facts(lines=tuple(_facts(difference, view)))
    if difference.same_machine:
        yield from _changes(difference)
    elif not difference.same:
        yield _fastest(difference)
        for title, of in _TABLES.items():
            yield from _common(difference, title, of)
        for which in (0, 1):
            yield from _known_only(difference, which)
        yield from notes("Notes", _remarks(difference))


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
        yield "Hosts", "not known of both"
    elif hosts is not None and not (hosts and is_change):
        yield "Hosts", hosts or "the same CPU and instruction sets"
    if versions := difference.versions.items():
        words = (f"{name} {old or MISSING} → {new or MISSING}" for name, (old, new) in versions)
        yield "Versions", ", ".join(words)
    if not difference.same:
        yield "Ratio", " / ".join(reversed(difference.names))


def _changes(change: HardwareDifference) -> Iterable[Block]:
    """Return what changed of one machine, what is new and gone, and how it was judged."""
    if change.notable:
        yield table(
            "Changed beyond the noise floor: medians, the largest change first",
            change.notable,
            {
                "figure": "label",
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
        yield from notes("Not the same host", [hosts], urgent=True)
    for title, which in (("New", 1), ("Gone", 0)):
        found = named((each.one for each in change.only(which)), threaded=True)
        more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
        lines = [", ".join(found[:_MOST_NAMES]) + more] if found else []
        yield from notes(f"{title}: {len(change.only(which))}", lines)
    old, new = (each.conditions for each in change.machines)
    lines = [
        *(f"both times: {each}" for each in dict.fromkeys(new) if each in old),
        *(f"old: {each}" for each in dict.fromkeys(old) if each not in new),
        *(f"new: {each}" for each in dict.fromkeys(new) if each not in old),
    ]
    yield from notes("Conditions of the measurements", lines, urgent=True)
    yield from notes("Notes", _judgment(change))


def _median(each: Quantity | None) -> str:
    return f"{'? ' if each.doubt else ''}{each.text(each.sustained)}" if each else MISSING


def _verdict(each: Pair) -> str:
    word = "better" if each.better else "worse"
    if not each.peak_changed:
        return f"{word}, peak unchanged"
    return word if each.sustained_changed else f"{word} at the peak alone"


def _judgment(change: HardwareDifference) -> Iterable[str]:
    if change.changes:
        yield (
            f"noise floor: {format_percent(FLOOR)} ({format_percent(CAPACITY_FLOOR)} of a cache's"
            " size), or more where the interquartile ranges of both measurements are wide"
        )
    old, new = change.first.clock, change.second.clock
    if change.following and old and new:
        yield (
            f"clock {format_si(old.median_hz, 'Hz')} → {format_si(new.median_hz, 'Hz')}:"
            f" {len(change.following)} figures of arithmetic, L1 and L2 changed with it (not"
            " listed)"
        )
    if any(not each.peak_changed and each.one.measure != "s" for each in change.notable):
        yield "a lower median with an unchanged peak: most often a busy neighbor or less turbo"
    if any(side and side.doubt for each in change.notable for side in (each.first, each.second)):
        yield "?: doubtful when it was measured"
    if change.first.effort != change.second.effort:
        efforts = f"{change.first.effort}, {change.second.effort}"
        yield f"efforts differ ({efforts}): fewer bursts have rougher quantiles"


def _fastest(difference: HardwareDifference) -> Grid:
    """Return the highest ceiling of each type, the farthest memory, and where they meet."""
    first, second = difference.names
    by = (f"{first} by", f"{second} by")
    return table(
        "Highest ceiling of each data type, farthest memory, ridge points",
        difference.best,
        {
            "": lambda each: (
                each.one.subject + " ridge point (FLOP/B)" * (each.one.what == "ridge")
            ),
            first: lambda each: each.one.text(each.peaks[0]),
            second: lambda each: each.one.text(each.peaks[1]),
            "ratio": lambda each: _digits(each.peak_ratio),
            by[0]: lambda each: (each.first and each.first.kernel) or MISSING,
            by[1]: lambda each: (each.second and each.second.kernel) or MISSING,
        },
        left=("", *by),
        narrow=by,
    )


def _columns(difference: HardwareDifference) -> dict[str, Callable[[Pair], str]]:
    """Return name and threads, where a machine has a choice of them."""
    columns: dict[str, Callable[[Pair], str]] = {"": _name}
    if any(each.has_threads for each in difference.machines):
        columns["threads"] = lambda each: each.threads or MISSING
    return columns


def _name(each: Pair) -> str:
    """Return the name of a figure; of ceilings, it goes without saying that they are hardware's."""
    one = each.one
    return f"{one.label}{' library' * (one.what == 'compute' and one.kind == 'library')}"


def _common(difference: HardwareDifference, title: str, of: Sequence[str]) -> Iterable[Grid]:
    """Return what both machines know: peaks with their ratio, of times medians."""
    pairs = [each for each in difference.changes if each.one.what in of]
    if not pairs:
        return
    is_time = pairs[0].one.measure == "s"

    def side(which: int) -> Callable[[Pair], str]:
        return lambda each: each.one.text((each.sustained if is_time else each.peaks)[which])

    first, second = difference.names
    columns = {**_columns(difference), first: side(0), second: side(1)}
    columns["ratio"] = lambda each: _digits(each.sustained_ratio if is_time else each.peak_ratio)
    # Data sheets have one figure for both.
    if not is_time and any(each.peak_ratio != each.sustained_ratio for each in pairs):
        columns["sustained"] = lambda each: _digits(each.sustained_ratio)
    yield table(title, pairs, columns, left=("",), narrow=("sustained",))


def _known_only(difference: HardwareDifference, which: int) -> Iterable[Grid]:
    """Return the rates and sizes that only one machine knows; with all threads, where known."""
    only = [each for each in difference.only(which) if each.one.measure != "s"]
    with_all = {each.one.identity for each in only if each.threads == ALL}
    shown = [each for each in only if each.threads == ALL or each.one.identity not in with_all]
    columns = _columns(difference)
    columns["peak"] = lambda each: each.one.text(each.one.peak)
    if shown:
        yield table(f"Known only of {difference.names[which]}", shown, columns, left=("",))


def _remarks(difference: HardwareDifference) -> Iterable[str]:
    compute = [each for each in difference.pairs if each.one.what == "compute"]
    if compute and not any(each.is_known for each in compute):
        yield (
            "no compute ceiling has the same data type, unit and kernel on both: only the highest"
            " of each data type can be compared"
        )
    (one, other), (first, second) = difference.machines, difference.names
    if one.threads != other.threads and one.has_threads and other.has_threads:
        yield f"'{ALL}' threads are {one.threads} of {first} and {other.threads} of {second}"


def _digits(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"


def _times(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}×"
