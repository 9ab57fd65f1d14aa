"""Interactive page of analyses: columns of numbers and a table of strings.

Rows refer to names by number, so that pages with thousands of rows stay small. Numbers are not
rounded; the page formats them as `core.units` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from roofline.analysis import Analysis, OperatorRow
from roofline.analysis.points import roof_lines, types_by_time
from roofline.analysis.tables import operator_grid
from roofline.analysis.words import is_below_minimum, kind_of_time, minimum_text, shape_of, short_op
from roofline.core import schema
from roofline.core.blocks import Grid, Report, View, escape_report
from roofline.core.text import printable
from roofline.machine.hardware import describe_threads
from roofline.machine.quantities import doubts_text, origin
from roofline.machine.roof import ceiling_text
from roofline.placement import Roof, arithmetic_dtype
from roofline.plots.style import SERIES, Style, styles

_SPARE_LOOKS = 63

Column = list[Any] | None  # One value per operator; None: no operator has one


class Strings(dict[str, int]):
    """Numbers of distinct strings, in order of first use."""

    def place(self, text: str) -> int:
        """Return the number of `text`, control characters escaped."""
        return self.setdefault(printable(text), len(self))


def analysis_page(analysis: Analysis, view: View) -> str:
    """Return the interactive page of an analysis; its report is what is left without scripts."""
    from roofline.render.interactive import interactive_html

    data = page_data([analysis.hardware.name], [analysis])
    return interactive_html(analysis.report(view), data, colors=SERIES, live=_live(analysis, view))


def machines_page(names: Sequence[str], analyses: Sequence[Analysis], report: Report) -> str:
    """Return the interactive page of one model on several machines; `report` is on all of them."""
    from roofline.render.interactive import interactive_html

    machines = [
        (printable(name), each.report(), _live(each, View()))
        for name, each in zip(names, analyses, strict=True)
    ]
    return interactive_html(report, page_data(names, analyses), colors=SERIES, machines=machines)


def _live(analysis: Analysis, view: View) -> Grid:
    (grid,) = escape_report(Report(headline="", blocks=(operator_grid(analysis, view),))).blocks
    assert isinstance(grid, Grid)
    return grid


def page_data(names: Sequence[str], analyses: Sequence[Analysis]) -> dict[str, Any]:
    """Return the data of the page for JSON; `names` are those of the machines."""
    strings = Strings()
    first = analyses[0]
    types = types_by_time(first)
    operators = _operators(first, strings)
    machines = [_machine(name, each, strings) for name, each in zip(names, analyses, strict=True)]
    return {
        "model": printable(first.model),
        "types": [[strings.place(name), *_look(style)] for name, style in styles(types).items()],
        # Names that no type has get the unused styles.
        "looks": [_look(style) for style in styles(map(str, range(_SPARE_LOOKS))).values()],
        "operators": operators,
        "machines": machines,
        "strings": list(strings),
    }


def _look(style: Style) -> list[Any]:
    return [SERIES.index(style.colour), style.marker]


def _operators(analysis: Analysis, strings: Strings) -> dict[str, Column]:
    rows = analysis.operators

    def named(text: Callable[[OperatorRow], str]) -> list[int]:
        return [strings.place(text(row)) for row in rows]

    return {
        "op": named(short_op),
        "type": named(lambda row: row.type),
        "module": named(lambda row: row.module_path),
        "phase": named(lambda row: row.phase),
        "state": named(lambda row: row.state),
        "shape": named(shape_of),
        "dtype": named(lambda row: str(arithmetic_dtype((*row.inputs, *row.outputs)) or "")),
        "flop": _known(row.flop for row in rows),
        "traffic_bytes": [row.traffic_bytes for row in rows],
    }


def _machine(name: str, analysis: Analysis, strings: Strings) -> dict[str, Any]:
    rows, profile = analysis.operators, analysis.hardware
    levels = [roof.level.name for roof in Roof(profile, analysis.threads).levels]
    sources = [row.prediction_source for row in rows]
    places = {level: number for number, level in enumerate(levels)}
    measurement, prediction = analysis.measurement, analysis.prediction
    overheads_s: dict[str, float] = {}
    if measurement is not None and measurement.overhead_s > 0:
        overheads_s["measured"] = measurement.overhead_s
    if prediction is not None and prediction.overhead_s:
        overheads_s["predicted"] = prediction.overhead_s

    def named(texts: Iterable[str]) -> list[int]:
        return [strings.place(text) for text in texts]

    return {
        "name": printable(name),
        # The line under the plot.
        "facts": [
            *([printable(profile.host.cpu_model)] if profile.host else []),
            describe_threads(profile, analysis.threads),
            "warm caches" if analysis.cache == "steady" else "cold caches",
            f"ceilings: {origin(profile, None)}{doubts_text(profile)}",
        ],
        "minimum": minimum_text(analysis.totals, verbose=True),
        "kind": kind_of_time(analysis),
        # Seconds of a pass outside operators.
        "overhead_s": overheads_s,
        "levels": list(map(printable, levels)),
        **schema.to_data(roof_lines(analysis, "all")),
        "level": [places.get(row.level, -1) for row in rows],
        "level_bytes": [[row.level_bytes.get(level, 0) for row in rows] for level in levels],
        "ceiling": named(ceiling_text(row.ceiling) for row in rows),
        "bound": named(row.bound for row in rows),
        "source": _known(None if each is None else strings.place(each) for each in sources),
        **{name: _known(getattr(row, name) for row in rows) for name in _TIMES},
        "above": [number for number, row in enumerate(rows) if is_below_minimum(row)],
    }


_TIMES = (
    *("eager_min_time_s", "attainable_flop_per_s", "predicted_s", "predicted_low_s"),
    *("predicted_high_s", "measured_s", "measured_iqr_s"),
)


def _known(values: Iterable[float | None]) -> Column:
    found = list(values)
    return None if all(each is None for each in found) else found
