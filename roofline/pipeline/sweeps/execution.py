"""Execution of sweeps: in this process, in processes, on Dask, or in an executor."""

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
"""Maximum number of points times designs without confirmation."""

MOST_S = 120.0
"""Maximum duration in seconds without confirmation."""

_WORTH_PROCESSES_S = 10.0
"""Minimum duration in seconds that pays for starting processes."""

_START_S = 6.0
"""Assumed start time of a process in seconds."""

_PATIENCE_S = 10.0
"""Timeout of a Dask scheduler in seconds."""

_MOST_DEATHS = 2
"""Maximum crashes of workers per job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTarget:
    """Execution target of a sweep.

    ``kind`` is ``local``, ``processes``, ``dask:``, ``given``, or ``""`` (by duration); ``count``
    the number of processes; ``address`` that of a Dask scheduler.
    """

    kind: str
    count: int = 1
    address: str = ""
    executor: Executor | None = None

    @staticmethod
    def of(
        executor: str | Executor | None, jobs: int | None, *, grid: Grid | None = None
    ) -> ExecutionTarget:
        """Return the target of the arguments of `sweep`."""
        if grid and is_over_balance(grid):
            for name, each in {"executor": executor, "jobs": jobs}.items():
                if each is not None:
                    raise InputError(
                        f"{argument(name)} has no effect on a sweep over {BALANCE}; leave it out"
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
                    f"{argument('executor', executor)}: must be {LOCAL}, {PROCESSES} or"
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
                f"{argument('jobs', jobs)} has no effect with"
                f" {executor if isinstance(executor, str) else 'an executor'}; leave it out"
            )
        return found

    def resolved(self, work_s: float) -> ExecutionTarget:
        """Return the target for a duration: local if that is faster than starting processes."""
        if self.kind:
            return self
        pays = work_s > _WORTH_PROCESSES_S and self.count > 1
        return replace(self, kind=PROCESSES if pays else LOCAL)


def estimate_s(plan: Plan, target: ExecutionTarget) -> float | None:
    """Return the estimated duration in seconds; None for executors of unknown size."""
    work_s = plan.job_mean_s * plan.job_count
    resolved = target.resolved(work_s)
    return {LOCAL: work_s, PROCESSES: _START_S + work_s / resolved.count}.get(resolved.kind)


def needs_consent(plan: Plan, seconds: float | None) -> bool:
    """Return True if a sweep needs confirmation."""
    return plan.design_points > MOST_POINTS or (seconds or 0.0) > MOST_S


def workload_text(plan: Plan, target: ExecutionTarget) -> str:
    """Return the size and duration of a sweep that needs confirmation; else ``""``."""
    seconds = estimate_s(plan, target)
    if not needs_consent(plan, seconds):
        return ""
    takes = "" if seconds is None else f", {duration_text(seconds)}"
    points, designs = plan.grid.count, len(plan.names)
    return f"{points:,} points of {designs} designs, {plan.job_count:,} captures{takes}"


def duration_text(seconds: float) -> str:
    """Return a rounded duration: ``"about 4 minutes"``."""
    units = (("day", 86400), ("hour", 3600), ("minute", 60))
    unit, size = next((each for each in units if seconds >= 1.5 * each[1]), ("second", 1))
    count = seconds / size
    number = max(1, math.ceil(count) if count < 20 else round(count, -1))
    return f"about {number:.0f} {unit}{'s' * (number != 1)}"


# -- running ---------------------------------------------------------------------------------------

JobCells = tuple[Job, list[Cell]]


def run_jobs(plan: Plan, target: ExecutionTarget) -> Iterator[JobCells]:
    """Yield the cells of every job as they finish.

    Jobs of crashed workers run again one by one, to identify the job that crashes.
    """
    if target.kind == LOCAL:
        for job in plan.jobs():
            yield job, plan.context.cells(job)
        return
    try:
        packed = pickle.dumps(plan.context)
    # Pickling can raise any exception.
    except Exception as error:
        raise InputError(
            f"a design cannot be pickled ({error}); give its expression, or executor='local'"
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
            f"a worker failed ({type(error).__name__}: {error_text(error)}); workers need the same"
            " versions of roofline, torch and Python"
        ) from error


def _run_in_executor(executor: Executor, packed: bytes, plan: Plan) -> Iterator[JobCells]:
    """Run jobs in a given executor, such as that of mpi4py."""
    chunk = max(1, min(500, plan.job_count // 64))
    try:
        found = executor.map(functools.partial(work, packed), plan.jobs(), chunksize=chunk)
    except RuntimeError as error:
        raise InputError(f"the executor accepts no jobs: {error_text(error)}") from error
    try:
        yield from found
    except BrokenExecutor as error:
        raise MeasurementError(
            f"the executor is broken: a worker crashed ({error_text(error)})"
        ) from None


def _run_with_retries(packed: bytes, plan: Plan) -> Iterator[JobCells]:
    """Run jobs in joblib's current backend, and repeat those of crashed workers."""
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
                # joblib would warn of unfinished tasks after an interrupt.
                warnings.filterwarnings("ignore", message=".*tasks (which were|have been) ")
                for job, cells in found:
                    del left[job], begun[job]
                    yield job, cells
        except _deaths_of_workers() as error:
            deaths.update(begun.keys())
            (job, most), *_ = deaths.most_common(1) or [(jobs[0], _MOST_DEATHS + 1)]
            if most > _MOST_DEATHS:
                raise MeasurementError(
                    f"{plan.job_text(job)} crashes every process"
                    f" ({error_text(error) or type(error).__name__}): is there enough memory?"
                ) from None


def _deaths_of_workers() -> tuple[type[BaseException], ...]:
    """Return the exceptions of crashed workers."""
    try:
        from distributed import KilledWorker
    except ImportError:
        return (BrokenExecutor,)
    return (BrokenExecutor, CancelledError, KilledWorker)


@contextlib.contextmanager
def _joblib_backend(target: ExecutionTarget, packed: bytes) -> Generator[None]:
    """Use processes of this machine or the workers of a Dask scheduler in joblib."""
    from joblib import parallel_config

    if target.kind == PROCESSES:
        # At least two: joblib would run a single one in this process, which could crash.
        with parallel_config("loky", n_jobs=max(2, target.count)):
            yield
        return
    name = argument("executor", f"{DASK}{target.address}")
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(
            f"{name}: package distributed is missing ({error_text(error)}); install it:"
            " pip install 'roofline[dask]'"
        ) from None
    if not target.address:
        raise InputError(f"{name}: no address; write {DASK}tcp://10.0.0.1:8786")
    try:
        client: Any = Client(target.address, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"{name}: no answer of a Dask scheduler ({error_text(error)}); check the address,"
            " the scheduler and the firewall"
        ) from None
    try:
        if not client.nthreads():
            raise InputError(
                f"{name}: the scheduler has no workers; start them: dask worker {target.address}"
            )
        with parallel_config("dask", client=client, scatter=[packed]):
            yield
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=2)
