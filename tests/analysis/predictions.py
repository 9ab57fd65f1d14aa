"""Analyses with predictions of given seconds, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from roofline.analysis import Analysis, working
from roofline.core.sampling import Sample
from roofline.latency.prediction import RunPrediction
from roofline.latency.samples import RunMeasurement


def with_predictions(analysis: Analysis, seconds: Mapping[str, float]) -> Analysis:
    """The operators of the modules that `seconds` has are predicted, each to take so long.

    Where that is all of them, so is the pass: their sum and a second more, -10 to +20 %.
    """
    rows = tuple(
        replace(
            row,
            predicted_s=time_s,
            predicted_low_s=0.8 * time_s,
            predicted_high_s=1.25 * time_s,
            prediction_source="calibrated: 12 samples, distance 0.4",
        )
        if (time_s := seconds.get(row.module_path)) is not None
        else row
        for row in analysis.operators
    )
    known = [row.predicted_s for row in working(rows) if row.predicted_s is not None]
    found = replace(analysis, operators=rows)
    if len(known) < len(working(rows)):
        return found
    whole_s = sum(known)
    return replace(
        found,
        totals=replace(
            found.totals,
            predicted_s=whole_s,
            predicted_low_s=0.9 * whole_s,
            predicted_high_s=1.2 * whole_s,
        ),
        prediction=RunPrediction(
            predicted_s=whole_s + 1,
            low_s=0.9 * (whole_s + 1),
            high_s=1.2 * (whole_s + 1),
            operators_s=whole_s,
            overhead_s=1.0,
            calibration="12 operators",
        ),
    )


def with_measurement(analysis: Analysis, seconds: float) -> Analysis:
    """The pass was measured: so long from end to end, every time."""
    sample = Sample(times_s=(seconds,) * 5)
    whole = RunMeasurement(
        end_to_end=sample, operators_s=seconds / 2, page_faults=0, rounds=5, discarded=0
    )
    return replace(analysis, measurement=whole)
