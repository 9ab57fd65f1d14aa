"""The one way in for a formula, and the one way to find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from roofline.errors import RooflineError
from roofline.workload.work import FLOP_PER_FMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Flop:
    """What a formula returns: floating-point operations of one call.

    ``multiply_add`` are those of convolutions and matrix products by the usual convention,
    ``other`` every further operation (1 per add, multiply, division, comparison …), ``least`` what
    no kernel of the direct algorithm can avoid (None: all of it). ``elements`` says how many
    elements of an operand are touched, by parameter name, where that is not all of them: the rows
    of a table, say. ``least_elements`` says how many must be, where the others are there to be
    passed over. ``internal_byte`` is what the parts of a fused operator hand to each other, each
    byte once written and once read: a kernel that keeps none of it on chip moves as much more.
    ``type`` refines the operator's kind (``"depthwise convolution"``).

    Raises:
        ValueError: a count that is negative or no whole number, or a least that exceeds all.
    """

    multiply_add: int = 0
    other: int = 0
    least: int | None = None
    elements: Mapping[str, int] = field(default_factory=dict[str, int])
    least_elements: Mapping[str, int] = field(default_factory=dict[str, int])
    internal_byte: int = 0
    type: str = ""

    def __post_init__(self) -> None:
        for name in ("multiply_add", "other", "least", "internal_byte"):
            count = getattr(self, name)
            if count is not None and (not isinstance(count, int) or count < 0):
                raise ValueError(f"{name} must be a whole number from 0, got {count!r}")
        if self.least_flop > self.flop:
            raise ValueError(f"least must not exceed flop ({self.flop}), got {self.least}")

    @property
    def flop(self) -> int:
        """All floating-point operations."""
        return FLOP_PER_FMA * self.multiply_add + self.other

    @property
    def least_flop(self) -> int:
        """The floating-point operations that no kernel can avoid."""
        return self.flop if self.least is None else self.least


Function = Callable[..., Flop]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A registered formula: its key, its function, and the kind of operator it counts.

    ``byte`` says in words which bytes it charges where that is not each operand once;
    ``is_for_complex`` whether it is right for complex numbers too.
    """

    key: str
    function: Function
    type: str
    byte: str = ""
    is_for_complex: bool = False

    def count(self, arguments: Mapping[str, Any]) -> Flop:
        """The FLOP of a call with these `arguments`, by schema name, and its ``output``.

        Raises:
            RooflineError: the formula failed, or did not return a `Flop`.
        """
        try:
            count = self.function(**arguments)
        except Exception as error:
            raise RooflineError(
                f"the formula for {self.key} ({self.function.__module__}.{self.function.__name__})"
                f" failed: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(count, Flop):  # pyright: ignore[reportUnnecessaryIsInstance]  user code
            raise RooflineError(
                f"the formula for {self.key} returned {type(count).__name__};"
                " return roofline.Flop(…)"
            )
        return count


_formulas: dict[str, Formula] = {}


def formula(
    *operators: str, type: str = "", byte: str = "", is_for_complex: bool = False
) -> Callable[[F], F]:
    """Registers the decorated function as the formula of `operators`.

    Args:
        operators: names such as ``"aten.mm"`` or ``"mylib.my_op"``; with an overload,
            ``"aten.max.other"``, where it differs. In-place variants and overloads without a
            formula of their own resolve to the functional name.
        type: the kind of operator; by default the name of the module the function is in.
        byte: which bytes are charged, in words, where that is not each operand once.
        is_for_complex: whether the count is right for complex numbers too; where it is not, their
            FLOP are unknown.

    Raises:
        RooflineError: one of them already has a formula.
    """

    def register(function: F) -> F:
        kind = type or function.__module__.rpartition(".")[2]
        for key in operators:
            if key in _formulas:
                other = _formulas[key].function
                raise RooflineError(
                    f"{key} already has a formula: {other.__module__}.{other.__name__}"
                )
        for key in operators:
            _formulas[key] = Formula(
                key=key, function=function, type=kind, byte=byte, is_for_complex=is_for_complex
            )
        return function

    return register


def find(operator: str, overload: str = "") -> Formula | None:
    """The formula for an operator such as ``"aten.add_"`` and its overload; None: there is none."""
    functional = operator[:-1] if operator.endswith("_") else operator
    for key in (f"{operator}.{overload}", operator, f"{functional}.{overload}", functional):
        if key in _formulas:
            return _formulas[key]
    return None


def known() -> Mapping[str, Formula]:
    """All formulas by key."""
    return dict(_formulas)
