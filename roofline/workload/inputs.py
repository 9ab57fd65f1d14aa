"""Inputs of a model as the user gives them: as text or in Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from roofline.core.dtypes import DType, dtype
from roofline.core.units import parse_shape
from roofline.errors import InputError, argument
from roofline.workload.models.expressions.reading import is_expression


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """A requested tensor: ``1x3x224x224``, ``1x128:int64`` … see `parse_input`.

    ``name`` is its keyword (``""``: positional). ``like`` is a given tensor, which sets type,
    strides, and values if they are needed.
    """

    name: str = ""
    shape: tuple[int, ...]
    dtype: DType | None = None
    like: torch.Tensor | None = None


class Inputs:
    """Arguments of a model: ``Inputs(x, mask=m)`` stands for ``model(x, mask=m)``.

    Arguments are tensors, shapes (``(1, 3, 224, 224)`` or ``"1x3x224x224"``), and nested
    dictionaries, lists and tuples of these. Other values are passed unchanged: None, flags,
    numbers, other texts, lists of numbers.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.

    Raises:
        InputError: a sparse or nested tensor, or an invalid shape.
    """

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        self.args: tuple[Any, ...] = tuple(_request(each) for each in args)
        self.kwargs: dict[str, Any] = {name: _request(each) for name, each in kwargs.items()}

    def requests(self) -> Iterator[tuple[str, InputRequest]]:
        """Yield requested tensors with their paths: ``"mask"``, ``"0.images[1]"`` …

        The path of a positional tensor is ``""``.
        """
        for name, value in (*enumerate(self.args), *self.kwargs.items()):
            for path, leaf in pytree.tree_flatten_with_path(value)[0]:
                if isinstance(leaf, InputRequest):
                    is_positional = isinstance(name, int) and not path
                    steps = "".join(map(_step, path))
                    yield "" if is_positional else f"{name}{steps}", leaf

    def build(self, make: Callable[[InputRequest], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments, with tensors created by `make`."""

        def made(leaf: Any) -> Any:
            return make(leaf) if isinstance(leaf, InputRequest) else leaf

        return pytree.tree_map(made, self.args), pytree.tree_map(made, self.kwargs)

    def with_batch(self, batch: int) -> Inputs:
        """Return the inputs with `batch` as dimension 0 of every tensor.

        Raises:
            InputError: an input without dimensions, or several tensors in one argument.
        """
        changed = Inputs()
        changed.args = tuple(_with_batch(each, batch) for each in self.args)
        changed.kwargs = {name: _with_batch(each, batch) for name, each in self.kwargs.items()}
        return changed


def _step(key: Any) -> str:
    """Return a step into an argument in Python syntax: ``.image``, ``[0]``."""
    if isinstance(key, pytree.SequenceKey):
        return f"[{key.idx}]"
    name = str(getattr(key, "key", getattr(key, "name", key)))
    return f".{name}" if name.isidentifier() else f"[{name!r}]"


def _with_batch(value: Any, batch: int) -> Any:
    if isinstance(value, InputRequest):
        if not value.shape:
            raise InputError("batch: an input has no dimensions; give all shapes instead")
        return replace(value, shape=(batch, *value.shape[1:]))
    if any(isinstance(leaf, InputRequest) for leaf in pytree.tree_leaves(value)):
        raise InputError(
            "batch: an input contains several tensors, so dimension 0 is ambiguous; give their"
            " shapes instead"
        )
    return value


def physical_order(request: InputRequest) -> tuple[int, ...]:
    """Return the dimensions of an input in memory order, largest stride first."""
    dimensions = range(len(request.shape))
    if request.like is None or request.like.dim() != len(request.shape):
        return tuple(dimensions)
    stride = request.like.stride()
    return tuple(sorted(dimensions, key=lambda dimension: -stride[dimension]))


_SHAPE_LIKE = re.compile(r"\s*(\w+\s*=\s*)?\d")


def _request(value: Any) -> Any:
    """Return `value` with an InputRequest for each tensor, shape and text of a shape in it."""

    def leaf(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            if each.is_nested or each.layout is not torch.strided:
                kind = "nested" if each.is_nested else "sparse"
                raise InputError(f"inputs: {kind} tensors are not supported; use a dense one")
            return InputRequest(shape=tuple(each.shape), like=each)
        if isinstance(each, str) and _SHAPE_LIKE.match(each):
            return _parsed_value(each)
        return _request_of_shape(each) if isinstance(each, tuple) and _is_shape(each) else each

    return pytree.tree_map(
        leaf, value, is_leaf=lambda each: isinstance(each, tuple) and _is_shape(each)
    )


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and bool(value)
        and all(isinstance(size, int) and not isinstance(size, bool) for size in value)
    )


def _request_of_shape(shape: Sequence[int]) -> InputRequest:
    if min(shape) < 1:
        raise InputError(f"input shape {shape!r}: every size must be at least 1")
    return InputRequest(shape=tuple(shape))


# -- as text ---------------------------------------------------------------------------------------

_FORMS = "write 1x3x224x224, 1x128:int64, name=1x128:int64, [3x8x8, 3x9x9] or {image=1x3x8x8}"

_LITERALS = {"true": True, "false": False, "none": None}


def parse_input(text: str) -> tuple[str, Any]:
    """Return the keyword of an input written as text (``""``: positional), and its value.

    ``1x3x224x224``, ``1x128:int64`` and ``name=1x128:int64`` request a tensor, ``[…, …]`` a list,
    ``{key=…, key=…}`` a dictionary; ``true``, ``false`` and ``none`` are literals.
    """
    name, value = "", text
    if not text.startswith(("[", "{")):
        before, equals, value = _split_name(text)
        name = before if equals else ""
        if equals and not name.isidentifier():
            raise InputError(
                f"{argument('inputs')} '{text}': '{name}' is not a valid argument name"
            )
    try:
        return name, _parsed(value)
    except InputError as error:
        raise InputError(f"{argument('inputs')} '{text}': {error} ({_FORMS})") from None
    except RecursionError:
        raise InputError(f"{argument('inputs')}: brackets are nested too deeply") from None


def _parsed_value(text: str) -> Any:
    """Return the value of a text inside an argument, where names are not allowed."""
    name, request = parse_input(text)
    if name:
        raise InputError(f"input '{name}': a nested argument cannot have a name")
    return request


def _split_name(text: str) -> tuple[str, str, str]:
    """Split `text` at its last ``=`` outside of brackets."""
    before, equals, _ = re.split(r"[\[{]", text, maxsplit=1)[0].rpartition("=")
    return before, equals, text[len(before) + len(equals) :]


def _parsed(text: str) -> Any:
    text = text.strip()
    if text.lower() in _LITERALS:
        return _LITERALS[text.lower()]
    if text.startswith("["):
        return [_parsed(item) for item in _items(text, "]")]
    if text.startswith("{"):
        pairs: dict[str, Any] = {}
        for item in _items(text, "}"):
            key, equals, value = _split_name(item)
            key = key.strip()
            if not equals or not key:
                raise InputError(f"'{item.strip()}' in {{}}: expected key=shape")
            if key in pairs:
                raise InputError(f"duplicate key '{key}'")
            pairs[key] = _parsed(value)
        return pairs
    shape, colon, kind = text.partition(":")
    return InputRequest(shape=parse_shape(shape), dtype=dtype(kind) if colon else None)


def _items(text: str, close: str) -> Iterator[str]:
    """Yield the items between the outer brackets of `text`, split at outer commas."""
    if not text.endswith(close):
        raise InputError(f"'{text}' does not end with '{close}'")
    depth, start = 0, 1
    for position, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        is_end = position == len(text) - 1
        if depth == 0 and not is_end:
            raise InputError(f"'{text}' has unbalanced brackets")
        if (letter == "," and depth == 1) or is_end:
            if item := text[start:position].strip():
                yield item
            elif not is_end:
                raise InputError(f"'{text}' has an empty item before a comma")
            start = position + 1
    if depth:
        raise InputError(f"'{text}' has unbalanced brackets")


# -- in Python -------------------------------------------------------------------------------------


def to_inputs(given: Any) -> Inputs | None:
    """Return the `Inputs` of a Python value, or None.

    Args:
        given: None, `Inputs`, a tensor, a shape (``(1, 3, 224, 224)`` or ``"1x3x224x224"``), a
            sequence of arguments, or a mapping from argument name to argument, each maybe nested.
    """
    if given is None or isinstance(given, Inputs):
        return given
    if isinstance(given, torch.Tensor):
        return Inputs(given)
    if isinstance(given, Mapping):
        return _combine(given, ((str(name), value) for name, value in given.items()))
    if isinstance(given, (str, InputRequest)) or _is_shape(given):
        return _combine(given, [("", given)])
    if isinstance(given, Sequence):
        return _combine(given, (("", each) for each in given))
    raise _not_an_input(given)


def _combine(given: Any, arguments: Iterable[tuple[str, Any]]) -> Inputs:
    """Return the inputs of a sequence or mapping; texts and requests may have a name."""
    inputs = Inputs()
    args: list[Any] = []
    for name, value in arguments:
        if isinstance(value, str) and name:
            value = _parsed_value(value)
        elif isinstance(value, str):
            name, value = parse_input(value)
        elif isinstance(value, InputRequest):
            name = name or value.name
        else:
            value = _request_of_shape(value) if _is_shape(value) else _request(value)
        if name in inputs.kwargs:
            raise InputError(f"{argument('inputs')}: duplicate argument {name}")
        if name:
            inputs.kwargs[name] = value
        else:
            args.append(value)
    inputs.args = tuple(args)
    if (inputs.args or inputs.kwargs) and not any(True for _ in inputs.requests()):
        raise _not_an_input(given)
    return inputs


def _not_an_input(value: Any) -> InputError:
    return InputError(
        f"inputs: expected a tensor, a shape such as (1, 3, 224, 224) or '1x3x224x224', a sequence"
        f" of these or a mapping by argument name, got {value!r}"
    )


def resolve_inputs(
    module: torch.nn.Module,
    given: Inputs | None,
    default: Sequence[InputRequest],
    *,
    name: str,
    batch: int | None,
) -> Inputs:
    """Return the given or else the default inputs, with `batch` as dimension 0."""
    if given is None:
        # Modules from files have a generic forward, and list their inputs.
        listed = getattr(module, "takes", None)
        names = (
            listed if isinstance(listed, tuple) else inspect.signature(module.forward).parameters
        )
        takes = ", ".join(map(str, names))
        if takes and not default:
            if is_expression(name):
                raise InputError(
                    f"'{name}' has no input shape: write it after an @, as in"
                    f" conv2d(64,64,3)@56x56 or linear(64,10)@1x64, or use {argument('inputs')}"
                )
            raise InputError(
                f"model '{name}': input shapes are not known; use {argument('inputs')}, one shape"
                f" for each argument of its forward: {takes}"
            )
        given = _combine(default, (("", each) for each in default))
    elif default and is_expression(name):
        raise InputError(
            f"'{name}' has an input shape already: remove {argument('inputs')}, or the @ and its"
            " shape"
        )
    return given if batch is None else given.with_batch(batch)
