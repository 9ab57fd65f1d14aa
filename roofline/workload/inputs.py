"""What a model is called with: the inputs that a user asks for, as text or in Python."""

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
    """A tensor that the user asks for: ``1x3x224x224``, ``1x128:int64`` … see `parse_input`.

    ``name`` is the keyword that it goes to (``""``: positional). ``like`` is a tensor that was
    given: it sets type and strides, and its values where values are needed.
    """

    name: str = ""
    shape: tuple[int, ...]
    dtype: DType | None = None
    like: torch.Tensor | None = None


class Inputs:
    """What a model is called with: ``Inputs(x, mask=m)`` is ``model(x, mask=m)``.

    Arguments may be tensors, shapes (the tuple ``(1, 3, 224, 224)`` or the text ``"1x3x224x224"``),
    dictionaries, lists and tuples of these, nested as the model takes them, and anything else,
    which the model gets as it is: None, flags, numbers, other texts, lists of numbers.

    Args:
        args: the positional arguments.
        kwargs: the keyword arguments.
    """

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        self.args: tuple[Any, ...] = tuple(_request(each) for each in args)
        self.kwargs: dict[str, Any] = {name: _request(each) for name, each in kwargs.items()}

    def requests(self) -> Iterator[tuple[str, InputRequest]]:
        """Every tensor that is asked for, and where: ``"mask"``, ``"0.images[1]"`` …

        A positional argument that is a tensor itself has no name.
        """
        for name, value in (*enumerate(self.args), *self.kwargs.items()):
            for path, leaf in pytree.tree_flatten_with_path(value)[0]:
                if isinstance(leaf, InputRequest):
                    is_positional = isinstance(name, int) and not path
                    steps = "".join(map(_step, path))
                    yield "" if is_positional else f"{name}{steps}", leaf

    def build(self, make: Callable[[InputRequest], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with what `make` gives in the place of every tensor asked for."""

        def made(leaf: Any) -> Any:
            return make(leaf) if isinstance(leaf, InputRequest) else leaf

        return pytree.tree_map(made, self.args), pytree.tree_map(made, self.kwargs)

    def with_batch(self, batch: int) -> Inputs:
        """The same with `batch` as the first size of every tensor.

        Raises:
            InputError: an input without dimensions, or several in one argument.
        """
        changed = Inputs()
        changed.args = tuple(_with_batch(each, batch) for each in self.args)
        changed.kwargs = {name: _with_batch(each, batch) for name, each in self.kwargs.items()}
        return changed


def _step(key: Any) -> str:
    """A step into an argument as a person writes it: ``.image``, ``[0]``."""
    if isinstance(key, pytree.SequenceKey):
        return f"[{key.idx}]"
    name = str(getattr(key, "key", getattr(key, "name", key)))
    return f".{name}" if name.isidentifier() else f"[{name!r}]"


def _with_batch(value: Any, batch: int) -> Any:
    if isinstance(value, InputRequest):
        if not value.shape:
            raise InputError("batch: an input without dimensions has no first size to replace")
        return replace(value, shape=(batch, *value.shape[1:]))
    if any(isinstance(leaf, InputRequest) for leaf in pytree.tree_leaves(value)):
        raise InputError(
            "batch: an input that holds several tensors has no one first size to replace;"
            " give their shapes"
        )
    return value


def physical_order(request: InputRequest) -> tuple[int, ...]:
    """The dimensions of an input as they lie in memory, that of the largest stride first."""
    dimensions = range(len(request.shape))
    if request.like is None or request.like.dim() != len(request.shape):
        return tuple(dimensions)
    stride = request.like.stride()
    return tuple(sorted(dimensions, key=lambda dimension: -stride[dimension]))


_SHAPE_LIKE = re.compile(r"\s*(\w+\s*=\s*)?\d")


def _request(value: Any) -> Any:
    """`value` with an InputRequest for every tensor, shape and text of a shape in it."""

    def leaf(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            if each.is_nested or each.layout is not torch.strided:
                kind = "nested" if each.is_nested else "sparse"
                raise InputError(f"inputs: {kind} tensors cannot be counted; give a dense one")
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
    """Return the keyword that an input as text goes to (``""``: positional), and what it asks for.

    ``1x3x224x224``, ``1x128:int64`` and ``name=1x128:int64`` ask for a tensor, ``[…, …]`` for a
    list, ``{key=…, key=…}`` for a dictionary; ``true``, ``false`` and ``none`` are themselves.
    """
    name, value = "", text
    if not text.startswith(("[", "{")):
        before, equals, value = _split_name(text)
        name = before if equals else ""
        if equals and not name.isidentifier():
            raise InputError(
                f"{argument('inputs')} '{text}': '{name}' is not the name of an argument"
            )
    try:
        return name, _parsed(value)
    except InputError as error:
        raise InputError(f"{argument('inputs')} '{text}': {error} ({_FORMS})") from None
    except RecursionError:
        raise InputError(f"{argument('inputs')}: too many brackets lie in each other") from None


def _parsed_value(text: str) -> Any:
    """What a text asks for that stands where an argument cannot have a name."""
    name, request = parse_input(text)
    if name:
        raise InputError(f"input '{name}': an argument cannot be named within another")
    return request


def _split_name(text: str) -> tuple[str, str, str]:
    """`text` at its last ``=`` outside brackets."""
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
                raise InputError(f"'{item.strip()}' in {{}} is not of the form key=shape")
            if key in pairs:
                raise InputError(f"the key '{key}' occurs twice")
            pairs[key] = _parsed(value)
        return pairs
    shape, colon, kind = text.partition(":")
    return InputRequest(shape=parse_shape(shape), dtype=dtype(kind) if colon else None)


def _items(text: str, close: str) -> Iterator[str]:
    """What stands between the outermost brackets of `text`, parted at the outermost commas."""
    if not text.endswith(close):
        raise InputError(f"'{text}' does not end with '{close}'")
    depth, start = 0, 1
    for position, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        is_end = position == len(text) - 1
        if depth == 0 and not is_end:
            raise InputError(f"'{text}' has brackets that do not match")
        if (letter == "," and depth == 1) or is_end:
            if item := text[start:position].strip():
                yield item
            elif not is_end:
                raise InputError(f"'{text}' has nothing before a comma")
            start = position + 1
    if depth:
        raise InputError(f"'{text}' has brackets that do not match")


# -- in Python -------------------------------------------------------------------------------------


def to_inputs(given: Any) -> Inputs | None:
    """Return inputs as Python code gives them; None where none are given.

    Args:
        given: None, `Inputs`, a tensor, a shape (``(1, 3, 224, 224)`` or ``"1x3x224x224"``), a
            sequence of arguments, or a mapping from argument name to argument; an argument may be
            nested.
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
    """The inputs of a sequence or mapping; texts and requests may name their own argument."""
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
            raise InputError(f"{argument('inputs')} names an argument twice: {name}")
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
    """Return the inputs given, else the default ones, with `batch` as their first size."""
    if given is None:
        # What was read from a file has a forward for all, and says what this one takes.
        told = getattr(module, "takes", None)
        names = told if isinstance(told, tuple) else inspect.signature(module.forward).parameters
        takes = ", ".join(map(str, names))
        if takes and not default:
            if is_expression(name):
                raise InputError(
                    f"'{name}' says no shape: write that of its input behind an @ (as in"
                    f" conv2d(64,64,3)@56x56 or linear(64,10)@1x64), or give {argument('inputs')}"
                )
            raise InputError(
                f"model '{name}': inputs are not known; give {argument('inputs')}, a shape for each"
                f" (its forward takes {takes})"
            )
        given = _combine(default, (("", each) for each in default))
    elif default and is_expression(name):
        raise InputError(
            f"'{name}' has its input behind the @: leave {argument('inputs')} out, or the @ and"
            " what follows it"
        )
    return given if batch is None else given.with_batch(batch)
