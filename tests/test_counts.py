"""Whole models: their counts against papers, against torchvision, against torch, and by hand."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import roofline
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import resolve_inputs
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.sources import load_model
from roofline.workload.operators import Capture, State
from roofline.workload.work import Work

FAMILIES = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s"),
    *("googlenet", "inception_v3", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small"),
    *("mobilenet_v3_large", "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet50"),
    *("resnext50_32x4d", "wide_resnet50_2", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0"),
    *("squeezenet1_0", "squeezenet1_1", "vgg11_bn", "vgg16"),
)
"""The small ones of every family of torchvision's convolutional classifiers."""

OTHERS = ("fcn_resnet50", "lraspp_mobilenet_v3_large", "r3d_18", "s3d", "swin_t", "swin_v2_t")
"""Of further kinds whose operators are all known: segmentation, video, windowed attention."""

LARGER = ("vit_b_16", "vit_b_32", "vit_l_16", "convnext_small", "swin_s")


@functools.cache
def captured(name: str) -> Capture:
    """One pass of a named model on its own input."""
    source = load_model(name)
    inputs = resolve_inputs(source.module, None, source.default_inputs, name=name, batch=None)
    return capture(source.module, inputs, name=name)


def total(name: str) -> Work:
    return sum((each.work for each in captured(name).records), start=Work())


def published(name: str) -> list[Mapping[str, Any]]:
    """What torchvision says of the model's weights."""
    torchvision, _reason = library_or_reason("torchvision")
    assert torchvision is not None
    return [each.meta for each in torchvision.models.get_model_weights(name)]


# -- coverage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FAMILIES, *OTHERS])
def test_every_operator_is_known(name: str) -> None:
    """Coverage is 100 %, and no operator can do with more than it is said to take."""
    for record in captured(name).records:
        assert record.state is not State.UNKNOWN, record.op
        work = record.work
        assert work.flop is not None
        assert work.min_flop is not None
        assert work.macs is not None
        assert 0 <= work.min_flop <= work.flop
        assert 2 * work.macs <= work.flop
        assert (work.traffic_bytes > 0) == (record.state is State.COUNTED)


# -- multiply-adds and parameters ------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FAMILIES, *OTHERS[2:], *LARGER])
def test_multiply_adds_are_those_that_torchvision_publishes(name: str) -> None:
    """In billions with three decimals, at the size that the weights are evaluated at."""
    found = (total(name).macs or 0) / 1e9
    assert min(abs(found - meta["_ops"]) for meta in published(name)) < 0.001


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_are_those_that_torchvision_publishes(name: str) -> None:
    """Published without GoogLeNet's auxiliary classifiers, which its builder leaves in."""
    # Each: a 1x1 convolution to 128 with its norm, 2048 to 1024, 1024 to 1000.
    head = 256 + 2049 * 1024 + 1025 * 1000
    auxiliary = 512 * 128 + head + 528 * 128 + head if name == "googlenet" else 0
    counts = {meta["num_params"] for meta in published(name)}
    assert captured(name).parameters - auxiliary in counts
    assert captured(name).parameter_size_bytes == 4 * captured(name).parameters


@pytest.mark.parametrize(
    ("name", "macs", "parameters"),
    [
        ("resnet50", 4_089_184_256, 25_557_032),
        ("mobilenet_v2", 300_774_272, 3_504_872),
        ("vgg16", 15_470_264_320, 138_357_544),
        ("alexnet", 714_188_480, 61_100_840),
    ],
)
def test_the_figures_that_everybody_knows(name: str, macs: int, parameters: int) -> None:
    """To the last digit."""
    assert total(name).macs == macs
    assert captured(name).parameters == parameters


def convolution(size: int, inputs: int, outputs: int, kernel: int = 1, groups: int = 1) -> int:
    """Multiply-adds of size x size outputs."""
    return size**2 * outputs * (inputs // groups) * kernel**2


def resnet50() -> int:
    """He et al., "Deep Residual Learning" (2015), table 1; stride 2 in the 3x3, as torch has it."""
    fma = convolution(112, 3, 64, 7)
    channels, before = 64, 56
    for blocks, width, size in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            fma += convolution(before, channels, width)
            fma += convolution(size, width, width, 3)
            fma += convolution(size, width, 4 * width)
            if block == 0:
                fma += convolution(size, channels, 4 * width)
            channels, before = 4 * width, size
    return fma + 2048 * 1000


def mobilenet_v2() -> int:
    """Sandler et al., "MobileNetV2" (2018), table 2: expansion, channels, repeats, stride."""
    fma, channels, size = convolution(112, 3, 32, 3), 32, 112
    for t, c, n, s in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        for repeat in range(n):
            inner = t * channels
            fma += convolution(size, channels, inner) if t > 1 else 0
            size = size // s if repeat == 0 else size
            fma += convolution(size, inner, inner, 3, groups=inner)
            fma += convolution(size, inner, c)
            channels = c
    return fma + convolution(7, 320, 1280) + 1280 * 1000


def vgg16() -> int:
    """Simonyan & Zisserman (2014), table 1, column D: 3x3 all over, halved after each block."""
    fma, channels = 0, 3
    for size, widths in (
        *((224, (64, 64)), (112, (128, 128)), (56, (256, 256, 256))),
        *((28, (512, 512, 512)), (14, (512, 512, 512))),
    ):
        for width in widths:
            fma += convolution(size, channels, width, 3)
            channels = width
    return fma + 25088 * 4096 + 4096 * 4096 + 4096 * 1000


def alexnet() -> int:
    """Krizhevsky, "One weird trick" (2014): 55, 27 and 13 pixels a side, then 6x6x256 inputs."""
    return (
        convolution(55, 3, 64, 11)  # 3025 * 64 * 363 = 70,276,800
        + convolution(27, 64, 192, 5)  # 729 * 192 * 1600 = 223,948,800
        + convolution(13, 192, 384, 3)  # 169 * 384 * 1728 = 112,140,288
        + convolution(13, 384, 256, 3)  # 169 * 256 * 3456 = 149,520,384
        + convolution(13, 256, 256, 3)  # 169 * 256 * 2304 = 99,680,256
        + 9216 * 4096  # 37,748,736
        + 4096 * 4096  # 16,777,216
        + 4096 * 1000  # 4,096,000
    )


@pytest.mark.parametrize("table", [resnet50, mobilenet_v2, vgg16, alexnet])
def test_tables_of_the_papers(table: Any) -> None:
    """Layer by layer, as the authors drew them up."""
    assert total(table.__name__).macs == table()


@pytest.mark.parametrize(
    "name",
    [
        *("convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5"),
        *("mobilenet_v3_small", "regnet_y_400mf", "resnet18", "shufflenet_v2_x0_5"),
        *("squeezenet1_1", "swin_t"),
    ],
)
def test_torch_counts_the_same_on_real_tensors(name: str) -> None:
    """FlopCounterMode is right for forward convolutions and products: twice the multiply-adds."""
    torchvision, _reason = library_or_reason("torchvision")
    assert torchvision is not None
    options = {"init_weights": False} if name == "googlenet" else {}
    model = torchvision.models.get_model(name, weights=None, **options).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, 64, 64))
    analysis = roofline.analyze(model, (1, 3, 64, 64), hardware="10980xe")
    assert 2 * analysis.totals.macs == counter.get_total_flops()
    assert analysis.coverage.calls == 1


# -- bytes -----------------------------------------------------------------------------------------


class Probe(TorchDispatchMode):
    """Bytes that operators on real tensors read and write, by what torch says of each operator.

    An operator that returns views moves nothing; any other reads each tensor it is given, and
    writes what it returns or changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.byte = 0
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.is_view or str(func).startswith(("aten._unsafe_view", "aten.empty")):
            return result
        self.calls += 1
        read = {(each.data_ptr(), each.shape): each for each in tensors_in([args, kwargs])}
        written = {(each.data_ptr(), each.shape): each for each in tensors_in(result)}
        for each in (*read.values(), *written.values()):
            self.byte += each.numel() * each.element_size()
        return result


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.numel():
            yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)


@pytest.mark.parametrize(
    "name", ["resnet50", "mobilenet_v2", "densenet121", "shufflenet_v2_x0_5", "squeezenet1_1"]
)
def test_traffic_is_what_a_probe_of_the_real_run_sees(name: str) -> None:
    """The model runs for real, in eager mode, and every operand is measured where it lies."""
    torchvision, _reason = library_or_reason("torchvision")
    assert torchvision is not None
    model = torchvision.models.get_model(name, weights=None).eval()
    image, probe = torch.zeros(1, 3, 224, 224), Probe()
    with torch.no_grad(), probe:
        model(image)
    assert total(name).traffic_bytes == probe.byte
    working = [each for each in captured(name).records if each.state is not State.FREE]
    assert len(working) == probe.calls


def test_resnet50_traffic() -> None:
    """The figure that this project quotes."""
    assert total("resnet50").traffic_bytes == 427_601_472


def test_vgg16_traffic_by_hand() -> None:
    """In floats: weights once; each convolution reads and writes; ReLU in place does so again.

    Pooling writes its places too, as int64: two floats each. The head's first layer reads 25088.
    """
    floats = 138_357_544
    size, channels = 224, 3
    for widths in ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3):
        for width in widths:
            floats += size**2 * (channels + 3 * width)
            channels = width
        floats += size**2 * channels + 3 * (size // 2) ** 2 * channels
        size //= 2
    # The average pooling to 7x7 changes no size, but reads and writes all of it.
    floats += 2 * 25088
    floats += (25088 + 3 * 4096) + (4096 + 3 * 4096) + (4096 + 1000)
    assert total("vgg16").traffic_bytes == 4 * floats


# -- properties of whole models --------------------------------------------------------------------


def analyzed(name: str, **options: Any) -> roofline.Analysis:
    return roofline.analyze(name, hardware="10980xe", **options)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5"])
def test_a_batch_of_four(name: str) -> None:
    """Four times the arithmetic and activations, the same parameters.

    What a batch norm makes of its channels' statistics is made once: five FLOP a channel.
    """
    one, four = analyzed(name).totals, analyzed(name, batch=4).totals
    norms = [each for each in captured(name).records if "batch_norm" in each.op]
    once = 5 * sum(each.outputs[0].shape[1] for each in norms)
    assert four.flop - once == 4 * (one.flop - once)
    assert four.macs == 4 * one.macs
    assert (four.input_bytes, four.output_bytes) == (4 * one.input_bytes, 4 * one.output_bytes)
    assert four.parameter_bytes == one.parameter_bytes


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1"])
def test_half_the_width(name: str) -> None:
    """bfloat16 moves half the bytes, but for the int64 places of max-pooling; FLOP stay."""
    full, half = analyzed(name).totals, analyzed(name, dtype="bfloat16").totals
    places = sum(
        each.byte
        for record in captured(name).records
        for each in record.outputs
        if each.dtype.name == "int64"
    )
    assert half.traffic_bytes - places == (full.traffic_bytes - places) / 2
    assert half.flop == full.flop
    assert half.parameter_size_bytes == full.parameter_size_bytes / 2


def test_totals_are_the_sums_of_the_modules() -> None:
    """What the parts of a model take adds up to what it takes."""
    parts: dict[str, Work] = {}
    for record in captured("resnet18").records:
        top = record.module_path.partition(".")[0]
        parts[top] = parts.get(top, Work()) + record.work
    assert set(parts) >= {"conv1", "bn1", "relu", "maxpool", "layer1", "layer4", "avgpool", "fc"}
    assert sum(parts.values(), start=Work()) == total("resnet18")
    # 64 filters of 3x7x7 on 112x112, and a 512x1000 product.
    assert parts["conv1"].macs == 112 * 112 * 64 * 147
    assert parts["fc"].macs == 512_000


def test_module_paths_are_names_in_the_state() -> None:
    """Every operator with parameters is where the state dict has them."""
    source = load_model("densenet121")
    names = {name.rpartition(".")[0] for name in source.module.state_dict()}
    for record in captured("densenet121").records:
        if record.work.parameter_bytes:
            assert record.module_path in names
