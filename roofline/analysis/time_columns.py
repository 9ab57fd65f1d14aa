"""The columns of a table that say how long operators take: bound, predicted, measured, rates."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.analysis import Analysis, Group, OperatorRow, known_work, sum_eager_min_time_s
from roofline.analysis import working as working_of
from roofline.analysis.times import Kind, kind_of_time, rounded_share, sum_s, time_of
from roofline.analysis.words import sum_of_flop
from roofline.foundation.blocks import Column
from roofline.foundation.rows import sum_known
from roofline.foundation.spreads import interval_cell, median_cell
from roofline.foundation.units import (
    MISSING,
    format_bytes_per_s,
    format_flop_per_s,
    format_percent,
    format_s,
)
from roofline.latency.prediction import BOUND_ONLY
from roofline.workload.operators import State

TITLES = {"measured": "measured time", "predicted": "predicted time", "bound": "bound"}
"""What the kinds of time are called in titles."""


class TimeColumns:
    """The columns of times of an analysis, as many as it knows of, and their cells.

    ``kind`` is what rows are sorted by and shares are of, ``whole_s`` the sum of those times.
    """

    def __init__(self, analysis: Analysis) -> None:
        rows = working_of(analysis.operators)
        self.is_predicted = any(row.predicted_s is not None for row in rows)
        self.is_measured = any(row.measured_s is not None for row in rows)
        self.kind: Kind = kind_of_time(analysis)
        self.whole_s = sum_s(rows, self.kind)
        self._interval = (analysis.totals.predicted_low_s, analysis.totals.predicted_high_s)

    @property
    def is_more_than_bounds(self) -> bool:
        """Whether there are predictions or measurements."""
        return self.is_predicted or self.is_measured

    def of_operators(self) -> tuple[Column, ...]:
        """The columns of a table of operators."""
        return (
            Column(heading="bound", align="right"),
            *(
                [Column(heading="predicted", align="right", sacrifice=2)]
                if self.is_predicted
                else []
            ),
            *(
                (
                    Column(heading="measured", align="right"),
                    Column(heading="IQR", align="right", sacrifice=11),
                    Column(heading="FLOP/s", align="right", sacrifice=5),
                    Column(heading="byte/s", align="right", sacrifice=7),
                    Column(heading="of the roof", align="right", sacrifice=3),
                )
                if self.is_measured
                else ()
            ),
            *([Column(heading="prediction", sacrifice=9)] if self.is_predicted else []),
            Column(heading="share", align="right"),
        )

    def cells(self, rows: Sequence[OperatorRow]) -> tuple[str, ...]:
        """The cells of calls that are alike."""
        return (
            format_s(sum_eager_min_time_s(rows)),
            *([_predicted(rows)] if self.is_predicted else []),
            *(
                (
                    median_cell(_measured_s(rows), _iqr_s(rows)),
                    format_s(_iqr_s(rows), 2),
                    *_achieved(rows),
                )
                if self.is_measured
                else ()
            ),
            *([source_word(rows[0])] if self.is_predicted else []),
            self._share(rows),
        )

    def sums(
        self, rows: Sequence[OperatorRow], low_s: float | None = None, high_s: float | None = None
    ) -> tuple[str, ...]:
        """The cells of operators taken together; their interval, where it is known."""
        predicted_s = sum_known([row.predicted_s for row in rows])
        return (
            format_s(sum_eager_min_time_s(rows)),
            *([interval_cell(predicted_s, low_s, high_s)] if self.is_predicted else []),
            *((format_s(_measured_s(rows)), "", *_achieved(rows)) if self.is_measured else ()),
            *([""] if self.is_predicted else []),
            self._share(rows),
        )

    def of_groups(self) -> tuple[Column, ...]:
        """The columns of a table of sums."""
        return (
            Column(heading="bound", align="right"),
            *([Column(heading="predicted", align="right")] if self.is_predicted else []),
            *([Column(heading="measured", align="right")] if self.is_measured else []),
            Column(heading="share", align="right"),
        )

    def group_cells(self, group: Group, *, is_all: bool = False) -> tuple[str, ...]:
        """The cells of a group; that of all operators has the interval of the whole."""
        time_s = self.group_s(group)
        low_s, high_s = self._interval if is_all else (None, None)
        share = time_s / self.whole_s if time_s is not None and self.whole_s else None
        return (
            format_s(group.eager_min_time_s),
            *([interval_cell(group.predicted_s, low_s, high_s)] if self.is_predicted else []),
            *([format_s(group.measured_s)] if self.is_measured else []),
            format_percent(None if share is None else rounded_share(share)),
        )

    def group_s(self, group: Group) -> float | None:
        """The time of a group that its share is of."""
        times = {
            "measured": group.measured_s,
            "predicted": group.predicted_s,
            "bound": group.eager_min_time_s,
        }
        return times[self.kind]

    def _share(self, rows: Sequence[OperatorRow]) -> str:
        known = [time for row in rows if (time := time_of(row, self.kind)) is not None]
        if not self.whole_s or not known:
            return MISSING
        return format_percent(rounded_share(sum(known) / self.whole_s))


def source_word(row: OperatorRow) -> str:
    """Where a prediction comes from, as short as can be: ``"calibrated"``, ``"bound only"``."""
    return (row.prediction_source or BOUND_ONLY).partition(":")[0]


def prediction_cell(
    predicted_s: float | None,
    interval_s: tuple[float, float] | None,
    eager_min_time_s: float | None,
) -> str:
    """A prediction with its interval in seconds, as far as there is one; else what there is."""
    if predicted_s is None:
        return MISSING if eager_min_time_s is None else BOUND_ONLY
    return interval_cell(predicted_s, *(interval_s or (None, None)))


def _predicted(rows: Sequence[OperatorRow]) -> str:
    predicted_s = sum_known([row.predicted_s for row in rows])
    if predicted_s is None:
        return BOUND_ONLY
    # The calls are the same: what is wrong for one of them is wrong for all.
    low_s = sum_known([row.predicted_low_s for row in rows])
    high_s = sum_known([row.predicted_high_s for row in rows])
    return interval_cell(predicted_s, low_s, high_s)


def _measured_s(rows: Sequence[OperatorRow]) -> float | None:
    return sum_known([row.measured_s for row in rows])


def _iqr_s(rows: Sequence[OperatorRow]) -> float | None:
    return rows[0].measured_iqr_s if len(rows) == 1 else None


def _achieved(rows: Sequence[OperatorRow]) -> tuple[str, str, str]:
    """FLOP/s, byte/s, and how much of the roof that is."""
    time_s, eager_min_time_s, work = _measured_s(rows), sum_eager_min_time_s(rows), known_work(rows)
    if not time_s:
        return MISSING, MISSING, MISSING
    unknown = sum(row.state is State.UNKNOWN for row in rows)
    rate = sum_of_flop(work.flop or 0, unknown, lambda flop: format_flop_per_s(flop / time_s))
    share = eager_min_time_s / time_s if eager_min_time_s is not None else None
    return rate, format_bytes_per_s(work.traffic_bytes / time_s), format_percent(share)
