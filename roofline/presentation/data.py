"""One model on several machines as rows of numbers for spreadsheets."""

from __future__ import annotations

from roofline.analysis import FRAME_COLUMNS
from roofline.design.machine_comparison import MachineComparison
from roofline.foundation.rows import csv_text


def machines_csv(comparison: MachineComparison) -> str:
    """One line an operator and machine, the columns of `MachineComparison.to_frame`."""
    return csv_text(
        ["machine", *FRAME_COLUMNS, "changes_sides", "fits"],
        (
            [name, *cells, changes, analysis.fits]
            for place, (name, analysis) in enumerate(
                zip(comparison.names, comparison.analyses, strict=True)
            )
            for cells, changes in zip(analysis.rows(), comparison.changing_rows(place), strict=True)
        ),
    )
