"""An ONNX graph that runs: each of its operators calls torch's, so that capture counts them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from roofline.errors import ModelError, said_by
from roofline.foundation.text import printable
from roofline.workload.models.files.onnx_graph import Graph, Node
from roofline.workload.models.files.onnx_operators.registry import (
    OtherwiseError,
    function_of,
    is_random,
)
from roofline.workload.models.files.onnx_operators.shapes import made_elements
from roofline.workload.models.files.onnx_unknown import unknown_call

_MOST_KNOWN = 4096
"""Elements of values that are computed beside the pass, because sizes may follow from them."""

_MOST_MADE = 2**24
"""Elements that one operator may make of such values before it is seen how many it keeps."""

_STATISTICS = {"BatchNormalization": (3, 4)}
"""Which inputs of an operator are no parameters: running means and variances."""

_SIZES = {"Resize": (1, 2), "Upsample": (1,), "OneHot": (2,), "Pad": (2,), "Clip": (1, 2)}
"""Which inputs of an operator are floats that say how it works."""


class OnnxModel(torch.nn.Module):
    """A graph's operators in their order.

    Sizes that the graph computes for itself (``Shape``, ``Gather``, ``Concat`` …) are computed
    beside the pass, as Python computes them in eager code, and leave no records.

    Args:
        graph: what runs.
        title: what messages call it.
    """

    def __init__(self, graph: Graph, *, title: str) -> None:
        super().__init__()
        self.takes = tuple(each.name for each in graph.inputs)
        self._graph = graph
        self._title = title
        self._weight_names: dict[str, str] = {}
        self._constants: dict[str, torch.Tensor] = {}
        statistics, sizes = (_read_at(graph, places) for places in (_STATISTICS, _SIZES))
        for name, tensor in graph.weights.items():
            is_value = name in sizes or not tensor.dim() or not _is_float(tensor)
            if is_value and tensor.numel() <= _MOST_KNOWN:
                self._constants[name] = tensor
                continue
            safe = _safe_name(name, self._weight_names.values())
            self._weight_names[name] = safe
            if name in statistics or not _is_float(tensor):
                self.register_buffer(safe, tensor)
            else:
                self.register_parameter(safe, torch.nn.Parameter(tensor))
        self._last_use = _last_uses(graph)

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        """What the graph gives of its inputs, by position or by name: a tensor or a tuple."""
        values = self._given(args, kwargs)
        for name, safe in self._weight_names.items():
            values[name] = getattr(self, safe)
        known = dict(self._constants)
        for position, node in enumerate(self._graph.nodes):
            self._run(node, values, known)
            for name in self._last_use.get(position, ()):
                values.pop(name, None)
        results = tuple(
            known[name] if name in known else values[name] for name in self._graph.outputs
        )
        return results[0] if len(results) == 1 else results

    def _given(
        self, args: Sequence[torch.Tensor], kwargs: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        if len(args) > len(self.takes) or not set(kwargs) <= set(self.takes[len(args) :]):
            raise ValueError(f"it takes {', '.join(self.takes)}")
        values = dict(zip(self.takes, args, strict=False)) | kwargs
        missing = [each for each in self.takes if each not in values]
        if missing:
            raise ValueError(f"it also takes {', '.join(missing)}")
        return values

    def _run(
        self, node: Node, values: dict[str, torch.Tensor], known: dict[str, torch.Tensor]
    ) -> None:
        """Calls a node, beside the pass where all that it reads is known."""
        if node.full_name in ("Shape", "Size") and all(
            (node.inputs, node.outputs, *node.inputs, *node.outputs)
        ):
            sizes = known[node.inputs[0]] if node.inputs[0] in known else values[node.inputs[0]]
            with _disable_current_modes():
                known[node.outputs[0]] = _sizes(node, sizes)
            return
        operands = [
            known[name] if name in known else values[name] if name else None for name in node.inputs
        ]
        for name, result in zip_longest(node.outputs, self._results(node, operands, known)):
            if name and result is None:
                raise RuntimeError(
                    f"{node.operator} '{printable(node.name)[:60]}' gives no"
                    f" '{printable(name)[:60]}'"
                )
            if name and result is not None and name not in known:
                values[name] = result

    def _results(
        self, node: Node, operands: list[Any], known: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor | None, ...]:
        """What a node gives; what is small and known by its values is put among these."""
        function = function_of(node)
        if function is None:
            return self._unknown(node, operands)
        are_known = not is_random(node) and all(name in known for name in node.inputs if name)
        try:
            if are_known and made_elements(node, operands) <= _MOST_MADE:
                with _disable_current_modes():
                    results = self._called(node, function, operands)
                if all(each is None or each.numel() <= _MOST_KNOWN for each in results):
                    made = zip(node.outputs, results, strict=False)
                    known |= {name: each for name, each in made if name and each is not None}
                    return results
            return self._called(node, function, operands)
        except OtherwiseError:
            return self._unknown(node, operands)

    def _unknown(self, node: Node, operands: list[Any]) -> tuple[torch.Tensor | None, ...]:
        return unknown_call(node, operands, self._graph.known, title=self._title)

    def _called(
        self, node: Node, function: Any, operands: list[Any]
    ) -> tuple[torch.Tensor | None, ...]:
        try:
            result = function(node, *operands)
        except (RuntimeError, ModelError):
            raise
        # What the table does not foresee: operands that are left out, attributes of another type.
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise RuntimeError(
                f"{node.operator} '{printable(node.name)[:60]}': {type(error).__name__}:"
                f" {said_by(error)}"
            ) from error
        return result if isinstance(result, tuple) else (result,)


def _read_at(graph: Graph, places: Mapping[str, Sequence[int]]) -> set[str]:
    """The values that operators read as one of these inputs."""
    return {
        node.inputs[place]
        for node in graph.nodes
        for place in places.get(node.operator, ())
        if place < len(node.inputs)
    }


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _sizes(node: Node, tensor: torch.Tensor) -> torch.Tensor:
    if node.operator == "Size":
        return torch.tensor(tensor.numel())
    shape = list(tensor.shape)
    end = node.get("end", len(shape))
    return torch.tensor(shape[node.get("start", 0) : end], dtype=torch.int64)


def _safe_name(name: str, taken: Any) -> str:
    """A name that a module may have for a tensor, near that of the file."""
    safe = re.sub(r"\W", "_", name) or "weight"
    safe = f"w_{safe}" if safe[0].isdigit() or hasattr(torch.nn.Module, safe) else safe
    while safe in taken or safe in ("training", "takes"):
        safe += "_"
    return safe


def _last_uses(graph: Graph) -> dict[int, tuple[str, ...]]:
    """The values that nobody reads any more after each node, as eager code would drop them."""
    last: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        for name in (*node.inputs, *node.outputs):
            last[name] = position
    kept = {*graph.outputs, *graph.weights}
    found: dict[int, list[str]] = {}
    for name, position in last.items():
        if name not in kept:
            found.setdefault(position, []).append(name)
    return {position: tuple(names) for position, names in found.items()}
