"""What becomes of conditions, what is compared at all, and what is said of other settings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from roofline.core.dtypes import dtype
from roofline.design.gate.cost import Cost
from roofline.design.gate.result import Check, check_same_task, differences
from roofline.errors import InputError, ThresholdError
from roofline.run import Run
from roofline.workload.tensors import InputSpec
from tests.design.gate_examples import HERE, cost, counts_only


def check(now: Cost, *conditions: str, baseline: Cost | None = None, **more: Any) -> Check:
    return Check(now=now, baseline=baseline, conditions=conditions, **more)


def outcomes(found: Check) -> list[str]:
    return [each.outcome for each in found.judgements]


def test_what_is_allowed_to_the_last_passes_and_one_more_fails() -> None:
    limits = ("flop>+1%", "launches>+2", "peak_memory_bytes>3500B")
    at_the_limit = cost(flop=1010, launches=12, peak_memory_bytes=3500)
    assert check(at_the_limit, *limits, baseline=cost()).passes
    beyond = cost(flop=1011, launches=13, peak_memory_bytes=3501)
    found = check(beyond, *limits, baseline=cost())
    assert outcomes(found) == ["fails"] * 3
    with pytest.raises(ThresholdError) as caught:
        found.raise_if_failed()
    assert caught.value.exit_code == 4
    assert "flop is 1.01 kFLOP, above" in str(caught.value) or "1,011" in str(caught.value)
    assert str(caught.value).count(";") == 2


UNKNOWN = cost(flop=None, macs=None, unknown_operators=2)
UNPREDICTED = replace(UNKNOWN, predicted_s=None)
STEP = cost(run=Run(train=True, optimizer="sgd"), predicted_s=None)
AGAIN = cost(machine=replace(HERE, date="2026-04-01"))
NO_FORMULA = "2 calls of operators without a formula"


@pytest.mark.parametrize(
    ("before", "now", "condition", "outcome", "said"),
    [
        # Less than before may be too little.
        (cost(), cost(flop=949), "flop<-5%", "fails", ""),
        (cost(), cost(flop=950), "flop<-5%", "passes", ""),
        # From nothing, anything is too much.
        (cost(parameters=0), cost(parameters=0), "parameters>+50%", "passes", ""),
        (cost(parameters=0), cost(parameters=1), "parameters>+50%", "fails", ""),
        # Unknown FLOP are never taken for good.
        (cost(), UNKNOWN, "flop>+1%", "not judged", NO_FORMULA),
        (UNKNOWN, cost(), "flop>+1%", "not judged", NO_FORMULA),
        (UNKNOWN, UNKNOWN, "flop>+1%", "not judged", NO_FORMULA),
        (cost(), UNKNOWN, "traffic_bytes>+0%", "passes", ""),
        (cost(), UNKNOWN, "unknown_operators>+0", "fails", ""),
        # Times that are not known on either side.
        (STEP, STEP, "predicted_s>+5%", "not judged", "training is not predicted"),
        (cost(), counts_only(), "eager_min_time_s>+5%", "not judged", "add hardware, or"),
        (cost(), counts_only(), "predicted_s>1s", "not judged", "add hardware, or"),
        (counts_only(), cost(), "eager_min_time_s>+5%", "not judged", "baseline has no times"),
        (cost(), cost(predicted_s=None), "predicted_s>+5%", "not judged", "roofline calibrate"),
        (cost(), UNPREDICTED, "predicted_s>+5%", "not judged", NO_FORMULA),
        (cost(), cost(predicted_s=None), "eager_min_time_s>+5%", "passes", ""),
        (cost(), AGAIN, "eager_min_time_s>+5%", "passes", ""),
    ],
)
def test_what_becomes_of_a_condition(
    before: Cost, now: Cost, condition: str, outcome: str, said: str
) -> None:
    found = check(now, condition, baseline=before)
    assert outcomes(found) == [outcome] and found.passes == (outcome == "passes")
    assert said in "".join(found.failures)


def test_a_machine_that_was_measured_again_is_said() -> None:
    (line,) = check(AGAIN, baseline=cost()).differences
    assert "2026-04-01" in line and "2026-03-04" in line


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        # Of so many, floating point has not every whole number.
        (10**16, 10**16 + 1, "flop is 10,000,000,000,000,001, above 10,000,000,000,000,000 "),
        (10**9, 10**9 + 1, "(+1 FLOP on the baseline's 1.00 GFLOP)"),
        (10**9, 10**9 + 1, "flop is 1,000,000,001, above 1,000,000,000 "),
        (1000, 1333, "flop is 1.33 kFLOP, above 1.00 kFLOP (+33.3 % on the baseline's 1.00 kFLOP)"),
        (0, 7, "(+7 FLOP on the baseline's 0 FLOP)"),
    ],
)
def test_how_far_beyond_it_is_is_said(before: int, now: int, said: str) -> None:
    def of(flop: int) -> Cost:
        return cost(flop=flop, macs=0)

    (why,) = check(of(now), "flop>+0%", baseline=of(before)).failures
    assert said in why
    (why,) = check(of(now), "flop<+99999%", baseline=of(now)).failures
    assert "(as the baseline has)" in why


def test_another_loss_is_said() -> None:
    def of(loss: str) -> Cost:
        return cost(run=Run(train=True, loss=loss))

    assert list(differences(of("cross entropy"), of("mean squared error"))) == [
        "loss 'mean squared error', but 'cross entropy' in the baseline"
    ]
    check_same_task(of("cross entropy"), of(""), file="b.json")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "other"}, "machine 'other', but 'host' in the baseline"),
        ({"threads": 1}, "1 thread, but 2 in the baseline"),
        ({"cpu_model": "Example 8"}, "CPU 'Example 8', but 'Example 7' in the baseline"),
    ],
)
def test_times_of_another_machine_are_said_and_not_compared(
    change: dict[str, Any], said: str
) -> None:
    now = cost(machine=replace(HERE, **change), eager_min_time_s=1e-6, predicted_s=1e-6)
    found = check(now, "eager_min_time_s>+5%", "predicted_s>5ms", "flop>+0%", baseline=cost())
    # A limit in seconds needs no baseline, and counts are the same everywhere.
    assert outcomes(found) == ["not judged", "passes", "passes"]
    assert said in found.failures[0]
    assert any(said in line for line in found.differences)
    bound = next(line for line in found.lines if line.quantity.name == "eager_min_time_s")
    assert (bound.before, bound.now, bound.change) == (None, 1e-6, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": (InputSpec(shape=(8, 3, 8, 8), dtype=dtype("float32")),)}, "8x3x8x8:float32"),
        ({"inputs": (InputSpec(shape=(1, 3, 8, 8), dtype=dtype("bfloat16")),)}, "bfloat16"),
        ({"run": Run(train=True, optimizer="adamw")}, "training step (adamw)"),
        ({"run": Run(channels_last=True)}, "channels last"),
        ({"run": Run(autocast="bfloat16")}, "autocast bfloat16"),
        ({"run": Run(device="meta")}, "device meta"),
    ],
)
def test_another_task_is_refused_in_one_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        check_same_task(cost(), cost(**change), file="b.json")
    assert said in str(caught.value)
    assert str(caught.value).startswith("b.json: ") and "update=True" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_same_task_passes_and_has_nothing_to_say() -> None:
    check_same_task(cost(), cost(flop=1), file="b.json")
    assert list(differences(cost(), cost(flop=1))) == []


def test_another_name_version_or_calibration_is_said() -> None:
    now = cost(
        model="net2", versions={"roofline": "0.2.0", "torch": "2.13.0"}, calibration="91 runs"
    )
    lines = list(differences(cost(), now))
    assert any("'net'" in line and "'net2'" in line for line in lines)
    assert any("roofline 0.1.0 → 0.2.0" in line and "torch" not in line for line in lines)
    assert any("91 runs" in line for line in lines)
    assert len(lines) == 3


def test_the_summary_counts_conditions_and_changes() -> None:
    same = check(cost(), "flop>+1%", "launches>+0", baseline=cost())
    assert same.summary == "net passes 2 conditions; no total changed"
    more = check(cost(flop=1005, launches=11), "flop>+1%", "launches>+0", baseline=cost())
    assert more.summary == "net fails 1 of 2 conditions"
    assert check(cost(flop=1001), baseline=cost()).summary == (
        "net: no conditions (fail_if); 1 total changed"
    )


def test_changes_are_fractions_of_what_was() -> None:
    found = check(cost(flop=1500, parameters=100), baseline=cost())
    change = {line.quantity.name: line.change for line in found.lines}
    assert change["flop"] == 0.5 and change["parameters"] == -0.5 and change["launches"] == 0
    assert {line.quantity.name for line in found.changes} == {"flop", "parameters"}


def test_json_has_totals_conditions_and_both_costs() -> None:
    found = check(cost(flop=2000), "flop>+1%", "launches>+0", baseline=cost(), file="b.json")
    data = json.loads(found.to_json())
    assert (data["kind"], data["schema_version"], data["passes"]) == ("check", 1, False)
    assert data["totals"][0] == {"name": "flop", "baseline": 1000, "now": 2000, "change": 1.0}
    assert data["conditions"] == ["flop>+1%", "launches>+0"]
    assert [each["outcome"] for each in data["judgements"]] == ["fails", "passes"]
    assert (data["baseline"]["flop"], data["now"]["flop"]) == (1000, 2000)


def test_a_frame_has_a_row_for_each_total() -> None:
    frame = check(cost(flop=2000), "flop>+1%", baseline=cost()).to_frame()
    (row,) = frame[frame["name"] == "flop"].to_dict("records")
    assert row == {"name": "flop", "baseline": 1000, "now": 2000, "change": 1.0, "verdict": "fails"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"flop": None},
        {"flop": None, "macs": None},
        {"unknown_operators": 1},
        {"launches": -1},
        {"eager_min_time_s": float("inf")},
        {"machine": None},
    ],
)
def test_costs_that_contradict_themselves_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        cost(**wrong)


def test_beside_next_to_nothing_a_change_has_no_share() -> None:
    # The smallest number there is: what is a millionth is infinitely more.
    found = check(cost(), "eager_min_time_s>+1%", baseline=cost(eager_min_time_s=5e-324))
    assert outcomes(found) == ["fails"]
    data = json.loads(found.to_json())
    assert (
        next(each for each in data["totals"] if each["name"] == "eager_min_time_s")["change"]
        is None
    )
    assert "(+2.00 µs on the baseline's" in found.failures[0]
