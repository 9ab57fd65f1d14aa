"""Runs for tests of what is learned from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from roofline.latency.samples import OperatorFeatures, OperatorSample, RunSample


def call_of(**changes: Any) -> OperatorFeatures:
    """What is known of a call of one variant in float32 on one thread."""
    given: dict[str, Any] = {
        "group": "product",
        "variant": "fast",
        "dtype": "float32",
        "layout": "contiguous",
        "threads": 1,
        "eager_min_time_s": 1e-6,
    }
    return OperatorFeatures(**given | changes)


def sample_of(facts: OperatorFeatures, time_s: float, **changes: Any) -> OperatorSample:
    """One call that took so long, without page faults."""
    given: dict[str, Any] = {"calls": 1, "iqr_s": 0.0, "page_faults": 0.0}
    return OperatorSample(facts=facts, time_s=time_s, **given | changes)


def run_of(operators: Iterable[OperatorSample], **changes: Any) -> RunSample:
    """A run of these operators and no others, in the type and on the threads of the first."""
    samples = tuple(operators)
    total_s = sum(each.calls * each.time_s for each in samples)
    given: dict[str, Any] = {
        "model": "net",
        "family": "net",
        "origin": "calibrate",
        "date": "2026-01-01",
        "batch": 1,
        "dtype": samples[0].facts.dtype if samples else "float32",
        "threads": samples[0].facts.threads if samples else 1,
        "channels_last": False,
        "train": False,
        "end_to_end_s": total_s,
        "end_to_end_iqr_s": 0.0,
        "operators_s": total_s,
        "free_s": 0.0,
        "free_calls": 0,
        "calls": sum(each.calls for each in samples),
        "page_faults": 0.0,
    }
    return RunSample(**given | changes, operators=samples)
