"""The figures of the article that roofline was founded on."""

from __future__ import annotations

import pytest
import torch

import roofline
from roofline.core.dtypes import dtype
from roofline.placement import Roof, ridge_flop_per_byte


class Add(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


def test_elementwise_add() -> None:
    """N*C*H*W FLOP, and 3*N*C*H*W*4 bytes: two operands read, one written."""
    n, c, h, w = 2, 16, 20, 20
    analysis = roofline.analyze(Add(), [(n, c, h, w), (n, c, h, w)], hardware="10980xe")
    assert analysis.totals.flop == n * c * h * w
    assert analysis.totals.traffic_bytes == 3 * n * c * h * w * 4
    assert analysis.totals.macs == 0


def depthwise() -> roofline.Analysis:
    block = torch.nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=True)
    return roofline.analyze(block, (1, 64, 20, 20), hardware="10980xe")


def test_depthwise_intensity() -> None:
    """Per channel: 400 outputs of 9 FMAs and a bias; 400 in, 400 out, 9 weights, 1 bias of 4 bytes.

    (400 * 9 * 2 + 400) / (4 * (400 + 400 + 10)) = 7600 / 3240 = 2.3457.
    """
    (row,) = depthwise().operators
    assert row.type == "depthwise convolution"
    assert row.intensity_flop_per_byte == pytest.approx(2.346, abs=5e-4)


def test_depthwise_share_of_the_peak() -> None:
    """2.3457 FLOP/B * 96 GB/s = 225.2 GFLOP/s, 4.9 % of 4.608 TFLOP/s."""
    (row,) = depthwise().operators
    assert row.bound == "memory"
    assert row.attainable_flop_per_s is not None
    assert row.attainable_flop_per_s / 4.608e12 == pytest.approx(0.049, abs=5e-4)


@pytest.mark.parametrize(("name", "ridge"), [("10980xe", 48.0), ("10980xe-measured", 38.6)])
def test_ridges(name: str, ridge: float) -> None:
    profile = roofline.load_hardware(name)
    roof = Roof(profile, 16)
    unit = roof.compute(dtype("float32"))
    assert unit is not None
    assert [level.level.name for level in roof.levels] == ["DRAM"]
    assert ridge_flop_per_byte(unit, roof.levels[0]) == pytest.approx(ridge, abs=0.06)


def test_figures_of_the_paper_machine() -> None:
    roof = Roof(roofline.load_hardware("10980xe"), 16)
    assert roof.units[0].flop_per_s == 4.608e12
    assert roof.levels[0].bytes_per_s == 96e9
    measured = Roof(roofline.load_hardware("10980xe-measured"), 16)
    assert measured.units[0].flop_per_s == 2.86e12
    assert measured.levels[0].bytes_per_s == 74e9
