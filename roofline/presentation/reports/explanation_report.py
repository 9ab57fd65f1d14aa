"""What `roofline measure --explain` says, as plain data."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.foundation.blocks import Notes, Report
from roofline.foundation.text import printable
from roofline.machine.measuring.explanation import Section


def explanation_report(sections: Sequence[Section]) -> Report:
    """How this machine is measured: a section of sentences a subject."""
    return Report(
        headline="How roofline measures this machine",
        blocks=tuple(
            Notes(title=each.title, lines=tuple(map(printable, each.lines)), urgent=False)
            for each in sections
        ),
    )
