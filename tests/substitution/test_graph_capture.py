"""Capture: what a graph has in it, what it refuses, and that the model is left as it was."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

from roofline.errors import ModelError
from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.capturing import CapturedModel
from roofline.substitution.graphs.graph import INPUT, Value
from tests.substitution.rewriting import Model, capture_of


def _ops(model: CapturedModel) -> list[str]:
    return [
        node.op.removeprefix("aten.") + "_" * node.in_place
        for node in model.graph.nodes.values()
        if node.op != INPUT
    ]


def _of(function: Callable[..., Any]) -> nn.Module:
    """A model of one function."""
    return Model(lambda m, *args: function(*args))


def _gives_the_same(module: nn.Module, *args: Any) -> CapturedModel:
    """The capture, once the module built of it gave what the model gives."""
    model = capture_of(module, *args)
    rebuilt = build_module(model, model.graph)
    with torch.no_grad():
        expected = module.eval()(*copy.deepcopy(args))
        found = rebuilt(*copy.deepcopy(args))
    assert torch.equal(expected, found)
    return model


class _Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding="same", bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(4, 2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.act(self.norm(self.conv(image)))
        return self.head(self.drop(x.mean((2, 3))))


def test_operators_have_all_arguments_and_types() -> None:
    model = _gives_the_same(_Classifier(), torch.randn(2, 3, 8, 8))
    assert model.by == "torch.export"
    assert _ops(model) == ["conv2d", "batch_norm", "relu_", "mean", "dropout", "linear"]
    given, conv, norm, relu, _, drop, head = model.graph.nodes.values()
    assert (given["name"], given["role"], given.type.shape) == ("image", "input", (2, 3, 8, 8))
    assert (conv["stride"], conv["dilation"], conv["groups"]) == ((1, 1), (1, 1), 1)
    assert (conv["padding"], conv["bias"], conv.overload) == ("same", None, "padding")
    assert conv["weight"].name == "conv.weight"
    assert conv["weight"].is_parameter
    assert not norm["running_mean"].is_parameter
    assert norm["training"] is False
    assert relu.in_place
    assert drop["train"] is False
    assert [each.module_path for each in (conv, norm, drop, head)] == [
        *("conv", "norm", "drop", "head")
    ]
    assert conv.type.shape == (2, 4, 8, 8)
    assert conv.type.stride == (256, 64, 8, 1)
    assert model.graph.outputs == (Value(max(model.graph.nodes)),)


def test_the_model_is_left_as_it_was() -> None:
    module, image = _Classifier(), torch.randn(2, 3, 8, 8)
    module.head.eval()
    module.head.weight.requires_grad_(False)
    calls: list[int] = []
    module.head.register_forward_hook(lambda *_: calls.append(1))
    before = {name: (each, each.clone()) for name, each in module.state_dict().items()}
    flags = [each.training for each in module.modules()]
    attributes = {name: set(each.__dict__) for name, each in module.named_modules()}
    states = random.getstate(), torch.get_rng_state(), torch.is_grad_enabled()
    capture_of(module, image)
    assert calls  # A hook is part of what a model does.
    assert [each.training for each in module.modules()] == flags
    assert len(module.head._forward_hooks) == 1
    assert {name: set(each.__dict__) for name, each in module.named_modules()} == attributes
    for name, each in module.state_dict().items():
        assert each.data_ptr() == before[name][0].data_ptr()
        assert torch.equal(each, before[name][1])
    assert not module.head.weight.requires_grad
    assert module.head.bias.requires_grad
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert torch.is_grad_enabled() == states[2]


def test_what_is_called_wrongly_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))
    with pytest.raises(ModelError, match=r"it cannot be captured: .*in 1 \(Linear\)") as raised:
        capture_of(module, torch.randn(1, 2))
    assert "\n" not in str(raised.value)
    assert all(each.training for each in module.modules())
    with pytest.raises(ModelError, match="it: invalid arguments: missing a required argument"):
        capture_of(nn.Linear(2, 2))


def test_tied_weights_are_one() -> None:
    tied: Any = Model(
        lambda m, tokens: m.head(m.embedding(tokens)),
        embedding=nn.Embedding(5, 3),
        head=nn.Linear(3, 5, bias=False),
    )
    tied.head.weight = tied.embedding.weight
    model = _gives_the_same(tied, torch.tensor([[1, 4]]))
    assert model.graph.tied == {"embedding.weight", "head.weight"}
    assert list(model.weights) == ["embedding.weight"]
    weights = [each for node in model.graph.nodes.values() for each in node.weights()]
    assert [each.name for each in weights] == ["embedding.weight"] * 2
    assert len(model.graph.weight_users(weights[0])) == 2


def test_buffers_and_constants_are_weights() -> None:
    constant = Model(
        lambda m, x: x * m.kept * m.not_kept + m.plain * torch.tensor(4.0),
        plain=torch.full((3,), 3.0),
    )
    constant.register_buffer("kept", torch.ones(3))
    constant.register_buffer("not_kept", torch.full((3,), 2.0), persistent=False)
    model = _gives_the_same(constant, torch.randn(3))
    assert {"kept", "not_kept", "plain"} < set(model.weights)
    assert len(model.weights) == 4
    weights = [each for node in model.graph.nodes.values() for each in node.weights()]
    assert not any(each.is_parameter for each in weights)


def test_a_weight_that_is_returned_is_an_output() -> None:
    module: Any = Model(lambda m, x: (x + 1, m.linear.weight), linear=nn.Linear(2, 2))
    model = capture_of(module, torch.ones(2))
    assert getattr(model.graph.outputs[1], "name", "") == "linear.weight"
    assert build_module(model, model.graph)(torch.ones(2))[1] is module.linear.weight


@pytest.mark.parametrize(
    ("function", "ops"),
    [
        (lambda x: x.mul(2).add_(1).relu_(), ["mul", "add_", "relu_"]),
        (lambda x: functional.relu6(x + 1, inplace=True), ["add", "relu6_"]),
        (lambda x: x.mul(2).masked_fill_(x > 0, 1.0), ["mul", "gt", "masked_fill_"]),
        (lambda x: (x * 1).unsqueeze_(0).transpose_(0, 1), ["mul", "unsqueeze", "transpose"]),
        (lambda x: x.new_zeros(4).copy_(x), ["new_zeros", "copy_"]),
        (
            lambda x: functional.dropout(x.view(2, 2), 0.5, False, inplace=True).sum() + x,
            ["view", "dropout_", "sum", "add"],
        ),
    ],
)
def test_operators_that_overwrite_have_the_name_of_those_that_give(
    function: Callable[..., Any], ops: list[str]
) -> None:
    assert _ops(_gives_the_same(_of(function), torch.randn(4))) == ops


def _later_users(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y + 1
    y.relu_()
    return y + z


def _view_is_overwritten(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.view(2, 2)[0].fill_(5.0)
    y[1:2] += 1
    return y


def _halves(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    first, second = y.chunk(2)
    first.relu_()
    second.sigmoid_()
    return first + second


def _view_then_base(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    view = y.view(2, 2)
    y.add_(1)
    return view.sum() + y.sum()


@pytest.mark.parametrize(
    ("function", "notes"),
    [
        (_later_users, ()),
        (
            _view_is_overwritten,
            ("writes to parts of tensors are copies in the graph",),
        ),
        (_halves, ()),
        (_view_then_base, None),
    ],
)
def test_what_is_overwritten_is_taken_by_whoever_comes_later(
    function: Callable[..., Any], notes: tuple[str, ...] | None
) -> None:
    model = _gives_the_same(_of(function), torch.randn(4))
    assert notes is None or model.notes == notes


def test_overwriting_an_input_is_said() -> None:
    model = _gives_the_same(_of(lambda x: x.relu_() + 1), torch.randn(4))
    assert model.notes == ("the model overwrites its inputs; the graph does not",)
    given = torch.tensor([-1.0, 1.0, -1.0, 1.0])
    build_module(model, model.graph)(given)
    assert given.tolist() == [-1.0, 1.0, -1.0, 1.0]


def test_modes_that_change_nothing_are_looked_through() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x + 1
        with torch.enable_grad():
            y = y * 2
        with torch.autocast("cpu", enabled=False):
            return y @ y

    assert _ops(_gives_the_same(_of(function), torch.randn(3, 3))) == ["add", "mul", "matmul"]


def _counter() -> nn.Module:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.calls += 1
        return x + m.calls

    module = Model(function)
    module.register_buffer("calls", torch.zeros(1))
    return module


def _autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (_counter(), "it modifies its own 'calls' while running"),
        (_of(lambda x: x if x.sum() > 0 else -x), "depends on tensor values"),
        (_of(lambda x: x[x > 0]), "depends on tensor values"),
        (_of(lambda x: (x, x.sum().item())), "depends on tensor values"),
        (_of(_autocast), "torch.autocast"),
        (_of(lambda x: {"x": x, "f": print}), "of unsupported type builtin_function_or_method"),
    ],
)
def test_what_cannot_be_captured_is_said_in_a_line(
    module: nn.Module, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError) as raised:
        capture_of(module, torch.ones(2, 2))
    assert words in str(raised.value)
    assert str(raised.value).startswith("it cannot be captured: ")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200
    # Nothing is printed, and nothing is harmed.
    assert capfd.readouterr() == ("", "")
    assert not any(each.any() for each in module.buffers())


def test_torch_fx_takes_what_torch_export_does_not() -> None:
    class Unexported(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if isinstance(x, FakeTensor):
                raise RuntimeError("not in this way")
            return self.linear(x).relu_()

    model = _gives_the_same(Unexported(), torch.randn(1, 2))
    assert model.by == "torch.fx"
    assert _ops(model) == ["linear", "relu_"]
    assert set(model.weights) == {"linear.weight", "linear.bias"}
    assert [node.module_path for node in model.graph.nodes.values()][1] == "linear"
    (note,) = model.notes
    assert note == (
        "captured with torch.fx; torch.export failed: RuntimeError: not in this way,"
        " in the model itself (Unexported)"
    )


def _dead(x: torch.Tensor) -> torch.Tensor:
    x.argmax()
    return x + 1


def _asks(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.compiler.is_compiling() or torch.compiler.is_exporting() else x * 2


def _exported_alone(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_exporting():
        return x * 2
    return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("function", "ops", "note"),
    [
        (_dead, ["add"], "operators with unused results are omitted: aten.argmax"),
        # Models that ask are not told that they are exported.
        (_asks, ["mul"], ""),
        # Those that can only be exported as such are.
        (_exported_alone, ["mul"], ""),
    ],
)
def test_models_are_captured_as_they_run(
    function: Callable[..., Any], ops: list[str], note: str
) -> None:
    model = capture_of(_of(function), torch.ones(2))
    assert (model.by, _ops(model)) == ("torch.export", ops)
    assert " ".join(model.notes).startswith(note) and bool(model.notes) is bool(note)


def test_a_fast_path_that_is_not_captured_is_said() -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    (note,) = capture_of(encoder, torch.randn(1, 3, 8)).notes
    assert "fast path for transformers" in note
