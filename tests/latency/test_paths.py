"""The way that torch takes a convolution to a kernel, against what torch itself says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from roofline.core.dtypes import dtype
from roofline.latency.features import convolution_path, product_layouts
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs
from roofline.workload.tensors import Layout, Role, TensorSpec

# What torch calls its ways; those that it has no name for in Python are told by their number.
WAYS = {
    "Mkldnn": "onednn",
    "MkldnnTranspose": "onednn",
    "Slow2d": "im2col",
    "Slow3d": "im2col",
    "SlowTranspose2d": "im2col",
    "SlowTranspose3d": "im2col",
    "SlowDilated2d": "dilated im2col",
    "SlowDilated3d": "dilated im2col",
}


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def said_by_torch(layer: Any, *shape: int) -> str:
    with torch.no_grad():
        image = torch.zeros(shape, dtype=layer.weight.dtype)
        backend = torch._C._select_conv_backend(
            image,
            layer.weight,
            layer.bias,
            list(layer.stride),
            list(layer.padding),
            list(layer.dilation),
            layer.transposed,
            list(layer.output_padding),
            layer.groups,
        )
    name = str(backend).rpartition(".")[2]
    # MkldnnTranspose is not told by name.
    return "onednn" if name == "???" and layer.transposed else WAYS[name]


def check(layer: Any, *shapes: tuple[int, ...]) -> str:
    """The way of the last of the shapes on two threads; all are held against what torch says."""
    image = torch.zeros(shapes[0], dtype=layer.weight.dtype)
    records = capture(layer, Inputs(image), name="x").records
    (record,) = (each for each in records if each.op == "aten.convolution")
    path = ""
    for shape, threads in itertools.product(shapes, (1, 2)):
        torch.set_num_threads(threads)
        operands = (replace(record.inputs[0], shape=shape), *record.inputs[1:])
        path = convolution_path(replace(record, inputs=operands), threads)
        way = said_by_torch(layer, *shape)
        assert path.rpartition(" ")[0] == way, (layer, shape, threads, path)
    return path


def images(channels: int, batches: tuple[int, ...], pixels: tuple[int, ...]) -> list[Any]:
    return [(batch, channels, size, size) for batch in batches for size in pixels]


@pytest.mark.parametrize("of", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_images(kernel: int, of: torch.dtype) -> None:
    if of is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no bfloat16 on this CPU")
    for stride, dilation, groups in itertools.product((1, 2), (1, 2), (1, 2, 16)):
        if stride == dilation == 2:
            continue
        layer = nn.Conv2d(
            16, 32, kernel, stride, dilation * (kernel // 2), dilation, groups, dtype=of
        )
        path = check(layer, *images(16, (1, 15, 16), (7, 40)))
        kind = {1: "1x1" if kernel == 1 else "kxk", 2: "grouped", 16: "depthwise"}[groups]
        assert path.endswith(kind)


@pytest.mark.parametrize("kernel", [(1, 7), (7, 1), (5, 4), (4, 3), (1, 1), (5, 5)])
def test_kernels_that_are_not_square(kernel: tuple[int, int]) -> None:
    check(nn.Conv2d(16, 8, kernel, padding=3), *images(16, (1, 2), (7, 35, 36, 80)))


def test_the_size_from_which_a_single_image_is_large() -> None:
    layer = nn.Conv2d(5, 8, 3, padding=1)
    assert check(layer, (1, 5, 64, 64)) == "im2col kxk"
    assert check(layer, (1, 5, 64, 65)) == "onednn kxk"


@pytest.mark.parametrize("of", [torch.float32, torch.float64], ids=str)
def test_sequences_and_volumes(of: torch.dtype) -> None:
    sequences = [(batch, 16, size) for batch in (1, 2) for size in (16, 2000)]
    volumes = [(batch, 4, 6, 6, size) for batch in (1, 2) for size in (6, 200)]
    for kernel, dilation in itertools.product((1, 3, 5), (1, 2)):
        options = {"padding": 4, "dilation": dilation, "dtype": of}
        for groups in (1, 4):
            check(nn.Conv1d(16, 8, kernel, groups=groups, **options), *sequences)
        check(nn.Conv3d(4, 4, kernel, **options), *volumes)
    # Four sizes of a volume are looked at: 16 * 16 * 16 * 16 is more than 20480.
    check(nn.Conv3d(16, 4, 3, dtype=of), (1, 16, 16, 16, 4))


@pytest.mark.parametrize("of", [torch.float32, torch.float64], ids=str)
def test_transposed(of: torch.dtype) -> None:
    for kernel, stride, groups in itertools.product((1, 3, 5), (1, 2), (1, 4)):
        layer = nn.ConvTranspose2d(16, 8, kernel, stride, groups=groups, dtype=of)
        assert check(layer, *images(16, (1, 2), (7, 40))).endswith("transposed")
    for extra in (0, 1):
        layer = nn.ConvTranspose2d(16, 8, 3, 2, output_padding=extra, dilation=2, dtype=of)
        check(layer, (2, 16, 20, 20))
    # Padded by as much as the stride, which only torch's own way can.
    layer = nn.ConvTranspose2d(16, 8, 3, 1, output_padding=1, dilation=2, dtype=of)
    assert check(layer, (2, 16, 20, 20)) == "im2col transposed"


def matrix(layout: Layout) -> TensorSpec:
    return TensorSpec(
        shape=(4, 5),
        dtype=dtype("float32"),
        distinct_elements=20,
        storage=0,
        layout=layout,
        role=Role.INPUT,
    )


def test_how_matrices_lie() -> None:
    assert product_layouts(matrix("contiguous"), matrix("strided")) == "nt"
    assert product_layouts(matrix("strided"), matrix("contiguous")) == "tn"
