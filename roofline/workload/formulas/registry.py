"""The one way in for a formula, and the one way to find it."""

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
from roofline.workload.work import FLOP_PER_FMA, least_products

Sizes = Sequence[int]
Tensors = Sequence[TensorSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flop:
    """What a formula returns: floating-point operations of one call.

    ``macs`` are those of convolutions and matrix products by the usual convention, ``other`` every
    further operation (1 per add, multiply, division, comparison …), ``least`` what no kernel of the
    direct algorithm can avoid (None: all of it), and ``min_macs`` the multiply-adds among that
    (None: as many as are left of it if no other operation is optional). ``elements`` says how many
    elements of an operand are touched, by parameter name, where that is not all of them: the rows
    of a table, say. ``min_elements`` says how many must be, where the others are there to be passed
    over or values decide. Of an operand that is changed in place both hold for what is read and for
    what is written, unless ``"output"`` says otherwise of the latter. ``internal_bytes`` is what
    the parts of a fused operator hand to each other, each byte once written and once read, and the
    weights that they read again at every step: a kernel that keeps none of it on chip moves as much
    more. ``type`` refines the operator's kind (``"depthwise convolution"``).

    Raises:
        ValueError: a count that is negative or no whole number, or a least that exceeds all.
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
            products = least_products(self.macs, self.flop, self.min_flop)
            # So that it stays what it is when other operations are added.
            object.__setattr__(self, "min_macs", products)
        elif self.min_macs > min(self.macs, self.min_flop // FLOP_PER_FMA):
            raise ValueError(
                f"min_macs must not exceed macs ({self.macs}) or half of"
                f" least ({self.min_flop}), got {self.min_macs}"
            )

    @property
    def flop(self) -> int:
        """All floating-point operations."""
        return FLOP_PER_FMA * self.macs + self.other

    @property
    def min_flop(self) -> int:
        """The floating-point operations that no kernel can avoid."""
        return self.flop if self.least is None else self.least

    def plus(self, other: int, least: int | None = None) -> Flop:
        """With `other` operations more, of which `least` cannot be avoided (None: all of them)."""
        more = other if least is None else least
        return replace(self, other=self.other + other, least=self.min_flop + more)

    def renamed(self, **names: str) -> Flop:
        """Of an operator that has other names for operands."""
        elements, least = (
            {names.get(name, name): count for name, count in each.items()}
            for each in (self.elements, self.min_elements)
        )
        return replace(self, elements=elements, min_elements=least)


def total(counts: Iterable[Flop]) -> Flop:
    """Of parts together, but for which elements they touch."""
    parts = list(counts)
    return Flop(
        macs=sum(each.macs for each in parts),
        other=sum(each.other for each in parts),
        least=sum(each.min_flop for each in parts),
        min_macs=sum(each.min_macs or 0 for each in parts),
        internal_bytes=sum(each.internal_bytes for each in parts),
    )


def products(macs: int, other: int = 0, least: int | None = None) -> Flop:
    """Multiply-adds, of which `least` cannot be avoided (None: all), and avoidable operations."""
    least = macs if least is None else least
    return Flop(macs=macs, other=other, least=FLOP_PER_FMA * least, min_macs=least)


def given(*operands: object) -> int:
    """How many there are."""
    return sum(each is not None for each in operands)


def none_of(*operands: str) -> dict[str, int]:
    """No elements of these operands."""
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
    """A registered formula: its key, its function, and the kind of operator it counts.

    ``byte`` says in words which bytes it charges where that is not each operand once;
    ``is_for_complex`` whether it is right for complex numbers too. ``row`` are the
    file and the line of the row of a table that it comes from, if it does.
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
        """The FLOP of a call with these `arguments`, by schema name, and its ``output``."""
        try:
            count = self.function(**arguments)
        except Exception as error:
            why = _mismatch(self.function, arguments) if isinstance(error, TypeError) else ""
            raise RooflineError(
                f"{self} failed: {why or _said_in(self.function, error)}"
            ) from error
        if not isinstance(count, Flop):  # pyright: ignore[reportUnnecessaryIsInstance]  user code
            raise RooflineError(f"{self} returned {type(count).__name__}; return roofline.Flop(…)")
        for name in (*count.elements, *count.min_elements):
            if name not in arguments:
                raise RooflineError(
                    f"{self} speaks of elements of '{name}', but its operator has"
                    f" {', '.join(arguments)}"
                )
        return count


def _name_of(function: Any) -> str:
    """The module and the name of a function, or of what else can be called."""
    named: Any = function if hasattr(function, "__qualname__") else function.__class__
    return f"{named.__module__}.{named.__qualname__}"


def file_of(function: Any) -> tuple[str, int]:
    """The file and the line that a function begins at; ``("", 0)`` where it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)


def _mismatch(function: Function, arguments: Mapping[str, Any]) -> str:
    """Why `function` cannot be called with `arguments`; ``""`` if it can."""
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        return (
            f"{error}; its operator gives {', '.join(arguments)} (a last parameter **_ takes those"
            " that it does not need)"
        )
    except ValueError:
        pass
    return ""


def _said_in(function: Function, error: Exception) -> str:
    """What went wrong in one line, and where in the file of `function`."""
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
    """Registers the decorated function as the formula of `operators`.

    Args:
        operators: names such as ``"aten.mm"`` or ``"mylib.my_op"``; with an overload,
            ``"aten.max.other"``, where it differs. In-place variants and overloads without a
            formula of their own resolve to the functional name.
        type: the kind of operator; by default the name of the module the function is in, and
            ``"custom"`` outside of roofline.
        byte: which bytes are charged, in words, where that is not each operand once.
        is_for_complex: whether the count is right for complex numbers too; where it is not, their
            FLOP are unknown.
        row: file and line of the row of a table that it comes from.

    A function that is defined once more (its cell or file ran again) takes the place of itself.

    Raises:
        InputError: what is no name of an operator, or an operator that another function counts.
    """
    _check_keys(operators)

    def register(function: F) -> F:
        if not callable(function):
            raise InputError(f"formula for {operators[0]}: expected a function, got {function!r}")
        before = [_formulas[key] for key in operators if key in _formulas]
        for each in before:
            if not _is_defined_again(function, each.function):
                raise InputError(
                    f"{each.key} already has a formula: {_name_of(each.function)}; only the same"
                    " function, defined once more, takes its place"
                )
        replaced = [each.function for each in before if each.function is not function]
        # The other operators that it counted, too: they may no longer be named.
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
            expression is Python, of names of its module and arguments of the operator. Behind
            ``; complex`` stands what complex numbers take; nothing, where that is the same. What
            is in parentheses may go on, indented, on the next lines.
        function: counts; it takes the value of the expression (or both), then the arguments of the
            operator by name. None: the value is the `Flop`, or all operations: a number, or a cost.
        type: as of `formula`.
        byte: as of `formula`.
        names: what expressions may name besides.
    """
    # `inspect.stack` would look at all modules, at every table.
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
"""Of arguments that some overloads of an operator have, and others have not, or leave out."""


class _Row:
    """The formula of a row: its parameters are the names that its module has not.

    The expression is compiled when it is first needed: a result that is read back needs none.
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
            # A function that is not called is an argument of the same name.
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
    """Refuses what can be the name of no operator, and names what was meant."""
    if not operators or not all(isinstance(each, str) for each in operators):
        raise InputError(
            'formula: name the operators that it counts, as in @roofline.formula("mylib.my_op")'
        )
    for key in operators:
        if _KEY.fullmatch(key) and not key.startswith("torch."):
            continue
        meant = key.removeprefix("torch.ops.").replace("::", ".")
        if "." not in meant:
            meant = f"mylib.{meant}"
        raise InputError(
            f"formula for '{key}': an operator is named with its name space, as torch.ops has it"
            + (f": '{meant}'" if _KEY.fullmatch(meant) else ", such as 'mylib.my_op'")
        )


def _is_defined_again(function: Function, before: Function) -> bool:
    """Whether `function` is `before` after its cell or file ran once more."""
    if function is before:
        return True
    (file, line), (file_before, line_before) = file_of(function), file_of(before)
    same_module = function.__module__ == before.__module__
    if same_module and function.__module__ == "__main__" and file != file_before:
        # Cells of a notebook are files of their own.
        return True
    if not file or not (same_module or file == file_before):
        return False
    if getattr(function, "__qualname__", "") == getattr(before, "__qualname__", None):
        return "<lambda>" not in function.__qualname__ or line == line_before
    # Renamed, in a file that ran again, as another module.
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
"""The kind of operator of modules that have another name."""


def _default_type(module: str | None) -> str:
    package, _, name = (module or "").rpartition(".")
    return _TYPES.get(name, name) if package.startswith(_PACKAGE) else "custom"


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
