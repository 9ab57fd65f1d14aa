"""What `roofline check` says, as data: the verdict, totals before and now, and where it changed."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.design.gate import Check, Cost, Machine, Part
from roofline.design.gate.quantities import Quantity
from roofline.design.gate.result import Judgement, Line
from roofline.design.gate.settings import describe_run
from roofline.foundation.blocks import Block, Column, Facts, Grid, Notes, Report
from roofline.foundation.text import counted, printable
from roofline.foundation.units import MISSING, format_bytes, format_flop, format_shape

SAME = "same"
_MOST_PARTS = 10


def check_report(check: Check) -> Report:
    """The report on a check: what a reviewer reads first stands first."""
    blocks: list[Block] = [_totals(check)]
    if check.baseline is not None:
        for title, before, now in (
            ("Types of operators that changed", check.baseline.types, check.now.types),
            ("Modules that changed", check.baseline.modules, check.now.modules),
        ):
            if changed := _changed(before, now):
                blocks.append(_parts(title, changed))
    blocks.append(Facts(lines=tuple(_facts(check))))
    if failures := check.failures:
        lines = tuple(map(printable, failures))
        blocks.insert(1, Notes(title="Failed", lines=lines))
    if said := check.differences:
        blocks.append(Notes(title="Notes", lines=tuple(map(printable, said)), urgent=False))
    return Report(headline=printable(check.summary), blocks=tuple(blocks))


def _totals(check: Check) -> Grid:
    has_baseline = check.baseline is not None
    columns = [Column(heading="total")]
    if has_baseline:
        columns.append(Column(heading="baseline", align="right"))
    columns.append(Column(heading="now", align="right"))
    if has_baseline:
        columns.append(Column(heading="change", align="right"))
    if check.conditions:
        columns += [Column(heading="fails if"), Column(heading="verdict")]
    rows = [
        _row(line, has_baseline=has_baseline, is_judged=bool(check.conditions))
        for line in check.lines
    ]
    return Grid(title="", columns=tuple(columns), rows=tuple(rows))


def _row(line: Line, *, has_baseline: bool, is_judged: bool) -> tuple[str, ...]:
    cells = [line.quantity.title]
    if has_baseline:
        cells.append(line.quantity.form(line.before))
    cells.append(line.quantity.form(line.now))
    if has_baseline:
        cells.append(change_words(line.quantity, line.before, line.now))
    if is_judged:
        cells.append(", ".join(printable(each.condition.text) for each in line.judgements))
        cells.append(_verdict(line.judgements))
    return tuple(cells)


def change_words(quantity: Quantity, before: float | None, now: float | None) -> str:
    """How a total changed: ``"+1.2 %"``, in its unit where that is next to nothing."""
    if before is None or now is None:
        return MISSING
    return SAME if before == now else quantity.change(before, now)


def _verdict(judgements: Sequence[Judgement]) -> str:
    """The worst of what became of the conditions on a total."""
    outcomes = [each.outcome for each in judgements]
    worst = ("fails", "not judged", "passes")
    return next((each for each in worst if each in outcomes), "")


def _changed(
    before: Sequence[Part], now: Sequence[Part]
) -> list[tuple[str, Part | None, Part | None]]:
    """The parts that are not what they were, those whose traffic changed most first."""
    first = {each.name: each for each in before}
    second = {each.name: each for each in now}
    found = [
        (name, first.get(name), second.get(name))
        for name in dict.fromkeys((*second, *first))
        if first.get(name) != second.get(name)
    ]
    return sorted(found, key=lambda each: -_distance(each[1], each[2]))


def _distance(before: Part | None, now: Part | None) -> int:
    """How much of work changed, in FLOP, or bytes where FLOP did not."""
    flop = abs((now.flop or 0 if now else 0) - (before.flop or 0 if before else 0))
    byte = abs((now.traffic_bytes if now else 0) - (before.traffic_bytes if before else 0))
    return max(flop, byte)


def _parts(title: str, changed: Sequence[tuple[str, Part | None, Part | None]]) -> Grid:
    headings = ("calls", "FLOP", "traffic")
    columns = (Column(heading=""), *(Column(heading=each, align="right") for each in headings))
    rows = tuple(
        (
            printable(name),
            _pair(before and str(before.calls), now and str(now.calls)),
            _pair(before and format_flop(before.flop), now and format_flop(now.flop)),
            _pair(
                before and format_bytes(before.traffic_bytes),
                now and format_bytes(now.traffic_bytes),
            ),
        )
        for name, before, now in changed[:_MOST_PARTS]
    )
    left = len(changed) - len(rows)
    sums = ((f"{left} more", "", "", ""),) if left else ()
    return Grid(title=title, columns=columns, rows=rows, sums=sums)


def _pair(before: str | None, now: str | None) -> str:
    """What was and what is; one of them where it is the same, and none where there was nothing."""
    if before == now:
        return now or MISSING
    return f"{before or 'none'} → {now or 'none'}"


def _facts(check: Check) -> list[tuple[str, str]]:
    now = check.now
    shapes = ", ".join(format_shape(each.shape) for each in now.inputs)
    facts = [
        ("Model", printable(f"{now.model}{f' · {shapes}' if shapes else ''}")),
        ("Run", describe_run(now.run)),
    ]
    if now.machine is not None:
        facts.append(("Hardware", _machine(now.machine)))
    if check.baseline is not None:
        facts.append(("Baseline", _baseline(check.baseline, check.file)))
    if now.versions:
        facts.append(("Counted by", _versions(now)))
    return facts


def _machine(machine: Machine) -> str:
    threads = (
        counted(machine.threads, "thread")
        if machine.device == "cpu"
        else f"{machine.device} device"
    )
    return printable(" · ".join(filter(None, (machine.name, machine.cpu_model, threads))))


def _baseline(cost: Cost, file: str) -> str:
    when = f"of {cost.date[:10]}" if cost.date else ""
    machine = _machine(cost.machine) if cost.machine else "counts only"
    return printable(" · ".join(filter(None, (file, when, machine, _versions(cost)))))


def _versions(cost: Cost) -> str:
    return printable(", ".join(f"{name} {version}" for name, version in cost.versions.items()))
