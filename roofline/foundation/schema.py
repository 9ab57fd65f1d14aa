"""Dataclasses to plain data and back, strictly: a wrong file is refused with its place and the fix.

`to_data` gives what JSON and TOML can hold; `from_data` checks every key and value against the
dataclass's annotations. Numbers are never made out of strings, unknown keys never ignored.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import stat
import tomllib
import types
import typing
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from roofline.errors import FileFormatError, nearest
from roofline.foundation.dtypes import DType, dtype
from roofline.foundation.text import printable

T = TypeVar("T")

_LARGEST = 2**256
"""No count or rate is as large; what follows from numbers below it stays within floating point."""

_DEEPEST = 50
"""How deep lists and tables may lie in each other where their contents are free."""


def to_data(value: Any) -> Any:
    """`value` as dicts, lists, strings, numbers, booleans and None; dataclasses as dicts."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [to_data(item) for item in typing.cast("Sequence[Any]", value)]
    if isinstance(value, Mapping):
        items = typing.cast("Mapping[Any, Any]", value).items()
        return {str(key): to_data(item) for key, item in items}
    if dataclasses.is_dataclass(value):
        return {name: to_data(getattr(value, name)) for name in _field_types(type(value))}
    raise TypeError(f"no plain data for {type(value).__name__}")


@functools.cache
def _field_types(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


@functools.cache
def _required(cls: type) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(
        field.name
        for field in dataclasses.fields(cls)
        if field.init and field.default is missing and field.default_factory is missing
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where in which file a value stands, and what its user can do about it."""

    file: str
    path: str
    fix: str

    def at(self, key: str | int) -> _Place:
        step = f"[{key}]" if isinstance(key, int) else f".{key}" if self.path else key
        return _Place(self.file, self.path + step, self.fix)

    def error(self, what: str) -> FileFormatError:
        where = f"{self.file}: {self.path}" if self.path else self.file
        # Keys and values are the file's own, and may hold line ends.
        return FileFormatError(printable(f"{where}: {what}{f'; {self.fix}' if self.fix else ''}"))


def from_data(cls: type[T], data: Any, *, file: str, fix: str = "") -> T:
    """An instance of the dataclass `cls` from plain `data`.

    Args:
        cls: a dataclass; its annotations say what each key must hold.
        data: what a JSON or TOML reader gave.
        file: the file's name, for error messages.
        fix: what the user can do about a damaged file, for error messages.

    Raises:
        FileFormatError: unknown or missing key, wrong type, a number that is not finite or absurdly
            large, or a value its dataclass refuses.
    """
    return _build(cls, data, _Place(file, "", fix))


def _build(cls: Any, data: Any, place: _Place) -> Any:
    if not isinstance(data, dict):
        raise place.error(f"expected a table with keys, got {_shown(data)}")
    table = typing.cast("dict[str, Any]", data)
    known = _field_types(cls)
    for key in table:
        if key not in known:
            raise place.error(f"unknown key '{key}'{nearest(key, known)}")
    for key in _required(cls):
        if key not in table:
            raise place.error(f"missing key '{key}'")
    values = {key: _value(known[key], item, place.at(key)) for key, item in table.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise place.error(str(error)) from None


def _value(hint: Any, data: Any, place: _Place) -> Any:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if data is None and type(None) in arguments:
            return None
        (rest,) = [each for each in arguments if each is not type(None)]
        return _value(rest, data, place)
    if hint is Any:
        return _free(data, place, _DEEPEST)
    if hint is DType:
        if not isinstance(data, str):
            raise place.error(f"expected the name of a dtype, got {_shown(data)}")
        try:
            return dtype(data)
        except Exception as error:
            raise place.error(str(error)) from None
    if origin is typing.Literal:
        if data not in arguments or isinstance(data, bool):
            raise place.error(
                f"expected one of {', '.join(map(repr, arguments))}, got {_shown(data)}"
            )
        return data
    if origin is tuple:
        if not isinstance(data, list):
            raise place.error(f"expected a list, got {_shown(data)}")
        items = typing.cast("list[Any]", data)
        return tuple(_value(arguments[0], item, place.at(i)) for i, item in enumerate(items))
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if not isinstance(data, dict):
            raise place.error(f"expected a table with keys, got {_shown(data)}")
        pairs = typing.cast("dict[str, Any]", data)
        return {key: _value(arguments[1], item, place.at(key)) for key, item in pairs.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(data)
        except ValueError:
            names = ", ".join(repr(member.value) for member in hint)
            raise place.error(f"expected one of {names}, got {_shown(data)}") from None
    if isinstance(hint, type) and dataclasses.is_dataclass(typing.cast("type[Any]", hint)):
        return _build(hint, data, place)
    return _scalar(hint, data, place)


def _free(data: Any, place: _Place, depth: int) -> Any:
    """Plain data of any form, as long as it can be written again."""
    if depth == 0:
        raise place.error("nested too deeply")
    if isinstance(data, dict):
        pairs = typing.cast("dict[str, Any]", data)
        return {key: _free(item, place.at(key), depth - 1) for key, item in pairs.items()}
    if isinstance(data, list):
        items = typing.cast("list[Any]", data)
        return [_free(item, place.at(i), depth - 1) for i, item in enumerate(items)]
    if data is None:
        return None
    for hint in (bool, int, float, str):
        if isinstance(data, hint):
            return _scalar(hint, data, place)
    # TOML has dates and times, which are no plain data.
    raise place.error(f"expected a number, a string, true or false, got {_shown(data)}")


def _scalar(hint: Any, data: Any, place: _Place) -> Any:
    accepted = (int, float) if hint is float else hint
    if not isinstance(data, accepted) or (isinstance(data, bool) and hint is not bool):
        wanted = {float: "a number", int: "a whole number", str: "a string", bool: "true or false"}
        raise place.error(f"expected {wanted[hint]}, got {_shown(data)}")
    if isinstance(data, float) and not math.isfinite(data):
        raise place.error(f"expected a finite number, got {data}")
    if isinstance(data, (int, float)) and abs(data) >= _LARGEST:
        raise place.error(f"expected a number below 2^256, got {_shown(data)}")
    return float(data) if hint is float else data


def _shown(data: Any) -> str:
    try:
        text = repr(data)
    except (ValueError, RecursionError):
        # Python writes no number of thousands of digits (but reads hexadecimal ones), and no lists
        # that lie a thousandfold in each other.
        return "what is too long to show"
    return text if len(text) <= 40 else text[:37] + "…"


def check_version(data: Any, *, newest: int, file: str, fix: str) -> None:
    """Refuses plain data without a ``schema_version``, or with one newer than `newest`.

    Raises:
        FileFormatError: naming the file and the fix.
    """
    place = _Place(file, "", fix)
    if not isinstance(data, dict) or "schema_version" not in data:
        raise place.error("not a roofline file: it has no 'schema_version'")
    version = typing.cast("dict[str, Any]", data)["schema_version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise place.error(f"schema_version: expected a whole number from 1, got {_shown(version)}")
    if version > newest:
        raise FileFormatError(
            f"{file}: schema_version {_shown(version)} was written by a newer roofline (this one"
            f" reads up to {newest}); upgrade with `pip install --upgrade roofline`"
        )


def read_text(path: Path) -> str:
    """The text of a user's file.

    Raises:
        FileFormatError: it is missing, not a regular file (a folder, a pipe, a device: those may
            never end), unreadable, or not UTF-8.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise FileFormatError(f"{path}: is a folder, not a file")
        if not stat.S_ISREG(mode):
            raise FileFormatError(f"{path}: is not a regular file; save it as one first")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if os.path.lexists(path):
            raise FileFormatError(f"{path}: is a link to a file that does not exist") from None
        raise FileFormatError(f"{path}: no such file") from None
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: is not a text file (UTF-8)") from None
    except ValueError as error:
        # A name with a NUL in it.
        raise FileFormatError(f"{path}: cannot be read: {error}") from None


def read_json(path: Path, *, fix: str) -> Any:
    """The plain data of a JSON file; FileFormatError with line and column where it is damaged."""
    text = read_text(path)
    with _damage_said(path, fix):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise FileFormatError(
                f"{path}: not valid JSON at {where}: {error.msg}; {fix}"
            ) from None


def read_toml(path: Path, *, fix: str) -> Any:
    """The plain data of a TOML file; FileFormatError with the place where it is damaged."""
    text = read_text(path)
    with _damage_said(path, fix):
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise FileFormatError(f"{path}: not valid TOML: {error}; {fix}") from None


@contextmanager
def _damage_said(path: Path, fix: str) -> Generator[None]:
    """Turns what a reader fails at in sound text into a FileFormatError."""
    try:
        yield
    except RecursionError:
        raise FileFormatError(f"{path}: nested too deeply; {fix}") from None
    except ValueError:
        # Of sound text, the readers refuse only numbers that Python does not convert.
        raise FileFormatError(f"{path}: holds a number of too many digits; {fix}") from None
