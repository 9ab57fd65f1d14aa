"""Logarithmic axes: from values to points on paper, with ticks in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from roofline.foundation.units import format_si


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAxis:
    """A logarithmic axis from value `low` at `start_pt` to value `high` at `end_pt`."""

    title: str
    low: float
    high: float
    start_pt: float
    end_pt: float

    @property
    def pt_per_decade(self) -> float:
        """Points on paper for a factor of ten."""
        return (self.end_pt - self.start_pt) / math.log10(self.high / self.low)

    def pt(self, value: float) -> float:
        """Where `value` stands on paper, in points."""
        return self.start_pt + self.pt_per_decade * math.log10(value / self.low)

    def value(self, pt: float) -> float:
        """The value that stands at `pt` points."""
        return self.low * 10 ** ((pt - self.start_pt) / self.pt_per_decade)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Values with their text: powers of ten, with 2 and 5 where the range is short."""
        decades = math.log10(self.high / self.low)
        steps = (1, 2, 5) if decades < 2.5 else (1,)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        # Beyond ten decades only every second or third power finds room.
        stride = max(1, math.ceil(decades / 10))
        values = [step * 10.0**power for power in range(first, last + 1, stride) for step in steps]
        return tuple((each, _tick(each)) for each in values if self.low <= each <= self.high)

    @property
    def between(self) -> tuple[float, ...]:
        """The places of small ticks: 2 to 9 times each power of ten."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
        values = (step * 10.0**power for power in powers for step in range(2, 10))
        return tuple(each for each in values if self.low <= each <= self.high)


def _tick(value: float) -> str:
    if value >= 1000:
        return format_si(value, "", 1)
    return f"{value:.10f}".rstrip("0").rstrip(".") if value >= 1e-6 else f"{value:.0e}"
