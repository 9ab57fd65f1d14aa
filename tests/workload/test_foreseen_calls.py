"""What is said of calls without asking torch is what torch's own fakes say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from roofline.workload.capture.known_calls import foreseen

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
            said = foreseen(func, args, {}, torch.device(device))
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
    assert foreseen(norm, (x, *rest), {}, device)
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
        assert foreseen(norm, (other, *rest), {}, device) is None
    alone = (torch.empty(1, 3), kept, kept, kept, kept, True, 0.1, 1e-5)
    assert foreseen(norm, alone, {}, device) is None
    assert foreseen(norm, (x, None, None, None, None, False, 0.1, 1e-5), {}, device) is None
    layer = aten.native_layer_norm.default
    assert foreseen(layer, (x, [4], None, None, 1e-5), {}, device) is None
    assert foreseen(layer, (x, [5], kept, None, 1e-5), {}, device) is None
    for shifts, dimensions in (([1], []), ([1], [0, 1]), ([1], [4])):
        assert foreseen(aten.roll.default, (x, shifts, dimensions), {}, device) is None
    assert foreseen(aten.relu.default, (x,), {}, device) is None
