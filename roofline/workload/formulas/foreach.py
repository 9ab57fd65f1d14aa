"""Operators on lists of tensors: the sum of what each of them takes by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Their formulas must be there before those of the lists.
from roofline.workload.formulas import activation as activation
from roofline.workload.formulas import layout as layout
from roofline.workload.formulas import matmul as matmul
from roofline.workload.formulas import pointwise as pointwise
from roofline.workload.formulas import reduction as reduction
from roofline.workload.formulas import transcendental as transcendental
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.registry import Flop, Formula, find, formula
from roofline.workload.tensors import TensorSpec

_SAME_NAME = (
    *("abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min"),
    *("clone", "copy", "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac"),
    *("lerp", "lgamma", "log", "log10", "log1p", "log2", "max", "maximum", "minimum", "mm", "mul"),
    *("neg", "norm", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh"),
    *("sqrt", "sub", "tan", "tanh", "trunc", "zero"),
)

_SINGLE = {**{name: name for name in _SAME_NAME}, "norm": "linalg_vector_norm"}
"""The operator on one tensor, for each operator on lists of them."""

_SINGLE_ARGUMENT = {"scalar": "other", "tensors1": "end", "weights": "weight"}
"""What the operator on one tensor calls an argument, where that is another name."""

_OVER_LISTS = ("exponent", "self")
"""Arguments, one of which is the list: a scalar may be raised to each tensor of a list."""


def _sum_of(single: Formula, arguments: dict[str, Any], output: Any) -> Flop:
    """What the operator on one tensor takes, over all tensors of the lists.

    In place nothing is returned: the results are the tensors themselves.
    """
    lists = [arguments[name] for name in _OVER_LISTS if isinstance(arguments.get(name), list)]
    results: Sequence[Any] = output or lists[-1]
    counts = [
        single.function(
            **{_single_name(single, name): _item(each, i) for name, each in arguments.items()},
            output=result,
        )
        for i, result in enumerate(results)
    ]
    return Flop(
        macs=sum(each.macs for each in counts),
        other=sum(each.other for each in counts),
        least=sum(each.min_flop for each in counts),
        min_macs=sum(each.min_macs or 0 for each in counts),
    )


def _item(argument: list[Any] | TensorSpec | float | None, index: int) -> Any:
    return argument[index] if isinstance(argument, list) else argument


def _single_name(single: Formula, name: str) -> str:
    if name == "scalars":
        return "value" if single.key.startswith("aten.addc") else "other"
    return _SINGLE_ARGUMENT.get(name, name)


def _register(name: str, single: Formula) -> None:
    def each_tensor(output: Any, **arguments: Any) -> Flop:
        return _sum_of(single, arguments, output)

    each_tensor.__doc__ = f"The sum over the lists of what {single.key} takes."
    formula(f"aten._foreach_{name}", type=single.type, is_for_complex=single.is_for_complex)(
        each_tensor
    )


def _register_all() -> None:
    for name, operator in _SINGLE.items():
        single = find(f"aten.{operator}")
        assert single is not None, operator
        _register(name, single)


_register_all()


@formula("aten._foreach_powsum", type="reduction")
def sum_of_powers(self: Sequence[TensorSpec], ord: float = 2, **_: Any) -> Flop:
    """The sum of |x|**ord: a square or magnitude an element, or a magnitude and a power; their sum.

    Order 0: which are not zero, and their sum.
    """
    elements = sum(each.elements for each in self)
    simple = elements + sum(max(0, each.elements - 1) for each in self)
    powers = 0 if ord in (0, 1, 2) else elements
    return Flop(other=simple + TRANSCENDENTAL_FLOP * powers, least=simple + powers)
