"""Steps on rising numbers of ranks: what must hold whatever the model, the link and the buckets."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.analysis import Analysis, read_analysis
from roofline.scaling.memory import Peak
from roofline.scaling.ranks import Step, scaling_of
from roofline.scaling.result import Scaling
from roofline.scaling.settings import RankLink, Settings
from tests.scaling.gradients import gradient

STEP = read_analysis(Path(__file__).parent.parent / "data" / "analysis-lesson.json")
PASSES = sum(row.phase != "optimizer" for row in STEP.operators)
FORWARD = sum(row.phase == "forward" for row in STEP.operators)
NO_PEAK = Peak(activation_bytes=0, gradient_bytes=0)


def scaled(
    sizes: list[int], link: RankLink | None, *, analysis: Analysis = STEP, **settings: Any
) -> Scaling:
    """Gradients of these sizes, done evenly over the backward pass."""
    span = PASSES - FORWARD
    gradients = tuple(
        gradient(place, size, FORWARD + (place + 1) * span // len(sizes))
        for place, size in enumerate(sizes)
    )
    step = Step(analysis=analysis, gradients=gradients, accumulating=NO_PEAK)
    return scaling_of(step, Settings(**settings), link)


def measured(seconds: float) -> Analysis:
    """The step with operators that take so long each."""
    rows = tuple(
        row if row.eager_min_time_s is None else replace(row, measured_s=seconds)
        for row in STEP.operators
    )
    return replace(STEP, operators=rows)


links = st.builds(
    RankLink,
    name=st.just("any"),
    bytes_per_s=st.floats(1e5, 1e12),
    latency_s=st.floats(0, 1e-3),
    is_in_host=st.booleans(),
)
sizes_of = st.lists(st.integers(1, 2_000_000), min_size=1, max_size=12)
SLACK = 1 + 1e-9
WIRE = RankLink(name="any", bytes_per_s=1e9, latency_s=0.0)


@given(
    sizes=sizes_of,
    link=links,
    accumulate=st.integers(1, 4),
    algorithm=st.sampled_from(["ring", "tree", "halving"]),
    bucket_bytes=st.sampled_from([None, 1, 100_000]),
    seconds=st.sampled_from([None, 1e-5, 1e-3]),
)
def test_more_ranks_keep_less_of_their_time(
    sizes: list[int],
    link: RankLink,
    accumulate: int,
    algorithm: Any,
    bucket_bytes: int | None,
    seconds: float | None,
) -> None:
    told = scaled(
        sizes,
        link,
        analysis=STEP if seconds is None else measured(seconds),
        ranks=8,
        accumulate=accumulate,
        algorithm=algorithm,
        bucket_bytes=bucket_bytes,
    )
    efficiency = [each.efficiency or 0.0 for each in told.points]
    most = [each.max_efficiency or 0.0 for each in told.points]
    assert efficiency[0] == pytest.approx(1) and most[0] == pytest.approx(1)
    for rising in (efficiency, most):
        assert all(later <= earlier * SLACK for earlier, later in itertools.pairwise(rising))
    assert all(0 < each <= best * SLACK for each, best in zip(efficiency, most, strict=True))
    for each in told.points:
        assert each.step_s and each.step_low_s and each.step_high_s
        assert each.step_low_s <= each.step_s * SLACK <= each.step_high_s * SLACK**2


@given(sizes=sizes_of, link=links, accumulate=st.integers(1, 4))
def test_no_more_hides_than_the_backward_pass_has_left(
    sizes: list[int], link: RankLink, accumulate: int
) -> None:
    told = scaled(sizes, link, ranks=8, accumulate=accumulate)
    times_s = [row.eager_min_time_s or 0.0 for row in STEP.operators]
    backward_s = sum(times_s[FORWARD:PASSES])
    for each in told.points:
        assert each.timeline is not None and told.alone_s is not None
        # What is copied into buckets runs beside what is sent, too.
        beside_s = backward_s + (each.timeline.passes_end_s - each.timeline.before_s)
        beside_s -= sum(times_s[:PASSES])
        hidden_s = each.transfer_s - each.timeline.exposed_s
        assert -1e-12 <= hidden_s <= beside_s + 1e-12
        assert 0 <= each.timeline.exposed_s <= each.transfer_s * SLACK
        assert all(sent.start_s >= sent.ready_s for sent in each.timeline.sent)


@given(sizes=sizes_of, link=links)
def test_slower_computing_keeps_more_and_does_no_more(sizes: list[int], link: RankLink) -> None:
    link = replace(link, is_in_host=False)
    quick, slow = (
        scaled(sizes, link, analysis=measured(seconds), ranks=8) for seconds in (1e-5, 1e-4)
    )
    for fast, late in zip(quick.points, slow.points, strict=True):
        assert fast.efficiency is not None and late.efficiency is not None
        assert late.efficiency * SLACK >= fast.efficiency
        assert (late.samples_per_s or 0) <= (fast.samples_per_s or 0) * SLACK


def test_states_that_are_shared_out_leave_each_rank_less_to_update() -> None:
    # Operators of a millisecond each, and a link that takes no time: a rank alone has all of them,
    # one of four with equal parameters a quarter of those of the update.
    link = RankLink(name="fast", bytes_per_s=1e18, latency_s=0.0)
    told = scaled([1000] * 4, link, analysis=measured(1e-3), ranks=4, sharded=True)
    works = [row.phase for row in STEP.operators if row.eager_min_time_s is not None]
    update = works.count("optimizer")
    assert update
    assert told.alone_s == pytest.approx(len(works) * 1e-3)
    expected_s = (len(works) - 0.75 * update) * 1e-3
    # Copies of 16 kB into buckets and back are microseconds.
    assert told.point.step_s == pytest.approx(expected_s, rel=1e-2)
    assert told.point.efficiency is not None and told.point.efficiency > 1
    assert told.point.max_efficiency == pytest.approx(len(works) * 1e-3 / expected_s)


def test_flop_of_passes_are_done_as_often_as_there_are_passes() -> None:
    once, often = (
        scaled(
            [1000], RankLink(name="any", bytes_per_s=1e9, latency_s=0.0), ranks=2, accumulate=each
        )
        for each in (1, 5)
    )
    passes = sum(row.flop or 0 for row in STEP.operators[:PASSES])
    assert once.point.flop == STEP.totals.flop
    assert often.point.flop == STEP.totals.flop + 4 * passes
    assert often.alone_s and once.alone_s


def test_passes_that_are_added_up_by_hand() -> None:
    # Three passes of operators of a millisecond, one update, and two walks over 40 MB of gradients
    # that read what was there and what is new, and write the sum.
    told = scaled([10_000_000], None, analysis=measured(1e-3), ranks=1, accumulate=3)
    works = [row.phase for row in STEP.operators if row.eager_min_time_s is not None]
    update = works.count("optimizer")
    memory = STEP.hardware.memory[-1]
    rate = max(each.peak_bytes_per_s for each in memory.bandwidth if each.threads == STEP.threads)
    expected_s = (3 * (len(works) - update) + update) * 1e-3 + 2 * 3 * 40e6 / rate
    assert told.alone_s == pytest.approx(expected_s)
    assert told.point.step_s == pytest.approx(expected_s)


def test_one_rank_without_a_link_tells_of_one_rank() -> None:
    told = scaled([1000], None, ranks=1)
    assert [each.ranks for each in told.points] == [1]
    assert (told.point.transfer_s, told.point.link_bytes) == (0, 0)
    assert told.point.efficiency == pytest.approx(1)
    with pytest.raises(ValueError, match="need a link"):
        scaled([1000], None, ranks=2)


def test_a_million_ranks_are_told_at_once() -> None:
    link = RankLink(name="any", bytes_per_s=1e9, latency_s=1e-6)
    told = scaled([1000] * 200, link, ranks=2**20, sharded=True)
    assert told.points[-1].ranks == 2**20
    # Each of 200 ranks has one parameter, the others none.
    assert told.point.memory.optimizer_bytes == 8000


def test_flop_that_are_not_known_are_not_made_up() -> None:
    told = scaled([1000], WIRE, ranks=4, analysis=STEP)
    assert all(each.flop for each in told.points)
    totals = replace(STEP.totals, unknown_operators=1)
    told = scaled([1000], WIRE, ranks=4, analysis=replace(STEP, totals=totals))
    assert {each.flop for each in told.points} == {None}
    assert told.to_frame()["flop"].isna().all()
    told.plot()


def test_a_latency_that_was_not_measured_is_said() -> None:
    assert "no latency" in WIRE.words
    assert "unknown latency" in replace(WIRE, is_latency_known=False).words
