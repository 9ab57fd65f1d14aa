"""Entry point `scale`: data-parallel training on several ranks."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from roofline.analysis import Analysis
from roofline.core.progress import Progress, Say
from roofline.core.text import counted
from roofline.core.units import parse_bytes
from roofline.errors import InputError, argument, did_you_mean
from roofline.pipeline.analyses import (
    place_on,
    resolve_machines,
)
from roofline.pipeline.distributed_capture import TrainingTask, shared_compute_slowdown
from roofline.pipeline.runs import CapturedPass, Workload, build_workload
from roofline.run import Run, RunKeywords, RunOptions, StepKeywords, takes
from roofline.scaling.memory import peak_while_accumulating
from roofline.scaling.ranks import Step, scaling_of, times_of
from roofline.scaling.result import Scaling
from roofline.scaling.settings import (
    ALGORITHMS,
    Algorithm,
    RankLink,
    Settings,
    example_link,
    is_between_ranks,
    link_from_options,
    rank_link,
)
from roofline.workload.tensors import Role

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model


_MOST = 2**20
"""Largest accepted number of ranks or passes."""


def settings_of(
    ranks: int,
    *,
    algorithm: Algorithm,
    accumulate: int,
    bucket: int | str | None,
    sharded: bool,
) -> Settings:
    """Return the settings from the arguments of `roofline.scale`."""
    for name, value in (("data_parallel", ranks), ("accumulate", accumulate)):
        # Excludes bool, a subclass of int.
        if type(value) is not int or not 1 <= value <= _MOST:
            raise InputError(f"{argument(name, value)}: must be a whole number from 1 to {_MOST}")
    if algorithm not in ALGORITHMS:
        raise InputError(
            f"{argument('algorithm', algorithm)}: must be one of {', '.join(ALGORITHMS)}"
            f"{did_you_mean(str(algorithm), ALGORITHMS)}"
        )
    if type(sharded) is not bool:
        raise InputError(f"sharded: expected True or False, got {sharded!r}")
    byte = parse_bytes(bucket, "bucket") if isinstance(bucket, str) else bucket
    if byte is not None and (type(byte) is not int or byte < 1):
        raise InputError(f"{argument('bucket', bucket)}: must be a size such as 25MiB")
    return Settings(
        ranks=ranks,
        algorithm=algorithm,
        accumulate=accumulate,
        bucket_bytes=byte,
        sharded=sharded,
    )


_SHOWN = 3


def scaling_notes(step: Step, settings: Settings, link: RankLink | None) -> Iterable[str]:
    """Yield notes on unused parameters, mixed precision and the model of the link."""
    if unused := step.unused:
        names = ", ".join(unused[:_SHOWN])
        more = len(unused) - _SHOWN
        yield (
            f"parameters without a gradient: {names}{f' and {more} more' if more > 0 else ''};"
            " buckets are those of DistributedDataParallel with find_unused_parameters=True, zeros"
            " included"
        )
    if line := _kept_wide(step.analysis):
        yield line
    is_in_host = link is not None and link.is_in_host and settings.ranks > 1
    if step.slowdown is not None:
        yield (
            f"compute is {step.slowdown:.2f}× slower with {settings.ranks} processes on this host"
            " than with one (measured, included in the times)"
        )
    elif is_in_host:
        yield (
            "contention between ranks of one host is not included; measure it with"
            f" {argument('measured', True)}, a model by name and fewer threads, such as"
            f" {argument('threads', 1)}"
        )
    if is_in_host and settings.ranks > 2:
        yield (
            "the link was measured with two processes of this host; contention of more processes is"
            " not included"
        )
    if settings.ranks > 1:
        yield "assumed: a separate link between every two ranks, equal compute speed of all ranks"
    if settings.sharded and settings.ranks > 1:
        yield (
            "assumed: one collective for the updated parameters; torch sends them one by one, with"
            " more latency"
        )


def _kept_wide(analysis: Analysis) -> str:
    """Return the data types that mixed precision keeps; `""` without mixed precision."""
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
        batch_norms = f"; parameters and statistics of {count} stay in {', '.join(sorted(kept))}"
    return (
        f"mixed precision computes in {run.autocast}; parameters, gradients and buckets keep their"
        f" type{batch_norms}"
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
    """Estimate step time, scaling efficiency and memory of data-parallel training.

    Gradients are reduced in the buckets of DistributedDataParallel, overlapped with the backward
    pass. Each rank is one machine, as for `analyze`; `batch` is that of one pass on one rank. A
    given module is not changed.

    Args:
        model, inputs, progress: as for `analyze`.
        data_parallel: number of ranks.
        link_bandwidth: bytes/s per direction between two ranks, a number or ``"25GB/s"``; None:
            that of the hardware's links.
        link_latency: latency of the smallest message in seconds, a number or ``"5us"``; None: 0
            with `link_bandwidth`.
        algorithm: of all-reduce: ``"ring"``, ``"tree"`` or ``"halving"``.
        accumulate: passes whose gradients are accumulated before the all-reduce.
        bucket: bucket size in bytes, a number or ``"10MiB"``; None: 1 MiB, then 25 MiB.
        sharded: shard optimizer states over the ranks.
        checkpoint: modules with activation checkpointing: ``"blocks"``, or a path such as
            ``"layer*.*"``.
        measured: run the step here, and use measured operator times.
        force: with `measured`, measure on a busy machine too.
        say: called with messages on delays.

    Raises:
        ModelError: unknown model, or one that cannot be built, trained or called with its inputs.
        InputError: invalid option, or no known link.
        HardwareError: unknown hardware.
        MeasurementError: the step cannot be measured.
    """
    options = RunOptions.of(inputs, **run, train=True)
    settings = settings_of(
        data_parallel, algorithm=algorithm, accumulate=accumulate, bucket=bucket, sharded=sharded
    )
    given = link_from_options(link_bandwidth, link_latency)
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
                f"{argument(name)} has no effect with {argument('measured')}, which repeats the"
                " plain step; leave one of them out"
            )
    (known,) = resolve_machines([options.hardware], options.threads)
    if given is None and settings.ranks > 1:
        # Before the model is built or a machine measured.
        if known.loaded is None:
            raise InputError(
                "no hardware profile of this machine, so its links are unknown; run `roofline"
                f" measure` and `roofline measure --links`, or add {example_link()}"
            )
        rank_link(known.loaded[0], at_best=True)
    asked = build_workload(model, inputs, options, on=known.device)
    passed, paths = _captured(asked, checkpoint)
    captured = passed.capture
    analysis = place_on(passed, known, options, progress)
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
                f"{argument('measured')}: the measured step calls other operators than the"
                " captured one; leave it out"
            )
        analysis = timed
    kind, _ = times_of(analysis)
    link = given
    if link is None and (settings.ranks > 1 or any(map(is_between_ranks, analysis.hardware.links))):
        link = rank_link(analysis.hardware, at_best=kind == "bound")
    task = _task(model, inputs, options, asked.run, accumulate) if measured else None
    step = Step(
        analysis=analysis,
        gradients=captured.gradients,
        accumulating=peak_while_accumulating(captured.records, captured.gradients),
        trained=captured.trained,
        slowdown=_slowdown(task, analysis, link, settings.ranks) if task is not None else None,
    )
    settings = replace(settings, checkpointed=paths)
    return scaling_of(step, settings, link, notes=tuple(scaling_notes(step, settings, link)))


def _captured(asked: Workload, checkpoint: str | None) -> tuple[CapturedPass, tuple[str, ...]]:
    """Return the captured step, and the paths of checkpointed modules."""
    from roofline.workload.capture.passes import capture_lock
    from roofline.workload.capture.training import checkpointed, select_modules

    module = asked.source.module
    paths = select_modules(module, checkpoint) if checkpoint is not None else ()
    with capture_lock, checkpointed(module, paths) if paths else nullcontext():
        # A rebuilt module would have no checkpoints.
        return (asked.captured(rebuild=None) if paths else asked.captured()), paths


def _task(
    model: Model,
    inputs: Any,
    options: RunOptions,
    run: Run,
    accumulate: int,
) -> TrainingTask | None:
    """Return the step as arguments for other processes; None if they cannot be serialized."""
    is_plain = not (run.dtype or run.channels_last or options.loss)
    if not is_plain or not isinstance(model, str) or callable(options.optimizer):
        return None
        if not run.optimizer or not _is_plain_text(inputs):
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


def _is_plain_text(inputs: Any) -> bool:
    if isinstance(inputs, (list, tuple)):
        parts: tuple[Any, ...] = tuple(inputs)
        return all(map(_is_plain_text, parts))
    return inputs is None or isinstance(inputs, (str, int))


def _slowdown(
    task: TrainingTask, analysis: Analysis, link: RankLink | None, ranks: int
) -> float | None:
    """Return the slowdown by other ranks on this host; None if ranks are on several hosts."""
    threads = analysis.threads
    is_here = link is not None and link.is_in_host and ranks * threads <= analysis.hardware.threads
    return (
        shared_compute_slowdown(task, ranks=ranks, threads=threads)
        if is_here and ranks > 1
        else None
    )
