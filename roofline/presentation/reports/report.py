"""What any report says, as plain data: the terminal, Markdown and HTML lay out the same words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Literal, TypedDict

from roofline.analysis import Analysis, OperatorRow
from roofline.errors import InputError
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_flop,
    format_intensity,
    format_shape,
    format_si,
)
from roofline.machine.hardware import HardwareProfile, describe_threads

By = Literal["operator", "module", "type", "phase"]

_ROWS = 10
_DEPTH = 2


def fit_cell(fits: bool | None) -> str:
    """Return the cell of a table that says whether something fits into memory."""
    return MISSING if fits is None else "yes" if fits else "does not fit"


class ViewOptions(TypedDict, total=False):
    """The fields of `View`, to be handed on by name."""

    by: By
    top: int | None
    depth: int | None
    fused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How a result is looked at.

    ``by`` is what rows are: operators, modules, or sums by type or phase. ``top`` is how many of
    them are shown; None: 10, of a tree of modules all. ``depth`` is how far down that tree goes;
    None: 2. ``fused`` adds what would be left of the traffic in fused kernels.

    Raises:
        InputError: a depth of what has none.
    """

    by: By = "operator"
    top: int | None = None
    depth: int | None = None
    fused: bool = False

    def __post_init__(self) -> None:
        if self.depth is not None and self.by != "module":
            raise InputError(
                f"--depth {self.depth} has no effect on rows by {self.by}; add --by module"
            )

    @property
    def rows(self) -> int:
        """How many rows a list has."""
        return _ROWS if self.top is None else self.top

    @property
    def levels(self) -> int:
        """How far down a tree goes."""
        return _DEPTH if self.depth is None else self.depth


_ADDRESS = re.compile(r",? *https?://[^\s,;]+")

MODEL_ITSELF = "(model)"
"""How an operator that runs in no submodule is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Lines of a name and what is known about it."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column's heading and alignment, and what it gives up where room is short.

    Cells are cut to `least` characters (0: never), at the end `cut`; then the column of the
    highest `sacrifice` goes first (0: it stays).
    """

    heading: str
    align: Literal["left", "right"] = "left"
    sacrifice: int = 0
    least: int = 0
    cut: Literal["start", "end"] = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table: `rows`, then `sums` (the rows left out, the total), all as long as `columns`."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    sums: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Sentences that a reader must not miss, or references."""

    title: str
    lines: tuple[str, ...]
    urgent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One table laid out for several widths, the fullest first.

    A terminal shows the first that fits; where there is no width, the first counts.
    """

    grids: tuple[Grid, ...]


Block = Facts | Grid | Notes | Choice


def fullest(block: Block) -> Facts | Grid | Notes:
    """The block as it stands where lines may be as wide as they need."""
    return block.grids[0] if isinstance(block, Choice) else block


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A headline, then blocks in the order they are read."""

    headline: str
    blocks: tuple[Block, ...]


def age(day: str, today: date | None) -> str:
    """The date, and where `today` is given how long ago that was: ``"3 days ago (2026-03-04)"``."""
    try:
        then = date.fromisoformat(day[:10])
    except ValueError:
        return printable(day)
    days = (today - then).days if today else -1
    if days < 0:
        return f"on {then.isoformat()}"
    if days >= 60:
        return f"{days // 30} months ago ({then.isoformat()})"
    words = "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"
    return f"{words} ({then.isoformat()})"


def origin(profile: HardwareProfile, today: date | None) -> str:
    """Where a profile's numbers come from: ``"measured 3 days ago (2026-03-04)"``."""
    sources = {each.source for each in profile.provenances()}
    when = f" {age(profile.date, today)}" if profile.date else ""
    if not sources:
        return "no ceilings"
    if "measured" not in sources:
        return f"data sheet, not measured: {_references(profile)}"
    if sources != {"measured"}:
        return f"partly measured, partly from data sheets{when}"
    if profile.host is not None:
        return f"measured{when}"
    return f"measured elsewhere{when}: {_references(profile)}"


def _references(profile: HardwareProfile) -> str:
    """What the numbers are taken from; the addresses stand with `roofline hardware show`."""
    names = (_ADDRESS.sub("", each.reference) for each in profile.provenances())
    return "; ".join(dict.fromkeys(map(printable, names)))


def hardware_fact(analysis: Analysis, today: date | None, *, caches: str = "") -> tuple[str, str]:
    """The machine, its threads, in which state its caches were, and whence its numbers are."""
    profile = analysis.hardware
    threads = describe_threads(profile, analysis.threads)
    clock_hz = profile.ceilings_clock_hz
    clock = f"ceilings at {format_si(clock_hz, 'Hz')}" if clock_hz else ""
    parts = (printable(profile.name), threads, caches, clock, origin(profile, today))
    return "Hardware", " · ".join(filter(None, parts))


def short_op(row: OperatorRow) -> str:
    """The operator without aten's name space: ``"convolution"``."""
    return printable(row.op.removeprefix("aten."))


def module_of(row: OperatorRow) -> str:
    """The module an operator runs in, or that it is the model's own."""
    return printable(row.module_path) or MODEL_ITSELF


def shape_of(row: OperatorRow) -> str:
    """The shape that tells calls of one operator apart: that of its first output, else input."""
    specs = row.outputs or row.inputs
    return format_shape(specs[0].shape) if specs else MISSING


def sum_of_flop(count: int, unknown: int, form: Callable[[float], str] = format_flop) -> str:
    """A sum of FLOP that says when it is not complete; never 0 for what is unknown."""
    if not unknown:
        return form(count)
    return f"≥ {form(count)}" if count else MISSING


def sum_of_intensity(flop: int, byte: int, unknown: int) -> str:
    """FLOP per byte of sums, in the words of `sum_of_flop`."""
    return (
        sum_of_flop(flop, unknown, lambda each: format_intensity(each / byte)) if byte else MISSING
    )


def saved_words(saved: float | None, form: Callable[[float], str]) -> str:
    """What is saved; what is added is said to be."""
    if saved is None:
        return MISSING
    return form(saved) if saved >= 0 else f"adds {form(-saved)}"
