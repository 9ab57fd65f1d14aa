"""How a counter counts, as data: which operators, how many for each, and what it calls its number.

An operator's count has two portions: its ``product``, the multiply-adds of convolutions and matrix
products, and the ``rest``, every further operation. A counter of multiply-adds may have rules for
the rest too: that is how batch norms get into its number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from roofline.counters.result import Measure
from roofline.workload.operators import OperatorRecord

Portion = Literal["product", "rest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a counter reported: its number, and its own breakdown of it, in its own unit.

    ``product`` and ``rest`` are the breakdown by its names of operators. ``left_out`` is what it
    knows of and leaves out of this number, ``no_rule_for`` the calls of operators that it says it
    cannot count.
    """

    number: int
    product: Mapping[str, int] = field(default_factory=dict[str, int])
    rest: Mapping[str, int] = field(default_factory=dict[str, int])
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    no_rule_for: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a counter counts one kind of operators.

    ``operators`` are ours, by name without ``aten.``, ``types`` ours by type; ``labels`` are what
    the counter's breakdown calls them. ``count`` gives what the counter counts for a call, in its
    own unit; None: what its breakdown says, because our operators do not tell its kinds apart.
    """

    kind: str
    says: str
    portion: Portion
    operators: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    count: Callable[[OperatorRecord], int] | None = None

    def matches(self, record: OperatorRecord) -> bool:
        """Whether the rule is about this operator."""
        return functional(record.op) in self.operators or record.type in self.types


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """What one number of a counter means.

    ``number_name`` is what the counter calls it, ``meaning`` what it counts in it; it is held
    against our total of ``measure``, of which ``per_unit`` of its units make one. ``by_name``:
    operators without a rule are matched with its breakdown by their names. ``forward_only``: it
    does not see the backward pass of a training step.
    """

    number_name: str
    meaning: str
    measure: Measure
    per_unit: int
    rules: tuple[Rule, ...]
    by_name: bool = False
    forward_only: bool = True


def functional(op: str) -> str:
    """The name of an operator without its name space and without the mark of in-place ones."""
    return op.removeprefix("aten.").removesuffix("_")


def plain_name(label: str) -> str:
    """What a counter's label stands for: ``__iadd__``, ``add_`` and ``add`` are all ``add``."""
    if label.startswith("__") and label.endswith("__"):
        inner = label.strip("_")
        for prefix in ("i", "r"):
            if inner.removeprefix(prefix) in _ARITHMETIC:
                return _SAME.get(inner.removeprefix(prefix), inner.removeprefix(prefix))
        return _SAME.get(inner, inner)
    name = label.strip("_")
    return _SAME.get(name, name)


_ARITHMETIC = frozenset(("add", "sub", "mul", "truediv", "pow", "div", "mod", "floordiv"))
_SAME = {"truediv": "div", "true_divide": "div", "subtract": "sub", "multiply": "mul"}
