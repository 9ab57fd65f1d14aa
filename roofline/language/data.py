"""Language models as plain data, for files and frames: every name carries its unit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from roofline.analysis import MINIMUM_TIMES, minimum_times_of
from roofline.foundation import schema
from roofline.foundation.rows import cells_of, csv_text, finite, frame_of
from roofline.language.footprint import activations_of, fit_of
from roofline.language.verdict import bound_of

if TYPE_CHECKING:
    import pandas

    from roofline.language.placing import PlacedStage
    from roofline.language.result import Language
    from roofline.language.stages import StageResult
    from roofline.language.sweep import SweepCell

SCHEMA_VERSION = 1
"""Of language models in JSON files."""

KIND = "language model"
"""What such a file says it is."""

COLUMNS = {
    "stage": "string",
    "batch": "Int64",
    "context": "Int64",
    "is_swept": "boolean",
    "tokens": "Int64",
    "flop": "Int64",
    "multiply_add": "Int64",
    "traffic_byte": "Int64",
    "bound": "string",
    "bound_s": "Float64",
    **dict.fromkeys(MINIMUM_TIMES, "Float64"),
    "predicted_s": "Float64",
    "predicted_low_s": "Float64",
    "predicted_high_s": "Float64",
    "bound_tokens_per_s": "Float64",
    "predicted_tokens_per_s": "Float64",
    "predicted_low_tokens_per_s": "Float64",
    "predicted_high_tokens_per_s": "Float64",
    "asked_flop": "Int64",
    "asked_weight_byte": "Int64",
    "asked_cache_byte": "Int64",
    "asked_bound": "string",
    "asked_compute_share": "Float64",
    "asked_bound_s": "Float64",
    "asked_model_min_time_s": "Float64",
    "asked_tokens_per_s": "Float64",
    "footprint_byte": "Int64",
    "fit": "string",
}
"""The columns of `Language.to_frame` and of CSV files, with pandas' types.

Those that begin with ``asked`` are what the architecture asks for, whoever computes it; the others
are of the operators of transformers, and missing where only the architecture was swept.
"""


def data_of(language: Language) -> dict[str, Any]:
    """All of a language model as plain data; what is not finite is null."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "model": language.model,
        "summary": language.summary,
        "configuration": schema.to_data(language.configuration),
        "architecture": schema.to_data(language.architecture),
        "dtype": language.dtype.name,
        "hardware": language.hardware.name,
        "threads": language.threads,
        "batch": language.batch,
        "context": language.context,
        "cache": {
            **schema.to_data(language.cache),
            "token_byte": language.cache.token_byte,
            "byte": language.cache.byte(language.context, language.batch),
        },
        "footprint": {
            **schema.to_data(language.footprint),
            "byte": language.footprint.byte,
            "fit": language.footprint.fit,
        },
        "stages": [_stage(each) for each in language.stages],
        "weight_bits": [schema.to_data(each) for each in language.bits],
        "sweep": schema.to_data(language.sweep),
        "notes": list(language.notes),
        "warnings": list(language.warnings),
    }
    found: dict[str, Any] = finite(data)
    return found


def _stage(stage: StageResult) -> dict[str, Any]:
    rates = {
        "bound": stage.bound_rate,
        "predicted": stage.predicted_rate,
        "asked": stage.asked_rate,
    }
    return {
        **schema.to_data(stage),
        "tokens": stage.tokens,
        "rates": {name: schema.to_data(rate) for name, rate in rates.items()},
    }


def rows_of(language: Language) -> list[dict[str, Any]]:
    """One row a stage, batch and context: those that were asked for, then the sweep's."""
    return [dict.fromkeys(COLUMNS) | row for row in _rows(language)]


def _rows(language: Language) -> Iterable[dict[str, Any]]:
    for stage in language.stages:
        yield {**_analysed(stage), **_asked(stage.asked), **_fit(language, stage)}
    for cell in language.sweep.cells if language.sweep is not None else ():
        yield _swept(cell)


def _analysed(stage: StageResult) -> dict[str, Any]:
    totals, run = stage.analysis.totals, stage.analysis.prediction
    bound, predicted = stage.bound_rate, stage.predicted_rate
    # Sums that leave something out are no numbers of the whole.
    is_whole = not totals.unknown_operators
    return {
        "stage": stage.stage,
        "batch": stage.batch,
        "context": stage.context,
        "is_swept": False,
        "tokens": stage.tokens,
        "flop": totals.flop if is_whole else None,
        "multiply_add": totals.multiply_add if is_whole else None,
        "traffic_byte": totals.traffic_byte,
        "bound": bound_of(stage).value,
        "bound_s": stage.bound_s,
        **minimum_times_of(totals),
        "predicted_s": run.predicted_s if run else None,
        "predicted_low_s": run.low_s if run else None,
        "predicted_high_s": run.high_s if run else None,
        "bound_tokens_per_s": bound.tokens_per_s if bound else None,
        "predicted_tokens_per_s": predicted.tokens_per_s if predicted else None,
        "predicted_low_tokens_per_s": predicted.low_per_s if predicted else None,
        "predicted_high_tokens_per_s": predicted.high_per_s if predicted else None,
    }


def _asked(asked: PlacedStage) -> dict[str, Any]:
    return {
        "asked_flop": asked.flop,
        "asked_weight_byte": asked.weight_byte,
        "asked_cache_byte": asked.cache_byte,
        "asked_bound": asked.bound.value,
        "asked_compute_share": asked.compute_share,
        "asked_bound_s": asked.bound_s,
        "asked_model_min_time_s": asked.model_min_time_s,
        "asked_tokens_per_s": asked.tokens_per_s,
    }


def _fit(language: Language, stage: StageResult) -> dict[str, Any]:
    """What this stage takes; the footprint of `language` is that of the largest of them."""
    footprint, size = language.footprint, (language.context, language.batch)
    activations = activations_of(language.architecture, stage.stage, language.dtype)
    byte = footprint.weight_byte + footprint.cache_byte + activations.byte(*size)
    peak_byte = stage.analysis.totals.peak_memory_byte
    return {"footprint_byte": byte, "fit": fit_of(byte, peak_byte, footprint.memory.byte)}


def _swept(cell: SweepCell) -> dict[str, Any]:
    return {
        "stage": cell.stage,
        "batch": cell.batch,
        "context": cell.context,
        "is_swept": True,
        "tokens": cell.batch * (cell.context if cell.stage == "prefill" else 1),
        "asked_flop": cell.flop,
        "asked_weight_byte": cell.weight_byte,
        "asked_cache_byte": cell.cache_byte,
        "asked_bound": cell.bound.value,
        "asked_compute_share": cell.compute_share,
        "asked_bound_s": cell.bound_s,
        "asked_model_min_time_s": cell.model_min_time_s,
        "asked_tokens_per_s": cell.tokens_per_s,
        "footprint_byte": cell.footprint_byte,
        "fit": cell.fit,
    }


def stages_frame(language: Language) -> pandas.DataFrame:
    """The rows as a frame; what is unknown is missing, never 0."""
    return frame_of(COLUMNS, cells_of(COLUMNS, rows_of(language)))


def stages_csv(language: Language) -> str:
    """The rows as lines; what is unknown is empty, never 0."""
    return csv_text(COLUMNS, cells_of(COLUMNS, rows_of(language)))
