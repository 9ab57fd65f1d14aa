"""Where a machine's numbers come from, in few lines: documents, methods, notes and doubts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.design.hardware_quantities import Quantity
from roofline.foundation.blocks import Notes
from roofline.foundation.text import counted, printable
from roofline.machine.hardware import Provenance
from roofline.machine.origin import age

_MOST_DETAILS = 3
"""How many variants of one method are spelled out; the profile's file has them all."""

_NUMBER = re.compile(r"\d+(\.\d+)*")
_WORDS = {"measured": "measured", "datasheet": "data sheet", "derived": "derived"}


@dataclass(frozen=True, slots=True)
class _Document:
    """What figures have in common that come from one document, or from one way of measuring.

    ``method`` is a measurement's without its numbers: bursts of 930 calls and of 348 are one way.
    """

    source: str
    method: str
    date: str
    tool_version: str


class Sources:
    """Numbered references: what differs only in details of one measurement shares a number.

    A method is the part of a measurement's reference before its first semicolon, whatever numbers
    stand in it; what follows it (sizes, unrolling) are its details.
    """

    def __init__(self, provenances: Iterable[Provenance]) -> None:
        self._words: dict[_Document, dict[str, None]] = {}
        self._details: dict[_Document, dict[str, None]] = {}
        for each in provenances:
            document, method, detail = _split(each)
            self._words.setdefault(document, {})[method] = None
            found = self._details.setdefault(document, {})
            if detail:
                found[detail] = None
        self._numbers = {each: i for i, each in enumerate(self._details, start=1)}
        self._one_source = len({each.source for each in self._numbers}) < 2

    def cited(self, provenances: Iterable[Provenance]) -> str:
        """What some numbers come from: ``"[1]"``, with its kind where several kinds occur."""
        documents = sorted(
            {_split(each)[0] for each in provenances}, key=lambda each: self._numbers[each]
        )
        numbers: dict[str, list[str]] = {}
        for each in documents:
            kind = "" if self._one_source else f"{_WORDS[each.source]} "
            numbers.setdefault(kind, []).append(f"[{self._numbers[each]}]")
        return ", ".join(
            f"{kind}{' '.join(dict.fromkeys(found))}" for kind, found in numbers.items()
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """Each reference with its number, date, version and the details of its measurements."""
        return tuple(
            f"[{number}] {_reference(each, tuple(self._words[each]), tuple(self._details[each]))}"
            for each, number in self._numbers.items()
        )


def _split(each: Provenance) -> tuple[_Document, str, str]:
    """What a reference has in common with others, its method in words, and its details."""
    if each.source != "measured":
        document = _Document(each.source, each.reference, each.date, each.tool_version)
        return document, each.reference, ""
    method, _, detail = each.reference.partition(";")
    document = _Document(each.source, _NUMBER.sub("#", method), each.date, each.tool_version)
    return document, method, detail.strip()


def _reference(each: _Document, methods: Sequence[str], details: Sequence[str]) -> str:
    version = f"roofline {each.tool_version}" if each.tool_version else ""
    day = age(each.date, None).removeprefix("on ")
    alike = len(methods) - 1
    others = f" (and {alike} alike with other numbers)" if alike else ""
    line = "; ".join(filter(None, (f"{methods[0]}{others}", day, version)))
    if details:
        shown = " | ".join(details[:_MOST_DETAILS])
        more = len(details) - _MOST_DETAILS
        line += f" – {shown}" + (f" | {more} more in the profile's file" if more > 0 else "")
    return printable(line)


def sources_of(quantities: Sequence[Quantity]) -> Sources:
    """The references of all numbers, in the order that tables show them."""
    return Sources(each.provenance for each in quantities if each.provenance)


def doubts_of(quantities: Sequence[Quantity], *, threaded: bool) -> Notes | None:
    """Why figures marked ``?`` may be wrong, each reason once."""
    about: dict[str, list[Quantity]] = {}
    for each in quantities:
        if each.doubt:
            about.setdefault(each.doubt, []).append(each)
    lines = tuple(
        printable(f"{_named(found, threaded=threaded)} – {doubt}") for doubt, found in about.items()
    )
    return Notes(title="Doubtful, marked ?", lines=lines) if lines else None


def notes_of(quantities: Sequence[Quantity], *, threaded: bool) -> Notes | None:
    """What a reader must know of the numbers, each note once, with the numbers it is about."""
    about: dict[str, list[Quantity]] = {}
    for each in quantities:
        # How many bursts a number took that we measured ourselves stays in the file.
        if each.provenance and each.provenance.note and not each.provenance.tool_version:
            about.setdefault(each.provenance.note, []).append(each)
    lines = tuple(
        printable(f"{_named(found, threaded=threaded)} – {note}") for note, found in about.items()
    )
    return Notes(title="Notes", lines=lines, urgent=False) if lines else None


def paper_of(quantities: Sequence[Quantity]) -> Notes | None:
    """How the theoretical figures follow: each way once, with the arithmetic of its highest."""
    ways: dict[tuple[str, str], dict[str, list[Quantity]]] = {}
    for each in quantities:
        if each.theoretical:
            where = each.theoretical.provenance
            by_what = ways.setdefault((where.source, where.reference), {})
            by_what.setdefault(each.what, []).append(each)
    lines: list[str] = []
    for (source, reference), by_what in ways.items():
        kind = "" if source == "derived" else f"{_WORDS[source]}: "
        shown = [max(found, key=_paper_of) for found in by_what.values()]
        notes = [
            f"{each.label}: {each.theoretical.provenance.note}"
            for each in shown
            if each.theoretical and each.theoretical.provenance.note
        ]
        lines.append(printable("; ".join((f"{kind}{reference}", *notes))))
    if any(each.loss is not None and each.loss < 0 for each in quantities):
        lines.append("a negative loss is a peak above the paper figure")
    return Notes(title="On paper", lines=tuple(lines), urgent=False) if lines else None


def _paper_of(each: Quantity) -> float:
    return each.theoretical.per_s if each.theoretical else 0.0


def _named(quantities: Sequence[Quantity], *, threaded: bool) -> str:
    """The quantities, with their threads where a machine has a choice of them."""
    if not threaded:
        return ", ".join(each.label for each in quantities)
    by_label: dict[str, list[int]] = {}
    for each in quantities:
        by_label.setdefault(each.label, []).extend([each.threads] if each.threads else [])
    parts: list[str] = []
    for label, threads in by_label.items():
        counts = " and ".join(map(str, threads[:-1])) + " and " * (len(threads) > 1)
        on = f" on {counts}{counted(threads[-1], 'thread')}" if threads else ""
        parts.append(f"{label}{on}")
    return ", ".join(parts)
