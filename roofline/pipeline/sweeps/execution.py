"""Where a sweep runs, about how long that takes, and when its user should be asked."""

from __future__ import annotations

import contextlib
import functools
import math
import pickle
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from dataclasses import dataclass, replace
from typing import Any

from roofline.design.comparison.axes import BALANCE, Grid
from roofline.design.comparison.cells import Cell
from roofline.errors import (
    InputError,
    MeasurementError,
    RooflineError,
    argument,
    did_you_mean,
    error_text,
)
from roofline.pipeline.measuring import this_host
from roofline.pipeline.sweeps.jobs import Job, work
from roofline.pipeline.sweeps.planning import Plan, is_over_balance

LOCAL, PROCESSES, DASK = "local", "processes", "dask:"

MOST_POINTS = 2000
"""Design-points that are worth no question."""

MOST_S = 120.0
"""Seconds that are worth none."""

_WORTH_PROCESSES_S = 10.0
"""Sweeps that take less in this process are over before others have imported torch."""

_START_S = 6.0
"""About what it takes a process to start."""

_PATIENCE_S = 10.0
"""How long a Dask scheduler may take to answer."""

_MOST_DEATHS = 2
"""More deaths of workers over one job are no accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTarget:
    """Where a sweep runs: `kind` is ``local``, ``processes``, ``dask:``, ``given``, or ``""``: as
    it pays. ``count`` is how many processes; ``address`` that of a Dask scheduler."""

    kind: str
    count: int = 1
    address: str = ""
    executor: Executor | None = None

    @staticmethod
    def of(
        executor: str | Executor | None, jobs: int | None, *, grid: Grid | None = None
    ) -> ExecutionTarget:
        """What a user means for a sweep over a grid."""
        if grid and is_over_balance(grid):
            for name, each in {"executor": executor, "jobs": jobs}.items():
                if each is not None:
                    raise InputError(
                        f"{argument(name)} has no effect on a sweep over {BALANCE}: it is short"
                    )
        if jobs is not None and (type(jobs) is not int or jobs < 1):
            raise InputError(f"{argument('jobs', jobs)}: must be a whole number from 1")
        count = jobs or this_host().available_cpus
        match executor:
            case None:
                kind = "" if jobs is None else LOCAL if jobs == 1 else PROCESSES
                return ExecutionTarget(kind=kind, count=count)
            case "processes":
                return ExecutionTarget(kind=PROCESSES, count=count)
            case "local":
                found = ExecutionTarget(kind=LOCAL)
            case str() if executor.startswith(DASK):
                found = ExecutionTarget(kind=DASK, address=executor.removeprefix(DASK))
            case str():
                raise InputError(
                    f"{argument('executor', executor)}: there are {LOCAL}, {PROCESSES} and"
                    f" {DASK}ADDRESS"
                    f"{did_you_mean(executor, (LOCAL, PROCESSES, DASK))}"
                )
            case _ if callable(getattr(executor, "submit", None)):
                found = ExecutionTarget(kind="given", executor=executor)
            case _:
                raise InputError(
                    f"executor: expected {LOCAL}, {PROCESSES}, {DASK}ADDRESS or a"
                    f" concurrent.futures.Executor, got {type(executor).__name__}"
                )
        if jobs is not None and not (found.kind == LOCAL and jobs == 1):
            raise InputError(
                f"{argument('jobs', jobs)} is for processes of this machine; it has no effect"
                f" beside {executor if isinstance(executor, str) else 'an executor'}"
            )
        return found

    def resolved(self, work_s: float) -> ExecutionTarget:
        """Here, if that is sooner than starting processes; else as it is."""
        if self.kind:
            return self
        pays = work_s > _WORTH_PROCESSES_S and self.count > 1
        return replace(self, kind=PROCESSES if pays else LOCAL)


def estimate_s(plan: Plan, target: ExecutionTarget) -> float | None:
    """About how many seconds a sweep takes; None on executors whose width is not ours to know."""
    work_s = plan.job_mean_s * plan.job_count
    resolved = target.resolved(work_s)
    return {LOCAL: work_s, PROCESSES: _START_S + work_s / resolved.count}.get(resolved.kind)


def needs_consent(plan: Plan, seconds: float | None) -> bool:
    """Whether a sweep is so long that its user should be asked."""
    return plan.design_points > MOST_POINTS or (seconds or 0.0) > MOST_S


def workload_text(plan: Plan, target: ExecutionTarget) -> str:
    """How much a sweep is whose user should be asked, and about how long; ``""`` of others."""
    seconds = estimate_s(plan, target)
    if not needs_consent(plan, seconds):
        return ""
    takes = "" if seconds is None else f", and takes {duration_text(seconds)}"
    points, designs = plan.grid.count, len(plan.names)
    return f"{points:,} points of {designs} designs, {plan.job_count:,} captures{takes}"


def duration_text(seconds: float) -> str:
    """A duration for people, in one or two digits: ``"about 4 minutes"``."""
    units = (("day", 86400), ("hour", 3600), ("minute", 60))
    unit, size = next((each for each in units if seconds >= 1.5 * each[1]), ("second", 1))
    count = seconds / size
    number = max(1, math.ceil(count) if count < 20 else round(count, -1))
    return f"about {number:.0f} {unit}{'s' * (number != 1)}"


# -- running ---------------------------------------------------------------------------------------

JobCells = tuple[Job, list[Cell]]


def run_jobs(plan: Plan, target: ExecutionTarget) -> Iterator[JobCells]:
    """The cells of every job of a plan, as they are done.

    Jobs whose worker died run again, one by one, so that it is known who ends workers.
    """
    if target.kind == LOCAL:
        for job in plan.jobs():
            yield job, plan.context.cells(job)
        return
    try:
        packed = pickle.dumps(plan.context)
    # Modules may hold anything, and say in any way that it cannot be pickled.
    except Exception as error:
        raise InputError(
            f"a design cannot be sent to other processes ({error}); give its text, or"
            " executor='local'"
        ) from error
    try:
        if target.executor is not None:
            yield from _run_in_executor(target.executor, packed, plan)
        else:
            with _joblib_backend(target, packed):
                yield from _run_with_retries(packed, plan)
    except RooflineError:
        raise
    except Exception as error:
        raise RooflineError(
            f"a worker cannot take its work ({type(error).__name__}: {error_text(error)}); it takes"
            " the same versions of roofline, torch and Python as here"
        ) from error


def _run_in_executor(executor: Executor, packed: bytes, plan: Plan) -> Iterator[JobCells]:
    """Runs jobs in an executor of the user's: mpi4py's, threads, anything of that interface."""
    chunk = max(1, min(500, plan.job_count // 64))
    try:
        found = executor.map(functools.partial(work, packed), plan.jobs(), chunksize=chunk)
    except RuntimeError as error:
        raise InputError(f"the executor takes no work: {error_text(error)}") from error
    try:
        yield from found
    except BrokenExecutor as error:
        raise MeasurementError(
            f"the executor is broken: a worker of it died ({error_text(error)})"
        ) from None


def _run_with_retries(packed: bytes, plan: Plan) -> Iterator[JobCells]:
    """Runs jobs in joblib's current backend, again where workers died."""
    from joblib import Parallel, delayed

    task = delayed(functools.partial(work, packed))
    begun: dict[Job, None] = {}
    deaths: Counter[Job] = Counter()

    def handed(jobs: Iterable[Job]) -> Iterator[Any]:
        for job in jobs:
            begun[job] = None
            yield task(job)

    left = dict.fromkeys(plan.jobs())
    while left:
        jobs = [job for job in left if deaths[job]][:1] or list(left)
        begun.clear()
        try:
            found: Any = Parallel(return_as="generator_unordered")(handed(jobs))
            with warnings.catch_warnings(), contextlib.closing(found):
                # An interrupt leaves tasks undone, as joblib would say.
                warnings.filterwarnings("ignore", message=".*tasks (which were|have been) ")
                for job, cells in found:
                    del left[job], begun[job]
                    yield job, cells
        except _deaths_of_workers() as error:
            deaths.update(begun.keys())
            (job, most), *_ = deaths.most_common(1) or [(jobs[0], _MOST_DEATHS + 1)]
            if most > _MOST_DEATHS:
                raise MeasurementError(
                    f"{plan.job_text(job)} ends every process that captures it"
                    f" ({error_text(error) or type(error).__name__}): is there enough memory?"
                ) from None


def _deaths_of_workers() -> tuple[type[BaseException], ...]:
    """The exceptions that say that a worker, and not its job, failed."""
    try:
        from distributed import KilledWorker
    except ImportError:
        return (BrokenExecutor,)
    return (BrokenExecutor, CancelledError, KilledWorker)


@contextlib.contextmanager
def _joblib_backend(target: ExecutionTarget, packed: bytes) -> Generator[None]:
    """Within it joblib runs in processes of this machine, or on the workers of a Dask scheduler."""
    from joblib import parallel_config

    if target.kind == PROCESSES:
        # Not fewer than two: joblib would run a single one in this process, which it may end.
        with parallel_config("loky", n_jobs=max(2, target.count)):
            yield
        return
    name = argument("executor", f"{DASK}{target.address}")
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(
            f"{name}: distributed is not available ({error_text(error)}); install it:"
            " pip install 'roofline[dask]'"
        ) from None
    if not target.address:
        raise InputError(f"{name}: write the scheduler's address, as in {DASK}tcp://10.0.0.1:8786")
    try:
        client: Any = Client(target.address, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"{name}: no Dask scheduler answers there ({error_text(error)}); check the address,"
            " that `dask scheduler` runs, and that no firewall is between"
        ) from None
    try:
        if not client.nthreads():
            raise InputError(
                f"{name}: the scheduler has no workers; start some: dask worker {target.address}"
            )
        with parallel_config("dask", client=client, scatter=[packed]):
            yield
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=2)
