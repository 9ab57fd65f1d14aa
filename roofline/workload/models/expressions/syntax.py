"""What a design written as text consists of, and how it is written.

``at`` is the index in the text at which something begins; two trees are equal wherever their parts
stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

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
