"""Every renderer over every example: what must hold for all of them."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import date

import pytest
from rich.console import Console

from roofline.analysis import Analysis
from roofline.core.blocks import By, Column, Grid, Report, View
from roofline.render.console import columns_that_fit, print_report
from roofline.render.pages import report_html
from tests.analysis.examples import examples

EXAMPLES = examples()
TODAY = date(2026, 3, 7)


def in_pipe(analysis: Analysis, *, by: By = "operator", top: int = 10) -> str:
    stream = io.StringIO()
    print_report(analysis.report(View(by=by, top=top, today=TODAY)), Console(file=stream, width=40))
    return stream.getvalue()


def on_terminal(analysis: Analysis, *, by: By = "operator", top: int = 10, width: int = 200) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system="standard")
    print_report(analysis.report(View(by=by, top=top, today=TODAY)), console)
    return stream.getvalue()


def to_markdown(analysis: Analysis, by: By = "operator", top: int | None = None) -> str:
    return str(analysis.render("md", View(by=by, top=top)))


def to_html(analysis: Analysis, by: By = "operator", top: int | None = None) -> str:
    return report_html(analysis.report(View(by=by, top=top)))


Renderer = Callable[..., str]
RENDERERS: dict[str, Renderer] = {
    "pipe": in_pipe,
    "terminal": on_terminal,
    "markdown": to_markdown,
    "html": to_html,
}

everything = pytest.mark.parametrize("name", EXAMPLES)
every_renderer = pytest.mark.parametrize("render", RENDERERS.values(), ids=list(RENDERERS))


@everything
@every_renderer
@pytest.mark.parametrize("by", ["operator", "module", "type", "phase"])
def test_every_renderer_manages_every_example(name: str, render: Renderer, by: By):
    text = render(EXAMPLES[name], by=by)
    assert "None" not in text
    assert "nan" not in re.findall(r"\w+", text)
    assert text.endswith(("\n", "</div>"))


@every_renderer
@pytest.mark.parametrize("by", ["operator", "module", "type", "phase"])
def test_unknown_flop_is_never_zero(render: Renderer, by: By):
    text = render(EXAMPLES["unknown operator"], by=by)
    assert "0 FLOP" not in text
    assert "–" in text


@every_renderer
def test_totals_with_unknown_operators_are_lower_limits(render: Renderer):
    text = render(EXAMPLES["resnet"]).replace("\\", "")
    assert "≥ 8.22 GFLOP" in text
    assert not re.search(r"(?<!≥ )8\.22 GFLOP", text)
    assert "≥ 17.6 ms" in text
    assert "custom.shuffle" in text


@every_renderer
def test_a_machine_without_ceilings_has_no_bound_and_says_so(render: Renderer):
    text = render(EXAMPLES["no ceilings"])
    assert "minimum unknown (no ceilings)" in text
    assert "has no ceilings" in text.replace("&#39;", "'")


@every_renderer
def test_a_single_memory_level_is_said_to_be_the_classic_model(render: Renderer):
    assert "all operands from DRAM" in render(EXAMPLES["DRAM only"])


@every_renderer
def test_a_top_of_nothing_still_gives_totals(render: Renderer):
    text = render(EXAMPLES["resnet"], top=0)
    assert "177" not in text
    assert "other" in text and text.count("176") >= 2


def test_html_and_markdown_escape_what_models_are_named():
    html, markdown = (render(EXAMPLES["hostile names"]) for render in (to_html, to_markdown))
    for text in (html, markdown):
        assert "<script" not in text
        assert "<img" not in text
        assert "<b>" not in text
    assert "&lt;script&gt;" in html
    assert "\\|\\[bold\\]\\`\\$a\\_b\\$\\`" in markdown


def test_markdown_tables_keep_their_columns_whatever_names_hold():
    lines = [
        re.sub(r"\\.", "", line)
        for line in to_markdown(EXAMPLES["hostile names"]).splitlines()
        if line.startswith("|")
    ]
    assert len({line.count("|") for line in lines}) == 1


def test_escape_sequences_in_names_never_reach_a_terminal():
    assert "\x1b[31m" not in on_terminal(EXAMPLES["hostile names"])
    assert "[bold]" in on_terminal(EXAMPLES["hostile names"])


@everything
def test_a_pipe_gets_plain_text_with_no_word_cut(name: str):
    text = in_pipe(EXAMPLES[name])
    assert "\x1b" not in text
    assert "…" not in text
    assert not any(line != line.rstrip() for line in text.splitlines())
    for row in EXAMPLES[name].operators[:3]:
        if row.state != "free" and len(EXAMPLES[name].operators) < 5:
            assert row.op.removeprefix("aten.") in text


def test_a_pipe_is_as_wide_as_its_rows():
    text = in_pipe(EXAMPLES["resnet"])
    assert max(map(len, text.splitlines())) > 100


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", on_terminal(EXAMPLES["one operator"]))


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_narrow_terminal_loses_columns_not_numbers(width: int):
    plain = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(EXAMPLES["resnet"], width=width))
    assert max(map(len, plain.splitlines())) <= width
    assert "17.6 ms" in plain
    assert ("Hidden at this width" in plain) == (width <= 120)


def test_columns_that_may_be_cut_are_cut_before_others_go():
    grid = Grid(
        title="",
        columns=(
            Column(heading="operator", least=8),
            Column(heading="module", least=6, cut="start", drop_priority=1),
            Column(heading="output", drop_priority=2),
            Column(heading="bound", align="right"),
        ),
        rows=(("a_long_operator", "a.b.c.d.e.f.g", "1x2", "1.00 ms"),),
    )
    natural = {0: 15, 1: 13, 2: 6, 3: 7}
    assert columns_that_fit(grid, 200) == natural
    assert columns_that_fit(grid, 15 + 13 + 6 + 7 + 6) == natural
    # One character less: of what is left over, the column that lacks the least is served first.
    assert columns_that_fit(grid, 46) == {0: 14, 1: 13, 2: 6, 3: 7}
    assert columns_that_fit(grid, 8 + 6 + 6 + 7 + 6) == {0: 8, 1: 6, 2: 6, 3: 7}
    assert columns_that_fit(grid, 32) == {0: 11, 1: 10, 3: 7}
    assert columns_that_fit(grid, 19) == {0: 10, 3: 7}
    assert columns_that_fit(grid, 5) == {0: 8, 3: 7}


def test_cut_cells_keep_the_end_that_tells():
    column = Column(heading="module", least=8, cut="start")
    grid = Grid(
        title="",
        columns=(Column(heading="op", least=6), column),
        rows=(("a_long_operator", "encoder.layer.0.dense"),),
    )
    out = io.StringIO()
    console = Console(file=out, width=16, force_terminal=True, color_system=None)
    print_report(Report(headline="", blocks=(grid,)), console)
    assert "a_lon…  …0.dense" in out.getvalue()


def test_reports_and_pages_need_no_heavy_library():
    code = """
import importlib, pkgutil, sys
import roofline.analysis as analysis, roofline.render as render
for package in (analysis, render):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        # What draws needs matplotlib.
        if not module.name.endswith("drawing"):
            importlib.import_module(module.name)
print(sorted({"torch", "pandas", "matplotlib", "numpy"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
