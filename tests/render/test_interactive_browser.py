"""The interactive report in a real browser: what hovering, clicking, keys and switches do."""

from __future__ import annotations

import base64
import functools
import math
from dataclasses import replace
from itertools import pairwise

import pytest

from roofline.analysis import Analysis, OperatorRow, group_of, groups, working
from roofline.analysis.points import points_of, roof_lines, strip_of
from roofline.analysis.tables import _Times
from roofline.analysis.words import shape_of, short_op
from roofline.core.units import (
    format_bytes,
    format_flop,
    format_intensity,
    format_percent,
    format_s,
)
from roofline.design.comparison.result import Comparison
from roofline.machine.roof import ceiling_text
from roofline.placement import Bound
from roofline.workload.operators import State
from roofline.workload.tensors import Role
from tests.analysis.examples import (
    Network,
    analysis_of,
    bare_profile,
    ceiling,
    examples,
    full_profile,
    hostile,
    measured,
    resnet,
    resnet_like,
    trained,
    with_rows,
)
from tests.analysis.predictions import with_measurement, with_predictions
from tests.design.machine_comparisons import comparisons, with_caches
from tests.render.chromium import Browser
from tests.render.pages import deep, interactive_page

ESCAPE, ENTER, TAB, SHIFT = "\ue00c", "\ue007", "\ue004", "\ue008"
LEFT, UP, RIGHT, DOWN = "\ue012", "\ue013", "\ue014", "\ue015"

ROWS = "#table tbody tr"
SELECTED = "#table tbody tr.selected"


def time_cells(analysis: Analysis, row: OperatorRow) -> tuple[str, ...]:
    """The times of an operator as tables of reports have them."""
    times = _Times(analysis)
    group = group_of("", [row], times.whole)
    return tuple(each.cell(group) for each in times.parts(of_groups=False))


@functools.cache
def all_three() -> Analysis:
    """The ResNet-like model with all three times; one convolution takes half of the measured."""
    analysis = measured(resnet())
    rows = tuple(
        replace(row, measured_s=1.0) if row.module_path == "layer2.0.conv2" else row
        for row in analysis.operators
    )
    analysis = replace(analysis, operators=rows)
    paths = {row.module_path: 1e-4 / (7 + row.index) for row in analysis.operators}
    return with_measurement(with_predictions(analysis, paths), 5.0)


def indexes(browser: Browser, selector: str = ROWS) -> list[int]:
    return [int(each) for each in browser.values(selector, "data-index")]


def cells(browser: Browser, index: int) -> dict[str, str]:
    """The cells of an operator's row, by their headings."""
    heads = browser.texts("#table thead th")
    return dict(zip(heads, browser.texts(f"{ROWS}[data-index='{index}'] td"), strict=True))


def facts(browser: Browser, selector: str) -> dict[str, str]:
    """The names and texts of a list of facts."""
    names = browser.texts(f"{selector} dt")
    return dict(zip(names, browser.texts(f"{selector} dd"), strict=True))


def mark(browser: Browser, row: OperatorRow) -> str:
    """The mark whose spot the operator gave its name."""
    assert row.index in indexes(browser, "#marks .mark")
    return f"#marks .mark[data-index='{row.index}']"


def longest(analysis: Analysis) -> OperatorRow:
    return max(
        analysis.operators, key=lambda row: (row.measured_s or 0.0, row.eager_min_time_s or 0.0)
    )


def read_off(browser: Browser, spots: list[list[float]]) -> list[tuple[float, float]]:
    """What the axes say of places in the picture: FLOP/byte and FLOP/s."""
    ticks = browser.run(
        "const read = (kind, at) => [...document.querySelectorAll(kind)].map("
        "  e => [Number(e.dataset.value), Number(e.getAttribute(at))]);"
        "return [read('.tick-x', 'x'), read('.tick-y', 'y').map(([v, y]) => [v, y - 4])]"
    )

    def value(axis: list[list[float]], pixel: float) -> float:
        (low, start), (high, end) = axis[0], axis[-1]
        return low * (high / low) ** ((pixel - start) / (end - start))

    return [(value(ticks[0], x), value(ticks[1], y)) for x, y in spots]


def places(browser: Browser) -> list[tuple[float, float]]:
    """Where the marks stand, in FLOP/byte and FLOP/s, as read off the axes."""
    spots = browser.run(
        "return [...document.querySelectorAll('#marks .mark')].map("
        "  e => e.getAttribute('transform').match(/-?[\\d.]+/g).map(Number))"
    )
    return read_off(browser, spots)


@pytest.mark.parametrize("name", ["resnet", "measured"])
def test_points_stand_where_the_picture_has_them(browser: Browser, name: str) -> None:
    analysis = examples()[name]
    browser.open(interactive_page(analysis))
    expected = sorted((each.flop_per_byte, each.flop_per_s) for each in points_of(analysis))
    found = sorted(places(browser))
    assert len(found) == len(expected)
    for (x, y), (flop_per_byte, flop_per_s) in zip(found, expected, strict=True):
        assert x == pytest.approx(flop_per_byte, rel=0.01)
        assert y == pytest.approx(flop_per_s, rel=0.01)
    aside = strip_of(analysis)
    assert len(browser.texts("#strip .key")) == len(aside)
    calls = [f"{each.op} ×{each.count}" if each.count > 1 else each.op for each in aside]
    assert sorted(browser.texts("#strip .key-name")) == sorted(calls)
    assert browser.texts("#strip .why") == list(dict.fromkeys(each.why for each in aside))


def test_lines_are_those_of_the_machine(browser: Browser) -> None:
    analysis = resnet()
    browser.open(interactive_page(analysis))

    def ends(kind: str) -> list[tuple[float, float]]:
        found = browser.run(
            "return [...document.querySelectorAll(`.lines ${arguments[0]}`)].flatMap("
            "  e => [['x1', 'y1'], ['x2', 'y2']].map("
            "    names => names.map(name => Number(e.getAttribute(name)))))",
            kind,
        )
        return read_off(browser, found)

    lines = roof_lines(analysis, "all")
    for kind in ("hardware", "library"):
        rates = sorted(each.flop_per_s for each in lines.ceilings if each.kind == kind)
        found = sorted(y for _, y in ends(f".ceiling.{kind}"))
        assert found[::2] == pytest.approx(rates, rel=0.01)
        assert found[1::2] == pytest.approx(rates, rel=0.01)
    slopes = sorted(y / x for x, y in ends(".diagonal"))
    expected = sorted(each.bytes_per_s for each in lines.diagonals)
    assert slopes[::2] == pytest.approx(expected, rel=0.02)
    assert slopes[1::2] == pytest.approx(expected, rel=0.02)
    centres = browser.run(
        "return [...document.querySelectorAll('.ridge')].map("
        "  e => [Number(e.getAttribute('cx')), Number(e.getAttribute('cy'))])"
    )
    ridges = sorted(x for x, _ in read_off(browser, centres))
    known = [each.ridge_flop_per_byte for each in lines.diagonals if each.ridge_flop_per_byte]
    assert ridges == pytest.approx(sorted(known), rel=0.02)
    browser.click("#lines [data-name='other']")
    main = [each for each in lines.ceilings if each.main]
    assert len(ends(".ceiling")) == 2 * len(main)


def crowded() -> Analysis:
    """A machine of which nine ceilings are within a percent of each other."""
    profile = full_profile()
    near = [ceiling(454e9 * (1 + i / 1000), unit=f"unit-{i}", kernel="mul") for i in range(9)]
    return analysis_of(resnet_like(), replace(profile, compute=(*profile.compute, *near)))


@pytest.mark.parametrize("width", [1400, 900, 400])
def test_names_of_lines_cover_neither_each_other_nor_a_mark(browser: Browser, width: int) -> None:
    analysis = crowded()
    browser.open(interactive_page(analysis), width=width)
    labels = [each.label for each in roof_lines(analysis, "all").ceilings]
    names = browser.run(
        "return [...document.querySelectorAll('.line-name:not(.memory)')].map(e => {"
        "  const b = e.getBBox(); return [e.textContent, b.x, b.y + 1, b.width, b.height - 3] })"
    )
    paper = browser.run("return document.getElementById('picture').viewBox.baseVal.width")
    edge = browser.run("return document.querySelector('.box').getBBox()")
    right = edge["x"] + edge["width"]
    assert len(names) == len(labels)
    boxes = sorted(names, key=lambda each: each[2])
    for _, x, _, wide, _ in boxes:
        assert right < x and x + wide <= paper
    for (_, _, y, _, high), (_, _, below, _, _) in pairwise(boxes):
        assert y + high <= below
    listed = browser.texts("#ceilings li")
    if width == 1400:
        assert sorted(each[0] for each in names) == sorted(labels) and not listed
    else:
        assert sorted(listed) == sorted(labels)
        values = [label.split(" ")[-2:] for label in labels]
        assert sorted(each[0] for each in names) == sorted(map(" ".join, values))
    tips = browser.texts(".reach title")
    assert set(labels) < set(tips) and any(each.startswith("DRAM") for each in tips)


def test_of_too_many_names_those_of_the_roof_stay(browser: Browser) -> None:
    profile = full_profile()
    compute = profile.compute
    many = [ceiling(1e9 * (i + 1), unit=f"unit-{i}", kernel="mul") for i in range(90)]
    analysis = analysis_of(resnet_like(), replace(profile, compute=(*compute, *many)))
    browser.open(interactive_page(analysis))
    names = browser.texts(".line-name:not(.memory)")
    assert 20 < len(names) < 60
    lines = roof_lines(analysis, "all")
    top = [each.label for each in lines.ceilings if each.flop_per_s == lines.main_top_flop_per_s]
    library = [each.label for each in lines.ceilings if each.kind == "library"]
    assert top and library and {*top, *library} <= set(names)


def test_the_names_follow_what_is_in_sight(browser: Browser) -> None:
    browser.open(interactive_page(resnet()))
    before = len(browser.texts(".line-name:not(.memory)"))
    browser.click("#lines [data-name='other']")
    assert 0 < len(browser.texts(".line-name:not(.memory)")) < before
    browser.click("#lines [data-name='hardware']")
    browser.click("#lines [data-name='library']")
    assert not browser.texts(".line-name:not(.memory)") and not browser.values(".leader", "class")


def test_areas_follow_the_share_of_time(browser: Browser) -> None:
    analysis = all_three()
    browser.open(interactive_page(analysis))
    area = browser.run(
        "const e = document.querySelector(arguments[0]); const n = e.getTotalLength();"
        "const p = Array.from({length: 400}, (_, i) => e.getPointAtLength(n * i / 400));"
        "return Math.abs(p.reduce((s, a, i) => { const b = p[(i + 1) % 400];"
        "  return s + (a.x * b.y - b.x * a.y) / 2; }, 0))",
        mark(browser, longest(analysis)),
    )
    whole = sum(row.measured_s or 0.0 for row in analysis.operators)
    assert area == pytest.approx(math.pi * 27**2 / whole, rel=0.02)


def test_hovering_tells_of_the_operator_under_the_pointer(browser: Browser) -> None:
    analysis = all_three()
    browser.open(interactive_page(analysis))
    row = longest(analysis)
    browser.hover(mark(browser, row))
    assert browser.run("return document.getElementById('card').hidden") is False
    assert browser.text("#card strong") == short_op(row)
    said = facts(browser, "#card")
    assert said["Module"] == row.module_path == "layer2.0.conv2"
    assert said["Output"] == f"{shape_of(row)} · float32"
    assert said["Compute"] == format_flop(row.flop)
    assert said["Bytes"] == format_bytes(row.traffic_bytes)
    crossing = row.level_bytes[row.level]
    assert said[f"Crosses {row.level}"] == f"{format_bytes(crossing)} (limiting level)"
    assert said["AI"] == f"{format_intensity(row.intensity_flop_per_byte)} FLOP/B"
    assert said["Limiter"] == f"{row.bound}: {ceiling_text(row.ceiling)}"
    assert said["Eager minimum"] == format_s(row.eager_min_time_s)
    bound, predicted, taken, spread, rate, byte, roof, _, share = time_cells(analysis, row)
    assert said["Eager minimum"] == bound
    assert said["Predicted"] == f"{predicted} · {row.prediction_source}"
    assert said["Measured"] == f"{taken}, IQR {spread}"
    assert said["Rate"] == f"{rate} · {byte} · {roof} of the roofline"
    assert said["Share"] == f"{share} of the measured time"
    browser.hover("h1")
    assert browser.run("return document.getElementById('card').hidden") is True


def test_a_click_selects_the_row_and_a_row_its_point(browser: Browser) -> None:
    analysis = all_three()
    browser.open(interactive_page(analysis))
    row = longest(analysis)
    browser.click(mark(browser, row))
    assert indexes(browser, SELECTED) == [row.index]
    assert "selected" in browser.values(mark(browser, row), "class")[0].split()
    assert facts(browser, "#details")["Module"] == row.module_path
    other = next(each for each in working(analysis.operators) if each.module_path == "fc")
    browser.click(f"{ROWS}[data-index='{other.index}']")
    assert indexes(browser, SELECTED) == [other.index]
    assert indexes(browser, "#marks .mark.selected") == [other.index]
    assert browser.values(mark(browser, other), "aria-selected") == ["true"]
    browser.type(ESCAPE)
    assert not indexes(browser, SELECTED) and not browser.values("#marks .selected", "id")
    assert browser.text("#details") == ""


def test_calls_on_one_spot_are_selected_together(browser: Browser) -> None:
    analysis = resnet()
    browser.open(interactive_page(analysis))
    calls = browser.run(
        "const e = [...document.querySelectorAll('#marks .mark')]"
        ".filter(e => Number(e.dataset.calls) > 3)[0];"
        "e.setAttribute('id', 'many'); return Number(e.dataset.calls)"
    )
    # Another mark may lie on its middle.
    browser.run("document.getElementById('marks').append(document.getElementById('many'))")
    browser.click("#many")
    chosen = indexes(browser, SELECTED)
    assert len(chosen) == calls
    rows = [analysis.operators[index] for index in chosen]
    assert len({(row.op, shape_of(row)) for row in rows}) == 1
    said = facts(browser, "#details")
    assert said["Compute"] == format_flop(sum(row.flop or 0 for row in rows))
    assert said["Module"].endswith(f" and {calls - 3} more")


def test_the_selected_row_comes_into_sight(browser: Browser) -> None:
    analysis = resnet()
    browser.open(interactive_page(analysis))
    browser.click("#strip .key[data-name='cat']")
    (index,) = indexes(browser, SELECTED)
    assert analysis.operators[index].op == "aten.cat"
    row, box = browser.run(
        "const box = e => { const b = e.getBoundingClientRect(); return [b.top, b.bottom] };"
        "return [box(document.querySelector('tr.selected')), box(document.getElementById('rows'))]"
    )
    assert box[0] <= row[0] and row[1] <= box[1]


def test_all_rows_say_what_the_report_says(browser: Browser) -> None:
    analysis = all_three()
    browser.open(interactive_page(analysis))
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    at_work = working(analysis.operators)
    assert sorted(indexes(browser)) == [row.index for row in at_work]
    heads = browser.texts("#table thead th")
    found = browser.run(
        "return [...document.querySelectorAll('#table tbody tr')].map("
        "  r => [Number(r.dataset.index), [...r.cells].map(c => c.textContent)])"
    )
    for index, texts in found:
        row, said = analysis.operators[index], dict(zip(heads, texts, strict=True))
        bound, predicted, taken, spread, _, _, roof, _, share = time_cells(analysis, row)
        assert said["operator"] == short_op(row)
        assert said["module"] == (row.module_path or "(model)")
        assert said["FLOP"] == format_flop(row.flop)
        assert said["bytes"] == format_bytes(row.traffic_bytes)
        assert said["limiting level"] == f"{row.level} {format_bytes(row.level_bytes[row.level])}"
        assert said["limiting AI"] == format_intensity(row.intensity_flop_per_byte)
        assert said["limiter"] == ceiling_text(row.ceiling)
        assert said["eager min"] == bound
        assert (said["predicted"], said["measured"]) == (predicted, taken)
        assert (said["IQR"], said["efficiency"], said["share"]) == (spread, roof, share)
        assert row.measured_s is not None and row.eager_min_time_s is not None
        above = row.measured_s - row.eager_min_time_s
        assert said["above min"] == (format_s(above, 2) if above >= 0 else "–")
    order = [analysis.operators[index].measured_s or 0.0 for index in indexes(browser)]
    assert order == sorted(order, reverse=True)


def test_columns_sort_both_ways(browser: Browser) -> None:
    analysis = resnet()
    browser.open(interactive_page(analysis))
    rows = analysis.operators
    browser.click("button[data-column='flop']")
    assert browser.values("th[aria-sort]", "aria-sort") == ["descending"]
    found = [rows[index].flop for index in indexes(browser)]
    known = [flop for flop in found if flop is not None]
    assert known == sorted(known, reverse=True)
    browser.click("button[data-column='flop']")
    assert browser.values("th[aria-sort]", "aria-sort") == ["ascending"]
    # What is unknown is not 0, but it has to stand somewhere.
    assert rows[indexes(browser)[0]].flop is None
    browser.click("button[data-column='module']")
    names = [rows[index].module_path for index in indexes(browser)]
    assert names[:3] == ["", "avgpool", "bn1"]


def test_filters_and_search_leave_what_they_say(browser: Browser) -> None:
    analysis = resnet()
    browser.open(interactive_page(analysis))
    at_work = working(analysis.operators)

    def shown() -> set[int]:
        browser.run("window.dispatchEvent(new Event('beforeprint'))")
        return set(indexes(browser))

    def lit() -> int:
        calls = browser.values("#marks .mark:not(.dim)", "data-calls")
        return sum(map(int, calls))

    def check(expected: list[OperatorRow]) -> None:
        assert shown() == {row.index for row in expected}
        assert lit() == sum(bool(row.flop) for row in expected)
        assert browser.text("#count").startswith(f"{len(expected)}")

    check(at_work)
    browser.choose("#filter-type", "normalization")
    check([row for row in at_work if row.type == "normalization"])
    browser.choose("#filter-bound", "L2")
    check(
        [row for row in at_work if row.type == "normalization"
         and (row.bound, row.level) == ("memory", "L2")]
    )  # fmt: skip
    browser.click("#clear")
    check(at_work)
    browser.choose("#filter-bound", "compute")
    check([row for row in at_work if row.bound == "compute"])
    browser.choose("#filter-bound", "free")
    assert shown() == {row.index for row in analysis.operators if row.state is State.FREE}
    browser.click("#clear")
    browser.choose("#filter-module", "layer1")
    # "layer1" is not what "layer10" starts with.
    check([row for row in at_work if row.module_path.split(".")[0] == "layer1"])
    browser.click("#clear")
    browser.type("/")
    browser.type("LAYER3 conv2")
    check([row for row in at_work if "layer3" in row.module_path and "conv2" in row.module_path])
    browser.type(ESCAPE)
    check(at_work)
    browser.type("no such thing")
    check([])


def test_the_legend_hides_and_shows(browser: Browser) -> None:
    analysis = resnet()
    browser.open(interactive_page(analysis))
    by_type = groups(analysis, lambda row: row.type)
    names = browser.texts("#legend .key-name")
    assert set(names) == {each.name for each in by_type}
    shares = dict(zip(names, browser.texts("#legend .key-share"), strict=True))
    for each in by_type:
        assert shares[each.name] == format_percent(each.share)

    def calls() -> int:
        return sum(map(int, browser.values("#marks .mark", "data-calls")))

    drawn = [row for row in working(analysis.operators) if row.flop]
    convolutions = sum(row.type == "convolution" for row in drawn)
    assert calls() == len(drawn)
    browser.click("#legend [data-name='convolution']")
    assert calls() == len(drawn) - convolutions
    assert browser.values("#legend [data-name='convolution']", "aria-pressed") == ["false"]
    browser.click("#legend [data-name='convolution']")
    assert calls() == len(drawn)
    browser.choose("#colour", "module 1")
    assert "layer1" in browser.texts("#legend .key-name")
    browser.choose("#colour", "module 2")
    assert "layer1.0" in browser.texts("#legend .key-name")
    browser.choose("#colour", "ceiling")
    browser.click("#legend [data-name='float32 AVX-512 FMA']")
    bound = sum(row.ceiling == "float32 avx512 fma" for row in drawn)
    assert bound and calls() == len(drawn) - bound
    lines = len(browser.values("line.library", "class"))
    browser.click("#lines [data-name='library']")
    assert lines > 1 and len(browser.values(".lines line.library", "class")) == 0


def test_a_memory_level_moves_the_points(browser: Browser) -> None:
    analysis = resnet()
    browser.open(interactive_page(analysis))
    row = next(row for row in analysis.operators if row.module_path == "fc")
    for level in ("L1", "L2", "L3", "DRAM"):
        browser.choose("#level", level)
        byte = row.level_bytes[level]
        assert row.flop and byte
        said = cells(browser, row.index)
        assert said[f"crosses {level}"] == format_bytes(byte)
        assert said[f"AI ({level})"] == format_intensity(row.flop / byte)
        expected = sorted(
            {
                (float(f"{each.flop / each.level_bytes[level]:.2g}"))
                for each in working(analysis.operators)
                if each.flop and each.level_bytes[level]
            }
        )
        found = sorted(x for x, _ in places(browser))
        assert found[0] == pytest.approx(expected[0], rel=0.06)
        assert found[-1] == pytest.approx(expected[-1], rel=0.06)
        aside = [
            each
            for each in working(analysis.operators)
            if each.flop and not each.level_bytes[level]
        ]
        assert (f"nothing crosses {level}" in browser.texts("#strip .why")) == bool(aside)


def test_the_time_can_be_chosen(browser: Browser) -> None:
    analysis = all_three()
    browser.open(interactive_page(analysis))
    assert browser.values("#kind [aria-checked='true']", "data-kind") == ["measured"]
    at_work = working(analysis.operators)
    row = at_work[0]
    for kind, times in (
        ("bound", [each.eager_min_time_s for each in at_work]),
        ("predicted", [each.predicted_s for each in at_work]),
        ("measured", [each.measured_s for each in at_work]),
    ):
        browser.click(f"#kind [data-kind='{kind}']")
        whole = sum(each or 0.0 for each in times)
        assert cells(browser, row.index)["share"] == format_percent((times[0] or 0.0) / whole)
        highest = max(y for _, y in places(browser))
        rates = [
            each.attainable_flop_per_s if kind == "bound" else (each.flop or 0) / (time or 1.0)
            for each, time in zip(at_work, times, strict=True)
            if each.flop
        ]
        assert highest == pytest.approx(max(rate or 0.0 for rate in rates), rel=0.02)
    assert "between operators" in browser.texts("#bars .bar-name")


def test_bars_are_the_sums_of_the_report(browser: Browser) -> None:
    analysis = resnet()
    browser.open(interactive_page(analysis))
    expected = {
        each.name: (format_s(each.eager_min_time_s), format_percent(each.share))
        for each in groups(analysis, lambda row: row.type)
    }

    def bars(number: int) -> dict[str, tuple[str, str]]:
        chart = f"#bars .chart:nth-child({number})"
        parts = (browser.texts(f"{chart} .bar-{part}") for part in ("name", "time", "share"))
        return {name: (time, share) for name, time, share in zip(*parts, strict=True)}

    assert bars(1) == expected
    binders = groups(
        analysis,
        lambda row: (
            row.level
            if row.bound == "memory"
            else str(row.bound).replace("unknown", "unknown FLOP")
        ),
    )
    assert bars(2) == {
        each.name: (format_s(each.eager_min_time_s), format_percent(each.share)) for each in binders
    }
    browser.click("#bars [data-name='pooling']")
    assert len(indexes(browser)) == 1


def test_the_tree_goes_into_a_module(browser: Browser) -> None:
    analysis = resnet()
    browser.open(interactive_page(analysis))
    inside = [row for row in working(analysis.operators) if row.module_path.startswith("layer2.")]
    share = sum(row.eager_min_time_s or 0.0 for row in inside) / (
        analysis.totals.eager_min_time_s or 1.0
    )
    (words,) = browser.values(".cell[data-path='layer2']", "aria-label")
    assert words.endswith(f", {format_percent(share)}")
    width, whole = browser.run(
        "const w = s => document.querySelector(s).getBoundingClientRect().width;"
        "return [w('.cell[data-path=\"layer2\"]'), w('#tree')]"
    )
    assert width / whole == pytest.approx(share, abs=0.002)
    browser.click(".cell[data-path='layer2']")
    assert set(indexes(browser)) == {row.index for row in inside}
    assert browser.texts("#crumbs button, #crumbs [aria-current]") == ["resnet-like", "layer2"]
    assert browser.run("return document.activeElement.dataset.path") == "layer2"
    browser.type(DOWN, RIGHT, ENTER)
    assert browser.text("#crumbs [aria-current]") == "1"
    block = [row for row in inside if row.module_path.split(".")[:2] == ["layer2", "1"]]
    assert set(indexes(browser)) == {row.index for row in block}
    browser.click("#crumbs button")
    assert len(browser.texts("#crumbs button")) == 0


def test_the_machine_can_be_chosen(browser: Browser) -> None:
    comparison = with_caches()
    browser.open(interactive_page(comparison))
    assert browser.texts("#machine option") == list(comparison.machine_names)
    for number, each in enumerate(comparison.analyses):
        browser.choose("#machine", str(number))
        row = next(row for row in each.operators if row.module_path == "fc")
        assert cells(browser, row.index)["eager min"] == format_s(row.eager_min_time_s)
        levels = [level.name for level in each.hardware.memory]
        assert browser.texts("#level option") == ["limiting level", *levels]
        points = sorted(places(browser))
        expected = sorted((p.flop_per_byte, p.flop_per_s) for p in points_of(each))
        assert points[0] == pytest.approx(expected[0], rel=0.02)
        assert len(points) == len(expected)
        assert browser.values("article:not([hidden])", "data-machine") == [str(number)]
    browser.choose("#machine", "0")
    browser.choose("#level", "L2")
    browser.choose("#machine", "1")
    assert browser.run("return document.getElementById('level').value") == "binding"


def test_zooming_and_back(browser: Browser) -> None:
    browser.open(interactive_page(resnet()))
    before = browser.texts(".tick-x")
    first = places(browser)
    browser.click("#zoom-in")
    browser.click("#zoom-in")
    browser.click("#zoom-in")
    assert browser.texts(".tick-x") != before
    for (x, y), (old_x, old_y) in zip(places(browser), first, strict=True):
        assert (x, y) == pytest.approx((old_x, old_y), rel=0.02)
    browser.click("#zoom-reset")
    assert browser.texts(".tick-x") == before
    browser.run("document.getElementById('marks').focus()")
    browser.type("+")
    assert places(browser) != first
    browser.type("0")
    assert places(browser) == first


def test_wheel_and_drag(browser: Browser) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    browser.open(interactive_page(resnet()))
    svg = browser.driver.find_element("id", "picture")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", svg)
    before = browser.texts(".tick-x")
    ticks = browser.values(".tick-x", "x")

    def wheel() -> None:
        ActionChains(browser.driver).scroll_from_origin(
            ScrollOrigin.from_element(svg), 0, -300
        ).perform()

    # Where the page's reader scrolls by, it is the page that moves.
    browser.run("addEventListener('wheel', e => { window.isTaken = e.defaultPrevented })")
    wheel()
    assert browser.run("return window.isTaken") is False
    assert browser.texts(".tick-x") == before
    assert browser.run("return document.getElementById('hint').hidden") is False
    browser.run("arguments[0].scrollIntoView({block: 'center'})", svg)
    browser.run("document.getElementById('marks').focus({preventScroll: true})")
    wheel()
    assert browser.run("return window.isTaken") is True
    assert browser.values(".tick-x", "x") != ticks
    browser.click("#zoom-reset")
    chain = ActionChains(browser.driver)
    chain.move_to_element_with_offset(svg, 100, 100).click_and_hold()
    chain.move_by_offset(60, 0).release().perform()
    moved = [float(each) for each in browser.values(".tick-x", "x")]
    assert moved[0] != pytest.approx(float(ticks[0]))
    browser.click("#zoom-reset")
    chain = ActionChains(browser.driver)
    chain.move_to_element_with_offset(svg, 0, -100).key_down(SHIFT).click_and_hold()
    chain.move_by_offset(160, 120).release().key_up(SHIFT).perform()
    assert browser.texts(".tick-x") != before


def test_everything_can_be_done_by_keys(browser: Browser) -> None:
    analysis = all_three()
    browser.open(interactive_page(analysis))
    browser.run("document.getElementById('marks').focus()")
    browser.type(RIGHT)
    row = longest(analysis)
    assert browser.text("#card dd") == row.module_path
    browser.type(ENTER)
    assert indexes(browser, SELECTED) == [row.index]
    browser.type(RIGHT)
    active = browser.run(
        "return document.getElementById('marks').getAttribute('aria-activedescendant')"
    )
    assert active and browser.values(f"#{active}", "data-index") != [str(row.index)]
    browser.type(ESCAPE)
    assert not indexes(browser, SELECTED)
    browser.run("document.querySelector('#table tbody tr').focus()")
    browser.type(DOWN, DOWN, ENTER)
    assert indexes(browser, SELECTED) == [indexes(browser)[2]]
    browser.type(UP, ENTER)
    assert indexes(browser, SELECTED) == [indexes(browser)[1]]


def test_tab_reaches_every_control_and_shows_where_it_is(browser: Browser) -> None:
    browser.open(interactive_page(all_three()))
    browser.run("document.body.focus(); scrollTo(0, 0)")
    reached: list[str] = []
    for _ in range(70):
        browser.type(TAB)
        here, outline = browser.run(
            "const e = document.activeElement, s = getComputedStyle(e);"
            "const marks = document.querySelector('.canvas');"
            "const o = e.id === 'marks' ? getComputedStyle(marks) : s;"
            "return [e.id || e.className || e.parentElement.id || e.tagName,"
            "  o.outlineStyle]"
        )
        if here == "BODY" or (reached and here == reached[0]):
            break
        reached.append(here)
        assert outline != "none", here
    for each in ("level", "colour", "theme", "marks", "zoom-in", "zoom-reset", "search", "clear"):
        assert each in reached, each
    assert {"kind", "key", "bar", "cell", "filter-type"} <= set(reached)


def test_the_theme_follows_the_system_and_the_button(browser: Browser) -> None:
    browser.open(interactive_page(resnet()))

    def brightness() -> int:
        colour = browser.run("return getComputedStyle(document.body).backgroundColor")
        return sum(int(each) for each in colour[4:-1].split(","))

    def prefer(scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    prefer("light")
    assert brightness() > 700
    browser.click("#theme")
    assert brightness() < 100
    browser.click("#theme")
    prefer("dark")
    # The reader said light, whatever the system says.
    assert brightness() > 700
    browser.open(interactive_page(resnet()))
    assert brightness() < 100
    browser.click("#theme")
    assert brightness() > 700
    prefer("light")


def pdf_pages(browser: Browser) -> int:
    printed = browser.driver.execute_cdp_cmd(
        "Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True}
    )
    text = base64.b64decode(printed["data"])
    assert text.startswith(b"%PDF")
    return text.count(b"/Type /Page\n") + text.count(b"/Type /Page ")


def test_it_prints_all_rows(browser: Browser) -> None:
    browser.open(interactive_page(resnet()))
    assert len(indexes(browser)) < len(working(resnet().operators))
    assert pdf_pages(browser) >= 3
    assert len(indexes(browser)) == len(working(resnet().operators))


@pytest.mark.parametrize("width", [400, 1600])
def test_no_page_is_wider_than_its_window(browser: Browser, width: int) -> None:
    for result in (all_three(), with_caches(), hostile(), long_names()):
        browser.open(interactive_page(result), width=width)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        browser.choose("#colour", "module 2")
        browser.click("#theme")
        assert browser.run("return document.documentElement.scrollWidth") <= width


def long_names() -> Analysis:
    net = Network()
    x = net.tensor(64, 64, role=Role.INPUT)
    net.relu(x, "a" * 300 + "." + "b" * 300)
    return analysis_of(net, full_profile(), model="m" * 400)


NAMES = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "__proto__",
    "constructor",
    "toString",
    "שלום-عالم",
    "\u202egnp.exe",
    "line\nbreak",
    "a'b\"c\\d`e${f}",
    "&lt;b&gt;",
    " ",
)


def test_hostile_names_stay_text(browser: Browser) -> None:
    net = Network()
    x = net.tensor(64, 64, role=Role.INPUT)
    for name in NAMES:
        x = net.call(f"lib.{name}", f"kind {name}", name, (x,), net.tensor(64, 64), flop=100)
        net.call(f"lib.{name}", f"kind {name}", name, (x,), net.tensor(64, 64), flop=None)
    analysis = analysis_of(net, full_profile(), model=NAMES[1], warnings=NAMES)
    browser.open(interactive_page(analysis))
    shown = {name.replace("\n", "\\n").replace("\u202e", "\\u202e") for name in NAMES}
    for colour in ("type", "module 1", "module 2", "ceiling"):
        browser.choose("#colour", colour)
    assert set(browser.texts("#table td.module")) == shown
    assert {f"kind {name}" for name in shown} <= set(browser.texts("#filter-type option"))
    browser.choose("#colour", "module 1")
    for name in ("__proto__", "constructor", "<script>alert(1)</script>"):
        number = list(NAMES).index(name)
        browser.run(
            "[...document.querySelectorAll('.cell')].find(e => e.dataset.path === arguments[0])"
            ".click()",
            name,
        )
        assert indexes(browser) == [2 * number, 2 * number + 1]
        browser.run(
            "[...document.querySelectorAll('#legend .key')].find("
            "e => e.dataset.name === arguments[0]).click()",
            name,
        )
        browser.click("#clear")
    browser.click(ROWS)
    assert facts(browser, "#details")["Module"] in shown
    assert browser.run("return document.querySelectorAll('img, script:not(#data)').length") == 1
    assert browser.run("return document.querySelectorAll('main b').length") == 0


def test_endless_names_do_not_widen_the_page(browser: Browser) -> None:
    endless = 2_000 * "n"
    analysis = measured(resnet())
    rows = tuple(
        replace(row, module_path=f"{endless}.{row.module_path}") for row in analysis.operators
    )
    hardware = replace(analysis.hardware, name=endless)
    analysis = replace(analysis, model=endless, operators=rows, hardware=hardware)
    for width in (1300, 400):
        browser.open(interactive_page(analysis), width=width)
        browser.click(f"{ROWS}[data-index]")
        assert browser.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", examples())
def test_every_example_opens(browser: Browser, name: str) -> None:
    """All switches of every example, without a word on the console."""
    analysis = examples()[name]
    browser.open(interactive_page(analysis))
    for level in browser.values("#level option", "value"):
        browser.choose("#level", level)
    for colour in browser.values("#colour option", "value"):
        browser.choose("#colour", colour)
    expected = working(analysis.operators)
    assert browser.text("#count").startswith(f"{len(expected)} call")
    assert "NaN" not in browser.text("main") and "undefined" not in browser.text("main")


@pytest.mark.parametrize("name", [name for name in comparisons() if name != "twenty"])
def test_every_comparison_opens(browser: Browser, name: str) -> None:
    comparison: Comparison = comparisons()[name]
    browser.open(interactive_page(comparison))
    for number in range(len(comparison.machine_names)):
        browser.choose("#machine", str(number))
        assert "NaN" not in browser.text("main") and "undefined" not in browser.text("main")


def test_without_ceilings_sizes_are_bytes(browser: Browser) -> None:
    analysis = analysis_of(resnet_like((1,)), bare_profile(), model="unbounded")
    browser.open(interactive_page(analysis))
    assert "bytes (no time is known)" in browser.text("#tree-note")
    assert "no ceilings" in browser.text("#bars")
    assert not browser.values("#marks .mark", "id")
    assert "have FLOP but no point" in browser.text("#picture-note")


def test_times_that_are_not_known_are_no_zeros(browser: Browser) -> None:
    whole = resnet()
    convolutions = [row.index for row in whole.operators if row.type == "convolution"]

    def without(row: OperatorRow) -> OperatorRow:
        if row.type != "pooling" and row.index != convolutions[0]:
            return row
        unknown = dict.fromkeys(("eager_min_time_s", "attainable_flop_per_s"))
        return replace(row, bound=Bound.UNKNOWN, ceiling="", **unknown)

    analysis = with_rows(whole, [without(row) for row in whole.operators])
    browser.open(interactive_page(analysis))
    names, times = (
        browser.texts(f"#bars .chart:nth-child(1) .bar-{of}") for of in ("name", "time")
    )
    found = dict(zip(names, times, strict=True))
    rest = sum(whole.operators[index].eager_min_time_s or 0.0 for index in convolutions[1:])
    assert found["pooling"] == "–"
    assert found["convolution"] == f"≥ {format_s(rest)}"
    assert not found["normalization"].startswith("≥")
    count = 1 + sum(row.type == "pooling" for row in whole.operators)
    assert f"Time of {count} operators unknown" in browser.text("#bars")


def test_a_point_above_its_roof_is_ringed(browser: Browser) -> None:
    browser.open(interactive_page(measured(resnet(), 0.5)))
    assert browser.values("#marks .mark.above", "id")
    assert "faster than its eager minimum" in browser.text("#picture-note")
    browser.open(interactive_page(measured(resnet(), 2.0)))
    assert not browser.values("#marks .mark.above", "id")


def test_phases_of_training_are_told(browser: Browser) -> None:
    browser.open(interactive_page(trained()))
    assert "phase" in browser.texts("#table thead th")
    assert "By phase" in browser.texts("#bars h3")


def test_scripts_may_be_off(browser: Browser) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(interactive_page(with_caches()))
        source = browser.driver.find_element("css selector", "body").text
        assert "Scripts are off" in source and "Search" not in source
        for name in with_caches().machine_names:
            assert name in source
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_two_thousand_operators(browser: Browser) -> None:
    analysis = measured(analysis_of(deep(2000), full_profile(), model="deep"))
    browser.open(interactive_page(analysis))
    assert browser.text("#count").startswith("2,000 calls, 100 %")
    assert len(indexes(browser)) < 400
    assert sum(map(int, browser.values("#marks .mark", "data-calls"))) == 2000
    browser.run("document.getElementById('rows').scrollTop = 1e6")
    browser.run("document.querySelector('#table tbody tr').focus()")
    browser.type("\ue010")
    assert len(indexes(browser)) == 2000
    browser.type(ENTER)
    (last,) = indexes(browser, SELECTED)
    assert indexes(browser)[-1] == last
    browser.type("/")
    browser.type("layer_777.")
    name = "backbone.stage_7.block_77.layer_777"
    found = {analysis.operators[i].module_path for i in indexes(browser)}
    assert found == {f"{name}.conv", f"{name}.act"}


def test_two_fingers_zoom(browser: Browser) -> None:
    browser.open(interactive_page(resnet()))
    before = places(browser)
    ticks = browser.values(".tick-x", "x")
    left, top = browser.run(
        "const b = document.getElementById('picture'); b.scrollIntoView({block: 'center'});"
        "const r = b.getBoundingClientRect(); return [r.left, r.top]"
    )

    def touch(kind: str, *apart: int) -> None:
        points = [
            {"x": left + 400 + sign * each, "y": top + 250, "id": number}
            for each in apart
            for number, sign in enumerate((-1, 1))
        ]
        event = {"type": kind, "touchPoints": points}
        browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", event)

    touch("touchStart", 60)
    touch("touchMove", 90)
    touch("touchMove", 120)
    touch("touchEnd")
    assert browser.values(".tick-x", "x") != ticks
    for (x, y), (old_x, old_y) in zip(places(browser), before, strict=True):
        assert (x, y) == pytest.approx((old_x, old_y), rel=0.03)


def test_the_axes_stay_while_the_legend_hides(browser: Browser) -> None:
    browser.open(interactive_page(resnet()))
    ticks = browser.values(".tick-y", "y")
    for name in browser.values("#legend .key", "data-name"):
        browser.click(f"#legend [data-name='{name}']")
    assert not browser.values("#marks .mark", "id")
    assert browser.values(".tick-y", "y") == ticks
