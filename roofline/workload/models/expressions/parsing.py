"""From the text of a design to what it consists of: a parser by recursive descent."""

from __future__ import annotations

import re

from roofline.errors import InputError
from roofline.foundation.dtypes import dtype
from roofline.workload.models.expressions.syntax import (
    LITERALS,
    Argument,
    Design,
    Group,
    Layer,
    Part,
    Repeat,
    Shape,
    Value,
    Variable,
)
from roofline.workload.models.expressions.values import DIGITS, NAME, QUOTED, Values, unquoted

MOST_LETTERS = 10_000

_HOME = re.compile(r"[\w.~/-]+(?=\s*:)")
_LAYER = re.compile(r"[\w.~/-]+")
_MEMBER = re.compile(r"[\w./-]+")
_KEYWORD = re.compile(r"([^\W\d]\w*)\s*=(?!=)")
_COUNT = re.compile(r"[\w]+(?=\s*\*)")
_TYPE = re.compile(r"\w+")


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


class _Parser(Values):
    """A place in a text; each method takes what it is named after, and moves behind it."""

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
        if not NAME.fullmatch(word) or word in LITERALS:
            raise self.wrong(f"'{word}' is no number of times: write 3*(…)")
        self.at += len(word)
        return Variable(name=word, at=at)

    def _unit(self) -> Layer | Group:
        self.skip()
        at = self.at
        if self.take("("):
            return self._group(at, at, is_residual=False)
        if found := self.found(QUOTED):
            self.at = found.end()
            if not self.take(":"):
                raise self.wrong("expected ':' and a name after a file: 'my file.py':Block")
            return self._layer(unquoted(found), at)
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
        if found := self.found(DIGITS):
            size = self.integer()
            if size.value == 0:
                raise self.wrong("a size of 0: every size must be at least 1", size.at)
            if self.next() == "." or self.next() == "-":
                raise self.wrong(f"'{found[0]}{self.next()}' begins no whole number", size.at)
            return size
        if found := self.found(NAME):
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
