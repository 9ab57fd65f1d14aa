"""Reductions: n elements made one take n - 1 operations; complex numbers, as many a part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas import complex_numbers
from roofline.workload.formulas.complex_numbers import is_complex
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def first(output: TensorSpec | Sequence[TensorSpec]) -> TensorSpec:
    """The values that a reduction returns, with or without their indices."""
    return output if isinstance(output, TensorSpec) else output[0]


def rows_along(spec: TensorSpec, dim: int) -> int:
    """How many rows `spec` has along its dimension `dim`; none if there is nothing in them."""
    if not spec.elements:
        return 0
    return spec.elements // spec.shape[dim] if spec.shape else 1


@formula(
    *("aten.amax", "aten.amin", "aten.max", "aten.min", "aten.argmax", "aten.argmin"),
    *("aten.nansum",),
)
def fold(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """One addition or comparison for each element but the first of each result."""
    operations = max(0, self.elements - first(output).elements)
    return Flop(other=operations if floats(self) else 0)


@formula("aten.sum", is_for_complex=True)
def addition(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """One addition for each element but the first of each result."""
    return Flop(other=fold(self, output).other * (2 if is_complex(self) else 1))


@formula("aten.prod", is_for_complex=True)
def multiplication(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """One multiplication for each element but the first of each result."""
    each = complex_numbers.PRODUCT.simple if is_complex(self) else 1
    return Flop(other=fold(self, output).other * each)


@formula("aten.any", "aten.all", "aten.count_nonzero", "aten._is_all_true", "aten._is_any_true")
def logic_fold(**_: Any) -> Flop:
    """Logic is no floating-point arithmetic."""
    return Flop()


@formula("aten.aminmax", "aten._aminmax")
def both_limits(self: TensorSpec, output: Sequence[TensorSpec], **_: Any) -> Flop:
    """Two comparisons for each element but the first of each result.

    Elements taken in pairs need three comparisons for two: the least of that is known to be exact.
    Source: I. Pohl, "A sorting problem and its complexity", CACM 15 (6), 1972.
    """
    rows = output[0].elements
    if not floats(self) or not self.elements:
        return Flop()
    size = self.elements // max(rows, 1)
    return Flop(other=2 * (self.elements - rows), least=rows * max(0, (3 * size + 1) // 2 - 2))


@formula("aten.trace", byte="the diagonal, not the matrix", is_for_complex=True)
def trace(self: TensorSpec, **_: Any) -> Flop:
    """The diagonal's n - 1 additions; nothing else is read."""
    diagonal = min(self.shape)
    each = 2 if is_complex(self) else 1
    operations = each * max(0, diagonal - 1) if floats(self) else 0
    return Flop(other=operations, elements={"self": diagonal})


@formula("aten.mean", is_for_complex=True)
def mean(self: TensorSpec, **_: Any) -> Flop:
    """n - 1 additions and a division for each result."""
    return Flop(other=self.elements * (2 if is_complex(self) else 1))


@formula("aten.var", "aten.var_mean", is_for_complex=True)
def variance(self: TensorSpec, **_: Any) -> Flop:
    """The mean, then a subtraction and a square an element, then the mean of those: 4 n.

    Complex: 2 n for the mean, a subtraction of 2 and a square of the magnitude of 3, and n.
    """
    return Flop(other=(8 if is_complex(self) else 4) * self.elements)


@formula("aten.std", "aten.std_mean", is_for_complex=True)
def deviation(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """The root of each variance."""
    results = output if isinstance(output, TensorSpec) else output[0]
    return Flop(other=variance(self).other + results.elements)


def norms_of_vectors(vectors: int, elements: int, ord: float, is_complex: bool = False) -> Flop:
    """Of `vectors` with `elements` in all.

    2: a square an element, their sum, a root. 1 and infinity: magnitudes, and their fold.
    0: which are not zero, and their sum. Any other order takes a magnitude and a power an element,
    their sum, and a power. Complex: the square of a magnitude takes 3, a magnitude 4.
    """
    folds = max(0, elements - vectors)
    if ord == 2:
        return Flop(other=(3 if is_complex else 1) * elements + folds + vectors)
    if ord == 0:
        return Flop(other=(2 if is_complex else 1) * elements + folds)
    magnitudes = (complex_numbers.MAGNITUDE.simple if is_complex else 1) * elements
    if ord == 1 or math.isinf(ord):
        return Flop(other=magnitudes + folds)
    powers = elements + vectors
    return Flop(
        other=magnitudes + folds + TRANSCENDENTAL_FLOP * powers,
        # A power of a square does without its root.
        least=magnitudes - (elements if is_complex else 0) + folds + powers,
    )


@formula("aten.linalg_vector_norm", is_for_complex=True)
def vector_norm(self: TensorSpec, output: TensorSpec, ord: float = 2, **_: Any) -> Flop:
    """2: a square an element, their sum, a root. 1 and infinity: magnitudes, and their fold.

    0: which are not zero, and their sum. Any other order takes a magnitude and a power an element,
    their sum, and a power. Complex: the square of a magnitude takes 3, a magnitude 4.
    """
    return norms_of_vectors(output.elements, self.elements, ord, is_complex(self))


@formula("aten.norm", "aten.native_norm", is_for_complex=True)
def norm(self: TensorSpec, output: TensorSpec, p: float | None = 2, **_: Any) -> Flop:
    """As `vector_norm`."""
    return vector_norm(self, output, 2 if p is None else p)


@formula("aten.linalg__powsum", is_for_complex=True)
def sum_of_powers(self: TensorSpec, output: TensorSpec, ord: float = 2, **_: Any) -> Flop:
    """As `vector_norm`, without the root or power at its end."""
    whole, ends = vector_norm(self, output, ord), output.elements
    if ord in (0, 1) or math.isinf(ord):
        return whole
    last = 1 if ord == 2 else TRANSCENDENTAL_FLOP
    return Flop(other=whole.other - last * ends, least=whole.min_flop - ends)


@formula("aten.renorm", is_for_complex=True)
def renorm(self: TensorSpec, p: float, dim: int, **_: Any) -> Flop:
    """A norm for each slice, is it too large, two operations for its factor; products with that.

    A slice that is small enough needs neither factor nor products.
    """
    slices = self.shape[dim] if self.elements else 0
    norms = norms_of_vectors(slices, self.elements, p, is_complex(self))
    products = self.elements * (2 if is_complex(self) else 1)
    return Flop(other=norms.other + 3 * slices + products, least=norms.min_flop + slices)


@formula("aten.logsumexp")
def logsumexp(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """max + log(sum(exp(x - max))): n - 1 comparisons, n subtractions and exponentials, …"""
    folds = 2 * max(0, self.elements - output.elements)
    transcendental = self.elements + output.elements
    simple = folds + self.elements + output.elements
    return Flop(other=simple + TRANSCENDENTAL_FLOP * transcendental, least=simple + transcendental)


@formula("aten.logcumsumexp", "aten._logcumsumexp")
def log_scan(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """max + log1p(exp(-|x - y|)) for each element but the first along `dim`, as `logaddexp`."""
    steps = self.elements - rows_along(self, dim)
    return Flop(other=steps * (5 + 2 * TRANSCENDENTAL_FLOP), least=steps * (5 + 2))


@formula("aten.cummax", "aten.cummin", "aten._cummax_helper", "aten._cummin_helper")
def scan(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """One operation for each element but the first along `dim`."""
    return Flop(other=self.elements - rows_along(self, dim) if floats(self) else 0)


@formula("aten.cumsum", is_for_complex=True)
def running_sum(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """One addition for each element but the first along `dim`."""
    return Flop(other=scan(self, dim).other * (2 if is_complex(self) else 1))


@formula("aten.cumprod", is_for_complex=True)
def running_product(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """One multiplication for each element but the first along `dim`."""
    each = complex_numbers.PRODUCT.simple if is_complex(self) else 1
    return Flop(other=scan(self, dim).other * each)


@formula("aten.segment_reduce")
def segments(data: TensorSpec, reduce: str, output: TensorSpec, **_: Any) -> Flop:
    """An operation for each element but the first of each result; a mean is divided besides.

    A segment may be empty, so that it is at the most one for each element.
    """
    operations = max(0, data.elements - output.elements)
    operations += output.elements if reduce == "mean" else 0
    return Flop(other=operations if floats(data) else 0)


@formula("aten.allclose")
def all_close(self: TensorSpec, **_: Any) -> Flop:
    """|x - y| <= atol + rtol * |y|: six an element; it may stop at the first that is not."""
    return Flop(other=6 * self.elements if floats(self) else 0, least=0)
