"""Comparisons as rows of plain values, for files and frames: every name carries its unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roofline.foundation import schema
from roofline.foundation.rows import cells_of, csv_text

if TYPE_CHECKING:
    import pandas

    from roofline.design.model_comparison.module_alignment import Alignment, Counterpart
    from roofline.design.model_comparison.result import Comparison

SCHEMA_VERSION = 3
"""Of comparisons in JSON files, which are read nowhere (docs/file-formats.md)."""

KIND = "comparison of models"
"""What such a file says it is."""

TIMES = ("predicted_s", "measured_s")
"""The quantities whose ratios have intervals."""


def rows_of(comparison: Comparison) -> list[dict[str, Any]]:
    """One row a model: every quantity, its ratio to the reference and the intervals of both.

    What is unknown is None. ``samples`` stands where work and times are those of one sample.
    """
    rows: list[dict[str, Any]] = [{"model": name} for name in comparison.names]
    for row, count in zip(rows, comparison.samples or (), strict=False):
        row["samples"] = count
    for quantity in comparison.quantities:
        ratios = comparison.uncertain_ratios(quantity)
        for row, value, ratio in zip(rows, quantity.values, ratios, strict=True):
            row[quantity.name] = value
            row[f"{quantity.name}_ratio"] = ratio.value if ratio else None
            if quantity.of in TIMES:
                row[f"{quantity.name}_ratio_low"] = ratio.low if ratio else None
                row[f"{quantity.name}_ratio_high"] = ratio.high if ratio else None
    per = "_per_sample" if comparison.per_sample else ""
    for row, ends, ceilings in zip(rows, comparison.intervals_s, comparison.ceilings, strict=True):
        row[f"predicted_low_s{per}"], row[f"predicted_high_s{per}"] = ends or (None, None)
        row["ceiling"] = ceilings.shares[0][0] if ceilings.shares else None
    for row, each in zip(rows, comparison.analyses, strict=True):
        row["memory_capacity_bytes"] = each.hardware.memory_capacity_bytes
        row["fits"] = each.fits
    return rows


def frame_of(rows: Sequence[dict[str, Any]]) -> pandas.DataFrame:
    """Rows as a table; numbers that are unknown are missing, never 0."""
    import pandas

    columns: dict[str, Any] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        is_text = name in ("hardware", "model", "ceiling")
        kind = "boolean" if name == "fits" else "Float64"
        columns[name] = values if is_text else pandas.array(values, dtype=kind)
    return pandas.DataFrame(columns)


def comparison_frame(comparison: Comparison) -> pandas.DataFrame:
    """One row a model."""
    return frame_of(rows_of(comparison))


def csv_of(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV; unknown is empty."""
    return csv_text(rows[0], cells_of(rows[0], rows))


def data_of(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data: models, modules and types side by side, analyses whole."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        **table_data(comparison),
        "analyses": [schema.to_data(each) for each in comparison.analyses],
    }


def table_data(comparison: Comparison) -> dict[str, Any]:
    """What the comparison says on one machine, without the analyses."""
    models = rows_of(comparison)
    for row, each, ceilings in zip(models, comparison.analyses, comparison.ceilings, strict=True):
        row["run"] = schema.to_data(each.run)
        row["threads"] = each.threads
        row["ceilings"] = dict(ceilings.shares)
        del row["ceiling"]
    return {
        "hardware": comparison.analyses[0].hardware.name,
        "reference": comparison.names[comparison.reference],
        "models": models,
        "modules": _aligned(comparison.modules()),
        "types": _aligned(comparison.types),
        "rounds": schema.to_data(comparison.rounds) if comparison.rounds else None,
        "sentences": list(comparison.sentences),
        "notes": list(comparison.notes),
    }


def _aligned(alignment: Alignment) -> dict[str, Any]:
    return {
        "time": alignment.kind,
        "rows": [[_part(each) for each in row.parts] for row in alignment.rows],
    }


def _part(part: Counterpart | None) -> dict[str, Any] | None:
    return schema.to_data(part) if part else None
