"""How long something would take, what a change saves, how sure that is, and whether it matters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from roofline.analysis import Basis

LEAST_SHARE = 0.01
"""Of the time of a pass: what saves less is not worth a change."""


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


NOTHING = Time(s=0.0, low_s=0.0, high_s=0.0)
"""The time of what is not there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Seconds before and after, and the interval of their difference; None: it is not known."""

    before_s: float
    after_s: float
    low_s: float | None = None
    high_s: float | None = None

    @property
    def s(self) -> float:
        """The seconds saved."""
        return self.before_s - self.after_s

    def is_worth(self, pass_s: float) -> bool:
        """Whether it is at least 1 % of a pass, and its interval holds no loss."""
        return self.s >= LEAST_SHARE * pass_s and (self.low_s is None or self.low_s > 0)


def saving_of(parts: Iterable[tuple[Time, Time]], basis: Basis) -> Saving:
    """The saving of several changes, each of a time before and a time after.

    Equal parts are the same operator again, and wrong in the same way; what is wrong with others is
    taken to be independent. Bounds have no interval.

    Args:
        parts: what changes.
        basis: what the times are.
    """
    counts = Counter(parts)
    before_s = sum(before.s * count for (before, _), count in counts.items())
    after_s = sum(after.s * count for (_, after), count in counts.items())
    if basis != "prediction":
        return Saving(before_s=before_s, after_s=after_s)
    # What takes longer before, or less after, saves more; intervals are longer upwards.
    down_s = math.hypot(
        *(count * before.below_s for (before, _), count in counts.items()),
        *(count * after.above_s for (_, after), count in counts.items()),
    )
    up_s = math.hypot(
        *(count * before.above_s for (before, _), count in counts.items()),
        *(count * after.below_s for (_, after), count in counts.items()),
    )
    saved_s = before_s - after_s
    return Saving(before_s=before_s, after_s=after_s, low_s=saved_s - down_s, high_s=saved_s + up_s)
