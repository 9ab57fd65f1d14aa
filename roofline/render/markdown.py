"""Reports as GitHub-flavored Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from roofline.core.blocks import Code, Grid, KeyValueBlock, Notes, Report, fullest

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~$#]|(?<!\w)@(?=\w))")


def report_markdown(report: Report) -> str:
    """Return a report as Markdown: headline, then lists, tables and notes."""
    lines = [f"# {escaped(report.headline)}"]
    for block in map(fullest, report.blocks):
        lines.append("")
        match block:
            case KeyValueBlock():
                lines += [f"- **{name}:** {escaped(text)}" for name, text in block.lines]
            case Grid():
                lines += [f"## {escaped(block.title)}", ""] if block.title else []
                lines += _table(block)
            case Code():
                lines += [f"```{block.language}", block.text, "```"]
            case Notes():
                lines += [f"## {escaped(block.title)}", ""]
                lines += [f"- {escaped(line)}" for line in block.lines]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return `text` escaped for Markdown, in tables too; ``<`` and ``&`` as entities."""
    plain = text.replace("&", "&amp;")
    return _SPECIAL.sub(lambda found: _ENTITY.get(found[1], "\\" + found[1]), plain)


def _indented(cell: str) -> str:
    """Return a cell with its indentation kept."""
    words = cell.lstrip(" ")
    return "&nbsp;" * (len(cell) - len(words)) + escaped(words)


# In a pull request, @56x56 would mention a user.
_ENTITY = {"<": "&lt;", ">": "&gt;", "@": "@<!-- -->"}


def _table(grid: Grid) -> Iterable[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    yield line([escaped(column.heading) for column in grid.columns])
    yield line(["---:" if column.align == "right" else "---" for column in grid.columns])
    for row in grid.rows:
        yield line(list(map(_indented, row)))
    for row in grid.sums:
        yield line([f"**{escaped(cell)}**" if cell else "" for cell in row])
