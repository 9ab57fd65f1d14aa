from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
from matplotlib.patches import Polygon

from roofline.errors import HardwareError, InputError
from roofline.machine.catalog import load_hardware
from roofline.presentation.charts.layers_chart import layers_chart_of
from roofline.presentation.drawing import savefig_bytes
from roofline.presentation.figure import plot
from roofline.presentation.layers_figure import plot_layers
from roofline.presentation.output import render
from roofline.presentation.pictures import Picture
from tests.presentation.examples import examples, full_profile, hostile, measured, resnet
from tests.presentation.machines import eight

EXAMPLES = examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_draws(name: str):
    figure = EXAMPLES[name].plot(layers=True)
    assert savefig_bytes(figure, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("layers", [False, True])
def test_a_long_name_of_a_ceiling_leaves_the_picture_its_room(layers: bool):
    profile = full_profile()
    compute = [replace(each, unit=f"{each.unit}-{500 * 'u'}") for each in profile.compute]
    analysis = replace(resnet(), hardware=replace(profile, compute=tuple(compute)))
    figure = plot(analysis, layers=layers)
    assert figure.axes[0].get_position().width > 0.4
    svg = savefig_bytes(figure, "svg").decode()
    assert "u… fma 523 GFLOP/s" in svg or "uuu fma 523 GFLOP/s" in svg


def test_every_area_of_the_chart_is_drawn_where_it_is_and_below_the_marks():
    analysis = measured(resnet())
    figure = plot(analysis, layers=True)
    axes, paper = figure.axes
    figure.canvas.draw()
    drawn = [each for each in axes.patches if isinstance(each, Polygon)]
    areas = layers_chart_of(analysis).areas
    assert len(drawn) == len(areas) > 0
    for patch, area in zip(drawn, areas, strict=True):
        on_screen = patch.get_transform().transform(patch.get_xy())
        in_points = paper.transData.inverted().transform(on_screen)
        for found, corner in zip(in_points, area.corners, strict=False):
            assert tuple(found) == pytest.approx(corner, abs=1e-6)
        assert patch.get_zorder() < min(each.get_zorder() for each in axes.collections)


def test_svg_is_the_same_every_time_and_its_text_is_text():
    profile = load_hardware("10980xe-measured")
    first, second = (savefig_bytes(plot(profile, paper="10980xe"), "svg") for _ in range(2))
    assert first == second
    text = "".join(ElementTree.fromstring(first).itertext())
    assert "4.61 TFLOP/s on paper → 2.86 TFLOP/s measured: -37.9 %" in text
    assert "lost by the hardware: on paper, but not measured" in text


def test_names_are_escaped():
    root = ElementTree.fromstring(savefig_bytes(plot(hostile(), layers=True), "svg"))
    assert not [each for each in root.iter() if each.tag.endswith(("script", "image"))]


def test_the_size_is_as_asked_or_what_the_words_need():
    figure = plot(resnet(), layers=True, width_inch=8, height_inch=7)
    assert tuple(figure.get_size_inches()) == (8, 7)
    assert plot(resnet(), layers=True).get_size_inches()[1] > 6.5
    assert tuple(plot(resnet()).get_size_inches()) == (10, 6.5)


def test_a_paper_may_be_named_and_asks_for_layers():
    profile = load_hardware("10980xe-measured")
    named = savefig_bytes(plot(profile, paper="10980xe"), "svg")
    assert named == savefig_bytes(plot_layers(profile, paper=load_hardware("10980xe")), "svg")
    with pytest.raises(HardwareError, match="unknown hardware '10980x'; did you mean '10980xe"):
        plot(profile, paper="10980x")


def test_options_without_effect_are_refused():
    with pytest.raises(InputError, match="roofs has no effect with layers"):
        plot(resnet(), layers=True, roofs="in use")
    with pytest.raises(InputError, match="--paper h100 has no effect without --layers"):
        Picture(paper=load_hardware("h100"))
    layered = Picture(layers=True)
    with pytest.raises(InputError, match="--layers has no effect without a picture"):
        layered.check([Path("a.json"), Path("b.html")], "md")
    layered.check([Path("a.json"), Path("b.PNG")], None)
    layered.check([], "svg")
    Picture().check([], None)


def test_layers_of_several_machines_are_refused():
    with pytest.raises(InputError, match=r"draws one machine .* has 8; give one --hardware"):
        render(eight(), "png", picture=Picture(layers=True))


def test_layers_reach_the_files():
    analysis = measured(resnet())
    layered = render(analysis, "svg", picture=Picture(layers=True))
    assert layered == savefig_bytes(plot(analysis, layers=True), "svg").decode("utf-8")
    assert layered != render(analysis, "svg")
    assert render(analysis, "csv", picture=Picture(layers=True)) == render(analysis, "csv")


def test_global_settings_and_pyplot_are_left_alone():
    before = dict(matplotlib.rcParams)
    savefig_bytes(plot(full_profile(), layers=True), "svg")
    assert dict(matplotlib.rcParams) == before
    source = Path(str(plot_layers.__code__.co_filename)).read_text(encoding="utf-8")
    assert "pyplot" not in source
