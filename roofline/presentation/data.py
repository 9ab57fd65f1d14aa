"""An analysis as rows of numbers for spreadsheets; its JSON is `analysis.to_json`."""

from __future__ import annotations

import csv
import io

from roofline.analysis import Analysis

COLUMNS = (
    "index",
    "op",
    "module_path",
    "phase",
    "type",
    "state",
    "flop",
    "multiply_add",
    "least_flop",
    "parameter_byte",
    "input_byte",
    "output_byte",
    "traffic_byte",
    "intensity_flop_per_byte",
    "level",
    "ceiling",
    "attainable_flop_per_s",
    "bound",
    "bound_s",
    "predicted_s",
    "predicted_low_s",
    "predicted_high_s",
    "prediction_source",
    "measured_s",
    "measured_iqr_s",
)
"""Those of `Analysis.to_frame`, in its order."""


def to_csv(analysis: Analysis) -> str:
    """One line an operator under a line of names with units; unknown is empty, never 0."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in analysis.operators:
        writer.writerow(
            ["" if (value := getattr(row, name)) is None else value for name in COLUMNS]
        )
    return text.getvalue()
