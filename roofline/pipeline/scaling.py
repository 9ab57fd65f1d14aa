"""scale: a training step with copies of the model on several ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from roofline.analysis import Analysis
from roofline.core.progress import Progress, Say
from roofline.core.text import counted
from roofline.core.units import parse_bytes, parse_bytes_per_s, parse_duration
from roofline.errors import InputError, argument, did_you_mean
from roofline.pipeline.analyses import (
    known_machines,
    placed_on,
)
from roofline.pipeline.distributed_capture import TrainingTask, slowdown_beside
from roofline.pipeline.runs import CapturedPass, Workload, workload_of
from roofline.run import Run, RunKeywords, RunOptions, StepKeywords, takes
from roofline.scaling.memory import peak_while_accumulating
from roofline.scaling.ranks import Step, scaling_of, times_of
from roofline.scaling.result import Scaling
from roofline.scaling.settings import (
    ALGORITHMS,
    Algorithm,
    Settings,
    Wire,
    example_link,
    is_between_ranks,
    wire_of,
)
from roofline.workload.tensors import Role

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model


_MOST = 2**20
"""More ranks than any machine has; a larger number is a mistake."""

_NO_TIME = re.compile(r"0+(\.0+)?\s*(s|ms|us|µs|μs|ns)?")
"""A latency of 0, which as a duration would be none."""


def settings_of(
    ranks: int,
    *,
    algorithm: Algorithm,
    accumulate: int,
    bucket: int | str | None,
    sharded: bool,
) -> Settings:
    """The settings, from what `roofline.scale` is given."""
    for name, value in (("data_parallel", ranks), ("accumulate", accumulate)):
        # True is a whole number to Python.
        if type(value) is not int or not 1 <= value <= _MOST:
            raise InputError(f"{argument(name, value)}: must be a whole number from 1 to {_MOST}")
    if algorithm not in ALGORITHMS:
        raise InputError(
            f"{argument('algorithm', algorithm)}: there are {', '.join(ALGORITHMS)}"
            f"{did_you_mean(str(algorithm), ALGORITHMS)}"
        )
    if type(sharded) is not bool:
        raise InputError(f"sharded: expected True or False, got {sharded!r}")
    byte = parse_bytes(bucket) if isinstance(bucket, str) else bucket
    if byte is not None and (type(byte) is not int or byte < 1):
        raise InputError(f"{argument('bucket', bucket)}: must be a size such as 25MiB")
    return Settings(
        ranks=ranks,
        algorithm=algorithm,
        accumulate=accumulate,
        bucket_bytes=byte,
        sharded=sharded,
    )


def given_wire(bandwidth: float | str | None, latency: float | str | None) -> Wire | None:
    """The link that a user describes; None: none."""
    if bandwidth is None:
        if latency is not None:
            raise InputError(
                f"{argument('link_latency', latency)} has no effect without"
                f" {argument('link_bandwidth')}"
            )
        return None
    rate: Any = parse_bytes_per_s(bandwidth) if isinstance(bandwidth, str) else bandwidth
    wait: Any = 0.0 if latency is None else latency
    if isinstance(latency, str):
        wait = 0.0 if _NO_TIME.fullmatch(latency.strip()) else parse_duration(latency)
    try:
        if isinstance(rate, bool) or isinstance(wait, bool):
            raise TypeError
        return Wire(name="given", bytes_per_s=float(rate), latency_s=float(wait))
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "a link has byte/s above 0 and a latency from 0, both finite, got"
            f" {bandwidth!r} and {latency!r}; write {example_link()}"
        ) from None


_SHOWN = 3


def notes_on(step: Step, settings: Settings, wire: Wire | None) -> Iterable[str]:
    """A line for each."""
    if unused := step.unused:
        names = ", ".join(unused[:_SHOWN])
        more = len(unused) - _SHOWN
        yield (
            f"no gradient reaches {names}{f' and {more} more' if more > 0 else ''}:"
            " DistributedDataParallel takes that only with find_unused_parameters=True, and these"
            " are the buckets that it sends then, with zeros for what is unused"
        )
    if line := _kept_wide(step.analysis):
        yield line
    is_in_host = wire is not None and wire.is_in_host and settings.ranks > 1
    if step.slowdown is not None:
        yield (
            f"{settings.ranks} processes of this host were timed side by side: computing takes"
            f" {step.slowdown:.2f} × as long as for one, which is in these times"
        )
    elif is_in_host:
        yield (
            "ranks of one host slow each other down, which is not in these times;"
            f" {argument('measured', True)} with a model by its name, and {argument('threads', 1)},"
            " say, finds out by how much"
        )
    if is_in_host and settings.ranks > 2:
        yield (
            "the link was measured between two processes of this host; more of them share its cores"
            " and memory, which is not in these times"
        )
    if settings.ranks > 1:
        yield (
            "every two ranks are taken to have a link of their own, and all of them to compute"
            " equally fast"
        )
    if settings.sharded and settings.ranks > 1:
        yield (
            "parameters are taken to go to all ranks in one exchange after the update; torch sends"
            " them one by one, so their latencies may be more"
        )


def _kept_wide(analysis: Analysis) -> str:
    """In which types mixed precision keeps parameters and batch norms; `""` where it is none."""
    run = analysis.run
    if not run.autocast:
        return ""
    norms = [row for row in analysis.operators if "batch_norm" in row.op and row.phase == "forward"]
    kept = {
        str(spec.dtype)
        for row in norms
        for spec in row.inputs
        if spec.role in (Role.PARAMETER, Role.BUFFER)
    }
    batch_norms = ""
    if norms:
        count = f"{counted(len(norms), 'batch norm')}"
        batch_norms = (
            f"; parameters and statistics of {count} are kept in {', '.join(sorted(kept))}"
        )
    return (
        f"mixed precision computes in {run.autocast}, and casts each time; parameters, their"
        f" gradients and so the buckets stay as they are{batch_norms}"
    )


@takes(StepKeywords)
def scale(
    model: Model,
    inputs: Any = None,
    *,
    data_parallel: int,
    link_bandwidth: float | str | None = None,
    link_latency: float | str | None = None,
    algorithm: Algorithm = "ring",
    accumulate: int = 1,
    bucket: int | str | None = None,
    sharded: bool = False,
    checkpoint: str | None = None,
    measured: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Unpack[StepKeywords],
) -> Scaling:
    """What a training step comes to with a copy of the model on each of several ranks.

    Gradients go in the buckets of DistributedDataParallel, as soon as the backward pass is done
    with them. Each rank is a machine as in `analyze`; `batch` is that of one pass on one rank. A
    module that is given is left as it was.

    Args:
        model, inputs, progress: as for `analyze`.
        data_parallel: how many ranks there are.
        link_bandwidth: byte/s each way between any two ranks, a number or ``"25GB/s"``; None: that
            of the hardware's links.
        link_latency: seconds of the smallest message, a number or ``"5us"``; None: none, where a
            bandwidth is given.
        algorithm: how ranks add up: ``"ring"``, ``"tree"`` or ``"halving"``.
        accumulate: how many passes each makes before gradients are sent.
        bucket: from how many bytes on a bucket is full, a number or ``"10MiB"``; None: 1 MiB for
            the first, then 25.
        sharded: each rank keeps a part of the optimizer's states, and updates that.
        checkpoint: modules that keep nothing for the backward pass and run again for it:
            ``"blocks"``, or a path such as ``"layer*.*"``.
        measured: runs the step here and takes the times that its operators really took.
        force: with `measured`, although others compute.
        say: told, in words, what is waited for.

    Raises:
        ModelError: the model is unknown, cannot be built or trained, or rejects its inputs.
        InputError: an option is wrong, or no link is known.
        HardwareError: unknown hardware.
        MeasurementError: the step is to be measured, and cannot be.
    """
    options = RunOptions.of(inputs, **run, train=True)
    settings = settings_of(
        data_parallel, algorithm=algorithm, accumulate=accumulate, bucket=bucket, sharded=sharded
    )
    given = given_wire(link_bandwidth, link_latency)
    if checkpoint is not None and not isinstance(checkpoint, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"checkpoint: expected blocks or a path, got {checkpoint!r}")
    if measured:
        refused = {
            "checkpoint": checkpoint is not None,
            "scale_gradients": options.scale_gradients,
            "cold": options.cold,
        }
        for name in filter(refused.get, refused):
            raise InputError(
                f"{argument(name)} has no effect with {argument('measured')}: torch runs the step"
                " as it is, again and again; leave one of them out"
            )
    (known,) = known_machines([options.hardware], options.threads)
    if given is None and settings.ranks > 1:
        # Before the model is built, and a machine measured for nothing.
        if known.found is None:
            raise InputError(
                "this machine was not measured yet, and its links are not known: run `roofline"
                f" measure` and `roofline measure --links`, or give {example_link()}"
            )
        wire_of(known.found[0], at_best=True)
    asked = workload_of(model, inputs, options, on=known.device)
    passed, paths = _captured(asked, checkpoint)
    captured = passed.capture
    analysis = placed_on(passed, known, options, progress)
    if measured:
        from roofline.pipeline.profiles import profile

        names = RunKeywords.__annotations__
        timed = profile(
            model,
            inputs,
            force=force,
            progress=progress,
            say=say,
            **options.keywords(*names),
        )
        ops = [[(row.op, row.phase) for row in each.operators] for each in (analysis, timed)]
        if ops[0] != ops[1]:
            raise InputError(
                "measured: the step runs other operators for real than on fake tensors; leave it"
                " out"
            )
        analysis = timed
    kind, _ = times_of(analysis)
    wire = given
    if wire is None and (settings.ranks > 1 or any(map(is_between_ranks, analysis.hardware.links))):
        wire = wire_of(analysis.hardware, at_best=kind == "bound")
    task = _task(model, inputs, options, asked.run, accumulate) if measured else None
    step = Step(
        analysis=analysis,
        gradients=captured.gradients,
        accumulating=peak_while_accumulating(captured.records, captured.gradients),
        trained=captured.trained,
        slowdown=_slowdown(task, analysis, wire, settings.ranks) if task is not None else None,
    )
    settings = replace(settings, checkpointed=paths)
    return scaling_of(step, settings, wire, notes=tuple(notes_on(step, settings, wire)))


def _captured(asked: Workload, checkpoint: str | None) -> tuple[CapturedPass, tuple[str, ...]]:
    """The step, and the paths of the modules that run again in it."""
    from roofline.workload.capture.passes import one_at_a_time
    from roofline.workload.capture.training import checkpointed, chosen_modules

    module = asked.source.module
    paths = chosen_modules(module, checkpoint) if checkpoint is not None else ()
    with one_at_a_time, checkpointed(module, paths) if paths else nullcontext():
        # Built anew it would keep what it computes.
        return (asked.captured(rebuild=None) if paths else asked.captured()), paths


def _task(
    model: Model,
    inputs: Any,
    options: RunOptions,
    run: Run,
    accumulate: int,
) -> TrainingTask | None:
    """The step for processes of their own; None: it cannot be told them in words."""
    is_plain = not (run.dtype or run.channels_last or options.loss)
    if not is_plain or not isinstance(model, str) or callable(options.optimizer):
        return None
    if not run.optimizer or not _is_in_words(inputs):
        return None
    return TrainingTask(
        model=model,
        inputs=inputs,
        batch=options.batch,
        seq=options.seq,
        optimizer=run.optimizer,
        autocast=run.autocast or None,
        accumulate=accumulate,
    )


def _is_in_words(inputs: Any) -> bool:
    """Whether inputs hold nothing but texts and sizes."""
    if isinstance(inputs, (list, tuple)):
        parts: tuple[Any, ...] = tuple(inputs)
        return all(map(_is_in_words, parts))
    return inputs is None or isinstance(inputs, (str, int))


def _slowdown(
    task: TrainingTask, analysis: Analysis, wire: Wire | None, ranks: int
) -> float | None:
    """What ranks that are processes of this host cost one another; None: they are none."""
    threads = analysis.threads
    is_here = wire is not None and wire.is_in_host and ranks * threads <= analysis.hardware.threads
    return slowdown_beside(task, ranks=ranks, threads=threads) if is_here and ranks > 1 else None
