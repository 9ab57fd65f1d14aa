"""Fourier transforms, by the convention of FFT benchmarks: 5 N log2 N for a complex transform.

N is the product of the transformed sizes; half as much where one side is real. That is what a
radix-2 transform takes, whatever the kernel does; other sizes are counted the same. Source: M.
Frigo and S. G. Johnson, "benchFFT", https://www.fftw.org/speed/method.html.

No lower bound is known for every algorithm. Where no coefficient exceeds 1 in magnitude, as in
those in use, the determinant of the matrix gives one: (N / 2) log2 N complex additions. Source: J.
Morgenstern, "Note on a lower bound of the linear complexity of the fast Fourier transform",
JACM 20 (2), 1973. Of a real transform's matrix the determinant is at least (N / 2)^(N / 2), so that
its real additions are (N / 2) log2 (N / 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def _size(spec: TensorSpec, dim: Sequence[int]) -> int:
    return math.prod(spec.shape[each] for each in dim) if spec.shape else 1


def _scaled(normalization: int, numbers: int) -> int:
    """A product with 1 / N, or its root, for each real number of the result if asked."""
    return numbers if normalization else 0


@formula("aten._fft_c2c", type="FFT", is_for_complex=True)
def complex_transform(
    self: TensorSpec, dim: Sequence[int], normalization: int, output: TensorSpec, **_: Any
) -> Flop:
    """5 N log2 N for each transform of N complex numbers; 2 a number where it is normalised."""
    size = _size(self, dim)
    if not self.elements:
        return Flop()
    rounds = self.elements * math.log2(size)
    return Flop(
        other=round(5 * rounds) + _scaled(normalization, 2 * output.elements),
        least=math.floor(rounds),
    )


def _real(normalization: int, transforms: int, size: int, numbers: int) -> Flop:
    """Between `size` real numbers and half as many complex ones, `transforms` times."""
    rounds = transforms * size / 2
    return Flop(
        other=round(5 * rounds * math.log2(size)) + _scaled(normalization, numbers),
        least=math.floor(rounds * max(0.0, math.log2(size) - 1)),
    )


@formula("aten._fft_r2c", type="FFT", is_for_complex=True)
def transform_of_reals(
    self: TensorSpec, dim: Sequence[int], normalization: int, output: TensorSpec, **_: Any
) -> Flop:
    """2.5 N log2 N for each transform of N real numbers; the other half of its result is mirrored.

    Where it is normalised, 2 for each complex number that is made.
    """
    if not self.elements:
        return Flop()
    size = _size(self, dim)
    half = output.elements // output.shape[dim[-1]] * (self.shape[dim[-1]] // 2 + 1) if dim else 0
    return _real(normalization, self.elements // size, size, 2 * min(half, output.elements))


@formula("aten._fft_c2r", type="FFT", is_for_complex=True)
def transform_to_reals(
    dim: Sequence[int], normalization: int, output: TensorSpec, **_: Any
) -> Flop:
    """2.5 N log2 N for each transform to N real numbers, and 1 a number where it is normalised."""
    if not output.elements:
        return Flop()
    size = _size(output, dim)
    return _real(normalization, output.elements // size, size, output.elements)
