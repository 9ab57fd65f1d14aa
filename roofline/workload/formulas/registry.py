"""Registration and lookup of formulas."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from roofline.errors import InputError, RooflineError, error_text
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_MAC, guaranteed_macs

Sizes = Sequence[int]
Tensors = Sequence[TensorSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flop:
    """Floating-point operations of one call, as a formula returns them.

    ``macs`` are those of convolutions and matrix products by the usual convention, ``other`` all
    further operations (1 per add, multiply, division, comparison …). ``least`` is the FLOP that no
    kernel of the direct algorithm can avoid (None: all), ``min_macs`` the MACs among them (None: as
    many as remain if no other operation is optional). ``elements`` maps a parameter name to the
    touched elements of that operand where that is not all of them, such as the rows of a table.
    ``min_elements`` are the elements that must be touched, where strides or values skip others. For
    an operand changed in place, both hold for its reads and its writes, unless ``"output"`` gives
    the latter. ``internal_bytes`` is the traffic between the parts of a fused operator, each byte
    written once and read once, plus weights that every step reads again. A kernel that keeps none
    of it on chip moves as much more. ``type`` refines the operator's type (``"depthwise
    convolution"``).

    Raises:
        ValueError: a count is negative or not a whole number, or ``least`` exceeds the total.
    """

    macs: int = 0
    other: int = 0
    least: int | None = None
    min_macs: int | None = None
    elements: Mapping[str, int] = field(default_factory=dict[str, int])
    min_elements: Mapping[str, int] = field(default_factory=dict[str, int])
    internal_bytes: int = 0
    type: str = ""

    def __post_init__(self) -> None:
        counts: dict[str, Any] = {name: getattr(self, name) for name in _COUNTS}
        for name in ("elements", "min_elements"):
            each = getattr(self, name)
            counts |= {f"{name}[{operand!r}]": count for operand, count in each.items()}
        for name, count in counts.items():
            if count is not None or name not in ("least", "min_macs"):
                _check_count(name, count)
        if self.min_flop > self.flop:
            raise ValueError(f"least must not exceed flop ({self.flop}), got {self.least}")
        if self.min_macs is None:
            products = guaranteed_macs(self.macs, self.flop, self.min_flop)
            # Fixed now: later additions of other operations must not change it.
            object.__setattr__(self, "min_macs", products)
        elif self.min_macs > min(self.macs, self.min_flop // FLOP_PER_MAC):
            raise ValueError(
                f"min_macs must not exceed macs ({self.macs}) or half of"
                f" least ({self.min_flop}), got {self.min_macs}"
            )

    @property
    def flop(self) -> int:
        """All floating-point operations."""
        return FLOP_PER_MAC * self.macs + self.other

    @property
    def min_flop(self) -> int:
        """Floating-point operations that no kernel can avoid."""
        return self.flop if self.least is None else self.least

    def plus(self, other: int, least: int | None = None) -> Flop:
        """Return this count plus `other` operations, `least` of them unavoidable (None: all)."""
        more = other if least is None else least
        return replace(self, other=self.other + other, least=self.min_flop + more)

    def renamed(self, **names: str) -> Flop:
        """Return this count with other names of operands."""
        elements, least = (
            {names.get(name, name): count for name, count in each.items()}
            for each in (self.elements, self.min_elements)
        )
        return replace(self, elements=elements, min_elements=least)


def total(counts: Iterable[Flop]) -> Flop:
    """Return the sum of parts, without their touched elements."""
    parts = list(counts)
    return Flop(
        macs=sum(each.macs for each in parts),
        other=sum(each.other for each in parts),
        least=sum(each.min_flop for each in parts),
        min_macs=sum(each.min_macs or 0 for each in parts),
        internal_bytes=sum(each.internal_bytes for each in parts),
    )


def from_macs(macs: int, other: int = 0, least: int | None = None) -> Flop:
    """Return MACs, `least` of them unavoidable (None: all), and `other` avoidable operations."""
    least = macs if least is None else least
    return Flop(macs=macs, other=other, least=FLOP_PER_MAC * least, min_macs=least)


def present(*operands: object) -> int:
    return sum(each is not None for each in operands)


def untouched(*operands: str) -> dict[str, int]:
    """Map each operand to 0 touched elements."""
    return dict.fromkeys(operands, 0)


_COUNTS = ("macs", "other", "least", "min_macs", "internal_bytes")


def _check_count(name: str, count: Any) -> None:
    if not isinstance(count, int) or count < 0:
        fix = "" if isinstance(count, int) or not hasattr(count, "__int__") else "; write int(…)"
        raise ValueError(f"{name} must be a whole number from 0, got {count!r}{fix}")


Function = Callable[..., Flop]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A registered formula: its key, its function, and the type of operator it counts.

    ``byte`` describes the charged bytes where that is not each operand once, ``is_for_complex`` is
    True if it also holds for complex numbers. ``row`` are file and line of its table row, if any.
    """

    key: str
    function: Function
    type: str
    byte: str = ""
    is_for_complex: bool = False
    row: tuple[str, int] | None = None

    def __str__(self) -> str:
        return f"the formula for {self.key} ({_name_of(self.function)})"

    def count(self, arguments: Mapping[str, Any]) -> Flop:
        """Return the FLOP of a call with these `arguments`, by schema name, and its ``output``."""
        try:
            count = self.function(**arguments)
        except Exception as error:
            why = _signature_error(self.function, arguments) if isinstance(error, TypeError) else ""
            raise RooflineError(
                f"{self} failed: {why or _error_summary(self.function, error)}"
            ) from error
        if not isinstance(count, Flop):  # pyright: ignore[reportUnnecessaryIsInstance]  user code
            raise RooflineError(f"{self} returned {type(count).__name__}; return roofline.Flop(…)")
        for name in (*count.elements, *count.min_elements):
            if name not in arguments:
                raise RooflineError(
                    f"{self} gives elements of '{name}'; expected one of {', '.join(arguments)}"
                )
        return count


def _name_of(function: Any) -> str:
    named: Any = function if hasattr(function, "__qualname__") else function.__class__
    return f"{named.__module__}.{named.__qualname__}"


def file_of(function: Any) -> tuple[str, int]:
    """Return file and first line of a function; ``("", 0)`` if unknown."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)


def _signature_error(function: Function, arguments: Mapping[str, Any]) -> str:
    """Return the reason that `function` cannot be called with `arguments`; ``""`` if it can."""
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        return (
            f"{error}; its operator passes {', '.join(arguments)} (a last parameter **_ takes"
            " unused ones)"
        )
    except ValueError:
        pass
    return ""


def _error_summary(function: Function, error: Exception) -> str:
    """Return the error in one line, with its line in the file of `function`."""
    file, _ = file_of(function)
    line, trace = 0, error.__traceback__
    while trace is not None:
        if file and trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    said = f"{type(error).__name__}: {error_text(error)}".removesuffix(": ")
    return f"{said} ({Path(file).name}, line {line})" if line else said


_PACKAGE = __name__.rpartition(".")[0]
_formulas: dict[str, Formula] = {}


def formula(
    *operators: str,
    type: str = "",
    byte: str = "",
    is_for_complex: bool = False,
    row: tuple[str, int] | None = None,
) -> Callable[[F], F]:
    """Register the decorated function as the formula of `operators`.

    Args:
        operators: names such as ``"aten.mm"`` or ``"mylib.my_op"``; with an overload,
            ``"aten.max.other"``, where it differs. In-place variants and overloads without a
            formula of their own resolve to the functional name.
        type: the type of operator; by default the name of the function's module, or ``"custom"``
            outside of roofline.
        byte: the charged bytes, in words, where that is not each operand once.
        is_for_complex: True if the count also holds for complex numbers; otherwise their FLOP
            are unknown.
        row: file and line of its row in a table.

    A function that is defined again (its cell or file ran again) replaces its earlier definition.

    Raises:
        InputError: an invalid operator name, or an operator that another function counts.
    """
    _check_keys(operators)

    def register(function: F) -> F:
        if not callable(function):
            raise InputError(f"formula for {operators[0]}: expected a function, got {function!r}")
        before = [_formulas[key] for key in operators if key in _formulas]
        for each in before:
            if not _is_redefinition(function, each.function):
                raise InputError(
                    f"{each.key} already has a formula: {_name_of(each.function)}; only a new"
                    " definition of the same function replaces it"
                )
        replaced = [each.function for each in before if each.function is not function]
        # Operators that only the earlier definition named lose their formula.
        for key, each in list(_formulas.items()) if replaced else ():
            if any(each.function is old for old in replaced):
                del _formulas[key]
        kind = type or _default_type(function.__module__)
        for key in operators:
            _formulas[key] = Formula(
                key=key,
                function=function,
                type=kind,
                byte=byte,
                is_for_complex=is_for_complex,
                row=row,
            )
        return function

    return register


def table(
    text: str,
    function: Function | None = None,
    *,
    type: str = "",
    byte: str = "",
    names: Mapping[str, Any] | None = None,
) -> None:
    """Register a formula for each row of a table.

    Args:
        text: rows of ``operators = expression``, and below each, indented, the rule in words. The
            expression is Python over names of its module and arguments of the operator. After
            ``; complex`` follows the expression for complex numbers; empty if it is the same.
            Parentheses may continue, indented, on the next lines.
        function: counts; takes the value of the expression (or both values), then the arguments of
            the operator by name. None: the value is the `Flop`, all operations, or a cost.
        type: as in `formula`.
        byte: as in `formula`.
        names: further names for expressions.
    """
    # `inspect.stack` would inspect all modules for every table.
    frame = inspect.currentframe()
    caller = frame.f_back if frame else None
    assert caller is not None, "a table is registered by a module"
    module, file = {**(names or {}), **caller.f_globals}, caller.f_code.co_filename
    for match in re.finditer(r"^(\S[^=]*)=(.*)\n((?:    .*\n|\n)+)", text, re.MULTILINE):
        operators, given, rule = match.groups()
        while given.count("(") > given.count(")") and rule:
            more, _, rule = rule.partition("\n")
            given = f"{given} {more.strip()}"
        expression, is_for_complex, of_complex = given.partition("; complex")
        if of_complex.strip():
            expression = f"({expression}), ({of_complex})"
        # The text begins on the line below the call.
        line = caller.f_lineno + 1 + text.count("\n", 0, match.start())
        register = formula(
            *operators.split(),
            type=type or _default_type(module["__name__"]),
            byte=byte,
            is_for_complex=bool(is_for_complex),
            row=(file, line),
        )
        register(_Row(expression.strip(), inspect.cleandoc(rule), function, module))


_DEFAULTS = {
    "activation": None,
    "algorithm": "",
    "approximate": "none",
    "bias": None,
    **dict.fromkeys(("alpha", "beta", "value"), 1),
}
"""Defaults of arguments that some overloads of an operator lack."""


class _Row:
    """Formula of a table row; its parameters are the names that its module lacks.

    The expression is compiled at its first use: reading a saved result needs none.
    """

    def __init__(
        self, expression: str, rule: str, function: Function | None, module: dict[str, Any]
    ) -> None:
        self.__doc__ = rule
        self.__module__ = module["__name__"]
        self.__qualname__ = function.__qualname__ if function else "<lambda>"
        self.expression, self.function, self.__globals__ = expression, function, module

    @functools.cached_property
    def _value(self) -> Function:
        known = {**vars(builtins), **self.__globals__}
        tree = ast.parse(self.expression, mode="eval")
        names = [each for each in ast.walk(tree) if isinstance(each, ast.Name)]
        called = {id(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)}
        bound = {each.id for each in names if isinstance(each.ctx, ast.Store)}
        given = [
            each.id
            for each in names
            if each.id not in bound
            # A function name that is not called is an argument of that name.
            and not (
                id(each) in called if callable(known.get(each.id)) else each.id in self.__globals__
            )
        ]
        named = {each: f"{each}={_DEFAULTS[each]!r}" for each in _DEFAULTS}
        parameters = [named.get(each, each) for each in dict.fromkeys(given)]
        head = ", ".join(["*", *parameters, "**_"] if parameters else ["**_"])
        return eval(f"lambda {head}: ({self.expression})", self.__globals__)

    @property
    def __code__(self) -> CodeType:
        return type(self).__call__.__code__

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._value)

    def __call__(self, /, **arguments: Any) -> Flop:
        found: Any = self._value(**arguments)
        if self.function is not None:
            return self.function(found, **arguments)
        if isinstance(found, int):
            return Flop(other=found)
        return found if isinstance(found, Flop) else found.flop()


_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+){1,2}")


def _check_keys(operators: tuple[Any, ...]) -> None:
    if not operators or not all(isinstance(each, str) for each in operators):
        raise InputError('formula: expected operator names, as in @roofline.formula("mylib.my_op")')
    for key in operators:
        if _KEY.fullmatch(key) and not key.startswith("torch."):
            continue
        meant = key.removeprefix("torch.ops.").replace("::", ".")
        if "." not in meant:
            meant = f"mylib.{meant}"
        raise InputError(
            f"formula for '{key}': expected an operator with its namespace, as in torch.ops"
            + (f": '{meant}'" if _KEY.fullmatch(meant) else ", such as 'mylib.my_op'")
        )


def _is_redefinition(function: Function, before: Function) -> bool:
    """True if `function` is `before` after its cell or file ran again."""
    if function is before:
        return True
    (file, line), (file_before, line_before) = file_of(function), file_of(before)
    same_module = function.__module__ == before.__module__
    if same_module and function.__module__ == "__main__" and file != file_before:
        # Each cell of a notebook is a file.
        return True
    if not file or not (same_module or file == file_before):
        return False
    if getattr(function, "__qualname__", "") == getattr(before, "__qualname__", None):
        return "<lambda>" not in function.__qualname__ or line == line_before
    # Renamed, in a file that ran again as another module.
    own, own_before = (getattr(each, "__globals__", None) for each in (function, before))
    return file == file_before and own is not own_before


_TYPES = {
    "attention_kernels": "attention",
    "draws": "random",
    "indexing": "data movement",
    "layout": "data movement",
    "linear_algebra": "linear algebra",
    "matmul": "matrix product",
    "ordering": "reduction",
    "quantized": "quantization",
}
"""Operator types of modules with another name."""


def _default_type(module: str | None) -> str:
    package, _, name = (module or "").rpartition(".")
    return _TYPES.get(name, name) if package.startswith(_PACKAGE) else "custom"


def find(operator: str, overload: str = "") -> Formula | None:
    """Return the formula of an operator such as ``"aten.add_"`` and its overload, or None."""
    functional = operator[:-1] if operator.endswith("_") else operator
    for key in (f"{operator}.{overload}", operator, f"{functional}.{overload}", functional):
        if key in _formulas:
            return _formulas[key]
    return None


def known() -> Mapping[str, Formula]:
    """Return all formulas by key."""
    return dict(_formulas)
