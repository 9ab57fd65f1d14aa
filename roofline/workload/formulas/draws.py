"""Random numbers: arithmetic on the bits of integer generators.

The unavoidable part depends on the method, so the minimum is 0.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.costs import Cost, F, components, cost, has_floats, is_complex
from roofline.workload.formulas.pointwise import first_output
from roofline.workload.formulas.registry import Flop, Tensors, formula, table
from roofline.workload.tensors import TensorSpec as Tensor


def count_draws(of: Cost | int, output: Tensor | Tensors, **_: Any) -> Flop:
    """Return the cost of each element; integers are free."""
    result = first_output(output)
    return Flop(other=has_floats(result) * result.elements * cost(of).operations, least=0)


def is_standard(low: float | None, high: float | None) -> bool:
    return (low or 0, 1 if high is None else high) == (0, 1)


table(
    """
aten.rand = components(output); complex
    1 multiplication from bits to a number in 0 … 1; complex: 2.
aten._philox_uniform = 1 if is_standard(low, high) else 3
    from + (to - from) * u: 2 more than aten.rand if the interval is not 0 … 1.
aten.bernoulli = 2
    A draw and a comparison with the probability.
aten._fused_dropout = 4
    As aten.native_dropout, in training.
aten.native_dropout = 0 if train is False else 4
    As aten.bernoulli, and products with mask and scale; 0 outside training.
aten.exponential = 3 + F
    -log(u) / lambda: a draw, a sign change, a division, a logarithm.
aten.cauchy = 5 + F
    median + sigma * tan(pi * (u - 0.5)): a draw, two sums, two products, a tangent.
aten.geometric = 3 + F
    ceil(log(u) / log(1 - p)): a draw, a logarithm, a division, a rounding.
aten.poisson aten.binomial = 9 + 3 * F
    One rejection round: two draws, seven operations, three functions for the test.

    The number of rounds depends on values. Source: W. Hoermann, "The transformed rejection method
    for generating Poisson random variables", 1993, torch's method for both.
aten._standard_gamma aten._sample_dirichlet = 10 + 4 * F
    One rejection round: half a pair of normal draws, another draw, a cube, a test.

    These are ten operations and four functions; the number of rounds depends on values. The final
    division of a Dirichlet sample by its sum is not counted. Source: G. Marsaglia and W. W. Tsang,
    "A simple method for generating gamma variables", 2000, torch's method.
aten.randint aten.randperm aten.random aten._philox_key_split aten._philox_key_fold_in = 0
    0: integers, in any output type.
""",
    count_draws,
    names={"components": components},
)


@formula("aten.uniform")
def uniform(output: Tensor, **arguments: Any) -> Flop:
    """from + (to - from) * u: 2 more than aten.rand if the interval is not 0 … 1."""
    interval = (arguments.get("from"), arguments.get("to"))
    return count_draws(1 if is_standard(*interval) else 3, output)


@formula("aten.randn", is_for_complex=True)
def randn(output: Tensor, **_: Any) -> Flop:
    """Pairs of sqrt(-2 * log(u)) * cos(2 * pi * v), and the same with the sine.

    Per pair: two draws, two products inside and two outside, a root, three functions. Complex: a
    pair per number, both parts scaled. Source: G. E. P. Box and M. E. Muller, "A note on the
    generation of random normal deviates", 1958, torch's method.
    """
    pair = 7 + 3 * F
    if is_complex(output):
        return count_draws(pair + 2, output)
    return Flop(other=has_floats(output) * -(-output.elements // 2) * pair.operations, least=0)


@formula("aten.normal", "aten.normal_functional", "aten._philox_normal")
def normal(output: Tensor, mean: Any = 0, std: Any = 1, **_: Any) -> Flop:
    """mean + std * z: 2 more than aten.randn unless they are 0 and 1."""
    scaled = 0 if (mean, std) == (0, 1) else count_draws(2, output).other
    return randn(output).plus(scaled, 0)


table(
    """
aten.log_normal = normal(output, mean, std).plus(count_draws(F, output).other, 0)
    exp(mean + std * z).
"""
)


def _unread(count: Flop, **_: Any) -> Flop:
    return replace(count, elements={"self": 0})


_LIKE = "the result; the tensor is not read, only its shape and type are used"

table(
    """
aten.rand_like = count_draws(components(output), output); complex
    As aten.rand.
aten.randn_like = randn(output); complex
    As aten.randn.
aten.randint_like = Flop()
    0: integers, in any output type.
""",
    _unread,
    byte=_LIKE,
    names={"components": components},
)


@formula("aten.multinomial")
def multinomial(
    self: Tensor, num_samples: int, output: Tensor, replacement: bool = False, **_: Any
) -> Flop:
    """Each weight divided by an exponential draw, then the largest quotients, torch's method.

    Several draws with replacement: running sums divided by the last, and a bisection per sample.
    """
    size = self.shape[-1] if self.shape else 1
    rows = self.elements // size if size else 0
    if replacement and num_samples > 1:
        each = 1 + math.ceil(math.log2(max(size, 1)))
        return Flop(other=2 * self.elements - rows + output.elements * each, least=0)
    comparisons = self.elements * math.ceil(math.log2(num_samples + 1))
    return Flop(other=count_draws(3 + F, self).other + self.elements + comparisons, least=0)
