"""Optimizations as plain data, for files and frames: every name carries its unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofline.analysis import MINIMUM_TIMES, minimum_times_of
from roofline.foundation import schema
from roofline.foundation.rows import cells_of, csv_text, frame_of

if TYPE_CHECKING:
    import pandas

    from roofline.substitution.result import Optimization, Substitution

SCHEMA_VERSION = 1
"""Of optimizations in JSON files, which are read nowhere."""

KIND = "optimization"
"""What such a file says it is."""

COLUMNS = {
    "rule": "string",
    "where": "string",
    "why": "string",
    "is_applied": "boolean",
    "cost_before_s": "Float64",
    "cost_after_s": "Float64",
    "saving_s": "Float64",
    "measured_before_s": "Float64",
    "measured_after_s": "Float64",
    "before_operators": "object",
    "after_operators": "object",
    **{f"{side}_{name}": "Float64" for side in ("before", "after") for name in MINIMUM_TIMES},
}
"""The columns of `Optimization.to_frame` and of CSV files, with pandas' types. The minimum times
are those of the original and of the result, the same in all rows."""


def data_of(optimization: Optimization) -> dict[str, Any]:
    """All of an optimization but its module, as plain data; the two analyses whole."""
    figures = {
        "before": schema.to_data(optimization.figures_before),
        "after": schema.to_data(optimization.figures_after),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "model": optimization.model,
        "hardware": optimization.before.hardware.name,
        "threads": optimization.before.threads,
        "decision": optimization.decision,
        "summary": optimization.summary,
        "cost": optimization.cost,
        "alpha": optimization.alpha,
        "budget": optimization.budget,
        "rules": list(optimization.rules),
        "is_fused": optimization.is_fused,
        "captured_by": optimization.captured_by,
        "not_timed": optimization.not_timed,
        "figures": figures,
        "substitutions": [_rewrite(each) for each in optimization.substitutions],
        "rejected": [_rewrite(each) for each in optimization.rejected],
        "rounds": [schema.to_data(each) for each in optimization.rounds],
        "proofs": [
            {**schema.to_data(each), "holds": each.holds, "largest_error": _finite(each)}
            for each in optimization.proofs
        ],
        "statistics": schema.to_data(optimization.statistics),
        "warnings": list(optimization.warnings),
        "analyses": {
            "before": schema.to_data(optimization.before),
            "after": schema.to_data(optimization.after),
        },
    }


def _rewrite(substitution: Substitution) -> dict[str, Any]:
    return {**schema.to_data(substitution), "saving_s": substitution.saving_s}


def _finite(proof: Any) -> float | None:
    """The largest error; None where an output is not finite, which JSON cannot say."""
    error: float = proof.largest_error
    return error if error - error == 0 else None


def rows_of(optimization: Optimization) -> list[dict[str, Any]]:
    """One row a rewrite: those that were made, in their order, then those that were rejected."""
    both = (*optimization.substitutions, *optimization.rejected)
    wholes = {"before": optimization.figures_before, "after": optimization.figures_after}
    minimum = {
        f"{side}_{name}": time_s
        for side, figures in wholes.items()
        for name, time_s in minimum_times_of(figures).items()
    }
    own = [name for name in COLUMNS if name not in minimum]
    return [{**{name: getattr(each, name) for name in own}, **minimum} for each in both]


def rewrites_frame(optimization: Optimization) -> pandas.DataFrame:
    """One row a rewrite; what is unknown is missing, never 0."""
    return frame_of(COLUMNS, cells_of(COLUMNS, rows_of(optimization)))


def rewrites_csv(optimization: Optimization) -> str:
    """One line a rewrite, the columns of `rewrites_frame`; what is unknown is empty, never 0."""
    return csv_text(COLUMNS, cells_of(COLUMNS, rows_of(optimization)))
