"""What `roofline crosscheck` says, as plain data, and the formats it is written in."""

from __future__ import annotations

from pathlib import Path

from roofline.counters.result import CountedBy, Crosscheck, Measure
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.text import printable
from roofline.foundation.units import MISSING, format_shape, format_si
from roofline.presentation.formats import check_suffix_among
from roofline.render.markdown import report_markdown
from roofline.render.pages import report_html

CROSSCHECK_FORMATS = (".json", ".md")

_UNIT: dict[Measure, str] = {"macs": "multiply-adds", "flop": "FLOP"}
_TITLE: dict[Measure, str] = {
    "macs": "Multiply-adds of convolutions and matrix products",
    "flop": "All floating-point operations",
}
_WHAT_WE_COUNT: dict[Measure, str] = {
    "macs": "1 a multiply-add",
    "flop": "2 a multiply-add, and all that does arithmetic",
}


def crosscheck_report(crosscheck: Crosscheck) -> Report:
    """The report on a crosscheck: whether the counters agree, their numbers, and the reasons."""
    blocks: list[Block] = []
    if crosscheck.inputs:
        given = ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in crosscheck.inputs)
        blocks.append(Facts(lines=(("input", given),)))
    measures: tuple[Measure, ...] = ("macs", "flop")
    for measure in measures:
        counters = [each for each in crosscheck.counters if each.measure == measure]
        if counters:
            blocks.append(_numbers(crosscheck, counters, measure))
            blocks += _reasons(counters, measure)
    without = [
        printable(f"{each.counter}: {each.note}")
        for each in crosscheck.counters
        if each.outcome != "counted"
    ]
    if without:
        blocks.append(Notes(title="Without a number", lines=tuple(without), urgent=False))
    lines = (*map(printable, (*_no_rule_lines(crosscheck), *crosscheck.warnings)),)
    if lines:
        blocks.append(Notes(title="Warnings", lines=lines))
    return Report(headline=_headline(crosscheck), blocks=tuple(blocks))


def crosscheck_html(crosscheck: Crosscheck) -> str:
    """The crosscheck as a self-contained HTML fragment for notebooks."""
    return report_html(crosscheck_report(crosscheck))


def check_suffix(path: Path) -> None:
    """Refuses a file whose suffix is none of `CROSSCHECK_FORMATS`.

    Raises:
        InputError: naming the known ones and the nearest.
    """
    check_suffix_among(path, CROSSCHECK_FORMATS, "a crosscheck")


def render_crosscheck(crosscheck: Crosscheck, suffix: str) -> str:
    """The crosscheck in the format that a suffix, ``.json`` or ``.md``, stands for."""
    if suffix.lower() == ".json":
        return crosscheck.to_json()
    return report_markdown(crosscheck_report(crosscheck))


def _headline(crosscheck: Crosscheck) -> str:
    ours = crosscheck.macs
    at_least = "at least " if crosscheck.unknown_operators else ""
    in_training = " in a step of training" if crosscheck.train else ""
    said = (
        f"{printable(crosscheck.model)}{in_training} takes {at_least}{ours:,} multiply-adds"
        f" ({format_si(ours, '', 4)})"
    )
    numbers = [each for each in crosscheck.counters if each.outcome == "counted"]
    if not numbers:
        return f"{said}; no other counter has a number for it"
    others = [each for each in numbers if each.in_our_unit != crosscheck.ours(each.measure)]
    open_ones = [each for each in others if each.not_explained]
    if not others:
        if len(numbers) == 1:
            return f"{said}; the number of the only other counter agrees"
        return f"{said}; all {len(numbers)} numbers of other counters agree"
    verdict = (
        "every difference has its reason"
        if not open_ones
        else f"not all of the difference of {_named(open_ones)} is explained"
    )
    differ = f"{len(others)} differ{'s' * (len(others) == 1)}"
    if len(numbers) == 1:
        return f"{said}; the number of the only other counter differs, and {verdict}"
    return f"{said}; of {len(numbers)} numbers of other counters {differ}, and {verdict}"


def _named(counters: list[CountedBy]) -> str:
    return " and ".join(dict.fromkeys(f"{each.counter} ({each.number_name})" for each in counters))


def _numbers(crosscheck: Crosscheck, counters: list[CountedBy], measure: Measure) -> Grid:
    ours = crosscheck.ours(measure)
    columns = (
        Column(heading="counter"),
        Column(heading="version", sacrifice=2),
        Column(heading="its number is", sacrifice=1),
        Column(heading="its number", align="right"),
        Column(heading=f"in {_UNIT[measure]}", align="right"),
        Column(heading="against ours", align="right"),
    )
    at_least = "≥ " if crosscheck.unknown_operators else ""
    total = f"{at_least}{ours:,}"
    rows = [("roofline", "", _WHAT_WE_COUNT[measure], total, total, "")]
    for each in counters:
        name, version = printable(each.counter), printable(each.version)
        if each.number is None or each.in_our_unit is None:
            rows.append((name, version, each.outcome, MISSING, MISSING, MISSING))
            continue
        meaning = f"{each.number_name}: {each.meaning}"
        number, converted = f"{each.number:,}", f"{each.in_our_unit:,}"
        rows.append((name, version, meaning, number, converted, _ratio(each.in_our_unit, ours)))
    return Grid(title=_TITLE[measure], columns=columns, rows=tuple(rows))


def _ratio(theirs: float, ours: int) -> str:
    if theirs == ours:
        return "equal"
    return f"× {theirs / ours:.4f}" if ours else MISSING


def _reasons(counters: list[CountedBy], measure: Measure) -> list[Block]:
    rows: list[tuple[str, ...]] = []
    for counter in counters:
        reasons = [("", _unit_reason(counter))] if _unit_reason(counter) and counter.number else []
        reasons += [(f"{each.amount:+,}", each.reason) for each in counter.differences]
        for number, (amount, reason) in enumerate(reasons):
            name = printable(counter.counter) if number == 0 else ""
            rows.append((name, amount, printable(reason)))
    if not rows:
        return []
    columns = (
        Column(heading="counter"),
        Column(heading=_UNIT[measure], align="right"),
        Column(heading="why its number is not ours"),
    )
    return [Grid(title="", columns=columns, rows=tuple(rows))]


def _unit_reason(counted: CountedBy) -> str:
    """What its unit does to its number, where it is another than ours by its name or its size."""
    if counted.per_unit != 1:
        return f"counts {counted.per_unit} for a multiply-add: divided by {counted.per_unit} here"
    if counted.measure == "macs" and counted.number_name.lower().startswith("flop"):
        return f"its '{counted.number_name}' is one multiply-add, not two operations"
    return ""


def _no_rule_lines(crosscheck: Crosscheck) -> list[str]:
    """What a counter says itself that it left out, where something of it is not explained."""
    lines: list[str] = []
    for each in crosscheck.counters:
        if each.not_explained and each.no_rule_for:
            names = ", ".join(f"{op} ({calls})" for op, calls in sorted(each.no_rule_for.items()))
            lines.append(f"{each.counter} says that it has no rule for: {names}")
    return lines
