"""From a model to what its training comes to on several ranks.

Each test captures one or more steps of training on fake tensors, a third of a second each.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import roofline
from roofline.errors import HardwareError, InputError
from roofline.machine.hardware import Link
from roofline.pipeline.scaling import scale
from roofline.scaling.result import Scaling
from tests.builders import SOURCE

LINK = {"link_bandwidth": "1GB/s", "link_latency": "20us"}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Tower(nn.Module):
    def __init__(self, blocks: int = 6, width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.blocks:
            x = each(x)
        return self.head(x)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).mean((2, 3))


def scaled(model: Any, inputs: Any, ranks: int = 4, **options: Any) -> Scaling:
    return scale(model, inputs, data_parallel=ranks, hardware="10980xe", **{**LINK, **options})


def test_gradients_are_the_parameters_and_buckets_hold_all_of_them() -> None:
    model = Tower()
    told = scaled(model, "8x64")
    parameters = {name: each.numel() for name, each in model.named_parameters()}
    assert {each.parameter: each.elements for each in told.gradients} == parameters
    assert told.gradient_byte == 4 * sum(parameters.values())
    assert told.gradients[0].parameter.startswith("head")
    assert [each.after for each in told.gradients] == sorted(each.after for each in told.gradients)


def test_each_gradient_is_done_after_an_operator_that_wrote_it() -> None:
    told = scaled(Tower(), "8x64")
    for each in told.gradients:
        before = told.analysis.operators[: each.after]
        writers = [row for row in before if each.storage in {one.storage for one in row.outputs}]
        assert writers and {row.phase for row in writers} == {"backward"}


def test_a_step_is_between_sending_aside_and_computing_nothing_meanwhile() -> None:
    told = scaled(Tower(), "8x64")
    assert told.time_kind == "bound"
    for each in told.points:
        assert each.step_s and each.step_low_s and each.step_high_s and told.alone_s
        assert each.step_low_s <= each.step_s <= each.step_high_s
        assert each.step_low_s >= max(told.alone_s, each.least_sending_s) * (1 - 1e-9)
        assert each.efficiency is not None and 0 < each.efficiency <= 1
        assert each.efficiency_most is not None and each.efficiency <= each.efficiency_most + 1e-9


def test_one_rank_is_the_analysis_itself() -> None:
    told = scaled(Tower(), "8x64", ranks=1)
    analysis = roofline.analyze(Tower(), "8x64", train=True, hardware="10980xe")
    assert told.alone_s == pytest.approx(analysis.totals.bound_s)
    assert told.point.step_s == pytest.approx(analysis.totals.bound_s)
    assert told.point.efficiency == pytest.approx(1)
    assert told.point.memory.byte == analysis.totals.peak_memory_byte
    assert told.point.link_byte == 0


def test_a_ring_sends_its_part_of_every_gradient() -> None:
    told = scaled(Tower(), "8x64")
    for each in told.points:
        share = 2 * (each.ranks - 1) / each.ranks
        assert each.link_byte == pytest.approx(share * told.gradient_byte)
        wire_s = each.link_byte / 1e9
        waits_s = 2 * (each.ranks - 1) * len(told.buckets) * 20e-6
        assert each.sending_s == pytest.approx(wire_s + waits_s)


def test_more_passes_hide_more_and_keep_gradients() -> None:
    once, often = scaled(Tower(), "8x64"), scaled(Tower(), "8x64", accumulate=8)
    assert once.point.efficiency and often.point.efficiency
    assert often.point.efficiency > once.point.efficiency
    assert often.point.link_byte == once.point.link_byte
    assert often.point.memory.gradient_byte >= once.gradient_byte


def test_states_that_are_shared_out_are_less_and_parameters_are_sent() -> None:
    whole = scaled(Tower(), "8x64", optimizer="adam")
    shared = scaled(Tower(), "8x64", optimizer="adam", sharded=True)
    states = whole.point.memory.optimizer_byte
    assert states == whole.analysis.totals.optimizer_bytes
    assert sum(each.state_byte for each in whole.gradients) == states
    assert states / 4 <= shared.point.memory.optimizer_byte < states / 2
    more = shared.point.link_byte - whole.point.link_byte
    assert more == pytest.approx(0.75 * whole.gradient_byte)


def test_buffers_go_to_all_before_the_forward_pass() -> None:
    told = scaled(Normed(), "2x3x8x8", ranks=2)
    assert told.broadcast_byte == 8 * 4 * 2 + 8
    assert told.point.timeline is not None
    assert told.point.timeline.before_s == pytest.approx(20e-6 + told.broadcast_byte / 1e9)


def test_modules_that_run_again_keep_less_and_compute_more() -> None:
    model = Tower(blocks=12)
    plain, again = scaled(model, "512x64"), scaled(model, "512x64", checkpoint="blocks")
    assert again.settings.checkpointed == tuple(f"blocks.{each}" for each in range(12))
    assert again.point.memory.activation_byte < 0.6 * plain.point.memory.activation_byte
    # Every block computes its forward pass once more: both products, but for what the last of them
    # gives, which the backward pass does not read.
    more = again.analysis.totals.multiply_add - plain.analysis.totals.multiply_add
    assert more == pytest.approx(12 * 512 * 64 * 256, rel=1.01)
    assert again.gradient_byte == plain.gradient_byte
    assert "forward" not in vars(model.blocks[0])
    assert not any("keeps tensors" in each for each in again.warnings)


def test_modules_that_run_again_are_those_of_the_pattern() -> None:
    told = scaled(Tower(), "8x64", checkpoint="blocks.[024]")
    assert told.settings.checkpointed == ("blocks.0", "blocks.2", "blocks.4")
    with pytest.raises(InputError, match=r"no module is called that; did you mean 'blocks.0'"):
        scaled(Tower(), "8x64", checkpoint="block.0")
    with pytest.raises(InputError, match="no lists of modules"):
        scaled(nn.Linear(4, 4), "2x4", checkpoint="blocks")


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


def test_mixed_precision_keeps_batch_norms_wide_and_says_so() -> None:
    told = scaled(Normed(), "2x3x8x8", autocast="bfloat16")
    assert {str(each.dtype) for each in told.buckets} == {"float32"}
    assert any("1 batch norm are kept in float32" in each for each in told.notes)
    assert not any("ran for real" in each for each in told.warnings)
    types = {str(spec.dtype) for row in told.analysis.operators for spec in row.outputs}
    assert {"bfloat16", "float32"} <= types


def test_scaled_gradients_are_looked_at_before_the_update() -> None:
    plain = scaled(Tower(), "8x64", autocast="bfloat16")
    told = scaled(Tower(), "8x64", autocast="bfloat16", scale_gradients=True)
    assert not any("ran for real" in each or "keeps tensors" in each for each in told.warnings)
    (row,) = (each for each in told.analysis.operators if "non_finite_check" in each.op)
    assert row.phase == "optimizer"
    assert row.flop == 2 * told.gradient_byte // 4
    assert row.gradient_byte == 2 * told.gradient_byte
    assert "scaled" in told.analysis.run.loss
    assert told.buckets == tuple(
        replace(each, after=found.after)
        for each, found in zip(plain.buckets, told.buckets, strict=True)
    )


def test_parameters_without_a_gradient_are_named() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    told = scaled(Half(), "2x4")
    assert any("unused.weight, unused.bias" in each for each in told.notes)
    assert len(told.gradients) == 2


def test_a_profile_with_links_needs_no_other() -> None:
    machine = replace(
        roofline.load_hardware("10980xe"),
        links=(
            Link(
                source="process",
                target="process",
                kernel="gloo all-reduce",
                threads=1,
                peak_byte_per_s=2e9,
                sustained_byte_per_s=1e9,
                provenance=SOURCE,
            ),
        ),
    )
    told = scale(Tower(), "8x64", data_parallel=2, hardware=machine)
    assert told.wire is not None
    assert told.wire.byte_per_s == 2e9 and told.wire.is_in_host
    assert told.point.sending_s == pytest.approx(told.gradient_byte / 2e9)


def test_a_batch_is_that_of_a_rank() -> None:
    told = scaled(Tower(), "8x64", accumulate=2)
    assert told.batch == 8
    rate = told.samples_per_s(told.point)
    assert rate is not None and told.point.step_s
    assert math.isclose(rate, 8 * 2 * 4 / told.point.step_s)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data_parallel": 0}, "--data-parallel 0: must be a whole number"),
        ({"data_parallel": True}, "--data-parallel True"),
        ({"accumulate": 0}, "--accumulate 0"),
        ({"algorithm": "rings"}, "--all-reduce rings.*did you mean 'ring'"),
        ({"bucket": "3 apples"}, "is not of the form 1MB"),
        ({"bucket": 0}, "--bucket 0"),
        ({"sharded": 1}, "expected True or False"),
        ({"data_parallel": -3}, "--data-parallel -3: must be a whole number"),
        ({"data_parallel": "8"}, "--data-parallel 8: must be a whole number"),
        ({"data_parallel": 10**9}, "must be a whole number from 1 to 1048576"),
        ({"checkpoint": 3}, "checkpoint: expected blocks or a path"),
        ({"checkpoint": ""}, "no module is called that"),
        ({"hardware": ["10980xe", "a100"]}, "expected one machine"),
        ({"link_bandwidth": "fast"}, "is not of the form 25GB/s"),
        ({"link_bandwidth": "25Gb/s"}, "B: bytes, bit: bits"),
        ({"link_bandwidth": 0.0}, "a link has byte/s above 0"),
        ({"link_bandwidth": math.inf}, "both finite"),
        ({"link_bandwidth": math.nan}, "both finite"),
        ({"link_bandwidth": True}, "a link has byte/s above 0"),
        ({"link_bandwidth": [25e9]}, "a link has byte/s above 0"),
        ({"link_latency": -1e-6}, "a latency from 0"),
        ({"link_latency": math.inf}, "both finite"),
        ({"link_latency": "-5us"}, "time '-5us' is not of the form"),
        ({"link_bandwidth": None}, "no effect without --link-bandwidth"),
        ({"link_bandwidth": None, "link_latency": None}, "measure --links"),
        ({"measured": True, "checkpoint": "blocks"}, "--checkpoint has no effect"),
        ({"measured": True, "scale_gradients": True}, "--scale-gradients has no effect"),
        ({"measured": True, "cold": True}, "--cold has no effect"),
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
    assert told.wire is not None and told.wire.latency_s == 0
    assert told.point.sending_s == pytest.approx(1.5 * told.gradient_byte / 1e9)


def test_bits_are_an_eighth_of_bytes() -> None:
    byte, bit = (
        scaled(Tower(blocks=1), "8x64", link_bandwidth=rate) for rate in ("25GB/s", "25Gbit/s")
    )
    assert byte.wire is not None and bit.wire is not None
    assert (byte.wire.byte_per_s, bit.wire.byte_per_s) == (25e9, 3.125e9)


def test_one_rank_needs_no_link_and_no_other_number_is_told_without() -> None:
    told = scale(Tower(), "8x64", data_parallel=1, hardware="10980xe")
    assert told.wire is None
    assert [each.ranks for each in told.points] == [1]
    assert told.point.efficiency == pytest.approx(1)
    assert "sends nothing" in told.summary


def test_a_machine_that_was_never_measured_has_no_links() -> None:
    with pytest.raises(InputError, match=r"not measured yet, .* or give --link-bandwidth"):
        scale(Tower(), "8x64", data_parallel=2)


class Operators(TorchDispatchMode):
    """Counts what torch calls, but for what looks at a value."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket).rpartition(".")[2]
        if name not in ("_local_scalar_dense", "detach"):
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


def called_by_torch(*, scales: bool) -> Counter[str]:
    """The operators of the third step of a loop as people write it."""
    torch.manual_seed(0)
    model, x, target = Tower(blocks=2), torch.randn(8, 64), torch.randint(10, (8,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=scales)
    counted = Operators()
    for step in range(3):
        with counted if step == 2 else nullcontext():
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
    return counted.found


def test_scaling_adds_the_operators_that_torchs_scaler_adds() -> None:
    plain, scaling = (
        Counter(
            row.op.rpartition(".")[2]
            for row in scaled(
                Tower(blocks=2), "8x64", optimizer="sgd", autocast="bfloat16", scale_gradients=each
            ).analysis.operators
        )
        for each in (False, True)
    )
    more = called_by_torch(scales=True) - called_by_torch(scales=False)
    assert scaling - plain == more
    assert more["_amp_foreach_non_finite_check_and_unscale_"] == 1
    assert more["_amp_update_scale_"] == 1


def test_each_optimizer_keeps_its_states_whole_and_shared_out() -> None:
    model = Tower(blocks=1)
    parameters = sum(each.numel() for each in model.parameters())
    tensors = len(list(model.parameters()))
    largest = 64 * 256

    def momentum(given: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(given, lr=0.1, momentum=0.9)

    # A copy of every parameter for momentum, two and a count of steps for Adam.
    for optimizer, of_each, of_tensor in (("sgd", 0, 0), (momentum, 4, 0), ("adamw", 8, 4)):
        whole, shared = (
            scaled(model, "8x64", ranks=1000, optimizer=optimizer, sharded=each)
            for each in (False, True)
        )
        byte = of_each * parameters + of_tensor * tensors
        for each in whole.points:
            assert each.memory.optimizer_byte == byte
            assert each.memory.parameter_byte == 4 * parameters
            assert each.memory.bucket_byte == (4 * parameters if each.ranks > 1 else 0)
        for each in shared.points:
            assert byte / each.ranks <= each.memory.optimizer_byte <= byte
        # With more ranks than parameters the one with the largest of them keeps most.
        assert shared.point.memory.optimizer_byte == of_each * largest + of_tensor


def test_gradients_that_lie_in_the_buckets_are_kept_once() -> None:
    told = scaled(Tower(), "8x64")
    choices = {each.what: each.memory for each in told.memory_choices}
    views, asked = choices["gradients kept in the buckets"], choices["as asked"]
    assert views.bucket_byte == asked.bucket_byte == told.gradient_byte
    # Those of one layer at a time, which go as soon as they are copied.
    assert views.gradient_byte < asked.gradient_byte
    assert views.byte < asked.byte


def test_modules_that_run_again_compute_under_mixed_precision_as_before() -> None:
    plain, again = (
        scaled(Tower(blocks=12), "512x64", autocast="bfloat16", checkpoint=each)
        for each in (None, "blocks")
    )
    assert again.point.memory.activation_byte < 0.6 * plain.point.memory.activation_byte
    assert again.buckets[0].byte == plain.buckets[0].byte


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
