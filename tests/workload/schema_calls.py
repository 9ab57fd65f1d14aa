"""Calls of operators that no machine here can run: tensors by hand, the rest as schemas say."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

import torch

from roofline.core.dtypes import dtype
from roofline.workload.formulas import Flop, find
from roofline.workload.tensors import Role, TensorSpec


def spec(*shape: int, kind: str = "float32", storage: int = 0) -> TensorSpec:
    """A dense tensor somewhere."""
    return TensorSpec(
        shape=shape,
        dtype=dtype(kind),
        distinct_elements=math.prod(shape),
        storage=storage,
        role=Role.ACTIVATION,
    )


def count_of(operator: str, overload: str = "", /, **arguments: Any) -> Flop:
    """What the formula says of a call with these arguments."""
    found = find(operator, overload)
    assert found is not None
    return found.count(arguments)


def taken(operator: str, overload: str = "", /, output: Any = None, **pool: Any) -> Flop:
    """What the formula says of a call with those of the arguments that the schema has.

    What it has besides has its default, or is None.
    """
    packet = getattr(torch.ops.aten, operator.removeprefix("aten."))
    schema = getattr(packet, overload or packet.overloads()[0])._schema
    arguments = {
        each.name: each.default_value if each.has_default_value() else None
        for each in schema.arguments
    }
    arguments |= {name: value for name, value in pool.items() if name in arguments}
    return count_of(f"aten.{packet.__name__}", overload, output=output, **arguments)


def counted(
    operator: str,
    output: Any,
    overload: str = "default",
    ignored: Set[str] = frozenset(),
    **given: Any,
) -> Flop:
    """What the formula says of a call, with every argument that the schema has.

    What is not given has its default; without one, a tensor that may be missing is None. An
    argument that is ``ignored`` has the name of what the operator returns.
    """
    schema = getattr(getattr(torch.ops.aten, operator), overload)._schema
    arguments: dict[str, Any] = {}
    for each in schema.arguments:
        if each.name in given:
            arguments[each.name] = given.pop(each.name)
        elif each.has_default_value():
            arguments[each.name] = each.default_value
        elif "Optional" in str(each.type):
            arguments[each.name] = None
        elif each.name not in ignored:
            raise AssertionError(f"{operator} needs {each.name}: {each.type}")
    assert not given, f"{operator} has no {', '.join(given)}"
    found = find(f"aten.{operator}", overload)
    assert found is not None
    return found.count({**arguments, "output": output})
