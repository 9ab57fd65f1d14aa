"""Reports as self-contained HTML for notebooks and pages, light or dark."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import jinja2

from roofline.core.blocks import Block, Report, fullest

_TEMPLATE = """\
{% macro line(block, row, kind) %}<tr class="{{ kind }}">
{%- for cell in row %}<td class="{{ block.columns[loop.index0].align }}">{{ cell }}</td>
{%- endfor %}</tr>{% endmacro %}
<div class="roofline">
<style>
.roofline { font-size: 0.92em; line-height: 1.45; max-width: 100%; overflow-x: auto; }
.roofline h4 { margin: 0.2em 0 0.5em; font-size: 1.1em; }
.roofline dl { display: grid; grid-template-columns: max-content 1fr;
  gap: 0.1em 1em; margin: 0.4em 0; }
.roofline dt { font-weight: 600; opacity: 0.7; }
.roofline dd { margin: 0; }
.roofline table { border-collapse: collapse; margin: 0.6em 0; font-variant-numeric: tabular-nums; }
.roofline caption { text-align: left; font-weight: 600; padding: 0.2em 0; }
.roofline th, .roofline td { padding: 0.15em 0.7em; text-align: left; white-space: nowrap;
  background: none; color: inherit; border: none; }
.roofline td:first-child { white-space: pre; }
.roofline th.right, .roofline td.right { text-align: right; }
.roofline thead th { border-bottom: 1px solid currentColor; }
.roofline tr.sum td { font-weight: 600; }
.roofline tr.sum:first-child td { border-top: 1px solid currentColor; }
.roofline .urgent { border-left: 3px solid #d55e00; padding-left: 0.8em; }
.roofline ul { margin: 0.2em 0; padding-left: 1.2em; }
</style>
<h4>{{ report.headline }}</h4>
{% for kind, block in blocks %}
{% if kind == "keyvalueblock" %}
<dl>
{% for name, text in block.lines %}<dt>{{ name }}</dt><dd>{{ text }}</dd>
{% endfor %}
</dl>
{% elif kind == "grid" %}
<table>
{% if block.title %}<caption>{{ block.title }}</caption>{% endif %}

<thead><tr>
{%- for column in block.columns -%}
<th scope="col" class="{{ column.align }}">{{ column.heading }}</th>
{%- endfor %}</tr></thead>
<tbody>
{% for row in block.rows %}{{ line(block, row, "row") }}
{% endfor %}
</tbody>
<tbody>
{% for row in block.sums %}{{ line(block, row, "sum") }}
{% endfor %}
</tbody>
</table>
{% elif kind == "code" %}
<pre>{{ block.text }}</pre>
{% else %}
<div class="{{ 'urgent' if block.urgent else 'notes' }}"><strong>{{ block.title }}</strong>
<ul>
{% for text in block.lines %}<li>{{ text }}</li>
{% endfor %}
</ul></div>
{% endif %}
{% endfor %}
</div>
"""

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; }
body { font-family: "DejaVu Sans", system-ui, sans-serif; margin: 1.5em; }
.picture { max-width: 62em; }
.picture svg { display: block; width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { .picture svg { filter: invert(0.93) hue-rotate(180deg); } }
</style>
</head>
<body>
{% if picture %}<div class="picture">
{{ picture|safe }}
</div>{% endif %}
{{ element|safe }}
</body>
</html>
"""


def report_html(report: Report) -> str:
    """Return a report as one HTML element with its style; everything is escaped."""
    return template(_TEMPLATE).render(report=report, blocks=sections(report.blocks))


def sections(blocks: Iterable[Block]) -> list[tuple[str, Block]]:
    """Return what kind of block each is, and the block."""
    return [(type(block).__name__.lower(), block) for block in map(fullest, blocks)]


def page_html(report: Report, picture_svg: str) -> str:
    """Return a page that needs no other file: the picture, if there is one, then the report."""
    picture = picture_svg[picture_svg.index("<svg") :] if picture_svg else ""
    return template(_PAGE, ends_line=True).render(
        title=report.headline, picture=picture, element=report_html(report)
    )


@functools.cache
def template(source: str, *, ends_line: bool = False) -> jinja2.Template:
    """Return a template that escapes everything; blocks leave no lines, unless it `ends_line`."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=not ends_line,
        lstrip_blocks=not ends_line,
        keep_trailing_newline=ends_line,
    )
    return environment.from_string(source)
