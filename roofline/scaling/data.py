"""Training on several ranks as plain data, for files and frames: every name carries its unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofline.analysis import MINIMUM_TIMES, minimum_times_of
from roofline.foundation import schema
from roofline.foundation.rows import cells_of, csv_text, frame_of

if TYPE_CHECKING:
    import pandas

    from roofline.scaling.result import ScalePoint, Scaling

SCHEMA_VERSION = 1
"""Of such results in JSON files; roofline reads them nowhere."""

KIND = "scaling"
"""What such a file says it is."""

_OF_POINT = {
    "ranks": "Int64",
    "flop": "Float64",
    "link_byte": "Float64",
    "sending_s": "Float64",
    "least_sending_s": "Float64",
    "step_s": "Float64",
    "step_low_s": "Float64",
    "step_high_s": "Float64",
    "efficiency": "Float64",
    "efficiency_most": "Float64",
}

_OF_MEMORY = (
    *("parameter_byte", "buffer_byte", "input_byte", "optimizer_byte"),
    *("activation_byte", "gradient_byte", "bucket_byte"),
)

COLUMNS = {
    **_OF_POINT,
    "exposed_s": "Float64",
    "speedup": "Float64",
    "samples_per_s": "Float64",
    **dict.fromkeys(_OF_MEMORY, "Int64"),
    "memory_byte": "Int64",
    "memory_capacity_byte": "Int64",
    "fits": "boolean",
    "times": "string",
    "link": "string",
    **dict.fromkeys(MINIMUM_TIMES, "Float64"),
}
"""The columns of `Scaling.to_frame` and of CSV files, with pandas' types; ``times`` and ``link``
say what all the others follow from. The minimum times are those of the step on one rank alone, of
one pass with its update, the same in all rows."""


def data_of(scaling: Scaling) -> dict[str, Any]:
    """All of it as plain data, its analysis whole."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "model": scaling.model,
        "hardware": scaling.analysis.hardware.name,
        "threads": scaling.analysis.threads,
        "summary": scaling.summary,
        "time_kind": scaling.time_kind,
        "settings": schema.to_data(scaling.settings),
        "link": schema.to_data(scaling.wire) if scaling.wire else None,
        "batch": scaling.batch,
        "memory_capacity_byte": scaling.memory_capacity_byte,
        "alone_s": scaling.alone_s,
        **minimum_times_of(scaling.analysis.totals),
        "slowdown": scaling.slowdown,
        "gradient_byte": scaling.gradient_byte,
        "broadcast_byte": scaling.broadcast_byte,
        "buckets": [{**schema.to_data(each), "byte": each.byte} for each in scaling.buckets],
        "gradients": [schema.to_data(each) for each in scaling.gradients],
        "points": [_point(scaling, each) for each in scaling.points],
        "memory_choices": [
            {
                **schema.to_data(each),
                "memory_byte": each.memory.byte,
                "fits": scaling.fits(each.memory),
            }
            for each in scaling.memory_choices
        ],
        "notes": list(scaling.notes),
        "warnings": list(scaling.warnings),
        "analysis": schema.to_data(scaling.analysis),
    }


def _point(scaling: Scaling, point: ScalePoint) -> dict[str, Any]:
    return {
        **schema.to_data(point),
        "speedup": point.speedup,
        "samples_per_s": scaling.samples_per_s(point),
        "memory_byte": point.memory.byte,
        "fits": scaling.fits(point.memory),
    }


def rows_of(scaling: Scaling) -> list[dict[str, Any]]:
    """One row a number of ranks."""
    return [
        {
            **{name: getattr(each, name) for name in _OF_POINT},
            "exposed_s": each.timeline.exposed_s if each.timeline else None,
            "speedup": each.speedup,
            "samples_per_s": scaling.samples_per_s(each),
            **{name: getattr(each.memory, name) for name in _OF_MEMORY},
            "memory_byte": each.memory.byte,
            "memory_capacity_byte": scaling.memory_capacity_byte,
            "fits": scaling.fits(each.memory),
            "times": scaling.time_kind,
            "link": scaling.link_words,
            **minimum_times_of(scaling.analysis.totals),
        }
        for each in scaling.points
    ]


def points_frame(scaling: Scaling) -> pandas.DataFrame:
    """One row a number of ranks; what is unknown is missing, never 0."""
    return frame_of(COLUMNS, cells_of(COLUMNS, rows_of(scaling)))


def points_csv(scaling: Scaling) -> str:
    """One line a number of ranks; what is unknown is empty, never 0."""
    return csv_text(COLUMNS, cells_of(COLUMNS, rows_of(scaling)))
