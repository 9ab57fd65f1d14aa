"""Predictions on CPUs without calibration: the generic model, its hosts, and who judges it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import roofline
from roofline.latency.calibration import Calibration
from roofline.latency.generic import OTHER, GenericCpu, kind_of, shipped
from roofline.latency.samples import OperatorFeatures
from roofline.machine import catalog
from roofline.machine.core_state import UNKNOWN
from roofline.pipeline.validations import leave_one_out_predictors
from roofline.workload.operators import State
from tests.analysis.examples import dram_profile
from tests.latency.samples import call_of, run_of, sample_of
from tests.unknown_operator import mystery

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "generic_cpu.py"
SHAPE = (1, 16, 32, 32)


def net() -> nn.Module:
    layers = nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU()
    return nn.Sequential(*layers).eval()


def call(flop: float = 1e6, least_s: float = 1e-6, **changes: Any) -> OperatorFeatures:
    """A product with so many FLOP; the numbers before are its sizes."""
    flops = float(np.log2(flop))
    numbers = (0.0, 0.0, 0.0, 0.0, flops, *[0.0] * 6)
    given: dict[str, Any] = {"group": "matrix product", "variant": "addmm nt", "numbers": numbers}
    return call_of(eager_min_time_s=least_s, **given | changes)


# -- what was learned, and who may judge it --------------------------------------------------------


def test_constants_are_those_of_the_script_and_name_their_hosts() -> None:
    model = shipped()
    assert model.digest == hashlib.sha256(SCRIPT.read_bytes()).hexdigest()
    assert len({each.family for each in model.hosts}) >= 2
    for each in model.hosts:
        assert each.family and each.source and each.date and each.passes > 0
        assert each.family in model.description
    # No operator takes less than its minimum time.
    assert all(
        call_s >= 0 and factor >= 1 and flop_s >= 0
        for call_s, factor, flop_s in model.kinds.values()
    )


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import generic_cpu  # pyright: ignore[reportMissingImports]

    return generic_cpu


def test_a_host_of_a_family_in_the_model_is_refused_as_its_judge(script: Any) -> None:
    rows = script.rows()
    for host in script.HOSTS.values():
        judged = [each for each in rows if each.host == host.name and each.model][:3]
        if host.family in {each.family for each in shipped().hosts}:
            with pytest.raises(script.LeakError, match=host.family):
                script.errors(shipped(), judged)
        else:
            assert len(script.errors(shipped(), judged)) == 3


def test_a_host_of_another_family_is_predicted(script: Any) -> None:
    families = {each.family for each in shipped().hosts}
    outside = [name for name, each in script.HOSTS.items() if each.family not in families]
    passes = [each for each in script.rows() if each.host in outside and each.model]
    judged = [each for each in passes if script.is_covered(shipped(), each)]
    assert len({each.model for each in judged}) >= 15
    found = script.errors(shipped(), judged)
    assert np.mean(abs(np.expm1(found))) <= 0.25
    assert np.mean(abs(found) <= script.Z_80 * shipped().pass_deviation) >= 0.7


def test_constants_are_found_again_in_times_made_of_them(script: Any) -> None:
    constants = {"a: x": (2e-5, 3.0, 1e-11), "a: y": (4e-5, 1.5, 1e-12), "b: z": (1e-5, 5.0, 2e-12)}
    rows = []
    for place in range(90):
        kind = list(constants)[place % 3]
        work = (1.0, 1e-6 * 2 ** (place % 9), 1e5 * 4 ** (place % 7))
        time_s = sum(each * by for each, by in zip(constants[kind], work, strict=True))
        name = list(script.HOSTS)[place % 2]
        rows.append(script.Row(name, "", 1, 1, "contiguous", 1, time_s, {kind: list(work)}))
    learned = script.learn(rows)
    for kind, (call_s, factor, flop_s) in constants.items():
        found = learned.kinds[kind]
        assert found[0] == pytest.approx(call_s, rel=0.1)
        assert found[1] == pytest.approx(factor, rel=0.15)
        assert found[2] == pytest.approx(flop_s, rel=0.25)


# -- times of operators ----------------------------------------------------------------------------


def made(**changes: Any) -> GenericCpu:
    kinds = {"matrix product: addmm": (1e-5, 2.0, 1e-12), "matrix product": (3e-5, 2.0, 0.0)}
    kinds[OTHER] = (7e-5, 4.0, 0.0)
    return replace(shipped(), kinds=kinds, **changes)


def test_times_are_calls_minimum_times_and_flop_of_the_kind_else_of_the_group() -> None:
    model = made()
    # 10 us of the call, twice 1 us, 1 us of a million FLOP; two threads halve the last.
    assert model.seconds(call()) == pytest.approx(13e-6)
    assert model.seconds(call(threads=2)) == pytest.approx(12.5e-6)
    assert model.seconds(call(variant="mm nt")) == pytest.approx(32e-6)
    assert model.seconds(call(group="new")) == pytest.approx(74e-6)
    assert not model.prediction(call()).is_extrapolated
    assert model.prediction(call(group="new")).is_extrapolated
    assert model.prediction(call(threads=64)).is_extrapolated


def test_layouts_of_images_are_kinds_of_their_own() -> None:
    image = call(group="convolution", variant="onednn 1x1")
    assert kind_of(image)[0] == "convolution: onednn 1x1"
    last = replace(image, layout="channels-last")
    assert kind_of(last) == ("convolution: onednn 1x1 channels-last", "convolution")
    assert kind_of(call(group="pointwise", variant="relu_"))[0] == "pointwise: relu"


# -- few measurements ------------------------------------------------------------------------------


def passes(count: int, factor: float) -> list[Any]:
    """Runs of as many families, in which operators take `factor` of what the model predicts."""
    model = made()
    return [
        run_of(
            [sample_of(each, factor * model.seconds(each)) for each in calls],
            model=f"net{family}",
            family=f"family{family}",
        )
        for family in range(count)
        for calls in [[call(1e6 * 2**size, 1e-6 * 2**size) for size in range(family, family + 8)]]
    ]


def test_few_families_correct_the_prior_and_many_replace_it() -> None:
    new = call(1e6 * 2**9.5, 1e-6 * 2**9.5)
    before = made().seconds(new)
    slow = Calibration(passes(4, 1.5), prior=made())
    (found,) = slow.predict([new])
    assert found is not None and found.predicted_s == pytest.approx(1.5 * before, rel=0.05)
    other = call(group="pointwise", variant="relu")
    (unseen,) = slow.predict([other])
    assert unseen is not None and unseen.predicted_s > made().seconds(other)
    assert slow.uses_prior and "generic CPU model" in slow.description
    many = passes(12, 1.5)
    alone, kept = Calibration(many), Calibration(many, prior=made())
    assert not kept.uses_prior and "generic" not in kept.description
    assert kept.predict([new, other]) == alone.predict([new, other])
    assert kept.held_out == alone.held_out


def test_a_single_run_does_not_take_predictions_away() -> None:
    one = Calibration(passes(1, 1.0)[:1], prior=made())
    (found,) = one.predict([call(threads=4)])
    assert found is not None and found.learned_from == "generic CPU model"
    assert one.predict([call(dtype="bfloat16")]) == [None]


def test_validation_without_a_family_has_the_prior_that_the_calibration_has() -> None:
    for count, has_prior in ((0, True), (3, True), (12, False)):
        calibration = Calibration(passes(count, 1.5), prior=made())
        predictor = leave_one_out_predictors(calibration, 16)("family0", UNKNOWN)
        assert predictor.calibration.uses_prior == has_prior


# -- passes ----------------------------------------------------------------------------------------


def test_a_described_cpu_is_predicted_and_says_by_what() -> None:
    found = roofline.predict(net(), SHAPE, hardware="epyc-9654", threads=2)
    assert found.prediction is not None
    assert found.prediction.low_s < found.prediction.predicted_s < found.prediction.high_s
    assert found.prediction.predicted_s > (found.totals.eager_min_time_s or 0)
    (note,) = (each for each in found.warnings if "generic CPU model" in each)
    assert note.startswith(f"predicted by the {shipped().description}")
    assert note.endswith("run `roofline calibrate` on that machine")
    by_advice = roofline.advise(net(), SHAPE, hardware="epyc-9654", threads=2)
    assert by_advice.analysis.prediction == found.prediction
    on_more = roofline.predict(net(), SHAPE, hardware="epyc-9654", threads=64)
    assert any("1 to 2 threads; 64 are extrapolated" in each for each in on_more.warnings)
    assert not any("extrapolated" in each for each in found.warnings)


@pytest.mark.parametrize(
    "changes",
    [{"dtype": "bfloat16"}, {"train": True}, {"channels_last": True}, {"hardware": dram_profile()}],
)
def test_what_was_not_measured_has_minimum_times_only(changes: dict[str, Any]) -> None:
    options: dict[str, Any] = {"hardware": "epyc-9654"} | changes
    found = roofline.analyze(nn.Conv2d(3, 32, 3), (2, 3, 64, 64), **options)
    assert found.prediction is None
    assert found.totals.eager_min_time_s


def test_a_pass_is_the_sum_of_its_operators_and_their_overhead() -> None:
    profile = catalog.load_hardware("i9-10940x")
    found = roofline.predict(net(), SHAPE, hardware=profile, threads=1).prediction
    assert found is not None
    rows = roofline.predict(net(), SHAPE, hardware=profile, threads=1).operators
    assert found.operators_s == pytest.approx(sum(each.predicted_s or 0 for each in rows))
    assert found.overhead_s == pytest.approx(len(rows) * shipped().overhead_s)


def test_unknown_flop_is_not_taken_for_none() -> None:
    found = roofline.predict(lambda x: mystery(x).relu(), (64, 64), hardware="epyc-9654", threads=2)
    unknown, relu = [each for each in found.operators if each.state is not State.FREE]
    assert unknown.state is State.UNKNOWN and unknown.predicted_s is None
    assert relu.predicted_s and found.prediction is None
    assert "unknown FLOP of roofline_tests.mystery; add a formula" in found.not_predicted
