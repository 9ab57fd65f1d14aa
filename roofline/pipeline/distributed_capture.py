"""Real DistributedDataParallel training in processes of this host: buckets and step times.

A communication hook records the buckets that torch sends.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from roofline.machine.links import LIMIT_S, run_in_ranks
from roofline.run import RunOptions

if TYPE_CHECKING:
    import torch

    Ddp: TypeAlias = torch.nn.parallel.DistributedDataParallel

_STEPS_TO_SETTLE = 2
"""The first step has one bucket per type and determines the order for the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBucket:
    """A bucket that torch sent, with its ``parameters`` in order."""

    index: int
    byte: int
    dtype: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTask:
    """A training step that processes run together.

    ``model`` is a model name, or a picklable callable that returns a module; ``inputs`` as for
    `analyze`, without tensors. ``bucket_bytes`` as in `Settings`; ``finds_unused`` and
    ``are_views`` are ``find_unused_parameters`` and ``gradient_as_bucket_view`` of
    DistributedDataParallel.
    """

    model: Any
    inputs: Any = None
    batch: int | None = None
    seq: int | None = None
    optimizer: str = "sgd"
    autocast: str | None = None
    bucket_bytes: int | None = None
    accumulate: int = 1
    finds_unused: bool = False
    are_views: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of the steps of one rank.

    ``together_s``: steps with communication, or with all ranks computing. ``alone_s``: steps
    without communication, or with other ranks idle (first rank only).
    """

    together_s: tuple[float, ...]
    alone_s: tuple[float, ...]


def shared_compute_slowdown(
    task: TrainingTask,
    *,
    ranks: int = 2,
    threads: int = 1,
    steps: int = 10,
    limit_s: float = LIMIT_S,
) -> float:
    """Return the slowdown of a rank's compute while all ranks of this host compute, at least 1.

    Nothing is sent; ranks share memory, caches and power. A shared step ends with its slowest rank.
    """
    found = run_in_ranks(time_computing, task, steps, ranks=ranks, threads=threads, limit_s=limit_s)
    shared_s = [max(each) for each in zip(*(one.together_s for one in found), strict=True)]
    # Less than 1 is noise.
    return max(1.0, statistics.median(shared_s) / statistics.median(found[0].alone_s))


def capture_buckets(rank: int, ranks: int, task: TrainingTask) -> tuple[SentBucket, ...]:
    """Return the buckets that this rank sends in a step with the final order."""
    trained = _TrainingRank(task)
    seen: list[SentBucket] = []
    assert trained.parallel is not None
    trained.parallel.register_comm_hook(None, _recording_hook(seen, trained.names, ranks))
    for _ in range(_STEPS_TO_SETTLE):
        seen.clear()
        trained.step()
    return tuple(seen)


def time_steps(rank: int, ranks: int, task: TrainingTask, steps: int) -> StepTimes:
    """Return the times of steps on this rank, interleaved with and without communication."""
    trained = _TrainingRank(task)
    return _timed(steps, lambda: trained.step(), lambda: trained.step(sends=False))


def time_computing(rank: int, ranks: int, task: TrainingTask, steps: int) -> StepTimes:
    """Return the compute times of this rank, interleaved with all ranks and alone."""
    # Joined ranks would communicate in their first pass.
    trained = _TrainingRank(task, is_joined=False)
    return _timed(steps, trained.step, trained.step if rank == 0 else None)


def _timed(
    steps: int, together: Callable[[], object], alone: Callable[[], object] | None
) -> StepTimes:
    """Time both interleaved, after a barrier; None: this rank only waits."""
    from torch import distributed

    together_s: list[float] = []
    alone_s: list[float] = []
    for each in range(_STEPS_TO_SETTLE + steps):
        for times, step in ((alone_s, alone), (together_s, together)):
            distributed.barrier()
            begin = time.perf_counter()
            if step is not None:
                step()
                if each >= _STEPS_TO_SETTLE:
                    times.append(time.perf_counter() - begin)
    return StepTimes(together_s=tuple(together_s), alone_s=tuple(alone_s))


def _recording_hook(seen: list[SentBucket], names: dict[int, str], ranks: int) -> Any:
    """Return a communication hook that records buckets and all-reduces as torch does."""
    from torch import distributed

    def hook(_state: object, bucket: Any) -> Any:
        buffer = bucket.buffer()
        seen.append(
            SentBucket(
                index=bucket.index(),
                byte=buffer.nbytes,
                dtype=str(buffer.dtype).removeprefix("torch."),
                parameters=tuple(names[id(each)] for each in bucket.parameters()),
            )
        )
        work = distributed.all_reduce(buffer.div_(ranks), async_op=True)
        assert work is not None
        return work.get_future().then(lambda done: done.value()[0])

    # torch checks annotations, which are strings here.
    hook.__annotations__.clear()
    return hook


class _TrainingRank:
    """One rank's copy of a model, and its training steps.

    ``is_joined``: gradients are sent to the other ranks.
    """

    def __init__(self, task: TrainingTask, *, is_joined: bool = True) -> None:
        import torch

        from roofline.pipeline.runs import build_workload
        from roofline.pipeline.timing import materialize_model
        from roofline.workload.capture.real_tensors import RealTensors
        from roofline.workload.capture.training import TrainingConfig, optimizer_factory
        from roofline.workload.torch_dtypes import input_dtype, torch_dtype

        torch.manual_seed(0)
        self._task = task
        options = RunOptions(
            train=True,
            optimizer=task.optimizer,
            autocast=task.autocast,
            batch=task.batch,
            seq=task.seq,
        )
        workload = build_workload(task.model, task.inputs, options)
        self._module = model = materialize_model(workload).train()
        self.names = {id(each): name for name, each in model.named_parameters()}
        self._tensors = RealTensors(workload.run)
        self._args, self._kwargs = workload.given.build(
            lambda request: self._tensors.make_input(request, input_dtype(request, None))
        )
        megabyte = None if task.bucket_bytes is None else task.bucket_bytes / 2**20
        self.parallel: Ddp | None = None
        if is_joined:
            self._module = self.parallel = torch.nn.parallel.DistributedDataParallel(
                model,
                bucket_cap_mb=megabyte,  # pyright: ignore[reportArgumentType]  parts of a MiB work too
                find_unused_parameters=task.finds_unused,
                gradient_as_bucket_view=task.are_views,
            )
        self._optimizer = optimizer_factory(task.optimizer)(model.parameters())
        self._training_step = TrainingConfig().new_step()
        self._autocast = torch_dtype(task.autocast) if task.autocast else None

    def step(self, *, sends: bool = True) -> None:
        """Run one step: accumulated backward passes, then the optimizer."""
        for each in range(self._task.accumulate):
            is_sent = sends and each == self._task.accumulate - 1
            joined = None if is_sent else self.parallel
            with contextlib.nullcontext() if joined is None else joined.no_sync():
                self._pass().backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _pass(self) -> torch.Tensor:
        import torch

        from roofline.workload.capture.training import StepListener

        is_mixed = self._autocast is not None
        with torch.autocast("cpu", self._autocast or torch.bfloat16, enabled=is_mixed):
            result = self._module(*self._args, **self._kwargs)
            return self._training_step.loss(result, self._tensors, StepListener())
