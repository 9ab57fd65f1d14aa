"""The operators in a model's code, read by torch.fx: who reads what whom wrote, without sizes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from roofline.errors import ModelError, said_by
from roofline.foundation.dtypes import dtype
from roofline.quantization.modules.quantized_layers import LAYERS, is_plain_layer
from roofline.quantization.quantizers.pact import PACT
from roofline.workload.capture.passes import one_at_a_time
from roofline.workload.capture.restoration import left_as_it_was, process_left_as_it_was
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work

_FLOAT = dtype("float32")


def records_in_code(model: nn.Module) -> Sequence[OperatorRecord]:
    """The calls that a model's code makes in inference, as records whose tensors have no sizes.

    Layers are ``aten.convolution`` and ``aten.linear``; other modules of torch and functions have
    the name of their class or their own. What runs in a layer's place but computes otherwise has
    the name of its class.

    Raises:
        ModelError: the code depends on values or sizes, so that it must be run to be known.
    """
    if isinstance(model, LAYERS):
        around: nn.Module = nn.Sequential(model)
        return _Records(around, _graph(around), prefix="0").records
    return _Records(model, _graph(model)).records


class _Tracer(fx.Tracer):
    """Layers and quantisers are single steps, torch's own modules are, too."""

    # What code does with buffers would be done at once, else.
    proxy_buffer_attributes = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, (*LAYERS, PACT)) or super().is_leaf_module(m, module_qualified_name)


def _graph(model: nn.Module) -> fx.Graph:
    with one_at_a_time, left_as_it_was(model), process_left_as_it_was(), torch.no_grad():
        model.eval()
        try:
            return _Tracer().trace(model, _defaults(model))
        except KeyboardInterrupt:
            raise
        # Code that is run on what has no values may raise anything.
        except BaseException as error:
            said = f": {said_by(error)}" if said_by(error) else ""
            raise ModelError(
                f"the layers of {type(model).__name__} cannot be read from its code"
                f" ({type(error).__name__}{said}); give inputs=… and they are taken from a run"
            ) from error


def _defaults(model: nn.Module) -> dict[str, Any]:
    """What its arguments are where nothing is given, so that questions about them are answered."""
    return {
        each.name: each.default
        for each in inspect.signature(model.forward).parameters.values()
        if each.default is not each.empty
    }


class _Records:
    """Makes a record of each call in a graph.

    Args:
        model: whose graph it is.
        graph: its calls.
        prefix: the name under which what was asked for stands in `model`.
    """

    def __init__(self, model: nn.Module, graph: fx.Graph, *, prefix: str = "") -> None:
        self._model = model
        self._prefix = prefix
        self._specs: dict[fx.Node, TensorSpec] = {}
        self._storages = 0
        self.records: list[OperatorRecord] = []
        given: set[int] = set()
        for node in graph.nodes:
            if node.op == "placeholder":
                self._specs[node] = self._made(Role.INPUT)
            elif node.op == "get_attr":
                self._specs[node] = self._made(Role.PARAMETER)
            elif node.op == "output":
                given |= {self._specs[each].storage for each in node.all_input_nodes}
            else:
                self._add(node)
        self._drop(given)

    def _drop(self, given: set[int]) -> None:
        """Notes where each storage is used last; what the model gives outlives the pass."""
        last: dict[int, int] = {}
        for place, record in enumerate(self.records):
            last.update(dict.fromkeys((each.storage for each in record.inputs), place))
            last.update(dict.fromkeys((each.storage for each in record.outputs), place))
        for storage, place in last.items():
            if storage not in given:
                record = self.records[place]
                self.records[place] = replace(record, freed=(*record.freed, storage))

    def _made(self, role: Role, shape: tuple[int, ...] = ()) -> TensorSpec:
        self._storages += 1
        return TensorSpec(
            shape=shape, dtype=_FLOAT, distinct_elements=1, storage=self._storages, role=role
        )

    def _add(self, node: fx.Node) -> None:
        inputs = [self._specs[each] for each in node.all_input_nodes]
        module = self._module(node)
        op, attributes, is_in_place = _call(node, module)
        if module is not None and isinstance(module, LAYERS) and is_plain_layer(module):
            op = "aten.linear" if isinstance(module, nn.Linear) else "aten.convolution"
            weight: Any = module.weight
            inputs = [*inputs[:1], self._made(Role.PARAMETER, tuple(weight.shape))]
        written = inputs[0] if is_in_place and inputs else self._made(Role.ACTIVATION)
        self._specs[node] = written
        self.records.append(
            OperatorRecord(
                index=len(self.records),
                op=op,
                type="",
                module_path=self._path(node),
                phase="forward",
                inputs=tuple(inputs),
                outputs=(written,),
                attributes=attributes,
                state=State.COUNTED,
                work=Work(),
            )
        )

    def _module(self, node: fx.Node) -> nn.Module | None:
        return self._model.get_submodule(str(node.target)) if node.op == "call_module" else None

    def _path(self, node: fx.Node) -> str:
        """The innermost module that runs, by its name in what was asked for."""
        if node.op == "call_module":
            path = str(node.target)
        else:
            stack: Any = node.meta.get("nn_module_stack")
            path = next(reversed(stack.values()))[0] if stack else ""
        return path if not self._prefix else path.removeprefix(self._prefix).removeprefix(".")


def _call(node: fx.Node, module: nn.Module | None) -> tuple[str, dict[str, Any], bool]:
    """The name of what is called, what is known of it, and whether it changes what it reads."""
    if module is not None:
        least = getattr(module, "min_val", None)
        attributes = {} if least is None else {"min_val": least}
        is_in_place = getattr(module, "inplace", False) is True
        return f"aten.{type(module).__name__.lower()}", attributes, is_in_place
    target: Any = node.target
    name = target if isinstance(target, str) else str(getattr(target, "__name__", target))
    if name == "iadd":
        return "aten.add_", {}, True
    is_in_place = node.kwargs.get("inplace") is True or (
        name.endswith("_") and not name.endswith("__")
    )
    return f"aten.{name}", {}, is_in_place
