"""Random numbers. The generators work on integers; what counts is what is made of their bits.

How much of it a kernel can avoid depends on the method, so the least is nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.costs import Cost, F, cost, floats, is_complex, parts
from roofline.workload.formulas.pointwise import first
from roofline.workload.formulas.registry import Flop, Tensors, formula, table
from roofline.workload.tensors import TensorSpec as Tensor


def drawn(of: Cost | int, output: Tensor | Tensors, **_: Any) -> Flop:
    """The cost of each element; integers take none."""
    result = first(output)
    return Flop(other=floats(result) * result.elements * cost(of).operations, least=0)


def is_standard(low: float | None, high: float | None) -> bool:
    """Whether an interval is from 0 to 1."""
    return (low or 0, 1 if high is None else high) == (0, 1)


table(
    """
aten.rand = parts(output); complex
    Bits become a number from 0 to 1 by one multiplication; complex: two of them.
aten._philox_uniform = 1 if is_standard(low, high) else 3
    from + (to - from) * u: two more than `rand` where the interval is not from 0 to 1.
aten.bernoulli = 2
    Is a drawn number below the probability?
aten._fused_dropout = 4
    As `dropout`, in training.
aten.native_dropout = 0 if train is False else 4
    As `bernoulli`, and two products with the mask and the scale; nothing outside training.
aten.exponential = 3 + F
    -log(u) / lambda: a draw, a sign change, a division, a logarithm.
aten.cauchy = 5 + F
    median + sigma * tan(pi * (u - 0.5)): a draw, two sums, two products, a tangent.
aten.geometric = 3 + F
    ceil(log(u) / log(1 - p)): a draw, a logarithm, a division, a rounding.
aten.poisson aten.binomial = 9 + 3 * F
    One round of a rejection: two draws, seven operations, three functions for the test.

    How many rounds it takes depends on the numbers. Source: W. Hoermann, "The transformed rejection
    method for generating Poisson random variables", 1993, as torch does both.
aten._standard_gamma aten._sample_dirichlet = 10 + 4 * F
    One round of a rejection: half a pair of normal draws, another draw, a cube, a test.

    Those are ten operations and four functions; how many rounds it takes depends on the numbers.
    Dirichlet's are divided by their sum besides, which is left out. Source: G. Marsaglia and W. W.
    Tsang, "A simple method for generating gamma variables", 2000, as torch does it.
aten.randint aten.randperm aten.random aten._philox_key_split aten._philox_key_fold_in = 0
    Integers, whatever they are kept as.
""",
    drawn,
    names={"parts": parts},
)


@formula("aten.uniform")
def uniform(output: Tensor, **arguments: Any) -> Flop:
    """from + (to - from) * u: two more than `rand` where the interval is not from 0 to 1."""
    interval = (arguments.get("from"), arguments.get("to"))
    return drawn(1 if is_standard(*interval) else 3, output)


@formula("aten.randn", is_for_complex=True)
def randn(output: Tensor, **_: Any) -> Flop:
    """Two of them: sqrt(-2 * log(u)) * cos(2 * pi * v), and the same with the sine.

    Two draws, two products inside and two outside, a root, three functions. Source: G. E. P. Box
    and M. E. Muller, "A note on the generation of random normal deviates", 1958, as torch does it.
    Complex: a pair for each number, either part scaled.
    """
    pair = 7 + 3 * F
    if is_complex(output):
        return drawn(pair + 2, output)
    return Flop(other=floats(output) * -(-output.elements // 2) * pair.operations, least=0)


@formula("aten.normal", "aten.normal_functional", "aten._philox_normal")
def normal(output: Tensor, mean: Any = 0, std: Any = 1, **_: Any) -> Flop:
    """mean + std * z: two more than `randn` where they are not 0 and 1."""
    scaled = 0 if (mean, std) == (0, 1) else drawn(2, output).other
    return randn(output).plus(scaled, 0)


table(
    """
aten.log_normal = normal(output, mean, std).plus(drawn(F, output).other, 0)
    exp(mean + std * z).
"""
)


def _unread(count: Flop, **_: Any) -> Flop:
    return replace(count, elements={"self": 0})


_LIKE = "what is written; of the tensor that it is like, only shape and type are looked at"

table(
    """
aten.rand_like = drawn(parts(output), output); complex
    As `rand`.
aten.randn_like = randn(output); complex
    As `randn`.
aten.randint_like = Flop()
    Integers, whatever they are kept as.
""",
    _unread,
    byte=_LIKE,
    names={"parts": parts},
)


@formula("aten.multinomial")
def multinomial(
    self: Tensor, num_samples: int, output: Tensor, replacement: bool = False, **_: Any
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
    return Flop(other=drawn(3 + F, self).other + self.elements + comparisons, least=0)
