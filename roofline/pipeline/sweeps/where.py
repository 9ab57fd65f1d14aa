"""Where a sweep runs, about how long that takes, and when its user should be asked."""

from __future__ import annotations

import math
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from roofline.errors import InputError, nearest
from roofline.pipeline.hosts import this_host
from roofline.pipeline.sweeps.planning import Plan
from roofline.pipeline.sweeps.pools import DASK

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
