"""ONNX functions put in place of their calls, once it is known what that comes to."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from roofline.errors import FileFormatError

_DEEPEST = 100
_MOST_NODES = 1_000_000

_Key = tuple[str, str]


def without_functions(path: Path, model: Any) -> Any:
    """The model with the bodies of its functions where they are called.

    Args:
        path: the file, for messages.
        model: an ``onnx.ModelProto``.

    Raises:
        FileFormatError: functions call each other in a circle, or come to too many nodes: a few of
            them, each of which calls the next one twice, come to more than any memory has.
    """
    if not model.functions:
        return model
    bodies = {_key(each.domain, each.name): each.node for each in model.functions}
    _Counter(path, bodies).nodes_in(model.graph.node, 0)
    return importlib.import_module("onnx.inliner").inline_local_functions(model)


def _key(domain: str, name: str) -> _Key:
    return "" if domain == "ai.onnx" else domain, name


class _Counter:
    """Counts nodes with those of the functions that they call."""

    def __init__(self, path: Path, bodies: Mapping[_Key, Iterable[Any]]) -> None:
        self._path = path
        self._bodies = bodies
        self._counted: dict[_Key, int] = {}

    def nodes_in(self, nodes: Iterable[Any], depth: int) -> int:
        """How many nodes these come to."""
        if depth > _DEEPEST:
            raise FileFormatError(
                f"{self._path}: its functions call each other more than {_DEEPEST} deep, or in a"
                " circle"
            )
        count = 0
        for node in nodes:
            count += 1 + self._called(_key(node.domain, node.op_type), depth)
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    count += self.nodes_in(graph.node, depth + 1)
            if count > _MOST_NODES:
                raise FileFormatError(
                    f"{self._path}: its functions come to more than {_MOST_NODES:,} operators"
                )
        return count

    def _called(self, key: _Key, depth: int) -> int:
        body = self._bodies.get(key)
        if body is None:
            return 0
        if key not in self._counted:
            self._counted[key] = self.nodes_in(body, depth + 1)
        return self._counted[key]
