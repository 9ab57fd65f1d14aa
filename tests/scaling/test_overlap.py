"""Timelines against small steps of time, and some worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.scaling.buckets import Timeline, Work, timeline, work_of


def in_small_steps(work: Work, sending: list[float], taken: float, step: float) -> float:
    """When the step is over, found by going through time in steps."""
    now = done = 0.0
    waiting = list(zip(work.ready_s, sending, strict=True))
    left = 0.0
    is_sending = False
    while done < work.passes_s or waiting or is_sending:
        if not is_sending and waiting and done >= waiting[0][0] - 1e-12:
            left = waiting.pop(0)[1]
            is_sending = left > 0
        done = min(work.passes_s, done + step * (1 - taken if is_sending else 1))
        now += step
        if is_sending:
            left -= step
            is_sending = left > step / 2
    return now + work.update_s


@given(
    passes=st.integers(1, 60),
    ready=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    sending=st.lists(st.integers(0, 40), min_size=5, max_size=5),
    taken=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
)
def test_a_step_takes_what_time_going_by_takes(
    passes: int, ready: list[int], sending: list[int], taken: float
) -> None:
    moments = tuple(float(min(each, passes)) for each in sorted(ready))
    work = Work(passes_s=float(passes), update_s=3.0, ready_s=moments)
    chosen = [float(each) for each in sending[: len(moments)]]
    told = timeline(work, chosen, taken=taken)
    step = 1 / 32
    waits = 2 * step * (2 + len(chosen))
    slack = waits / (1 - taken) if taken < 1 else waits
    assert told.step_s == pytest.approx(in_small_steps(work, chosen, taken, step), abs=slack)


def by_hand(taken: float) -> Timeline:
    # Forward 10, backward 20 (buckets done at 15 and 30), update 5; each bucket is 12 on its way.
    work = Work(passes_s=30.0, update_s=5.0, ready_s=(15.0, 30.0))
    return timeline(work, [12.0, 12.0], taken=taken)


def test_beside_the_backward_pass_by_hand() -> None:
    told = by_hand(0.0)
    assert [(each.start_s, each.end_s) for each in told.sent] == [(15.0, 27.0), (30.0, 42.0)]
    assert (told.passes_end_s, told.exposed_s, told.step_s) == (30.0, 12.0, 47.0)


def test_where_sending_takes_all_of_computing_by_hand() -> None:
    told = by_hand(1.0)
    assert [(each.start_s, each.end_s) for each in told.sent] == [(15.0, 27.0), (42.0, 54.0)]
    assert (told.passes_end_s, told.exposed_s, told.step_s) == (42.0, 12.0, 59.0)


def test_where_it_takes_half_by_hand() -> None:
    # From 15 to 27 six are computed, then nine more until 36.
    told = by_hand(0.5)
    assert told.passes_end_s == 36.0
    assert [(each.start_s, each.end_s) for each in told.sent] == [(15.0, 27.0), (36.0, 48.0)]
    assert told.step_s == 53.0


def test_a_bucket_waits_for_the_one_before() -> None:
    work = Work(passes_s=10.0, update_s=0.0, ready_s=(1.0, 2.0, 3.0))
    told = timeline(work, [5.0, 5.0, 5.0], before_s=100.0)
    assert [(each.ready_s, each.start_s, each.end_s) for each in told.sent] == [
        (101.0, 101.0, 106.0),
        (102.0, 106.0, 111.0),
        (103.0, 111.0, 116.0),
    ]
    assert (told.exposed_s, told.step_s) == (6.0, 116.0)


@given(
    times=st.lists(st.floats(0, 10), min_size=1, max_size=20),
    sending=st.floats(0, 100),
    taken=st.floats(0, 1),
)
def test_more_sending_or_more_taken_is_never_faster(
    times: list[float], sending: float, taken: float
) -> None:
    work = work_of(times, passes=len(times), after=[len(times) // 2, len(times)])
    told = timeline(work, [sending, sending], taken=taken)
    assert told.step_s >= max(work.passes_s, 2 * sending) - 1e-9
    assert told.step_s <= work.passes_s + 2 * sending + 1e-6
    assert timeline(work, [sending, 2 * sending], taken=taken).step_s >= told.step_s - 1e-9
    assert timeline(work, [sending, sending], taken=1.0).step_s >= told.step_s - 1e-6


def test_times_of_operators_make_the_work() -> None:
    work = work_of([1.0, 2.0, 3.0, 4.0], passes=3, after=[2, 3])
    assert (work.passes_s, work.update_s, work.ready_s) == (6.0, 4.0, (3.0, 6.0))
