"""What a machine is calibrated on."""

from __future__ import annotations

from collections import Counter

import torch

from roofline.latency.calibration_set import (
    CalibrationCase,
    designs,
    int8_designs,
    int8_models,
    models,
)
from roofline.pipeline.calibrations import Step
from roofline.workload.models.designs import design


def test_every_step_is_measured_once() -> None:
    steps = [Step(case=each, dtype="float32").key for each in (*models(), *designs())]
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


def test_every_int8_step_is_measured_once_in_the_same_order() -> None:
    steps = [Step(case=each, dtype="int8").key for each in (*int8_models(), *int8_designs())]
    assert [key for key, count in Counter(steps).items() if count > 1] == []
    assert int8_designs() == int8_designs()


def test_int8_is_learned_from_every_kind_of_layer_early() -> None:
    """Five minutes do not reach the end of the list."""
    first = int8_designs()[:40]
    kinds = {each.kind for each in first}
    assert {"standard", "separable", "linear", "residual", "branches", "limited"} <= kinds
    assert {each.kind for each in int8_designs()} >= {
        "max_pool_of",
        "average_pool_of",
        "global_pool_of",
    }
    assert any(len(each.sizes) == 5 for each in first), "grouped ones, too"
    assert {"entrance", "inner"} <= {_place(each) for each in first}


def test_int8_images_lie_as_within_a_model() -> None:
    """What a model is given lies as it is; all else was written by int8 layers, channels last."""
    for each in int8_designs():
        assert each.channels_last is (_place(each) == "inner"), each.name


def _place(subject: CalibrationCase) -> str:
    if len(subject.shape) != 4:
        return "tokens"
    return "entrance" if subject.shape[1] == 3 else "inner"


def test_int8_layers_are_built_and_its_models_are_known() -> None:
    assert {each.name for each in int8_models()} <= {each.name for each in models()}
    assert all(each.batches == (1,) for each in int8_models())
    built: dict[str, int] = {}
    for each in int8_designs():
        if built.setdefault(each.kind, 0) < 2 and max(each.sizes, default=0) < 100:
            built[each.kind] += 1
            result = design(each.kind, *each.sizes)(torch.zeros(each.shape))
            assert result.shape[0] == each.shape[0]
    assert len(built) == 9
