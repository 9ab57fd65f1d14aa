"""Syntax tree of a design, and its text form."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from roofline.core.source_errors import PlacedError
from roofline.errors import did_you_mean

# ``at`` is the index in the text at which a part begins; it is ignored in comparisons.

WORDS = frozenset(
    [
        *("same", "valid", "zeros", "reflect", "replicate", "circular", "constant"),
        *("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"),
        *("relu", "gelu", "tanh", "mean", "sum", "max"),
    ]
)
"""Words for arguments of torch's layers: written without quotes, and not variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A name without a value."""

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
        left, right = (
            f"({format_value(each)})"
            if isinstance(each, Operation) or format_value(each).startswith("-")
            else format_value(each)
            for each in (self.left, self.right)
        )
        return f"{left}{self.operator}{right}"


Value: TypeAlias = "int | float | str | bool | tuple[Value, ...] | Variable | Operation | None"
"""An argument, a size or a count; lists are tuples, as torch accepts both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of a layer; ``name`` is ``""`` for positional ones."""

    name: str
    value: Value
    at: int = field(compare=False)

    def __str__(self) -> str:
        return f"{self.name}={format_value(self.value)}" if self.name else format_value(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A torch layer, or a model from the file, package or library ``home``.

    ``arguments`` is None without brackets.
    """

    name: str
    home: str = ""
    arguments: tuple[Argument, ...] | None
    at: int = field(compare=False)

    @property
    def full_name(self) -> str:
        """Name without arguments: ``conv2d``, ``file.py:Block``."""
        home = self.home if re.fullmatch(r"[\w./~-]*", self.home) else repr(self.home)
        return f"{home}:{self.name}" if home else self.name

    def __str__(self) -> str:
        given = "" if self.arguments is None else f"({','.join(map(str, self.arguments))})"
        return self.full_name + given


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Parts in brackets; a residual adds its input to their output."""

    parts: tuple[Part, ...]
    is_residual: bool = False
    at: int = field(compare=False)

    def __str__(self) -> str:
        return f"{'residual' if self.is_residual else ''}({'+'.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A repeated part, each time with its own weights: ``3*relu()``."""

    count: Value
    part: Layer | Group
    at: int = field(compare=False)

    def __str__(self) -> str:
        return f"{_braced(self.count)}*{self.part}"


Part: TypeAlias = Layer | Group | Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape of one input after ``@``; ``dtype`` may be ``""``."""

    sizes: tuple[Value, ...]
    dtype: str = ""
    at: int = field(compare=False)

    def __str__(self) -> str:
        return "x".join(map(_braced, self.sizes)) + (f":{self.dtype}" if self.dtype else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A design: its parts in sequence, and the shapes of its inputs, if written.

    ``layers`` and ``variables`` are all in its text, in order.
    """

    parts: tuple[Part, ...]
    shapes: tuple[Shape, ...] = ()
    text: str = field(compare=False)
    layers: tuple[Layer, ...] = field(default=(), compare=False)
    variables: tuple[Variable, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        at = f"@{','.join(map(str, self.shapes))}" if self.shapes else ""
        return "+".join(map(str, self.parts)) + at

    def error(self, message: str, part: Part | Shape | Argument | Variable) -> PlacedError:
        """Return an error that marks a part of the design."""
        return PlacedError(message, self.text, part.at)

    def unbound_error(self, variable: Variable) -> PlacedError:
        """Return the error for a variable without a value."""
        name = variable.name
        word = did_you_mean(name, WORDS).removeprefix("; ").removesuffix("?")
        return self.error(
            f"'{name}' has no value: write a number, or sweep it with"
            f" `roofline compare … --sweep {name}=16:1024:x2`"
            f" (a text argument needs quotes: '{name}'{f'; {word}' if word else ''})",
            variable,
        )


def format_value(value: Value) -> str:
    """Return the text of a value in a design."""
    match value:
        case str():
            return value if value in WORDS else repr(value)
        case None | bool():
            return str(value).lower()
        case tuple():
            return f"({','.join(map(format_value, value))}{',' if len(value) == 1 else ''})"
        case _:
            return str(value)


def _braced(value: Value) -> str:
    """Return a size or count: numbers as they are, others in braces."""
    text = format_value(value)
    return text if text.isdigit() or text.startswith("{") else f"{{{text}}}"
