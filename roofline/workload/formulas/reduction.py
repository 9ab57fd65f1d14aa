"""Reductions: n elements made one take n - 1 operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.pointwise import floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def _first(output: TensorSpec | Sequence[TensorSpec]) -> TensorSpec:
    return output if isinstance(output, TensorSpec) else output[0]


@formula(
    *("aten.sum", "aten.amax", "aten.amin", "aten.max", "aten.min", "aten.argmax", "aten.argmin"),
    *("aten.prod", "aten.nansum"),
)
def fold(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """One addition, multiplication or comparison for each element but the first of each result."""
    return Flop(other=self.elements - _first(output).elements if floats(self) else 0)


@formula("aten.any", "aten.all", "aten.count_nonzero")
def logic_fold(**_: Any) -> Flop:
    """Logic is no floating-point arithmetic."""
    return Flop()


@formula("aten.mean")
def mean(self: TensorSpec, **_: Any) -> Flop:
    """n - 1 additions and a division for each result."""
    return Flop(other=self.elements)


@formula("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def variance(self: TensorSpec, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    """Mean, subtraction, square, sum: four an element; a division (and root) more for each result."""
    return Flop(other=4 * self.elements + _first(output).elements)


@formula("aten.linalg_vector_norm", "aten.norm")
def norm(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """A multiplication and an addition an element; a root for each result instead of its first sum."""
    return Flop(other=2 * self.elements)


@formula("aten.cumsum", "aten.cumprod")
def scan(self: TensorSpec, dim: int, **_: Any) -> Flop:
    """One operation for each element but the first along `dim`."""
    rows = self.elements // self.shape[dim] if self.shape else 1
    return Flop(other=self.elements - rows if floats(self) else 0)
