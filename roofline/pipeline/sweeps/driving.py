"""Hands the jobs of a sweep to a pool, a few at a time, and again where a worker died with them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from roofline.design.sweeps.cells import Cell
from roofline.errors import MeasurementError, RooflineError, said_by
from roofline.pipeline.sweeps.jobs import Job
from roofline.pipeline.sweeps.pools import Answer, Pool

_CHUNK_S = 0.4
"""About how long jobs that are sent together take: longer than sending, shorter than patience."""

_LARGEST_CHUNK = 500

_MOST_BREAKS = 6
"""More deaths of workers than that are no accident."""

_NO_START = (
    "processes end before they have done any work: a script that calls roofline.sweep needs"
    " `if __name__ == '__main__':` around it, or executor='local'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Jobs that are sent together; ``deaths`` is how often a worker died while it had them."""

    jobs: tuple[Job, ...]
    deaths: int = 0
    is_told: bool = False


Found = Callable[[Sequence[Job], Sequence[Sequence[Cell]]], None]
"""Told the cells of jobs that are done."""


def drive(
    pool: Pool,
    jobs: Iterable[Job],
    *,
    chunk: int,
    found: Found,
    pack: Callable[[], bytes],
    describe: Callable[[Job], str],
) -> None:
    """Runs all jobs in a pool.

    Jobs whose worker died run again, one by one; those that were there at two deaths run with
    nothing beside them, so that it is known who ends workers.

    Args:
        pool: where they run; it is closed in the end, at once if something fails.
        jobs: what is run.
        chunk: how many jobs go together.
        found: told what jobs gave.
        pack: the context, for workers that lack it.
        describe: a job in words.

    Raises:
        MeasurementError: a job that ends every worker that takes it, or workers that end too often.
    """
    done = False
    try:
        _Driver(pool, jobs, chunk, found, pack, describe).run()
        done = True
    finally:
        pool.close(at_once=not done)


def chunk_for(job_s: float, count: int, width: int) -> int:
    """How many jobs go together, so that the last ones do not keep one worker from going home."""
    by_time = int(_CHUNK_S / job_s) if job_s > 0 else _LARGEST_CHUNK
    return max(1, min(by_time, -(-count // (4 * width)), _LARGEST_CHUNK))


class _Driver:
    def __init__(
        self,
        pool: Pool,
        jobs: Iterable[Job],
        chunk: int,
        found: Found,
        pack: Callable[[], bytes],
        describe: Callable[[Job], str],
    ) -> None:
        self._pool, self._found, self._pack, self._describe = pool, found, pack, describe
        self._fresh: Iterator[_Chunk] = (_Chunk(jobs=each) for each in _batched(jobs, chunk))
        self._again: deque[_Chunk] = deque()
        self._running: dict[Future[Answer], _Chunk] = {}
        self._breaks = 0
        self._succeeded = False

    def run(self) -> None:
        """Until nothing is left."""
        while True:
            self._fill()
            if not self._running:
                return
            finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
            broken = [each for each in finished if not self._take(each)]
            if broken:
                self._mend()

    def _fill(self) -> None:
        """Sends chunks until every worker has one, and one waits for it."""
        while len(self._running) < 2 * self._pool.width:
            if any(each.deaths > 1 for each in self._running.values()):
                return
            if self._again and self._again[0].deaths > 1 and self._running:
                return
            chunk = self._again.popleft() if self._again else next(self._fresh, None)
            if chunk is None:
                return
            packed = self._pack() if chunk.is_told else None
            try:
                self._running[self._pool.submit(chunk.jobs, packed=packed)] = chunk
            except self._pool.breaks:
                # It broke between two chunks: this one is not to blame.
                self._again.appendleft(chunk)
                self._mend()

    def _take(self, future: Future[Answer]) -> bool:
        """Takes a result; whether there was one, and no worker died."""
        chunk = self._running.pop(future)
        try:
            answer = future.result()
        except self._pool.breaks as error:
            self._lose(chunk, error)
            return False
        except RooflineError:
            raise
        except Exception as error:
            raise RooflineError(
                f"a worker cannot take its work ({type(error).__name__}: {said_by(error)}); it"
                " takes the same versions of roofline, torch and Python as here"
            ) from error
        if answer is None:
            self._again.append(_Chunk(jobs=chunk.jobs, deaths=chunk.deaths, is_told=True))
            return True
        self._succeeded = True
        self._found(chunk.jobs, answer)
        return True

    def _lose(self, chunk: _Chunk, error: BaseException) -> None:
        if chunk.deaths > 1 and len(chunk.jobs) == 1:
            who = self._describe(chunk.jobs[0])
            if not self._succeeded:
                raise MeasurementError(f"{_NO_START}; or {who} ends them") from None
            raise MeasurementError(
                f"{who} ends every process that captures it"
                f" ({said_by(error) or type(error).__name__}): is there memory enough for it?"
            ) from None
        self._again.extend(
            _Chunk(jobs=(job,), deaths=chunk.deaths + 1, is_told=chunk.is_told)
            for job in chunk.jobs
        )

    def _mend(self) -> None:
        """Makes the pool work again, after what else ran in it was taken or lost."""
        self._breaks += 1
        if self._pool.breaks_as_one:
            for future in wait(list(self._running)).done:
                self._take(future)
        if self._breaks > _MOST_BREAKS:
            if not self._succeeded:
                raise MeasurementError(_NO_START)
            raise MeasurementError(
                f"workers ended {self._breaks} times before they had done their work"
            )
        if not self._pool.mend():
            raise MeasurementError("the executor is broken: a worker of it died")


def _batched(jobs: Iterable[Job], size: int) -> Iterator[tuple[Job, ...]]:
    iterator = iter(jobs)
    while batch := tuple(itertools.islice(iterator, size)):
        yield batch
