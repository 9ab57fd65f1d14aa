"""Interactive HTML page: template, style, script and data in one file."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from roofline.core.blocks import Block, Grid, KeyValueBlock, Notes, Report
from roofline.render.pages import sections, template

SCRIPTS = (
    *("numbers", "elements", "model", "store", "scale", "marks", "lettering", "gutter", "spots"),
    *("picture", "axes", "lines", "gestures", "hover", "legend", "breakdown", "tree", "columns"),
    *("filters", "table", "controls", "page"),
)
"""Parts of the script, in order of dependence."""


def interactive_html(
    report: Report,
    data: Mapping[str, Any],
    *,
    colors: tuple[str, ...],
    live: Grid | None = None,
    machines: Sequence[tuple[str, Report, Grid]] = (),
) -> str:
    """Return the interactive report as one self-contained HTML document.

    The first facts of `report` and its notes are above the plot, the rest below it. `live` is the
    table that the page builds itself, shown only without scripts. For several `machines`, facts
    that are not common to all follow by machine.
    """
    opening: list[tuple[str, Block]] = []
    rest: list[tuple[str, Block]] = []
    for number, (kind, block) in enumerate(sections(report.blocks)):
        is_first = number == 0 or isinstance(block, Notes)
        (opening if is_first else rest).append(("static" if block == live else kind, block))
    told = {
        line for block in report.blocks if isinstance(block, KeyValueBlock) for line in block.lines
    }

    def without_told(block: Block) -> Block:
        if not isinstance(block, KeyValueBlock):
            return block
        return KeyValueBlock(lines=tuple(line for line in block.lines if line not in told))

    parts = "\n".join(_file(f"script/{name}.js") for name in SCRIPTS)
    script, style = f'(() => {{\n"use strict";\n{parts}}})();\n', _style(colors)
    # Only this script and this style; nothing is loaded.
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}';"
        " base-uri 'none'; form-action 'none'"
    )
    return template(_file("page.html")).render(
        policy=policy,
        title=report.headline,
        style=style,
        script=script,
        data=embedded(data),
        opening=opening,
        machines=[
            {
                "name": name,
                "headline": each.headline,
                "sections": [
                    (kind, without_told(block))
                    for kind, block in sections(each.blocks)
                    if block != grid
                ],
            }
            for name, each, grid in machines
        ],
        rest=rest,
    )


def embedded(data: Any) -> str:
    """Return `data` as JSON that is safe in a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@functools.cache
def _file(name: str) -> str:
    folder = resources.files("roofline.render").joinpath("page")
    return folder.joinpath(*name.split("/")).read_text(encoding="utf-8")


def _style(series: tuple[str, ...]) -> str:
    colors = "".join(f" --series-{i}: {color};" for i, color in enumerate(series))
    fills = "".join(f".series-{i} {{ fill: var(--series-{i}); }}\n" for i in range(len(series)))
    return f":root {{{colors} }}\n{fills}{_file('page.css')}"
