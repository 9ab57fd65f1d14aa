"""Complex numbers against loops over pairs of counted real ones, written out as in a textbook."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.operators import State
from tests.workload.passes import only, passed, total
from tests.workload.scalars import Scalar, Tally


@dataclass
class Pair:
    """A complex number, as two counted real ones."""

    a: Scalar
    b: Scalar

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.a + other.a, self.b + other.b)

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.a - other.a, self.b - other.b)

    def __mul__(self, other: Pair) -> Pair:
        return Pair(self.a * other.a - self.b * other.b, self.a * other.b + self.b * other.a)

    def __truediv__(self, other: Pair) -> Pair:
        below = other.a * other.a + other.b * other.b
        return Pair(
            (self.a * other.a + self.b * other.b) / below,
            (self.b * other.a - self.a * other.b) / below,
        )

    def __neg__(self) -> Pair:
        return Pair(-self.a, -self.b)

    def scaled(self, factor: Scalar | float) -> Pair:
        """Times a real number."""
        return Pair(self.a * factor, self.b * factor)

    def more(self, number: float) -> Pair:
        """A real number more."""
        return Pair(self.a + number, self.b)

    def inverse(self) -> Pair:
        below = self.a * self.a + self.b * self.b
        return Pair(self.a / below, (-self.b) / below)

    def magnitude(self) -> Scalar:
        return (self.a * self.a + self.b * self.b).root()

    def angle(self) -> Scalar:
        return self.b.apply(lambda b: math.atan2(b, self.a.value))


def exp(z: Pair) -> Pair:
    size, cosine, sine = z.a.apply(math.exp), z.b.apply(math.cos), z.b.apply(math.sin)
    return Pair(size * cosine, size * sine)


def log(z: Pair) -> Pair:
    return Pair(z.magnitude().apply(math.log), z.angle())


def root(z: Pair) -> Pair:
    """Of a number whose real part is not negative."""
    t = ((z.magnitude() + z.a) * 0.5).root()
    return Pair(t, z.b / (t * 2))


def sin(z: Pair) -> Pair:
    return Pair(
        z.a.apply(math.sin) * z.b.apply(math.cosh), z.a.apply(math.cos) * z.b.apply(math.sinh)
    )


def tanh(z: Pair) -> Pair:
    a, b = z.a * 2, z.b * 2
    below = a.apply(math.cosh) + b.apply(math.cos)
    return Pair(a.apply(math.sinh) / below, b.apply(math.sin) / below)


def asinh(z: Pair) -> Pair:
    return log(z + root((z * z).more(1)))


def atanh(z: Pair) -> Pair:
    opposite = Pair(1 - z.a, -z.b)
    return log(z.more(1) / opposite).scaled(0.5)


def sigmoid(z: Pair) -> Pair:
    return exp(-z).more(1).inverse()


def unit(z: Pair) -> Pair:
    size = z.magnitude()
    return Pair(z.a / size, z.b / size)


ONE_ARGUMENT: list[tuple[str, Callable[[Any], Any], Callable[[Pair], Any]]] = [
    ("neg", torch.neg, lambda z: -z),
    ("reciprocal", torch.reciprocal, Pair.inverse),
    ("square", torch.square, lambda z: z * z),
    ("power of 2", lambda z: z**2, lambda z: z * z),
    ("power of 3", lambda z: z**3, lambda z: z * z * z),
    ("power of -1", lambda z: z**-1, Pair.inverse),
    ("root", torch.sqrt, root),
    ("power of a half", lambda z: z**0.5, root),
    ("reciprocal root", torch.rsqrt, lambda z: root(z).inverse()),
    ("abs", torch.abs, Pair.magnitude),
    ("angle", torch.angle, Pair.angle),
    ("sgn", torch.sgn, unit),
    ("conjugate", torch.conj_physical, lambda z: Pair(z.a, -z.b)),
    ("double", lambda z: z * 2, lambda z: z.scaled(2)),
    ("halve", lambda z: z / 2, lambda z: Pair(z.a / 2, z.b / 2)),
    ("one more", lambda z: z + 1, lambda z: z.more(1)),
    ("one less", lambda z: z - 1, lambda z: z.more(-1)),
    ("from one", lambda z: 1 - z, lambda z: Pair(1 - z.a, -z.b)),
    ("exp", torch.exp, exp),
    ("expm1", torch.expm1, lambda z: exp(z).more(-1)),
    ("exp2", torch.exp2, lambda z: exp(z.scaled(math.log(2)))),
    ("log", torch.log, log),
    ("log1p", torch.log1p, lambda z: log(z.more(1))),
    ("log2", torch.log2, lambda z: log(z).scaled(1 / math.log(2))),
    ("sin", torch.sin, sin),
    ("tanh", torch.tanh, tanh),
    ("asinh", torch.asinh, asinh),
    ("atanh", torch.atanh, atanh),
    ("sigmoid", torch.sigmoid, sigmoid),
    ("silu", torch.nn.functional.silu, lambda z: z / exp(-z).more(1)),
    ("power", lambda z: z ** (0.3 + 0.2j), lambda z: exp(log(z) * constant(z, 0.3, 0.2))),
]

TWO_ARGUMENTS: list[tuple[str, Callable[..., Any], Callable[[Pair, Pair], Any]]] = [
    ("add", torch.add, lambda x, y: x + y),
    ("subtract", torch.sub, lambda x, y: x - y),
    ("subtract scaled", lambda x, y: torch.sub(x, y, alpha=2), lambda x, y: x - y.scaled(2)),
    ("multiply", torch.mul, lambda x, y: x * y),
    ("divide", torch.div, lambda x, y: x / y),
    ("times real", lambda x, y: x * y.real, lambda x, y: x.scaled(y.a)),
    ("by real", lambda x, y: x / y.real, lambda x, y: Pair(x.a / y.a, x.b / y.a)),
    ("real by", lambda x, y: x.real / y, lambda x, y: y.inverse().scaled(x.a)),
    ("plus real", lambda x, y: x + y.real, lambda x, y: Pair(x.a + y.a, x.b)),
    ("from real", lambda x, y: x.real - y, lambda x, y: Pair(x.a - y.a, -y.b)),
    ("addcmul", lambda x, y: torch.addcmul(x, x, y), lambda x, y: x + x * y),
    (
        "scaled addcdiv",
        lambda x, y: torch.addcdiv(x, x, y, value=2),
        lambda x, y: x + (x / y).scaled(2),
    ),
    ("lerp", lambda x, y: torch.lerp(x, y, 0.3), lambda x, y: x + (y - x).scaled(0.3)),
    ("not equal", torch.ne, lambda x, y: float(any([(x.a - y.a).value, (x.b - y.b).value]))),
    (
        "polar",
        lambda x, y: torch.polar(x.real, y.real),
        lambda x, y: Pair(x.a * y.a.apply(math.cos), x.a * y.a.apply(math.sin)),
    ),
]


def constant(like: Pair, a: float, b: float) -> Pair:
    return Pair(Scalar(a, like.a.tally), Scalar(b, like.a.tally))


def random(*shape: int) -> torch.Tensor:
    """In the quarter of the plane, and near enough to 0, where all functions are the plain ones."""
    generator = torch.Generator().manual_seed(sum(shape))
    parts = torch.rand(*shape, 2, dtype=torch.float64, generator=generator) * 0.5 + 0.1
    return torch.view_as_complex(parts)


def pairs(tensor: torch.Tensor, tally: Tally) -> list[Pair]:
    return [Pair(Scalar(z.real, tally), Scalar(z.imag, tally)) for z in tensor.flatten().tolist()]


def same(numbers: list[Any], expected: torch.Tensor) -> bool:
    values = [
        complex(each.a.value, each.b.value)
        if isinstance(each, Pair)
        else complex(each.value if isinstance(each, Scalar) else each)
        for each in numbers
    ]
    found = torch.tensor(values, dtype=torch.complex128)
    return torch.allclose(found, expected.flatten().to(torch.complex128))


def check(captured: Any, tally: Tally) -> None:
    """As many operations as the loop took, of which the shortest way may take fewer."""
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    work = total(captured)
    assert work.flop == tally.flop
    assert 0 < (work.min_flop or 0) <= tally.min_flop


@pytest.mark.parametrize(
    ("function", "written_out"),
    [pytest.param(function, loop, id=name) for name, function, loop in ONE_ARGUMENT],
)
def test_written_out(function: Callable[[Any], Any], written_out: Callable[[Pair], Any]) -> None:
    """The loop gives what torch gives, and takes what is counted."""
    z, tally = random(3, 2), Tally()
    assert same([written_out(each) for each in pairs(z, tally)], function(z))
    check(passed(function, z), tally)


@pytest.mark.parametrize(
    ("function", "written_out"),
    [pytest.param(function, loop, id=name) for name, function, loop in TWO_ARGUMENTS],
)
def test_two_arguments_written_out(
    function: Callable[..., Any], written_out: Callable[[Pair, Pair], Any]
) -> None:
    """As above, for functions of two tensors, one of which may be real."""
    x, y, tally = random(3, 2), random(2, 3).T, Tally()
    both = zip(pairs(x, tally), pairs(y, tally), strict=True)
    assert same([written_out(a, b) for a, b in both], function(x, y))
    check(passed(function, x, y), tally)


def mean_of(row: list[Pair]) -> Pair:
    whole = sum_of(row)
    return Pair(whole.a / len(row), whole.b / len(row))


def sum_of(row: list[Any]) -> Any:
    result = row[0]
    for each in row[1:]:
        result = result + each
    return result


def product_of(row: list[Pair]) -> Pair:
    result = row[0]
    for each in row[1:]:
        result = result * each
    return result


def variance_of(row: list[Pair]) -> Scalar:
    middle = mean_of(row)
    squares = [(each - middle) for each in row]
    return sum_of([each.a * each.a + each.b * each.b for each in squares]) / (len(row) - 1)


def norm_of(row: list[Pair]) -> Scalar:
    return sum_of([each.a * each.a + each.b * each.b for each in row]).root()


REDUCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[list[Pair]], Any]]] = {
    "sum": (lambda z: z.sum(-1), sum_of),
    "mean": (lambda z: z.mean(-1), mean_of),
    "prod": (lambda z: z.prod(-1), product_of),
    "var": (lambda z: z.var(-1), variance_of),
    "std": (lambda z: z.std(-1), lambda row: variance_of(row).root()),
    "norm": (lambda z: torch.linalg.vector_norm(z, 2, -1), norm_of),
    "norm 1": (
        lambda z: torch.linalg.vector_norm(z, 1, -1),
        lambda row: sum_of([each.magnitude() for each in row]),
    ),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    """Of rows of four."""
    function, loop = REDUCTIONS[name]
    z, tally = random(3, 4), Tally()
    assert same([loop(pairs(row, tally)) for row in z], function(z))
    check(passed(function, z), tally)


def test_running_sums_and_products() -> None:
    """Of 3 rows of 4: three additions of 2 a row, three products of 6."""
    z = random(3, 4)
    assert total(passed(lambda z: z.cumsum(-1), z)).flop == 3 * 3 * 2
    assert total(passed(lambda z: z.cumprod(-1), z)).flop == 3 * 3 * 6
    assert total(passed(torch.trace, random(4, 4))).flop == 3 * 2


sizes = st.integers(1, 3)


@settings(max_examples=30)
@given(m=sizes, k=sizes, n=sizes, batch=sizes)
def test_products(m: int, k: int, n: int, batch: int) -> None:
    """Each multiply-add is four real ones, added up from nothing."""
    x, y, tally = random(batch, m, k), random(batch, k, n), Tally()
    result = []
    for each, other in zip(x, y, strict=True):
        for row in each:
            for column in other.T:
                zero = Pair(Scalar(0, tally), Scalar(0, tally))
                terms = zip(pairs(row, tally), pairs(column, tally), strict=True)
                result.append(sum_of([zero, *(a * b for a, b in terms)]))
    assert same(result, x @ y)
    work = only(passed(torch.bmm, x, y)).work
    assert (work.flop, work.macs) == (tally.flop, tally.simple / 2)
    parts = [only(passed(torch.mm, a, b)).work for a, b in zip(x, y, strict=True)]
    assert sum(each.macs or 0 for each in parts) == work.macs


def test_products_with_terms_and_vectors() -> None:
    """3 x 4 by 4 x 5: 240 real multiply-adds; 15 sums of 2, and scales of 2 or 6 for each."""
    b, x, y = random(3, 5), random(3, 4), random(4, 5)
    plain = only(passed(torch.addmm, b, x, y)).work
    assert (plain.macs, plain.flop) == (240, 480 + 30)
    scaled = only(passed(lambda b, x, y: torch.addmm(b, x, y, alpha=2, beta=1j), b, x, y)).work
    assert scaled.flop == 480 + 15 * (2 + 2 + 6)
    assert only(passed(torch.mv, x, y[:, 0])).work.macs == 4 * 12
    assert only(passed(torch.vdot, x[0], x[1])).work.macs == 4 * 4
    assert only(passed(torch.outer, x[0], x[1])).work.flop == 16 * 6


def test_rotary_embedding() -> None:
    """Queries as complex numbers times a turn: a product of 6 for every two of them."""

    def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        turns = torch.polar(torch.ones_like(angles), angles)
        turned = torch.view_as_complex(x.reshape(2, 5, 4, 2)) * turns
        return torch.view_as_real(turned).flatten(-2)

    assert total(passed(rotated, (2, 5, 8), (5, 4))).flop == 2 * 5 * 4 * 6 + 5 * 4 * (2 + 2 * 8)


def test_real_numbers_are_counted_as_before() -> None:
    """The same operators on floats and integers."""
    x, i = torch.rand(6), torch.ones(6, dtype=torch.int64)
    for function, each in ((torch.mul, 1), (torch.sub, 1), (torch.div, 1)):
        assert total(passed(function, x, x)).flop == 6 * each
    assert total(passed(torch.mul, i, i)).flop == 0
    assert total(passed(torch.conj_physical, x)).flop == 0


def test_numbers_added_where_indices_say() -> None:
    """Two rows of 4: an addition of 2 each, with a product of 2, or of 6."""
    z, index, some = random(3, 4), torch.tensor([0, 0]), random(2, 4)
    places = torch.zeros(2, 4, dtype=torch.int64)
    for function, each in (
        (lambda z, y: z.index_add(0, index, y), 2),
        (lambda z, y: z.index_add(0, index, y, alpha=2), 4),
        (lambda z, y: z.index_add(0, index, y, alpha=2j), 8),
        (lambda z, y: z.index_put((index,), y, accumulate=True), 2),
        (lambda z, y: z.scatter_add(0, places, y), 2),
    ):
        assert total(passed(function, z, some)).flop == 8 * each


def test_products_across_and_draws() -> None:
    """Two products of 6 and a difference; a pair of normal draws, scaled, for each number."""
    z = random(2, 3)
    assert total(passed(torch.linalg.cross, z, z)).flop == 6 * 14
    assert total(passed(lambda _: torch.randn(5, dtype=torch.complex64), z)).flop == 5 * (31 + 2)
    assert total(passed(lambda _: torch.rand(5, dtype=torch.complex64), z)).flop == 5 * 2
