"""What `roofline hardware diff` says, as plain data, and the formats it is written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from roofline.design.hardware_difference import ALL, HardwareDifference, Rates, ratio
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.rows import csv_text, json_text
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_byte_per_s,
    format_flop_per_s,
    format_intensity,
    format_s,
)
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.origin import origin
from roofline.placement import ComputeRoof
from roofline.presentation.reports.hardware_summary import read_byte_per_s
from roofline.render.markdown import report_markdown

_SELF_EVIDENT = ("hardware", "unspecified", "overhead")
_Pair = tuple[float | None, float | None]
_Form = Callable[[float | None], str]

DIFFERENCE_FORMATS = (".json", ".csv", ".md")
"""What differences of machines are written as."""


def hardware_difference_report(
    difference: HardwareDifference, *, today: date | None = None
) -> Report:
    """The report on two machines: which is faster at what, then ceiling by ceiling."""
    names = tuple(map(printable, difference.names))
    facts = [
        (name, _described(profile, today))
        for name, profile in zip(names, difference.machines, strict=True)
    ]
    hosts = difference.host_difference
    if hosts is not None:
        facts.append(("Hosts", printable(hosts) or "the same CPU and instruction sets"))
    if difference.same:
        return Report(headline=_headline(difference), blocks=(Facts(lines=tuple(facts)),))
    facts.append(("Ratio", f"{names[1]} / {names[0]}"))
    blocks: list[Block] = [Facts(lines=tuple(facts))]
    best = difference.best
    blocks.append(_fastest(difference, names))
    ridges = [
        _row(each.dtype.name, each.ridges_flop_per_byte, format_intensity)
        for each in best
        if each.ridges_flop_per_byte != (None, None)
    ]
    if ridges:
        blocks.append(_grid("Ridge points, in FLOP/byte of that memory", names, ridges))
    # Where neither machine has threads to choose, there is nothing to tell apart.
    threaded = any(each.has_threads for each in difference.machines)
    for title, rates, form in (
        ("Compute ceilings", difference.compute, format_flop_per_s),
        ("Memory levels", difference.memory, format_byte_per_s),
    ):
        common = [each for each in rates if None not in each.peaks]
        if common:
            blocks.append(_rates(title, names, common, threaded, form))
    times = [each for each in difference.times if None not in each.sustained]
    if times:
        blocks.append(_medians(names, times, threaded))
    for which in (0, 1):
        only = _only(difference, which, threaded)
        if only.rows:
            blocks.append(only)
    notes = _notes(difference)
    if notes:
        blocks.append(Notes(title="Notes", lines=notes, urgent=False))
    return Report(headline=_headline(difference), blocks=tuple(blocks))


def hardware_difference_csv(difference: HardwareDifference) -> str:
    """One row a rate, in SI units; unknown is empty, never 0."""
    rates = [f"{which}_{kind}" for kind in ("peak", "sustained") for which in ("first", "second")]
    rates[2:2] = ["peak_ratio"]
    rows: list[Sequence[object]] = []

    def write(what: str, name: str, threads: str, unit: str, peaks: _Pair, slow: _Pair) -> None:
        rows.append([what, name, threads, unit, *peaks, ratio(peaks), *slow, ratio(slow)])

    for each in difference.compute:
        name = " ".join(each.name)
        write("compute", name, each.threads, "flop/s", each.peaks, each.sustained)
    for each in difference.memory:
        name = " ".join(each.name)
        write("memory", name, each.threads, "byte/s", each.peaks, each.sustained)
    for each in difference.times:
        write(each.name[1], each.name[0], each.threads, "s", each.peaks, each.sustained)
    for each in difference.best:
        name, nothing = each.dtype.name, (None, None)
        write("fastest", name, ALL, "flop/s", each.rates, nothing)
        write("ridge", name, ALL, "flop/byte", each.ridges_flop_per_byte, nothing)
    return csv_text(["what", "name", "threads", "unit", *rates, "sustained_ratio"], rows)


def render_hardware_difference(difference: HardwareDifference, path: Path) -> str:
    """The difference in the format that the suffix of `path` chooses: .json, .csv or .md."""
    match path.suffix.lower():
        case ".json":
            return json_text(difference.to_data())
        case ".csv":
            return hardware_difference_csv(difference)
        case _:
            return report_markdown(hardware_difference_report(difference))


def _headline(difference: HardwareDifference) -> str:
    first, second = map(printable, difference.names)
    if difference.same:
        return f"{first} and {second}: no difference"
    common = [each for each in difference.best if ratio(each.rates) is not None]
    # float32 is what models are made in; else the widest type that both know.
    common.sort(key=lambda each: each.dtype.name != "float32")
    said = [f"{_times(ratio(each.rates))} the {each.dtype} rate" for each in common[:1]]
    memory = ratio(_memory_rates(difference))
    if memory is not None:
        said.append(f"{_times(memory)} the memory bandwidth")
    if not said:
        return f"{first} against {second}: nothing is known of both"
    return f"{second} has {' and '.join(said)} of {first}"


def _memory_rates(difference: HardwareDifference) -> _Pair:
    first, second = difference.memories
    return first and first.byte_per_s, second and second.byte_per_s


def _times(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g} times"


def _described(profile: HardwareProfile, today: date | None) -> str:
    parts = [
        printable(profile.description),
        describe_threads(profile, profile.threads),
        origin(profile, today),
    ]
    return " · ".join(filter(None, parts))


def _fastest(difference: HardwareDifference, names: tuple[str, ...]) -> Grid:
    """The highest ceiling of each data type and what reaches it, and the farthest memory."""
    rows = [
        (*_row(each.dtype.name, each.rates, format_flop_per_s), *map(_reached_by, each.units))
        for each in difference.best
    ]
    memories = difference.memories
    rates = _memory_rates(difference)
    by = (each.label if each else MISSING for each in memories)
    rows.append((*_row("memory", rates, format_byte_per_s), *map(printable, by)))
    first_read, second_read = map(read_byte_per_s, difference.machines)
    if (first_read, second_read) != (None, None):
        rows.append(
            (*_row("memory read", (first_read, second_read), format_byte_per_s), MISSING, MISSING)
        )
    first, second = names
    return Grid(
        title="The fastest of each data type, and the farthest memory",
        columns=(
            *_columns(names),
            Column(heading=f"{first} by", sacrifice=1),
            Column(heading=f"{second} by", sacrifice=1),
        ),
        rows=tuple(rows),
    )


def _reached_by(unit: ComputeRoof | None) -> str:
    return printable(unit.label.removeprefix(f"{unit.dtype} ")) if unit else MISSING


def _row(name: str, pair: _Pair, form: _Form) -> tuple[str, ...]:
    return (name, *map(form, pair), _ratio(pair))


def _ratio(pair: _Pair) -> str:
    value = ratio(pair)
    return MISSING if value is None else f"{value:.3g}"


def _columns(names: tuple[str, ...], *what: Column) -> tuple[Column, ...]:
    """What is compared, both machines, and the ratio, which the facts explain."""
    first, second = names
    return (
        *(what or (Column(heading=""),)),
        Column(heading=first, align="right"),
        Column(heading=second, align="right"),
        Column(heading="ratio", align="right"),
    )


def _grid(title: str, names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Grid:
    return Grid(title=title, columns=_columns(names), rows=tuple(rows))


def _rates(
    title: str,
    names: tuple[str, ...],
    rates: Sequence[Rates],
    threaded: bool,
    form: _Form,
) -> Grid:
    """What both machines know: peaks side by side, and their ratio beside that of the sustained."""
    # Data sheets have one figure for both.
    apart = any(ratio(each.peaks) != ratio(each.sustained) for each in rates)
    sustained = (Column(heading="sustained", align="right", sacrifice=1),) if apart else ()
    return Grid(
        title=title,
        columns=(*_columns(names, *_what(threaded)), *sustained),
        rows=tuple(
            (
                *_named(each, threaded),
                *map(form, each.peaks),
                _ratio(each.peaks),
                *((_ratio(each.sustained),) if apart else ()),
            )
            for each in rates
        ),
    )


def _medians(names: tuple[str, ...], times: Sequence[Rates], threaded: bool) -> Grid:
    """Latencies and overheads that both machines know."""
    return Grid(
        title="Latencies and overheads, medians",
        columns=_columns(names, *_what(threaded)),
        rows=tuple(
            (*_named(each, threaded), *map(format_s, each.sustained), _ratio(each.sustained))
            for each in times
        ),
    )


def _what(threaded: bool) -> tuple[Column, ...]:
    threads = (Column(heading="threads", align="right"),) if threaded else ()
    return (Column(heading=""), *threads)


def _named(rates: Rates, threaded: bool) -> tuple[str, ...]:
    """What the rates are of, where it goes without saying that a ceiling is the hardware's."""
    words = [each for each in rates.name if each not in _SELF_EVIDENT]
    return (printable(" ".join(words)), *((rates.threads,) if threaded else ()))


def _only(difference: HardwareDifference, which: int, threaded: bool) -> Grid:
    """What only one machine knows; with all its threads, where it knows that."""
    rows: list[tuple[str, ...]] = []
    for rates, form in (
        (difference.compute, format_flop_per_s),
        (difference.memory, format_byte_per_s),
    ):
        only = [each for each in rates if each.peaks[1 - which] is None]
        with_all = {each.name for each in only if each.threads == ALL}
        rows += [
            (*_named(each, threaded), form(each.peaks[which]))
            for each in only
            if each.threads == ALL or each.name not in with_all
        ]
    return Grid(
        title=f"Known only of {printable(difference.names[which])}",
        columns=(*_what(threaded), Column(heading="peak", align="right")),
        rows=tuple(rows),
    )


def _notes(difference: HardwareDifference) -> tuple[str, ...]:
    first, second = difference.machines
    lines: list[str] = []
    if difference.compute and all(None in each.peaks for each in difference.compute):
        lines.append(
            "no compute ceiling has the same data type, unit and kernel on both: only the fastest"
            " of each data type can be compared"
        )
    if first.threads != second.threads and first.has_threads and second.has_threads:
        one, other = map(printable, difference.names)
        lines.append(
            f"'{ALL}' threads are {first.threads} of {one} and {second.threads} of {other}"
        )
    return tuple(lines)
