"""Parser of designs written as text: ``conv2d(64,64,3,groups=64)+conv2d(64,64,1)@56x56``.

Variables are replaced by given values, and known arithmetic is computed. Arguments are Python
expressions, parsed by `ast`; nothing is run, and torch is not imported.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeGuard, TypeVar

from roofline.core.dtypes import dtype
from roofline.core.source_errors import PlacedError
from roofline.errors import InputError
from roofline.workload.models.expressions.syntax import (
    WORDS,
    Argument,
    Design,
    Group,
    Layer,
    Operation,
    Part,
    Repeat,
    Shape,
    Value,
    Variable,
    format_value,
)

T = TypeVar("T")
Given = Mapping[str, int | float | str]

_OF_DESIGNS = re.compile(r"[()@+*{}]")


def is_expression(text: str) -> bool:
    """Return whether a text that names a model is a design, not a name, file or package."""
    if not _OF_DESIGNS.search(text):
        return False
    before, colon, after = text.rpartition(":")
    path = before if colon and before.endswith(".py") and after.isidentifier() else text
    try:
        return not (path.endswith((".py", ".json")) and Path(path).is_file())
    # Not a valid path: too long, or with a NUL.
    except (OSError, ValueError):
        return True


def variables_in(text: str) -> tuple[str, ...]:
    """Return the variables of a design, each once, in order; none for other texts."""
    if not is_expression(text):
        return ()
    return tuple(dict.fromkeys(each.name for each in parse_design(text).variables))


def bind_variables(text: str, values: Given) -> str:
    """Return a design in its shortest form, its variables replaced by values."""
    return str(parse_design(text, values)) if is_expression(text) else text


_MAX_LENGTH = 10_000


def parse_design(text: str, values: Given | None = None) -> Design:
    """Return the design written as `text`; PlacedError with the place of a syntax error."""
    if len(text) > _MAX_LENGTH:
        raise InputError(
            f"design too long: {len(text):,} characters, at most {_MAX_LENGTH:,};"
            " write 20*(...) for repeated parts, or file.py:Model"
        )
    return _Reader(text, values or {}).design()


_MAX_DEPTH = 40
_MAX_OPERATIONS = 200
_MAX_NUMBER = 10**18
"""Largest number in a design."""

_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_BRACKET = re.compile(rf"{_TEXT}|[()\[\]{{}}'\"]")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_SPACE = re.compile(r" *")
_HOME = re.compile(rf"{_TEXT}|[\w.~/-]+(?=\s*:)")
_LAYER = re.compile(r"[\w.~/-]+")
_COUNT = re.compile(r"\w+(?=\s*\*)")
_SIZE = re.compile(r"[0-9]+")
_WORD = re.compile(r"\w+")


_LITERALS: Mapping[str, bool | None] = {"true": True, "false": False, "none": None}

_SIGNS: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_OPERATIONS: Mapping[str, Callable[[int | float, int | float], int | float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


class _Reader:
    """A position in a text; methods parse what they are named after, and advance."""

    def __init__(self, text: str, values: Given) -> None:
        self._written = text
        self._text = re.sub(r"\s", " ", text)
        self._at = 0
        self._values = values
        self._operations = 0
        self._variables: list[Variable] = []
        self._layers: list[Layer] = []
        self._closing = self._brackets()

    def _error(self, message: str, at: int | None = None) -> PlacedError:
        return PlacedError(message, self._written, self._at if at is None else at)

    def _brackets(self) -> dict[int, int]:
        """Return the position of the closing bracket for each opening one."""
        closing: dict[int, int] = {}
        opened: list[int] = []
        for found in _BRACKET.finditer(self._text):
            sign, at = found[0], found.start()
            if sign in _PAIRS:
                opened.append(at)
                if len(opened) > _MAX_DEPTH:
                    raise self._error(f"brackets nested deeper than {_MAX_DEPTH}", at)
            elif sign in _PAIRS.values():
                if not opened:
                    raise self._error(f"unmatched '{sign}'", at)
                if sign != (expected := _PAIRS[self._text[opened[-1]]]):
                    raise self._error(f"expected '{expected}' here, got '{sign}'", at)
                closing[opened.pop()] = at
            elif len(sign) == 1:
                raise self._error("unclosed quotation mark", at)
        if opened:
            missing = _PAIRS[self._text[opened[-1]]]
            raise self._error(f"unclosed bracket: '{missing}' is missing", opened[-1])
        return closing

    def _next(self) -> str:
        """Return the next character after spaces; ``""`` at the end."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def _expected(self, what: str) -> PlacedError:
        found = f"'{self._next()}'" if self._next() else "the end"
        before, colon, after = what.partition(":")
        return self._error(f"expected {before}, got {found}{colon}{after}")

    def _take(self, sign: str) -> bool:
        is_here = self._next() == sign
        self._at += is_here
        return is_here

    def _taken(self, form: re.Pattern[str]) -> str:
        """Return the match of `form` here, or ``""``."""
        self._next()
        found = form.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found[0] if found else ""

    def design(self) -> Design:
        parts = self._several(self._part, "+")
        shapes = self._several(self._shape, ",") if self._take("@") else ()
        match self._next():
            case "":
                return Design(
                    parts=parts,
                    shapes=shapes,
                    text=self._written,
                    layers=tuple(self._layers),
                    variables=tuple(self._variables),
                )
            case "+" if shapes:
                raise self._error("the shape comes last, after all layers: conv2d(…)+relu()@56x56")
            case "@":
                raise self._error("more than one '@'; write several inputs as @1x8x64,1x8x64")
            case _ if shapes:
                raise self._expected("the end of the shape here: 1x64x56x56, 1x128:int64")
            case _:
                raise self._expected("'+' and a layer, or '@' and a shape")

    def _several(self, read: Callable[[], T], sign: str) -> tuple[T, ...]:
        found = [read()]
        while self._take(sign):
            found.append(read())
        return tuple(found)

    def _part(self) -> Part:
        self._next()
        at = self._at
        word = self._braced_or(_COUNT)
        if not word:
            return self._unit()
        count = self._whole(word, at, "a count")
        if not self._take("*"):
            raise self._error("expected '*' here, after a count")
        return Repeat(count=count, part=self._unit(), at=at)

    def _unit(self) -> Layer | Group:
        if self._next() == "(":
            return self._group(self._at, is_residual=False)
        at = self._at
        home = self._taken(_HOME)
        if home and home[0] in "'\"":
            home = str(self._value(self._tree(home, at)))
        if home and not self._take(":"):
            raise self._error("expected ':' and a name after a file: 'my file.py':Block")
        began = self._at
        name = self._taken(_LAYER)
        if not name and home:
            raise self._error(f"expected the name of a class or function after '{home}:'")
        if not name:
            raise self._expected("a layer here: conv2d(64,64,3)")
        if not home and name[0].isdigit():
            raise self._error(
                f"expected a layer here, got the number {name}: 3*relu() repeats a layer", began
            )
        has_brackets = self._next() == "("
        if has_brackets and not home and name == "residual":
            return self._group(at, is_residual=True)
        given = self._arguments() if has_brackets else None
        self._layers.append(Layer(name=name, home=home, arguments=given, at=at))
        return self._layers[-1]

    def _group(self, at: int, *, is_residual: bool) -> Group:
        end = self._closing[self._at]
        self._at += 1
        parts = self._several(self._part, "+")
        if self._next() == "@":
            raise self._error("the shape comes at the end of the design, outside of brackets")
        if self._at != end:
            raise self._expected("'+' or ')' here")
        self._at = end + 1
        return Group(parts=parts, is_residual=is_residual, at=at)

    def _shape(self) -> Shape:
        self._next()
        at, kind = self._at, ""
        sizes = self._several(self._size, "x")
        if self._take(":"):
            self._next()
            began = self._at
            if not (kind := self._taken(_WORD)):
                raise self._expected("a data type here: @1x128:int64")
            try:
                dtype(kind)
            except InputError as error:
                raise self._error(str(error), began) from None
        return Shape(sizes=sizes, dtype=kind, at=at)

    def _size(self) -> Value:
        self._next()
        at = self._at
        if size := self._braced_or(_SIZE):
            return self._whole(size, at, "a size")
        if name := self._taken(_WORD).split("x")[0]:
            raise self._error(f"a variable in a shape needs braces: {{{name}}}", at)
        raise self._expected("a size here: @1x64x56x56")

    def _braced_or(self, form: re.Pattern[str]) -> str:
        """Return an expression in braces, braces included, or a match of `form`."""
        if self._next() != "{":
            return self._taken(form)
        at, self._at = self._at, self._closing[self._at] + 1
        return self._text[at : self._at]

    def _whole(self, word: str, at: int, what: str) -> Value:
        """Return a size or count: a whole number from 1, or an unknown expression."""
        found = self._value(self._tree(word, at), is_operand=True)
        if isinstance(found, (Variable, Operation)):
            return found
        number = int(found) if isinstance(found, float) and found.is_integer() else found
        if type(number) is not int or number < 1:
            before, after = word.strip("{ }"), format_value(found)
            got = f"{before} is {after}" if before != after else f"got {after}"
            fix = "; use // for integer division" if isinstance(number, float) else ""
            begin = at + word.startswith("{")
            raise self._error(f"{what} must be a whole number from 1, {got}{fix}", begin)
        return number

    def _arguments(self) -> tuple[Argument, ...]:
        opened, self._at = self._at, self._closing[self._at] + 1
        call = self._tree(f"f{self._text[opened : self._at]}", opened - 1)
        assert isinstance(call, ast.Call)
        given = [
            Argument(name="", value=self._value(each), at=each.col_offset) for each in call.args
        ]
        for each in call.keywords:
            if each.arg is None or each.arg in [argument.name for argument in given]:
                raise self._error(f"duplicate argument '{each.arg or '**'}'", each.col_offset)
            value = self._value(each.value)
            given.append(Argument(name=each.arg, value=value, at=each.col_offset))
        return tuple(given)

    def _tree(self, source: str, at: int) -> ast.expr:
        """Return Python's syntax tree of a part, with columns as positions in the whole text."""
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(source, mode="eval").body
        except SyntaxError as error:
            why = " ".join(error.msg.split())
            place = min(at + max((error.offset or 1) - 1, 0), len(self._text))
            raise self._error(f"{why}; arguments look like 64, bias=false, (3,1)", place) from None
        # For numbers with too many digits, and nesting too deep for Python.
        except (ValueError, MemoryError, RecursionError):
            raise self._error("expression too large: write its value", at) from None
        encoded = source.encode()
        for each in ast.walk(tree):
            if isinstance(each, (ast.expr, ast.keyword)):
                each.col_offset = at + len(encoded[: each.col_offset].decode())
        return tree

    # Arguments: values from Python's syntax trees; variables in them are recorded.

    def _value(self, node: ast.expr, *, is_operand: bool = False) -> Value:
        """Return an argument; operands and names in braces are never torch's words."""
        at = node.col_offset
        match node:
            case ast.Name(id=name) if name in WORDS and not is_operand:
                return name
            case ast.Name(id=name) if name in _LITERALS:
                return _LITERALS[name]
            case ast.Name(id=name):
                return self._given(Variable(name=name, at=at))
            case ast.Constant(value=str() | bool() | None as value):
                return value
            case ast.Constant(value=int() | float() as number):
                if number >= _MAX_NUMBER if isinstance(number, int) else number == math.inf:
                    raise self._error("number too large: at most 10^18", at)
                return number
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(map(self._value, items))
            case ast.Set(elts=[inner]):
                return self._value(inner, is_operand=True)
            case ast.BinOp(left=ast.Name(id="nearest"), op=ast.Sub(), right=ast.Name(id="exact")):
                return "nearest-exact"
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                value = self._operand("-", inner)
                is_known = is_number(value)
                return -value if is_known else Operation(operator="-", left=0, right=value, at=at)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
                sign = _SIGNS[type(op)]
                operands = {"left": self._operand(sign, left), "right": self._operand(sign, right)}
                return self._computed(Operation(operator=sign, at=at, **operands))
            case _:
                raise self._error(
                    f"invalid argument '{ast.unparse(node)[:60]}': expected a number, a word, a"
                    " quoted text or a tuple",
                    at,
                )

    def _operand(self, sign: str, node: ast.expr) -> Value:
        self._operations += 1
        if self._operations > _MAX_OPERATIONS:
            raise self._error("too many operations: write the result", node.col_offset)
        value = self._value(node, is_operand=True)
        if not is_number(value) and not isinstance(value, (Variable, Operation)):
            what = (
                f": {ast.unparse(node)} is {format_value(value)}"
                if isinstance(node, ast.Name)
                else ""
            )
            raise self._error(f"'{sign}' needs numbers or variables{what}", node.col_offset)
        return value

    def _given(self, variable: Variable) -> Value:
        self._variables.append(variable)
        if variable.name not in self._values:
            return variable
        given = self._values[variable.name]
        # Numbers of numpy and pandas are converted to Python's.
        if not isinstance(given, (int, float, str)):
            given = getattr(given, "item", lambda: given)()
        is_finite = not isinstance(given, float) or math.isfinite(given)
        if type(given) not in (int, float, str, bool) or not is_finite:
            raise self._error(
                f"'{variable.name}' must be a number or a word, got {given!r}", variable.at
            )
        return given if isinstance(given, str) else self._in_range(given, variable)

    def _computed(self, operation: Operation) -> Value:
        sign, a, b = operation.operator, operation.left, operation.right
        if not is_number(a) or not is_number(b):
            return operation
        if sign in ("/", "//", "%") and b == 0:
            raise self._error(f"division by 0: {operation}", operation.at)
        # 64/4 channels are 16, not 16.0.
        is_exact = isinstance(a, int) and isinstance(b, int) and sign == "/" and a % b == 0
        return self._in_range(_OPERATIONS["//" if is_exact else sign](a, b), operation)

    def _in_range(self, value: int | float, of: Variable | Operation) -> int | float:
        if not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise self._error(f"{of} is too large: at most 10^18", of.at)
        return value


def is_number(value: Value) -> TypeGuard[int | float]:
    """Return whether a value is a number; booleans are not."""
    return type(value) in (int, float)
