"""What a machine is calibrated on."""

from __future__ import annotations

from collections import Counter

from roofline.latency.curriculum import designs, models
from roofline.pipeline.calibrations import Step


def test_every_step_is_measured_once() -> None:
    steps = [Step(subject=each, dtype="float32").key for each in (*models(), *designs())]
    assert [key for key, count in Counter(steps).items() if count > 1] == []


def test_images_are_measured_in_both_layouts() -> None:
    both = [each for each in designs() if each.channels_last]
    assert len(both) > 100
    assert all(len(each.shape) == 4 for each in both)
    plain = {each.name for each in designs() if not each.channels_last}
    assert {each.name for each in both} <= plain
    laid_out = {each.name for each in models() if each.channels_last}
    assert "squeezenet1_1" in laid_out
    assert laid_out <= {each.name for each in models() if not each.channels_last}


def test_the_first_models_are_of_different_families() -> None:
    first = [each.family for each in models()[:9]]
    assert len(set(first)) == len(first)
