"""Rows of results as CSV, JSON and data frames; unknown is never 0."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import pandas


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001  full-width ones count
"""First characters of a formula in spreadsheets (OWASP, CSV injection)."""


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV with a header line.

    Args:
        columns: column names.
        rows: cells in that order. None becomes an empty cell, booleans ``true`` and ``false``,
            tuples are joined by spaces. Text that a spreadsheet would compute as a formula gets
            an apostrophe in front.
    """
    lines = _Lines()
    # With this line end, the writer quotes cells that contain either character.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in rows)
    return "".join(lines)


class _Lines(list[str]):
    """Lines of a CSV writer, with Unix line ends."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return _text(" ".join(map(str, cast("tuple[object, ...]", value))))
    if isinstance(value, str):
        return _text(value)
    return "" if value is None else value


def _text(value: str) -> str:
    """Return `value` with an apostrophe if a spreadsheet would compute it."""
    return f"'{value}" if value.startswith(_FORMULA_STARTS) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def cells_of(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the cells of rows that are mappings, in the order of `columns`."""
    names = tuple(columns)
    return [[row[name] for name in names] for row in rows]


def fields_of(columns: Iterable[str], values: Iterable[object]) -> list[list[Any]]:
    """Return the attributes of objects, in the order of `columns`."""
    names = tuple(columns)
    return [[getattr(value, name) for name in names] for value in values]


def frame_of(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> pandas.DataFrame:
    """Return a data frame of rows; None is missing, never 0.

    Args:
        columns: names, with pandas' nullable types.
        rows: cells in that order.
    """
    import pandas

    series: dict[str, Any] = {}
    for place, (name, kind) in enumerate(columns.items()):
        values = [row[place] for row in rows]
        series[name] = pandas.Series(values, dtype=kind)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]  nullable types by name
    return pandas.DataFrame(series)


def json_text(data: object) -> str:
    """Return plain data as JSON text."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def finite(data: Any) -> Any:
    """Return plain data with None for numbers that are not finite (JSON has none)."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        table = cast("Mapping[str, Any]", data)
        return {name: finite(each) for name, each in table.items()}
    if isinstance(data, list):
        return [finite(each) for each in cast("list[Any]", data)]
    return data


Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by key, in order of first occurrence."""
    found: dict[Key, list[Item]] = {}
    for each in items:
        found.setdefault(key(each), []).append(each)
    return found
