"""Where a machine's numbers come from, in few lines: documents, methods, notes and doubts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofline.foundation.blocks import Notes, notes
from roofline.machine.hardware import Provenance
from roofline.machine.origin import age
from roofline.machine.quantities import Quantity, named

_MOST_DETAILS = 3
"""Number of variants of one method that are listed; the profile's file has them all."""

_NUMBER = re.compile(r"\d+(\.\d+)*")
SOURCES = {"measured": "measured", "datasheet": "data sheet", "derived": "derived"}


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
        self._methods: dict[_Document, dict[str, None]] = {}
        self._details: dict[_Document, dict[str, None]] = {}
        for each in provenances:
            document, method, detail = _split(each)
            self._methods.setdefault(document, {})[method] = None
            found = self._details.setdefault(document, {})
            if detail:
                found[detail] = None
        self._numbers = {each: i for i, each in enumerate(self._details, start=1)}
        self._one_source = len({each.source for each in self._numbers}) < 2

    def cited(self, provenances: Iterable[Provenance | None]) -> str:
        """Return the references of numbers: ``"[1]"``, with its kind where several kinds occur."""
        documents = {_split(each)[0] for each in provenances if each}
        numbers: dict[str, list[str]] = {}
        for each in sorted(documents, key=lambda each: self._numbers[each]):
            kind = "" if self._one_source else f"{SOURCES[each.source]} "
            numbers.setdefault(kind, []).append(f"[{self._numbers[each]}]")
        return ", ".join(f"{kind}{' '.join(found)}" for kind, found in numbers.items())

    @property
    def lines(self) -> Iterable[str]:
        """Each reference with its number, date, version and the details of its measurements."""
        for each, number in self._numbers.items():
            first, *alike = self._methods[each]
            others = f" (and {len(alike)} alike with other numbers)" if alike else ""
            day = age(each.date, None).removeprefix("on ")
            version = f"roofline {each.tool_version}" if each.tool_version else ""
            line = "; ".join(filter(None, (f"[{number}] {first}{others}", day, version)))
            details = list(self._details[each])
            if details:
                more = len(details) - _MOST_DETAILS
                line += f" – {' | '.join(details[:_MOST_DETAILS])}"
                line += f" | {more} more in the profile's file" if more > 0 else ""
            yield line


def _split(each: Provenance) -> tuple[_Document, str, str]:
    """Return what a reference has in common with others, its method in words, and its details."""
    if each.source != "measured":
        document = _Document(each.source, each.reference, each.date, each.tool_version)
        return document, each.reference, ""
    method, _, detail = each.reference.partition(";")
    document = _Document(each.source, _NUMBER.sub("#", method), each.date, each.tool_version)
    return document, method, detail.strip()


def source_notes(
    quantities: Sequence[Quantity], sources: Sources, conditions: Sequence[str], *, threaded: bool
) -> Iterable[Notes]:
    """Return doubts, conditions, derivations, references and notes: each with what it is about."""

    def about(reasons: Mapping[str, list[Quantity]]) -> list[str]:
        return [
            f"{', '.join(named(found, threaded=threaded))} – {reason}"
            for reason, found in reasons.items()
        ]

    doubts: dict[str, list[Quantity]] = {}
    remarks: dict[str, list[Quantity]] = {}
    for each in quantities:
        if each.doubt:
            doubts.setdefault(each.doubt, []).append(each)
        # The number of bursts of our own measurements stays in the file.
        if each.provenance and each.provenance.note and not each.provenance.tool_version:
            remarks.setdefault(each.provenance.note, []).append(each)
    yield from notes("Doubtful, marked ?", about(doubts), urgent=True)
    yield from notes("Conditions of the measurement", conditions, urgent=True)
    yield from notes("Theoretical peaks", _theory(quantities))
    yield from notes("References", sources.lines)
    yield from notes("Notes", about(remarks))


def _theory(quantities: Sequence[Quantity]) -> Iterable[str]:
    """Return each way to a theoretical peak once, with the arithmetic of its highest."""
    ways: dict[tuple[str, str], dict[str, list[Quantity]]] = {}
    for each in quantities:
        if each.theoretical:
            where = each.theoretical.provenance
            by_what = ways.setdefault((where.source, where.reference), {})
            by_what.setdefault(each.what, []).append(each)
    for (source, reference), by_what in ways.items():
        kind = "" if source == "derived" else f"{SOURCES[source]}: "
        highest = [
            max(found, key=lambda each: each.theoretical_per_s or 0.0) for found in by_what.values()
        ]
        arithmetic = [
            f"{each.label}: {each.theoretical.provenance.note}"
            for each in highest
            if each.theoretical and each.theoretical.provenance.note
        ]
        yield "; ".join((f"{kind}{reference}", *arithmetic))
    if any(each.loss is not None and each.loss < 0 for each in quantities):
        yield "negative loss: measured peak above the theoretical peak"
