"""Planning, timing and judging of library calls that take the time they are told to take."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from roofline.foundation.dtypes import dtype
from roofline.machine.hierarchy.working_sets import WorkingSet
from roofline.machine.library import jobs
from roofline.machine.library.jobs import (
    Arithmetic,
    Candidate,
    Dispatch,
    Job,
    Stream,
    Timer,
    batch_seconds,
    choose,
)
from roofline.machine.library.measurement import Planner
from roofline.machine.library.results import compute_ceilings, outcomes, overheads, sample_series
from roofline.machine.measuring.estimation import Burst, interleave


@dataclass
class Host:
    """Clocks that only calls move; `share` is the part of the wall time that they have a CPU."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    share: float = 1.0

    @property
    def timer(self) -> Timer:
        return Timer(
            wall=lambda: self.wall_s,
            thread_cpu=lambda: self.cpu_s,
            team_cpu=lambda: lambda: self.cpu_s,
        )

    def call(self, seconds: float, cpus: float = 1.0) -> Callable[[], None]:
        def run() -> None:
            self.wall_s += seconds / self.share
            self.cpu_s += seconds * cpus

        return run


def candidate(host: Host, work: int, seconds: float, cpus: float = 1.0) -> Candidate:
    return Candidate(size=str(work), work=work, make=lambda: host.call(seconds, cpus))


def gemm(*candidates: Candidate, name: str = "float16") -> Arithmetic:
    return Arithmetic(kernel="gemm", dtype=dtype(name), candidates=candidates)


def chosen(host: Host, *candidates: Candidate, deadline: float = 1.0) -> Job:
    subject = gemm(*candidates)
    return choose(
        subject, subject.candidates, host.timer, threads=1, most_s=1e-3, deadline=deadline
    )


def run_jobs(host: Host, jobs: Sequence[Job], budget_s: float) -> list[list[Burst]]:
    return interleave(
        jobs,
        lambda job: job.bursts(host.timer, budget_s / len(jobs)),
        deadline=host.wall_s + budget_s,
        clock=lambda: host.wall_s,
        progress=lambda done, job: None,
    )


def test_the_fastest_size_is_taken_not_the_largest() -> None:
    host = Host()
    sizes = candidate(host, 10, 1e-5), candidate(host, 80, 4e-5), candidate(host, 640, 6.4e-4)
    assert chosen(host, *sizes).size == "80"
    assert chosen(host, *sizes).tried == 3


def test_a_size_that_would_take_too_long_is_not_even_made() -> None:
    host = Host()

    def refuse() -> Callable[[], None]:
        raise AssertionError

    large = Candidate(size="large", work=200, make=refuse)
    assert chosen(host, candidate(host, 10, 1e-4), large).size == "10"


def test_past_the_deadline_two_sizes_are_tried() -> None:
    host = Host(wall_s=5.0)
    sizes = [candidate(host, 10**i, 1e-7 * 9**i) for i in range(4)]
    assert chosen(host, *sizes, deadline=1.0).tried == 2


def test_the_first_call_plans_and_does_not_count() -> None:
    host = Host()
    seconds = iter([0.3, *[1e-4] * 10])

    def run() -> None:
        host.call(next(seconds))()

    job = chosen(host, Candidate(size="only", work=1, make=lambda: run))
    assert job.call_s == pytest.approx(1e-4)


def test_sizes_are_chosen_by_cpu_time() -> None:
    host = Host(share=0.5)
    assert chosen(host, candidate(host, 10, 1e-4)).call_s == pytest.approx(1e-4)


def test_a_slow_path_is_called_once_and_left_out() -> None:
    host = Host()
    planner = Planner(host.timer, share_s=0.05)
    slow = gemm(candidate(host, 10, 1.0), candidate(host, 20, 1.0))
    for threads in (1, 2):
        planner.add(slow, threads)
        planner.add(gemm(candidate(host, 10, 1e-4), name="float32"), threads)
    assert host.wall_s < 1.1
    assert {job.subject.label for job in planner.jobs} == {"float32 gemm"}
    (condition,) = planner.conditions()
    assert "float16 gemm" in condition
    assert "1.00 s" in condition


def test_what_torch_refuses_is_a_condition() -> None:
    host = Host()

    def refuse() -> Callable[[], None]:
        raise NotImplementedError("not implemented for 'Half'\nat some place")

    planner = Planner(host.timer, share_s=0.05)
    subject = gemm(Candidate(size="1", work=1, make=refuse))
    for threads in (1, 2):
        planner.add(subject, threads)
    assert planner.jobs == []
    assert planner.conditions() == (
        "torch cannot do float16 gemm on this CPU: not implemented for 'Half'",
    )


def test_levels_where_dispatch_dominates_are_left_out() -> None:
    host = Host()
    planner = Planner(host.timer, share_s=0.05)
    for level, seconds in (("L1", 2e-6), ("L3", 5e-5)):
        for kernel in ("copy", "add"):
            each = WorkingSet(
                level=level, threads=1, bytes_per_thread=64, capacity_bytes=None, scope="shared"
            )
            planner.add(
                Stream(
                    kernel=kernel,
                    working_set=each,
                    candidates=(candidate(host, 64, seconds),),
                    overhead_s=1e-6,
                ),
                1,
            )
    assert [job.subject.label for job in planner.jobs] == ["L3 copy", "L3 add"]
    (condition,) = planner.conditions()
    assert "L1 on 1 thread:" in condition


def test_a_team_starts_from_the_best_size_of_one_thread() -> None:
    host = Host()
    planner = Planner(host.timer, share_s=0.5)
    subject = gemm(*(candidate(host, work, 1e-8 * work**1.5) for work in (100, 200, 400)))
    planner.add(subject, 1)
    assert planner.jobs[0].size == "100"
    # Others hold up the team: 9 times as long as one thread takes alone.
    host.share = 1 / 9
    planner.add(subject, 2)
    assert planner.jobs[1].call_s == pytest.approx(1e-5)
    assert planner.jobs[1].tried == 3


def test_a_team_that_comes_late_takes_the_size_of_one_thread_untried() -> None:
    host = Host()
    planner = Planner(host.timer, share_s=0.5)
    subject = gemm(candidate(host, 10, 1e-4))
    planner.add(subject, 1)
    host.wall_s, before = 9.0, 9.0
    planner.add(subject, 2)
    assert host.wall_s == before
    assert [(job.threads, job.size) for job in planner.jobs] == [(1, "10"), (2, "10")]


def test_a_team_that_others_hold_up_is_not_left_out_for_being_slow() -> None:
    host = Host(share=0.01)
    planner = Planner(host.timer, share_s=0.05)
    planner.add(Dispatch(label="region", note="", candidates=(candidate(host, 1, 1e-3),)), 2)
    assert [job.threads for job in planner.jobs] == [2]
    assert planner.conditions() == ()


def test_short_calls_are_timed_together() -> None:
    host = Host()
    job = chosen(host, candidate(host, 7, 2e-6))
    assert job.repeats == 125
    bursts = job.bursts(host.timer, 1.0)
    assert {round(burst.wall_s, 12) for burst in bursts} == {2e-6}
    assert min(burst.busy for burst in bursts) == pytest.approx(1.0)
    assert batch_seconds(host.call(3e-7), host.timer, threads=1) == pytest.approx(3e-7)


def test_jobs_keep_to_their_budget_even_when_held_up() -> None:
    host = Host()
    jobs = [chosen(host, candidate(host, 7, 1e-3)) for _ in range(4)]
    begin = host.wall_s
    calm = run_jobs(host, jobs, budget_s=0.4)
    assert host.wall_s - begin <= 0.4
    host.share, begin = 0.25, host.wall_s
    loaded = run_jobs(host, jobs, budget_s=0.4)
    # A round gets half as much again as its share, and there are three in any case.
    assert host.wall_s - begin <= 0.5
    assert min(len(bursts) for bursts in loaded) >= 3
    assert len(calm[0]) > len(loaded[0])


def a_job(host: Host, threads: int, name: str = "float32") -> Job:
    subject = gemm(candidate(host, 1000, 1e-3), name=name)
    return Job(
        subject=subject,
        threads=threads,
        size="1000",
        work=1000,
        run=host.call(1e-3),
        call_s=1e-3,
        tried=2,
    )


def bursts(*each: tuple[float, float]) -> list[Burst]:
    return [Burst(wall_s=wall_s, cpu_s=wall_s * busy, busy=busy) for wall_s, busy in each]


def test_calls_that_lost_the_cpu_are_left_out() -> None:
    job = a_job(Host(), 1)
    found = outcomes([job], [bursts((1e-3, 1.0), (2e-3, 0.5), (2e-3, 0.5), (1e-3, 0.99))])
    (ceiling,) = compute_ceilings(found, "2")
    assert ceiling.sustained_flop_per_s == pytest.approx(1e6)
    assert ceiling.doubt == ""
    assert ceiling.provenance.note == "1000, best of 2 sizes; 4 bursts, 2 disturbed"


def test_a_competitor_on_every_core_changes_little() -> None:
    # Two of three bursts are cut in half by others, in one thread and in the team.
    loaded = bursts(*[(1.02e-3, 1.0), (2e-3, 0.5), (2.1e-3, 0.55)] * 4)
    jobs = [a_job(Host(), 1), a_job(Host(), 2)]
    for ceiling in compute_ceilings(outcomes(jobs, [loaded, loaded]), "2"):
        assert ceiling.peak_flop_per_s >= 0.9e6
        assert ceiling.sustained_flop_per_s >= 0.9e6
        assert ceiling.doubt == ""


def test_a_figure_without_an_undisturbed_call_is_doubtful() -> None:
    loaded, waiting = bursts(*[(2e-3, 0.5)] * 6), bursts(*[(9e-3, 0.2)] * 6)
    jobs = [a_job(Host(), 1), a_job(Host(), 2), a_job(Host(), 2, "float64")]
    one, team, starved = compute_ceilings(outcomes(jobs, [loaded, loaded, waiting]), "2")
    assert "every call was disturbed" in one.doubt
    assert "no call kept 2 threads busy" in team.doubt
    # Not even one of the two threads was at work all the time.
    assert "every call was disturbed" in starved.doubt


def test_a_team_that_one_competitor_holds_up_is_doubtful() -> None:
    # A thread alone moves to the free core; the team cannot.
    jobs = [a_job(Host(), 1), a_job(Host(), 2)]
    calm, held = bursts(*[(1e-3, 1.0)] * 4), bursts((1e-3, 0.7), (2e-3, 0.7), (4e-3, 0.7))
    one, team = compute_ceilings(outcomes(jobs, [calm, held]), "2")
    assert one.doubt == ""
    assert "no call kept 2 threads busy" in team.doubt


def test_a_team_slower_than_one_thread_is_doubtful_however_busy_it_seems() -> None:
    # Threads that wait for one without a CPU spin, which takes CPU time and does nothing.
    jobs = [a_job(Host(), 1), a_job(Host(), 2)]
    alone, held = bursts(*[(1e-3, 1.0)] * 4), bursts(*[(4e-3, 1.0)] * 4)
    one, team = compute_ceilings(outcomes(jobs, [alone, held]), "2")
    assert one.doubt == ""
    assert team.doubt.startswith("slower than on 1 thread: its 2 threads may not have run")


def test_calls_as_fast_as_the_others_are_not_disturbed() -> None:
    # Idle threads spin for a while: that they stop some time does not slow the call.
    jobs = [a_job(Host(), 2)]
    spun = bursts(*[(1e-3, 0.6)] * 3, *[(1e-3, 0.5)] * 9, (2e-3, 0.5))
    (found,) = outcomes(jobs, [spun])
    assert found.rate.disturbed == 1


def test_a_library_may_leave_a_thread_idle_on_a_calm_host() -> None:
    jobs = [a_job(Host(), 1), a_job(Host(), 2, "float16")]
    calm, half = bursts(*[(1e-3, 1.0)] * 4), bursts(*[(1e-3, 0.5)] * 4)
    _, team = compute_ceilings(outcomes(jobs, [calm, half]), "2")
    assert team.doubt == ""
    assert "1.0 of 2 threads busy" in team.provenance.note


def test_overheads_leave_disturbed_batches_out() -> None:
    host = Host()
    subject = Dispatch(
        label="dispatch of add", note="1 + 1", candidates=(candidate(host, 1, 1e-6),)
    )
    job = Job(
        subject=subject, threads=1, size="", work=1, run=host.call(1e-6), call_s=1e-6, tried=1
    )
    (each,) = overheads(
        outcomes([job], [bursts((1e-6, 1.0), (1.2e-6, 1.0), (1.4e-6, 1.0), (9e-6, 0.3))]), "2"
    )
    assert each.time.median_s == pytest.approx(1.2e-6)
    assert each.time.fast_s == pytest.approx(1.02e-6)  # A tenth of the way between the lowest two.
    assert "250 calls" in each.time.provenance.reference


def test_samples_are_of_whole_bursts_with_all_their_work() -> None:
    job = dataclasses.replace(a_job(Host(), 2), call_s=1e-6)
    (found,) = outcomes([job], [bursts(*[(1e-6, 0.6)] * 4, (2e-6, 0.3))])
    series = sample_series(found)
    assert (series.label, series.quantity) == ("torch float32 gemm, 2 threads", "flop")
    # 250 calls of 1000 flop.
    assert series.work == 250e3
    assert [each.wall_s for each in series.bursts] == pytest.approx([250e-6] * 4 + [500e-6])
    # Beside the threads' usual part, so that what was disturbed can be told as everywhere else.
    assert [each.is_clean for each in series.bursts] == [True] * 4 + [False]


# --- CPU time of all threads ---------------------------------------------------------------------


def test_threads_that_work_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for task in ("7", "8"):
        (tmp_path / task).mkdir()
    monkeypatch.setattr(jobs, "_TASKS", tmp_path)
    # Linux: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED below the complement of the thread's id.
    seconds = {-(7 + 1) * 8 + 6: 1.5, -(8 + 1) * 8 + 6: 2.25}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: seconds[clock])
    assert jobs.running_clock()() == 3.75


def test_without_proc_the_process_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jobs, "_TASKS", tmp_path / "none")
    assert jobs.running_clock() is time.process_time


def test_a_thread_that_ends_breaks_nothing() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    clock = jobs.running_clock()
    before = clock()
    done.set()
    thread.join()
    assert clock() > 0
    assert before > 0
