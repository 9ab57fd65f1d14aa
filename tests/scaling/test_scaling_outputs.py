"""Reports, files and pictures of training on several ranks, from one made-up step."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from roofline.analysis import Analysis, read_analysis
from roofline.core.blocks import View
from roofline.errors import InputError
from roofline.placement import Bound
from roofline.render.console import plain_text
from roofline.result import read_result
from roofline.scaling.drawing import LINK, lines_of, points_of
from roofline.scaling.memory import Peak
from roofline.scaling.ranks import Step, scaling_of, times_of
from roofline.scaling.result import Scaling
from roofline.scaling.settings import RankLink, Settings
from tests.scaling.gradients import gradient

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="module")
def step() -> Analysis:
    return read_analysis(DATA / "analysis-lesson.json")


def scaled(
    step: Analysis,
    ranks: int = 8,
    rate: float = 1e9,
    slowdown: float | None = None,
    **settings: object,
) -> Scaling:
    passes = sum(row.phase != "optimizer" for row in step.operators)
    return scaling_of(
        Step(
            analysis=step,
            gradients=tuple(gradient(place, 300_000, passes - 4 + place) for place in range(4)),
            accumulating=Peak(activation_bytes=1000, gradient_bytes=5_000_000),
            slowdown=slowdown,
        ),
        Settings(ranks=ranks, **settings),  # pyright: ignore[reportArgumentType]  as given
        RankLink(name="made up", bytes_per_s=rate, latency_s=1e-6),
        notes=("something to know",),
    )


def test_the_report_says_what_the_value_holds(step: Analysis) -> None:
    told = scaled(step)
    text = plain_text(told.report(View(verbose=True)))
    assert text.startswith(told.summary)
    for words in ("→ 8", "made up", "something to know", "sharded optimizer", "p3"):
        assert words in text


def test_ranks_that_slow_each_other_down_compute_longer_and_send_as_long(step: Analysis) -> None:
    usual, slowed = scaled(step, ranks=2), scaled(step, ranks=2, slowdown=1.5)
    assert (slowed.alone_s, slowed.slowdown) == (usual.alone_s, 1.5)
    assert slowed.point.transfer_s == usual.point.transfer_s
    for told, times in ((usual, 1.0), (slowed, 1.5)):
        assert told.alone_s and told.point.step_s and told.point.step_high_s
        assert told.point.step_s >= times * told.alone_s
        assert told.point.step_high_s >= times * told.alone_s + told.point.transfer_s
        assert told.points[0].ranks == 1 and told.points[0].step_s == pytest.approx(told.alone_s)
    assert "1.50× slower next to other ranks" in str(slowed)
    assert "other ranks" not in str(usual)


def test_csv_has_a_row_for_each_number_of_ranks(step: Analysis) -> None:
    told = scaled(step, ranks=6)
    rows = list(csv.DictReader(io.StringIO(str(told.render("csv")))))
    assert [int(row["ranks"]) for row in rows] == [each.ranks for each in told.points]
    assert 6 in [int(row["ranks"]) for row in rows]
    frame = told.to_frame()
    assert list(frame["memory_bytes"]) == [each.memory.total_bytes for each in told.points]
    assert [float(row["step_s"]) for row in rows] == pytest.approx(list(frame["step_s"]))


def test_json_has_all_of_it(step: Analysis, tmp_path: Path) -> None:
    told = scaled(step)
    told.save(tmp_path / "told.json")
    assert read_result(tmp_path / "told.json") == told
    data = json.loads((tmp_path / "told.json").read_text())
    assert (data["kind"], data["schema_version"]) == ("scaling", 1)
    assert sum(each["size_bytes"] for each in data["buckets"]) == told.gradient_bytes == 4_800_000
    assert len(data["points"]) == len(told.points)
    assert data["analysis"]["model"] == step.model


def test_the_link_is_one_more_roof_and_no_step_is_above_it(step: Analysis) -> None:
    told = scaled(step, rate=1e8)
    (link,) = (each for each in lines_of(told).diagonals if each.level == LINK)
    assert link.bytes_per_s == 1e8
    steps = points_of(told)
    assert len(steps) == len(told.points) - 1
    for each in steps:
        assert each.flop_per_s <= link.bytes_per_s * each.flop_per_byte * (1 + 1e-9)
    assert isinstance(told.plot(), Figure)


def test_slower_links_leave_less(step: Analysis) -> None:
    fast, slow = scaled(step, rate=1e12), scaled(step, rate=1e6)
    assert fast.point.efficiency and slow.point.efficiency
    assert slow.point.efficiency < fast.point.efficiency
    assert slow.point.max_efficiency and fast.point.max_efficiency
    assert slow.point.max_efficiency < fast.point.max_efficiency
    assert (
        slow.first_inefficient_rank_count() == 2 and slow.first_inefficient_rank_count(0.0) is None
    )


def test_times_are_the_best_kind_that_every_operator_has(step: Analysis) -> None:
    kind, times_s = times_of(step)
    assert kind == "bound" and times_s is not None
    assert sum(times_s) == pytest.approx(step.totals.eager_min_time_s)
    measured = tuple(replace(row, measured_s=1e-3) for row in step.operators)
    kind, times_s = times_of(replace(step, operators=measured))
    assert kind == "measured" and times_s == pytest.approx([1e-3] * len(measured))
    without = tuple(replace(row, measured_s=None) for row in measured[:1])
    assert times_of(replace(step, operators=(*without, *measured[1:])))[0] == "bound"


def test_accumulating_keeps_what_its_peak_says(step: Analysis) -> None:
    memory = scaled(step, accumulate=2).point.memory
    assert (memory.activation_bytes, memory.gradient_bytes) == (1000, 5_000_000)
    assert memory.bucket_bytes == 4_800_000


def test_sharing_out_by_hand(step: Analysis) -> None:
    # Four equal parameters on three ranks: one of them gets two.
    assert scaled(step, ranks=3, sharded=True).point.memory.optimizer_bytes == 4_800_000
    assert scaled(step, ranks=4, sharded=True).point.memory.optimizer_bytes == 2_400_000


def test_without_gradients_there_is_nothing_to_send(step: Analysis) -> None:
    with pytest.raises(InputError, match="nothing to reduce"):
        scaling_of(
            Step(
                analysis=step,
                gradients=(),
                accumulating=Peak(activation_bytes=0, gradient_bytes=0),
            ),
            Settings(ranks=2),
            RankLink(name="any", bytes_per_s=1.0, latency_s=0.0),
        )


def test_times_that_are_not_known_stay_unknown(step: Analysis) -> None:
    rows = tuple(
        row
        if row.bound is Bound.FREE
        else replace(row, bound=Bound.UNKNOWN, eager_min_time_s=None, attainable_flop_per_s=None)
        for row in step.operators
    )
    told = scaled(replace(step, operators=rows))
    assert told.alone_s is None
    for each in told.points:
        assert (each.step_s, each.efficiency, each.speedup, each.timeline) == (None,) * 4
    assert told.gradient_bytes == 4_800_000 and told.point.transfer_s > 0
    text = str(told)
    assert "time unknown" in text and "0 %" not in text
    assert ",,," in str(told.render("csv")) and "null" in told.to_json()
    assert isinstance(told.plot(), Figure)


def test_whatever_is_told_says_what_its_times_are(step: Analysis) -> None:
    bound = scaled(step)
    rows = tuple(
        row if row.bound is Bound.FREE else replace(row, measured_s=1e-3) for row in step.operators
    )
    measured = scaled(replace(step, operators=rows))
    for told, words, kind in (
        (bound, "minimum compute time", "bound"),
        (measured, "measured compute", "measured"),
    ):
        assert words in told.summary
        for format in ("md", "html"):
            assert words in str(told.render(format)).partition("Scaling by number of ranks")[2]
        csv_rows = list(csv.DictReader(io.StringIO(str(told.render("csv")))))
        assert {row["times"] for row in csv_rows} == {kind}
        assert {row["link"] for row in csv_rows} == {told.link_words}
        assert json.loads(told.to_json())["time_kind"] == kind
    # Speedup and samples/s are upper limits, efficiency is not.
    assert "speedup ≤" in bound.summary
    assert "samples/s ≤" in str(bound)
    assert "≤" not in str(measured)


def test_one_rank_without_a_link_is_told_and_drawn(step: Analysis) -> None:
    told = replace(scaled(step, ranks=1), link=None)
    told = replace(told, points=told.points[:1])
    text = str(told)
    assert "no communication" in text and "none (one rank)" in text
    assert json.loads(told.to_json())["link"] is None
    assert all(each.level != LINK for each in lines_of(told).diagonals)
    assert isinstance(told.plot(), Figure)
    assert list(told.to_frame()["link"]) == [""]


def test_efficiencies_above_one_are_not_cut(step: Analysis) -> None:
    told = scaled(step, rate=1e15, ranks=4, sharded=True)
    _, panel = told.plot().axes
    highest = max(each.max_efficiency or 0.0 for each in told.points)
    assert highest > 1 and panel.get_ylim()[1] > highest


def with_capacity(step: Analysis, byte: int) -> Analysis:
    memory = replace(step.hardware.memory[-1], capacity_bytes=byte, scope="shared")
    return replace(step, hardware=replace(step.hardware, memory=(memory,)))


def test_a_rank_is_held_against_the_memory_of_its_machine(step: Analysis) -> None:
    """To the last byte, in the report, the verdict and every file."""
    whole = scaled(step).point.memory.total_bytes
    small = scaled(with_capacity(step, whole))
    large = scaled(with_capacity(step, whole - 1))
    assert (large.point.fits, small.point.fits) == (False, True)
    assert "; a rank does not fit: " in large.summary
    assert "does not fit" not in small.summary
    text = str(large.render("md"))
    assert any("fits in memory" in line for line in text.splitlines())
    rows = list(csv.DictReader(io.StringIO(str(large.render("csv")))))
    assert {row["memory_capacity_bytes"] for row in rows} == {str(whole - 1)}
    assert {row["ranks"]: row["fits"] for row in rows}["8"] == "false"
    point = next(each for each in json.loads(large.to_json())["points"] if each["ranks"] == 8)
    assert point["fits"] is False
    assert large.to_frame()["fits"].isna().sum() == 0


def test_an_unknown_capacity_is_said_once(step: Analysis) -> None:
    told = scaled(step)
    assert told.memory_capacity_bytes is None
    text = str(told)
    assert text.count("memory capacity not known") == 1
    assert "does not fit" not in text
    assert told.to_frame()["fits"].isna().all()
