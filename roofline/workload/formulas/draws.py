"""Random numbers. The generators work on integers; what counts is what is made of their bits.

How much of it a kernel can avoid depends on the method, so the least is nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def _drawn(output: TensorSpec, simple: int, transcendental: int = 0, each: int = 1) -> Flop:
    """So many operations for every `each` elements; integers take none."""
    if not floats(output):
        return Flop()
    times = -(-output.elements // each)
    return Flop(other=times * (simple + transcendental * TRANSCENDENTAL_FLOP), least=0)


@formula("aten.rand", "aten.rand_like", type="random")
def rand(output: TensorSpec, **_: Any) -> Flop:
    """Bits become a number from 0 to 1 by one multiplication."""
    return _drawn(output, 1)


@formula("aten.uniform", type="random")
def uniform(output: TensorSpec, **arguments: Any) -> Flop:
    """from + (to - from) * u: two more than `rand` where the interval is not from 0 to 1."""
    interval = arguments.get("from", 0), arguments.get("to", 1)
    return _drawn(output, 1 if interval == (0, 1) else 3)


@formula("aten.bernoulli", type="random")
def bernoulli(output: TensorSpec, **_: Any) -> Flop:
    """Is a drawn number below the probability?"""
    return _drawn(output, 2)


@formula("aten.native_dropout", type="random")
def dropout(output: Sequence[TensorSpec], train: bool | None = True, **_: Any) -> Flop:
    """As `bernoulli`, and two products with the mask and the scale; nothing outside training."""
    return _drawn(output[0], 0 if train is False else 4)


@formula("aten.randint", "aten.randint_like", "aten.randperm", "aten.random", type="random")
def integers(**_: Any) -> Flop:
    """Integers, whatever they are kept as."""
    return Flop()


@formula("aten.randn", "aten.randn_like", type="random")
def randn(output: TensorSpec, **_: Any) -> Flop:
    """Two of them: sqrt(-2 * log(u)) * cos(2 * pi * v), and the same with the sine.

    Two draws, two products inside and two outside, a root, three functions. Source: G. E. P. Box
    and M. E. Muller, "A note on the generation of random normal deviates", 1958, as torch does it.
    """
    return _drawn(output, 7, 3, each=2)


@formula("aten.normal", type="random")
def normal(output: TensorSpec, mean: Any = 0, std: Any = 1, **_: Any) -> Flop:
    """mean + std * z: two more than `randn` where they are not 0 and 1."""
    standard = randn(output)
    if (mean, std) == (0, 1) or not floats(output):
        return standard
    return Flop(other=standard.other + 2 * output.elements, least=0)


@formula("aten.exponential", type="random")
def exponential(output: TensorSpec, **_: Any) -> Flop:
    """-log(u) / lambda: a draw, a sign change, a division, a logarithm."""
    return _drawn(output, 3, 1)
