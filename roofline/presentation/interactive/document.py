"""The page as text: template, style, script and data put together, with nothing left to fetch."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

import jinja2

from roofline.analysis import Analysis
from roofline.analysis.tables import operator_grid
from roofline.design.machine_comparison import MachineComparison
from roofline.foundation.blocks import Block, Facts, Grid, Notes, Report, View, fullest
from roofline.foundation.text import printable
from roofline.presentation.interactive.columns import SERIES, page_data

SCRIPTS = (
    "numbers",
    "elements",
    "model",
    "store",
    "scale",
    "marks",
    "lettering",
    "gutter",
    "spots",
    "picture",
    "axes",
    "lines",
    "gestures",
    "hover",
    "legend",
    "breakdown",
    "tree",
    "columns",
    "filters",
    "table",
    "controls",
    "page",
)
"""The parts of the page's script in the order in which they stand; later ones use earlier ones."""

Section = tuple[str, Facts | Grid | Notes]
"""What kind of block it is, and the block."""


def interactive_page(result: Analysis | MachineComparison, view: View | None = None) -> str:
    """The interactive report as one HTML document that loads nothing.

    Args:
        result: what to show; the page of a comparison switches between its machines.
        view: how the tables of the report look at it. They stand in the page whatever its
            switches say, and are what is left of it where scripts are off.
    """
    view = view or View()
    if isinstance(result, Analysis):
        names, analyses = [result.hardware.name], [result]
        report, machines = result.report(view), []
        live = operator_grid(result, view)
    else:
        names, analyses = list(result.names), list(result.analyses)
        report, live = result.report(view), None
        told = {line for block in report.blocks if isinstance(block, Facts) for line in block.lines}
        machines = [_machine(*each, told) for each in zip(names, analyses, strict=True)]
    script, style = _script(), _style()
    opening, rest = _halves(report, live)
    return _template().render(
        policy=_policy(script, style),
        title=report.headline,
        style=style,
        script=script,
        data=embedded(page_data(names, analyses)),
        opening=opening,
        machines=machines,
        rest=rest,
    )


def embedded(data: Any) -> str:
    """`data` as JSON that can stand in a script element: nothing in it can end that element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _machine(name: str, analysis: Analysis, told: set[tuple[str, str]]) -> dict[str, Any]:
    """What the report says of one machine of several, but for the lines that were `told` of all."""
    report = analysis.report()
    live = operator_grid(analysis, View())
    sections = [each for each in _sections(report.blocks) if each[1] != live]
    return {
        "name": printable(name),
        "headline": report.headline,
        "sections": [(kind, _without(block, told)) for kind, block in sections],
    }


def _without(block: Facts | Grid | Notes, told: set[tuple[str, str]]) -> Facts | Grid | Notes:
    if not isinstance(block, Facts):
        return block
    return Facts(lines=tuple(line for line in block.lines if line not in told))


def _halves(report: Report, live: Grid | None) -> tuple[list[Section], list[Section]]:
    """What stands above the picture, the first facts and all notes; and the rest, below it.

    The table that the page has itself, `live`, is there only where scripts are off.
    """
    opening: list[Section] = []
    rest: list[Section] = []
    for number, (kind, block) in enumerate(_sections(report.blocks)):
        is_first = number == 0 or isinstance(block, Notes)
        shown = "static" if block == live else kind
        (opening if is_first else rest).append((shown, block))
    return opening, rest


def _sections(blocks: Iterable[Block]) -> list[Section]:
    kinds = {Facts: "facts", Grid: "grid", Notes: "notes"}
    return [(kinds[type(block)], block) for block in map(fullest, blocks)]


def _policy(script: str, style: str) -> str:
    """A content security policy: this script and this style run, and nothing is loaded."""
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}';"
        " base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _file(name: str) -> str:
    folder = resources.files("roofline.presentation.interactive")
    return folder.joinpath(*name.split("/")).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    parts = "\n".join(_file(f"script/{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


@functools.cache
def _style() -> str:
    colours = "".join(f" --series-{i}: {colour};" for i, colour in enumerate(SERIES))
    fills = "".join(f".series-{i} {{ fill: var(--series-{i}); }}\n" for i in range(len(SERIES)))
    return f":root {{{colours} }}\n{fills}{_file('page.css')}"


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file("page.html"))
