"""Runs and validations with times made up for tests."""

from __future__ import annotations

from dataclasses import replace

from roofline.latency.accuracy import ModelValidation, RatioValidation, Skipped
from roofline.latency.validation import Validation

_RUN = ModelValidation(
    model="net",
    family="nets",
    batch=1,
    dtype="float32",
    threads=1,
    channels_last=False,
    predicted_s=None,
    predicted_low_s=None,
    predicted_high_s=None,
    operators_measured_s=None,
    measured_s=1.0,
    remeasured_s=None,
    eager_min_time_s=None,
    operators=0,
    below_bound=0,
    operator_abs_error_s=None,
    operators_s=1.0,
    samples=0,
)


def judged(
    measured_s: float, predicted_s: float | None = None, *, model: str = "net", **changes: object
) -> ModelValidation:
    """A run that took a time and was predicted to take another."""
    return replace(
        _RUN,
        model=model,
        measured_s=measured_s,
        predicted_s=predicted_s,
        **changes,  # pyright: ignore[reportArgumentType]
    )


def validation(
    *models: ModelValidation,
    skipped: tuple[Skipped, ...] = (),
    ratios: tuple[RatioValidation, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Validation:
    """A validation on a machine that is not there."""
    return Validation(
        models=models,
        skipped=skipped,
        ratios=ratios,
        hardware="imagined",
        torch_version="2.13.0",
        date="2026-03-04T05:06:07",
        warnings=warnings,
    )
