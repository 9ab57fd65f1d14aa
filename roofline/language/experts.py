"""How many distinct experts a batch touches: what routing may give, and what even routing gives.

Each token takes k of E experts. Under even routing every choice of k is as likely as any other, and
tokens choose by themselves: the formulas are exact. Real routers prefer some experts, so that fewer
are touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from roofline.foundation.dtypes import DType
from roofline.language.architecture import Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSpread:
    """The distinct experts that tokens touch in one layer, and the bytes of their weights.

    ``least`` if all tokens choose alike, ``most`` if they avoid each other; ``expected`` under even
    routing, with the standard deviation ``deviation``. ``layers`` have experts; ``expert_byte`` is
    one of them, ``shared_byte`` what every token goes through besides.
    """

    tokens: int
    count: int
    per_token: int
    layers: int
    least: int
    expected: float
    deviation: float
    most: int
    expert_byte: int
    shared_byte: int

    @property
    def typical(self) -> int:
        """The whole number nearest to what even routing gives."""
        return round(self.expected)

    def byte(self, distinct: float) -> float:
        """Bytes of expert weights in all layers if each touches so many, shared ones included."""
        return self.layers * (distinct * self.expert_byte + self.shared_byte)


def distinct_experts(count: int, per_token: int, tokens: int) -> tuple[float, float]:
    """Mean and standard deviation of the distinct experts that tokens touch under even routing.

    An expert is left out by one token with the chance (E - k) / E, by all with its power; two are
    left out together with (E - k)(E - k - 1) / E(E - 1). Both follow, as the number of those left
    out is a sum over experts.

    Args:
        count: E, how many there are.
        per_token: k, how many each token takes.
        tokens: how many tokens choose.
    """
    free = count - per_token
    alone = (free / count) ** tokens
    pair = (free * (free - 1) / (count * (count - 1))) ** tokens if count > 1 else 0.0
    left = count * alone
    variance = count * (count - 1) * pair + left - left**2
    return count - left, math.sqrt(max(0.0, variance))


def expert_spread(architecture: Architecture, tokens: int, dtype: DType) -> ExpertSpread | None:
    """What tokens touch in the layers of experts; None: there are no such layers.

    Args:
        architecture: the model.
        tokens: those of one pass, of all sequences.
        dtype: the type of the weights.
    """
    sizes = architecture.experts
    layers = sum(architecture.sparse)
    if sizes is None or not layers:
        return None
    expected, deviation = distinct_experts(sizes.count, sizes.per_token, tokens)
    products = 3 if architecture.is_gated else 2
    return ExpertSpread(
        tokens=tokens,
        count=sizes.count,
        per_token=sizes.per_token,
        layers=layers,
        least=sizes.per_token if tokens else 0,
        expected=expected,
        deviation=deviation,
        most=min(sizes.count, tokens * sizes.per_token),
        expert_byte=dtype.byte(products * architecture.width * sizes.width),
        shared_byte=dtype.byte(products * architecture.width * sizes.shared_width),
    )
