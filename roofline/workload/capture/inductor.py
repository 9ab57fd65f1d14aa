"""One pass under torch.compile: what Inductor schedules and writes for it, without building it.

Dynamo, the passes over graphs, the scheduler and the code generator run as they do for any
`torch.compile(model)` with its defaults. Only the last step does not: the generated C++ is not
compiled, and in its place the graph runs as it was before, so that the model gets on to its next
graph. So no compiler is needed, and on fake tensors no weights either.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.errors import ModelError, said_by
from roofline.workload.capture.compiled import is_compiled
from roofline.workload.capture.fakes import Fakes
from roofline.workload.capture.inductor_schedule import UnknownScheduleError, graph_of
from roofline.workload.capture.passes import one_at_a_time, with_weights
from roofline.workload.capture.reals import Reals
from roofline.workload.capture.stage import Stage, staged
from roofline.workload.capture.training import Teaching
from roofline.workload.compiled_kernels import CompiledGraph, CompiledPass, EagerCalls, Part
from roofline.workload.inputs import Inputs
from roofline.workload.operators import Phase
from roofline.workload.runs import Run

_SAID = 300
"""Characters of what torch says that are shown."""


def compiled_pass(
    model: torch.nn.Module,
    inputs: Inputs,
    *,
    run: Run | None = None,
    teaching: Teaching | None = None,
    rebuild: Callable[[], torch.nn.Module] | None = None,
) -> CompiledPass:
    """What `torch.compile` with its defaults makes of one pass of `model` on a CPU.

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
        return CompiledPass(
            compiler=compiler,
            why_not=f"kernels for {run.device} are chosen by timing them on the device; only those"
            " for a CPU are known before they run",
        )
    asked = _Asked(inputs, run, teaching or Teaching())
    with one_at_a_time:
        try:
            return asked.compiled(model, Fakes(run))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = _reason(error)
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
    if isinstance(error, (ImportError, AttributeError)):
        return (
            f"this torch ({torch.__version__}) keeps Inductor's schedule in another way:"
            f" {said_by(error)[:_SAID]}"
        )
    said = said_by(error).partition(" Set TORCHDYNAMO_VERBOSE")[0][:_SAID].rstrip(". ")
    return f"torch.compile failed: {said or type(error).__name__}"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pass that is asked for."""

    inputs: Inputs
    run: Run
    teaching: Teaching

    def compiled(self, model: torch.nn.Module, tensors: Fakes | Reals) -> CompiledPass:
        lesson = self.teaching.lesson() if self.run.train else None
        watch = _Watch()
        with (
            _settings(),
            _quiet(),
            staged(model, self.inputs, self.run, tensors, lesson) as stage,
        ):
            stage.prepare(watch)
            wrapped: Any = torch.compile(stage.model, backend=watch.backend)
            compiled = _with_model(stage, wrapped)
            compiled.step(watch, watch)
            first = len(watch.graphs)
            breaks = _breaks()
            watch.begin_again()
            with _Outside(watch):
                compiled.step(watch, watch)
            stage.optimizer = None
        return watch.result(breaks, first)


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


@dataclass(slots=True, eq=False)
class _Graph:
    """A graph that was compiled, and how often it was called."""

    found: CompiledGraph
    calls: int = 0


@dataclass(eq=False)
class _Watch:
    """Sees what is compiled and called; listens to how far a step is."""

    graphs: list[_Graph] = field(default_factory=list[_Graph])
    outside: dict[tuple[str, Part], int] = field(default_factory=dict[tuple[str, Part], int])
    owners: dict[int, str] = field(default_factory=dict[int, str])
    inside: int = 0
    now: Part = "forward"

    # What a stage tells while it runs a step.

    def note_owners(self, model: torch.nn.Module) -> None:
        """Whose parameters are whose is of no interest here."""

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """While this is open, the loss is computed, as the one other part of a pass."""
        before, self.now = self.now, "loss"
        try:
            yield
        finally:
            self.now = before

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """While this is open, nothing is part of the step."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    def enter(self, phase: Phase) -> None:
        """From now on, operators belong to `phase`."""
        self.now = phase

    def own(self, tensors: Any, path: str) -> None:
        """Who owns what is of no interest here."""

    # What Dynamo and Inductor tell.

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
            found = _Graph(graph_of(graph, generated, phase=phase))
            self.graphs.append(found)
            return types.SimpleNamespace(call=self._called(found, runs))

        with (
            mock.patch.object(CppScheduling, "define_kernel", defined),
            mock.patch.object(GraphLowering, "compile_to_module", not_built),
        ):
            return compile_fx_inner(gm, inputs, **options)

    def _called(self, graph: _Graph, runs: torch.fx.GraphModule) -> Callable[[Any], Any]:
        def call(given: Any) -> Any:
            graph.calls += 1
            values = list(given)
            if isinstance(given, list):
                # So that the caller's last references go, as generated code has it.
                given.clear()
            with self.paused():
                return runs(*values)

        return call

    def begin_again(self) -> None:
        """The pass that counts begins."""
        self.now = "forward"
        for each in self.graphs:
            each.calls = 0

    def result(self, breaks: Sequence[str], first: int) -> CompiledPass:
        """What was seen of the second pass.

        Args:
            breaks: why the model became several graphs.
            first: how many graphs the first pass compiled.

        Raises:
            UnknownScheduleError: nothing was compiled.
        """
        called = [each for each in self.graphs if each.calls]
        if not called:
            raise UnknownScheduleError(
                "torch.compile left the whole model to eager torch"
                + (f": {breaks[0]}" if breaks else "")
            )
        notes: list[str] = []
        if len(self.graphs) > first:
            notes.append(
                f"the second pass compiled {len(self.graphs) - first} more graphs, as torch.compile"
                " does where shapes, strides or numbers change from call to call"
            )
        return CompiledPass(
            compiler=f"Inductor of torch {torch.__version__}",
            graphs=tuple(replace(each.found, calls=each.calls) for each in called),
            breaks=tuple(breaks),
            outside=tuple(
                EagerCalls(op=op, part=part, calls=calls)
                for (op, part), calls in self.outside.items()
            ),
            notes=tuple(notes),
        )


class _Outside(TorchDispatchMode):
    """Counts the operators that run outside of compiled graphs."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leaves compiling to itself."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        watch = self._watch
        if not watch.inside and not _is_free(func):
            key = f"{func.namespace}.{func._opname}", watch.now
            watch.outside[key] = watch.outside.get(key, 0) + 1
        return func(*args, **(kwargs or {}))


_BOOKKEEPING = frozenset(("detach", "alias", "empty", "empty_like", "empty_strided", "lift_fresh"))


def _is_free(func: Any) -> bool:
    """Whether an operator gives a view, or only allocates."""
    is_view = bool(getattr(func, "is_view", False))
    return is_view or func.namespace == "prim" or func._opname in _BOOKKEEPING


def _breaks() -> tuple[str, ...]:
    """Why graphs end where they end, as Dynamo says in its first lines."""
    from torch._dynamo.utils import graph_break_reasons

    said = (str(each.reason).strip().partition("\n")[0] for each in graph_break_reasons)
    return tuple(dict.fromkeys(each[:_SAID] for each in said if each))


# -- torch, set up for it --------------------------------------------------------------------------


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """The defaults, but without caches (what comes from them is not seen) and without workers."""
    import torch._dynamo
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    inductor = {
        "fx_graph_cache": False,
        # Partitions are for CUDA graphs.
        "graph_partition": False,
        "compile_threads": 1,
        # Else a compiler is asked which vectors it can do, which changes no schedule.
        "cpp.vec_isa_ok": True,
    }
    torch._dynamo.reset()
    try:
        with (
            inductor_config.patch(inductor),
            functorch_config.patch({"enable_autograd_cache": False}),
        ):
            yield
    finally:
        torch._dynamo.reset()
        _forget_vectors()


def _forget_vectors() -> None:
    """What was taken for granted of the compiler is asked again when something is built."""
    from torch._inductor import cpu_vec_isa

    for known in (cpu_vec_isa.valid_vec_isa_list, *map(_is_there, _kinds(cpu_vec_isa.VecISA))):
        if hasattr(known, "cache_clear"):
            known.cache_clear()


def _is_there(kind: type) -> Any:
    return kind.__dict__.get("__bool__")


def _kinds(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch from logging and warning of what the result says."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
