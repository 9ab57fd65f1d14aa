"""What the bursts say about themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from roofline.machine.measuring.ceilings import kernel_conditions, page_conditions
from roofline.machine.measuring.estimation import Estimate
from roofline.machine.measuring.rounds import Reached


def rate(*, disturbed: int = 0, spread: float = 0.01, only_disturbed: bool = False) -> Estimate:
    return Estimate(
        peak=1,
        sustained=1,
        spread=spread,
        bursts=1000,
        disturbed=disturbed,
        only_disturbed=only_disturbed,
    )


def reached(found: Estimate, *, place: str = "x", page_faults: int = 0, **more: Any) -> Reached:
    trial: Any = SimpleNamespace(page_faults=page_faults, label=f"fma {place}", place=place)
    return Reached(trial=trial, rate=found, **more)


def test_a_few_disturbed_bursts_are_no_line() -> None:
    assert kernel_conditions([]) == []
    assert kernel_conditions([reached(rate(disturbed=10))]) == []
    (said,) = kernel_conditions([reached(rate(disturbed=11))])
    assert said.startswith("contention: in 11 of 1000 bursts a thread had its CPU for less than 95")


def test_the_bursts_of_both_forms_count() -> None:
    both = reached(rate(disturbed=10), other=rate(disturbed=30))
    (said,) = kernel_conditions([both])
    assert "in 40 of 2000 bursts" in said


def test_what_was_always_disturbed_is_named() -> None:
    bad = rate(disturbed=1000, only_disturbed=True)
    _, hopeless = kernel_conditions([reached(bad, place="L1"), reached(bad, place="L2")])
    assert hopeless == (
        "too low, because every burst was disturbed: fma L1, fma L2; stop what else runs and"
        " measure again"
    )


def test_page_faults_are_counted() -> None:
    assert kernel_conditions([reached(rate(), page_faults=10)]) == []
    assert kernel_conditions([reached(rate(), page_faults=50)]) == [
        "page faults: 50 happened inside timed calls"
    ]


def test_places_with_fast_and_slow_phases_are_named_once() -> None:
    found = [
        reached(rate(spread=0.7), place="DRAM on 2 threads"),
        reached(rate(spread=0.3), place="DRAM on 2 threads"),
        reached(rate(spread=0.2), place="L1 on 1 thread"),
    ]
    (said,) = kernel_conditions(found)
    assert said.startswith("unsteady: bursts of DRAM on 2 threads differ by more than 25 %")


def test_small_pages_are_told() -> None:
    assert page_conditions(100 << 20, None) == []
    assert page_conditions(100 << 20, 50 << 20) == []
    (said,) = page_conditions(100 << 20, 4 << 20)
    assert said.startswith("small pages: 4 MiB of 100 MiB are in huge pages")
