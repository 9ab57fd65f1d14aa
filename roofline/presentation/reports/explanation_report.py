"""What `roofline measure --explain` says, as plain data."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.machine.measuring.explanation import Section
from roofline.presentation.reports.report import Notes, Report, printable


def explanation_report(sections: Sequence[Section]) -> Report:
    """How this machine is measured: a section of sentences a subject."""
    return Report(
        headline="How roofline measures this machine",
        blocks=tuple(
            Notes(title=each.title, lines=tuple(map(printable, each.lines)), urgent=False)
            for each in sections
        ),
    )
