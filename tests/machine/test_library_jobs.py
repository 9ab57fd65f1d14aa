"""Planning, timing and judging of library calls that take the time they are told to take."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from roofline.core.dtypes import dtype
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


def never() -> Callable[[], None]:
    raise AssertionError


@pytest.mark.parametrize(
    ("sizes", "now_s", "size", "tried"),
    [
        # The fastest is taken, not the largest.
        ([(10, 1e-5), (80, 4e-5), (640, 6.4e-4)], 0.0, 80, 3),
        # One that would take too long is not even made.
        ([(10, 1e-4), (200, None)], 0.0, 10, 1),
        # Past the deadline two are tried.
        ([(10**i, 1e-7 * 9**i) for i in range(4)], 5.0, 10, 2),
    ],
)
def test_the_size_that_is_taken(
    sizes: list[tuple[int, float | None]], now_s: float, size: int, tried: int
) -> None:
    host = Host(wall_s=now_s)
    job = chosen(
        host,
        *(
            Candidate(size=str(work), work=work, make=never)
            if seconds is None
            else candidate(host, work, seconds)
            for work, seconds in sizes
        ),
    )
    assert (job.size, job.tried) == (str(size), tried)


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


def test_what_torch_refuses_or_does_slowly_is_called_once_and_left_out() -> None:
    host = Host()

    def refuse() -> Callable[[], None]:
        raise NotImplementedError("not implemented for 'Half'\nat some place")

    planner = Planner(host.timer, share_s=0.05)
    slow = gemm(candidate(host, 10, 1.0), candidate(host, 20, 1.0), name="float64")
    refused = gemm(Candidate(size="1", work=1, make=refuse))
    for threads in (1, 2):
        for subject in (slow, refused, gemm(candidate(host, 10, 1e-4), name="float32")):
            planner.add(subject, threads)
    assert host.wall_s < 1.1
    assert {job.subject.label for job in planner.jobs} == {"float32 gemm"}
    said, why = planner.conditions()
    assert said.startswith("no library ceiling of float16 gemm: not supported by torch")
    assert "not implemented for 'Half'" in said
    assert "float64 gemm" in why
    assert "1.00 s" in why
    # A team that others hold up is not slow.
    held = Planner(Host(share=0.01).timer, share_s=0.05)
    held.add(Dispatch(label="region", note="", candidates=(candidate(host, 1, 1e-3),)), 2)
    assert [job.threads for job in held.jobs] == [2]
    assert held.conditions() == ()


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


CALM = [(1e-3, 1.0)] * 4
LOST = "all calls disturbed"
IDLE = "no call used 2 threads"
SLOWER = "slower than on 1 thread: other processes disturbed its 2 threads"


@pytest.mark.parametrize(
    ("alone", "team", "doubts", "disturbed"),
    [
        # Calls that lost the CPU are left out.
        ([(1e-3, 1.0), (2e-3, 0.5), (2e-3, 0.5), (1e-3, 0.99)], CALM, ("", ""), (2, 0)),
        # Two of three bursts are cut in half by others, in one thread and in the team.
        (*([[(1.02e-3, 1.0), (2e-3, 0.5), (2.1e-3, 0.55)] * 4] * 2), ("", ""), (8, 8)),
        ([(2e-3, 0.5)] * 6, [(2e-3, 0.5)] * 6, (LOST, IDLE), (6, 0)),
        # Not even one of the two threads was at work all the time.
        ([(2e-3, 0.5)] * 6, [(9e-3, 0.2)] * 6, (LOST, LOST), (6, 0)),
        # A thread alone moves to the free core; the team cannot.
        (CALM, [(1e-3, 0.7), (2e-3, 0.7), (4e-3, 0.7)], ("", IDLE), (0, 0)),
        # Threads that wait for one without a CPU spin, which takes CPU time and does nothing.
        (CALM, [(4e-3, 1.0)] * 4, ("", SLOWER), (0, 0)),
        # Idle threads spin for a while: that they stop some time does not slow the call.
        (CALM, [*[(1e-3, 0.6)] * 3, *[(1e-3, 0.5)] * 9, (2e-3, 0.5)], ("", ""), (0, 1)),
    ],
)
def test_disturbed_calls_are_left_out_or_make_a_figure_doubtful(
    alone: list[tuple[float, float]],
    team: list[tuple[float, float]],
    doubts: tuple[str, str],
    disturbed: tuple[int, int],
) -> None:
    jobs = [a_job(Host(), 1), a_job(Host(), 2)]
    found = outcomes(jobs, [bursts(*alone), bursts(*team)])
    assert tuple(each.rate.disturbed for each in found) == disturbed
    for ceiling, doubt in zip(compute_ceilings(found, "2"), doubts, strict=True):
        assert doubt in ceiling.doubt
        assert bool(doubt) == bool(ceiling.doubt)
        if not doubt:
            assert 0.9e6 <= ceiling.sustained_flop_per_s <= ceiling.peak_flop_per_s <= 1.01e6


def test_notes_say_how_many_calls_were_disturbed_and_threads_busy() -> None:
    jobs = [a_job(Host(), 1), a_job(Host(), 2, "float16")]
    lost = bursts((1e-3, 1.0), (2e-3, 0.5), (2e-3, 0.5), (1e-3, 0.99))
    one, team = compute_ceilings(outcomes(jobs, [lost, bursts(*[(1e-3, 0.5)] * 4)]), "2")
    assert one.provenance.note == "1000, best of 2 sizes; 4 bursts, 2 disturbed"
    one, team = compute_ceilings(outcomes(jobs, [bursts(*CALM), bursts(*[(1e-3, 0.5)] * 4)]), "2")
    # A library may leave a thread idle on a calm host.
    assert (one.doubt, team.doubt) == ("", "")
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
    assert jobs.team_cpu_clock()() == 3.75


def test_without_proc_the_process_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jobs, "_TASKS", tmp_path / "none")
    assert jobs.team_cpu_clock() is time.process_time


def test_a_thread_that_ends_breaks_nothing() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    clock = jobs.team_cpu_clock()
    before = clock()
    done.set()
    thread.join()
    assert clock() > 0
    assert before > 0
