"""Numbers that count what is done with them: the oracle for every formula.

An operator is written out as a plain loop over such numbers. Its result is compared with torch's,
which shows that the loop does what the operator does; the tally shows what that takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

FUNCTION_FLOP = 8
"""What a transcendental function counts as, after McMahon; a kernel cannot avoid 1."""


@dataclass
class Tally:
    """Operations so far: simple ones, and transcendental functions."""

    simple: int = 0
    functions: int = 0

    @property
    def flop(self) -> int:
        return self.simple + FUNCTION_FLOP * self.functions

    @property
    def min_flop(self) -> int:
        return self.simple + self.functions


@dataclass
class Scalar:
    """A number that notes each operation in its tally; numbers without one are constants."""

    value: float
    tally: Tally = field(repr=False)

    def _new(self, value: float) -> Scalar:
        self.tally.simple += 1
        return Scalar(value, self.tally)

    def __add__(self, other: Scalar | float) -> Scalar:
        return self._new(self.value + _value(other))

    def __sub__(self, other: Scalar | float) -> Scalar:
        return self._new(self.value - _value(other))

    def __rsub__(self, other: float) -> Scalar:
        return self._new(other - self.value)

    def __mul__(self, other: Scalar | float) -> Scalar:
        return self._new(self.value * _value(other))

    def __truediv__(self, other: Scalar | float) -> Scalar:
        return self._new(self.value / _value(other))

    def __rtruediv__(self, other: float) -> Scalar:
        return self._new(other / self.value)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Scalar:
        return self._new(-self.value)

    def __abs__(self) -> Scalar:
        return self._new(abs(self.value))

    def __gt__(self, other: Scalar | float) -> bool:
        self.tally.simple += 1
        return self.value > _value(other)

    def __lt__(self, other: Scalar | float) -> bool:
        self.tally.simple += 1
        return self.value < _value(other)

    def root(self) -> Scalar:
        return self._new(math.sqrt(self.value))

    def apply(self, function: Callable[[float], float]) -> Scalar:
        """A transcendental function of it."""
        self.tally.functions += 1
        return Scalar(function(self.value), self.tally)


def _value(number: Scalar | float) -> float:
    return number.value if isinstance(number, Scalar) else number


def exp(x: Scalar) -> Scalar:
    return x.apply(math.exp)


def log(x: Scalar) -> Scalar:
    return x.apply(math.log)


def tanh(x: Scalar) -> Scalar:
    return x.apply(math.tanh)


def sigmoid(x: Scalar) -> Scalar:
    return 1 / (exp(-x) + 1)


def select(condition: bool, yes: Scalar | float, no: Scalar | float) -> Scalar | float:
    """One of two values that were both computed, as vector units do it."""
    return yes if condition else no


def sum_of(numbers: Sequence[Scalar]) -> Scalar:
    """n - 1 additions."""
    result = numbers[0]
    for each in numbers[1:]:
        result = result + each
    return result


def largest_of(numbers: Sequence[Scalar]) -> Scalar:
    """n - 1 comparisons."""
    result = numbers[0]
    for each in numbers[1:]:
        result = each if each > result else result
    return result


def numbers(tensor: torch.Tensor, tally: Tally) -> Any:
    """The elements as nested lists of counted numbers."""
    if tensor.dim() == 0:
        return Scalar(float(tensor), tally)
    return [numbers(each, tally) for each in tensor]


def flat(nested: Any) -> Iterator[Any]:
    """The numbers in nested lists."""
    if isinstance(nested, (list, tuple)):
        for each in nested:
            yield from flat(each)
    else:
        yield nested


def random(*shape: int) -> torch.Tensor:
    """The same numbers every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def every(*sizes: int) -> Iterator[tuple[int, ...]]:
    """All places of a tensor."""
    return itertools.product(*map(range, sizes))


def columns(rows: Any) -> Any:
    """The transpose of a matrix."""
    return [list(each) for each in zip(*rows, strict=True)]


def dot(a: Any, b: Any) -> Scalar:
    """A multiplication and an addition for each pair: an accumulator begins with zero."""
    return sum_of([Scalar(0.0, a[0].tally), *(x * y for x, y in zip(a, b, strict=True))])


def same(nested: Any, expected: torch.Tensor, tolerance: float = 1e-4) -> bool:
    """Whether the nested numbers are the elements of `expected`."""
    found = torch.tensor([_value(each) for each in flat(nested)], dtype=torch.float64)
    return torch.allclose(found, expected.flatten().double(), rtol=tolerance, atol=tolerance)
