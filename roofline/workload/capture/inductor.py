"""One pass under torch.compile: the schedule and code of Inductor, without compiling the code.

Dynamo, the graph passes, the scheduler and the code generator run as for any `torch.compile(model)`
in this process. The generated C++ is not compiled; the original graph runs in its place, so that
the model continues to its next graph. No compiler is needed, and no weights on fake tensors.
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
"""Longest shown message of torch, in characters."""

_COMPILER = f"Inductor of torch {torch.__version__}"


class _CompilationObserver(StepListener):
    """Observes compiled graphs and calls, and the progress of a step.

    ``calls`` counts calls of ``graphs`` by position, ``outside`` those of operators outside graphs.
    """

    def __init__(self) -> None:
        self.graphs: list[CompiledGraph] = []
        self.calls: Counter[int] = Counter()
        self.outside: Counter[tuple[str, Part]] = Counter()
        self.inside = 0
        self.now: Part = "forward"

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        # The loss is the only other part of a pass.
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
        """Compile as Inductor does, without building the generated code."""
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(gm, inputs, inner_compile=self._compile)

    def _compile(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        from torch._inductor.codegen.cpp import CppScheduling
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.graph import GraphLowering

        # Inductor changes the graph; the original one runs in place of its code.
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
                    f"Inductor's schedule is not readable in torch {torch.__version__}:"
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
                # Releases the caller's references, as generated code does.
                given.clear()
            with self.paused():
                return runs(*values)

        return call

    def result(self, breaks: Sequence[str], first: int, notes: Sequence[str]) -> CompiledPass:
        """Return the observations of the second pass; `first` is the graph count of the first."""
        if not self.calls:
            raise UnknownScheduleError(
                "torch.compile ran the whole model as eager torch"
                + (f": {breaks[0]}" if breaks else "")
            )
        if len(self.graphs) > first:
            more = (
                f"the second pass compiled {len(self.graphs) - first} more graphs: shapes, strides"
                " or numbers change between calls"
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
    """Counts operators outside of compiled graphs, except views and allocations."""

    def __init__(self, watch: _CompilationObserver) -> None:
        super().__init__()
        self._watch = watch

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Exclude the compiler's own operators."""
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
    # Cached graphs would not be observed, and code that is not built must not be cached.
    "force_disable_caches": True,
    "fx_graph_cache": False,
    # Partitions are for CUDA graphs.
    "graph_partition": False,
    "compile_threads": 1,
    # Else a compiler is run to find vector instruction sets, which do not change the schedule.
    "cpp.vec_isa_ok": True,
}

_LEFT_OUT = {
    "freezing": "it computes with the weights",
    "max_autotune": "it times kernels",
    "max_autotune_gemm": "it times kernels",
    "benchmark_fusion": "it times fused kernels",
    "cpp_wrapper": "calls are read from the Python wrapper",
    "fx_wrapper": "calls are read from the Python wrapper",
    "memory_planning": "buffers are read with default allocation",
}
"""Settings that need compiled code, with the reason; they are turned off."""

_OF_THE_ENVIRONMENT = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_")

_WITHOUT_EFFECT = ("_DIR", "CACHE", "THREADS")
"""Parts of variable names without effect on the generated code."""

_UNKNOWN = object()


@contextlib.contextmanager
def _settings() -> Iterator[tuple[str, ...]]:
    """Apply Inductor's settings of this process, except those that need compiled code.

    Yields notes on settings turned off, and on environment variables.
    """
    import torch._dynamo
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._inductor import cpp_builder
    from torch._inductor.cpu_vec_isa import VecISA

    def value(name: str) -> Any:
        """Return a setting; `_UNKNOWN` if this version of torch does not have it."""
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
            # torch would compile a few lines to test the compiler.
            mock.patch.object(VecISA, "check_build", lambda *_: False),
            # The compiler changes only pragmas, and there may be none.
            mock.patch.object(cpp_builder, "get_cpp_compiler", lambda: "g++"),
        ):
            yield tuple(_notes(left_out))
    finally:
        torch._dynamo.reset()
        _forget_compiler()


def _notes(left_out: dict[str, str]) -> Iterator[str]:
    for name, why in left_out.items():
        yield f"torch._inductor.config.{name} was turned off: {why}"
    names = (each for each in sorted(os.environ) if each.startswith(_OF_THE_ENVIRONMENT))
    found = [each for each in names if not any(part in each for part in _WITHOUT_EFFECT)]
    if found:
        yield f"the environment sets {', '.join(f'{each}={os.environ[each]}' for each in found)}"


def _forget_compiler() -> None:
    """Clear cached answers about the compiler, so that later builds ask again."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    kinds: list[type] = [cpu_vec_isa.VecISA]
    for kind in kinds:
        kinds += kind.__subclasses__()
    remembered = [each for kind in kinds for each in vars(kind).values()]
    queries = [each for name, each in vars(cpp_builder).items() if name.startswith("is_")]
    for known in (cpu_vec_isa.valid_vec_isa_list, *remembered, *queries):
        if hasattr(known, "cache_clear"):
            known.cache_clear()


_OTHER_DEVICES = {
    "cuda": "Inductor times CUDA kernels on the device to choose them; only CPU kernels are known"
    " without a run",
    "meta": "the meta device has no kernels; use the CPU",
}
"""Reasons for a missing schedule."""


def capture_compiled(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    run: Run | None = None,
    training: TrainingConfig | None = None,
    rebuild: Callable[[], torch.nn.Module] | None = None,
) -> CompiledPass:
    """Return the kernels of `torch.compile(model)` for one CPU pass; arguments as for `capture`.

    The model runs twice on fake tensors, or on real ones if that fails: once to compile, and once
    to count the graphs of a repeated pass. Without a schedule, ``why_not`` is the reason. Earlier
    compilations of this process are discarded.

    Raises:
        ModelError: the model is compiled already.
    """
    run, training = run or Run(), training or TrainingConfig()
    if any(map(is_compiled, model.modules())):
        raise ModelError(f"{type(model).__name__} is compiled already; pass the original module")

    def unknown(why_not: str) -> CompiledPass:
        return CompiledPass(compiler=_COMPILER, why_not=why_not)

    def tried(model: torch.nn.Module, tensors: ReplacementTensors) -> CompiledPass:
        try:
            return _compiled(model, inputs, run, training, tensors)
        except KeyboardInterrupt:
            raise
        # A compiler may raise anything; no traceback reaches the user.
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
                f"{reason} ({format_bytes(byte)} of weights are too many for a run on real tensors)"
            )
        real = materialize(model, rebuild)
        if real is None:
            return found
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found = tried(real, RealTensors(run))
    if found.why_not:
        return found
    note = f"compiled on real tensors; on fake tensors: {reason}"
    return replace(found, notes=(note, *found.notes))


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
        raise UnknownScheduleError("torch.compile is disabled in this process")
    watch, step = _CompilationObserver(), training.new_step() if run.train else None
    with (
        _settings() as notes,
        suppress_output(),
        prepare_model(model, inputs, run, tensors, step) as stage,
    ):
        stage.prepare(watch)
        wrapped: Any = torch.compile(stage.model, backend=watch.backend)
        compiled = replace(stage, model=wrapped)
        compiled.step(watch)
        first = len(watch.graphs)
        # Reasons for graph breaks: the first lines of Dynamo's messages.
        lines = (str(each.reason).strip().partition("\n")[0] for each in graph_break_reasons)
        breaks = tuple(dict.fromkeys(each[:_MAX_MESSAGE] for each in lines if each))
        is_recurrent = any(isinstance(each, torch.nn.RNNBase) for each in model.modules())
        takes_recurrent = getattr(dynamo_config, "allow_rnn", False)
        if not breaks and not watch.graphs and is_recurrent and not takes_recurrent:
            breaks = ("recurrent layers need torch._dynamo.config.allow_rnn",)
        watch.now = "forward"
        watch.calls.clear()
        with _EagerCallCounter(watch):
            compiled.step(watch)
    return watch.result(breaks, first, notes)


def _reason(error: BaseException) -> str:
    """Return the reason for a missing schedule, as a clause."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException):
        error = inner
    if isinstance(error, UnknownScheduleError):
        return error_text(error)
    text = error_text(error).partition(" Set TORCHDYNAMO_VERBOSE")[0][:_MAX_MESSAGE].rstrip(". ")
    return f"torch.compile failed: {text or type(error).__name__}"
