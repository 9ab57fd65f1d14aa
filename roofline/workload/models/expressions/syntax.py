"""The tree of a design written as text, how it is written, and values put into it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from roofline.errors import nearest
from roofline.foundation.places import PlacedError

# ``at`` is the index in the text at which something begins; two trees are equal wherever their
# parts stood.

Plain = int | float | str | bool | None

WORDS = frozenset(
    [
        *("same", "valid", "zeros", "reflect", "replicate", "circular", "constant"),
        *("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"),
        *("relu", "gelu", "tanh", "mean", "sum", "max"),
    ]
)
"""The words that torch's layers take as arguments: these need no quotes, and are no variables."""

LITERALS: dict[str, Plain] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "none": None,
    "None": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A value: a number, a text, true, false or none."""

    value: Plain
    at: int = field(compare=False)

    def __eq__(self, other: object) -> bool:
        # 1 and True and 1.0 are equal to Python, and are three things to torch.
        return (
            isinstance(other, Literal)
            and type(self.value) is type(other.value)
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return self.value if self.value in WORDS else _quoted(self.value)
        if self.value is None or isinstance(self.value, bool):
            return str(self.value).lower()
        return repr(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A name that has no value yet."""

    name: str
    at: int = field(compare=False)

    def __str__(self) -> str:
        return f"{{{self.name}}}" if self.name in WORDS else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Arithmetic of two values: ``+ - * / // %``."""

    operator: str
    left: Value
    right: Value
    at: int = field(compare=False)

    def __str__(self) -> str:
        return f"{_operand(self.left)}{self.operator}{_operand(self.right)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """Values in brackets, ``(3,1)``; torch takes tuples and lists alike."""

    items: tuple[Value, ...]
    at: int = field(compare=False)

    def __str__(self) -> str:
        comma = "," if len(self.items) == 1 else ""
        return f"({','.join(map(str, self.items))}{comma})"


Value = Literal | Variable | Operation | Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of a layer; ``name`` is ``""`` where it is positional."""

    name: str
    value: Value
    at: int = field(compare=False)

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.name else str(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer of torch, or a model: ``home`` is the file, package or library that it is from.

    ``arguments`` is None where there are no brackets.
    """

    name: str
    home: str = ""
    arguments: tuple[Argument, ...] | None
    at: int = field(compare=False)

    @property
    def full_name(self) -> str:
        """As it is written, without arguments: ``conv2d``, ``file.py:Block``."""
        home = f"{self.home if is_bare(self.home) else _quoted(self.home)}:" if self.home else ""
        return home + self.name

    def __str__(self) -> str:
        given = "" if self.arguments is None else f"({','.join(map(str, self.arguments))})"
        return self.full_name + given


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Parts in brackets; of a residual, the input is added to what they give."""

    parts: tuple[Part, ...]
    is_residual: bool = False
    at: int = field(compare=False)

    def __str__(self) -> str:
        return f"{'residual' if self.is_residual else ''}({'+'.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A part that comes several times, each with weights of its own: ``3*relu()``."""

    count: Value
    part: Layer | Group
    at: int = field(compare=False)

    def __str__(self) -> str:
        return f"{_braced(self.count)}*{self.part}"


Part = Layer | Group | Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is written after ``@`` for one input; ``dtype`` is ``""`` where it is not said."""

    sizes: tuple[Value, ...]
    dtype: str = ""
    at: int = field(compare=False)

    def __str__(self) -> str:
        return "x".join(map(_braced, self.sizes)) + (f":{self.dtype}" if self.dtype else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A design: its parts, one after another, and the shapes of its inputs, if they are said."""

    parts: tuple[Part, ...]
    shapes: tuple[Shape, ...] = ()
    text: str = field(compare=False)

    def __str__(self) -> str:
        at = f"@{','.join(map(str, self.shapes))}" if self.shapes else ""
        return "+".join(map(str, self.parts)) + at

    def values(self) -> Iterator[Value]:
        """Every value in it, in the order in which they are written."""
        yield from _values(self.parts)
        for shape in self.shapes:
            yield from shape.sizes

    def variables(self) -> Iterator[Variable]:
        """Every variable in it, in the order in which they are written, as often as they are."""
        for value in self.values():
            yield from variables_of(value)


def variables_of(value: Value) -> Iterator[Variable]:
    """The variables in a value, in the order in which they are written."""
    match value:
        case Variable():
            yield value
        case Operation():
            yield from variables_of(value.left)
            yield from variables_of(value.right)
        case Sequence():
            for item in value.items:
                yield from variables_of(item)
        case Literal():
            pass


def layers_of(parts: Iterable[Part]) -> Iterator[Layer]:
    """The layers that are written in `parts`, each once."""
    for part in parts:
        match part:
            case Layer():
                yield part
            case Group():
                yield from layers_of(part.parts)
            case Repeat():
                yield from layers_of([part.part])


def is_number(value: Plain) -> TypeGuard[int | float]:
    """Whether a value can be computed with; true and false cannot."""
    return type(value) in (int, float)


def is_bare(home: str) -> bool:
    """Whether a file or package can be written without quotes."""
    return bool(home) and all(each.isalnum() or each in "._-/~" for each in home)


def _values(parts: Iterable[Part]) -> Iterator[Value]:
    for part in parts:
        match part:
            case Layer():
                yield from (each.value for each in part.arguments or ())
            case Group():
                yield from _values(part.parts)
            case Repeat():
                yield part.count
                yield from _values([part.part])


def _operand(value: Value) -> str:
    is_negative = isinstance(value, Literal) and str(value).startswith("-")
    return f"({value})" if isinstance(value, Operation) or is_negative else str(value)


def _braced(value: Value) -> str:
    """A size or a count: numbers stand as they are, all else in braces."""
    is_number = isinstance(value, Literal) and str(value).isdigit()
    in_braces = isinstance(value, Variable) and value.name in WORDS
    return str(value) if is_number or in_braces else f"{{{value}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_MOST = 10**18
"""Numbers beyond it are refused, as in texts."""


def with_values(design: Design, values: Mapping[str, int | float | str]) -> Design:
    """The design with values in the place of variables; arithmetic that is then known is done.

    Raises:
        PlacedError: arithmetic that cannot be done, a size or a count that is no whole number.
    """
    putting = _Putting(values, design.text)
    return replace(
        design,
        parts=tuple(map(putting.part, design.parts)),
        shapes=tuple(map(putting.shape, design.shapes)),
    )


def plain(value: Value, text: str) -> Plain | tuple[object, ...]:
    """What Python and torch call a value.

    Raises:
        PlacedError: it has variables.
    """
    match value:
        case Literal():
            return value.value
        case Sequence():
            return tuple(plain(item, text) for item in value.items)
        case Variable():
            raise unbound(value, text)
        case Operation():
            return plain(_Putting({}, text).value(value, is_final=True), text)


def whole(value: Value, text: str) -> int:
    """Return a size or a count, which are whole numbers once they are known."""
    number = plain(value, text)
    assert isinstance(number, int)
    return number


def unbound(variable: Variable, text: str) -> PlacedError:
    """The error that a variable has no value where one is needed."""
    name = variable.name
    word = nearest(name, WORDS).removeprefix("; ").removesuffix("?")
    return PlacedError(
        f"'{name}' has no value: write a number in its place, or give it values with"
        f" `roofline compare … --sweep {name}=16:1024:x2`"
        f" (a word that a layer takes stands in quotes: '{name}'{f'; {word}' if word else ''})",
        text,
        variable.at,
    )


class _Putting:
    """Puts values into the parts of one design."""

    def __init__(self, values: Mapping[str, int | float | str], text: str) -> None:
        self._values = values
        self._text = text

    def part(self, part: Part) -> Part:
        match part:
            case Layer():
                return self._layer(part)
            case Group():
                return replace(part, parts=tuple(map(self.part, part.parts)))
            case Repeat():
                inner = part.part
                return replace(
                    part,
                    count=self._whole(part.count, "a count"),
                    part=self._layer(inner)
                    if isinstance(inner, Layer)
                    else replace(inner, parts=tuple(map(self.part, inner.parts))),
                )

    def shape(self, shape: Shape) -> Shape:
        return replace(shape, sizes=tuple(self._whole(each, "a size") for each in shape.sizes))

    def value(self, value: Value, *, is_final: bool = False) -> Value:
        match value:
            case Literal():
                return value
            case Variable():
                if is_final:
                    raise unbound(value, self._text)
                return self._given(value)
            case Sequence():
                return replace(value, items=tuple(map(self.value, value.items)))
            case Operation():
                left = self.value(value.left, is_final=is_final)
                right = self.value(value.right, is_final=is_final)
                if isinstance(left, Literal) and isinstance(right, Literal):
                    return Literal(value=self._done(value, left, right), at=value.at)
                return replace(value, left=left, right=right)

    def _layer(self, layer: Layer) -> Layer:
        if layer.arguments is None:
            return layer
        given = (replace(each, value=self.value(each.value)) for each in layer.arguments)
        return replace(layer, arguments=tuple(given))

    def _given(self, variable: Variable) -> Value:
        if variable.name not in self._values:
            return variable
        given = self._values[variable.name]
        # Numbers of numpy and pandas are put in as Python's.
        if not isinstance(given, (int, float, str)):
            given = getattr(given, "item", lambda: given)()
        is_finite = not isinstance(given, float) or math.isfinite(given)
        if type(given) not in (int, float, str, bool) or not is_finite:
            raise PlacedError(
                f"'{variable.name}' cannot be {given!r}: it takes a number or a word",
                self._text,
                variable.at,
            )
        if not isinstance(given, str):
            self._check_range(given, variable)
        return Literal(value=given, at=variable.at)

    def _whole(self, value: Value, what: str) -> Value:
        """A size or a count: a whole number from 1, once it is known."""
        found = self.value(value)
        if not isinstance(found, Literal):
            return found
        number = found.value
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if type(number) is not int or number < 1:
            said = f"but {value} is {found}" if str(value) != str(found) else f"not {found}"
            fix = "; write // to divide without rest" if isinstance(number, float) else ""
            raise PlacedError(
                f"{what} must be a whole number from 1, {said}{fix}", self._text, value.at
            )
        return replace(found, value=number)

    def _done(self, operation: Operation, left: Literal, right: Literal) -> int | float:
        a, b = left.value, right.value
        if not is_number(a) or not is_number(b):
            raise PlacedError(
                f"{operation} cannot be computed: it is {left}{operation.operator}{right}",
                self._text,
                operation.at,
            )
        if operation.operator in ("/", "//", "%") and b == 0:
            raise PlacedError(f"{operation} divides by 0", self._text, operation.at)
        computed = _computed(operation.operator, a, b)
        self._check_range(computed, operation)
        return computed

    def _check_range(self, value: int | float, of: Variable | Operation) -> None:
        if not -_MOST <= value <= _MOST:
            raise PlacedError(f"{of} is too large: numbers end at 10^18", self._text, of.at)


def _computed(sign: str, a: int | float, b: int | float) -> int | float:
    # 64/4 is 16 channels, and 16.0 would be none.
    is_exact = isinstance(a, int) and isinstance(b, int) and sign == "/" and a % b == 0
    return _OPERATIONS["//" if is_exact else sign](a, b)


_OPERATIONS: Mapping[str, Callable[[int | float, int | float], int | float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
