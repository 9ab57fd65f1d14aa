"""The version of saved analyses, and the steps to it from older ones (docs/file-formats.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from roofline.foundation import schema

SCHEMA_VERSION = 8
"""Of saved analyses: older ones are migrated, newer ones refused (docs/file-formats.md)."""

_FUSED_TYPES = ("attention", "recurrent")
"""Of operators whose parts hand much to each other: how much was not kept before version 4."""


def _to_4(analysis: dict[str, Any]) -> dict[str, Any]:
    rows: Any = analysis.get("operators")
    if not isinstance(rows, list):
        return analysis
    return {**analysis, "operators": [_row_to_4(row) for row in cast("list[Any]", rows)]}


def _row_to_4(row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    kept = cast("dict[str, Any]", row)
    return {**kept, "internal_byte": None if kept.get("type") in _FUSED_TYPES else 0}


def _to_7(analysis: dict[str, Any]) -> dict[str, Any]:
    """The eager minimum is the bound; kernels and rewritings need what older files do not keep."""
    totals, rows = analysis.get("totals"), analysis.get("operators")
    if not isinstance(totals, dict) or not isinstance(rows, list):
        return analysis
    return {
        **analysis,
        "totals": schema.with_copied(totals, "bound_s", "eager_min_time_s"),
        "operators": schema.with_copied(rows, "bound_s", "eager_min_time_s"),
    }


STEPS: Mapping[int, schema.Step] = {
    # Each embeds hardware of its own version, which has a version and steps of its own.
    1: lambda analysis: analysis,
    2: lambda analysis: analysis,
    3: _to_4,
    # Fields that version 5 added are those of predictions and measurements, which 4 had none of.
    4: lambda analysis: analysis,
    # Version 6 added findings, of which 5 had none.
    5: lambda analysis: analysis,
    6: _to_7,
    # Version 8 added the multiply-adds among the least FLOP; without them, fewer are taken.
    7: lambda analysis: analysis,
}
