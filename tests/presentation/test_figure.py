from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.colors import to_rgb

from roofline.presentation.charts.chart import chart_of
from roofline.presentation.drawing import savefig_bytes
from roofline.presentation.figure import plot
from tests.presentation.examples import Network, analysis_of, examples, full_profile, resnet

EXAMPLES = examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_draws(name: str):
    assert savefig_bytes(plot(EXAMPLES[name]), "png").startswith(b"\x89PNG")


def test_svg_is_the_same_every_time_and_its_text_is_text():
    first, second = (savefig_bytes(plot(resnet()), "svg") for _ in range(2))
    assert first == second
    text = "".join(ElementTree.fromstring(first).itertext())
    assert "Roofline of resnet-like" in text
    assert "float32 avx512 fma 523 GFLOP/s" in text
    assert "DRAM read 41.3 GB/s" in text


def test_names_are_escaped_in_svg_and_dollars_begin_no_formula():
    root = ElementTree.fromstring(savefig_bytes(plot(EXAMPLES["hostile names"]), "svg"))
    assert "$a_b$" in "".join(root.itertext())
    assert not [each for each in root.iter() if each.tag.endswith(("script", "image"))]


def test_names_in_any_script_draw_without_warnings():
    net = Network()
    net.relu(net.tensor(8, 8), "模型.层")
    savefig_bytes(plot(analysis_of(net, full_profile(), model="模型")), "png")


def test_words_are_no_wider_than_was_estimated():
    figure = plot(resnet())
    figure.canvas.draw()
    paper = figure.axes[1]
    chart = chart_of(resnet())
    boxes = {label.text: label.box for label in chart.ceiling_labels}
    boxes |= {mark.label.text: mark.label.box for mark in chart.marks if mark.label}
    seen = 0
    for text in paper.texts:
        box = boxes.get(text.get_text())
        if box is not None:
            drawn = text.get_window_extent().transformed(paper.transData.inverted())
            assert drawn.x1 <= box.right + 0.5
            seen += 1
    assert seen == len(boxes)


def test_global_settings_and_pyplot_are_left_alone():
    before = dict(matplotlib.rcParams)
    savefig_bytes(plot(resnet()), "svg")
    assert dict(matplotlib.rcParams) == before
    source = Path(str(plot.__code__.co_filename)).read_text(encoding="utf-8")
    assert "pyplot" not in source


def test_the_size_is_as_asked():
    figure = plot(resnet(), width_inch=7, height_inch=5)
    assert tuple(figure.get_size_inches()) == (7, 5)


def test_two_operators_have_each_the_colour_of_its_type():
    # A tuple of two colours is one colour and its opacity to matplotlib.
    net = Network()
    x = net.convolution(net.tensor(1, 8, 16, 16), 8, 3, "conv")
    net.relu(x, "relu")
    analysis = analysis_of(net, full_profile())
    chart = chart_of(analysis)
    assert len(chart.marks) == 2
    marks: Any = plot(analysis).axes[0].collections[0]
    faces = [tuple(face[:3]) for face in marks.get_facecolor()]
    assert faces == [to_rgb(mark.style.colour) for mark in chart.marks]
    assert len(set(faces)) == 2
