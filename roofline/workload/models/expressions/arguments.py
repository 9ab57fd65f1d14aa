"""Arguments as written, held against those that a layer or a factory takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

from roofline.errors import nearest
from roofline.foundation.places import PlacedError
from roofline.workload.models.expressions.arithmetic import plain
from roofline.workload.models.expressions.syntax import Argument, Layer


def call_of(
    layer: Layer, signature: Signature, text: str
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The positional and the named arguments that `layer` is called with.

    Args:
        layer: as it is written.
        signature: what it takes, without ``self``.
        text: all of the design.

    Raises:
        PlacedError: too many arguments, one that it does not take, one that is missing.
    """
    given = layer.arguments or ()
    _check(layer, given, signature, text)
    return (
        tuple(plain(each.value, text) for each in given if not each.name),
        {each.name: plain(each.value, text) for each in given if each.name},
    )


def signature_of(factory: Callable[..., Any]) -> Signature:
    """What a factory takes; anything, where Python does not know."""
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):
        many = [
            Parameter("args", Parameter.VAR_POSITIONAL),
            Parameter("kwargs", Parameter.VAR_KEYWORD),
        ]
        return Signature(many)


def form(name: str, signature: Signature) -> str:
    """How a layer is written: ``conv2d(in_channels, out_channels, kernel_size, …)``."""
    parameters = signature.parameters.values()
    needed = [each.name for each in parameters if _is_needed(each)]
    optional = [each.name for each in parameters if not _is_needed(each)]
    if not needed and optional:
        needed, optional = optional[:2], optional[2:]
    return f"{name}({', '.join([*needed, *(['…'] if optional else [])])})"


def _is_needed(parameter: Parameter) -> bool:
    many = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and parameter.kind not in many


def _check(layer: Layer, given: Sequence[Argument], signature: Signature, text: str) -> None:
    parameters: dict[str, Any] = dict(signature.parameters)
    kinds = {each.kind for each in parameters.values()}
    places = [
        each.name
        for each in parameters.values()
        if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    written = form(layer.full_name, signature)
    positional = [each for each in given if not each.name]
    if len(positional) > len(places) and Parameter.VAR_POSITIONAL not in kinds:
        takes = f"{len(places)} at most" if places else "none"
        raise PlacedError(
            f"{layer.full_name} takes no {_ordinal(len(places) + 1)} argument without a name"
            f" ({takes}: {written})",
            text,
            positional[len(places)].at,
        )
    filled = set(places[: len(positional)])
    for each in given:
        if each.name in filled:
            raise PlacedError(
                f"'{each.name}' is given twice: the {_ordinal(places.index(each.name) + 1)}"
                f" argument of {layer.full_name} is it too",
                text,
                each.at,
            )
        if each.name and each.name not in parameters and Parameter.VAR_KEYWORD not in kinds:
            raise PlacedError(
                f"{layer.full_name} takes no argument '{each.name}'"
                f"{nearest(each.name, parameters)} ({_all_of(signature)})",
                text,
                each.at,
            )
    named = {each.name for each in given}
    missing = [
        name
        for name, each in parameters.items()
        if _is_needed(each) and name not in filled and name not in named
    ]
    if missing:
        raise PlacedError(
            f"{layer.full_name} needs {' and '.join(missing)} too: {written}", text, layer.at
        )


def _all_of(signature: Signature) -> str:
    names = list(signature.parameters)
    return f"it takes {', '.join(names)}" if names else "it takes none"


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
