"""Where a sweep runs, about how long that takes, and when its user should be asked."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import multiprocessing
import os
import signal
import warnings
from collections.abc import Generator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from roofline.design.sweeps.verdicts import Cell
from roofline.errors import InputError, nearest, said_by
from roofline.machine.system.exclusive import end_with
from roofline.pipeline.measuring import this_host
from roofline.pipeline.sweeps.jobs import Job, receive, work
from roofline.pipeline.sweeps.planning import Plan

Answer = list[list[Cell]] | None

DASK = "dask:"
_PATIENCE_S = 10.0
"""How long a Dask scheduler may take to answer."""


class Pool(Protocol):
    """Runs jobs somewhere.

    ``width`` is how many run at the same time. ``breaks`` are the exceptions that say that a
    worker, and not the job, failed; ``breaks_as_one`` whether one death ends all that runs.
    """

    width: int
    breaks: tuple[type[BaseException], ...]
    breaks_as_one: bool

    def submit(self, jobs: Sequence[Job], *, packed: bytes | None = None) -> Future[Answer]:
        """Begins jobs; `packed` goes with them where they answered that it is missing."""
        ...

    def mend(self) -> bool:
        """Makes it work again after a break; whether it can."""
        ...

    def close(self, *, at_once: bool) -> None:
        """Ends it; at once, whatever still runs."""
        ...


class LocalProcesses:
    """Processes of this machine, started anew rather than forked: torch has threads.

    Args:
        name, packed: the context of the sweep.
        count: how many.
    """

    def __init__(self, name: str, packed: bytes, count: int) -> None:
        from concurrent.futures.process import BrokenProcessPool

        self.width = count
        self.breaks: tuple[type[BaseException], ...] = (BrokenProcessPool,)
        self.breaks_as_one = True
        self._name, self._packed = name, packed
        self._executor = self._started()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.width,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(self._name, self._packed),
        )

    def submit(self, jobs: Sequence[Job], *, packed: bytes | None = None) -> Future[Answer]:
        """Begins jobs; starts a process for them while there are fewer than wanted."""
        with _deaf_to_interrupts():
            return self._executor.submit(work, self._name, packed, jobs)

    def mend(self) -> bool:
        """Takes new processes in the place of the old ones."""
        self.close(at_once=True)
        self._executor = self._started()
        return True

    def close(self, *, at_once: bool) -> None:
        """Ends the processes."""
        # Public only from Python 3.14 on (kill_workers); gone once the pool is broken.
        processes: dict[int, Any] = getattr(self._executor, "_processes", None) or {}
        for process in list(processes.values()) if at_once else ():
            process.kill()
        self._executor.shutdown(wait=not at_once, cancel_futures=at_once)


def _begin(name: str, packed: bytes) -> None:
    """What a local process does first: it takes the context, and ends when its parent does."""
    # Before torch is imported: looking through all that it makes for garbage takes long.
    gc.set_threshold(50_000)
    parent = multiprocessing.parent_process()
    if parent is not None:
        end_with(parent.sentinel)
    receive(name, packed)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Generator[None]:
    """Processes that start here never see Ctrl-C: this one ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Given:
    """An executor of the user's: mpi4py's, threads, anything of that interface.

    The context goes with the first jobs that say that it is missing.
    """

    def __init__(self, name: str, executor: Executor) -> None:
        from concurrent.futures import BrokenExecutor

        count = getattr(executor, "_max_workers", None)
        self.width = count if isinstance(count, int) else os.cpu_count() or 1
        self.breaks: tuple[type[BaseException], ...] = (BrokenExecutor,)
        self.breaks_as_one = True
        self._name, self._executor = name, executor

    def submit(self, jobs: Sequence[Job], *, packed: bytes | None = None) -> Future[Answer]:
        """Begins jobs."""
        try:
            return self._executor.submit(work, self._name, packed, jobs)
        except RuntimeError as error:
            raise InputError(f"the executor takes no work: {said_by(error)}") from error

    def mend(self) -> bool:
        """Nobody but the user can."""
        return False

    def close(self, *, at_once: bool) -> None:
        """Leaves it to the user."""


class DaskCluster:
    """The workers of a Dask scheduler.

    Args:
        name, packed: the context of the sweep, which is sent to every worker once.
        address: where the scheduler answers, such as ``tcp://10.0.0.1:8786``.

    Raises:
        InputError: `distributed` is missing, nobody answers, or there are no workers.
    """

    def __init__(self, name: str, packed: bytes, address: str) -> None:
        try:
            from distributed import Client, KilledWorker
            from distributed.client import FutureCancelledError
        except ImportError as error:
            raise InputError(
                f"--executor {DASK}{address}: distributed is not available ({said_by(error)});"
                " install it: pip install 'roofline[dask]'"
            ) from None
        from concurrent.futures import CancelledError

        self.breaks: tuple[type[BaseException], ...] = (
            KilledWorker,
            FutureCancelledError,
            CancelledError,
        )
        self.breaks_as_one = False
        self._name = name
        if not address:
            raise InputError(
                f"--executor {DASK}: write the scheduler's address, as in {DASK}tcp://10.0.0.1:8786"
            )
        try:
            self._client: Any = Client(address, timeout=_PATIENCE_S, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(
                f"--executor {DASK}{address}: no Dask scheduler answers there"
                f" ({said_by(error)}); check the address, that `dask scheduler` runs, and that no"
                " firewall is between"
            ) from None
        self.width = sum(self._client.nthreads().values())
        if not self.width:
            self._client.close()
            raise InputError(
                f"--executor {DASK}{address}: the scheduler has no workers; start some:"
                f" dask worker {address}"
            )
        # Not as data of the cluster: that is lost with the worker that holds it. Workers that start
        # later say that the context is missing; and those that cannot take it, why, at their work.
        self._client.run(receive, name, packed, on_error="ignore")

    def submit(self, jobs: Sequence[Job], *, packed: bytes | None = None) -> Future[Answer]:
        """Begins jobs."""
        with warnings.catch_warnings():
            # That the context is large is known; it is sent so to few.
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            there = self._client.submit(work, self._name, packed, jobs, pure=False)
        here: Future[Answer] = Future()
        # The client's own executor never answers where gathering a result fails, as it may while
        # workers die.
        there.add_done_callback(functools.partial(_hand_over, here))
        return here

    def mend(self) -> bool:
        """The scheduler does: it has jobs run again, and starts workers anew."""
        return True

    def close(self, *, at_once: bool) -> None:
        """Leaves the cluster, which belongs to others, as it was."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)


def _hand_over(here: Future[Answer], there: Any) -> None:
    """Gives a result of Dask to the future that is waited for."""
    try:
        here.set_result(there.result())
    # Whatever happened there, it is said where the result is taken.
    except BaseException as error:
        here.set_exception(error)


LOCAL, PROCESSES = "local", "processes"

MOST_POINTS = 2000
"""Design-points that are worth no question."""

MOST_S = 120.0
"""Seconds that are worth none."""

_WORTH_PROCESSES_S = 10.0
"""Sweeps that take less in this process are over before others have imported torch."""

_START_S = 6.0
"""About what it takes a process to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where a sweep runs: `kind` is ``local``, ``processes``, ``dask``, ``given``, or ``""``: as
    it pays. ``count`` is how many processes; ``address`` that of a Dask scheduler."""

    kind: str
    count: int = 1
    address: str = ""
    executor: Executor | None = None

    @staticmethod
    def of(executor: str | Executor | None, jobs: int | None) -> Where:
        """What a user means.

        Raises:
            InputError: there is no such executor, or `jobs` has no effect on it.
        """
        if jobs is not None and (type(jobs) is not int or jobs < 1):
            raise InputError(f"--jobs {jobs}: takes a whole number from 1")
        count = jobs or this_host().available_cpus
        if executor is None:
            kind = "" if jobs is None else LOCAL if jobs == 1 else PROCESSES
            return Where(kind=kind, count=count)
        if not isinstance(executor, str):
            if not callable(getattr(executor, "submit", None)):
                raise InputError(
                    "executor: expected local, processes, dask:ADDRESS or a"
                    f" concurrent.futures.Executor, got {type(executor).__name__}"
                )
            found = Where(kind="given", executor=executor)
        elif executor.startswith(DASK):
            found = Where(kind="dask", address=executor.removeprefix(DASK))
        elif executor == LOCAL:
            found = Where(kind=LOCAL)
        elif executor == PROCESSES:
            return Where(kind=PROCESSES, count=count)
        else:
            known = (LOCAL, PROCESSES, DASK)
            raise InputError(
                f"--executor {executor}: there are {LOCAL}, {PROCESSES} and {DASK}ADDRESS"
                f"{nearest(executor, known)}"
            )
        if jobs is not None and not (found.kind == LOCAL and jobs == 1):
            raise InputError(
                f"--jobs {jobs} is for processes of this machine; it has no effect beside"
                f" {executor if isinstance(executor, str) else 'an executor'}"
            )
        return found

    def settled(self, work_s: float) -> Where:
        """Here, if that is sooner than starting processes; else as it is."""
        if self.kind:
            return self
        pays = work_s > _WORTH_PROCESSES_S and self.count > 1
        return replace(self, kind=PROCESSES if pays else LOCAL)


def estimate_s(plan: Plan, where: Where) -> float | None:
    """About how many seconds a sweep takes; None on executors whose width is not ours to know."""
    work_s = plan.job_mean_s * plan.job_count
    settled = where.settled(work_s)
    if settled.kind == LOCAL:
        return work_s
    if settled.kind == PROCESSES:
        return _START_S + work_s / settled.count
    return None


def needs_consent(plan: Plan, seconds: float | None) -> bool:
    """Whether a sweep is so long that its user should be asked."""
    return plan.design_points > MOST_POINTS or (seconds or 0.0) > MOST_S


def duration_text(seconds: float) -> str:
    """A duration for people, in one or two digits: ``"about 4 minutes"``."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count = seconds / size
        if count >= 1.5 or unit == "second":
            number = max(1, math.ceil(count) if count < 20 else round(count, -1))
            return f"about {number:.0f} {unit}{'s' * (number != 1)}"
    raise AssertionError("unreachable: the last unit always fits")
