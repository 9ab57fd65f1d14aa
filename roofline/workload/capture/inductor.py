"""One pass under torch.compile: what Inductor schedules and writes for it, without building it.

Dynamo, the passes over graphs, the scheduler and the code generator run as they do for any
`torch.compile(model)` in this process. Only the last step does not: the generated C++ is not
compiled, and in its place the graph runs as it was before, so that the model gets on to its next
graph. So no compiler is needed, and on fake tensors no weights either.
"""

from __future__ import annotations

import contextlib
import copy
import os
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.core.progress import suppress_output
from roofline.core.units import format_bytes
from roofline.errors import ModelError, error_text
from roofline.run import Run
from roofline.workload.capture.fake_tensors import FakeTensors
from roofline.workload.capture.inductor_schedule import UnknownScheduleError, read_graph
from roofline.workload.capture.module_stack import is_compiled
from roofline.workload.capture.passes import (
    capture_lock,
    fits_in_memory,
    materialize,
    weights_bytes,
)
from roofline.workload.capture.prepared_model import prepare_model
from roofline.workload.capture.real_tensors import RealTensors, ReplacementTensors
from roofline.workload.capture.training import StepListener, TrainingConfig
from roofline.workload.compiled_kernels import CompiledGraph, CompiledPass, EagerCalls, Part
from roofline.workload.inputs import Inputs
from roofline.workload.operators import Phase

_MAX_MESSAGE = 300
"""Characters of what torch says that are shown."""

_COMPILER = f"Inductor of torch {torch.__version__}"


class _CompilationObserver(StepListener):
    """Sees what is compiled and called; listens to how far a step is.

    ``calls`` are those of ``graphs``, by their place, ``outside`` those of operators that run
    outside of them.
    """

    def __init__(self) -> None:
        self.graphs: list[CompiledGraph] = []
        self.calls: Counter[int] = Counter()
        self.outside: Counter[tuple[str, Part]] = Counter()
        self.inside = 0
        self.now: Part = "forward"

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        # The loss is the one other part of a pass.
        before, self.now = self.now, "loss"
        try:
            yield
        finally:
            self.now = before

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    def enter(self, phase: Phase) -> None:
        self.now = phase

    def backend(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """As Inductor's own, but for what becomes of the generated code."""
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(gm, inputs, inner_compile=self._compile)

    def _compile(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        from torch._inductor.codegen.cpp import CppScheduling
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.graph import GraphLowering

        # Inductor changes the graph; what runs in place of its code is the one before.
        runs = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
        phase: Phase = "backward" if options.get("is_backward") else "forward"
        generated: list[tuple[str, list[Any]]] = []
        define = CppScheduling.define_kernel

        def defined(scheduling: Any, code: Any, nodes: Any, *args: Any, **more: Any) -> Any:
            name = define(scheduling, code, nodes, *args, **more)
            generated.append((str(name), list(nodes)))
            return name

        def not_built(graph: Any) -> Any:
            graph.codegen()
            try:
                self.graphs.append(read_graph(graph, generated, phase=phase))
            except (ImportError, AttributeError, TypeError, KeyError) as error:
                # Inductor's objects are no public interface.
                raise UnknownScheduleError(
                    f"this torch ({torch.__version__}) keeps Inductor's schedule in another way:"
                    f" {error_text(error)[:_MAX_MESSAGE]}"
                ) from error
            return types.SimpleNamespace(call=self._called(len(self.graphs) - 1, runs))

        with (
            mock.patch.object(CppScheduling, "define_kernel", defined),
            mock.patch.object(GraphLowering, "compile_to_module", not_built),
        ):
            return compile_fx_inner(gm, inputs, **options)

    def _called(self, place: int, runs: torch.fx.GraphModule) -> Callable[[Any], Any]:
        def call(given: Any) -> Any:
            self.calls[place] += 1
            values = list(given)
            if isinstance(given, list):
                # So that the caller's last references go, as generated code has it.
                given.clear()
            with self.paused():
                return runs(*values)

        return call

    def result(self, breaks: Sequence[str], first: int, notes: Sequence[str]) -> CompiledPass:
        """What was seen of the second pass; the first one compiled so many graphs."""
        if not self.calls:
            raise UnknownScheduleError(
                "torch.compile left the whole model to eager torch"
                + (f": {breaks[0]}" if breaks else "")
            )
        if len(self.graphs) > first:
            more = (
                f"the second pass compiled {len(self.graphs) - first} more graphs, as torch.compile"
                " does where shapes, strides or numbers change from call to call"
            )
            notes = (*notes, more)
        return CompiledPass(
            compiler=_COMPILER,
            graphs=tuple(
                replace(graph, calls=self.calls[place])
                for place, graph in enumerate(self.graphs)
                if place in self.calls
            ),
            breaks=tuple(breaks),
            outside=tuple(
                EagerCalls(op=op, part=part, calls=calls)
                for (op, part), calls in self.outside.items()
            ),
            notes=tuple(notes),
        )


_BOOKKEEPING = frozenset(("detach", "alias", "empty", "empty_like", "empty_strided", "lift_fresh"))


class _EagerCallCounter(TorchDispatchMode):
    """Counts the operators that run outside of compiled graphs, but for views and allocations."""

    def __init__(self, watch: _CompilationObserver) -> None:
        super().__init__()
        self._watch = watch

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leaves compiling to itself."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_free = (
            getattr(func, "is_view", False)
            or func.namespace == "prim"
            or func._opname in _BOOKKEEPING
        )
        if not is_free and not self._watch.inside:
            self._watch.outside[f"{func.namespace}.{func._opname}", self._watch.now] += 1
        return func(*args, **(kwargs or {}))


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
def _settings() -> Iterator[tuple[str, ...]]:
    """Inductor's settings of this process, but for those that hide what it does.

    Yields which settings were left out, and what the environment sets.
    """
    import torch._dynamo
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._inductor import cpp_builder
    from torch._inductor.cpu_vec_isa import VecISA

    def value(name: str) -> Any:
        """`_UNKNOWN` where this version of torch does not have it."""
        found: Any = inductor_config
        for part in name.split("."):
            found = getattr(found, part, _UNKNOWN)
        return found

    left_out = {name: why for name, why in _LEFT_OUT.items() if value(name) is True}
    needed = {name: to for name, to in _NEEDED.items() if value(name) is not _UNKNOWN}
    torch._dynamo.reset()
    try:
        with (
            inductor_config.patch(needed | dict.fromkeys(left_out, False)),
            functorch_config.patch({"enable_autograd_cache": False}),
            dynamo_config.patch({"suppress_errors": False}),
            # A few lines are built to see whether a compiler can: nothing is.
            mock.patch.object(VecISA, "check_build", lambda *_: False),
            # Which one it is changes pragmas, and there may be none.
            mock.patch.object(cpp_builder, "get_cpp_compiler", lambda: "g++"),
        ):
            yield tuple(_notes(left_out))
    finally:
        torch._dynamo.reset()
        _forget_compiler()


def _notes(left_out: dict[str, str]) -> Iterator[str]:
    for name, why in left_out.items():
        yield f"torch._inductor.config.{name} is on here and was left out: {why}"
    names = (each for each in sorted(os.environ) if each.startswith(_OF_THE_ENVIRONMENT))
    found = [each for each in names if not any(part in each for part in _WITHOUT_EFFECT)]
    if found:
        yield f"the environment sets {', '.join(f'{each}={os.environ[each]}' for each in found)}"


def _forget_compiler() -> None:
    """What was taken for granted of the compiler is asked again when something is built."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    kinds: list[type] = [cpu_vec_isa.VecISA]
    for kind in kinds:
        kinds += kind.__subclasses__()
    remembered = [each for kind in kinds for each in vars(kind).values()]
    asked = [each for name, each in vars(cpp_builder).items() if name.startswith("is_")]
    for known in (cpu_vec_isa.valid_vec_isa_list, *remembered, *asked):
        if hasattr(known, "cache_clear"):
            known.cache_clear()


_OTHER_DEVICES = {
    "cuda": "kernels for CUDA are chosen by timing them on the device; only those for a CPU are"
    " known before they run",
    "meta": "meta has no kernels; leave --device out",
}
"""Why there is no schedule for them."""


def capture_compiled(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    run: Run | None = None,
    training: TrainingConfig | None = None,
    rebuild: Callable[[], torch.nn.Module] | None = None,
) -> CompiledPass:
    """What `torch.compile(model)` makes of one pass of `model` on a CPU; arguments as of `capture`.

    The model runs twice on fake tensors (where that fails, on real ones): once to be compiled, and
    once more to see which graphs a repeated pass calls. Where Inductor's schedule cannot be had,
    ``why_not`` says why. What torch has compiled before in this process is forgotten.

    Raises:
        ModelError: it is compiled already.
    """
    run, training = run or Run(), training or TrainingConfig()
    if any(map(is_compiled, model.modules())):
        raise ModelError(
            f"{type(model).__name__} is compiled already; give the module that it was made of"
        )

    def unknown(why_not: str) -> CompiledPass:
        return CompiledPass(compiler=_COMPILER, why_not=why_not)

    def tried(model: torch.nn.Module, tensors: ReplacementTensors) -> CompiledPass:
        try:
            return _compiled(model, inputs, run, training, tensors)
        except KeyboardInterrupt:
            raise
        # A compiler may raise anything; none of it may end in a traceback.
        except BaseException as error:
            return unknown(_reason(error))

    if run.device != "cpu":
        return unknown(_OTHER_DEVICES[run.device])
    with capture_lock:
        found = tried(model, FakeTensors(run))
        if not (reason := found.why_not):
            return found
        byte = weights_bytes(model)
        if not fits_in_memory(byte):
            return unknown(
                f"{reason} (and {format_bytes(byte)} of weights are too many for real tensors)"
            )
        real = materialize(model, rebuild)
        if real is None:
            return found
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found = tried(real, RealTensors(run))
    if found.why_not:
        return found
    return replace(found, notes=(f"compiled on real tensors: on fakes, {reason}", *found.notes))


def _compiled(
    model: torch.nn.Module,
    inputs: Inputs,
    run: Run,
    training: TrainingConfig,
    tensors: ReplacementTensors,
) -> CompiledPass:
    import torch._dynamo.config as dynamo_config
    from torch._dynamo.utils import graph_break_reasons

    if dynamo_config.disable:
        raise UnknownScheduleError("torch.compile is switched off in this process")
    watch, training_step = _CompilationObserver(), training.new_step() if run.train else None
    with (
        _settings() as notes,
        suppress_output(),
        prepare_model(model, inputs, run, tensors, training_step) as stage,
    ):
        stage.prepare(watch)
        wrapped: Any = torch.compile(stage.model, backend=watch.backend)
        compiled = replace(stage, model=wrapped)
        compiled.step(watch)
        first = len(watch.graphs)
        # Why graphs end where they end, as Dynamo says in its first lines.
        said = (str(each.reason).strip().partition("\n")[0] for each in graph_break_reasons)
        breaks = tuple(dict.fromkeys(each[:_MAX_MESSAGE] for each in said if each))
        is_recurrent = any(isinstance(each, torch.nn.RNNBase) for each in model.modules())
        takes_recurrent = getattr(dynamo_config, "allow_rnn", False)
        if not breaks and not watch.graphs and is_recurrent and not takes_recurrent:
            breaks = ("it takes recurrent layers only if torch._dynamo.config.allow_rnn is on",)
        watch.now = "forward"
        watch.calls.clear()
        with _EagerCallCounter(watch):
            compiled.step(watch)
    return watch.result(breaks, first, notes)


def _reason(error: BaseException) -> str:
    """Why there is no schedule, in a clause."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException):
        error = inner
    if isinstance(error, UnknownScheduleError):
        return error_text(error)
    said = error_text(error).partition(" Set TORCHDYNAMO_VERBOSE")[0][:_MAX_MESSAGE].rstrip(". ")
    return f"torch.compile failed: {said or type(error).__name__}"
