"""The core state: its arithmetic, and the kernels that read it, run for real."""

from __future__ import annotations

import math

import pytest

from roofline.machine.core_state import CoreState, median_core_state
from roofline.machine.measuring import core_state_reader as module
from roofline.machine.measuring.core_state_reader import core_state_reader

_ATTEMPTS = 200


def test_the_same_cycles_take_longer_at_a_lower_clock() -> None:
    slow, fast = CoreState(clock_hz=3e9), CoreState(clock_hz=4.5e9)
    assert slow.slowdown(fast) == 1.5
    assert fast.slowdown(slow) == pytest.approx(2 / 3)


def test_what_is_not_known_changes_nothing() -> None:
    assert (
        CoreState().slowdown(CoreState(clock_hz=1e9))
        == CoreState(clock_hz=1e9).slowdown(CoreState())
        == 1.0
    )


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_a_pace_takes_positive_numbers(wrong: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        CoreState(clock_hz=wrong)
    with pytest.raises(ValueError, match="must be positive"):
        CoreState(core_to_core_latency_s=wrong)


def test_the_usual_pace_is_the_median_of_what_is_known() -> None:
    core_states = [
        CoreState(clock_hz=1e9),
        CoreState(clock_hz=9e9, core_to_core_latency_s=2e-7),
        CoreState(clock_hz=2e9),
        CoreState(),
    ]
    assert median_core_state(core_states) == CoreState(clock_hz=2e9, core_to_core_latency_s=2e-7)
    assert median_core_state([]) == CoreState()


class Ticking:
    """A clock that moves on by as much at every look."""

    def __init__(self, step_s: float) -> None:
        self._now_s, self._step_s = 0.0, step_s

    def __call__(self) -> float:
        self._now_s += self._step_s
        return self._now_s


def test_the_clock_is_cycles_by_seconds() -> None:
    """1,000 times 100 dependent additions, a cycle each, in 25 µs: 4 GHz."""
    with core_state_reader((0,), clock=Ticking(25e-6)) as read:
        found = read()
    assert found.clock_hz == pytest.approx(4e9)
    assert found.core_to_core_latency_s is None


def test_nothing_is_known_where_nothing_can_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compile_core_state_kernels", lambda: None)
    with core_state_reader((0, 1)) as read:
        assert read() == CoreState()


@pytest.mark.hardware
def test_this_machine_has_a_pace() -> None:
    with core_state_reader((0, 1)) as read:
        found = [read()]
        # Where others use the CPUs, the two threads are seldom on them at the same time.
        while found[-1].core_to_core_latency_s is None and len(found) < _ATTEMPTS:
            found.append(read())
    assert all(each.clock_hz is not None and 5e8 < each.clock_hz < 1e10 for each in found)
    assert (
        found[-1].core_to_core_latency_s is not None
        and 5e-9 < found[-1].core_to_core_latency_s < 5e-6
    )
