"""sweep: designs at every point of a grid of sizes and options, captured and predicted."""

from __future__ import annotations

import itertools
import pickle
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from roofline.design.sweeps.axes import grid_of
from roofline.design.sweeps.result import SweepResult
from roofline.design.sweeps.verdicts import Cell
from roofline.errors import InputError, MeasurementError, RooflineError, said_by
from roofline.foundation.progress import Progress
from roofline.latency.calibrated import no_calibration
from roofline.pipeline.machines import Hardware
from roofline.pipeline.sweeps.jobs import Job, forget, keep, notes_on_inputs, one_thread
from roofline.pipeline.sweeps.planning import Plan, plan_of, probed
from roofline.pipeline.sweeps.where import (
    LOCAL,
    PROCESSES,
    Answer,
    DaskCluster,
    Given,
    LocalProcesses,
    Pool,
    Where,
)
from roofline.placement import classic_model_note, other_device_note
from roofline.run import RunOptions

if TYPE_CHECKING:
    import torch


_CHUNK_S = 0.4
"""About how long jobs that are sent together take: longer than sending, shorter than patience."""

_LARGEST_CHUNK = 500

_MOST_BREAKS = 6
"""More deaths of workers than that are no accident."""

_NO_START = (
    "processes end before they have done any work: a script that calls roofline.sweep needs"
    " `if __name__ == '__main__':` around it, or executor='local'"
)


@dataclass(frozen=True, slots=True)
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
        pack: the context, for workers that lack it.
        describe: names a job in an error.

    Raises:
        MeasurementError: a job that ends every worker that takes it, or workers that end too often.
    """
    left = iter(jobs)
    fresh = iter(lambda: tuple(itertools.islice(left, chunk)), ())
    driver = _Driver(pool, map(_Chunk, fresh), found, pack, describe)
    done = False
    try:
        driver.fill()
        while driver.running:
            finished, _ = wait(driver.running, return_when=FIRST_COMPLETED)
            broken = [each for each in finished if not driver.take(each)]
            if broken:
                driver.mend()
            driver.fill()
        done = True
    finally:
        pool.close(at_once=not done)


def chunk_for(job_s: float, count: int, width: int) -> int:
    """How many jobs go together, so that the last ones do not keep one worker from going home."""
    by_time = int(_CHUNK_S / job_s) if job_s > 0 else _LARGEST_CHUNK
    return max(1, min(by_time, -(-count // (4 * width)), _LARGEST_CHUNK))


@dataclass
class _Driver:
    pool: Pool
    fresh: Iterator[_Chunk]
    found: Found
    pack: Callable[[], bytes]
    describe: Callable[[Job], str]
    again: deque[_Chunk] = field(default_factory=deque[_Chunk])
    running: dict[Future[Answer], _Chunk] = field(default_factory=dict["Future[Answer]", _Chunk])
    breaks: int = 0
    has_answered: bool = False

    def fill(self) -> None:
        """Sends chunks until every worker has one, and one waits for it."""
        while len(self.running) < 2 * self.pool.width:
            if any(each.deaths > 1 for each in self.running.values()):
                return
            if self.again and self.again[0].deaths > 1 and self.running:
                return
            chunk = self.again.popleft() if self.again else next(self.fresh, None)
            if chunk is None:
                return
            packed = self.pack() if chunk.is_told else None
            try:
                self.running[self.pool.submit(chunk.jobs, packed=packed)] = chunk
            except self.pool.breaks:
                # It broke between two chunks: this one is not to blame.
                self.again.appendleft(chunk)
                self.mend()

    def take(self, future: Future[Answer]) -> bool:
        """Takes a result; whether there was one, and no worker died."""
        chunk = self.running.pop(future)
        try:
            answer = future.result()
        except self.pool.breaks as error:
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
            self.again.append(replace(chunk, is_told=True))
            return True
        self.has_answered = True
        self.found(chunk.jobs, answer)
        return True

    def _lose(self, chunk: _Chunk, error: BaseException) -> None:
        if chunk.deaths > 1 and len(chunk.jobs) == 1:
            who = self.describe(chunk.jobs[0])
            if not self.has_answered:
                raise MeasurementError(f"{_NO_START}; or {who} ends them") from None
            raise MeasurementError(
                f"{who} ends every process that captures it"
                f" ({said_by(error) or type(error).__name__}): is there memory enough for it?"
            ) from None
        self.again.extend(
            replace(chunk, jobs=(job,), deaths=chunk.deaths + 1) for job in chunk.jobs
        )

    def mend(self) -> None:
        """Makes the pool work again, after what else ran in it was taken or lost."""
        self.breaks += 1
        if self.pool.breaks_as_one:
            for future in wait(list(self.running)).done:
                self.take(future)
        if self.breaks > _MOST_BREAKS:
            if not self.has_answered:
                raise MeasurementError(_NO_START)
            raise MeasurementError(
                f"workers ended {self.breaks} times before they had done their work"
            )
        if not self.pool.mend():
            raise MeasurementError("the executor is broken: a worker of it died")


def sweep(
    *designs: str | torch.nn.Module,
    axes: str | Mapping[str, object],
    inputs: Any = None,
    reference: int = 0,
    hardware: Hardware | Sequence[Hardware] | None = None,
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    cold: bool = False,
    train: bool = False,
    optimizer: str | None = None,
    autocast: str | torch.dtype | None = None,
    channels_last: bool = False,
    device: str | None = None,
    executor: str | Executor | None = None,
    jobs: int | None = None,
    names: Sequence[str] = (),
    progress: Progress | None = None,
) -> SweepResult:
    """Which design wins where: work, bound and predicted time of designs over a grid of sizes.

    Nothing is measured, and results do not depend on where the work is done.

    Args:
        designs: at least two: texts with variables in them, such as
            ``"conv2d({c},{c},3,padding=1)@{size}x{size}"``, other names of models, or modules.
        axes: the values of each variable, and of the options batch, seq, threads, dtype, layout
            (contiguous, channels-last) and hardware: ``{"c": [16, 32], "size": range(7, 57, 7)}``,
            or a text, ``"c=16:1024:x2,size=7:56:+7,dtype=float32|bfloat16"``.
        reference: the index of the design that ratios refer to.
        hardware: as for `analyze`; several become an axis.
        executor: where: ``"local"`` in this process, ``"processes"`` of this machine,
            ``"dask:ADDRESS"`` on a cluster, or any `concurrent.futures.Executor`. None: here if it
            takes less than about ten seconds, else in processes.
        jobs: how many processes; 1: this one.
        names: what to call the designs; by default their texts.
        inputs, dtype, batch, seq, threads, cold, train, optimizer, autocast, channels_last, device:
            as for `analyze`, for all designs.
        progress: told how far it is.

    Raises:
        InputError: axes that no design uses, variables without one, or designs that do not differ;
            and whatever `analyze` raises for a design at every point.
        MeasurementError: a design that ends every process that captures it.
    """
    plan = plan_of(
        designs,
        grid_of(axes),
        names=names,
        reference=reference,
        hardware=hardware,
        inputs=inputs,
        batch=batch,
        seq=seq,
        threads=threads,
        cold=cold,
        options=RunOptions(
            dtype=dtype,
            train=train,
            optimizer=optimizer,
            autocast=autocast,
            channels_last=channels_last,
            device=device,
        ),
        progress=progress,
    )
    where = Where.of(executor, jobs)
    with one_thread():
        return carry_out(replace(plan, job_s=probed(plan)), where, progress=progress)


def carry_out(plan: Plan, where: Where, *, progress: Progress | None = None) -> SweepResult:
    """Runs a plan, and puts its cells where they belong.

    Raises:
        InputError: a design that cannot be built at any point; and as `sweep`.
    """
    total = plan.job_count
    cells: dict[Job, Sequence[Cell]] = {}

    def found(jobs: Sequence[Job], answers: Sequence[Sequence[Cell]]) -> None:
        cells.update(zip(jobs, answers, strict=True))
        if progress:
            progress(len(cells) / total, f"{len(cells)} of {total} captures")

    settled = where.settled(plan.job_mean_s * total)
    if settled.kind == LOCAL:
        for job in plan.jobs():
            found([job], [plan.context.cells(job)])
    else:
        _distributed(plan, settled, found)
    _check_built(plan, cells)
    return _result(plan, cells)


def _distributed(
    plan: Plan, where: Where, found: Callable[[Sequence[Job], Sequence[Sequence[Cell]]], None]
) -> None:
    name = uuid.uuid4().hex
    kept: list[bytes] = []

    def pack() -> bytes:
        if not kept:
            try:
                kept.append(pickle.dumps(plan.context))
            # Modules may hold anything, and say in any way that it cannot be pickled.
            except Exception as error:
                raise InputError(
                    f"a design cannot be sent to other processes ({error}); give its text, or"
                    " executor='local'"
                ) from error
        return kept[0]

    keep(name, plan.context)
    try:
        pool: Pool
        if where.kind == PROCESSES:
            pool = LocalProcesses(name, pack(), where.count)
        elif where.kind == "dask":
            pool = DaskCluster(name, pack(), where.address)
        else:
            assert where.executor is not None
            pool = Given(name, where.executor)
        drive(
            pool,
            plan.jobs(),
            chunk=chunk_for(plan.job_mean_s, plan.job_count, pool.width),
            found=found,
            pack=pack,
            describe=plan.job_text,
        )
    finally:
        forget(name)


def _check_built(plan: Plan, cells: Mapping[Job, Sequence[Cell]]) -> None:
    """Refuses designs that can be built nowhere: that is no property of a point."""
    built = {job.design for job, each in cells.items() if any(cell.is_built for cell in each)}
    for design, name in enumerate(plan.names):
        if design not in built:
            why = next(each[0].problem for job, each in cells.items() if job.design == design)
            raise InputError(f"{name} cannot be built at any point: {why}")


def _result(plan: Plan, cells: Mapping[Job, Sequence[Cell]]) -> SweepResult:
    machines = plan.machines
    places = {tuple(each.values()): i for i, each in enumerate(machines.points())}
    names = [axis.name for axis in machines.axes]
    rows = tuple(
        tuple(
            cells[plan.job_of(design, point)][places[tuple(point[name] for name in names)]]
            for design in range(len(plan.names))
        )
        for point in plan.grid.points()
    )
    learned = [each.predictor for each in plan.context.machines if each.predictor]
    is_predicted = any(cell.predicted_s is not None for row in rows for cell in row)
    return SweepResult(
        grid=plan.grid,
        designs=plan.names,
        reference=plan.reference,
        cells=rows,
        hardware=plan.hardware,
        threads=plan.threads,
        run=_run_words(plan),
        calibration=learned[0].calibration.said if learned and is_predicted else "",
        warnings=tuple(
            dict.fromkeys((*plan.notes, *_on_inputs(plan, rows), *_warnings(plan, is_predicted)))
        ),
    )


def _on_inputs(plan: Plan, rows: Sequence[Sequence[Cell]]) -> Sequence[str]:
    """What is to be said of the inputs of designs, at the first point that has all of them."""
    for point, cells in zip(plan.grid.points(), rows, strict=True):
        if all(each.is_built for each in cells):
            jobs = [plan.job_of(design, point) for design in range(len(plan.names))]
            return notes_on_inputs(plan.names, [plan.context.asked(each) for each in jobs])
    return ()


def _warnings(plan: Plan, is_predicted: bool) -> list[str]:
    notes = [classic_model_note(each) for each in plan.hardware if each.knows_only_dram]
    of_other_devices = {
        other_device_note(each.profile, run_on)
        for each in plan.context.machines
        if (run_on := plan.context.options.run(each.profile.device).device) != each.profile.device
    }
    notes += sorted(of_other_devices)
    for each in plan.context.machines:
        notes += each.predictor.notes if each.predictor else ()
    if not is_predicted:
        options = plan.context.options
        if options.train or options.autocast or plan.context.cold or _is_for_other(plan):
            notes.append(
                "bounds only: what is learned is of repeated eager inference on a CPU, without"
                " autocast"
            )
        else:
            notes += [no_calibration(each.name) for each in plan.hardware]
    return notes


def _is_for_other(plan: Plan) -> bool:
    """Whether operators of no CPU are called."""
    machines = plan.context.machines
    return any(plan.context.options.run(each.profile.device).device != "cpu" for each in machines)


def _run_words(plan: Plan) -> str:
    """How all designs are run, in words."""
    options, context = plan.context.options, plan.context
    axes = {axis.name for axis in plan.grid.axes}
    parts = [
        "training" if options.train else "",
        "" if "dtype" in axes else str(options.dtype or "").removeprefix("torch."),
        f"autocast {options.autocast}" if options.autocast else "",
        "channels-last" if options.channels_last else "",
        f"batch {context.batch}" if context.batch else "",
        f"seq {context.seq}" if context.seq else "",
        f"for {options.device}" if options.device else "",
        "cold caches" if context.cold else "",
    ]
    return ", ".join(filter(None, parts))
