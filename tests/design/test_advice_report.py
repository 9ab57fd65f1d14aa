"""What reports say of findings, in every format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from roofline.analysis import Finding, analysis_from_data, ranked
from roofline.analysis.words import (
    advice_notes,
    ceiling_text,
    location_text,
    machines_advice_notes,
    saving_text,
    working,
)
from roofline.core.blocks import Grid, KeyValueBlock, Notes
from roofline.design.advice.result import Advice, read_advice
from roofline.design.advice.rules import RULES, judged_rules
from roofline.errors import FileFormatError
from tests.analysis.examples import resnet
from tests.analysis.predictions import with_measurement
from tests.design.advice_findings import FOLD, LOST, MOST, TRIED, add_findings, advice
from tests.design.advice_models import analysed


def test_the_verdict_comes_first() -> None:
    assert "foldable batch norm saves 1.20 ms of" in advice(FOLD, MOST).summary
    assert advice(FOLD, MOST).summary.endswith("(predicted), and 1 more finding")
    assert "saves at most 1.20 ms of" in advice(MOST).summary
    larger = replace(MOST, predicted_before_s=2e-3)
    assert "foldable batch norm saves" in advice(larger, FOLD).summary
    assert "no finding, " in advice().summary
    assert "saves 1.00 ms of 9.00 ms (measured)" in advice(LOST, TRIED).summary
    assert "no finding confirmed" in advice(LOST).summary
    alone = replace(TRIED, note="its operators timed on their own")
    assert "(measured, operators timed alone)" in advice(alone).summary
    worse = replace(MOST, predicted_before_s=1e-3, predicted_after_s=2e-3)
    assert "no finding confirmed" in advice(worse).summary


def test_findings_stand_in_a_table_with_what_was_measured() -> None:
    report = advice(TRIED, LOST, MOST, tried=("float16: 9 s instead of 1 s",)).report()
    (_, grid) = [block for block in report.blocks if isinstance(block, Grid)]
    cells = [dict(zip([c.heading for c in grid.columns], row, strict=True)) for row in grid.rows]
    assert [each["verdict"] for each in cells] == ["confirmed", "not confirmed", "not tried"]
    assert cells[0]["measured"] == "1.00 ms of 9.00 ms (500 µs … 1.50 ms)"
    assert cells[1]["measured"] == "-1.00 ms of 9.00 ms (-2.00 ms … 100 µs)"
    assert cells[0]["saving"] == "1.2 (1.0–1.2) ms"
    assert cells[1]["layers"] == "the whole model"
    assert cells[2]["saving"] == "≤ 1.20 ms"
    others = {block.title: block.lines for block in report.blocks if isinstance(block, Notes)}
    assert others["Without a finding"] == ("float16: 9 s instead of 1 s",)


def test_savings_are_not_to_be_added() -> None:
    titles = [
        block.title
        for findings in ((FOLD,), (FOLD, MOST))
        for block in advice(*findings).report().blocks
        if isinstance(block, Grid) and "layers" not in block.title
    ]
    assert titles == ["Findings by saving", "Findings by saving (savings do not add up)"]


def test_measured_savings_are_no_minimum_times() -> None:
    for finding, words in (
        (FOLD, "all times are minimum times: "),
        (TRIED, "no predicted times: "),
    ):
        facts = next(iter(advice(finding).report().blocks))
        assert isinstance(facts, KeyValueBlock)
        assert words in dict(facts.lines)["Time"]


def test_a_disturbed_measurement_is_a_warning() -> None:
    analysis = with_measurement(resnet(), 20e-3)
    assert analysis.measurement is not None
    sample = replace(analysis.measurement.end_to_end, times_s=(10e-3, 20e-3, 30e-3))
    disturbed = replace(analysis, measurement=replace(analysis.measurement, end_to_end=sample))
    (notes,) = [
        block
        for block in Advice(analysis=disturbed).report().blocks
        if isinstance(block, Notes) and block.title == "Warnings"
    ]
    assert any(line.startswith("pass times vary") for line in notes.lines)


def test_several_machines_say_what_a_rule_saves_on_each() -> None:
    here = add_findings(FOLD, MOST)
    there = add_findings(replace(FOLD, predicted_before_s=2.4e-3, saving_high_s=2.4e-3))
    nowhere = add_findings()
    (notes,) = machines_advice_notes(("a", "b", "c"), (here, there, nowhere))
    fold, rearranging, last = notes.lines
    # Twice as much of the same pass comes first.
    assert fold.startswith("foldable batch norm · a 1.2 (1.0–1.2) ms, ")
    assert "; b 2.4 (1.0–2.4) ms, " in fold and fold.endswith("⇒ fold them")
    assert "c " not in rearranging and rearranging.startswith("layout copy · a ≤ 1.20 ms, ")
    assert last.startswith("evidence: roofline advise ")
    assert list(machines_advice_notes(("a", "b"), (nowhere, nowhere))) == []


def test_untried_findings_have_no_empty_columns() -> None:
    (_, grid) = [b for b in advice(FOLD).report().blocks if isinstance(b, Grid)]
    assert "measured" not in [each.heading for each in grid.columns]


def test_no_more_than_asked_for_are_shown() -> None:
    report = advice(*[FOLD] * 12).report()
    (_, grid) = [block for block in report.blocks if isinstance(block, Grid)]
    assert len(grid.rows) == 10
    assert ("Not shown", "2 more findings (top=12)") in [
        line for block in report.blocks if isinstance(block, KeyValueBlock) for line in block.lines
    ]


def test_the_place_is_the_operator_that_costs_most() -> None:
    analysis = resnet()
    name = location_text(analysis, FOLD)
    rows = [analysis.operators[index] for index in FOLD.operators]
    longest = max(rows, key=lambda row: row.eager_min_time_s or 0.0)
    assert name == f"{longest.module_path} ({longest.op.removeprefix('aten.')}) and 1 more"
    assert location_text(analysis, replace(FOLD, operators=())) == "the whole model"


def test_rules_that_were_not_judged_are_no_missing_findings() -> None:
    analysis = analysed(nn.Sequential(nn.Linear(8, 512), nn.Linear(512, 512)), 4, 8)
    judged, unjudged = judged_rules(analysis)
    assert judged + len(unjudged) == len(RULES) + 1 and "low efficiency" in unjudged
    found = Advice(analysis=analysis, judged=judged, unjudged=unjudged)
    assert f"no finding among {judged} rules ({len(unjudged)} need predictions)" in found.summary
    blocks = found.report().blocks
    (lines,) = [b.lines for b in blocks if isinstance(b, Notes) and b.title == "Rules not judged"]
    assert "channel padding" in lines[0] and "roofline calibrate" in lines[0]
    assert lines[1].endswith(": roofline profile MODEL -o p.json; roofline advise p.json")
    (to_try,) = [b.lines[0] for b in blocks if isinstance(b, KeyValueBlock) and len(b.lines) == 1]
    assert to_try[1].startswith("1: ") and "roofline compare" in to_try[1]


def test_a_saving_says_what_it_is() -> None:
    assert saving_text(resnet(), replace(MOST, basis="estimate")) == "~ 1.20 ms"
    assert saving_text(resnet(), Finding(rule="a", evidence="b", change="c")) == "–"


def test_reports_on_analyses_have_a_section_only_where_something_was_found() -> None:
    assert list(advice_notes(resnet())) == []
    (notes,) = advice_notes(add_findings(FOLD, MOST, MOST, MOST))
    assert len(notes.lines) == 4
    assert "foldable batch norm, 1.2 (1.0–1.2) ms (" in notes.lines[0]
    assert "% of the predicted time) · " in notes.lines[0]
    assert notes.lines[-1].startswith("1 more, other layouts, types, batches and threads:")


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    given = advice(TRIED, LOST, tried=("a", "b"))
    path = tmp_path / "a.json"
    given.save(path)
    assert read_advice(path) == given
    given.analysis.save(path, overwrite=True)
    assert read_advice(path) == Advice(analysis=given.analysis)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operators": [10**6]}, "names operator 1000000, but there are"),
        ({"operators": [-1]}, "names operator -1"),
        ({"operators": [3, 1]}, "operators must rise"),
        ({"predicted_before_s": -1.0}, "predicted_before_s must be"),
        ({"saving_low_s": 2.0}, "an interval from 2.0 to"),
        ({"saving_high_s": None}, "an interval from"),
        ({"basis": "hope"}, "basis"),
        ({"verdict": None}, "belong together"),
        ({"verdict": "perhaps"}, "verdict"),
    ],
)
def test_findings_that_cannot_be_are_refused(change: dict[str, object], message: str) -> None:
    data = json.loads(add_findings(TRIED).to_json())
    data["findings"][0].update(change)
    with pytest.raises(FileFormatError, match=message):
        analysis_from_data(data, file="a.json")


def test_tables_of_numbers_have_a_line_a_finding() -> None:
    given = advice(TRIED, MOST)
    lines = list(csv.DictReader(io.StringIO(given.to_csv())))
    assert list(lines[0]) == list(Advice.columns)
    assert lines[0]["operators"] == "1 5"
    assert float(lines[0]["measured_saving_s"]) == pytest.approx(1e-3)
    assert lines[1]["verdict"] == ""
    frame = given.to_frame()
    assert list(frame.columns) == list(Advice.columns)
    assert frame["saving_s"].tolist() == pytest.approx([1.2e-3, 1.2e-3])
    assert frame["verdict"].isna().tolist() == [False, True]


def test_a_profile_is_ranked_by_its_measured_times() -> None:
    """In an order that neither minimum nor predicted times have."""
    analysis = resnet()
    at_work = working(analysis.operators)
    shortest = min(at_work, key=lambda row: row.eager_min_time_s or 0.0)
    rows = [
        replace(row, measured_s=1.0 if row is shortest else 1e-3, measured_iqr_s=0.0)
        for row in analysis.operators
    ]
    _, grid, *_ = Advice(analysis=replace(analysis, operators=tuple(rows))).report().blocks
    assert isinstance(grid, Grid) and grid.title.startswith("Longest layers by measured time")
    assert grid.rows[0][0].endswith(shortest.module_path)
    assert grid.rows[0][2] == "1.00 s"


def test_the_longest_layers_come_first_with_their_limiters() -> None:
    analysis = resnet()
    _, grid, *_ = Advice(analysis=analysis).report().blocks
    assert isinstance(grid, Grid) and grid.title.startswith("Longest layers by minimum time")
    rows = [
        dict(zip([column.heading for column in grid.columns], row, strict=True))
        for row in (*grid.rows, *grid.sums)
    ]
    shares = [float(each["share"].removesuffix(" %")) for each in rows]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert shares[:5] == sorted(shares[:5], reverse=True)
    limiters = {f"{row.bound}: {ceiling_text(row.ceiling)}" for row in analysis.operators}
    assert {each["limiter"] for each in rows[:5]} <= limiters
    # A minimum time is that of the ceiling.
    assert "of ceiling" not in rows[0]
    assert rows[5]["layer"] == "other layers" and len(rows) == 6


def test_savings_of_minimum_times_come_last_and_are_shares() -> None:
    fast = Finding(
        rule="lower precision",
        evidence="bfloat16: 2 ms instead of 8 ms",
        change="use it",
        basis="library",
        predicted_before_s=8e-3,
        predicted_after_s=2e-3,
    )
    assert ranked((fast, replace(fast, basis="bound"), MOST, FOLD))[-2:] == (
        fast,
        replace(fast, basis="bound"),
    )
    # 8 ms are not the minimum time of the pass, which is above.
    assert "saves up to 75.0 % (library minimum)" in advice(fast).summary
    # A predicted upper limit says more on this machine.
    assert "layout copy saves at most 1.20 ms" in advice(MOST, fast).summary
    (_, grid) = [b for b in advice(fast).report().blocks if isinstance(b, Grid)]
    assert grid.rows[0][-3:] == ("–", "≤ 75.0 %", "library minimum")
    # Once measured, they are as good as others.
    tried = replace(
        fast,
        measured_before_s=9e-3,
        measured_after_s=7e-3,
        measured_low_s=1e-3,
        measured_high_s=3e-3,
        verdict="confirmed",
    )
    assert ranked((FOLD, tried)) == (tried, FOLD)


def test_what_only_trying_found_is_ranked_by_what_it_saved() -> None:
    found = replace(TRIED, predicted_before_s=None, predicted_after_s=None)
    small = replace(FOLD, predicted_after_s=0.7e-3)
    assert ranked((small, found, FOLD)) == (FOLD, found, small)
    (_, grid) = [b for b in advice(found).report().blocks if isinstance(b, Grid)]
    assert "measured only" in grid.rows[0]


def test_a_finding_prints_its_fields_and_few_operators() -> None:
    short = repr(replace(FOLD, operators=(1, 2)))
    assert short.startswith("Finding(rule='foldable batch norm', operators=(1, 2), ")
    assert "measured" not in short
    assert "operators=(0, 1, 2, … 50 in all)" in repr(replace(FOLD, operators=tuple(range(50))))
