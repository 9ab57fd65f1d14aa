"""From the text of a design to what it consists of: a parser by recursive descent."""

from __future__ import annotations

import re

from roofline.errors import InputError
from roofline.foundation.dtypes import dtype
from roofline.foundation.places import PlacedError
from roofline.workload.models.expressions.syntax import (
    LITERALS,
    WORDS,
    Argument,
    Design,
    Group,
    Layer,
    Literal,
    Operation,
    Part,
    Repeat,
    Sequence,
    Shape,
    Value,
    Variable,
    is_number,
)

MOST_LETTERS = 10_000
_MOST_DEPTH = 40

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\W\d]\w*")
_DIGITS = re.compile(r"[0-9]+")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)

_WORD = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)?(?=\s*[,)\]])")
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGER = re.compile(r"[\w.]+")
_MOST_DIGITS = 18
_MOST_OPERATIONS = 100
_HOME = re.compile(r"[\w.~/-]+(?=\s*:)")
_LAYER = re.compile(r"[\w.~/-]+")
_MEMBER = re.compile(r"[\w./-]+")
_KEYWORD = re.compile(r"([^\W\d]\w*)\s*=(?!=)")
_COUNT = re.compile(r"[\w]+(?=\s*\*)")
_TYPE = re.compile(r"\w+")


def _unquoted(found: re.Match[str]) -> str:
    """What stands between the quotation marks that `_QUOTED` found."""
    inner = found[1] if found[1] is not None else found[2]
    return re.sub(r"\\(.)", r"\1", inner, flags=re.DOTALL)


def parsed(text: str) -> Design:
    """The design that is written as `text`.

    Raises:
        PlacedError: it is not written as designs are; says where, and what to write.
    """
    if len(text) > MOST_LETTERS:
        raise InputError(
            f"a design of {len(text):,} characters is too long: at most {MOST_LETTERS:,};"
            " write 20*(...) for what comes 20 times, or file.py:Model"
        )
    return _Parser(text).design()


class _Parser:
    """A place in a text, between any spaces; ``depth`` is how many brackets are open there.

    Methods take what they are named after, and move behind it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self._operations = 0

    def wrong(self, message: str, at: int | None = None) -> PlacedError:
        """The error that something is wrong here, or at another place."""
        return PlacedError(message, self.text, self.at if at is None else at)

    def skip(self) -> None:
        """Moves behind spaces."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at

    def next(self) -> str:
        """The letter that stands here; ``""`` at the end."""
        self.skip()
        return self.text[self.at : self.at + 1]

    def found(self, form: re.Pattern[str]) -> re.Match[str] | None:
        """The match of `form` at this place; does not move."""
        self.skip()
        return form.match(self.text, self.at)

    def take(self, sign: str) -> bool:
        """Whether `sign` stands here; moves behind it."""
        self.skip()
        if not self.text.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def seen(self) -> str:
        """What stands here, for a message."""
        letter = self.next()
        return f"'{letter}'" if letter else "the end"

    def deeper(self, at: int) -> None:
        """A bracket was opened at `at`."""
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise self.wrong(f"more than {_MOST_DEPTH} brackets lie in each other", at)

    def close(self, bracket: str, opened: int) -> None:
        """Takes the bracket that closes the one at `opened`."""
        self.depth -= 1
        if self.take(bracket):
            return
        if not self.next():
            raise self.wrong(f"this bracket is not closed: a '{bracket}' is missing", opened)
        raise self.wrong(f"expected '{bracket}' here, not {self.seen()}")

    def value(self) -> Value:
        """An argument of a layer."""
        self.skip()
        at = self.at
        if (found := self.found(_WORD)) and found[0] in WORDS:
            self.at = found.end()
            return Literal(value=found[0], at=at)
        return self.arithmetic()

    def arithmetic(self) -> Value:
        """A number, a variable or what is computed of them."""
        value = self._product()
        while self.next() in ("+", "-"):
            at, sign = self.at, self.next()
            self.at += 1
            value = self._operation(sign, value, self._product(), at)
        return value

    def _product(self) -> Value:
        value = self._factor()
        while self.next() in ("*", "/", "%"):
            at = self.at
            sign = "//" if self.take("//") else self.next()
            self.at = at + len(sign)
            value = self._operation(sign, value, self._factor(), at)
        return value

    def _operation(self, sign: str, left: Value, right: Value, at: int) -> Operation:
        for each in (left, right):
            is_one = isinstance(each, Literal) and is_number(each.value)
            if not is_one and not isinstance(each, (Variable, Operation)):
                raise self.wrong(f"'{sign}' takes numbers and variables", each.at)
        self._operations += 1
        if self._operations > _MOST_OPERATIONS:
            raise self.wrong(
                f"more than {_MOST_OPERATIONS} operations: write what they come to", at
            )
        return Operation(operator=sign, left=left, right=right, at=left.at)

    def _factor(self) -> Value:
        self.skip()
        at = self.at
        letter = self.next()
        if letter == "-":
            self.at += 1
            self.deeper(at)
            inner = self._factor()
            self.depth -= 1
            if isinstance(inner, Literal) and is_number(inner.value):
                return Literal(value=-inner.value, at=at)
            return self._operation("-", Literal(value=0, at=at), inner, at)
        if letter == "{":
            return self.braces()
        if letter and letter in "([":
            return self._bracketed(at)
        if letter and letter in "'\"":
            return self._quotation(at)
        if found := self.found(_NUMBER):
            return self._number(found)
        if found := self.found(_NAME):
            self.at = found.end()
            if self.next() == "(":
                raise self.wrong(
                    f"'{found[0]}(…)' cannot be an argument: only numbers and words", at
                )
            if found[0] in LITERALS:
                return Literal(value=LITERALS[found[0]], at=at)
            return Variable(name=found[0], at=at)
        raise self.wrong(f"expected a value here, not {self.seen()}")

    def braces(self) -> Value:
        """A value in braces."""
        self.skip()
        at = self.at
        self.take("{")
        self.deeper(at)
        value = self.arithmetic()
        self.close("}", at)
        return value

    def _bracketed(self, at: int) -> Value:
        """A tuple or list, or arithmetic in brackets."""
        is_list = self.next() == "["
        bracket = "]" if is_list else ")"
        self.at += 1
        self.deeper(at)
        items: list[Value] = []
        has_comma = False
        while self.next() not in ("", bracket):
            items.append(self.value())
            has_comma = self.take(",")
            if not has_comma:
                break
        is_one = len(items) == 1 and not has_comma and not is_list
        self.close(bracket, at)
        return items[0] if is_one else Sequence(items=tuple(items), at=at)

    def _quotation(self, at: int) -> Literal:
        found = self.found(_QUOTED)
        if not found:
            raise self.wrong("this quotation mark is not closed", at)
        self.at = found.end()
        return Literal(value=_unquoted(found), at=at)

    def _number(self, found: re.Match[str]) -> Literal:
        word, at = found[0], self.at
        if (longer := self.found(_LONGER)) and longer.end() > found.end():
            raise self.wrong(f"'{longer[0]}' is no number")
        if word.isdigit():
            return self.integer()
        self.at = found.end()
        value = float(word)
        if value == float("inf"):
            raise self.wrong(f"{word} is too large", at)
        return Literal(value=value, at=at)

    def integer(self) -> Literal:
        """A whole number, of digits alone."""
        found = self.found(_DIGITS)
        if not found:
            raise self.wrong(f"expected a whole number here, not {self.seen()}")
        if len(found[0].lstrip("0")) > _MOST_DIGITS:
            raise self.wrong(f"a number of {len(found[0])} digits is too large")
        literal = Literal(value=int(found[0]), at=self.at)
        self.at = found.end()
        return literal

    def design(self) -> Design:
        parts = self._chain()
        shapes: list[Shape] = []
        if self.take("@"):
            shapes.append(self._shape())
            while self.take(","):
                shapes.append(self._shape())
        match self.next():
            case "":
                return Design(parts=parts, shapes=tuple(shapes), text=self.text)
            case ")" | "]" | "}" as bracket:
                raise self.wrong(f"this '{bracket}' closes no bracket")
            case "+" if shapes:
                raise self.wrong(
                    "the shape stands at the end, behind all layers: conv2d(…)+relu()@56x56"
                )
            case "@":
                raise self.wrong("a design has one '@'; several inputs are written @1x8x64,1x8x64")
            case _ if shapes:
                raise self.wrong(
                    f"expected the end of the shape here, not {self.seen()};"
                    " shapes are written 1x64x56x56 or 1x128:int64"
                )
            case _:
                raise self.wrong(f"expected '+' and a layer, or '@' and a shape, not {self.seen()}")

    def _chain(self) -> tuple[Part, ...]:
        parts = [self._part()]
        while self.take("+"):
            parts.append(self._part())
        return tuple(parts)

    def _part(self) -> Part:
        self.skip()
        at = self.at
        if self.next() == "{":
            count: Value = self.braces()
            if not self.take("*"):
                raise self.wrong("expected '*' here, between a count and what it repeats")
        elif found := self.found(_COUNT):
            count = self._count(found[0])
            self.take("*")
        else:
            return self._unit()
        return Repeat(count=count, part=self._unit(), at=at)

    def _count(self, word: str) -> Value:
        at = self.at
        if word.isdigit():
            return self.integer()
        if not _NAME.fullmatch(word) or word in LITERALS:
            raise self.wrong(f"'{word}' is no number of times: write 3*(…)")
        self.at += len(word)
        return Variable(name=word, at=at)

    def _unit(self) -> Layer | Group:
        self.skip()
        at = self.at
        if self.take("("):
            return self._group(at, at, is_residual=False)
        if found := self.found(_QUOTED):
            self.at = found.end()
            if not self.take(":"):
                raise self.wrong("expected ':' and a name after a file: 'my file.py':Block")
            return self._layer(_unquoted(found), at)
        if found := self.found(_HOME):
            self.at = found.end()
            self.take(":")
            return self._layer(found[0], at)
        if not self.found(_LAYER):
            raise self.wrong(f"expected a layer here, not {self.seen()}: conv2d(64,64,3)")
        return self._layer("", at)

    def _group(self, at: int, opened: int, *, is_residual: bool) -> Group:
        self.deeper(opened)
        parts = self._chain()
        if self.next() == "@":
            raise self.wrong("the shape stands at the end of the whole design, outside of brackets")
        self.close(")", opened)
        return Group(parts=parts, is_residual=is_residual, at=at)

    def _layer(self, home: str, at: int) -> Layer | Group:
        found = self.found(_MEMBER if home else _LAYER)
        if not found:
            raise self.wrong(f"expected the name of a class or function after '{home}:'")
        name = found[0]
        if not home and name[0].isdigit():
            raise self.wrong(
                f"expected a layer here, not the number {name}: 3*relu() is three of them"
            )
        self.at = found.end()
        self.skip()
        opened = self.at
        if not self.take("("):
            return Layer(name=name, home=home, arguments=None, at=at)
        if not home and name == "residual":
            return self._group(at, opened, is_residual=True)
        return Layer(name=name, home=home, arguments=self._arguments(opened), at=at)

    def _arguments(self, opened: int) -> tuple[Argument, ...]:
        self.deeper(opened)
        given: list[Argument] = []
        while self.next() not in ("", ")"):
            argument = self._argument()
            if argument.name and argument.name in [each.name for each in given]:
                raise self.wrong(f"'{argument.name}' is given twice", argument.at)
            if not argument.name and given and given[-1].name:
                raise self.wrong(
                    f"an argument without a name cannot follow '{given[-1].name}='", argument.at
                )
            given.append(argument)
            if not self.take(","):
                break
        if self.next() not in ("", ")"):
            raise self.wrong(f"expected ',' or ')' here, not {self.seen()}")
        self.close(")", opened)
        return tuple(given)

    def _argument(self) -> Argument:
        self.skip()
        at = self.at
        found = self.found(_KEYWORD)
        if found:
            self.at = found.end()
        return Argument(name=found[1] if found else "", value=self.value(), at=at)

    # -- shapes ------------------------------------------------------------------------------------

    def _shape(self) -> Shape:
        self.skip()
        at = self.at
        sizes = [self._size()]
        while self.take("x"):
            sizes.append(self._size())
        kind = ""
        if self.take(":"):
            kind = self._dtype()
        return Shape(sizes=tuple(sizes), dtype=kind, at=at)

    def _size(self) -> Value:
        letter = self.next()
        if letter == "{":
            return self.braces()
        if found := self.found(_DIGITS):
            size = self.integer()
            if size.value == 0:
                raise self.wrong("a size of 0: every size must be at least 1", size.at)
            if self.next() == "." or self.next() == "-":
                raise self.wrong(f"'{found[0]}{self.next()}' begins no whole number", size.at)
            return size
        if found := self.found(_NAME):
            raise self.wrong(
                f"a variable in a shape stands in braces: {{{found[0].split('x')[0]}}}"
            )
        raise self.wrong(f"expected a size here, not {self.seen()}: @1x64x56x56")

    def _dtype(self) -> str:
        found = self.found(_TYPE)
        if not found:
            raise self.wrong(f"expected a data type here, not {self.seen()}: @1x128:int64")
        try:
            dtype(found[0])
        except InputError as error:
            raise self.wrong(str(error)) from None
        self.at = found.end()
        return found[0]
