"""Times of a what-if: predictions of what torch's kernels would be called with, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from torch import nn

from roofline.analysis import Analysis
from roofline.design.advice.subject import Time
from roofline.errors import InputError
from roofline.latency.prediction import Predicted
from roofline.placement import Placement
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.what_ifs import evaluate_policy, records_of_torch
from roofline.workload.operators import OperatorRecord, State
from tests.analysis.examples import full_profile
from tests.design.advice_models import Clock, by_flop
from tests.quantization.what_if_machines import (
    PingPong,
    analysis_of,
    machine,
    resnet20,
    timed_analysis_of,
)

INT8 = Policy(weights=8, activations=8, first_last=8, shortcut="low")
HALF = Policy(weights=16, activations=16, first_last=16, shortcut="low")
IMAGE = (1, 3, 32, 32)


class Knowing(Clock):
    """A clock that has learned only of some types."""

    def __init__(self, *types: str) -> None:
        super().__init__()
        self._types = types
        self.asked: list[OperatorRecord] = []

    def predict(self, placements: Sequence[Placement], threads: int, /) -> Predicted:
        """As the clock, for operators all of whose types are known."""
        self.asked += [each.record for each in placements]
        found = super().predict(placements, threads)
        operators = tuple(
            known if self._knows(each.record) else None
            for each, known in zip(placements, found.operators, strict=True)
        )
        is_all = all(self._knows(each.record) for each in placements)
        return Predicted(operators=operators, run=found.run if is_all else None)

    def _knows(self, record: OperatorRecord) -> bool:
        return all(each.dtype.name in self._types for each in (*record.inputs, *record.outputs))


def at_work(records: Sequence[OperatorRecord]) -> list[OperatorRecord]:
    return [each for each in records if each.state is not State.FREE]


@pytest.mark.parametrize("policy", [INT8, HALF, replace(INT8, shortcut="full")])
def test_the_pass_takes_what_its_calls_take(policy: Policy) -> None:
    analysis = timed_analysis_of(resnet20(), *IMAGE, clock=Clock())
    found = evaluate_policy(analysis, policy, Clock())
    calls = at_work(records_of_torch(analysis, policy))
    expected_s = sum(map(by_flop, calls))
    assert found.before is not None
    assert found.before.s == pytest.approx(sum(map(by_flop, before_of(analysis))))
    assert found.after is not None
    assert found.after.s == pytest.approx(expected_s)
    assert found.after.low_s == pytest.approx(0.9 * expected_s)
    # Parts and layers share it out.
    times = [each.after_time for each in found.parts if each.name != "requantization"]
    assert sum(each.s for each in times if each) == pytest.approx(expected_s)
    assert None not in times
    layers = found.part("layers").after_time
    assert layers is not None
    assert layers.s == pytest.approx(
        sum(each.after.time.s for each in found.layers if each.after.time)
    )


def before_of(analysis: Analysis) -> list[OperatorRecord]:
    return at_work([row.record for row in analysis.operators])


def test_a_width_without_a_kernel_has_no_time_beside_one_that_has() -> None:
    """First and last run in int8, and are timed; the pass is not."""
    analysis = timed_analysis_of(PingPong(16, 3), 4, 16, clock=Clock())
    clock = Knowing("float32", "quint8", "qint8")
    found = evaluate_policy(analysis, Policy(weights=2, activations=2, first_last=8), clock)
    timed = [each.layer.name for each in found.layers if each.after.time is not None]
    assert timed == ["layers.0", "layers.2"]
    assert found.after is None
    assert found.part("layers").after_time is None
    # Nobody was asked after what no kernel does.
    names = {spec.dtype.name for each in clock.asked for spec in (*each.inputs, *each.outputs)}
    assert names == {"float32", "quint8", "qint8"}
    by_kind = {each.where: each.time for each in found.passes if each.kind == "quantize"}
    assert by_kind["layers.1"] is None
    assert by_kind["layers.0"] is not None
    with pytest.raises(InputError, match="test has no kernels for 2-bit weights"):
        records_of_torch(analysis, Policy())
    for width in (1, 2, 3, 4, 5, 7, 9, 12):
        found = evaluate_policy(analysis, Policy(weights=width, activations=width), Clock())
        assert found.after is None
        assert all(each.has_kernel or each.after.time is None for each in found.layers)
        assert isinstance(found.before, Time)


def test_what_was_not_learned_has_no_time_and_says_which_command_helps() -> None:
    profile = replace(machine(), host=full_profile().host)
    analysis = analysis_of(PingPong(16, 3), 4, 16, profile=profile)
    found = evaluate_policy(analysis, INT8, Knowing("float32"))
    assert found.has_kernels
    assert found.after is None
    assert any("roofline calibrate" in each and "int8" in each for each in found.notes)
    without = evaluate_policy(analysis, INT8)
    assert any("no calibration of int8" in each for each in without.notes)
    assert without.part("layers").after_time is None
    assert not evaluate_policy(
        analysis, replace(INT8, weights=32, activations=32, first_last=32)
    ).notes
    # A machine that is not here cannot be calibrated.
    assert not evaluate_policy(analysis_of(PingPong(16, 3), 4, 16), INT8).notes


def test_a_layout_that_int8_brings_is_told() -> None:
    analysis = timed_analysis_of(resnet20(), *IMAGE, clock=Clock())
    said = "torch's int8 convolutions write channels-last images; predictions of readers assume it"
    assert evaluate_policy(analysis, INT8, Clock()).notes == (said,)
    assert evaluate_policy(analysis, HALF, Clock()).notes == ()
    # What reads the images is predicted by their layout, whatever is known of the convolutions.
    assert said in evaluate_policy(analysis, INT8, Knowing("float32")).notes
    assert said not in evaluate_policy(analysis, INT8).notes


def test_layers_in_floats_keep_their_time() -> None:
    analysis = timed_analysis_of(PingPong(16, 3), 4, 16, clock=Clock())
    bits = LayerBits(weights=8, activations=8)
    one = Policy(weights=32, activations=32, first_last=32, layers={"layers.1": bits})
    found = evaluate_policy(analysis, one, Clock())
    for each in found.layers:
        if each.layer.name != "layers.1":
            assert each.after.time == each.before.time
    assert found.before is not None
    assert found.after is not None
    # A product of the same FLOP, fewer bytes, and two conversions more: 10 microseconds a call.
    assert found.after.s > found.before.s


def test_the_calls_of_a_quantized_resnet() -> None:
    """As torch.ao has them: ReLU in the convolutions and additions, floats at the end."""
    calls = at_work(records_of_torch(analysis_of(resnet20(), *IMAGE), INT8))
    names = [each.op for each in calls]
    assert names[:6] == [
        "aten.quantize_per_tensor",
        "quantized.conv2d_relu",
        "quantized.conv2d_relu",
        "quantized.conv2d",
        "quantized.add_relu",
        "quantized.conv2d_relu",
    ]
    assert names[-3:] == ["aten._adaptive_avg_pool2d", "quantized.linear", "aten.dequantize"]
    assert names.count("quantized.conv2d_relu") == 10
    assert names.count("quantized.conv2d") == 9 + 2
    assert names.count("quantized.add_relu") == 9
    assert len(names) == 1 + 10 + 11 + 9 + 3
    first = calls[1]
    assert [each.dtype.name for each in first.inputs] == ["quint8", "qint8", "float32"]
    assert [each.shape for each in first.inputs] == [IMAGE, (16, 3, 3, 3), (16,)]
    assert first.outputs[0].shape == (1, 16, 32, 32)
    assert (first.inputs[0].layout, first.outputs[0].layout) == ("contiguous", "channels-last")
    assert calls[2].inputs[0].layout == "channels-last"
    linear = calls[-2]
    assert [each.shape for each in linear.inputs] == [(1, 64), (10, 64), (10,)]
    assert linear.work.macs == 640


def test_every_call_reads_what_another_wrote() -> None:
    """Storages lead from each call to the next: none reads what nobody gave."""
    analysis = analysis_of(resnet20(), *IMAGE)
    for policy in (INT8, HALF, replace(INT8, shortcut="full")):
        written: set[int] = set()
        for record in at_work(records_of_torch(analysis, policy)):
            for spec in record.inputs:
                assert spec.role.persists or spec.storage in written
            written |= {each.storage for each in record.outputs}


def test_activations_that_kernels_do_not_have_run_on_floats() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.Hardswish())
    names = [each.op for each in at_work(records_of_torch(analysis_of(model, 2, 8), INT8))]
    assert names == [
        "aten.quantize_per_tensor",
        "quantized.linear",
        "aten.dequantize",
        "aten.gelu",
        "aten.quantize_per_tensor",
        "quantized.linear",
        "quantized.hardswish",
        "aten.dequantize",
    ]


def test_bfloat16_calls_what_is_called_now() -> None:
    analysis = analysis_of(resnet20(), *IMAGE)
    calls = at_work(records_of_torch(analysis, HALF))
    own = [each.op for each in before_of(analysis)]
    assert [each.op for each in calls] == ["aten._to_copy", *own]
    halves = analysis_of(resnet20(), *IMAGE, dtype="bfloat16")
    for call, row in zip(calls[1:], before_of(halves), strict=True):
        for mine, theirs in zip(
            (*call.inputs, *call.outputs), (*row.inputs, *row.outputs), strict=True
        ):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
