"""A roofline in layers: what the hardware loses of its theoretical peaks, and software of both."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.patches import Polygon
from matplotlib.text import Text

from roofline.analysis import Analysis
from roofline.analysis.drawing import plot
from roofline.analysis.layers_drawing import (
    RoofLayers,
    draw_layers,
    layers_of_analysis,
    layers_of_machine,
    library_note,
    software_note,
    software_of,
)
from roofline.cli.options import Layers, Output
from roofline.errors import HardwareError, InputError
from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile, Provenance, TheoreticalRate
from roofline.machine.losses import format_loss, loss_notes
from roofline.plots.figures import new_figure, saved
from tests.analysis.examples import (
    Network,
    analysis_of,
    dram_profile,
    examples,
    full_profile,
    measured,
    resnet,
    small,
    with_rows,
)
from tests.analysis.predictions import with_predictions

EXAMPLES = examples()
THEORY = Provenance(
    source="derived", reference="a handbook", date="2026", note="2 threads x 9.9 GHz"
)


def article_machine() -> tuple[HardwareProfile, HardwareProfile]:
    """Measured 2.86 TFLOP/s and 74 GB/s; in theory 4.608 TFLOP/s and 96 GB/s."""
    return load_hardware("10980xe-measured"), load_hardware("10980xe")


def with_theory(flop_per_s: float, bytes_per_s: float) -> HardwareProfile:
    """The measured example machine, with theory for its best FMA and its nearest level."""
    profile = full_profile()
    compute = tuple(
        replace(each, theoretical=TheoreticalRate(per_s=flop_per_s, provenance=THEORY))
        if each.label == "float32 avx512 fma"
        else each
        for each in profile.compute
    )
    nearest, *others = profile.memory
    bandwidth = tuple(
        replace(each, theoretical=TheoreticalRate(per_s=bytes_per_s, provenance=THEORY))
        if each.kernel == "read"
        else each
        for each in nearest.bandwidth
    )
    return replace(
        profile, compute=compute, memory=(replace(nearest, bandwidth=bandwidth), *others)
    )


def theory_of(flop_per_s: float, bytes_per_s: float) -> RoofLayers:
    return layers_of_analysis(analysis_of(Network(), with_theory(flop_per_s, bytes_per_s)), None)


def said(layers: RoofLayers) -> str:
    return " ".join(loss_notes(layers.all))


def drawn(subject: Analysis | HardwareProfile, **options: Any) -> Any:
    """The axes, with their texts where they will be."""
    figure = new_figure(10, 8)
    draw_layers(figure, subject, **options)
    figure.draw_without_rendering()
    return figure.axes[0]


def polygons(axes: Any) -> list[Polygon]:
    return [each for each in axes.patches if isinstance(each, Polygon)]


def losses(axes: Any) -> list[Any]:
    """The corners of what the hardware loses, which is hatched."""
    return [each.get_xy() for each in polygons(axes) if each.get_hatch()]


def unreached(axes: Any) -> list[Any]:
    """The corners of what software loses: under operators, or above the library."""
    plain = [each.get_xy() for each in polygons(axes) if not each.get_hatch()]
    return [*plain, *(path.vertices for each in shades(axes) for path in each.get_paths())]


def shades(axes: Any) -> list[Any]:
    """What is shaded under operators."""
    return [each for each in axes.collections if type(each).__name__.startswith("FillBetween")]


def words(axes: Any) -> set[str]:
    return {each.get_text() for each in axes.texts}


# What the hardware loses


def test_the_losses_of_the_founding_article():
    """1 - 2.86 / 4.608 = 37.9 %, 1 - 74 / 96 = 22.9 %; ridges at 48 and 38.6 FLOP/byte."""
    profile, paper = article_machine()
    layers = layers_of_machine(profile, paper)
    assert (
        "float32 AVX-512: theoretical 4.61 TFLOP/s, measured 2.86 TFLOP/s: -37.9 %"
        " (equals 16 cores x 4.5 GHz x 64 FLOP per cycle" in said(layers)
    )
    assert (
        "DRAM: theoretical 96.0 GB/s, measured 74.0 GB/s: -22.9 %"
        " (equals four channels of DDR4 at 3000 MT/s x 8 byte)" in said(layers)
    )
    level, theoretical = layers.lines.diagonals
    assert level.ridge_flop_per_byte == pytest.approx(2860 / 74)
    assert (theoretical.kind, theoretical.bytes_per_s) == ("theoretical", 96e9)
    assert layers.theoretical_ridges == ((pytest.approx(48.0), pytest.approx(4.608e12)),)
    labels = {each.label: each.kind for each in layers.lines.ceilings}
    assert labels["float32 theoretical 4.61 TFLOP/s"] == "theoretical"
    assert {"-37.9 %", "-22.9 %", "48.0 theoretical"} <= words(drawn(profile, paper=paper))


def test_the_corners_of_what_is_shaded_lie_on_the_lines():
    profile, paper = article_machine()
    compute, memory = losses(drawn(profile, paper=paper))
    expected = [(2.86e12 / 96e9, 2.86e12), (48.0, 4.608e12)]
    for want in expected:
        assert any(tuple(each) == pytest.approx(want) for each in compute)
    assert {rate for _, rate in compute} == {2.86e12, 4.608e12}
    for intensity, rate in memory:
        lines = (rate / intensity == pytest.approx(96e9), rate / intensity == pytest.approx(74e9))
        assert any(lines)
        assert rate <= 2.86e12


def test_a_machine_knows_its_own_theoretical_peaks():
    """523 of 600 GFLOP/s: 12.8 %; 640 of 800 GB/s: 20 %; of the other levels nothing is known."""
    layers = theory_of(600e9, 800e9)
    text = said(layers)
    assert "theoretical 600 GFLOP/s, measured 523 GFLOP/s: -12.8 % (2 threads x 9.9 GHz)" in text
    assert "L1 read: theoretical 800 GB/s, measured 640 GB/s: -20.0 %" in text
    assert "L2 copy (measured 232 GB/s), L3 read (measured 92.0 GB/s), DRAM read" in text
    assert [each.label for each in layers.all if each.loss] == ["float32 AVX-512 FMA", "L1 read"]
    shown = drawn(analysis_of(Network(), with_theory(600e9, 800e9)))
    assert len(losses(shown)) == 2


def test_what_is_not_known_has_no_line_and_no_area():
    layers = layers_of_analysis(resnet(), None)
    lines = (*layers.lines.ceilings, *layers.lines.diagonals)
    assert not [each for each in lines if each.kind == "theoretical"]
    assert not losses(drawn(resnet()))
    assert "Theoretical peak unknown: float32 AVX-512 FMA (measured 523 GFLOP/s)" in said(layers)


def test_figures_of_a_data_sheet_are_theoretical_and_their_loss_is_not_known():
    layers = layers_of_machine(load_hardware("rtx4090"), None)
    lines = (*layers.lines.ceilings, *layers.lines.diagonals)
    assert {each.kind for each in lines} == {"theoretical"}
    assert "Not measured, hardware loss unknown: float32 cuda-core FMA" in said(layers)
    axes = drawn(load_hardware("rtx4090"))
    assert not losses(axes) and not unreached(axes)
    assert axes.figure.get_suptitle() == "Roofline of rtx4090: theoretical peaks"


def test_a_measurement_above_theory_is_said_and_not_shaded():
    assert "theoretical 500 GFLOP/s, measured 523 GFLOP/s: +4.6 %, above theory" in said(
        theory_of(500e9, 600e9)
    )
    assert not losses(drawn(analysis_of(Network(), with_theory(500e9, 600e9))))


@pytest.mark.parametrize(
    ("loss", "text"),
    [(0.379, "-37.9 %"), (0.0009, "no loss"), (-0.0009, "no loss"), (1e-3, "-0.10 %")],
)
def test_losses_in_words(loss: float, text: str):
    assert format_loss(loss) == text


def test_a_paper_that_does_not_fit_is_refused():
    measured_here, sheet = article_machine()
    with pytest.raises(InputError, match="'h100' is a cuda device, but '10980xe-measured' is a"):
        layers_of_machine(measured_here, load_hardware("h100"))
    with pytest.raises(InputError, match="'10980xe-measured' has no theoretical peaks"):
        layers_of_machine(measured_here, measured_here)
    # For 16 threads there are figures, for 2 there are none, and none are made up.
    with pytest.raises(InputError, match=r"no theoretical peaks for .* \(2 threads; "):
        layers_of_machine(full_profile(), sheet)
    with pytest.raises(InputError, match="no measured peaks in 'v100' to compare with paper"):
        layers_of_machine(load_hardware("v100"), load_hardware("h100"))


# What software loses


def test_operators_that_take_four_times_their_minimum_reach_a_quarter_of_the_roof():
    analysis = measured(small(), 4.0)
    layers = layers_of_analysis(analysis, None)
    (reached,) = layers.shown
    assert (reached.ceiling, reached.efficiency) == ("DRAM", pytest.approx(0.25))
    # From the ReLU at 10 FLOP / 80 bytes to the linear layer at 650 / 1488, under 10 GB/s.
    low, high = layers.ends(reached)
    assert low == (pytest.approx(10 / 80), pytest.approx(2.5e9 * 10 / 80))
    assert high == (pytest.approx(650 / 1488), pytest.approx(2.5e9 * 650 / 1488))
    axes = drawn(analysis)
    (area,) = unreached(axes)
    assert {round(y / x / 1e9, 6) for x, y in area} == {2.5, 10.0}
    assert (min(area[:, 0]), max(area[:, 0])) == pytest.approx((10 / 80, 650 / 1488))
    assert "25.0 % of DRAM reached" in words(axes)


def test_the_efficiency_is_the_sum_of_minimum_times_over_the_sum_of_times():
    """A ReLU at half its roof and a linear layer at a tenth: weighted by time, not their mean."""
    analysis = small()
    factors = {"fc": 10.0, "act": 2.0}
    rows = [
        replace(row, measured_s=factors[row.module_path] * (row.eager_min_time_s or 0))
        for row in analysis.operators
    ]
    software = software_of(with_rows(analysis, rows))
    assert software is not None
    # 1488 and 80 bytes at 10 GB/s.
    assert software.eager_min_time_s == pytest.approx(1568 / 10e9)
    assert software.time_s == pytest.approx((14880 + 160) / 10e9)
    assert software.efficiency == pytest.approx(1568 / 15040)
    assert "reach 10.4 % of the theoretical roofline, weighted by time" in software_note(
        layers_of_analysis(with_rows(analysis, rows), None)
    )


def test_predicted_efficiency_is_called_predicted():
    analysis = small()
    times = {row.module_path: 2 * (row.eager_min_time_s or 0) for row in analysis.operators}
    predicted = with_predictions(analysis, times)
    layers = layers_of_analysis(predicted, None)
    assert "are predicted to reach 50.0 % of the theoretical roofline" in software_note(layers)
    axes = drawn(predicted)
    assert "50.0 % of DRAM predicted" in words(axes)
    legend = [each.get_text() for each in axes.figure.legends[0].get_texts()]
    assert "predicted for operators, mean" in legend


def test_without_times_no_efficiency_is_made_up():
    layers = layers_of_analysis(small(), None)
    assert layers.software is None and not layers.shown
    assert not unreached(drawn(small()))
    assert "efficiency of operators unknown" in software_note(layers)


def test_operators_of_unknown_bound_are_in_no_sum_and_that_is_said():
    net = Network()
    x = net.linear(net.tensor(1, 32), 10, "fc")
    net.call("custom.mystery", "unknown", "odd", (x,), net.tensor(1, 10), flop=None)
    analysis = analysis_of(net, dram_profile())
    timed = with_rows(analysis, [replace(row, measured_s=1e-6) for row in analysis.operators])
    software = software_of(timed)
    assert software is not None
    assert (software.time_s, software.whole_s) == (1e-6, pytest.approx(2e-6))
    assert "over 50.0 % of the time" in software_note(layers_of_analysis(timed, None))


def test_a_machine_alone_shades_what_its_library_leaves():
    """torch's convolutions reach 454 of 523 GFLOP/s in float32: 86.8 %."""
    layers = layers_of_machine(full_profile(), None)
    note = "86.8 % of float32 AVX-512 FMA (float32 torch conv 454 GFLOP/s)"
    assert note in library_note(layers)
    (area,) = unreached(drawn(full_profile()))
    assert {round(y / 1e9, 3) for _, y in area} == {454.0, 523.0}


def test_a_point_above_the_measured_roof_is_still_a_warning():
    axes = drawn(measured(resnet(), 0.5))
    (legend,) = axes.figure.legends
    assert "below its minimum time" in legend.get_title().get_text()
    assert not unreached(axes)


# The picture


@pytest.mark.parametrize("name", EXAMPLES)
def test_names_and_efficiencies_stand_on_the_axes_and_apart(name: str):
    axes = drawn(EXAMPLES[name])
    frame = axes.get_window_extent().padded(1)
    flat = [each for each in axes.texts if each.get_text() and not each.get_rotation()]
    boxes = [(each.get_text(), Text.get_window_extent(each)) for each in flat]
    for (one, box), (other, other_box) in combinations(boxes, 2):
        assert not box.padded(-2).overlaps(other_box.padded(-2)), (one, other)
    for text, box in boxes:
        if text.endswith(("reached", "predicted")):
            assert frame.x0 <= box.x0 and box.x1 <= frame.x1, text


def test_a_long_name_of_a_ceiling_leaves_the_picture_its_room():
    profile = full_profile()
    compute = [replace(each, unit=f"{each.unit}-{500 * 'u'}") for each in profile.compute]
    axes = drawn(replace(resnet(), hardware=replace(profile, compute=tuple(compute))))
    assert axes.get_position().width > 0.4
    assert any(
        "u… FMA 523 GFLOP/s" in each or "uuu FMA 523 GFLOP/s" in each for each in words(axes)
    )


def test_what_is_shaded_lies_below_lines_and_marks():
    axes = drawn(measured(resnet()))
    found = shades(axes)
    others = [each for each in (*axes.lines, *axes.collections) if each not in found]
    highest = max(each.get_zorder() for each in found)
    assert highest < min(each.get_zorder() for each in others)


def test_the_text_of_an_svg_is_text():
    picture = saved(plot(load_hardware("10980xe-measured"), paper="10980xe"), "svg")
    text = "".join(ElementTree.fromstring(picture).itertext())
    assert "theoretical 4.61 TFLOP/s, measured 2.86 TFLOP/s: -37.9 %" in text
    assert "hardware loss: below the theoretical peak" in text


def test_the_size_is_as_asked_or_what_the_words_need():
    figure = plot(resnet(), layers=True, width_inch=8, height_inch=7)
    assert tuple(figure.get_size_inches()) == (8, 7)
    assert plot(resnet(), layers=True).get_size_inches()[1] > 6.5
    assert tuple(plot(resnet()).get_size_inches()) == (10, 6.5)


def test_a_paper_may_be_named_and_asks_for_layers():
    profile, paper = article_machine()
    assert saved(plot(profile, paper="10980xe"), "svg") == saved(plot(profile, paper=paper), "svg")
    with pytest.raises(HardwareError, match="unknown hardware '10980x'; did you mean '10980xe"):
        plot(profile, paper="10980x")


def test_options_without_effect_are_refused():
    with pytest.raises(InputError, match="roofs: has no effect with layers"):
        plot(resnet(), layers=True, roofs="in use")
    with pytest.raises(InputError, match="--paper h100: has no effect without --layers"):
        options(False, "h100")
    with pytest.raises(InputError, match="--layers: has no effect without a plot"):
        options(True, None, "a.json", "b.html", stdout_format="md")
    assert options(True, None, "a.json", "b.PNG") == {"layers": True, "paper": None}
    assert options(True, None, stdout_format="svg")
    assert options(False, None) == {}


def options(layers: bool, paper: str | None, *files: str, stdout_format: str | None = None):
    paths = tuple(map(Path, files))
    return Layers(layers, paper).picture(Output(paths, force=False, format=stdout_format))


def test_layers_reach_the_files():
    analysis = measured(small())
    assert "software loss" in str(analysis.render("svg", layers=True))
    assert "software loss" not in str(analysis.render("svg"))
