"""Jobs are handed to workers that die, forget and refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Future

import pytest

from roofline.design.sweeps.verdicts import Cell
from roofline.errors import MeasurementError, RooflineError
from roofline.pipeline.sweeps.jobs import Job
from roofline.pipeline.sweeps.sweeping import drive
from roofline.pipeline.sweeps.where import Answer

COUNT = 40


class Mortal:
    """A pool whose workers die of some jobs: always (`deadly`), or so many times (`risky`)."""

    breaks: tuple[type[BaseException], ...] = (BrokenExecutor,)
    breaks_as_one = True

    def __init__(
        self,
        *,
        width: int = 2,
        deadly: Sequence[int] = (),
        risky: dict[int, int] | None = None,
        can_mend: bool = True,
        forgets: int = 0,
        fails: Exception | None = None,
    ) -> None:
        self.width = width
        self.ran: Counter[int] = Counter()
        self.closed: list[bool] = []
        self.mended = 0
        self._deadly, self._risky = set(deadly), dict(risky or {})
        self._can_mend, self._forgets, self._fails = can_mend, forgets, fails
        self._is_broken = False

    def submit(self, jobs: Sequence[Job], *, packed: bytes | None = None) -> Future[Answer]:
        if self._is_broken:
            raise BrokenExecutor("broken before")
        future: Future[Answer] = Future()
        numbers = [each.design for each in jobs]
        if self._forgets and packed is None:
            self._forgets -= 1
            future.set_result(None)
        elif self._fails:
            future.set_exception(self._fails)
        elif self._deadly.intersection(numbers) or any(self._risky.get(n) for n in numbers):
            for each in numbers:
                self._risky[each] = max(0, self._risky.get(each, 0) - 1)
            self._is_broken = True
            future.set_exception(BrokenExecutor("a worker died"))
        else:
            self.ran.update(numbers)
            future.set_result([[Cell(flop=each)] for each in numbers])
        return future

    def mend(self) -> bool:
        self.mended += 1
        self._is_broken = not self._can_mend
        return self._can_mend

    def close(self, *, at_once: bool) -> None:
        self.closed.append(at_once)


def driven(pool: Mortal, chunk: int = 7) -> dict[int, int | None]:
    found: dict[int, int | None] = {}

    def take(jobs: Sequence[Job], cells: Sequence[Sequence[Cell]]) -> None:
        found.update((job.design, each[0].flop) for job, each in zip(jobs, cells, strict=True))

    drive(
        pool,
        (Job(design=i, values=()) for i in range(COUNT)),
        chunk=chunk,
        found=take,
        pack=lambda: b"context",
        describe=lambda job: f"design {job.design}",
    )
    return found


ALL = {i: i for i in range(COUNT)}


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_every_job_runs_once_where_nobody_dies(chunk: int) -> None:
    pool = Mortal()
    assert driven(pool, chunk) == ALL
    assert set(pool.ran.values()) == {1} and pool.closed == [False] and not pool.mended


@pytest.mark.parametrize("chunk", [1, 7, 100])
@pytest.mark.parametrize("risky", [{0: 1}, {COUNT - 1: 2}, {3: 1, 30: 1}])
def test_jobs_of_dead_workers_run_again(chunk: int, risky: dict[int, int]) -> None:
    pool = Mortal(risky=risky)
    assert driven(pool, chunk) == ALL
    assert 1 <= pool.mended <= 4 and pool.closed == [False]


@pytest.mark.parametrize("chunk", [1, 7, 100])
@pytest.mark.parametrize("deadly", [9, 17, COUNT - 1])
def test_the_job_that_ends_workers_is_named(chunk: int, deadly: int) -> None:
    pool = Mortal(deadly=[deadly])
    with pytest.raises(MeasurementError, match=f"^design {deadly} ends every process"):
        driven(pool, chunk)
    assert pool.closed == [True]


def test_a_pool_that_cannot_be_mended_ends_the_sweep() -> None:
    with pytest.raises(MeasurementError, match="the executor is broken"):
        driven(Mortal(risky={5: 1}, can_mend=False))


def test_where_no_process_did_anything_the_script_may_be_why() -> None:
    with pytest.raises(MeasurementError, match=r"before they have done any work: .* __name__"):
        driven(Mortal(deadly=range(COUNT)))
    with pytest.raises(MeasurementError) as caught:
        driven(Mortal(deadly=[17]))
    assert "__name__" not in str(caught.value)


def test_deaths_without_end_end_the_sweep() -> None:
    # Each of many jobs ends a worker once: that is no accident.
    with pytest.raises(MeasurementError, match="workers ended 7 times"):
        driven(Mortal(width=1, risky=dict.fromkeys(range(COUNT), 1)), chunk=1)


def test_the_context_is_sent_to_those_that_lack_it() -> None:
    pool = Mortal(forgets=3)
    assert driven(pool) == ALL
    assert not pool.mended


def test_workers_that_cannot_take_their_work_are_one_line() -> None:
    with pytest.raises(RooflineError, match="ModuleNotFoundError: No module named 'roofline'"):
        driven(Mortal(fails=ModuleNotFoundError("No module named 'roofline'")))
