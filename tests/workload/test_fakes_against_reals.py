"""What is recorded on fake tensors is what would be recorded on real ones, to the last byte."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from roofline.errors import ModelError
from roofline.run import Run
from roofline.workload.capture.call_cache import infer_results
from roofline.workload.capture.fake_tensors import FakeTensors
from roofline.workload.capture.passes import capture, run_single_pass
from roofline.workload.capture.real_tensors import RealTensors
from roofline.workload.capture.training import TrainingConfig, optimizer_factory
from roofline.workload.inputs import InputRequest, Inputs, resolve_inputs
from roofline.workload.models.sources import Function, load_model
from roofline.workload.operators import Capture
from roofline.workload.residency import trace_residency
from roofline.workload.tensors import Role
from tests.workload.passes import trained


def both(model: torch.nn.Module, inputs: Inputs, run: Run) -> tuple[Capture, Capture]:
    """The same pass on tensors without memory and on copies."""
    training = TrainingConfig(optimizer=optimizer_factory(run.optimizer) if run.optimizer else None)
    paths = {id(module): path for path, module in model.named_modules()}
    fake, real = (
        run_single_pass(
            model, inputs, paths, run, tensors, training.new_step() if run.train else None
        )
        for tensors in (FakeTensors(run), RealTensors(run))
    )
    return fake, real


def check(model: torch.nn.Module, inputs: Inputs, run: Run) -> tuple[Capture, Capture]:
    fake, real = both(model, inputs, run)
    assert [each.op for each in fake.records] == [each.op for each in real.records]
    assert [each.work for each in fake.records] == [each.work for each in real.records]
    assert trace_residency(fake.records) == trace_residency(real.records)
    assert fake.optimizer_state_bytes == real.optimizer_state_bytes
    assert fake.parameters == real.parameters
    assert all(each.grad is None for each in model.parameters())
    return fake, real


@pytest.mark.parametrize("name", ["timm:pvt_v2_b0", "timm:davit_tiny", "timm:twins_pcpvt_small"])
def test_views_of_images_that_come_alone(name: str) -> None:
    """A dimension of size 1 has a stride all the same, which says how convolutions lay out."""
    source = load_model(name)
    model = source.rebuild() if source.rebuild else source.module
    inputs = resolve_inputs(model, None, source.default_inputs, name=name, batch=None)
    check(model, inputs, Run())


class Fourier(torch.nn.Module):
    """A layer with a complex weight."""

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.nn.Linear(8, 8)
        self.weight = torch.nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(self.before(x)) * self.weight, n=8)


class Partly(torch.nn.Module):
    """A part of it gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = torch.nn.Linear(5, 3), torch.nn.Linear(100, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class Frozen(torch.nn.Sequential):
    """A batch norm behind what is not trained: its input needs no gradient."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        self[0].requires_grad_(False)


class Dropped(torch.nn.Sequential):
    """Draws numbers, behind a batch norm."""

    def __init__(self) -> None:
        parts = (torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        super().__init__(
            *parts, torch.nn.Dropout(0.5), torch.nn.Flatten(), torch.nn.Linear(288, 10)
        )


class Tokens(torch.nn.Module):
    """Norms and products of transposed images."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = torch.nn.Conv2d(3, 8, 2, stride=2), torch.nn.LayerNorm(8)
        self.last = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.patches(x).flatten(2).transpose(1, 2))).transpose(1, 2)


IMAGE = (2, 3, 8, 8)
STEPS: dict[str, tuple[type[torch.nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "complex weights": (Fourier, (4, 8), {"optimizer": "sgd"}),
    "unused weights": (Partly, (4, 5), {"optimizer": "adam"}),
    "frozen before a norm": (Frozen, IMAGE, {"optimizer": "sgd"}),
    "transposed": (Tokens, IMAGE, {"optimizer": "adamw"}),
    "without an update": (Tokens, IMAGE, {}),
    "draws": (Dropped, IMAGE, {"optimizer": "adamw"}),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_training(name: str) -> None:
    kind, shape, options = STEPS[name]
    fake, real = check(kind(), Inputs(shape), Run(train=True, **options))
    assert fake.records == real.records


def test_what_autocast_casts_is_gone_before_the_backward_pass() -> None:
    """Its cache of weights in half precision is emptied where it ends, as in a real step."""
    run = Run(train=True, optimizer="sgd", autocast="bfloat16")
    for captured in both(
        torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False)), Inputs((2, 64)), run
    ):
        cast = next(
            each.outputs[0].storage
            for each in captured.records
            if each.op == "aten._to_copy" and each.outputs[0].shape == (64, 64)
        )
        freed = next(each for each in captured.records if cast in each.freed)
        assert freed.phase != "optimizer"


def test_a_norm_of_what_is_frozen_makes_no_gradient_of_it() -> None:
    """8 channels of 6x6 for 2 images: the gradient that comes, what was normed, and little else."""
    (norm,) = [
        each
        for each in trained(Frozen(), IMAGE).records
        if each.op == "aten.native_batch_norm_backward"
    ]
    assert all(spec.shape == (8,) for spec in norm.outputs)


def test_settings_that_the_caller_uses_are_not_those_of_the_pass() -> None:
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        inside = trained(Partly(), (4, 5))
        assert torch.is_anomaly_enabled()
    assert inside.records == trained(Partly(), (4, 5)).records


def resetting(x: torch.Tensor) -> torch.Tensor:
    """Changes settings of torch."""
    torch.manual_seed(7)
    torch.backends.mha.set_fastpath_enabled(False)
    return x + torch.rand_like(x)


def test_settings_that_a_model_changes_are_put_back() -> None:
    state, fast = torch.get_rng_state(), torch.backends.mha.get_fastpath_enabled()
    both(Function(resetting), Inputs((2, 3)), Run())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.backends.mha.get_fastpath_enabled() == fast


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (torch.optim.LBFGS, "optimizer: LBFGS is not supported: it runs the model several times"),
        (lambda _: None, "optimizer: expected a torch.optim.Optimizer, got NoneType"),
    ],
    ids=["several passes", "none"],
)
def test_what_is_no_optimizer_is_refused(optimizer: Any, said: str) -> None:
    with pytest.raises(ModelError) as raised:
        run_single_pass(
            Partly(),
            Inputs((4, 5)),
            {},
            run := Run(train=True, optimizer="its"),
            FakeTensors(run),
            TrainingConfig(optimizer=optimizer).new_step(),
        )
    assert said in str(raised.value)


@pytest.mark.parametrize("optimizer", [torch.optim.ASGD, torch.optim.Adafactor])
def test_an_optimizer_that_asks_for_values_runs_for_real(optimizer: Any) -> None:
    captured = capture(
        Partly(),
        Inputs((4, 5)),
        name="net",
        run=Run(train=True, optimizer="its"),
        training=TrainingConfig(optimizer=optimizer),
    )
    assert any("real tensors" in note for note in captured.notes)
    assert {each.phase for each in captured.records} == {"forward", "backward", "optimizer"}


def test_a_loss_that_asks_for_values_runs_for_real() -> None:
    captured = trained(Partly(), (4, 5), loss=lambda y: y.sum() if y.sum().item() > 0 else y.mean())
    assert any("real tensors" in note for note in captured.notes)


aten = torch.ops.aten
SHAPES = ((1, 3), (2, 1, 5), (1, 3, 4, 1))
HALF = (torch.float16, torch.bfloat16)


def calls(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    def of(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    x, channels = of(shape), (shape[1],)
    for is_training, has_weights in itertools.product((False, True), repeat=2):
        weights = (of(channels), of(channels)) if has_weights else (None, None)
        kept = (of(channels), of(channels)) if has_weights or not is_training else (None, None)
        if not is_training or x.numel() > channels[0]:
            yield aten.native_batch_norm.default, (x, *weights, *kept, is_training, 0.1, 1e-5)
    for start in range(len(shape)):
        normed = shape[start:]
        yield aten.native_layer_norm.default, (x, list(normed), of(normed), None, 1e-5)
    if dtype in HALF:
        return
    yield aten.roll.default, (x, [1, -2], [0, -1])
    yield aten.hardswish.default, (x,)
    yield aten.hardsigmoid.default, (x,)


def normalizations_of(x: torch.Tensor, weights: torch.dtype) -> Iterator[tuple[Any, Any]]:
    """Batch norms of images that lie in any order, with weights of another type than theirs."""
    w = torch.empty(x.shape[1], dtype=weights)
    for is_training in (False, True):
        yield aten.native_batch_norm.default, (x, w, w, w, w, is_training, 0.1, 1e-5)
    if x.is_contiguous():
        w = torch.empty(x.shape[-1], dtype=weights)
        yield aten.native_layer_norm.default, (x, [len(w)], w, w, 1e-5)


@pytest.mark.parametrize(
    ("device", "dtype"),
    [("cpu", torch.float32), ("meta", torch.float64), *itertools.product(("cpu", "meta"), HALF)],
)
def test_as_torch_says(device: str, dtype: torch.dtype) -> None:
    mode = FakeTensorMode()
    mode.allow_meta = True
    with mode, torch.device(device):
        images = torch.empty(2, 3, 4, 5, dtype=dtype)
        orders = (images, images.to(memory_format=torch.channels_last))
        weights = (dtype, torch.float32) if dtype in HALF else (dtype,)
        for func, args in itertools.chain(
            *(calls(each, dtype) for each in SHAPES),
            *(normalizations_of(*each) for each in itertools.product(orders, weights)),
        ):
            said = infer_results(func, args, {}, torch.device(device))
            result = func(*args)
            assert isinstance(result, torch.Tensor if said and len(said) == 1 else tuple)
            found = (result,) if isinstance(result, torch.Tensor) else result
            assert said == tuple((tuple(each.shape), each.stride(), each.dtype) for each in found)
            assert not any(each.storage_offset() for each in found)


def test_what_torch_is_to_say() -> None:
    """Other layouts, casts, nothing at all, and what is wrong."""
    kept = torch.empty(3)
    rest = (kept, kept, kept, kept, False, 0.1, 1e-5)
    norm, device = aten.native_batch_norm.default, torch.device("cpu")
    x = torch.empty(2, 3, 4, 5)
    assert infer_results(norm, (x, *rest), {}, device)
    for other in (
        # Strides of dimensions of size 1 may be any.
        x[:1].to(memory_format=torch.channels_last),
        x.transpose(2, 3),
        x.double(),
        x.int(),
        torch.empty(0, 3, 4, 5),
        torch.empty(2, 4, 4, 5),
        torch.empty(3),
    ):
        assert infer_results(norm, (other, *rest), {}, device) is None
    alone = (torch.empty(1, 3), kept, kept, kept, kept, True, 0.1, 1e-5)
    assert infer_results(norm, alone, {}, device) is None
    assert infer_results(norm, (x, None, None, None, None, False, 0.1, 1e-5), {}, device) is None
    layer = aten.native_layer_norm.default
    assert infer_results(layer, (x, [4], None, None, 1e-5), {}, device) is None
    assert infer_results(layer, (x, [5], kept, None, 1e-5), {}, device) is None
    for shifts, dimensions in (([1], []), ([1], [0, 1]), ([1], [4])):
        assert infer_results(aten.roll.default, (x, shifts, dimensions), {}, device) is None
    assert infer_results(aten.relu.default, (x,), {}, device) is None


# The one device beside the CPU that every torch has.
OTHER = torch.device("meta")


def test_copies_and_inputs_are_on_the_device_that_is_named() -> None:
    reals = RealTensors(Run(), OTHER)
    weight = torch.nn.Parameter(torch.ones(4, 3).t())
    copy = reals.replacement_for(weight, Role.PARAMETER, is_changed=True)
    assert copy.device == OTHER
    assert (copy.shape, copy.stride()) == ((3, 4), (1, 3))
    made = reals.make_input(InputRequest(shape=(2, 3)), torch.float32)
    assert made.device == OTHER
    given = reals.make_input(InputRequest(shape=(2,), like=torch.zeros(2)), torch.float32)
    assert given.device == OTHER
    assert weight.device.type == "cpu"


def test_by_default_they_are_where_the_model_is() -> None:
    reals = RealTensors(Run())
    assert reals.replacement_for(torch.zeros(2), Role.BUFFER).device.type == "cpu"
    assert reals.make_input(InputRequest(shape=(2,)), torch.int64).device.type == "cpu"
