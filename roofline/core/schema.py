"""Strict conversion of dataclasses to plain data and back.

`to_data` makes what JSON and TOML can hold; `from_data` checks every key and value against the
annotations and refuses unknown keys. `migrated` converts data of older versions.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import reprlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from roofline.core.dtypes import DType, dtype
from roofline.core.files import cut, refused
from roofline.errors import InputError, did_you_mean

T = TypeVar("T")

_LARGEST = 2**256
"""Limit of numbers: with reciprocals, sums and products stay finite."""

_DEEPEST = 50
"""Maximum nesting of free data."""


def to_data(value: Any) -> Any:
    """Return `value` as dicts, lists, strings, numbers, booleans and None; dataclasses as dicts.

    Dicts hold the fields, then properties named in ``ALSO_WRITTEN``, which `from_data` checks.
    Fields named in ``NOT_WRITTEN`` are left out; they have defaults.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [to_data(item) for item in typing.cast("Sequence[Any]", value)]
    if dataclasses.is_dataclass(value):
        return {name: to_data(getattr(value, name)) for name in _written(type(value))}
    if isinstance(value, Mapping):
        items = typing.cast("Mapping[Any, Any]", value).items()
        return {str(key): to_data(item) for key, item in items}
    raise TypeError(f"no plain data for {type(value).__name__}")


@functools.cache
def _field_types(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    left_out = getattr(cls, "NOT_WRITTEN", ())
    return {
        field.name: hints[field.name]
        for field in dataclasses.fields(cls)
        if field.init and field.name not in left_out
    }


@functools.cache
def _written(cls: type) -> tuple[str, ...]:
    return (*_field_types(cls), *getattr(cls, "ALSO_WRITTEN", ()))


@functools.cache
def _required(cls: type) -> tuple[str, ...]:
    missing = dataclasses.MISSING
    return tuple(
        field.name
        for field in dataclasses.fields(cls)
        if field.init and field.default is missing and field.default_factory is missing
    )


def _shown(data: Any) -> str:
    try:
        return cut(_SHORT.repr(data), 40)
    except (ValueError, RecursionError):
        # Python refuses to print integers of thousands of digits.
        return "what is too long to show"


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 3, 40, 40, 40


class _WrongError(Exception):
    """A wrong value; enclosing tables and lists add their steps to its path."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.steps: list[str | int] = []

    def __str__(self) -> str:
        path = ""
        for step in reversed(self.steps):
            if isinstance(step, int):
                path += f"[{step}]"
            else:
                path += f".{cut(step)}" if path else cut(step)
        return f"{path}: {self.args[0]}" if path else self.args[0]


_Reader = Callable[[Any], Any]
"""Converter of a plain value; raises _WrongError."""


def from_data(cls: type[T], data: Any, *, file: str, fix: str = "") -> T:
    """Return an instance of the dataclass `cls` from plain `data`.

    Args:
        cls: a dataclass; its annotations define keys and values.
        data: data of a JSON or TOML reader.
        file: name of the file, for messages.
        fix: remedy for a damaged file, for messages.
    """
    try:
        return _reader(cls)(data)
    except _WrongError as error:
        raise refused(file, str(error), fix) from None


@functools.cache
def _reader(hint: Any) -> _Reader:
    """Return the converter of a type; cached, as large files have many values."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        *others, rest = [each for each in arguments if each is not type(None)]
        # int | float: a number keeps its type.
        read = _count_or_number if others else _reader(rest)
        return _or_none(read) if type(None) in arguments else read
    if origin is typing.Literal:
        return _one_of({each: each for each in arguments})
    if origin is tuple:
        return _tuple_of(_reader(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _table_of(_reader(arguments[1]))
    if hint is Any:
        return functools.partial(_free, depth=_DEEPEST)
    if hint is DType:
        return _dtype
    if issubclass(hint, Enum):
        return _one_of({each.value: each for each in hint})
    return _SCALARS[hint] if hint in _SCALARS else _instance_of(hint)


def _instance_of(cls: type) -> _Reader:
    readers = {name: _reader(hint) for name, hint in _field_types(cls).items()}
    known, required = readers.keys(), dict.fromkeys(_required(cls)).keys()
    derived: tuple[str, ...] = getattr(cls, "ALSO_WRITTEN", ())

    def read(data: Any) -> Any:
        table = _table(data)
        follows = {name: table[name] for name in derived if name in table}
        if follows:
            table = {key: each for key, each in table.items() if key not in follows}
        if not table.keys() <= known:
            unknown = cut(next(key for key in table if key not in known))
            raise _WrongError(f"unknown key '{unknown}'{did_you_mean(unknown, known)}")
        if not table.keys() >= required:
            raise _WrongError(f"missing key '{next(key for key in required if key not in table)}'")
        values: dict[str, Any] = {}
        key = ""
        try:
            for key, item in table.items():
                values[key] = readers[key](item)
        except _WrongError as error:
            error.steps.append(key)
            raise
        try:
            made = cls(**values)
        except (ValueError, InputError) as error:
            raise _WrongError(str(error)) from None
        for name, said in follows.items():
            right = to_data(getattr(made, name))
            if not is_same(said, right):
                raise _WrongError(f"{name} is {_shown(said)}, but follows as {_shown(right)}")
        return made

    return read


def is_same(said: Any, right: Any) -> bool:
    """Compare the numbers of plain data; they may differ by the rounding of another machine.

    Texts and lists of texts are not compared: later versions may word them otherwise.
    """
    kind = type(right)  # pyright: ignore[reportUnknownVariableType]  of plain data
    if type(said) is not kind:
        return False
    if kind is str or (kind is list and all(isinstance(each, str) for each in (*said, *right))):
        return True
    if kind is float:
        return math.isclose(said, right, rel_tol=1e-9)
    if kind is dict:
        return said.keys() == right.keys() and all(is_same(said[key], right[key]) for key in right)
    if kind is list:
        return len(said) == len(right) and all(map(is_same, said, right))
    return said == right


def _table(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise _WrongError(f"expected a table with keys, got {_shown(data)}")
    return typing.cast("dict[str, Any]", data)


def _table_of(read_item: _Reader) -> _Reader:
    def read(data: Any) -> dict[str, Any]:
        table = _table(data)
        found: dict[str, Any] = {}
        key = ""
        try:
            for key, item in table.items():
                found[key] = read_item(item)
        except _WrongError as error:
            error.steps.append(key)
            raise
        return found

    return read


def _tuple_of(read_item: _Reader) -> _Reader:
    def read(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise _WrongError(f"expected a list, got {_shown(data)}")
        items = typing.cast("list[Any]", data)
        found: list[Any] = []
        try:
            for item in items:
                found.append(read_item(item))  # noqa: PERF401  where it fails must be known
        except _WrongError as error:
            error.steps.append(len(found))
            raise
        return tuple(found)

    return read


def _or_none(read: _Reader) -> _Reader:
    return lambda data: None if data is None else read(data)


def _one_of(members: Mapping[Any, Any]) -> _Reader:
    def read(data: Any) -> Any:
        # Among words, nothing else than a string is looked up: 1 and True are equal.
        if isinstance(data, str) and data in members:
            return members[data]
        raise _WrongError(f"expected one of {', '.join(map(repr, members))}, got {_shown(data)}")

    return read


def _dtype(data: Any) -> DType:
    if not isinstance(data, str):
        raise _WrongError(f"expected the name of a dtype, got {_shown(data)}")
    try:
        return dtype(cut(data))
    except InputError as error:
        raise _WrongError(str(error)) from None


def _free(data: Any, *, depth: int) -> Any:
    """Return plain data of any form that can be written again."""
    if depth == 0:
        raise _WrongError("nested too deeply")
    if isinstance(data, dict):
        return _table_of(functools.partial(_free, depth=depth - 1))(data)
    if isinstance(data, list):
        return list(_tuple_of(functools.partial(_free, depth=depth - 1))(data))
    if data is None:
        return None
    if type(data) is float:
        # Nothing is computed with it: it may be what a mask is filled with, the least of float64.
        return _finite(data)
    read = _SCALARS.get(typing.cast("type[Any]", type(data)))
    if read is None:
        # TOML has dates and times, which are no plain data.
        raise _WrongError(f"expected a number, a string, true or false, got {_shown(data)}")
    return read(data)


def _whole(data: Any) -> int:
    if type(data) is not int:
        raise _WrongError(f"expected a whole number, got {_shown(data)}")
    if not -_LARGEST < data < _LARGEST:
        raise _WrongError(f"expected a number below 2^256, got {_shown(data)}")
    return data


def _number(data: Any) -> float:
    if type(data) is not float and type(data) is not int:
        raise _WrongError(f"expected a number, got {_shown(data)}")
    if isinstance(data, float):
        _finite(data)
    if not -_LARGEST < data < _LARGEST:
        raise _WrongError(f"expected a number below 2^256, got {_shown(data)}")
    if data and abs(data) * _LARGEST < 1:
        raise _WrongError(f"expected 0 or a number from 2^-256, got {_shown(data)}")
    return float(data)


def _count_or_number(data: Any) -> float:
    return _whole(data) if type(data) is int else _number(data)


def _finite(data: float) -> float:
    if not math.isfinite(data):
        raise _WrongError(f"expected a finite number, got {data}")
    return data


def _string(data: Any) -> str:
    if not isinstance(data, str):
        raise _WrongError(f"expected a string, got {_shown(data)}")
    return data


def _truth(data: Any) -> bool:
    if not isinstance(data, bool):
        raise _WrongError(f"expected true or false, got {_shown(data)}")
    return data


_SCALARS: dict[type, _Reader] = {int: _whole, float: _number, str: _string, bool: _truth}


VERSION = 1
"""Version of saved files; other versions are refused."""


def check_version(data: Any, *, file: str, fix: str) -> dict[str, Any]:
    """Return plain data that has the ``schema_version`` of this package."""
    if not isinstance(data, dict) or "schema_version" not in data:
        raise refused(file, "not a roofline file: it has no 'schema_version'", fix)
    table = typing.cast("dict[str, Any]", data)
    version = table["schema_version"]
    if type(version) is not int or version < 1:
        wrong = f"schema_version: expected a whole number from 1, got {_shown(version)}"
        raise refused(file, wrong, fix)
    if version != VERSION:
        wrong = f"schema_version {_shown(version)}: written by an older version of roofline"
        raise refused(file, f"{wrong} (this one reads {VERSION})", fix)
    return table
