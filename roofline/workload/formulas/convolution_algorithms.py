"""Minimum arithmetic of a convolution over the algorithms of GPU libraries.

The list is closed: direct, Winograd and FFT. Only products that are summed over channels count, two
FLOP each; transforms, and the bytes of transformed data, are free.

* **Direct**: the MACs of taps inside the image. Every convolution.
* **Winograd** F(m × m, r × r), m = 2, 4 or 6, nested over the spatial dimensions (S. Winograd,
  "Arithmetic Complexity of Computations", SIAM, 1980; A. Lavin, S. Gray, "Fast Algorithms for
  Convolutional Neural Networks", CVPR 2016): m + r - 1 products for m results and r taps of a
  dimension. A partial last tile counts in proportion, but n results alone take n + r - 1. Floating
  types, any kernel above 1, any groups, no dilation, strides 1 and 2. cuDNN has it for stride 1;
  MIOpen's RxS kernels support stride 2 as the sum of two convolutions of stride 1, of even and of
  odd places.
* **FFT**: half a spectrum, three real products for a complex one, one where the spectrum is real.
  Floating types, any kernel above 1, any groups, no dilation, stride 1: as cuDNN's FFT and
  FFT_TILING.

cuDNN limits kernels (3 and 5 for Winograd, 32 for FFT) and types by version. The minimum ignores
these limits, as the next version may lift them. Integer convolutions are direct.

The gradients of image and weight are the same sum of products of three tensors, seen from another
of them. An algorithm for one yields one for the others with as many products (its transpose), so
all three have one count.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction

from roofline.workload.formulas.convolution import (
    Dimension,
    inner_taps,
    leading_padding,
    spatial_dimensions,
    with_batch,
)
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.work import FLOP_PER_MAC

ALGORITHMS = "minimum of direct, Winograd F(2, 4, 6), FFT"
"""Description of `min_flop_of_algorithms`."""

WINOGRAD_TILES = (2, 4, 6)
_WINOGRAD_STRIDE = 2
"""Largest stride of a library's Winograd kernels."""


def is_convolution(record: OperatorRecord) -> bool:
    """True for aten's convolutions of images and their gradients."""
    return (
        record.state is State.COUNTED
        and record.type in ("convolution", "depthwise convolution")
        and record.op.startswith("aten.")
        and record.op != "aten.conv_tbc"
        and bool(record.work.macs)
    )


def min_flop_of_algorithms(record: OperatorRecord) -> int | None:
    """Return the minimum FLOP over the algorithms; ``work.min_flop`` for other operators."""
    least = record.work.min_flop
    if least is None or not is_convolution(record):
        return least
    given = record.attributes
    if "backward" in record.op:
        if len(record.inputs) < len(("gradient", "image", "weight")):
            # One tensor has two roles, which ones is unknown: no product is certain.
            return max(0, least - FLOP_PER_MAC * (record.work.macs or 0))
        result, image, weight = record.inputs[:3]
        if record.op.startswith("aten.mps_"):
            result, image = image, result
    else:
        # An image that is also the weight is one operand.
        (image, weight), result = (*record.inputs, *record.inputs)[:2], record.outputs[0]
    if any(each.dtype.kind != "float" for each in (image, weight)):
        return least
    is_transposed = "transpose" in record.op or given.get("transposed") is True
    kernel, dilation = weight.shape[2:], given.get("dilation", (1,))
    image, result = with_batch(image, weight), with_batch(result, weight)
    swept, swept_over = (image, result) if is_transposed else (result, image)
    padding = leading_padding(given.get("padding", (0,)), kernel, dilation)
    dimensions = spatial_dimensions(
        swept_over, swept, kernel, given.get("stride", (1,)), padding, dilation
    )
    pairs = swept.shape[0] * swept.shape[1] * weight.shape[1]
    # One or both of the gradients.
    times = (record.work.macs or 0) // (pairs * math.prod(swept.shape[2:]) * math.prod(kernel))
    direct = math.prod(inner_taps(*each) for each in dimensions)
    spared = direct - min((direct, *_products(dimensions)))
    return least - FLOP_PER_MAC * times * pairs * spared


def _products(dimensions: Sequence[Dimension]) -> list[int]:
    """Products by Winograd and by FFT per input and output channel, where they apply."""
    found: list[int] = []
    largest_stride = max(each.stride for each in dimensions)
    if any(each.kernel > 1 and each.dilation > 1 for each in dimensions):
        return found
    if largest_stride <= _WINOGRAD_STRIDE:
        along = [
            _winograd(each.size, each.kernel, each.stride, each.padding, each.windows)
            for each in dimensions
        ]
        found.append(math.floor(math.prod(along)))
    if largest_stride == 1:
        lengths = [
            min_transform_length(each.size, each.kernel, each.padding, each.windows)
            for each in dimensions
        ]
        # Real (self-conjugate) frequencies: 0 and, for even lengths, half.
        real = math.prod(min(length, 2 - length % 2) for length in lengths)
        found.append((3 * math.prod(lengths) - real) // 2)
    return found


@functools.cache
def _winograd(size: int, kernel: int, stride: int, padding: int, windows: int) -> Fraction:
    """Products along one dimension; each phase of the stride is a convolution of stride 1."""
    products = Fraction(0)
    for phase in range(min(stride, kernel)):
        # Tap phase + stride × t of window o meets place stride × (o + t) + phase - padding.
        first_place = (phase - padding) % stride
        reach = _reach(
            len(range(first_place, size, stride)),
            len(range(phase, kernel, stride)),
            -((phase - padding) // stride),
            windows,
        )
        if reach is not None:
            (first_window, last_window), (first_tap, last_tap), (first_place, last_place) = reach
            # Tiles of results, or of places in the transposed algorithm; a single tile takes r - 1
            # more products.
            results = min(last_window - first_window, last_place - first_place) + 1
            more = last_tap - first_tap
            products += results + more * max(1, Fraction(results, max(WINOGRAD_TILES)))
    return products


@functools.cache
def min_transform_length(size: int, kernel: int, padding: int, windows: int) -> int:
    """Minimum length of a cyclic convolution whose results hold all windows of one dimension.

    Window o meets place o + k of the padded image with tap k. A cyclic convolution of length N
    makes it meet all places o + k + zN as well, so these must be empty. Hence no place of the image
    may lie a multiple of N from another place, in it or in its padding, that a window and a tap
    meet. Let those be a … b, and the image's c … d among them: N is at least b - c + 1 and d - a +
    1. Then no two windows, taps or places of the image are congruent modulo N either. Tiling does
    not help: the lengths of tiles add up to no less.
    """
    reach = _reach(size, kernel, padding, windows)
    if reach is None:
        return 0
    (first_window, last_window), (first_tap, last_tap), (first_place, last_place) = reach
    return 1 + max(last_window + last_tap - first_place, last_place - first_window - first_tap)


Range = tuple[int, int]


def _reach(size: int, kernel: int, padding: int, windows: int) -> tuple[Range, Range, Range] | None:
    """First and last windows, taps and places of the padded image that meet its data, or None."""
    last = padding + size - 1
    of_windows = max(0, padding - kernel + 1), min(windows - 1, last)
    of_taps = max(0, padding - windows + 1), min(kernel - 1, last)
    of_places = max(0, padding), min(windows + kernel - 2, last)
    if any(begin > end for begin, end in (of_windows, of_taps, of_places)):
        return None
    return of_windows, of_taps, of_places
