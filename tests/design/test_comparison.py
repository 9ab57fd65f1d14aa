"""Ratios, ceilings and sentences of comparisons, on numbers that can be worked out by hand."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
import torch

import roofline
from roofline.design.comparison.models import ceilings
from roofline.design.comparison.result import Comparison
from roofline.errors import InputError
from roofline.render.console import plain_text
from tests.unknown_operator import mystery

DRAM = "10980xe"


def standard() -> torch.nn.Module:
    return torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)


def depthwise() -> torch.nn.Module:
    return torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)


def pair(reference: int = 0) -> roofline.Comparison:
    return roofline.compare(
        standard(),
        depthwise(),
        inputs=(1, 8, 10, 10),
        names=["a", "b"],
        hardware=DRAM,
        reference=reference,
    )


def test_quantities_by_hand() -> None:
    """10 x 10 x 8 outputs of 8 * 9 or of 9 multiply-adds; 800 in, 800 out, 576 or 72 weights."""
    found = {each.name: each.values for each in pair().quantities}
    assert found["macs"] == (57_600, 7_200)
    assert found["flop"] == (115_200, 14_400)
    assert found["parameters"] == (576, 72)
    assert found["traffic_bytes"] == (4 * (1600 + 576), 4 * (1600 + 72))
    assert found["intensity_flop_per_byte"] == pytest.approx((115_200 / 8704, 14_400 / 6688))
    # DRAM alone binds both: bytes / 96 GB/s.
    assert found["eager_min_time_s"] == pytest.approx((8704 / 96e9, 6688 / 96e9))


def test_ratios_refer_to_the_reference() -> None:
    comparison = pair(reference=1)
    (flop,) = [each for each in comparison.quantities if each.name == "flop"]
    assert comparison.ratios(flop) == (8.0, 1.0)


def test_ceilings_and_sentence() -> None:
    comparison = pair()
    assert [ceilings(each) for each in comparison.analyses] == [{"DRAM": 1.0}, {"DRAM": 1.0}]
    (sentence,) = comparison.sentences
    assert sentence == (
        "b vs a: 8× fewer FLOP, 1.3× shorter minimum time on 10980xe (measured ratios can differ);"
        " depthwise convolution: 100 % of its minimum time, limited by DRAM"
    )


class Odd(torch.nn.Module):
    """64 additions that are known, and an operator that is not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return mystery(x + x)


def test_a_plot_has_the_verdict_and_the_state_of_the_caches() -> None:
    models = (standard(), depthwise(), torch.nn.ReLU(), torch.nn.Sigmoid())
    names, inputs = ["a", "b", "c", "d"], (1, 8, 10, 10)
    comparison = roofline.compare(*models, inputs=inputs, names=names, hardware=DRAM)
    text = " ".join(ElementTree.fromstring(comparison.render("svg")).itertext())
    assert comparison.summary in " ".join(text.split())
    assert "warm caches; time per pass" in text


def test_unknown_flop_is_never_compared_as_if_it_were_known() -> None:
    comparison = roofline.compare(
        Odd(), torch.nn.ReLU(), inputs=(8, 8), names=["a", "b"], hardware=DRAM
    )
    assert "FLOP unknown" in comparison.sentences[0]
    (flop,) = [each for each in comparison.quantities if each.name == "flop"]
    assert flop.text == ("≥ 64 FLOP", "64 FLOP")
    assert flop.values == (None, 64)
    assert comparison.ratios(flop) == (None, None)


class Nothing(torch.nn.Module):
    """No operator at all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize("other", [Nothing(), torch.nn.Flatten(0), torch.nn.PixelShuffle(2)])
def test_what_does_no_flop_is_compared_all_the_same(other: torch.nn.Module) -> None:
    models = (torch.nn.ReLU(), other)
    both = roofline.compare(*models, inputs=(1, 4, 8, 8), names=["a", "b"], hardware=[DRAM, "v100"])
    for found in (both, both.each_machine[0]):
        for reference in (0, 1):
            turned = replace(found, reference=reference)
            assert "FLOP in one model only" in turned.sentences[-1]
            for format in ("json", "csv", "md", "html"):
                assert turned.render(format)


def test_files_have_modules_side_by_side() -> None:
    data = json.loads(pair().to_json())
    assert data["rounds"] is None
    (modules,), (types,) = data["module_alignment"], data["types"]
    (row,) = modules["rows"]
    first, second = row["parts"]
    assert modules["kind"] == "bound"
    assert [first["flop"], second["flop"]] == [115_200, 14_400]
    (nothing, light), (dense, none) = (each["parts"] for each in types["rows"])
    assert none is nothing is None
    assert (dense["name"], light["name"]) == ("convolution", "depthwise convolution")


def test_what_cannot_be_compared() -> None:
    first = roofline.analyze(standard(), (1, 8, 10, 10), hardware=DRAM)
    other = roofline.analyze(standard(), (1, 8, 10, 10), hardware="10980xe-measured")
    with pytest.raises(InputError, match="use one machine and cache state"):
        roofline.compare(first, other)
    with pytest.raises(InputError, match="two models or variants"):
        roofline.compare(first)
    with pytest.raises(InputError, match="1 names for 2 models"):
        roofline.compare(first, first, names=["a"])
    with pytest.raises(InputError, match="reference 2"):
        roofline.compare(first, first, reference=2)


def test_models_of_the_same_name_are_told_apart() -> None:
    first = roofline.analyze(standard(), (1, 8, 10, 10), hardware=DRAM)
    assert roofline.compare(first, first).designs == ("Conv2d (1)", "Conv2d (2)")


def test_runs_of_different_kinds_are_told() -> None:
    inference = roofline.analyze(standard(), (1, 8, 10, 10), hardware=DRAM)
    step = roofline.analyze(standard(), (1, 8, 10, 10), hardware=DRAM, train=True, optimizer="sgd")
    comparison = Comparison.of([inference, step], names=["a", "b"])
    assert comparison.notes == ("training (b) is compared with inference (a)",)
    report = plain_text(comparison.report())
    assert "training step (sgd)" in report
    assert "training (b) is compared" in report
    alike = Comparison.of([step, step])
    assert alike.notes == ("Conv2d (1) and Conv2d (2) are identical: same model and run",)
    assert json.loads(comparison.to_json())["rows"][1]["run"]["optimizer"] == "sgd"
    assert "\nrun" not in plain_text(pair().report())
