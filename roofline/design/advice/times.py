"""How long something would take, with an interval where that is predicted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Seconds of an operator, with the interval from 10 to 90 % where they are predicted."""

    s: float
    low_s: float | None = None
    high_s: float | None = None

    @property
    def below_s(self) -> float:
        """How much less it may be; 0 where that is not known."""
        return self.s - self.low_s if self.low_s is not None else 0.0

    @property
    def above_s(self) -> float:
        """How much more it may be; 0 where that is not known."""
        return self.high_s - self.s if self.high_s is not None else 0.0

    def times(self, factor: float) -> Time:
        """So many times as long."""
        return Time(
            s=self.s * factor,
            low_s=None if self.low_s is None else self.low_s * factor,
            high_s=None if self.high_s is None else self.high_s * factor,
        )
