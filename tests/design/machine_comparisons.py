"""Small models on several made-up machines, for tests; their numbers are worked out by hand."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from roofline.analysis import Analysis
from roofline.design.comparison.result import Comparison
from roofline.machine.hardware import HardwareProfile
from roofline.workload.tensors import Role
from tests.analysis.examples import (
    Made,
    Network,
    analysis_of,
    bare_profile,
    full_profile,
    hostile,
    resnet_like,
    sheet,
)
from tests.analysis.predictions import with_measurement, with_predictions

NARROW = sheet("narrow", 100e9, 10e9, description="ridge at 10 FLOP/byte")
WIDE = sheet("wide", 100e9, 100e9, description="ridge at 1 FLOP/byte")


def three_operators() -> Network:
    """Operators of 0.1, 5 and 100 FLOP/byte over 800 bytes each, and a copy of as many."""
    net = Network()
    x = net.tensor(100, role=Role.INPUT)
    for name, flop in (("low", 80), ("middle", 4_000), ("high", 80_000)):
        net.call("aten.work", "pointwise", name, (x,), net.tensor(100), flop=flop)
    net.call("aten.copy", "data movement", "copy", (x,), net.tensor(100), flop=0)
    return net


def compare(net: Network, profiles: Sequence[HardwareProfile]) -> Comparison:
    """What `net` recorded on each of `profiles`."""
    return Comparison.of_machines([analysis_of(net, profile) for profile in profiles])


@functools.cache
def pair() -> Comparison:
    """The three operators on the narrow and the wide machine: the middle one changes sides."""
    return compare(three_operators(), [NARROW, WIDE])


@functools.cache
def predicted_on_wide() -> Comparison:
    """The pair; on the wide machine 2, 3, 4 and 1 seconds are predicted, and 1 between them."""
    narrow, wide = pair().analyses
    seconds = {"low": 2.0, "middle": 3.0, "high": 4.0, "copy": 1.0}
    return Comparison.of_machines([narrow, with_predictions(wide, seconds)])


@functools.cache
def partly_predicted() -> Comparison:
    """Of the eight machines, one is predicted but for most operators, and one was measured."""
    first, second, *others = eight().analyses
    partly = with_predictions(first, {"conv1": 0.001, "fc": 0.002})
    return Comparison.of_machines([partly, with_measurement(second, 0.0123), *others])


@functools.cache
def eight() -> Comparison:
    """The ResNet-like model on eight machines, two of which share their peak."""
    figures = {
        "v100": (15.7e12, 900e9), "a100": (19.5e12, 2039e9), "h100": (66.9e12, 3350e9),
        "h200": (66.9e12, 4800e9), "rtx4090": (82.6e12, 1008e9), "apple": (27.2e12, 800e9),
        "epyc": (7.4e12, 460.8e9), "a-machine-with-a-rather-long-name": (5.3e12, 204.8e9),
    }  # fmt: skip
    return compare(resnet_like(), [sheet(name, *each) for name, each in figures.items()])


@functools.cache
def with_caches() -> Comparison:
    """The ResNet-like model on a machine of four levels and two of one."""
    return compare(resnet_like(), [full_profile(), NARROW, WIDE])


@functools.cache
def comparisons() -> Mapping[str, Comparison]:
    """What every layout must manage, by name."""
    return Made(
        {
            "pair": pair,
            "eight": eight,
            "with caches": with_caches,
            "one without ceilings": lambda: compare(three_operators(), [NARROW, bare_profile()]),
            "none has ceilings": none_has_ceilings,
            "empty model": lambda: compare(Network(), [NARROW, WIDE]),
            "hostile names": hostile_names,
            "predicted on one": predicted_on_wide,
            "partly predicted": partly_predicted,
            "twenty": twenty,
        }
    )


def none_has_ceilings() -> Comparison:
    """The three operators on two machines of which no bound is known."""
    return compare(three_operators(), [replace(bare_profile(), name="nowhere"), bare_profile()])


def hostile_names() -> Comparison:
    """The hostile model on a machine, and on one whose name is hostile."""
    strange: Analysis = hostile()
    again = replace(strange, hardware=replace(strange.hardware, name="<b>other</b>|x"))
    return Comparison.of_machines([strange, again])


def twenty() -> Comparison:
    """A short model on twenty machines, each two of which share their peak."""
    profiles = [sheet(f"m{i}", 1e12 * (1 + i // 2), 1e11) for i in range(20)]
    return compare(resnet_like((1,)), profiles)
