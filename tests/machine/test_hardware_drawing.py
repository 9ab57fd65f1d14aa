"""The picture of a machine: its lines, bars and curves, and that their words can be read."""

from __future__ import annotations

import functools
import itertools
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

import roofline
from roofline.machine.catalog import load_hardware
from roofline.machine.drawing import loss_lines, roof_of
from roofline.machine.hardware import HardwareProfile
from roofline.machine.quantities import first_of
from roofline.plots.figures import new_figure, saved
from roofline.plots.style import BLUE, PURPLE, VERMILION
from tests.analysis.examples import bare_profile, dram_profile, full_profile
from tests.machine.hardware_examples import device_profile, rich_profile

ROOF, LOSSES, CURVES = ("FLOP/s", "share", "working set per thread")


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


def drawn(profile: HardwareProfile) -> Any:
    figure = profile._figure(new_figure, 10.0, None, {})  # pyright: ignore[reportPrivateUsage]
    figure.draw_without_rendering()
    return figure


@functools.cache
def figure_of(name: str) -> Any:
    return drawn(PROFILES[name])


def panels(figure: Any) -> dict[str, list[Any]]:
    """The axes by what they show."""
    found: dict[str, list[Any]] = {ROOF: [], LOSSES: [], CURVES: []}
    for axes in figure.axes:
        kind = ROOF if axes.get_ylabel() == "FLOP/s" else axes.get_xlabel() or LOSSES
        found[CURVES if kind == CURVES else kind].append(axes)
    return found


def words(axes: Any) -> list[str]:
    return [each.get_text() for each in axes.texts]


@everything
def test_words_stand_on_the_paper_and_not_on_each_other(name: str) -> None:
    figure = figure_of(name)
    for axes in figure.axes:
        level: list[Text] = [
            each for each in axes.texts if each.get_text() and not each.get_rotation()
        ]
        # Of annotations, without their leaders.
        boxes = [(each.get_text(), Text.get_window_extent(each)) for each in level]
        for text, box in boxes:
            assert box.x0 >= -1 and box.x1 <= figure.bbox.width + 1, text
            assert box.y0 >= -1 and box.y1 <= figure.bbox.height + 1, text
        for (one, box), (other, other_box) in itertools.combinations(boxes, 2):
            assert not box.padded(-1).overlaps(other_box.padded(-1)), (one, other)


@everything
def test_what_is_not_known_has_no_panel(name: str) -> None:
    profile = PROFILES[name]
    found = panels(figure_of(name))
    assert len(found[ROOF]) == 1
    assert bool(found[LOSSES]) == bool(loss_lines(profile))
    curves = bool(profile.latency_curve) + bool(profile.bandwidth_curves)
    assert len(found[CURVES]) == curves


@everything
def test_every_profile_draws_the_same_every_time(name: str) -> None:
    first, second = (PROFILES[name].render("svg") for _ in range(2))
    assert first == second
    ElementTree.fromstring(str(first))


def test_a_machine_of_which_nothing_is_known_is_drawn() -> None:
    nothing = HardwareProfile(name="nothing", device="cpu", threads=1)
    assert "Roofline of nothing" in str(nothing.render("svg"))


def test_the_roof_has_both_kinds_and_one_thread_in_the_colors_of_the_types() -> None:
    found = {each.label.rsplit(" ", 2)[0]: each for each in roof_of(rich_profile()).ceilings}
    kinds = {name: (each.kind, each.main, each.color) for name, each in found.items()}
    assert kinds["float32 AVX-512 FMA"] == ("hardware", True, VERMILION)
    assert kinds["float32 AVX-512 FMA + ADD"] == ("hardware", True, VERMILION)
    assert kinds["float64 torch gemm"] == ("library", True, BLUE)
    assert kinds["float32 torch conv-channels-last"] == ("library", True, VERMILION)
    assert "float32 torch conv" not in kinds, "a layout of the same kernel"
    assert kinds["int8 AVX-512-VNNI dot"] == ("hardware", True, PURPLE)
    # One thread's roof is that of products: additions beside them speed no product up.
    assert kinds["float32 AVX-512 FMA, 1 thread"] == ("hardware", False, VERMILION)
    assert "float32 AVX-512 FMA + ADD, 1 thread" not in kinds
    axes = panels(figure_of("rich-2core"))[ROOF][0]
    colors = {to_hex(each.get_color()) for each in axes.lines}
    assert {VERMILION, BLUE, PURPLE} <= colors
    legend = [each.get_text() for each in axes.get_legend().get_texts()]
    assert legend == ["hardware, 2 threads", "library (torch), 2 threads", "hardware, 1 thread"]


def test_ridges_lie_where_float32_products_meet_each_level() -> None:
    """504.32 GFLOP/s over 150 GB/s of DRAM updates are 3.36 FLOP/byte."""
    lines = roof_of(rich_profile())
    assert lines.main_top_flop_per_s == pytest.approx(504.32e9)
    assert [each.level for each in lines.diagonals] == ["L1", "L2", "L3", "DRAM"]
    assert lines.diagonals[-1].ridge_flop_per_byte == pytest.approx(504.32 / 150)
    assert lines.diagonals[-1].label == "DRAM update 150 GB/s"
    axes = panels(figure_of("rich-2core"))[ROOF][0]
    assert "3.36" in words(axes)
    thin = [each for each in axes.lines if each.get_linewidth() == 0.6]
    assert len(thin) == 4, "one thread's levels"


def losses_of(profile: HardwareProfile) -> dict[str, tuple[Any, Any, str]]:
    """Peak, median and words of each ceiling in the first column of bars."""
    axes = panels(drawn(profile))[LOSSES][0]
    names = [each.get_text() for each in axes.get_yticklabels()]
    _, bars = axes.containers
    medians = axes.lines[0].get_xdata()
    rows = zip(names, bars, medians, words(axes), strict=True)
    return {name: (bar.get_width(), median, text) for name, bar, median, text in rows}


def test_bars_are_as_long_as_their_part_of_the_theoretical_peak() -> None:
    """512-bit FMA in float32: 98.5 % at the peak, 93.5 % in the median, on one thread."""
    found = losses_of(rich_profile())
    peak, median, text = found["float32 AVX-512 FMA"]
    assert (peak, median) == (pytest.approx(0.985), pytest.approx(0.935))
    assert text == "252 of 256 GFLOP/s (1.5 %)"
    titles = [each.get_title("left") for each in panels(figure_of("rich-2core"))[LOSSES]]
    assert titles == ["1 thread", "2 threads"]
    assert not [text for *_, text in found.values() if "?" in text]
    _, all_threads = panels(figure_of("rich-2core"))[LOSSES]
    assert [each for each in words(all_threads) if "?" in each] == ["? 126 of 128 GFLOP/s (1.5 %)"]


def test_a_peak_above_theory_passes_its_mark() -> None:
    profile = device_profile()
    fast = replace(profile.compute[0], peak_flop_per_s=1236.25e12)
    found = losses_of(replace(profile, compute=(fast,)))
    peak, _, text = found["bfloat16 tensor-core gemm"]
    assert peak == pytest.approx(1.25)
    assert text == "1.24 PFLOP/s of 989 TFLOP/s (-25.0 %)"


def test_curves_have_the_sizes_of_the_caches_as_marks() -> None:
    latency, bandwidth = panels(figure_of("rich-2core"))[CURVES]
    assert words(latency) == ["L1 48 KiB", "L2 1 MiB", "L3 32 MiB"]
    sizes, values = latency.lines[0].get_data()
    assert (sizes[-1], values[-1]) == (128 * 2**20, pytest.approx(118e-9))
    assert latency.get_legend() is None
    ticks = [each.get_text() for each in latency.get_xticklabels()]
    assert [each for each in ticks if each] and "1 MiB" in ticks
    legend = [each.get_text() for each in bandwidth.get_legend().get_texts()]
    assert legend == ["read, 2 threads", "read, 1 thread"], "the higher line has the higher words"


def test_the_public_plot_takes_a_machine() -> None:
    figure = roofline.plot(rich_profile(), width_inch=9)
    assert figure.get_size_inches()[0] == 9
    text = "".join(ElementTree.fromstring(saved(figure, "svg")).itertext())
    for each in ("Roofline of rich-2core", "library (torch), 2 threads", "L3 32 MiB"):
        assert each in text


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
    assert f"{all_lines - 48} lower ceilings are in the report" in str(crowded.render("svg"))
    names = [first_of(each).label for each in lines]
    assert "float32 AVX-512 FMA + ADD" in names
    assert "DRAM read" in names
    assert "float32 unit-0 fma" not in names


def test_a_long_name_of_a_ceiling_leaves_the_picture_its_room() -> None:
    profile = rich_profile()
    compute = tuple(replace(each, unit=f"{each.unit}-{500 * 'u'}") for each in profile.compute)
    for axes in drawn(replace(profile, compute=compute)).axes:
        assert axes.get_position().width > 0.1
