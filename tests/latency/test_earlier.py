"""Whether a pass was measured before: the same calls, whatever its name and its bounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from roofline.latency.features import features_of
from roofline.latency.samples import EarlierRun, OperatorFeatures, RunSample, earlier_run
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Roof, place
from roofline.run import Run
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs
from roofline.workload.operators import State
from roofline.workload.residency import trace_residency
from tests.builders import ceiling, level, profile
from tests.latency.samples import call_of, run_of, sample_of


def call(size: float = 10.0, group: str = "pointwise", *, threads: int = 2) -> OperatorFeatures:
    """A call of a size; what its group has of its own, then seven numbers that all have."""
    numbers = (size, 1.0, *(size, 0.0, size, size, size, size), 0.0)
    return call_of(group=group, variant="relu", threads=threads, numbers=numbers)


def kept(
    facts: Sequence[OperatorFeatures], *, model: str = "net", free: int = 3, time_s: float = 1.0
) -> RunSample:
    """A run of those calls; equal ones are kept together."""
    operators = (sample_of(each, 0.1, calls=count) for each, count in Counter(facts).items())
    return run_of(
        operators,
        model=model,
        date="2026-03-04",
        dtype="float32",
        end_to_end_s=time_s,
        end_to_end_iqr_s=0.1,
        free_calls=free,
        calls=len(facts) + free,
    )


def found(runs: Sequence[RunSample], facts: Sequence[OperatorFeatures]) -> EarlierRun | None:
    return earlier_run(runs, facts, channels_last=False, train=False)


CALLS = (call(4), call(9), call(4), call(4, "reduction"))


def test_the_last_run_of_the_same_calls_is_found() -> None:
    runs = [kept(CALLS, time_s=1.0), kept(CALLS, time_s=2.0, model="other"), kept(CALLS[:3])]
    assert found(runs, CALLS[::-1]) == EarlierRun(
        measured_s=2.0,
        iqr_s=0.1,
        date="2026-03-04",
        origin="calibrate",
        model="other",
        page_faults=0.0,
    )
    first = found(runs[:1], CALLS)
    assert first is not None and (first.model, first.measured_s) == ("net", 1.0)


def test_nothing_is_like_nothing() -> None:
    assert found([], CALLS) is None
    assert found([kept(CALLS)], ()) is None


@pytest.mark.parametrize(
    "other",
    [
        CALLS[:3],
        (*CALLS, call(4)),
        (call(4), call(9), call(9), call(4, "reduction")),
        (call(4), call(9), call(4), call(5, "reduction")),
        (call(4), call(9), call(4), call(4, "pooling")),
        (*CALLS[:3], replace(CALLS[3], variant="gelu")),
        (*CALLS[:3], replace(CALLS[3], dtype="bfloat16")),
        (*CALLS[:3], replace(CALLS[3], layout="channels-last")),
        tuple(replace(each, threads=1) for each in CALLS),
        # The first of its own numbers, its bytes that are read, its fresh bytes.
        (*CALLS[:3], replace(CALLS[3], numbers=(5.0, *CALLS[3].numbers[1:]))),
        (*CALLS[:3], replace(CALLS[3], numbers=(*CALLS[3].numbers[:4], 5.0, *(4.0, 4.0, 4.0, 0)))),
        (*CALLS[:3], replace(CALLS[3], numbers=(*CALLS[3].numbers[:-1], 25.0))),
    ],
)
def test_other_calls_are_another_pass(other: tuple[OperatorFeatures, ...]) -> None:
    assert found([kept(CALLS)], other) is None
    assert found([kept(other)], CALLS) is None
    assert found([kept(other)], other) is not None


def test_another_way_to_run_is_another_pass() -> None:
    runs = [kept(CALLS)]
    assert earlier_run(runs, CALLS, channels_last=True, train=False) is None
    assert earlier_run(runs, CALLS, channels_last=False, train=True) is None
    last = replace(runs[0], channels_last=True)
    assert found([last], CALLS) is None
    assert earlier_run([last], CALLS, channels_last=True, train=False) is not None


def test_free_calls_are_no_calls() -> None:
    assert found([kept(CALLS, free=0)], CALLS) is not None
    # As many calls in all, but one of them does nothing.
    assert found([kept(CALLS[:3], free=1)], CALLS) is None


FACTS = st.lists(
    st.builds(call, st.sampled_from([1.0, 2.0, 3.0]), st.sampled_from(["a", "b"])),
    min_size=1,
    max_size=5,
)


@given(FACTS, FACTS)
def test_it_is_a_question_of_the_calls_alone(
    one: list[OperatorFeatures], other: list[OperatorFeatures]
) -> None:
    """Held against the lists of calls in order, and both ways round."""

    def ordered(facts: list[OperatorFeatures]) -> list[tuple[str, float]]:
        return sorted((each.group, each.numbers[0]) for each in facts)

    is_same = ordered(one) == ordered(other)
    assert (found([kept(one)], other) is not None) == is_same
    assert (found([kept(other)], one) is not None) == is_same


def machine(cache_bytes: int, read: float, flop_per_s: float) -> HardwareProfile:
    return profile(
        [ceiling(flop_per_s)],
        [
            level("L1", cache_bytes, {"read": {1: 3 * read}}),
            level("L2", 16 * cache_bytes, {"read": {1: 2 * read}}),
            level("DRAM", None, {"read": {1: read}}),
        ],
    )


class Network(nn.Module):
    """A bit of everything that facts tell apart."""

    def __init__(self, wide: int = 24) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, wide, 3, stride=2)
        self.norm = nn.BatchNorm2d(wide)
        self.encoder = nn.TransformerEncoderLayer(wide, 2, 2 * wide, batch_first=True)
        self.head = nn.Linear(wide, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.convolution(x)))
        y = nn.functional.max_pool2d(y, 2)
        y = self.encoder(y.flatten(2).transpose(1, 2))
        return torch.softmax(self.head(y.mean(1)), -1)


def facts_on(hardware: HardwareProfile, model: nn.Module, *shape: int) -> list[OperatorFeatures]:
    inputs = Inputs(torch.zeros(shape, dtype=next(model.parameters()).dtype))
    records = capture(model, inputs, name="x", run=Run(), training=None).records
    placements = place(records, trace_residency(records), Roof(hardware, 1))
    return [features_of(each, 1) for each in placements if each.record.state is not State.FREE]


def test_a_profile_that_was_measured_anew_hides_nothing() -> None:
    old, new = machine(4096, 1e10, 1e11), machine(65536, 4e10, 3e11)
    before, now = (facts_on(each, Network(), 2, 3, 40, 40) for each in (old, new))
    assert len(before) == len(now) == 8
    # Bounds differ, and where bytes come from.
    assert all(
        one.eager_min_time_s != other.eager_min_time_s
        for one, other in zip(before, now, strict=True)
    )
    assert [each.numbers for each in before] != [each.numbers for each in now]
    assert found([kept(before)], now) is not None
    for others in (
        facts_on(new, Network(), 1, 3, 40, 40),
        facts_on(new, Network(), 2, 3, 42, 42),
        facts_on(new, Network(wide=26), 2, 3, 40, 40),
        facts_on(new, Network().to(torch.float64), 2, 3, 40, 40),
    ):
        assert len(others) == len(now)
        assert found([kept(before)], others) is None


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_run_takes_a_time_and_a_spread(value: float) -> None:
    run = found([kept(CALLS)], CALLS)
    assert run is not None
    with pytest.raises(ValueError, match="measured_s must be a finite number above 0"):
        replace(run, measured_s=value)
    with pytest.raises(ValueError, match="measured_s"):
        replace(run, measured_s=0.0)
    with pytest.raises(ValueError, match="iqr_s must be a finite number from 0"):
        replace(run, iqr_s=value)
    assert replace(run, iqr_s=0.0).measured_s == 1.0
