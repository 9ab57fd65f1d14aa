"""A model that takes and gives nothing but tensors, as torch.export and torch.fx take it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from roofline.substitution.graphs.structure import Structure, structure_of


class Flat(torch.nn.Module):
    """Takes tensors and gives tensors; what they are to the model is known here.

    Args:
        model: the model.
        call: makes its arguments of tensors.
        inputs: the names of what it is called with, one for each tensor.
        note: told what the model returns.
        name: what messages call it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        call: Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]],
        inputs: Sequence[str],
        note: Callable[[Structure], None],
        name: str,
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.is_eager = True
        self._call = call
        # A function, for torch.export puts back what the containers of a module hold.
        self._note = note
        self._called = name

    def forward(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        args, kwargs = self._call(tensors)
        results: list[Any] = []
        with _as_if_eager() if self.is_eager else contextlib.nullcontext():
            result = self.model(*args, **kwargs)
        self._note(structure_of(result, results, f"{self._called}: what it returns"))
        return tuple(results)


@contextlib.contextmanager
def _as_if_eager() -> Iterator[None]:
    """Models that ask hear that nobody exports them, and do what they do when they just run."""
    home = torch.compiler
    before = home._is_compiling_flag, home._is_exporting_flag
    home._is_compiling_flag = home._is_exporting_flag = False
    try:
        yield
    finally:
        home._is_compiling_flag, home._is_exporting_flag = before


def caller(
    parameters: tuple[inspect.Parameter, ...], arguments: tuple[tuple[str, Structure], ...]
) -> Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]:
    """What makes arguments of tensors."""
    kinds = {each.name: each.kind for each in parameters}
    # Those that come before the first that is left out can be given by position.
    leading = set[str]()
    for parameter, (name, _) in zip(parameters, arguments, strict=False):
        if parameter.name != name or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            break
        leading.add(name)

    def call(tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, structure in arguments:
            value = structure.filled(tensors)
            if kinds[name] is inspect.Parameter.VAR_KEYWORD:
                kwargs |= value
            elif kinds[name] is inspect.Parameter.VAR_POSITIONAL:
                args += value
            elif name in leading:
                args.append(value)
            else:
                kwargs[name] = value
        return args, kwargs

    return call
