"""The picture of a validation: where points, bands, rows and words stand, and that it draws."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.latency.validation import RatioValidation, Validation
from roofline.plots.style import Style
from roofline.presentation.charts.labels import Label, text_width_pt
from roofline.presentation.charts.validation_chart import (
    TITLE_SIZE_PT,
    ValidationChart,
    validation_chart_of,
)
from roofline.presentation.charts.validation_rows import ErrorRows
from roofline.presentation.drawing import savefig_bytes
from roofline.presentation.reports.validation_report import verdict
from roofline.presentation.validation_figure import plot_validation
from tests.latency.judged import judged, validation


def named(chart: ValidationChart) -> dict[str, Label | None]:
    return {mark.point.name: mark.label for mark in chart.marks}


def rows_of(chart: ValidationChart) -> ErrorRows:
    assert chart.rows is not None
    return chart.rows


def words(chart: ValidationChart) -> list[str]:
    return [entry.label.text for entry in chart.key]


def many(count: int = 200) -> Validation:
    """Runs of six families in eight settings, 3 % off but every tenth, which is 60 % off."""
    return validation(
        *(
            judged(
                0.01 * 1.03**i,
                0.01 * 1.03**i * (1.6 if i % 10 == 0 else 1.03),
                model=f"model{i}",
                family=f"family{i % 6}",
                threads=1 + i % 2,
                dtype=("float32", "bfloat16")[i // 2 % 2],
                batch=(1, 8)[i // 4 % 2],
                predicted_low_s=0.005 * 1.03**i,
                predicted_high_s=0.02 * 1.03**i,
            )
            for i in range(count)
        )
    )


EXAMPLES = {
    "many": many(),
    "three": validation(*(judged(i, i * 1.1, model=f"m{i}", family=f"f{i}") for i in (1, 2, 3))),
    "one": validation(judged(0.01, 0.02, predicted_low_s=0.0, predicted_high_s=0.5)),
    "all alike": validation(*[judged(1.0, 1.0)] * 50),
    "far off": validation(judged(1e-5, 100.0), judged(1.0, 1e-4, model="b")),
    "bounds": validation(judged(0.1, bound_s=0.02), judged(0.2, bound_s=0.1, model="b")),
    "no bounds": validation(judged(0.1), judged(0.2, bound_s=0.0)),
    "ratios": validation(
        ratios=tuple(
            RatioValidation(name=f"design {c} channels, {p} px", predicted=c / p, measured=c / 8)
            for c in (16, 32)
            for p in (7, 14)
        )
    ),
    "nothing": validation(),
    "hostile": validation(
        judged(1, 1.4, model="\x1b$a_b$<b>" + "x" * 200, family="模型" * 40, dtype="\x1b<i>"),
        judged(1, 1.4, model="b", dtype="y" * 300, batch=None),
    ),
}


def test_a_run_stands_at_its_times() -> None:
    chart = validation_chart_of(validation(judged(0.1, 0.12), judged(0.4, 0.3, model="b")))
    assert chart.x and chart.y
    assert [(mark.point.measured, mark.point.said) for mark in chart.marks] == [
        (0.1, 0.12),
        (0.4, 0.3),
    ]
    # One scale: what was predicted right is as far up as it is to the right.
    for value in (0.1, 0.2, 0.4):
        right, up = chart.x.pt(value) - chart.x.start_pt, chart.y.pt(value) - chart.y.start_pt
        assert right == pytest.approx(up)
    assert ("200 ms") in [text for _, text in chart.x.ticks]


def test_bands_are_ten_and_twenty_percent() -> None:
    chart = validation_chart_of(EXAMPLES["three"])
    assert chart.bands == (0.2, 0.1)
    rows = rows_of(chart)
    wide, narrow = rows.bands
    assert [rows.axis.value(each) for each in (wide.left, wide.right)] == pytest.approx([0.8, 1.2])
    ends = [rows.axis.value(each) for each in (narrow.left, narrow.right)]
    assert ends == pytest.approx([0.9, 1.1])
    assert rows.axis.value(rows.exact.x0) == pytest.approx(1)


def test_the_title_is_the_verdict() -> None:
    for example in EXAMPLES.values():
        assert " ".join(validation_chart_of(example).title) == verdict(example)
    first, second = validation_chart_of(
        validation(*(judged(1, 1, remeasured_s=1.02, model=f"m{i}") for i in range(432)))
    ).title
    assert first.endswith("models;") and second.startswith("100 % are within")
    narrow = validation_chart_of(EXAMPLES["three"], width_pt=504)
    assert " ".join(narrow.title) == verdict(EXAMPLES["three"])
    assert rows_of(narrow).area.right - rows_of(narrow).area.left >= 90


def test_the_settings_that_differ_are_told_apart() -> None:
    chart = validation_chart_of(many())
    assert words(chart) == [
        "bfloat16, 1 thread",
        "float32, 1 thread",
        "bfloat16, 2 threads",
        "float32, 2 threads",
        "batch 1",
        "batch 8",
        "predicted = measured",
        "within ±10 %",
        "within ±20 %",
        "interval, 10–90 %",
    ]
    # Four colours times two markers, none for two settings.
    looks = {mark.point.style: None for mark in chart.marks}
    assert len(looks) == len({each.setting for each in many().models}) == 8
    key = {entry.label.text: entry.style for entry in chart.key}
    run, mark = many().models[0], chart.marks[0]
    colour, marker = key[f"{run.dtype}, 1 thread"], key[f"batch {run.batch}"]
    assert colour and marker
    assert mark.point.style == Style(colour.colour, marker.marker)


def test_what_all_runs_share_is_in_the_subtitle_and_not_in_the_legend() -> None:
    chart = validation_chart_of(EXAMPLES["three"])
    assert words(chart) == ["predicted = measured", "within ±10 %", "within ±20 %"]
    assert "batch 1, float32, 1 thread" in chart.subtitle
    assert "imagined" in chart.subtitle and "measured on 2026-03-04" in chart.subtitle


def test_settings_beyond_the_colours_share_the_last() -> None:
    runs = [judged(1, 1, threads=t, batch=b) for t in range(1, 13) for b in (*range(1, 8), None)]
    chart = validation_chart_of(validation(*runs))
    said = words(chart)
    assert said.count("others") == 2
    assert "1 thread" in said and "batch 1" in said
    assert len({mark.point.style for mark in chart.marks}) == 8 * 5


def test_few_are_all_named_and_of_many_the_worst() -> None:
    few = named(validation_chart_of(EXAMPLES["three"]))
    assert [label.text for label in few.values() if label] == ["m1 +10 %", "m2 +10 %", "m3 +10 %"]
    found = {name: label for name, label in named(validation_chart_of(many())).items() if label}
    assert 3 <= len(found) <= 10
    assert all(label.text.endswith(" +60 %") for label in found.values())
    assert not any(named(validation_chart_of(many(), labels=0)).values())
    assert not any(named(validation_chart_of(EXAMPLES["three"], labels=0)).values())


def test_no_words_hide_each_other_or_a_mark() -> None:
    for example in EXAMPLES.values():
        chart = validation_chart_of(example)
        boxes = [mark.label.box for mark in chart.marks if mark.label]
        for one, other in itertools.combinations(boxes, 2):
            assert not one.overlaps(other)
        for mark in chart.marks:
            assert chart.x and chart.y
            x, y = chart.x.pt(mark.point.measured), chart.y.pt(mark.point.said)
            assert not any(box.left < x < box.right and box.bottom < y < box.top for box in boxes)


def test_everything_stands_in_the_picture() -> None:
    for example in EXAMPLES.values():
        chart = validation_chart_of(example)
        labels = [entry.label for entry in chart.key]
        if chart.rows:
            rows = chart.rows
            labels += [*rows.headings, rows.title, *(label for _, label in rows.ticks)]
            labels += [label for row in rows.rows for label in (row.name, row.mean)]
            for row in rows.rows:
                for x, _, _ in row.dots:
                    assert rows.area.left - 1 <= x <= rows.area.right + 1
        for label in labels:
            assert label.box.left >= 0 and label.box.right <= chart.width_pt, label.text
            assert label.box.bottom >= 0 and label.box.top <= chart.height_pt, label.text
        for line in chart.title:
            assert text_width_pt(line, TITLE_SIZE_PT) <= chart.width_pt


def test_an_interval_ends_where_the_axis_does() -> None:
    (mark,) = validation_chart_of(EXAMPLES["one"]).marks
    chart = validation_chart_of(EXAMPLES["one"])
    assert chart.y and mark.interval == (chart.y.low, chart.y.high)
    (mark,) = validation_chart_of(
        validation(judged(1.0, 1.1, predicted_low_s=1.0, predicted_high_s=1.2))
    ).marks
    assert mark.interval == (1.0, 1.2)


def test_families_stand_in_rows_the_worst_first() -> None:
    rows = rows_of(
        validation_chart_of(
            validation(
                judged(100, 110, family="near"),
                judged(100, 150, family="far"),
                judged(100, 70, family="far"),
                judged(100, 100, family="exact"),
            )
        )
    )
    assert [(row.name.text, row.mean.text) for row in rows.rows] == [
        ("far", "40.0 %"),
        ("near", "10.0 %"),
        ("exact", "0 %"),
    ]
    far = [rows.axis.value(x) for x, _, _ in rows.rows[0].dots]
    assert far == pytest.approx([0.7, 1.5])


def test_families_beyond_the_rows_are_taken_together() -> None:
    runs = [judged(100, 100 + i, family=f"f{i:02}") for i in range(40)]
    rows = rows_of(validation_chart_of(validation(*runs))).rows
    assert len(rows) == 24
    assert rows[0].name.text == "f39"
    # Those off by 0 to 16 %.
    assert (rows[-1].name.text, rows[-1].mean.text) == ("17 others", "8.0 %")
    assert sum(len(row.dots) for row in rows) == 40


def test_dots_of_a_row_lie_beside_each_other() -> None:
    (row,) = rows_of(validation_chart_of(EXAMPLES["all alike"])).rows
    heights = {y for _, y, _ in row.dots}
    assert len(row.dots) == 50 and len(heights) > 1
    rows = rows_of(validation_chart_of(EXAMPLES["all alike"]))
    assert all(rows.area.bottom < y < rows.area.top for y in heights)


def test_bounds_are_drawn_where_nothing_was_predicted() -> None:
    chart = validation_chart_of(EXAMPLES["bounds"])
    assert chart.drawn == "bounds" and not chart.bands
    assert [mark.point.said for mark in chart.marks] == [0.02, 0.1]
    assert chart.title[0].startswith("Nothing was predicted: there are only bounds")
    assert "roofline calibrate" in chart.notes[0]
    # They are no predictions with an error.
    assert [label.text for label in named(chart).values() if label] == ["net", "b"]
    (row,) = rows_of(chart).rows
    assert row.mean.text == "35.0 %"
    assert "bound" in words(chart) and "predicted = measured" not in words(chart)


def test_runs_without_a_prediction_are_counted() -> None:
    chart = validation_chart_of(validation(judged(1, 1), judged(2, bound_s=1.0), judged(3)))
    assert len(chart.marks) == 1
    assert chart.notes == ("2 of 3 runs could not be predicted: not drawn",)


def test_speed_ups_are_drawn_where_no_model_ran() -> None:
    chart = validation_chart_of(EXAMPLES["ratios"])
    assert chart.drawn == "speed-ups"
    assert [mark.point.measured for mark in chart.marks] == [2, 2, 4, 4]
    assert {row.name.text for row in rows_of(chart).rows} == {"16 channels", "32 channels"}
    both = validation(judged(1, 1), ratios=EXAMPLES["ratios"].ratios)
    assert validation_chart_of(both).drawn == "predictions"
    assert "4 pairs of designs" in validation_chart_of(both).notes[0]


@pytest.mark.parametrize("name", ["nothing", "no bounds"])
def test_where_there_is_nothing_to_draw_it_says_so(name: str) -> None:
    chart = validation_chart_of(EXAMPLES[name])
    assert chart.drawn == "nothing" and chart.x is None and not chart.marks and not chart.rows
    assert chart.notes == ("There is neither a prediction nor a bound to draw: see the tables",)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.sampled_from(["a", "b"]), st.booleans()
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_times_find_their_place(times: list[tuple[float, float, str, bool]]) -> None:
    runs = [
        judged(measured, said, family=family, dtype="float32" if plain else "bfloat16")
        for measured, said, family, plain in times
    ]
    chart = validation_chart_of(validation(*runs))
    assert chart.x and chart.y
    for mark in chart.marks:
        assert chart.x.low < mark.point.measured < chart.x.high
        assert chart.y.low < mark.point.said < chart.y.high
    assert chart.x.ticks
    shown = sum(len(row.dots) for row in rows_of(chart).rows)
    assert shown == len(times)
    assert math.isclose(chart.x.end_pt - chart.x.start_pt, chart.y.end_pt - chart.y.start_pt)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_draws(name: str) -> None:
    assert savefig_bytes(plot_validation(EXAMPLES[name]), "png").startswith(b"\x89PNG")


def test_svg_is_the_same_every_time_and_its_text_is_text() -> None:
    first, second = (savefig_bytes(plot_validation(EXAMPLES["three"]), "svg") for _ in range(2))
    assert first == second
    text = "".join(ElementTree.fromstring(first).itertext())
    for words in ("Predictions are off by 10.0 %", "measured time", "m1 +10 %", "within ±20 %"):
        assert words in text


def test_names_are_escaped_in_svg_and_dollars_begin_no_formula() -> None:
    root = ElementTree.fromstring(savefig_bytes(plot_validation(EXAMPLES["hostile"]), "svg"))
    assert not [each for each in root.iter() if each.tag.endswith(("script", "image"))]
    assert "\x1b" not in "".join(root.itertext())


def test_words_are_no_wider_than_was_estimated() -> None:
    figure = plot_validation(many())
    figure.canvas.draw()
    paper = figure.axes[-1]
    chart = validation_chart_of(many())
    boxes = {label.text: label.box for label in named(chart).values() if label}
    boxes |= {entry.label.text: entry.label.box for entry in chart.key}
    seen = 0
    for text in paper.texts:
        box = boxes.get(text.get_text())
        if box is not None:
            drawn = text.get_window_extent().transformed(paper.transData.inverted())
            assert drawn.x1 <= box.right + 0.5 and drawn.x0 >= box.left - 0.5
            seen += 1
    assert seen == len(boxes)


def test_the_width_is_as_asked() -> None:
    figure = plot_validation(EXAMPLES["three"], width_inch=8)
    assert figure.get_size_inches()[0] == 8
    assert EXAMPLES["three"].plot(width_inch=8).get_size_inches()[0] == 8
