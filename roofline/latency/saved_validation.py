"""Reads a validation back from its JSON; needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from roofline.foundation import schema
from roofline.foundation.reading import refused
from roofline.latency.validation import (
    SCHEMA_VERSION,
    ModelValidation,
    RatioValidation,
    Skipped,
    Validation,
)

_LARGEST = 1e12
"""No time in s and no ratio that was measured is larger, or smaller than one by it; errors of such
would be beyond all floating-point numbers."""

_FIX = "make it anew with `roofline validate -o FILE.json`"


def _to_2(validation: dict[str, Any]) -> dict[str, Any]:
    """The eager minimum is the bound; the others need operators, which no validation keeps."""
    if "models" in validation:
        runs = schema.with_copied(validation["models"], "bound_s", "eager_min_time_s")
        return {**validation, "models": runs}
    return validation


STEPS: Mapping[int, schema.Step] = {1: _to_2}
"""What takes a validation of an older version to the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """A `Validation` as its file holds it; the totals may be those of an older version."""

    schema_version: int
    models: tuple[ModelValidation, ...]
    skipped: tuple[Skipped, ...]
    ratios: tuple[RatioValidation, ...]
    totals: dict[str, Any] = field(default_factory=dict[str, Any])
    hardware: str
    torch_version: str
    date: str
    allocator: str = ""
    warnings: tuple[str, ...] = ()


def is_validation(data: Any) -> bool:
    """Whether plain data has the keys that only a validation has."""
    return isinstance(data, dict) and {"models", "skipped", "ratios", "torch_version"} <= set(
        cast("dict[str, Any]", data)
    )


def validation_from_data(data: Any, *, file: str) -> Validation:
    """The validation in plain data, as its JSON holds it.

    Totals are worked out from the runs, so that what is shown follows from them.

    Raises:
        FileFormatError: newer than this version, cut short, not a validation, or of times that
            nothing takes.
    """
    newest = schema.migrated(data, STEPS, newest=SCHEMA_VERSION, file=file, fix=_FIX)
    saved = schema.from_data(_Saved, newest, file=file, fix=_FIX)
    for i, run in enumerate(saved.models):
        times = (
            *(run.measured_s, run.remeasured_s, run.predicted_s, run.bound_s),
            *(run.predicted_usual_s, run.operators_measured_s, run.hop_s),
            *(run.fused_min_time_s, run.model_min_time_s),
        )
        if run.eager_min_time_s != run.bound_s:
            wrong = f"eager_min_time_s is {run.eager_min_time_s}, but bound_s is {run.bound_s}"
            raise refused(file, f"models[{i}]: {wrong}", _FIX)
        _check_range(times, f"models[{i}]: a time", file)
        _check_range((run.clock_hz, run.remeasured_clock_hz), f"models[{i}]: a clock", file)
    for i, ratio in enumerate(saved.ratios):
        ratios = (ratio.measured, ratio.predicted, ratio.remeasured)
        _check_range(ratios, f"ratios[{i}]: a ratio", file)
    return Validation.of(
        saved.models,
        skipped=saved.skipped,
        ratios=saved.ratios,
        hardware=saved.hardware,
        torch_version=saved.torch_version,
        date=saved.date,
        allocator=saved.allocator,
        warnings=saved.warnings,
    )


def _check_range(values: Iterable[float | None], what: str, file: str) -> None:
    for each in values:
        if each and not 1 / _LARGEST <= each <= _LARGEST:
            raise refused(file, f"{what} of {each:.3g} is none of a measurement", _FIX)
