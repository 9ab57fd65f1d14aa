"""The picture of a machine: which lines it has, where they lie, and that no words hide others."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

import roofline
from roofline.foundation.dtypes import dtype
from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile
from roofline.presentation.charts.hardware_chart import HardwareChart, hardware_chart_of
from roofline.presentation.charts.hardware_curves import SizeAxis
from roofline.presentation.charts.hardware_lines import colours_of
from roofline.presentation.charts.hardware_losses import loss_lines
from roofline.presentation.charts.hardware_roof import RoofPanel
from roofline.presentation.charts.labels import Box, Label
from roofline.presentation.drawing import savefig_bytes
from roofline.presentation.hardware_figure import plot_hardware
from tests.presentation.examples import bare_profile, dram_profile, full_profile
from tests.presentation.hardware_examples import device_profile, rich_profile


def memory_alone() -> HardwareProfile:
    return replace(full_profile(), compute=(), name="memory")


def curves_alone() -> HardwareProfile:
    """One curve of each kind, without the figures that follow from them."""
    rich = rich_profile()
    return replace(
        full_profile(),
        name="curves",
        latency_curve=rich.latency_curve,
        bandwidth_curves=rich.bandwidth_curves[:1],
    )


PROFILES = {
    each.name: each
    for each in (
        *(rich_profile(), device_profile(), full_profile(), dram_profile(), bare_profile()),
        *(memory_alone(), curves_alone(), load_hardware("h100"), load_hardware("epyc-9654")),
    )
}
everything = pytest.mark.parametrize("name", PROFILES)


def chart(name: str) -> HardwareChart:
    return hardware_chart_of(PROFILES[name])


def roof() -> RoofPanel:
    panel = chart("rich-2core").roof
    assert panel is not None
    return panel


def labels_of(chart: HardwareChart) -> list[Label]:
    found = list(chart.headings)
    if chart.roof:
        found += [*chart.roof.line_labels, *(label for _, _, label in chart.roof.ridges)]
    if chart.losses:
        found += [*chart.losses.names, chart.losses.key]
        for column in chart.losses.columns:
            found.append(column.heading)
            found += [label for bar in column.bars for label in (bar.words, bar.loss)]
            found += [label for _, label in column.ticks]
    for panel in chart.curves:
        found += [mark.label for mark in panel.marks]
        found += [course.label for course in panel.courses if course.label]
    return found


@everything
def test_no_words_hide_others_or_leave_the_paper(name: str) -> None:
    picture = chart(name)
    labels = labels_of(picture)
    paper = Box(0, 0, picture.width_pt, picture.height_pt)
    for label in labels:
        assert paper.holds(label.box), label.text
    for one, other in itertools.combinations(labels, 2):
        assert not one.box.grown(-0.5).overlaps(other.box), (one.text, other.text)


@everything
def test_what_is_not_known_has_no_panel(name: str) -> None:
    profile, picture = PROFILES[name], chart(name)
    assert (picture.losses is None) == (not loss_lines(profile))
    curves = bool(profile.latency_curve) + bool(profile.bandwidth_curves)
    assert len(picture.curves) == curves
    panels = (picture.roof, picture.losses, picture.curves)
    assert len(picture.headings) == sum(map(bool, panels))


@everything
def test_panels_do_not_overlap(name: str) -> None:
    picture = chart(name)
    frames = [panel.frame for panel in (picture.roof, *picture.curves) if panel]
    if picture.losses:
        bars = [bar.bar for column in picture.losses.columns for bar in column.bars]
        frames.append(
            Box(
                min(each.left for each in bars),
                min(each.bottom for each in bars),
                max(each.right for each in bars),
                max(each.top for each in bars),
            )
        )
    for one, other in itertools.combinations(frames, 2):
        assert not one.overlaps(other)


@everything
def test_every_profile_draws_the_same_every_time(name: str) -> None:
    first, second = (savefig_bytes(plot_hardware(PROFILES[name]), "svg") for _ in range(2))
    assert first == second
    ElementTree.fromstring(first)


def test_the_roof_has_both_kinds_and_one_thread_in_the_colours_of_the_types() -> None:
    found = {
        (each.ceiling.kind, each.alone, each.ceiling.label.rsplit(" ", 2)[0])
        for each in roof().lines
    }
    assert ("hardware", False, "float32 avx512 fma") in found
    assert ("hardware", False, "float32 avx512 fma-add") in found
    assert ("library", False, "float32 torch gemm") in found
    assert ("library", False, "float32 torch conv-channels-last") in found
    assert ("library", False, "float32 torch conv") not in found, "a layout of the same kernel"
    # One thread's roof is that of products: additions beside them speed no product up.
    assert ("hardware", True, "float32 avx512 fma, 1 thread") in found
    assert ("hardware", True, "float32 avx512 fma-add, 1 thread") not in found
    for each in roof().lines:
        of = dtype(each.ceiling.label.split()[0])
        assert each.colour == colours_of([of])[of.name]
    assert roof().kinds == ("hardware", "library", "alone")


def test_ridges_lie_where_float32_products_meet_each_level() -> None:
    """504.32 GFLOP/s over 150 GB/s of DRAM updates are 3.36 FLOP/byte."""
    x, y, label = roof().ridges[-1]
    assert (x, y) == (pytest.approx(504.32 / 150), pytest.approx(504.32e9))
    assert label.text == "3.36 FLOP/byte"
    assert [each.level for each in roof().diagonals] == ["L1", "L2", "L3", "DRAM"]
    assert len(roof().alone) == 4


def test_every_line_lies_within_the_axes() -> None:
    for name in PROFILES:
        panel = chart(name).roof
        assert panel is not None
        for (x0, y0), (x1, y1) in (
            *(each.ceiling.ends(panel.x) for each in panel.lines),
            *(each.ends(panel.x, panel.y) for each in (*panel.diagonals, *panel.alone)),
        ):
            assert panel.x.low <= x0 * 1.000001
            assert x0 <= x1 <= panel.x.high * 1.000001
            assert panel.y.low <= y0 * 1.000001
            assert y0 <= y1 <= panel.y.high * 1.000001


def test_bars_are_as_long_as_their_part_of_the_paper_figure() -> None:
    """512-bit FMA in float32: 98.5 % at the peak, 93.5 % in the median, on one thread."""
    losses = chart("rich-2core").losses
    assert losses is not None
    assert [column.heading.text for column in losses.columns] == ["1 thread", "2 threads"]
    row = [each.text for each in losses.names].index("float32 avx512 fma")
    bar = losses.columns[0].bars[row]
    whole = bar.paper_x_pt - bar.bar.left
    assert (bar.bar.right - bar.bar.left) / whole == pytest.approx(0.985)
    assert (bar.median_x_pt - bar.bar.left) / whole == pytest.approx(0.935)
    assert (bar.words.text, bar.loss.text) == ("252 of 256 GFLOP/s", "1.5 %")


def test_a_peak_above_paper_passes_its_mark() -> None:
    profile = device_profile()
    fast = replace(profile.compute[0], peak_flop_per_s=1236.25e12)
    losses = hardware_chart_of(replace(profile, compute=(fast,))).losses
    assert losses is not None
    bar = losses.columns[0].bars[0]
    share = (bar.bar.right - bar.bar.left) / (bar.paper_x_pt - bar.bar.left)
    assert share == pytest.approx(1.25)
    assert bar.loss.text == "-25.0 %"
    assert bar.words.text == "1.24 PFLOP/s of 989 TFLOP/s"


def test_doubtful_bars_say_so() -> None:
    losses = chart("rich-2core").losses
    assert losses is not None
    marked = [
        bar.words.text for column in losses.columns for bar in column.bars if "?" in bar.words.text
    ]
    assert marked == ["? 126 of 128 GFLOP/s"]


def test_curves_have_the_sizes_of_the_caches_as_marks() -> None:
    latency, bandwidth = chart("rich-2core").curves
    assert [mark.label.text for mark in latency.marks] == ["L1 48 KiB", "L2 1 MiB", "L3 32 MiB"]
    assert latency.courses[0].points[-1] == (128 * 2**20, pytest.approx(118.0))
    assert latency.courses[0].label is None
    assert [each.label and each.label.text for each in bandwidth.courses] == [
        *("read, 1 thread", "read, 2 threads")
    ]
    one, both = (each.label for each in bandwidth.courses)
    assert one is not None
    assert both is not None
    assert both.box.bottom >= one.box.top, "the higher line has the higher words"


def test_sizes_have_ticks_at_powers_of_two() -> None:
    axis = SizeAxis(title="", low=14e3, high=150e6, start_pt=0, end_pt=300)
    assert [text for _, text in axis.ticks] == ["64 KiB", "1 MiB", "16 MiB"]
    assert axis.between[0] == 16384
    short = replace(axis, high=300e3)
    assert [text for _, text in short.ticks] == ["16 KiB", "64 KiB", "256 KiB"]


def test_the_public_plot_takes_a_machine() -> None:
    figure = roofline.plot(rich_profile(), width_inch=9)
    assert figure.get_size_inches()[0] == 9
    text = "".join(ElementTree.fromstring(savefig_bytes(figure, "svg")).itertext())
    for words in ("What rich-2core can do", "library (torch), 2 threads", "L3 32 MiB"):
        assert words in text


def test_a_machine_of_very_many_ceilings_keeps_the_highest_and_says_how_many_are_left_out() -> None:
    """15 lines of compute and 2 of memory, and 60 made-up units of float32 beside them."""
    profile = rich_profile()
    first = next(each for each in profile.compute if each.theoretical)
    many = tuple(
        replace(
            first,
            unit=f"unit-{i}",
            peak_flop_per_s=(1 + i) * 1e9,
            sustained_flop_per_s=1e9,
            theoretical=replace(first.theoretical, per_s=(1 + i) * 1.1e9),
        )
        for i in range(60)
        if first.theoretical
    )
    crowded = replace(profile, compute=(*profile.compute, *many))
    lines, all_lines = loss_lines(crowded), 15 + 60 + 2
    assert len(lines) == 48
    losses = hardware_chart_of(crowded).losses
    assert losses is not None
    assert losses.key.text.endswith(f"{all_lines - 48} lower ones are in the table")
    names = [each.text for each in losses.names]
    assert "float32 avx512 fma-add" in names
    assert "DRAM read" in names
    assert "float32 unit-0 fma" not in names


@everything
def test_words_along_diagonals_hide_no_ridge(name: str) -> None:
    panel = chart(name).roof
    assert panel is not None
    words = [box for text in panel.diagonal_labels for box in text.boxes]
    assert not any(box.overlaps(label.box) for box in words for _, _, label in panel.ridges)
