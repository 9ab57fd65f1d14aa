"""Results as rows, frames and text, the same for all kinds of results: unknown is never 0."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pandas


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV, its columns named in the first line.

    Args:
        columns: their names.
        rows: cells in that order. None becomes an empty cell, never 0; booleans ``true`` and
            ``false``; the members of a tuple are set apart by spaces.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(str, cast("tuple[object, ...]", value)))
    return "" if value is None else value


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
    """Plain data as the text of a JSON file.

    Raises:
        ValueError: a number that JSON cannot say; `finite` takes them out.
    """
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
