"""What one pass records, and that it leaves nothing behind."""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import roofline
from roofline.errors import InputError, ModelError
from roofline.workload.operators import Capture, State
from roofline.workload.residency import trace_residency
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import torch_dtype
from tests.workload.passes import Function, only, passed, total, working


def ops(captured: Capture) -> list[str]:
    return [each.op.removeprefix("aten.") for each in working(captured)]


def paths(captured: Capture) -> list[tuple[str, str]]:
    return [(each.module_path, each.op.removeprefix("aten.")) for each in working(captured)]


# -- what is free and what is dropped --------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(8, 4),
        lambda x: x.reshape(32),
        lambda x: x.T,
        lambda x: x.permute(1, 0),
        lambda x: x[1:, ::2],
        lambda x: x.unsqueeze(0).expand(7, 4, 8),
        lambda x: x.chunk(2, 1),
        lambda x: x.split([1, 3]),
        lambda x: x.unbind(0),
        lambda x: torch.ops.aten._unsafe_view(x, [8, 4]),
        lambda x: torch.ops.aten.unsafe_split(x, 2),
        lambda x: x.unfold(1, 2, 1),
        lambda x: x.detach(),
        lambda x: x.diagonal(),
        lambda x: x.contiguous(),
        lambda x: x.to(torch.float32),
        lambda x: torch.empty_like(x),
        lambda x: x.new_empty(5),
        lambda x: x.unsqueeze_(0),
        lambda x: F.dropout(x, training=False),
        lambda x: x.flatten().unflatten(0, (2, 16)),
    ],
)
def test_views_and_allocations_are_free(view: Callable[[Any], Any]) -> None:
    """Nothing is computed and nothing moves."""
    captured = passed(view, (4, 8))
    assert not working(captured)
    assert total(captured).traffic_bytes == 0


@pytest.mark.parametrize(
    ("function", "byte"),
    [
        (lambda x: x.clone(), 2 * 128),
        (lambda x: x.T.contiguous(), 2 * 128),
        (lambda x: x.T.reshape(32), 2 * 128),
        (lambda x: x.double(), 128 + 256),
        (lambda x: torch.cat([x, x]), 128 + 256),  # x is read once
        (lambda x: torch.zeros(4, 8) + x, 128 + 3 * 128),
        (lambda x: x.expand(3, 4, 8).contiguous(), 128 + 3 * 128),
    ],
)
def test_copies_are_not_free(function: Callable[[Any], Any], byte: int) -> None:
    """32 numbers of four bytes, each distinct one read once, each result written once."""
    assert total(passed(function, (4, 8))).traffic_bytes == byte


def test_bookkeeping_is_dropped() -> None:
    """Asking for the device, making a constant, or naming a range is no operator."""

    def bookkeeping(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("a range"):
            y = x * torch.tensor(2.0)
        return y if x.device == y.device and x.dtype == y.dtype else x

    captured = passed(bookkeeping, (4, 8))
    assert [record.op for record in captured.records] == ["aten.mul"]


def test_constants_can_be_read() -> None:
    """torch.tensor(3.0).item() is known without running anything."""
    assert ops(passed(lambda x: x * torch.tensor(3.0).item(), (4, 8))) == ["mul"]


# -- operands ------------------------------------------------------------------------------------


def test_in_place_is_read_and_written() -> None:
    """relu_ reads 128 bytes and writes the same 128."""
    work = only(passed(lambda x: x.relu_(), (4, 8))).work
    assert (work.input_bytes, work.output_bytes) == (128, 128)


@pytest.mark.parametrize(
    ("function", "read", "written"),
    [
        (lambda x, y: x.copy_(y), 128, 128),
        (lambda x, _: x.fill_(1), 0, 128),
        (lambda x, _: x.zero_(), 0, 128),
        (lambda x, _: x.normal_(), 0, 128),
        (lambda x, y: torch.add(x, 1, out=y), 128, 128),
        (lambda x, y: x.add_(y), 256, 128),
        (lambda x, _: x[1].fill_(1), 0, 32),
        (lambda x, y: x[:, :2].copy_(y[:, :1].expand(4, 2)), 4 * 4, 8 * 4),
    ],
)
def test_a_destination_that_is_overwritten_is_not_read(
    function: Callable[..., Any], read: int, written: int
) -> None:
    """copy_, fill_ and out= write without reading; add_ reads what it changes."""
    work = total(passed(function, (4, 8), (4, 8)))
    assert (work.input_bytes, work.output_bytes) == (read, written)


def test_the_same_operand_twice_is_read_once() -> None:
    """x * x: 128 bytes in, 128 out; also through two views, and where it is given twice."""
    assert only(passed(lambda x: x * x, (4, 8))).work.input_bytes == 128
    assert only(passed(lambda x: x * x.view(4, 8), (4, 8))).work.input_bytes == 128
    x = torch.zeros(4, 8)
    captured = passed(torch.mul, x, x)
    assert (only(captured).work.input_bytes, captured.input_bytes) == (128, 128)


def test_stride_zero_is_read_once() -> None:
    """A row that is expanded to four is 32 bytes; the sum still takes 32 additions."""
    work = only(passed(lambda x, y: x + y.expand(4, 8), (4, 8), (1, 8))).work
    assert (work.input_bytes, work.flop) == (128 + 32, 32)


def test_chunks_of_one_storage_are_operands_of_their_own() -> None:
    """q, k and v: three reads of 4x8 at three places of one 4x24."""

    def attention(x: torch.Tensor) -> torch.Tensor:
        q, k, v = x.chunk(3, dim=1)
        return torch.addcmul(q, k, v)

    record = only(passed(attention, (4, 24)))
    assert len(record.inputs) == 3
    assert len({each.storage for each in record.inputs}) == 1
    assert [each.offset_bytes for each in record.inputs] == [0, 32, 64]
    assert record.work.input_bytes == 3 * 128


def test_selecting_reads_what_it_returns() -> None:
    """Two of four rows: 64 bytes and two int64 places, not the whole."""
    places = torch.tensor([0, 2])
    for select in (lambda x, i: x.index_select(0, i), lambda x, i: x[i]):
        work = only(passed(select, (4, 8), places)).work
        assert (work.flop, work.input_bytes, work.output_bytes) == (0, 64 + 16, 64)


def test_roles() -> None:
    """Weights are parameters, running statistics buffers, what is given inputs, the rest not."""
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))
    convolution, norm = working(passed(model, (1, 2, 4, 4)))
    assert [each.role for each in convolution.inputs] == [Role.INPUT, *2 * [Role.PARAMETER]]
    assert [each.role for each in norm.inputs] == [
        *(Role.ACTIVATION, Role.PARAMETER, Role.PARAMETER, Role.BUFFER, Role.BUFFER)
    ]
    assert {each.role for each in (*convolution.outputs, *norm.outputs)} == {Role.ACTIVATION}


def test_attributes_are_the_arguments_that_are_no_tensors() -> None:
    """As plain data, so that they can be saved."""
    record = only(passed(nn.Conv2d(2, 4, 3, stride=2, groups=2), (1, 2, 8, 8)))
    attributes = record.attributes
    assert (attributes["stride"], attributes["groups"]) == ([2, 2], 2)
    assert "input" not in attributes
    infinite = only(passed(lambda x: x.clamp(max=float("inf")), (2,)))
    assert infinite.attributes["max"] == "inf"


def test_unknown_operators_have_bytes_but_no_flop() -> None:
    """Unknown is never zero."""
    library = torch.library.Library("roofline_test_capture", "DEF")
    library.define("mystery(Tensor x) -> Tensor")
    library.impl("mystery", lambda x: x[..., :5].to(torch.complex64), "CompositeExplicitAutograd")
    mystery = torch.ops.roofline_test_capture.mystery
    record = working(passed(lambda x: mystery(x), (4, 8)))[-1]
    assert record.state is State.UNKNOWN
    assert record.work.flop is None
    assert record.work.internal_bytes is None
    assert record.work.traffic_bytes == 128 + 4 * 5 * 8  # five complex numbers a row


# -- modules -------------------------------------------------------------------------------------


class Branch(nn.Module):
    """Functions before and after a child."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.inner(torch.exp(x))) * 2


def test_qualified_names_of_nested_modules() -> None:
    """Each operator belongs to the innermost module that is running; so do those after a child."""
    assert paths(passed(nn.Sequential(Branch(), nn.Tanh()), (2, 4))) == [
        ("0", "exp"),
        ("0.inner.0", "addmm"),
        ("0.inner.1.0", "relu"),
        ("0.inner.1.1", "addmm"),
        ("0", "sigmoid"),
        ("0", "mul"),
        ("1", "tanh"),
    ]
    # The model itself has no name.
    assert paths(passed(nn.ReLU(), (2, 4))) == [("", "relu")]


def test_a_module_under_two_names_has_the_first() -> None:
    """And its parameters count once, however often it runs."""
    layer = nn.Linear(4, 4)
    captured = passed(nn.Sequential(OrderedDict(a=layer, b=nn.ReLU(), c=layer)), (2, 4))
    assert [path for path, op in paths(captured)] == ["a", "b", "a"]
    first, _relu, second = working(captured)
    weights = [{each.storage for each in r.inputs if each.role is Role.PARAMETER}
               for r in (first, second)]  # fmt: skip
    assert weights[0] == weights[1]
    assert (captured.parameters, captured.parameter_size_bytes) == (20, 80)
    assert total(captured).parameter_bytes == 2 * 80  # it is read in both calls


class MakesModules(nn.Module):
    """Makes one module as it runs, and keeps another where torch does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [nn.Linear(4, 4)]
        self.scale = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.Softplus()(self.hidden[0](x)) * self.scale


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_modules_that_torch_does_not_know(device: str) -> None:
    """They are named by their class, and what they keep lasts, also if built without data."""
    with torch.device(device):
        model = nn.Sequential(MakesModules())
    captured = passed(model, (2, 4))
    assert paths(captured) == [
        ("0.<Linear>", "addmm"),
        ("0.<Softplus>", "softplus"),
        ("0", "mul"),
    ]
    product, _softplus, scaled = working(captured)
    assert sorted(each.role for each in product.inputs) == ["input", "parameter", "parameter"]
    assert [each.role for each in scaled.inputs] == [Role.ACTIVATION, Role.BUFFER]


class Fallback(nn.Module):
    """Goes on after a child failed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.first(x)
        except RuntimeError:
            return self.second(x).relu()


def test_attribution_after_an_exception_that_was_caught() -> None:
    """The module that raised is no longer running."""
    model = nn.Sequential(OrderedDict(a=Fallback(), b=nn.Tanh()))
    assert paths(passed(model, (2, 4))) == [("a.second", "addmm"), ("a", "relu"), ("b", "tanh")]


# -- parameters ----------------------------------------------------------------------------------


def tie(model: nn.Sequential) -> None:
    model[1].weight = model[0].weight


def tie_data(model: Any) -> None:
    model[1].weight.data = model[0].weight.data


@pytest.mark.parametrize("how", [tie, tie_data])
def test_tied_parameters_count_once(how: Callable[[Any], None]) -> None:
    """A 4x4 shared by two layers, as one Parameter or as two over the same memory."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    assert passed(model, (2, 4)).parameters == 32
    how(model)
    captured = passed(model, (2, 4))
    assert (captured.parameters, captured.parameter_size_bytes) == (16, 64)
    first, second = ([each for each in record.inputs if each.role is Role.PARAMETER]
                     for record in working(captured))  # fmt: skip
    assert first[0].storage == second[0].storage


def test_parameters_cut_from_one_buffer_are_all_counted() -> None:
    """As optimisers and data-parallel wrappers lay them out."""
    flat = torch.zeros(32)
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    for i, layer in enumerate(model):
        layer.weight = nn.Parameter(flat[16 * i : 16 * (i + 1)].view(4, 4))
    captured = passed(model, (2, 4))
    assert (captured.parameters, captured.parameter_size_bytes) == (32, 128)
    weights = [each for record in working(captured) for each in record.inputs
               if each.role is Role.PARAMETER]  # fmt: skip
    assert [each.offset_bytes for each in weights] == [0, 64]


def test_what_no_operator_touches_is_still_kept() -> None:
    """A layer that is not called has parameters; so has a counter among the buffers."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model.register_module("unused", nn.Linear(2, 2))
    model.forward = lambda input: model[0](input)  # pyright: ignore[reportAttributeAccessIssue]
    captured = passed(model, (2, 4))
    assert captured.parameters == 20 + 8 + 6
    assert captured.buffer_size_bytes == 4 * 8 + 8  # mean and variance, and an int64 counter


@pytest.mark.parametrize(("kind", "size"), [("float16", 2), ("bfloat16", 2), ("float64", 8)])
def test_another_data_type(kind: str, size: int) -> None:
    """Floating parameters, buffers and inputs change; integers do not."""
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))
    captured = passed(model, (1, 2, 4, 4), change=kind)
    plain = passed(model, (1, 2, 4, 4))
    assert captured.parameter_size_bytes == size * captured.parameters
    assert captured.buffer_size_bytes == size * 6 + 8
    assert {each.dtype.name for record in captured.records for each in record.inputs} == {kind}
    assert total(captured).traffic_bytes * 4 == total(plain).traffic_bytes * size
    assert total(captured).flop == total(plain).flop


@pytest.mark.parametrize("kind", ["int8", "uint4", "bool", "complex64"])
def test_parameters_can_only_be_floating(kind: str) -> None:
    """What integers would take is another question: torch cannot run such a model."""
    with pytest.raises(InputError, match=f"dtype='{kind}': must be a floating type; use bfloat16"):
        roofline.analyze(nn.Linear(4, 4), (1, 4), dtype=kind, hardware="10980xe")


def test_integer_inputs_stay_integers() -> None:
    """A change of data type is about floating numbers."""
    record = only(passed(torch.add, torch.zeros(4, dtype=torch.int64), 4 * (1,), change="float16"))
    assert [each.dtype.name for each in record.inputs] == ["int64", "float16"]


def test_data_types_that_torch_does_not_have() -> None:
    with pytest.raises(InputError, match="unknown torch dtype 'float12'; use float32"):
        torch_dtype("float12")
    with pytest.raises(InputError, match="unknown torch dtype 'relu'"):
        torch_dtype("relu")


def test_channels_last_keeps_its_strides() -> None:
    """Of parameters and of inputs: torch then needs no copy, and gives channels-last results."""
    model: Any = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU())
    model.to(memory_format=torch.channels_last)
    strides: list[tuple[int, ...]] = []

    def look(module: Any, args: Any) -> None:
        strides.extend([args[0].stride(), module.weight.stride()])

    handle = model[0].register_forward_pre_hook(look)
    x = torch.zeros(1, 4, 6, 6).to(memory_format=torch.channels_last)
    captured = passed(model, x)
    handle.remove()
    assert strides == [x.stride(), model[0].weight.stride()] == [(144, 1, 24, 4), (36, 1, 12, 4)]
    assert ops(captured) == ["convolution", "relu"]


def test_a_model_larger_than_memory() -> None:
    """160 billion parameters: 640 GB, which could not be allocated."""
    model = nn.Linear(400_000, 400_000, bias=False, device="meta")
    captured = passed(model, (1, 400_000))
    assert captured.parameters == 160_000_000_000
    assert total(captured).macs == 160_000_000_000


def test_activations_larger_than_memory() -> None:
    """A batch of a hundred million images through a layer that is there for real."""
    captured = passed(nn.Conv2d(3, 64, 3, padding=1), (10**8, 3, 224, 224))
    assert trace_residency(captured.records).peak_activation_bytes == 4 * 10**8 * 64 * 224 * 224


# -- inputs and outputs ----------------------------------------------------------------------------


def test_keyword_inputs_and_nested_results() -> None:
    """All results are alive to the end; inputs are counted by their sizes."""

    def model(image: torch.Tensor, *, scale: torch.Tensor) -> dict[str, Any]:
        return {"scaled": image * scale, "more": (image + 1, [scale - 1])}

    captured = passed(model, image=(2, 4), scale="1x4")
    assert ops(captured) == ["mul", "add", "sub"]
    assert captured.input_bytes == 32 + 16
    assert not [each for record in captured.records for each in record.freed]


# -- life and death of storages --------------------------------------------------------------------


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = x * 2
    return x


def residual(x: torch.Tensor) -> torch.Tensor:
    first = x * 2
    return first + (first * 2 * 2) * 2


def freed(captured: Capture) -> list[list[int]]:
    """For each operator, which operators' results were dropped after it."""
    made = {each.outputs[0].storage: each.index for each in captured.records}
    return [[made[storage] for storage in each.freed] for each in captured.records]


def test_results_are_dropped_after_their_last_use() -> None:
    """A chain returns its last one; first (0) lives through the branch (1, 2, 3) of a residual."""
    assert freed(passed(chain, (8,))) == [[], [0], [1], [2]]
    assert freed(passed(residual, (8,))) == [[], [], [1], [2], [0, 3]]


def test_a_view_keeps_its_storage() -> None:
    """Three rows of the first result are read at last, so all of it stays."""

    def views(x: torch.Tensor) -> torch.Tensor:
        rows = (x * 2)[1:]
        return (x * 3)[1:] + rows

    captured = passed(views, (4, 8))
    mul, _slice, other, _other_slice, add = captured.records
    assert (mul.freed, other.freed) == ((), ())
    assert set(add.freed) == {mul.outputs[0].storage, other.outputs[0].storage}


def test_peak_memory_by_hand() -> None:
    """32 bytes each. A chain holds what it reads and what it writes; the input is no activation.

    The residual holds, in its branch, the first result as well: three at once.
    """
    plain, added = (
        trace_residency(passed(chain, (8,)).records),
        trace_residency(passed(residual, (8,)).records),
    )
    assert (plain.peak_activation_bytes, plain.all_activation_bytes) == (64, 128)
    assert (added.peak_activation_bytes, added.all_activation_bytes) == (96, 160)


def test_in_place_takes_no_memory() -> None:
    """One result, changed three times."""
    captured = passed(lambda x: (x * 2).relu_().add_(1).mul_(3), (8,))
    assert trace_residency(captured.records).peak_activation_bytes == 32


def test_a_module_holds_its_inputs_while_it_runs() -> None:
    """Python does: the caller's first result lives until the inner Sequential returns."""
    inner = nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU())
    nested = passed(nn.Sequential(nn.ReLU(), inner), (8,))
    assert freed(nested) == [[], [], [1], [0, 2]]


# -- nothing is left behind ------------------------------------------------------------------------


class Careless(nn.Module):
    """Keeps what it makes: features, a counter, a history, a module, a buffer."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(48, 2))
        self.frozen = nn.Parameter(torch.ones(3, 1, 1), requires_grad=False)
        self.constant = torch.ones(1)
        self.history: list[Any] = []
        self.sizes: dict[str, Any] = {"none": 0}
        self.calls = 0
        self.fails = fails

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.feature = self.norm(self.conv(x)) * self.frozen * self.constant
        self.history.append(self.feature)
        self.sizes["first"] = self.feature
        self.made = nn.ReLU()
        self.register_buffer("late", self.feature.sum())
        self.norm.running_mean.add_(1)  # pyright: ignore[reportOptionalMemberAccess]
        self.constant.mul_(2)
        if self.fails:
            raise ValueError("on purpose")
        return self.head(self.made(self.feature))


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_exactly_as_it_was(fails: bool) -> None:
    """Parameters by identity, values, flags, attributes, hooks, modes: also when it raises."""
    model = Careless(fails=fails).train()
    model.norm.eval()
    model.conv.weight.grad = torch.ones_like(model.conv.weight)
    values = copy.deepcopy(model.state_dict())
    parameters = {name: id(each) for name, each in model.named_parameters()}
    buffers = {name: id(each) for name, each in model.named_buffers()}
    requires_grad = {name: each.requires_grad for name, each in model.named_parameters()}
    attributes = {
        name: {key: id(value) for key, value in module.__dict__.items()}
        for name, module in model.named_modules()
    }
    training = {name: each.training for name, each in model.named_modules()}
    hooks = copy.copy(torch.nn.modules.module._global_forward_hooks)
    pre_hooks = copy.copy(torch.nn.modules.module._global_forward_pre_hooks)
    modes = list(_get_current_dispatch_mode_stack())
    logger = logging.getLogger("torch._subclasses.fake_tensor")

    if fails:
        with pytest.raises(ModelError):
            passed(model, (1, 2, 4, 4))
    else:
        passed(model, (1, 2, 4, 4))

    assert {name: id(each) for name, each in model.named_parameters()} == parameters
    assert {name: id(each) for name, each in model.named_buffers()} == buffers
    assert {n: each.requires_grad for n, each in model.named_parameters()} == requires_grad
    assert {name: each.training for name, each in model.named_modules()} == training
    assert {
        name: {key: id(value) for key, value in module.__dict__.items()}
        for name, module in model.named_modules()
    } == attributes
    assert list(model.state_dict()) == list(values)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in values.items())
    assert (model.history, model.sizes, model.calls) == ([], {"none": 0}, 0)
    assert float(model.constant) == 1
    assert model.conv.weight.grad is not None
    assert torch.nn.modules.module._global_forward_hooks == hooks == OrderedDict()
    assert torch.nn.modules.module._global_forward_pre_hooks == pre_hooks == OrderedDict()
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert list(_get_current_dispatch_mode_stack()) == modes == []
    assert torch.is_grad_enabled()
    assert not logger.disabled
    model.fails = False
    assert model(torch.ones(1, 2, 4, 4)).requires_grad


def test_a_pass_can_be_repeated() -> None:
    """The same records each time, whatever the first left."""
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ReLU())
    assert passed(model, (1, 2, 4, 4)) == passed(model, (1, 2, 4, 4))


def test_the_model_runs_in_eval_mode() -> None:
    """A batch norm in training mode would take the statistics of the batch."""
    model = nn.BatchNorm1d(4).train()
    assert only(passed(model, (2, 4))).work.flop == 2 * 8 + 5 * 4


def test_the_model_runs_without_gradients() -> None:
    """As inference does, whatever its parameters ask for; torch chooses other operators then."""
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.extend([torch.is_grad_enabled(), x.requires_grad])
        return x + 1

    passed(nn.Sequential(nn.Linear(4, 4), Function(look)), (2, 4))
    assert seen == [False, False]


# -- errors ----------------------------------------------------------------------------------------


def test_the_error_names_the_innermost_module_and_says_what_torch_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line, with what to check; and nothing logged beside it."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 3)))
    with pytest.raises(ModelError) as raised:
        passed(model, (1, 3, 8, 8))
    message = str(raised.value)
    assert message.startswith("model failed in 1.1 (Conv2d): Given groups=1, weight of size")
    assert "check inputs and dtype" in message
    assert "\n" not in message
    assert not caplog.records


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class NoEval(nn.Module):
    def train(self, mode: bool = True) -> NoEval:
        raise RuntimeError("always training")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def raising(error: BaseException) -> Callable[[Any], Any]:
    def model(x: torch.Tensor) -> torch.Tensor:
        raise error

    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (raising(KeyError("key")), "KeyError: 'key'"),
        (raising(SystemExit(0)), "SystemExit: 0"),
        (raising(Silent()), "Silent"),
        (NoEval(), "always training"),
        (lambda x: x.no_such_thing, "AttributeError: 'Tensor' object has no attribute"),
        (lambda x, y: x, "TypeError: .* missing 1 required positional argument: 'y'"),
        # Where an operator's shape function rejects its inputs, torch would log a traceback.
        (lambda x: x.add_(x[0, :2]), r"failed in the top-level module \(Function\)"),
    ],
)
def test_what_errors_say(model: Any, message: str, caplog: pytest.LogCaptureFixture) -> None:
    """The cause in the user's words, on one line, whatever is raised."""
    with pytest.raises(ModelError, match=message) as raised:
        passed(model, (2, 3))
    assert "\n" not in str(raised.value)
    assert not caplog.records


def test_lazy_parameters_are_refused_and_left_alone() -> None:
    """They have no shape yet."""
    model = nn.Sequential(nn.Linear(4, 4), nn.LazyLinear(3))
    before = [id(each) for each in model.parameters()]
    with pytest.raises(ModelError, match="LazyLinear has an uninitialized lazy parameter 'weight'"):
        passed(model, (2, 4))
    assert [id(each) for each in model.parameters()] == before


def test_interrupts_pass_through_and_leave_nothing() -> None:
    """Ctrl-C is no fault of the model."""
    model = Function(raising(KeyboardInterrupt())).train()
    with pytest.raises(KeyboardInterrupt):
        passed(model, (2,))
    assert model.training
    assert not torch.nn.modules.module._global_forward_hooks
    assert not list(_get_current_dispatch_mode_stack())
