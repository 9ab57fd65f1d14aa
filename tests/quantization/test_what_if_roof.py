"""Layers of a what-if stand under the roof, folded operators and padding taps included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofline.placement import Roof
from roofline.quantization.policy import Policy
from roofline.quantization.what_ifs import what_if
from tests import builders
from tests.quantization.what_if_machines import analysis_of, machine, resnet20

TYPES = ("float32", "bfloat16", "float16", "int8")


@pytest.mark.parametrize("bits", [2, 8, 16])
def test_no_layer_stands_above_the_highest_ceiling(bits: int) -> None:
    """Of convolutions with padding, whose FLOP hold taps that no kernel must compute."""
    memory = builders.level("DRAM", None, {"read": {1: 1e13}})
    # One ceiling for all types: none hides behind that of another.
    profile = replace(machine(hardware=dict.fromkeys(TYPES, 1e11)), memory=(memory,))
    analysis = analysis_of(resnet20(), 1, 3, 32, 32, profile=profile)
    highest = max(each.flop_per_s for each in Roof(analysis.hardware, analysis.threads).units)
    found = what_if(analysis, Policy(weights=bits, activations=bits, shortcut="low"))
    for layer in found.layers:
        for side in (layer.before, layer.after):
            assert side.attainable_flop_per_s is not None
            assert side.eager_min_time_s is not None
            assert 0 < side.attainable_flop_per_s <= highest * (1 + 1e-9)
            # Nor is it slower than what the same FLOP need by the ceiling's own word.
            assert side.flop is not None
            assert side.flop / side.attainable_flop_per_s >= side.eager_min_time_s * (1 - 1e-9)
