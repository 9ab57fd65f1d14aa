"""Random numbers. The generators work on integers; what counts is what is made of their bits.

How much of it a kernel can avoid depends on the method, so the least is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.complex_numbers import Cost, is_complex
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, first, floats, number
from roofline.workload.formulas.registry import Flop, formula, table
from roofline.workload.tensors import TensorSpec


def _drawn(output: TensorSpec, simple: int, transcendental: int = 0, each: int = 1) -> Flop:
    """So many operations for every `each` elements; integers take none."""
    if not floats(output):
        return Flop()
    times = -(-output.elements // each)
    return Flop(other=times * (simple + transcendental * TRANSCENDENTAL_FLOP), least=0)


@formula("aten.rand", type="random", is_for_complex=True)
def rand(output: TensorSpec, **_: Any) -> Flop:
    """Bits become a number from 0 to 1 by one multiplication; complex: two of them."""
    return _drawn(output, 2 if is_complex(output) else 1)


@formula("aten.uniform", "aten._philox_uniform", type="random")
def uniform(output: TensorSpec, **arguments: Any) -> Flop:
    """from + (to - from) * u: two more than `rand` where the interval is not from 0 to 1."""
    low, high = (arguments.get(old, arguments.get(new)) for old, new in _ENDS)
    return _drawn(output, 1 if (low or 0, 1 if high is None else high) == (0, 1) else 3)


_ENDS = (("from", "low"), ("to", "high"))
"""Of an interval, by the names of either operator."""


def _each(cost: Cost, output: TensorSpec | Sequence[TensorSpec], **_: Any) -> Flop:
    return _drawn(first(output), cost.simple, cost.functions)


table(
    """
aten.bernoulli = 2
    Is a drawn number below the probability?
aten._fused_dropout = 4
    As `dropout`, in training.
aten.exponential = 3+1f
    -log(u) / lambda: a draw, a sign change, a division, a logarithm.
aten.cauchy = 5+1f
    median + sigma * tan(pi * (u - 0.5)): a draw, two sums, two products, a tangent.
aten.geometric = 3+1f
    ceil(log(u) / log(1 - p)): a draw, a logarithm, a division, a rounding.
aten.poisson aten.binomial = 9+3f
    One round of a rejection: two draws, seven operations, three functions for the test.

    How many rounds it takes depends on the numbers. Source: W. Hoermann, "The transformed rejection
    method for generating Poisson random variables", 1993, as torch does both.
aten._standard_gamma aten._sample_dirichlet = 10+4f
    One round of a rejection: half a pair of normal draws, another draw, a cube, a test.

    Those are ten operations and four functions; how many rounds it takes depends on the numbers.
    Dirichlet's are divided by their sum besides, which is left out. Source: G. Marsaglia and W. W.
    Tsang, "A simple method for generating gamma variables", 2000, as torch does it.
""",
    _each,
    number,
    type="random",
)


@formula("aten.native_dropout", type="random")
def dropout(output: Sequence[TensorSpec], train: bool | None = True, **_: Any) -> Flop:
    """As `bernoulli`, and two products with the mask and the scale; nothing outside training."""
    return _drawn(output[0], 0 if train is False else 4)


_LIKE = "what is written; of the tensor that it is like, only shape and type are looked at"


@formula("aten.rand_like", type="random", byte=_LIKE, is_for_complex=True)
def rand_like(output: TensorSpec, **_: Any) -> Flop:
    """As `rand`."""
    return replace(rand(output), elements={"self": 0})


@formula("aten.randn_like", type="random", byte=_LIKE, is_for_complex=True)
def randn_like(output: TensorSpec, **_: Any) -> Flop:
    """As `randn`."""
    return replace(randn(output), elements={"self": 0})


@formula("aten.randint_like", type="random", byte=_LIKE)
def integers_like(**_: Any) -> Flop:
    """Integers, whatever they are kept as."""
    return Flop(elements={"self": 0})


@formula("aten.randint", "aten.randperm", "aten.random", type="random")
@formula("aten._philox_key_split", "aten._philox_key_fold_in", type="random")
def integers(**_: Any) -> Flop:
    """Integers, whatever they are kept as."""
    return Flop()


@formula("aten.randn", type="random", is_for_complex=True)
def randn(output: TensorSpec, **_: Any) -> Flop:
    """Two of them: sqrt(-2 * log(u)) * cos(2 * pi * v), and the same with the sine.

    Two draws, two products inside and two outside, a root, three functions. Source: G. E. P. Box
    and M. E. Muller, "A note on the generation of random normal deviates", 1958, as torch does it.
    Complex: a pair for each number, either part scaled.
    """
    if is_complex(output):
        return _drawn(output, 7 + 2, 3)
    return _drawn(output, 7, 3, each=2)


@formula("aten.normal", "aten.normal_functional", "aten._philox_normal", type="random")
def normal(output: TensorSpec, mean: Any = 0, std: Any = 1, **_: Any) -> Flop:
    """mean + std * z: two more than `randn` where they are not 0 and 1."""
    standard = randn(output)
    if (mean, std) == (0, 1) or not floats(output):
        return standard
    return Flop(other=standard.other + 2 * output.elements, least=0)


@formula("aten.log_normal", type="random")
def log_normal(output: TensorSpec, mean: float = 1, std: float = 2, **_: Any) -> Flop:
    """exp(mean + std * z)."""
    return Flop(
        other=normal(output, mean, std).other + _drawn(output, 0, 1).other,
        least=0,
    )


@formula("aten.multinomial", type="random")
def multinomial(
    self: TensorSpec, num_samples: int, output: TensorSpec, replacement: bool = False, **_: Any
) -> Flop:
    """Each weight divided by an exponential draw, and the largest of these found, as torch does it.

    More than one with replacement: running sums divided by the last, and a bisection a sample.
    """
    size = self.shape[-1] if self.shape else 1
    rows = self.elements // size if size else 0
    if replacement and num_samples > 1:
        each = 1 + math.ceil(math.log2(max(size, 1)))
        return Flop(other=2 * self.elements - rows + output.elements * each, least=0)
    comparisons = self.elements * math.ceil(math.log2(num_samples + 1))
    return Flop(other=_drawn(self, 3, 1).other + self.elements + comparisons, least=0)
