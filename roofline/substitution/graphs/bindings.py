"""How a built module calls an operator: by a plain function of torch where that is the same call.

Calling an overload as an object costs a microsecond or two more than calling torch's function of
that name, which for small operators is as much as they take. A function is used only where it
leaves the very same records as the overload: the same operators with the same arguments.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from roofline.errors import RooflineError
from roofline.substitution.graphs.graph import Argument
from roofline.substitution.graphs.operators import Plan, function_of, places_of
from roofline.substitution.graphs.outcomes import Outcome, Place, outcome_of, with_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A function, or a method by name, and which of the arguments of the schema it is given.

    ``positional`` are positions in the schema, ``named`` those that it takes by name.
    """

    target: Callable[..., Any] | str
    positional: tuple[int, ...]
    named: tuple[tuple[str, int], ...]

    def call(self, arguments: Sequence[Any]) -> Any:
        """Calls it with arguments in the order of the schema."""
        args = [arguments[each] for each in self.positional]
        kwargs = {name: arguments[each] for name, each in self.named}
        if isinstance(self.target, str):
            return getattr(args[0], self.target)(*args[1:], **kwargs)
        return self.target(*args, **kwargs)


_NEURAL: Any = getattr(torch._C, "_nn")  # noqa: B009  it is not in torch's stubs

_bindings: dict[tuple[Any, ...], Binding] = {}


def binding(plan: Plan, *, in_place: bool) -> Binding:
    """How to call the operator of a node.

    Args:
        plan: the node's.
        in_place: it overwrites its first operand.
    """
    node = plan.node
    places = places_of(plan.operands, plan.types)
    key = (node.op, node.overload, in_place, repr(plan.arguments), places)
    found = _bindings.get(key)
    if found is None:
        found = _bindings[key] = _found(plan, places, in_place=in_place)
    return found


def _found(plan: Plan, places: tuple[Place, ...], *, in_place: bool) -> Binding:
    node = plan.node
    overload = function_of(node.op, node.overload, in_place=in_place)
    whole = Binding(target=overload, positional=_positional(overload), named=_named(overload, {}))
    expected = _outcome(whole, plan.arguments, places)
    given = {
        each.name: argument
        for each, argument in zip(overload._schema.arguments, plan.arguments, strict=True)
    }
    for target in _candidates(overload):
        shorter = Binding(
            target=target,
            positional=_positional(overload, given),
            named=_named(overload, given),
        )
        if expected is not None and _outcome(shorter, plan.arguments, places) == expected:
            return shorter
    return whole


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


def _outcome(
    binding: Binding, arguments: tuple[Argument, ...], places: tuple[Place, ...]
) -> Outcome | None:
    def call(tensors: Sequence[Any]) -> Any:
        return binding.call([with_tensors(each, tensors) for each in arguments])

    try:
        return outcome_of(call, places)
    except RooflineError:
        raise
    # It does not take what the overload takes, and says so in one of many ways.
    except Exception:
        return None


@functools.cache
def _arguments(overload: Any) -> tuple[Any, ...]:
    return tuple(overload._schema.arguments)


def _is_default(each: Any, given: dict[str, Argument]) -> bool:
    if each.name not in given or not each.has_default_value():
        return False
    default, value = each.default_value, given[each.name]
    default = tuple(default) if isinstance(default, list) else default
    return type(default) is type(value) and default == value


def _positional(overload: Any, given: dict[str, Argument] | None = None) -> tuple[int, ...]:
    """Positions of arguments that are not given by name, without defaults at their end."""
    arguments = _arguments(overload)
    found = [number for number, each in enumerate(arguments) if not each.kwarg_only]
    while found and given and _is_default(arguments[found[-1]], given):
        found.pop()
    return tuple(found)


def _named(overload: Any, given: dict[str, Argument]) -> tuple[tuple[str, int], ...]:
    return tuple(
        (each.name, number)
        for number, each in enumerate(_arguments(overload))
        if each.kwarg_only and not _is_default(each, given)
    )
