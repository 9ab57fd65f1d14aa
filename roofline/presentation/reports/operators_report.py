"""What `roofline operators` says of the operators that have a formula."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from roofline.foundation.blocks import Column, Facts, Grid, Notes, Report
from roofline.foundation.rows import csv_text, fields_of, json_text
from roofline.foundation.schema import to_data
from roofline.foundation.text import counted, printable
from roofline.presentation.formats import check_suffix_among
from roofline.render.markdown import report_markdown
from roofline.workload.formulas.catalogue import EACH_OPERAND_ONCE, Entry, shared_rules

OPERATORS_FORMATS = (".json", ".csv", ".md")
"""What the list can be written as, and that of those that are missing."""

SCHEMA_VERSION = 1
"""Of both lists as JSON."""

_UNSAID = "not said: its function has no docstring"
_SHORT, _, _MEANING = EACH_OPERAND_ONCE.partition("; ")
_FORMULAS = "roofline/workload/formulas/"
_ENTRY = ("key", "type", "flop_rule", "flop_detail", "byte_rule", "file", "line")
_FLAGS = ("is_for_complex", "is_user")


def check_suffix(path: Path) -> None:
    """Refuses a file whose suffix is none of `OPERATORS_FORMATS`.

    Raises:
        InputError: naming the known ones and the nearest.
    """
    check_suffix_among(path, OPERATORS_FORMATS, "a list of operators")


def operators_report(entries: Sequence[Entry], *, of: int, width: int | None = None) -> Report:
    """The operators that have a formula, and what it counts.

    Args:
        entries: those to show.
        of: how many there are in all.
        width: of the terminal in characters: a table a kind, the operators of one formula
            together. None: one line an operator, as wide as it needs.
    """
    rules = shared_rules(entries)
    grids = [_lines(entries)] if width is None else _tables(rules, width)
    return _report(entries, rules, of, grids, is_short=width is not None)


def _report(
    entries: Sequence[Entry],
    rules: Sequence[Sequence[Entry]],
    of: int,
    grids: Iterable[Grid],
    *,
    is_short: bool = False,
) -> Report:
    among = "" if len(entries) == of else f" of the {of}"
    headline = (
        f"{len(entries)}{among} operators that have a formula: {counted(len(rules), 'formula')}"
    )
    details = [_details(rules[0][0])] if len(rules) == 1 else []
    notes = [f"{_SHORT}: {_MEANING}"]
    if is_short:
        notes.append("operators without a name space are aten's")
    notes.append("what a model needs and has no formula: roofline operators --missing MODEL")
    return Report(
        headline=headline,
        blocks=(
            *grids,
            *details,
            Notes(title="Notes", lines=tuple(notes), urgent=False),
        ),
    )


def _details(entry: Entry) -> Facts:
    """What there is no room for in a table of many."""
    complex_too = "counted" if entry.is_for_complex else "of unknown FLOP, if it takes any"
    more = [("More", printable(entry.flop_detail))] if entry.flop_detail else []
    return Facts(lines=(*more, ("Complex numbers", complex_too)))


def _flop(entry: Entry) -> str:
    return printable(entry.flop_rule or _UNSAID)


def _bytes(entry: Entry) -> str:
    return _SHORT if entry.byte_rule == EACH_OPERAND_ONCE else printable(entry.byte_rule)


_COLUMNS = tuple(
    Column(heading=heading) for heading in ("operator", "type", "FLOP", "bytes", "where")
)


def _cells(names: str, entry: Entry) -> tuple[str, ...]:
    return (names, printable(entry.type), _flop(entry), _bytes(entry), printable(entry.where))


def _lines(entries: Sequence[Entry]) -> Grid:
    rows = tuple(_cells(printable(each.key), each) for each in entries)
    return Grid(title="", columns=_COLUMNS, rows=rows)


_WIDE = 120
"""From here on there is room for a column of bytes and one of places."""


def _tables(rules: Sequence[Sequence[Entry]], width: int) -> list[Grid]:
    """A table a kind, its cells wrapped so that the rows are no wider than `width`."""
    kinds: dict[str, list[Sequence[Entry]]] = {}
    for rule in rules:
        kinds.setdefault(rule[0].type, []).append(rule)
    return [
        (_wide if width >= _WIDE else _narrow)(kind, kinds[kind], width) for kind in sorted(kinds)
    ]


_GAP = 3


def _wide(kind: str, rules: Sequence[Sequence[Entry]], width: int) -> Grid:
    names, byte = width // 4, width // 5
    where = min(29, max(len(_place(rule[0])) for rule in rules))
    widths = (width - 3 * _GAP - names - byte - where, byte, where)
    rows: list[tuple[str, ...]] = []
    for rule in rules:
        first = rule[0]
        columns = (
            _names(rule, names),
            _wrapped(_flop(first), widths[0]),
            _wrapped(_bytes(first), widths[1]),
            _wrapped(_place(first), widths[2]),
        )
        rows += zip_longest(*columns, fillvalue="")
    headings = ("operator", "FLOP", "bytes", "where")
    return _table(kind, rules, headings, rows)


def _narrow(kind: str, rules: Sequence[Sequence[Entry]], width: int) -> Grid:
    names = max(16, 3 * width // 8)
    rest = max(16, width - _GAP - names)
    rows: list[tuple[str, ...]] = []
    for rule in rules:
        first = rule[0]
        texts = [_flop(first)]
        if first.byte_rule != EACH_OPERAND_ONCE:
            texts.append(f"bytes: {_bytes(first)}")
        said = [line for text in (*texts, _place(first)) for line in _wrapped(text, rest)]
        rows += zip_longest(_names(rule, names), said, fillvalue="")
    return _table(kind, rules, ("operator", "FLOP, bytes if not each operand once, where"), rows)


def _table(
    kind: str,
    rules: Sequence[Sequence[Entry]],
    headings: Sequence[str],
    rows: Sequence[tuple[str, ...]],
) -> Grid:
    return Grid(
        title=f"{printable(kind)} ({counted(sum(map(len, rules)), 'operator')})",
        columns=tuple(Column(heading=each) for each in headings),
        rows=tuple(rows),
    )


def _names(rule: Sequence[Entry], width: int) -> list[str]:
    """The operators of a formula in lines of `width`; long ones go on after an underscore."""
    names = [printable(each.key.removeprefix("aten.")) for each in rule]
    lines = [""]
    for name in (*(f"{each}," for each in names[:-1]), names[-1]):
        if not lines[-1] or len(lines[-1]) + 1 + len(name) <= width:
            lines[-1] += f" {name}" if lines[-1] else name
        else:
            lines.append(f"  {name}")
        while len(lines[-1]) > width:
            line = lines[-1]
            end = 1 + max(line.rfind("_", 4, width), line.rfind(".", 4, width))
            end = end or width
            lines[-1:] = [line[:end], f"    {line[end:]}"]
    return lines


def _place(entry: Entry) -> str:
    return printable(entry.where).removeprefix(_FORMULAS)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def render_operators(entries: Sequence[Entry], suffix: str, *, of: int) -> str:
    """The list in the format of `suffix`, one of `OPERATORS_FORMATS`; one operator an entry.

    In Markdown operators of one formula stand together.
    """
    match suffix.lower():
        case ".json":
            data = {"schema_version": SCHEMA_VERSION, "kind": "operators"}
            return json_text({**data, "operators": to_data(list(entries))})
        case ".csv":
            columns = (*_ENTRY, *_FLAGS)
            return csv_text(columns, fields_of(columns, entries))
        case _:
            rules = shared_rules(entries)
            rows = tuple(
                _cells(", ".join(printable(each.key) for each in rule), rule[0]) for rule in rules
            )
            grid = Grid(title="", columns=_COLUMNS, rows=rows)
            return report_markdown(_report(entries, rules, of, [grid]))
