"""Kinds of operators: how many samples are taken, and how wide intervals must be."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.latency import learning
from roofline.latency.learning import SHARED_FEATURES, Example, GroupModel
from roofline.latency.samples import OperatorFeatures
from tests.latency.samples import call_of


def facts(size: float, layout: str = "contiguous") -> OperatorFeatures:
    numbers = (size, *([size] * SHARED_FEATURES))
    return call_of(layout=layout, numbers=numbers, eager_min_time_s=2**size / 1e10)


def examples(count: int, deviation: float) -> list[Example]:
    draw = np.random.default_rng(4)
    return [
        Example(
            facts=facts(each.eager_min_time_s and size),
            family=f"family {place % 7}",
            time_s=float((each.eager_min_time_s + 1e-6) * 2 * np.exp(draw.normal(0, deviation))),
        )
        for place, size in enumerate(draw.uniform(10, 26, count))
        for each in [facts(float(size))]
    ]


@pytest.mark.parametrize("deviation", [0.05, 0.2, 0.6])
def test_intervals_hold_80_percent_of_what_was_left_out(deviation: float) -> None:
    known = examples(300, deviation)
    kind = GroupModel(known)
    fresh = examples(400, deviation)[300:]
    found = kind.predict([each.facts for each in fresh])
    inside = sum(
        each.low_s <= example.time_s <= each.high_s
        for each, example in zip(found, fresh, strict=True)
    )
    # Times that vary little are given at least half of what the noise is taken to be.
    least = 0.65
    assert inside / len(fresh) >= least
    if deviation >= 0.2:
        assert inside / len(fresh) <= 0.93


def test_too_many_samples_are_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "_MAX_SAMPLES", 10)
    kind = GroupModel(examples(25, 0.1))
    assert 5 <= len(kind.examples) <= 10
    assert len(GroupModel(examples(10, 0.1)).examples) == 10


def test_another_layout_is_less_sure_than_the_same() -> None:
    kind = GroupModel(examples(50, 0.1))
    same, other = kind.predict([facts(18.0), facts(18.0, "strided")])
    assert other.deviation > same.deviation
    assert not same.is_extrapolated
