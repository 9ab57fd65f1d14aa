"""Reports as plain data: a headline, then blocks of facts, tables and notes.

Results make blocks (`roofline.result`); `roofline.render` formats them for terminals, Markdown and
HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal, TypedDict, TypeVar

from roofline.core.text import NOTE, counted, printable
from roofline.core.units import (
    MISSING,
    format_bytes,
    format_bytes_per_s,
    format_flop,
    format_flop_per_s,
    format_percent,
    format_s,
    format_si,
)
from roofline.errors import InputError, argument

By = Literal["operator", "module", "type", "phase", "kernel"]

_ROWS = 10
_DEPTH = 2


class ViewOptions(TypedDict, total=False):
    """Keyword arguments that select a `View`."""

    by: By
    top: int | None
    depth: int | None
    fused: bool
    verbose: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Selection and detail of a report.

    Args:
        by: rows are operators, modules, or sums by type or phase.
        top: number of rows; None: 10, all rows of a tree of modules.
        depth: levels of the tree of modules; None: 2.
        fused: add the traffic of fused kernels.
        verbose: add details and minor notes; reports in files have them.
        arguments: model and run options as typed, for `next_steps`.
        today: reference date of ages; None: dates only, as in files.
    """

    by: By = "operator"
    top: int | None = None
    depth: int | None = None
    fused: bool = False
    verbose: bool = False
    arguments: str = ""
    today: date | None = None

    def __post_init__(self) -> None:
        if self.depth is not None and self.by != "module":
            raise InputError(
                f"{argument('depth', self.depth)} has no effect on rows by {self.by}; add"
                f" {argument('by', 'module')}"
            )

    def rows(self, usual: int = _ROWS) -> int:
        """Return the number of rows of a list; `usual` where none is set."""
        return usual if self.top is None else self.top

    @property
    def levels(self) -> int:
        """Levels of the tree of modules."""
        return _DEPTH if self.depth is None else self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueBlock:
    """Facts: lines of key and value."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Heading, alignment, and behavior of a column in narrow terminals.

    Cells are cut to `least` characters (0: never) at the end `cut`; then columns are dropped, the
    highest `drop_priority` first (0: never).
    """

    heading: str
    align: Literal["left", "right"] = "left"
    drop_priority: int = 0
    least: int = 0
    cut: Literal["start", "end"] = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table: `rows`, then `sums`, each as long as `columns`."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    sums: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Lines of text: warnings (`urgent`), notes or references."""

    title: str
    lines: tuple[str, ...]
    urgent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Code to copy."""

    text: str
    language: str = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A table in several layouts, the fullest first.

    A terminal shows the first that fits; other output has the first.
    """

    grids: tuple[Grid, ...]


Block = KeyValueBlock | Grid | Notes | Code | Choice


def fullest(block: Block) -> KeyValueBlock | Grid | Notes | Code:
    """Return the fullest layout of a block."""
    return block.grids[0] if isinstance(block, Choice) else block


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A headline, then blocks in the order they are read."""

    headline: str
    blocks: tuple[Block, ...]


_FORMATS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("_flop_per_s", format_flop_per_s),
    ("_bytes_per_s", format_bytes_per_s),
    ("_per_s", lambda value: format_si(value, "/s")),
    ("_s", format_s),
    ("_bytes", format_bytes),
    ("_flop", format_flop),
    ("_hz", lambda value: format_si(value, "Hz")),
    ("share", format_percent),
    ("efficiency", format_percent),
)
"""Formats by ending of the field name; the first match counts."""


def cell_text(name: str, value: object) -> str:
    """Return a value as a table shows it, its unit taken from the end of its name.

    Args:
        name: of the field, such as ``step_s``.
        value: None shows as unknown, never 0.
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        for end, form in _FORMATS:
            if name.endswith(end):
                return form(value)
        return f"{value:,}" if isinstance(value, int) else format_si(value, "")
    return str(value)


_Item = TypeVar("_Item")


def number_column(heading: str, drop_priority: int = 0) -> Column:
    """Return a column of numbers."""
    return Column(heading=heading, align="right", drop_priority=drop_priority)


def table(
    title: str,
    items: Iterable[_Item],
    columns: Mapping[Any, str | Callable[[_Item], str]],
    *,
    left: Iterable[str] = (),
    narrow: Sequence[str] = (),
    sums: Iterable[tuple[str, ...]] = (),
) -> Grid:
    """Return a table with a row for each item.

    Args:
        title: title of the table.
        items: one per row.
        columns: by heading or `Column`: an attribute (formatted by `cell_text`) or a function.
        left: headings of left-aligned columns; others hold numbers.
        narrow: headings of columns that narrow terminals drop, in this order.
        sums: rows at the end.
    """

    def cell(item: _Item, of: str | Callable[[_Item], str]) -> str:
        return cell_text(of, getattr(item, of)) if isinstance(of, str) else of(item)

    texts = frozenset(left)
    return Grid(
        title=title,
        columns=tuple(
            each
            if isinstance(each, Column)
            else Column(
                heading=each,
                align="left" if each in texts else "right",
                drop_priority=len(narrow) - narrow.index(each) if each in narrow else 0,
            )
            for each in columns
        ),
        rows=tuple(tuple(cell(item, of) for of in columns.values()) for item in items),
        sums=tuple(sums),
    )


def notes(title: str, lines: Iterable[str], *, urgent: bool = False) -> list[Notes]:
    """Return notes as blocks: none where there are no lines."""
    found = tuple(lines)
    return [Notes(title=title, lines=found, urgent=urgent)] if found else []


def warning_notes(lines: Iterable[str], view: View) -> list[Notes]:
    """Return warnings as blocks; minor notes (`NOTE`) in full if verbose, else their count."""
    distinct = list(dict.fromkeys(lines))
    minor = [each.removeprefix(NOTE) for each in distinct if each.startswith(NOTE)]
    warnings = (each for each in distinct if not each.startswith(NOTE))
    found = notes("Warnings", warnings, urgent=True)
    if view.verbose:
        return [*found, *notes("Notes", minor)]
    if minor:
        title = f"{counted(len(minor), 'minor note')}: {argument('verbose', True)}"
        found.append(Notes(title=title, lines=(), urgent=False))
    return found


def next_steps(view: View, *commands: str) -> list[Notes]:
    """Return a line of commands to run next, MODEL with its options; none in files and Python."""
    if not view.arguments:
        return []
    lines = " · ".join(f"roofline {each.replace('MODEL', view.arguments)}" for each in commands)
    return [Notes(title=f"Next: {lines}", lines=(), urgent=False)]


def escape_report(report: Report) -> Report:
    """Return the report with control characters of names and messages as escapes."""

    def row(cells: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(printable, cells))

    def grid(block: Grid) -> Grid:
        return Grid(
            title=printable(block.title),
            columns=block.columns,
            rows=tuple(map(row, block.rows)),
            sums=tuple(map(row, block.sums)),
        )

    def made(block: Block) -> Block:
        match block:
            case KeyValueBlock():
                return KeyValueBlock(
                    lines=tuple((name, printable(text)) for name, text in block.lines)
                )
            case Grid():
                return grid(block)
            case Choice():
                return Choice(grids=tuple(map(grid, block.grids)))
            case Notes():
                lines = row(block.lines)
                return Notes(title=printable(block.title), lines=lines, urgent=block.urgent)
            case Code():
                return replace(block, text="\n".join(map(printable, block.text.split("\n"))))

    return Report(headline=printable(report.headline), blocks=tuple(map(made, report.blocks)))
