"""What ranks keep, and what is added: states, modules that run again, mixed precision."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.errors import InputError
from tests.pipeline.towers import Normed, Tower, scaled


def test_states_that_are_shared_out_are_less_and_parameters_are_sent() -> None:
    whole = scaled(Tower(), "8x64", optimizer="adam")
    shared = scaled(Tower(), "8x64", optimizer="adam", sharded=True)
    states = whole.point.memory.optimizer_bytes
    assert states == whole.analysis.totals.optimizer_state_bytes
    assert sum(each.state_bytes for each in whole.gradients) == states
    assert states / 4 <= shared.point.memory.optimizer_bytes < states / 2
    more = shared.point.link_bytes - whole.point.link_bytes
    assert more == pytest.approx(0.75 * whole.gradient_bytes)


def test_modules_that_run_again_keep_less_and_compute_more() -> None:
    model = Tower(blocks=12)
    plain, again = scaled(model, "512x64"), scaled(model, "512x64", checkpoint="blocks")
    assert again.settings.checkpointed == tuple(f"blocks.{each}" for each in range(12))
    assert again.point.memory.activation_bytes < 0.6 * plain.point.memory.activation_bytes
    # Every block computes its forward pass once more: both products, but for what the last of them
    # gives, which the backward pass does not read.
    more = again.analysis.totals.macs - plain.analysis.totals.macs
    assert more == pytest.approx(12 * 512 * 64 * 256, rel=1.01)
    assert again.gradient_bytes == plain.gradient_bytes
    assert "forward" not in vars(model.blocks[0])
    assert not any("keeps fake tensors" in each for each in again.warnings)


def test_modules_that_run_again_are_those_of_the_pattern() -> None:
    told = scaled(Tower(), "8x64", checkpoint="blocks.[024]")
    assert told.settings.checkpointed == ("blocks.0", "blocks.2", "blocks.4")
    with pytest.raises(InputError, match=r"no such module; did you mean 'blocks.0'"):
        scaled(Tower(), "8x64", checkpoint="block.0")
    with pytest.raises(InputError, match="no lists of composite modules"):
        scaled(nn.Linear(4, 4), "2x4", checkpoint="blocks")


def test_mixed_precision_keeps_batch_norms_wide_and_says_so() -> None:
    told = scaled(Normed(), "2x3x8x8", autocast="bfloat16")
    assert {str(each.dtype) for each in told.buckets} == {"float32"}
    assert any("1 batch norm stay in float32" in each for each in told.notes)
    assert not any("real tensors" in each for each in told.warnings)
    types = {str(spec.dtype) for row in told.analysis.operators for spec in row.outputs}
    assert {"bfloat16", "float32"} <= types


def test_scaled_gradients_are_looked_at_before_the_update() -> None:
    plain = scaled(Tower(), "8x64", autocast="bfloat16")
    told = scaled(Tower(), "8x64", autocast="bfloat16", scale_gradients=True)
    assert not any("real tensors" in each or "keeps fake tensors" in each for each in told.warnings)
    (row,) = (each for each in told.analysis.operators if "non_finite_check" in each.op)
    assert row.phase == "optimizer"
    assert row.flop == 2 * told.gradient_bytes // 4
    assert row.gradient_bytes == 2 * told.gradient_bytes
    assert "scaled" in told.analysis.run.loss
    assert told.buckets == tuple(
        replace(each, after=found.after)
        for each, found in zip(plain.buckets, told.buckets, strict=True)
    )


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
            assert each.memory.optimizer_bytes == byte
            assert each.memory.parameter_bytes == 4 * parameters
            assert each.memory.bucket_bytes == (4 * parameters if each.ranks > 1 else 0)
        for each in shared.points:
            assert byte / each.ranks <= each.memory.optimizer_bytes <= byte
        # With more ranks than parameters the one with the largest of them keeps most.
        assert shared.point.memory.optimizer_bytes == of_each * largest + of_tensor


def test_gradients_that_lie_in_the_buckets_are_kept_once() -> None:
    told = scaled(Tower(), "8x64")
    choices = {each.what: each.memory for each in told.memory_choices}
    views, asked = choices["gradients as bucket views"], choices["these settings"]
    assert views.bucket_bytes == asked.bucket_bytes == told.gradient_bytes
    # Those of one layer at a time, which go as soon as they are copied.
    assert views.gradient_bytes < asked.gradient_bytes
    assert views.total_bytes < asked.total_bytes


def test_modules_that_run_again_compute_under_mixed_precision_as_before() -> None:
    plain, again = (
        scaled(Tower(blocks=12), "512x64", autocast="bfloat16", checkpoint=each)
        for each in (None, "blocks")
    )
    assert again.point.memory.activation_bytes < 0.6 * plain.point.memory.activation_bytes
    assert again.buckets[0].size_bytes == plain.buckets[0].size_bytes
