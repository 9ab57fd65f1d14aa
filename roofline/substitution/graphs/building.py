"""Modules built from graphs: called like the captured model, with its weights."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import io
import operator
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import fx
from torch._library.custom_ops import OPDEFS
from torch.fx.node import map_aggregate

from roofline.errors import InputError, ModelError, RooflineError, error_text
from roofline.substitution.graphs.capturing import CallForm, CapturedModel, Structure
from roofline.substitution.graphs.counting import Storages
from roofline.substitution.graphs.graph import INPUT, Argument, Graph, Node, Value, Weight
from roofline.substitution.graphs.operators import (
    Binding,
    Operators,
    Outcome,
    Plan,
    function_of,
    places_of,
    returns_tensor,
)
from roofline.workload.torch_dtypes import torch_dtype

# -- how operators are called ----------------------------------------------------------------------


_NEURAL: Any = getattr(torch._C, "_nn")  # noqa: B009  it is not in torch's stubs


_bindings: dict[tuple[Any, ...], Binding] = {}


def _binding(plan: Plan, *, in_place: bool) -> Binding:
    """Return the fastest equivalent way to call a node's operator.

    Calling an overload object costs 1–2 µs more than torch's function, as much as a small operator.
    A function is used only if its call leaves the same records as the overload.
    """
    node = plan.node
    places = places_of(plan.operands, plan.types)

    def outcome(binding: Binding) -> Outcome | None:
        try:
            return binding.outcome(plan.arguments, places)
        except RooflineError:
            raise
        # Rejected arguments raise various exceptions.
        except Exception:
            return None

    key = (node.op, node.overload, in_place, repr(plan.arguments), places)
    if key not in _bindings:
        overload = function_of(node.op, node.overload, in_place=in_place)
        whole = Binding.of(overload, overload, {})
        expected = outcome(whole)
        names = (each.name for each in overload._schema.arguments)
        given = dict(zip(names, plan.arguments, strict=True))
        shorter = (Binding.of(each, overload, given) for each in _candidates(overload))
        same = (each for each in shorter if expected is not None and outcome(each) == expected)
        _bindings[key] = next(same, whole)
    return _bindings[key]


def _candidates(overload: Any) -> Iterator[Callable[..., Any] | str]:
    if overload.namespace != "aten":
        return
    name = overload._opname
    for home in (torch, _NEURAL):
        function = getattr(home, name, None)
        if isinstance(function, types.BuiltinFunctionType):
            yield function
    if overload._schema.arguments and hasattr(torch._C.TensorBase, name):
        yield name


# -- weights ---------------------------------------------------------------------------------------


class _WeightTensors:
    """Tensors of weights; derived ones are computed once."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._made: dict[str, torch.Tensor] = {}

    def tensor(self, weight: Weight) -> torch.Tensor:
        if weight.name:
            if weight.name not in self._tensors:
                raise ModelError(f"the model has no weight '{weight.name}'")
            return self._tensors[weight.name]
        type = weight.type
        made = torch.empty_strided(type.shape, type.stride, dtype=torch_dtype(type.dtype))
        with torch.no_grad():
            made.copy_(self._exact(weight))
        if not weight.is_parameter:
            return made
        takes_gradients = weight.is_trained and made.is_floating_point()
        return torch.nn.Parameter(made, requires_grad=takes_gradients)

    def _exact(self, weight: Weight) -> torch.Tensor:
        """Return a weight in float64; integers unchanged."""
        # Iterative: rewrites of rewrites may be nested deeper than Python's stack.
        waiting = [weight]
        while waiting:
            each = waiting[-1]
            missing = [part for part in each.of if part.made_by and part.key not in self._made]
            if missing and each.key not in self._made:
                waiting += missing
                continue
            if each.key not in self._made:
                self._made[each.key] = self._computed(each)
            waiting.pop()
        return self._made[weight.key]

    def _computed(self, weight: Weight) -> torch.Tensor:
        from roofline.substitution.rules.rule import weight_constructor

        of: list[torch.Tensor] = []
        for each in weight.of:
            # Cast on demand, to limit memory.
            own = self._made[each.key] if each.made_by else self.tensor(each).detach()
            of.append(own.to(torch.float64) if own.is_floating_point() and each.name else own)
        try:
            with torch.no_grad():
                made: Any = weight_constructor(weight.made_by)(*of, **dict(weight.options))
        # Constructors may be user code.
        except Exception as error:
            raise ModelError(
                f"the weight constructor '{weight.made_by}' failed: {error_text(error)}"
            ) from error
        if not isinstance(made, torch.Tensor) or tuple(made.shape) != weight.type.shape:
            given = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
            raise ModelError(
                f"the weight constructor '{weight.made_by}' returned {given}, but declares"
                f" {weight.type.shape}"
            )
        return made


_TAKEN = frozenset(dir(fx.GraphModule)) | {"graph", "code", "recipe", "names", "casts"}
"""Attribute names that module weights cannot have."""


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, or a similar one that is no attribute or submodule yet."""
    first, dot, rest = name.partition(".")
    if first in _TAKEN or not first:
        name = f"{first}_{dot}{rest}"
    places = {
        ".".join(parts[:count])
        for parts in (each.split(".") for each in taken)
        for count in range(1, len(parts) + 1)
    }
    free, number = name, 1
    while free in places or any(free.startswith(f"{each}.") for each in taken):
        number += 1
        free = f"{name}_{number}"
    return free


# -- modules ---------------------------------------------------------------------------------------

_operators = Operators()


def build_module(
    captured: CapturedModel,
    graph: Graph,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> torch.nn.Module:
    """Return a module in eval mode that computes `graph`, captured or derived from `captured`.

    It has the call signature and results of the model, and shares its weights; `weights` replaces
    some by name. Derived weights are computed in float64, then cast. Arguments that are not tensors
    are fixed to their values at capture.
    """
    made = _WeightTensors({**captured.weights, **(weights or {})})
    return _ModuleBuilder(captured.form, graph, made.tensor).module()


class BuiltModule(fx.GraphModule):
    """Module built from a graph of operators.

    It is copied and pickled as its graph and weights. Casting the module also casts the data types
    among operator arguments.
    """

    recipe: tuple[CallForm, Graph]
    names: Mapping[str, str]
    """Weight names, by key."""
    casts: tuple[Mapping[torch.dtype, torch.dtype], ...] = ()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        floating = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
        types = {each: fn(torch.empty(0, dtype=each)).dtype for each in floating}
        if any(before != after for before, after in types.items()):
            self.cast(types)
        return self

    def cast(self, types: Mapping[torch.dtype, torch.dtype]) -> None:
        def changed(each: Any) -> Any:
            return types.get(each, each) if isinstance(each, torch.dtype) else each

        self.casts = (*self.casts, types)
        for node in self.graph.nodes:
            node.args = map_aggregate(node.args, changed)
            node.kwargs = map_aggregate(node.kwargs, changed)
        self.recompile()

    def __deepcopy__(self, memo: dict[int, Any]) -> BuiltModule:
        recipe, *state = self.__reduce__()[1]
        return _rebuild(recipe, *copy.deepcopy(state, memo))

    def __reduce__(self) -> Any:
        named = {
            **dict(self.named_parameters(remove_duplicate=False)),
            **dict(self.named_buffers(remove_duplicate=False)),
        }
        tensors = {key: named[name] for key, name in self.names.items()}
        homes = _homes(self.recipe[1])
        return _rebuild, (self.recipe, tensors, self.casts, self.training, homes)


def _homes(graph: Graph) -> tuple[str, ...]:
    """Return the modules that define operators which torch has not; other processes import them."""
    found: dict[str, None] = {}
    for op in {node.op for node in graph.nodes.values() if "." in node.op}:
        space, _, rest = op.partition(".")
        name = f"{space}::{rest}"
        if name in OPDEFS:
            found[OPDEFS[name]._init_fn.__module__] = None
            continue
        file = re.search(r"debug: registered at (.+):\d+", torch._C._dispatch_dump(name))
        if file is None or "/ATen/" in file[1] or "/torch/csrc/" in file[1]:
            continue
        modules = tuple(sys.modules.items())
        homes = (home for home, each in modules if getattr(each, "__file__", None) == file[1])
        # Packages often name the operators of their library after themselves. Others, as those of
        # notebooks, may exist in this process only.
        found[next(homes, space if space in sys.modules else "__main__")] = None
    return tuple(found)


def _rebuild(
    recipe: tuple[CallForm, Graph],
    tensors: Mapping[str, torch.Tensor],
    casts: tuple[Mapping[torch.dtype, torch.dtype], ...],
    training: bool,
    homes: tuple[str, ...] = (),
) -> BuiltModule:
    for home in homes:
        # A file that no import finds may have been run; else the operator is missing.
        with contextlib.suppress(ImportError):
            importlib.import_module(home)
    module = _ModuleBuilder(*recipe, lambda weight: tensors[weight.key]).module()
    for each in casts:
        module.cast(each)
    module.train(training)
    return module


def check_argument(value: Any, expected: Any, name: str) -> None:
    """Check a non-tensor argument against its value at capture; raise an InputError if it
    differs.
    """
    if value is not expected and (isinstance(value, torch.Tensor) or value != expected):
        raise InputError(
            f"argument '{name}' is fixed to {expected!r}, its value at capture; capture the model"
            " with other arguments"
        )


def as_plain_module(module: torch.nn.Module) -> torch.nn.Module:
    """Return an equivalent module for torch.export.

    torch.export passes arguments to graph modules by order, and to other modules by name.
    """
    if not isinstance(module, BuiltModule):
        return module
    same = type(BuiltModule.__name__, (torch.nn.Module,), {"forward": type(module).forward})()
    same.__dict__.update(module.__dict__)
    return same


def export_program(
    module: torch.nn.Module, arguments: tuple[tuple[Any, ...], dict[str, Any]], *, name: str
) -> bytes:
    """Return the content of a ``.pt2`` file: module and weights, for inputs of these shapes."""
    positional, keywords = arguments
    content = io.BytesIO()
    with warnings.catch_warnings():
        # torch.export warns about its own deprecated parts.
        warnings.simplefilter("ignore")
        try:
            with torch.no_grad():
                program = torch.export.export(as_plain_module(module), positional, keywords)
                torch.export.save(program, content)
        except Exception as error:
            why = error_text(error)[:200]
            raise ModelError(
                f"{name}: torch.export failed ({type(error).__name__}: {why}); omit the .pt2 file,"
                " and pickle the module of roofline.optimize"
            ) from None
    return content.getvalue()


class _ModuleBuilder:
    def __init__(
        self, form: CallForm, graph: Graph, tensor: Callable[[Weight], torch.Tensor]
    ) -> None:
        self._form = form
        self._graph = graph
        self._tensor = tensor
        self._storages = Storages(graph, _operators)
        self._fx = fx.Graph()
        self._found: dict[Value, fx.Node] = {}
        self._weights: dict[str, fx.Node] = {}
        self._attributes: dict[str, torch.Tensor] = {}
        self._names: dict[str, str] = {}

    def module(self) -> BuiltModule:
        inputs = [number for number, node in self._graph.nodes.items() if node.op == INPUT]
        form = self._form
        placeholders: list[fx.Node] = []
        for each in form.parameters:
            name = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "") + each.name
            default = {} if each.default is each.empty else {"default_value": _plain_default(each)}
            placeholders.append(self._fx.placeholder(name, **default))
        given = dict(form.arguments)
        for parameter, node in zip(form.parameters, placeholders, strict=True):
            self._given(node, parameter, given.get(parameter.name), inputs)
        for number, node in self._graph.nodes.items():
            if node.op != INPUT:
                self._call(number, node)
        flat = [self._argument(each, None) for each in self._graph.outputs]
        self._fx.output(self._result(form.result, flat))
        module = BuiltModule(self._attributes, self._fx, BuiltModule.__name__)
        module.recipe, module.names = (form, self._graph), self._names
        return module.eval()

    def _given(
        self,
        node: fx.Node,
        parameter: inspect.Parameter,
        structure: Structure | None,
        inputs: list[int],
    ) -> None:
        if structure is None:
            nothing: dict[Any, Any] = {parameter.VAR_POSITIONAL: (), parameter.VAR_KEYWORD: {}}
            default = nothing.get(parameter.kind, _plain_default(parameter))
            self._fx.call_function(check_argument, (node, default, parameter.name))
            return
        for path, part in structure.leaves():
            found = node
            for kind, key in path:
                func = getattr if kind == "dataclass" else operator.getitem
                found = self._fx.call_function(func, (found, key))
            if part.kind == "tensor":
                self._found[Value(inputs[part.number])] = found
            elif part.constant is None or isinstance(part.constant, _PLAIN):
                self._fx.call_function(check_argument, (found, part.constant, parameter.name))

    def _call(self, number: int, node: Node) -> None:
        plan = self._storages.plans[number]
        bound = _binding(plan, in_place=number in self._storages.overwriting)
        arguments = [self._argument(each, node, name) for name, each in node.arguments]
        args, kwargs = bound.taken(arguments)
        if isinstance(bound.target, str):
            called = self._fx.call_method(bound.target, args, kwargs)
        else:
            called = self._fx.call_function(bound.target, args, kwargs)
        if returns_tensor(node.op, node.overload):
            self._found[Value(number)] = called
            return
        for output in range(len(node.outputs)):
            value = Value(number, output)
            if self._graph.users(value) or self._graph.is_returned(value):
                self._found[value] = self._fx.call_function(operator.getitem, (called, output))

    def _argument(self, argument: Argument, user: Node | None, name: str = "") -> Any:
        if isinstance(argument, Value):
            return self._found[argument]
        if isinstance(argument, Weight):
            if argument.key not in self._weights:
                self._weights[argument.key] = self._weight(argument, user, name)
            return self._weights[argument.key]
        if isinstance(argument, tuple):
            inside = cast("tuple[Argument, ...]", argument)
            return [self._argument(each, user, name) for each in inside]
        return argument

    def _weight(self, weight: Weight, user: Node | None, argument: str) -> fx.Node:
        name = weight.name
        if not name:
            # Named after its constructor and user.
            parts = (weight.made_by, user.module_path if user else "", argument)
            name = re.sub(r"\W+", "_", "_".join(filter(None, parts))).strip("_")
        name = _free_name(name, self._attributes)
        self._attributes[name] = self._tensor(weight)
        self._names[weight.key] = name
        return self._fx.get_attr(name)

    def _result(self, structure: Structure, flat: list[Any]) -> Any:
        if structure.kind == "tensor":
            return flat[structure.number]
        if structure.kind == "constant":
            if isinstance(structure.constant, torch.Size):
                # A literal torch.Size would become a plain tuple.
                return self._fx.call_function(torch.Size, (list(structure.constant),))
            return structure.constant
        items = [self._result(each, flat) for each in structure.items]
        if structure.type is tuple:
            return tuple(items)
        pairs = list(zip(structure.keys, items, strict=True))
        if structure.kind == "dataclass":
            return self._fx.call_function(structure.type, (), dict(pairs))
        if structure.type is list:
            # torch.fx's lists and dictionaries of arguments are immutable.
            return self._fx.call_function(list, (items,))
        if structure.kind == "named tuple":
            return self._fx.call_function(structure.type, tuple(items))
        return self._fx.call_function(structure.type, (pairs,))


_PLAIN = (bool, int, float, str)


def _plain_default(parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter if it has a literal form, else None."""
    default: Any = parameter.default
    parts = cast("tuple[Any, ...]", default) if isinstance(default, tuple) else (default,)
    return default if all(isinstance(each, _PLAIN) for each in parts) else None
