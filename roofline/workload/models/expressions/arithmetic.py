"""Values put in the place of variables, and what the arithmetic in a design comes to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from roofline.errors import nearest
from roofline.foundation.places import PlacedError
from roofline.workload.models.expressions.syntax import (
    WORDS,
    Argument,
    Design,
    Group,
    Layer,
    Literal,
    Operation,
    Part,
    Plain,
    Repeat,
    Sequence,
    Shape,
    Value,
    Variable,
    is_number,
)

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
        return replace(layer, arguments=tuple(map(self._argument, layer.arguments)))

    def _argument(self, argument: Argument) -> Argument:
        return replace(argument, value=self.value(argument.value))

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
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case _:
            # 64/4 is 16 channels, and 16.0 would be none.
            is_exact = isinstance(a, int) and isinstance(b, int) and a % b == 0
            return a // b if is_exact else a / b
