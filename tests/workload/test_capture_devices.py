"""``--device cuda`` on a torch without CUDA: what CUDA would be asked for, or one line.

Only there is anything to do: with CUDA, torch itself does what is made up for here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import _foreach_supported_types

import roofline
from roofline.errors import ModelError
from roofline.run import Device, Run
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import TrainingConfig
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function
from roofline.workload.operators import Capture, OperatorRecord, State
from roofline.workload.work import Work
from tests.workload.passes import total

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="this torch has CUDA")


DEVICES: tuple[Device, Device] = ("cpu", "cuda")


def ran(model: Callable[..., Any], *inputs: Any, device: Device = "cuda") -> Capture:
    module = model if isinstance(model, torch.nn.Module) else Function(model)
    return capture(module, Inputs(*inputs), name="model", run=Run(device=device))


def is_on_fakes(captured: Capture) -> bool:
    """Whether it did not run for real, on the CPU then."""
    return not any("real tensors" in each for each in captured.notes)


# -- indexing --------------------------------------------------------------------------------------

ROWS = torch.tensor([2, 0, 1])
MASK = torch.tensor([True, False, True, False])

INDICES: tuple[Any, ...] = (
    0,
    -1,
    (1, 2),
    (1, 2, 3),
    (-1, -2, -3),
    slice(None),
    slice(1, 3),
    slice(-2, None),
    slice(None, None, 2),
    (slice(None), 1),
    (slice(None), slice(1, 4)),
    (slice(None), slice(None), slice(0, 6, 3)),
    (0, slice(1, 3)),
    (slice(1, 2), 0, slice(None, 4)),
    None,
    (None, 0),
    (slice(None), None),
    (slice(None), None, None, slice(1)),
    ...,
    (..., 0),
    (..., slice(1, 3)),
    (0, ..., 1),
    (None, ..., None),
    (..., None),
    True,
    False,
    (True, 0),
    (slice(None), True),
    [0, 1],
    [1, 1, 3],
    ([0, 1], [2, 3]),
    (slice(None), [0, 2]),
    ([0, 1], slice(None), [2, 3]),
    (..., [0, 2]),
    (None, [0, 1]),
    ([[0, 1], [2, 3]],),
    ROWS,
    (slice(None), ROWS),
    (ROWS, ROWS),
    (0, ROWS),
    (slice(1, 3), None, ROWS),
    (ROWS, slice(None), 1),
    ROWS.reshape(3, 1),
    (ROWS.reshape(3, 1), ROWS),
    (..., ROWS),
    torch.zeros(0, dtype=torch.int64),
)
"""Into a tensor of 4 x 5 x 6; none of their results depends on values but in its elements."""


def records(function: Callable[..., Any], device: Device) -> tuple[OperatorRecord, ...]:
    captured = ran(function, (4, 5, 6), device=device)
    assert is_on_fakes(captured)
    return captured.records


def works(found: Sequence[OperatorRecord]) -> list[Work]:
    """The work of each operator, but for numbers of Python that are brought to the device."""
    return [
        each.work
        for each in found
        if each.state is not State.FREE and each.op != "aten._to_copy" and each.work.traffic_bytes
    ]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reading_does_the_work_that_it_does_on_a_cpu(index: Any) -> None:
    found = records(lambda x: x[index], "cuda")
    assert works(found) == works(records(lambda x: x[index], "cpu"))


def test_numbers_of_an_index_are_brought_to_the_device() -> None:
    """Two of 8 bytes, read and written, and 60 elements picked by them."""
    copied, picked = records(lambda x: x[[0, 1]], "cuda")
    assert (copied.op, copied.work.traffic_bytes) == ("aten._to_copy", 2 * 16)
    assert (picked.op, picked.work.traffic_bytes) == ("aten.index", 16 + 2 * 60 * 4)


def written(index: Any, value: Callable[[torch.Tensor], Any]) -> Callable[..., Any]:
    def write(x: torch.Tensor) -> torch.Tensor:
        x[index] = value(x)
        return x

    return write


@pytest.mark.parametrize("index", [*INDICES, MASK], ids=str)
@pytest.mark.parametrize(
    "value", [lambda _x: 3.0, lambda x: x.new_ones(())], ids=["number", "tensor"]
)
def test_writing_does_the_work_that_it_does_on_a_cpu(
    index: Any, value: Callable[[torch.Tensor], Any]
) -> None:
    function = written(index, value)
    assert works(records(function, "cuda")) == works(records(function, "cpu"))


def test_writing_a_part_into_a_part() -> None:
    function = written((slice(None), slice(0, 2)), lambda x: x[:, 3:5])
    found = records(function, "cuda")
    assert found == records(function, "cpu")
    assert [each.op for each in found if each.state is not State.FREE] == ["aten.copy_"]


def test_an_index_that_is_computed() -> None:
    """It is on the device too, where indexing must find both."""

    def pick(x: torch.Tensor) -> torch.Tensor:
        return x[torch.arange(3, device=x.device)]

    cpu, cuda = (records(pick, device) for device in DEVICES)
    assert [(each.op, each.work) for each in cuda] == [(each.op, each.work) for each in cpu]


@pytest.mark.parametrize(
    "method",
    [
        lambda x: ~(x > 0),
        lambda x: x.transpose(0, 2).contiguous(),
        lambda x: torch.empty_like(x).copy_(x),
        # No kernel finds its shape; there is none on CUDA to run either.
        lambda x: torch.histogram(x, 5)[0],
    ],
    ids=["not", "contiguous", "copy", "histogram"],
)
def test_other_methods_that_ask_for_the_device(method: Callable[[Any], Any]) -> None:
    assert records(method, "cuda") == records(method, "cpu")


@pytest.mark.parametrize(
    "method", [lambda x: x.cuda(), lambda x: x.to("cuda"), lambda x: x.to(device="cuda")]
)
def test_what_is_on_the_device_need_not_be_brought_there(method: Callable[[Any], Any]) -> None:
    assert not records(method, "cuda")


def test_what_is_elsewhere_is_copied() -> None:
    """There and back: 480 bytes read and written each time."""
    found = records(lambda x: x.cpu().cuda(), "cuda")
    assert [each.op for each in found] == ["aten._to_copy"] * 2
    assert [each.work.traffic_bytes for each in found] == [2 * 480] * 2


def test_a_tensor_made_of_numbers_is_brought_to_the_device() -> None:
    """12 bytes read on one side and written on the other; a CPU has them where they are needed."""
    first, second = records(lambda x: x[0, :3, 0] + x.new_tensor([1.0, 2.0, 3.0]), "cuda")[-2:]
    assert (first.op, second.op) == ("aten._to_copy", "aten.add")
    assert first.work.traffic_bytes == 2 * 12


# -- models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet50", "vit_b_16", "swin_t", "hf:bert", "hf:gpt2", "hf:t5"])
def test_models_multiply_as_often_as_on_a_cpu(name: str) -> None:
    cpu, cuda = (roofline.analyze(name, hardware="10980xe", device=each) for each in DEVICES)
    assert cuda.totals.macs == cpu.totals.macs
    assert cuda.coverage.calls == 1
    assert not any("real tensors" in each for each in cuda.warnings)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers(kind: Callable[..., torch.nn.Module]) -> None:
    layer = kind(8, 16, 2, bidirectional=True)
    cpu, cuda = (ran(lambda x: layer(x)[0][-1], (5, 2, 8), device=d) for d in DEVICES)
    assert total(cuda).macs == total(cpu).macs
    assert is_on_fakes(cuda)
    assert not any(each.state is State.UNKNOWN for each in cuda.records)


def test_attention_takes_its_fast_path() -> None:
    """What is made up for may not switch it off, as a mode for torch functions would."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    found = [each.op for each in ran(layer, (2, 5, 16)).records if each.state is not State.FREE]
    assert found == ["aten._transformer_encoder_layer_fwd"]


def test_a_model_that_differentiates() -> None:
    """The layer has 2 x 3 x 3 multiply-adds, and the gradient of its input as many."""
    layer = torch.nn.Linear(3, 3)

    def gradients(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            return torch.autograd.grad(layer(x).sum(), x)[0]

    for device in DEVICES:
        assert total(ran(gradients, (2, 3), device=device)).macs == 2 * 2 * 9
    assert torch.is_grad_enabled()


# -- what cannot be --------------------------------------------------------------------------------


class Capable(torch.nn.Module):
    """Asks what the GPU can do, and is too large to be run for real."""

    def __init__(self) -> None:
        super().__init__()
        with torch.device("meta"):
            self.table = torch.nn.Parameter(torch.zeros(2**27))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.cuda.get_device_capability(self.table.device)[0]


def test_what_asks_for_a_gpu_is_told_so() -> None:
    with pytest.raises(ModelError) as raised:
        ran(Capable(), (2, 3), device="cpu")
    said = str(raised.value)
    assert "the model needs a GPU, and torch has none here; use device='cpu', or remove" in said
    assert "\n" not in said


class Moving(torch.nn.Module):
    """Moves itself in forward, as code for one GPU does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cuda()
        return self.layer(x)


def test_a_module_that_moves_itself_to_a_gpu_takes_one_clear_line() -> None:
    with pytest.raises(ModelError) as raised:
        ran(Moving(), (2, 3), device="cuda")
    advice = {
        True: "or remove CUDA calls from the model",
        False: "remove .cuda() and .to() of modules from forward",
    }
    assert str(raised.value).endswith(advice[torch.version.cuda is not None])


@pytest.mark.parametrize("train", [False, True])
def test_a_tensor_that_is_moved_to_a_gpu_ends_no_process(train: bool) -> None:
    """Autograd would, for a fake on a device that torch does not have."""
    inner = torch.nn.Linear(4, 4)
    model, run = Function(lambda x: inner(x).to("cuda:0")), Run(train=train)
    with pytest.raises(ModelError, match="needs a GPU"):
        capture(model, Inputs((2, 4)), name="model", run=run, training=TrainingConfig())


@pytest.mark.parametrize("bias", [False, True])
def test_a_gru_is_trained_under_autocast(bias: bool) -> None:
    """Its cell is one kernel on CUDA, forward and backward, and no other device has it."""
    run = Run(device="cuda", train=True, autocast="float16")
    model = torch.nn.GRU(16, 32, bias=bias)
    training = TrainingConfig(loss=lambda out: out[0].sum())
    found = capture(model, Inputs((5, 3, 16)), name="model", run=run, training=training)
    cells = [each for each in found.records if "gru_cell_backward" in each.op]
    assert len(cells) == 5
    assert {spec.shape for spec in cells[0].outputs} >= {(3, 96), (3, 32)}


def test_another_thread_trains_as_ever_while_a_pass_is_captured() -> None:
    found: list[Any] = []

    def train() -> None:
        weight = torch.nn.Parameter(torch.ones(3))
        weight.sum().backward()
        found.append((weight.grad, torch.cuda.is_bf16_supported()))

    def forward(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        return x + 1

    ran(forward, (2, 3))
    ((gradient, is_supported),) = found
    assert torch.equal(gradient, torch.ones(3))
    assert is_supported == torch.cuda.is_bf16_supported()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_torch_is_left_as_it_was(device: Device) -> None:
    """A pass on CUDA replaces methods of fake tensors while it lasts."""

    def replaced() -> tuple[Any, ...]:
        return (
            dict(vars(FakeTensor)),
            fake_tensor.run_fallback_kernel,
            vars(torch.autograd)["_engine_run_backward"],
            torch.cuda.amp.common.amp_definitely_not_available,
            torch.cuda.is_bf16_supported,
            list(_foreach_supported_types),
            torch.autograd.is_multithreading_enabled(),
            torch._C._dispatch_has_kernel_for_dispatch_key(
                "aten::scaled_dot_product_attention", "AutogradCUDA"
            ),
        )

    before = replaced()
    ran(lambda x: x[0], (2, 3), device=device)
    with pytest.raises(ModelError):
        ran(lambda x: x[7, 7], (2, 3), device=device)
    assert replaced() == before
    with pytest.raises(RuntimeError, match=r"not linked with support for cuda|no NVIDIA driver"):
        torch._C._cuda_getDevice() if hasattr(torch._C, "_cuda_getDevice") else torch.Stream("cuda")
