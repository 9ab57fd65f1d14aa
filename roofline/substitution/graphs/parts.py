"""Modules of a model that cannot be captured as a whole: captured call by call, as one graph."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from roofline.errors import ModelError, RooflineError, error_text
from roofline.run import Run
from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.capturing import CapturedModel, capture_graph, structure_of
from roofline.substitution.graphs.conversion import OVERWRITES_INPUTS
from roofline.substitution.graphs.graph import INPUT, Graph, reachable
from roofline.substitution.graphs.operators import Operators
from roofline.substitution.result import Part
from roofline.workload.capture.model_errors import raise_as_model_error
from roofline.workload.capture.passes import module_paths
from roofline.workload.capture.prepared_model import prepare_model
from roofline.workload.capture.real_tensors import RealTensors
from roofline.workload.capture.training import StepListener
from roofline.workload.inputs import InputRequest, Inputs


def call_key(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a graph depends on: shapes and strides of tensors, and other arguments.

    None: graphs cannot have such arguments.
    """
    tensors: list[torch.Tensor] = []
    try:
        structure = structure_of((tuple(args), dict(kwargs)), tensors, "an argument")
    except ModelError:
        return None
    # Graphs are built in any floating type.
    types = (None if each.is_floating_point() else each.dtype for each in tensors)
    return structure, tuple((t.shape, t.stride(), of) for t, of in zip(tensors, types, strict=True))


class SearchedPart(torch.nn.Module):
    """Module with a graph for its usual call; other calls, and training, run the module itself."""

    def __init__(self, module: torch.nn.Module, key: Any, graph: torch.nn.Module) -> None:
        super().__init__()
        self.module, self.key, self.graph = module, key, graph

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the graph, if it is for these arguments, else of the module."""
        is_usual = not self.training and call_key(args, kwargs) == self.key
        return (self.graph if is_usual else self.module)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    module: torch.nn.Module
    key: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Calls(torch.nn.Module):
    """Calls of a model's modules; its weights have the names of the model."""

    def __init__(self, model: torch.nn.Module, called: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self._parameters, self._buffers = model._parameters, model._buffers
        self._modules = model._modules
        self._called = tuple(called)

    def forward(self, given: Sequence[tuple[Any, Any]]) -> list[Any]:
        calls = zip(self._called, given, strict=True)
        return [module(*args, **kwargs) for module, (args, kwargs) in calls]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedParts:
    """Largest modules of a model that can be captured, and the modules that cannot.

    ``module`` makes one call of each with ``inputs``; ``captured`` is its graph.
    """

    model: torch.nn.Module
    module: torch.nn.Module
    inputs: Inputs
    captured: CapturedModel
    rows: tuple[Part, ...]
    _parts: tuple[tuple[_Call, CapturedModel], ...]

    def build(self, graph: Graph) -> torch.nn.Module:
        """Return a copy of the model in eval mode, with its weights, whose modules run `graph`.

        Modules without rewrites run themselves.
        """
        inputs = [number for number, node in graph.nodes.items() if node.op == INPUT]
        before = self.captured.graph
        numbers, outputs = iter(inputs), zip(graph.outputs, before.outputs, strict=True)
        kept = (*self.model.parameters(), *self.model.buffers())
        memo: dict[int, Any] = {id(each): each for each in kept}
        try:
            for call, alone in self._parts:
                nodes = alone.graph.nodes.values()
                given = {next(numbers) for node in nodes if node.op == INPUT}
                pairs = [next(outputs) for _ in alone.graph.outputs]
                results = tuple(each for each, _ in pairs)
                own = reachable(graph.nodes, results).difference(inputs) | given
                nodes = {number: node for number, node in graph.nodes.items() if number in own}
                is_same = all(before.nodes.get(each) == node for each, node in nodes.items())
                if is_same and all(one == other for one, other in pairs):
                    continue
                part = replace(graph, nodes=nodes, outputs=results)
                built = build_module(replace(self.captured, form=alone.form), part)
                module = copy.deepcopy(call.module, memo)
                memo[id(call.module)] = SearchedPart(module, call.key, built)
            return copy.deepcopy(self.model, memo).eval()
        except RooflineError:
            raise
        # Locks, generators and non-leaf tensors cannot be copied.
        except Exception as error:
            raise ModelError(
                f"{self.captured.name} cannot be copied: {type(error).__name__}:"
                f" {error_text(error)[:200]}"
            ) from error


def capture_parts(
    model: torch.nn.Module,
    inputs: Inputs,
    run: Run,
    operators: Operators,
    *,
    name: str,
    whole: ModelError,
) -> CapturedParts:
    """Return the modules that can be captured of a model that cannot, as `whole` says.

    Raises:
        ModelError: `whole`, if there are none.
    """
    with raise_as_model_error(name, module_paths(model)):
        calls = _calls_in(model, inputs, run)
    rows = [Part(path="", kind=type(model).__name__, calls=1, why=_reason(whole, name))]
    parts: dict[str, tuple[_Call, CapturedModel]] = {}
    for path, module in model.named_modules():
        if path not in calls or any(path.startswith(f"{each}.") for each in parts):
            continue
        alike = [[other for other in calls[path] if other.key == each.key] for each in calls[path]]
        usual = max(alike, key=len)
        row = Part(path=path, kind=type(module).__name__, calls=len(calls[path]))
        args, kwargs = usual[0].args, usual[0].kwargs
        try:
            found = capture_graph(module, args, kwargs, name=path, operators=operators)
        except ModelError as error:
            rows.append(replace(row, why=_reason(error, path)))
            continue
        if OVERWRITES_INPUTS in found.notes:
            rows.append(replace(row, why="it overwrites its inputs"))
        elif any(node.op != INPUT for node in found.graph.nodes.values()):
            rows.append(replace(row, searched=len(usual)))
            parts[path] = usual[0], found
    if not parts:
        raise ModelError(f"{whole}; nor can any module in it") from whole
    # In the order of the signature, as each alone was captured.
    bound = [
        inspect.signature(c.module.forward).bind(*c.args, **c.kwargs) for c, _ in parts.values()
    ]
    given = [(each.args, each.kwargs) for each in bound]
    requests = Inputs()
    requests.args = (
        pytree.tree_map_only(
            torch.Tensor, lambda each: InputRequest(shape=tuple(each.shape), like=each), given
        ),
    )
    called = _Calls(model, [call.module for call, _ in parts.values()])
    return CapturedParts(
        model=model,
        module=called,
        inputs=requests,
        captured=capture_graph(called, (given,), name=name, operators=operators),
        rows=tuple(rows),
        _parts=tuple(parts.values()),
    )


def _reason(error: ModelError, name: str) -> str:
    return str(error).removeprefix(f"{name} cannot be captured: ")


def _calls_in(model: torch.nn.Module, inputs: Inputs, run: Run) -> dict[str, list[_Call]]:
    """Return the calls of every module in one pass on real tensors, by path."""
    found: dict[str, list[_Call]] = {}

    def note(path: str, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        # Separate tensors: parts do not know that they share an input.
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
        key = call_key(args, kwargs)
        # In the order of a graph's inputs.
        order = [*inspect.signature(module.forward).parameters, *kwargs]
        kwargs = {name: kwargs[name] for name in sorted(kwargs, key=order.index)}
        call = _Call(module=module, key=key, args=args, kwargs=kwargs)
        found.setdefault(path, []).append(call)

    with (
        torch.random.fork_rng(devices=[]),
        prepare_model(model, inputs, run, RealTensors(run)) as stage,
        ExitStack() as after,
    ):
        torch.manual_seed(0)
        for path, module in stage.model.named_modules():
            if path and not isinstance(module, torch.jit.ScriptModule):
                hook = functools.partial(note, path)
                handle = module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)
                after.callback(handle.remove)
        stage.step(StepListener())
    return found
