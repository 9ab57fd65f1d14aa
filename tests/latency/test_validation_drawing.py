"""The picture of a validation: points, bands, rows and words, and that it draws."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.latency.accuracy import RatioValidation
from roofline.latency.validation import Validation
from roofline.plots.figures import any_script, new_figure
from tests.latency.judged import judged, validation


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
    "minimum times": validation(
        judged(0.1, eager_min_time_s=0.02), judged(0.2, eager_min_time_s=0.1, model="b")
    ),
    "no minimum times": validation(judged(0.1), judged(0.2, eager_min_time_s=0.0)),
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


def drawn(example: Validation, **options: Any) -> Any:
    figure = new_figure(10, 7.5)
    example.draw(figure, **options)
    with any_script():
        figure.draw_without_rendering()
    return figure


@functools.cache
def drawn_example(name: str) -> Any:
    return drawn(EXAMPLES[name])


def legend_of(figure: Any) -> list[str]:
    return [each.get_text() for each in figure.legends[0].get_texts()]


def notes_of(figure: Any) -> str:
    return figure.legends[0].get_title().get_text().replace("\n", " ")


def named(figure: Any) -> list[str]:
    """The names of points in the picture; none of its axes has other texts."""
    return [each.get_text() for each in figure.axes[0].texts]


def spots(axes: Any) -> list[tuple[float, float]]:
    """The places of all marks."""
    found = [tuple(map(float, spot)) for each in axes.collections for spot in each.get_offsets()]
    # Bands and intervals have no offsets.
    return [(x, y) for x, y in found if (x, y) != (0.0, 0.0)]


def test_a_run_stands_at_its_times_on_axes_of_one_scale() -> None:
    axes = drawn(validation(judged(0.1, 0.12), judged(0.4, 0.3, model="b"))).axes[0]
    assert spots(axes) == [(0.1, 0.12), (0.4, 0.3)]
    assert axes.get_xlim() == axes.get_ylim() and axes.get_box_aspect() == 1
    assert "200 ms" in [each.get_text() for each in axes.get_xticklabels()]


def test_the_settings_that_differ_have_looks_of_their_own() -> None:
    assert legend_of(drawn_example("many")) == [
        "bfloat16, 1 thread",
        "float32, 1 thread",
        "bfloat16, 2 threads",
        "float32, 2 threads",
        "batch 1",
        "batch 8",
        "predicted = measured",
        "within ±10 %",
        "within ±20 %",
        "80 % prediction interval",
    ]


def test_what_all_runs_share_is_in_the_subtitle_and_not_in_the_legend() -> None:
    figure = drawn_example("three")
    assert legend_of(figure) == ["predicted = measured", "within ±10 %", "within ±20 %"]
    subtitle = figure.axes[0].get_title(loc="left")
    assert "batch 1, float32, 1 thread" in subtitle
    assert "imagined" in subtitle and "measured on 2026-03-04" in subtitle


def test_settings_beyond_the_looks_share_the_last() -> None:
    runs = [judged(1, 1, threads=t, batch=b) for t in range(1, 13) for b in (*range(1, 8), None)]
    texts = legend_of(drawn(validation(*runs)))
    assert texts.count("others") == 2
    assert "1 thread" in texts and "batch 1" in texts
    assert len(texts) == 8 + 5 + 3


def test_few_are_all_named_and_of_many_the_worst() -> None:
    assert named(drawn_example("three")) == ["m1 +10 %", "m2 +10 %", "m3 +10 %"]
    found = named(drawn_example("many"))
    assert 3 <= len(found) <= 10
    assert all(each.endswith(" +60 %") for each in found)
    assert not named(drawn(many(30), labels=0))
    assert not named(drawn(EXAMPLES["three"], labels=0))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_title_is_the_verdict_and_no_words_hide_each_other(name: str) -> None:
    figure = drawn_example(name)
    assert figure.get_suptitle().replace("\n", " ") == EXAMPLES[name].summary
    boxes = [each.get_window_extent() for each in figure.axes[0].texts]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.padded(-1.5).overlaps(other.padded(-1.5))


def test_families_stand_in_rows_the_worst_first() -> None:
    example = validation(
        judged(100, 110, family="near"),
        judged(100, 150, family="far"),
        judged(100, 70, family="far"),
        judged(100, 100, family="exact"),
    )
    rows = drawn(example).axes[1]
    assert [each.get_text() for each in rows.get_yticklabels()] == ["far", "near", "exact"]
    assert [each.get_text() for each in rows.texts] == ["40.0 %", "10.0 %", "0 %"]
    assert sorted(x for x, y in spots(rows) if y < 0.5) == pytest.approx([0.7, 1.5])


def test_families_beyond_the_rows_are_taken_together() -> None:
    runs = [judged(100, 100 + i, family=f"f{i:02}") for i in range(40)]
    rows = drawn(validation(*runs)).axes[1]
    names = [each.get_text() for each in rows.get_yticklabels()]
    assert len(names) == 24 and (names[0], names[-1]) == ("f39", "17 others")
    # Those off by 0 to 16 %.
    assert rows.texts[-1].get_text() == "8.0 %"
    assert len(spots(rows)) == 40


def test_minimum_times_are_drawn_where_nothing_was_predicted() -> None:
    figure = drawn_example("minimum times")
    left, right = figure.axes
    assert spots(left) == [(0.1, 0.02), (0.2, 0.1)]
    assert left.get_ylabel() == "minimum time (eager)"
    assert "roofline calibrate" in notes_of(figure)
    # They are no predictions with an error.
    assert named(figure) == ["net", "b"]
    assert [each.get_text() for each in right.texts] == ["35.0 %"]
    assert legend_of(figure) == ["minimum = measured"]


def test_runs_without_a_prediction_are_counted() -> None:
    figure = drawn(validation(judged(1, 1), judged(2, eager_min_time_s=1.0), judged(3)))
    assert spots(figure.axes[0]) == [(1, 1)]
    assert notes_of(figure) == "2 of 3 runs could not be predicted: not drawn"


def test_speedups_are_drawn_where_no_model_ran() -> None:
    left, right = drawn_example("ratios").axes
    assert [x for x, _ in spots(left)] == [2, 2, 4, 4]
    assert {each.get_text() for each in right.get_yticklabels()} == {"16 channels", "32 channels"}
    both = drawn(validation(judged(1, 1), ratios=EXAMPLES["ratios"].ratios))
    assert both.axes[0].get_ylabel() == "predicted time"
    assert "4 pairs of designs" in notes_of(both)


@pytest.mark.parametrize("name", ["nothing", "no minimum times"])
def test_where_there_is_nothing_to_draw_it_says_so(name: str) -> None:
    assert len(drawn_example(name).axes) == 1
    assert "No predictions and no minimum times" in notes_of(drawn_example(name))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.sampled_from(["a", "b"]), st.booleans()
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_times_are_drawn(runs: list[tuple[float, float, str, bool]]) -> None:
    spans = ({"predicted_low_s": 0.0, "predicted_high_s": 2 * said} for _, said, _, _ in runs)
    example = validation(
        *(
            judged(took, said, family=family, model="net", **(span if wide else {}))
            for (took, said, family, wide), span in zip(runs, spans, strict=True)
        )
    )
    axes = drawn(example).axes[0]
    low, high = axes.get_xlim()
    assert len(spots(axes)) == len(runs)
    assert all(low < value < high for spot in spots(axes) for value in spot)


@pytest.mark.parametrize("name", ["hostile", "nothing", "ratios"])
def test_examples_are_written(name: str) -> None:
    """All of them are drawn above."""
    assert bytes(EXAMPLES[name].render("png")).startswith(b"\x89PNG")  # pyright: ignore[reportArgumentType]
    assert "\x1b" not in str(EXAMPLES[name].render("svg"))
