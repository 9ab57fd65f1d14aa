"""What is asked of training on several ranks: links, numbers, models, and what of it is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.errors import HardwareError, InputError
from roofline.machine.hardware import Link
from roofline.pipeline.scaling import scale
from tests.builders import SOURCE
from tests.pipeline.towers import LINK, Tower, scaled


def test_a_model_that_raises_keeps_no_hook() -> None:
    class Raises(Tower):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            raise ValueError("no")

    model = Raises()
    with pytest.raises(InputError, match="no"):
        scaled(model, "8x64", checkpoint="blocks")
    assert all("forward" not in vars(each) for each in model.modules())
    assert all(not each._post_accumulate_grad_hooks for each in model.parameters())


def test_a_profile_with_links_needs_no_other() -> None:
    machine = replace(
        roofline.load_hardware("10980xe"),
        links=(
            Link(
                source="process",
                target="process",
                kernel="gloo all-reduce",
                threads=1,
                peak_bytes_per_s=2e9,
                sustained_bytes_per_s=1e9,
                provenance=SOURCE,
            ),
        ),
    )
    told = scale(Tower(), "8x64", data_parallel=2, hardware=machine)
    assert told.link is not None
    assert told.link.bytes_per_s == 2e9 and told.link.is_in_host
    assert told.point.transfer_s == pytest.approx(told.gradient_bytes / 2e9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data_parallel": 0}, "data_parallel=0: must be a whole number"),
        ({"data_parallel": True}, "data_parallel=True"),
        ({"accumulate": 0}, "accumulate=0"),
        ({"algorithm": "rings"}, "algorithm='rings'.*did you mean 'ring'"),
        ({"bucket": "3 apples"}, "bucket='3 apples': must be a size"),
        ({"bucket": 0}, "bucket=0"),
        ({"sharded": 1}, "expected True or False"),
        ({"data_parallel": -3}, "data_parallel=-3: must be a whole number"),
        ({"data_parallel": "8"}, "data_parallel='8': must be a whole number"),
        ({"data_parallel": 10**9}, "must be a whole number from 1 to 1048576"),
        ({"checkpoint": 3}, "checkpoint: expected blocks or a path"),
        ({"checkpoint": ""}, "no such module"),
        ({"hardware": ["10980xe", "a100"]}, "expected one machine"),
        ({"link_bandwidth": "fast"}, "link_bandwidth='fast': must be a rate"),
        ({"link_bandwidth": "25Gb/s"}, "link_bandwidth='25Gb/s': must be a rate"),
        ({"link_bandwidth": 0.0}, "bandwidth must be above 0"),
        ({"link_bandwidth": math.inf}, "both finite"),
        ({"link_bandwidth": math.nan}, "both finite"),
        ({"link_bandwidth": True}, "bandwidth must be above 0"),
        ({"link_bandwidth": [25e9]}, "bandwidth must be above 0"),
        ({"link_latency": -1e-6}, "latency at least 0"),
        ({"link_latency": math.inf}, "both finite"),
        ({"link_latency": "-5us"}, "link_latency='-5us': must be a time"),
        ({"link_bandwidth": None}, "no effect without link_bandwidth"),
        ({"link_bandwidth": None, "link_latency": None}, "measure --links"),
        ({"measured": True, "checkpoint": "blocks"}, "checkpoint has no effect"),
        ({"measured": True, "scale_gradients": True}, "scale_gradients has no effect"),
        ({"measured": True, "cold": True}, "cold has no effect"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(options: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"data_parallel": 2, "hardware": "10980xe", **LINK, **options}
    with pytest.raises(InputError, match=said) as caught:
        scale(Tower(), "8x64", **given)
    assert "\n" not in str(caught.value)


def test_more_threads_than_the_machine_has_are_refused_before_the_model_is_run() -> None:
    with pytest.raises(HardwareError):
        scaled(Tower(), "8x64", threads=10_000)


def test_nothing_to_train_is_refused() -> None:
    model = Tower()
    model.requires_grad_(False)
    with pytest.raises(InputError, match="nothing to train"):
        scaled(model, "8x64")


@pytest.mark.parametrize("latency", ["0", "0us", "0.0 ms", 0, 0.0, None])
def test_a_link_without_latency_is_one(latency: Any) -> None:
    told = scaled(Tower(blocks=1), "8x64", link_latency=latency)
    assert told.link is not None and told.link.latency_s == 0
    assert told.point.transfer_s == pytest.approx(1.5 * told.gradient_bytes / 1e9)


def test_bits_are_an_eighth_of_bytes() -> None:
    byte, bit = (
        scaled(Tower(blocks=1), "8x64", link_bandwidth=rate) for rate in ("25GB/s", "25Gbit/s")
    )
    assert byte.link is not None and bit.link is not None
    assert (byte.link.bytes_per_s, bit.link.bytes_per_s) == (25e9, 3.125e9)


def test_one_rank_needs_no_link_and_no_other_number_is_told_without() -> None:
    told = scale(Tower(), "8x64", data_parallel=1, hardware="10980xe")
    assert told.link is None
    assert [each.ranks for each in told.points] == [1]
    assert told.point.efficiency == pytest.approx(1)
    assert "no communication" in told.summary


def test_a_machine_that_was_never_measured_has_no_links() -> None:
    with pytest.raises(InputError, match=r"no hardware profile .* or add link_bandwidth"):
        scale(Tower(), "8x64", data_parallel=2)


class _Explosive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise ValueError("exploded")


class Explodes(Tower):
    """A model whose backward pass raises."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Explosive.apply(super().forward(x))  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        (nn.ReLU(), "8x64", "nothing to train"),
        (Tower().requires_grad_(False), "8x64", "nothing to train"),
        (Explodes(), "8x64", "exploded"),
        (Tower(), "8x64:int64", "rejects its inputs|dtype"),
        (Tower(), "8x65", "64"),
        (nn.Embedding(10, 4, sparse=True), "8:int64", "sparse"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(model: Any, inputs: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        scaled(model, inputs)
    assert "\n" not in str(caught.value)


def test_words_are_trained_as_well() -> None:
    told = scaled(nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 3)), "8:int64")
    assert {each.parameter for each in told.gradients} == {"0.weight", "1.weight", "1.bias"}
