"""Results on designs of every kind: read back, shown by every renderer, refused if damaged."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from roofline.core.blocks import Report
from roofline.design.advice.result import Advice
from roofline.design.comparison.result import Comparison
from roofline.design.gate.result import Check
from roofline.errors import FileFormatError
from roofline.render.console import plain_text
from roofline.render.markdown import report_markdown
from roofline.render.pages import report_html
from roofline.result import Result, read_result
from tests.analysis.examples import Made, examples, small
from tests.analysis.predictions import with_measurement, with_predictions
from tests.design.advice_findings import LOST, MOST, TRIED, add_findings, advice
from tests.design.compilations import compilations
from tests.design.gate_examples import cost, counts_only
from tests.design.machine_comparisons import comparisons
from tests.sweep_examples import FAR, NEAR, cell, known, ridge, swept, times

HOSTILE = "<script>alert(1)</script>\x1b[31m\nnext"


def of_models() -> Comparison:
    """One of them predicted, the other measured before."""
    slow = with_predictions(small(), {"fc": 6.0, "act": 3.0})
    return Comparison.of([slow, with_measurement(small(), 5.0)], names=["a", f"b{HOSTILE}"])


def of_check() -> Check:
    conditions = ("flop>+1%", "predicted_s>+5%")
    now = cost(flop=2000, predicted_s=None, model=HOSTILE)
    return Check(now=now, baseline=cost(), conditions=conditions, file="b.json", notes=(HOSTILE,))


def of_advice(name: str) -> Advice:
    analysis = examples()[name]
    concerned = Advice(analysis=add_findings(analysis=analysis), tried=(HOSTILE,))
    return concerned if not analysis.operators else advice(TRIED, LOST, MOST, tried=("a",))


def hostile_sweep(axes: str, count: int) -> Comparison:
    rows = [[cell(1.0 + 3 * i / count), cell(2.0)] for i in range(count)]
    return swept(axes, rows, (HOSTILE, f"b$x${HOSTILE}"))


def of(makers: Mapping[str, Result], name: str) -> Result:
    return makers[name]


RESULTS: Mapping[str, Result] = Made(
    {
        **{f"machines, {name}": partial(of, comparisons(), name) for name in comparisons()},
        **{f"compiled, {name}": partial(of, compilations(), name) for name in compilations()},
        "models": of_models,
        "models on machines": lambda: Comparison.of([small(), small()], [small(), small()]),
        "map": lambda: hostile_sweep("a=1|2,b=x|y", 4),
        "lines": lambda: hostile_sweep("a=1|2|4", 3),
        "gaps": lambda: times("c=1|2|4", (1.0, None), (2.0, 1.0), (3.0, 1.0)),
        "ridge": lambda: ridge(NEAR, FAR, known(HOSTILE, 3.0, (8.0, 6.0)), left_out=("old",)),
        "advice": partial(of_advice, "resnet"),
        "advice, nothing": partial(of_advice, "empty model"),
        "check": of_check,
        "check, counts": lambda: Check(now=counts_only()),
    }
)
everything = pytest.mark.parametrize("name", RESULTS)


@everything
def test_what_is_saved_is_read_back_equal(name: str, tmp_path: Path) -> None:
    RESULTS[name].save(tmp_path / "r.json")
    assert read_result(tmp_path / "r.json") == RESULTS[name]


@everything
def test_numbers_stand_in_the_same_rows_everywhere(name: str) -> None:
    result = RESULTS[name]
    lines, frame = list(csv.DictReader(io.StringIO(result.to_csv()))), result.to_frame()
    rows = [list(row) for row in result.rows()]
    assert list(frame.columns) == list(result.columns)
    assert len(lines) == len(frame) == len(rows)
    for place, column in enumerate(result.columns):
        found = [row[place] for row in rows]
        assert [not line[column] for line in lines] == [each in (None, "", ()) for each in found]
        assert list(frame[column].isna()) == [each is None for each in found]


RENDERERS: dict[str, Callable[[Report], str]] = {
    "pipe": plain_text,
    "markdown": report_markdown,
    "html": report_html,
}


@everything
@pytest.mark.parametrize("render", RENDERERS.values(), ids=list(RENDERERS))
def test_every_renderer_manages_every_result(name: str, render: Callable[[Report], str]) -> None:
    text = render(RESULTS[name].report())
    assert "None" not in text and "\x1b" not in text
    assert "nan" not in re.findall(r"\w+", text)
    assert render is plain_text or not re.search("<script|<b>|<img", text)


@pytest.mark.parametrize("name", [each for each in RESULTS if each.startswith(("machines", "map"))])
def test_pictures_escape_names(name: str) -> None:
    picture = RESULTS[name].render("svg")
    assert isinstance(picture, str) and "<svg" in picture
    assert "<script>alert" not in picture and "\x1b" not in picture


@pytest.mark.parametrize("name", ["lines", "ridge", "models", "models on machines"])
def test_every_shape_of_picture_is_a_png(name: str) -> None:
    assert bytes(RESULTS[name].render("png")).startswith(b"\x89PNG")  # pyright: ignore[reportArgumentType]


Change = Callable[[dict[str, Any]], dict[str, Any]]
DAMAGE: list[tuple[str, dict[str, Any] | Change, str]] = [
    ("machines, pair", {"kind": "analysis"}, "expected kind 'comparison', got 'analysis'"),
    ("machines, pair", {"schema_version": 99}, "written by an older version"),
    ("machines, pair", {"analyses": {}}, "analyses: expected a list"),
    ("machines, pair", {"extra": 1}, "unknown key 'extra'"),
    ("machines, pair", {"analyses": []}, "at least one axis"),
    ("machines, pair", {"analyses": [{"model": "x"}] * 2}, r"analyses\[0\]: missing key"),
    ("gaps", lambda data: {"rows": data["rows"][1:]}, "rows are no full grid"),
    ("gaps", lambda data: {"points": data["points"][::-1]}, "points: does not follow"),
    ("gaps", {"reference": 7}, "reference 7: must be from 0 to 1"),
    ("gaps", {"axes": {}}, "at least one axis"),
    ("gaps", {"axes": {"c": [1, None, 4]}}, "expected numbers or words"),
    ("gaps", {"axes": {"c": 1}}, "expected a list"),
    ("gaps", {"cells": []}, "unknown key 'cells'"),
    ("ridge", {"axes": {"balance": [1.0, "x", 4.0, 8.0]}}, "of numbers above 0"),
    ("ridge", {"axes": {"size": [1.0, 2.0, 4.0, 8.0]}}, "the axis is balance"),
    ("ridge", {"hardware": []}, "derive from one machine"),
    ("ridge", {"rows": []}, "no full grid"),
    (
        "ridge",
        lambda data: {"rows": [{**each, "eager_min_time_s": None} for each in data["rows"]]},
        "a minimum time is unknown",
    ),
    ("advice", {"schema_version": 2}, "schema_version 2"),
    ("advice", {"tried": "a"}, "tried: expected a list"),
    ("advice", {"tried": [1]}, r"tried\[0\]: expected a string"),
    ("advice", {"more": 1}, "unknown key 'more'"),
    ("advice", {"analysis": {}}, "analysis"),
    ("check", {"conditions": ["flop>>1%"]}, "a number is expected"),
]


@pytest.mark.parametrize(("name", "change", "words"), DAMAGE)
def test_a_damaged_file_is_refused_in_one_line(
    name: str, change: dict[str, Any] | Change, words: str
) -> None:
    data = json.loads(RESULTS[name].to_json())
    changed = {**data, **(change(data) if callable(change) else change)}
    with pytest.raises(FileFormatError, match=words) as refused:
        type(RESULTS[name]).from_data(changed, file="r.json")
    assert str(refused.value).startswith("r.json") and "\n" not in str(refused.value)
