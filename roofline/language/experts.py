"""Distinct experts that a batch touches: minimum, maximum, and the mean of uniform routing.

Each token takes k of E experts. Under uniform routing every choice of k is as likely as any other,
and tokens choose independently: the formulas are exact. Real routers prefer some experts, so that
fewer are touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from roofline.foundation.dtypes import DType
from roofline.language.architecture import Architecture

_LEAST_VARIANCE = 1e-60


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSpread:
    """The distinct experts that tokens touch in one layer, and the bytes of their weights.

    ``least`` if all tokens choose alike, ``most`` if they avoid each other; ``expected`` under
    uniform routing, with the standard deviation ``deviation``. ``layers`` have experts;
    ``expert_bytes`` is one of them, ``shared_bytes`` what every token goes through besides.
    """

    tokens: int
    count: int
    per_token: int
    layers: int
    least: int
    expected: float
    deviation: float
    most: int
    expert_bytes: int
    shared_bytes: int

    @property
    def typical(self) -> int:
        """The whole number nearest to the mean of uniform routing."""
        return round(self.expected)

    def byte(self, distinct: float) -> float:
        """Return the bytes of `distinct` experts in each layer, shared ones included."""
        return self.layers * (distinct * self.expert_bytes + self.shared_bytes)


def distinct_experts(count: int, per_token: int, tokens: int) -> tuple[float, float]:
    """Return mean and standard deviation of the distinct experts under uniform routing.

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
    # Beyond any meaning, and smaller than numbers in files may be.
    return count - left, math.sqrt(variance) if variance > _LEAST_VARIANCE else 0.0


def expert_spread(architecture: Architecture, tokens: int, dtype: DType) -> ExpertSpread | None:
    """Return the experts that tokens touch; None: no layer has any.

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
        expert_bytes=dtype.byte(products * architecture.width * sizes.width),
        shared_bytes=dtype.byte(products * architecture.width * sizes.shared_width),
    )
