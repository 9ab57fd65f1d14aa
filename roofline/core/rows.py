"""Results as rows, frames and text, the same for all kinds of results: unknown is never 0."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import pandas


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001  full-width ones count
"""What spreadsheets take for the beginning of a formula (OWASP, CSV injection)."""


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV, its columns named in the first line.

    Args:
        columns: their names.
        rows: cells in that order. None becomes an empty cell, never 0; booleans ``true`` and
            ``false``; the members of a tuple are set apart by spaces. Text that a spreadsheet
            would compute as a formula gets an apostrophe in front; numbers stay as they are.
    """
    lines = _Lines()
    # With both characters in the end of its lines, the writer quotes cells that have one of them.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in rows)
    return "".join(lines)


class _Lines(list[str]):
    """The lines that a writer of CSV makes, with ends as files of text have them."""

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
    """`value` as spreadsheets show it: what begins like a formula is computed when a file opens."""
    return f"'{value}" if value.startswith(_FORMULA_STARTS) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def cells_of(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """The cells of rows that are tables by name, in the order of `columns`."""
    names = tuple(columns)
    return [[row[name] for name in names] for row in rows]


def fields_of(columns: Iterable[str], values: Iterable[object]) -> list[list[Any]]:
    """The cells of rows that are objects with attributes by name, in the order of `columns`."""
    names = tuple(columns)
    return [[getattr(value, name) for name in names] for value in values]


def frame_of(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> pandas.DataFrame:
    """A frame of rows; None is missing, never 0.

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
    """Plain data as the text of a JSON file."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def finite(data: Any) -> Any:
    """Plain data with null for every number that is not finite: JSON cannot say it."""
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
    """Return the items of each key, keys and items in the order they come in."""
    found: dict[Key, list[Item]] = {}
    for each in items:
        found.setdefault(key(each), []).append(each)
    return found
