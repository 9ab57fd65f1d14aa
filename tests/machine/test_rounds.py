"""Rounds and stretches over trials of a fake machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from roofline.core.progress import silent
from roofline.machine.kernels.compute import compute_kernels
from roofline.machine.measuring.pinned_threads import PinnedThreads
from roofline.machine.measuring.rounds import (
    Candidate,
    Rounds,
    Runner,
    run_continuously,
    run_rounds,
)
from roofline.machine.measuring.selection import calibrate, compile_variants, compute_candidates
from roofline.machine.measuring.trials import Trial
from tests.machine.fake_machine import FakeMachine, measure

SETS = ("avx", "avx2", "fma")
KERNELS = [k for k in compute_kernels("x86_64", SETS) if (k.unit.name, k.name) == ("avx2", "fma")]


def candidates(workers: PinnedThreads, teams: Sequence[int] = (1, 2)) -> list[Candidate[Trial]]:
    forms, _ = compile_variants(KERNELS, True, lambda what: None)
    found = compute_candidates(forms, teams)
    calibrate(found, workers, lambda what: None)
    return found


def runner(machine: FakeMachine, workers: PinnedThreads, **options: Any) -> Runner[Trial]:
    options = {"report": silent, "found": silent, **options}
    return Runner(run=lambda trial, n: trial.run(workers, n), clock=machine.clock, **options)


def run(
    machine: FakeMachine,
    workers: PinnedThreads,
    what: list[Candidate[Trial]],
    *,
    deadline: float | None = None,
    **options: Any,
) -> Rounds[Trial]:
    end = machine.clock() + 1.0 if deadline is None else deadline
    return run_rounds(what, runner(machine, workers, **options), deadline=end)


def test_every_candidate_has_its_figure_in_order(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    what = candidates(workers)
    rounds = run(machine, workers, what)
    assert [each.rate.sustained for each in rounds.rates] == pytest.approx(
        [48e9, 96e9, 96e9, 192e9], rel=1e-3
    )
    assert [each.trial in what[i].trials for i, each in enumerate(rounds.rates)] == [True] * 4
    assert rounds.conditions == ()
    assert [each.label for each in rounds.series] == [
        trial.label for each in what for trial in each.trials
    ]


def test_rounds_end_with_the_deadline(machine: FakeMachine, workers: PinnedThreads) -> None:
    what = candidates(workers)
    begin = machine.clock()
    rounds = run(machine, workers, what, deadline=begin + 1.0)
    assert 0.8 < machine.clock() - begin <= 1.0
    counts = {len(each.bursts) for each in rounds.series}
    assert max(counts) - min(counts) <= 0.2 * max(counts), "all have their turn as often"


def test_past_the_deadline_there_are_three_rounds_yet(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    rounds = run(machine, workers, candidates(workers), deadline=machine.clock() - 5.0)
    assert all(len(each.bursts) == 3 * 4 for each in rounds.series)


def test_what_never_finished_a_burst_is_left_out_and_said(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    what = candidates(workers)
    machine.never_together = {"fma float64 avx2", "fma float64 avx2, second variant"}
    rounds = run(machine, workers, what)
    assert len(rounds.rates) == 3
    assert rounds.conditions == ("not measured, no finished burst: fma float64 avx2, 2 threads",)
    assert all(each.bursts for each in rounds.series)
    assert {each.label for each in rounds.series} == {
        trial.label for each in what for trial in each.trials
    } - {"fma float64 avx2, 2 threads", "fma float64 avx2, second variant, 2 threads"}


def test_one_form_without_a_burst_leaves_the_other(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    what = candidates(workers)
    machine.never_together = {"fma float64 avx2"}
    rounds = run(machine, workers, what)
    assert rounds.conditions == ()
    assert rounds.rates[1].trial is what[1].trials[1]
    assert rounds.rates[1].other is None


# --- CPUs that the host moves --------------------------------------------------------------------


def test_while_the_host_moves_its_cpus_what_is_sustained_is_that_of_most_rounds(
    machine: FakeMachine,
) -> None:
    """Towards the end cores are three times as far apart, and DRAM on both half as fast."""
    begin = machine.clock()

    def apart(now_s: float) -> bool:
        return now_s > begin + 0.6 * 6.0

    def slowness(kernel: Any, now_s: float) -> float:
        if kernel.label == "core-to-core":
            return 3.0 if apart(now_s) else 1.0
        return 2.0 if apart(now_s) and kernel.label.startswith("read") else 1.0

    machine.slowness = slowness
    profile, _ = measure(machine, budget_s=6.0)
    moved = [each for each in profile.conditions if each.startswith("the host moved its CPUs")]
    assert len(moved) == 1
    assert "close" in moved[0].partition("in the others")[0]
    dram = next(level for level in profile.memory if level.name == "DRAM")
    read = next(b for b in dram.bandwidth if (b.kernel, b.threads) == ("read", 2))
    assert read.sustained_bytes_per_s == pytest.approx(20e9, rel=1e-3)
    assert read.spread == pytest.approx(0, abs=1e-3)
    (hop,) = (each for each in profile.overheads if each.threads == 2)
    assert hop.time.median_s == pytest.approx(machine.core_to_core_latency_s, rel=1e-3)


def test_threads_that_never_meet_for_a_hop_tell_nothing_of_where_they_are(
    machine: FakeMachine,
) -> None:
    machine.never_together = {"core-to-core"}
    profile, _ = measure(machine)
    assert profile.overheads == ()
    assert profile.conditions == ()
    assert {c.threads for c in profile.compute} == {1, 2}


# --- stretches -----------------------------------------------------------------------------------


def stretch(machine: FakeMachine, workers: PinnedThreads, rounds: Rounds[Trial]) -> Rounds[Trial]:
    return run_continuously(rounds.rates, runner(machine, workers), continuous_s=1.0)


def test_a_stretch_lasts_as_long_as_asked(machine: FakeMachine, workers: PinnedThreads) -> None:
    rounds = run(machine, workers, candidates(workers))
    begin = machine.clock()
    warm = stretch(machine, workers, rounds)
    assert 4.0 <= machine.clock() - begin < 4.3
    assert warm.conditions == ()
    assert [each.label for each in warm.series] == [
        f"{each.trial.label}, continuous" for each in rounds.rates
    ]
    for before, after in zip(rounds.rates, warm.rates, strict=True):
        assert after.rate.sustained == pytest.approx(before.rate.sustained, rel=1e-3)
        assert after.rate.bursts > before.rate.bursts
        assert after.other == before.other


def test_what_heat_takes_is_sustained_and_the_peak_stays(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    rounds = run(machine, workers, candidates(workers, (1,)))
    machine.slowness = lambda kernel, now_s: 1.25 if "float32" in kernel.label else 1.02
    warm = stretch(machine, workers, rounds)
    (heat,) = warm.conditions
    assert heat == ("heat: slower in continuous runs of 1 s: fma float32 avx2, 1 thread by 20.0 %")
    double, single = warm.rates
    assert (single.rate.peak, single.rate.sustained) == pytest.approx((96e9, 76.8e9), rel=1e-3)
    assert double.rate.sustained == pytest.approx(48e9 / 1.02, rel=1e-3)


def test_a_peak_that_comes_with_the_stretch_counts(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    rounds = run(machine, workers, candidates(workers, (1,)))
    machine.slowness = lambda kernel, now_s: 0.8
    warm = stretch(machine, workers, rounds)
    assert warm.conditions == ()
    assert warm.rates[1].rate.peak == pytest.approx(120e9, rel=1e-3)
