"""A step of training: its phases, whose work it is, what it keeps, and that nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import roofline
from roofline.errors import InputError, ModelError
from roofline.run import Device, Run
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs, resolve_inputs
from roofline.workload.models.sources import Function, load_model
from roofline.workload.operators import Capture, OperatorRecord, State
from roofline.workload.tensors import Role
from tests.workload.passes import passed, total, trained, working


def phases(captured: Capture) -> dict[str, list[OperatorRecord]]:
    found: dict[str, list[OperatorRecord]] = {"forward": [], "backward": [], "optimizer": []}
    for each in captured.records:
        found[each.phase].append(each)
    return found


def fma(records: list[OperatorRecord]) -> int:
    return sum(each.work.macs or 0 for each in records)


def net() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.5),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 36, 10),
    )


# -- work ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (torch.nn.Linear(12, 7), (5, 12)),
        (torch.nn.Conv1d(4, 6, 3, padding=1), (2, 4, 10)),
        (torch.nn.Conv2d(4, 6, 3, padding=1), (2, 4, 9, 8)),
        (torch.nn.Conv2d(8, 8, 3, groups=8), (2, 8, 9, 8)),
        (torch.nn.Conv2d(8, 12, 3, groups=4, stride=2, dilation=2), (2, 8, 11, 12)),
        (torch.nn.Conv3d(4, 6, 2, stride=2), (1, 4, 6, 6, 6)),
        (torch.nn.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 10)),
        (torch.nn.ConvTranspose2d(8, 4, 3, stride=2, groups=2), (2, 8, 5, 6)),
        (torch.nn.ConvTranspose3d(4, 2, 2), (1, 4, 3, 3, 3)),
        (torch.nn.Bilinear(4, 5, 3), None),
    ],
    ids=str,
)
def test_the_backward_pass_is_twice_the_forward_one(
    layer: torch.nn.Module, shape: tuple[int, ...] | None
) -> None:
    """Once for the weight and once for the input; only once where the input needs none."""

    scale = torch.nn.Linear(1, 1, bias=False)
    behind_scale = Function(lambda *given: layer(*[each * scale.weight for each in given]))

    shapes = [shape] if shape else [(6, 4), (6, 5)]
    alone, behind = (phases(trained(each, *shapes)) for each in (layer, behind_scale))
    assert fma(behind["forward"]) == fma(alone["forward"]) == total(passed(layer, *shapes)).macs
    if shape:
        assert fma(alone["backward"]) == fma(alone["forward"])
        assert fma(behind["backward"]) == 2 * fma(behind["forward"])
    assert fma(behind["forward"]) > 0


@pytest.mark.parametrize(
    ("name", "first"), [("resnet50", 118_013_952), ("mobilenet_v2", 10_838_016)]
)
def test_a_step_is_three_passes_but_for_the_first_layer(name: str, first: int) -> None:
    """112 * 112 * 64 * 147 and 112 * 112 * 32 * 27: no gradient of the image is needed."""
    found = phases(trained(load_model(name).module, (1, 3, 224, 224)))
    assert fma(found["backward"]) == 2 * fma(found["forward"]) - first
    assert not any(each.state is State.UNKNOWN for part in found.values() for each in part)


def test_frozen_layers_need_no_gradient() -> None:
    """Of a frozen backbone nothing is differentiated: only the head's weight."""
    model = net()
    for each in (*model[0].parameters(), *model[1].parameters()):
        each.requires_grad_(False)
    found = phases(trained(model, (2, 3, 8, 8)))
    assert fma(found["backward"]) == 2 * 288 * 10
    assert not any("convolution" in each.op for each in found["backward"])


# -- whose it is -----------------------------------------------------------------------------------


def test_what_is_differentiated_belongs_to_the_module_that_ran_it() -> None:
    found = phases(trained(net(), (2, 3, 8, 8), optimizer="sgd"))
    paths = {each.op: each.module_path for each in found["backward"] if each.state != State.FREE}
    assert paths["aten.convolution_backward"] == "0"
    assert paths["aten.native_batch_norm_backward"] == "1"
    assert paths["aten.threshold_backward"] == "2"
    assert paths["aten.mm"] == "5"
    assert paths["aten.nll_loss_backward"] == "<loss>"
    assert {each.module_path for each in found["optimizer"]} == {"0", "1", "5"}


def test_the_update_of_a_parameter_belongs_to_its_module() -> None:
    """With its temporaries; AdamW: step, decay, two moments, root, two scalings, update."""
    found = phases(trained(net(), (2, 3, 8, 8), optimizer="adamw"))["optimizer"]
    counts = {path: sum(each.module_path == path for each in found) for path in ("0", "1", "5")}
    assert len(set(counts.values())) == 1
    assert sum(counts.values()) == len(found)


def test_what_is_run_again_is_counted_again() -> None:
    """Linear 6x6 on 4 rows: 144 forward, again 144 in the backward pass, where it belongs."""
    first, part = torch.nn.Linear(6, 6), torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU())
    model = Function(lambda x: checkpoint(part, first(x), use_reentrant=False))
    found = phases(trained(model, (4, 6)))
    assert fma(found["forward"]) == 2 * 144
    assert fma(found["backward"]) == 144 + 144 + 2 * 144
    again = [each for each in found["backward"] if each.op == "aten.addmm"]
    assert [each.module_path for each in again] == ["part.0"]


# -- bytes and memory ------------------------------------------------------------------------------


def test_bytes_of_a_step_by_hand() -> None:
    """A linear layer 3 -> 2 on 4 rows, mean squared error, SGD; floats of 4 bytes."""
    found = phases(trained(torch.nn.Linear(3, 2, bias=False), (4, 3), optimizer="sgd"))
    (product,) = [each for each in found["backward"] if each.op == "aten.mm"]
    # The gradient of the output is read, that of the weight written, and the input read.
    assert product.work.gradient_bytes == 4 * (8 + 6)
    assert product.work.input_bytes == 4 * 12
    (update,) = working_of(found["optimizer"])
    # weight += -lr * gradient: the weight is read and written, its gradient read.
    assert update.op == "aten.add_"
    assert (update.work.parameter_bytes, update.work.gradient_bytes) == (2 * 4 * 6, 4 * 6)
    assert update.work.optimizer_bytes == 0


def working_of(records: list[OperatorRecord]) -> list[OperatorRecord]:
    return [each for each in records if each.state is not State.FREE]


@pytest.mark.parametrize(("optimizer", "kept"), [("sgd", 0), ("adam", 2), ("adamw", 2)])
def test_what_the_optimizer_keeps(optimizer: str, kept: int) -> None:
    """Adam's two moments of each of 6 weights, and a counter of steps."""
    captured = trained(torch.nn.Linear(3, 2, bias=False), (4, 3), optimizer=optimizer)
    assert captured.optimizer_state_bytes == kept * 4 * 6 + (4 if kept else 0)
    states = {
        spec.storage
        for each in captured.records
        for spec in (*each.inputs, *each.outputs)
        if spec.role is Role.OPTIMIZER_STATE
    }
    assert len(states) == (3 if kept else 0)


def test_memory_is_fullest_where_activations_meet_gradients() -> None:
    """One linear layer of 100x100 on a row: weight, its gradient, and Adam's two moments."""
    analysis = roofline.analyze(
        torch.nn.Linear(100, 100, bias=False), (1, 100), hardware="10980xe", train=True
    )
    peak = analysis.peak
    assert peak is not None
    assert peak.parameter_bytes == 40_000
    assert peak.optimizer_bytes == 2 * 40_000 + 4
    assert peak.gradient_bytes >= 40_000
    assert peak.byte == analysis.totals.peak_memory_bytes
    assert peak.operator is not None
    assert analysis.operators[peak.operator].phase in ("backward", "optimizer")


def test_statistics_of_a_batch_are_written() -> None:
    """In training a batch norm updates its running mean and variance, which its schema hides."""
    (norm,) = [e for e in trained(net(), (2, 3, 8, 8)).records if e.op == "aten.native_batch_norm"]
    assert [spec.role for spec in norm.outputs].count(Role.BUFFER) == 2


SMALL_BERT = "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=48"
DEVICES: tuple[Device, ...] = ("cpu", "meta")


@pytest.mark.parametrize(
    ("name", "config"), [("resnet18", None), ("hf:bert", SMALL_BERT), ("vit_b_16", None)]
)
def test_devices_and_gradients_change_no_multiply_adds(name: str, config: str | None) -> None:
    """Of the forward pass: on the CPU and on meta, at inference and in training."""
    source = load_model(name, config=config)
    given = resolve_inputs(source.module, None, source.default_inputs, name=name, batch=None)
    runs = [Run(device=device, train=train) for device in DEVICES for train in (False, True)]
    counts = {
        fma(phases(capture(source.module, given, name=name, run=run))["forward"]) for run in runs
    }
    assert len(counts) == 1


# -- losses ----------------------------------------------------------------------------------------


def own_loss() -> torch.nn.Module:
    """Returns a dictionary as language models do."""
    layer = torch.nn.Linear(3, 3)
    return Function(lambda x: {"loss": (y := layer(x)).square().mean(), "logits": y})


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (torch.nn.Linear(3, 4), "cross entropy of the output"),
        (torch.nn.Linear(3, 1), "mean squared error of the output"),
        (own_loss(), "the model's own"),
    ],
    ids=["classes", "one number", "its own"],
)
def test_the_loss_is_said(model: torch.nn.Module, said: str) -> None:
    assert trained(model, (5, 3)).run.loss == said


def test_a_loss_of_ones_own() -> None:
    captured = trained(torch.nn.Linear(3, 4), (5, 3), loss=lambda output: output.sum())
    assert captured.run.loss == "the given one"
    assert "aten.mse_loss" not in {each.op for each in captured.records}


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda output: output, "got a tensor of shape (5, 4)"),
        (lambda _output: 3.0, "got 3.0"),
        (lambda output: output.detach().sum(), "requires grad"),
    ],
    ids=["many numbers", "no tensor", "no gradient"],
)
def test_what_is_no_loss_is_refused(loss: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(ModelError) as raised:
        trained(torch.nn.Linear(3, 4), (5, 3), loss=loss)
    assert said in str(raised.value)


def test_there_must_be_something_to_train() -> None:
    with pytest.raises(ModelError, match="nothing to train"):
        trained(torch.nn.ReLU(), (5, 3))


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "sgd"}, "optimizer='sgd' has no effect in inference"),
        ({"train": True, "optimizer": "sdg"}, "did you mean"),
        ({"autocast": "float64"}, "autocast='float64'"),
        ({"device": "tpu"}, "device='tpu'"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        roofline.analyze(torch.nn.Linear(3, 4), (5, 3), hardware="10980xe", **options)
    assert said in str(raised.value)


def test_autocast_casts_are_counted() -> None:
    """The input and the weight are cast to two bytes, and the product is of that type."""
    captured = capture(
        torch.nn.Linear(3, 4, bias=False), Inputs((5, 3)), name="", run=Run(autocast="bfloat16")
    )
    casts = [each for each in working(captured) if each.op == "aten._to_copy"]
    assert {each.work.traffic_bytes for each in casts} == {15 * (4 + 2), 12 * (4 + 2)}
    (product,) = [each for each in working(captured) if each.op == "aten.mm"]
    assert {spec.dtype.name for spec in (*product.inputs, *product.outputs)} == {"bfloat16"}


def test_channels_last() -> None:
    """Convolutions keep the layout, and need no copies for it."""
    captured = capture(
        torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.MaxPool2d(2)),
        Inputs((1, 3, 8, 8)),
        name="",
        run=Run(channels_last=True),
    )
    assert [each.op for each in working(captured)] == [
        "aten.convolution",
        "aten.max_pool2d_with_indices",
    ]


# -- what is left ----------------------------------------------------------------------------------


class Fragile(torch.autograd.Function):
    """Raises in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError("broken on the way back")


class Breaking(torch.nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.layer = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.layer(x))
        if self.where == "forward":
            raise RuntimeError("broken on the way there")
        return Fragile.apply(y) if self.where == "backward" else y  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


@pytest.mark.parametrize("where", ["forward", "backward", "nowhere"])
def test_nothing_is_left(where: str) -> None:
    """Weights, statistics, modes, gradients, hooks and names are as they were."""
    model = Breaking(where)
    model.layer.train(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    identities = [id(each) for each in (*model.parameters(), *model.buffers())]
    if where == "nowhere":
        trained(model, (5, 3), optimizer="adamw")
    else:
        with pytest.raises(ModelError, match="broken on the way"):
            trained(model, (5, 3), optimizer="adamw")
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert [id(each) for each in (*model.parameters(), *model.buffers())] == identities
    assert all(each.grad is None for each in model.parameters())
    assert [each.training for each in model.modules()] == [True, False, True]
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert model.layer.forward.__func__ is torch.nn.Linear.forward  # pyright: ignore[reportFunctionMemberAccess]


def test_recurrent_layers_keep_their_weights() -> None:
    """Their list of weights is given others for the pass, and gets its own back."""
    model = torch.nn.LSTM(3, 4, batch_first=True)
    weights = list(model._flat_weights)
    captured = trained(model, (2, 5, 3), optimizer="sgd")
    assert all(a is b for a, b in zip(model._flat_weights, weights, strict=True))
    assert all(each.grad is None for each in model.parameters())
    # Each of 4 gates: 10 steps, 4 cells, 3 + 4 numbers; thrice but for the gradient of the input.
    forward = 10 * 16 * (3 + 4)
    assert fma(phases(captured)["forward"]) == forward
    assert fma(phases(captured)["backward"]) >= 10 * 16 * 3 + 2 * 10 * 16 * 4


class Hidden(torch.nn.Module):
    """Keeps a trained tensor where torch does not look for parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.kept = (torch.ones(3, requires_grad=True),)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.kept[0]


def test_a_trained_tensor_that_cannot_be_replaced_is_refused() -> None:
    model = Hidden()
    with pytest.raises(ModelError, match="not registered"):
        trained(model, (5, 3))
    assert model.kept[0].grad is None
