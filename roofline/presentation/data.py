"""An analysis as rows of numbers for spreadsheets; its JSON is `analysis.to_json`."""

from __future__ import annotations

import csv
import io

from roofline.analysis import FRAME_COLUMNS, Analysis


def to_csv(analysis: Analysis) -> str:
    """One line an operator, the columns of `Analysis.to_frame`; unknown is empty, never 0."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FRAME_COLUMNS)
    for row in analysis.operators:
        writer.writerow(
            ["" if (value := getattr(row, name)) is None else value for name in FRAME_COLUMNS]
        )
    return text.getvalue()
