"""One pass under torch.compile: what Inductor schedules and writes for it, without building it.

Dynamo, the passes over graphs, the scheduler and the code generator run as they do for any
`torch.compile(model)` in this process. Only the last step does not: the generated C++ is not
compiled, and in its place the graph runs as it was before, so that the model gets on to its next
graph. So no compiler is needed, and on fake tensors no weights either.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch

from roofline.errors import ModelError, said_by
from roofline.foundation.quiet import quiet
from roofline.foundation.units import format_bytes
from roofline.workload.capture.compiled import is_compiled
from roofline.workload.capture.fakes import Fakes
from roofline.workload.capture.inductor_schedule import UnknownScheduleError
from roofline.workload.capture.inductor_watch import SAID, Outside, Watch, breaks
from roofline.workload.capture.passes import has_room_for, one_at_a_time, with_weights
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.stage import Stage, staged
from roofline.workload.capture.training import Teaching
from roofline.workload.compiled_kernels import CompiledPass
from roofline.workload.inputs import Inputs
from roofline.workload.runs import Run

_NEEDED: dict[str, object] = {
    # What comes from caches is not seen, and nothing that is not built may get into them.
    "force_disable_caches": True,
    "fx_graph_cache": False,
    # Partitions are for CUDA graphs.
    "graph_partition": False,
    "compile_threads": 1,
    # Else a compiler is asked which vectors it can do, which changes no schedule. (For some, it is
    # asked all the same: `_not_asked`.)
    "cpp.vec_isa_ok": True,
}

_LEFT_OUT = {
    "freezing": "it computes with the weights",
    "max_autotune": "it chooses kernels by timing them",
    "max_autotune_gemm": "it chooses kernels by timing them",
    "benchmark_fusion": "it chooses what to fuse by timing it",
    "cpp_wrapper": "calls are read off the Python that makes them",
    "fx_wrapper": "calls are read off the Python that makes them",
    "memory_planning": "buffers are read off as the defaults allocate them",
}
"""Settings that cannot be followed without building what is generated, and why."""

_OF_THE_ENVIRONMENT = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_")

_WITHOUT_EFFECT = ("_DIR", "CACHE", "THREADS")
"""Parts of names of variables that change nothing of what is generated."""

_UNKNOWN = object()


@contextlib.contextmanager
def settings() -> Iterator[tuple[str, ...]]:
    """Inductor's settings of this process, but for those that hide what it does.

    Yields:
        Which settings were left out, and what the environment sets.
    """
    import torch._dynamo
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._inductor import cpp_builder
    from torch._inductor.cpu_vec_isa import VecISA

    now = {name: _value(inductor_config, name) for name in (*_NEEDED, *_LEFT_OUT)}
    left_out = {name: why for name, why in _LEFT_OUT.items() if now[name] is True}
    inductor = {name: value for name, value in _NEEDED.items() if now[name] is not _UNKNOWN}
    torch._dynamo.reset()
    try:
        with (
            inductor_config.patch(inductor | dict.fromkeys(left_out, False)),
            functorch_config.patch({"enable_autograd_cache": False}),
            dynamo_config.patch({"suppress_errors": False}),
            mock.patch.object(VecISA, "check_build", _not_asked),
            mock.patch.object(cpp_builder, "get_cpp_compiler", _usual_compiler),
        ):
            yield tuple(_notes(left_out))
    finally:
        torch._dynamo.reset()
        _forget_compiler()


def _value(config: Any, name: str) -> Any:
    """The value of a setting; `_UNKNOWN` where this version of torch does not have it."""
    for part in name.split("."):
        config = getattr(config, part, _UNKNOWN)
    return config


def _notes(left_out: dict[str, str]) -> Iterator[str]:
    for name, why in left_out.items():
        yield f"torch._inductor.config.{name} is on here and was left out: {why}"
    found = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_OF_THE_ENVIRONMENT)
        and not any(each in name for each in _WITHOUT_EFFECT)
    }
    if found:
        said = ", ".join(f"{name}={value}" for name, value in found.items())
        yield f"the environment sets {said}"


def is_switched_off() -> bool:
    """Whether torch.compile does nothing in this process."""
    import torch._dynamo.config as dynamo_config

    return bool(dynamo_config.disable)


def _not_asked(self: Any, code: str) -> bool:
    """In the place of what builds a few lines to see whether a compiler can: nothing is built."""
    return False


def _usual_compiler() -> str:
    """In the place of what looks for one: which it is changes pragmas, and there may be none."""
    return "g++"


def _forget_compiler() -> None:
    """What was taken for granted of the compiler is asked again when something is built."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    kinds = (cpu_vec_isa.VecISA, *_kinds(cpu_vec_isa.VecISA))
    remembered = [each for kind in kinds for each in vars(kind).values()]
    asked = [each for name, each in vars(cpp_builder).items() if name.startswith("is_")]
    for known in (cpu_vec_isa.valid_vec_isa_list, *remembered, *asked):
        if hasattr(known, "cache_clear"):
            known.cache_clear()


def _kinds(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


_OTHER_DEVICES = {
    "cuda": "kernels for CUDA are chosen by timing them on the device; only those for a CPU are"
    " known before they run",
    "meta": "meta has no kernels; leave --device out",
}
"""Why there is no schedule for them."""


def compiled_pass(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    run: Run | None = None,
    teaching: Teaching | None = None,
    rebuild: Callable[[], torch.nn.Module] | None = None,
) -> CompiledPass:
    """What `torch.compile(model)` makes of one pass of `model` on a CPU.

    The model runs twice on fake tensors (where that fails, on real ones): once to be compiled, and
    once more to see which graphs a repeated pass calls. Where Inductor's schedule cannot be had,
    ``why_not`` says why. What torch has compiled before in this process is forgotten.

    Args:
        model: any module; it is left as it was.
        inputs: what it is called with.
        run: in which types and layout it is run, and whether it is trained.
        teaching: how it is trained, if it is.
        rebuild: makes the model with its weights, where `model` has none.

    Raises:
        ModelError: it is compiled already.
    """
    run = run or Run()
    if any(map(is_compiled, model.modules())):
        raise ModelError(
            f"{type(model).__name__} is compiled already; give the module that it was made of"
        )
    compiler = f"Inductor of torch {torch.__version__}"
    if run.device != "cpu":
        return CompiledPass(compiler=compiler, why_not=_OTHER_DEVICES[run.device])
    asked = _Asked(inputs, run, teaching or Teaching())
    with one_at_a_time:
        try:
            return asked.compiled(model, Fakes(run))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = _reason(error)
        byte = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
        if not has_room_for(byte):
            why_not = (
                f"{reason} (and {format_bytes(byte)} of weights are too many for real tensors)"
            )
            return CompiledPass(compiler=compiler, why_not=why_not)
        real = with_weights(model, rebuild)
        if real is None:
            return CompiledPass(compiler=compiler, why_not=reason)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                found = asked.compiled(real, Reals(run))
        except KeyboardInterrupt:
            raise
        # A compiler may raise anything; none of it may end in a traceback.
        except BaseException as error:
            return CompiledPass(compiler=compiler, why_not=_reason(error))
    return replace(found, notes=(f"compiled on real tensors: on fakes, {reason}", *found.notes))


def _reason(error: BaseException) -> str:
    """Why there is no schedule, in a clause."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException):
        error = inner
    if isinstance(error, UnknownScheduleError):
        return said_by(error)
    said = said_by(error).partition(" Set TORCHDYNAMO_VERBOSE")[0][:SAID].rstrip(". ")
    return f"torch.compile failed: {said or type(error).__name__}"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pass that is asked for."""

    inputs: Inputs
    run: Run
    teaching: Teaching

    def compiled(self, model: torch.nn.Module, tensors: Fakes | Reals) -> CompiledPass:
        if is_switched_off():
            raise UnknownScheduleError("torch.compile is switched off in this process")
        lesson = self.teaching.lesson() if self.run.train else None
        watch = Watch()
        with (
            settings() as notes,
            quiet(),
            staged(model, self.inputs, self.run, tensors, lesson) as stage,
        ):
            stage.prepare(watch)
            wrapped: Any = torch.compile(stage.model, backend=watch.backend)
            compiled = _with_model(stage, wrapped)
            compiled.step(watch, watch)
            first = len(watch.graphs)
            why = breaks() or _left_alone(model, watch)
            watch.begin_again()
            with Outside(watch):
                compiled.step(watch, watch)
            stage.optimizer = None
        found = watch.result(why, first)
        return replace(found, notes=(*notes, *found.notes))


def _left_alone(model: torch.nn.Module, watch: Watch) -> tuple[str, ...]:
    """What torch.compile is known to leave alone without a word, where it compiled nothing."""
    from torch._dynamo import config

    is_recurrent = any(isinstance(each, torch.nn.RNNBase) for each in model.modules())
    if watch.graphs or not is_recurrent or getattr(config, "allow_rnn", False):
        return ()
    return ("it takes recurrent layers only if torch._dynamo.config.allow_rnn is on",)


def _with_model(stage: Stage, model: Any) -> Stage:
    return Stage(
        model=model,
        args=stage.args,
        kwargs=stage.kwargs,
        given=stage.given,
        run=stage.run,
        tensors=stage.tensors,
        lesson=stage.lesson,
        optimizer=stage.optimizer,
    )
