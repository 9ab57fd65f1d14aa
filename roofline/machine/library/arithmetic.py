"""torch's matrix products and convolutions, per element type and size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from roofline.foundation.dtypes import dtype
from roofline.machine.library.subjects import Arithmetic, Candidate, Run

_PRODUCT_ELEMENTS = (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.float16)
_CONVOLUTION_ELEMENTS = (torch.float32, torch.bfloat16, torch.float64, torch.float16)

# From what takes a millisecond at 0.5 GFLOP/s, as types without a native path do.
_PRODUCT_SIZES = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072)
# Channels and side, in the order of their work.
_IMAGES = (
    *((64, 8), (64, 16), (128, 16), (128, 24), (128, 32)),
    *((256, 32), (128, 64), (256, 64), (256, 128)),
)

_LAYOUTS = (
    ("conv", torch.contiguous_format),
    ("conv-channels-last", torch.channels_last),
)
_KERNEL = 3

_PERIOD = 997
"""A prime, so that rows differ; so few values that filling a matrix is copying."""

_GOLDEN = 0.6180339887498949
_LARGEST_INT8 = 80


def arithmetic_subjects() -> Iterator[Arithmetic]:
    """Matrix products and 3x3 convolutions, contiguous and channels-last, per element type."""
    for element in _PRODUCT_ELEMENTS:
        yield Arithmetic(
            kernel="gemm",
            dtype=dtype(element),
            candidates=tuple(_product(n, element) for n in _PRODUCT_SIZES),
        )
    for element in _CONVOLUTION_ELEMENTS:
        for kernel, layout in _LAYOUTS:
            yield Arithmetic(
                kernel=kernel,
                dtype=dtype(element),
                candidates=tuple(_convolution(c, n, element, layout) for c, n in _IMAGES),
            )


def _product(n: int, element: torch.dtype) -> Candidate:
    def make() -> Run:
        a, b = _filled((n, n), element), _filled((n, n), element)
        if element == torch.int8:
            # The only integer product that has a fast path; its sums are 32 bits wide.
            sums = torch.empty(n, n, dtype=torch.int32, device="cpu")
            return partial(torch.ops.aten._int_mm.out, a, b, out=sums)
        out = torch.empty(n, n, dtype=element, device="cpu")
        return partial(torch.mm, a, b, out=out)

    return Candidate(size=f"{n}x{n}x{n}", work=2 * n**3, make=make)


def _convolution(
    channels: int, side: int, element: torch.dtype, layout: torch.memory_format
) -> Candidate:
    def make() -> Run:
        image = _filled((1, channels, side, side), element).contiguous(memory_format=layout)
        weight = _filled((channels, channels, _KERNEL, _KERNEL), element)
        taps = weight.contiguous(memory_format=layout)
        return partial(torch.nn.functional.conv2d, image, taps)

    # Without padding every tap counts: the convention on padding makes no difference here.
    places = (side - _KERNEL + 1) ** 2
    return Candidate(
        size=f"1x{channels}x{side}x{side}",
        work=2 * places * channels * channels * _KERNEL**2,
        make=make,
    )


def _filled(shape: tuple[int, ...], element: torch.dtype) -> torch.Tensor:
    """Values from 0.5 to 1.5 of both signs: no denormals, no overflow, no random state used."""
    index = torch.arange(_PERIOD, dtype=torch.float64, device="cpu")
    values = (index * _GOLDEN % 1 + 0.5) * (1 - 2 * (index % 2))
    if element == torch.int8:
        values = (values * _LARGEST_INT8).round()
    elements = torch.Size(shape).numel()
    rows = -(-elements // _PERIOD)
    return values.to(element).repeat(rows)[:elements].reshape(shape)
