"""What `roofline measure --compare` says, as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date

from roofline.design.hardware_change import CAPACITY_FLOOR, FLOOR, Change, HardwareChange
from roofline.design.hardware_quantities import Quantity
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.text import counted, printable
from roofline.foundation.units import (
    MISSING,
    format_byte_per_s,
    format_capacity,
    format_flop_per_s,
    format_percent,
    format_s,
    format_si,
)
from roofline.machine.origin import age

_MOST_IN_HEADLINE = 3
_MOST_NAMES = 6


def format_quantity(value: float, each: Quantity) -> str:
    """A value of a quantity with its unit: ``"265 GFLOP/s"``, ``"1 MiB"``, ``"118 ns"``."""
    match each.measure:
        case "flop/s":
            return format_flop_per_s(value)
        case "byte/s":
            return format_byte_per_s(value)
        case "byte":
            return format_capacity(round(value))
        case "s":
            return format_s(value)
        case "Hz":
            return format_si(value, "Hz")


def hardware_change_report(change: HardwareChange, *, today: date | None = None) -> Report:
    """The report on two measurements of a machine: the verdict, then what changed."""
    blocks: list[Block] = [Facts(lines=_facts(change, today))]
    if change.notable:
        blocks.append(_changed(change.notable))
    difference = change.host_difference
    if difference:
        lines = (f"not the same host: {printable(difference)}",)
        blocks.append(Notes(title="Host", lines=lines))
    for title, found in (("New", change.added), ("Gone", change.gone)):
        if found:
            lines = _listed(found)
            blocks.append(Notes(title=f"{title}: {len(found)}", lines=lines, urgent=False))
    noticed = _conditions(change)
    if noticed:
        blocks.append(Notes(title="Noticed while measuring", lines=noticed))
    notes = _notes(change)
    if notes:
        blocks.append(Notes(title="Notes", lines=notes, urgent=False))
    return Report(headline=_headline(change), blocks=tuple(blocks))


def _headline(change: HardwareChange) -> str:
    count, compared = len(change.notable), len(change.changes)
    figures = f"figure{'s' * (compared != 1)}"
    if not compared:
        return "nothing to compare: the two profiles have no figure in common"
    if not count:
        return f"nothing changed beyond its spread ({compared} {figures} compared)"
    said = "; ".join(map(_sentence, change.notable[:_MOST_IN_HEADLINE]))
    more = count - _MOST_IN_HEADLINE
    rest = f"; and {more} more" if more > 0 else ""
    spread = "its" if count == 1 else "their"
    return f"{count} of {compared} {figures} changed beyond {spread} spread: {said}{rest}"


def _sentence(each: Change) -> str:
    peak = abs(math.log(each.peak_ratio)) > abs(math.log(each.typical_ratio))
    old, new = (each.old.peak, each.new.peak) if peak else (each.old.typical, each.new.typical)
    ratio = each.leading_ratio
    how = " at its peak" if peak and each.old.measure != "s" else ""
    shown = f"{format_quantity(old, each.old)} → {format_quantity(new, each.new)}"
    return f"{_named(each.old)}{how} {shown} ({_times(ratio)})"


def _named(each: Quantity) -> str:
    on = f" on {counted(each.threads, 'thread')}" if each.threads and each.what != "clock" else ""
    return f"{printable(each.label)}{on}"


def _times(ratio: float) -> str:
    return f"{ratio:.3g} ×"


def _changed(changes: Sequence[Change]) -> Grid:
    columns = (
        Column(heading="what"),
        Column(heading="threads", align="right"),
        Column(heading="old", align="right"),
        Column(heading="new", align="right"),
        Column(heading="ratio", align="right"),
        Column(heading="peak ratio", align="right", sacrifice=2),
        Column(heading="explained", align="right", sacrifice=3),
        Column(heading="verdict", sacrifice=1),
    )
    rows = tuple(
        (
            printable(each.old.label),
            str(each.old.threads) if each.old.threads else MISSING,
            _median(each.old),
            _median(each.new),
            _times(each.typical_ratio),
            _times(each.peak_ratio),
            f"± {format_percent(math.expm1(each.explained))}",
            _verdict(each),
        )
        for each in changes
    )
    title = "Changed beyond the spread: medians, the largest change first"
    return Grid(title=title, columns=columns, rows=rows)


def _median(each: Quantity) -> str:
    return f"{'? ' if each.doubt else ''}{format_quantity(each.typical, each)}"


def _verdict(each: Change) -> str:
    word = "better" if each.better else "worse"
    if each.typical_changed and not each.peak_changed:
        return f"{word}, peak as before"
    if each.peak_changed and not each.typical_changed:
        return f"{word} at the peak alone"
    return word


def _facts(change: HardwareChange, today: date | None) -> tuple[tuple[str, str], ...]:
    lines: list[tuple[str, str]] = []
    for word, profile in (("Old", change.old), ("New", change.new)):
        effort = "" if profile.effort == "unspecified" else f"effort {profile.effort}"
        when = age(profile.date, today).removeprefix("on ") if profile.date else ""
        lines.append((word, printable(" · ".join(filter(None, (profile.name, when, effort))))))
    if change.host_difference == "":
        lines.append(("Host", "the same CPU and instruction sets"))
    elif change.host_difference is None:
        lines.append(("Host", "not known of both"))
    changed = [f"{name} {old or MISSING} → {new or MISSING}" for name, old, new in change.versions]
    if changed:
        lines.append(("Versions", printable(", ".join(changed))))
    return tuple(lines)


def _listed(found: Sequence[Quantity]) -> tuple[str, ...]:
    """The names of quantities, those that differ in threads as one; long lists are cut."""
    by_label: dict[str, list[int]] = {}
    for each in found:
        by_label.setdefault(each.label, []).extend([each.threads] if each.threads else [])
    names = [
        printable(label) + (f" ({', '.join(map(str, threads))})" if threads else "")
        for label, threads in by_label.items()
    ]
    more = len(names) - _MOST_NAMES
    line = ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return (f"{line} (threads in brackets)",)


def _conditions(change: HardwareChange) -> tuple[str, ...]:
    old, new = (dict.fromkeys(each.conditions) for each in (change.old, change.new))
    return (
        *(printable(f"both times: {each}") for each in new if each in old),
        *(printable(f"then: {each}") for each in old if each not in new),
        *(printable(f"now: {each}") for each in new if each not in old),
    )


def _notes(change: HardwareChange) -> tuple[str, ...]:
    lines: list[str] = []
    if change.changes:
        lines.append(
            f"a change counts if it exceeds {format_percent(FLOOR)}"
            f" ({format_percent(CAPACITY_FLOOR)} of a cache's size) and what the interquartile"
            " ranges of both measurements explain"
        )
    if change.following and change.old.clock and change.new.clock:
        clocks = [format_si(each.median_hz, "Hz") for each in (change.old.clock, change.new.clock)]
        lines.append(
            f"the clock went from {clocks[0]} to {clocks[1]}: {len(change.following)} figures of"
            " arithmetic, L1 and L2 changed with it, and are not listed"
        )
    kept = [each for each in change.notable if each.typical_changed and not each.peak_changed]
    if any(each.old.measure != "s" for each in kept):
        lines.append(
            "a lower median with the peak as before is more often a busy neighbour or less turbo"
            " than another machine"
        )
    if any(each.old.doubt or each.new.doubt for each in change.notable):
        lines.append("? marks what was doubtful when it was measured")
    if change.old.effort != change.new.effort:
        lines.append(
            f"efforts differ ({change.old.effort}, {change.new.effort}): fewer bursts have rougher"
            " quantiles"
        )
    return tuple(lines)
