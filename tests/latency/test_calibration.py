"""What is learned from runs whose times follow a law that is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.latency.calibration import Calibration
from roofline.latency.learning import SHARED_FEATURES
from roofline.latency.samples import OperatorFeatures, RunSample
from roofline.machine.core_state import CoreState
from tests.latency.samples import call_of, run_of, sample_of

THREADS = 2
FAULT_S = 2e-7
FAMILIES = ("a", "b", "c", "d", "e", "f")


def facts(
    size: float,
    variant: str = "fast",
    *,
    group: str = "product",
    dtype: str = "float32",
    threads: int = THREADS,
) -> OperatorFeatures:
    """A call of 2**size multiplications on a machine that does 10 ** 10 in a second."""
    byte = size * 2 / 3
    return call_of(
        group=group,
        variant=variant,
        dtype=dtype,
        threads=threads,
        numbers=(size / 3, size / 3, size, byte, byte, byte, byte, byte, 0.0),
        eager_min_time_s=2**size / 1e10,
    )


def law_s(each: OperatorFeatures) -> float:
    return {"fast": 2 * each.eager_min_time_s + 5e-6, "slow": 3 * each.eager_min_time_s}.get(
        each.variant, 4 * each.eager_min_time_s
    )


def run(
    family: str,
    calls: list[OperatorFeatures],
    *,
    per_call_s: float = 3e-6,
    page_faults: int = 0,
    times: int = 2,
    free: int = 4,
    model: str = "",
) -> RunSample:
    """A run; each of its calls meets `faults` page faults, and so does the pass between calls."""
    operators_s = times * sum(law_s(each) + page_faults * FAULT_S for each in calls)
    count = times * len(calls) + free
    free_s = free * 1e-6
    operators = (
        sample_of(each, law_s(each) + page_faults * FAULT_S, calls=times, page_faults=page_faults)
        for each in calls
    )
    return run_of(
        operators,
        model=model or f"{family}18",
        family=family,
        end_to_end_s=operators_s + count * per_call_s + page_faults * FAULT_S,
        operators_s=operators_s + free_s,
        free_s=free_s,
        free_calls=free,
        calls=count,
        page_faults=page_faults * (times * len(calls) + 1),
    )


def runs() -> list[RunSample]:
    """Six families with 20 sizes each, of either variant; sizes of families lie between others'."""
    return [
        run(
            family,
            [
                facts(12 + step + place / len(FAMILIES), variant)
                for step in range(0, 16, 2)
                for variant in ("fast", "slow")
            ],
        )
        for place, family in enumerate(FAMILIES)
    ]


def test_sizes_that_were_never_seen() -> None:
    known = Calibration(runs())
    for size in (13.3, 17.77, 21.05, 25.9):
        for variant in ("fast", "slow"):
            asked = facts(size, variant)
            (found,) = [each for each in known.predict([asked]) if each]
            assert found.predicted_s == pytest.approx(law_s(asked), rel=0.05), (size, variant)
            assert found.low_s <= law_s(asked) <= found.high_s
            assert not found.is_extrapolated
            assert found.samples == 6 * 8
            assert found.deviation > 0
            assert found.source.startswith("calibrated: 48 samples")


def test_a_variant_that_was_never_seen_is_an_extrapolation() -> None:
    (near, unseen) = Calibration(runs()).predict([facts(20.1), facts(20.1, "other")])
    assert near is not None and unseen is not None
    assert unseen.is_extrapolated and "extrapolated" in unseen.source
    # Less sure, and between what the others take or near it.
    assert unseen.deviation > near.deviation
    eager_min_time_s = facts(20.1).eager_min_time_s
    assert eager_min_time_s < unseen.predicted_s < 6 * eager_min_time_s


def test_far_from_every_size_is_an_extrapolation() -> None:
    (near, far) = Calibration(runs()).predict([facts(27.5), facts(40.0)])
    assert near is not None and far is not None
    assert not near.is_extrapolated
    assert far.is_extrapolated
    assert far.deviation > near.deviation
    assert far.distance > 10


def test_a_group_that_was_never_seen_is_predicted_from_all_and_said_to_be() -> None:
    (found,) = [each for each in Calibration(runs()).predict([facts(20.1, group="new")]) if each]
    assert found.is_extrapolated
    eager_min_time_s = facts(20.1).eager_min_time_s
    assert eager_min_time_s < found.predicted_s < 6 * eager_min_time_s


def test_another_type_or_number_of_threads_is_not_predicted() -> None:
    known = Calibration(runs())
    asked = [facts(20.1, dtype="bfloat16"), facts(20.1, threads=1), facts(20.1)]
    first, second, third = known.predict(asked)
    assert (first, second) == (None, None)
    assert third is not None
    # Whole numbers are computed in beside any type.
    (whole,) = known.predict([facts(20.1, group="index", dtype="int64")])
    assert whole is not None and whole.is_extrapolated
    # Of floating numbers alone, even what has the same name is an extrapolation.
    (same,) = known.predict([facts(20.1, dtype="int64")])
    assert same is not None and same.is_extrapolated
    assert known.predict([facts(20.1, dtype="int64", threads=7)]) == [None]
    assert Calibration(()).predict(asked) == [None] * 3


def test_what_is_asked_twice_is_said_twice() -> None:
    known = Calibration(runs())
    one, two, again = known.predict([facts(20.1), facts(14.2, "slow"), facts(20.1)])
    assert one == again != two
    assert known.predict([]) == []


def test_without_a_family_nothing_of_it_is_known() -> None:
    all_runs = runs()
    known = Calibration(all_runs, without="c")
    assert {each.family for each in known.runs} == set(FAMILIES) - {"c"}
    kind = known.group_model("product", "float32", 2)
    assert kind is not None
    assert {each.family for each in kind.examples} == set(FAMILIES) - {"c"}
    # As if it had never been measured, to the last digit, even if its times were absurd.
    absurd = [
        replace(
            each,
            operators=tuple(replace(one, time_s=1e3) for one in each.operators),
            end_to_end_s=1e9,
        )
        if each.family == "c"
        else each
        for each in all_runs
    ]
    asked = [facts(20.1), facts(18.3, "slow")]
    other = Calibration(absurd, without="c")
    assert known.predict(asked) == other.predict(asked)
    assert known.overhead_s(THREADS, calls=9) == other.overhead_s(THREADS, calls=9)
    assert known.held_out_error == other.held_out_error


def test_held_out_runs_are_as_if_their_family_had_never_been_measured() -> None:
    all_runs = runs()
    known = Calibration(all_runs)
    assert len(known.held_out) == len(all_runs)
    for each in known.held_out:
        rest = Calibration(all_runs, without=each.run.family)
        calls = [one.facts for one in each.run.operators for _ in range(one.calls)]
        predictions = [one for one in rest.predict(calls) if one is not None]
        found = rest.predict_run(calls, predictions, calls=each.run.calls)
        # Only the mean that all values vary around is of all families.
        assert each.predicted_s == pytest.approx(found.predicted_s, rel=0.01)
        assert abs(each.error) < 0.05
    assert known.held_out_error is not None and known.held_out_error < 0.05


def test_a_run_is_the_sum_of_its_operators_and_what_runs_between_them() -> None:
    known = Calibration(runs())
    calls = [facts(19.5), facts(22.5, "slow")]
    predictions = [each for each in known.predict(calls) if each is not None]
    found = known.predict_run(calls, predictions, calls=10)
    assert found.operators_s == pytest.approx(sum(each.predicted_s for each in predictions))
    assert found.overhead_s == pytest.approx(10 * 3e-6, rel=1e-6)
    assert found.overhead_s is not None
    assert found.predicted_s == pytest.approx(found.operators_s + found.overhead_s)
    truth_s = sum(map(law_s, calls)) + 10 * 3e-6
    assert found.low_s <= truth_s <= found.high_s
    assert found.predicted_s == pytest.approx(truth_s, rel=0.05)
    assert found.calibration == "96 operators of 6 models of 6 families, measured 2026-01-01"


@settings(max_examples=25)
@given(per_call_s=st.floats(0, 1e-4))
def test_overheads_are_recovered(per_call_s: float) -> None:
    found = Calibration(
        run(
            family,
            [facts(20.0 + place), facts(24.0)][: 1 + place % 2],
            times=1 + place,
            free=2 * place,
            per_call_s=per_call_s,
        )
        for place, family in enumerate(FAMILIES)
    )
    assert found.overhead_s(THREADS, calls=100) == pytest.approx(
        100 * per_call_s, rel=1e-4, abs=1e-9
    )


def test_page_faults_of_runs_change_nothing_that_is_learned_from_them() -> None:
    """As many as double the shortest calls."""
    calls = [facts(19.5), facts(22.5, "slow")]
    quiet = Calibration(runs())
    noisy = Calibration(
        (
            run(each.family, [one.facts for one in each.operators], page_faults=1 + place)
            for place, each in enumerate(runs())
        ),
        page_fault_s={THREADS: FAULT_S},
    )
    for one, other in zip(noisy.predict(calls), quiet.predict(calls), strict=True):
        assert one is not None and other is not None
        assert one.predicted_s == pytest.approx(other.predicted_s, rel=1e-9)
    assert noisy.overhead_s(THREADS, calls=9) == pytest.approx(quiet.overhead_s(THREADS, calls=9))
    assert noisy.held_out_error == pytest.approx(quiet.held_out_error)


def test_no_overhead_is_below_0() -> None:
    """Where timing each operator costs more than what runs between them."""
    faster = [replace(each, end_to_end_s=0.8 * each.operators_s) for each in runs()]
    assert Calibration(faster).overhead_s(THREADS, calls=100) == 0.0
    assert Calibration(()).overhead_s(THREADS, calls=100) == 0.0
    # Of other numbers of threads nothing is taken.
    assert Calibration(runs()).overhead_s(1, calls=100) == 0.0


def test_of_one_family_alone_nothing_is_held_out() -> None:
    known = Calibration([run("a", [facts(12 + step / 2) for step in range(24)])])
    assert known.held_out == ()
    assert known.held_out_error is None
    assert known.interval_factor == 1.0
    (found,) = known.predict([facts(20.1)])
    assert found is not None


def test_one_sample_predicts_what_it_is() -> None:
    one = facts(20.0)
    (found,) = [each for each in Calibration([run("a", [one])]).predict([one]) if each]
    assert found.predicted_s == pytest.approx(law_s(one), rel=1e-6)
    assert found.distance == pytest.approx(0.0, abs=1e-6)


def test_a_few_calls_say_nothing_of_others() -> None:
    sizes = [12 + step / 2 for step in range(20)]
    asked = [facts(sizes[0]), facts(20.1), facts(20.1, group="new"), facts(12.0, dtype="int64")]

    def predicted(count: int) -> list[bool]:
        measured = Calibration([run("a", [facts(each) for each in sizes[:count]])])
        return [each is not None for each in measured.predict(asked)]

    # Each was measured itself, or not; from 20 calls on there is something to go by.
    assert predicted(19) == [True, False, False, False]
    assert predicted(20) == [True, True, True, True]


def test_operators_without_a_bound_are_learned_from_too() -> None:
    """Unknown or no work at all: the bound is 0, and times are some microseconds."""
    nothing = replace(facts(1.0), eager_min_time_s=0.0, numbers=(0.0,) * (2 + SHARED_FEATURES))
    samples = run("a", [facts(20.0)])
    sample = replace(samples.operators[0], facts=nothing, time_s=7e-6)
    known = Calibration([replace(samples, operators=(sample,))])
    (found,) = [each for each in known.predict([nothing]) if each]
    assert found.predicted_s == pytest.approx(7e-6, rel=0.01)


@settings(max_examples=20)
@given(
    size=st.floats(0, 60),
    variant=st.sampled_from(["fast", "slow", "none"]),
    group=st.sampled_from(["product", "never"]),
)
def test_every_prediction_is_a_time_within_its_interval(
    size: float, variant: str, group: str
) -> None:
    (found,) = Calibration(runs()).predict([facts(size, variant, group=group)])
    assert found is not None
    assert 0 < found.low_s <= found.predicted_s <= found.high_s < math.inf
    assert math.isfinite(found.deviation) and found.deviation > 0


# How fast the cores run


def at_core_state(each: RunSample, core_state: CoreState, factor: float) -> RunSample:
    """The same run on cores that run so fast, where all of it takes `factor` times as long."""
    return replace(
        each,
        end_to_end_s=each.end_to_end_s * factor,
        operators_s=each.operators_s * factor,
        free_s=each.free_s * factor,
        operators=tuple(replace(one, time_s=one.time_s * factor) for one in each.operators),
        clock_hz=core_state.clock_hz,
        core_to_core_latency_s=core_state.core_to_core_latency_s,
    )


def test_times_of_any_clock_are_those_of_one() -> None:
    """Every other family was measured on cores that had half of their clock."""
    clocks = {family: 4e9 / (1 + place % 2) for place, family in enumerate(FAMILIES)}
    known = Calibration(
        at_core_state(each, CoreState(clock_hz=clocks[each.family]), 4e9 / clocks[each.family])
        for each in runs()
    )
    assert known.core_state == CoreState(clock_hz=3e9)
    asked = facts(20.1)
    for clock_hz in (4e9, 2e9, 1e9):
        (found,) = [each for each in known.predict([asked], CoreState(clock_hz=clock_hz)) if each]
        assert found.predicted_s == pytest.approx(law_s(asked) * 4e9 / clock_hz, rel=0.05)
    (usual,) = [each for each in known.predict([asked]) if each]
    assert usual.predicted_s == pytest.approx(law_s(asked) * 4 / 3, rel=0.05)
    overhead_s = known.overhead_s(THREADS, calls=10, core_state=CoreState(clock_hz=2e9))
    assert overhead_s == pytest.approx(10 * 3e-6 * 2, rel=1e-6)
    # Each was held out at its own clock.
    assert all(abs(each.error) < 0.05 for each in known.held_out)


def test_an_interval_allows_for_any_clock_where_none_is_told() -> None:
    known = Calibration(
        at_core_state(each, CoreState(clock_hz=4e9 / (1 + place % 2)), 1.0 + place % 2)
        for place, each in enumerate(runs())
    )
    calls = [facts(19.5), facts(22.5, "slow")]
    predictions = [each for each in known.predict(calls) if each is not None]
    usual = known.predict_run(calls, predictions, calls=10)
    told = known.predict_run(calls, predictions, calls=10, core_state=known.core_state)
    assert usual.predicted_s == told.predicted_s
    # A clock that could not be read is not told.
    assert known.predict_run(calls, predictions, calls=10, core_state=CoreState()) == usual
    assert usual.high_s / usual.low_s > 2 * told.high_s / told.low_s
    least_s = sum(map(law_s, calls)) + 10 * 3e-6
    assert usual.low_s < least_s < 2 * least_s < usual.high_s


def test_the_way_from_core_to_core_is_learned() -> None:
    """Ten times as far makes every call take 1.4 times as long."""
    near, far = (
        CoreState(clock_hz=4e9, core_to_core_latency_s=25e-9),
        CoreState(clock_hz=4e9, core_to_core_latency_s=250e-9),
    )
    known = Calibration(
        [at_core_state(each, near, 1.0) for each in runs()]
        + [at_core_state(each, far, 1.4) for each in runs()]
    )
    asked = facts(20.1)
    for core_state, factor in ((near, 1.0), (far, 1.4)):
        (found,) = [each for each in known.predict([asked], core_state) if each]
        assert found.predicted_s == pytest.approx(factor * law_s(asked), rel=0.05)
        assert found.distance < 1
    # What was timed near takes as much longer far; in twice the clock half of that.
    (change,) = known.time_ratios([asked], [near], far)
    assert change == pytest.approx(1.4, rel=0.05)
    (change,) = known.time_ratios([asked], [near], replace(far, clock_hz=8e9))
    assert change == pytest.approx(0.7, rel=0.05)
    assert known.time_ratios([asked], [CoreState()], far) == [1.0]


def test_on_one_thread_it_does_not_matter_where_the_other_core_is() -> None:
    calls = [facts(20.0, threads=1), facts(22.0, threads=1)]
    known = Calibration(
        at_core_state(
            run(family, calls), CoreState(clock_hz=4e9, core_to_core_latency_s=10.0**-place), 1.0
        )
        for place, family in enumerate(FAMILIES, start=6)
    )
    kind = known.group_model("product", "float32", 1)
    assert kind is not None
    assert {each.core_to_core for each in kind.examples} == {0.0}


def test_few_calls_on_indices_leave_other_groups_of_them_predicted() -> None:
    asked = facts(12.0, dtype="int64", group="sorting")
    few = run("design", [facts(size, dtype="int64", group="indexing") for size in (11, 13)])
    for known in (runs(), [*runs(), few]):
        (found,) = Calibration(known).predict([asked])
        assert found is not None and found.is_extrapolated


def test_int8_is_never_told_from_floats() -> None:
    """Codes are no indices: what floats take says nothing of them."""
    asked = facts(12.0, dtype="int8")
    others = facts(12.0, dtype="int64", group="indexing")
    floats = runs()
    assert Calibration(floats).predict([asked]) == [None]
    assert Calibration(floats).predict([others]) != [None]
    # As few as twenty calls are something, of their own type alone.
    few = run("design", [facts(size, dtype="int8") for size in range(4, 20)])
    assert Calibration([*floats, few]).predict([facts(12.5, dtype="int8")]) == [None]
    many = run("design", [facts(size / 2, dtype="int8") for size in range(8, 48)])
    (found,) = Calibration([*floats, many]).predict([facts(12.25, dtype="int8")])
    assert found is not None
    assert found.predicted_s == pytest.approx(law_s(facts(12.25, dtype="int8")), rel=0.3)
