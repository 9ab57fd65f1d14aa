"""Models on several machines: who wins where, and all of it in every form."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
import torch

import roofline
from roofline.analysis import Analysis
from roofline.core.blocks import View
from roofline.design.comparison.result import Comparison
from roofline.errors import InputError
from roofline.render.console import plain_text
from tests.analysis.examples import sheet, small
from tests.analysis.predictions import with_predictions

COMPUTES = sheet("computes", 1e12, 1e9)
STREAMS = sheet("streams", 1e9, 1e12)


def grid() -> Comparison:
    """16 channels of 10 x 10, 8 x 8 come out: one has more FLOP, the other more bytes."""
    models = (
        torch.nn.Conv2d(16, 16, 3, bias=False),
        torch.nn.Sequential(
            torch.nn.Conv2d(16, 16, 3, groups=16, bias=False),
            torch.nn.Conv2d(16, 16, 1, bias=False),
        ),
    )
    found = roofline.compare(
        *models, inputs=(1, 16, 10, 10), names=["dense", "light"], hardware=[COMPUTES, STREAMS]
    )
    assert isinstance(found, Comparison)
    return found


def test_one_wins_where_bytes_count_the_other_where_flop_do() -> None:
    """dense: 2 x 64 x 16 x 144 FLOP; 6400 in, 4096 out, 9216 weights.

    light: 2 x 64 x 16 x (9 + 16) FLOP; 6400 + 3 x 4096, and 576 + 1024 weights.
    """
    found = grid()
    assert found.machine_names == ("computes", "streams")
    bounds = [each.quantity("eager_min_time_s").values for each in found.each_machine]
    assert bounds[0] == pytest.approx((19_712e-9, 20_288e-9))
    assert bounds[1] == pytest.approx((294_912e-9, 51_200e-9))
    assert found.verdict == (
        "lowest minimum time: dense on computes (1.0× speedup over light),"
        " light on streams (5.8× speedup over dense)",
    )
    first, second = found.sentences[1:]
    # 3 % more of a bound are no contradiction of FLOP.
    assert first.startswith(
        "light vs dense: 5.76× fewer FLOP, 1.03× longer minimum time on computes (measured"
        " ratios can differ);"
    )
    assert "5.76× shorter minimum time on streams" in second


def test_predictions_win_before_bounds_and_say_when_it_is_open() -> None:
    """10 s from 9 to 12 against 9 from 8.1 to 10.8."""
    slow = with_predictions(small(), {"fc": 6.0, "act": 3.0})
    near = with_predictions(small(), {"fc": 5.0, "act": 3.0})

    def elsewhere(analysis: Analysis) -> Analysis:
        return replace(analysis, hardware=replace(analysis.hardware, name="other"))

    found = Comparison.of([slow, near], [elsewhere(near), elsewhere(slow)], names=["a", "b"])
    here = small().hardware.name
    assert found.verdict == (
        f"lowest predicted time: b on {here} (1.1× speedup over a, not significant),"
        " a on other (1.1× speedup over b, not significant)",
    )


def test_every_form_has_all_machines() -> None:
    found = grid()
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [(each["hardware"], each["model"]) for each in rows] == [
        ("computes", "dense"),
        ("computes", "light"),
        ("streams", "dense"),
        ("streams", "light"),
    ]
    data = json.loads(found.to_json())
    light = data["rows"][3]
    assert (light["hardware"], light["model"]) == ("streams", "light")
    assert light["eager_min_time_s"] == pytest.approx(51_200e-9)
    assert len(data["analyses"]) == 4
    text = plain_text(found.report())
    assert "Machine  computes, streams" in text
    assert found.verdict[0] in text
    assert "by largest difference" not in text
    # Inside light, the 4,096 bytes between its convolutions need not be moved.
    assert "Minimum times (eager, fused, model) by machine" in text
    cells = next(line for line in text.splitlines() if " light " in line and " µs" in line)
    assert cells.split()[1:7:2] == ["20.3", "20.3", "12.1"]
    text = plain_text(found.report(View(by="type")))
    assert "Operator types on streams (minimum time)" in text


def test_what_is_no_grid() -> None:
    with pytest.raises(InputError, match="at least two models"):
        Comparison.of([])
    with pytest.raises(InputError, match="3 analyses for 2 models"):
        Comparison.of([small(), small()], [small()], names=["a", "b"])
    one = torch.nn.ReLU()
    for hardware, words in (
        ([], "the list is empty"),
        ([STREAMS, STREAMS], "hardware='streams': given twice"),
    ):
        with pytest.raises(InputError, match=words):
            roofline.compare(one, one, inputs=(1, 2), hardware=hardware)
