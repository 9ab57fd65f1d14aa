"""Sees which graphs Inductor compiles and a pass calls, and what runs outside of them."""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.errors import said_by
from roofline.workload.capture.inductor_schedule import UnknownScheduleError, graph_of
from roofline.workload.compiled_kernels import CompiledGraph, CompiledPass, EagerCalls, Part
from roofline.workload.operators import Phase

SAID = 300
"""Characters of what torch says that are shown."""


@dataclass(slots=True, eq=False)
class _Graph:
    """A graph that was compiled, and how often it was called."""

    found: CompiledGraph
    calls: int = 0


@dataclass(eq=False)
class Watch:
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
            found = _Graph(_read(graph, generated, phase))
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


def _read(
    graph: Any, generated: Sequence[tuple[str, Sequence[Any]]], phase: Phase
) -> CompiledGraph:
    try:
        return graph_of(graph, generated, phase=phase)
    except (ImportError, AttributeError, TypeError, KeyError) as error:
        # Inductor's objects are no public interface.
        raise UnknownScheduleError(
            f"this torch ({torch.__version__}) keeps Inductor's schedule in another way:"
            f" {said_by(error)[:SAID]}"
        ) from error


class Outside(TorchDispatchMode):
    """Counts the operators that run outside of compiled graphs."""

    def __init__(self, watch: Watch) -> None:
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


def breaks() -> tuple[str, ...]:
    """Why graphs end where they end, as Dynamo says in its first lines."""
    from torch._dynamo.utils import graph_break_reasons

    said = (str(each.reason).strip().partition("\n")[0] for each in graph_break_reasons)
    return tuple(dict.fromkeys(each[:SAID] for each in said if each))
