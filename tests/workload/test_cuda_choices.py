"""What a torch without CUDA is made to call for it: attention, autocast, and steps of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from roofline.run import Device, Run
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import TrainingConfig, optimizer_factory
from roofline.workload.formulas.costs import TRANSCENDENTAL_FLOP
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function
from roofline.workload.operators import Capture, OperatorRecord, State
from tests.workload.passes import total

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="this torch has CUDA")

HALF = torch.float16


def ran(function: Callable[..., Any], *inputs: Any, device: Device = "cuda", **run: Any) -> Capture:
    run_for = Run(device=device, **run)
    captured = capture(Function(function), Inputs(*inputs), name="function", run=run_for)
    assert not any("real tensors" in each for each in captured.notes)
    return captured


def names(found: Sequence[OperatorRecord]) -> list[str]:
    return [each.op.removeprefix("aten.").removeprefix("_scaled_dot_product_") for each in found]


# -- attention -------------------------------------------------------------------------------------


def attention(
    *shapes: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    mask: tuple[tuple[int, ...], torch.dtype] | None = None,
    is_trained: bool = False,
    **options: Any,
) -> list[OperatorRecord]:
    """What attention calls on queries, keys and values of these shapes; the last stands for all
    that are not given.
    """

    def attend(*given: torch.Tensor) -> torch.Tensor:
        operands, bias = given[:3], given[3] if mask else None
        with torch.set_grad_enabled(is_trained):
            operands = tuple(each.clone().requires_grad_() for each in operands[: 3 * is_trained])
            found = torch.nn.functional.scaled_dot_product_attention(
                *(operands or given[:3]), attn_mask=bias, **options
            )
            if is_trained:
                found.sum().backward()
        return found

    given = [torch.empty(each, dtype=dtype) for each in (*shapes, *shapes[-1:] * 2)[:3]]
    if mask:
        given.append(torch.empty(mask[0], dtype=mask[1]))
    records = ran(attend, *given).records
    return [each for each in records if each.state is not State.FREE and each.op != "aten.clone"]


@pytest.mark.parametrize(
    ("dtype", "kernel", "logarithm_bytes"),
    [
        (torch.float16, "flash_attention", 4),
        (torch.bfloat16, "flash_attention", 4),
        # Without gradients it keeps no logarithms.
        (torch.float32, "efficient_attention", 0),
    ],
)
def test_the_kernel_of_a_type(dtype: torch.dtype, kernel: str, logarithm_bytes: int) -> None:
    """Queries, keys, values and results of 2 x 3 x 8 x 16; a logarithm a query."""
    (found,) = attention((2, 3, 8, 16), dtype=dtype)
    assert names([found]) == [kernel]
    operands = 4 * 2 * 3 * 8 * 16 * dtype.itemsize
    assert found.work.traffic_bytes == operands + 2 * 3 * 8 * logarithm_bytes
    # Two products over 8 x 8 scores of 16 features in each of 6 heads.
    assert found.work.macs == 2 * 6 * 8 * 8 * 16


def test_fused_attention_is_as_much_arithmetic_as_on_a_cpu() -> None:
    """The CPU's kernel returns a logarithm a query, that of CUDA without gradients none."""
    query = torch.empty(2, 3, 8, 16)
    attend = torch.nn.functional.scaled_dot_product_attention
    cpu, cuda = (
        total(ran(lambda q: attend(q, q, q), query, device=device)) for device in ("cpu", "cuda")
    )
    assert cpu.macs == cuda.macs
    assert (cpu.flop or 0) - (cuda.flop or 0) == 2 * 3 * 8 * (1 + TRANSCENDENTAL_FLOP)


@pytest.mark.parametrize(
    ("shapes", "options", "expected"),
    [
        # No mask goes into the flash kernel; rows of 16 lie as the efficient one takes them.
        (((2, 3, 8, 16), (2, 3, 16, 16)), {"mask": ((8, 16), HALF)}, ["efficient_attention"]),
        # Rows of 8 do not: they are copied into rows of 16.
        (((2, 3, 8, 16),), {"mask": ((8, 8), HALF)}, ["constant_pad_nd", "efficient_attention"]),
        # The flash kernel would begin causal masks at the last query and key.
        (((2, 3, 8, 16), (2, 3, 9, 16)), {"is_causal": True}, ["efficient_attention"]),
        (((2, 3, 8, 16),), {"is_causal": True}, ["flash_attention"]),
        # Padding of 20 features to 24 is no work that has to be done.
        (((2, 3, 8, 20),), {}, ["flash_attention"]),
        (((2, 3, 8, 256),), {}, ["flash_attention"]),
        (((2, 3, 8, 264),), {}, ["efficient_attention"]),
        (((2, 3, 8, 16), (2, 3, 8, 16), (2, 3, 8, 32)), {}, ["efficient_attention"]),
        # Two heads of queries for each of keys.
        (((2, 6, 8, 16), (2, 3, 8, 16)), {"enable_gqa": True}, ["flash_attention"]),
        (((2, 3, 8, 16),), {"dropout_p": 0.1}, ["flash_attention"]),
    ],
)
def test_what_kernels_take(
    shapes: tuple[tuple[int, ...], ...], options: dict[str, Any], expected: list[str]
) -> None:
    assert names(attention(*shapes, dtype=HALF, **options)) == expected


@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [
        (((2, 3, 8, 16),), torch.float64),
        # 18 floats are not a multiple of 16 bytes.
        (((2, 3, 8, 18),), torch.float32),
        (((3, 8, 16),), torch.float32),
        # One sample's keys for two samples' queries.
        (((2, 3, 8, 16), (1, 3, 8, 16)), torch.float32),
    ],
)
def test_what_no_kernel_takes_comes_as_its_parts(
    shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype
) -> None:
    assert "_safe_softmax" in names(attention(*shapes, dtype=dtype))


def test_a_boolean_mask_is_made_numbers_to_add() -> None:
    found = attention((2, 3, 8, 16), (2, 3, 16, 16), mask=((8, 16), torch.bool))
    assert names(found)[-2:] == ["where", "efficient_attention"]


def test_kernels_that_are_switched_off_are_not_called() -> None:
    kernels = torch.nn.attention.SDPBackend
    with torch.nn.attention.sdpa_kernel(kernels.MATH):
        assert "_safe_softmax" in names(attention((2, 3, 8, 16)))
    with torch.nn.attention.sdpa_kernel(kernels.EFFICIENT_ATTENTION):
        assert names(attention((2, 3, 8, 16), dtype=HALF)) == ["efficient_attention"]


def test_the_backward_pass_of_attention_is_one_operator() -> None:
    """Five products where the forward pass has two; the efficient kernel keeps 32 logarithms."""
    for dtype, kernel in ((torch.float32, "efficient_attention"), (HALF, "flash_attention")):
        found = attention((2, 3, 8, 16), dtype=dtype, is_trained=True)
        at = names(found).index(f"{kernel}_backward")
        assert names(found)[0] == kernel
        assert found[at].work.macs == 5 * 6 * 8 * 8 * 16
    (forward, *_) = attention((2, 3, 8, 16), is_trained=True)
    assert forward.work.traffic_bytes == 4 * 2 * 3 * 8 * 16 * 4 + 2 * 3 * 32 * 4


# -- autocast --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x.softmax(-1), "float32"),
        (lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), "float32"),
        (lambda x: torch.nn.functional.group_norm(x, 2), "float32"),
        (lambda x: x.sum(), "float32"),
        (lambda x: x.cumsum(-1), "float32"),
        (lambda x: x.exp(), "float32"),
        (lambda x: x.pow(2), "float32"),
        (lambda x: x.rsqrt(), "float32"),
        (lambda x: x.norm(), "float32"),
        (lambda x: torch.nn.functional.mse_loss(x, x), "float32"),
        (torch.nn.functional.gelu, "float16"),
        (torch.relu, "float16"),
        (torch.sigmoid, "float16"),
    ],
)
def test_what_autocast_on_cuda_computes_in_float32(
    function: Callable[..., Any], expected: str
) -> None:
    """Those of torch's documentation of autocast; a CPU leaves softmax, sums and powers as is."""
    captured = ran(lambda x: function(x), torch.empty(2, 4, 8, dtype=HALF), autocast="float16")
    assert captured.records[-1].outputs[0].dtype.name == expected


@pytest.mark.parametrize("autocast", ["float16", "bfloat16"])
def test_autocast_on_cuda_multiplies_in_half(autocast: str) -> None:
    """A linear layer, called twice, a convolution, products and attention."""
    linear, convolution = torch.nn.Linear(8, 8), torch.nn.Conv1d(4, 4, 3, padding=1)

    def multiplied(x: torch.Tensor) -> torch.Tensor:
        x = convolution(linear(linear(x)))
        x = x @ x.mT @ x
        return torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])

    captured = ran(multiplied, (2, 4, 8), autocast=autocast)
    products = [each for each in captured.records if each.work.macs]
    assert {each.op for each in products} == {
        "aten.addmm",
        "aten.convolution",
        "aten.bmm",
        "aten._scaled_dot_product_flash_attention",
    }
    for each in products:
        assert {spec.dtype.name for spec in each.inputs} == {autocast}
    # The input, and weights and biases of both layers: cast once, and kept for the second call.
    copies = [each for each in captured.records if each.op == "aten._to_copy"]
    assert len(copies) == 5
    assert not torch.is_autocast_enabled("cuda")


def test_a_model_that_switches_autocast_on_or_off() -> None:
    def switch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            first = x @ x
        with torch.autocast("cuda", enabled=False):
            return first, x @ x

    records = ran(switch, (8, 8), autocast="float16").records
    products = [each.outputs[0].dtype.name for each in records if each.op == "aten.mm"]
    assert products == ["bfloat16", "float32"]


def test_what_runs_for_real_has_the_autocast_of_where_it_runs() -> None:
    """It needs values, and so runs for real, on the CPU."""
    linear = torch.nn.Linear(8, 8)
    model = Function(lambda x: linear(x) if x.sum().item() < 1e9 else x)
    run = Run(device="cuda", autocast="bfloat16")
    captured = capture(model, Inputs((2, 8)), name="model", run=run)
    assert any("on real tensors on the CPU" in each for each in captured.notes)
    (product,) = (each for each in captured.records if each.op == "aten.addmm")
    assert {spec.dtype.name for spec in product.inputs} == {"bfloat16"}


# -- training --------------------------------------------------------------------------------------


def stepped(model: torch.nn.Module, device: Device, **run: Any) -> Capture:
    """A step of training with AdamW."""
    captured = capture(
        model,
        Inputs((4, 6, 16)),
        name="model",
        run=Run(device=device, train=True, optimizer="adamw", **run),
        training=TrainingConfig(optimizer=optimizer_factory("adamw")),
    )
    assert not any("real tensors" in each for each in captured.notes)
    return captured


class Block(torch.nn.Module):
    """Attention behind a normalization, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.inner = torch.nn.Linear(16, 48)
        self.outer = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        x = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        x = self.outer(x.transpose(1, 2).flatten(2))
        return torch.nn.functional.dropout(x, 0.1, self.training)


def test_training_for_cuda_does_the_products_that_a_cpu_does() -> None:
    cpu, cuda = (stepped(Block(), device) for device in ("cpu", "cuda"))
    assert total(cuda).macs == total(cpu).macs
    assert len(cuda.gradients) == len(cpu.gradients) == 6
    assert all(each.state is not State.UNKNOWN for each in cuda.records)
    assert {each.phase for each in cuda.records} == {"forward", "backward", "optimizer"}


def test_training_for_cuda_calls_what_cuda_has() -> None:
    """Dropout and attention are one operator each way, and the optimizer updates all at a time."""
    records = stepped(Block(), "cuda").records
    ops = Counter(each.op for each in records if each.state is not State.FREE)
    for name in ("native_dropout", "_scaled_dot_product_efficient_attention"):
        assert (ops[f"aten.{name}"], ops[f"aten.{name}_backward"]) == (1, 1)
    assert ops["aten._foreach_addcdiv_"] == 1
    assert not ops["aten.addcdiv_"]
    # Nothing is brought from elsewhere.
    assert not ops["aten._to_copy"]


def test_training_under_autocast() -> None:
    found = stepped(Block(), "cuda", autocast="bfloat16")
    kernels = [each for each in found.records if "_attention" in each.op]
    assert names(kernels) == ["flash_attention", "flash_attention_backward"]
    # 16 + 16 of the normalization, 48 x 17 and 16 x 17 of the layers, 4 bytes each.
    assert sum(each.byte for each in found.gradients) == 4 * (32 + 48 * 17 + 16 * 17)


def test_a_checkpoint_runs_again_what_cuda_has() -> None:
    """Not what a CPU would call, though the backward pass is under way."""
    block = Block()
    model = Function(lambda x: checkpoint(block, x, use_reentrant=False))
    ops = Counter(each.op for each in stepped(model, "cuda").records)
    assert ops["aten.native_dropout"] == 2
    assert ops["aten._scaled_dot_product_efficient_attention"] == 2
    assert not ops["aten.bernoulli_"]


def test_second_derivatives() -> None:
    """In the forward pass; nothing has to run for real."""

    def derive(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            (first,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
            return torch.autograd.grad(first.sum(), x)[0]

    cpu, cuda = (total(ran(derive, (2, 3), device=device)) for device in ("cpu", "cuda"))
    assert cpu.flop == cuda.flop


def test_convolutions_keep_images_channels_last_as_cudnn_does() -> None:
    def net(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.conv2d(x.contiguous(memory_format=torch.channels_last), w)

    found = capture(
        Function(net), Inputs((2, 8, 9, 9), (4, 8, 3, 3)), name="net", run=Run(device="cuda")
    )
    (convolution,) = [each for each in found.records if each.op == "aten.convolution"]

    assert convolution.inputs[0].layout == "channels-last"
    assert convolution.outputs[0].layout == "channels-last"
