"""What `roofline check` shows: the table a reviewer reads, as text, Markdown and JSON."""

from __future__ import annotations

import pytest

from roofline.core.blocks import Grid
from roofline.design.gate.cost import Cost, Part
from roofline.design.gate.result import Check
from tests.design.gate_examples import cost, counts_only

GROWN = cost(
    flop=1200,
    launches=11,
    types=(
        Part(name="convolution", calls=5, flop=1100, traffic_bytes=3000),
        Part(name="pointwise", calls=6, flop=100, traffic_bytes=1000),
    ),
    modules=(
        Part(name="body.0", calls=10, flop=1000, traffic_bytes=4000),
        Part(name="head|<b>", calls=1, flop=200, traffic_bytes=0),
    ),
)
FAILED = Check(
    now=GROWN,
    baseline=cost(),
    file="b.json",
    conditions=("flop>+1%", "launches>+5", "predicted_s>+5%"),
)


def grid(check: Check, title: str = "Totals") -> Grid:
    return next(
        each for each in check.report().blocks if isinstance(each, Grid) and each.title == title
    )


def cells(check: Check, total: str) -> dict[str, str]:
    table = grid(check)
    row = next(row for row in table.rows if row[0] == total)
    return dict(zip((each.heading for each in table.columns), row, strict=True))


def test_the_verdict_comes_first_and_every_total_has_a_line() -> None:
    report = FAILED.report()
    assert report.headline == "net fails 1 of 3 conditions"
    assert report.blocks[1] == grid(FAILED)
    assert cells(FAILED, "FLOP") == {
        "total": "FLOP",
        "baseline": "1.00 kFLOP",
        "now": "1.20 kFLOP",
        "change": "+20.0 %",
        "fails if": "flop>+1%",
        "verdict": "fails",
    }
    assert cells(FAILED, "launches")["verdict"] == "passes"
    assert cells(FAILED, "traffic") | {"change": "same", "fails if": "", "verdict": ""} == cells(
        FAILED, "traffic"
    )


def test_what_changed_is_named_by_type_and_module_and_the_rest_is_not() -> None:
    types = grid(FAILED, "Changed operator types by change in FLOP")
    assert [row[0] for row in types.rows] == ["convolution"]
    assert types.rows[0][1:] == ("4 → 5", "900 FLOP → 1.10 kFLOP", "3.00 kB")
    modules = grid(FAILED, "Changed modules by change in FLOP")
    assert modules.rows == (("head|<b>", "none → 1", "none → 200 FLOP", "none → 0 B"),)


def test_without_a_baseline_and_conditions_there_are_no_empty_columns() -> None:
    table = grid(Check(now=counts_only()))
    assert [each.heading for each in table.columns] == ["total", "now"]
    assert {row[0] for row in table.rows} == {
        *("FLOP", "MACs", "traffic", "parameters", "peak memory", "launches")
    }


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (100, 100, "same"),
        (100, 101, "+1.00 %"),
        (1000, 950, "-5.00 %"),
        (100, 250, "+150 %"),
        (10**9, 10**9 + 3, "+3 FLOP"),
        (10**9, 10**9 - 3, "-3 FLOP"),
        (0, 7, "+7 FLOP"),
        (None, 7, "–"),
        (7, None, "–"),
    ],
)
def test_changes_are_told_so_that_none_looks_like_nothing(
    before: int | None, now: int | None, words: str
) -> None:
    def of(flop: int | None) -> Cost:
        unknown = {"macs": None, "unknown_operators": 1} if flop is None else {}
        return cost(flop=flop, **unknown)

    assert cells(Check(now=of(now), baseline=of(before)), "FLOP")["change"] == words


def test_markdown_is_a_table_for_a_pull_request_and_escapes_what_is_not_ours() -> None:
    text = FAILED.render("md")
    assert isinstance(text, str)
    lines = text.splitlines()
    assert lines[0] == "# net fails 1 of 3 conditions"
    head = next(line for line in lines if line.startswith("| total"))
    assert head == "| total | baseline | now | change | fails if | verdict |"
    rule = lines[lines.index(head) + 1]
    assert rule == "| --- | ---: | ---: | ---: | --- | --- |"
    assert "| head\\|&lt;b&gt; |" in text
    # Every row has as many cells as its head.
    assert all(
        line.replace("\\|", "").count("|") in (7, 5) for line in lines if line.startswith("|")
    )


def test_plain_text_names_failures_notes_and_the_baseline() -> None:
    other = cost(versions={"roofline": "0.0.9", "torch": "2.13.0"}, date="2026-01-02")
    text = str(
        Check(
            now=GROWN,
            baseline=other,
            file="b.json",
            conditions=FAILED.conditions,
            notes=("inputs were made up",),
        )
    )
    assert "flop>+1%: flop is 1.20 kFLOP, above 1.01 kFLOP" in text
    assert "roofline 0.0.9 → 0.1.0" in text
    assert "inputs were made up" in text
    assert "b.json · 2026-01-02 · host · Example 7 · 2 threads" in text


def test_in_a_pull_request_nobody_is_called_for() -> None:
    text = Check(now=counts_only(model="conv2d(4,4,3)@56x56 of a@b")).render("md")
    assert isinstance(text, str)
    # What looks like an address is none, and calls for nobody.
    assert "conv2d(4,4,3)@<!-- -->56x56 of a@b" in text
    assert ")@56x56" not in text
